#include "device/opencl/opencl_device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "device/event.h"
#include "device/record_check.h"

namespace leeway::opencl {
namespace {

using Kind = shader::BindingInfo::Kind;
using shader::Scalar;

// Owns one reference to an OpenCL object.
template <class T, auto Api::*kRelease>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) (GetApi().value().*kRelease)(handle_);
  }
  T get() const { return handle_; }
  const T* address() const { return &handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  T handle_ = nullptr;
};
using OwnedContext = Owned<cl_context, &Api::clReleaseContext>;
using OwnedQueue = Owned<cl_command_queue, &Api::clReleaseCommandQueue>;
using OwnedMem = Owned<cl_mem, &Api::clReleaseMemObject>;
using OwnedProgram = Owned<cl_program, &Api::clReleaseProgram>;
using OwnedKernel = Owned<cl_kernel, &Api::clReleaseKernel>;
using OwnedClEvent = Owned<cl_event, &Api::clReleaseEvent>;

struct Core {
  const Api& api = GetApi().value();
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  OwnedContext context;
  OwnedQueue queue;
  OwnedQueue timing_queue;  // the same with profiling; made when time stamps are first asked for
  uint64_t allocated_bytes = 0;
  Status lost;
};

// Compiles on threads of its own, since clBuildProgram blocks.
class CompileThreads {
 public:
  ~CompileThreads() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      jobs_.clear();
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Add(std::function<void()> job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
      const size_t most = std::max(1u, std::thread::hardware_concurrency());
      if (idle_ < jobs_.size() && threads_.size() < most) threads_.emplace_back([this] { Work(); });
    }
    wake_.notify_one();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      --idle_;
      if (stop_) return;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stop_ = false;
};

// What a compile thread tells the device's thread.
struct BuildResult {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  Status status;
  OwnedProgram program;
  bool is_shared = false;  // by several kernels
};

// What is to be compiled: one kernel, or several that get a program together.
struct BuildJob {
  std::string name, text;
  std::vector<std::byte> binary;  // of an older run; may be empty
  std::shared_ptr<BuildResult> result;
};

Result<OwnedProgram> BuildFromText(const Core& core, const std::string& text, const std::string& options,
                                   const std::string& name) {
  const Api& api = core.api;
  const char* source = text.data();
  const size_t size = text.size();
  cl_int status = CL_SUCCESS;
  OwnedProgram program(api.clCreateProgramWithSource(core.context.get(), 1, &source, &size, &status));
  if (status == CL_SUCCESS) status = api.clBuildProgram(program.get(), 1, &core.device, options.c_str(), nullptr, nullptr);
  if (status == CL_SUCCESS) return program;
  std::string log;
  size_t log_size = 0;
  if (program &&
      api.clGetProgramBuildInfo(program.get(), core.device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &log_size) == CL_SUCCESS) {
    log.resize(log_size);
    api.clGetProgramBuildInfo(program.get(), core.device, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  }
  return Error{status == CL_OUT_OF_HOST_MEMORY ? Code::kOutOfMemory : Code::kInternal,
               StrCat("The device's compiler refuses kernel ", name, " with ", StatusName(status), ": ", log)};
}

void Finish(const BuildJob& job, Result<OwnedProgram> program, bool is_shared) {
  {
    std::lock_guard lock(job.result->mutex);
    if (program.ok()) {
      job.result->program = std::move(*program);
    } else {
      job.result->status = program.error();
    }
    job.result->is_shared = is_shared;
    job.result->done = true;
  }
  job.result->finished.notify_all();
}

void BuildAlone(const Core& core, const BuildJob& job, const std::string& options) {
  if (!job.binary.empty()) {  // of an older driver, perhaps; then the text serves
    const size_t size = job.binary.size();
    const auto* data = reinterpret_cast<const unsigned char*>(job.binary.data());
    cl_int status = CL_SUCCESS;
    OwnedProgram program(
        core.api.clCreateProgramWithBinary(core.context.get(), 1, &core.device, &size, &data, nullptr, &status));
    if (program) status = core.api.clBuildProgram(program.get(), 1, &core.device, options.c_str(), nullptr, nullptr);
    if (status == CL_SUCCESS) return Finish(job, std::move(program), false);
  }
  Finish(job, BuildFromText(core, job.text, options, job.name), false);
}

// One program out of many texts. Printed kernels have names at file scope that no other text has; where texts collide
// nevertheless, each gets a program of its own.
void BuildTogether(const Core& core, const std::vector<BuildJob>& jobs, const std::string& options) {
  if (jobs.size() == 1) return BuildAlone(core, jobs[0], options);
  std::string text;
  std::set<std::string_view> seen;
  for (const BuildJob& job : jobs) {
    if (seen.insert(job.text).second) text += job.text;
  }
  Result<OwnedProgram> program = BuildFromText(core, text, options, jobs[0].name);
  for (const BuildJob& job : jobs) {
    if (!program.ok()) {  // so that the one that is to blame is named, and the others are there
      BuildAlone(core, job, options);
      continue;
    }
    core.api.clRetainProgram(program->get());
    Finish(job, OwnedProgram(program->get()), true);
  }
}

struct PipelineState {
  std::shared_ptr<Core> core;
  std::string name, entry_point;
  std::vector<shader::BindingInfo> bindings;
  std::vector<shader::ParamField> params;
  uint32_t params_bytes = 0;
  size_t workgroup_size[3] = {1, 1, 1};
  std::shared_ptr<BuildResult> build;
  OwnedProgram program;
  bool shares_program = false;
};

class OpenClBuffer : public Buffer {
 public:
  OpenClBuffer(std::shared_ptr<Core> core, OwnedMem mem, uint64_t size_bytes, uint64_t allocated_bytes)
      : core_(std::move(core)), mem_(std::move(mem)), size_bytes_(size_bytes), allocated_bytes_(allocated_bytes) {
    core_->allocated_bytes += allocated_bytes_;
  }
  ~OpenClBuffer() override { core_->allocated_bytes -= allocated_bytes_; }
  uint64_t size_bytes() const override { return size_bytes_; }
  cl_mem mem() const { return mem_.get(); }

 private:
  std::shared_ptr<Core> core_;
  OwnedMem mem_;
  uint64_t size_bytes_, allocated_bytes_;
};

class OpenClTexture : public Texture {
 public:
  OpenClTexture(std::shared_ptr<Core> core, OwnedMem mem, const TextureSpec& spec)
      : core_(std::move(core)), mem_(std::move(mem)), spec_(spec) {
    core_->allocated_bytes += size_bytes();
  }
  ~OpenClTexture() override { core_->allocated_bytes -= size_bytes(); }
  cl_mem mem() const { return mem_.get(); }
  const TextureSpec& spec() const { return spec_; }
  uint64_t size_bytes() const {
    return uint64_t(spec_.extent[0]) * spec_.extent[1] * spec_.extent[2] * (spec_.dtype == DType::kF16 ? 8 : 16);
  }

 private:
  std::shared_ptr<Core> core_;
  OwnedMem mem_;
  TextureSpec spec_;
};

class OpenClPipeline : public Pipeline {
 public:
  explicit OpenClPipeline(std::shared_ptr<PipelineState> state) : state(std::move(state)) {}
  std::shared_ptr<PipelineState> state;
};

class OpenClRecording : public Recording {
 public:
  struct Step {
    std::shared_ptr<PipelineState> pipeline;
    OwnedKernel kernel;  // one to a dispatch, so that arguments are set once
    size_t global[3] = {}, local[3] = {};
    uint32_t params_offset_bytes = 0;
    bool empty = false;
  };
  std::shared_ptr<Core> core;
  std::vector<Step> steps;
  std::vector<OwnedMem> kept;  // what the arguments point to; clSetKernelArg keeps nothing alive
  uint64_t params_bytes = 0;
  std::shared_ptr<std::vector<uint64_t>> times_ns = std::make_shared<std::vector<uint64_t>>();
};

// Done when a command of the queue is, or a build.
class CommandEvent : public CompletionEvent {
 public:
  OwnedClEvent command;
  std::function<void(const Status&)> before;  // runs just before the event completes
};

cl_image_format ImageFormat(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {CL_RGBA, CL_HALF_FLOAT};
    case DType::kI32: return {CL_RGBA, CL_SIGNED_INT32};
    case DType::kU32: return {CL_RGBA, CL_UNSIGNED_INT32};
    default: return {CL_RGBA, CL_FLOAT};
  }
}

