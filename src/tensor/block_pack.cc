#include "tensor/block_pack.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "base/result.h"
#include "tensor/dtype.h"

namespace leeway {
namespace {

// One block taken apart: codes as the format has them (unsigned for 4 bits), and factors and minima by group.
struct Parts {
  std::array<int8_t, 256> codes;
  std::array<float, 16> factors, minima;
};

float Half(const uint8_t* b) {
  uint16_t bits;
  std::memcpy(&bits, b, 2);
  return F16ToF32(bits);
}
int Nibble(uint8_t byte, int high) { return high ? byte >> 4 : byte & 15; }

// Element i of 32 whose first half lies in the low nibbles, with its fifth bit where `fifth` is given.
int Split(const uint8_t* nibbles, const uint8_t* fifth, int i) {
  const int code = Nibble(nibbles[i % 16], i / 16);
  return fifth ? code | (fifth[i / 8] >> (i % 8) & 1) << 4 : code;
}

constexpr std::array<int8_t, 16> kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The 6-bit scale (`which` 0) or minimum (1) of group j of Q4_K and Q5_K, in twelve bytes.
int SixBits(const uint8_t* s, int j, int which) {
  if (j < 4) return s[j + 4 * which] & 63;
  return Nibble(s[j + 4], which) | (s[j - 4 + 4 * which] >> 6) << 4;
}

void TakeApart(DType dtype, const uint8_t* b, Parts& p) {
  auto each = [&](int count, auto code) {
    for (int i = 0; i < count; ++i) p.codes[size_t(i)] = int8_t(code(i));
  };
  auto groups = [&](int count, auto factor) {
    for (int g = 0; g < count; ++g) p.factors[size_t(g)] = factor(g);
  };
  auto minima = [&](int count, auto minimum) {
    for (int g = 0; g < count; ++g) p.minima[size_t(g)] = minimum(g);
  };
  p.factors[0] = Half(b);  // of the types with one factor
  p.minima[0] = 0;
  switch (dtype) {
    case DType::kQ4_0: return each(32, [&](int i) { return Split(b + 2, nullptr, i); });
    case DType::kQ4_1: p.minima[0] = Half(b + 2); return each(32, [&](int i) { return Split(b + 4, nullptr, i); });
    case DType::kQ5_0: return each(32, [&](int i) { return Split(b + 6, b + 2, i) - 16; });
    case DType::kQ5_1: p.minima[0] = Half(b + 2); return each(32, [&](int i) { return Split(b + 8, b + 4, i); });
    case DType::kQ8_0: return each(32, [&](int i) { return int8_t(b[2 + i]); });
    case DType::kIQ4_NL: return each(32, [&](int i) { return kIq4Levels[size_t(Split(b + 2, nullptr, i))]; });
    // 256 elements; a byte of 2-bit quants serves the elements l, l + 32, l + 64, l + 96 of a half.
    case DType::kQ2_K: {
      const float d = Half(b + 80), d_min = Half(b + 82);
      groups(16, [&](int g) { return d * float(Nibble(b[g], 0)); });
      minima(16, [&](int g) { return -(d_min * float(Nibble(b[g], 1))); });
      return each(256, [&](int i) { return b[16 + 32 * (i / 128) + i % 32] >> (i % 128 / 32 * 2) & 3; });
    }
    case DType::kQ3_K: {
      const float d = Half(b + 108);
      groups(16, [&](int g) {
        const int high = b[96 + 8 + g % 4] >> (2 * (g / 4)) & 3;
        return d * float((Nibble(b[96 + g % 8], g / 8) | high << 4) - 32);
      });
      // -4..3, above the format's offset of 8.
      return each(256, [&](int i) {
        return (b[32 + 32 * (i / 128) + i % 32] >> (i % 128 / 32 * 2) & 3) + 4 * (b[i % 32] >> (i / 32) & 1) + 4;
      });
    }
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const bool five = dtype == DType::kQ5_K;
      const float d = Half(b), d_min = Half(b + 2);
      groups(8, [&](int g) { return d * float(SixBits(b + 4, g, 0)); });
      minima(8, [&](int g) { return -(d_min * float(SixBits(b + 4, g, 1))); });
      const uint8_t* quants = b + (five ? 48 : 16);
      return each(256, [&](int i) {
        const int code = Nibble(quants[i / 64 * 32 + i % 32], i / 32 % 2);
        return five ? code | (b[16 + i % 32] >> (i / 32) & 1) << 4 : code;
      });
    }
    case DType::kQ6_K: {
      const float d = Half(b + 208);
      groups(16, [&](int g) { return d * float(int8_t(b[192 + g])); });
      return each(256, [&](int i) {
        const int half = i / 128, part = i % 128 / 32, l = i % 32;
        return (Nibble(b[64 * half + 32 * (part & 1) + l], part / 2) | (b[128 + 32 * half + l] >> (2 * part) & 3) << 4) - 32;
      });
    }
    default: break;
  }
  CHECK(false && "not a block-quantized type");
}

// Where the codes of a block begin if they are already what the format wants; 0: they are not.
size_t ReadyCodes(DType dtype) { return dtype == DType::kQ4_0 || dtype == DType::kQ8_0 ? 2 : dtype == DType::kQ4_1 ? 4 : 0; }

}  // namespace

