#include "ops/decode_stage.h"

#include <algorithm>
#include <cmath>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/weights.h"
#include "tensor/block_pack.h"
#include "tensor/coord_map.h"

namespace leeway {
namespace {

// A row of the weights is cut into chunks of 32 elements, four words of 4 bits or eight of 8. Quad number i of the input
// (elements 4i to 4i + 3) is quad i % 8 of chunk i / 8; in workgroup memory quads of one number lie together, so that lanes,
// which take neighbouring chunks, read neighbouring words.
constexpr auto kText = JoinTexts(kQuantizeQuads, R"(
tensor x[inner] : read;
tensor branch[inner] : read;
weights gain[inner];
weights branch_gain[inner];
tensor splits[split, element] : read;
tensor codes_in[word] : read as u32;
tensor code_scales[chunk, part] : read;
weights w[row, inner];
tensor y[row] : write;
tensor residual[inner] : write;
tensor best[group] : write;
tensor best_row[group] : write as u32;

const before : u32;   // 0 none, 1 norm, 2 add_norm, 3 merge, 4 codes
const after : u32;    // 0 none, 1 gelu, 2 silu, 3 argmax
const int8 : bool;
const epsilon : f32;
const heads : u32;
const lanes : u32;    // invocations that share a row
const rows : u32;     // rows of weights that a unit of so many lanes takes, pairs for gates
const ahead : u32;    // chunks of each row that are loaded at once
const threads : u32;
const groups_per_row : u32;

const inner = w.inner;
const quads = inner / 4u;
const chunks = inner / 32u;
const per_thread = (quads + threads - 1u) / threads;
const steps = (chunks + lanes - 1u) / lanes;
const words = w.bits / 4u;               // blocks of four words in a chunk
const parts = 32u / w.group;             // factors in a chunk
const gated = after == 1u || after == 2u;
const units = threads / lanes;
const results = rows / select(1u, 2u, gated);  // of a unit
const result_rows = w.row / select(1u, 2u, gated);
const subgroups = threads / subgroup_size;

var<workgroup> sums : array<f32, 2u * subgroups>;
var<workgroup> xf : array<vec4f, quads>;
var<workgroup> xq : array<vec4u, chunks * 2u>;
// int8: scale, scale times the sums of both halves of the chunk and of the whole; float: the sums.
var<workgroup> xs : array<vec4f, chunks>;
var<workgroup> row_parts : array<f32, subgroups * rows>;
var<workgroup> unit_best : array<f32, units>;
var<workgroup> unit_row : array<u32, units>;

// Over the workgroup; side 0 and 1 in turn, so that one barrier is enough.
fn group_sum(v : f32, at : u32, side : u32) -> f32 {
  let part = subgroupAdd(v);
  if (at % subgroup_size == 0u) { sums[side * subgroups + at / subgroup_size] = part; }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < subgroups; i++) { total += sums[side * subgroups + i]; }
  return total;
}

// Quad i of the input to workgroup memory. The eight quads of a chunk are with eight neighbouring lanes.
fn put(i : u32, v : vec4f) {
  let quad = i % 8u;
  let chunk = i / 8u;
  let inside = i < quads;
  if (int8) {
    let q = quantize_quad(v);
    let p1 = subgroupShuffleXor(q.codes, 1u);
    let p2 = subgroupShuffleXor(q.codes, 2u);
    let p3 = subgroupShuffleXor(p1, 2u);
    if (inside && quad % 4u == 0u) { xq[quad / 4u * chunks + chunk] = vec4u(q.codes, p1, p2, p3); }
    if (inside && quad == 0u) { xs[chunk] = q.factors; }
  } else {
    var sum = v.x + v.y + v.z + v.w;
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    let other = subgroupShuffleXor(sum, 4u);
    if (inside) { xf[quad * chunks + chunk] = v; }
    if (inside && quad == 0u) { xs[chunk] = vec4f(1.0, sum, other, sum + other); }
  }
}

fn low(q : vec4u) -> vec4u { return q & vec4u(0x0f0f0f0fu); }
fn high(q : vec4u) -> vec4u { return (q >> vec4u(4u)) & vec4u(0x0f0f0f0fu); }
fn dots(q : vec4u, v : vec4u) -> i32 {
  return (dot4I8Packed(q.x, v.x) + dot4I8Packed(q.y, v.y)) + (dot4I8Packed(q.z, v.z) + dot4I8Packed(q.w, v.w));
}
fn unsigned_dots(q : vec4u, first : u32, chunk : u32) -> f32 {
  return dot(vec4f(unpack4xU8(q.x)), xf[first * chunks + chunk]) + dot(vec4f(unpack4xU8(q.y)), xf[(first + 1u) * chunks + chunk]) +
         dot(vec4f(unpack4xU8(q.z)), xf[(first + 2u) * chunks + chunk]) + dot(vec4f(unpack4xU8(q.w)), xf[(first + 3u) * chunks + chunk]);
}
fn signed_dots(q : vec4u, first : u32, chunk : u32) -> f32 {
  return dot(vec4f(unpack4xI8(q.x)), xf[first * chunks + chunk]) + dot(vec4f(unpack4xI8(q.y)), xf[(first + 1u) * chunks + chunk]) +
         dot(vec4f(unpack4xI8(q.z)), xf[(first + 2u) * chunks + chunk]) + dot(vec4f(unpack4xI8(q.w)), xf[(first + 3u) * chunks + chunk]);
}
// Codes times input over the two halves of a chunk.
fn half_dots(q0 : vec4u, q1 : vec4u, chunk : u32) -> vec2f {
  if (int8) {
    let scale = xs[chunk].x;
    if (w.bits == 4u) {
      return scale * vec2f(f32(dots(low(q0), xq[chunk])), f32(dots(high(q0), xq[chunks + chunk])));
    } else {
      return scale * vec2f(f32(dots(q0, xq[chunk])), f32(dots(q1, xq[chunks + chunk])));
    }
  } else {
    if (w.bits == 4u) {
      return vec2f(unsigned_dots(low(q0), 0u, chunk), unsigned_dots(high(q0), 4u, chunk));
    } else {
      return vec2f(signed_dots(q0, 0u, chunk), signed_dots(q1, 4u, chunk));
    }
  }
}

fn weight_row(first : u32, r : u32) -> u32 {
  if (gated) {
    return min(first + r / 2u, result_rows - 1u) + (r % 2u) * result_rows;
  } else {
    return min(first + r, result_rows - 1u);
  }
}
fn gate(v : f32) -> f32 {
  if (after == 1u) { return gelu_tanh(v); } else { return silu(v); }
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) at : u32) {
  let lane = at % lanes;
  let number = group.y * groups_per_row + group.x;
  let first = (number * units + at / lanes) * results;

  // The first weights are asked for before anything else: they arrive while the input is prepared.
  var q : array<vec4u, rows * ahead * words>;
  var d : array<f32, rows * ahead * parts>;
  var m : array<f32, rows * ahead * parts>;
  var acc : array<f32, rows>;
  @unroll for (var r = 0u; r < rows; r++) {
    acc[r] = 0.0;
    @unroll for (var u = 0u; u < ahead; u++) {
      let chunk = min(lane + u * lanes, chunks - 1u);
      let row = weight_row(first, r);
      @unroll for (var i = 0u; i < words; i++) { q[(r * ahead + u) * words + i] = w.block(row, chunk * words + i); }
      @unroll for (var i = 0u; i < parts; i++) {
        d[(r * ahead + u) * parts + i] = select(0.0, w.scale(row, chunk * parts + i), lane + u * lanes < chunks);
        if (w.has_minimum) {
          m[(r * ahead + u) * parts + i] = select(0.0, w.minimum(row, chunk * parts + i), lane + u * lanes < chunks);
        }
      }
    }
  }

  var v : array<vec4f, per_thread>;
  if (before == 0u) {
    @unroll for (var j = 0u; j < per_thread; j++) {
      v[j] = vec4f(0.0);
      if (at + j * threads < quads) { v[j] = x.load4(at + j * threads); }
    }
    @unroll for (var j = 0u; j < per_thread; j++) { put(at + j * threads, v[j]); }
  } else if (before == 3u) {
    const head = splits.element / heads - 4u;
    const head_quads = head / 4u + 1u;
    @unroll for (var j = 0u; j < per_thread; j++) {
      let i = min(at + j * threads, quads - 1u);
      let h = i / (head / 4u);
      var largest = -3.0e4;
      var ml : array<vec4f, splits.split>;
      var sum : array<vec4f, splits.split>;
      @unroll for (var s = 0u; s < splits.split; s++) {
        ml[s] = splits.load4(s, h * head_quads + head / 4u);
        sum[s] = splits.load4(s, h * head_quads + i % (head / 4u));
      }
      @unroll for (var s = 0u; s < splits.split; s++) { largest = max(largest, ml[s].x); }
      var total = 0.0;
      v[j] = vec4f(0.0);
      @unroll for (var s = 0u; s < splits.split; s++) {
        let e = exp(ml[s].x - largest);
        total += e * ml[s].y;
        v[j] += e * sum[s];
      }
      put(at + j * threads, v[j] / total);
    }
  } else if (before == 4u) {
    for (var i = at; i < 2u * chunks; i += threads) { xq[i] = codes_in.load4(i); }
    for (var i = at; i < chunks; i += threads) { xs[i] = code_scales.load4(i, 0u); }
  } else {
    @unroll for (var j = 0u; j < per_thread; j++) {
      v[j] = vec4f(0.0);
      if (at + j * threads < quads) { v[j] = x.load4(at + j * threads); }
    }
    if (before == 2u) {
      var b : array<vec4f, per_thread>;
      var squares = 0.0;
      @unroll for (var j = 0u; j < per_thread; j++) {
        b[j] = vec4f(0.0);
        if (at + j * threads < quads) { b[j] = branch.load4(at + j * threads); }
        squares += dot(b[j], b[j]);
      }
      let factor = inverseSqrt(group_sum(squares, at, 0u) / f32(inner) + epsilon);
      @unroll for (var j = 0u; j < per_thread; j++) {
        if (at + j * threads < quads) { v[j] += b[j] * factor * branch_gain.load4(at + j * threads); }
      }
      if (number == 0u) {
        @unroll for (var j = 0u; j < per_thread; j++) {
          if (at + j * threads < quads) { residual.store4(v[j], at + j * threads); }
        }
      }
    }
    var squares = 0.0;
    @unroll for (var j = 0u; j < per_thread; j++) { squares += dot(v[j], v[j]); }
    let factor = inverseSqrt(group_sum(squares, at, 1u) / f32(inner) + epsilon);
    @unroll for (var j = 0u; j < per_thread; j++) {
      var g = vec4f(0.0);
      if (at + j * threads < quads) { g = gain.load4(at + j * threads); }
      put(at + j * threads, v[j] * factor * g);
    }
  }
  workgroupBarrier();

  for (var s = 0u; s < steps; s += ahead) {
    if (s > 0u) {
      @unroll for (var r = 0u; r < rows; r++) {
        @unroll for (var u = 0u; u < ahead; u++) {
          let unclamped = lane + (s + u) * lanes;
          let chunk = min(unclamped, chunks - 1u);
          let row = weight_row(first, r);
          @unroll for (var i = 0u; i < words; i++) { q[(r * ahead + u) * words + i] = w.block(row, chunk * words + i); }
          @unroll for (var i = 0u; i < parts; i++) {
            d[(r * ahead + u) * parts + i] = select(0.0, w.scale(row, chunk * parts + i), unclamped < chunks);
            if (w.has_minimum) {
              m[(r * ahead + u) * parts + i] = select(0.0, w.minimum(row, chunk * parts + i), unclamped < chunks);
            }
          }
        }
      }
    }
    @unroll for (var u = 0u; u < ahead; u++) {
      let chunk = min(lane + (s + u) * lanes, chunks - 1u);
      let sums_here = xs[chunk];
      @unroll for (var r = 0u; r < rows; r++) {
        let k = r * ahead + u;
        let halves = half_dots(q[k * words], q[k * words + words - 1u], chunk);
        if (parts == 1u) {
          acc[r] += d[k] * (halves.x + halves.y - f32(w.offset) * sums_here.w);
          if (w.has_minimum) { acc[r] += m[k] * sums_here.w; }
        } else {
          acc[r] += d[k * parts] * (halves.x - f32(w.offset) * sums_here.y) +
                    d[k * parts + parts - 1u] * (halves.y - f32(w.offset) * sums_here.z);
          if (w.has_minimum) { acc[r] += m[k * parts] * sums_here.y + m[k * parts + parts - 1u] * sums_here.z; }
        }
      }
    }
  }

  // Over the lanes of a row.
  @unroll for (var r = 0u; r < rows; r++) {
    @unroll for (var step = min(lanes, subgroup_size) / 2u; step > 0u; step = step / 2u) {
      acc[r] += subgroupShuffleXor(acc[r], step);
    }
  }
  if (lanes > subgroup_size) {
    if (at % subgroup_size == 0u) {
      @unroll for (var r = 0u; r < rows; r++) { row_parts[at / subgroup_size * rows + r] = acc[r]; }
    }
    workgroupBarrier();
    @unroll for (var r = 0u; r < rows; r++) {
      acc[r] = 0.0;
      @unroll for (var i = 0u; i < lanes / subgroup_size; i++) {
        acc[r] += row_parts[(at / lanes * (lanes / subgroup_size) + i) * rows + r];
      }
    }
  }

  if (after == 3u) {
    var top = -3.0e38;
    var top_row = 0xffffffffu;
    @unroll for (var r = 0u; r < rows; r++) {
      if (first + r < result_rows && acc[r] > top) { top = acc[r]; top_row = first + r; }
    }
    if (lane == 0u) { unit_best[at / lanes] = top; unit_row[at / lanes] = top_row; }
    workgroupBarrier();
    if (at == 0u && number < best.group) {
      for (var i = 1u; i < units; i++) {
        if (unit_best[i] > top) { top = unit_best[i]; top_row = unit_row[i]; }
      }
      best.store(top, number);
      best_row.store(top_row, number);
    }
  } else if (gated) {
    if (lane == 0u) {
      @unroll for (var r = 0u; r < results; r++) {
        if (first + r < result_rows) { y.store(gate(acc[2u * r]) * acc[2u * r + 1u], first + r); }
      }
    }
  } else {
    if (lane == 0u) {
      @unroll for (var r = 0u; r < rows; r++) {
        if (first + r < result_rows) { y.store(acc[r], first + r); }
      }
    }
  }
}
)");

