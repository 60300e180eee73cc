// linear: y[row, o] = bias[o] + sum over i of x[row, i] * w[o, i]; the input's leading axes are rows. The weights may be
// block-quantized: the kernels read blocks and factors, and all other weights through load4.
//   matvec  few rows: lanes of a workgroup share a row of weights, which is read once for all rows of the input
//   matrix  many rows: subgroups multiply matrices of f16 (linear_matrix.cc)
//   tiled   many rows: tiles of both matrices in workgroup memory, weights dequantized once per tile
//   panels  CPUs, many rows: weights become numbers once for a panel of rows (linear_panels.cc)
//   turned  CPUs, few rows: eight outputs an invocation; codes become numbers where they lie in their words, and the
//           activations are turned and scaled to meet them, once for the eight
//   rows4   without workgroup memory: four outputs and four rows an invocation, weights dequantized once for the four rows
//   direct  one invocation per row and slice of four outputs; any shape, any target
#include <algorithm>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/linear_matrix.h"
#include "ops/linear_panels.h"
#include "ops/linear_parts.h"
#include "ops/weights.h"

namespace leeway {
namespace {

constexpr const char* kOp = "linear";
const AttrField kAttrs[] = {{"half_inputs", false, "Kernels may take inputs and weights as f16; sums are f32 all the same."}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 3));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 1));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 1, 2, 2));
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1);
  if (x.rank() == 0 || w[1] == 0 || x.at(-1) != w[1]) {
    return Invalid("Operator linear has an input of shape ", x.ToString(), " and weights of shape ", w.ToString(),
                   "; the last extents must be equal and not 0.");
  }
  RETURN_IF_ERROR(ExpectBias(call, kOp, 2, w[0]));
  Shape shape = x;
  shape[shape.rank() - 1] = w[0];
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const std::vector<float> x = inputs[0].ToF32();
  const HostTensor& w = inputs[1];
  const int64_t outs = w.shape()[0], depth = w.shape()[1], rows = int64_t(x.size()) / depth;
  const std::vector<double> bias = BiasOrZeros(call, inputs, 2, outs);
  std::vector<float> y(size_t(rows * outs));
  for (int64_t o = 0; o < outs; ++o) {
    // A row at a time: the whole matrix as f32 may be larger than the file.
    const std::vector<float> factors = RowToF32(w, o);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = &x[size_t(row * depth)];
      double sums[4] = {bias[size_t(o)], 0, 0, 0};
      for (int64_t i = 0; i < depth; ++i) sums[i % 4] += double(from[i]) * factors[size_t(i)];
      y[size_t(row * outs + o)] = float(sums[0] + sums[1] + sums[2] + sums[3]);
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

// 32 elements of a row of quantized weights as words of four codes. Nibbles are masked as a vector, which is cheaper than word
// by word. The offset is not taken off.
constexpr char kCodes[] = R"(
struct Codes { low : vec4u, high : vec4u }
fn codes32(row : u32, block : u32) -> Codes {
  if w.bits == 4u {
    let words = w.block(row, block);
    return Codes(words & vec4u(0x0f0f0f0fu), (words >> vec4u(4u)) & vec4u(0x0f0f0f0fu));
  } else {
    return Codes(w.block(row, 2u * block), w.block(row, 2u * block + 1u));
  }
}
fn numbers4(word : u32) -> vec4f {
  if w.bits == 4u { return vec4f(unpack4xU8(word)); } else { return vec4f(unpack4xI8(word)); }
}
)";

