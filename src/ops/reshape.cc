// reshape, squeeze, expand_dims: the same elements in the same order under other extents.
#include <algorithm>

#include "ops/assemble.h"
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kReshapeNames[] = {"RESHAPE"};
const char* const kSqueezeNames[] = {"SQUEEZE"};
const char* const kExpandDimsNames[] = {"EXPAND_DIMS"};
const AttrField kReshapeAttrs[] = {
    {"new_shape", std::vector<int64_t>{}, "Extents where input 1 is absent; one may be -1: what is left."}};
const AttrField kSqueezeAttrs[] = {{"squeeze_dims", std::vector<int64_t>{}, "Axes to drop; none: all of extent 1."}};
const AttrField kExpandDimsAttrs[] = {{"axis", int64_t{0}, "Where the new axis goes, when input 1 is absent."}};

InferredTypes InferReshape(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "reshape", 1, 2));
  std::vector<int64_t> extents = call.attrs.GetInts("new_shape");
  if (HasInput(call, 1)) {
    // Old files have a shape tensor of no meaning beside the attribute.
    const bool known = call.inputs[1].constant != nullptr;
    if (known || !call.attrs.Has("new_shape")) { ASSIGN_OR_RETURN(extents, ConstantInts(call, "reshape", 1, "shape")); }
  }
  const int64_t count = InputShape(call, 0).element_count();
  int64_t known = 1;
  auto open = extents.end();
  for (auto extent = extents.begin(); extent != extents.end(); ++extent) {
    if (*extent == -1 && open == extents.end()) {
      open = extent;
    } else if (*extent < 0) {
      return Invalid("Operator reshape has the shape [", Join(extents, ", "), "]; extents are not negative, but for one -1.");
    } else {
      known *= std::min<int64_t>(*extent, INT32_MAX);
      known = std::min<int64_t>(known, INT32_MAX);
    }
  }
  if (open != extents.end()) *open = known == 0 ? 0 : count / known;
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, "reshape"));
  if (shape.element_count() != count) {
    return Invalid("Operator reshape turns ", InputShape(call, 0).ToString(), " into ", shape.ToString(),
                   ", which has another number of elements.");
  }
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

InferredTypes InferSqueeze(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "squeeze", 1, 1));
  const Shape& from = InputShape(call, 0);
  std::vector<bool> drop(size_t(from.rank()), false);
  const std::vector<int64_t> axes = call.attrs.GetInts("squeeze_dims");
  for (int64_t given : axes) {
    ASSIGN_OR_RETURN(int axis, ResolveAxis(given, from.rank(), "squeeze"));
    if (from[axis] != 1)
      return Invalid("Operator squeeze drops axis ", axis, " of ", from.ToString(), "; its extent must be 1.");
    drop[size_t(axis)] = true;
  }
  Shape shape;
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (!(drop[size_t(axis)] || (axes.empty() && from[axis] == 1))) shape.push_back(from[axis]);
  }
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

InferredTypes InferExpandDims(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "expand_dims", 1, 2));
  std::vector<int64_t> axes{call.attrs.GetInt("axis", 0)};
  if (HasInput(call, 1)) { ASSIGN_OR_RETURN(axes, ConstantInts(call, "expand_dims", 1, "axis")); }
  if (axes.size() != 1) return Invalid("Operator expand_dims has ", axes.size(), " axes; it takes one.");
  const Shape& from = InputShape(call, 0);
  ASSIGN_OR_RETURN(int axis, ResolveAxis(axes[0], from.rank() + 1, "expand_dims"));
  std::vector<int64_t> extents(from.begin(), from.end());
  extents.insert(extents.begin() + axis, 1);
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, "expand_dims"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  outputs[0] = inputs[0].Reshaped(outputs[0].shape());
  return {};
}

Result<Movement> MakeMovement(const OpCall& call) {
  return Movement{.source = 0, .map = ReshapeMap(InputShape(call, 0), call.outputs[0].shape)};
}

}  // namespace

extern const OpDef op_reshape = {.name = "reshape",
                                 .attrs = kReshapeAttrs,
                                 .infer = InferReshape,
                                 .reference = Reference,
                                 .movement = MakeMovement,
                                 .is_reshape = true,
                                 .tflite = kReshapeNames};
extern const OpDef op_squeeze = {.name = "squeeze",
                                 .attrs = kSqueezeAttrs,
                                 .infer = InferSqueeze,
                                 .reference = Reference,
                                 .movement = MakeMovement,
                                 .is_reshape = true,
                                 .tflite = kSqueezeNames};
extern const OpDef op_expand_dims = {.name = "expand_dims",
                                     .attrs = kExpandDimsAttrs,
                                     .infer = InferExpandDims,
                                     .reference = Reference,
                                     .movement = MakeMovement,
                                     .is_reshape = true,
                                     .tflite = kExpandDimsNames};

}  // namespace leeway
