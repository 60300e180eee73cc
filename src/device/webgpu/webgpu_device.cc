#include "device/webgpu/webgpu_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/hash.h"
#include "base/strings.h"
#include "device/record_check.h"

namespace leeway::webgpu {
namespace {

using Kind = shader::BindingInfo::Kind;
using shader::Access;
using shader::Scalar;

// Uniform buffers are bound at multiples of this; the standard's least alignment, good everywhere.
constexpr uint64_t kUniformAlignment = 256;
// Dispatches of the first of the pieces in which a recording goes to a GPU: 4, 8 and 16 are alike on an H200
// (docs/measurements/h200.md).
constexpr size_t kFirstPiece = 8;
// A query set holds at most 4096 time stamps, two to a dispatch.
constexpr uint32_t kDispatchesPerQuerySet = 2048;

class WebGpuBuffer : public Buffer {
 public:
  WebGpuBuffer(std::shared_ptr<Core> core, OwnedBuffer handle, uint64_t size_bytes, uint64_t allocated_bytes)
      : core_(std::move(core)), handle_(std::move(handle)), size_bytes_(size_bytes), allocated_bytes_(allocated_bytes) {
    core_->allocated_bytes += allocated_bytes_;
  }
  ~WebGpuBuffer() override { core_->allocated_bytes -= allocated_bytes_; }
  uint64_t size_bytes() const override { return size_bytes_; }
  WGPUBuffer handle() const { return handle_.get(); }

 private:
  std::shared_ptr<Core> core_;
  OwnedBuffer handle_;
  uint64_t size_bytes_, allocated_bytes_;
};

uint32_t TexelBytes(DType dtype) { return dtype == DType::kF16 ? 8 : 16; }

class WebGpuTexture : public Texture {
 public:
  WebGpuTexture(std::shared_ptr<Core> core, OwnedTexture handle, OwnedTextureView view, const TextureSpec& spec)
      : core_(std::move(core)), handle_(std::move(handle)), view_(std::move(view)), spec_(spec) {
    core_->allocated_bytes += size_bytes();
  }
  ~WebGpuTexture() override { core_->allocated_bytes -= size_bytes(); }
  WGPUTexture handle() const { return handle_.get(); }
  WGPUTextureView view() const { return view_.get(); }
  const TextureSpec& spec() const { return spec_; }
  uint64_t size_bytes() const {
    return uint64_t(spec_.extent[0]) * spec_.extent[1] * spec_.extent[2] * TexelBytes(spec_.dtype);
  }

