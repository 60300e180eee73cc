// attention: each row's query sees the keys of its own position and those before it.
//   inputs    q [M, H, D]; k, v [Kh, slots, D], caches as kv_append fills them; step (ops/step.h)
//   result    [M, H * D]; head h reads cache head h / (H / Kh)
//   y[row, h] = sum over visible p of softmax(scale * q . k[p]) * v[p]; visible: p <= position of the row, and with a window
//   position - p < window. softcap c: scores become c * tanh(score / c). Position p lies in slot p % slots. Rows that are not
//   valid give zeros.
//   matrix    for many rows: subgroups multiply matrices of f16 (attention_matrix.cc)
//   tiled     for many rows: tiles of 32 queries (rows x heads of one cache head) by 32 keys, online softmax
//   split     for few rows: the positions of a row and cache head are shared out to workgroups, which serve all query heads of
//             the cache head; a second dispatch merges
//   scores    no barriers: scores of all positions into memory, then weights, then sums, a dispatch each; nothing is kept in
//             arrays of an invocation, which compilers of CPU devices make slow code of, slowly
//   direct    one invocation per row, head and share of the positions, no barriers; any shape, any target
// All loops over positions end at the position that `step` says, not at the number of slots.
#include <algorithm>
#include <cmath>

#include "ops/assemble.h"
#include "ops/attention_matrix.h"
#include "ops/attention_parts.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/step.h"
#include "ops/weights.h"

