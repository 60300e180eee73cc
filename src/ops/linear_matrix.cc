#include "ops/linear_matrix.h"

#include <algorithm>

#include "ops/assemble.h"
#include "ops/decode_stage.h"
#include "ops/dispatch.h"
#include "ops/linear_parts.h"
#include "ops/weights.h"
#include "tensor/block_pack.h"

namespace leeway {
namespace {

// Each subgroup makes rows_each x outputs_each matrices of 16 x 16 results, or a share of their sums where `inner_groups` of
// them take turns along the inner axis. Both inputs stand as f16 in workgroup memory, blocks_each * 32 elements of the inner
// axis at a time in two places by turns, so that one barrier a step is enough: while a step is multiplied, the next one's
// elements are on their way.
constexpr char kMatrix[] = R"(
tensor x[row, inner] : read;
weights w[output, inner];
weights bias[output];
tensor y[row, output] : write;
tensor part[split, row, output] : write as u32;
const use_bias : bool;
const splits : u32;         // shares of the inner axis, each a workgroup's
const row_groups : u32;     // subgroups along the rows,
const output_groups : u32;  // along the outputs
const inner_groups : u32;   // and along the inner axis
const rows_each : u32;      // matrices of a subgroup
const outputs_each : u32;
const blocks_each : u32;
const places = row_groups * output_groups;
const threads = places * inner_groups * subgroup_size;
const tile_rows = row_groups * rows_each * 16u;
const tile_outputs = output_groups * outputs_each * 16u;
const pitch = blocks_each * 32u + 8u;
const x_side = tile_rows * pitch;
const w_side = tile_outputs * pitch;
const x_length = 2u * x_side;
const w_length = 2u * w_side;
const slices_each = 8u * blocks_each;
const words_each = 4u * blocks_each;
const x_count = tile_rows * slices_each;
const w_count = tile_outputs * words_each;
const x_each = (x_count + threads - 1u) / threads;
const w_each = (w_count + threads - 1u) / threads;
const w_quads = w_each * 2u;
const halves_each = 2u * blocks_each / inner_groups;
const result_length = places * inner_groups * 256u;
const matrices = rows_each * outputs_each;
const blocks = w.inner / 32u;
const steps = (blocks + blocks_each - 1u) / blocks_each;
const has_rest = blocks % blocks_each != 0u;
// Halves end at 65,504; what activations have beyond that is rare, and what they lose below, harmless.
const scale_in = 0.0625;
var<workgroup> xs : array<f16, x_length>;
var<workgroup> ws : array<f16, w_length>;
var<workgroup> results : array<f32, result_length>;

fn put_w(at : u32, v : vec4f) {
  let h = vec4<f16>(v);
  ws[at] = h.x;
  ws[at + 1u] = h.y;
  ws[at + 2u] = h.z;
  ws[at + 3u] = h.w;
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) at : u32) {
  let first_row = group.y * tile_rows;
  let first_output = group.x * tile_outputs;
  let own = at / subgroup_size;
  let own_row = own % places / output_groups * rows_each * 16u;
  let own_output = own % output_groups * outputs_each * 16u;
  let own_half = own / places * halves_each;
  var sums : array<subgroup_matrix_sum, matrices>;
  var next_x : array<vec4f, x_each>;
  // Words of 4-bit codes with their factors, or the numbers themselves.
  var next_codes : array<u32, w_each>;
  var next_scale : array<f32, w_each>;
  var next_minimum : array<f32, w_each>;
  var next_w : array<vec4f, w_quads>;
  let begin = group.z * steps / splits;
  let end = (group.z + 1u) * steps / splits;
  for (var step = begin; step <= end; step++) {
    // What has arrived goes to its place.
    let side = step % 2u;
    if step > begin {
      @unroll for (var j = 0u; j < x_each; j++) {
        let i = at + j * threads;
        if i < x_count {
          let to = side * x_side + i / slices_each * pitch + i % slices_each * 4u;
          let h = vec4<f16>(next_x[j] * scale_in);
          xs[to] = h.x;
          xs[to + 1u] = h.y;
          xs[to + 2u] = h.z;
          xs[to + 3u] = h.w;
        }
      }
      @unroll for (var j = 0u; j < w_each; j++) {
        let i = at + j * threads;
        if i < w_count {
          let to = side * w_side + i / words_each * pitch + i % words_each / 4u * 32u;
          if w.bits == 4u {
            let low = vec4f(unpack4xU8(next_codes[j] & 0x0f0f0f0fu)) - vec4f(f32(w.offset));
            let high = vec4f(unpack4xU8((next_codes[j] >> 4u) & 0x0f0f0f0fu)) - vec4f(f32(w.offset));
            put_w(to + i % 4u * 4u, low * next_scale[j] + vec4f(next_minimum[j]));
            put_w(to + i % 4u * 4u + 16u, high * next_scale[j] + vec4f(next_minimum[j]));
          } else {
            put_w(to + i % 4u * 8u, next_w[2u * j]);
            put_w(to + i % 4u * 8u + 4u, next_w[2u * j + 1u]);
          }
        }
      }
      workgroupBarrier();
    }
    if step < end {
      @unroll for (var j = 0u; j < x_each; j++) {
        let i = at + j * threads;
        let slice = step * slices_each + i % slices_each;
        let is_rest = has_rest && slice >= blocks * 8u;
        next_x[j] = vec4f(0.0);
        if !is_rest { next_x[j] = x.load4(min(first_row + i / slices_each, x.row - 1u), slice); }
      }
      @unroll for (var j = 0u; j < w_each; j++) {
        let i = at + j * threads;
        let output = min(first_output + i / words_each, w.output - 1u);
        let block = step * blocks_each + i % words_each / 4u;
        let is_rest = has_rest && block >= blocks;
        if w.bits == 4u {
          next_codes[j] = 0u;
          next_scale[j] = 0.0;
          next_minimum[j] = 0.0;
          if !is_rest {
            next_codes[j] = w.block(output, block)[i % 4u];
            next_scale[j] = w.scale(output, block);
            if w.has_minimum { next_minimum[j] = w.minimum(output, block); }
          }
        } else {
          next_w[2u * j] = vec4f(0.0);
          next_w[2u * j + 1u] = vec4f(0.0);
          if !is_rest {
            next_w[2u * j] = w.load4(output, block * 8u + i % 4u * 2u);
            next_w[2u * j + 1u] = w.load4(output, block * 8u + i % 4u * 2u + 1u);
          }
        }
      }
    }
    if step > begin {
      @unroll for (var h = 0u; h < halves_each; h++) {
        let inner = (own_half + h) * 16u;
        var left : array<subgroup_matrix_left, rows_each>;
        @unroll for (var m = 0u; m < rows_each; m++) {
          left[m] = subgroupMatrixLoadLeft(&xs, side * x_side + (own_row + m * 16u) * pitch + inner, pitch);
        }
        @unroll for (var n = 0u; n < outputs_each; n++) {
          let right = subgroupMatrixLoadRightTransposed(&ws, side * w_side + (own_output + n * 16u) * pitch + inner, pitch);
          @unroll for (var m = 0u; m < rows_each; m++) {
            sums[m * outputs_each + n] = subgroupMatrixMultiplyAdd(left[m], right, sums[m * outputs_each + n]);
          }
        }
      }
    }
  }
  // Results leave through workgroup memory, a matrix of each subgroup at a time.
  @unroll for (var m = 0u; m < rows_each; m++) {
    @unroll for (var n = 0u; n < outputs_each; n++) {
      subgroupMatrixStore(&results, own * 256u, 16u, sums[m * outputs_each + n]);
      workgroupBarrier();
      for (var i = at; i < places * 64u; i += threads) {
        let place = i / 64u;
        let row = first_row + (place / output_groups * rows_each + m) * 16u + i % 64u / 4u;
        let slice = (first_output + (place % output_groups * outputs_each + n) * 16u) / 4u + i % 4u;
        if row < x.row && 4u * slice < w.output {
          var v = vec4f(0.0);
          @unroll for (var g = 0u; g < inner_groups; g++) {
            let part = g * places * 256u + i * 4u;
            v += vec4f(results[part], results[part + 1u], results[part + 2u], results[part + 3u]);
          }
          v *= 1.0 / scale_in;
          if splits > 1u {
            part.store4(bitcast<vec4u>(v), group.z, row, slice);
          } else {
            if use_bias { v += bias.load4(slice); }
            y.store4(v, row, slice);
          }
        }
      }
      workgroupBarrier();
    }
  }
}
)";

