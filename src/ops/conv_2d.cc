// conv_2d: y[n, r, c, o] = bias[o] + sum over taps and input channels of x * w[o, ky, kx, i]. With g groups w has 1/g of the
// input channels, and output channel o reads the input channels of its group.
//   direct     one invocation per slice of four output channels and four neighbouring pixels; any shape, any target
//   inner      software devices: two slices of output channels at once, and loads without conditions where the windows of the
//              four pixels lie inside
//   pointwise  1x1 without padding: four pixels and two slices of output channels, so that a load feeds twice the arithmetic
//   rolled, pointwise_rolled  WGSL on software devices: as inner and pointwise, but one input channel at a time in one loop, so
//              that the text has a third of the loads; SwiftShader takes 4 ms to compile each
//   panels     OpenCL on CPUs: see conv_panels.cc
//   split      small outputs on a GPU with many cores: the sum over taps and input channels is cut among the lanes of a
//              workgroup, since one invocation's chain of loads would take longer than all the arithmetic
//   split_block  1x1 on such maps: as split, but a lane has four pixels, so that weights are read a quarter as often (they come
//              from the second-level cache once per workgroup)
#include <algorithm>

#include "ops/assemble.h"
#include "ops/conv_panels.h"
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
      for (var s = 0u; s < input_slices + zero; s++) {
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

constexpr std::string_view kInner = R"(
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
  let pairs = (slices + 1u) / 2u;
  let blocks = (y.column + 3u) / 4u;
  if (index >= y.batch * y.row * blocks * pairs) { return; }
  let a = index % pairs * 2u;
  let b = min(a + 1u, slices - 1u);
  let column = index / pairs % blocks * 4u;
  let row = index / (pairs * blocks) % y.row;
  let batch = index / (pairs * blocks * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  let bottom = top + i32(w.tap_row - 1u) * dilation_y;
  let right = left + i32(w.tap_column - 1u) * dilation_x + 3 * stride_x;
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents into texts that take it minutes and gigabytes.
  let zero = index >> 31u;
  var a0 = bias.load4(a);
  var a1 = a0;
  var a2 = a0;
  var a3 = a0;
  var b0 = bias.load4(b);
  var b1 = b0;
  var b2 = b0;
  var b3 = b0;
  if (top >= 0 && left >= 0 && bottom < i32(x.row) && right < i32(x.column)) {
    // All windows of the block lie inside: no load needs a condition.
    for (var ky = 0u; ky < w.tap_row + zero; ky++) {
      let iy = u32(top + i32(ky) * dilation_y);
      for (var kx = 0u; kx < w.tap_column + zero; kx++) {
        let ix = left + i32(kx) * dilation_x;
        for (var s = 0u; s < input_slices + zero; s++) {
          let w0a = w.load4(ky, kx, 4u * s, a);
          let w1a = w.load4(ky, kx, 4u * s + 1u, a);
          let w2a = w.load4(ky, kx, 4u * s + 2u, a);
          let w3a = w.load4(ky, kx, 4u * s + 3u, a);
          let w0b = w.load4(ky, kx, 4u * s, b);
          let w1b = w.load4(ky, kx, 4u * s + 1u, b);
          let w2b = w.load4(ky, kx, 4u * s + 2u, b);
          let w3b = w.load4(ky, kx, 4u * s + 3u, b);
          let v0 = x.load4(batch, iy, u32(ix), s);
          let v1 = x.load4(batch, iy, u32(ix + stride_x), s);
          let v2 = x.load4(batch, iy, u32(ix + 2 * stride_x), s);
          let v3 = x.load4(batch, iy, u32(ix + 3 * stride_x), s);
          a0 += w0a * v0.x + w1a * v0.y + w2a * v0.z + w3a * v0.w;
          b0 += w0b * v0.x + w1b * v0.y + w2b * v0.z + w3b * v0.w;
          a1 += w0a * v1.x + w1a * v1.y + w2a * v1.z + w3a * v1.w;
          b1 += w0b * v1.x + w1b * v1.y + w2b * v1.z + w3b * v1.w;
          a2 += w0a * v2.x + w1a * v2.y + w2a * v2.z + w3a * v2.w;
          b2 += w0b * v2.x + w1b * v2.y + w2b * v2.z + w3b * v2.w;
          a3 += w0a * v3.x + w1a * v3.y + w2a * v3.z + w3a * v3.w;
          b3 += w0b * v3.x + w1b * v3.y + w2b * v3.z + w3b * v3.w;
        }
      }
    }
  } else {
    for (var ky = 0u; ky < w.tap_row + zero; ky++) {
      let iy = top + i32(ky) * dilation_y;
      if (iy < 0 || iy >= i32(x.row)) { continue; }
      for (var kx = 0u; kx < w.tap_column + zero; kx++) {
        let ix = left + i32(kx) * dilation_x;
        for (var s = 0u; s < input_slices + zero; s++) {
          let w0a = w.load4(ky, kx, 4u * s, a);
          let w1a = w.load4(ky, kx, 4u * s + 1u, a);
          let w2a = w.load4(ky, kx, 4u * s + 2u, a);
          let w3a = w.load4(ky, kx, 4u * s + 3u, a);
          let w0b = w.load4(ky, kx, 4u * s, b);
          let w1b = w.load4(ky, kx, 4u * s + 1u, b);
          let w2b = w.load4(ky, kx, 4u * s + 2u, b);
          let w3b = w.load4(ky, kx, 4u * s + 3u, b);
          let v0 = x.load4_or_zero(batch, iy, ix, s);
          let v1 = x.load4_or_zero(batch, iy, ix + stride_x, s);
          let v2 = x.load4_or_zero(batch, iy, ix + 2 * stride_x, s);
          let v3 = x.load4_or_zero(batch, iy, ix + 3 * stride_x, s);
          a0 += w0a * v0.x + w1a * v0.y + w2a * v0.z + w3a * v0.w;
          b0 += w0b * v0.x + w1b * v0.y + w2b * v0.z + w3b * v0.w;
          a1 += w0a * v1.x + w1a * v1.y + w2a * v1.z + w3a * v1.w;
          b1 += w0b * v1.x + w1b * v1.y + w2b * v1.z + w3b * v1.w;
          a2 += w0a * v2.x + w1a * v2.y + w2a * v2.z + w3a * v2.w;
          b2 += w0b * v2.x + w1b * v2.y + w2b * v2.z + w3b * v2.w;
          a3 += w0a * v3.x + w1a * v3.y + w2a * v3.z + w3a * v3.w;
          b3 += w0b * v3.x + w1b * v3.y + w2b * v3.z + w3b * v3.w;
        }
      }
    }
  }
  y.store4(a0, batch, row, column, a);
  if (column + 1u < y.column) { y.store4(a1, batch, row, column + 1u, a); }
  if (column + 2u < y.column) { y.store4(a2, batch, row, column + 2u, a); }
  if (column + 3u < y.column) { y.store4(a3, batch, row, column + 3u, a); }
  if (a + 1u < slices) {
    y.store4(b0, batch, row, column, b);
    if (column + 1u < y.column) { y.store4(b1, batch, row, column + 1u, b); }
    if (column + 2u < y.column) { y.store4(b2, batch, row, column + 2u, b); }
    if (column + 3u < y.column) { y.store4(b3, batch, row, column + 3u, b); }
  }
}
)";

