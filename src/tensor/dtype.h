// Element types of tensors (the public enum), and the conversions between floating-point formats.
#pragma once

#include <cstdint>

#include "leeway/dtype.h"

namespace leeway {

// IEEE half and bfloat16, rounding to nearest even; NaN stays NaN, too large becomes infinity.
uint16_t F32ToF16(float value);
float F16ToF32(uint16_t bits);
uint16_t F32ToBF16(float value);
float BF16ToF32(uint16_t bits);

}  // namespace leeway
