// rms_norm: y[row, c] = x[row, c] / sqrt(mean over c of x[row, c]^2 + epsilon) * gain[c]; rows are all axes but the last.
//   tree     lanes of a workgroup share a row; several short rows in a workgroup
//   serial   one invocation per row; any shape, any target
#include <algorithm>
#include <cmath>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/weights.h"

namespace leeway {
namespace {

constexpr const char* kOp = "rms_norm";
const AttrField kAttrs[] = {{"epsilon", 1e-6, "Added to the mean of the squares."}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 1, 2));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 1, Shape::kMaxRank));
  if (const double epsilon = call.attrs.GetFloat("epsilon", 1e-6); !(epsilon >= 0) || !std::isfinite(epsilon))
    return Invalid("Operator rms_norm has epsilon ", epsilon, "; it takes a number that is not negative.");
  if (HasInput(call, 1)) {
    RETURN_IF_ERROR(ExpectFloat(call, kOp, 1));
    const Shape &x = InputShape(call, 0), &gain = InputShape(call, 1);
    if (gain != Shape{x.at(-1)}) {
      return Invalid("Operator rms_norm has a gain of shape ", gain.ToString(), " for an input of shape ", x.ToString(),
                     "; it takes [", x.at(-1), "].");
    }
  }
  return std::vector<TensorType>{call.inputs[0].type};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  std::vector<float> x = inputs[0].ToF32();
  const size_t columns = size_t(inputs[0].shape().at(-1));
  const double epsilon = call.attrs.GetFloat("epsilon", 1e-6);
  const std::vector<float> gain = HasInput(call, 1) ? inputs[1].ToF32() : std::vector<float>(columns, 1.0f);
  for (size_t start = 0; columns > 0 && start < x.size(); start += columns) {
    double sum = 0;
    for (size_t i = 0; i < columns; ++i) sum += double(x[start + i]) * x[start + i];
    const double factor = 1.0 / std::sqrt(sum / double(columns) + epsilon);
    for (size_t i = 0; i < columns; ++i) x[start + i] = float(x[start + i] * factor * gain[i]);
  }
  StoreF32(outputs[0], x);
  return {};
}

constexpr std::string_view kSerial = R"(
tensor x[row, column] : read;
tensor gain[column] : read;
tensor y[row, column] : write;
const groups_per_row : u32;
const has_gain : bool;
const epsilon : f32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let row = (group.y * groups_per_row + group.x) * 64u + lane;
  if (row >= x.row) { return; }
  // The bound depends on the row, so that no compiler unrolls the loops: row < x.row.
  let slices = (x.column + 3u) / 4u + row / x.row;
  var squares = vec4f(0.0);
  for (var s = 0u; s < slices; s++) {
    let v = x.load4(row, s);
    squares += v * v;
  }
  let factor = 1.0 / sqrt(sum4(squares) / f32(x.column) + epsilon);
  for (var s = 0u; s < slices; s++) {
    var v = x.load4(row, s) * factor;
    if has_gain { v *= gain.load4(s); }
    y.store4(v, row, s);
  }
}
)";

constexpr std::string_view kTree = R"(
tensor x[row, column] : read;
tensor gain[column] : read;
tensor y[row, column] : write;
const groups_per_row : u32;
const has_gain : bool;
const epsilon : f32;
const lanes : u32;
const rows_per_group : u32;

@compute @workgroup_size(lanes, rows_per_group)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_id) id : vec3u) {
  let row = (group.y * groups_per_row + group.x) * rows_per_group + id.y;
  let slices = (x.column + 3u) / 4u;
  var squares = vec4f(0.0);
  if row < x.row {
    for (var s = id.x; s < slices; s += lanes) {
      let v = x.load4(row, s);
      squares += v * v;
    }
  }
  let total = unit_sum(sum4(squares));
  if row < x.row {
    let factor = 1.0 / sqrt(total / f32(x.column) + epsilon);
    for (var s = id.x; s < slices; s += lanes) {
      var v = x.load4(row, s) * factor;
      if has_gain { v *= gain.load4(s); }
      y.store4(v, row, s);
    }
  }
}
)";

template <bool tree>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape& shape = call.outputs[0].shape;
  OpPlan plan;
  if (shape.element_count() == 0) return plan;
  const Shape rows{shape.element_count() / shape.at(-1), shape.at(-1)};
  KernelDispatch dispatch{
      .kernel_name = tree ? "rms_norm_tree" : "rms_norm_serial", .kernel_text = tree ? kTree : kSerial, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, rows, ReshapeMap(shape, rows)),
                      OutputArgument("y", 0, rows, ReshapeMap(shape, rows))};
  const bool has_gain = HasInput(call, 1);
  if (has_gain) dispatch.tensors.push_back(InputArgument("gain", 1));
  dispatch.consts = {{"has_gain", double(has_gain)}, {"epsilon", call.attrs.GetFloat("epsilon", 1e-6)}};
  if (tree) {
    // A power of two of lanes for a row, each with at least one slice; the rest of a workgroup of 64 takes other rows.
    int64_t lanes = 8;
    while (lanes < 256 && lanes * 2 <= Slices(rows[1]) && lanes * 2 <= int64_t(request.target.max_invocations)) lanes *= 2;
    const int64_t rows_per_group = std::clamp<int64_t>(64 / lanes, 1, rows[0]);
    dispatch.consts["lanes"] = double(lanes);
    dispatch.consts["rows_per_group"] = double(rows_per_group);
    SetGroupGrid(dispatch, request, DivideUp(rows[0], rows_per_group));
  } else {
    SetLinearGrid(dispatch, request, rows[0]);
  }
  dispatch.flops = 4.0 * double(shape.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

bool AcceptTree(const KernelRequest& request) {
  return !request.target.is_software && request.call.outputs[0].shape.at(-1) >= 32;
}

constexpr KernelVariant kVariants[] = {
    {.name = "tree", .what = "lanes of a workgroup share a row", .accepts = AcceptTree, .plan = Plan<true>},
    {.name = "serial", .what = "one invocation per row", .accepts = AcceptAlways, .plan = Plan<false>},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_rms_norm = {.name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels};

}  // namespace leeway