// Each invocation has the whole row of four outputs. x is loaded once for the four, its sums (for offset and minimum) too.
constexpr auto kDirect = JoinTexts(kCodes, R"(
tensor x[row, inner] : read;
weights w[output, inner];
weights bias[output];
tensor y[row, output] : write;
const groups_per_row : u32;
const use_bias : bool;

// What 32 elements of a row of weights add to its sum; four partial sums. sums: of low and high half of x.
fn products(row : u32, block : u32, x0 : vec4f, x1 : vec4f, x2 : vec4f, x3 : vec4f, x4 : vec4f, x5 : vec4f, x6 : vec4f,
            x7 : vec4f, low_sum : vec4f, high_sum : vec4f) -> vec4f {
  let codes = codes32(row, block);
  let low = numbers4(codes.low.x) * x0 + numbers4(codes.low.y) * x1 + numbers4(codes.low.z) * x2 + numbers4(codes.low.w) * x3;
  let high = numbers4(codes.high.x) * x4 + numbers4(codes.high.y) * x5 + numbers4(codes.high.z) * x6 +
             numbers4(codes.high.w) * x7;
  if w.group == 32u {
    let scale = w.scale(row, block);
    if w.has_minimum {
      return (low + high) * scale + (low_sum + high_sum) * w.minimum(row, block);
    } else if w.offset != 0u {
      return (low + high - (low_sum + high_sum) * f32(w.offset)) * scale;
    } else {
      return (low + high) * scale;
    }
  } else {
    let low_scale = w.scale(row, 2u * block);
    let high_scale = w.scale(row, 2u * block + 1u);
    if w.has_minimum {
      return low * low_scale + low_sum * w.minimum(row, 2u * block) + high * high_scale +
             high_sum * w.minimum(row, 2u * block + 1u);
    } else {
      return (low - low_sum * f32(w.offset)) * low_scale + (high - high_sum * f32(w.offset)) * high_scale;
    }
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.output + 3u) / 4u;
  if index >= y.row * slices { return; }
  let slice = index % slices;
  let row = index / slices;
  // Rows beyond the last one stay at it; what is computed there is not stored.
  let w0 = 4u * slice;
  let w1 = min(w0 + 1u, w.output - 1u);
  let w2 = min(w0 + 2u, w.output - 1u);
  let w3 = min(w0 + 3u, w.output - 1u);
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents without measure.
  let zero = index >> 31u;
  var sum0 = vec4f(0.0);
  var sum1 = vec4f(0.0);
  var sum2 = vec4f(0.0);
  var sum3 = vec4f(0.0);
  if w.bits != 0u {
    for (var b = 0u; b < w.inner / 32u + zero; b++) {
      let x0 = x.load4(row, 8u * b);
      let x1 = x.load4(row, 8u * b + 1u);
      let x2 = x.load4(row, 8u * b + 2u);
      let x3 = x.load4(row, 8u * b + 3u);
      let x4 = x.load4(row, 8u * b + 4u);
      let x5 = x.load4(row, 8u * b + 5u);
      let x6 = x.load4(row, 8u * b + 6u);
      let x7 = x.load4(row, 8u * b + 7u);
      let low = x0 + x1 + x2 + x3;
      let high = x4 + x5 + x6 + x7;
      sum0 += products(w0, b, x0, x1, x2, x3, x4, x5, x6, x7, low, high);
      sum1 += products(w1, b, x0, x1, x2, x3, x4, x5, x6, x7, low, high);
      sum2 += products(w2, b, x0, x1, x2, x3, x4, x5, x6, x7, low, high);
      sum3 += products(w3, b, x0, x1, x2, x3, x4, x5, x6, x7, low, high);
    }
  } else {
    for (var s = 0u; s < (w.inner + 3u) / 4u + zero; s++) {
      let v = x.load4(row, s);
      sum0 += w.load4(w0, s) * v;
      sum1 += w.load4(w1, s) * v;
      sum2 += w.load4(w2, s) * v;
      sum3 += w.load4(w3, s) * v;
    }
  }
  var sum = vec4f(sum4(sum0), sum4(sum1), sum4(sum2), sum4(sum3));
  if use_bias { sum += bias.load4(slice); }
  y.store4(sum, row, slice);
}
)");

// Byte k of the four words of a block has the elements k, 4 + k, 8 + k and 12 + k of 16, so masks make vectors of numbers
// without any shuffling, each a power of two too large. x, turned the same way and made smaller by that power, serves eight
// outputs.
constexpr char kTurned[] = R"(
tensor x[row, inner] : read;
weights w[output, inner];
weights bias[output];
tensor y[row, output] : write;
const threads : u32;
const groups_per_row : u32;
const use_bias : bool;

