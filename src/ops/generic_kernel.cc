// The one kernel behind operators without kernels of their own: a copy, y = x, one slice of four per invocation, over at most
// four axes. What makes it an operator is spliced into its accessors:
//   movement      the map of x
//   scatter       the map of y; one dispatch per input
//   elementwise   the function, where y is stored; its operands are read there
// Shapes of more than four axes are seen with their outermost axes merged, shapes of fewer with axes of extent 1 in front.
#include "ops/assemble.h"
#include "ops/copy_kernel.h"
#include "ops/dispatch.h"

namespace leeway {
namespace {

constexpr char kBody[] = R"(
const groups_per_row : u32;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.element + 3u) / 4u;
  if (index >= y.outer * y.row * y.column * slices) { return; }
  let slice = index % slices;
  let pixel = index / slices;
  let column = pixel % y.column;
  let row = pixel / y.column % y.row;
  let outer = pixel / (y.column * y.row);
  y.store4(x.load4(outer, row, column, slice), outer, row, column, slice);
}
)";
constexpr auto kF32 = JoinTexts(R"(
tensor x[outer, row, column, element] : read as f32;
tensor y[outer, row, column, element] : write as f32;)",
                                kBody);
constexpr auto kI32 = JoinTexts(R"(
tensor x[outer, row, column, element] : read as i32;
tensor y[outer, row, column, element] : write as i32;)",
                                kBody);
constexpr auto kU32 = JoinTexts(R"(
tensor x[outer, row, column, element] : read as u32;
tensor y[outer, row, column, element] : write as u32;)",
                                kBody);
constexpr TypedText kCopy = {kF32.data(), kI32.data(), kU32.data()};

constexpr int kAxes = 4;

// `shape` as four axes.
Shape Canonical(const Shape& shape) {
  Shape canonical{1, 1, 1, 1};
  for (int axis = 0; axis < shape.rank(); ++axis) { canonical[std::max(0, axis + kAxes - shape.rank())] *= shape[axis]; }
  return canonical;
}

// Reduces an argument of coordinates `shape` to the canonical ones.
Result<CoordMap> FromCanonical(const Shape& shape, const CoordMap& map) {
  CoordMap to_shape = ReshapeMap(shape, Canonical(shape));
  if (shape.rank() == 0) return Compose(CoordMap{.coords = std::vector<IndexExpr>(4)}, map);
  return Compose(to_shape, map);
}

}  // namespace

Status AddCopy(OpPlan& plan, const KernelRequest& request, const CopySpec& spec) {
  if (spec.shape.element_count() == 0) return {};
  const DType dtype = request.call.inputs[size_t(spec.input)].type.dtype;
  const Shape canonical = Canonical(spec.shape);
  KernelDispatch dispatch{
      .kernel_name = "copy", .kernel_text = kCopy.For(dtype), .stores_result = spec.output == 0, .own_steps = spec.own_steps};
  ASSIGN_OR_RETURN(CoordMap from, FromCanonical(spec.shape, spec.input_map));
  ASSIGN_OR_RETURN(CoordMap to, FromCanonical(spec.shape, spec.output_map));
  dispatch.tensors.push_back(InputArgument("x", spec.input, canonical, std::move(from)));
  dispatch.tensors.push_back(OutputArgument("y", spec.output, canonical, std::move(to)));
  SetLinearGrid(dispatch, request, canonical[0] * canonical[1] * canonical[2] * Slices(canonical[3]));
  plan.dispatches.push_back(std::move(dispatch));
  return {};
}

namespace {

// The input that is read by the kernel itself; the others are operands of the function. The first one of the output's shape.
Result<OpPlan> ElementwisePlan(const OpDef& op, const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape& shape = call.outputs[0].shape;
  int chained = -1;
  OwnStep step;
  for (int pass = 0; pass < 2 && chained < 0; ++pass) {
    for (size_t i = 0; i < call.inputs.size() && chained < 0; ++i) {
      if (pass == 0 && InputShape(call, i) != shape) continue;
      auto function = op.value_map(call, int(i));
      if (!function.ok()) continue;
      chained = int(i);
      step.function = std::move(function).value();
    }
  }
  if (chained < 0) {
    auto function = op.value_map(call, 0);
    return function.ok() ? Unsupported("Operator ", op.name, " has no input that its kernel could read.") : function.error();
  }
  for (int i = 0; i < int(call.inputs.size()); ++i) {
    if (i != chained) step.inputs.push_back(i);
  }
  ASSIGN_OR_RETURN(CoordMap map, BroadcastMap(InputShape(call, size_t(chained)), shape));
  OpPlan plan;
  CopySpec spec{.input = chained, .input_map = std::move(map), .shape = shape};
  spec.own_steps.push_back(std::move(step));
  RETURN_IF_ERROR(AddCopy(plan, request, spec));
  return plan;
}

Result<OpPlan> MovementPlan(const OpDef& op, const KernelRequest& request) {
  ASSIGN_OR_RETURN(Movement movement, op.movement(request.call));
  OpPlan plan;
  RETURN_IF_ERROR(AddCopy(
      plan, request, {.input = movement.source, .input_map = std::move(movement.map), .shape = request.call.outputs[0].shape}));
  return plan;
}

Result<OpPlan> ScatterPlan(const OpDef& op, const KernelRequest& request) {
  ASSIGN_OR_RETURN(Scatter scatter, op.scatter(request.call));
  OpPlan plan;
  for (size_t i = 0; i < scatter.places.size(); ++i) {
    RETURN_IF_ERROR(AddCopy(
        plan, request, {.input = int(i), .output_map = std::move(scatter.places[i]), .shape = InputShape(request.call, i)}));
  }
  return plan;
}

Result<OpPlan> PlanOfRequest(const KernelRequest& request) {
  if (request.op == nullptr) return Error{Code::kInternal, "A generic plan is asked for without its operator."};
  return GenericPlan(*request.op, request);
}

constexpr KernelVariant kGeneric = {.name = "generic",
                                    .what = "one copy with the operator spliced into its loads and stores",
                                    .accepts = [](const KernelRequest& request) { return PlanOfRequest(request).ok(); },
                                    .plan = PlanOfRequest};

}  // namespace

Result<OpPlan> GenericPlan(const OpDef& op, const KernelRequest& request) {
  if (op.value_map != nullptr) return ElementwisePlan(op, request);
  if (op.movement != nullptr) return MovementPlan(op, request);
  if (op.scatter != nullptr) return ScatterPlan(op, request);
  return Unsupported("Operator ", op.name, " is neither elementwise nor a movement.");
}

std::vector<const KernelVariant*> AcceptingVariants(const OpDef& op, const KernelRequest& given) {
  KernelRequest request = given;
  request.op = &op;
  std::vector<const KernelVariant*> accepting;
  if (op.kernels != nullptr) {
    for (const KernelVariant& variant : op.kernels->variants) {
      if (variant.accepts(request)) accepting.push_back(&variant);
    }
  }
  if (kGeneric.accepts(request)) accepting.push_back(&kGeneric);
  return accepting;
}

}  // namespace leeway