namespace leeway {
namespace {

constexpr const char* kOp = "attention";
const AttrField kAttrs[] = {{"scale", 1.0, "Factor of the scores."},
                            {"window", int64_t{0}, "How many positions are visible, the row's own included; 0: all."},
                            {"softcap", 0.0, "Bound of the scores; 0: none."},
                            {"last", false, kLastRowsDoc},
                            {"half_inputs", false, "Kernels may take queries and weights as f16; sums are f32 all the same."}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 4, 4));
  for (size_t i = 0; i < 3; ++i) {
    RETURN_IF_ERROR(ExpectFloat(call, kOp, i));
    RETURN_IF_ERROR(ExpectRank(call, kOp, i, 3, 3));
  }
  RETURN_IF_ERROR(ExpectStep(call, kOp, 3));
  const Shape &q = InputShape(call, 0), &k = InputShape(call, 1), &v = InputShape(call, 2);
  if (k != v)
    return Invalid("Operator attention has keys of shape ", k.ToString(), " and values of shape ", v.ToString(),
                   "; they must agree.");
  if (q[2] != k[2]) {
    return Invalid("Operator attention has queries of shape ", q.ToString(), " and keys of shape ", k.ToString(),
                   "; their last extents must agree.");
  }
  if (k[0] == 0 || q[1] == 0 || q[1] % k[0] != 0) {
    return Invalid("Operator attention has ", q[1], " query heads for ", k[0],
                   " heads of keys; it takes a whole number of queries for each.");
  }
  if (k[1] == 0 || k[2] == 0) return Invalid("Operator attention has keys of shape ", k.ToString(), ", which has no elements.");
  if (call.attrs.GetInt("window") < 0) return Invalid("Operator attention has window ", call.attrs.GetInt("window"), ".");
  for (const char* name : {"scale", "softcap"}) {
    const double value = call.attrs.GetFloat(name, 1);
    if (!std::isfinite(value) || (value < 0)) return Invalid("Operator attention has ", name, " ", value, ".");
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({q[0], q[1] * q[2]}, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape &shape = inputs[0].shape(), &cache = inputs[1].shape();
  const std::vector<float> q = inputs[0].ToF32(), k = inputs[1].ToF32(), v = inputs[2].ToF32();
  const RowPositions step = StepOf(inputs[3]);
  const int64_t rows = shape[0], heads = shape[1], size = shape[2], slots = cache[1], group = heads / cache[0];
  const int64_t window = call.attrs.GetInt("window");
  const double scale = call.attrs.GetFloat("scale", 1), softcap = call.attrs.GetFloat("softcap", 0);
  const bool last = call.attrs.GetBool("last");
  std::vector<float> y(q.size(), 0.0f);
  std::vector<double> scores, sums(static_cast<size_t>(size));
  for (int64_t row = 0; row < ValidRows(step, rows, last); ++row) {
    const int64_t position = FirstPosition(step, rows, last) + row;
    const int64_t first = window > 0 ? std::max<int64_t>(position + 1 - window, 0) : 0;
    for (int64_t head = 0; head < heads; ++head) {
      const float* query = &q[size_t((row * heads + head) * size)];
      const int64_t plane = head / group * slots;
      scores.clear();
      double largest = -INFINITY, total = 0;
      for (int64_t p = first; p <= position; ++p) {
        const float* key = &k[size_t((plane + p % slots) * size)];
        double score = 0;
        for (int64_t i = 0; i < size; ++i) score += double(query[i]) * key[i];
        score *= scale;
        if (softcap > 0) score = softcap * std::tanh(score / softcap);
        scores.push_back(score);
        largest = std::max(largest, score);
      }
      std::ranges::fill(sums, 0.0);
      for (int64_t p = first; p <= position; ++p) {
        const double weight = std::exp(scores[size_t(p - first)] - largest);
        const float* value = &v[size_t((plane + p % slots) * size)];
        total += weight;
        for (int64_t i = 0; i < size; ++i) sums[size_t(i)] += weight * value[i];
      }
      for (int64_t i = 0; i < size; ++i) y[size_t((row * heads + head) * size + i)] = float(sums[size_t(i)] / total);
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

constexpr auto& kCommon = kAttentionCommon;

// Results of shares of the positions, and for each the bits of its largest score and of its sum of weights.
constexpr char kParts[] = R"(
tensor part[row, head, split, inner] : write;
tensor bits[row, head, split, which] : write as u32;
const splits : u32;
)";

constexpr auto kDirect = JoinTexts(kCommon, JoinTexts(kParts, R"(
const lanes : u32;

@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (at.y * groups_per_row + at.x) * lanes + lane;
  if (index >= q.row * q.head * splits) { return; }
  let head = index % q.head;
  let split = index / q.head % splits;
  let row = index / (q.head * splits);
  let plane = head / group;
  let position = first_position() + row;
  let first = first_visible(position);
  let count = select(0u, position + 1u - first, row < valid_rows());
  let share = (count + splits - 1u) / splits;
  let begin = first + min(split * share, count);
  let end = first + min((split + 1u) * share, count);
  // No compiler knows this bound, so none unrolls what depends on it.
  let bound = slices + index / (q.row * q.head * splits);
  var sums : array<vec4f, slices>;
  for (var s = 0u; s < bound; s++) { sums[s] = vec4f(0.0); }
  var largest = nothing;
  var total = 0.0;
  // Four positions at a time; beyond the end the last one again, with no weight.
  for (var p = begin; p < end; p += 4u) {
    let a = p % k.slot;
    let b = min(p + 1u, end - 1u) % k.slot;
    let c = min(p + 2u, end - 1u) % k.slot;
    let d = min(p + 3u, end - 1u) % k.slot;
    var dots_a = vec4f(0.0);
    var dots_b = vec4f(0.0);
    var dots_c = vec4f(0.0);
    var dots_d = vec4f(0.0);
    for (var s = 0u; s < bound; s++) {
      let query = q.load4(row, head, s);
      dots_a += query * k.load4(plane, a, s);
      dots_b += query * k.load4(plane, b, s);
      dots_c += query * k.load4(plane, c, s);
      dots_d += query * k.load4(plane, d, s);
    }
    let scores = vec4f(capped(scale * sum4(dots_a)), capped(scale * sum4(dots_b)), capped(scale * sum4(dots_c)),
                       capped(scale * sum4(dots_d)));
    let inside = vec4u(p, p + 1u, p + 2u, p + 3u) < vec4u(end);
    let next = max(largest, max4(select(vec4f(nothing), scores, inside)));
    let keep = exp(largest - next);
    let weight = select(vec4f(0.0), exp(scores - vec4f(next)), inside);
    total = total * keep + sum4(weight);
    largest = next;
    for (var s = 0u; s < bound; s++) {
      sums[s] = sums[s] * keep + v.load4(plane, a, s) * weight.x + v.load4(plane, b, s) * weight.y +
                v.load4(plane, c, s) * weight.z + v.load4(plane, d, s) * weight.w;
    }
  }
  let factor = select(0.0, 1.0 / total, total > 0.0);
  for (var s = 0u; s < bound; s++) {
    if splits == 1u {
      y.store4(sums[s] * factor, row, head, s);
    } else {
      part.store4(sums[s] * factor, row, head, split, s);
    }
  }
  if splits > 1u {
    bits.store(bitcast<u32>(largest), row, head, split, 0u);
    bits.store(bitcast<u32>(total), row, head, split, 1u);
  }
}
)"));

constexpr std::string_view kMerge = R"(
tensor part[row, head, split, inner] : read;
tensor bits[row, head, split, which] : read as u32;
tensor y[row, head, inner] : write;
const groups_per_row : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (at.y * groups_per_row + at.x) * 64u + lane;
  let slices = (y.inner + 3u) / 4u;
  if (index >= y.row * y.head * slices) { return; }
  let slice = index % slices;
  let head = index / slices % y.head;
  let row = index / (slices * y.head);
  var largest = -1.0e30;
  for (var s = 0u; s < part.split; s++) { largest = max(largest, bitcast<f32>(bits.load(row, head, s, 0u))); }
  var total = 0.0;
  var sum = vec4f(0.0);
  for (var s = 0u; s < part.split; s++) {
    let weight = bitcast<f32>(bits.load(row, head, s, 1u)) * exp(bitcast<f32>(bits.load(row, head, s, 0u)) - largest);
    total += weight;
    sum += part.load4(row, head, s, slice) * weight;
  }
  y.store4(sum * select(0.0, 1.0 / total, total > 0.0), row, head, slice);
}
)";

constexpr auto kScores = JoinTexts(kCommon, R"(
tensor scores[row, head, position] : write as u32;
const columns : u32;
const together : u32;  // heads of one cache head that an invocation takes: it reads keys once

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (at.y * groups_per_row + at.x) * 16u + lane;
  const blocks = q.head / together;
  if (index >= q.row * blocks * columns) { return; }
  let head = index / columns % blocks * together;
  let row = index / (columns * blocks);
  let position = first_position() + row;
  let first = first_visible(position);
  let count = select(0u, position + 1u - first, row < valid_rows());
  // No compiler knows this bound, so none unrolls what depends on it.
  let bound = slices + index / (q.row * blocks * columns);
  for (var p = index % columns; p < count; p += columns) {
    let slot = (first + p) % k.slot;
    var sums : array<vec4f, together>;
    @unroll for (var g = 0u; g < together; g++) { sums[g] = vec4f(0.0); }
    for (var s = 0u; s < bound; s++) {
      let key = k.load4(head / group, slot, s);
      @unroll for (var g = 0u; g < together; g++) { sums[g] += q.load4(row, head + g, s) * key; }
    }
    @unroll for (var g = 0u; g < together; g++) {
      scores.store(bitcast<u32>(capped(scale * sum4(sums[g]))), row, head + g, p);
    }
  }
}
)");

constexpr auto kWeights = JoinTexts(kCommon, R"(
tensor scores[row, head, position] : read_write as u32;
tensor factors[row, head] : write as u32;

@compute @workgroup_size(4)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (at.y * groups_per_row + at.x) * 4u + lane;
  if (index >= scores.row * scores.head) { return; }
  let head = index % scores.head;
  let row = index / scores.head;
  let position = first_position() + row;
  let count = select(0u, position + 1u - first_visible(position), row < valid_rows());
  var largest = nothing;
  for (var p = 0u; p < count; p++) { largest = max(largest, bitcast<f32>(scores.load(row, head, p))); }
  var total = 0.0;
  for (var p = 0u; p < count; p++) {
    let weight = exp(bitcast<f32>(scores.load(row, head, p)) - largest);
    scores.store(bitcast<u32>(weight), row, head, p);
    total += weight;
  }
  factors.store(bitcast<u32>(select(0.0, 1.0 / total, total > 0.0)), row, head);
}
)");

