#include "ops/conv_shape.h"

#include <algorithm>

namespace leeway {
namespace {

Result<ConvAxis> MakeAxis(const OpCall& call, const char* op, const char* which, int64_t input, int64_t kernel, int64_t stride,
                          int64_t dilation, int64_t explicit_before, int64_t explicit_after) {
  constexpr int64_t kMost = 1 << 20;
  if (kernel < 1 || kernel > kMost || stride < 1 || stride > kMost || dilation < 1 || dilation > kMost || explicit_before < 0 ||
      explicit_before > kMost || explicit_after < 0 || explicit_after > kMost) {
    return Invalid("Operator ", op, " has kernel ", kernel, ", stride ", stride, ", dilation ", dilation,
                   " and explicit padding ", explicit_before, ", ", explicit_after, " along its ", which,
                   "; kernel, stride and dilation are at least 1.");
  }
  ConvAxis axis{.input = input,
                .kernel = kernel,
                .stride = stride,
                .dilation = dilation,
                .explicit_before = explicit_before,
                .explicit_after = explicit_after};
  const int64_t padded = input + explicit_before + explicit_after, reach = (kernel - 1) * dilation + 1;
  const int64_t padding = call.attrs.GetInt("padding", kPaddingValid);
  if (padding == kPaddingSame) {
    axis.output = (padded + stride - 1) / stride;
    axis.before = explicit_before + std::max<int64_t>((axis.output - 1) * stride + reach - padded, 0) / 2;
  } else if (padding == kPaddingValid) {
    axis.output = padded < reach ? 0 : (padded - reach) / stride + 1;
    axis.before = explicit_before;
  } else {
    return Invalid("Operator ", op, " has padding ", padding, "; it takes 0 (same) and 1 (valid).");
  }
  return axis;
}

const AttrField kConvAttrs[] = {
    {"padding", int64_t{kPaddingValid}, "0: same, 1: valid."},
    {"stride_h", int64_t{1}, "Rows between two windows."},
    {"stride_w", int64_t{1}, "Columns between two windows."},
    {"dilation_h_factor", int64_t{1}, "Rows between two taps."},
    {"dilation_w_factor", int64_t{1}, "Columns between two taps."},
    {"pad_before", std::vector<int64_t>{}, "Rows and columns of zeros before the input, beyond `padding`."},
    {"pad_after", std::vector<int64_t>{}, "Rows and columns of zeros after the input, beyond `padding`."},
};

}  // namespace

std::span<const AttrField> ConvAttrs() { return kConvAttrs; }

Result<ConvAxes> ConvWindows(const OpCall& call, const char* op, const Shape& input, int64_t kernel_height,
                             int64_t kernel_width) {
  std::vector<int64_t> before = call.attrs.GetInts("pad_before"), after = call.attrs.GetInts("pad_after");
  if (before.empty()) before = {0, 0};
  if (after.empty()) after = {0, 0};
  if (before.size() != 2 || after.size() != 2) {
    return Invalid("Operator ", op, " has ", before.size(), " and ", after.size(),
                   " explicit paddings; it takes height and width.");
  }
  ConvAxes axes;
  ASSIGN_OR_RETURN(axes.y, MakeAxis(call, op, "height", input[1], kernel_height, call.attrs.GetInt("stride_h", 1),
                                    call.attrs.GetInt("dilation_h_factor", 1), before[0], after[0]));
  ASSIGN_OR_RETURN(axes.x, MakeAxis(call, op, "width", input[2], kernel_width, call.attrs.GetInt("stride_w", 1),
                                    call.attrs.GetInt("dilation_w_factor", 1), before[1], after[1]));
  return axes;
}

}  // namespace leeway