template <class T>
T Info(cl_device_id device, cl_device_info name) {
  T value = {};
  return GetApi()->clGetDeviceInfo(device, name, sizeof(T), &value, nullptr) == CL_SUCCESS ? value : T{};
}

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class OpenClDevice : public BackendDevice {
 public:
  OpenClDevice(std::shared_ptr<Core> core, const OpenOptions& options);
  ~OpenClDevice() override;

  Result<std::unique_ptr<Buffer>> CreateBuffer(uint64_t size_bytes, std::string_view label) override;
  Result<std::unique_ptr<Texture>> CreateTexture(const TextureSpec& spec, std::string_view label) override;
  Result<Compiling> StartCompile(const shader::KernelText& kernel) override { return StartCompileFromBinary(kernel, {}); }
  Result<Compiling> StartCompileFromBinary(const shader::KernelText& kernel, std::span<const std::byte> binary) override;
  std::vector<std::byte> PipelineBinary(const Pipeline& pipeline) override;
  Result<std::unique_ptr<Recording>> Record(std::vector<Dispatch> dispatches) override;
  Result<EventPtr> Submit(Recording& recording, const SubmitOptions& options) override;
  std::vector<uint64_t> ReadTimestamps(Recording& recording) override {
    return *static_cast<OpenClRecording&>(recording).times_ns;
  }
  Status Write(Buffer& buffer, uint64_t offset_bytes, std::span<const std::byte> bytes) override;
  Status WriteTexture(Texture& texture, std::span<const std::byte> texels) override;
  Result<EventPtr> Read(std::vector<ReadRequest> requests, ReadDone done) override;
  Result<EventPtr> ReadTexture(Texture& texture, ReadDone done) override;
  void Poll() override;
  Status Wait(const EventPtr& event) override;
  Status status() const override { return core_->lost; }
  uint64_t allocated_bytes() const override { return core_->allocated_bytes; }

 private:
  // Host memory that the driver can copy to and from by itself, used for one transfer after the other.
  struct Staging {
    OwnedMem mem;  // null: `bytes` is plain memory
    std::vector<std::byte> plain;
    std::byte* bytes = nullptr;
    uint64_t size_bytes = 0;
    bool busy = false;
  };

  Result<OwnedMem> MakeView(const OpenClBuffer& buffer, const BindingResource& resource, const shader::BindingInfo& binding,
                            cl_mem& argument);
  Result<Staging*> TakeStaging(uint64_t size_bytes);
  void ReturnStaging(Staging* staging);
  void Unmap(Staging& staging);
  Status Check(const char* call, cl_int status);
  std::shared_ptr<CommandEvent> Track(OwnedClEvent command, std::function<void(const Status&)> before);
  bool TryComplete(CommandEvent& event);
  Result<cl_command_queue> UseQueue(bool timing);
  void Advance();  // completes what is done
  void StartBuilds();

  std::shared_ptr<Core> core_;
  std::vector<std::shared_ptr<CommandEvent>> pending_;  // commands, in order
  struct PendingBuild {
    std::shared_ptr<CommandEvent> event;
    std::shared_ptr<PipelineState> state;
  };
  std::vector<PendingBuild> builds_;
  std::vector<BuildJob> waiting_;  // for others to be compiled with
  std::vector<std::unique_ptr<Staging>> staging_;
  std::string build_options_;
  cl_command_queue queue_in_use_ = nullptr;
  CompileThreads threads_;  // last: its threads end before what they use
};

