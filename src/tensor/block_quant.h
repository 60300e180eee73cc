// Block-quantized elements (DType::kQ4_0 and its kin): blocks to numbers, and numbers to blocks. The layouts are those of GGUF
// files: the scales of a block come first or last as halves, quants are packed in nibbles and bit planes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "leeway/dtype.h"

namespace leeway {

// `values.size()` elements from the whole blocks at the start of `blocks`; the last block may be used in part. Bytes need no
// alignment. `dtype` is block-quantized and `blocks` is long enough; anything else is a mistake.
void DequantizeBlocks(DType dtype, std::span<const std::byte> blocks, std::span<float> values);
// Element i of the same.
float DequantizeElement(DType dtype, std::span<const std::byte> blocks, int64_t i);

bool CanQuantize(DType dtype);  // kQ4_0, kQ4_1, kQ5_0, kQ5_1 and kQ8_0
// Each run of 32 values becomes one block; values.size() is a multiple of 32, `blocks` is DTypeBytes(dtype, values.size())
// long. Rounds as the reference encoders of the format do: the scale is found in f32, quants are rounded with the scale before
// it becomes a half, ties away from zero (q8_0) or upwards (the others). NaN in a block gives quants of no meaning, but no
// other harm.
void QuantizeBlocks(DType dtype, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace leeway
