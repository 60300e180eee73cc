// The few structures that Dawn adds to webgpu.h and that we use. Dawn numbers its additions anew in many versions, so none of
// them is passed to a library before it has said, by name, that it means the same by the number (CheckDawnExtension).
#pragma once

#include <webgpu/webgpu.h>

#include <cstddef>
#include <cstdint>

namespace leeway::webgpu {

struct DawnExtension {
  WGPUSType type;
  const char* name;  // as the library spells it in its messages
};

struct DawnTogglesDescriptor {
  WGPUChainedStruct chain;
  size_t enabledToggleCount;
  const char* const* enabledToggles;
  size_t disabledToggleCount;
  const char* const* disabledToggles;
};
inline constexpr DawnExtension kDawnToggles = {static_cast<WGPUSType>(0x0005000A), "DawnTogglesDescriptor"};

// What Dawn takes at the making of an instance: here, where its messages go. Not in any header for C; the library's own
// constructor fills it, and it is used only if that writes exactly the bytes that this layout expects
// (MakeDawnInstanceDescriptor).
struct DawnInstanceDescriptor {
  WGPUChainedStruct chain;
  uint32_t additionalRuntimeSearchPathsCount;
  const char* const* additionalRuntimeSearchPaths;
  void* platform;
  uint32_t backendValidationLevel;
  bool beginCaptureOnStartup;
  struct {
    WGPUChainedStruct* nextInChain;
    void (*callback)(uint32_t type, WGPUStringView message, void* userdata1, void* userdata2);
    void* userdata1;
    void* userdata2;
  } loggingCallbackInfo;
};
inline constexpr DawnExtension kDawnInstance = {static_cast<WGPUSType>(0x00050006), "DawnInstanceDescriptor"};

// With `log` in it; false if the library has another layout or none, and then its messages go to stderr.
bool MakeDawnInstanceDescriptor(DawnInstanceDescriptor& descriptor, void (*log)(uint32_t, WGPUStringView, void*, void*),
                                void* user);

// Features of Dawn's own that a device is asked for.
struct DawnFeature {
  WGPUFeatureName feature;
  const char* name;
};
// Products of matrices by subgroups, as WGSL's chromium_experimental_subgroup_matrix has them.
inline constexpr DawnFeature kSubgroupMatrix = {static_cast<WGPUFeatureName>(0x00050034),
                                                "chromium-experimental-subgroup-matrix"};
// Does the library's table of features give that name to the number? False where it has no such table.
bool IsDawnFeature(const DawnFeature& feature);

// Language features that are in Dawn's header and not yet in the standard one.
inline constexpr auto kImmediateAddressSpace = static_cast<WGPUWGSLLanguageFeatureName>(0x0000000B);

// All that the test compares with the library.
inline constexpr DawnExtension kDawnExtensions[] = {kDawnToggles, kDawnInstance};

}  // namespace leeway::webgpu