OpenClDevice::OpenClDevice(std::shared_ptr<Core> core, const OpenOptions& options) : core_(std::move(core)) {
  const cl_device_id device = core_->device;
  char platform_name[256] = {};
  core_->api.clGetPlatformInfo(core_->platform, CL_PLATFORM_NAME, sizeof platform_name - 1, platform_name, nullptr);
  const std::string extensions = StrCat(" ", TextInfo(device, CL_DEVICE_EXTENSIONS), " ");
  auto has = [&](const char* extension) { return extensions.find(StrCat(" ", extension, " ")) != std::string::npos; };
  const std::string version = TextInfo(device, CL_DEVICE_OPENCL_C_VERSION);  // "OpenCL C 1.2 ..."
  const bool version_3 = version.compare(0, 10, "OpenCL C 3") == 0;
  const bool version_2 = version.compare(0, 10, "OpenCL C 2") == 0;
  // Contraction of a*b+c is allowed, other liberties are not: results are compared with a CPU's.
  build_options_ = StrCat("-cl-std=", version_3 ? "CL3.0" : version_2 ? "CL2.0" : "CL1.2", " -cl-mad-enable");

  info_.api = "opencl";
  info_.name = TextInfo(device, CL_DEVICE_NAME);
  info_.driver = StrCat(platform_name, " ", TextInfo(device, CL_DRIVER_VERSION));
  info_.vendor = TextInfo(device, CL_DEVICE_VENDOR);
  info_.is_software = Info<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU;
  info_.memory_bytes = Info<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  info_.max_buffer_bytes = Info<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info_.buffer_offset_alignment = std::max<cl_uint>(256, Info<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8);
  info_.timestamps = true;
  shader::Target& t = info_.target;
  t.language = shader::Language::kOpenClC;
  t.f16 = has("cl_khr_fp16") && !options.no_f16;
  // Sub-groups exist in places, but no size is certain before a kernel is compiled; kernels do without.
  t.subgroups = false;
  t.packed_dot = has("cl_khr_integer_dot_product");
  const bool images = Info<cl_bool>(device, CL_DEVICE_IMAGE_SUPPORT);
  t.image_buffer = images;
  t.float_textures_write = images;
  t.max_storage_buffers = 64;
  t.max_sampled_textures = images ? Info<cl_uint>(device, CL_DEVICE_MAX_READ_IMAGE_ARGS) : 0;
  t.max_storage_textures = images ? Info<cl_uint>(device, CL_DEVICE_MAX_WRITE_IMAGE_ARGS) : 0;
  // Larger groups than that gain nothing, and some kernels are compiled for fewer invocations than the device's limit.
  t.max_invocations = uint32_t(std::min<size_t>(Info<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE), 1024));
  size_t item_sizes[16] = {};
  core_->api.clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof item_sizes, item_sizes, nullptr);
  for (int axis = 0; axis < 3; ++axis) t.max_workgroup_size[axis] = uint32_t(std::min<size_t>(item_sizes[axis], 1024));
  t.max_workgroup_bytes = uint32_t(std::min<cl_ulong>(Info<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE), 65536));
  t.max_workgroups = 1u << 20;  // so that invocation numbers stay below 2^32
  t.storage.max_binding_bytes = int64_t(info_.max_buffer_bytes);
  if (images) {
    t.storage.max_texture_2d = uint32_t(
        std::min(Info<size_t>(device, CL_DEVICE_IMAGE2D_MAX_WIDTH), Info<size_t>(device, CL_DEVICE_IMAGE2D_MAX_HEIGHT)));
    t.storage.max_texture_3d = uint32_t(
        std::min({Info<size_t>(device, CL_DEVICE_IMAGE3D_MAX_WIDTH), Info<size_t>(device, CL_DEVICE_IMAGE3D_MAX_HEIGHT),
                  Info<size_t>(device, CL_DEVICE_IMAGE3D_MAX_DEPTH)}));
    t.storage.max_texture_layers = uint32_t(Info<size_t>(device, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE));
    t.storage.max_image_buffer_texels = int64_t(Info<size_t>(device, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE));
  }
  t.is_software = info_.is_software;
  t.core_count_estimate = Info<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  info_.cache_key =
      StrCat("opencl-",
             HashText(StrCat(info_.name, "/", info_.driver, "/", TextInfo(device, CL_DEVICE_VERSION), "/", build_options_)));
  queue_in_use_ = core_->queue.get();
}

