// conv_2d: y[n, r, c, o] = bias[o] + sum over taps and input channels of x * w[o, ky, kx, i]. With g groups w has 1/g of the
// input channels, and output channel o reads the input channels of its group.
//   direct   one invocation per slice of four output channels and four neighbouring pixels; any shape, any target
#include <algorithm>

#include "ops/conv_shape.h"
#include "ops/dispatch.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"CONV_2D"};
constexpr const char* kOp = "conv_2d";

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
  if (w[3] == 0 || x[3] % w[3] != 0 || w[0] % std::max<int64_t>(x[3] / w[3], 1) != 0) {
    return Invalid("Operator conv_2d has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; the input's channels must be a multiple (the groups) of the weights' last extent, and the weights' first "
                   "a multiple of the groups.");
  }
  RETURN_IF_ERROR(ExpectBias(call, kOp, 2, w[0]));
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], axes.y.output, axes.x.output, w[0]}, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape &shape = inputs[0].shape(), &w_shape = inputs[1].shape();
  const std::vector<float> x = inputs[0].ToF32(), w = inputs[1].ToF32();
  const std::vector<double> bias = BiasOrZeros(call, inputs, 2, w_shape[0]);
  std::vector<float> y(size_t(outputs[0].element_count()));
  const int64_t channels = shape[3], per_group = w_shape[3], groups = channels / per_group;
  const int64_t outs = w_shape[0], outs_per_group = outs / groups, taps = w_shape[1] * w_shape[2];
  // [tap][input channel of the group][output channel], so that the inner loop runs over neighbours.
  std::vector<double> packed(w.size());
  for (int64_t o = 0; o < outs; ++o) {
    for (int64_t k = 0; k < taps * per_group; ++k) packed[size_t(k * outs + o)] = w[size_t(o * taps * per_group + k)];
  }
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
            const double* tap = &packed[size_t((ky * axes.x.kernel + kx) * per_group * outs)];
            for (int64_t g = 0; g < groups; ++g) {
              double* sum = &sums[size_t(g * outs_per_group)];
              for (int64_t i = 0; i < per_group; ++i) {
                const double value = from[g * per_group + i];
                const double* factors = tap + i * outs + g * outs_per_group;
                for (int64_t o = 0; o < outs_per_group; ++o) sum[o] += value * factors[o];
              }
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

// ---- direct -----------------------------------------------------------------------------------------------------------

constexpr std::string_view kDirect = R"(
tensor x[batch, row, column, channel] : read;
weights w[tap_row, tap_column, input, output];
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const stride_y : i32;
const stride_x : i32;
const dilation_y : i32;
const dilation_x : i32;
const before_y : i32;
const before_x : i32;
const input_slices : u32;

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
  var sum0 = bias.load4(slice);
  var sum1 = sum0;
  var sum2 = sum0;
  var sum3 = sum0;
  for (var ky = 0u; ky < w.tap_row; ky++) {
    let iy = top + i32(ky) * dilation_y;
    if (iy < 0 || iy >= i32(x.row)) { continue; }
    for (var kx = 0u; kx < w.tap_column; kx++) {
      let ix = left + i32(kx) * dilation_x;
      for (var s = 0u; s < input_slices; s++) {
        let w0 = w.load4(ky, kx, 4u * s, slice);
        let w1 = w.load4(ky, kx, 4u * s + 1u, slice);
        let w2 = w.load4(ky, kx, 4u * s + 2u, slice);
        let w3 = w.load4(ky, kx, 4u * s + 3u, slice);
        let v0 = x.load4_or_zero(batch, iy, ix, s);
        let v1 = x.load4_or_zero(batch, iy, ix + stride_x, s);
        let v2 = x.load4_or_zero(batch, iy, ix + 2 * stride_x, s);
        let v3 = x.load4_or_zero(batch, iy, ix + 3 * stride_x, s);
        sum0 += w0 * v0.x + w1 * v0.y + w2 * v0.z + w3 * v0.w;
        sum1 += w0 * v1.x + w1 * v1.y + w2 * v1.z + w3 * v1.w;
        sum2 += w0 * v2.x + w1 * v2.y + w2 * v2.z + w3 * v2.w;
        sum3 += w0 * v3.x + w1 * v3.y + w2 * v3.z + w3 * v3.w;
      }
    }
  }
  y.store4(sum0, batch, row, column, slice);
  if (column + 1u < y.column) { y.store4(sum1, batch, row, column + 1u, slice); }
  if (column + 2u < y.column) { y.store4(sum2, batch, row, column + 2u, slice); }
  if (column + 3u < y.column) { y.store4(sum3, batch, row, column + 3u, slice); }
}
)";

// Weights as [tap row, tap column, input channel, output channel], input channels filled up with zeros to whole slices. Groups
// become zeros between channels of different groups.
void AddPackedWeights(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request) {
  const Shape &x = InputShape(request.call, 0), &w = InputShape(request.call, 1);
  const int64_t channels = x[3], per_group = w[3], outs_per_group = w[0] / (channels / per_group);
  const IndexExpr input = IndexExpr::Axis(2), output = IndexExpr::Axis(3);
  CoordMap map{.coords = {output, IndexExpr::Axis(0), IndexExpr::Axis(1), Mod(input, per_group)}};
  if (per_group == channels) {
    map.coords[3] = input;
    if (channels % 4 != 0) map.inside = Less(input, IndexExpr::Const(channels));
  } else {
    const IndexExpr one = IndexExpr::Const(1), of_input = Div(input, per_group), of_output = Div(output, outs_per_group);
    map.inside = And(Less(of_input, of_output + one), Less(of_output, of_input + one));
  }
  AddWeights(plan, dispatch, request, "w", 1, Shape{w[1], w[2], 4 * Slices(channels), w[0]}, std::move(map));
}

Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape &x = InputShape(call, 0), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = "conv_2d_direct", .kernel_text = kDirect, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0), OutputArgument("y", 0)};
  AddPackedWeights(plan, dispatch, request);
  AddBias(plan, dispatch, request, "bias", 2, 1, y[3]);
  dispatch.consts = {{"stride_y", double(axes.y.stride)},     {"stride_x", double(axes.x.stride)},
                     {"dilation_y", double(axes.y.dilation)}, {"dilation_x", double(axes.x.dilation)},
                     {"before_y", double(axes.y.before)},     {"before_x", double(axes.x.before)},
                     {"input_slices", double(Slices(x[3]))}};
  SetLinearGrid(dispatch, request, y[0] * y[1] * DivideUp(y[2], 4) * Slices(y[3]));
  dispatch.flops = 2.0 * double(y.element_count()) * double(InputShape(call, 1).element_count()) / double(y[3]);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "direct",
     .what = "one slice of output channels and four pixels per invocation",
     .accepts = AcceptAlways,
     .plan = PlanDirect},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_conv_2d = {.name = kOp,
                                 .attrs = ConvAttrs(),
                                 .infer = Infer,
                                 .reference = Reference,
                                 .accepts_explicit_padding = true,
                                 .kernels = &kKernels,
                                 .tflite = kNames};

}  // namespace leeway
