#include "tensor/block_quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "tensor/dtype.h"

namespace leeway {
namespace {

float LoadHalf(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return F16ToF32(bits);
}
void StoreHalf(uint8_t* bytes, float value) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(bytes, &bits, 2);
}
uint32_t LoadWord(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, 4);
  return word;
}
int Low(uint8_t byte) { return byte & 15; }
int High(uint8_t byte) { return byte >> 4; }

// Every format is a type with the sizes of its block and Decode, which writes all elements of one block.

struct Q4_0 {
  static constexpr size_t kElements = 32, kBytes = 18;
  static void Decode(const uint8_t* b, float* y) {
    const float d = LoadHalf(b);
    for (int i = 0; i < 16; ++i) {  // the first half of the block lies in the low nibbles
      y[i] = d * float(Low(b[2 + i]) - 8);
      y[i + 16] = d * float(High(b[2 + i]) - 8);
    }
  }
};

struct Q4_1 {
  static constexpr size_t kElements = 32, kBytes = 20;
  static void Decode(const uint8_t* b, float* y) {
    const float d = LoadHalf(b), m = LoadHalf(b + 2);
    for (int i = 0; i < 16; ++i) {
      y[i] = d * float(Low(b[4 + i])) + m;
      y[i + 16] = d * float(High(b[4 + i])) + m;
    }
  }
};

struct Q5_0 {
  static constexpr size_t kElements = 32, kBytes = 22;
  static void Decode(const uint8_t* b, float* y) {
    const float d = LoadHalf(b);
    const uint32_t fifth = LoadWord(b + 2);
    for (int i = 0; i < 16; ++i) {
      y[i] = d * float((Low(b[6 + i]) | int(fifth >> i & 1) << 4) - 16);
      y[i + 16] = d * float((High(b[6 + i]) | int(fifth >> (i + 16) & 1) << 4) - 16);
    }
  }
};

struct Q5_1 {
  static constexpr size_t kElements = 32, kBytes = 24;
  static void Decode(const uint8_t* b, float* y) {
    const float d = LoadHalf(b), m = LoadHalf(b + 2);
    const uint32_t fifth = LoadWord(b + 4);
    for (int i = 0; i < 16; ++i) {
      y[i] = d * float(Low(b[8 + i]) | int(fifth >> i & 1) << 4) + m;
      y[i + 16] = d * float(High(b[8 + i]) | int(fifth >> (i + 16) & 1) << 4) + m;
    }
  }
};

struct Q8_0 {
  static constexpr size_t kElements = 32, kBytes = 34;
  static void Decode(const uint8_t* b, float* y) {
    const float d = LoadHalf(b);
    for (int i = 0; i < 32; ++i) y[i] = d * float(int8_t(b[2 + i]));
  }
};

struct IQ4_NL {
  static constexpr size_t kElements = 32, kBytes = 18;
  static void Decode(const uint8_t* b, float* y) {
    // What a nibble stands for: denser around zero, where most weights are.
    static constexpr std::array<float, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const float d = LoadHalf(b);
    for (int i = 0; i < 16; ++i) {
      y[i] = d * kLevels[size_t(Low(b[2 + i]))];
      y[i + 16] = d * kLevels[size_t(High(b[2 + i]))];
    }
  }
};

// The formats of 256 elements hold two halves of 128; a byte of 2-bit quants serves the elements l, l+32, l+64, l+96 of a half.

struct Q2_K {
  static constexpr size_t kElements = 256, kBytes = 84;
  static void Decode(const uint8_t* b, float* y) {
    const uint8_t *scales = b, *quants = b + 16;
    const float d = LoadHalf(b + 80), d_min = LoadHalf(b + 82);
    for (int e = 0; e < 256; e += 16) {
      const int half = e / 128, shift = e % 128 / 32 * 2, l = e % 32;
      const float scale = d * float(Low(scales[e / 16])), minimum = d_min * float(High(scales[e / 16]));
      for (int i = 0; i < 16; ++i) y[e + i] = scale * float(quants[32 * half + l + i] >> shift & 3) - minimum;
    }
  }
};

