// arg_max, arg_min: index of the largest or smallest element along an axis; the first one where several are equal.
//   serial   one invocation per result; any shape, any target
#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"

namespace leeway {
namespace {

const char* const kArgMaxNames[] = {"ARG_MAX"};
const char* const kArgMinNames[] = {"ARG_MIN"};
const AttrField kAttrs[] = {
    {"output_type", std::string("i64"), "Type of the indices: i32 or i64 (a name, or a TensorType number)."}};

Result<int> Axis(const OpCall& call, const char* op) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, ConstantInts(call, op, 1, "axis"));
  if (axes.size() != 1) return Invalid("Operator ", op, " has ", axes.size(), " axes; it takes one.");
  return ResolveAxis(axes[0], InputShape(call, 0).rank(), op);
}

template <bool largest>
InferredTypes Infer(const OpCall& call) {
  const char* op = largest ? "arg_max" : "arg_min";
  RETURN_IF_ERROR(ExpectInputs(call, op, 2, 2));
  ASSIGN_OR_RETURN(int axis, Axis(call, op));
  ASSIGN_OR_RETURN(DType dtype, DTypeAttribute(call.attrs, "output_type", DType::kI64, op));
  if (dtype != DType::kI32 && dtype != DType::kI64) {
    return Invalid("Operator ", op, " has the output type ", DTypeName(dtype), "; it gives i32 or i64.");
  }
  const Shape& x = InputShape(call, 0);
  if (x[axis] == 0)
    return Invalid("Operator ", op, " has an input of shape ", x.ToString(), ", which is empty along axis ", axis, ".");
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) shape.push_back(x[i]);
  }
  return std::vector<TensorType>{{dtype, shape}};
}

template <bool largest>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(int axis, Axis(call, largest ? "arg_max" : "arg_min"));
  const Shape& shape = inputs[0].shape();
  int64_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  for (int64_t at = 0; at < outputs[0].element_count(); ++at) {
    const int64_t start = at / inner * shape[axis] * inner + at % inner;
    int64_t best = 0;
    double best_value = inputs[0].Get(start);
    for (int64_t i = 1; i < shape[axis]; ++i) {
      const double value = inputs[0].Get(start + i * inner);
      if (largest ? value > best_value : value < best_value) best = i, best_value = value;
    }
    outputs[0].Set(at, double(best));
  }
  return {};
}

constexpr char kSerial[] = R"(
tensor y[outer, inner] : write as i32;
const groups_per_row : u32;
const largest : bool;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  if (index >= y.outer * y.inner) { return; }
  let outer = index / y.inner;
  let inner = index % y.inner;
  var best = 0u;
  var best_value = x.load(outer, 0u, inner);
  for (var i = 1u; i < x.reduced; i++) {
    let value = x.load(outer, i, inner);
    if (largest) {
      if (value > best_value) {
        best = i;
        best_value = value;
      }
    } else {
      if (value < best_value) {
        best = i;
        best_value = value;
      }
    }
  }
  y.store(i32(best), outer, inner);
}
)";
constexpr auto kF32 = JoinTexts("tensor x[outer, reduced, inner] : read as f32;", kSerial);
constexpr auto kI32 = JoinTexts("tensor x[outer, reduced, inner] : read as i32;", kSerial);
constexpr auto kU32 = JoinTexts("tensor x[outer, reduced, inner] : read as u32;", kSerial);
constexpr TypedText kTexts = {kF32.data(), kI32.data(), kU32.data()};

template <bool largest>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(int axis, Axis(call, largest ? "arg_max" : "arg_min"));
  const Shape &x = InputShape(call, 0), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  Shape form{1, x[axis], 1};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) form[i < axis ? 0 : 2] *= x[i];
  }
  const Shape results{form[0], form[2]};
  KernelDispatch dispatch{
      .kernel_name = "arg_max_serial", .kernel_text = kTexts.For(call.inputs[0].type.dtype), .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, form, ReshapeMap(x, form)),
                      OutputArgument("y", 0, results, ReshapeMap(y, results))};
  dispatch.consts = {{"largest", double(largest)}};
  SetLinearGrid(dispatch, request, y.element_count());
  dispatch.flops = double(x.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

template <bool largest>
constexpr KernelVariant kVariant = {
    .name = "serial", .what = "one invocation per result", .accepts = AcceptAlways, .plan = Plan<largest>};
template <bool largest>
constexpr OpKernels kKernels = {.variants = {&kVariant<largest>, 1}};

}  // namespace

extern const OpDef op_arg_max = {.name = "arg_max",
                                 .attrs = kAttrs,
                                 .infer = Infer<true>,
                                 .reference = Reference<true>,
                                 .kernels = &kKernels<true>,
                                 .tflite = kArgMaxNames};
extern const OpDef op_arg_min = {.name = "arg_min",
                                 .attrs = kAttrs,
                                 .infer = Infer<false>,
                                 .reference = Reference<false>,
                                 .kernels = &kKernels<false>,
                                 .tflite = kArgMinNames};

}  // namespace leeway
