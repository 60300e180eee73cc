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
  // Block-quantized: BlockElements elements of a row share scales and take BlockBytes bytes, in the layouts of GGUF files. Only
  // constants are stored so (the type of their value is f32), and a row is whole blocks.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
};
inline constexpr int kDTypeCount = int(DType::kIQ4_NL) + 1;

// Bits of one element: 32 for kF32, 4 for kI4. An element of a block-quantized type has no size of its own: a mistake to ask.
size_t DTypeBits(DType dtype);
// Bytes of `count` elements stored one after another, rounded up to a whole byte or block.
size_t DTypeBytes(DType dtype, size_t count);
bool IsBlockQuantized(DType dtype);
size_t BlockElements(DType dtype);   // 32 or 256; 1 for a type without blocks
size_t BlockBytes(DType dtype);      // 18 for kQ4_0; for a type without blocks DTypeBytes of one element
const char* DTypeName(DType dtype);  // "f32", "i4", "bool", "q4_0", "iq4_nl"
std::optional<DType> DTypeFromName(std::string_view name);
bool IsFloat(DType dtype);  // real numbers: block-quantized types as well
bool IsSignedInt(DType dtype);

}  // namespace leeway