struct Q3_K {
  static constexpr size_t kElements = 256, kBytes = 110;
  static void Decode(const uint8_t* b, float* y) {
    const uint8_t *third = b, *quants = b + 32, *scales = b + 96;
    const float d = LoadHalf(b + 108);
    for (int e = 0; e < 256; e += 16) {
      const int half = e / 128, part = e % 128 / 32, l = e % 32, group = e / 16;
      const int low = group < 8 ? Low(scales[group]) : High(scales[group - 8]);
      const int high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
      const float scale = d * float((low | high << 4) - 32);
      for (int i = 0; i < 16; ++i) {
        const int q = (quants[32 * half + l + i] >> (2 * part) & 3) + 4 * (third[l + i] >> (4 * half + part) & 1) - 4;
        y[e + i] = scale * float(q);
      }
    }
  }
};

// The eight 6-bit scales and minima of Q4_K and Q5_K, packed into 12 bytes.
struct ScaleAndMin {
  int scale, minimum;
};
ScaleAndMin Unpack(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {Low(s[j + 4]) | s[j - 4] >> 6 << 4, High(s[j + 4]) | s[j] >> 6 << 4};
}

struct Q4_K {
  static constexpr size_t kElements = 256, kBytes = 144;
  static void Decode(const uint8_t* b, float* y) {
    const float d = LoadHalf(b), d_min = LoadHalf(b + 2);
    for (int group = 0; group < 8; ++group) {
      const auto [scale, minimum] = Unpack(b + 4, group);
      const float step = d * float(scale), offset = d_min * float(minimum);
      const uint8_t* quants = b + 16 + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i) y[32 * group + i] = step * float(quants[i] >> shift & 15) - offset;
    }
  }
};

struct Q5_K {
  static constexpr size_t kElements = 256, kBytes = 176;
  static void Decode(const uint8_t* b, float* y) {
    const float d = LoadHalf(b), d_min = LoadHalf(b + 2);
    const uint8_t* fifth = b + 16;
    for (int group = 0; group < 8; ++group) {
      const auto [scale, minimum] = Unpack(b + 4, group);
      const float step = d * float(scale), offset = d_min * float(minimum);
      const uint8_t* quants = b + 48 + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i) {
        const int q = (quants[i] >> shift & 15) | (fifth[i] >> group & 1) << 4;
        y[32 * group + i] = step * float(q) - offset;
      }
    }
  }
};

struct Q6_K {
  static constexpr size_t kElements = 256, kBytes = 210;
  static void Decode(const uint8_t* b, float* y) {
    const uint8_t *low = b, *high = b + 128, *scales = b + 192;
    const float d = LoadHalf(b + 208);
    for (int e = 0; e < 256; e += 16) {
      const int half = e / 128, part = e % 128 / 32, l = e % 32;
      const float scale = d * float(int8_t(scales[e / 16]));
      const uint8_t* nibbles = low + 64 * half + l + 32 * (part & 1);
      const int shift = part < 2 ? 0 : 4;
      for (int i = 0; i < 16; ++i) {
        const int q = (nibbles[i] >> shift & 15) | (high[32 * half + l + i] >> (2 * part) & 3) << 4;
        y[e + i] = scale * float(q - 32);
      }
    }
  }
};

template <class F>
auto VisitFormat(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kQ4_0: return f(Q4_0{});
    case DType::kQ4_1: return f(Q4_1{});
    case DType::kQ5_0: return f(Q5_0{});
    case DType::kQ5_1: return f(Q5_1{});
    case DType::kQ8_0: return f(Q8_0{});
    case DType::kQ2_K: return f(Q2_K{});
    case DType::kQ3_K: return f(Q3_K{});
    case DType::kQ4_K: return f(Q4_K{});
    case DType::kQ5_K: return f(Q5_K{});
    case DType::kQ6_K: return f(Q6_K{});
    case DType::kIQ4_NL: return f(IQ4_NL{});
    default: break;
  }
  CHECK(false && "not a block-quantized type");
}

// The element of largest magnitude, with its sign; the first of equals.
float Extreme(const float* x) {
  float extreme = 0, magnitude = 0;
  for (int i = 0; i < 32; ++i) {
    if (std::abs(x[i]) > magnitude) magnitude = std::abs(x[i]), extreme = x[i];
  }
  return extreme;
}
float Inverse(float d) { return d != 0 ? 1 / d : 0; }
// min(highest, trunc(scaled)), and 0 for what is no number or below.
uint32_t Clip(float scaled, int highest) {
  if (!(scaled > 0)) return 0;
  return scaled < float(highest) ? uint32_t(scaled) : uint32_t(highest);
}

