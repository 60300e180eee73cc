// depthwise_conv_2d: output channel o reads input channel o / multiplier only; weights are [1, ky, kx, o].
#include <algorithm>

#include "ops/conv_shape.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"DEPTHWISE_CONV_2D"};
constexpr const char* kOp = "depthwise_conv_2d";

Result<ConvAxes> Windows(const OpCall& call) {
  const Shape& w = InputShape(call, 1);
  return ConvWindows(call, kOp, InputShape(call, 0), w[1], w[2]);
}

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 3));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 1));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 4, 4));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 1, 4, 4));
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1);
  if (w[0] != 1 || x[3] == 0 || w[3] % x[3] != 0) {
    return Invalid("Operator depthwise_conv_2d has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; the weights' first extent must be 1 and their last a multiple of the input's channels.");
  }
  RETURN_IF_ERROR(ExpectBias(call, kOp, 2, w[3]));
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], axes.y.output, axes.x.output, w[3]}, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape& shape = inputs[0].shape();
  const std::vector<float> x = inputs[0].ToF32(), w = inputs[1].ToF32();
  const int64_t channels = shape[3], outs = inputs[1].shape()[3], multiplier = outs / channels;
  const std::vector<double> bias = BiasOrZeros(call, inputs, 2, outs);
  std::vector<float> y(size_t(outputs[0].element_count()));
  std::vector<double> sums(static_cast<size_t>(outs));
  float* to = y.data();
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t row = 0; row < axes.y.output; ++row) {
      for (int64_t column = 0; column < axes.x.output; ++column, to += outs) {
        std::copy(bias.begin(), bias.end(), sums.begin());
        for (int64_t ky = 0; ky < axes.y.kernel; ++ky) {
          const int64_t iy = row * axes.y.stride - axes.y.before + ky * axes.y.dilation;
          if (iy < 0 || iy >= shape[1]) continue;
          for (int64_t kx = 0; kx < axes.x.kernel; ++kx) {
            const int64_t ix = column * axes.x.stride - axes.x.before + kx * axes.x.dilation;
            if (ix < 0 || ix >= shape[2]) continue;
            const float* from = &x[size_t(((n * shape[1] + iy) * shape[2] + ix) * channels)];
            const float* factors = &w[size_t((ky * axes.x.kernel + kx) * outs)];
            if (multiplier == 1) {
              for (int64_t o = 0; o < outs; ++o) sums[size_t(o)] += double(from[o]) * factors[o];
            } else {
              for (int64_t o = 0; o < outs; ++o) sums[size_t(o)] += double(from[o / multiplier]) * factors[o];
            }
          }
        }
        std::transform(sums.begin(), sums.end(), to, [](double sum) { return float(sum); });
      }
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

const std::vector<AttrField>& Attrs() {
  static const std::vector<AttrField> attrs = [] {
    std::vector<AttrField> list(ConvAttrs().begin(), ConvAttrs().end());
    list.push_back(
        {"depth_multiplier", int64_t{0}, "Output channels per input channel; follows from the shapes, 0: not said."});
    return list;
  }();
  return attrs;
}

}  // namespace

extern const OpDef op_depthwise_conv_2d = {
    .name = kOp, .attrs = Attrs(), .infer = Infer, .reference = Reference, .tflite = kNames};

}  // namespace leeway