// How the work is dealt out: `lanes` invocations share a row, `rows` rows are a unit's, `ahead` chunks of each are loaded at
// once.
struct StageGeometry {
  uint32_t lanes = 32, rows = 1, ahead = 1, threads = 128;
};

// Found by a sweep over the matrices of the models that one has (docs/measurements/h200.md).
StageGeometry GeometryFor(const DecodeStage& stage, int64_t inner, int64_t rows, uint32_t subgroup) {
  const int64_t chunks = inner / 32;
  StageGeometry g;
  if (rows > 100000) {
    g = chunks >= 48 ? StageGeometry{16, 2, 3, 128} : StageGeometry{8, 1, 3, 128};
  } else if (stage.gated()) {
    // Pairs: at least two rows to a unit.
    g = chunks <= 24 ? StageGeometry{8, 2, 3, 128} : StageGeometry{16, 4, chunks <= 32 ? 2u : 1u, 256};
  } else if (stage.before == DecodeStage::Before::kMerge) {
    // The preparation is long, so few workgroups with many rows.
    if (chunks >= 96) {
      g = {128, 4, 1, 512};
    } else if (chunks >= 48) {
      g = {64, 2, 1, 512};
    } else {
      g = {32, 1, 1, 256};
    }
  } else if (chunks <= 8) {
    g = {8, 1, 1, 128};
  } else if (chunks <= 24) {
    g = {8, 1, 3, 128};
  } else if (chunks <= 32) {
    g = {32, 1, 1, 256};
  } else if (chunks <= 40) {
    g = {16, 1, 3, 128};
  } else if (chunks <= 64) {
    g = rows >= 1536 && chunks == 48 ? StageGeometry{32, 1, 2, 512} : StageGeometry{64, 1, 1, 256};
  } else if (chunks <= 96) {
    g = {32, 1, 3, 256};
  } else {
    // A long input is prepared by every workgroup, so they take many rows each.
    g = {128, 4, 2, 512};
  }
  if (stage.gated() && g.rows % 2 != 0) g.rows *= 2;
  // Lanes beyond a subgroup are joined through workgroup memory and must be whole subgroups.
  g.threads = std::max(g.threads, subgroup);
  return g;
}

}  // namespace

