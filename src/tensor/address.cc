#include "tensor/address.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"

namespace leeway {
namespace {

// The axes in their roles: one outer axis, the axes between merged into height, and width, then the last axis cut into slices.
struct Roles {
  int64_t outer = 1, height = 1, width = 1, slices = 1;
};

Roles RolesOf(const Shape& shape) {
  Roles roles;
  int rank = shape.rank();
  if (rank >= 1) roles.slices = (shape.at(-1) + 3) / 4;
  if (rank >= 2) roles.outer = shape[0];
  if (rank >= 3) roles.width = shape[rank - 2];
  for (int i = 1; i + 2 < rank; ++i) roles.height *= shape[i];
  return roles;
}

// Texel extents when the texture follows the axes; the formulas that StructuredTexel computes.
std::array<int64_t, 3> StructuredExtent(const Placement& p) {
  Roles r = RolesOf(p.shape);
  bool sliced = p.layout == Layout::kSliced4;
  if (p.storage == Storage::kTexture2D) {
    if (sliced) return {r.outer * r.width, r.slices * r.height, 1};
    return {r.width * r.slices, r.outer * r.height, 1};
  }
  if (sliced) return {r.width, r.height, r.outer * r.slices};
  return {r.width * r.slices, r.height, r.outer};
}

bool FollowsAxes(const Placement& p) {
  std::array<int64_t, 3> extent = StructuredExtent(p);
  for (size_t i = 0; i < 3; ++i) {
    if (std::max<int64_t>(1, extent[i]) != int64_t(p.texture_extent[i])) return false;
  }
  return true;
}

// Coordinates (the last one a slice) merged into the four roles.
struct RoleCoords {
  IndexExpr outer, height, width, slice;
};
RoleCoords RoleCoordsOf(const Shape& shape, std::span<const IndexExpr> coords) {
  RoleCoords c;
  int rank = shape.rank();
  if (rank == 0) return c;
  CHECK(int(coords.size()) == rank);
  if (rank >= 1) c.slice = coords[size_t(rank - 1)];
  if (rank >= 2) c.outer = coords[0];
  if (rank >= 3) c.width = coords[size_t(rank - 2)];
  for (int i = 1; i + 2 < rank; ++i) c.height = c.height * IndexExpr::Const(shape[i]) + coords[size_t(i)];
  return c;
}

// The number of the slice in the order of the layout.
IndexExpr SliceIndex(const Placement& p, std::span<const IndexExpr> coords) {
  auto number = [](int64_t n) { return IndexExpr::Const(n); };
  Roles r = RolesOf(p.shape);
  RoleCoords c = RoleCoordsOf(p.shape, coords);
  if (p.layout == Layout::kSliced4) {
    return ((c.outer * number(r.slices) + c.slice) * number(r.height) + c.height) * number(r.width) + c.width;
  }
  return ((c.outer * number(r.height) + c.height) * number(r.width) + c.width) * number(r.slices) + c.slice;
}

}  // namespace

DType StorageDType(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL: return DType::kF32;
    case DType::kI64:
    case DType::kI16: return DType::kI32;
    case DType::kU64:
    case DType::kU16:
    case DType::kBool: return DType::kU32;
    case DType::kI4:
    case DType::kI2: return DType::kI8;
    case DType::kU4: return DType::kU8;
    case DType::kF32:
    case DType::kF16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI8:
    case DType::kU8: return dtype;
  }
  CHECK(false);
}