fn number(words : vec4u) -> vec4f { return vec4f(bitcast<vec4<i32>>(words)); }

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * threads + lane;
  let eights = (y.output + 7u) / 8u;
  if index >= y.row * eights { return; }
  let first = index % eights * 8u;
  let row = index / eights;
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents without measure.
  let zero = index >> 31u;
  var sums = array<vec4f, 8>();
  if w.bits != 0u {
    for (var b = 0u; b < w.inner / 32u + zero; b++) {
      let a0 = x.load4(row, 8u * b);
      let a1 = x.load4(row, 8u * b + 1u);
      let a2 = x.load4(row, 8u * b + 2u);
      let a3 = x.load4(row, 8u * b + 3u);
      let a4 = x.load4(row, 8u * b + 4u);
      let a5 = x.load4(row, 8u * b + 5u);
      let a6 = x.load4(row, 8u * b + 6u);
      let a7 = x.load4(row, 8u * b + 7u);
      let low_sum = a0 + a1 + a2 + a3;
      let high_sum = a4 + a5 + a6 + a7;
      var low0 = vec4f(a0.x, a1.x, a2.x, a3.x);
      var low1 = vec4f(a0.y, a1.y, a2.y, a3.y);
      var low2 = vec4f(a0.z, a1.z, a2.z, a3.z);
      var low3 = vec4f(a0.w, a1.w, a2.w, a3.w);
      var high0 = vec4f(a4.x, a5.x, a6.x, a7.x);
      var high1 = vec4f(a4.y, a5.y, a6.y, a7.y);
      var high2 = vec4f(a4.z, a5.z, a6.z, a7.z);
      var high3 = vec4f(a4.w, a5.w, a6.w, a7.w);
      if w.bits == 4u {
        low1 *= 0.00390625;
        low2 *= 0.0000152587890625;
        low3 *= 5.9604644775390625e-8;
        high0 *= 0.0625;
        high1 *= 0.000244140625;
        high2 *= 9.5367431640625e-7;
      }
      @unroll for (var o = 0u; o < 8u; o++) {
        let output = min(first + o, w.output - 1u);
        var low = vec4f(0.0);
        var high = vec4f(0.0);
        if w.bits == 4u {
          let words = w.block(output, b);
          low = number(words & vec4u(0xfu)) * low0 + number(words & vec4u(0xf00u)) * low1 +
                number(words & vec4u(0xf0000u)) * low2 + number(words & vec4u(0xf000000u)) * low3;
          high = number(words & vec4u(0xf0u)) * high0 + number(words & vec4u(0xf000u)) * high1 +
                 number(words & vec4u(0xf00000u)) * high2 + number(words >> vec4u(28u)) * high3;
        } else {
          let l = w.block(output, 2u * b);
          let h = w.block(output, 2u * b + 1u);
          let top = vec4u(0xff000000u);
          low = number(l << vec4u(24u)) * low0 + number((l << vec4u(16u)) & top) * low1 +
                number((l << vec4u(8u)) & top) * low2 + number(l & top) * low3;
          high = number(h << vec4u(24u)) * high0 + number((h << vec4u(16u)) & top) * high1 +
                 number((h << vec4u(8u)) & top) * high2 + number(h & top) * high3;
          low *= 5.9604644775390625e-8;
          high *= 5.9604644775390625e-8;
        }
        if w.offset != 0u {
          low -= low_sum * f32(w.offset);
          high -= high_sum * f32(w.offset);
        }
        if w.group == 32u {
          sums[o] += (low + high) * w.scale(output, b);
          if w.has_minimum { sums[o] += (low_sum + high_sum) * w.minimum(output, b); }
        } else {
          sums[o] += low * w.scale(output, 2u * b) + high * w.scale(output, 2u * b + 1u);
          if w.has_minimum {
            sums[o] += low_sum * w.minimum(output, 2u * b) + high_sum * w.minimum(output, 2u * b + 1u);
          }
        }
      }
    }
  } else {
    for (var s = 0u; s < (w.inner + 3u) / 4u + zero; s++) {
      let v = x.load4(row, s);
      @unroll for (var o = 0u; o < 8u; o++) { sums[o] += w.load4(min(first + o, w.output - 1u), s) * v; }
    }
  }
  let slice = first / 4u;
  var low = vec4f(sum4(sums[0]), sum4(sums[1]), sum4(sums[2]), sum4(sums[3]));
  if use_bias { low += bias.load4(slice); }
  y.store4(low, row, slice);
  if first + 4u < y.output {
    var high = vec4f(sum4(sums[4]), sum4(sums[5]), sum4(sums[6]), sum4(sums[7]));
    if use_bias { high += bias.load4(slice + 1u); }
    y.store4(high, row, slice + 1u);
  }
}
)";