std::string_view DecodeStageText() { return kText.data(); }

bool SameFormat(const HostTensor& a, const HostTensor& b) {
  if (a.dtype() == b.dtype()) return true;
  return IsBlockQuantized(a.dtype()) && IsBlockQuantized(b.dtype()) &&
         BlockFormatOf(a.dtype(), true) == BlockFormatOf(b.dtype(), true);
}

bool StageFits(const KernelRequest& request, const DecodeStage& stage, const HostTensor& weights, int64_t inner) {
  const shader::Target& target = request.target;
  if (!IsBlockQuantized(weights.dtype()) || inner % 32 != 0) return false;
  // Eight lanes prepare a chunk together.
  const uint32_t subgroup = CertainSubgroup(target);
  if (subgroup < 8) return false;
  const StageGeometry g = GeometryFor(stage, inner, weights.shape()[0], subgroup);
  if (g.threads > target.max_invocations) return false;
  const int64_t memory = (stage.int8 ? inner : 4 * inner) + inner / 2 + 4096;
  return memory <= int64_t(target.max_workgroup_bytes);
}

uint32_t SetStageGrid(KernelDispatch& dispatch, const KernelRequest& request, const DecodeStage& stage, int64_t inner,
                      int64_t rows) {
  const StageGeometry g = GeometryFor(stage, inner, rows, CertainSubgroup(request.target));
  dispatch.consts["before"] = double(stage.before);
  dispatch.consts["after"] = double(stage.after);
  dispatch.consts["int8"] = stage.int8;
  dispatch.consts["epsilon"] = stage.epsilon;
  dispatch.consts["heads"] = double(std::max<int64_t>(stage.heads, 1));
  dispatch.consts["lanes"] = g.lanes;
  dispatch.consts["rows"] = g.rows;
  dispatch.consts["ahead"] = g.ahead;
  dispatch.consts["threads"] = g.threads;
  const int64_t groups = DivideUp(rows, int64_t(g.threads / g.lanes) * g.rows);
  SetGroupGrid(dispatch, request, groups);
  dispatch.flops = 2.0 * double(rows) * double(inner);
  return uint32_t(groups);
}

