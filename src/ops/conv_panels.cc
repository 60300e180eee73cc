// The kernels have no vectors: LLVM makes a loop over eight neighbouring numbers one instruction of eight lanes, while a vec4
// stays one of four. So sums are arrays of eight, and the weights of a panel lie side by side in the order in which they are
// read.
//   1x1     pixels of a map follow each other; four pixels by 16 channels, or eight pixels by 8 where 16 would be half empty
//   others  four neighbouring pixels by 16 channels; a row of a window is one run of numbers, or of slices of four, since
//           columns follow each other
// `chunk` blocks of pixels are taken for one panel, then for the next, so that a chunk's input stays in the cache.
#include "ops/conv_panels.h"

#include <algorithm>

#include "ops/assemble.h"
#include "ops/conv_shape.h"
#include "ops/cpu_target.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/weights.h"

namespace leeway {
namespace {

constexpr int64_t kWorkgroup = 16;  // small: few blocks are shared out evenly among cores

// Sums are stored by a loop, not one by one, so that the text of a fused operator is there once.
constexpr std::string_view kPoint16 = R"(
tensor x[pixel, channel] : read;
weights w[panel, input, output];
weights bias[output];
tensor y[pixel, channel] : write;
const groups_per_row : u32;
const chunk : u32;

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 16u + lane;
  let panel = index / chunk % w.panel;
  let pixel = (index / (chunk * w.panel) * chunk + index % chunk) * 4u;
  if (pixel >= y.pixel) { return; }
  // Zero, but no compiler knows, so that loops stay loops.
  let zero = index >> 31u;
  // Beyond the last pixel the last one is read again.
  let last = y.pixel - 1u;
  let p1 = min(pixel + 1u, last);
  let p2 = min(pixel + 2u, last);
  let p3 = min(pixel + 3u, last);
  var a0 : array<f32, 8>;
  var a1 : array<f32, 8>;
  var a2 : array<f32, 8>;
  var a3 : array<f32, 8>;
  var b0 : array<f32, 8>;
  var b1 : array<f32, 8>;
  var b2 : array<f32, 8>;
  var b3 : array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    let value = bias.load(16u * panel + j);
    a0[j] = value;
    a1[j] = value;
    a2[j] = value;
    a3[j] = value;
  }
  for (var j = 0u; j < 8u; j++) {
    let value = bias.load(16u * panel + 8u + j);
    b0[j] = value;
    b1[j] = value;
    b2[j] = value;
    b3[j] = value;
  }
  for (var s = 0u; s < w.input / 4u + zero; s++) {
    let v0 = x.load4(pixel, s);
    let v1 = x.load4(p1, s);
    let v2 = x.load4(p2, s);
    let v3 = x.load4(p3, s);
    @unroll for (var i = 0u; i < 4u; i++) {
      for (var j = 0u; j < 8u; j++) {
        let factor = w.load(panel, 4u * s + i, j);
        a0[j] += factor * v0[i];
        a1[j] += factor * v1[i];
        a2[j] += factor * v2[i];
        a3[j] += factor * v3[i];
      }
      for (var j = 0u; j < 8u; j++) {
        let factor = w.load(panel, 4u * s + i, 8u + j);
        b0[j] += factor * v0[i];
        b1[j] += factor * v1[i];
        b2[j] += factor * v2[i];
        b3[j] += factor * v3[i];
      }
    }
  }
  var sums : array<vec4f, 16>;
  for (var h = 0u; h < 2u; h++) {
    sums[h] = vec4f(a0[4u * h], a0[4u * h + 1u], a0[4u * h + 2u], a0[4u * h + 3u]);
    sums[2u + h] = vec4f(b0[4u * h], b0[4u * h + 1u], b0[4u * h + 2u], b0[4u * h + 3u]);
    sums[4u + h] = vec4f(a1[4u * h], a1[4u * h + 1u], a1[4u * h + 2u], a1[4u * h + 3u]);
    sums[6u + h] = vec4f(b1[4u * h], b1[4u * h + 1u], b1[4u * h + 2u], b1[4u * h + 3u]);
    sums[8u + h] = vec4f(a2[4u * h], a2[4u * h + 1u], a2[4u * h + 2u], a2[4u * h + 3u]);
    sums[10u + h] = vec4f(b2[4u * h], b2[4u * h + 1u], b2[4u * h + 2u], b2[4u * h + 3u]);
    sums[12u + h] = vec4f(a3[4u * h], a3[4u * h + 1u], a3[4u * h + 2u], a3[4u * h + 3u]);
    sums[14u + h] = vec4f(b3[4u * h], b3[4u * h + 1u], b3[4u * h + 2u], b3[4u * h + 3u]);
  }
  let pixels = min(4u, y.pixel - pixel);
  let slices = min(4u, (y.channel + 3u) / 4u - 4u * panel);
  for (var p = 0u; p < pixels + zero; p++) {
    for (var s = 0u; s < slices + zero; s++) { y.store4(sums[4u * p + s], pixel + p, 4u * panel + s); }
  }
}
)";

