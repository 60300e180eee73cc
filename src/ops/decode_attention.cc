// decode_attention: everything between the projections of one token in one dispatch. Norms of query and key, rotation, the new
// row of the caches, and attention of one query over the positions, cut into splits that each leave sums which the next stage
// merges (decode_linear with before=merge).
//
// Result: [splits, heads * (head + 4)]; of each head first the sum of exp(score - largest) * value over the split, then the
// largest score and the sum of exp(score - largest), then two unused elements. An empty split has a largest of -3e4 and sums
// of 0.
//   split    one workgroup per split and key/value head
//   serial   CPUs: one invocation per split and query head, without barriers
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/assemble.h"
#include "ops/cpu_target.h"
#include "ops/decode_stage.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/step.h"
#include "ops/weights.h"
#include "tensor/coord_map.h"

namespace leeway {
namespace {

constexpr const char* kOp = "decode_attention";
const AttrField kAttrs[] = {{"heads", int64_t{0}, "Query heads."},
                            {"splits", int64_t{1}, "Into how many the positions are cut."},
                            {"scale", 1.0, "Factor of the scores."},
                            {"window", int64_t{0}, "Positions that are seen, the current one included; 0: all."},
                            {"interleaved", false, "Rotation of pairs (2i, 2i+1) instead of (i, i + head/2)."},
                            {"epsilon", 1e-6, "Of the norms of query and key."}};
const OpDef::Update kUpdates[] = {{1, 5}, {2, 6}};

// Inputs: the row of queries, keys and values; optional gains of the norms; what pairs of elements turn by per position
// (ops/rope.h); step (ops/step.h); caches [kv heads, slots, head].
enum Operand : size_t { kQkv = 0, kQueryGain = 1, kKeyGain = 2, kTurns = 3, kStep = 4, kKeys = 5, kValues = 6 };

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 1, 7));
  if (call.inputs.size() != 7) return Invalid("Operator decode_attention has ", call.inputs.size(), " inputs; expected 7.");
  RETURN_IF_ERROR(ExpectRank(call, kOp, kKeys, 3, 3));
  RETURN_IF_ERROR(ExpectRank(call, kOp, kTurns, 1, 1));
  RETURN_IF_ERROR(ExpectStep(call, kOp, kStep));
  const int64_t heads = call.attrs.GetInt("heads"), splits = call.attrs.GetInt("splits", 1);
  const Shape &keys = InputShape(call, kKeys), &qkv = InputShape(call, kQkv), &turns = InputShape(call, kTurns);
  const int64_t head = keys[2];
  if (InputShape(call, kValues) != keys) {
    return Invalid("Operator decode_attention has keys of shape ", keys.ToString(), " and values of shape ",
                   InputShape(call, kValues).ToString(), "; expected the same.");
  }
  if (heads <= 0 || keys[0] <= 0 || heads % keys[0] != 0 || splits <= 0 || head % 8 != 0) {
    return Invalid("Operator decode_attention has ", heads, " heads and ", splits, " splits for keys of shape ",
                   keys.ToString(), ".");
  }
  if (qkv.element_count() != (heads + 2 * keys[0]) * head) {
    return Invalid("Operator decode_attention has a row of shape ", qkv.ToString(), " for ", heads, " heads and keys of shape ",
                   keys.ToString(), ".");
  }
  if (call.inputs[kTurns].type.dtype != DType::kU32 || turns[0] == 0 || 2 * turns[0] > head) {
    return Invalid("Operator decode_attention has turns of type ", call.inputs[kTurns].type.ToString(), " for heads of ", head,
                   " elements; it takes u32 numbers, from one to half as many.");
  }
  for (size_t gain : {kQueryGain, kKeyGain}) {
    if (HasInput(call, gain) && InputShape(call, gain).element_count() != head) {
      return Invalid("Operator decode_attention has a gain of shape ", InputShape(call, gain).ToString(), "; expected ", head,
                     " elements.");
    }
  }
  return std::vector<TensorType>{
      {DType::kF32, Shape{splits, heads * (head + 4)}}, call.inputs[kKeys].type, call.inputs[kValues].type};
}

