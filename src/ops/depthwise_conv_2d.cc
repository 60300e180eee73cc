// depthwise_conv_2d: output channel o reads input channel o / multiplier only; weights are [1, ky, kx, o].
//   direct   one invocation per slice of four channels of one pixel, since small outputs leave most of a GPU idle; any shape,
//            any target
//   inner    software devices, no multiplier: four pixels per invocation share the weights, and blocks whose windows lie
//            inside load without conditions
//   wide     OpenCL on CPUs, whole eights of channels: a pixel and up to 32 channels by loops over eight neighbouring numbers
//   rolled   WGSL on software devices: as inner, but one loop with conditions for all windows, since SwiftShader compiles for
//   as
//            long as a text has loads
#include <algorithm>

#include "ops/assemble.h"
#include "ops/conv_shape.h"
#include "ops/cpu_target.h"
#include "ops/dispatch.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"DEPTHWISE_CONV_2D"};
constexpr const char* kOp = "depthwise_conv_2d";

Result<ConvAxes> Windows(const OpCall& call) {
  const Shape& w = InputShape(call, 1);
  return ConvWindows(call, kOp, InputShape(call, 0), w[1], w[2]);
}

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 3));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 1));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 4, 4));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 1, 4, 4));
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1);
  if (w[0] != 1 || x[3] == 0 || w[3] % x[3] != 0) {
    return Invalid("Operator depthwise_conv_2d has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; the weights' first extent must be 1 and their last a multiple of the input's channels.");
  }
  RETURN_IF_ERROR(ExpectBias(call, kOp, 2, w[3]));
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], axes.y.output, axes.x.output, w[3]}, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape& shape = inputs[0].shape();
  const std::vector<float> x = inputs[0].ToF32(), w = inputs[1].ToF32();
  const int64_t channels = shape[3], outs = inputs[1].shape()[3], multiplier = outs / channels;
  const std::vector<double> bias = BiasOrZeros(call, inputs, 2, outs);
  std::vector<float> y(size_t(outputs[0].element_count()));
  std::vector<double> sums(static_cast<size_t>(outs));
  float* to = y.data();
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t row = 0; row < axes.y.output; ++row) {
      for (int64_t column = 0; column < axes.x.output; ++column, to += outs) {
        std::copy(bias.begin(), bias.end(), sums.begin());
        for (int64_t ky = 0; ky < axes.y.kernel; ++ky) {
          const int64_t iy = row * axes.y.stride - axes.y.before + ky * axes.y.dilation;
          if (iy < 0 || iy >= shape[1]) continue;
          for (int64_t kx = 0; kx < axes.x.kernel; ++kx) {
            const int64_t ix = column * axes.x.stride - axes.x.before + kx * axes.x.dilation;
            if (ix < 0 || ix >= shape[2]) continue;
            const float* from = &x[size_t(((n * shape[1] + iy) * shape[2] + ix) * channels)];
            const float* factors = &w[size_t((ky * axes.x.kernel + kx) * outs)];
            if (multiplier == 1) {
              for (int64_t o = 0; o < outs; ++o) sums[size_t(o)] += double(from[o]) * factors[o];
            } else {
              for (int64_t o = 0; o < outs; ++o) sums[size_t(o)] += double(from[o / multiplier]) * factors[o];
            }
          }
        }
        std::transform(sums.begin(), sums.end(), to, [](double sum) { return float(sum); });
      }
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

constexpr std::string_view kInner = R"(
tensor x[batch, row, column, channel] : read;
weights w[tap_row, tap_column, output];
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const stride_y : i32;
const stride_x : i32;
const dilation_y : i32;
const dilation_x : i32;
const before_y : i32;
const before_x : i32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  let blocks = (y.column + 3u) / 4u;
  if (index >= y.batch * y.row * blocks * slices) { return; }
  let slice = index % slices;
  let column = index / slices % blocks * 4u;
  let row = index / (slices * blocks) % y.row;
  let batch = index / (slices * blocks * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  let bottom = top + i32(w.tap_row - 1u) * dilation_y;
  let right = left + i32(w.tap_column - 1u) * dilation_x + 3 * stride_x;
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents into texts that take it minutes and gigabytes.
  let zero = index >> 31u;
  var sum0 = bias.load4(slice);
  var sum1 = sum0;
  var sum2 = sum0;
  var sum3 = sum0;
  if (top >= 0 && left >= 0 && bottom < i32(x.row) && right < i32(x.column)) {
    // All windows of the block lie inside: no load needs a condition.
    for (var ky = 0u; ky < w.tap_row + zero; ky++) {
      let iy = u32(top + i32(ky) * dilation_y);
      for (var kx = 0u; kx < w.tap_column + zero; kx++) {
        let ix = left + i32(kx) * dilation_x;
        let factor = w.load4(ky, kx, slice);
        sum0 += factor * x.load4(batch, iy, u32(ix), slice);
        sum1 += factor * x.load4(batch, iy, u32(ix + stride_x), slice);
        sum2 += factor * x.load4(batch, iy, u32(ix + 2 * stride_x), slice);
        sum3 += factor * x.load4(batch, iy, u32(ix + 3 * stride_x), slice);
      }
    }
  } else {
    for (var ky = 0u; ky < w.tap_row + zero; ky++) {
      let iy = top + i32(ky) * dilation_y;
      if (iy < 0 || iy >= i32(x.row)) { continue; }
      for (var kx = 0u; kx < w.tap_column + zero; kx++) {
        let ix = left + i32(kx) * dilation_x;
        let factor = w.load4(ky, kx, slice);
        sum0 += factor * x.load4_or_zero(batch, iy, ix, slice);
        sum1 += factor * x.load4_or_zero(batch, iy, ix + stride_x, slice);
        sum2 += factor * x.load4_or_zero(batch, iy, ix + 2 * stride_x, slice);
        sum3 += factor * x.load4_or_zero(batch, iy, ix + 3 * stride_x, slice);
      }
    }
  }
  y.store4(sum0, batch, row, column, slice);
  if (column + 1u < y.column) { y.store4(sum1, batch, row, column + 1u, slice); }
  if (column + 2u < y.column) { y.store4(sum2, batch, row, column + 2u, slice); }
  if (column + 3u < y.column) { y.store4(sum3, batch, row, column + 3u, slice); }
}
)";

