// A GPU behind one small interface. Implementations: webgpu/ (Dawn, loaded at run time) and opencl/ (loaded at run time); a
// fault layer for tests wraps either. Nothing here blocks but the functions whose name says Wait.
//
// Threads: a Device may be used from one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "leeway/device.h"
#include "shader/compile.h"
#include "shader/target.h"

namespace leeway {

struct DeviceInfo {
  std::string api;     // "webgpu", "opencl"
  std::string name;    // "NVIDIA H200", "llvmpipe (LLVM 15...)"
  std::string driver;  // name and version as the driver says
  std::string vendor;
  std::string device_class;  // row of the class table: "software", "nvidia", "adreno", ...
  bool is_software = false;
  uint64_t memory_bytes = 0;  // 0: not told
  uint64_t max_buffer_bytes = 0;
  uint32_t buffer_offset_alignment = 256;  // of BindingResource::offset_bytes
  bool timestamps = false;
  // The driver keeps compiled programs between processes by itself: asking for binaries gains nothing there.
  bool driver_caches_programs = false;
  shader::Target target;  // language, features (after known-answer tests), limits
  std::vector<KnownAnswer> known_answers;
  std::vector<std::string> quirks;  // rows of the quirk table in force
  std::string cache_key;            // API, device and driver: program and tuning caches are keyed by it
};

// A GPU object. Destroying it while a submission uses it is allowed; the device keeps it until that is done.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t size_bytes() const = 0;
};
class Texture {
 public:
  virtual ~Texture() = default;
};
class Pipeline {
 public:
  virtual ~Pipeline() = default;
};
class Recording {
 public:
  virtual ~Recording() = default;
};

struct TextureSpec {
  Storage storage = Storage::kTexture2D;  // kTexture2D, kTexture2DArray, kTexture3D
  DType dtype = DType::kF32;              // kF32, kF16, kI32, kU32: four channels
  std::array<uint32_t, 3> extent{};
};

// What one binding of a kernel gets: a range of a buffer, or a texture. Within one dispatch a buffer that is bound for writing
// must not be bound for reading too, not even another range of it, and written ranges must not overlap (WebGPU's rule, which
// Record checks for every API). The Recording keeps the GPU objects alive, not the Buffer and Texture values.
struct BindingResource {
  Buffer* buffer = nullptr;
  // offset: a multiple of DeviceInfo::buffer_offset_alignment; size 0: to the end of the buffer.
  uint64_t offset_bytes = 0, size_bytes = 0;
  Texture* texture = nullptr;
  // Of a buffer that the kernel reads as an image (Storage::kImageBuffer): kF32, kF16, kI32 or kU32, four channels a texel.
  DType texel_dtype = DType::kF32;
};

struct Dispatch {
  const Pipeline* pipeline = nullptr;
  std::vector<BindingResource> bindings;  // as KernelText::bindings; params are left empty
  uint32_t workgroups[3] = {1, 1, 1};     // one of them 0: nothing runs
  std::string label;
  // Bytes of the step parameters that go to KernelText::params: offset of this kernel's block in what Submit gets.
  uint32_t params_offset_bytes = 0;
};

struct SubmitOptions {
  std::span<const std::byte> params;
  bool timestamps = false;  // per-dispatch times, see Device::ReadTimestamps
};

struct ReadRequest {  // offset and size: multiples of 4
  Buffer* buffer = nullptr;
  uint64_t offset_bytes = 0, size_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Contents are undefined until written. A size of 0 gives a small buffer.
  virtual Result<std::unique_ptr<Buffer>> CreateBuffer(uint64_t size_bytes, std::string_view label) = 0;
  virtual Result<std::unique_ptr<Texture>> CreateTexture(const TextureSpec& spec, std::string_view label) = 0;

  // Compiles now, or starts to: the event says when the pipeline may be recorded, and what the driver did not like.
  struct Compiling {
    std::unique_ptr<Pipeline> pipeline;
    EventPtr ready;
  };
  virtual Result<Compiling> StartCompile(const shader::KernelText& kernel) = 0;

  // All that replaying needs, made once.
  virtual Result<std::unique_ptr<Recording>> Record(std::vector<Dispatch> dispatches) = 0;
  virtual Result<EventPtr> Submit(Recording& recording, const SubmitOptions& options) = 0;
  // Nanoseconds per dispatch of the last submission with timestamps that is done; empty where the device has none.
  virtual std::vector<uint64_t> ReadTimestamps(Recording& recording) = 0;

  // In order with submissions. The bytes are copied before Write returns. Offset and size are multiples of 4.
  virtual Status Write(Buffer& buffer, uint64_t offset_bytes, std::span<const std::byte> bytes) = 0;
  virtual Status WriteTexture(Texture& texture, std::span<const std::byte> texels) = 0;
  // After everything submitted before. `done` gets the bytes of all requests, in order, or the error; it runs inside Poll or
  // Wait. The spans are valid during the call only.
  using ReadDone = std::function<void(Result<std::vector<std::span<const std::byte>>>)>;
  virtual Result<EventPtr> Read(std::vector<ReadRequest> requests, ReadDone done) = 0;
  virtual Result<EventPtr> ReadTexture(Texture& texture, ReadDone done) = 0;
  // Submit and Read in one go to the driver; the event is done when the bytes are there.
  virtual Result<EventPtr> SubmitAndRead(Recording& recording, const SubmitOptions& options, std::vector<ReadRequest> requests,
                                         ReadDone done) {
    ASSIGN_OR_RETURN(EventPtr submitted, Submit(recording, options));
    (void)submitted;
    return Read(std::move(requests), std::move(done));
  }

  // Runs continuations that are due; never blocks.
  virtual void Poll() = 0;
  // Blocks until the event is done; a convenience that a browser does not have. The event's status.
  virtual Status Wait(const EventPtr& event) = 0;
  // Set once the device is gone; everything fails with it from then on.
  virtual Status status() const = 0;

  // Bytes of the live buffers and textures.
  virtual uint64_t allocated_bytes() const = 0;

  // Compiled programs across processes: bytes that StartCompile may use when given back, empty where the API has none.
  // (WebGPU through Dawn caches inside the driver; OpenCL gives program binaries.)
  virtual std::vector<std::byte> PipelineBinary(const Pipeline& pipeline) {
    (void)pipeline;
    return {};
  }
  virtual Result<Compiling> StartCompileFromBinary(const shader::KernelText& kernel, std::span<const std::byte> binary) {
    (void)binary;
    return StartCompile(kernel);
  }
};

// "webgpu", "opencl", "webgpu:1", "webgpu:SwiftShader" (part of the name, any case), "" = the default chain: best GPU, then the
// software device that docs/measurements shows to be fastest.
Result<std::unique_ptr<Device>> OpenDevice(std::string_view wanted, const OpenOptions& options);

// For tests: wraps a device and breaks it on order.
struct FaultPlan {
  int fail_allocation = -1;  // the n-th CreateBuffer or CreateTexture from 0 fails with kOutOfMemory
  int lose_at_submit = -1;   // the n-th Submit loses the device
  int fail_compile = -1;
};
std::unique_ptr<Device> WithFaults(std::unique_ptr<Device> device, const FaultPlan& plan);

}  // namespace leeway