 private:
  std::shared_ptr<Core> core_;
  OwnedTexture handle_;
  OwnedTextureView view_;
  TextureSpec spec_;
};

// What a Pipeline and every Recording of it share.
struct PipelineState {
  std::shared_ptr<Core> core;
  std::string name;
  std::vector<shader::BindingInfo> bindings;
  uint32_t params_bytes = 0;
  bool immediates = false;
  OwnedBindGroupLayout group_layout;
  OwnedPipelineLayout layout;
  OwnedPipeline pipeline;
};

class WebGpuPipeline : public Pipeline {
 public:
  explicit WebGpuPipeline(std::shared_ptr<PipelineState> state) : state(std::move(state)) {}
  std::shared_ptr<PipelineState> state;
};

struct TimestampState {
  std::vector<uint64_t> times_ns;
};

class WebGpuRecording : public Recording {
 public:
  struct Step {
    std::shared_ptr<PipelineState> pipeline;
    OwnedBindGroup bind_group;
    uint32_t workgroups[3];
    uint32_t params_offset_bytes = 0;
    uint64_t uniform_offset_bytes = 0;  // of this step's slot in `uniforms`
    bool empty = false;
  };
  std::shared_ptr<Core> core;
  std::vector<Step> steps;
  OwnedBuffer uniforms;
  std::vector<std::byte> uniform_bytes;  // what is written there before each run
  uint64_t params_bytes = 0;             // that Submit must get at least
  // Made when time stamps are first asked for.
  std::vector<OwnedQuerySet> query_sets;
  OwnedBuffer query_results;
  std::shared_ptr<TimestampState> timestamps = std::make_shared<TimestampState>();
};

WGPUTextureFormat TextureFormat(DType dtype) {
  switch (dtype) {
    case DType::kF16: return WGPUTextureFormat_RGBA16Float;
    case DType::kI32: return WGPUTextureFormat_RGBA32Sint;
    case DType::kU32: return WGPUTextureFormat_RGBA32Uint;
    default: return WGPUTextureFormat_RGBA32Float;
  }
}

WGPUTextureFormat TextureFormat(const std::string& texel_format) {
  if (texel_format == "rgba16float") return WGPUTextureFormat_RGBA16Float;
  if (texel_format == "rgba32sint") return WGPUTextureFormat_RGBA32Sint;
  if (texel_format == "rgba32uint") return WGPUTextureFormat_RGBA32Uint;
  return WGPUTextureFormat_RGBA32Float;
}

WGPUTextureViewDimension ViewDimension(const std::string& texture_dim) {
  if (texture_dim == "3d") return WGPUTextureViewDimension_3D;
  if (texture_dim == "2d_array") return WGPUTextureViewDimension_2DArray;
  return WGPUTextureViewDimension_2D;
}

WGPUBindGroupLayoutEntry LayoutEntry(const shader::BindingInfo& binding, uint32_t number) {
  WGPUBindGroupLayoutEntry entry = WGPU_BIND_GROUP_LAYOUT_ENTRY_INIT;
  entry.binding = number;
  entry.visibility = WGPUShaderStage_Compute;
  switch (binding.kind) {
    case Kind::kBuffer:
      entry.buffer.type =
          binding.access == Access::kRead ? WGPUBufferBindingType_ReadOnlyStorage : WGPUBufferBindingType_Storage;
      break;
    case Kind::kScratch: entry.buffer.type = WGPUBufferBindingType_Storage; break;
    case Kind::kParams: entry.buffer.type = WGPUBufferBindingType_Uniform; break;
    case Kind::kSampledTexture:
      entry.texture.sampleType = binding.type.scalar == Scalar::kI32   ? WGPUTextureSampleType_Sint
                                 : binding.type.scalar == Scalar::kU32 ? WGPUTextureSampleType_Uint
                                                                       : WGPUTextureSampleType_UnfilterableFloat;
      entry.texture.viewDimension = ViewDimension(binding.type.texture_dim);
      break;
    case Kind::kStorageTexture:
      entry.storageTexture.access = WGPUStorageTextureAccess_WriteOnly;
      entry.storageTexture.format = TextureFormat(binding.type.texel_format);
      entry.storageTexture.viewDimension = ViewDimension(binding.type.texture_dim);
      break;
  }
  return entry;
}

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class WebGpuDevice : public BackendDevice {
 public:
  WebGpuDevice(Opened opened, const OpenOptions& options);
  ~WebGpuDevice() override { core_->Close(); }

  Result<std::unique_ptr<Buffer>> CreateBuffer(uint64_t size_bytes, std::string_view label) override;
  Result<std::unique_ptr<Texture>> CreateTexture(const TextureSpec& spec, std::string_view label) override;
  Result<Compiling> StartCompile(const shader::KernelText& kernel) override;
  Result<std::unique_ptr<Recording>> Record(std::vector<Dispatch> dispatches) override;
  Result<EventPtr> Submit(Recording& recording, const SubmitOptions& options) override {
    return SubmitAll(static_cast<WebGpuRecording&>(recording), options, {}, nullptr);
  }
  Result<EventPtr> SubmitAndRead(Recording& recording, const SubmitOptions& options, std::vector<ReadRequest> requests,
                                 ReadDone done) override {
    return SubmitAll(static_cast<WebGpuRecording&>(recording), options, std::move(requests), std::move(done));
  }
  std::vector<uint64_t> ReadTimestamps(Recording& recording) override {
    return static_cast<WebGpuRecording&>(recording).timestamps->times_ns;
  }
  Status Write(Buffer& buffer, uint64_t offset_bytes, std::span<const std::byte> bytes) override;
  Status WriteTexture(Texture& texture, std::span<const std::byte> texels) override;
  Result<EventPtr> Read(std::vector<ReadRequest> requests, ReadDone done) override;
  Result<EventPtr> ReadTexture(Texture& texture, ReadDone done) override;
  void Poll() override { core_->api.InstanceProcessEvents(core_->instance()); }
  Status Wait(const EventPtr& event) override;
  Status status() const override { return core_->errors.lost() ? core_->errors.LostStatus() : Status(); }
  uint64_t allocated_bytes() const override { return core_->allocated_bytes; }

 private:
  // A buffer that the host may map, used for one read-back after the other.
  struct Staging {
    OwnedBuffer buffer;
    uint64_t size_bytes = 0;
    bool busy = false;
  };
  // One read-back under way.
  struct PendingRead {
    WebGpuDevice* device;  // valid unless core->closing
    Core* core;
    Staging* staging;
    uint64_t size_bytes = 0;
    std::function<void(Result<const std::byte*>)> use;  // gets the mapped bytes
    std::shared_ptr<FutureEvent> event;
  };

  Result<EventPtr> SubmitAll(WebGpuRecording& recording, const SubmitOptions& options, std::vector<ReadRequest> requests,
                             ReadDone done);
  Status PrepareTimestamps(WebGpuRecording& recording);
  void EncodeStep(WGPUComputePassEncoder pass, const WebGpuRecording::Step& step, std::span<const std::byte> params,
                  const PipelineState*& current);
  Result<Staging*> TakeStaging(uint64_t size_bytes);
  void ReturnStaging(Staging* staging);
  std::shared_ptr<FutureEvent> Map(Staging* staging, uint64_t size_bytes, std::function<void(Result<const std::byte*>)> use);
  // The copies of the requests into one staging buffer, and what hands its parts to `done`.
  struct ReadPlan {
    Staging* staging = nullptr;
    uint64_t size_bytes = 0;
    std::function<void(Result<const std::byte*>)> use;
  };
  Result<ReadPlan> EncodeReads(WGPUCommandEncoder encoder, const std::vector<ReadRequest>& requests, ReadDone done);
  void SubmitEncoder(WGPUCommandEncoder encoder);
  std::shared_ptr<FutureEvent> WorkDoneEvent();
  OwnedEncoder MakeEncoder() { return OwnedEncoder(core_->api.DeviceCreateCommandEncoder(core_->device.get(), nullptr)); }
  OwnedBuffer MakeBuffer(uint64_t size_bytes, WGPUBufferUsage usage, std::string_view label);

  std::shared_ptr<Core> core_;
  std::weak_ptr<FutureEvent> last_submitted_;
  std::vector<std::unique_ptr<Staging>> staging_;
};

WebGpuDevice::WebGpuDevice(Opened opened, const OpenOptions& options) : core_(std::move(opened.core)) {
  const WGPULimits& limits = opened.limits;
  const AdapterDescription& d = opened.description;
  info_.api = "webgpu";
  info_.name = d.device;
  info_.driver = d.description;
  info_.vendor = d.vendor;
  info_.is_software = d.type == WGPUAdapterType_CPU;
  info_.max_buffer_bytes = limits.maxBufferSize;
  info_.buffer_offset_alignment = std::max(256u, limits.minStorageBufferOffsetAlignment);
  info_.timestamps = opened.timestamps;
  info_.driver_caches_programs = true;
  shader::Target& t = info_.target;
  t.language = shader::Language::kWgsl;
  t.f16 = opened.f16;
  t.subgroups = opened.subgroups;
  t.subgroup_min = opened.subgroups ? d.subgroup_min : 0;
  t.subgroup_max = opened.subgroups ? d.subgroup_max : 0;
  // Kernels that multiply matrices count on a size.
  t.subgroup_matrix = opened.subgroup_matrix && t.subgroup_min == t.subgroup_max;
  t.packed_dot = opened.packed_dot;
  t.immediates = opened.immediates;
  t.image_buffer = false;
  t.float_textures_write = true;
  t.max_storage_buffers = limits.maxStorageBuffersPerShaderStage;
  t.max_sampled_textures = limits.maxSampledTexturesPerShaderStage;
  t.max_storage_textures = limits.maxStorageTexturesPerShaderStage;
  t.max_invocations = limits.maxComputeInvocationsPerWorkgroup;
  t.max_workgroup_size[0] = limits.maxComputeWorkgroupSizeX;
  t.max_workgroup_size[1] = limits.maxComputeWorkgroupSizeY;
  t.max_workgroup_size[2] = limits.maxComputeWorkgroupSizeZ;
  t.max_workgroup_bytes = limits.maxComputeWorkgroupStorageSize;
  t.max_workgroups = limits.maxComputeWorkgroupsPerDimension;
  t.storage.max_binding_bytes = int64_t(limits.maxStorageBufferBindingSize);
  t.storage.max_texture_2d = limits.maxTextureDimension2D;
  t.storage.max_texture_3d = limits.maxTextureDimension3D;
  t.storage.max_texture_layers = limits.maxTextureArrayLayers;
  t.is_software = info_.is_software;
  info_.cache_key = StrCat("webgpu-", HashText(StrCat(d.vendor_id, "/", d.device_id, "/", d.device, "/", d.description,
                                                      opened.robust ? "/safe" : "", options.minimal_limits ? "/minimal" : "")));
}

OwnedBuffer WebGpuDevice::MakeBuffer(uint64_t size_bytes, WGPUBufferUsage usage, std::string_view label) {
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.label = View(label);
  descriptor.size = size_bytes;
  descriptor.usage = usage;
  return OwnedBuffer(core_->api.DeviceCreateBuffer(core_->device.get(), &descriptor));
}

Result<std::unique_ptr<Buffer>> WebGpuDevice::CreateBuffer(uint64_t size_bytes, std::string_view label) {
  RETURN_IF_ERROR(core_->errors.Take());
  const uint64_t allocated_bytes = std::max<uint64_t>(RoundUp(size_bytes, 16), 16);
  if (allocated_bytes > info_.max_buffer_bytes) {
    return Error{Code::kOutOfMemory, StrCat("Buffer \"", label, "\" needs (", size_bytes,
                                            ") bytes, more than the device's limit (", info_.max_buffer_bytes, ").")};
  }
  OwnedBuffer handle =
      MakeBuffer(allocated_bytes, WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst, label);
  RETURN_IF_ERROR_CONTEXT(core_->errors.Take(), StrCat("while making buffer \"", label, "\" of (", size_bytes, ") bytes"));
  if (!handle) return Error{Code::kOutOfMemory, StrCat("The device makes no buffer of (", size_bytes, ") bytes.")};
  return std::unique_ptr<Buffer>(
      new WebGpuBuffer(core_, std::move(handle), size_bytes ? size_bytes : allocated_bytes, allocated_bytes));
}

Result<std::unique_ptr<Texture>> WebGpuDevice::CreateTexture(const TextureSpec& spec, std::string_view label) {
  RETURN_IF_ERROR(core_->errors.Take());
  if (!spec.extent[0] || !spec.extent[1] || !spec.extent[2]) {
    return Error{Code::kInvalidArgument, StrCat("Texture \"", label, "\" has an extent of 0.")};
  }
  WGPUTextureDescriptor descriptor = WGPU_TEXTURE_DESCRIPTOR_INIT;
  descriptor.label = View(label);
  descriptor.usage =
      WGPUTextureUsage_TextureBinding | WGPUTextureUsage_StorageBinding | WGPUTextureUsage_CopySrc | WGPUTextureUsage_CopyDst;
  descriptor.dimension = spec.storage == Storage::kTexture3D ? WGPUTextureDimension_3D : WGPUTextureDimension_2D;
  descriptor.size = {spec.extent[0], spec.extent[1], spec.extent[2]};
  descriptor.format = TextureFormat(spec.dtype);
  OwnedTexture handle(core_->api.DeviceCreateTexture(core_->device.get(), &descriptor));
  WGPUTextureViewDescriptor view = WGPU_TEXTURE_VIEW_DESCRIPTOR_INIT;
  view.dimension = spec.storage == Storage::kTexture3D        ? WGPUTextureViewDimension_3D
                   : spec.storage == Storage::kTexture2DArray ? WGPUTextureViewDimension_2DArray
                                                              : WGPUTextureViewDimension_2D;
  OwnedTextureView view_handle(core_->api.TextureCreateView(handle.get(), &view));
  RETURN_IF_ERROR_CONTEXT(core_->errors.Take(), StrCat("while making texture \"", label, "\" of ", spec.extent[0], " x ",
                                                       spec.extent[1], " x ", spec.extent[2], " texels"));
  return std::unique_ptr<Texture>(new WebGpuTexture(core_, std::move(handle), std::move(view_handle), spec));
}

Result<Device::Compiling> WebGpuDevice::StartCompile(const shader::KernelText& kernel) {
  RETURN_IF_ERROR(core_->errors.Take());
  if (kernel.language != shader::Language::kWgsl) {
    return Error{Code::kInvalidArgument, StrCat("Kernel ", kernel.name, " is not in WGSL, which the device takes.")};
  }
  const Api& api = core_->api;
  auto state = std::make_shared<PipelineState>();
  state->core = core_;
  state->name = kernel.name;
  state->bindings = kernel.bindings;
  state->params_bytes = kernel.params_bytes;
  state->immediates = kernel.params_bytes && kernel.text.find("var<immediate>") != std::string::npos;

  struct Compile {
    std::shared_ptr<PipelineState> state;
    std::shared_ptr<FutureEvent> event = std::make_shared<FutureEvent>();
    std::string module_message, pipeline_message;
    int waiting = 2;
    Core* core;
    void Arrived() {
      --core->pending_callbacks;
      if (--waiting) return;
      if (!core->closing) {
        if (!module_message.empty() || !state->pipeline) {
          event->Complete(core->errors.lost()
                              ? core->errors.LostStatus()
                              : Error{Code::kInternal, StrCat("The device's compiler refuses kernel ", state->name, ": ",
                                                              module_message.empty() ? pipeline_message : module_message)});
        } else {
          event->Complete({});
        }
      }
      delete this;
    }
  };
  auto* compile = new Compile;
  core_->pending_callbacks += 2;
  compile->state = state;
  compile->core = core_.get();
  auto event = compile->event;

  api.DevicePushErrorScope(core_->device.get(), WGPUErrorFilter_Validation);
  WGPUShaderSourceWGSL source = WGPU_SHADER_SOURCE_WGSL_INIT;
  source.code = View(kernel.text);
  WGPUShaderModuleDescriptor module_descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
  module_descriptor.nextInChain = &source.chain;
  module_descriptor.label = View(kernel.name);
  OwnedShaderModule module(api.DeviceCreateShaderModule(core_->device.get(), &module_descriptor));

  std::vector<WGPUBindGroupLayoutEntry> entries;
  for (size_t i = 0; i < kernel.bindings.size(); ++i) {
    if (kernel.bindings[i].kind == Kind::kParams && state->immediates) continue;
    entries.push_back(LayoutEntry(kernel.bindings[i], uint32_t(i)));
  }
  WGPUBindGroupLayoutDescriptor group_descriptor = WGPU_BIND_GROUP_LAYOUT_DESCRIPTOR_INIT;
  group_descriptor.entryCount = entries.size();
  group_descriptor.entries = entries.data();
  state->group_layout = OwnedBindGroupLayout(api.DeviceCreateBindGroupLayout(core_->device.get(), &group_descriptor));
  WGPUPipelineLayoutDescriptor layout_descriptor = WGPU_PIPELINE_LAYOUT_DESCRIPTOR_INIT;
  const WGPUBindGroupLayout group_layout = state->group_layout.get();
  layout_descriptor.bindGroupLayoutCount = 1;
  layout_descriptor.bindGroupLayouts = &group_layout;
  layout_descriptor.immediateSize = state->immediates ? uint32_t(RoundUp(kernel.params_bytes, 4)) : 0;
  state->layout = OwnedPipelineLayout(api.DeviceCreatePipelineLayout(core_->device.get(), &layout_descriptor));

  WGPUPopErrorScopeCallbackInfo scope_callback = WGPU_POP_ERROR_SCOPE_CALLBACK_INFO_INIT;
  scope_callback.mode = WGPUCallbackMode_AllowProcessEvents;
  scope_callback.userdata1 = compile;
  scope_callback.callback = [](WGPUPopErrorScopeStatus, WGPUErrorType type, WGPUStringView message, void* user, void*) {
    auto* compile = static_cast<Compile*>(user);
    if (type != WGPUErrorType_NoError) compile->module_message = Text(message);
    compile->Arrived();
  };
  api.DevicePopErrorScope(core_->device.get(), scope_callback);

  WGPUComputePipelineDescriptor descriptor = WGPU_COMPUTE_PIPELINE_DESCRIPTOR_INIT;
  descriptor.label = View(kernel.name);
  descriptor.layout = state->layout.get();
  descriptor.compute.module = module.get();
  descriptor.compute.entryPoint = View(kernel.entry_point);
  WGPUCreateComputePipelineAsyncCallbackInfo callback = WGPU_CREATE_COMPUTE_PIPELINE_ASYNC_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = compile;
  callback.callback = [](WGPUCreatePipelineAsyncStatus, WGPUComputePipeline pipeline, WGPUStringView message, void* user,
                         void*) {
    auto* compile = static_cast<Compile*>(user);
    compile->state->pipeline = OwnedPipeline(pipeline);
    compile->pipeline_message = Text(message);
    compile->Arrived();
  };
  event->future = api.DeviceCreateComputePipelineAsync(core_->device.get(), &descriptor, callback);
  return Compiling{std::unique_ptr<Pipeline>(new WebGpuPipeline(std::move(state))), event};
}

Result<std::unique_ptr<Recording>> WebGpuDevice::Record(std::vector<Dispatch> dispatches) {
  RETURN_IF_ERROR(core_->errors.Take());
  const Api& api = core_->api;
  auto recording = std::make_unique<WebGpuRecording>();
  recording->core = core_;
  // First the slots of uniform params, since bind groups point into their buffer.
  uint64_t uniform_bytes = 0;
  for (const Dispatch& dispatch : dispatches) {
    const PipelineState& state = *static_cast<const WebGpuPipeline*>(dispatch.pipeline)->state;
    if (!state.pipeline) {
      return Error{Code::kInvalidArgument, StrCat("Dispatch \"", dispatch.label, "\": kernel ", state.name,
                                                  " is not compiled; wait for its event first.")};
    }
    RETURN_IF_ERROR(CheckDispatch(dispatch, state.bindings, info_));
    WebGpuRecording::Step step;
    step.pipeline = static_cast<const WebGpuPipeline*>(dispatch.pipeline)->state;
    std::copy_n(dispatch.workgroups, 3, step.workgroups);
    step.empty = !dispatch.workgroups[0] || !dispatch.workgroups[1] || !dispatch.workgroups[2];
    step.params_offset_bytes = dispatch.params_offset_bytes;
    if (state.params_bytes) {
      recording->params_bytes =
          std::max<uint64_t>(recording->params_bytes, uint64_t(dispatch.params_offset_bytes) + state.params_bytes);
      if (!state.immediates) {
        step.uniform_offset_bytes = uniform_bytes;
        uniform_bytes += RoundUp(state.params_bytes, kUniformAlignment);
      }
    }
    recording->steps.push_back(std::move(step));
  }
  if (uniform_bytes) {
    recording->uniforms = MakeBuffer(uniform_bytes, WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst, "params");
    recording->uniform_bytes.resize(uniform_bytes);
  }
  std::vector<WGPUBindGroupEntry> entries;
  for (size_t n = 0; n < dispatches.size(); ++n) {
    const Dispatch& dispatch = dispatches[n];
    WebGpuRecording::Step& step = recording->steps[n];
    const PipelineState& state = *step.pipeline;
    entries.clear();
    for (size_t i = 0; i < state.bindings.size(); ++i) {
      WGPUBindGroupEntry entry = WGPU_BIND_GROUP_ENTRY_INIT;
      entry.binding = uint32_t(i);
      const BindingResource& resource = dispatch.bindings[i];
      if (state.bindings[i].kind == Kind::kParams) {
        if (state.immediates) continue;
        entry.buffer = recording->uniforms.get();
        entry.offset = step.uniform_offset_bytes;
        entry.size = RoundUp(state.params_bytes, 16);
      } else if (resource.texture) {
        entry.textureView = static_cast<WebGpuTexture*>(resource.texture)->view();
      } else {
        entry.buffer = static_cast<WebGpuBuffer*>(resource.buffer)->handle();
        entry.offset = resource.offset_bytes;
        entry.size = resource.size_bytes ? RoundUp(resource.size_bytes, 4) : WGPU_WHOLE_SIZE;
      }
      entries.push_back(entry);
    }
    WGPUBindGroupDescriptor descriptor = WGPU_BIND_GROUP_DESCRIPTOR_INIT;
    descriptor.label = View(dispatch.label);
    descriptor.layout = state.group_layout.get();
    descriptor.entryCount = entries.size();
    descriptor.entries = entries.data();
    step.bind_group = OwnedBindGroup(api.DeviceCreateBindGroup(core_->device.get(), &descriptor));
    RETURN_IF_ERROR_CONTEXT(core_->errors.Take(), StrCat("while recording dispatch \"", dispatch.label, "\""));
  }
  return std::unique_ptr<Recording>(std::move(recording));
}

void WebGpuDevice::EncodeStep(WGPUComputePassEncoder pass, const WebGpuRecording::Step& step, std::span<const std::byte> params,
                              const PipelineState*& current) {
  const Api& api = core_->api;
  const PipelineState& state = *step.pipeline;
  if (current != &state) {
    api.ComputePassEncoderSetPipeline(pass, state.pipeline.get());
    current = &state;
  }
  api.ComputePassEncoderSetBindGroup(pass, 0, step.bind_group.get(), 0, nullptr);
  if (state.immediates) {
    api.ComputePassEncoderSetImmediates(pass, 0, params.data() + step.params_offset_bytes, RoundUp(state.params_bytes, 4));
  }
  api.ComputePassEncoderDispatchWorkgroups(pass, step.workgroups[0], step.workgroups[1], step.workgroups[2]);
}

Status WebGpuDevice::PrepareTimestamps(WebGpuRecording& recording) {
  const uint32_t count = uint32_t(recording.steps.size());
  if (!count || !recording.query_sets.empty()) return {};
  for (uint32_t first = 0; first < count; first += kDispatchesPerQuerySet) {
    WGPUQuerySetDescriptor descriptor = WGPU_QUERY_SET_DESCRIPTOR_INIT;
    descriptor.type = WGPUQueryType_Timestamp;
    descriptor.count = 2 * std::min(kDispatchesPerQuerySet, count - first);
    recording.query_sets.emplace_back(core_->api.DeviceCreateQuerySet(core_->device.get(), &descriptor));
  }
  recording.query_results =
      MakeBuffer(uint64_t(count) * 16, WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc, "timestamps");
  return core_->errors.Take();
}

void WebGpuDevice::SubmitEncoder(WGPUCommandEncoder encoder) {
  OwnedCommands commands(core_->api.CommandEncoderFinish(encoder, nullptr));
  const WGPUCommandBuffer handle = commands.get();
  core_->api.QueueSubmit(core_->queue.get(), 1, &handle);
}

std::shared_ptr<FutureEvent> WebGpuDevice::WorkDoneEvent() {
  struct Pending {
    Core* core;
    std::shared_ptr<FutureEvent> event;
  };
  auto event = std::make_shared<FutureEvent>();
  WGPUQueueWorkDoneCallbackInfo callback = WGPU_QUEUE_WORK_DONE_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = new Pending{core_.get(), event};
  ++core_->pending_callbacks;
  callback.callback = [](WGPUQueueWorkDoneStatus status, WGPUStringView message, void* user, void*) {
    std::unique_ptr<Pending> pending(static_cast<Pending*>(user));
    --pending->core->pending_callbacks;
    if (pending->core->closing) return;
    Status result = pending->core->errors.Take();
    if (result.ok() && status != WGPUQueueWorkDoneStatus_Success) {
      result = Error{Code::kInternal, StrCat("The submission did not finish: ", Text(message))};
    }
    pending->event->Complete(std::move(result));
  };
  event->future = core_->api.QueueOnSubmittedWorkDone(core_->queue.get(), callback);
  return event;
}

Result<EventPtr> WebGpuDevice::SubmitAll(WebGpuRecording& recording, const SubmitOptions& options,
                                         std::vector<ReadRequest> requests, ReadDone done) {
  RETURN_IF_ERROR(core_->errors.Take());
  const Api& api = core_->api;
  if (options.params.size() < recording.params_bytes) {
    return Error{Code::kInvalidArgument, StrCat("The recording takes (", recording.params_bytes,
                                                ") bytes of params, Submit got (", options.params.size(), ").")};
  }
  const bool timestamps = options.timestamps && info_.timestamps && !recording.steps.empty();
  if (timestamps) RETURN_IF_ERROR(PrepareTimestamps(recording));
  if (recording.uniforms) {
    for (const WebGpuRecording::Step& step : recording.steps) {
      const PipelineState& state = *step.pipeline;
      if (!state.params_bytes || state.immediates) continue;
      std::memcpy(recording.uniform_bytes.data() + step.uniform_offset_bytes, options.params.data() + step.params_offset_bytes,
                  state.params_bytes);
    }
    api.QueueWriteBuffer(core_->queue.get(), recording.uniforms.get(), 0, recording.uniform_bytes.data(),
                         recording.uniform_bytes.size());
  }

  OwnedEncoder encoder = MakeEncoder();
  const PipelineState* current = nullptr;
  if (!timestamps) {
    // A GPU that has nothing to do begins with the first dispatches while the host still encodes the others: on a large one
    // both take as long. One that is busy gains nothing by it, and each piece costs the host a submission.
    const auto last = last_submitted_.lock();
    const bool is_busy = last && !last->done();
    size_t first = 0, piece = info_.is_software || is_busy ? recording.steps.size() : kFirstPiece;
    while (first < recording.steps.size()) {
      size_t end = first + piece;
      if (end + piece / 2 >= recording.steps.size()) end = recording.steps.size();
      OwnedPass pass(api.CommandEncoderBeginComputePass(encoder.get(), nullptr));
      current = nullptr;
      for (size_t i = first; i < end; ++i) {
        if (!recording.steps[i].empty) EncodeStep(pass.get(), recording.steps[i], options.params, current);
      }
      api.ComputePassEncoderEnd(pass.get());
      first = end;
      piece *= 2;
      if (first == recording.steps.size()) break;
      SubmitEncoder(encoder.get());
      encoder = MakeEncoder();
    }
  } else {
    for (uint32_t i = 0; i < recording.steps.size(); ++i) {  // stamps are taken at the ends of passes, so one to a dispatch
      const uint32_t in_set = i % kDispatchesPerQuerySet;
      WGPUPassTimestampWrites writes = WGPU_PASS_TIMESTAMP_WRITES_INIT;
      writes.querySet = recording.query_sets[i / kDispatchesPerQuerySet].get();
      writes.beginningOfPassWriteIndex = 2 * in_set;
      writes.endOfPassWriteIndex = 2 * in_set + 1;
      WGPUComputePassDescriptor descriptor = WGPU_COMPUTE_PASS_DESCRIPTOR_INIT;
      descriptor.timestampWrites = &writes;
      OwnedPass pass(api.CommandEncoderBeginComputePass(encoder.get(), &descriptor));
      current = nullptr;
      if (!recording.steps[i].empty) EncodeStep(pass.get(), recording.steps[i], options.params, current);
      api.ComputePassEncoderEnd(pass.get());
    }
    for (size_t set = 0; set < recording.query_sets.size(); ++set) {
      const uint32_t first = uint32_t(set) * kDispatchesPerQuerySet;
      const uint32_t count = 2 * std::min(kDispatchesPerQuerySet, uint32_t(recording.steps.size()) - first);
      api.CommandEncoderResolveQuerySet(encoder.get(), recording.query_sets[set].get(), 0, count, recording.query_results.get(),
                                        uint64_t(first) * 16);
    }
  }

  Staging* stamps = nullptr;
  const uint64_t stamp_bytes = recording.steps.size() * 16;
  if (timestamps) {
    ASSIGN_OR_RETURN(stamps, TakeStaging(stamp_bytes));
    api.CommandEncoderCopyBufferToBuffer(encoder.get(), recording.query_results.get(), 0, stamps->buffer.get(), 0, stamp_bytes);
  }
  ReadPlan plan;
  if (!requests.empty()) {
    ASSIGN_OR_RETURN(plan, EncodeReads(encoder.get(), requests, std::move(done)));
    done = nullptr;
  }
  SubmitEncoder(encoder.get());
  RETURN_IF_ERROR_CONTEXT(core_->errors.Take(), "while submitting a recording");

  std::shared_ptr<FutureEvent> event;
  if (timestamps) {
    event = Map(stamps, stamp_bytes, [state = recording.timestamps, stamp_bytes](Result<const std::byte*> mapped) {
      if (!mapped.ok()) return;
      state->times_ns.assign(stamp_bytes / 16, 0);
      for (size_t i = 0; i < state->times_ns.size(); ++i) {
        uint64_t stamps[2];
        std::memcpy(stamps, *mapped + 16 * i, 16);
        state->times_ns[i] = stamps[1] > stamps[0] ? stamps[1] - stamps[0] : 0;  // clocks of a GPU may step back
      }
    });
  }
  if (plan.staging) {
    event = Map(plan.staging, plan.size_bytes, std::move(plan.use));
  } else if (!event) {
    event = WorkDoneEvent();
  }
  last_submitted_ = event;
  if (done) {  // nothing to read
    event->OnDone([done = std::move(done), event_state = std::weak_ptr<FutureEvent>(event)] {
      auto event = event_state.lock();
      if (event && !event->status().ok()) {
        done(event->status().error());
      } else {
        done(std::vector<std::span<const std::byte>>());
      }
    });
  }
  return EventPtr(event);
}

Result<WebGpuDevice::Staging*> WebGpuDevice::TakeStaging(uint64_t size_bytes) {
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
    staging->size_bytes = std::min(staging->size_bytes, std::max(info_.max_buffer_bytes, size_bytes));
    staging->buffer = MakeBuffer(staging->size_bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst, "read-back");
    RETURN_IF_ERROR_CONTEXT(core_->errors.Take(), StrCat("while making a buffer for reading (", size_bytes, ") bytes back"));
    best = staging.get();
    staging_.push_back(std::move(staging));
  }
  best->busy = true;
  return best;
}

void WebGpuDevice::ReturnStaging(Staging* staging) {
  staging->busy = false;
  // Enough for some runs in flight; what a single large read left behind is given back.
  constexpr size_t kKept = 8;
  if (staging_.size() <= kKept) return;
  auto oldest = std::find_if(staging_.begin(), staging_.end(), [](const auto& s) { return !s->busy; });
  staging_.erase(oldest);
}

std::shared_ptr<FutureEvent> WebGpuDevice::Map(Staging* staging, uint64_t size_bytes,
                                               std::function<void(Result<const std::byte*>)> use) {
  auto event = std::make_shared<FutureEvent>();
  WGPUBufferMapCallbackInfo callback = WGPU_BUFFER_MAP_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = new PendingRead{this, core_.get(), staging, size_bytes, std::move(use), event};
  ++core_->pending_callbacks;
  callback.callback = [](WGPUMapAsyncStatus map_status, WGPUStringView message, void* user, void*) {
    std::unique_ptr<PendingRead> pending(static_cast<PendingRead*>(user));
    --pending->core->pending_callbacks;
    if (pending->core->closing) return;
    const Api& api = pending->core->api;
    Status status = pending->core->errors.Take();
    if (status.ok() && map_status != WGPUMapAsyncStatus_Success) {
      status = Error{Code::kInternal, StrCat("Reading back fails: ", Text(message))};
    }
    const void* mapped = nullptr;
    if (map_status == WGPUMapAsyncStatus_Success) {
      mapped = api.BufferGetConstMappedRange(pending->staging->buffer.get(), 0, pending->size_bytes);
      if (!mapped && status.ok()) status = Error{Code::kInternal, "Reading back fails: the buffer is not mapped."};
    }
    if (pending->use) {
      pending->use(status.ok() ? Result<const std::byte*>(static_cast<const std::byte*>(mapped))
                               : Result<const std::byte*>(status.error()));
    }
    if (map_status == WGPUMapAsyncStatus_Success) api.BufferUnmap(pending->staging->buffer.get());
    pending->device->ReturnStaging(pending->staging);
    pending->event->Complete(std::move(status));
  };
  event->future = core_->api.BufferMapAsync(staging->buffer.get(), WGPUMapMode_Read, 0, size_bytes, callback);
  return event;
}

Result<WebGpuDevice::ReadPlan> WebGpuDevice::EncodeReads(WGPUCommandEncoder encoder, const std::vector<ReadRequest>& requests,
                                                         ReadDone done) {
  ReadPlan plan;
  std::vector<std::pair<uint64_t, uint64_t>> parts;  // offset and size in the staging buffer
  for (const ReadRequest& request : requests) {
    RETURN_IF_ERROR(CheckRange(*request.buffer, request.offset_bytes, request.size_bytes, "Read"));
    parts.emplace_back(plan.size_bytes, request.size_bytes);
    plan.size_bytes += RoundUp(request.size_bytes, 16);
  }
  plan.size_bytes = std::max<uint64_t>(plan.size_bytes, 16);
  ASSIGN_OR_RETURN(plan.staging, TakeStaging(plan.size_bytes));
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!parts[i].second) continue;
    core_->api.CommandEncoderCopyBufferToBuffer(encoder, static_cast<WebGpuBuffer*>(requests[i].buffer)->handle(),
                                                requests[i].offset_bytes, plan.staging->buffer.get(), parts[i].first,
                                                parts[i].second);
  }
  plan.use = [parts = std::move(parts), done = std::move(done)](Result<const std::byte*> mapped) {
    if (!done) return;
    if (!mapped.ok()) return done(mapped.error());
    std::vector<std::span<const std::byte>> spans;
    for (auto [offset, size] : parts) spans.emplace_back(*mapped + offset, size);
    done(std::move(spans));
  };
  return plan;
}

