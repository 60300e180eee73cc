#include "ops/decode_serial.h"

#include <algorithm>

#include "ops/cpu_target.h"
#include "ops/dispatch.h"
#include "tensor/block_pack.h"

namespace leeway {
namespace {

// Eight words of codes are taken at once: two blocks of 4 bits, or two of 8 (a *step*). Masks make numbers of the codes where
// they lie in their words, each a power of two too large; the input, turned once so that element i of a line meets word i and
// made smaller by that power, serves all rows. Loops over eight single elements become vector instructions of that width in
// compilers for CPUs, which vec4 would not.
constexpr std::string_view kText = R"(
tensor x[inner] : read;
tensor branch[inner] : read;
weights gain[inner];
weights branch_gain[inner];
tensor splits[split, element] : read;
weights w[row, inner];
tensor y[row] : write;
tensor residual[inner] : write;
tensor best[group] : write;
tensor best_row[group] : write as u32;

const before : u32;   // 0 none, 1 norm, 2 add_norm, 3 merge
const after : u32;    // 0 none, 1 gelu, 2 silu, 3 argmax
const epsilon : f32;
const heads : u32;
const share : u32;    // results of a workgroup
const groups_per_row : u32;

const inner = w.inner;
const quads = inner / 4u;
const gated = after == 1u || after == 2u;
const result_rows = w.row / select(1u, 2u, gated);
const step_elements = 256u / w.bits;
const merged_quads = select(1u, quads, before == 3u);

var<workgroup> turned : array<f32, inner>;
var<workgroup> sums : array<f32, inner / w.group>;
var<workgroup> merged : array<vec4f, merged_quads>;

fn added(i : u32, branch_factor : f32) -> vec4f {
  if (before == 2u) {
    return x.load4(i) + branch.load4(i) * branch_factor * branch_gain.load4(i);
  } else {
    return x.load4(i);
  }
}
fn quad(i : u32, factor : f32, branch_factor : f32) -> vec4f {
  if (before == 0u) {
    return x.load4(i);
  } else if (before == 3u) {
    return merged[i];
  } else {
    return added(i, branch_factor) * factor * gain.load4(i);
  }
}

// zero: 0, but no compiler knows. Mesa unrolls loops over constant extents without measure.
fn merge(zero : u32) {
  const head_quads = splits.element / heads / 4u;   // the last one has the largest score and the sum
  for (var h = 0u; h < heads + zero; h++) {
    var factors = array<f32, splits.split>();
    var largest = -3.0e4;
    for (var s = 0u; s < splits.split; s++) {
      factors[s] = splits.load(s, 4u * ((h + 1u) * head_quads - 1u));
      largest = max(largest, factors[s]);
    }
    var total = 0.0;
    for (var s = 0u; s < splits.split; s++) {
      factors[s] = exp(factors[s] - largest);
      total += factors[s] * splits.load(s, 4u * ((h + 1u) * head_quads - 1u) + 1u);
    }
    for (var i = 0u; i < head_quads - 1u + zero; i++) {
      var sum = vec4f(0.0);
      for (var s = 0u; s < splits.split; s++) { sum += factors[s] * splits.load4(s, h * head_quads + i); }
      merged[h * (head_quads - 1u) + i] = sum / total;
    }
  }
}

fn put(at : u32, v : vec4f) {
  turned[at] = v.x;
  turned[at + 1u] = v.y;
  turned[at + 2u] = v.z;
  turned[at + 3u] = v.w;
}

fn prepare(keeps_residual : bool, zero : u32) {
  var branch_factor = 0.0;
  var factor = 0.0;
  if (before == 2u) {
    var squares = vec4f(0.0);
    for (var i = 0u; i < quads + zero; i++) { squares += branch.load4(i) * branch.load4(i); }
    branch_factor = inverseSqrt(sum4(squares) / f32(inner) + epsilon);
  }
  if (before == 1u || before == 2u) {
    var squares = vec4f(0.0);
    for (var i = 0u; i < quads + zero; i++) {
      let v = added(i, branch_factor);
      if (before == 2u && after != 3u) {
        if (keeps_residual) { residual.store4(v, i); }
      }
      squares += v * v;
    }
    factor = inverseSqrt(sum4(squares) / f32(inner) + epsilon);
  }
  if (before == 3u) { merge(zero); }
  for (var part = 0u; part < inner / 16u + zero; part++) {
    let a = quad(4u * part, factor, branch_factor);
    let b = quad(4u * part + 1u, factor, branch_factor);
    let c = quad(4u * part + 2u, factor, branch_factor);
    let d = quad(4u * part + 3u, factor, branch_factor);
    let sum = sum4(a + b + c + d);
    if (w.group == 16u) {
      sums[part] = sum;
    } else if (part % 2u == 0u) {
      sums[part / 2u] = sum;
    } else {
      sums[part / 2u] += sum;
    }
    var line0 = vec4f(a.x, b.x, c.x, d.x);
    var line1 = vec4f(a.y, b.y, c.y, d.y) * 0.00390625;
    var line2 = vec4f(a.z, b.z, c.z, d.z) * 0.0000152587890625;
    var line3 = vec4f(a.w, b.w, c.w, d.w);
    var at = part / 2u * 32u + part % 2u * 4u;
    if (w.bits == 4u) {
      // Low nibbles first, then those of twice the power of four, whose topmost is shifted to the end instead.
      if (part % 2u == 0u) {
        line3 *= 5.9604644775390625e-8;
      } else {
        line0 *= 0.0625;
        line1 *= 0.0625;
        line2 *= 0.0625;
      }
      at = part / 4u * 64u + part / 2u % 2u * 4u + part % 2u * 32u;
    }
    put(at, line0);
    put(at + 8u, line1);
    put(at + 16u, line2);
    put(at + 24u, line3);
  }
}

fn number(word : u32) -> f32 { return f32(bitcast<i32>(word)); }
// What a group of a row is off by: codes of 4 bits without a minimum have an offset, those of 8 bits are taken as unsigned.
fn correction(row : u32, group : u32, scale : f32) -> f32 {
  const taken = select(128.0, f32(w.offset), w.bits == 4u);
  if (w.has_minimum && w.bits == 4u) {
    return w.minimum(row, group) * sums[group];
  } else if (w.has_minimum) {
    return (w.minimum(row, group) - taken * scale) * sums[group];
  } else {
    return -taken * scale * sums[group];
  }
}

fn product(row : u32, zero : u32) -> f32 {
  const per_step = step_elements / w.group;
  var acc = array<f32, 8>();
  var rest = 0.0;
  for (var step = 0u; step < inner / step_elements + zero; step++) {
    var low = array<f32, 8>();
    var high = array<f32, 8>();
    if (w.bits == 4u) {
      for (var i = 0u; i < 8u; i++) {
        let word = w.word(row, 8u * step + i);
        let at = 64u * step + i;
        low[i] = number(word & 0xfu) * turned[at] + number(word & 0xf00u) * turned[at + 8u] +
                 number(word & 0xf0000u) * turned[at + 16u] + number(word & 0xf000000u) * turned[at + 24u];
        high[i] = number(word & 0xf0u) * turned[at + 32u] + number(word & 0xf000u) * turned[at + 40u] +
                  number(word & 0xf00000u) * turned[at + 48u] + number(word >> 28u) * turned[at + 56u];
      }
    } else {
      for (var i = 0u; i < 8u; i++) {
        let word = w.word(row, 8u * step + i) ^ 0x80808080u;
        let at = 32u * step + i;
        low[i] = number(word & 0xffu) * turned[at] + number(word & 0xff00u) * turned[at + 8u] +
                 number(word & 0xff0000u) * turned[at + 16u] + number(word >> 24u) * turned[at + 24u];
      }
    }
    let first = step * per_step;
    let scale = w.scale(row, first);
    rest += correction(row, first, scale);
    if (per_step == 1u) {
      for (var i = 0u; i < 8u; i++) { acc[i] += low[i] * scale; }
    } else if (per_step == 2u) {
      let second = w.scale(row, first + 1u);
      rest += correction(row, first + 1u, second);
      for (var i = 0u; i < 4u; i++) { acc[i] += (low[i] + high[i]) * scale; }
      for (var i = 4u; i < 8u; i++) { acc[i] += (low[i] + high[i]) * second; }
    } else {
      let second = w.scale(row, first + 1u);
      let third = w.scale(row, first + 2u);
      let fourth = w.scale(row, first + 3u);
      rest += correction(row, first + 1u, second) + correction(row, first + 2u, third) + correction(row, first + 3u, fourth);
      for (var i = 0u; i < 4u; i++) { acc[i] += low[i] * scale + high[i] * second; }
      for (var i = 4u; i < 8u; i++) { acc[i] += low[i] * third + high[i] * fourth; }
    }
  }
  return rest + ((acc[0] + acc[4]) + (acc[1] + acc[5])) + ((acc[2] + acc[6]) + (acc[3] + acc[7]));
}

fn gate(v : f32) -> f32 {
  if (after == 1u) { return gelu_tanh(v); } else { return silu(v); }
}

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let number_of_group = group.y * groups_per_row + group.x;
  let zero = number_of_group >> 31u;
  prepare(number_of_group == 0u, zero);
  let first = number_of_group * share;
  let end = min(first + share, result_rows);
  var top = -3.0e38;
  var top_row = 0u;
  for (var row = first; row < end; row++) {
    let v = product(row, zero);
    if (gated) {
      y.store(gate(v) * product(row + result_rows, zero), row);
    } else if (after == 3u) {
      if (v > top) {
        top = v;
        top_row = row;
      }
    } else {
      y.store(v, row);
    }
  }
  if (after == 3u) {
    best.store(top, number_of_group);
    best_row.store(top_row, number_of_group);
  }
}
)";

}  // namespace