constexpr std::string_view kRolled = R"(
tensor x[batch, row, column, channel] : read;
weights w[tap_row, tap_column, output];
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const stride_y : i32;
const stride_x : i32;
const dilation_y : i32;
const dilation_x : i32;
const before_y : i32;
const before_x : i32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  let blocks = (y.column + 3u) / 4u;
  if (index >= y.batch * y.row * blocks * slices) { return; }
  let slice = index % slices;
  let column = index / slices % blocks * 4u;
  let row = index / (slices * blocks) % y.row;
  let batch = index / (slices * blocks * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents into texts that take it minutes and gigabytes.
  let zero = index >> 31u;
  var sum0 = bias.load4(slice);
  var sum1 = sum0;
  var sum2 = sum0;
  var sum3 = sum0;
  for (var ky = 0u; ky < w.tap_row + zero; ky++) {
    let iy = top + i32(ky) * dilation_y;
    if (iy < 0 || iy >= i32(x.row)) { continue; }
    for (var kx = 0u; kx < w.tap_column + zero; kx++) {
      let ix = left + i32(kx) * dilation_x;
      let factor = w.load4(ky, kx, slice);
      sum0 += factor * x.load4_or_zero(batch, iy, ix, slice);
      sum1 += factor * x.load4_or_zero(batch, iy, ix + stride_x, slice);
      sum2 += factor * x.load4_or_zero(batch, iy, ix + 2 * stride_x, slice);
      sum3 += factor * x.load4_or_zero(batch, iy, ix + 3 * stride_x, slice);
    }
  }
  y.store4(sum0, batch, row, column, slice);
  if (column + 1u < y.column) { y.store4(sum1, batch, row, column + 1u, slice); }
  if (column + 2u < y.column) { y.store4(sum2, batch, row, column + 2u, slice); }
  if (column + 3u < y.column) { y.store4(sum3, batch, row, column + 3u, slice); }
}
)";

