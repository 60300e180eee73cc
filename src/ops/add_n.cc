// add_n: the sum of any number of tensors of one shape.
#include "ops/elementwise.h"

namespace leeway {
namespace {

const char* const kNames[] = {"ADD_N"};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "add_n", 1, 64));
  for (const OperandInfo& input : call.inputs) {
    if (input.absent || input.type != call.inputs[0].type) {
      return Invalid("Operator add_n has inputs of types ", call.inputs[0].type.ToString(), " and ", input.type.ToString(),
                     "; they must be the same.");
    }
  }
  const DType dtype = call.inputs[0].type.dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kI32) {
    return Unsupported("Operator add_n has inputs of type ", DTypeName(dtype), "; it takes f32, f16 and i32.");
  }
  return std::vector<TensorType>{call.inputs[0].type};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  for (int64_t i = 0; i < outputs[0].element_count(); ++i) {
    double sum = 0;
    for (const HostTensor& input : inputs) sum += input.Get(i);
    IsFloat(outputs[0].dtype()) ? outputs[0].Set(i, sum) : SetWrapped(outputs[0], i, int64_t(sum));
  }
  return {};
}

Result<ValueMap> MakeValueMap(const OpCall& call, int) {
  std::vector<std::string> parameters, terms;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    parameters.push_back(StrCat("x", i, " : V"));
    terms.push_back(StrCat("x", i));
  }
  ValueMap map;
  map.text = StrCat("fn apply(", Join(parameters, ", "), ") -> V { return ", Join(terms, " + "), "; }");
  map.value = map.result = InFlightType(call.inputs[0].type.dtype);
  return map;
}

}  // namespace

extern const OpDef op_add_n = {
    .name = "add_n", .infer = Infer, .reference = Reference, .value_map = MakeValueMap, .tflite = kNames};

}  // namespace leeway
