// Where windows of convolutions and pools lie: strides, dilations and paddings of the .tflite options, plus explicit zeros
// around the input from a PAD that was folded in.
#pragma once

#include "ops/operands.h"

namespace leeway {

// One spatial axis. Window i of the output begins at input index i * stride - before; tap k is dilation * k further on. Indices
// outside 0..input-1 read as zero, and belong to no window's count outside -explicit_before..input+explicit_after-1.
struct ConvAxis {
  int64_t input = 0, output = 0, kernel = 1, stride = 1, dilation = 1;
  int64_t before = 0, explicit_before = 0, explicit_after = 0;
};

struct ConvAxes {
  ConvAxis y, x;
};

// The axes for an input [batch, height, width, channels] and a kernel; errors name `op`. Reads the attributes padding,
// stride_h, stride_w, dilation_h_factor, dilation_w_factor, pad_before and pad_after.
Result<ConvAxes> ConvWindows(const OpCall& call, const char* op, const Shape& input, int64_t kernel_height,
                             int64_t kernel_width);

inline constexpr int64_t kPaddingSame = 0, kPaddingValid = 1;

// The attributes that ConvWindows reads, for documentation.
std::span<const AttrField> ConvAttrs();

}  // namespace leeway