constexpr std::string_view kPoint8 = R"(
tensor x[pixel, channel] : read;
weights w[panel, input, output];
weights bias[output];
tensor y[pixel, channel] : write;
const groups_per_row : u32;
const chunk : u32;

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 16u + lane;
  let panel = index / chunk % w.panel;
  let pixel = (index / (chunk * w.panel) * chunk + index % chunk) * 8u;
  if (pixel >= y.pixel) { return; }
  // Zero, but no compiler knows, so that loops stay loops.
  let zero = index >> 31u;
  // Beyond the last pixel the last one is read again.
  let last = y.pixel - 1u;
  let p1 = min(pixel + 1u, last);
  let p2 = min(pixel + 2u, last);
  let p3 = min(pixel + 3u, last);
  let p4 = min(pixel + 4u, last);
  let p5 = min(pixel + 5u, last);
  let p6 = min(pixel + 6u, last);
  let p7 = min(pixel + 7u, last);
  var a0 : array<f32, 8>;
  var a1 : array<f32, 8>;
  var a2 : array<f32, 8>;
  var a3 : array<f32, 8>;
  var a4 : array<f32, 8>;
  var a5 : array<f32, 8>;
  var a6 : array<f32, 8>;
  var a7 : array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    let value = bias.load(8u * panel + j);
    a0[j] = value;
    a1[j] = value;
    a2[j] = value;
    a3[j] = value;
    a4[j] = value;
    a5[j] = value;
    a6[j] = value;
    a7[j] = value;
  }
  for (var s = 0u; s < w.input / 4u + zero; s++) {
    let v0 = x.load4(pixel, s);
    let v1 = x.load4(p1, s);
    let v2 = x.load4(p2, s);
    let v3 = x.load4(p3, s);
    let v4 = x.load4(p4, s);
    let v5 = x.load4(p5, s);
    let v6 = x.load4(p6, s);
    let v7 = x.load4(p7, s);
    @unroll for (var i = 0u; i < 4u; i++) {
      for (var j = 0u; j < 8u; j++) {
        let factor = w.load(panel, 4u * s + i, j);
        a0[j] += factor * v0[i];
        a1[j] += factor * v1[i];
        a2[j] += factor * v2[i];
        a3[j] += factor * v3[i];
        a4[j] += factor * v4[i];
        a5[j] += factor * v5[i];
        a6[j] += factor * v6[i];
        a7[j] += factor * v7[i];
      }
    }
  }
  var sums : array<vec4f, 16>;
  for (var h = 0u; h < 2u; h++) {
    sums[h] = vec4f(a0[4u * h], a0[4u * h + 1u], a0[4u * h + 2u], a0[4u * h + 3u]);
    sums[2u + h] = vec4f(a1[4u * h], a1[4u * h + 1u], a1[4u * h + 2u], a1[4u * h + 3u]);
    sums[4u + h] = vec4f(a2[4u * h], a2[4u * h + 1u], a2[4u * h + 2u], a2[4u * h + 3u]);
    sums[6u + h] = vec4f(a3[4u * h], a3[4u * h + 1u], a3[4u * h + 2u], a3[4u * h + 3u]);
    sums[8u + h] = vec4f(a4[4u * h], a4[4u * h + 1u], a4[4u * h + 2u], a4[4u * h + 3u]);
    sums[10u + h] = vec4f(a5[4u * h], a5[4u * h + 1u], a5[4u * h + 2u], a5[4u * h + 3u]);
    sums[12u + h] = vec4f(a6[4u * h], a6[4u * h + 1u], a6[4u * h + 2u], a6[4u * h + 3u]);
    sums[14u + h] = vec4f(a7[4u * h], a7[4u * h + 1u], a7[4u * h + 2u], a7[4u * h + 3u]);
  }
  let pixels = min(8u, y.pixel - pixel);
  let slices = min(2u, (y.channel + 3u) / 4u - 2u * panel);
  for (var p = 0u; p < pixels + zero; p++) {
    for (var s = 0u; s < slices + zero; s++) { y.store4(sums[2u * p + s], pixel + p, 2u * panel + s); }
  }
}
)";

