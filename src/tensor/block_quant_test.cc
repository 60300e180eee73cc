#include "tensor/block_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tensor/host_tensor.h"

namespace leeway {
namespace {

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,  DType::kQ2_K,
                            DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL};

void PutHalf(std::vector<std::byte>& bytes, size_t at, uint16_t bits) { std::memcpy(bytes.data() + at, &bits, 2); }

// The block of the format's golden vectors: bytes of a fixed pattern, 0.125 for the scale, 0.0625 for the minimum.
std::vector<std::byte> GoldenBlock(DType dtype) {
  std::vector<std::byte> bytes(BlockBytes(dtype));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte((37 * i + 11) & 255);
  constexpr uint16_t kScale = 0x3000, kMinimum = 0x2C00;
  switch (dtype) {
    case DType::kQ3_K: PutHalf(bytes, 108, kScale); break;
    case DType::kQ6_K: PutHalf(bytes, 208, kScale); break;
    case DType::kQ2_K: PutHalf(bytes, 80, kScale), PutHalf(bytes, 82, kMinimum); break;
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: PutHalf(bytes, 0, kScale), PutHalf(bytes, 2, kMinimum); break;
    default: PutHalf(bytes, 0, kScale);
  }
  return bytes;
}

TEST(BlockQuant, DequantizesTheGoldenBlocks) {
  struct Row {
    DType dtype;
    std::vector<std::pair<size_t, float>> elements;
    double sum;
  };
  const Row rows[] = {
      {DType::kQ4_0, {{0, -0.375f}, {1, 0.25f}, {15, -1}, {16, -0.375f}, {31, 0}}, -2.625},
      {DType::kQ4_1, {{0, 1.9375f}, {1, 0.5625f}, {15, 1.3125f}, {16, 1.1875f}, {31, 1.5625f}}, 32.625},
      {DType::kQ5_0, {{0, 1.125f}, {1, -0.25f}, {15, -1.5f}, {16, 1.75f}, {31, 0.125f}}, 1.875},
      {DType::kQ5_1, {{0, 2.4375f}, {1, 3.0625f}, {15, 3.8125f}, {16, 2.4375f}, {31, 0.6875f}}, 65.125},
      {DType::kQ8_0, {{0, 10.625f}, {1, 15.25f}, {15, -16}, {16, -11.375f}, {31, -6}}, -22.0},
      {DType::kQ2_K,
       {{0, 4.125f},
        {1, 0},
        {31, -0.1875f},
        {32, 0.9375f},
        {63, 0.8125f},
        {64, 1.3125f},
        {127, 5.25f},
        {128, 0.9375f},
        {200, 1},
        {255, 0.5625f}},
       257.375},
      {DType::kQ3_K,
       {{0, 10.125f},
        {1, -13.5f},
        {31, 8},
        {32, -2.75f},
        {63, 1.25f},
        {64, 4.25f},
        {127, 9},
        {128, 0.25f},
        {200, 3.125f},
        {255, 5.25f}},
       119.75},
      {DType::kQ4_K,
       {{0, 39.4375f},
        {1, -3.1875f},
        {31, 20.0625f},
        {32, 1},
        {63, 5},
        {64, 52.5625f},
        {127, 10.125f},
        {128, 52.875f},
        {200, 17.3125f},
        {255, 6.0625f}},
       6805},
      {DType::kQ5_K,
       {{0, 101.4375f},
        {1, -3.1875f},
        {31, 20.0625f},
        {32, 14},
        {63, 10},
        {64, 52.5625f},
        {127, -0.375f},
        {128, 130.875f},
        {200, 17.3125f},
        {255, 13.5625f}},
       14527},
      {DType::kQ6_K,
       {{0, -178.875f},
        {1, 212},
        {31, -12},
        {32, 28.875f},
        {63, -72.5f},
        {64, -380},
        {127, 187.5f},
        {128, -43.875f},
        {200, 136.125f},
        {255, -7.5f}},
       576.5},
  };
  for (const Row& row : rows) {
    std::vector<float> values(BlockElements(row.dtype));
    DequantizeBlocks(row.dtype, GoldenBlock(row.dtype), values);
    for (auto [i, value] : row.elements) EXPECT_EQ(values[i], value) << DTypeName(row.dtype) << " element " << i;
    double sum = 0;
    for (float v : values) sum += v;
    EXPECT_EQ(sum, row.sum) << DTypeName(row.dtype);
  }
}

TEST(BlockQuant, Iq4NlLooksItsLevelsUp) {
  std::vector<std::byte> block(18);
  PutHalf(block, 0, 0xB800);  // -0.5
  for (int i = 0; i < 16; ++i) block[size_t(2 + i)] = std::byte(i | (15 - i) << 4);
  std::vector<float> values(32);
  DequantizeBlocks(DType::kIQ4_NL, block, values);
  const int levels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], -0.5f * float(levels[i]));
    EXPECT_EQ(values[i + 16], -0.5f * float(levels[15 - i]));
  }
}

