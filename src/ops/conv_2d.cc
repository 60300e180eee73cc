// conv_2d: y[n, r, c, o] = bias[o] + sum over taps and input channels of x * w[o, ky, kx, i]. With g groups w has 1/g of the
// input channels, and output channel o reads the input channels of its group.
//   direct   one invocation per slice of four output channels and four neighbouring pixels; any shape, any target
#include <algorithm>

#include "ops/conv_shape.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"CONV_2D"};
constexpr const char* kOp = "conv_2d";

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
  if (w[3] == 0 || x[3] % w[3] != 0 || w[0] % std::max<int64_t>(x[3] / w[3], 1) != 0) {
    return Invalid("Operator conv_2d has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; the input's channels must be a multiple (the groups) of the weights' last extent, and the weights' first "
                   "a multiple of the groups.");
  }
  RETURN_IF_ERROR(ExpectBias(call, kOp, 2, w[0]));
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], axes.y.output, axes.x.output, w[0]}, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape &shape = inputs[0].shape(), &w_shape = inputs[1].shape();
  const std::vector<float> x = inputs[0].ToF32(), w = inputs[1].ToF32();
  const std::vector<double> bias = BiasOrZeros(call, inputs, 2, w_shape[0]);
  std::vector<float> y(size_t(outputs[0].element_count()));
  const int64_t channels = shape[3], per_group = w_shape[3], groups = channels / per_group;
  const int64_t outs = w_shape[0], outs_per_group = outs / groups, taps = w_shape[1] * w_shape[2];
  // [tap][input channel of the group][output channel], so that the inner loop runs over neighbours.
  std::vector<double> packed(w.size());
  for (int64_t o = 0; o < outs; ++o) {
    for (int64_t k = 0; k < taps * per_group; ++k) packed[size_t(k * outs + o)] = w[size_t(o * taps * per_group + k)];
  }
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
            const double* tap = &packed[size_t((ky * axes.x.kernel + kx) * per_group * outs)];
            for (int64_t g = 0; g < groups; ++g) {
              double* sum = &sums[size_t(g * outs_per_group)];
              for (int64_t i = 0; i < per_group; ++i) {
                const double value = from[g * per_group + i];
                const double* factors = tap + i * outs + g * outs_per_group;
                for (int64_t o = 0; o < outs_per_group; ++o) sum[o] += value * factors[o];
              }
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

}  // namespace

extern const OpDef op_conv_2d = {.name = kOp, .attrs = ConvAttrs(), .infer = Infer, .reference = Reference, .tflite = kNames};

}  // namespace leeway