BlockFormat BlockFormatOf(DType dtype, bool f16_factors) {
  const DType file = f16_factors ? DType::kF16 : DType::kF32;
  switch (dtype) {
    case DType::kQ4_0: return {.bits = 4, .group = 32, .has_minimum = false, .factor = file};
    case DType::kQ4_1: return {.bits = 4, .group = 32, .has_minimum = true, .factor = file};
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL: return {.bits = 8, .group = 32, .has_minimum = false, .factor = file};
    case DType::kQ5_1: return {.bits = 8, .group = 32, .has_minimum = true, .factor = file};
    case DType::kQ2_K: return {.bits = 4, .group = 16, .has_minimum = true, .factor = DType::kF32};
    case DType::kQ3_K: return {.bits = 4, .group = 16, .has_minimum = false, .factor = DType::kF32};
    case DType::kQ4_K: return {.bits = 4, .group = 32, .has_minimum = true, .factor = DType::kF32};
    case DType::kQ5_K: return {.bits = 8, .group = 32, .has_minimum = true, .factor = DType::kF32};
    case DType::kQ6_K: return {.bits = 8, .group = 16, .has_minimum = false, .factor = DType::kF32};
    default: break;
  }
  CHECK(false && "not a block-quantized type");
}

size_t QuantsBytes(const BlockFormat& format, size_t elements) { return elements * size_t(format.bits) / 8; }
size_t FactorsBytes(const BlockFormat& format, size_t elements) {
  return elements / size_t(format.group) * (format.has_minimum ? 2 : 1) * (format.factor == DType::kF16 ? 2 : 4);
}

void PackBlocks(DType dtype, std::span<const std::byte> blocks, const BlockFormat& format, std::span<std::byte> quants,
                std::span<std::byte> factors) {
  const size_t block_elements = BlockElements(dtype), block_bytes = BlockBytes(dtype);
  const size_t count = blocks.size() / block_bytes;
  CHECK(format == BlockFormatOf(dtype, format.factor == DType::kF16));
  CHECK(blocks.size() == count * block_bytes && quants.size() == QuantsBytes(format, count * block_elements) &&
        factors.size() == FactorsBytes(format, count * block_elements));
  const auto* from = reinterpret_cast<const uint8_t*>(blocks.data());
  auto* to = reinterpret_cast<uint8_t*>(quants.data());
  auto* factors_to = factors.data();
  auto put_factor = [&](float factor) {
    if (format.factor == DType::kF16) {
      const uint16_t bits = F32ToF16(factor);
      std::memcpy(factors_to, &bits, 2);
      factors_to += 2;
    } else {
      std::memcpy(factors_to, &factor, 4);
      factors_to += 4;
    }
  };
  if (const size_t ready = ReadyCodes(dtype)) {
    const size_t code_bytes = block_bytes - ready;
    for (size_t block = 0; block < count; ++block, from += block_bytes, to += code_bytes) {
      std::memcpy(to, from + ready, code_bytes);
      for (size_t at = 0; at < ready; at += 2) put_factor(Half(from + at));
    }
    return;
  }
  Parts parts;
  for (size_t block = 0; block < count; ++block, from += block_bytes) {
    TakeApart(dtype, from, parts);
    if (format.bits == 8) {
      std::memcpy(to, parts.codes.data(), block_elements);
      to += block_elements;
    } else {
      for (size_t first = 0; first < block_elements; first += 32, to += 16) {
        const int8_t* codes = parts.codes.data() + first;
        for (size_t i = 0; i < 16; ++i) to[i] = uint8_t(codes[i] | codes[i + 16] << 4);
      }
    }
    for (size_t g = 0; g < block_elements / size_t(format.group); ++g) {
      put_factor(parts.factors[g]);
      if (format.has_minimum) put_factor(parts.minima[g]);
    }
  }
}

void UnpackPieces(const BlockFormat& format, std::span<const std::byte> quants, std::span<const std::byte> factors,
                  std::span<float> values) {
  CHECK(quants.size() >= QuantsBytes(format, values.size()) && factors.size() >= FactorsBytes(format, values.size()));
  auto factor = [&](size_t i) {
    if (format.factor == DType::kF16) {
      uint16_t bits;
      std::memcpy(&bits, factors.data() + 2 * i, 2);
      return F16ToF32(bits);
    }
    float value;
    std::memcpy(&value, factors.data() + 4 * i, 4);
    return value;
  };
  for (size_t e = 0; e < values.size(); ++e) {
    int code = 0;
    if (format.bits == 8) {
      code = int8_t(quants[e]);
    } else {
      code = Nibble(uint8_t(quants[e / 32 * 16 + e % 16]), int(e % 32 / 16)) - format.offset();
    }
    const size_t group = e / size_t(format.group);
    values[e] = format.has_minimum ? factor(2 * group) * float(code) + factor(2 * group + 1) : factor(group) * float(code);
  }
}

}  // namespace leeway