// Numbers instead of vectors, for the reason that conv_panels.cc gives. A pixel by up to 32 channels has enough sums to keep a
// core's multipliers busy, and its taps are cut at the border once, not asked one by one.
constexpr std::string_view kWide = R"(
// Eights of channels are the elements of one long axis, so that a compiler sees that eight numbers lie side by side.
tensor x[eight, one] : read;   // eight: ((batch * rows + row) * columns + column) * eights + channel / 8
weights w[eight, one];         // eight: (tap row * tap columns + tap column) * eights + channel / 8
weights bias[eight, one];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const stride_y : i32;
const stride_x : i32;
const dilation_y : i32;
const dilation_x : i32;
const before_y : i32;
const before_x : i32;
const rows : i32;  // of x
const columns : i32;
const tap_rows : i32;
const tap_columns : i32;
const eights : u32;           // of a pixel
const eights_per_lane : u32;  // 1 to 4

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 16u + lane;
  let lanes = (eights + eights_per_lane - 1u) / eights_per_lane;
  if (index >= y.batch * y.row * y.column * lanes) { return; }
  let own = index % lanes * eights_per_lane;
  let eight = min(own, eights - eights_per_lane);  // the last lane does some of its neighbour's again, and does not store them
  let column = index / lanes % y.column;
  let row = index / (lanes * y.column) % y.row;
  let batch = index / (lanes * y.column * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  let first_y = max(dilation_y - 1 - top, 0) / dilation_y;
  let first_x = max(dilation_x - 1 - left, 0) / dilation_x;
  let end_y = min(max(rows - top + dilation_y - 1, 0) / dilation_y, tap_rows);
  let end_x = min(max(columns - left + dilation_x - 1, 0) / dilation_x, tap_columns);
  var s0 : array<f32, 8>;
  var s1 : array<f32, 8>;
  var s2 : array<f32, 8>;
  var s3 : array<f32, 8>;
  for (var j = 0u; j < 8u; j++) { s0[j] = bias.load(eight, j); }
  if (eights_per_lane > 1u) {
    for (var j = 0u; j < 8u; j++) { s1[j] = bias.load(eight + 1u, j); }
  }
  if (eights_per_lane > 2u) {
    for (var j = 0u; j < 8u; j++) { s2[j] = bias.load(eight + 2u, j); }
  }
  if (eights_per_lane > 3u) {
    for (var j = 0u; j < 8u; j++) { s3[j] = bias.load(eight + 3u, j); }
  }
  for (var ky = first_y; ky < end_y; ky++) {
    var at = ((batch * u32(rows) + u32(top + ky * dilation_y)) * u32(columns) + u32(left + first_x * dilation_x)) * eights + eight;
    var tap = u32(ky * tap_columns + first_x) * eights + eight;
    for (var kx = first_x; kx < end_x; kx++) {
      for (var j = 0u; j < 8u; j++) { s0[j] += w.load(tap, j) * x.load(at, j); }
      if (eights_per_lane > 1u) {
        for (var j = 0u; j < 8u; j++) { s1[j] += w.load(tap + 1u, j) * x.load(at + 1u, j); }
      }
      if (eights_per_lane > 2u) {
        for (var j = 0u; j < 8u; j++) { s2[j] += w.load(tap + 2u, j) * x.load(at + 2u, j); }
      }
      if (eights_per_lane > 3u) {
        for (var j = 0u; j < 8u; j++) { s3[j] += w.load(tap + 3u, j) * x.load(at + 3u, j); }
      }
      at += u32(dilation_x) * eights;
      tap += eights;
    }
  }
  var sums : array<vec4f, 8>;
  for (var h = 0u; h < 2u; h++) {
    sums[h] = vec4f(s0[4u * h], s0[4u * h + 1u], s0[4u * h + 2u], s0[4u * h + 3u]);
    sums[2u + h] = vec4f(s1[4u * h], s1[4u * h + 1u], s1[4u * h + 2u], s1[4u * h + 3u]);
    sums[4u + h] = vec4f(s2[4u * h], s2[4u * h + 1u], s2[4u * h + 2u], s2[4u * h + 3u]);
    sums[6u + h] = vec4f(s3[4u * h], s3[4u * h + 1u], s3[4u * h + 2u], s3[4u * h + 3u]);
  }
  // By a loop, so that the text of a fused operator is there once.
  for (var s = 2u * (own - eight); s < 2u * eights_per_lane; s++) { y.store4(sums[s], batch, row, column, 2u * eight + s); }
}
)";

