#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace leeway {
namespace {

TEST(DType, NamesReadBack) {
  for (int i = 0; i < kDTypeCount; ++i) EXPECT_EQ(DTypeFromName(DTypeName(DType(i))), DType(i));
  EXPECT_EQ(DTypeFromName("f23"), std::nullopt);
}

TEST(DType, BytesRoundUp) {
  EXPECT_EQ(DTypeBytes(DType::kI4, 3), 2u);
  EXPECT_EQ(DTypeBytes(DType::kI2, 5), 2u);
  EXPECT_EQ(DTypeBytes(DType::kF64, 3), 24u);
  EXPECT_EQ(DTypeBytes(DType::kF32, size_t{1} << 59), size_t{1} << 61);
  EXPECT_EQ(DTypeBytes(DType::kQ4_0, 0), 0u);
  EXPECT_EQ(DTypeBytes(DType::kQ4_0, 64), 36u);
  EXPECT_EQ(DTypeBytes(DType::kQ4_0, 65), 54u);
  EXPECT_EQ(DTypeBytes(DType::kQ6_K, 257), 420u);
}

TEST(DType, EveryHalfSurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = F16ToF32(uint16_t(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value)))) << bits;
    } else {
      EXPECT_EQ(F32ToF16(value), bits);
    }
  }
}

TEST(DType, HalfRoundsToNearestEven) {
  // Between neighbours: below, at and above the middle.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    double low = F16ToF32(uint16_t(bits)), high = F16ToF32(uint16_t(bits + 1));
    float middle = float((low + high) / 2);
    ASSERT_EQ(F32ToF16(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(F32ToF16(-middle), F32ToF16(middle) | 0x8000);
  }
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::infinity()), 0x7c00);
}

TEST(DType, BFloatRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    uint32_t middle = (bits << 16) | 0x8000;
    ASSERT_EQ(F32ToBF16(std::bit_cast<float>(middle)), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(F32ToBF16(std::bit_cast<float>(middle - 1)), bits);
    ASSERT_EQ(F32ToBF16(std::bit_cast<float>(middle + 1)), bits + 1);
    ASSERT_EQ(F32ToBF16(BF16ToF32(uint16_t(bits))), bits);
  }
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace leeway
