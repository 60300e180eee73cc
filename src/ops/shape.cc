// shape, range: integers that follow from shapes and constants. They are folded at load, so they have no kernels.
#include <cmath>

#include "ops/elementwise.h"

namespace leeway {
namespace {

const char* const kShapeNames[] = {"SHAPE"};
const char* const kRangeNames[] = {"RANGE"};
const AttrField kShapeAttrs[] = {
    {"out_type", std::string("i32"), "Type of the result: i32 or i64 (a name, or a TensorType number)."}};

InferredTypes InferShape(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "shape", 1, 1));
  ASSIGN_OR_RETURN(DType dtype, DTypeAttribute(call.attrs, "out_type", DType::kI32, "shape"));
  return std::vector<TensorType>{{dtype, Shape{InputShape(call, 0).rank()}}};
}

Status ShapeReference(const OpCall& call, std::span<const HostTensor>, std::span<HostTensor> outputs) {
  const Shape& shape = InputShape(call, 0);
  for (int axis = 0; axis < shape.rank(); ++axis) SetWrapped(outputs[0], axis, shape[axis]);
  return {};
}

// Inputs of RANGE: start, limit, delta.
InferredTypes InferRange(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "range", 3, 3));
  double values[3];
  for (size_t i = 0; i < 3; ++i) {
    const OperandInfo& input = call.inputs[i];
    if (input.constant == nullptr)
      return Unsupported("Operator range has an input ", i, " that is only known at run time; only constants are supported.");
    if (input.constant->element_count() != 1 || input.type.dtype != call.inputs[0].type.dtype) {
      return Invalid("Operator range has input ", i, " ", input.type.ToString(), "; it takes three numbers of one type.");
    }
    values[i] = input.constant->Get(0);
  }
  if (values[2] == 0) return Invalid("Operator range has delta 0.");
  const double count = std::max(0.0, std::ceil((values[1] - values[0]) / values[2]));
  if (!(count < 2147483648.0)) return Invalid("Operator range makes ", count, " elements; at most 2^31 - 1 are supported.");
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({int64_t(count)}, "range"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status RangeReference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const double start = inputs[0].Get(0), delta = inputs[2].Get(0);
  for (int64_t i = 0; i < outputs[0].element_count(); ++i) outputs[0].Set(i, start + double(i) * delta);
  return {};
}

}  // namespace

extern const OpDef op_shape = {.name = "shape",
                               .attrs = kShapeAttrs,
                               .infer = InferShape,
                               .reference = ShapeReference,
                               .needs_types_only = true,
                               .tflite = kShapeNames};
extern const OpDef op_range = {.name = "range", .infer = InferRange, .reference = RangeReference, .tflite = kRangeNames};

}  // namespace leeway