// A slice of weights is dequantized once and meets four rows of x.
constexpr char kRows4[] = R"(
tensor x[row, inner] : read;
weights w[output, inner];
weights bias[output];
tensor y[row, output] : write;
const groups_per_row : u32;
const use_bias : bool;

fn numbers4(word : u32) -> vec4f {
  if w.bits == 4u { return vec4f(unpack4xU8(word & 0x0f0f0f0fu)); } else { return vec4f(unpack4xI8(word)); }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let quads = (y.row + 3u) / 4u;
  if index >= quads * ((y.output + 3u) / 4u) { return; }
  let slice = index / quads;
  let r0 = index % quads * 4u;
  let r1 = min(r0 + 1u, x.row - 1u);
  let r2 = min(r0 + 2u, x.row - 1u);
  let r3 = min(r0 + 3u, x.row - 1u);
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents without measure.
  let zero = index >> 31u;
  var results = array<vec4f, 4>();
  // Two outputs at a time: eight sums of four, and CPUs have sixteen registers.
  for (var pair = 0u; pair < 2u + zero; pair++) {
    let w0 = min(4u * slice + 2u * pair, w.output - 1u);
    let w1 = min(w0 + 1u, w.output - 1u);
    var a0 = vec4f(0.0);
    var a1 = vec4f(0.0);
    var a2 = vec4f(0.0);
    var a3 = vec4f(0.0);
    var b0 = vec4f(0.0);
    var b1 = vec4f(0.0);
    var b2 = vec4f(0.0);
    var b3 = vec4f(0.0);
    if w.bits != 0u {
      for (var g = 0u; g < w.inner / w.group + zero; g++) {
        let scale0 = w.scale(w0, g);
        let scale1 = w.scale(w1, g);
        let minimum0 = w.minimum(w0, g) - scale0 * f32(w.offset);
        let minimum1 = w.minimum(w1, g) - scale1 * f32(w.offset);
        // Groups of 16 are half a block of 4-bit codes, or a block of 8-bit codes.
        for (var part = 0u; part < w.group / 16u; part++) {
          let half = g * (w.group / 16u) + part;
          var words0 = vec4u(0u);
          var words1 = vec4u(0u);
          if w.bits == 4u {
            words0 = w.block(w0, half / 2u) >> vec4u(half % 2u * 4u);
            words1 = w.block(w1, half / 2u) >> vec4u(half % 2u * 4u);
          } else {
            words0 = w.block(w0, half);
            words1 = w.block(w1, half);
          }
          @unroll for (var i = 0u; i < 4u; i++) {
            let v0 = numbers4(words0[i]) * scale0 + minimum0;
            let v1 = numbers4(words1[i]) * scale1 + minimum1;
            let s = 4u * half + i;
            let x0 = x.load4(r0, s);
            a0 += v0 * x0;
            b0 += v1 * x0;
            let x1 = x.load4(r1, s);
            a1 += v0 * x1;
            b1 += v1 * x1;
            let x2 = x.load4(r2, s);
            a2 += v0 * x2;
            b2 += v1 * x2;
            let x3 = x.load4(r3, s);
            a3 += v0 * x3;
            b3 += v1 * x3;
          }
        }
      }
    } else {
      for (var s = 0u; s < (w.inner + 3u) / 4u + zero; s++) {
        let v0 = w.load4(w0, s);
        let v1 = w.load4(w1, s);
        let x0 = x.load4(r0, s);
        a0 += v0 * x0;
        b0 += v1 * x0;
        let x1 = x.load4(r1, s);
        a1 += v0 * x1;
        b1 += v1 * x1;
        let x2 = x.load4(r2, s);
        a2 += v0 * x2;
        b2 += v1 * x2;
        let x3 = x.load4(r3, s);
        a3 += v0 * x3;
        b3 += v1 * x3;
      }
    }
    let pair0 = vec2f(sum4(a0), sum4(b0));
    let pair1 = vec2f(sum4(a1), sum4(b1));
    let pair2 = vec2f(sum4(a2), sum4(b2));
    let pair3 = vec2f(sum4(a3), sum4(b3));
    if pair == 0u {
      results[0] = vec4f(pair0, 0.0, 0.0);
      results[1] = vec4f(pair1, 0.0, 0.0);
      results[2] = vec4f(pair2, 0.0, 0.0);
      results[3] = vec4f(pair3, 0.0, 0.0);
    } else {
      results[0] += vec4f(0.0, 0.0, pair0);
      results[1] += vec4f(0.0, 0.0, pair1);
      results[2] += vec4f(0.0, 0.0, pair2);
      results[3] += vec4f(0.0, 0.0, pair3);
    }
  }
  var offset = vec4f(0.0);
  if use_bias { offset = bias.load4(slice); }
  y.store4(results[0] + offset, r0, slice);
  if r0 + 1u < y.row { y.store4(results[1] + offset, r0 + 1u, slice); }
  if r0 + 2u < y.row { y.store4(results[2] + offset, r0 + 2u, slice); }
  if r0 + 3u < y.row { y.store4(results[3] + offset, r0 + 3u, slice); }
}
)";