// Four- and five-bit quants of one block; the fifth bits go where `fifth` points, unless that is null.
void PackNibbles(const std::array<uint32_t, 32>& q, uint8_t* nibbles, uint8_t* fifth) {
  for (size_t i = 0; i < 16; ++i) nibbles[i] = uint8_t((q[i] & 15) | (q[i + 16] & 15) << 4);
  if (fifth == nullptr) return;
  uint32_t bits = 0;
  for (size_t i = 0; i < 32; ++i) bits |= (q[i] >> 4 & 1) << i;
  std::memcpy(fifth, &bits, 4);
}

void EncodeSymmetric(const float* x, int bits, uint8_t* b) {
  const int zero = 1 << (bits - 1);
  const float d = Extreme(x) / float(-zero), inverse = Inverse(d);
  std::array<uint32_t, 32> q;
  for (size_t i = 0; i < 32; ++i) q[i] = Clip(x[i] * inverse + (float(zero) + 0.5f), 2 * zero - 1);
  StoreHalf(b, d);
  bits == 4 ? PackNibbles(q, b + 2, nullptr) : PackNibbles(q, b + 6, b + 2);
}

void EncodeWithMinimum(const float* x, int bits, uint8_t* b) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const int highest = (1 << bits) - 1;
  const float minimum = *low, d = (*high - minimum) / float(highest), inverse = Inverse(d);
  std::array<uint32_t, 32> q;
  for (size_t i = 0; i < 32; ++i) q[i] = Clip((x[i] - minimum) * inverse + 0.5f, highest);
  StoreHalf(b, d);
  StoreHalf(b + 2, minimum);
  bits == 4 ? PackNibbles(q, b + 4, nullptr) : PackNibbles(q, b + 8, b + 4);
}

void EncodeQ8_0(const float* x, uint8_t* b) {
  const float d = std::abs(Extreme(x)) / 127, inverse = Inverse(d);
  StoreHalf(b, d);
  for (int i = 0; i < 32; ++i) {
    const float rounded = std::round(x[i] * inverse);
    b[2 + i] = uint8_t(int8_t(rounded >= -127 && rounded <= 127 ? rounded : rounded > 127 ? 127 : -127));
  }
}

}  // namespace

void DequantizeBlocks(DType dtype, std::span<const std::byte> blocks, std::span<float> values) {
  CHECK(blocks.size() >= DTypeBytes(dtype, values.size()));
  VisitFormat(dtype, [&]<class Format>(Format) {
    const auto* block = reinterpret_cast<const uint8_t*>(blocks.data());
    float* out = values.data();
    size_t left = values.size();
    for (; left >= Format::kElements; left -= Format::kElements, out += Format::kElements, block += Format::kBytes) {
      Format::Decode(block, out);
    }
    if (left == 0) return;
    std::array<float, Format::kElements> last;
    Format::Decode(block, last.data());
    std::copy_n(last.begin(), left, out);
  });
}

float DequantizeElement(DType dtype, std::span<const std::byte> blocks, int64_t i) {
  return VisitFormat(dtype, [&]<class Format>(Format) {
    const size_t block = size_t(i) / Format::kElements;
    CHECK(i >= 0 && (block + 1) * Format::kBytes <= blocks.size());
    std::array<float, Format::kElements> values;
    Format::Decode(reinterpret_cast<const uint8_t*>(blocks.data()) + block * Format::kBytes, values.data());
    return values[size_t(i) % Format::kElements];
  });
}

bool CanQuantize(DType dtype) {
  return dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ5_0 || dtype == DType::kQ5_1 ||
         dtype == DType::kQ8_0;
}

void QuantizeBlocks(DType dtype, std::span<const float> values, std::span<std::byte> blocks) {
  CHECK(CanQuantize(dtype) && values.size() % 32 == 0 && blocks.size() == DTypeBytes(dtype, values.size()));
  auto* block = reinterpret_cast<uint8_t*>(blocks.data());
  for (size_t i = 0; i < values.size(); i += 32, block += BlockBytes(dtype)) {
    const float* x = values.data() + i;
    if (dtype == DType::kQ8_0) {
      EncodeQ8_0(x, block);
    } else if (dtype == DType::kQ4_0 || dtype == DType::kQ5_0) {
      EncodeSymmetric(x, dtype == DType::kQ4_0 ? 4 : 5, block);
    } else {
      EncodeWithMinimum(x, dtype == DType::kQ4_1 ? 4 : 5, block);
    }
  }
}

}  // namespace leeway
