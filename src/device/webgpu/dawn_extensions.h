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

// Language features that are in Dawn's header and not yet in the standard one.
inline constexpr auto kImmediateAddressSpace = static_cast<WGPUWGSLLanguageFeatureName>(0x0000000B);

// All that the test compares with the library.
inline constexpr DawnExtension kDawnExtensions[] = {kDawnToggles};

}  // namespace leeway::webgpu