constexpr std::string_view kWindowOfSlices = R"(
tensor x[batch, row, position] : read;  // position: column * channels + channel; whole slices a column
weights w[panel, tap_row, input, output];  // input: tap column * channels + channel
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const chunk : u32;
const stride_y : i32;
const dilation_y : i32;
const before_y : i32;
const step : i32;    // positions from one window to the next
const before : i32;  // positions that the first window begins before the row

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 16u + lane;
  let panel = index / chunk % w.panel;
  let block = index / (chunk * w.panel) * chunk + index % chunk;
  let blocks = (y.column + 3u) / 4u;
  if (block >= y.batch * y.row * blocks) { return; }
  let column = block % blocks * 4u;
  let row = block / blocks % y.row;
  let batch = block / (blocks * y.row);
  let top = i32(row) * stride_y - before_y;
  let start = i32(column) * step - before;
  // Zero, but no compiler knows, so that loops stay loops.
  let zero = index >> 31u;
  var a0 : array<f32, 8>;
  var a1 : array<f32, 8>;
  var a2 : array<f32, 8>;
  var a3 : array<f32, 8>;
  var b0 : array<f32, 8>;
  var b1 : array<f32, 8>;
  var b2 : array<f32, 8>;
  var b3 : array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    let value = bias.load(16u * panel + j);
    a0[j] = value;
    a1[j] = value;
    a2[j] = value;
    a3[j] = value;
  }
  for (var j = 0u; j < 8u; j++) {
    let value = bias.load(16u * panel + 8u + j);
    b0[j] = value;
    b1[j] = value;
    b2[j] = value;
    b3[j] = value;
  }
  let is_inside = start >= 0 && start + 3 * step + i32(w.input) <= i32(x.position);
  for (var ky = 0u; ky < w.tap_row + zero; ky++) {
    let iy = top + i32(ky) * dilation_y;
    if (iy < 0 || iy >= i32(x.row)) { continue; }
    if (is_inside) {
      for (var s = 0u; s < w.input / 4u + zero; s++) {
        let at = u32(start) / 4u + s;
        let v0 = x.load4(batch, u32(iy), at);
        let v1 = x.load4(batch, u32(iy), at + u32(step) / 4u);
        let v2 = x.load4(batch, u32(iy), at + u32(2 * step) / 4u);
        let v3 = x.load4(batch, u32(iy), at + u32(3 * step) / 4u);
        @unroll for (var i = 0u; i < 4u; i++) {
          for (var j = 0u; j < 8u; j++) {
            let factor = w.load(panel, ky, 4u * s + i, j);
            a0[j] += factor * v0[i];
            a1[j] += factor * v1[i];
            a2[j] += factor * v2[i];
            a3[j] += factor * v3[i];
          }
          for (var j = 0u; j < 8u; j++) {
            let factor = w.load(panel, ky, 4u * s + i, 8u + j);
            b0[j] += factor * v0[i];
            b1[j] += factor * v1[i];
            b2[j] += factor * v2[i];
            b3[j] += factor * v3[i];
          }
        }
      }
    } else {
      for (var s = 0u; s < w.input / 4u + zero; s++) {
        let at = start / 4 + i32(s);
        let v0 = x.load4_or_zero(batch, iy, at);
        let v1 = x.load4_or_zero(batch, iy, at + step / 4);
        let v2 = x.load4_or_zero(batch, iy, at + 2 * step / 4);
        let v3 = x.load4_or_zero(batch, iy, at + 3 * step / 4);
        @unroll for (var i = 0u; i < 4u; i++) {
          for (var j = 0u; j < 8u; j++) {
            let factor = w.load(panel, ky, 4u * s + i, j);
            a0[j] += factor * v0[i];
            a1[j] += factor * v1[i];
            a2[j] += factor * v2[i];
            a3[j] += factor * v3[i];
          }
          for (var j = 0u; j < 8u; j++) {
            let factor = w.load(panel, ky, 4u * s + i, 8u + j);
            b0[j] += factor * v0[i];
            b1[j] += factor * v1[i];
            b2[j] += factor * v2[i];
            b3[j] += factor * v3[i];
          }
        }
      }
    }
  }
  var sums : array<vec4f, 16>;
  for (var h = 0u; h < 2u; h++) {
    sums[h] = vec4f(a0[4u * h], a0[4u * h + 1u], a0[4u * h + 2u], a0[4u * h + 3u]);
    sums[2u + h] = vec4f(b0[4u * h], b0[4u * h + 1u], b0[4u * h + 2u], b0[4u * h + 3u]);
    sums[4u + h] = vec4f(a1[4u * h], a1[4u * h + 1u], a1[4u * h + 2u], a1[4u * h + 3u]);
    sums[6u + h] = vec4f(b1[4u * h], b1[4u * h + 1u], b1[4u * h + 2u], b1[4u * h + 3u]);
    sums[8u + h] = vec4f(a2[4u * h], a2[4u * h + 1u], a2[4u * h + 2u], a2[4u * h + 3u]);
    sums[10u + h] = vec4f(b2[4u * h], b2[4u * h + 1u], b2[4u * h + 2u], b2[4u * h + 3u]);
    sums[12u + h] = vec4f(a3[4u * h], a3[4u * h + 1u], a3[4u * h + 2u], a3[4u * h + 3u]);
    sums[14u + h] = vec4f(b3[4u * h], b3[4u * h + 1u], b3[4u * h + 2u], b3[4u * h + 3u]);
  }
  let pixels = min(4u, y.column - column);
  let slices = min(4u, (y.channel + 3u) / 4u - 4u * panel);
  for (var p = 0u; p < pixels + zero; p++) {
    for (var s = 0u; s < slices + zero; s++) { y.store4(sums[4u * p + s], batch, row, column + p, 4u * panel + s); }
  }
}
)";

