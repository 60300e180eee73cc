// select: y = condition ? a : b, element by element, with numpy's broadcasting. The condition is an operand of the value map,
// so the two chosen inputs can be chained and the condition cannot.
#include "ops/elementwise.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kNames[] = {"SELECT_V2", "SELECT"};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "select", 3, 3));
  const TensorType &condition = call.inputs[0].type, &a = call.inputs[1].type, &b = call.inputs[2].type;
  if (condition.dtype != DType::kBool) {
    return Invalid("Operator select has a condition of type ", DTypeName(condition.dtype), "; it takes bool.");
  }
  if (a.dtype != b.dtype) {
    return Invalid("Operator select has inputs of types ", DTypeName(a.dtype), " and ", DTypeName(b.dtype),
                   "; they must be the same.");
  }
  ASSIGN_OR_RETURN(Shape chosen, BroadcastShapes(a.shape, b.shape, "select"));
  ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(condition.shape, chosen, "select"));
  return std::vector<TensorType>{{a.dtype, shape}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  HostTensor& y = outputs[0];
  const Shape& shape = y.shape();
  ForEachOffset<4>(shape,
                   {BroadcastStrides(inputs[0].shape(), shape), BroadcastStrides(inputs[1].shape(), shape),
                    BroadcastStrides(inputs[2].shape(), shape), RowMajorStrides(shape)},
                   {0, 0, 0, 0}, [&](const std::array<int64_t, 4>& at) {
                     y.Set(at[3], inputs[0].Get(at[0]) != 0 ? inputs[1].Get(at[1]) : inputs[2].Get(at[2]));
                   });
  return {};
}

Result<ValueMap> MakeValueMap(const OpCall& call, int chained) {
  if (chained == 0) { return Unsupported("Operator select cannot be melted into the node that computes its condition."); }
  ValueMap map;
  map.text = chained == 1 ? "fn apply(a : V, condition : U, b : V) -> V { return select(b, a, condition != U(0)); }"
                          : "fn apply(b : V, condition : U, a : V) -> V { return select(b, a, condition != U(0)); }";
  map.value = map.result = InFlightType(call.inputs[1].type.dtype);
  return map;
}

}  // namespace

extern const OpDef op_select = {
    .name = "select", .infer = Infer, .reference = Reference, .value_map = MakeValueMap, .tflite = kNames};

}  // namespace leeway