// `lanes` invocations share `outputs` rows of weights; each block of them meets all rows of x.
constexpr auto kMatvec = JoinTexts(kCodes, R"(
tensor x[row, inner] : read;
weights w[output, inner];
weights bias[output];
tensor y[row, output] : write;
const groups_per_row : u32;
const use_bias : bool;
const lanes : u32;
const units : u32;    // in a workgroup
const outputs : u32;  // of a unit
const sum_count = outputs * x.row;

@compute @workgroup_size(lanes, units)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_id) id : vec3u) {
  let first = ((group.y * groups_per_row + group.x) * units + id.y) * outputs;
  var sums = array<f32, sum_count>();
  if w.bits != 0u {
    for (var b = id.x; b < w.inner / 32u; b += lanes) {
      @unroll for (var r = 0u; r < x.row; r++) {
        let x0 = x.load4(r, 8u * b);
        let x1 = x.load4(r, 8u * b + 1u);
        let x2 = x.load4(r, 8u * b + 2u);
        let x3 = x.load4(r, 8u * b + 3u);
        let x4 = x.load4(r, 8u * b + 4u);
        let x5 = x.load4(r, 8u * b + 5u);
        let x6 = x.load4(r, 8u * b + 6u);
        let x7 = x.load4(r, 8u * b + 7u);
        let low_sum = sum4(x0 + x1 + x2 + x3);
        let high_sum = sum4(x4 + x5 + x6 + x7);
        @unroll for (var o = 0u; o < outputs; o++) {
          let row = min(first + o, w.output - 1u);
          let codes = codes32(row, b);
          let low = dot(numbers4(codes.low.x), x0) + dot(numbers4(codes.low.y), x1) + dot(numbers4(codes.low.z), x2) +
                    dot(numbers4(codes.low.w), x3) - f32(w.offset) * low_sum;
          let high = dot(numbers4(codes.high.x), x4) + dot(numbers4(codes.high.y), x5) + dot(numbers4(codes.high.z), x6) +
                     dot(numbers4(codes.high.w), x7) - f32(w.offset) * high_sum;
          if w.group == 32u {
            sums[o * x.row + r] += (low + high) * w.scale(row, b);
            if w.has_minimum { sums[o * x.row + r] += (low_sum + high_sum) * w.minimum(row, b); }
          } else {
            sums[o * x.row + r] += low * w.scale(row, 2u * b) + high * w.scale(row, 2u * b + 1u);
            if w.has_minimum {
              sums[o * x.row + r] += low_sum * w.minimum(row, 2u * b) + high_sum * w.minimum(row, 2u * b + 1u);
            }
          }
        }
      }
    }
  } else {
    for (var s = id.x; s < (w.inner + 3u) / 4u; s += lanes) {
      @unroll for (var o = 0u; o < outputs; o++) {
        let v = w.load4(min(first + o, w.output - 1u), s);
        @unroll for (var r = 0u; r < x.row; r++) { sums[o * x.row + r] += dot(v, x.load4(r, s)); }
      }
    }
  }
  @unroll for (var o = 0u; o < outputs; o++) {
    @unroll for (var r = 0u; r < x.row; r++) {
      var sum = unit_sum(sums[o * x.row + r]);
      if id.x == (o * x.row + r) % lanes && first + o < y.output {
        if use_bias { sum += bias.load(first + o); }
        y.store(sum, r, first + o);
      }
    }
  }
}
)");