constexpr std::string_view kDirect = R"(
tensor x[batch, row, column, channel] : read;
weights w[tap_row, tap_column, output];
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const stride_y : i32;
const stride_x : i32;
const dilation_y : i32;
const dilation_x : i32;
const before_y : i32;
const before_x : i32;
const multiplier : u32;
const keep_loops : bool;  // hides the bounds of the loops from the target's compiler

// The inputs of the output channels of a slice.
fn inputs(batch : u32, iy : i32, ix : i32, slice : u32) -> vec4f {
  if (multiplier == 1u) {
    return x.load4_or_zero(batch, iy, ix, slice);
  } else {
    return vec4f(x.load_or_zero(batch, iy, ix, 4u * slice / multiplier), x.load_or_zero(batch, iy, ix, (4u * slice + 1u) / multiplier),
                 x.load_or_zero(batch, iy, ix, (4u * slice + 2u) / multiplier), x.load_or_zero(batch, iy, ix, (4u * slice + 3u) / multiplier));
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  if (index >= y.batch * y.row * y.column * slices) { return; }
  let slice = index % slices;
  let column = index / slices % y.column;
  let row = index / (slices * y.column) % y.row;
  let batch = index / (slices * y.column * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  var zero = 0u;
  if (keep_loops) { zero = index >> 31u; }
  var sum = bias.load4(slice);
  for (var ky = 0u; ky < w.tap_row + zero; ky++) {
    for (var kx = 0u; kx < w.tap_column + zero; kx++) {
      sum += w.load4(ky, kx, slice) * inputs(batch, top + i32(ky) * dilation_y, left + i32(kx) * dilation_x, slice);
    }
  }
  y.store4(sum, batch, row, column, slice);
}
)";

enum class Form { kDirect, kInner, kWide, kRolled };

template <Form form>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = "depthwise_conv_2d_direct", .kernel_text = kDirect, .stores_result = true};
  if (form == Form::kRolled) dispatch.kernel_name = "depthwise_conv_2d_rolled", dispatch.kernel_text = kRolled;
  if (form == Form::kInner) dispatch.kernel_name = "depthwise_conv_2d_inner", dispatch.kernel_text = kInner;
  if (form == Form::kWide) dispatch.kernel_name = "depthwise_conv_2d_wide", dispatch.kernel_text = kWide;
  dispatch.tensors = {InputArgument("x", 0), OutputArgument("y", 0)};
  if (form == Form::kWide) {
    const Shape eights{x.element_count() / 8, 8}, packed{w.element_count() / 8, 8}, bias{w[3] / 8, 8};
    dispatch.tensors[0] = InputArgument("x", 0, eights, ReshapeMap(x, eights));
    AddWeights(plan, dispatch, request, "w", 1, packed, ReshapeMap(w, packed));
    AddBias(plan, dispatch, request, "bias", 2, 1, bias);
  } else {
    const Shape packed{w[1], w[2], w[3]};
    AddWeights(plan, dispatch, request, "w", 1, packed, ReshapeMap(w, packed));
    AddBias(plan, dispatch, request, "bias", 2, 1, y[3]);
  }
  dispatch.consts = {{"stride_y", double(axes.y.stride)},     {"stride_x", double(axes.x.stride)},
                     {"dilation_y", double(axes.y.dilation)}, {"dilation_x", double(axes.x.dilation)},
                     {"before_y", double(axes.y.before)},     {"before_x", double(axes.x.before)}};
  if (form == Form::kDirect) {
    dispatch.consts["multiplier"] = double(y[3] / x[3]);
    // Mesa unrolls loops over constant extents without measure; a GPU's compiler gains by knowing them.
    dispatch.consts["keep_loops"] = double(request.target.is_software);
  }
  if (form == Form::kWide) {
    const int64_t eights = y[3] / 8;
    int64_t per_lane = std::min<int64_t>(eights, 4);  // with the least done twice
    for (int64_t fewer : {3, 2}) {
      if (fewer < per_lane && DivideUp(eights, fewer) * fewer < DivideUp(eights, per_lane) * per_lane) per_lane = fewer;
    }
    dispatch.consts["rows"] = double(x[1]);
    dispatch.consts["columns"] = double(x[2]);
    dispatch.consts["tap_rows"] = double(w[1]);
    dispatch.consts["tap_columns"] = double(w[2]);
    dispatch.consts["eights"] = double(eights);
    dispatch.consts["eights_per_lane"] = double(per_lane);
    SetGroupGrid(dispatch, request, DivideUp(y[0] * y[1] * y[2] * DivideUp(eights, per_lane), 16));
  } else {
    SetLinearGrid(dispatch, request, y[0] * y[1] * (form == Form::kDirect ? y[2] : DivideUp(y[2], 4)) * Slices(y[3]));
  }
  dispatch.flops = 2.0 * double(y.element_count()) * double(w[1] * w[2]);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

