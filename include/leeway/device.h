// Finding and opening devices.
//
// No GPU library is linked: WebGPU (through Dawn) and OpenCL are loaded when they are first asked for, and what cannot be
// loaded is a line in a report, not an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leeway/event.h"
#include "leeway/result.h"

namespace leeway {

// One way to open a device.
struct FoundDevice {
  std::string api;  // "webgpu", "opencl"
  int index = 0;    // within the API
  std::string name;
  bool is_software = false;
};

struct BackendReport {
  std::string api;
  bool loaded = false;
  std::string message;  // which library was loaded, or why none could be
  std::vector<FoundDevice> devices;
};

// Loads what can be loaded and lists it. Never fails: what could not be loaded is in the report.
std::vector<BackendReport> ListDevices();

struct OpenOptions {
  bool minimal_limits = false;  // the standard's least limits, whatever the device has
  bool tiny_limits = false;     // absurdly small ones, so that splitting code runs
  bool no_f16 = false, no_subgroups = false;
  // Results of known-answer tests are kept in this folder between processes. Not set: the user's cache folder,
  // $XDG_CACHE_HOME/leeway or ~/.cache/leeway. An empty string: none, they run in each.
  std::optional<std::string> cache_folder;
  std::function<void(const std::string&)> log;  // which link of the chain was taken and why; may be null
};

// An opened device: opaque here, held by shared pointer. One thread at a time may use a device, and so all models on it.
class Device;

// "webgpu", "opencl", "webgpu:1", "webgpu:SwiftShader" (part of the name, any case), "" = the default chain: best GPU, then the
// software device that docs/measurements shows to be fastest.
Result<std::shared_ptr<Device>> OpenSharedDevice(std::string_view wanted, const OpenOptions& options = {});

// A test that every device has to pass when it is first used; what fails is switched off.
struct KnownAnswer {
  std::string name;
  bool passed = false;
  std::string detail;
};

// What is known of an open device.
struct DeviceSummary {
  std::string api;     // "webgpu"; "cpu" where a model runs without a device
  std::string name;    // "NVIDIA H200", "llvmpipe (LLVM 15...)"
  std::string driver;  // name and version as the driver says
  std::string vendor;
  std::string device_class;  // row of the class table: "software", "nvidia", "adreno", ...
  bool is_software = false;
  uint64_t memory_bytes = 0;  // 0: not told
  uint64_t max_buffer_bytes = 0;
  bool timestamps = false;
  std::vector<std::pair<std::string, bool>> features;    // "f16", "subgroups", "packed_dot", ...
  std::vector<std::pair<std::string, uint64_t>> limits;  // "max_binding_bytes", ...
  std::vector<KnownAnswer> known_answers;
  std::vector<std::string> quirks;  // rows of the quirk table in force
};
DeviceSummary DescribeDevice(const Device& device);

}  // namespace leeway