OpenClDevice::~OpenClDevice() {
  // Commands still write into staging memory.
  if (core_->queue) core_->api.clFinish(core_->queue.get());
  if (core_->timing_queue) core_->api.clFinish(core_->timing_queue.get());
  for (auto& staging : staging_) Unmap(*staging);
}

void OpenClDevice::Unmap(Staging& staging) {
  if (!staging.mem || !staging.plain.empty()) return;
  core_->api.clEnqueueUnmapMemObject(queue_in_use_, staging.mem.get(), staging.bytes, 0, nullptr, nullptr);
}

Status OpenClDevice::Check(const char* call, cl_int status) {
  if (status == CL_SUCCESS) return {};
  if (status == CL_DEVICE_NOT_AVAILABLE) {
    core_->lost = Error{Code::kDeviceLost, StrCat("The device is lost: ", call, " fails with ", StatusName(status), ".")};
    return core_->lost;
  }
  return CallError(call, status);
}

Result<std::unique_ptr<Buffer>> OpenClDevice::CreateBuffer(uint64_t size_bytes, std::string_view label) {
  RETURN_IF_ERROR(core_->lost);
  const uint64_t allocated_bytes = std::max<uint64_t>(RoundUp(size_bytes, 16), 16);
  // Many drivers allocate at first use, when nobody can be told; so count here.
  if (allocated_bytes > info_.max_buffer_bytes ||
      (info_.memory_bytes && core_->allocated_bytes + allocated_bytes > info_.memory_bytes)) {
    return Error{Code::kOutOfMemory, StrCat("Buffer \"", label, "\" needs (", size_bytes, ") bytes; the device takes (",
                                            info_.max_buffer_bytes, ") in one buffer and has (", info_.memory_bytes,
                                            "), of which (", core_->allocated_bytes, ") are in use.")};
  }
  cl_int status = CL_SUCCESS;
  OwnedMem mem(core_->api.clCreateBuffer(core_->context.get(), CL_MEM_READ_WRITE, allocated_bytes, nullptr, &status));
  RETURN_IF_ERROR_CONTEXT(Check("clCreateBuffer", status),
                          StrCat("while making buffer \"", label, "\" of (", size_bytes, ") bytes"));
  return std::unique_ptr<Buffer>(
      new OpenClBuffer(core_, std::move(mem), size_bytes ? size_bytes : allocated_bytes, allocated_bytes));
}

Result<std::unique_ptr<Texture>> OpenClDevice::CreateTexture(const TextureSpec& spec, std::string_view label) {
  RETURN_IF_ERROR(core_->lost);
  if (!spec.extent[0] || !spec.extent[1] || !spec.extent[2]) {
    return Error{Code::kInvalidArgument, StrCat("Texture \"", label, "\" has an extent of 0.")};
  }
  cl_image_desc desc = {};
  desc.image_width = spec.extent[0];
  desc.image_height = spec.extent[1];
  if (spec.storage == Storage::kTexture3D) {
    desc.image_type = CL_MEM_OBJECT_IMAGE3D;
    desc.image_depth = spec.extent[2];
  } else if (spec.storage == Storage::kTexture2DArray) {
    desc.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY;
    desc.image_array_size = spec.extent[2];
  } else {
    desc.image_type = CL_MEM_OBJECT_IMAGE2D;
  }
  const cl_image_format format = ImageFormat(spec.dtype);
  cl_int status = CL_SUCCESS;
  OwnedMem mem(core_->api.clCreateImage(core_->context.get(), CL_MEM_READ_WRITE, &format, &desc, nullptr, &status));
  RETURN_IF_ERROR_CONTEXT(Check("clCreateImage", status), StrCat("while making texture \"", label, "\" of ", spec.extent[0],
                                                                 " x ", spec.extent[1], " x ", spec.extent[2], " texels"));
  return std::unique_ptr<Texture>(new OpenClTexture(core_, std::move(mem), spec));
}

Result<Device::Compiling> OpenClDevice::StartCompileFromBinary(const shader::KernelText& kernel,
                                                               std::span<const std::byte> binary) {
  RETURN_IF_ERROR(core_->lost);
  if (kernel.language != shader::Language::kOpenClC) {
    return Error{Code::kInvalidArgument, StrCat("Kernel ", kernel.name, " is not in OpenCL C, which the device takes.")};
  }
  auto state = std::make_shared<PipelineState>();
  state->core = core_;
  state->name = kernel.name;
  state->entry_point = kernel.entry_point;
  state->bindings = kernel.bindings;
  state->params = kernel.params;
  state->params_bytes = kernel.params_bytes;
  for (int axis = 0; axis < 3; ++axis) state->workgroup_size[axis] = kernel.workgroup_size[axis];
  state->build = std::make_shared<BuildResult>();
  auto event = std::make_shared<CommandEvent>();
  builds_.push_back({event, state});
  BuildJob job{kernel.name, kernel.text, {binary.begin(), binary.end()}, state->build};
  const bool together = std::find(info_.quirks.begin(), info_.quirks.end(), "pocl_compiles_together") != info_.quirks.end();
  if (together && binary.empty()) {
    waiting_.push_back(std::move(job));
  } else {
    threads_.Add([core = core_, options = build_options_, job = std::move(job)] { BuildAlone(*core, job, options); });
  }
  return Compiling{std::unique_ptr<Pipeline>(new OpenClPipeline(std::move(state))), event};
}

