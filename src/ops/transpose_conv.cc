// transpose_conv: each input pixel adds its product with the weights to a window of the output; windows are stride apart and
// begin `before` pixels outside. Read backwards: output pixel p takes tap k from input (p + before - k) / stride, where that is
// whole and inside.
// Two forms: the .tflite operator has inputs output_shape, weights [o, ky, kx, i], x and perhaps bias; MediaPipe's custom
// operator has x, weights, bias and derives the output's extents.
//   direct   one invocation per slice of four output channels of a pixel, which reads the taps that reach it
#include <algorithm>
#include <cstring>

#include "ops/conv_shape.h"
#include "ops/dispatch.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"TRANSPOSE_CONV"};
const char* const kMediaPipeNames[] = {"custom:Convolution2DTransposeBias"};

// Where a form has its inputs.
struct Form {
  const char* op;
  int x, weights, bias;
};
constexpr Form kTflite = {"transpose_conv", 2, 1, 3};
constexpr Form kMediaPipe = {"transpose_conv_bias", 0, 1, 2};

struct Geometry {
  int64_t padding = 0, stride_h = 1, stride_w = 1;
  int64_t height = 0, width = 0;  // of the output
  int64_t before_y = 0, before_x = 0;
};

// Taps that reach over the output's edges are split between both sides.
int64_t Before(int64_t output, int64_t kernel, int64_t stride, int64_t padding) {
  if (padding != kPaddingSame) return 0;
  const int64_t windows = (output + stride - 1) / stride;
  return std::max<int64_t>((windows - 1) * stride + kernel - output, 0) / 2;
}

template <const Form& form>
Result<Geometry> MakeGeometry(const OpCall& call) {
  Geometry g{.padding = call.attrs.GetInt("padding", kPaddingValid),
             .stride_h = call.attrs.GetInt("stride_h", 1),
             .stride_w = call.attrs.GetInt("stride_w", 1)};
  // MediaPipe writes the options as TfLiteTransposeConvParams: padding (0 unknown, 1 same, 2 valid), stride_width,
  // stride_height.
  if (form.x == 0 && !call.attrs.Has("stride_h") && call.custom_options.size() >= 12) {
    int32_t raw[3];
    std::memcpy(raw, call.custom_options.data(), sizeof raw);
    g = {.padding = raw[0] == 1 ? kPaddingSame : kPaddingValid, .stride_h = raw[2], .stride_w = raw[1]};
  }
  if (g.stride_h < 1 || g.stride_w < 1 || g.stride_h > 4096 || g.stride_w > 4096 ||
      (g.padding != kPaddingSame && g.padding != kPaddingValid)) {
    return Invalid("Operator ", form.op, " has padding ", g.padding, " and strides ", g.stride_h, ", ", g.stride_w,
                   "; padding is 0 (same) or 1 (valid), strides are at least 1.");
  }
  const Shape &x = InputShape(call, form.x), &w = InputShape(call, form.weights);
  if (form.x == 0) {
    g.height = g.padding == kPaddingSame ? x[1] * g.stride_h : (x[1] - 1) * g.stride_h + w[1];
    g.width = g.padding == kPaddingSame ? x[2] * g.stride_w : (x[2] - 1) * g.stride_w + w[2];
  } else {
    ASSIGN_OR_RETURN(std::vector<int64_t> extents, ConstantInts(call, form.op, 0, "output shape"));
    if (extents.size() != 4 || extents[0] != x[0] || extents[3] != w[0] || extents[1] < 0 || extents[2] < 0) {
      return Invalid("Operator ", form.op, " has the output shape [", Join(extents, ", "), "] for an input of shape ",
                     x.ToString(), " and weights of shape ", w.ToString(), ".");
    }
    g.height = extents[1];
    g.width = extents[2];
  }
  g.before_y = Before(g.height, w[1], g.stride_h, g.padding);
  g.before_x = Before(g.width, w[2], g.stride_w, g.padding);
  return g;
}

template <const Form& form>
InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, form.op, form.x == 0 ? 2 : 3, form.x == 0 ? 3 : 4));
  for (size_t i : {size_t(form.x), size_t(form.weights)}) {
    RETURN_IF_ERROR(ExpectFloat(call, form.op, i));
    RETURN_IF_ERROR(ExpectRank(call, form.op, i, 4, 4));
  }
  const Shape &x = InputShape(call, form.x), &w = InputShape(call, form.weights);
  if (x[3] != w[3]) {
    return Invalid("Operator ", form.op, " has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; their last extents must be the same.");
  }
  RETURN_IF_ERROR(ExpectBias(call, form.op, size_t(form.bias), w[0]));
  ASSIGN_OR_RETURN(Geometry g, MakeGeometry<form>(call));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], g.height, g.width, w[0]}, form.op));
  return std::vector<TensorType>{{call.inputs[size_t(form.x)].type.dtype, shape}};
}