constexpr auto kSums = JoinTexts(kCommon, R"(
tensor scores[row, head, position] : read as u32;
tensor factors[row, head] : read as u32;
const together : u32;

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (at.y * groups_per_row + at.x) * 16u + lane;
  const blocks = q.head / together;
  if (index >= y.row * blocks * slices) { return; }
  let slice = index % slices;
  let head = index / slices % blocks * together;
  let row = index / (slices * blocks);
  let position = first_position() + row;
  let first = first_visible(position);
  let count = select(0u, position + 1u - first, row < valid_rows());
  var sums : array<vec4f, together>;
  @unroll for (var g = 0u; g < together; g++) { sums[g] = vec4f(0.0); }
  var slot = first % v.slot;
  for (var p = 0u; p < count; p++) {
    let value = v.load4(head / group, slot, slice);
    @unroll for (var g = 0u; g < together; g++) { sums[g] += value * bitcast<f32>(scores.load(row, head + g, p)); }
    slot = select(slot + 1u, 0u, slot + 1u == v.slot);
  }
  @unroll for (var g = 0u; g < together; g++) {
    y.store4(sums[g] * bitcast<f32>(factors.load(row, head + g)), row, head + g, slice);
  }
}
)");

constexpr auto kSplit = JoinTexts(kCommon, JoinTexts(kParts, R"(
const lanes_per_position : u32;
const at_once = 128u / lanes_per_position;
const parts = max(128u / slices, 1u);
var<workgroup> dots : array<f32, group * 128u>;
var<workgroup> weights : array<f32, group * 64u>;
var<workgroup> part_largest : array<f32, group * 8u>;
var<workgroup> part_total : array<f32, group * 8u>;
var<workgroup> largest : array<f32, group>;
var<workgroup> keep : array<f32, group>;
var<workgroup> gathered : array<vec4f, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let unit = at.y * groups_per_row + at.x;
  let split = unit % splits;
  let plane = unit / splits % k.plane;
  let row = unit / (splits * k.plane);
  if (row >= q.row) { return; }
  let position = first_position() + row;
  let first = first_visible(position);
  let count = select(0u, position + 1u - first, row < valid_rows());
  // A share is at least what makes a workgroup worth while.
  let share = max((count + splits - 1u) / splits, min(16u, at_once));
  let begin = first + min(split * share, count);
  let end = first + min((split + 1u) * share, count);
  let slice = lane % slices;
  let part_number = lane / slices;
  var sums : array<vec4f, group>;
  var own_total = 0.0;  // of head lane / 8 and every eighth position
  if lane < group { largest[lane] = nothing; }
  workgroupBarrier();
  for (var p = begin; p < end; p += 64u) {
    let here = min(end - p, 64u);
    for (var t = 0u; t < here; t += at_once) {
      var own : array<f32, group>;
      @unroll for (var g = 0u; g < group; g++) { own[g] = 0.0; }
      let mine = t + lane / lanes_per_position;
      if mine < here {
        let slot = (p + mine) % k.slot;
        for (var s = lane % lanes_per_position; s < slices; s += lanes_per_position) {
          let key = k.load4(plane, slot, s);
          @unroll for (var g = 0u; g < group; g++) { own[g] += dot(q.load4(row, plane * group + g, s), key); }
        }
      }
      @unroll for (var g = 0u; g < group; g++) { dots[g * 128u + lane] = own[g]; }
      workgroupBarrier();
      for (var i = lane; i < group * at_once; i += 128u) {
        let g = i / at_once;
        let one = i % at_once;
        var sum = 0.0;
        for (var j = 0u; j < lanes_per_position; j++) { sum += dots[g * 128u + one * lanes_per_position + j]; }
        weights[g * 64u + t + one] = capped(scale * sum);
      }
      workgroupBarrier();
    }
    if lane < group * 8u {
      var most = nothing;
      for (var i = lane % 8u; i < here; i += 8u) { most = max(most, weights[lane / 8u * 64u + i]); }
      part_largest[lane] = most;
    }
    workgroupBarrier();
    if lane < group {
      var most = largest[lane];
      for (var i = 0u; i < 8u; i++) { most = max(most, part_largest[lane * 8u + i]); }
      keep[lane] = exp(largest[lane] - most);
      largest[lane] = most;
    }
    workgroupBarrier();
    if lane < group * 8u {
      let g = lane / 8u;
      own_total *= keep[g];
      for (var i = lane % 8u; i < here; i += 8u) {
        let weight = exp(weights[g * 64u + i] - largest[g]);
        weights[g * 64u + i] = weight;
        own_total += weight;
      }
    }
    workgroupBarrier();
    @unroll for (var g = 0u; g < group; g++) { sums[g] *= keep[g]; }
    if part_number < parts {
      for (var i = part_number; i < here; i += parts) {
        let value = v.load4(plane, (p + i) % k.slot, slice);
        @unroll for (var g = 0u; g < group; g++) { sums[g] += value * weights[g * 64u + i]; }
      }
    }
    workgroupBarrier();
  }
  if lane < group * 8u { part_total[lane] = own_total; }
  @unroll for (var g = 0u; g < group; g++) {
    workgroupBarrier();
    gathered[lane] = sums[g];
    workgroupBarrier();
    if part_number == 0u {
      var sum = gathered[slice];
      for (var i = 1u; i < parts; i++) { sum += gathered[i * slices + slice]; }
      var total = 0.0;
      for (var i = 0u; i < 8u; i++) { total += part_total[g * 8u + i]; }
      let head = plane * group + g;
      let result = sum * select(0.0, 1.0 / total, total > 0.0);
      if splits == 1u {
        y.store4(result, row, head, slice);
      } else {
        part.store4(result, row, head, split, slice);
        if lane == 0u {
          bits.store(bitcast<u32>(largest[g]), row, head, split, 0u);
          bits.store(bitcast<u32>(total), row, head, split, 1u);
        }
      }
    }
  }
}
)"));

