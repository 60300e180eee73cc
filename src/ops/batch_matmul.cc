// batch_matmul: y[..., r, c] = sum over i of a[..., r, i] * b[..., i, c]; leading axes are broadcast, either matrix may come
// transposed (adj_x, adj_y).
//   direct   one invocation per row and slice of four columns; any shape, any target
#include <algorithm>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/strided.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kNames[] = {"BATCH_MATMUL"};
constexpr const char* kOp = "batch_matmul";
const AttrField kAttrs[] = {{"adj_x", false, "The first matrix is transposed."},
                            {"adj_y", false, "The second matrix is transposed."}};

Shape Batches(const Shape& shape) { return Shape(std::span<const int64_t>(shape.begin(), size_t(shape.rank() - 2))); }

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 2));
  for (size_t i : {0u, 1u}) {
    RETURN_IF_ERROR(ExpectFloat(call, kOp, i));
    RETURN_IF_ERROR(ExpectRank(call, kOp, i, 2, Shape::kMaxRank));
  }
  const Shape &a = InputShape(call, 0), &b = InputShape(call, 1);
  const bool adj_x = call.attrs.GetBool("adj_x"), adj_y = call.attrs.GetBool("adj_y");
  if (a.at(adj_x ? -2 : -1) != b.at(adj_y ? -1 : -2)) {
    return Invalid("Operator batch_matmul has inputs of shapes ", a.ToString(), adj_x ? " (transposed)" : "", " and ",
                   b.ToString(), adj_y ? " (transposed)" : "", ", whose inner extents differ.");
  }
  ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(Batches(a), Batches(b), kOp));
  std::vector<int64_t> extents(shape.begin(), shape.end());
  extents.push_back(a.at(adj_x ? -1 : -2));
  extents.push_back(b.at(adj_y ? -2 : -1));
  ASSIGN_OR_RETURN(Shape result, ShapeFrom(extents, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, result}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const std::vector<float> a = inputs[0].ToF32(), b = inputs[1].ToF32();
  const Shape &a_shape = inputs[0].shape(), &b_shape = inputs[1].shape(), &shape = outputs[0].shape();
  const bool adj_x = call.attrs.GetBool("adj_x"), adj_y = call.attrs.GetBool("adj_y");
  const int64_t rows = shape.at(-2), columns = shape.at(-1), depth = a_shape.at(adj_x ? -2 : -1);
  std::vector<float> y(size_t(shape.element_count()));
  if (y.empty()) return {};
  const Shape batches = Batches(shape);
  std::vector<double> sums(static_cast<size_t>(columns));
  ForEachOffset<3>(
      batches,
      {BroadcastStrides(Batches(a_shape), batches), BroadcastStrides(Batches(b_shape), batches), RowMajorStrides(batches)},
      {0, 0, 0}, [&](const std::array<int64_t, 3>& at) {
        const float* from_a = a.data() + at[0] * rows * depth;
        const float* from_b = b.data() + at[1] * depth * columns;
        float* to = y.data() + at[2] * rows * columns;
        for (int64_t r = 0; r < rows; ++r, to += columns) {
          std::fill(sums.begin(), sums.end(), 0.0);
          for (int64_t i = 0; i < depth; ++i) {
            const double value = adj_x ? from_a[i * rows + r] : from_a[r * depth + i];
            const float* factors = adj_y ? from_b + i : from_b + i * columns;
            const int64_t step = adj_y ? depth : 1;
            for (int64_t c = 0; c < columns; ++c) sums[size_t(c)] += value * factors[c * step];
          }
          std::transform(sums.begin(), sums.end(), to, [](double sum) { return float(sum); });
        }
      });
  StoreF32(outputs[0], y);
  return {};
}

constexpr std::string_view kDirect = R"(
tensor a[batch, row, inner] : read;
weights b[batch, inner, column];
tensor y[batch, row, column] : write;
const groups_per_row : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.column + 3u) / 4u;
  if (index >= y.batch * y.row * slices) { return; }
  let slice = index % slices;
  let row = index / slices % y.row;
  let batch = index / (slices * y.row);
  var sum = vec4f(0.0);
  for (var i = 0u; i < a.inner; i++) { sum += b.load4(batch, i, slice) * a.load(batch, row, i); }
  y.store4(sum, batch, row, slice);
}
)";

// Kernel coordinates [batch, row, column] to those of a matrix of `shape` whose leading axes are broadcast to `batches`.
Result<CoordMap> MatrixMap(const Shape& shape, const Shape& batches, bool transposed) {
  const Shape merged{batches.element_count()};
  ASSIGN_OR_RETURN(CoordMap broadcast, BroadcastMap(Batches(shape), batches));
  ASSIGN_OR_RETURN(CoordMap map, Compose(ReshapeMap(batches, merged), broadcast));
  if (map.is_identity() && shape.rank() == 3) map.coords = {IndexExpr::Axis(0)};
  if (shape.rank() == 2) map.coords.clear();
  map.coords.push_back(IndexExpr::Axis(transposed ? 2 : 1));
  map.coords.push_back(IndexExpr::Axis(transposed ? 1 : 2));
  return map;
}

Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape &a = InputShape(call, 0), &b = InputShape(call, 1), &y = call.outputs[0].shape;
  const bool adj_x = call.attrs.GetBool("adj_x"), adj_y = call.attrs.GetBool("adj_y");
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  const Shape batches = Batches(y);
  const int64_t count = batches.element_count(), rows = y.at(-2), columns = y.at(-1), inner = a.at(adj_x ? -2 : -1);
  KernelDispatch dispatch{.kernel_name = "batch_matmul_direct", .kernel_text = kDirect, .stores_result = true};
  ASSIGN_OR_RETURN(CoordMap a_map, MatrixMap(a, batches, adj_x));
  ASSIGN_OR_RETURN(CoordMap b_map, MatrixMap(b, batches, adj_y));
  const Shape results{count, rows, columns};
  dispatch.tensors = {InputArgument("a", 0, Shape{count, rows, inner}, std::move(a_map)),
                      OutputArgument("y", 0, results, ReshapeMap(y, results))};
  AddWeights(plan, dispatch, request, "b", 1, Shape{count, inner, columns}, std::move(b_map));
  SetLinearGrid(dispatch, request, count * rows * Slices(columns));
  dispatch.flops = 2.0 * double(y.element_count()) * double(inner);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "direct", .what = "one invocation per row and slice of columns", .accepts = AcceptAlways, .plan = PlanDirect},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_batch_matmul = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels, .tflite = kNames};

}  // namespace leeway
