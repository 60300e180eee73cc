#include "runtime/pack.h"

#include <gtest/gtest.h>

#include <random>

#include "tensor/address.h"

namespace leeway {
namespace {

HostTensor Drawn(DType dtype, Shape shape, uint32_t seed) {
  std::mt19937 random(seed);
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.element_count(); ++i)
    tensor.Set(i, double(int(random() % 200)) - (IsSignedInt(dtype) || IsFloat(dtype) ? 100 : 0));
  return tensor;
}

// What PackThroughMap means: the mapped tensor element by element, then packed by the plain function.
std::vector<std::byte> Expected(const HostTensor& source, const CoordMap& map, const Placement& placement) {
  const Shape& shape = placement.shape;
  HostTensor mapped(placement.dtype, shape);
  std::vector<int64_t> coords(size_t(std::max(shape.rank(), 1)), 0);
  for (int64_t i = 0; i < shape.element_count(); ++i) {
    int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      coords[size_t(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    if (map.inside && map.inside->Evaluate(coords) == 0) {
      mapped.Set(i, map.outside);
      continue;
    }
    int64_t index = 0;
    for (int axis = 0; axis < source.shape().rank(); ++axis) {
      const int64_t c = map.is_identity() ? coords[size_t(axis)] : map.coords[size_t(axis)].Evaluate(coords);
      index = index * source.shape()[axis] + c;
    }
    mapped.Set(i, source.Get(index));
  }
  return PackForStorage(mapped, placement);
}

void ExpectSame(const HostTensor& source, const CoordMap& map, const Shape& shape, DType dtype, Layout layout,
                Storage storage) {
  SCOPED_TRACE(testing::Message() << DTypeName(source.dtype()) << source.shape().ToString() << " -> " << DTypeName(dtype)
                                  << shape.ToString() << " " << LayoutName(layout) << " " << StorageName(storage));
  auto placement = PlaceTensor(shape, dtype, layout, storage, StorageLimits{});
  ASSERT_TRUE(placement.ok()) << placement.error().message;
  std::vector<std::byte> packed(size_t(placement->storage_bytes()), std::byte(0xee));
  PackThroughMap(source, map, *placement, packed);
  EXPECT_TRUE(packed == Expected(source, map, *placement));
}

IndexExpr A(int axis) { return IndexExpr::Axis(axis); }
IndexExpr C(int64_t value) { return IndexExpr::Const(value); }

constexpr std::pair<Layout, Storage> kPlaces[] = {
    {Layout::kLinear, Storage::kBuffer},          {Layout::kPadded4, Storage::kBuffer},
    {Layout::kSliced4, Storage::kBuffer},         {Layout::kPadded4, Storage::kImageBuffer},
    {Layout::kSliced4, Storage::kTexture2D},      {Layout::kPadded4, Storage::kTexture2D},
    {Layout::kSliced4, Storage::kTexture2DArray}, {Layout::kSliced4, Storage::kTexture3D},
};

TEST(Pack, IdentityInEveryPlaceAndType) {
  for (auto [layout, storage] : kPlaces) {
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{5}, Shape{3, 4}, Shape{2, 3, 5}, Shape{2, 3, 4, 7}, Shape{2, 1, 3, 2, 6}}) {
      for (auto [from, to] : {std::pair{DType::kF32, DType::kF32},
                              {DType::kF32, DType::kF16},
                              {DType::kF16, DType::kF32},
                              {DType::kF16, DType::kF16},
                              {DType::kI64, DType::kI32},
                              {DType::kBool, DType::kU32},
                              {DType::kU8, DType::kU32}}) {
        ExpectSame(Drawn(from, shape, 1), {}, shape, to, layout, storage);
      }
    }
  }
  for (auto [from, to] : {std::pair{DType::kI8, DType::kI8}, {DType::kU8, DType::kU8}, {DType::kI4, DType::kI8}}) {
    ExpectSame(Drawn(from, {3, 5}, 2), {}, {3, 5}, to, Layout::kPadded4, Storage::kBuffer);
  }
}

TEST(Pack, MapsOfConvolutionWeights) {
  // [out, height, width, in] as [height, width, in / 4, out / 4, 4, 4], with zeros where channels end.
  const HostTensor weights = Drawn(DType::kF16, {6, 3, 2, 5}, 3);
  CoordMap map;
  const IndexExpr out = A(3) * C(4) + A(5), in = A(2) * C(4) + A(4);
  map.coords = {out, A(0), A(1), in};
  map.inside = And(Less(out, C(6)), Less(in, C(5)));
  for (DType to : {DType::kF32, DType::kF16}) {
    ExpectSame(weights, map, {3, 2, 2, 2, 4, 4}, to, Layout::kPadded4, Storage::kBuffer);
    ExpectSame(weights, map, {3, 2, 2, 2, 4, 4}, to, Layout::kSliced4, Storage::kTexture2D);
  }
}

TEST(Pack, QuantizedBlocksAreWidened) {
  const HostTensor blocks = Drawn(DType::kF32, {6, 64}, 9).ConvertTo(DType::kQ8_0);
  CoordMap turned;
  turned.coords = {A(1), A(0)};
  for (auto [layout, storage] : kPlaces) {
    auto placement = PlaceTensor({64, 6}, DType::kF32, layout, storage, StorageLimits{});
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    std::vector<std::byte> packed(size_t(placement->storage_bytes()), std::byte(0xee));
    PackThroughMap(blocks, turned, *placement, packed);
    EXPECT_TRUE(packed == Expected(blocks.ConvertTo(DType::kF32), turned, *placement));
  }
}

TEST(Pack, MapsThatAreNoSums) {
  // A reshape that mixes axes, and a table.
  const HostTensor source = Drawn(DType::kF32, {6, 10}, 4);
  const IndexExpr flat = (A(0) * C(4) + A(1)) * C(5) + A(2);
  CoordMap reshape;
  reshape.coords = {Div(flat, 10), Mod(flat, 10)};
  ExpectSame(source, reshape, {3, 4, 5}, DType::kF32, Layout::kPadded4, Storage::kBuffer);
  CoordMap gather;
  gather.coords = {IndexExpr::Table(std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{5, 0, 3}), A(0)), A(1)};
  ExpectSame(source, gather, {3, 10}, DType::kF32, Layout::kLinear, Storage::kBuffer);
  CoordMap cut = reshape;
  cut.inside = Less(Mod(flat, 10) * C(1), Div(flat, 10) + C(3));
  cut.outside = -7;
  ExpectSame(source, cut, {3, 4, 5}, DType::kF16, Layout::kSliced4, Storage::kBuffer);
}

