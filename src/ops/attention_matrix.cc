#include "ops/attention_matrix.h"

#include "ops/assemble.h"
#include "ops/attention_parts.h"
#include "ops/decode_stage.h"
#include "ops/dispatch.h"
#include "ops/operands.h"

namespace leeway {
namespace {

// Four subgroups take 16 queries of one head of the cache (rows by the heads that share it) and go over the positions twice, 32
// at a time: first for the largest score and the sum of the weights of each query, then for the weighted sums. Matrices cannot
// be scaled row by row, as going over them once would ask for; their products are cheap enough to be made again.
constexpr auto kMatrix = JoinTexts(kAttentionCommon, R"(
const threads = 4u * subgroup_size;
const pitch = q.inner + 8u;
const q_length = 16u * pitch;
const tile_length = 32u * pitch;
const weight_pitch = 40u;
const weight_length = 16u * weight_pitch;
const rows_each = 128u / threads;    // queries whose scores an invocation looks at; eight lanes share a query
const columns_each = q.inner / 64u;  // matrices of results of a subgroup
const units = q.row * group;
const tiles = (units + 15u) / 16u;
var<workgroup> queries : array<f16, q_length>;
var<workgroup> tile : array<f16, tile_length>;
var<workgroup> weights : array<f16, weight_length>;
// Scores [2 halves of the inner axis, 16 queries, 32 positions]; at the end results, 16 x 16 for each subgroup.
var<workgroup> scores : array<f32, 1024>;

fn put_tile(at : u32, value : vec4f) {
  let h = vec4<f16>(value);
  tile[at] = h.x;
  tile[at + 1u] = h.y;
  tile[at + 2u] = h.z;
  tile[at + 3u] = h.w;
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) at : vec3u, @builtin(local_invocation_index) lane : u32) {
  let unit = at.y * groups_per_row + at.x;
  let plane = unit % k.plane;
  let first_query = unit / k.plane * 16u;
  if first_query >= units { return; }
  let rows = valid_rows();
  let base = first_position();
  let first_row = first_query / group;
  let last_row = min(rows, (first_query + 15u) / group + 1u);  // end of the rows
  let own = lane / subgroup_size;
  for (var i = lane; i < 16u * slices; i += threads) {
    let query = first_query + i / slices;
    var value = vec4f(0.0);
    if query < units && query / group < rows { value = q.load4(query / group, plane * group + query % group, i % slices); }
    let h = vec4<f16>(value);
    let to = i / slices * pitch + i % slices * 4u;
    queries[to] = h.x;
    queries[to + 1u] = h.y;
    queries[to + 2u] = h.z;
    queries[to + 3u] = h.w;
  }
  let begin = first_visible(base + first_row) / 32u * 32u;
  let end = select(begin, base + last_row, first_row < rows);
  var largest : array<f32, rows_each>;
  var total : array<f32, rows_each>;
  @unroll for (var r = 0u; r < rows_each; r++) { largest[r] = nothing; total[r] = 0.0; }
  var sums : array<subgroup_matrix_sum, columns_each>;
  for (var pass_number = 0u; pass_number < 2u; pass_number++) {
    for (var p = begin; p < end; p += 32u) {
      workgroupBarrier();
      for (var i = lane; i < 32u * slices; i += threads) {
        var key = vec4f(0.0);
        if p + i / slices < end { key = k.load4(plane, (p + i / slices) % k.slot, i % slices); }
        put_tile(i / slices * pitch + i % slices * 4u, key);
      }
      workgroupBarrier();
      // Each subgroup: 16 of the positions, half of the inner axis.
      var dots : subgroup_matrix_sum;
      const half = q.inner / 2u;
      for (var i = 0u; i < half; i += 16u) {
        let inner = own / 2u * half + i;
        dots = subgroupMatrixMultiplyAdd(subgroupMatrixLoadLeft(&queries, inner, pitch),
                                         subgroupMatrixLoadRightTransposed(&tile, own % 2u * 16u * pitch + inner, pitch), dots);
      }
      subgroupMatrixStore(&scores, own / 2u * 512u + own % 2u * 16u, 32u, dots);
      workgroupBarrier();
      @unroll for (var r = 0u; r < rows_each; r++) {
        let one = r * (threads / 8u) + lane / 8u;
        let row = (first_query + one) / group;
        let from_position = first_visible(base + row);
        var own_scores : array<f32, 4>;
        var sees : array<bool, 4>;
        @unroll for (var j = 0u; j < 4u; j++) {
          let column = lane % 8u + 8u * j;
          let position = p + column;
          sees[j] = row < rows && first_query + one < units && position <= base + row && position >= from_position;
          own_scores[j] = select(nothing, capped(scale * (scores[one * 32u + column] + scores[512u + one * 32u + column])), sees[j]);
        }
        if pass_number == 0u {
          let next = max(max(largest[r], max(own_scores[0], own_scores[1])), max(own_scores[2], own_scores[3]));
          total[r] *= exp(largest[r] - next);
          @unroll for (var j = 0u; j < 4u; j++) { total[r] += select(0.0, exp(own_scores[j] - next), sees[j]); }
          largest[r] = next;
        } else {
          @unroll for (var j = 0u; j < 4u; j++) {
            weights[one * weight_pitch + lane % 8u + 8u * j] =
                f16(select(0.0, exp(own_scores[j] - largest[r]) * total[r], sees[j]));
          }
        }
      }
      if pass_number == 1u {
        // The keys have been read.
        for (var i = lane; i < 32u * slices; i += threads) {
          var value = vec4f(0.0);
          if p + i / slices < end { value = v.load4(plane, (p + i / slices) % v.slot, i % slices); }
          put_tile(i / slices * pitch + i % slices * 4u, value);
        }
        workgroupBarrier();
        @unroll for (var step = 0u; step < 2u; step++) {
          let left = subgroupMatrixLoadLeft(&weights, step * 16u, weight_pitch);
          @unroll for (var c = 0u; c < columns_each; c++) {
            let right = subgroupMatrixLoadRight(&tile, step * 16u * pitch + (own * columns_each + c) * 16u, pitch);
            sums[c] = subgroupMatrixMultiplyAdd(left, right, sums[c]);
          }
        }
      }
    }
    if pass_number == 0u {
      // Over the eight lanes of a query; `total` becomes its factor.
      @unroll for (var r = 0u; r < rows_each; r++) {
        var most = largest[r];
        most = max(most, subgroupShuffleXor(most, 1u));
        most = max(most, subgroupShuffleXor(most, 2u));
        most = max(most, subgroupShuffleXor(most, 4u));
        var sum = total[r] * exp(largest[r] - most);
        sum += subgroupShuffleXor(sum, 1u);
        sum += subgroupShuffleXor(sum, 2u);
        sum += subgroupShuffleXor(sum, 4u);
        largest[r] = most;
        total[r] = select(0.0, 1.0 / sum, sum > 0.0);
      }
    }
  }
  @unroll for (var c = 0u; c < columns_each; c++) {
    workgroupBarrier();
    subgroupMatrixStore(&scores, own * 256u, 16u, sums[c]);
    workgroupBarrier();
    for (var i = lane; i < 256u; i += threads) {
      let query = first_query + i % 64u / 4u;
      if query < units {
        let from_result = i * 4u;
        let value = vec4f(scores[from_result], scores[from_result + 1u], scores[from_result + 2u], scores[from_result + 3u]);
        y.store4(value, query / group, plane * group + query % group, (i / 64u * columns_each + c) * 4u + i % 4u);
      }
    }
  }
}
)");

}  // namespace