std::vector<double> Turned(const double* x, int64_t head, const HostTensor* gain, double epsilon, uint32_t position,
                           std::span<const uint32_t> turns, bool interleaved) {
  std::vector<double> row(x, x + head);
  if (gain) row = NormedRow(row, Widened(*gain), epsilon);
  std::vector<double> out = row;
  const int64_t pairs = int64_t(turns.size());
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + pairs;
    const double angle = double(int32_t(position * turns[size_t(i)])) / 4294967296.0 * 2 * std::numbers::pi;
    const double c = std::cos(angle), s = std::sin(angle);
    out[size_t(a)] = row[size_t(a)] * c - row[size_t(b)] * s;
    out[size_t(b)] = row[size_t(b)] * c + row[size_t(a)] * s;
  }
  return out;
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape keys = call.inputs[kKeys].type.shape;
  const int64_t kv_heads = keys[0], slots = keys[1], head = keys[2];
  const int64_t heads = call.attrs.GetInt("heads"), splits = call.attrs.GetInt("splits", 1),
                window = call.attrs.GetInt("window");
  const double scale = call.attrs.GetFloat("scale", 1), epsilon = call.attrs.GetFloat("epsilon", 1e-6);
  const bool interleaved = call.attrs.GetBool("interleaved");
  const auto [position, count] = StepOf(inputs[kStep]);
  if (count <= 0) return {};
  const std::vector<double> qkv = Widened(inputs[kQkv]);
  const std::span<const uint32_t> turns = inputs[kTurns].as<uint32_t>();
  const HostTensor* query_gain = HasInput(call, kQueryGain) ? &inputs[kQueryGain] : nullptr;
  const HostTensor* key_gain = HasInput(call, kKeyGain) ? &inputs[kKeyGain] : nullptr;
  const int64_t slot = position % slots;
  for (int64_t k = 0; k < kv_heads; ++k) {
    const auto key = Turned(&qkv[size_t((heads + k) * head)], head, key_gain, epsilon, uint32_t(position), turns, interleaved);
    for (int64_t i = 0; i < head; ++i) {
      outputs[1].Set((k * slots + slot) * head + i, key[size_t(i)]);
      outputs[2].Set((k * slots + slot) * head + i, qkv[size_t((heads + kv_heads + k) * head + i)]);
    }
  }
  const int64_t first = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
  const int64_t span = (position + 1 - first + splits - 1) / splits;
  for (int64_t h = 0; h < heads; ++h) {
    const auto query = Turned(&qkv[size_t(h * head)], head, query_gain, epsilon, uint32_t(position), turns, interleaved);
    const int64_t k = h / (heads / kv_heads);
    for (int64_t s = 0; s < splits; ++s) {
      const int64_t begin = first + s * span, end = std::min(begin + span, position + 1);
      std::vector<double> scores, sum(size_t(head), 0.0);
      double largest = -3.0e4, total = 0;
      for (int64_t p = begin; p < end; ++p) {
        double score = 0;
        for (int64_t i = 0; i < head; ++i) score += query[size_t(i)] * outputs[1].Get((k * slots + p % slots) * head + i);
        scores.push_back(scale * score);
        largest = std::max(largest, scores.back());
      }
      for (int64_t p = begin; p < end; ++p) {
        const double e = std::exp(scores[size_t(p - begin)] - largest);
        total += e;
        for (int64_t i = 0; i < head; ++i) sum[size_t(i)] += e * outputs[2].Get((k * slots + p % slots) * head + i);
      }
      const int64_t at = s * heads * (head + 4) + h * (head + 4);
      for (int64_t i = 0; i < head; ++i) outputs[0].Set(at + i, sum[size_t(i)]);
      outputs[0].Set(at + head, largest);
      outputs[0].Set(at + head + 1, total);
    }
  }
  return {};
}