void AddStackedWeights(OpPlan& plan, KernelDispatch& dispatch, std::string name, const std::vector<int>& inputs, Shape shape) {
  PlanTensor tensor;
  tensor.type = {DType::kF32, shape};
  tensor.constant_input = inputs[0];
  tensor.stacked_inputs.assign(inputs.begin() + 1, inputs.end());
  TensorArgument argument;
  argument.name = std::move(name);
  argument.kind = TensorArgument::Kind::kPlan;
  argument.index = int(plan.tensors.size());
  plan.tensors.push_back(std::move(tensor));
  dispatch.tensors.push_back(std::move(argument));
}

void AddStageInputs(KernelDispatch& dispatch, const KernelRequest& request, const DecodeStage& stage,
                    const StageOperands& operands, int64_t inner) {
  const OpCall& call = request.call;
  const Shape row{inner};
  auto input = [&](const char* name, int index) {
    dispatch.tensors.push_back(InputArgument(name, index, row, ReshapeMap(InputShape(call, size_t(index)), row)));
  };
  if (stage.before == DecodeStage::Before::kMerge) {
    dispatch.tensors.push_back(InputArgument("splits", operands.x));
    return;
  }
  if (stage.before == DecodeStage::Before::kCodes) return;
  input("x", operands.x);
  if (stage.normed()) input("gain", operands.gain);
  if (stage.before == DecodeStage::Before::kAddNorm) {
    input("branch", operands.branch);
    input("branch_gain", operands.branch_gain);
    if (operands.residual_output < 0) return;
    const Shape& kept = call.outputs[size_t(operands.residual_output)].shape;
    dispatch.tensors.push_back(OutputArgument("residual", operands.residual_output, row, ReshapeMap(kept, row)));
  }
}