constexpr std::string_view kWindowOfNumbers = R"(
tensor x[batch, row, position] : read;  // position: column * channels + channel
weights w[panel, tap_row, input, output];  // input: tap column * channels + channel
weights bias[output];
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const chunk : u32;
const stride_y : i32;
const dilation_y : i32;
const before_y : i32;
const step : i32;    // positions from one window to the next
const before : i32;  // positions that the first window begins before the row

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 16u + lane;
  let panel = index / chunk % w.panel;
  let block = index / (chunk * w.panel) * chunk + index % chunk;
  let blocks = (y.column + 3u) / 4u;
  if (block >= y.batch * y.row * blocks) { return; }
  let column = block % blocks * 4u;
  let row = block / blocks % y.row;
  let batch = block / (blocks * y.row);
  let top = i32(row) * stride_y - before_y;
  let start = i32(column) * step - before;
  // Zero, but no compiler knows, so that loops stay loops.
  let zero = index >> 31u;
  var a0 : array<f32, 8>;
  var a1 : array<f32, 8>;
  var a2 : array<f32, 8>;
  var a3 : array<f32, 8>;
  var b0 : array<f32, 8>;
  var b1 : array<f32, 8>;
  var b2 : array<f32, 8>;
  var b3 : array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    let value = bias.load(16u * panel + j);
    a0[j] = value;
    a1[j] = value;
    a2[j] = value;
    a3[j] = value;
  }
  for (var j = 0u; j < 8u; j++) {
    let value = bias.load(16u * panel + 8u + j);
    b0[j] = value;
    b1[j] = value;
    b2[j] = value;
    b3[j] = value;
  }
  let is_inside = start >= 0 && start + 3 * step + i32(w.input) <= i32(x.position);
  for (var ky = 0u; ky < w.tap_row + zero; ky++) {
    let iy = top + i32(ky) * dilation_y;
    if (iy < 0 || iy >= i32(x.row)) { continue; }
    if (is_inside) {
      for (var k = 0u; k < w.input + zero; k++) {
        let at = u32(start) + k;
        let v0 = x.load(batch, u32(iy), at);
        let v1 = x.load(batch, u32(iy), at + u32(step));
        let v2 = x.load(batch, u32(iy), at + u32(2 * step));
        let v3 = x.load(batch, u32(iy), at + u32(3 * step));
        for (var j = 0u; j < 8u; j++) {
          let factor = w.load(panel, ky, k, j);
          a0[j] += factor * v0;
          a1[j] += factor * v1;
          a2[j] += factor * v2;
          a3[j] += factor * v3;
        }
        for (var j = 0u; j < 8u; j++) {
          let factor = w.load(panel, ky, k, 8u + j);
          b0[j] += factor * v0;
          b1[j] += factor * v1;
          b2[j] += factor * v2;
          b3[j] += factor * v3;
        }
      }
    } else {
      for (var k = 0u; k < w.input + zero; k++) {
        let at = start + i32(k);
        let v0 = x.load_or_zero(batch, iy, at);
        let v1 = x.load_or_zero(batch, iy, at + step);
        let v2 = x.load_or_zero(batch, iy, at + 2 * step);
        let v3 = x.load_or_zero(batch, iy, at + 3 * step);
        for (var j = 0u; j < 8u; j++) {
          let factor = w.load(panel, ky, k, j);
          a0[j] += factor * v0;
          a1[j] += factor * v1;
          a2[j] += factor * v2;
          a3[j] += factor * v3;
        }
        for (var j = 0u; j < 8u; j++) {
          let factor = w.load(panel, ky, k, 8u + j);
          b0[j] += factor * v0;
          b1[j] += factor * v1;
          b2[j] += factor * v2;
          b3[j] += factor * v3;
        }
      }
    }
  }
  var sums : array<vec4f, 16>;
  for (var h = 0u; h < 2u; h++) {
    sums[h] = vec4f(a0[4u * h], a0[4u * h + 1u], a0[4u * h + 2u], a0[4u * h + 3u]);
    sums[2u + h] = vec4f(b0[4u * h], b0[4u * h + 1u], b0[4u * h + 2u], b0[4u * h + 3u]);
    sums[4u + h] = vec4f(a1[4u * h], a1[4u * h + 1u], a1[4u * h + 2u], a1[4u * h + 3u]);
    sums[6u + h] = vec4f(b1[4u * h], b1[4u * h + 1u], b1[4u * h + 2u], b1[4u * h + 3u]);
    sums[8u + h] = vec4f(a2[4u * h], a2[4u * h + 1u], a2[4u * h + 2u], a2[4u * h + 3u]);
    sums[10u + h] = vec4f(b2[4u * h], b2[4u * h + 1u], b2[4u * h + 2u], b2[4u * h + 3u]);
    sums[12u + h] = vec4f(a3[4u * h], a3[4u * h + 1u], a3[4u * h + 2u], a3[4u * h + 3u]);
    sums[14u + h] = vec4f(b3[4u * h], b3[4u * h + 1u], b3[4u * h + 2u], b3[4u * h + 3u]);
  }
  let pixels = min(4u, y.column - column);
  let slices = min(4u, (y.channel + 3u) / 4u - 4u * panel);
  for (var p = 0u; p < pixels + zero; p++) {
    for (var s = 0u; s < slices + zero; s++) { y.store4(sums[4u * p + s], batch, row, column + p, 4u * panel + s); }
  }
}
)";