constexpr std::string_view kSplit = R"(
tensor qkv[element] : read;
weights query_gain[element];
weights key_gain[element];
tensor turns[pair] : read as u32;
tensor at_step[field] : read as i32;
tensor keys[kv_head, slot, element] : read_write;
tensor values[kv_head, slot, element] : read_write;
tensor y[split, element] : write;

const heads : u32;
const scale : f32;
const window : u32;
const interleaved : bool;
const epsilon : f32;
const has_query_gain : bool;
const has_key_gain : bool;
const threads : u32;
const shared_lanes : u32;  // lanes that share a position
const together : u32;      // positions that they take at once
const value_groups : u32;  // groups of head / 4 invocations that each take a part of a tile's values
const tile : u32;          // positions

const head = keys.element;
const quads = head / 4u;
const group_heads = heads / keys.kv_head;   // query heads on one key/value head
const subgroups = threads / subgroup_size;
const at_once = threads / shared_lanes;     // positions of all lanes
const per_lane = quads / shared_lanes;
const turns_of_heads = (group_heads + subgroups - 1u) / subgroups;

// Query heads of this group, then the key; turned in place.
var<workgroup> rows : array<f32, (group_heads + 1u) * head>;
var<workgroup> factors : array<f32, group_heads + 1u>;
var<workgroup> scores : array<f32, group_heads * tile>;
var<workgroup> largest : array<f32, group_heads>;
var<workgroup> total : array<f32, group_heads>;
var<workgroup> shrink : array<f32, group_heads>;
var<workgroup> parts : array<vec4f, value_groups * group_heads * quads>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) at : u32) {
  let split = group.x;
  let kv = group.y;
  let position = u32(at_step.load(0u));
  var begin = 0u;
  if (window > 0u) { begin = select(0u, position + 1u - window, position + 1u > window); }
  let span = (position + 1u - begin + y.split - 1u) / y.split;
  let first = begin + split * span;
  let end = min(first + span, position + 1u);
  let own = first <= position && position < first + span && at_step.load(1u) > 0;
  let lane = at % subgroup_size;
  let subgroup = at / subgroup_size;

  for (var i = at; i < group_heads * head; i += threads) { rows[i] = qkv.load(kv * group_heads * head + i); }
  for (var i = at; i < head; i += threads) { rows[group_heads * head + i] = qkv.load((heads + kv) * head + i); }
  workgroupBarrier();
  for (var h = 0u; h <= group_heads; h += subgroups) {
    var squares = 0.0;
    if (h + subgroup <= group_heads) {
      for (var i = lane; i < head; i += subgroup_size) {
        let v = rows[(h + subgroup) * head + i];
        squares += v * v;
      }
    }
    squares = subgroupAdd(squares);
    if (lane == 0u && h + subgroup <= group_heads) { factors[h + subgroup] = inverseSqrt(squares / f32(head) + epsilon); }
  }
  workgroupBarrier();
  for (var pair = at; pair < (group_heads + 1u) * (head / 2u); pair += threads) {
    // Pairs of what is turned first, then of the rest of the head.
    let h = pair / (head / 2u);
    let i = pair % (head / 2u);
    var a = i;
    var b = i + turns.pair;
    if (interleaved) { a = 2u * i; b = 2u * i + 1u; }
    if (i >= turns.pair) { a = 2u * i; b = 2u * i + 1u; }
    var va = rows[h * head + a];
    var vb = rows[h * head + b];
    if (h < group_heads) {
      if (has_query_gain) {
        va *= factors[h] * query_gain.load(a);
        vb *= factors[h] * query_gain.load(b);
      }
      va *= scale;
      vb *= scale;
    } else {
      if (has_key_gain) {
        va *= factors[h] * key_gain.load(a);
        vb *= factors[h] * key_gain.load(b);
      }
    }
    var turned = vec2f(1.0, 0.0);
    if (i < turns.pair) { turned = cos_sin_of_turn(position * turns.load(i)); }
    rows[h * head + a] = va * turned.x - vb * turned.y;
    rows[h * head + b] = vb * turned.x + va * turned.y;
  }
  workgroupBarrier();
  if (own) {
    let slot = position % keys.slot;
    for (var i = at; i < quads; i += threads) {
      let k = group_heads * head + 4u * i;
      keys.store4(vec4f(rows[k], rows[k + 1u], rows[k + 2u], rows[k + 3u]), kv, slot, i);
      values.store4(qkv.load4((heads + keys.kv_head + kv) * quads + i), kv, slot, i);
    }
  }
  storageBarrier();
  workgroupBarrier();

  // The values are dealt out to groups of head / 4 invocations.
  let value_quad = at % quads;
  let value_group = at / quads;
  var sum : array<vec4f, group_heads>;
  @unroll for (var h = 0u; h < group_heads; h++) { sum[h] = vec4f(0.0); }

  // Each subgroup looks after the softmax of its heads.
  var my_largest : array<f32, turns_of_heads>;
  var my_total : array<f32, turns_of_heads>;
  @unroll for (var r = 0u; r < turns_of_heads; r++) {
    my_largest[r] = -3.0e4;
    my_total[r] = 0.0;
  }

  for (var start = first; start < end; start += tile) {
    let count = min(tile, end - start);
    for (var round = 0u; round < count; round += at_once * together) {
      var s : array<f32, group_heads * together>;
      @unroll for (var i = 0u; i < group_heads * together; i++) { s[i] = 0.0; }
      var slot : array<u32, together>;
      @unroll for (var t = 0u; t < together; t++) {
        slot[t] = (start + min(round + t * at_once + at / shared_lanes, count - 1u)) % keys.slot;
      }
      @unroll for (var c = 0u; c < per_lane; c++) {
        let i = at % shared_lanes + c * shared_lanes;
        var k : array<vec4f, together>;
        @unroll for (var t = 0u; t < together; t++) { k[t] = keys.load4(kv, slot[t], i); }
        @unroll for (var h = 0u; h < group_heads; h++) {
          let q = vec4f(rows[h * head + 4u * i], rows[h * head + 4u * i + 1u], rows[h * head + 4u * i + 2u], rows[h * head + 4u * i + 3u]);
          @unroll for (var t = 0u; t < together; t++) { s[h * together + t] += dot(q, k[t]); }
        }
      }
      @unroll for (var i = 0u; i < group_heads * together; i++) {
        @unroll for (var width = shared_lanes / 2u; width > 0u; width = width / 2u) { s[i] += subgroupShuffleXor(s[i], width); }
      }
      if (at % shared_lanes == 0u) {
        @unroll for (var t = 0u; t < together; t++) {
          let p = round + t * at_once + at / shared_lanes;
          if (p < count) {
            @unroll for (var h = 0u; h < group_heads; h++) { scores[h * tile + p] = s[h * together + t]; }
          }
        }
      }
    }
    workgroupBarrier();
    @unroll for (var r = 0u; r < turns_of_heads; r++) {
      let h = r * subgroups + subgroup;
      var top = -3.0e4;
      if (h < group_heads) {
        for (var p = lane; p < count; p += subgroup_size) { top = max(top, scores[h * tile + p]); }
      }
      top = max(subgroupMax(top), my_largest[r]);
      var here = 0.0;
      if (h < group_heads) {
        for (var p = lane; p < count; p += subgroup_size) {
          let e = exp(scores[h * tile + p] - top);
          scores[h * tile + p] = e;
          here += e;
        }
      }
      here = subgroupAdd(here);
      let factor = exp(my_largest[r] - top);
      my_total[r] = my_total[r] * factor + here;
      my_largest[r] = top;
      if (h < group_heads && lane == 0u) { shrink[h] = factor; }
    }
    workgroupBarrier();
    if (value_group < value_groups) {
      @unroll for (var h = 0u; h < group_heads; h++) { sum[h] *= shrink[h]; }
      @unroll(4) for (var p = value_group; p < count; p += value_groups) {
        let v = values.load4(kv, (start + p) % keys.slot, value_quad);
        @unroll for (var h = 0u; h < group_heads; h++) { sum[h] += scores[h * tile + p] * v; }
      }
    }
    workgroupBarrier();
  }
  if (lane == 0u) {
    @unroll for (var r = 0u; r < turns_of_heads; r++) {
      if (r * subgroups + subgroup < group_heads) {
        largest[r * subgroups + subgroup] = my_largest[r];
        total[r * subgroups + subgroup] = my_total[r];
      }
    }
  }
  if (value_group < value_groups) {
    @unroll for (var h = 0u; h < group_heads; h++) { parts[(value_group * group_heads + h) * quads + value_quad] = sum[h]; }
  }
  workgroupBarrier();
  for (var i = at; i < group_heads * (quads + 1u); i += threads) {
    let h = i / (quads + 1u);
    let quad = i % (quads + 1u);
    var v = vec4f(largest[h], total[h], 0.0, 0.0);
    if (quad < quads) {
      v = vec4f(0.0);
      for (var g = 0u; g < value_groups; g++) { v += parts[(g * group_heads + h) * quads + quad]; }
    }
    y.store4(v, split, (kv * group_heads + h) * (quads + 1u) + quad);
  }
}
)";

