// The rules of device.h about what may be bound together, checked alike for every API.
#pragma once

#include <span>

#include "device/device.h"

namespace leeway {

// `bindings` are those of the kernel that `dispatch` runs.
Status CheckDispatch(const Dispatch& dispatch, std::span<const shader::BindingInfo> bindings, const DeviceInfo& info);
// Offset and size are multiples of 4 and lie inside.
Status CheckRange(const Buffer& buffer, uint64_t offset_bytes, uint64_t size_bytes, const char* what);

}  // namespace leeway