constexpr std::string_view kPointwise = R"(
tensor x[pixel, channel] : read;
weights w[input, output];
weights bias[output];
tensor y[pixel, channel] : write;
const groups_per_row : u32;
const input_slices : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  let pairs = (slices + 1u) / 2u;
  let pixel = index / pairs * 4u;
  if (pixel >= y.pixel) { return; }
  let a = index % pairs * 2u;
  let b = min(a + 1u, slices - 1u);
  // Beyond the last pixel the last one is read again: a load without a condition is cheaper than the work it saves.
  let last = y.pixel - 1u;
  let p1 = min(pixel + 1u, last);
  let p2 = min(pixel + 2u, last);
  let p3 = min(pixel + 3u, last);
  var a0 = bias.load4(a);
  var a1 = a0;
  var a2 = a0;
  var a3 = a0;
  var b0 = bias.load4(b);
  var b1 = b0;
  var b2 = b0;
  var b3 = b0;
  for (var s = 0u; s < input_slices; s++) {
    let v0 = x.load4(pixel, s);
    let v1 = x.load4(p1, s);
    let v2 = x.load4(p2, s);
    let v3 = x.load4(p3, s);
    var wa = w.load4(4u * s, a);
    var wb = w.load4(4u * s, b);
    a0 += wa * v0.x;
    a1 += wa * v1.x;
    a2 += wa * v2.x;
    a3 += wa * v3.x;
    b0 += wb * v0.x;
    b1 += wb * v1.x;
    b2 += wb * v2.x;
    b3 += wb * v3.x;
    wa = w.load4(4u * s + 1u, a);
    wb = w.load4(4u * s + 1u, b);
    a0 += wa * v0.y;
    a1 += wa * v1.y;
    a2 += wa * v2.y;
    a3 += wa * v3.y;
    b0 += wb * v0.y;
    b1 += wb * v1.y;
    b2 += wb * v2.y;
    b3 += wb * v3.y;
    wa = w.load4(4u * s + 2u, a);
    wb = w.load4(4u * s + 2u, b);
    a0 += wa * v0.z;
    a1 += wa * v1.z;
    a2 += wa * v2.z;
    a3 += wa * v3.z;
    b0 += wb * v0.z;
    b1 += wb * v1.z;
    b2 += wb * v2.z;
    b3 += wb * v3.z;
    wa = w.load4(4u * s + 3u, a);
    wb = w.load4(4u * s + 3u, b);
    a0 += wa * v0.w;
    a1 += wa * v1.w;
    a2 += wa * v2.w;
    a3 += wa * v3.w;
    b0 += wb * v0.w;
    b1 += wb * v1.w;
    b2 += wb * v2.w;
    b3 += wb * v3.w;
  }
  y.store4(a0, pixel, a);
  if (pixel + 1u < y.pixel) { y.store4(a1, pixel + 1u, a); }
  if (pixel + 2u < y.pixel) { y.store4(a2, pixel + 2u, a); }
  if (pixel + 3u < y.pixel) { y.store4(a3, pixel + 3u, a); }
  if (a + 1u < slices) {
    y.store4(b0, pixel, b);
    if (pixel + 1u < y.pixel) { y.store4(b1, pixel + 1u, b); }
    if (pixel + 2u < y.pixel) { y.store4(b2, pixel + 2u, b); }
    if (pixel + 3u < y.pixel) { y.store4(b3, pixel + 3u, b); }
  }
}
)";

