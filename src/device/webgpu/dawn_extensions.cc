#include "device/webgpu/dawn_extensions.h"

#include <cstring>

#include "device/webgpu/api.h"

namespace leeway::webgpu {

bool MakeDawnInstanceDescriptor(DawnInstanceDescriptor& descriptor, void (*log)(uint32_t, WGPUStringView, void*, void*),
                                void* user) {
  const Api& api = GetApi().value();
  if (!api.ConstructDawnInstanceDescriptor) return false;
  constexpr unsigned char kUntouched = 0xa5;
  constexpr size_t kRoom = 512;  // more than any version is known to need
  alignas(16) unsigned char filled[kRoom];
  std::memset(filled, kUntouched, sizeof filled);
  api.ConstructDawnInstanceDescriptor(filled);
  std::memcpy(&descriptor, filled, sizeof descriptor);
  for (size_t i = sizeof descriptor; i < kRoom; ++i) {
    if (filled[i] != kUntouched) return false;
  }
  const auto& callback = descriptor.loggingCallbackInfo;
  if (descriptor.chain.next || descriptor.chain.sType != kDawnInstance.type || descriptor.additionalRuntimeSearchPathsCount ||
      descriptor.additionalRuntimeSearchPaths || descriptor.platform || descriptor.beginCaptureOnStartup ||
      callback.nextInChain || callback.callback || callback.userdata1 || callback.userdata2) {
    return false;
  }
  descriptor.loggingCallbackInfo.callback = log;
  descriptor.loggingCallbackInfo.userdata1 = user;
  return true;
}

bool IsDawnFeature(const DawnFeature& feature) {
  const Api& api = GetApi().value();
  if (!api.GetDawnFeatureInfo) return false;
  // Its first member is the name; null for numbers that are not in the table.
  const char* const* info = api.GetDawnFeatureInfo(uint32_t(feature.feature));
  return info && *info && std::strcmp(*info, feature.name) == 0;
}

}  // namespace leeway::webgpu
