// softmax, log_softmax: over the last axis; softmax of beta * x.
//   tree     one workgroup per row, for long rows
//   serial   one invocation per row; any shape, any target
#include <algorithm>
#include <cmath>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kSoftmaxNames[] = {"SOFTMAX"};
const char* const kLogSoftmaxNames[] = {"LOG_SOFTMAX"};
const AttrField kSoftmaxAttrs[] = {{"beta", 1.0, "Factor before the exponent."}};

template <bool log>
InferredTypes Infer(const OpCall& call) {
  const char* op = log ? "log_softmax" : "softmax";
  RETURN_IF_ERROR(ExpectInputs(call, op, 1, 1));
  RETURN_IF_ERROR(ExpectFloat(call, op, 0));
  RETURN_IF_ERROR(ExpectRank(call, op, 0, 1, Shape::kMaxRank));
  return std::vector<TensorType>{call.inputs[0].type};
}

template <bool log>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const std::vector<float> x = inputs[0].ToF32();
  std::vector<float> y(x.size());
  const double beta = log ? 1.0 : call.attrs.GetFloat("beta", 1.0);
  const size_t columns = size_t(inputs[0].shape().at(-1));
  for (size_t start = 0; columns > 0 && start < x.size(); start += columns) {
    const float* row = &x[start];
    const double largest = *std::max_element(row, row + columns);
    double total = 0;
    for (size_t i = 0; i < columns; ++i) total += std::exp(beta * (row[i] - largest));
    for (size_t i = 0; i < columns; ++i) {
      const double exponent = beta * (row[i] - largest);
      y[start + i] = float(log ? exponent - std::log(total) : std::exp(exponent) / total);
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

constexpr std::string_view kSerial = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
const groups_per_row : u32;
const beta : f32;
const logarithm : bool;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let row = (group.y * groups_per_row + group.x) * 64u + lane;
  if (row >= x.row) { return; }
  let slices = (x.column + 3u) / 4u;
  var largest4 = vec4f(x.load(row, 0u));
  for (var s = 0u; s < slices; s++) { largest4 = max(largest4, keep4(x.load4(row, s), s, x.column, largest4.x)); }
  let largest = max4(largest4);
  var total4 = vec4f(0.0);
  for (var s = 0u; s < slices; s++) {
    total4 += keep4(exp(beta * (x.load4(row, s) - vec4f(largest))), s, x.column, 0.0);
  }
  let total = sum4(total4);
  for (var s = 0u; s < slices; s++) {
    let exponent = beta * (x.load4(row, s) - vec4f(largest));
    if (logarithm) {
      y.store4(exponent - vec4f(log(total)), row, s);
    } else {
      y.store4(exp(exponent) / total, row, s);
    }
  }
}
)";

constexpr std::string_view kTree = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
const groups_per_row : u32;
const beta : f32;
const logarithm : bool;
var<workgroup> partial : array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let row = group.y * groups_per_row + group.x;
  if (row >= x.row) { return; }
  let slices = (x.column + 3u) / 4u;
  var largest4 = vec4f(x.load(row, 0u));
  for (var s = lane; s < slices; s += 64u) { largest4 = max(largest4, keep4(x.load4(row, s), s, x.column, largest4.x)); }
  partial[lane] = max4(largest4);
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half / 2u) {
    if (lane < half) { partial[lane] = max(partial[lane], partial[lane + half]); }
    workgroupBarrier();
  }
  let largest = partial[0];
  workgroupBarrier();
  var total4 = vec4f(0.0);
  for (var s = lane; s < slices; s += 64u) {
    total4 += keep4(exp(beta * (x.load4(row, s) - vec4f(largest))), s, x.column, 0.0);
  }
  partial[lane] = sum4(total4);
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half / 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  let total = partial[0];
  for (var s = lane; s < slices; s += 64u) {
    let exponent = beta * (x.load4(row, s) - vec4f(largest));
    if (logarithm) {
      y.store4(exponent - vec4f(log(total)), row, s);
    } else {
      y.store4(exp(exponent) / total, row, s);
    }
  }
}
)";

template <bool log, bool tree>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape& shape = call.outputs[0].shape;
  OpPlan plan;
  if (shape.element_count() == 0) return plan;
  const Shape rows{shape.element_count() / shape.at(-1), shape.at(-1)};
  KernelDispatch dispatch{
      .kernel_name = tree ? "softmax_tree" : "softmax_serial", .kernel_text = tree ? kTree : kSerial, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, rows, ReshapeMap(shape, rows)),
                      OutputArgument("y", 0, rows, ReshapeMap(shape, rows))};
  dispatch.consts = {{"beta", log ? 1.0 : call.attrs.GetFloat("beta", 1.0)}, {"logarithm", double(log)}};
  if (tree) {
    SetGroupGrid(dispatch, request, rows[0]);
  } else {
    SetLinearGrid(dispatch, request, rows[0]);
  }
  dispatch.flops = 10.0 * double(shape.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

bool AcceptTree(const KernelRequest& request) {
  return !request.target.is_software && request.call.outputs[0].shape.at(-1) >= 64;
}

template <bool log>
constexpr KernelVariant kVariants[] = {
    {.name = "tree", .what = "one workgroup per row, for long rows", .accepts = AcceptTree, .plan = Plan<log, true>},
    {.name = "serial", .what = "one invocation per row", .accepts = AcceptAlways, .plan = Plan<log, false>},
};
template <bool log>
constexpr OpKernels kKernels = {.variants = kVariants<log>};

}  // namespace

extern const OpDef op_softmax = {.name = "softmax",
                                 .attrs = kSoftmaxAttrs,
                                 .infer = Infer<false>,
                                 .reference = Reference<false>,
                                 .kernels = &kKernels<false>,
                                 .tflite = kSoftmaxNames};
extern const OpDef op_log_softmax = {.name = "log_softmax",
                                     .infer = Infer<true>,
                                     .reference = Reference<true>,
                                     .kernels = &kKernels<true>,
                                     .tflite = kLogSoftmaxNames};

}  // namespace leeway