constexpr std::string_view kRolled = R"(
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

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  let pairs = (slices + 1u) / 2u;
  let blocks = (y.column + 3u) / 4u;
  if (index >= y.batch * y.row * blocks * pairs) { return; }
  let a = index % pairs * 2u;
  let b = min(a + 1u, slices - 1u);
  let column = index / pairs % blocks * 4u;
  let row = index / (pairs * blocks) % y.row;
  let batch = index / (pairs * blocks * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents into texts that take it minutes and gigabytes.
  let zero = index >> 31u;
  var a0 = bias.load4(a);
  var a1 = a0;
  var a2 = a0;
  var a3 = a0;
  var b0 = bias.load4(b);
  var b1 = b0;
  var b2 = b0;
  var b3 = b0;
  for (var ky = 0u; ky < w.tap_row + zero; ky++) {
    let iy = top + i32(ky) * dilation_y;
    if (iy < 0 || iy >= i32(x.row)) { continue; }
    for (var kx = 0u; kx < w.tap_column + zero; kx++) {
      let ix = left + i32(kx) * dilation_x;
      for (var i = 0u; i < x.channel + zero; i++) {
        let wa = w.load4(ky, kx, i, a);
        let wb = w.load4(ky, kx, i, b);
        let v0 = x.load_or_zero(batch, iy, ix, i);
        let v1 = x.load_or_zero(batch, iy, ix + stride_x, i);
        let v2 = x.load_or_zero(batch, iy, ix + 2 * stride_x, i);
        let v3 = x.load_or_zero(batch, iy, ix + 3 * stride_x, i);
        a0 += wa * v0;
        a1 += wa * v1;
        a2 += wa * v2;
        a3 += wa * v3;
        b0 += wb * v0;
        b1 += wb * v1;
        b2 += wb * v2;
        b3 += wb * v3;
      }
    }
  }
  y.store4(a0, batch, row, column, a);
  if (column + 1u < y.column) { y.store4(a1, batch, row, column + 1u, a); }
  if (column + 2u < y.column) { y.store4(a2, batch, row, column + 2u, a); }
  if (column + 3u < y.column) { y.store4(a3, batch, row, column + 3u, a); }
  if (a + 1u < slices) {
    y.store4(b0, batch, row, column, b);
    if (column + 1u < y.column) { y.store4(b1, batch, row, column + 1u, b); }
    if (column + 2u < y.column) { y.store4(b2, batch, row, column + 2u, b); }
    if (column + 3u < y.column) { y.store4(b3, batch, row, column + 3u, b); }
  }
}
)";