bool AcceptRolled(const KernelRequest& request) {
  return request.target.is_software && request.target.language == shader::Language::kWgsl &&
         request.call.outputs[0].shape[3] == InputShape(request.call, 0)[3];
}

bool AcceptInner(const KernelRequest& request) {
  return request.target.is_software && request.call.outputs[0].shape[3] == InputShape(request.call, 0)[3];
}

bool AcceptWide(const KernelRequest& request) {
  return AcceptInner(request) && RunsWorkgroupsOnThreads(request.target) && request.call.outputs[0].shape[3] % 8 == 0;
}

constexpr KernelVariant kVariants[] = {
    {.name = "wide",
     .what = "loops over eight neighbouring channels in place of vectors: OpenCL on CPUs",
     .accepts = AcceptWide,
     .plan = Plan<Form::kWide>},
    {.name = "rolled",
     .what = "four pixels share the weights; one loop for all windows: a small text for devices that compile slowly",
     .accepts = AcceptRolled,
     .plan = Plan<Form::kRolled>},
    {.name = "inner",
     .what = "loads without conditions where the windows of four pixels lie inside: software devices",
     .accepts = AcceptInner,
     .plan = Plan<Form::kInner>},
    {.name = "direct",
     .what = "one slice of channels and one pixel per invocation",
     .accepts = AcceptAlways,
     .plan = Plan<Form::kDirect>},
};
constexpr OpKernels kKernels = {.variants = kVariants};

const std::vector<AttrField>& Attrs() {
  static const std::vector<AttrField> attrs = [] {
    std::vector<AttrField> list(ConvAttrs().begin(), ConvAttrs().end());
    list.push_back(
        {"depth_multiplier", int64_t{0}, "Output channels per input channel; follows from the shapes, 0: not said."});
    return list;
  }();
  return attrs;
}

}  // namespace

extern const OpDef op_depthwise_conv_2d = {.name = kOp,
                                           .attrs = Attrs(),
                                           .infer = Infer,
                                           .reference = Reference,
                                           .accepts_explicit_padding = true,
                                           .kernels = &kKernels,
                                           .tflite = kNames};

}  // namespace leeway