// A workgroup is 32 lanes (keys of a tile, then slices of the head) by 4 warps of 8 queries. Heads of 64 elements have 16
// slices: half of the lanes take four of the warp's queries, the other half the other four.
constexpr auto kTiled = JoinTexts(kCommon, R"(
const halves = select(1u, 2u, slices <= 16u);
const quads = 2u / halves;
const slices_per_lane = (slices + 31u) / 32u;
const rows_per_tile = 32u / group;
var<workgroup> queries : array<vec4f, 288>;
var<workgroup> keys : array<vec4f, 288>;
var<workgroup> weights : array<vec4f, 288>;

@compute @workgroup_size(32, 4)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_id) id : vec3u,
        @builtin(local_invocation_index) lane : u32) {
  let unit = at.y * groups_per_row + at.x;
  const tiles = (q.row + rows_per_tile - 1u) / rows_per_tile;
  let plane = unit % k.plane;
  let tile = unit / k.plane;
  if (tile >= tiles) { return; }
  let first_row = tile * rows_per_tile;
  let rows = min(valid_rows(), first_row + rows_per_tile);  // end of the valid ones
  let base = first_position();
  let half = id.x / (32u / halves);
  let own_slice = id.x % (32u / halves);
  var sums : array<vec4f, 4u * quads * slices_per_lane>;
  var largest_a = vec4f(nothing);
  var largest_b = vec4f(nothing);
  var total_a = vec4f(0.0);
  var total_b = vec4f(0.0);
  if first_row < rows {
    let begin = first_visible(base + first_row) / 32u * 32u;
    let end = base + rows;
    for (var p = begin; p < end; p += 32u) {
      var dots = array(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
      for (var first_slice = 0u; first_slice < slices; first_slice += 8u) {
        workgroupBarrier();
        for (var i = lane; i < 256u; i += 128u) {
          let one = i / 8u;
          let slice = first_slice + i % 8u;
          let row = first_row + one / group;
          var query = vec4f(0.0);
          var key = vec4f(0.0);
          if slice < slices {
            if one < rows_per_tile * group && row < rows { query = q.load4(row, plane * group + one % group, slice); }
            if p + one < end { key = k.load4(plane, (p + one) % k.slot, slice); }
          }
          queries[one * 9u + i % 8u] = query;
          keys[one * 9u + i % 8u] = key;
        }
        workgroupBarrier();
        for (var s = 0u; s < 8u; s++) {
          let key = keys[id.x * 9u + s];
          @unroll for (var i = 0u; i < 8u; i++) { dots[i] += dot(queries[(id.y * 8u + i) * 9u + s], key); }
        }
      }
      // What each of the eight queries sees of this lane's key.
      let position = p + id.x;
      var scores : array<f32, 8>;
      var sees : array<f32, 8>;
      @unroll for (var i = 0u; i < 8u; i++) {
        let one = id.y * 8u + i;
        let row = first_row + one / group;
        let is_visible = row < rows && position <= base + row && position >= first_visible(base + row);
        sees[i] = select(0.0, 1.0, is_visible);
        scores[i] = select(nothing, capped(scale * dots[i]), is_visible);
      }
      let scores_a = vec4f(scores[0], scores[1], scores[2], scores[3]);
      let scores_b = vec4f(scores[4], scores[5], scores[6], scores[7]);
      let next_a = max(largest_a, unit_max(scores_a));
      let next_b = max(largest_b, unit_max(scores_b));
      let keep_a = exp(largest_a - next_a);
      let keep_b = exp(largest_b - next_b);
      let weight_a = exp(scores_a - next_a) * vec4f(sees[0], sees[1], sees[2], sees[3]);
      let weight_b = exp(scores_b - next_b) * vec4f(sees[4], sees[5], sees[6], sees[7]);
      total_a = total_a * keep_a + weight_a;
      total_b = total_b * keep_b + weight_b;
      largest_a = next_a;
      largest_b = next_b;
      workgroupBarrier();
      weights[id.x * 9u + id.y * 2u] = weight_a;
      weights[id.x * 9u + id.y * 2u + 1u] = weight_b;
      workgroupBarrier();
      @unroll for (var quad = 0u; quad < quads; quad++) {
        let keep = select(keep_b, keep_a, half + quad == 0u);
        @unroll for (var s = 0u; s < slices_per_lane; s++) {
          sums[(quad * slices_per_lane + s) * 4u] *= keep.x;
          sums[(quad * slices_per_lane + s) * 4u + 1u] *= keep.y;
          sums[(quad * slices_per_lane + s) * 4u + 2u] *= keep.z;
          sums[(quad * slices_per_lane + s) * 4u + 3u] *= keep.w;
        }
      }
      let here = min(end - p, 32u);
      for (var i = 0u; i < here; i++) {
        let slot = (p + i) % k.slot;
        @unroll for (var s = 0u; s < slices_per_lane; s++) {
          if own_slice + 32u * s < slices {
            let value = v.load4(plane, slot, own_slice + 32u * s);
            @unroll for (var quad = 0u; quad < quads; quad++) {
              let weight = weights[i * 9u + id.y * 2u + half + quad];
              sums[(quad * slices_per_lane + s) * 4u] += value * weight.x;
              sums[(quad * slices_per_lane + s) * 4u + 1u] += value * weight.y;
              sums[(quad * slices_per_lane + s) * 4u + 2u] += value * weight.z;
              sums[(quad * slices_per_lane + s) * 4u + 3u] += value * weight.w;
            }
          }
        }
      }
    }
  }
  total_a = unit_sum(total_a);
  total_b = unit_sum(total_b);
  @unroll for (var quad = 0u; quad < quads; quad++) {
    let total = select(total_b, total_a, half + quad == 0u);
    let factor = select(vec4f(0.0), vec4f(1.0) / total, total > vec4f(0.0));
    let factors = array(factor.x, factor.y, factor.z, factor.w);
    @unroll for (var i = 0u; i < 4u; i++) {
      let one = id.y * 8u + (half + quad) * 4u + i;
      let row = first_row + one / group;
      if one < rows_per_tile * group && row < q.row {
        @unroll for (var s = 0u; s < slices_per_lane; s++) {
          if own_slice + 32u * s < slices {
            y.store4(sums[(quad * slices_per_lane + s) * 4u + i] * factors[i], row, plane * group + one % group,
                     own_slice + 32u * s);
          }
        }
      }
    }
  }
}
)");