TEST(Pack, LargerThanAChunk) {
  const HostTensor source = Drawn(DType::kF32, {40, 50}, 5);
  const IndexExpr flat = A(0) * C(100) + A(1);
  CoordMap map;
  map.coords = {Div(flat, 50), Mod(flat, 50)};
  ExpectSame(source, map, {20, 100}, DType::kF32, Layout::kLinear, Storage::kBuffer);
}

TEST(Pack, EmptyTensors) {
  for (auto [layout, storage] : {std::pair{Layout::kLinear, Storage::kBuffer}, {Layout::kPadded4, Storage::kBuffer}}) {
    ExpectSame(HostTensor(DType::kF32, {0, 3}), {}, {0, 3}, DType::kF32, layout, storage);
  }
}

TEST(Pack, UnpackingGivesTheElementsBack) {
  for (auto [layout, storage] : kPlaces) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 4}, Shape{2, 3, 4, 7}}) {
      for (auto [host, stored] : {std::pair{DType::kF32, DType::kF32},
                                  {DType::kI64, DType::kI32},
                                  {DType::kBool, DType::kU32},
                                  {DType::kF32, DType::kF16}}) {
        HostTensor tensor = Drawn(host, shape, 6);
        auto placement = PlaceTensor(shape, stored, layout, storage, StorageLimits{});
        ASSERT_TRUE(placement.ok());
        std::vector<std::byte> packed(size_t(placement->storage_bytes())), back(tensor.bytes().size());
        PackThroughMap(tensor, {}, *placement, packed);
        UnpackInto(packed, *placement, host, back);
        EXPECT_TRUE(std::equal(back.begin(), back.end(), tensor.bytes().begin())) << DTypeName(host) << shape.ToString();
      }
    }
  }
}

}  // namespace
}  // namespace leeway