bool IsPointwise(const ConvAxes& axes, const Shape& x, const Shape& y) {
  return axes.y.kernel == 1 && axes.x.kernel == 1 && axes.y.stride == 1 && axes.x.stride == 1 && y[1] == x[1] && y[2] == x[2];
}

Result<ConvAxes> Windows(const OpCall& call) {
  const Shape& w = InputShape(call, 1);
  return ConvWindows(call, "conv_2d", InputShape(call, 0), w[1], w[2]);
}

// Blocks of pixels that are taken for one panel: evenly cut, with no more input than half of a cache of 256 KiB holds.
int64_t Chunk(int64_t blocks, int64_t block_bytes) {
  const int64_t most = std::max<int64_t>((int64_t{1} << 17) / std::max<int64_t>(block_bytes, 1), 4);
  return std::max<int64_t>(DivideUp(blocks, DivideUp(blocks, most)), 1);
}

}  // namespace

bool AcceptConvPanels(const KernelRequest& request) {
  const Result<ConvAxes> axes = Windows(request.call);
  const Shape &x = InputShape(request.call, 0), &w = InputShape(request.call, 1);
  return RunsWorkgroupsOnThreads(request.target) && axes.ok() && w[3] == x[3] && axes->x.dilation == 1 &&
         request.call.outputs[0].shape.element_count() > 0 && x.element_count() > 0;
}

