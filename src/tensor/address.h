// Where an element lies: the one place that turns coordinates into addresses. The compiler prints these expressions, the host
// evaluates them to pack and unpack tensors, a test proves them bijections.
#pragma once

#include <span>
#include <vector>

#include "tensor/host_tensor.h"
#include "tensor/virtual_tensor.h"

namespace leeway {

// Texture and binding limits that a placement has to respect.
struct StorageLimits {
  int64_t max_binding_bytes = 128 << 20;
  uint32_t max_texture_2d = 8192, max_texture_3d = 2048, max_texture_layers = 256;
  int64_t max_image_buffer_texels = 65536;
};

// The type in which the storage keeps elements of `dtype`: bool, u16, u64 as u32; i16, i64 as i32; f64, bf16 and
// block-quantized types as f32; four and two bit integers as i8 or u8; the rest as it is.
DType StorageDType(DType dtype);

// Fills elements_per_part and texture_extent; an error says which limit does not allow the placement. `dtype` becomes
// StorageDType(dtype). Textures and image buffers hold four-channel texels of f32, f16, i32 or u32 in a layout other than
// kLinear.
//
// Textures, with w the axis before the last, h the ones between it and axis 0 merged, and s the slice:
//   2D        kSliced4: x = axis0 * width + w, y = s * height + h      kPadded4: x = w * slices + s, y = axis0 * height + h
//   2D array  kSliced4: x = w, y = h, layer = axis0 * slices + s       kPadded4: x = w * slices + s, y = h, layer = axis0
//   3D        as the 2D array, with depth for layer
// Where an extent exceeds a limit: the slices in the order of the layout, x fastest, then y, then the layer.
Result<Placement> PlaceTensor(Shape shape, DType dtype, Layout layout, Storage storage, const StorageLimits& limits);

// Places a matrix [rows, K] in a format; an error where K is not made of whole groups and blocks. Quants and factors that are
// larger than a binding are cut between rows, 64 or a multiple of it to a part.
Result<Placement> PlaceQuantized(Shape shape, const BlockFormat& format, const StorageLimits& limits);

// The address of the slice (four elements) that holds coordinates `coords` with the last one being a slice number, as
// expressions over whatever the coordinates are expressions over. Buffers: one value, the slice index from the start of the
// storage (element address / 4). Textures: x, y(, z) in texels. A placed scalar (rank 0) ignores the coordinates, here and
// below: a map to it cannot be told from the identity.
std::vector<IndexExpr> SliceAddress(const Placement& placement, std::span<const IndexExpr> coords);

// The address of one element in a buffer, in elements from the start of the storage. For kLinear this is all there is: its
// slices are aligned only where the last extent is a multiple of 4 or there is a single row (HasAlignedSlices).
IndexExpr ElementAddress(const Placement& placement, std::span<const IndexExpr> coords);
bool HasAlignedSlices(const Placement& placement);

// Host row-major elements to storage bytes (Placement::storage_bytes, textures as rows of texels without gaps) and back,
// converting between the host's dtype and the placement's. Padding is zero.
std::vector<std::byte> PackForStorage(const HostTensor& tensor, const Placement& placement);
HostTensor UnpackFromStorage(std::span<const std::byte> storage, const Placement& placement, DType host_dtype);

}  // namespace leeway