Result<EventPtr> WebGpuDevice::Read(std::vector<ReadRequest> requests, ReadDone done) {
  RETURN_IF_ERROR(core_->errors.Take());
  OwnedEncoder encoder = MakeEncoder();
  ASSIGN_OR_RETURN(ReadPlan plan, EncodeReads(encoder.get(), requests, std::move(done)));
  SubmitEncoder(encoder.get());
  return EventPtr(Map(plan.staging, plan.size_bytes, std::move(plan.use)));
}

Result<EventPtr> WebGpuDevice::ReadTexture(Texture& texture, ReadDone done) {
  RETURN_IF_ERROR(core_->errors.Take());
  auto& source = static_cast<WebGpuTexture&>(texture);
  const TextureSpec& spec = source.spec();
  const uint64_t row_bytes = uint64_t(spec.extent[0]) * TexelBytes(spec.dtype);
  const uint64_t pitch_bytes = RoundUp(row_bytes, 256);  // the standard's alignment of rows in copies
  const uint64_t row_count = uint64_t(spec.extent[1]) * spec.extent[2];
  ASSIGN_OR_RETURN(Staging * staging, TakeStaging(pitch_bytes * row_count));
  OwnedEncoder encoder = MakeEncoder();
  WGPUTexelCopyTextureInfo from = WGPU_TEXEL_COPY_TEXTURE_INFO_INIT;
  from.texture = source.handle();
  WGPUTexelCopyBufferInfo to = WGPU_TEXEL_COPY_BUFFER_INFO_INIT;
  to.buffer = staging->buffer.get();
  to.layout.bytesPerRow = uint32_t(pitch_bytes);
  to.layout.rowsPerImage = spec.extent[1];
  const WGPUExtent3D extent = {spec.extent[0], spec.extent[1], spec.extent[2]};
  core_->api.CommandEncoderCopyTextureToBuffer(encoder.get(), &from, &to, &extent);
  SubmitEncoder(encoder.get());
  return EventPtr(Map(staging, pitch_bytes * row_count,
                      [row_bytes, pitch_bytes, row_count, done = std::move(done)](Result<const std::byte*> mapped) {
                        if (!mapped.ok()) return done(mapped.error());
                        if (row_bytes == pitch_bytes) { return done(std::vector{std::span(*mapped, row_bytes * row_count)}); }
                        std::vector<std::byte> packed(row_bytes * row_count);
                        for (uint64_t row = 0; row < row_count; ++row) {
                          std::memcpy(packed.data() + row * row_bytes, *mapped + row * pitch_bytes, row_bytes);
                        }
                        done(std::vector{std::span<const std::byte>(packed)});
                      }));
}