enum class Variant { kTiled, kSplit, kDirect };

template <Variant variant>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape &q = InputShape(call, 0), &cache = InputShape(call, 1);
  OpPlan plan;
  if (q.element_count() == 0) return plan;
  const int64_t span = VisibleSpan(call), group = q[1] / cache[0];
  KernelDispatch dispatch = StartAttention(request);
  const TensorArgument y = AttentionResult(request);
  if constexpr (variant == Variant::kTiled) {
    dispatch.kernel_name = "attention_tiled";
    dispatch.kernel_text = kTiled.data();
    dispatch.tensors.push_back(y);
    SetGroupGrid(dispatch, request, cache[0] * DivideUp(q[0], 32 / group));
    plan.dispatches.push_back(std::move(dispatch));
    return plan;
  }
  int64_t splits = 1;
  if constexpr (variant == Variant::kSplit) {
    splits = std::clamp<int64_t>(DivideUp(span, 64), 1, 64);
    dispatch.kernel_name = "attention_split";
    dispatch.kernel_text = kSplit.data();
    dispatch.consts["lanes_per_position"] = q[2] <= 64 ? 4.0 : q[2] <= 256 ? 8.0 : 16.0;
    SetGroupGrid(dispatch, request, q[0] * cache[0] * splits);
  } else {
    // Shares where there are too few heads for the cores of a CPU.
    if (q[0] * q[1] < 32) splits = std::clamp<int64_t>(DivideUp(span, 64), 1, 4);
    dispatch.kernel_name = "attention_direct";
    dispatch.kernel_text = kDirect.data();
    const int64_t lanes = q[0] * q[1] * splits >= 1024 ? 64 : 8;
    dispatch.consts["lanes"] = double(lanes);
    SetGroupGrid(dispatch, request, DivideUp(q[0] * q[1] * splits, lanes));
  }
  dispatch.consts["splits"] = double(splits);
  if (splits == 1) {
    dispatch.tensors.push_back(y);
    plan.dispatches.push_back(std::move(dispatch));
    return plan;
  }
  plan.tensors = {{.type = {DType::kF32, Shape{q[0], q[1], splits, q[2]}}},
                  {.type = {DType::kU32, Shape{q[0], q[1], splits, 2}}}};
  const TensorArgument part{.name = "part", .kind = TensorArgument::Kind::kPlan, .index = 0};
  const TensorArgument bits{.name = "bits", .kind = TensorArgument::Kind::kPlan, .index = 1};
  dispatch.stores_result = false;
  dispatch.tensors.push_back(part);
  dispatch.tensors.push_back(bits);
  KernelDispatch merge{.kernel_name = "attention_merge",
                       .kernel_text = kMerge,
                       .tensors = {part, bits, y},
                       .flops = 4.0 * double(q.element_count()) * double(splits),
                       .stores_result = true};
  SetLinearGrid(merge, request, q[0] * q[1] * Slices(q[2]));
  plan.dispatches.push_back(std::move(dispatch));
  plan.dispatches.push_back(std::move(merge));
  return plan;
}