template <const Form& form>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(Geometry g, MakeGeometry<form>(call));
  const Shape &shape = inputs[form.x].shape(), &w_shape = inputs[form.weights].shape();
  const std::vector<float> x = inputs[form.x].ToF32(), w = inputs[form.weights].ToF32();
  const int64_t outs = w_shape[0], channels = w_shape[3], taps = w_shape[1] * w_shape[2];
  const std::vector<double> bias = BiasOrZeros(call, inputs, size_t(form.bias), outs);
  std::vector<double> packed(w.size());  // [tap][input channel][output channel]
  for (int64_t o = 0; o < outs; ++o) {
    for (int64_t k = 0; k < taps * channels; ++k) packed[size_t(k * outs + o)] = w[size_t(o * taps * channels + k)];
  }
  std::vector<double> y(size_t(outputs[0].element_count()));
  for (size_t i = 0; i < y.size(); i += size_t(outs)) std::copy(bias.begin(), bias.end(), y.begin() + int64_t(i));
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t iy = 0; iy < shape[1]; ++iy) {
      for (int64_t ix = 0; ix < shape[2]; ++ix) {
        const float* from = &x[size_t(((n * shape[1] + iy) * shape[2] + ix) * channels)];
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t row = iy * g.stride_h + tap / w_shape[2] - g.before_y,
                        column = ix * g.stride_w + tap % w_shape[2] - g.before_x;
          if (row < 0 || row >= g.height || column < 0 || column >= g.width) continue;
          double* to = &y[size_t(((n * g.height + row) * g.width + column) * outs)];
          for (int64_t i = 0; i < channels; ++i) {
            const double value = from[i];
            const double* factors = &packed[size_t((tap * channels + i) * outs)];
            for (int64_t o = 0; o < outs; ++o) to[o] += value * factors[o];
          }
        }
      }
    }
  }
  StoreF32(outputs[0], std::vector<float>(y.begin(), y.end()));
  return {};
}

constexpr std::string_view kDirect = R"(
tensor x[batch, row, column, channel] : read;
weights w[tap_row, tap_column, input, output];
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const stride_y : u32;
const stride_x : u32;
const before_y : u32;
const before_x : u32;
const input_slices : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  if (index >= y.batch * y.row * y.column * slices) { return; }
  let slice = index % slices;
  let column = index / slices % y.column;
  let row = index / (slices * y.column) % y.row;
  let batch = index / (slices * y.column * y.row);
  let top = row + before_y;
  let left = column + before_x;
  var sum = bias.load4(slice);
  for (var ky = top % stride_y; ky < w.tap_row && ky <= top; ky += stride_y) {
    let iy = (top - ky) / stride_y;
    if (iy >= x.row) { continue; }
    for (var kx = left % stride_x; kx < w.tap_column && kx <= left; kx += stride_x) {
      let ix = (left - kx) / stride_x;
      if (ix >= x.column) { continue; }
      for (var s = 0u; s < input_slices; s++) {
        let v = x.load4(batch, iy, ix, s);
        sum += w.load4(ky, kx, 4u * s, slice) * v.x + w.load4(ky, kx, 4u * s + 1u, slice) * v.y +
               w.load4(ky, kx, 4u * s + 2u, slice) * v.z + w.load4(ky, kx, 4u * s + 3u, slice) * v.w;
      }
    }
  }
  y.store4(sum, batch, row, column, slice);
}
)";

template <const Form& form>
Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(Geometry g, MakeGeometry<form>(call));
  const Shape &x = InputShape(call, size_t(form.x)), &w = InputShape(call, size_t(form.weights)), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = "transpose_conv_direct", .kernel_text = kDirect, .stores_result = true};
  dispatch.tensors = {InputArgument("x", form.x), OutputArgument("y", 0)};
  // [tap row, tap column, input channel, output channel], input channels filled up with zeros to whole slices.
  CoordMap map{.coords = {IndexExpr::Axis(3), IndexExpr::Axis(0), IndexExpr::Axis(1), IndexExpr::Axis(2)}};
  if (x[3] % 4 != 0) map.inside = Less(IndexExpr::Axis(2), IndexExpr::Const(x[3]));
  AddWeights(plan, dispatch, request, "w", form.weights, Shape{w[1], w[2], 4 * Slices(x[3]), w[0]}, std::move(map));
  AddBias(plan, dispatch, request, "bias", form.bias, form.weights, y[3]);
  dispatch.consts = {{"stride_y", double(g.stride_h)},
                     {"stride_x", double(g.stride_w)},
                     {"before_y", double(g.before_y)},
                     {"before_x", double(g.before_x)},
                     {"input_slices", double(Slices(x[3]))}};
  SetLinearGrid(dispatch, request, y[0] * y[1] * y[2] * Slices(y[3]));
  dispatch.flops = 2.0 * double(x.element_count()) * double(w[0] * w[1] * w[2]);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

template <const Form& form>
constexpr KernelVariant kDirectVariant = {.name = "direct",
                                          .what = "one slice of output channels of a pixel per invocation",
                                          .accepts = AcceptAlways,
                                          .plan = PlanDirect<form>};
template <const Form& form>
constexpr OpKernels kKernels = {.variants = {&kDirectVariant<form>, 1}};

const AttrField kAttrs[] = {{"padding", int64_t{kPaddingValid}, "0: same, 1: valid."},
                            {"stride_h", int64_t{1}, "Output rows between two windows."},
                            {"stride_w", int64_t{1}, "Output columns between two windows."}};

}  // namespace

extern const OpDef op_transpose_conv = {.name = "transpose_conv",
                                        .attrs = kAttrs,
                                        .infer = Infer<kTflite>,
                                        .reference = Reference<kTflite>,
                                        .kernels = &kKernels<kTflite>,
                                        .tflite = kNames};
extern const OpDef op_transpose_conv_bias = {.name = "transpose_conv_bias",
                                             .attrs = kAttrs,
                                             .infer = Infer<kMediaPipe>,
                                             .reference = Reference<kMediaPipe>,
                                             .kernels = &kKernels<kMediaPipe>,
                                             .tflite = kMediaPipeNames};

}  // namespace leeway