bool AcceptAttentionMatrix(const KernelRequest& request) {
  const shader::Target& target = request.target;
  const Shape& q = InputShape(request.call, 0);
  const uint32_t subgroup = CertainSubgroup(target);
  if (!target.subgroup_matrix || !target.f16 || target.is_software || subgroup < 8 || subgroup > 32) return false;
  if (4 * subgroup > target.max_invocations || 4 * subgroup > target.max_workgroup_size[0]) return false;
  const int64_t bytes = 2 * (48 * (q[2] + 8) + 16 * 40) + 4096;
  return q[0] >= 4 && q[2] > 0 && q[2] % 64 == 0 && q[2] <= 256 && bytes <= int64_t(target.max_workgroup_bytes) &&
         (request.prefer_f16 || request.call.attrs.GetBool("half_inputs"));
}

Result<OpPlan> PlanAttentionMatrix(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape &q = InputShape(call, 0), &cache = InputShape(call, 1);
  OpPlan plan;
  if (q.element_count() == 0) return plan;
  KernelDispatch dispatch = StartAttention(request);
  dispatch.kernel_name = "attention_matrix";
  dispatch.kernel_text = kMatrix.data();
  dispatch.tensors.push_back(AttentionResult(request));
  SetGroupGrid(dispatch, request, cache[0] * DivideUp(q[0] * (q[1] / cache[0]), 16));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

}  // namespace leeway