Result<OpPlan> PlanScores(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape& q = InputShape(call, 0);
  OpPlan plan;
  if (q.element_count() == 0) return plan;
  const int64_t span = VisibleSpan(call), units = q[0] * q[1];
  // As bits, so that they are never narrow.
  plan.tensors = {{.type = {DType::kU32, Shape{q[0], q[1], span}}}, {.type = {DType::kU32, Shape{q[0], q[1]}}}};
  const TensorArgument scores{.name = "scores", .kind = TensorArgument::Kind::kPlan, .index = 0};
  const TensorArgument factors{.name = "factors", .kind = TensorArgument::Kind::kPlan, .index = 1};
  const TensorArgument y = AttentionResult(request);
  const TensorArgument query = InputArgument("q", 0), k = InputArgument("k", 1), v = InputArgument("v", 2),
                       run = InputArgument("run", 3);
  // Invocations for a row and head share its positions, of which there may be few or many.
  const int64_t group = q[1] / InputShape(call, 1)[0], together = group <= 4 ? group : group % 4 == 0 ? 4 : 1;
  const int64_t columns = std::clamp<int64_t>(4096 * together / units, 1, std::min<int64_t>(span, 256));
  const double flops = 2.0 * double(q.element_count()) * double(span);
  struct Part {
    const char* name;
    std::string_view text;
    std::vector<TensorArgument> tensors;
    int64_t workgroups;
    bool stores_result;
  };
  const Part parts[] = {
      {"attention_scores", kScores.data(), {query, k, run, scores}, DivideUp(units / together * columns, 16), false},
      {"attention_weights", kWeights.data(), {query, k, run, scores, factors}, DivideUp(units, 4), false},
      {"attention_sums",
       kSums.data(),
       {query, k, v, run, scores, factors, y},
       DivideUp(units / together * Slices(q[2]), 16),
       true}};
  for (const Part& part : parts) {
    KernelDispatch dispatch{.kernel_name = part.name, .kernel_text = part.text, .stores_result = part.stores_result};
    dispatch.tensors = part.tensors;
    dispatch.consts = {{"scale", call.attrs.GetFloat("scale", 1)},
                       {"window", double(call.attrs.GetInt("window"))},
                       {"softcap", call.attrs.GetFloat("softcap", 0)},
                       {"last", double(call.attrs.GetBool("last"))},
                       {"columns", double(columns)},
                       {"together", double(together)}};
    if (part.tensors.size() != 4) dispatch.consts.erase("columns");
    if (part.tensors.size() == 5) dispatch.consts.erase("together");
    dispatch.flops = part.tensors.size() == 5 ? 0 : flops;
    SetGroupGrid(dispatch, request, part.workgroups);
    plan.dispatches.push_back(std::move(dispatch));
  }
  return plan;
}

