// broadcast_to, tile, fill: the input repeated.
#include "ops/assemble.h"
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kBroadcastToNames[] = {"BROADCAST_TO"};
const char* const kTileNames[] = {"TILE"};
const char* const kFillNames[] = {"FILL"};

InferredTypes InferBroadcastTo(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "broadcast_to", 2, 2));
  ASSIGN_OR_RETURN(std::vector<int64_t> extents, ConstantInts(call, "broadcast_to", 1, "shape"));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, "broadcast_to"));
  ASSIGN_OR_RETURN(Shape common, BroadcastShapes(InputShape(call, 0), shape, "broadcast_to"));
  if (common != shape) {
    return Invalid("Operator broadcast_to has an input of shape ", InputShape(call, 0).ToString(),
                   ", which does not broadcast to ", shape.ToString(), ".");
  }
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

// Inputs of FILL: shape, value.
InferredTypes InferFill(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "fill", 2, 2));
  ASSIGN_OR_RETURN(std::vector<int64_t> extents, ConstantInts(call, "fill", 0, "shape"));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, "fill"));
  if (InputShape(call, 1).element_count() != 1) {
    return Invalid("Operator fill has a value of shape ", InputShape(call, 1).ToString(), "; it takes one number.");
  }
  return std::vector<TensorType>{{call.inputs[1].type.dtype, shape}};
}

template <int source>
Status BroadcastReference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape& shape = outputs[0].shape();
  const Strides strides = source == 1 ? Strides{} : BroadcastStrides(inputs[source].shape(), shape);
  CopyStrided(inputs[source], 0, strides, outputs[0], 0, RowMajorStrides(shape), shape);
  return {};
}

Result<Movement> BroadcastMovement(const OpCall& call) {
  ASSIGN_OR_RETURN(CoordMap map, BroadcastMap(InputShape(call, 0), call.outputs[0].shape));
  return Movement{.source = 0, .map = std::move(map)};
}

Result<Movement> FillMovement(const OpCall& call) {
  return Movement{.source = 1,
                  .map = {.coords = std::vector<IndexExpr>(size_t(InputShape(call, 1).rank()), IndexExpr::Const(0))}};
}

InferredTypes InferTile(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "tile", 2, 2));
  ASSIGN_OR_RETURN(std::vector<int64_t> times, ConstantInts(call, "tile", 1, "multiples"));
  const Shape& from = InputShape(call, 0);
  if (int(times.size()) != from.rank()) {
    return Invalid("Operator tile has ", times.size(), " multiples for an input of shape ", from.ToString(), ".");
  }
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 0 || times[i] > INT32_MAX) return Invalid("Operator tile has the multiple ", times[i], " on axis ", i, ".");
    times[i] *= from[int(i)];
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(times, "tile"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status TileReference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape &from = inputs[0].shape(), &to = outputs[0].shape();
  if (to.element_count() == 0) return {};
  const Strides own = RowMajorStrides(from), strides = RowMajorStrides(to);
  // One copy of the input for each position of its first element.
  Shape times;
  Strides jumps{};
  for (int axis = 0; axis < from.rank(); ++axis) {
    times.push_back(to[axis] / from[axis]);
    jumps[size_t(axis)] = strides[size_t(axis)] * from[axis];
  }
  ForEachOffset<1>(times, {jumps}, {0},
                   [&](const std::array<int64_t, 1>& at) { CopyStrided(inputs[0], 0, own, outputs[0], at[0], strides, from); });
  return {};
}

Result<Movement> TileMovement(const OpCall& call) {
  const Shape& from = InputShape(call, 0);
  Movement movement;
  for (int axis = 0; axis < from.rank(); ++axis) {
    movement.map.coords.push_back(from[axis] == 0 ? IndexExpr::Const(0) : Mod(IndexExpr::Axis(axis), from[axis]));
  }
  return movement;
}

}  // namespace

extern const OpDef op_broadcast_to = {.name = "broadcast_to",
                                      .infer = InferBroadcastTo,
                                      .reference = BroadcastReference<0>,
                                      .movement = BroadcastMovement,
                                      .tflite = kBroadcastToNames};
extern const OpDef op_fill = {
    .name = "fill", .infer = InferFill, .reference = BroadcastReference<1>, .movement = FillMovement, .tflite = kFillNames};
extern const OpDef op_tile = {
    .name = "tile", .infer = InferTile, .reference = TileReference, .movement = TileMovement, .tflite = kTileNames};

}  // namespace leeway
