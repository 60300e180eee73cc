// cumsum: y[..., i, ...] = sum of x[..., 0..i, ...] along an axis; exclusive: without x[i] itself; reverse: from the other end.
//   serial   one invocation per row
#include "ops/assemble.h"
#include "ops/dispatch.h"
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

constexpr char kSerial[] = R"(
const groups_per_row : u32;
const exclusive : bool;
const reverse : bool;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  if (index >= y.outer * y.inner) { return; }
  let outer = index / y.inner;
  let inner = index % y.inner;
  var sum = Element(0);
  for (var k = 0u; k < x.extent; k++) {
    var i = k;
    if (reverse) { i = x.extent - 1u - k; }
    let value = x.load(outer, i, inner);
    if (exclusive) {
      y.store(sum, outer, i, inner);
    } else {
      y.store(sum + value, outer, i, inner);
    }
    sum += value;
  }
}
)";
constexpr auto kF32 = JoinTexts(R"(
tensor x[outer, extent, inner] : read as f32;
tensor y[outer, extent, inner] : write as f32;
alias Element = f32;)",
                                kSerial);
constexpr auto kI32 = JoinTexts(R"(
tensor x[outer, extent, inner] : read as i32;
tensor y[outer, extent, inner] : write as i32;
alias Element = i32;)",
                                kSerial);
constexpr auto kU32 = JoinTexts(R"(
tensor x[outer, extent, inner] : read as u32;
tensor y[outer, extent, inner] : write as u32;
alias Element = u32;)",
                                kSerial);
constexpr TypedText kTexts = {kF32.data(), kI32.data(), kU32.data()};

Result<OpPlan> PlanSerial(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(int axis, Axis(call));
  const Shape& x = InputShape(call, 0);
  OpPlan plan;
  if (x.element_count() == 0) return plan;
  Shape form{1, x[axis], 1};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) form[i < axis ? 0 : 2] *= x[i];
  }
  KernelDispatch dispatch{
      .kernel_name = "cumsum_serial", .kernel_text = kTexts.For(call.outputs[0].dtype), .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, form, ReshapeMap(x, form)), OutputArgument("y", 0, form, ReshapeMap(x, form))};
  dispatch.consts = {{"exclusive", double(call.attrs.GetBool("exclusive"))},
                     {"reverse", double(call.attrs.GetBool("reverse"))}};
  SetLinearGrid(dispatch, request, form[0] * form[2]);
  dispatch.flops = double(x.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "serial", .what = "one invocation per row", .accepts = AcceptAlways, .plan = PlanSerial},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_cumsum = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels, .tflite = kNames};

}  // namespace leeway