Result<Placement> PlaceTensor(Shape shape, DType dtype, Layout layout, Storage storage, const StorageLimits& limits) {
  Placement p{.layout = layout, .storage = storage, .dtype = StorageDType(dtype), .shape = shape};
  auto refuse = [&](const std::string& reason) {
    return Error{Code::kUnsupported, StrCat("A tensor ", DTypeName(dtype), shape.ToString(), " cannot be placed as ",
                                            LayoutName(layout), " in a ", StorageName(storage), ": ", reason, ".")};
  };
  if (storage == Storage::kBuffer) {
    if (p.storage_bytes() <= limits.max_binding_bytes) return p;
    // Parts begin where a binding may begin, at a multiple of 256 bytes.
    int64_t part_bytes = limits.max_binding_bytes / 256 * 256;
    if (part_bytes == 0) {
      return refuse(StrCat("max_binding_bytes is ", limits.max_binding_bytes, ", and a part needs at least 256"));
    }
    p.elements_per_part = part_bytes * 8 / int64_t(DTypeBits(p.dtype));
    return p;
  }
  if (layout == Layout::kLinear) return refuse("a texel holds four elements of the last axis, so a layout in slices is needed");
  if (DTypeBits(p.dtype) < 16) return refuse(StrCat("texels hold f32, f16, i32 or u32, not ", DTypeName(p.dtype)));
  if (storage == Storage::kImageBuffer) {
    int64_t texels = p.storage_elements() / 4;
    if (texels > limits.max_image_buffer_texels) {
      return refuse(StrCat("it needs ", texels, " texels, and max_image_buffer_texels is ", limits.max_image_buffer_texels));
    }
    if (p.storage_bytes() > limits.max_binding_bytes) {
      return refuse(StrCat("it needs ", p.storage_bytes(), " bytes, and max_binding_bytes is ", limits.max_binding_bytes));
    }
    return p;
  }
  bool is_3d = storage == Storage::kTexture3D;
  int64_t side = is_3d ? limits.max_texture_3d : limits.max_texture_2d;
  int64_t deep = is_3d ? limits.max_texture_3d : storage == Storage::kTexture2DArray ? limits.max_texture_layers : 1;
  std::array<int64_t, 3> extent = StructuredExtent(p);
  if (extent[0] > side || extent[1] > side || extent[2] > deep) {
    Roles r = RolesOf(shape);
    int64_t texels = r.outer * r.height * r.width * r.slices;
    extent[0] = std::min(texels, side);
    extent[1] = std::min((texels + extent[0] - 1) / extent[0], side);
    extent[2] = (texels + extent[0] * extent[1] - 1) / (extent[0] * extent[1]);
    if (extent[2] > deep) {
      const char* name = is_3d                                 ? "max_texture_3d"
                         : storage == Storage::kTexture2DArray ? "max_texture_2d and max_texture_layers"
                                                               : "max_texture_2d";
      return refuse(StrCat("it needs ", texels, " texels, and ", name, is_3d || deep == 1 ? " is " : " are ", side,
                           is_3d || deep == 1 ? "" : StrCat(" and ", deep)));
    }
  }
  for (size_t i = 0; i < 3; ++i) p.texture_extent[i] = uint32_t(std::max<int64_t>(1, extent[i]));
  return p;
}

Result<Placement> PlaceQuantized(Shape shape, const BlockFormat& format, const StorageLimits& limits) {
  auto refuse = [&](const std::string& reason) {
    return Error{Code::kUnsupported, StrCat("A tensor of shape ", shape.ToString(), " cannot be placed in ", format.bits,
                                            " bits and groups of ", format.group, ": ", reason, ".")};
  };
  if (shape.rank() != 2) return refuse("only matrices can");
  // Whole blocks of 32 elements also make rows of whole words, blocks and groups.
  if (shape[1] % 32 != 0) return refuse(StrCat("a row of ", shape[1], " elements is not a multiple of 32"));
  Placement placement;
  placement.layout = Layout::kLinear;
  placement.shape = shape;
  placement.format = format;
  // Parts begin at rows that are multiples of 64, so at whole slices and where a binding may begin (256 bytes).
  auto cut = [&](const Placement& piece) -> Result<int64_t> {
    if (piece.storage_bytes() <= limits.max_binding_bytes) return 0;
    const int64_t row_bytes = piece.shape[1] * int64_t(DTypeBits(piece.dtype)) / 8;
    const int64_t rows = limits.max_binding_bytes / row_bytes / 64 * 64;
    if (rows == 0)
      return refuse(StrCat("max_binding_bytes is ", limits.max_binding_bytes, ", and 64 rows are ", 64 * row_bytes));
    return rows * piece.shape[1];
  };
  ASSIGN_OR_RETURN(const int64_t quants_per_part, cut(QuantsOf(placement)));
  ASSIGN_OR_RETURN(const int64_t factors_per_part, cut(FactorsOf(placement)));
  placement.elements_per_part = quants_per_part;
  placement.factors_per_part = factors_per_part;
  return placement;
}

std::vector<IndexExpr> SliceAddress(const Placement& p, std::span<const IndexExpr> coords) {
  auto number = [](int64_t n) { return IndexExpr::Const(n); };
  if (!IsTexture(p.storage)) return {SliceIndex(p, coords)};
  bool is_2d = p.storage == Storage::kTexture2D;
  if (!FollowsAxes(p)) {
    IndexExpr index = SliceIndex(p, coords);
    int64_t x = p.texture_extent[0], y = p.texture_extent[1];
    if (is_2d) return {Mod(index, x), Div(index, x)};
    return {Mod(index, x), Mod(Div(index, x), y), Div(index, x * y)};
  }
  Roles r = RolesOf(p.shape);
  RoleCoords c = RoleCoordsOf(p.shape, coords);
  bool sliced = p.layout == Layout::kSliced4;
  if (is_2d) {
    if (sliced) return {c.outer * number(r.width) + c.width, c.slice * number(r.height) + c.height};
    return {c.width * number(r.slices) + c.slice, c.outer * number(r.height) + c.height};
  }
  if (sliced) return {c.width, c.height, c.outer * number(r.slices) + c.slice};
  return {c.width * number(r.slices) + c.slice, c.height, c.outer};
}

