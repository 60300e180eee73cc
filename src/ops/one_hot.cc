// one_hot: along a new axis of `depth`, the on value where the index of the axis is the input's element, else the off value.
//   direct   one invocation per element
#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"

namespace leeway {
namespace {

const char* const kNames[] = {"ONE_HOT"};
constexpr const char* kOp = "one_hot";
const AttrField kAttrs[] = {{"axis", int64_t{-1}, "Where the new axis goes; -1: last."}};

struct OneHot {
  Shape shape;
  int64_t inner = 1, depth = 0;  // elements after the new axis, and its extent
};

Result<OneHot> Canonical(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 4, 4));
  const Shape& indices = InputShape(call, 0);
  if (!IsInteger(call.inputs[0].type.dtype)) {
    return Invalid("Operator one_hot has indices of type ", DTypeName(call.inputs[0].type.dtype), "; it takes integers.");
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> depth, ConstantInts(call, kOp, 1, "depth"));
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis", -1), indices.rank() + 1, kOp));
  if (depth.size() != 1 || depth[0] < 0) return Invalid("Operator one_hot has depth [", Join(depth, ", "), "].");
  if (call.inputs[2].type.dtype != call.inputs[3].type.dtype || InputShape(call, 2).element_count() != 1 ||
      InputShape(call, 3).element_count() != 1) {
    return Invalid("Operator one_hot has the on value ", call.inputs[2].type.ToString(), " and the off value ",
                   call.inputs[3].type.ToString(), "; it takes two numbers of one type.");
  }
  std::vector<int64_t> extents(indices.begin(), indices.end());
  extents.insert(extents.begin() + axis, depth[0]);
  OneHot result{.depth = depth[0]};
  ASSIGN_OR_RETURN(result.shape, ShapeFrom(extents, kOp));
  for (int i = axis; i < indices.rank(); ++i) result.inner *= indices[i];
  return result;
}

InferredTypes Infer(const OpCall& call) {
  ASSIGN_OR_RETURN(OneHot one_hot, Canonical(call));
  return std::vector<TensorType>{{call.inputs[2].type.dtype, one_hot.shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(OneHot one_hot, Canonical(call));
  const std::vector<int64_t> indices = Ints(inputs[0]);
  const double on = inputs[2].Get(0), off = inputs[3].Get(0);
  for (int64_t at = 0; at < outputs[0].element_count(); ++at) {
    const int64_t inner = at % one_hot.inner, index = at / one_hot.inner % one_hot.depth,
                  outer = at / one_hot.inner / one_hot.depth;
    outputs[0].Set(at, indices[size_t(outer * one_hot.inner + inner)] == index ? on : off);
  }
  return {};
}

constexpr char kDirect[] = R"(
tensor indices[outer, inner] : read as i32;
const groups_per_row : u32;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let number = (group.y * groups_per_row + group.x) * 64u + lane;
  if (number >= y.outer * y.depth * y.inner) { return; }
  let inner = number % y.inner;
  let index = number / y.inner % y.depth;
  let outer = number / (y.inner * y.depth);
  if (indices.load(outer, inner) == i32(index)) {
    y.store(on.load(0u), outer, index, inner);
  } else {
    y.store(off.load(0u), outer, index, inner);
  }
}
)";
constexpr auto kF32 = JoinTexts(R"(
tensor on[one] : read as f32;
tensor off[one] : read as f32;
tensor y[outer, depth, inner] : write as f32;)",
                                kDirect);
constexpr auto kI32 = JoinTexts(R"(
tensor on[one] : read as i32;
tensor off[one] : read as i32;
tensor y[outer, depth, inner] : write as i32;)",
                                kDirect);
constexpr auto kU32 = JoinTexts(R"(
tensor on[one] : read as u32;
tensor off[one] : read as u32;
tensor y[outer, depth, inner] : write as u32;)",
                                kDirect);
constexpr TypedText kTexts = {kF32.data(), kI32.data(), kU32.data()};

Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(OneHot one_hot, Canonical(call));
  OpPlan plan;
  const int64_t count = one_hot.shape.element_count();
  if (count == 0) return plan;
  const Shape y{count / one_hot.depth / one_hot.inner, one_hot.depth, one_hot.inner}, indices{y[0], y[2]}, one{1};
  KernelDispatch dispatch{.kernel_name = "one_hot", .kernel_text = kTexts.For(call.outputs[0].dtype), .stores_result = true};
  dispatch.tensors = {InputArgument("indices", 0, indices, ReshapeMap(InputShape(call, 0), indices)),
                      InputArgument("on", 2, one, ReshapeMap(InputShape(call, 2), one)),
                      InputArgument("off", 3, one, ReshapeMap(InputShape(call, 3), one)),
                      OutputArgument("y", 0, y, ReshapeMap(one_hot.shape, y))};
  SetLinearGrid(dispatch, request, count);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "direct", .what = "one invocation per element", .accepts = AcceptAlways, .plan = PlanDirect},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_one_hot = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels, .tflite = kNames};

}  // namespace leeway
