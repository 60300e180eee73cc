// fully_connected: y[row, o] = bias[o] + sum over i of x[row, i] * w[o, i]; the input's leading axes are rows.
//   tree     one workgroup per row and slice of four outputs, which share the inner sum; for few rows
//   direct   one invocation per row and slice of four outputs; any shape, any target
#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"FULLY_CONNECTED"};
constexpr const char* kOp = "fully_connected";
const AttrField kAttrs[] = {{"weights_format", int64_t{0}, "0: rows of weights as they are; others are refused."},
                            {"keep_num_dims", false, "The result keeps the input's leading axes."}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 3));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 1));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 1, 2, 2));
  if (call.attrs.GetInt("weights_format") != 0) {
    return Unsupported("Operator fully_connected has weights_format ", call.attrs.GetInt("weights_format"),
                       "; only 0 (as they are) is supported.");
  }
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1);
  const int64_t count = x.element_count();
  const bool keep = call.attrs.GetBool("keep_num_dims");
  if (w[1] == 0 || count % w[1] != 0 || (keep && (x.rank() == 0 || x.at(-1) != w[1]))) {
    return Invalid("Operator fully_connected has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; the input must be whole rows of the weights' last extent.");
  }
  RETURN_IF_ERROR(ExpectBias(call, kOp, 2, w[0]));
  std::vector<int64_t> extents{count / w[1], w[0]};
  if (keep) {
    extents.assign(x.begin(), x.end());
    extents.back() = w[0];
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const std::vector<float> x = inputs[0].ToF32(), w = inputs[1].ToF32();
  const int64_t outs = inputs[1].shape()[0], depth = inputs[1].shape()[1], rows = int64_t(x.size()) / depth;
  const std::vector<double> bias = BiasOrZeros(call, inputs, 2, outs);
  std::vector<float> y(size_t(rows * outs));
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = &x[size_t(row * depth)];
    for (int64_t o = 0; o < outs; ++o) {
      const float* factors = &w[size_t(o * depth)];
      double sums[4] = {bias[size_t(o)], 0, 0, 0};
      int64_t i = 0;
      for (; i + 4 <= depth; i += 4) {
        for (int64_t k = 0; k < 4; ++k) sums[k] += double(from[i + k]) * factors[i + k];
      }
      for (; i < depth; ++i) sums[0] += double(from[i]) * factors[i];
      y[size_t(row * outs + o)] = float(sums[0] + sums[1] + sums[2] + sums[3]);
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

constexpr std::string_view kDirect = R"(
tensor x[row, inner] : read;
weights w[inner, output];
weights bias[output];
tensor y[row, output] : write;
const groups_per_row : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.output + 3u) / 4u;
  if (index >= y.row * slices) { return; }
  let slice = index % slices;
  let row = index / slices;
  var sum = bias.load4(slice);
  let inner_slices = (x.inner + 3u) / 4u;
  for (var s = 0u; s < inner_slices; s++) {
    let v = x.load4(row, s);
    sum += w.load4(4u * s, slice) * v.x + w.load4(4u * s + 1u, slice) * v.y + w.load4(4u * s + 2u, slice) * v.z +
           w.load4(4u * s + 3u, slice) * v.w;
  }
  y.store4(sum, row, slice);
}
)";

constexpr std::string_view kTree = R"(
tensor x[row, inner] : read;
weights w[inner, output];
weights bias[output];
tensor y[row, output] : write;
const groups_per_row : u32;
var<workgroup> partial : array<vec4f, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = group.y * groups_per_row + group.x;
  let slices = (y.output + 3u) / 4u;
  if (index >= y.row * slices) { return; }
  let slice = index % slices;
  let row = index / slices;
  var sum = vec4f(0.0);
  let inner_slices = (x.inner + 3u) / 4u;
  for (var s = lane; s < inner_slices; s += 64u) {
    let v = x.load4(row, s);
    sum += w.load4(4u * s, slice) * v.x + w.load4(4u * s + 1u, slice) * v.y + w.load4(4u * s + 2u, slice) * v.z +
           w.load4(4u * s + 3u, slice) * v.w;
  }
  partial[lane] = sum;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half / 2u) {
    if (lane < half) { partial[lane] += partial[lane + half]; }
    workgroupBarrier();
  }
  if (lane == 0u) { y.store4(partial[0] + bias.load4(slice), row, slice); }
}
)";

template <bool tree>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  const Shape rows{x.element_count() / w[1], w[1]}, results{rows[0], w[0]};
  KernelDispatch dispatch{.kernel_name = tree ? "fully_connected_tree" : "fully_connected_direct",
                          .kernel_text = tree ? kTree : kDirect,
                          .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, rows, ReshapeMap(x, rows)),
                      OutputArgument("y", 0, results, ReshapeMap(y, results))};
  CoordMap map{.coords = {IndexExpr::Axis(1), IndexExpr::Axis(0)}};
  if (w[1] % 4 != 0) map.inside = Less(IndexExpr::Axis(0), IndexExpr::Const(w[1]));
  AddWeights(plan, dispatch, request, "w", 1, Shape{4 * Slices(w[1]), w[0]}, std::move(map));
  AddBias(plan, dispatch, request, "bias", 2, 1, w[0]);
  if (tree) {
    SetGroupGrid(dispatch, request, rows[0] * Slices(w[0]));
  } else {
    SetLinearGrid(dispatch, request, rows[0] * Slices(w[0]));
  }
  dispatch.flops = 2.0 * double(rows[0]) * double(w.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

bool AcceptTree(const KernelRequest& request) {
  const Shape& w = InputShape(request.call, 1);
  return !request.target.is_software && w[1] >= 128 && request.call.outputs[0].shape.element_count() <= 16384;
}

constexpr KernelVariant kVariants[] = {
    {.name = "tree",
     .what = "one workgroup per row and slice of outputs, for few rows",
     .accepts = AcceptTree,
     .plan = Plan<true>},
    {.name = "direct", .what = "one invocation per row and slice of outputs", .accepts = AcceptAlways, .plan = Plan<false>},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_fully_connected = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels, .tflite = kNames};

}  // namespace leeway