IndexExpr ElementAddress(const Placement& p, std::span<const IndexExpr> coords) {
  CHECK(!IsTexture(p.storage));
  if (p.shape.rank() == 0) return {};
  CHECK(int(coords.size()) == p.shape.rank());
  if (p.layout == Layout::kLinear) {
    IndexExpr address;
    for (int i = 0; i < p.shape.rank(); ++i) address = address * IndexExpr::Const(p.shape[i]) + coords[size_t(i)];
    return address;
  }
  std::vector<IndexExpr> slice(coords.begin(), coords.end());
  slice.back() = Div(coords.back(), 4);
  return SliceIndex(p, slice) * IndexExpr::Const(4) + Mod(coords.back(), 4);
}

bool HasAlignedSlices(const Placement& p) {
  if (p.layout != Layout::kLinear) return true;
  if (p.shape.rank() > 0 && p.shape.at(-1) % 4 == 0) return true;
  int64_t rows = 1;  // a single row begins at 0, and the storage ends at a multiple of 16 bytes
  for (int i = 0; i + 1 < p.shape.rank(); ++i) rows *= p.shape[i];
  return rows <= 1;
}

namespace {

// Calls visit(row-major index of a slice's first element, lanes inside the edge, element index in the storage). In memory
// every address is a sum of strides: the strides are asked from the address expressions, so there is no second definition.
template <class Visitor>
void VisitSlices(const Placement& p, Visitor&& visit) {
  int rank = p.shape.rank();
  int64_t count = p.shape.element_count();
  if (count == 0) return;
  std::array<int64_t, Shape::kMaxRank> axes{};
  bool linear = p.layout == Layout::kLinear;
  std::vector<IndexExpr> coords;
  for (int i = 0; i < rank; ++i) coords.push_back(IndexExpr::Axis(i));
  std::vector<IndexExpr> address = linear ? std::vector<IndexExpr>{ElementAddress(p, coords)} : SliceAddress(p, coords);
  auto memory_index = [&] {
    std::span<const int64_t> at(axes.data(), size_t(rank));
    int64_t index = 0;
    for (size_t i = address.size(); i-- > 0;) {
      index = index * (i + 1 < address.size() ? int64_t(p.texture_extent[i]) : 1) + address[i].Evaluate(at);
    }
    return linear ? index : index * 4;
  };
  std::array<int64_t, Shape::kMaxRank> strides{};
  for (int i = 0; i < rank; ++i) {
    axes[size_t(i)] = 1;
    strides[size_t(i)] = memory_index();
    axes[size_t(i)] = 0;
  }
  int64_t last = rank == 0 ? 1 : p.shape.at(-1);
  int64_t slices = linear ? 1 : (last + 3) / 4;  // a linear row is one run
  int64_t run = linear ? last : 4;
  int64_t slice_stride = rank == 0 ? 0 : strides[size_t(rank - 1)];
  std::array<int64_t, Shape::kMaxRank> at{};
  for (int64_t first = 0; first < count; first += last) {
    int64_t base = 0;
    for (int i = 0; i + 1 < rank; ++i) base += at[size_t(i)] * strides[size_t(i)];
    for (int64_t s = 0; s < slices; ++s) visit(first + s * run, std::min(run, last - s * run), base + s * slice_stride);
    for (int i = rank - 2; i >= 0 && ++at[size_t(i)] == p.shape[i]; --i) at[size_t(i)] = 0;
  }
}

}  // namespace

std::vector<std::byte> PackForStorage(const HostTensor& tensor, const Placement& p) {
  CHECK(tensor.shape().element_count() == p.shape.element_count());
  HostTensor converted = tensor.ConvertTo(p.dtype);
  const std::byte* from = converted.bytes().data();
  size_t element_bytes = DTypeBytes(p.dtype, 1);
  std::vector<std::byte> storage(size_t(p.storage_bytes()));
  VisitSlices(p, [&](int64_t element, int64_t count, int64_t at) {
    std::memcpy(storage.data() + size_t(at) * element_bytes, from + size_t(element) * element_bytes,
                size_t(count) * element_bytes);
  });
  return storage;
}

HostTensor UnpackFromStorage(std::span<const std::byte> storage, const Placement& p, DType host_dtype) {
  CHECK(int64_t(storage.size()) >= int64_t(DTypeBytes(p.dtype, size_t(p.storage_elements()))));
  HostTensor tensor(p.dtype, p.shape);
  std::byte* to = tensor.mutable_bytes().data();
  size_t element_bytes = DTypeBytes(p.dtype, 1);
  VisitSlices(p, [&](int64_t element, int64_t count, int64_t at) {
    std::memcpy(to + size_t(element) * element_bytes, storage.data() + size_t(at) * element_bytes,
                size_t(count) * element_bytes);
  });
  return tensor.ConvertTo(host_dtype);
}

}  // namespace leeway