std::vector<std::byte> OpenClDevice::PipelineBinary(const Pipeline& pipeline) {
  const PipelineState& state = *static_cast<const OpenClPipeline&>(pipeline).state;
  size_t size = 0;
  if (!state.program || state.shares_program ||
      core_->api.clGetProgramInfo(state.program.get(), CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS) {
    return {};
  }
  std::vector<std::byte> binary(size);
  unsigned char* data = reinterpret_cast<unsigned char*>(binary.data());
  if (!size || core_->api.clGetProgramInfo(state.program.get(), CL_PROGRAM_BINARIES, sizeof data, &data, nullptr) != CL_SUCCESS)
    return {};
  return binary;
}

// The object that an argument takes: the buffer itself, a part of it, or an image over either.
Result<OwnedMem> OpenClDevice::MakeView(const OpenClBuffer& buffer, const BindingResource& resource,
                                        const shader::BindingInfo& binding, cl_mem& argument) {
  OwnedMem view;
  cl_int status = CL_SUCCESS;
  argument = buffer.mem();
  const uint64_t size_bytes = resource.size_bytes ? resource.size_bytes : buffer.size_bytes() - resource.offset_bytes;
  if (resource.offset_bytes) {
    const cl_buffer_region region = {resource.offset_bytes, size_bytes};
    view = OwnedMem(core_->api.clCreateSubBuffer(buffer.mem(), 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status));
    RETURN_IF_ERROR(Check("clCreateSubBuffer", status));
    argument = view.get();
  }
  if (binding.kind == Kind::kSampledTexture) {
    const uint64_t texel_bytes = resource.texel_dtype == DType::kF16 ? 8 : 16;
    cl_image_desc desc = {};
    desc.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER;
    desc.image_width = size_bytes / texel_bytes;
    desc.buffer = argument;
    const cl_image_format format = ImageFormat(resource.texel_dtype);
    OwnedMem image(core_->api.clCreateImage(core_->context.get(), CL_MEM_READ_ONLY, &format, &desc, nullptr, &status));
    RETURN_IF_ERROR(Check("clCreateImage", status));
    view = std::move(image);  // it keeps its buffer alive
    argument = view.get();
  }
  if (!view) {
    core_->api.clRetainMemObject(argument);
    view = OwnedMem(argument);
  }
  return view;
}

Result<std::unique_ptr<Recording>> OpenClDevice::Record(std::vector<Dispatch> dispatches) {
  RETURN_IF_ERROR(core_->lost);
  const Api& api = core_->api;
  auto recording = std::make_unique<OpenClRecording>();
  recording->core = core_;
  for (const Dispatch& dispatch : dispatches) {
    OpenClRecording::Step step;
    step.pipeline = static_cast<const OpenClPipeline*>(dispatch.pipeline)->state;
    const PipelineState& state = *step.pipeline;
    if (!state.program) {
      return Error{Code::kInvalidArgument, StrCat("Dispatch \"", dispatch.label, "\": kernel ", state.name,
                                                  " is not compiled; wait for its event first.")};
    }
    RETURN_IF_ERROR(CheckDispatch(dispatch, state.bindings, info_));
    const std::string context = StrCat("while recording dispatch \"", dispatch.label, "\"");
    cl_int status = CL_SUCCESS;
    step.kernel = OwnedKernel(api.clCreateKernel(state.program.get(), state.entry_point.c_str(), &status));
    RETURN_IF_ERROR_CONTEXT(Check("clCreateKernel", status), context);
    for (size_t i = 0; i < state.bindings.size(); ++i) {
      const BindingResource& resource = dispatch.bindings[i];
      if (state.bindings[i].kind == Kind::kParams) continue;
      cl_mem argument = nullptr;
      if (resource.texture) {
        argument = static_cast<OpenClTexture*>(resource.texture)->mem();
        api.clRetainMemObject(argument);
        recording->kept.emplace_back(argument);
      } else {
        ASSIGN_OR_RETURN_CONTEXT(OwnedMem view,
                                 MakeView(static_cast<OpenClBuffer&>(*resource.buffer), resource, state.bindings[i], argument),
                                 context);
        recording->kept.push_back(std::move(view));
      }
      RETURN_IF_ERROR_CONTEXT(
          Check("clSetKernelArg", api.clSetKernelArg(step.kernel.get(), cl_uint(i), sizeof argument, &argument)),
          StrCat(context, ", argument \"", state.bindings[i].name, "\""));
    }
    for (int axis = 0; axis < 3; ++axis) {
      step.local[axis] = state.workgroup_size[axis];
      step.global[axis] = size_t(dispatch.workgroups[axis]) * state.workgroup_size[axis];
      step.empty |= !step.global[axis];
    }
    step.params_offset_bytes = dispatch.params_offset_bytes;
    if (state.params_bytes) {
      recording->params_bytes =
          std::max<uint64_t>(recording->params_bytes, uint64_t(dispatch.params_offset_bytes) + state.params_bytes);
    }
    recording->steps.push_back(std::move(step));
  }
  return std::unique_ptr<Recording>(std::move(recording));
}

// Bytes of a param as a kernel argument: a vector of three takes the room of four.
size_t ArgumentBytes(const shader::Type& type) {
  const size_t scalar = type.scalar == Scalar::kF16 ? 2 : 4;
  if (type.kind != shader::Type::Kind::kVector) return scalar;
  return scalar * (type.rows == 3 ? 4 : type.rows);
}

Result<cl_command_queue> OpenClDevice::UseQueue(bool timing) {
  if (timing && !core_->timing_queue) {
    cl_int status = CL_SUCCESS;
    core_->timing_queue =
        OwnedQueue(core_->api.clCreateCommandQueue(core_->context.get(), core_->device, CL_QUEUE_PROFILING_ENABLE, &status));
    RETURN_IF_ERROR(Check("clCreateCommandQueue", status));
  }
  cl_command_queue queue = timing ? core_->timing_queue.get() : core_->queue.get();
  if (queue != queue_in_use_) {  // what was given to the other queue comes first
    cl_event last = nullptr;
    RETURN_IF_ERROR(
        Check("clEnqueueMarkerWithWaitList", core_->api.clEnqueueMarkerWithWaitList(queue_in_use_, 0, nullptr, &last)));
    OwnedClEvent owned(last);
    core_->api.clFlush(queue_in_use_);
    RETURN_IF_ERROR(Check("clEnqueueBarrierWithWaitList", core_->api.clEnqueueBarrierWithWaitList(queue, 1, &last, nullptr)));
    queue_in_use_ = queue;
  }
  return queue;
}

std::shared_ptr<CommandEvent> OpenClDevice::Track(OwnedClEvent command, std::function<void(const Status&)> before) {
  auto event = std::make_shared<CommandEvent>();
  event->command = std::move(command);
  event->before = std::move(before);
  pending_.push_back(event);
  return event;
}

Result<EventPtr> OpenClDevice::Submit(Recording& base, const SubmitOptions& options) {
  RETURN_IF_ERROR(core_->lost);
  const Api& api = core_->api;
  auto& recording = static_cast<OpenClRecording&>(base);
  if (options.params.size() < recording.params_bytes) {
    return Error{Code::kInvalidArgument, StrCat("The recording takes (", recording.params_bytes,
                                                ") bytes of params, Submit got (", options.params.size(), ").")};
  }
  ASSIGN_OR_RETURN(cl_command_queue queue, UseQueue(options.timestamps));
  auto stamps = options.timestamps ? std::make_shared<std::vector<OwnedClEvent>>(recording.steps.size()) : nullptr;
  for (size_t n = 0; n < recording.steps.size(); ++n) {
    const OpenClRecording::Step& step = recording.steps[n];
    if (step.empty) continue;
    const PipelineState& state = *step.pipeline;
    if (state.params_bytes) {
      const std::byte* params = options.params.data() + step.params_offset_bytes;
      bool as_struct = false;
      for (size_t i = 0; i < state.bindings.size(); ++i) {
        if (state.bindings[i].kind != Kind::kParams) continue;
        as_struct = true;
        RETURN_IF_ERROR(Check("clSetKernelArg", api.clSetKernelArg(step.kernel.get(), cl_uint(i), state.params_bytes, params)));
      }
      for (size_t i = 0; !as_struct && i < state.params.size(); ++i) {  // an argument each, after the bindings
        std::byte value[16] = {};
        const size_t size = ArgumentBytes(state.params[i].type);
        const size_t there = std::min<size_t>(size, state.params_bytes - state.params[i].offset_bytes);
        std::memcpy(value, params + state.params[i].offset_bytes, there);
        RETURN_IF_ERROR(
            Check("clSetKernelArg", api.clSetKernelArg(step.kernel.get(), cl_uint(state.bindings.size() + i), size, value)));
      }
    }
    cl_event stamp = nullptr;
    const cl_int status = api.clEnqueueNDRangeKernel(queue, step.kernel.get(), 3, nullptr, step.global, step.local, 0, nullptr,
                                                     stamps ? &stamp : nullptr);
    if (status != CL_SUCCESS)
      return WithContext(Check("clEnqueueNDRangeKernel", status).error(), StrCat("kernel ", state.name));
    if (stamps) (*stamps)[n] = OwnedClEvent(stamp);
  }
  cl_event last = nullptr;
  RETURN_IF_ERROR(Check("clEnqueueMarkerWithWaitList", api.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &last)));
  OwnedClEvent owned(last);
  RETURN_IF_ERROR(Check("clFlush", api.clFlush(queue)));
  std::function<void(const Status&)> before;
  if (stamps) {
    before = [stamps, times = recording.times_ns, &api](const Status& status) {
      if (!status.ok()) return;
      times->assign(stamps->size(), 0);
      for (size_t i = 0; i < stamps->size(); ++i) {
        cl_ulong start = 0, end = 0;
        if (!(*stamps)[i]) continue;
        api.clGetEventProfilingInfo((*stamps)[i].get(), CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr);
        api.clGetEventProfilingInfo((*stamps)[i].get(), CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr);
        (*times)[i] = end > start ? end - start : 0;
      }
    };
  }
  return EventPtr(Track(std::move(owned), std::move(before)));
}