Result<OpPlan> PlanConvPanels(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call));
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1), &y = call.outputs[0].shape;
  const bool is_pointwise = IsPointwise(axes, x, y);
  // Loads, of which there are 6 to 8 multiplications in wide panels and 9 to 8 in narrow ones, are what limits both.
  const bool is_narrow = is_pointwise && 9 * DivideUp(y[3], 8) < 6 * 2 * DivideUp(y[3], 16);
  const int64_t width = is_narrow ? 8 : 16, panels = DivideUp(y[3], width);
  OpPlan plan;
  KernelDispatch dispatch{.kernel_name = "conv_2d_panels",
                          .kernel_text = is_narrow       ? kPoint8
                                         : is_pointwise  ? kPoint16
                                         : x[3] % 4 == 0 ? kWindowOfSlices
                                                         : kWindowOfNumbers,
                          .stores_result = true};
  int64_t blocks = 0, block_bytes = 0;
  const IndexExpr panel = IndexExpr::Axis(0);
  if (is_pointwise) {
    const int64_t pixels = y[0] * y[1] * y[2], per_block = is_narrow ? 8 : 4;
    const Shape x_flat{pixels, x[3]}, y_flat{pixels, y[3]};
    dispatch.tensors = {InputArgument("x", 0, x_flat, ReshapeMap(x, x_flat)),
                        OutputArgument("y", 0, y_flat, ReshapeMap(y, y_flat))};
    const IndexExpr output = panel * IndexExpr::Const(width) + IndexExpr::Axis(2), zero = IndexExpr::Const(0);
    CoordMap map{.coords = {output, zero, zero, IndexExpr::Axis(1)}};
    map.inside = And(Less(output, IndexExpr::Const(y[3])), Less(IndexExpr::Axis(1), IndexExpr::Const(x[3])));
    AddWeights(plan, dispatch, request, "w", 1, Shape{panels, 4 * Slices(x[3]), width}, std::move(map));
    blocks = DivideUp(pixels, per_block);
    block_bytes = per_block * x[3] * 4;
  } else {
    const Shape x_flat{x[0], x[1], x[2] * x[3]};
    dispatch.tensors = {InputArgument("x", 0, x_flat, ReshapeMap(x, x_flat)), OutputArgument("y", 0)};
    const IndexExpr output = panel * IndexExpr::Const(width) + IndexExpr::Axis(3), input = IndexExpr::Axis(2);
    CoordMap map{.coords = {output, IndexExpr::Axis(1), Div(input, x[3]), Mod(input, x[3])}};
    if (y[3] % width != 0) map.inside = Less(output, IndexExpr::Const(y[3]));
    AddWeights(plan, dispatch, request, "w", 1, Shape{panels, w[1], w[2] * x[3], width}, std::move(map));
    dispatch.consts = {{"stride_y", double(axes.y.stride)},
                       {"dilation_y", double(axes.y.dilation)},
                       {"before_y", double(axes.y.before)},
                       {"step", double(axes.x.stride * x[3])},
                       {"before", double(axes.x.before * x[3])}};
    blocks = y[0] * y[1] * DivideUp(y[2], 4);
    block_bytes = 4 * axes.x.stride * axes.y.stride * x[3] * 4;
  }
  // The bias fills the last panel up as well.
  const bool has_bias = HasInput(call, 2);
  CoordMap bias_map;
  if (has_bias) {
    bias_map = ReshapeMap(InputShape(call, 2), Shape{y[3]});
    if (y[3] % width != 0) bias_map.inside = Less(IndexExpr::Axis(0), IndexExpr::Const(y[3]));
  } else {
    bias_map.coords.assign(4, IndexExpr::Const(0));
    bias_map.inside = IndexExpr::Const(0);
  }
  AddWeights(plan, dispatch, request, "bias", has_bias ? 2 : 1, Shape{panels * width}, std::move(bias_map));
  const int64_t chunk = Chunk(blocks, block_bytes);
  dispatch.consts["chunk"] = double(chunk);
  SetGroupGrid(dispatch, request, DivideUp(DivideUp(blocks, chunk) * chunk * panels, kWorkgroup));
  dispatch.flops = 2.0 * double(y.element_count()) * double(w.element_count()) / double(y[3]);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

}  // namespace leeway
