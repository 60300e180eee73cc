#include "tensor/address.h"

#include <gtest/gtest.h>

#include <set>

namespace leeway {
namespace {

const std::vector<Shape> kShapes = {{},
                                    {1},
                                    {3},
                                    {4},
                                    {130},
                                    {1, 1},
                                    {3, 5},
                                    {4, 8},
                                    {2, 3, 5},
                                    {1, 7, 8},
                                    {5, 1, 9},
                                    {1, 4, 5, 3},
                                    {2, 3, 4, 5},
                                    {3, 2, 1, 12},
                                    {2, 0, 3},
                                    {1, 1, 0},
                                    {2, 3, 2, 3, 5},
                                    {2, 1, 3, 1, 2, 6},
                                    {2, 2, 1, 2, 1, 2, 2, 5}};
const Layout kLayouts[] = {Layout::kLinear, Layout::kPadded4, Layout::kSliced4};
const Storage kStorages[] = {Storage::kBuffer, Storage::kImageBuffer, Storage::kTexture2D, Storage::kTexture2DArray,
                             Storage::kTexture3D};

StorageLimits SmallLimits() {
  return {.max_binding_bytes = 512,
          .max_texture_2d = 16,
          .max_texture_3d = 7,
          .max_texture_layers = 3,
          .max_image_buffer_texels = 64};
}

template <class F>
void ForEachCoordinate(const Shape& shape, F&& f) {
  std::vector<int64_t> at(size_t(shape.rank()), 0);
  for (int64_t i = 0; i < shape.element_count(); ++i) {
    int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at[size_t(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    f(i, at);
  }
}

std::vector<IndexExpr> Axes(int rank) {
  std::vector<IndexExpr> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(IndexExpr::Axis(i));
  return axes;
}

// Placements of every shape x layout x storage that the limits allow, small and large limits.
template <class F>
void ForEachPlacement(F&& f) {
  int placed = 0, refused = 0;
  for (const StorageLimits& limits : {StorageLimits{}, SmallLimits()}) {
    for (const Shape& shape : kShapes) {
      for (Layout layout : kLayouts) {
        for (Storage storage : kStorages) {
          SCOPED_TRACE(shape.ToString() + " " + LayoutName(layout) + " " + StorageName(storage));
          auto placement = PlaceTensor(shape, DType::kF32, layout, storage, limits);
          if (!placement.ok()) {
            EXPECT_TRUE(storage != Storage::kBuffer);
            EXPECT_EQ(placement.error().code, Code::kUnsupported);
            ++refused;
            continue;
          }
          ++placed;
          f(*placement, limits);
        }
      }
    }
  }
  EXPECT_GT(placed, 400);
  EXPECT_GT(refused, 76);  // all kLinear textures, and some for their size
}

TEST(Address, IsABijectionWithinTheStorage) {
  ForEachPlacement([](const Placement& p, const StorageLimits&) {
    int rank = p.shape.rank();
    std::set<int64_t> seen;
    bool texture = IsTexture(p.storage);
    std::vector<IndexExpr> coords = Axes(rank);
    std::vector<IndexExpr> slice_coords = coords;
    if (rank > 0) slice_coords.back() = Div(coords.back(), 4);
    std::vector<int64_t> extents(p.shape.begin(), p.shape.end());
    ForEachCoordinate(p.shape, [&](int64_t, const std::vector<int64_t>& at) {
      int64_t element = -1;
      if (texture) {
        std::vector<IndexExpr> texel = SliceAddress(p, slice_coords);
        ASSERT_EQ(texel.size(), p.storage == Storage::kTexture2D ? 2u : 3u);
        int64_t index = 0;
        for (size_t i = texel.size(); i-- > 0;) {
          int64_t t = texel[i].Evaluate(at);
          ASSERT_GE(t, 0);
          ASSERT_LT(t, int64_t(p.texture_extent[i]));
          ASSERT_EQ(texel[i].SimplifiedFor(extents).Evaluate(at), t);
          index = index * p.texture_extent[i] + t;
        }
        element = index * 4 + (rank ? at.back() % 4 : 0);
      } else {
        IndexExpr address = ElementAddress(p, coords);
        element = address.Evaluate(at);
        ASSERT_EQ(address.SimplifiedFor(extents).Evaluate(at), element);
        if (HasAlignedSlices(p)) {
          ASSERT_EQ(SliceAddress(p, slice_coords)[0].Evaluate(at) * 4 + (rank ? at.back() % 4 : 0), element);
        }
      }
      ASSERT_GE(element, 0);
      ASSERT_LT(element, p.storage_elements());
      ASSERT_TRUE(seen.insert(element).second) << "element " << element << " twice";
    });
    EXPECT_EQ(int64_t(seen.size()), p.shape.element_count());
  });
}

TEST(Address, StaysWithinTheLimits) {
  ForEachPlacement([](const Placement& p, const StorageLimits& limits) {
    EXPECT_EQ(p.storage_bytes() % 16, 0);
    if (IsTexture(p.storage)) {
      uint32_t side = p.storage == Storage::kTexture3D ? limits.max_texture_3d : limits.max_texture_2d;
      EXPECT_LE(p.texture_extent[0], side);
      EXPECT_LE(p.texture_extent[1], side);
      EXPECT_LE(p.texture_extent[2], p.storage == Storage::kTexture3D        ? limits.max_texture_3d
                                     : p.storage == Storage::kTexture2DArray ? limits.max_texture_layers
                                                                             : 1);
      return;
    }
    if (p.elements_per_part) {
      EXPECT_GT(p.part_count(), 1);
      EXPECT_EQ(p.elements_per_part % 4, 0);
      EXPECT_EQ(p.elements_per_part * 4 % 256, 0);
      EXPECT_LE(p.elements_per_part * 4, limits.max_binding_bytes);
      EXPECT_GE(p.elements_per_part * p.part_count(), p.storage_elements());
    } else {
      EXPECT_LE(p.storage_bytes(), limits.max_binding_bytes);
    }
  });
}

TEST(Address, FollowsTheAxesWhereItFits) {
  StorageLimits limits;
  auto extent = [&](Layout layout, Storage storage) {
    return PlaceTensor({2, 6, 7, 9}, DType::kF16, layout, storage, limits)->texture_extent;
  };
  using E = std::array<uint32_t, 3>;
  EXPECT_EQ(extent(Layout::kSliced4, Storage::kTexture2D), (E{14, 18, 1}));
  EXPECT_EQ(extent(Layout::kPadded4, Storage::kTexture2D), (E{21, 12, 1}));
  EXPECT_EQ(extent(Layout::kSliced4, Storage::kTexture2DArray), (E{7, 6, 6}));
  EXPECT_EQ(extent(Layout::kPadded4, Storage::kTexture3D), (E{21, 6, 2}));
  limits.max_texture_2d = 20;
  EXPECT_EQ(extent(Layout::kPadded4, Storage::kTexture2D), (E{20, 13, 1}));
}

TEST(Address, RefusalsNameTheLimit) {
  StorageLimits limits = SmallLimits();
  auto message = [&](Shape shape, DType dtype, Layout layout, Storage storage) {
    auto placement = PlaceTensor(shape, dtype, layout, storage, limits);
    return placement.ok() ? std::string("placed") : placement.error().message;
  };
  EXPECT_NE(message({1025}, DType::kF32, Layout::kPadded4, Storage::kTexture2D).find("257 texels, and max_texture_2d is 16"),
            std::string::npos);
  EXPECT_NE(message({8000}, DType::kF32, Layout::kPadded4, Storage::kTexture3D).find("max_texture_3d is 7"), std::string::npos);
  EXPECT_NE(message({8000}, DType::kF32, Layout::kPadded4, Storage::kTexture2DArray).find("max_texture_layers are 16 and 3"),
            std::string::npos);
  EXPECT_NE(message({8000}, DType::kF32, Layout::kPadded4, Storage::kImageBuffer).find("max_image_buffer_texels is 64"),
            std::string::npos);
  EXPECT_NE(message({256}, DType::kF32, Layout::kPadded4, Storage::kImageBuffer).find("max_binding_bytes is 512"),
            std::string::npos);
  EXPECT_NE(message({8}, DType::kI8, Layout::kPadded4, Storage::kTexture2D).find("not i8"), std::string::npos);
  EXPECT_NE(message({8}, DType::kF32, Layout::kLinear, Storage::kTexture2D).find("slices"), std::string::npos);
  limits.max_binding_bytes = 255;
  EXPECT_NE(message({800}, DType::kF32, Layout::kLinear, Storage::kBuffer).find("max_binding_bytes is 255"), std::string::npos);
}

TEST(Address, PackAndUnpackUndoEachOther) {
  const DType host[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI64,  DType::kI32, DType::kI16, DType::kI8,
                        DType::kU32, DType::kU16, DType::kU8,   DType::kBool, DType::kI4,  DType::kU4,  DType::kI2};
  for (const Shape& shape : kShapes) {
    for (DType dtype : host) {
      for (Layout layout : kLayouts) {
        for (Storage storage : kStorages) {
          for (bool small : {false, true}) {
            auto placement = PlaceTensor(shape, dtype, layout, storage, small ? SmallLimits() : StorageLimits{});
            if (!placement.ok()) continue;
            SCOPED_TRACE(shape.ToString() + " " + DTypeName(dtype) + " " + LayoutName(layout) + " " + StorageName(storage));
            HostTensor tensor(dtype, shape);
            for (int64_t i = 0; i < tensor.element_count(); ++i) {
              tensor.Set(i, double(i * 7 % 251) - (IsFloat(dtype) || IsSignedInt(dtype) ? 100 : 0));
            }
            std::vector<std::byte> storage_bytes = PackForStorage(tensor, *placement);
            ASSERT_EQ(int64_t(storage_bytes.size()), placement->storage_bytes());
            HostTensor back = UnpackFromStorage(storage_bytes, *placement, dtype);
            ASSERT_EQ(back.dtype(), dtype);
            ASSERT_TRUE(std::equal(back.bytes().begin(), back.bytes().end(), tensor.bytes().begin(), tensor.bytes().end()));
          }
        }
      }
    }
  }
}

TEST(Address, PackPutsElementsAtTheirAddressAndZeroElsewhere) {
  ForEachPlacement([](const Placement& p, const StorageLimits&) {
    HostTensor tensor(DType::kF32, p.shape);
    for (int64_t i = 0; i < tensor.element_count(); ++i) tensor.Set(i, double(i + 1));
    std::vector<std::byte> bytes = PackForStorage(tensor, p);
    const float* storage = reinterpret_cast<const float*>(bytes.data());
    double sum = 0;
    for (size_t i = 0; i < bytes.size() / 4; ++i) sum += storage[i];
    double n = double(p.shape.element_count());
    EXPECT_EQ(sum, n * (n + 1) / 2);
    std::vector<IndexExpr> coords = Axes(p.shape.rank()), slice = coords;
    if (!slice.empty()) slice.back() = Div(slice.back(), 4);
    ForEachCoordinate(p.shape, [&](int64_t i, const std::vector<int64_t>& at) {
      int64_t element;
      if (IsTexture(p.storage)) {
        std::vector<IndexExpr> texel = SliceAddress(p, slice);
        int64_t z = texel.size() > 2 ? texel[2].Evaluate(at) : 0;
        element = ((z * p.texture_extent[1] + texel[1].Evaluate(at)) * p.texture_extent[0] + texel[0].Evaluate(at)) * 4;
        element += at.empty() ? 0 : at.back() % 4;
      } else {
        element = ElementAddress(p, coords).Evaluate(at);
      }
      ASSERT_EQ(storage[element], float(i + 1));
    });
  });
}

}  // namespace
}  // namespace leeway