constexpr std::string_view kPointwiseRolled = R"(
tensor x[pixel, channel] : read;
weights w[input, output];
weights bias[output];
tensor y[pixel, channel] : write;
const groups_per_row : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  let pairs = (slices + 1u) / 2u;
  let pixel = index / pairs * 4u;
  if (pixel >= y.pixel) { return; }
  let a = index % pairs * 2u;
  let b = min(a + 1u, slices - 1u);
  // Beyond the last pixel the last one is read again: a load without a condition is cheaper than the work it saves.
  let last = y.pixel - 1u;
  let p1 = min(pixel + 1u, last);
  let p2 = min(pixel + 2u, last);
  let p3 = min(pixel + 3u, last);
  var a0 = bias.load4(a);
  var a1 = a0;
  var a2 = a0;
  var a3 = a0;
  var b0 = bias.load4(b);
  var b1 = b0;
  var b2 = b0;
  var b3 = b0;
  for (var i = 0u; i < x.channel; i++) {
    let wa = w.load4(i, a);
    let wb = w.load4(i, b);
    let v0 = x.load(pixel, i);
    let v1 = x.load(p1, i);
    let v2 = x.load(p2, i);
    let v3 = x.load(p3, i);
    a0 += wa * v0;
    a1 += wa * v1;
    a2 += wa * v2;
    a3 += wa * v3;
    b0 += wb * v0;
    b1 += wb * v1;
    b2 += wb * v2;
    b3 += wb * v3;
  }
  y.store4(a0, pixel, a);
  if (pixel + 1u < y.pixel) { y.store4(a1, pixel + 1u, a); }
  if (pixel + 2u < y.pixel) { y.store4(a2, pixel + 2u, a); }
  if (pixel + 3u < y.pixel) { y.store4(a3, pixel + 3u, a); }
  if (a + 1u < slices) {
    y.store4(b0, pixel, b);
    if (pixel + 1u < y.pixel) { y.store4(b1, pixel + 1u, b); }
    if (pixel + 2u < y.pixel) { y.store4(b2, pixel + 2u, b); }
    if (pixel + 3u < y.pixel) { y.store4(b3, pixel + 3u, b); }
  }
}
)";

constexpr std::string_view kSplit = R"(
tensor x[batch, row, column, channel] : read;
weights w[tap_row, tap_column, input, output];
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const split : u32;     // lanes that share one slice of one pixel; divides 64
const stride_y : i32;
const stride_x : i32;
const dilation_y : i32;
const dilation_x : i32;
const before_y : i32;
const before_x : i32;
const input_slices : u32;
var<workgroup> parts : array<vec4f, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  // Neighbouring lanes take neighbouring slices of the same part: their weights lie side by side.
  let outputs_per_group = 64u / split;
  let part = lane / outputs_per_group;
  let index = (group.y * groups_per_row + group.x) * outputs_per_group + lane % outputs_per_group;
  let slices = (y.channel + 3u) / 4u;
  let is_inside = index < y.batch * y.row * y.column * slices;
  let slice = index % slices;
  let column = index / slices % y.column;
  let row = index / (slices * y.column) % y.row;
  let batch = index / (slices * y.column * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  var sum = vec4f(0.0);
  if (is_inside) {
    for (var k = part; k < w.tap_row * w.tap_column * input_slices; k += split) {
      let s = k % input_slices;
      let kx = k / input_slices % w.tap_column;
      let ky = k / (input_slices * w.tap_column);
      let v = x.load4_or_zero(batch, top + i32(ky) * dilation_y, left + i32(kx) * dilation_x, s);
      sum += w.load4(ky, kx, 4u * s, slice) * v.x + w.load4(ky, kx, 4u * s + 1u, slice) * v.y +
             w.load4(ky, kx, 4u * s + 2u, slice) * v.z + w.load4(ky, kx, 4u * s + 3u, slice) * v.w;
    }
  }
  parts[lane] = sum;
  workgroupBarrier();
  if (part == 0u && is_inside) {
    var total = bias.load4(slice);
    for (var p = 0u; p < split; p++) { total += parts[p * outputs_per_group + lane]; }
    y.store4(total, batch, row, column, slice);
  }
}
)";

