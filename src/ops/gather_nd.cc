// gather_nd: each row of the indices' last axis names the first axes of x; what is left of x there goes to the result.
//   direct   one invocation per slice of four elements after the indexed axes
#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kNames[] = {"GATHER_ND"};
constexpr const char* kOp = "gather_nd";

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 2));
  const Shape &x = InputShape(call, 0), &indices = InputShape(call, 1);
  const DType index_type = call.inputs[1].type.dtype;
  if (!IsInteger(index_type))
    return Invalid("Operator gather_nd has indices of type ", DTypeName(index_type), "; it takes integers.");
  if (indices.rank() < 1 || indices.at(-1) < 1 || indices.at(-1) > x.rank()) {
    return Invalid("Operator gather_nd has an input of shape ", x.ToString(), " and indices of shape ", indices.ToString(),
                   "; the last extent of the indices must be between 1 and the number of axes of the input.");
  }
  std::vector<int64_t> extents(indices.begin(), indices.end() - 1);
  extents.insert(extents.end(), x.begin() + indices.at(-1), x.end());
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape& shape = inputs[0].shape();
  const int64_t depth = inputs[1].shape().at(-1), rows = inputs[1].element_count() / depth;
  const std::vector<int64_t> indices = Ints(inputs[1]);
  const Strides strides = RowMajorStrides(shape);
  int64_t after = 1;
  for (int64_t i = depth; i < shape.rank(); ++i) after *= shape[int(i)];
  const Strides step{1};
  for (int64_t row = 0; row < rows; ++row) {
    int64_t start = 0;
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t index = indices[size_t(row * depth + i)];
      if (index < 0 || index >= shape[int(i)]) {
        return Error{Code::kInvalidArgument,
                     StrCat("A gather_nd reads index ", index, " of ", shape[int(i)], " on axis ", i, ".")};
      }
      start += index * strides[size_t(i)];
    }
    CopyStrided(inputs[0], start, step, outputs[0], row * after, step, Shape{after});
  }
  return {};
}

constexpr char kDirect[] = R"(
tensor indices[row, depth] : read as i32;
const groups_per_row : u32;
const extents : array<i32, 8>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let number = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.after + 3u) / 4u;
  if (number >= y.row * slices) { return; }
  let slice = number % slices;
  let row = number / slices;
  // An index outside reads the element at the edge.
  var flat = 0;
  for (var i = 0u; i < indices.depth; i++) { flat = flat * extents[i] + clamp(indices.load(row, i), 0, extents[i] - 1); }
  y.store4(x.load4(u32(flat), slice), row, slice);
}
)";
constexpr auto kF32 = JoinTexts(R"(
tensor x[flat, after] : read as f32;
tensor y[row, after] : write as f32;)",
                                kDirect);
constexpr auto kI32 = JoinTexts(R"(
tensor x[flat, after] : read as i32;
tensor y[row, after] : write as i32;)",
                                kDirect);
constexpr auto kU32 = JoinTexts(R"(
tensor x[flat, after] : read as u32;
tensor y[row, after] : write as u32;)",
                                kDirect);
constexpr TypedText kTexts = {kF32.data(), kI32.data(), kU32.data()};

Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape &x = InputShape(call, 0), &indices = InputShape(call, 1), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  const int64_t depth = indices.at(-1), rows = indices.element_count() / depth;
  const Shape in_x{x.element_count() / (y.element_count() / rows), y.element_count() / rows}, in_indices{rows, depth},
      in_y{rows, in_x[1]};
  KernelDispatch dispatch{.kernel_name = "gather_nd", .kernel_text = kTexts.For(call.outputs[0].dtype), .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0, in_x, ReshapeMap(x, in_x)),
                      InputArgument("indices", 1, in_indices, ReshapeMap(indices, in_indices)),
                      OutputArgument("y", 0, in_y, ReshapeMap(y, in_y))};
  std::vector<double> extents(8, 1.0);
  for (int i = 0; i < int(depth); ++i) extents[size_t(i)] = double(x[i]);
  dispatch.consts = {{"extents", shader::ConstValue(std::move(extents))}};
  SetLinearGrid(dispatch, request, rows * Slices(in_y[1]));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "direct",
     .what = "one invocation per slice after the indexed axes",
     .accepts =
         [](const KernelRequest& request) {
           return InputShape(request.call, 0).element_count() > 0 || request.call.outputs[0].shape.element_count() == 0;
         },
     .plan = PlanDirect},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_gather_nd = {.name = kOp, .infer = Infer, .reference = Reference, .kernels = &kKernels, .tflite = kNames};

}  // namespace leeway
