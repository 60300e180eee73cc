// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace leeway {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,  // one byte, 0 or 1
  kI4,
  kU4,  // two to a byte, low nibble first, flat over the whole tensor
  kI2,  // four to a byte, lowest bits first
};

// Bits of one element: 32 for kF32, 4 for kI4.
size_t DTypeBits(DType dtype);
// Bytes of `count` elements stored one after another, rounded up to a whole byte.
size_t DTypeBytes(DType dtype, size_t count);
const char* DTypeName(DType dtype);  // "f32", "i4", "bool"
std::optional<DType> DTypeFromName(std::string_view name);
bool IsFloat(DType dtype);
bool IsSignedInt(DType dtype);

}  // namespace leeway