constexpr char kSumParts[] = R"(
tensor part[split, row, output] : read as u32;
weights bias[output];
tensor y[row, output] : write;
const groups_per_row : u32;
const use_bias : bool;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  const slices = (y.output + 3u) / 4u;
  if index >= y.row * slices { return; }
  let row = index / slices;
  let slice = index % slices;
  var sum = vec4f(0.0);
  for (var s = 0u; s < part.split; s++) { sum += bitcast<vec4f>(part.load4(s, row, slice)); }
  if use_bias { sum += bias.load4(slice); }
  y.store4(sum, row, slice);
}
)";

struct Tile {
  uint32_t row_groups, output_groups, inner_groups, rows_each, outputs_each, blocks_each;
  uint32_t rows() const { return row_groups * rows_each * 16; }
  uint32_t outputs() const { return output_groups * outputs_each * 16; }
  uint32_t subgroups() const { return row_groups * output_groups * inner_groups; }
  uint32_t bytes() const { return 2 * (rows() + outputs()) * (32 * blocks_each + 8) * 2 + subgroups() * 256 * 4; }
};
// 128 x 128 results reach most of what the matrix units give; the others are for products that have too few of them.
constexpr Tile kTiles[] = {{2, 4, 1, 4, 2, 1}, {2, 2, 2, 2, 2, 2}, {1, 2, 4, 2, 1, 4}};
// Workgroups that keep a large GPU busy, and the least steps of a share of the inner axis that pay for adding the shares up.
constexpr int64_t kEnough = 96, kGoal = 128, kLeastSteps = 8;

