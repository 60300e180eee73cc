// What every object of a WebGPU device needs: owned handles, the instance with its way of waiting, and the state that the
// library's callbacks write to.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "device/event.h"
#include "device/webgpu/api.h"

namespace leeway::webgpu {

// Owns one reference to an object of the library.
template <class T, void (*Api::*kRelease)(T)>
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
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  T handle_ = nullptr;
};

using OwnedInstance = Owned<WGPUInstance, &Api::InstanceRelease>;
using OwnedAdapter = Owned<WGPUAdapter, &Api::AdapterRelease>;
using OwnedDevice = Owned<WGPUDevice, &Api::DeviceRelease>;
using OwnedQueue = Owned<WGPUQueue, &Api::QueueRelease>;
using OwnedBuffer = Owned<WGPUBuffer, &Api::BufferRelease>;
using OwnedTexture = Owned<WGPUTexture, &Api::TextureRelease>;
using OwnedTextureView = Owned<WGPUTextureView, &Api::TextureViewRelease>;
using OwnedShaderModule = Owned<WGPUShaderModule, &Api::ShaderModuleRelease>;
using OwnedBindGroupLayout = Owned<WGPUBindGroupLayout, &Api::BindGroupLayoutRelease>;
using OwnedPipelineLayout = Owned<WGPUPipelineLayout, &Api::PipelineLayoutRelease>;
using OwnedPipeline = Owned<WGPUComputePipeline, &Api::ComputePipelineRelease>;
using OwnedBindGroup = Owned<WGPUBindGroup, &Api::BindGroupRelease>;
using OwnedQuerySet = Owned<WGPUQuerySet, &Api::QuerySetRelease>;
using OwnedEncoder = Owned<WGPUCommandEncoder, &Api::CommandEncoderRelease>;
using OwnedPass = Owned<WGPUComputePassEncoder, &Api::ComputePassEncoderRelease>;
using OwnedCommands = Owned<WGPUCommandBuffer, &Api::CommandBufferRelease>;

// An event that the library signals. `future` lets Wait block instead of looking again and again.
class FutureEvent : public CompletionEvent {
 public:
  WGPUFuture future = {};
};

// Written by callbacks that may come on a thread of the library.
class ErrorState {
 public:
  void Report(Code code, std::string message);
  void Lose(std::string message);
  // The first error since the last call.
  Status Take();
  bool lost() const { return is_lost_.load(std::memory_order_acquire); }
  Status LostStatus() const;

 private:
  mutable std::mutex mutex_;
  Status error_, lost_;
  std::atomic<bool> has_error_ = false, is_lost_ = false;
};

// An instance of the library. Making one takes tens of milliseconds on a real GPU's driver, so the one that found an adapter
// serves the first device that is opened on it; a second device beside it gets its own, so that no device runs the
// continuations of another.
struct InstanceSlot {
  OwnedInstance instance;
  OwnedAdapter adapter;  // the one that was found, without toggles
  std::atomic<bool> in_use = false;
};

// Instance, device and queue, shared by all objects made on them, so that any of them may be destroyed last.
struct Core {
  const Api& api = GetApi().value();
  // Above the handles, because callbacks may come until the instance is gone.
  ErrorState errors;
  bool closing = false;  // callbacks that still come only clean up
  uint64_t allocated_bytes = 0;
  int pending_callbacks = 0;  // that point here
  std::shared_ptr<InstanceSlot> slot;
  OwnedAdapter adapter;
  OwnedDevice device;
  OwnedQueue queue;

  Core() = default;
  Core(const Core&) = delete;
  ~Core();
  WGPUInstance instance() const { return slot->instance.get(); }
  // Ends all that is going on; pending callbacks are dropped.
  void Close();
};

// Runs the library's callbacks until `done`; for calls at start-up that have nothing else to do.
void PumpUntil(WGPUInstance instance, const bool& done);

}  // namespace leeway::webgpu