// Tiles along the inner axis are transposed as they are staged, four rows by four elements at a time, so that the inner loop
// reads four rows of x and four outputs with one load each. An invocation has 4 or 8 rows by 4 results: with 8, a load from
// workgroup memory feeds a third more arithmetic. Where halves are wanted, products and sums of sixteen are halves: packed
// arithmetic on them is twice as fast.
constexpr char kTiled[] = R"(
tensor x[row, inner] : read;
weights w[output, inner];
weights bias[output];
tensor y[row, output] : write;
const use_bias : bool;
const row_threads : u32;  // times 16 for the outputs
const quads : u32;        // rows of an invocation, in fours: 1 or 2
const depth : u32;        // of a tile
const use_f16 : bool;
const threads = 16u * row_threads;
const x_quads = row_threads * quads;
const x_length = depth * x_quads;
const w_length = depth * 16u;
var<workgroup> x_tile : array<vec4f, x_length>;
var<workgroup> w_tile : array<vec4f, w_length>;
var<workgroup> x_halves : array<vec4<f16>, x_length>;
var<workgroup> w_halves : array<vec4<f16>, w_length>;

fn stage_x(at : u32, v : vec4f) {
  if use_f16 { x_halves[at] = vec4<f16>(v); } else { x_tile[at] = v; }
}
fn stage_w(at : u32, v : vec4f) {
  if use_f16 { w_halves[at] = vec4<f16>(v); } else { w_tile[at] = v; }
}

@compute @workgroup_size(16, row_threads)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_id) id : vec3u,
        @builtin(local_invocation_index) lane : u32) {
  let first_row = group.y * x_quads * 4u;
  let first_output = group.x * 64u;
  const slices = depth / 4u;
  var sums = array<vec4f, 4u * quads>();
  for (var k = 0u; k < (w.inner + depth - 1u) / depth; k++) {
    for (var task = lane; task < slices * x_quads; task += threads) {
      let slice = task % slices;
      let quad = task / slices;
      let row = first_row + 4u * quad;
      let a = x.load4_or_zero(row, slices * k + slice);
      let b = x.load4_or_zero(row + 1u, slices * k + slice);
      let c = x.load4_or_zero(row + 2u, slices * k + slice);
      let d = x.load4_or_zero(row + 3u, slices * k + slice);
      let at = 4u * slice * x_quads + quad;
      stage_x(at, vec4f(a.x, b.x, c.x, d.x));
      stage_x(at + x_quads, vec4f(a.y, b.y, c.y, d.y));
      stage_x(at + 2u * x_quads, vec4f(a.z, b.z, c.z, d.z));
      stage_x(at + 3u * x_quads, vec4f(a.w, b.w, c.w, d.w));
    }
    // From the other end, so that lanes that had no part of x begin.
    for (var task = threads - 1u - lane; task < 16u * slices; task += threads) {
      let slice = task % slices;
      let quad = task / slices;
      let output = first_output + 4u * quad;
      let a = w.load4_or_zero(output, slices * k + slice);
      let b = w.load4_or_zero(output + 1u, slices * k + slice);
      let c = w.load4_or_zero(output + 2u, slices * k + slice);
      let d = w.load4_or_zero(output + 3u, slices * k + slice);
      let at = 64u * slice + quad;
      stage_w(at, vec4f(a.x, b.x, c.x, d.x));
      stage_w(at + 16u, vec4f(a.y, b.y, c.y, d.y));
      stage_w(at + 32u, vec4f(a.z, b.z, c.z, d.z));
      stage_w(at + 48u, vec4f(a.w, b.w, c.w, d.w));
    }
    workgroupBarrier();
    if use_f16 {
      for (var part = 0u; part < depth; part += 16u) {
        var partial = array<vec4<f16>, 4u * quads>();
        for (var i = part; i < part + 16u; i++) {
          let b = w_halves[i * 16u + id.x];
          @unroll for (var q = 0u; q < quads; q++) {
            let a = x_halves[i * x_quads + q * row_threads + id.y];
            partial[4u * q] += a.x * b;
            partial[4u * q + 1u] += a.y * b;
            partial[4u * q + 2u] += a.z * b;
            partial[4u * q + 3u] += a.w * b;
          }
        }
        @unroll for (var r = 0u; r < 4u * quads; r++) { sums[r] += vec4f(partial[r]); }
      }
    } else {
      for (var i = 0u; i < depth; i++) {
        let b = w_tile[i * 16u + id.x];
        @unroll for (var q = 0u; q < quads; q++) {
          let a = x_tile[i * x_quads + q * row_threads + id.y];
          sums[4u * q] += a.x * b;
          sums[4u * q + 1u] += a.y * b;
          sums[4u * q + 2u] += a.z * b;
          sums[4u * q + 3u] += a.w * b;
        }
      }
    }
    workgroupBarrier();
  }
  let slice = first_output / 4u + id.x;
  if slice >= (y.output + 3u) / 4u { return; }
  var offset = vec4f(0.0);
  if use_bias { offset = bias.load4(slice); }
  @unroll for (var q = 0u; q < quads; q++) {
    let row = first_row + 4u * (q * row_threads + id.y);
    @unroll for (var r = 0u; r < 4u; r++) {
      if row + r < y.row { y.store4(sums[4u * q + r] + offset, row + r, slice); }
    }
  }
}
)";

