// Strided walks over tensors in host memory: what the references of movement and broadcasting operators are made of.
#pragma once

#include <array>
#include <cstring>

#include "tensor/host_tensor.h"

namespace leeway {

using Strides = std::array<int64_t, Shape::kMaxRank>;

inline Strides RowMajorStrides(const Shape& shape) {
  Strides strides{};
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[size_t(axis)] = step;
    step *= shape[axis];
  }
  return strides;
}

// Strides to walk `from` along the axes of `to`: zero where `from` is broadcast.
inline Strides BroadcastStrides(const Shape& from, const Shape& to) {
  const Strides own = RowMajorStrides(from);
  Strides strides{};
  for (int axis = 0; axis < from.rank(); ++axis) {
    const int target = axis + to.rank() - from.rank();
    strides[size_t(target)] = from[axis] == 1 ? 0 : own[size_t(axis)];
  }
  return strides;
}

// visit(offsets) for every coordinate of `extents` in row-major order; offsets[k] = start[k] + sum of coordinate * strides[k].
template <size_t N, class Visit>
void ForEachOffset(const Shape& extents, const std::array<Strides, N>& strides, std::array<int64_t, N> offsets, Visit&& visit) {
  const int rank = extents.rank();
  if (extents.element_count() == 0) return;
  if (rank == 0) {
    visit(offsets);
    return;
  }
  std::array<int64_t, Shape::kMaxRank> coords{};
  const size_t last = size_t(rank - 1);
  for (;;) {
    std::array<int64_t, N> at = offsets;
    for (int64_t i = 0; i < extents[rank - 1]; ++i) {
      visit(at);
      for (size_t k = 0; k < N; ++k) at[k] += strides[k][last];
    }
    int axis = rank - 2;
    for (; axis >= 0; --axis) {
      const size_t a = size_t(axis);
      for (size_t k = 0; k < N; ++k) offsets[k] += strides[k][a];
      if (++coords[a] < extents[axis]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= strides[k][a] * extents[axis];
      coords[a] = 0;
    }
    if (axis < 0) return;
  }
}

// Copies a strided block of elements between tensors of one dtype (whole bytes). Starts and strides in elements.
inline void CopyStrided(const HostTensor& from, int64_t from_start, const Strides& from_strides, HostTensor& to,
                        int64_t to_start, const Strides& to_strides, const Shape& extents) {
  const std::byte* source = from.bytes().data();
  std::byte* target = to.mutable_bytes().data();
  auto copy = [&]<class T>(T) {
    ForEachOffset<2>(extents, {from_strides, to_strides}, {from_start, to_start}, [&](const std::array<int64_t, 2>& at) {
      std::memcpy(target + at[1] * int64_t(sizeof(T)), source + at[0] * int64_t(sizeof(T)), sizeof(T));
    });
  };
  switch (DTypeBits(from.dtype())) {
    case 8: return copy(uint8_t{});
    case 16: return copy(uint16_t{});
    case 32: return copy(uint32_t{});
    case 64: return copy(uint64_t{});
    default:
      ForEachOffset<2>(extents, {from_strides, to_strides}, {from_start, to_start},
                       [&](const std::array<int64_t, 2>& at) { to.Set(at[1], from.Get(at[0])); });
  }
}

}  // namespace leeway