TEST(BlockQuant, OneElementIsThatOfTheBlockWhereverBytesLie) {
  std::mt19937 random(7);
  for (DType dtype : kTypes) {
    const size_t count = 3 * BlockElements(dtype);
    std::vector<std::byte> bytes(1 + 3 * BlockBytes(dtype));
    for (std::byte& b : bytes) b = std::byte(random() & 0x3f);         // no infinite scale
    const auto blocks = std::span<const std::byte>(bytes).subspan(1);  // at an odd address
    std::vector<float> values(count), part(count - 5);
    DequantizeBlocks(dtype, blocks, values);
    DequantizeBlocks(dtype, blocks, part);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(DequantizeElement(dtype, blocks, int64_t(i)), values[i]) << DTypeName(dtype) << " " << i;
      if (i < part.size()) { ASSERT_EQ(part[i], values[i]); }
    }
  }
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte b : bytes) {
    text += "0123456789abcdef"[int(b) >> 4];
    text += "0123456789abcdef"[int(b) & 15];
  }
  return text;
}

TEST(BlockQuant, QuantizesToTheGoldenBytes) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[size_t(i)] = float((7 * i) % 32 - 15) / 8;
  const std::pair<DType, const char*> rows[] = {
      {DType::kQ4_0, "00b48f4c19d5a26e3bf7c4805d19e6a27f3b"},
      {DType::kQ4_1, "223480bf80b3f72a6e91d5084c7fb3e62a5d91c4"},
      {DType::kQ5_0, "00b067cc9833ff8811aa33cc55ee77009922bb44dd66"},
      {DType::kQ5_1, "003080bf983367cc0077ee55cc33aa1188ff66dd44bb2299"},
      {DType::kQ8_0, "082489c0f83067a1d810477fb9f0285f99d0084077b1e8205791c800386fa9e0184f"},
  };
  for (const auto& [dtype, hex] : rows) {
    std::vector<std::byte> blocks(BlockBytes(dtype));
    QuantizeBlocks(dtype, x, blocks);
    EXPECT_EQ(Hex(blocks), hex) << DTypeName(dtype);
  }
}

TEST(BlockQuant, RoundingStaysWithinAStep) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(32 * 40), back(x.size());
  for (float& v : x) v = normal(random);
  std::fill(x.begin(), x.begin() + 32, 0.0f);
  std::fill(x.begin() + 32, x.begin() + 64, -3.0f);
  const std::pair<DType, float> steps[] = {{DType::kQ4_0, 1 / 8.0f},
                                           {DType::kQ4_1, 1 / 7.5f},
                                           {DType::kQ5_0, 1 / 16.0f},
                                           {DType::kQ5_1, 1 / 15.5f},
                                           {DType::kQ8_0, 1 / 127.0f}};
  for (auto [dtype, step] : steps) {
    ASSERT_TRUE(CanQuantize(dtype));
    std::vector<std::byte> blocks(DTypeBytes(dtype, x.size()));
    QuantizeBlocks(dtype, x, blocks);
    DequantizeBlocks(dtype, blocks, back);
    for (size_t block = 0; block < x.size(); block += 32) {
      float largest = 0;
      for (size_t i = block; i < block + 32; ++i) largest = std::max(largest, std::abs(x[i]));
      // The symmetric formats of even range clip the far end by up to a step; a half rounds the scale by 1/2048.
      for (size_t i = block; i < block + 32; ++i)
        ASSERT_LE(std::abs(x[i] - back[i]), largest * (step + 0.001f)) << DTypeName(dtype) << " " << i;
    }
  }
}

TEST(BlockQuant, OddNumbersDoNoHarm) {
  std::vector<float> x(32, 1e-42f);
  x[0] = INFINITY, x[1] = -INFINITY, x[2] = NAN, x[3] = 3e38f;
  for (DType dtype : kTypes) {
    if (!CanQuantize(dtype)) continue;
    std::vector<std::byte> blocks(BlockBytes(dtype));
    QuantizeBlocks(dtype, x, blocks);
    QuantizeBlocks(dtype, std::vector<float>(32, 1e-45f), blocks);
    std::vector<float> back(32);
    DequantizeBlocks(dtype, blocks, back);
    for (float v : back) EXPECT_LE(std::abs(v), 1e-6f) << DTypeName(dtype);
  }
}

TEST(BlockQuant, HostTensorsWiden) {
  std::vector<float> x(2 * 64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 29 % 37) - 18) / 4;
  const HostTensor real = HostTensor::FromF32({2, 64}, x);
  const HostTensor quantized = real.ConvertTo(DType::kQ8_0);
  EXPECT_EQ(quantized.dtype(), DType::kQ8_0);
  EXPECT_EQ(quantized.bytes().size(), 4u * 34);
  const std::vector<float> widened = quantized.ToF32();
  const HostTensor halves = quantized.ConvertTo(DType::kF16);
  for (int64_t i = 0; i < 128; ++i) {
    EXPECT_NEAR(widened[size_t(i)], x[size_t(i)], 4.5 / 250);
    EXPECT_EQ(quantized.Get(i), widened[size_t(i)]);
    EXPECT_EQ(halves.Get(i), F16ToF32(F32ToF16(widened[size_t(i)])));
  }
  // A view of somebody's bytes, as of a mapped file.
  const HostTensor view(DType::kQ8_0, {128}, quantized.bytes(), nullptr);
  EXPECT_EQ(view.ToF32(), widened);
  EXPECT_EQ(HostTensor(DType::kQ4_K, {1, 256}).ToF32(), std::vector<float>(256));
}

}  // namespace
}  // namespace leeway
