// gather_nd: each row of the indices' last axis names the first axes of x; what is left of x there goes to the result.
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kNames[] = {"GATHER_ND"};
constexpr const char* kOp = "gather_nd";

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 2));
  const Shape &x = InputShape(call, 0), &indices = InputShape(call, 1);
  const DType index_type = call.inputs[1].type.dtype;
  if (!IsInteger(index_type))
    return Invalid("Operator gather_nd has indices of type ", DTypeName(index_type), "; it takes integers.");
  if (indices.rank() < 1 || indices.at(-1) < 1 || indices.at(-1) > x.rank()) {
    return Invalid("Operator gather_nd has an input of shape ", x.ToString(), " and indices of shape ", indices.ToString(),
                   "; the last extent of the indices must be between 1 and the number of axes of the input.");
  }
  std::vector<int64_t> extents(indices.begin(), indices.end() - 1);
  extents.insert(extents.end(), x.begin() + indices.at(-1), x.end());
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape& shape = inputs[0].shape();
  const int64_t depth = inputs[1].shape().at(-1), rows = inputs[1].element_count() / depth;
  const std::vector<int64_t> indices = Ints(inputs[1]);
  const Strides strides = RowMajorStrides(shape);
  int64_t after = 1;
  for (int64_t i = depth; i < shape.rank(); ++i) after *= shape[int(i)];
  const Strides step{1};
  for (int64_t row = 0; row < rows; ++row) {
    int64_t start = 0;
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t index = indices[size_t(row * depth + i)];
      if (index < 0 || index >= shape[int(i)]) {
        return Error{Code::kInvalidArgument,
                     StrCat("A gather_nd reads index ", index, " of ", shape[int(i)], " on axis ", i, ".")};
      }
      start += index * strides[size_t(i)];
    }
    CopyStrided(inputs[0], start, step, outputs[0], row * after, step, Shape{after});
  }
  return {};
}

}  // namespace

extern const OpDef op_gather_nd = {.name = kOp, .infer = Infer, .reference = Reference, .tflite = kNames};

}  // namespace leeway
