// transpose: axis i of the result is axis permutation[i] of the input.
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kNames[] = {"TRANSPOSE"};

Result<std::vector<int>> Permutation(const OpCall& call) {
  ASSIGN_OR_RETURN(std::vector<int64_t> given, ConstantInts(call, "transpose", 1, "permutation"));
  const int rank = InputShape(call, 0).rank();
  if (int(given.size()) != rank) {
    return Invalid("Operator transpose has a permutation of ", given.size(), " axes for an input of shape ",
                   InputShape(call, 0).ToString(), ".");
  }
  std::vector<int> axes;
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t value : given) {
    ASSIGN_OR_RETURN(int axis, ResolveAxis(value, rank, "transpose"));
    if (seen[size_t(axis)]) return Invalid("Operator transpose has axis ", axis, " twice in its permutation.");
    seen[size_t(axis)] = true;
    axes.push_back(axis);
  }
  return axes;
}

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "transpose", 2, 2));
  ASSIGN_OR_RETURN(std::vector<int> axes, Permutation(call));
  Shape shape;
  for (int axis : axes) shape.push_back(InputShape(call, 0)[axis]);
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(std::vector<int> axes, Permutation(call));
  const Strides own = RowMajorStrides(inputs[0].shape());
  Strides strides{};
  for (size_t i = 0; i < axes.size(); ++i) strides[i] = own[size_t(axes[i])];
  CopyStrided(inputs[0], 0, strides, outputs[0], 0, RowMajorStrides(outputs[0].shape()), outputs[0].shape());
  return {};
}

Result<Movement> MakeMovement(const OpCall& call) {
  ASSIGN_OR_RETURN(std::vector<int> axes, Permutation(call));
  Movement movement;
  movement.map.coords.resize(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) movement.map.coords[size_t(axes[i])] = IndexExpr::Axis(int(i));
  return movement;
}

}  // namespace

extern const OpDef op_transpose = {
    .name = "transpose", .infer = Infer, .reference = Reference, .movement = MakeMovement, .tflite = kNames};

}  // namespace leeway