std::vector<double> Widened(const HostTensor& tensor) {
  const std::vector<float> values = tensor.ToF32();
  return {values.begin(), values.end()};
}

std::vector<double> NormedRow(const std::vector<double>& x, const std::vector<double>& gain, double epsilon) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double factor = 1 / std::sqrt(squares / double(x.size()) + epsilon);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor * gain[i];
  return y;
}

std::vector<double> RowProducts(const HostTensor& weights, const std::vector<double>& x) {
  const std::vector<float> w = weights.ToF32();
  std::vector<double> y(size_t(weights.shape()[0]));
  for (size_t row = 0; row < y.size(); ++row) {
    const float* factors = &w[row * x.size()];
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += factors[i] * x[i];
    y[row] = sum;
  }
  return y;
}

std::vector<double> MergedSplits(const HostTensor& splits, int64_t heads) {
  const std::vector<float> parts = splits.ToF32();
  const size_t count = size_t(splits.shape()[0]), width = size_t(splits.shape()[1]), stride = width / size_t(heads);
  const size_t head = stride - 4;
  std::vector<double> merged(size_t(heads) * head);
  for (size_t h = 0; h < size_t(heads); ++h) {
    double largest = -3.0e4, total = 0;
    for (size_t s = 0; s < count; ++s) largest = std::max(largest, double(parts[s * width + h * stride + head]));
    for (size_t s = 0; s < count; ++s) {
      const float* part = &parts[s * width + h * stride];
      const double e = std::exp(part[head] - largest);
      total += e * part[head + 1];
      for (size_t i = 0; i < head; ++i) merged[h * head + i] += e * part[i];
    }
    for (size_t i = 0; i < head; ++i) merged[h * head + i] /= total;
  }
  return merged;
}

void RoundToInt8(std::vector<double>& x) {
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    const size_t end = std::min(begin + 32, x.size());
    double largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    for (size_t i = begin; largest > 0 && i < end; ++i) x[i] = std::nearbyint(x[i] / largest * 127) * largest / 127;
  }
}

double GeluTanh(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

}  // namespace leeway