Status WebGpuDevice::Write(Buffer& buffer, uint64_t offset_bytes, std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(core_->errors.Take());
  RETURN_IF_ERROR(CheckRange(buffer, offset_bytes, bytes.size(), "Write"));
  if (bytes.empty()) return {};
  core_->api.QueueWriteBuffer(core_->queue.get(), static_cast<WebGpuBuffer&>(buffer).handle(), offset_bytes, bytes.data(),
                              bytes.size());
  return core_->errors.Take();
}

Status WebGpuDevice::WriteTexture(Texture& texture, std::span<const std::byte> texels) {
  RETURN_IF_ERROR(core_->errors.Take());
  auto& target = static_cast<WebGpuTexture&>(texture);
  const TextureSpec& spec = target.spec();
  if (texels.size() != target.size_bytes()) {
    return Error{Code::kInvalidArgument,
                 StrCat("WriteTexture takes (", target.size_bytes(), ") bytes, got (", texels.size(), ").")};
  }
  WGPUTexelCopyTextureInfo to = WGPU_TEXEL_COPY_TEXTURE_INFO_INIT;
  to.texture = target.handle();
  WGPUTexelCopyBufferLayout layout = WGPU_TEXEL_COPY_BUFFER_LAYOUT_INIT;
  layout.bytesPerRow = spec.extent[0] * TexelBytes(spec.dtype);
  layout.rowsPerImage = spec.extent[1];
  const WGPUExtent3D extent = {spec.extent[0], spec.extent[1], spec.extent[2]};
  core_->api.QueueWriteTexture(core_->queue.get(), &to, texels.data(), texels.size(), &layout, &extent);
  return core_->errors.Take();
}

