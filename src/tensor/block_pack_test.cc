#include "tensor/block_pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "block_types.h"
#include "tensor/address.h"
#include "tensor/block_quant.h"
#include "tensor/dtype.h"

namespace leeway {
namespace {

// Random bytes are blocks of any type; scales are kept below 2, so that they are numbers.
std::vector<std::byte> RandomBlocks(DType dtype, size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count * BlockBytes(dtype));
  for (auto& b : bytes) b = std::byte(random());
  for (size_t block = 0; block < count; ++block) {
    for (size_t at : HalvesOf(dtype)) bytes[block * BlockBytes(dtype) + at + 1] &= std::byte(0xBF);
  }
  return bytes;
}

TEST(BlockPack, KeepsEveryElementExactly) {
  std::mt19937 random(1);
  for (DType dtype : kBlockTypes) {
    for (bool f16 : {true, false}) {
      for (size_t count : {size_t(1), size_t(5)}) {
        SCOPED_TRACE(DTypeName(dtype));
        const auto blocks = RandomBlocks(dtype, count, random);
        const size_t elements = count * BlockElements(dtype);
        std::vector<float> expected(elements), got(elements);
        DequantizeBlocks(dtype, blocks, expected);
        const BlockFormat format = BlockFormatOf(dtype, f16);
        std::vector<std::byte> quants(QuantsBytes(format, elements)), factors(FactorsBytes(format, elements));
        PackBlocks(dtype, blocks, format, quants, factors);
        UnpackPieces(format, quants, factors, got);
        EXPECT_EQ(expected, got);
      }
    }
  }
}

TEST(BlockPack, SizesOfPiecesAreThoseOfThePlacement) {
  for (DType dtype : kBlockTypes) {
    const BlockFormat format = BlockFormatOf(dtype, true);
    const Shape shape{6, 256};
    auto placement = PlaceQuantized(shape, format, {});
    ASSERT_TRUE(placement.ok());
    EXPECT_EQ(QuantsOf(*placement).storage_bytes(), int64_t(QuantsBytes(format, 6 * 256)));
    EXPECT_EQ((int64_t(FactorsBytes(format, 6 * 256)) + 15) / 16 * 16, FactorsOf(*placement).storage_bytes());
  }
}

TEST(PlaceQuantized, CutsBetweenRows) {
  StorageLimits limits;
  limits.max_binding_bytes = 128 << 20;
  // The head of Gemma 3 1B: 151 MB of quants, 19 MB of factors.
  auto placement = PlaceQuantized(Shape{262144, 1152}, BlockFormatOf(DType::kQ4_0, true), limits);
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->part_count(), 2);
  const Placement quants = QuantsOf(*placement), factors = FactorsOf(*placement);
  EXPECT_EQ(quants.elements_per_part % (64 * quants.shape[1]), 0);
  EXPECT_LE(quants.elements_per_part * 4, limits.max_binding_bytes);
  EXPECT_EQ(factors.part_count(), 1);
  limits.max_binding_bytes = 1024;
  EXPECT_FALSE(PlaceQuantized(Shape{262144, 1152}, BlockFormatOf(DType::kQ4_0, true), limits).ok());
}

TEST(PlaceQuantized, RefusesRowsThatAreNotWholeGroups) {
  EXPECT_FALSE(PlaceQuantized(Shape{4, 48}, BlockFormatOf(DType::kQ4_0, true), {}).ok());
  EXPECT_FALSE(PlaceQuantized(Shape{4, 4, 32}, BlockFormatOf(DType::kQ4_0, true), {}).ok());
}

}  // namespace
}  // namespace leeway