// How a matvec is cut, by the inner extent and the outputs; best on an H200 (specs: findings, section 3). The first row that
// holds wins.
struct Geometry {
  int64_t least_inner, most_inner, least_outputs;
  uint32_t lanes, outputs, threads;
};
constexpr Geometry kGeometries[] = {
    {0, 160, 0, 4, 1, 128},
    // Rows of 20 or 36 blocks: eight lanes waste little, and the activations are read by many rows at once.
    {161, 895, 0, 8, 1, 128},
    {896, 1087, 0, 32, 2, 256},
    {1088, 1279, 0, 8, 1, 128},
    {1280, 2559, 100000, 16, 2, 128},
    {1280, 2559, 10000, 64, 2, 128},
    {1280, 2559, 0, 64, 1, 256},
    {2560, 5119, 100000, 32, 2, 128},
    {2560, 5119, 0, 64, 1, 256},
    {5120, INT64_MAX, 0, 128, 1, 256},
};

using Common = LinearShapes;
Common CommonOf(const OpCall& call) { return LinearShapesOf(call); }
int64_t RowsOf(const KernelRequest& request) { return CommonOf(request.call).x[0]; }

Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const Common common = CommonOf(request.call);
  OpPlan plan;
  if (common.y.element_count() == 0) return plan;
  KernelDispatch dispatch = StartLinear(request, common, "linear_direct", kDirect.data(), plan);
  SetLinearGrid(dispatch, request, common.y[0] * Slices(common.y[1]));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