constexpr std::string_view kSplitBlock = R"(
tensor x[pixel, channel] : read;
weights w[input, output];
weights bias[output];
tensor y[pixel, channel] : write;
const groups_per_row : u32;
const split : u32;  // lanes that share one slice of four pixels; 4, 8, 16 or 32
const input_slices : u32;
var<workgroup> parts : array<vec4f, 1024>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  // Neighbouring lanes take neighbouring slices of the same part: they read the same pixels and weights side by side.
  let items = 256u / split;
  let part = lane / items;
  let index = (group.y * groups_per_row + group.x) * items + lane % items;
  let slices = (y.channel + 3u) / 4u;
  let is_inside = index < (y.pixel + 3u) / 4u * slices;
  let slice = index % slices;
  let pixel = index / slices * 4u;
  let last = y.pixel - 1u;
  let p1 = min(pixel + 1u, last);
  let p2 = min(pixel + 2u, last);
  let p3 = min(pixel + 3u, last);
  var sum0 = vec4f(0.0);
  var sum1 = sum0;
  var sum2 = sum0;
  var sum3 = sum0;
  if (is_inside) {
    for (var s = part; s < input_slices; s += split) {
      let w0 = w.load4(4u * s, slice);
      let w1 = w.load4(4u * s + 1u, slice);
      let w2 = w.load4(4u * s + 2u, slice);
      let w3 = w.load4(4u * s + 3u, slice);
      let v0 = x.load4(pixel, s);
      let v1 = x.load4(p1, s);
      let v2 = x.load4(p2, s);
      let v3 = x.load4(p3, s);
      sum0 += w0 * v0.x + w1 * v0.y + w2 * v0.z + w3 * v0.w;
      sum1 += w0 * v1.x + w1 * v1.y + w2 * v1.z + w3 * v1.w;
      sum2 += w0 * v2.x + w1 * v2.y + w2 * v2.z + w3 * v2.w;
      sum3 += w0 * v3.x + w1 * v3.y + w2 * v3.z + w3 * v3.w;
    }
  }
  parts[lane] = sum0;
  parts[256u + lane] = sum1;
  parts[512u + lane] = sum2;
  parts[768u + lane] = sum3;
  workgroupBarrier();
  // Part p joins the sums of pixel p.
  if (part < 4u && is_inside && pixel + part < y.pixel) {
    var total = bias.load4(slice);
    for (var p = 0u; p < split; p++) { total += parts[256u * part + p * items + lane % items]; }
    y.store4(total, pixel + part, slice);
  }
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

double Flops(const KernelRequest& request) {
  const Shape &w = InputShape(request.call, 1), &y = request.call.outputs[0].shape;
  return 2.0 * double(y.element_count()) * double(w.element_count()) / double(y[3]);
}

enum class Windowed { kDirect, kInner, kRolled };

template <Windowed form>
Result<OpPlan> PlanWindows(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape &x = InputShape(call, 0), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = "conv_2d_direct", .kernel_text = kDirect, .stores_result = true};
  if (form == Windowed::kInner) dispatch.kernel_name = "conv_2d_inner", dispatch.kernel_text = kInner;
  if (form == Windowed::kRolled) dispatch.kernel_name = "conv_2d_rolled", dispatch.kernel_text = kRolled;
  dispatch.tensors = {InputArgument("x", 0), OutputArgument("y", 0)};
  AddPackedWeights(plan, dispatch, request);
  AddBias(plan, dispatch, request, "bias", 2, 1, y[3]);
  dispatch.consts = {{"stride_y", double(axes.y.stride)},     {"stride_x", double(axes.x.stride)},
                     {"dilation_y", double(axes.y.dilation)}, {"dilation_x", double(axes.x.dilation)},
                     {"before_y", double(axes.y.before)},     {"before_x", double(axes.x.before)}};
  if (form != Windowed::kRolled) dispatch.consts["input_slices"] = double(Slices(x[3]));
  const int64_t slices = form == Windowed::kDirect ? Slices(y[3]) : DivideUp(Slices(y[3]), 2);
  SetLinearGrid(dispatch, request, y[0] * y[1] * DivideUp(y[2], 4) * slices);
  dispatch.flops = Flops(request);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

