// Finds adapters and opens a device on one.
#pragma once

#include <string>

#include "device/webgpu/core.h"

namespace leeway::webgpu {

// Asks for one adapter of the driver named by a Vulkan manifest file; "" leaves the choice to the Vulkan loader.
//
// WebGPU gives one adapter per request and no way to name a driver, so a manifest is chosen through the loader's environment
// variable while the library makes its Vulkan instance. Only a thorough enumeration does that.
struct AdapterRequest {
  std::string manifest;
  WGPUPowerPreference preference = WGPUPowerPreference_HighPerformance;
};

struct AdapterDescription {
  std::string vendor, architecture, device, description;
  WGPUAdapterType type = WGPUAdapterType_Unknown;
  uint32_t vendor_id = 0, device_id = 0, subgroup_min = 0, subgroup_max = 0;
};

// Params of up to this many bytes may be immediates; the standard promises no more where it has them.
inline constexpr uint32_t kImmediateBytes = 64;

// An opened device and what it was opened with.
struct Opened {
  std::shared_ptr<Core> core;
  AdapterDescription description;
  WGPULimits limits;
  bool f16 = false, subgroups = false, subgroup_matrix = false, timestamps = false, packed_dot = false, immediates = false;
  bool robust = false;  // bounds checks and clearing of workgroup memory are on
};
// `found`: an instance to take unless another device has it; may be null.
Result<Opened> OpenAdapter(const AdapterRequest& request, std::shared_ptr<InstanceSlot> found, const OpenOptions& options);

// The library's name for a number of its own, checked on an adapter: does it mean what we mean by it?
Status CheckDawnExtension(WGPUInstance instance, WGPUAdapter adapter, WGPUSType type, const char* name);

}  // namespace leeway::webgpu