Result<OpenClDevice::Staging*> OpenClDevice::TakeStaging(uint64_t size_bytes) {
  Staging* best = nullptr;
  for (auto& staging : staging_) {
    if (staging->busy || staging->size_bytes < size_bytes || staging->size_bytes / 4 > std::max<uint64_t>(size_bytes, 4096))
      continue;
    if (!best || staging->size_bytes < best->size_bytes) best = staging.get();
  }
  if (!best) {
    auto staging = std::make_unique<Staging>();
    staging->size_bytes = 4096;
    while (staging->size_bytes < size_bytes) staging->size_bytes *= 2;
    cl_int status = CL_SUCCESS;
    if (!info_.is_software) {  // pinned, so that the copy needs no second one in the driver
      staging->mem = OwnedMem(core_->api.clCreateBuffer(core_->context.get(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                                        staging->size_bytes, nullptr, &status));
      if (status == CL_SUCCESS) {
        staging->bytes = static_cast<std::byte*>(
            core_->api.clEnqueueMapBuffer(queue_in_use_, staging->mem.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                          staging->size_bytes, 0, nullptr, nullptr, &status));
      }
    }
    if (!staging->bytes) {
      staging->plain.resize(staging->size_bytes);
      staging->bytes = staging->plain.data();
    }
    best = staging.get();
    staging_.push_back(std::move(staging));
  }
  best->busy = true;
  return best;
}

void OpenClDevice::ReturnStaging(Staging* staging) {
  staging->busy = false;
  constexpr size_t kKept = 8;  // enough for some runs in flight
  if (staging_.size() <= kKept) return;
  auto oldest = std::find_if(staging_.begin(), staging_.end(), [](const auto& s) { return !s->busy; });
  Unmap(**oldest);
  staging_.erase(oldest);
}

Status OpenClDevice::Write(Buffer& buffer, uint64_t offset_bytes, std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(core_->lost);
  RETURN_IF_ERROR(CheckRange(buffer, offset_bytes, bytes.size(), "Write"));
  if (bytes.empty()) return {};
  const cl_mem mem = static_cast<OpenClBuffer&>(buffer).mem();
  Advance();
  // A blocking write waits for what was given to the queue before; with nothing there it is a plain copy, without staging.
  if (pending_.empty()) {
    return Check("clEnqueueWriteBuffer", core_->api.clEnqueueWriteBuffer(queue_in_use_, mem, CL_TRUE, offset_bytes,
                                                                         bytes.size(), bytes.data(), 0, nullptr, nullptr));
  }
  constexpr size_t kPiece = 16 << 20;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const size_t size = std::min(kPiece, bytes.size() - at);
    ASSIGN_OR_RETURN(Staging * staging, TakeStaging(size));
    std::memcpy(staging->bytes, bytes.data() + at, size);
    cl_event written = nullptr;
    if (Status status =
            Check("clEnqueueWriteBuffer", core_->api.clEnqueueWriteBuffer(queue_in_use_, mem, CL_FALSE, offset_bytes + at, size,
                                                                          staging->bytes, 0, nullptr, &written));
        !status.ok()) {
      ReturnStaging(staging);
      return status;
    }
    Track(OwnedClEvent(written), [this, staging](const Status&) { ReturnStaging(staging); });
  }
  return {};
}

