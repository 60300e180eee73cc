// cumsum: y[..., i, ...] = sum of x[..., 0..i, ...] along an axis; exclusive: without x[i] itself; reverse: from the other end.
#include "ops/elementwise.h"

namespace leeway {
namespace {

const char* const kNames[] = {"CUMSUM"};
constexpr const char* kOp = "cumsum";
const AttrField kAttrs[] = {{"exclusive", false, "Without the element itself."},
                            {"reverse", false, "From the last element to the first."}};

Result<int> Axis(const OpCall& call) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, ConstantInts(call, kOp, 1, "axis"));
  if (axes.size() != 1) return Invalid("Operator cumsum has ", axes.size(), " axes; it takes one.");
  return ResolveAxis(axes[0], InputShape(call, 0).rank(), kOp);
}

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 2));
  RETURN_IF_ERROR(Axis(call));
  const DType dtype = call.inputs[0].type.dtype;
  if (!IsFloat(dtype) && !IsInteger(dtype))
    return Unsupported("Operator cumsum has an input of type ", DTypeName(dtype), "; it takes numbers.");
  return std::vector<TensorType>{call.inputs[0].type};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(int axis, Axis(call));
  const Shape& shape = inputs[0].shape();
  const bool exclusive = call.attrs.GetBool("exclusive"), reverse = call.attrs.GetBool("reverse");
  int64_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  const int64_t rows = shape[axis] == 0 ? 0 : shape.element_count() / shape[axis];
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t start = row / inner * shape[axis] * inner + row % inner;
    double sum = 0;
    for (int64_t k = 0; k < shape[axis]; ++k) {
      const int64_t at = start + (reverse ? shape[axis] - 1 - k : k) * inner;
      const double value = inputs[0].Get(at), result = exclusive ? sum : sum + value;
      IsFloat(outputs[0].dtype()) ? outputs[0].Set(at, result) : SetWrapped(outputs[0], at, int64_t(result));
      sum += value;
    }
  }
  return {};
}

}  // namespace

extern const OpDef op_cumsum = {.name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .tflite = kNames};

}  // namespace leeway
