// prelu: y = x where x is positive, alpha * x elsewhere; alpha is broadcast (in practice: one per channel).
#include "ops/elementwise.h"

namespace leeway {
namespace {

constexpr BinaryRule kPrelu = {.name = "prelu",
                               .tflite = "PRELU",
                               .on_floats = [](double a, double b) { return a < 0 ? a * b : a; },
                               .text = "return select(a, a * b, a < V(0));"};

InferredTypes Infer(const OpCall& call) {
  ASSIGN_OR_RETURN(std::vector<TensorType> types, InferBinary(kPrelu, call));
  if (types[0].shape != InputShape(call, 0)) {
    return Invalid("Operator prelu has alpha of shape ", InputShape(call, 1).ToString(),
                   ", which does not broadcast to its input's ", InputShape(call, 0).ToString(), ".");
  }
  return types;
}

}  // namespace

extern const OpDef op_prelu = {
    .name = "prelu",
    .infer = Infer,
    .reference = [](const OpCall&, std::span<const HostTensor> inputs,
                    std::span<HostTensor> outputs) { return BinaryReference(kPrelu, inputs, outputs); },
    .value_map = [](const OpCall& call, int chained) { return BinaryValueMap(kPrelu, call, chained); },
    .tflite = {&kPrelu.tflite, 1}};

}  // namespace leeway