std::string_view SerialStageText() { return kText; }

bool SerialStageFits(const KernelRequest& request, const DecodeStage& stage, const HostTensor& weights, int64_t inner) {
  if (!RunsWorkgroupsOnThreads(request.target) || stage.int8 || !IsBlockQuantized(weights.dtype())) return false;
  if (inner % (256 / BlockFormatOf(weights.dtype(), false).bits) != 0) return false;
  const int64_t merged = stage.before == DecodeStage::Before::kMerge ? 4 * inner : 16;
  return 4 * inner + inner / 4 + merged <= int64_t(request.target.max_workgroup_bytes);
}

uint32_t SetSerialGrid(KernelDispatch& dispatch, const KernelRequest& request, const DecodeStage& stage, int64_t inner,
                       int64_t rows) {
  const int64_t results = stage.gated() ? rows / 2 : rows;
  // PoCL's threads take half of what is left, and one: of an odd number halves are almost equal. Each workgroup prepares the
  // input again, which takes as long as a few rows.
  const int64_t share = DivideUp(results, results * inner > (int64_t(1) << 23) ? 127 : 11);
  const int64_t groups = DivideUp(results, share);
  dispatch.consts["before"] = double(stage.before);
  dispatch.consts["after"] = double(stage.after);
  dispatch.consts["epsilon"] = stage.epsilon;
  dispatch.consts["heads"] = double(std::max<int64_t>(stage.heads, 1));
  dispatch.consts["share"] = double(share);
  SetGroupGrid(dispatch, request, groups);
  dispatch.flops = 2.0 * double(rows) * double(inner);
  return uint32_t(groups);
}

}  // namespace leeway