Status WebGpuDevice::Wait(const EventPtr& event) {
  const Api& api = core_->api;
  const WGPUInstance instance = core_->instance();
  auto& wanted = static_cast<FutureEvent&>(*event);
  // A wake-up from the kernel costs tens of microseconds, as much as a small model's run, so on a real GPU look first for a
  // while. A software GPU needs the cores itself.
  if (!info_.is_software) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(4);
    do { api.InstanceProcessEvents(instance); } while (!wanted.done() && std::chrono::steady_clock::now() < until);
  }
  while (!wanted.done()) {
    if (wanted.future.id) {
      WGPUFutureWaitInfo info = WGPU_FUTURE_WAIT_INFO_INIT;
      info.future = wanted.future;
      constexpr uint64_t kTimeoutNs = 50'000'000;
      if (api.InstanceWaitAny(instance, 1, &info, kTimeoutNs) == WGPUWaitStatus_Error) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    api.InstanceProcessEvents(instance);
    if (!wanted.done() && core_->errors.lost()) wanted.Complete(core_->errors.LostStatus());
  }
  return wanted.status();
}

}  // namespace

Result<std::unique_ptr<BackendDevice>> OpenWebGpuDevice(const AdapterRequest& request, std::shared_ptr<InstanceSlot> found,
                                                        const OpenOptions& options) {
  ASSIGN_OR_RETURN(Opened opened, OpenAdapter(request, std::move(found), options));
  return std::unique_ptr<BackendDevice>(new WebGpuDevice(std::move(opened), options));
}

}  // namespace leeway::webgpu