Status OpenClDevice::WriteTexture(Texture& texture, std::span<const std::byte> texels) {
  RETURN_IF_ERROR(core_->lost);
  auto& target = static_cast<OpenClTexture&>(texture);
  if (texels.size() != target.size_bytes()) {
    return Error{Code::kInvalidArgument,
                 StrCat("WriteTexture takes (", target.size_bytes(), ") bytes, got (", texels.size(), ").")};
  }
  const TextureSpec& spec = target.spec();
  const size_t origin[3] = {}, region[3] = {spec.extent[0], spec.extent[1], spec.extent[2]};
  ASSIGN_OR_RETURN(Staging * staging, TakeStaging(texels.size()));
  std::memcpy(staging->bytes, texels.data(), texels.size());
  cl_event written = nullptr;
  if (Status status =
          Check("clEnqueueWriteImage", core_->api.clEnqueueWriteImage(queue_in_use_, target.mem(), CL_FALSE, origin, region, 0,
                                                                      0, staging->bytes, 0, nullptr, &written));
      !status.ok()) {
    ReturnStaging(staging);
    return status;
  }
  Track(OwnedClEvent(written), [this, staging](const Status&) { ReturnStaging(staging); });
  return {};
}

Result<EventPtr> OpenClDevice::Read(std::vector<ReadRequest> requests, ReadDone done) {
  RETURN_IF_ERROR(core_->lost);
  std::vector<std::pair<uint64_t, uint64_t>> parts;  // offset and size in the staging memory
  uint64_t total = 0;
  for (const ReadRequest& request : requests) {
    RETURN_IF_ERROR(CheckRange(*request.buffer, request.offset_bytes, request.size_bytes, "Read"));
    parts.emplace_back(total, request.size_bytes);
    total += RoundUp(request.size_bytes, 64);
  }
  ASSIGN_OR_RETURN(Staging * staging, TakeStaging(std::max<uint64_t>(total, 64)));
  Status status;
  for (size_t i = 0; i < requests.size() && status.ok(); ++i) {
    if (!parts[i].second) continue;
    status = Check("clEnqueueReadBuffer",
                   core_->api.clEnqueueReadBuffer(queue_in_use_, static_cast<OpenClBuffer*>(requests[i].buffer)->mem(),
                                                  CL_FALSE, requests[i].offset_bytes, parts[i].second,
                                                  staging->bytes + parts[i].first, 0, nullptr, nullptr));
  }
  cl_event last = nullptr;
  if (status.ok()) {
    status = Check("clEnqueueMarkerWithWaitList", core_->api.clEnqueueMarkerWithWaitList(queue_in_use_, 0, nullptr, &last));
  }
  if (!status.ok()) {
    ReturnStaging(staging);
    return status.error();
  }
  core_->api.clFlush(queue_in_use_);
  return EventPtr(
      Track(OwnedClEvent(last), [this, staging, parts = std::move(parts), done = std::move(done)](const Status& status) {
        if (done && !status.ok()) {
          done(status.error());
        } else if (done) {
          std::vector<std::span<const std::byte>> spans;
          for (auto [offset, size] : parts) spans.emplace_back(staging->bytes + offset, size);
          done(std::move(spans));
        }
        ReturnStaging(staging);
      }));
}

