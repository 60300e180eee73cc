// take_last_row: y[0, c] = x[count - 1, c], the last valid row of the run: all that logits are wanted of.
//   inputs    x [M, d]; step (ops/step.h)
//   direct    one invocation per slice of four elements
#include <algorithm>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/step.h"

namespace leeway {
namespace {

constexpr const char* kOp = "take_last_row";

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 2, 2));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 2, 2));
  RETURN_IF_ERROR(ExpectStep(call, kOp, 1));
  if (InputShape(call, 0)[0] == 0) return Invalid("Operator take_last_row has an input of no rows.");
  return std::vector<TensorType>{{call.inputs[0].type.dtype, Shape{1, InputShape(call, 0)[1]}}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const HostTensor& x = inputs[0];
  const int64_t row = std::clamp<int64_t>(StepOf(inputs[1]).count - 1, 0, x.shape()[0] - 1), columns = x.shape()[1];
  for (int64_t i = 0; i < columns; ++i) outputs[0].Set(i, x.Get(row * columns + i));
  return {};
}

constexpr std::string_view kDirect = R"(
tensor x[row, column] : read;
tensor run[field] : read as i32;
tensor y[row, column] : write;
const groups_per_row : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let slice = (group.y * groups_per_row + group.x) * 64u + lane;
  if (slice >= (x.column + 3u) / 4u) { return; }
  y.store4(x.load4(u32(clamp(run.load(1u) - 1, 0, i32(x.row) - 1)), slice), 0u, slice);
}
)";

Result<OpPlan> Plan(const KernelRequest& request) {
  OpPlan plan;
  const int64_t columns = InputShape(request.call, 0)[1];
  if (columns == 0) return plan;
  KernelDispatch dispatch{.kernel_name = kOp, .kernel_text = kDirect, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0), InputArgument("run", 1), OutputArgument("y", 0)};
  SetLinearGrid(dispatch, request, Slices(columns));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "direct", .what = "one invocation per slice of four elements", .accepts = AcceptAlways, .plan = Plan}};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_take_last_row = {.name = kOp, .infer = Infer, .reference = Reference, .kernels = &kKernels};

}  // namespace leeway
