// fully_connected: y[row, o] = bias[o] + sum over i of x[row, i] * w[o, i]; the input's leading axes are rows.
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"FULLY_CONNECTED"};
constexpr const char* kOp = "fully_connected";
const AttrField kAttrs[] = {{"weights_format", int64_t{0}, "0: rows of weights as they are; others are refused."},
                            {"keep_num_dims", false, "The result keeps the input's leading axes."}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 3));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 1));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 1, 2, 2));
  if (call.attrs.GetInt("weights_format") != 0) {
    return Unsupported("Operator fully_connected has weights_format ", call.attrs.GetInt("weights_format"),
                       "; only 0 (as they are) is supported.");
  }
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1);
  const int64_t count = x.element_count();
  const bool keep = call.attrs.GetBool("keep_num_dims");
  if (w[1] == 0 || count % w[1] != 0 || (keep && (x.rank() == 0 || x.at(-1) != w[1]))) {
    return Invalid("Operator fully_connected has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; the input must be whole rows of the weights' last extent.");
  }
  RETURN_IF_ERROR(ExpectBias(call, kOp, 2, w[0]));
  std::vector<int64_t> extents{count / w[1], w[0]};
  if (keep) {
    extents.assign(x.begin(), x.end());
    extents.back() = w[0];
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const std::vector<float> x = inputs[0].ToF32(), w = inputs[1].ToF32();
  const int64_t outs = inputs[1].shape()[0], depth = inputs[1].shape()[1], rows = int64_t(x.size()) / depth;
  const std::vector<double> bias = BiasOrZeros(call, inputs, 2, outs);
  std::vector<float> y(size_t(rows * outs));
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = &x[size_t(row * depth)];
    for (int64_t o = 0; o < outs; ++o) {
      const float* factors = &w[size_t(o * depth)];
      double sums[4] = {bias[size_t(o)], 0, 0, 0};
      int64_t i = 0;
      for (; i + 4 <= depth; i += 4) {
        for (int64_t k = 0; k < 4; ++k) sums[k] += double(from[i + k]) * factors[i + k];
      }
      for (; i < depth; ++i) sums[0] += double(from[i]) * factors[i];
      y[size_t(row * outs + o)] = float(sums[0] + sums[1] + sums[2] + sums[3]);
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

}  // namespace

extern const OpDef op_fully_connected = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .tflite = kNames};

}  // namespace leeway