// SwiftShader takes 4 ms for each vector load of a text.
bool CompilesSlowly(const KernelRequest& request) {
  return request.target.is_software && request.target.language == shader::Language::kWgsl;
}

bool AcceptPointwise(const KernelRequest& request) {
  const Result<ConvAxes> axes = Windows(request.call);
  const Shape &x = InputShape(request.call, 0), &w = InputShape(request.call, 1), &y = request.call.outputs[0].shape;
  return axes.ok() && w[1] == 1 && w[2] == 1 && w[3] == x[3] && axes->y.stride == 1 && axes->x.stride == 1 && y[1] == x[1] &&
         y[2] == x[2];
}

// How many lanes share one slice of four pixels.
int64_t LanesPerBlock(const KernelRequest& request) {
  const Shape &x = InputShape(request.call, 0), &y = request.call.outputs[0].shape;
  const int64_t blocks = DivideUp(y[0] * y[1] * y[2], 4) * Slices(y[3]);
  // A lane does four times the work of one of `split`, so half as many fill the device.
  const int64_t wanted = int64_t{512} * std::max<int64_t>(request.target.core_count_estimate, 16);
  int64_t lanes = 1;
  while (lanes < 32 && blocks * lanes * 2 <= wanted && lanes * 2 <= Slices(x[3])) lanes *= 2;
  return lanes;
}

bool AcceptSplitBlock(const KernelRequest& request) {
  const Shape& y = request.call.outputs[0].shape;
  return !request.target.is_software && request.target.max_invocations >= 256 && request.target.max_workgroup_bytes >= 16384 &&
         AcceptPointwise(request) && y[0] * y[1] * y[2] >= 4 && Slices(y[3]) > 0 && LanesPerBlock(request) >= 4;
}

enum class Pointwise { kPlain, kRolled, kSplit };

