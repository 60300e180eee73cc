// l2_normalization: each row of the last axis divided by its length.
// local_response_normalization: x / (bias + alpha * sum of squares of the channels within `radius`) ^ beta.
//   serial   l2: one invocation per row; local response: one invocation per element
#include <algorithm>
#include <cmath>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kL2Names[] = {"L2_NORMALIZATION"};
const char* const kLrnNames[] = {"LOCAL_RESPONSE_NORMALIZATION"};
const AttrField kLrnAttrs[] = {{"radius", int64_t{5}, "Channels to each side."},
                               {"bias", 1.0, "Added to the sum."},
                               {"alpha", 1.0, "Factor of the sum."},
                               {"beta", 0.5, "Exponent."}};

template <bool lrn>
InferredTypes Infer(const OpCall& call) {
  const char* op = lrn ? "local_response_normalization" : "l2_normalization";
  RETURN_IF_ERROR(ExpectInputs(call, op, 1, 1));
  RETURN_IF_ERROR(ExpectFloat(call, op, 0));
  RETURN_IF_ERROR(ExpectRank(call, op, 0, 1, Shape::kMaxRank));
  if (lrn && call.attrs.GetInt("radius", 5) < 0)
    return Invalid("Operator ", op, " has radius ", call.attrs.GetInt("radius", 5), ".");
  return std::vector<TensorType>{call.inputs[0].type};
}

Status L2Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  std::vector<float> x = inputs[0].ToF32();
  const size_t columns = size_t(inputs[0].shape().at(-1));
  for (size_t start = 0; columns > 0 && start < x.size(); start += columns) {
    double sum = 0;
    for (size_t i = 0; i < columns; ++i) sum += double(x[start + i]) * x[start + i];
    const double length = std::max(std::sqrt(sum), 1e-6);
    for (size_t i = 0; i < columns; ++i) x[start + i] = float(x[start + i] / length);
  }
  StoreF32(outputs[0], x);
  return {};
}

Status LrnReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const std::vector<float> x = inputs[0].ToF32();
  std::vector<float> y(x.size());
  const int64_t columns = inputs[0].shape().at(-1), radius = call.attrs.GetInt("radius", 5);
  const double bias = call.attrs.GetFloat("bias", 1), alpha = call.attrs.GetFloat("alpha", 1),
               beta = call.attrs.GetFloat("beta", 0.5);
  for (int64_t at = 0; at < int64_t(x.size()); ++at) {
    const int64_t column = at % columns, start = at - column;
    double sum = 0;
    for (int64_t i = std::max<int64_t>(column - radius, 0); i <= std::min(column + radius, columns - 1); ++i) {
      sum += double(x[size_t(start + i)]) * x[size_t(start + i)];
    }
    y[size_t(at)] = float(x[size_t(at)] / std::pow(bias + alpha * sum, beta));
  }
  StoreF32(outputs[0], y);
  return {};
}

constexpr std::string_view kL2Serial = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
const groups_per_row : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let row = (group.y * groups_per_row + group.x) * 64u + lane;
  if (row >= x.row) { return; }
  let slices = (x.column + 3u) / 4u;
  var total = vec4f(0.0);
  for (var s = 0u; s < slices; s++) {
    let v = x.load4(row, s);
    total += v * v;
  }
  let factor = 1.0 / max(sqrt(sum4(total)), 1e-6);
  for (var s = 0u; s < slices; s++) { y.store4(x.load4(row, s) * factor, row, s); }
}
)";

constexpr std::string_view kLrnSerial = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
const groups_per_row : u32;
const radius : u32;
const bias : f32;
const alpha : f32;
const beta : f32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  if (index >= x.row * x.column) { return; }
  let row = index / x.column;
  let column = index % x.column;
  var total = 0.0;
  for (var i = max(column, radius) - radius; i < x.column && i <= column + radius; i++) {
    let v = x.load(row, i);
    total += v * v;
  }
  y.store(x.load(row, column) * pow(bias + alpha * total, -beta), row, column);
}
)";

template <bool lrn>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape& shape = call.outputs[0].shape;
  OpPlan plan;
  if (shape.element_count() == 0) return plan;
  const Shape rows{shape.element_count() / shape.at(-1), shape.at(-1)};
  KernelDispatch dispatch{.kernel_name = lrn ? "local_response_normalization" : "l2_normalization",
                          .kernel_text = lrn ? kLrnSerial : kL2Serial,
                          .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, rows, ReshapeMap(shape, rows)),
                      OutputArgument("y", 0, rows, ReshapeMap(shape, rows))};
  if (lrn) {
    dispatch.consts = {{"radius", double(std::min(call.attrs.GetInt("radius", 5), rows[1]))},
                       {"bias", call.attrs.GetFloat("bias", 1)},
                       {"alpha", call.attrs.GetFloat("alpha", 1)},
                       {"beta", call.attrs.GetFloat("beta", 0.5)}};
  }
  SetLinearGrid(dispatch, request, lrn ? shape.element_count() : rows[0]);
  dispatch.flops = 4.0 * double(shape.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

template <bool lrn>
constexpr KernelVariant kSerialVariant = {.name = "serial",
                                          .what = lrn ? "one invocation per element" : "one invocation per row",
                                          .accepts = AcceptAlways,
                                          .plan = Plan<lrn>};
template <bool lrn>
constexpr OpKernels kKernels = {.variants = {&kSerialVariant<lrn>, 1}};

}  // namespace

extern const OpDef op_l2_normalization = {.name = "l2_normalization",
                                          .infer = Infer<false>,
                                          .reference = L2Reference,
                                          .kernels = &kKernels<false>,
                                          .tflite = kL2Names};
extern const OpDef op_local_response_normalization = {.name = "local_response_normalization",
                                                      .attrs = kLrnAttrs,
                                                      .infer = Infer<true>,
                                                      .reference = LrnReference,
                                                      .kernels = &kKernels<true>,
                                                      .tflite = kLrnNames};

}  // namespace leeway