Result<OpPlan> PlanTurned(const KernelRequest& request) {
  const Common common = CommonOf(request.call);
  OpPlan plan;
  if (common.y.element_count() == 0) return plan;
  KernelDispatch dispatch = StartLinear(request, common, "linear_turned", kTurned, plan);
  const int64_t invocations = common.y[0] * DivideUp(common.y[1], 8);
  // Small workgroups, so that few invocations keep all cores busy.
  const int64_t threads = invocations < 512 ? 4 : 16;
  dispatch.consts["threads"] = double(threads);
  SetGroupGrid(dispatch, request, DivideUp(invocations, threads));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

Result<OpPlan> PlanRows4(const KernelRequest& request) {
  const Common common = CommonOf(request.call);
  OpPlan plan;
  if (common.y.element_count() == 0) return plan;
  KernelDispatch dispatch = StartLinear(request, common, "linear_rows4", kRows4, plan);
  SetLinearGrid(dispatch, request, Slices(common.y[0]) * Slices(common.y[1]));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

Result<OpPlan> PlanMatvec(const KernelRequest& request) {
  const Common common = CommonOf(request.call);
  OpPlan plan;
  if (common.y.element_count() == 0) return plan;
  KernelDispatch dispatch = StartLinear(request, common, "linear_matvec", kMatvec.data(), plan);
  const int64_t inner = common.x[1], outs = common.y[1];
  const Geometry* chosen = &kGeometries[0];
  for (const Geometry& g : kGeometries) {
    if (inner >= g.least_inner && inner <= g.most_inner && outs >= g.least_outputs) {
      chosen = &g;
      break;
    }
  }
  const shader::Target& target = request.target;
  const uint32_t threads = std::min(chosen->threads, target.max_invocations);
  const uint32_t lanes = std::min({chosen->lanes, threads, target.max_workgroup_size[0]});
  const uint32_t units = std::min(threads / lanes, target.max_workgroup_size[1]);
  dispatch.consts["lanes"] = lanes;
  dispatch.consts["units"] = units;
  dispatch.consts["outputs"] = chosen->outputs;
  SetGroupGrid(dispatch, request, DivideUp(outs, int64_t(units) * chosen->outputs));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

Result<OpPlan> PlanTiled(const KernelRequest& request) {
  const Common common = CommonOf(request.call);
  OpPlan plan;
  if (common.y.element_count() == 0) return plan;
  KernelDispatch dispatch = StartLinear(request, common, "linear_tiled", kTiled, plan);
  // The largest tile that still gives a large GPU a few workgroups for each of its cores.
  struct Tile {
    uint32_t row_threads, quads, depth;
    int64_t enough;
  };
  constexpr Tile kTiles[] = {{16, 2, 16, 256}, {16, 1, 32, 192}, {8, 1, 32, 0}};
  const int64_t rows = common.x[0], columns = DivideUp(common.y[1], 64);
  Tile tile = {4, 1, 32, 0};
  if (rows > 16) {
    for (const Tile& candidate : kTiles) {
      tile = candidate;
      if (columns * DivideUp(rows, 4 * candidate.row_threads * candidate.quads) >= candidate.enough) break;
    }
  }
  dispatch.consts["row_threads"] = tile.row_threads;
  dispatch.consts["quads"] = tile.quads;
  dispatch.consts["depth"] = tile.depth;
  dispatch.consts["use_f16"] = request.prefer_f16 && request.target.f16;
  dispatch.workgroups[0] = uint32_t(columns);
  dispatch.workgroups[1] = uint32_t(DivideUp(rows, 4 * tile.row_threads * tile.quads));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

bool AcceptMatvec(const KernelRequest& request) { return !request.target.is_software && RowsOf(request) <= 8; }
bool AcceptTiled(const KernelRequest& request) {
  return !request.target.is_software && RowsOf(request) > 8 && request.target.max_invocations >= 256 &&
         request.target.max_workgroup_bytes >= 16384;
}
bool AcceptTurned(const KernelRequest& request) { return request.target.is_software && RowsOf(request) <= 3; }
bool AcceptRows4(const KernelRequest& request) { return RowsOf(request) > 1; }

constexpr KernelVariant kVariants[] = {
    {.name = "matvec", .what = "few rows: lanes share a row of weights", .accepts = AcceptMatvec, .plan = PlanMatvec},
    {.name = "matrix",
     .what = "many rows: products of matrices by subgroups",
     .accepts = AcceptLinearMatrix,
     .plan = PlanLinearMatrix},
    {.name = "tiled",
     .what = "many rows: tiles in workgroup memory, weights dequantized once per tile",
     .accepts = AcceptTiled,
     .plan = PlanTiled},
    {.name = "panels",
     .what = "many rows on a CPU: weights become numbers once for a panel of rows",
     .accepts = AcceptLinearPanels,
     .plan = PlanLinearPanels},
    {.name = "turned",
     .what = "few rows on a CPU: activations are turned to meet codes where they lie",
     .accepts = AcceptTurned,
     .plan = PlanTurned},
    {.name = "rows4",
     .what = "four outputs and four rows an invocation, without workgroup memory",
     .accepts = AcceptRows4,
     .plan = PlanRows4},
    {.name = "direct", .what = "one invocation per row and slice of outputs", .accepts = AcceptAlways, .plan = PlanDirect},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

LinearShapes LinearShapesOf(const OpCall& call) {
  const Shape &x = InputShape(call, 0), &w = InputShape(call, 1);
  const int64_t rows = x.element_count() / w[1];
  return {{rows, w[1]}, {rows, w[0]}};
}

KernelDispatch StartLinear(const KernelRequest& request, const LinearShapes& shapes, const char* name, std::string_view text,
                           OpPlan& plan) {
  const OpCall& call = request.call;
  KernelDispatch dispatch{.kernel_name = name, .kernel_text = text, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, shapes.x, ReshapeMap(InputShape(call, 0), shapes.x)), InputArgument("w", 1),
                      OutputArgument("y", 0, shapes.y, ReshapeMap(call.outputs[0].shape, shapes.y))};
  const bool use_bias = HasInput(call, 2);
  dispatch.consts["use_bias"] = use_bias;
  if (use_bias) AddBias(plan, dispatch, request, "bias", 2, 1, shapes.y[1]);
  dispatch.flops = 2.0 * double(shapes.y.element_count()) * double(shapes.x[1]);
  return dispatch;
}

extern const OpDef op_linear = {.name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels};

}  // namespace leeway