template <Pointwise form>
Result<OpPlan> PlanPointwise(const KernelRequest& request) {
  const Shape &x = InputShape(request.call, 0), &w = InputShape(request.call, 1), &y = request.call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  const int64_t pixels = y[0] * y[1] * y[2], channels = x[3];
  const Shape x_flat{pixels, channels}, y_flat{pixels, y[3]};
  KernelDispatch dispatch{.kernel_name = "conv_2d_pointwise", .kernel_text = kPointwise, .stores_result = true};
  if (form == Pointwise::kSplit) dispatch.kernel_name = "conv_2d_split_block", dispatch.kernel_text = kSplitBlock;
  if (form == Pointwise::kRolled) {
    dispatch.kernel_name = "conv_2d_pointwise_rolled";
    dispatch.kernel_text = kPointwiseRolled;
  }
  dispatch.tensors = {InputArgument("x", 0, x_flat, ReshapeMap(x, x_flat)),
                      OutputArgument("y", 0, y_flat, ReshapeMap(y, y_flat))};
  const IndexExpr input = IndexExpr::Axis(0), zero = IndexExpr::Const(0);
  CoordMap map{.coords = {IndexExpr::Axis(1), zero, zero, input}};
  if (channels % 4 != 0) map.inside = Less(input, IndexExpr::Const(channels));
  AddWeights(plan, dispatch, request, "w", 1, Shape{4 * Slices(channels), w[0]}, std::move(map));
  AddBias(plan, dispatch, request, "bias", 2, 1, y[3]);
  if (form != Pointwise::kRolled) dispatch.consts = {{"input_slices", double(Slices(channels))}};
  if (form == Pointwise::kSplit) {
    const int64_t lanes = std::max<int64_t>(LanesPerBlock(request), 4);
    dispatch.consts["split"] = double(lanes);
    SetGroupGrid(dispatch, request, DivideUp(DivideUp(pixels, 4) * Slices(y[3]) * lanes, 256));
  } else {
    SetLinearGrid(dispatch, request, DivideUp(pixels, 4) * DivideUp(Slices(y[3]), 2));
  }
  dispatch.flops = Flops(request);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

// How many lanes share one slice of one pixel, so that the device has enough to do; 1: no need to split.
int64_t LanesPerOutput(const KernelRequest& request) {
  const Shape &x = InputShape(request.call, 0), &w = InputShape(request.call, 1), &y = request.call.outputs[0].shape;
  const int64_t outputs = y[0] * y[1] * y[2] * Slices(y[3]), terms = w[1] * w[2] * Slices(x[3]);
  // Enough invocations to hide a load's way to the second-level cache on every core.
  const int64_t wanted = int64_t{1024} * std::max<int64_t>(request.target.core_count_estimate, 16);
  int64_t lanes = 1;
  while (lanes < 16 && outputs * lanes * 2 <= wanted && lanes * 2 <= terms) lanes *= 2;
  return lanes;
}

bool AcceptSplit(const KernelRequest& request) {
  return !request.target.is_software && request.call.outputs[0].shape.element_count() > 0 && LanesPerOutput(request) > 1;
}

Result<OpPlan> PlanSplit(const KernelRequest& request) {
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(request.call));
  const Shape &x = InputShape(request.call, 0), &y = request.call.outputs[0].shape;
  const int64_t lanes = std::max<int64_t>(LanesPerOutput(request), 2);
  OpPlan plan;
  KernelDispatch dispatch{.kernel_name = "conv_2d_split", .kernel_text = kSplit, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0), OutputArgument("y", 0)};
  AddPackedWeights(plan, dispatch, request);
  AddBias(plan, dispatch, request, "bias", 2, 1, y[3]);
  dispatch.consts = {{"split", double(lanes)},
                     {"stride_y", double(axes.y.stride)},
                     {"stride_x", double(axes.x.stride)},
                     {"dilation_y", double(axes.y.dilation)},
                     {"dilation_x", double(axes.x.dilation)},
                     {"before_y", double(axes.y.before)},
                     {"before_x", double(axes.x.before)},
                     {"input_slices", double(Slices(x[3]))}};
  SetGroupGrid(dispatch, request, DivideUp(y[0] * y[1] * y[2] * Slices(y[3]) * lanes, 64));
  dispatch.flops = Flops(request);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "split_block",
     .what = "1x1: the sum of one slice of four pixels cut among lanes of a workgroup: maps of middle size on big GPUs",
     .accepts = AcceptSplitBlock,
     .plan = PlanPointwise<Pointwise::kSplit>},
    {.name = "split",
     .what = "the sum of one slice of one pixel cut among lanes of a workgroup: small outputs on big GPUs",
     .accepts = AcceptSplit,
     .plan = PlanSplit},
    {.name = "panels",
     .what = "panels of 8 or 16 output channels in registers of eight lanes: OpenCL on CPUs",
     .accepts = AcceptConvPanels,
     .plan = PlanConvPanels},
    {.name = "pointwise_rolled",
     .what = "as pointwise, one input channel at a time: a third of the text for devices that compile slowly",
     .accepts = [](const KernelRequest& request) { return CompilesSlowly(request) && AcceptPointwise(request); },
     .plan = PlanPointwise<Pointwise::kRolled>},
    {.name = "pointwise",
     .what = "1x1: two slices of output channels and four pixels per invocation",
     .accepts = AcceptPointwise,
     .plan = PlanPointwise<Pointwise::kPlain>},
    {.name = "rolled",
     .what = "two slices of output channels, one input channel at a time: a small text for devices that compile slowly",
     .accepts = CompilesSlowly,
     .plan = PlanWindows<Windowed::kRolled>},
    {.name = "inner",
     .what = "two slices of output channels, loads without conditions inside: software devices",
     .accepts = [](const KernelRequest& request) { return request.target.is_software; },
     .plan = PlanWindows<Windowed::kInner>},
    {.name = "direct",
     .what = "one slice of output channels and four pixels per invocation",
     .accepts = AcceptAlways,
     .plan = PlanWindows<Windowed::kDirect>},
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
