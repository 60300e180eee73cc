// A virtual tensor: what a kernel sees as `tensor x[...]`, and where its elements really are.
//
//   kernel coordinates --map--> coordinates of the placed tensor --layout, storage--> binding and address
//
// Kernels touch tensors through accessors only, so all of this is spliced in at the accessor (shader/lower), and the
// interpreter and the host side (uploads, read-backs) use the same description.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/index_expr.h"
#include "tensor/shape.h"

namespace leeway {

// The order of the elements. "Slice" s of a tensor is the four elements 4s..4s+3 of its last axis.
enum class Layout : uint8_t {
  kLinear,   // row-major, nothing between
  kPadded4,  // row-major, the last axis padded to a multiple of 4
  kSliced4,  // [outer][slice][middle...][4]: axis 0 outermost, then slices, then the other axes; rank < 2: as kPadded4
};
const char* LayoutName(Layout layout);

// The kind of GPU object. Textures hold one slice per texel and need kPadded4 or kSliced4.
enum class Storage : uint8_t {
  kBuffer,
  kImageBuffer,  // a buffer read through the texture unit (OpenCL image1d_buffer); where there is none, see Target
  // Textures follow the tensor's axes where that fits the limits (address.h says how), else they hold the slices in the order
  // of the layout, x fastest.
  kTexture2D,
  kTexture2DArray,
  kTexture3D,
};
const char* StorageName(Storage storage);
bool IsTexture(Storage storage);  // 2D, 2D array or 3D: addressed by texel coordinates

// How the elements of a block-quantized constant are written on a device: few formats for all the types of files, each of which
// is repacked without loss (tensor/block_pack.h). Element = factor * (code - offset) + minimum.
struct BlockFormat {
  // 4: codes 0..15, 32 elements to a block of four words; byte j of the block has element j in its low and element 16 + j in
  // its high nibble. 8: codes -128..127, 16 elements to a block, in order.
  int bits = 4;
  int group = 32;              // 16 or 32: so many consecutive elements of a row share a factor (and a minimum)
  bool has_minimum = false;    // factors are pairs, the minimum second; else it is 0
  DType factor = DType::kF16;  // or kF32

  int block_elements() const { return 128 / bits; }
  int offset() const { return bits == 4 && !has_minimum ? 8 : 0; }
  bool operator==(const BlockFormat&) const = default;
};

// How a logical tensor is placed.
struct Placement {
  Layout layout = Layout::kPadded4;
  Storage storage = Storage::kBuffer;
  // Element type in the storage: kF32, kF16, kI32, kU32; kI8 and kU8 packed four to a word (read only); kBool is kU32 there.
  DType dtype = DType::kF32;
  Shape shape;
  // More than one: the tensor lies in several bindings, cut along the storage address, each but the last of this many
  // elements (a multiple of 4). 0: one binding.
  int64_t elements_per_part = 0;
  // Textures: extents in texels, chosen by PlaceTensor (address.h).
  std::array<uint32_t, 3> texture_extent{};
  // Present: a matrix [rows, K] whose rows are whole groups and blocks lies as two tensors, quants and factors (see QuantsOf),
  // and only kernels that know it as `weights` or `tensor : read` without a map and without value maps read it.
  // elements_per_part is that of the quants; dtype is kF32, layout and storage are linear and buffer.
  std::optional<BlockFormat> format;
  int64_t factors_per_part = 0;

  int part_count() const;
  // Elements that the storage takes, padding included; bytes of the whole storage as bound (a multiple of 16, at least 16).
  int64_t storage_elements() const;
  int64_t storage_bytes() const;
};

// Kernel coordinates to coordinates of the placed tensor.
struct CoordMap {
  // One per axis of the placed tensor, over kernel axes; empty: the identity.
  std::vector<IndexExpr> coords;
  // Non-zero where the element exists; elsewhere a load gives `outside` and a store is dropped. Absent: always.
  std::optional<IndexExpr> inside;
  double outside = 0;

  bool is_identity() const { return coords.empty(); }
};

// The tensors behind a placement with a format: codes as words, u32[rows, K * bits / 32] by blocks of four, and the factors,
// [rows, K / group] or twice as many, row-major. Kernels bind them as `w_quants` and `w_factors`.
Placement QuantsOf(const Placement& placement);
Placement FactorsOf(const Placement& placement);
std::string QuantsName(const std::string& tensor);
std::string FactorsName(const std::string& tensor);

struct ValueMap;

struct VirtualTensor {
  Shape shape;  // as the kernel sees it; its rank is that of the declaration
  Placement placement;
  CoordMap map;
  // Loads: applied in order to the value loaded. Stores: applied in order before the value is stored.
  std::vector<ValueMap> value_maps;
};

// A fused elementwise function. Its text is a function of the kernel language over the type V, which becomes f32 (i32, u32)
// or the vector of four of it, as in
//     fn apply(v : V, other : V) -> V { return max(v + other, V(0.0)); }
// The first argument is the value in flight, the others are `operands`, loaded at the same kernel coordinates and converted to
// V as they are loaded. R is the type of the result, scalar or vector as V is, for functions that change it:
//     fn apply(v : V, other : V) -> R { return select(R(0), R(1), v < other); }
// A bool in flight is a u32 of 0 or 1, so V or R is u32 where `value` or `result` says kBool.
struct ValueMap {
  std::string text;
  std::map<std::string, double> consts;  // names that the text may use as `const`, as f32 (or i32 for integral V)
  std::vector<VirtualTensor> operands;   // their maps start from the kernel's coordinates
  // The scalar type of V: that of the value in flight ("f32", "i32", "u32"); `result` where the function changes it.
  DType value = DType::kF32;
  DType result = DType::kF32;
  bool zero_to_zero = false;  // f(0) = 0 without operands: lanes beyond the edge need no mask
};

}  // namespace leeway