Result<EventPtr> OpenClDevice::ReadTexture(Texture& texture, ReadDone done) {
  RETURN_IF_ERROR(core_->lost);
  auto& source = static_cast<OpenClTexture&>(texture);
  const TextureSpec& spec = source.spec();
  const size_t origin[3] = {}, region[3] = {spec.extent[0], spec.extent[1], spec.extent[2]};
  ASSIGN_OR_RETURN(Staging * staging, TakeStaging(source.size_bytes()));
  cl_event read = nullptr;
  if (Status status =
          Check("clEnqueueReadImage", core_->api.clEnqueueReadImage(queue_in_use_, source.mem(), CL_FALSE, origin, region, 0, 0,
                                                                    staging->bytes, 0, nullptr, &read));
      !status.ok()) {
    ReturnStaging(staging);
    return status.error();
  }
  core_->api.clFlush(queue_in_use_);
  return EventPtr(
      Track(OwnedClEvent(read), [this, staging, size = source.size_bytes(), done = std::move(done)](const Status& status) {
        if (!status.ok()) {
          done(status.error());
        } else {
          done(std::vector{std::span<const std::byte>(staging->bytes, size)});
        }
        ReturnStaging(staging);
      }));
}

// Completes the event if its command is finished.
bool OpenClDevice::TryComplete(CommandEvent& event) {
  cl_int state = CL_QUEUED;
  const cl_int status =
      core_->api.clGetEventInfo(event.command.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  if (status == CL_SUCCESS && state > CL_COMPLETE) return false;
  Status result;
  if (status != CL_SUCCESS) {
    result = Check("clGetEventInfo", status);
  } else if (state < 0) {  // the command failed on the device; what it left behind is anybody's guess
    result = Error{Code::kDeviceLost, StrCat("The device is lost: a command ends with ", StatusName(state), ".")};
    core_->lost = result;
  }
  event.command = OwnedClEvent();
  if (auto before = std::exchange(event.before, nullptr)) before(result);
  event.Complete(std::move(result));
  return true;
}

void OpenClDevice::Poll() {
  StartBuilds();
  Advance();
}

void OpenClDevice::StartBuilds() {
  if (waiting_.empty()) return;
  threads_.Add(
      [core = core_, options = build_options_, jobs = std::exchange(waiting_, {})] { BuildTogether(*core, jobs, options); });
}

void OpenClDevice::Advance() {
  while (!pending_.empty()) {  // the queue is in order
    auto first = pending_.front();
    if (first->command && !TryComplete(*first)) break;
    if (!pending_.empty() && pending_.front() == first) pending_.erase(pending_.begin());
  }
  for (size_t i = 0; i < builds_.size();) {
    BuildResult& build = *builds_[i].state->build;
    Status status;
    {
      std::lock_guard lock(build.mutex);
      if (!build.done) {
        ++i;
        continue;
      }
      status = build.status;
      builds_[i].state->program = std::move(build.program);
      builds_[i].state->shares_program = build.is_shared;
    }
    auto event = builds_[i].event;
    builds_.erase(builds_.begin() + ptrdiff_t(i));
    event->Complete(std::move(status));
  }
}

Status OpenClDevice::Wait(const EventPtr& event) {
  auto& wanted = static_cast<CommandEvent&>(*event);
  while (!wanted.done()) {
    Poll();
    if (wanted.done()) break;
    if (wanted.command) {
      const cl_event command = wanted.command.get();
      core_->api.clWaitForEvents(1, &command);
      continue;
    }
    for (PendingBuild& pending : builds_) {
      if (pending.event != event) continue;
      std::unique_lock lock(pending.state->build->mutex);
      pending.state->build->finished.wait(lock, [&] { return pending.state->build->done; });
      break;
    }
  }
  return wanted.status();
}

}  // namespace

Result<std::unique_ptr<BackendDevice>> OpenOpenClDevice(cl_platform_id platform, cl_device_id device,
                                                        const OpenOptions& options) {
  auto core = std::make_shared<Core>();
  core->platform = platform;
  core->device = device;
  cl_int status = CL_SUCCESS;
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(platform), 0};
  core->context = OwnedContext(core->api.clCreateContext(properties, 1, &device, nullptr, nullptr, &status));
  if (status != CL_SUCCESS) return CallError("clCreateContext", status);
  core->queue = OwnedQueue(core->api.clCreateCommandQueue(core->context.get(), device, 0, &status));
  if (status != CL_SUCCESS) return CallError("clCreateCommandQueue", status);
  return std::unique_ptr<BackendDevice>(new OpenClDevice(std::move(core), options));
}

}  // namespace leeway::opencl
