// softmax, log_softmax: over the last axis; softmax of beta * x.
#include <algorithm>
#include <cmath>

#include "ops/operands.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kSoftmaxNames[] = {"SOFTMAX"};
const char* const kLogSoftmaxNames[] = {"LOG_SOFTMAX"};
const AttrField kSoftmaxAttrs[] = {{"beta", 1.0, "Factor before the exponent."}};

template <bool log>
InferredTypes Infer(const OpCall& call) {
  const char* op = log ? "log_softmax" : "softmax";
  RETURN_IF_ERROR(ExpectInputs(call, op, 1, 1));
  RETURN_IF_ERROR(ExpectFloat(call, op, 0));
  RETURN_IF_ERROR(ExpectRank(call, op, 0, 1, Shape::kMaxRank));
  return std::vector<TensorType>{call.inputs[0].type};
}

template <bool log>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const std::vector<float> x = inputs[0].ToF32();
  std::vector<float> y(x.size());
  const double beta = log ? 1.0 : call.attrs.GetFloat("beta", 1.0);
  const size_t columns = size_t(inputs[0].shape().at(-1));
  for (size_t start = 0; columns > 0 && start < x.size(); start += columns) {
    const float* row = &x[start];
    const double largest = *std::max_element(row, row + columns);
    double total = 0;
    for (size_t i = 0; i < columns; ++i) total += std::exp(beta * (row[i] - largest));
    for (size_t i = 0; i < columns; ++i) {
      const double exponent = beta * (row[i] - largest);
      y[start + i] = float(log ? exponent - std::log(total) : std::exp(exponent) / total);
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

}  // namespace

extern const OpDef op_softmax = {
    .name = "softmax", .attrs = kSoftmaxAttrs, .infer = Infer<false>, .reference = Reference<false>, .tflite = kSoftmaxNames};
extern const OpDef op_log_softmax = {
    .name = "log_softmax", .infer = Infer<true>, .reference = Reference<true>, .tflite = kLogSoftmaxNames};

}  // namespace leeway
