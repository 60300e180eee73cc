// The functions of a WebGPU library that we use, found by name when it is opened. Any library with the C interface of webgpu.h
// serves; Dawn is the one that we test with.
#pragma once

#include <webgpu/webgpu.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace leeway::webgpu {

// clang-format off
#define LEEWAY_WEBGPU_FUNCTIONS(X)                                                                          \
  X(CreateInstance) X(InstanceRequestAdapter) X(InstanceProcessEvents) X(InstanceWaitAny) X(InstanceRelease) \
  X(AdapterGetInfo) X(AdapterInfoFreeMembers) X(AdapterGetLimits) X(AdapterHasFeature)                      \
  X(AdapterRequestDevice) X(AdapterRelease)                                                                 \
  X(DeviceGetQueue) X(DeviceGetLimits) X(DeviceCreateBuffer) X(DeviceCreateTexture) X(DeviceCreateShaderModule)                \
  X(DeviceCreateBindGroupLayout) X(DeviceCreatePipelineLayout) X(DeviceCreateComputePipelineAsync)          \
  X(DeviceCreateBindGroup) X(DeviceCreateCommandEncoder) X(DeviceCreateQuerySet)                            \
  X(DevicePushErrorScope) X(DevicePopErrorScope) X(DeviceDestroy) X(DeviceRelease)                          \
  X(CommandEncoderBeginComputePass) X(CommandEncoderCopyBufferToBuffer) X(CommandEncoderCopyTextureToBuffer) \
  X(CommandEncoderResolveQuerySet) X(CommandEncoderFinish) X(CommandEncoderRelease) X(CommandBufferRelease) \
  X(ComputePassEncoderSetPipeline) X(ComputePassEncoderSetBindGroup)                                        \
  X(ComputePassEncoderDispatchWorkgroups) X(ComputePassEncoderEnd) X(ComputePassEncoderRelease)             \
  X(QueueSubmit) X(QueueWriteBuffer) X(QueueWriteTexture) X(QueueOnSubmittedWorkDone) X(QueueRelease)       \
  X(BufferMapAsync) X(BufferGetConstMappedRange) X(BufferUnmap) X(BufferDestroy) X(BufferRelease)           \
  X(TextureCreateView) X(TextureDestroy) X(TextureRelease) X(TextureViewRelease)                            \
  X(ShaderModuleRelease) X(BindGroupLayoutRelease) X(PipelineLayoutRelease) X(ComputePipelineRelease)       \
  X(BindGroupRelease) X(QuerySetDestroy) X(QuerySetRelease)
// Not in every library: null there.
#define LEEWAY_WEBGPU_OPTIONAL_FUNCTIONS(X) X(ComputePassEncoderSetImmediates) X(InstanceHasWGSLLanguageFeature)
// clang-format on

struct Api {
#define LEEWAY_POINTER(name) decltype(&wgpu##name) name = nullptr;
  LEEWAY_WEBGPU_FUNCTIONS(LEEWAY_POINTER)
  LEEWAY_WEBGPU_OPTIONAL_FUNCTIONS(LEEWAY_POINTER)
#undef LEEWAY_POINTER
  // Dawn's alone: fills a DawnInstanceDescriptor (dawn_extensions.h) with its defaults.
  void (*ConstructDawnInstanceDescriptor)(void*) = nullptr;
  // Dawn's alone: what it knows of a feature, the name first (dawn_extensions.h).
  const char* const* (*GetDawnFeatureInfo)(uint32_t feature) = nullptr;
  std::string path;  // of the library
};

// Opens the library once per process: LEEWAY_DAWN_LIBRARY from the environment, or else the first of the program's own folder,
// the path known when this was built, and the system's libraries.
const Result<Api>& GetApi();

inline WGPUStringView View(std::string_view text) { return {text.data(), text.size()}; }
inline std::string Text(WGPUStringView view) {
  if (!view.data) return "";
  return view.length == WGPU_STRLEN ? std::string(view.data) : std::string(view.data, view.length);
}

}  // namespace leeway::webgpu
