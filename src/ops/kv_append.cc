// kv_append: puts the valid rows of a run into a cache of keys or values, in place.
//   inputs    cache [Kh, slots, D]; x [M, Kh, D]; step (ops/step.h)
//   result    the cache, updated: the row of position p lies in slot p % slots, so that few slots make a ring
//   direct    one invocation per slice of four elements
#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/step.h"

namespace leeway {
namespace {

constexpr const char* kOp = "kv_append";
constexpr OpDef::Update kUpdates[] = {{.output = 0, .input = 0}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 3, 3));
  for (size_t i : {size_t(0), size_t(1)}) {
    RETURN_IF_ERROR(ExpectFloat(call, kOp, i));
    RETURN_IF_ERROR(ExpectRank(call, kOp, i, 3, 3));
  }
  RETURN_IF_ERROR(ExpectStep(call, kOp, 2));
  const Shape &cache = InputShape(call, 0), &x = InputShape(call, 1);
  if (cache[0] != x[1] || cache[2] != x[2]) {
    return Invalid("Operator kv_append has a cache of shape ", cache.ToString(), " [heads, slots, size] and rows of shape ",
                   x.ToString(), " [rows, heads, size]; heads and size must agree.");
  }
  if (x[0] > cache[1]) {
    return Invalid("Operator kv_append puts ", x[0], " rows at a time into a cache of ", cache[1],
                   " slots; it takes at most as many rows as there are slots.");
  }
  return std::vector<TensorType>{call.inputs[0].type};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  HostTensor& cache = outputs[0];
  const HostTensor& x = inputs[1];
  const RowPositions step = StepOf(inputs[2]);
  const int64_t heads = cache.shape()[0], slots = cache.shape()[1], size = cache.shape()[2], rows = x.shape()[0];
  for (int64_t row = 0; row < ValidRows(step, rows, false); ++row) {
    const int64_t slot = (step.position + row) % slots;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < size; ++i) cache.Set((head * slots + slot) * size + i, x.Get((row * heads + head) * size + i));
    }
  }
  return {};
}

constexpr std::string_view kDirect = R"(
tensor cache[head, slot, inner] : read_write;
tensor x[row, head, inner] : read;
tensor run[field] : read as i32;
const groups_per_row : u32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (x.inner + 3u) / 4u;
  if (index >= x.row * x.head * slices) { return; }
  let slice = index % slices;
  let head = index / slices % x.head;
  let row = index / (slices * x.head);
  if (row >= u32(run.load(1u))) { return; }
  cache.store4(x.load4(row, head, slice), head, (u32(run.load(0u)) + row) % cache.slot, slice);
}
)";

Result<OpPlan> Plan(const KernelRequest& request) {
  const Shape& x = InputShape(request.call, 1);
  OpPlan plan;
  if (x.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = "kv_append", .kernel_text = kDirect, .stores_result = true};
  dispatch.tensors = {OutputArgument("cache", 0), InputArgument("x", 1), InputArgument("run", 2)};
  SetLinearGrid(dispatch, request, x[0] * x[1] * Slices(x[2]));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kVariants[] = {{.name = "direct",
                                        .what = "one invocation per slice of four elements",
                                        .accepts = AcceptAlways,
                                        .plan = Plan,
                                        .no_epilogue = true}};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_kv_append = {
    .name = kOp, .infer = Infer, .reference = Reference, .updates = kUpdates, .kernels = &kKernels};

}  // namespace leeway
