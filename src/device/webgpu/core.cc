#include "device/webgpu/core.h"

#include <chrono>
#include <thread>

namespace leeway::webgpu {

void ErrorState::Report(Code code, std::string message) {
  std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = Error{code, std::move(message)};
  has_error_.store(true, std::memory_order_release);
}

void ErrorState::Lose(std::string message) {
  std::lock_guard lock(mutex_);
  if (!lost_.ok()) return;
  lost_ = Error{Code::kDeviceLost, std::move(message)};
  is_lost_.store(true, std::memory_order_release);
}

Status ErrorState::Take() {
  if (lost()) return LostStatus();
  if (!has_error_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  has_error_.store(false, std::memory_order_release);
  return std::exchange(error_, Status());
}

Status ErrorState::LostStatus() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

Core::~Core() { Close(); }

void Core::Close() {
  if (closing) return;
  closing = true;
  if (!device) {
    if (slot) slot->in_use = false;
    return;
  }
  api.DeviceDestroy(device.get());
  // All callbacks come soon now: what waits for the device is aborted, a compilation runs to its end.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  api.InstanceProcessEvents(instance());
  while (pending_callbacks && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    api.InstanceProcessEvents(instance());
  }
  if (!pending_callbacks) slot->in_use = false;
}

void PumpUntil(WGPUInstance instance, const bool& done) {
  const Api& api = GetApi().value();
  for (int looks = 0; !done; ++looks) {
    api.InstanceProcessEvents(instance);
    if (looks > 50) std::this_thread::sleep_for(std::chrono::microseconds(100));  // a software GPU needs the cores itself
  }
}

}  // namespace leeway::webgpu