// As far as the scores take no more than 32 MiB.
bool AcceptScores(const KernelRequest& request) {
  const Shape& q = InputShape(request.call, 0);
  return q[0] * q[1] * VisibleSpan(request.call) <= (8 << 20);
}

bool AcceptDirect(const KernelRequest& request) { return !request.target.is_software || !AcceptScores(request); }

bool AcceptTiled(const KernelRequest& request) {
  const Shape &q = InputShape(request.call, 0), &cache = InputShape(request.call, 1);
  return !request.target.is_software && q[0] >= 4 && q[2] % 64 == 0 && q[2] <= 512 && q[1] / cache[0] <= 32;
}

bool AcceptSplit(const KernelRequest& request) {
  const Shape &q = InputShape(request.call, 0), &cache = InputShape(request.call, 1);
  return !request.target.is_software && Slices(q[2]) <= 128 && q[1] / cache[0] <= 8;
}

constexpr KernelVariant kVariants[] = {
    {.name = "matrix",
     .what = "subgroups multiply matrices of queries, keys and values",
     .accepts = AcceptAttentionMatrix,
     .plan = PlanAttentionMatrix},
    {.name = "tiled", .what = "tiles of queries by tiles of keys", .accepts = AcceptTiled, .plan = Plan<Variant::kTiled>},
    {.name = "split",
     .what = "the positions of a row are shared out to workgroups",
     .accepts = AcceptSplit,
     .plan = Plan<Variant::kSplit>},
    {.name = "scores",
     .what = "scores, weights and sums in a dispatch each, without barriers",
     .accepts = AcceptScores,
     .plan = PlanScores},
    {.name = "direct",
     .what = "one invocation per row, head and share of the positions",
     .accepts = AcceptDirect,
     .plan = Plan<Variant::kDirect>},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

int64_t VisibleSpan(const OpCall& call) {
  const int64_t window = call.attrs.GetInt("window"), slots = InputShape(call, 1)[1];
  return window > 0 ? std::min(window, slots) : slots;
}

KernelDispatch StartAttention(const KernelRequest& request) {
  const OpCall& call = request.call;
  KernelDispatch dispatch{.stores_result = true};
  dispatch.consts = {{"scale", call.attrs.GetFloat("scale", 1)},
                     {"window", double(call.attrs.GetInt("window"))},
                     {"softcap", call.attrs.GetFloat("softcap", 0)},
                     {"last", double(call.attrs.GetBool("last"))}};
  dispatch.tensors = {InputArgument("q", 0), InputArgument("k", 1), InputArgument("v", 2), InputArgument("run", 3)};
  dispatch.flops = 4.0 * double(InputShape(call, 0).element_count()) * double(VisibleSpan(call));
  return dispatch;
}

TensorArgument AttentionResult(const KernelRequest& request) {
  const Shape& q = InputShape(request.call, 0);
  return OutputArgument("y", 0, q, ReshapeMap(request.call.outputs[0].shape, q));
}

extern const OpDef op_attention = {.name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels};

}  // namespace leeway