bool Fits(const Tile& tile, const shader::Target& target) {
  const uint32_t threads = tile.subgroups() * CertainSubgroup(target);
  return tile.bytes() <= target.max_workgroup_bytes && threads <= target.max_invocations &&
         threads <= target.max_workgroup_size[0];
}

struct Cut {
  const Tile* tile = nullptr;  // null: none fits
  int64_t splits = 1;
};
Cut CutFor(const shader::Target& target, int64_t rows, int64_t inner, int64_t outputs) {
  Cut cut;
  for (const Tile& tile : kTiles) {
    if (!Fits(tile, target)) continue;
    cut.tile = &tile;
    const int64_t tiles = DivideUp(rows, tile.rows()) * DivideUp(outputs, tile.outputs());
    const int64_t most = &tile == &kTiles[0] && rows > 64 ? std::max<int64_t>(inner / (32 * kLeastSteps), 1) : 1;
    cut.splits = std::clamp<int64_t>(DivideUp(kGoal, tiles), 1, most);
    if (tiles >= kEnough) cut.splits = 1;
    if (tiles * cut.splits >= kEnough) break;
    cut.splits = 1;
  }
  return cut;
}

}  // namespace

bool AcceptLinearMatrix(const KernelRequest& request) {
  const shader::Target& target = request.target;
  const LinearShapes shapes = LinearShapesOf(request.call);
  const HostTensor* weights = request.call.inputs[1].constant;
  const bool has_short_groups = weights && IsBlockQuantized(weights->dtype()) &&
                                BlockFormatOf(weights->dtype(), true).bits == 4 &&
                                BlockFormatOf(weights->dtype(), true).group != 32;
  return target.subgroup_matrix && target.f16 && CertainSubgroup(target) >= 8 && !target.is_software && shapes.x[0] > 8 &&
         shapes.x[1] % 32 == 0 && !has_short_groups && (request.prefer_f16 || request.call.attrs.GetBool("half_inputs")) &&
         CutFor(target, shapes.x[0], shapes.x[1], shapes.y[1]).tile;
}

Result<OpPlan> PlanLinearMatrix(const KernelRequest& request) {
  const LinearShapes shapes = LinearShapesOf(request.call);
  OpPlan plan;
  if (shapes.y.element_count() == 0) return plan;
  const Cut cut = CutFor(request.target, shapes.x[0], shapes.x[1], shapes.y[1]);
  const Tile& tile = *cut.tile;
  KernelDispatch dispatch = StartLinear(request, shapes, "linear_matrix", kMatrix, plan);
  dispatch.consts["splits"] = double(cut.splits);
  dispatch.consts["row_groups"] = tile.row_groups;
  dispatch.consts["output_groups"] = tile.output_groups;
  dispatch.consts["inner_groups"] = tile.inner_groups;
  dispatch.consts["blocks_each"] = tile.blocks_each;
  dispatch.consts["rows_each"] = tile.rows_each;
  dispatch.consts["outputs_each"] = tile.outputs_each;
  dispatch.workgroups[0] = uint32_t(DivideUp(shapes.y[1], tile.outputs()));
  dispatch.workgroups[1] = uint32_t(DivideUp(shapes.y[0], tile.rows()));
  dispatch.workgroups[2] = uint32_t(cut.splits);
  if (cut.splits == 1) {
    plan.dispatches.push_back(std::move(dispatch));
    return plan;
  }
  // As bits, so that they are never narrow.
  TensorArgument part{.name = "part", .kind = TensorArgument::Kind::kPlan, .index = int(plan.tensors.size())};
  plan.tensors.push_back({.type = {DType::kU32, Shape{cut.splits, shapes.y[0], shapes.y[1]}}});
  KernelDispatch sum{.kernel_name = "linear_sum_parts", .kernel_text = kSumParts, .stores_result = true};
  sum.consts["use_bias"] = dispatch.consts["use_bias"];
  // The result and the bias are the second dispatch's.
  for (TensorArgument& argument : dispatch.tensors) {
    if (argument.name == "y" || argument.name == "bias") sum.tensors.push_back(argument);
  }
  std::erase_if(dispatch.tensors, [](const TensorArgument& a) { return a.name == "y" || a.name == "bias"; });
  dispatch.tensors.push_back(part);
  dispatch.stores_result = false;
  dispatch.consts["use_bias"] = false;
  sum.tensors.push_back(std::move(part));
  SetLinearGrid(sum, request, shapes.y[0] * Slices(shapes.y[1]));
  plan.dispatches.push_back(std::move(dispatch));
  plan.dispatches.push_back(std::move(sum));
  return plan;
}

}  // namespace leeway
