// topk_v2: the k largest elements of each row in falling order, and their indices; of equal ones the first comes first.
//   rank     one invocation per element, which counts the elements before it: its place; for rows that are not too long
//   rounds   one workgroup per row, k rounds of looking for the next one; on software devices one invocation
#include <algorithm>
#include <numeric>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"

namespace leeway {
namespace {

const char* const kNames[] = {"TOPK_V2"};
constexpr const char* kOp = "topk_v2";

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 2));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 1, Shape::kMaxRank));
  ASSIGN_OR_RETURN(std::vector<int64_t> k, ConstantInts(call, kOp, 1, "k"));
  Shape shape = InputShape(call, 0);
  if (k.size() != 1 || k[0] < 0 || k[0] > shape.at(-1)) {
    return Invalid("Operator topk_v2 takes [", Join(k, ", "), "] elements of rows of ", shape.at(-1), ".");
  }
  shape[shape.rank() - 1] = k[0];
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}, {DType::kI32, shape}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const int64_t columns = inputs[0].shape().at(-1), k = outputs[0].shape().at(-1);
  const int64_t rows = columns == 0 ? 0 : inputs[0].element_count() / columns;
  std::vector<double> row(static_cast<size_t>(columns));
  std::vector<int64_t> order(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < columns; ++i) row[size_t(i)] = inputs[0].Get(r * columns + i);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
      return row[size_t(a)] != row[size_t(b)] ? row[size_t(a)] > row[size_t(b)] : a < b;
    });
    for (int64_t i = 0; i < k; ++i) {
      outputs[0].Set(r * k + i, row[size_t(order[size_t(i)])]);
      outputs[1].Set(r * k + i, double(order[size_t(i)]));
    }
  }
  return {};
}

constexpr char kRank[] = R"(
const groups_per_row : u32;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  if (index >= x.row * x.column) { return; }
  let row = index / x.column;
  let column = index % x.column;
  let value = x.load(row, column);
  var place = 0u;
  for (var i = 0u; i < x.column; i++) {
    let other = x.load(row, i);
    if (other > value || (other == value && i < column)) { place++; }
  }
  if (place < values.place) {
    values.store(value, row, place);
    indices.store(i32(column), row, place);
  }
}
)";
constexpr char kRounds[] = R"(
const groups_per_row : u32;
const lanes : u32;
var<workgroup> best_values : array<Element, lanes>;
var<workgroup> best_columns : array<u32, lanes>;
@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let row = group.y * groups_per_row + group.x;
  if (row >= x.row) { return; }
  var last_value = Element(0);
  var last_column = 0u;
  for (var place = 0u; place < values.place; place++) {
    // The best of this lane's elements that come after the last one found; x.column: none.
    var value = Element(0);
    var column = x.column;
    for (var i = lane; i < x.column; i += lanes) {
      let other = x.load(row, i);
      let is_left = place == 0u || other < last_value || (other == last_value && i > last_column);
      if (is_left && (column == x.column || other > value)) {
        value = other;
        column = i;
      }
    }
    if (lanes > 1u) {
      best_values[lane] = value;
      best_columns[lane] = column;
      workgroupBarrier();
      for (var half = lanes / 2u; half > 0u; half = half / 2u) {
        if (lane < half) {
          let other = best_values[lane + half];
          let other_column = best_columns[lane + half];
          let mine = best_values[lane];
          let my_column = best_columns[lane];
          let better = other > mine || (other == mine && other_column < my_column);
          if (other_column < x.column && (my_column == x.column || better)) {
            best_values[lane] = other;
            best_columns[lane] = other_column;
          }
        }
        workgroupBarrier();
      }
      value = best_values[0];
      column = best_columns[0];
      workgroupBarrier();
    }
    last_value = value;
    last_column = column;
    if (lane == 0u) {
      values.store(value, row, place);
      indices.store(i32(column), row, place);
    }
  }
}
)";
constexpr char kF32Head[] = R"(
tensor x[row, column] : read as f32;
tensor values[row, place] : write as f32;
tensor indices[row, place] : write as i32;
alias Element = f32;
)";
constexpr char kI32Head[] = R"(
tensor x[row, column] : read as i32;
tensor values[row, place] : write as i32;
tensor indices[row, place] : write as i32;
alias Element = i32;
)";
constexpr char kU32Head[] = R"(
tensor x[row, column] : read as u32;
tensor values[row, place] : write as u32;
tensor indices[row, place] : write as i32;
alias Element = u32;
)";
constexpr auto kRankF32 = JoinTexts(kF32Head, kRank), kRankI32 = JoinTexts(kI32Head, kRank),
               kRankU32 = JoinTexts(kU32Head, kRank);
constexpr auto kRoundsF32 = JoinTexts(kF32Head, kRounds), kRoundsI32 = JoinTexts(kI32Head, kRounds),
               kRoundsU32 = JoinTexts(kU32Head, kRounds);
constexpr TypedText kRankTexts = {kRankF32.data(), kRankI32.data(), kRankU32.data()};
constexpr TypedText kRoundsTexts = {kRoundsF32.data(), kRoundsI32.data(), kRoundsU32.data()};

template <bool rank>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape &x = InputShape(call, 0), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  const Shape rows{x.element_count() / x.at(-1), x.at(-1)}, results{rows[0], y.at(-1)};
  const DType dtype = call.inputs[0].type.dtype;
  KernelDispatch dispatch{.kernel_name = rank ? "topk_rank" : "topk_rounds",
                          .kernel_text = rank ? kRankTexts.For(dtype) : kRoundsTexts.For(dtype),
                          .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, rows, ReshapeMap(x, rows)),
                      OutputArgument("values", 0, results, ReshapeMap(y, results)),
                      OutputArgument("indices", 1, results, ReshapeMap(y, results))};
  if (rank) {
    SetLinearGrid(dispatch, request, x.element_count());
    dispatch.flops = double(x.element_count()) * double(rows[1]);
  } else {
    dispatch.consts = {{"lanes", request.target.is_software ? 1.0 : 64.0}};
    SetGroupGrid(dispatch, request, rows[0]);
    dispatch.flops = double(x.element_count()) * double(results[1]);
  }
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "rank",
     .what = "one invocation per element, which counts those before it",
     .accepts = [](const KernelRequest& request) { return InputShape(request.call, 0).at(-1) <= 4096; },
     .plan = Plan<true>,
     .no_epilogue = true},
    {.name = "rounds",
     .what = "one workgroup per row, k rounds",
     .accepts = AcceptAlways,
     .plan = Plan<false>,
     .no_epilogue = true},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_topk_v2 = {.name = kOp, .infer = Infer, .reference = Reference, .kernels = &kKernels, .tflite = kNames};

}  // namespace leeway