struct AttentionShape {
  int64_t head, heads, kv_heads, splits;
  uint32_t threads, shared_lanes, together, value_groups, tile;
  int64_t memory;
};

bool Power2(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

AttentionShape ShapeOf(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape& keys = InputShape(call, kKeys);
  AttentionShape a{
      .head = keys[2], .heads = call.attrs.GetInt("heads"), .kv_heads = keys[0], .splits = call.attrs.GetInt("splits", 1)};
  const uint32_t subgroup = std::max(CertainSubgroup(request.target), 1u);
  const int64_t quads = a.head / 4, group = a.heads / a.kv_heads;
  // Large heads keep more invocations busy (docs/measurements/h200.md).
  const int64_t wanted = a.head >= 256 ? 512 : 256;
  a.threads = std::max<uint32_t>(uint32_t(std::min<int64_t>(wanted, request.target.max_invocations)), subgroup);
  a.shared_lanes = uint32_t(std::min<int64_t>(subgroup, quads));
  // A lane has at most two quads of a row; short rows leave lanes for more positions.
  while (a.shared_lanes > 4 && quads / a.shared_lanes < 2) a.shared_lanes /= 2;
  a.together = group >= 8 ? 1 : group >= 4 ? 2 : 4;
  a.tile = 64;
  a.value_groups = uint32_t(std::max<int64_t>(1, a.threads / quads));
  auto memory = [&] {
    return (group + 1) * a.head * 4 + group * int64_t(a.tile) * 4 + int64_t(a.value_groups) * group * quads * 16 + group * 16 +
           64;
  };
  while (a.value_groups > 1 && memory() > int64_t(request.target.max_workgroup_bytes)) a.value_groups /= 2;
  a.memory = memory();
  return a;
}

bool AcceptSplit(const KernelRequest& request) {
  const Shape& keys = InputShape(request.call, kKeys);
  const AttentionShape a = ShapeOf(request);
  return CertainSubgroup(request.target) >= 4 && Power2(keys[2]) && keys[2] >= 16 && a.head / 4 <= a.threads &&
         a.memory <= int64_t(request.target.max_workgroup_bytes);
}

// The dispatch with its tensors, the grid left open.
KernelDispatch Start(const KernelRequest& request, const char* name, std::string_view text) {
  const OpCall& call = request.call;
  KernelDispatch dispatch{.kernel_name = name, .kernel_text = text, .stores_result = true};
  const Shape row{InputShape(call, kQkv).element_count()};
  dispatch.tensors = {InputArgument("qkv", int(kQkv), row, ReshapeMap(InputShape(call, kQkv), row)),
                      InputArgument("turns", int(kTurns)),
                      InputArgument("at_step", int(kStep)),
                      OutputArgument("keys", 1),
                      OutputArgument("values", 2),
                      OutputArgument("y", 0)};
  if (HasInput(call, kQueryGain)) dispatch.tensors.push_back(InputArgument("query_gain", int(kQueryGain)));
  if (HasInput(call, kKeyGain)) dispatch.tensors.push_back(InputArgument("key_gain", int(kKeyGain)));
  auto& consts = dispatch.consts;
  const int64_t heads = call.attrs.GetInt("heads");
  consts["heads"] = double(heads);
  consts["scale"] = call.attrs.GetFloat("scale", 1);
  consts["window"] = double(call.attrs.GetInt("window"));
  consts["interleaved"] = call.attrs.GetBool("interleaved");
  consts["epsilon"] = call.attrs.GetFloat("epsilon", 1e-6);
  consts["has_query_gain"] = HasInput(call, kQueryGain);
  consts["has_key_gain"] = HasInput(call, kKeyGain);
  const Shape& keys = InputShape(call, kKeys);
  dispatch.flops = 4.0 * double(heads * keys[2]) * double(keys[1]);
  return dispatch;
}

Result<OpPlan> Plan(const KernelRequest& request) {
  const AttentionShape a = ShapeOf(request);
  OpPlan plan;
  KernelDispatch dispatch = Start(request, "decode_attention", kSplit);
  auto& consts = dispatch.consts;
  consts["threads"] = a.threads;
  consts["shared_lanes"] = a.shared_lanes;
  consts["together"] = a.together;
  consts["value_groups"] = a.value_groups;
  consts["tile"] = a.tile;
  dispatch.workgroups[0] = uint32_t(a.splits);
  dispatch.workgroups[1] = uint32_t(a.kv_heads);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

// The heads that share a key each make it for themselves, so that none waits for the cache. Loops over eight single elements
// become vector instructions of that width.
constexpr std::string_view kSerial = R"(
tensor qkv[element] : read;
weights query_gain[element];
weights key_gain[element];
tensor turns[pair] : read as u32;
tensor at_step[field] : read as i32;
tensor keys[kv_head, slot, element] : read_write;
tensor values[kv_head, slot, element] : read_write;
tensor y[split, element] : write;

const heads : u32;
const scale : f32;
const window : u32;
const interleaved : bool;
const epsilon : f32;
const has_query_gain : bool;
const has_key_gain : bool;

const head = keys.element;
const eights = head / 8u;
const group_heads = heads / keys.kv_head;
const tile = 4u;  // positions

var<workgroup> query : array<f32, head>;
var<workgroup> key : array<f32, head>;

fn dot_of_key(kv : u32, slot : u32, zero : u32) -> f32 {
  var acc = array<f32, 8>();
  for (var c = 0u; c < eights + zero; c++) {
    for (var i = 0u; i < 8u; i++) { acc[i] += query[8u * c + i] * keys.load(kv, slot, 8u * c + i); }
  }
  return ((acc[0] + acc[4]) + (acc[1] + acc[5])) + ((acc[2] + acc[6]) + (acc[3] + acc[7]));
}

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let h = group.x;
  let split = group.y;
  let kv = h / group_heads;
  // Zero, but no compiler knows: Mesa unrolls loops over constant extents without measure.
  let zero = h >> 31u;
  let position = u32(at_step.load(0u));
  var begin = 0u;
  if (window > 0u) { begin = select(0u, position + 1u - window, position + 1u > window); }
  let span = (position + 1u - begin + y.split - 1u) / y.split;
  let first = begin + split * span;
  let own = first <= position && position < first + span;
  let end = min(first + span, position);  // of what is in the caches already
  let own_values = (heads + keys.kv_head + kv) * head;

  var query_squares = 0.0;
  var key_squares = 0.0;
  for (var i = 0u; i < head + zero; i++) {
    let q = qkv.load(h * head + i);
    let k = qkv.load((heads + kv) * head + i);
    query_squares += q * q;
    key_squares += k * k;
    query[i] = q;
    key[i] = k;
  }
  if (has_query_gain) {
    let factor = inverseSqrt(query_squares / f32(head) + epsilon);
    for (var i = 0u; i < head + zero; i++) { query[i] *= factor * query_gain.load(i); }
  }
  if (has_key_gain) {
    let factor = inverseSqrt(key_squares / f32(head) + epsilon);
    for (var i = 0u; i < head + zero; i++) { key[i] *= factor * key_gain.load(i); }
  }
  for (var i = 0u; i < turns.pair + zero; i++) {
    var a = i;
    var b = i + turns.pair;
    if (interleaved) { a = 2u * i; b = 2u * i + 1u; }
    let turned = cos_sin_of_turn(position * turns.load(i));
    let qa = query[a];
    let qb = query[b];
    query[a] = qa * turned.x - qb * turned.y;
    query[b] = qb * turned.x + qa * turned.y;
    let ka = key[a];
    let kb = key[b];
    key[a] = ka * turned.x - kb * turned.y;
    key[b] = kb * turned.x + ka * turned.y;
  }
  for (var i = 0u; i < head + zero; i++) { query[i] *= scale; }

  var largest = -3.0e4;
  var total = 0.0;
  var sum = array<f32, head>();
  for (var start = first; start < end; start += tile) {
    // Beyond the end the last one again, without weight.
    let slot0 = start % keys.slot;
    let slot1 = min(start + 1u, end - 1u) % keys.slot;
    let slot2 = min(start + 2u, end - 1u) % keys.slot;
    let slot3 = min(start + 3u, end - 1u) % keys.slot;
    let scores = vec4f(dot_of_key(kv, slot0, zero), dot_of_key(kv, slot1, zero), dot_of_key(kv, slot2, zero), dot_of_key(kv, slot3, zero));
    let top = max4(scores);
    if (top > largest) {
      let shrink = exp(largest - top);
      total *= shrink;
      for (var i = 0u; i < head + zero; i++) { sum[i] *= shrink; }
      largest = top;
    }
    let e = keep4(exp(scores - largest), 0u, end - start, 0.0);
    total += sum4(e);
    for (var c = 0u; c < eights + zero; c++) {
      for (var i = 0u; i < 8u; i++) {
        let at = 8u * c + i;
        sum[at] += e.x * values.load(kv, slot0, at) + e.y * values.load(kv, slot1, at) + e.z * values.load(kv, slot2, at) +
                   e.w * values.load(kv, slot3, at);
      }
    }
  }
  if (own) {
    var score = 0.0;
    for (var i = 0u; i < head + zero; i++) { score += query[i] * key[i]; }
    let top = max(score, largest);
    let shrink = exp(largest - top);
    let e = exp(score - top);
    total = total * shrink + e;
    largest = top;
    for (var i = 0u; i < head + zero; i++) { sum[i] = sum[i] * shrink + e * qkv.load(own_values + i); }
    if (h % group_heads == 0u && at_step.load(1u) > 0) {
      let slot = position % keys.slot;
      for (var i = 0u; i < head + zero; i++) {
        keys.store(key[i], kv, slot, i);
        values.store(qkv.load(own_values + i), kv, slot, i);
      }
    }
  }
  let at = h * (head + 4u);
  for (var i = 0u; i < head + zero; i++) { y.store(sum[i], split, at + i); }
  y.store4(vec4f(largest, total, 0.0, 0.0), split, (at + head) / 4u);
}
)";

bool AcceptSerial(const KernelRequest& request) {
  return RunsWorkgroupsOnThreads(request.target) && InputShape(request.call, kKeys)[2] <= 1024;
}

Result<OpPlan> PlanSerial(const KernelRequest& request) {
  OpPlan plan;
  KernelDispatch dispatch = Start(request, "decode_attention_serial", kSerial);
  dispatch.workgroups[0] = uint32_t(request.call.attrs.GetInt("heads"));
  dispatch.workgroups[1] = uint32_t(request.call.outputs[0].shape[0]);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "split",
     .what = "one workgroup per split and key/value head",
     .accepts = AcceptSplit,
     .plan = Plan,
     .no_epilogue = true},
    {.name = "serial",
     .what = "CPUs: one invocation per split and query head",
     .accepts = AcceptSerial,
     .plan = PlanSerial,
     .no_epilogue = true},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_decode_attention = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .updates = kUpdates, .kernels = &kKernels};

}  // namespace leeway
