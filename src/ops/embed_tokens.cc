// embed_tokens: y[row, i] = scale * table[tokens[step[0] + row], i]. Rows beyond the last token of a run are rubbish, but
// defined: positions and ids outside are taken at the edge.
//   direct  one invocation per slice of four elements
#include <algorithm>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/weights.h"

namespace leeway {
namespace {

constexpr const char* kOp = "embed_tokens";
const AttrField kAttrs[] = {{"rows", int64_t{1}, "The tokens of a run."},
                            {"scale", 1.0, "What the rows of the table are multiplied by."}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 3, 3));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 2, 2));
  const int64_t rows = call.attrs.GetInt("rows", 1);
  if (rows < 1) return Invalid("Operator embed_tokens has ", rows, " rows; it takes at least one.");
  const Shape& table = InputShape(call, 0);
  if (table[0] == 0) return Invalid("Operator embed_tokens has an empty table.");
  for (size_t i : {1, 2}) {
    if (call.inputs[i].type.dtype != DType::kI32 || InputShape(call, i).rank() != 1 || InputShape(call, i)[0] == 0) {
      return Invalid("Operator embed_tokens has ", i == 1 ? "tokens" : "a step", " of type ", call.inputs[i].type.ToString(),
                     "; it takes a row of i32.");
    }
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({rows, table[1]}, kOp));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const HostTensor& table = inputs[0];
  const auto tokens = inputs[1].as<int32_t>();
  const int64_t position = inputs[2].as<int32_t>()[0];
  const double scale = call.attrs.GetFloat("scale", 1);
  std::vector<float> y;
  for (int64_t row = 0; row < call.attrs.GetInt("rows", 1); ++row) {
    const int64_t at = std::clamp<int64_t>(position + row, 0, int64_t(tokens.size()) - 1);
    const int64_t id = std::clamp<int64_t>(tokens[size_t(at)], 0, table.shape()[0] - 1);
    for (float v : RowToF32(table, id)) y.push_back(float(v * scale));
  }
  StoreF32(outputs[0], y);
  return {};
}

constexpr std::string_view kDirect = R"(
weights table[id, element];
tensor tokens[position] : read as i32;
tensor state[which] : read as i32;
tensor y[row, element] : write;
const groups_per_row : u32;
const scale : f32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.element + 3u) / 4u;
  if index >= y.row * slices { return; }
  let row = index / slices;
  let slice = index % slices;
  let position = clamp(state.load(0u) + i32(row), 0, i32(tokens.position) - 1);
  let id = u32(clamp(tokens.load(u32(position)), 0, i32(table.id) - 1));
  y.store4(table.load4(id, slice) * scale, row, slice);
}
)";

Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const Shape& y = request.call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = kOp, .kernel_text = kDirect, .stores_result = true};
  dispatch.tensors = {InputArgument("table", 0), InputArgument("tokens", 1), InputArgument("state", 2), OutputArgument("y", 0)};
  dispatch.consts["scale"] = request.call.attrs.GetFloat("scale", 1);
  SetLinearGrid(dispatch, request, y[0] * Slices(y[1]));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "direct", .what = "one invocation per slice of four elements", .accepts = AcceptAlways, .plan = PlanDirect}};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_embed_tokens = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels};

}  // namespace leeway
