// Host elements into storage bytes and back, fast: what a load and the border of a run spend their time with. The meaning is
// that of PackForStorage and UnpackFromStorage (tensor/address.h), which tests compare with.
#pragma once

#include <span>

#include "tensor/host_tensor.h"
#include "tensor/virtual_tensor.h"

namespace leeway {

// Fills `out` (placement.storage_bytes() long) with the elements of `source` as seen through `map`: element c of the placed
// tensor is source[map(c)], or map.outside where the map says that there is none. Padding becomes zero.
void PackThroughMap(const HostTensor& source, const CoordMap& map, const Placement& placement, std::span<std::byte> out);

// Row-major elements of `dtype` from storage; `out` is DTypeBytes(dtype, elements) long.
void UnpackInto(std::span<const std::byte> storage, const Placement& placement, DType dtype, std::span<std::byte> out);

// True if the row-major bytes of `dtype` are the storage bytes, but for padding at the end.
bool IsRowMajorCopy(const Placement& placement, DType dtype);

}  // namespace leeway
