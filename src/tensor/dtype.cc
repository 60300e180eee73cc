#include "tensor/dtype.h"

#include <bit>
#include <iterator>

#include "base/result.h"

namespace leeway {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  uint8_t bits;  // 0: block-quantized
  bool is_float, is_signed_int;
  uint16_t block_elements = 1, block_bytes = 0;
};
constexpr DTypeRow kRows[] = {
    {DType::kF32, "f32", 32, true, false},
    {DType::kF16, "f16", 16, true, false},
    {DType::kBF16, "bf16", 16, true, false},
    {DType::kF64, "f64", 64, true, false},
    {DType::kI64, "i64", 64, false, true},
    {DType::kI32, "i32", 32, false, true},
    {DType::kI16, "i16", 16, false, true},
    {DType::kI8, "i8", 8, false, true},
    {DType::kU64, "u64", 64, false, false},
    {DType::kU32, "u32", 32, false, false},
    {DType::kU16, "u16", 16, false, false},
    {DType::kU8, "u8", 8, false, false},
    {DType::kBool, "bool", 8, false, false},
    {DType::kI4, "i4", 4, false, true},
    {DType::kU4, "u4", 4, false, false},
    {DType::kI2, "i2", 2, false, true},
    {DType::kQ4_0, "q4_0", 0, true, false, 32, 18},
    {DType::kQ4_1, "q4_1", 0, true, false, 32, 20},
    {DType::kQ5_0, "q5_0", 0, true, false, 32, 22},
    {DType::kQ5_1, "q5_1", 0, true, false, 32, 24},
    {DType::kQ8_0, "q8_0", 0, true, false, 32, 34},
    {DType::kQ2_K, "q2_k", 0, true, false, 256, 84},
    {DType::kQ3_K, "q3_k", 0, true, false, 256, 110},
    {DType::kQ4_K, "q4_k", 0, true, false, 256, 144},
    {DType::kQ5_K, "q5_k", 0, true, false, 256, 176},
    {DType::kQ6_K, "q6_k", 0, true, false, 256, 210},
    {DType::kIQ4_NL, "iq4_nl", 0, true, false, 32, 18},
};
static_assert(std::size(kRows) == kDTypeCount);

const DTypeRow& Row(DType dtype) {
  const DTypeRow& row = kRows[size_t(dtype)];
  CHECK(row.dtype == dtype);  // the table is in the order of the enum
  return row;
}

// Drops the low `shift` bits of `value`, rounding to nearest, ties to even.
uint32_t RoundShift(uint32_t value, int shift) {
  uint32_t kept = value >> shift;
  uint32_t dropped = value & ((1u << shift) - 1), half = 1u << (shift - 1);
  if (dropped > half || (dropped == half && (kept & 1))) ++kept;
  return kept;
}

}  // namespace

size_t DTypeBits(DType dtype) {
  CHECK(!IsBlockQuantized(dtype));
  return Row(dtype).bits;
}
size_t DTypeBytes(DType dtype, size_t count) {
  const DTypeRow& row = Row(dtype);
  if (row.bits >= 8) return count * (row.bits / 8);  // not by way of bits, which may be more than a number holds
  if (row.bits != 0) return (count * row.bits + 7) / 8;
  return (count + row.block_elements - 1) / row.block_elements * row.block_bytes;
}
bool IsBlockQuantized(DType dtype) { return Row(dtype).bits == 0; }
size_t BlockElements(DType dtype) { return Row(dtype).block_elements; }
size_t BlockBytes(DType dtype) { return IsBlockQuantized(dtype) ? Row(dtype).block_bytes : DTypeBytes(dtype, 1); }
const char* DTypeName(DType dtype) { return Row(dtype).name; }
bool IsFloat(DType dtype) { return Row(dtype).is_float; }
bool IsSignedInt(DType dtype) { return Row(dtype).is_signed_int; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

uint16_t F32ToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = uint16_t((bits >> 16) & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));  // NaN
  int exponent = int(magnitude >> 23) - 127;
  if (exponent >= 16) return uint16_t(sign | 0x7c00);
  // A carry out of the mantissa moves into the exponent, up to infinity: what rounding should do.
  if (exponent >= -14) return uint16_t(sign | (RoundShift(magnitude, 13) - (112u << 10)));
  if (exponent < -25) return sign;
  uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  return uint16_t(sign | RoundShift(mantissa, -1 - exponent));  // subnormal: units of 2^-24
}

float F16ToF32(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  float value = float(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

uint16_t F32ToBF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);  // stays NaN
  return uint16_t(RoundShift(bits, 16));
}

float BF16ToF32(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

}  // namespace leeway
