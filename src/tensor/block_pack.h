// Blocks of files into the formats of devices (BlockFormat), without loss: what a code and a factor of the file say is what
// they say there. Elements are numbered through the whole tensor; rows are whole blocks, so rows need no care.
#pragma once

#include <cstddef>
#include <span>

#include "leeway/dtype.h"
#include "tensor/virtual_tensor.h"

namespace leeway {

// The format for a block-quantized type. The factors of types that keep them as halves (no K types) stay so with `f16_factors`,
// all others are f32.
BlockFormat BlockFormatOf(DType dtype, bool f16_factors);

// Bytes of `elements` elements (whole blocks of the type) in the two pieces.
size_t QuantsBytes(const BlockFormat& format, size_t elements);
size_t FactorsBytes(const BlockFormat& format, size_t elements);

// Whole blocks of `dtype` into pieces of the sizes above. format is BlockFormatOf(dtype, ...).
void PackBlocks(DType dtype, std::span<const std::byte> blocks, const BlockFormat& format, std::span<std::byte> quants,
                std::span<std::byte> factors);

// The elements of packed pieces: for tests, and for whoever has to look at what lies on a device.
void UnpackPieces(const BlockFormat& format, std::span<const std::byte> quants, std::span<const std::byte> factors,
                  std::span<float> values);

}  // namespace leeway
