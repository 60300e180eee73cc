// gather: y[batch..., before..., index..., after...] = x[batch..., before..., indices[batch..., index...], after...].
// embedding_lookup is a gather on axis 0 with its inputs in the other order.
//   direct   one invocation per slice of four elements after the axis
#include <algorithm>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kGatherNames[] = {"GATHER"};
const char* const kEmbeddingNames[] = {"EMBEDDING_LOOKUP"};
const AttrField kGatherAttrs[] = {{"axis", int64_t{0}, "The axis that the indices choose from."},
                                  {"batch_dims", int64_t{0}, "Leading axes that x and indices share."}};

// The canonical form: x[batch, before, extent, after], indices[batch, index], y[batch, before, index, after].
struct Gather {
  int x = 0, indices = 1;
  int64_t batch = 1, before = 1, extent = 1, after = 1, index = 1;
  Shape shape;  // of the result
};

Result<Gather> MakeGather(const OpCall& call, const char* op, int x_input, int indices_input, int64_t given_axis,
                          int64_t given_batch_dims) {
  RETURN_IF_ERROR(ExpectInputs(call, op, 2, 2));
  Gather g{.x = x_input, .indices = indices_input};
  const Shape &x = InputShape(call, size_t(g.x)), &indices = InputShape(call, size_t(g.indices));
  const DType index_type = call.inputs[size_t(g.indices)].type.dtype;
  if (!IsInteger(index_type))
    return Invalid("Operator ", op, " has indices of type ", DTypeName(index_type), "; it takes integers.");
  ASSIGN_OR_RETURN(int axis, ResolveAxis(given_axis, x.rank(), op));
  const int64_t batch_dims = given_batch_dims < 0 ? given_batch_dims + indices.rank() : given_batch_dims;
  if (batch_dims < 0 || batch_dims > indices.rank() || batch_dims > axis) {
    return Invalid("Operator ", op, " has batch_dims ", given_batch_dims, " for axis ", axis, " and indices of shape ",
                   indices.ToString(), ".");
  }
  std::vector<int64_t> extents;
  for (int i = 0; i < batch_dims; ++i) {
    if (x[i] != indices[i]) {
      return Invalid("Operator ", op, " has inputs of shapes ", x.ToString(), " and ", indices.ToString(), ", whose first ",
                     batch_dims, " extents differ.");
    }
    g.batch *= x[i];
    extents.push_back(x[i]);
  }
  for (int i = int(batch_dims); i < axis; ++i) {
    g.before *= x[i];
    extents.push_back(x[i]);
  }
  for (int i = int(batch_dims); i < indices.rank(); ++i) {
    g.index *= indices[i];
    extents.push_back(indices[i]);
  }
  g.extent = x[axis];
  for (int i = axis + 1; i < x.rank(); ++i) {
    g.after *= x[i];
    extents.push_back(x[i]);
  }
  ASSIGN_OR_RETURN(g.shape, ShapeFrom(extents, op));
  return g;
}

Result<Gather> AsGather(const OpCall& call) {
  return MakeGather(call, "gather", 0, 1, call.attrs.GetInt("axis"), call.attrs.GetInt("batch_dims"));
}
Result<Gather> AsEmbedding(const OpCall& call) { return MakeGather(call, "embedding_lookup", 1, 0, 0, 0); }

using Canonical = Result<Gather> (*)(const OpCall&);

template <Canonical canonical>
InferredTypes Infer(const OpCall& call) {
  ASSIGN_OR_RETURN(Gather g, canonical(call));
  return std::vector<TensorType>{{call.inputs[size_t(g.x)].type.dtype, g.shape}};
}

template <Canonical canonical>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(Gather g, canonical(call));
  const HostTensor& x = inputs[size_t(g.x)];
  const std::vector<int64_t> indices = Ints(inputs[size_t(g.indices)]);
  if (outputs[0].element_count() == 0) return {};
  const Shape run{g.after};
  const Strides step{1};
  for (int64_t b = 0; b < g.batch; ++b) {
    for (int64_t before = 0; before < g.before; ++before) {
      for (int64_t i = 0; i < g.index; ++i) {
        const int64_t index = indices[size_t(b * g.index + i)];
        if (index < 0 || index >= g.extent) {
          return Error{Code::kInvalidArgument, StrCat("A gather reads index ", index, " of ", g.extent, ".")};
        }
        const int64_t outer = b * g.before + before;
        CopyStrided(x, (outer * g.extent + index) * g.after, step, outputs[0], (outer * g.index + i) * g.after, step, run);
      }
    }
  }
  return {};
}

constexpr char kDirect[] = R"(
tensor indices[batch, index] : read as i32;
const groups_per_row : u32;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let number = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.after + 3u) / 4u;
  if (number >= y.batch * y.before * y.index * slices) { return; }
  let slice = number % slices;
  let index = number / slices % y.index;
  let before = number / (slices * y.index) % y.before;
  let batch = number / (slices * y.index * y.before);
  // An index outside reads the element at the edge.
  let chosen = u32(clamp(indices.load(batch, index), 0, i32(x.extent) - 1));
  y.store4(x.load4(batch, before, chosen, slice), batch, before, index, slice);
}
)";
constexpr auto kF32 = JoinTexts(R"(
tensor x[batch, before, extent, after] : read as f32;
tensor y[batch, before, index, after] : write as f32;)",
                                kDirect);
constexpr auto kI32 = JoinTexts(R"(
tensor x[batch, before, extent, after] : read as i32;
tensor y[batch, before, index, after] : write as i32;)",
                                kDirect);
constexpr auto kU32 = JoinTexts(R"(
tensor x[batch, before, extent, after] : read as u32;
tensor y[batch, before, index, after] : write as u32;)",
                                kDirect);
constexpr TypedText kTexts = {kF32.data(), kI32.data(), kU32.data()};

template <Canonical canonical>
Result<OpPlan> PlanDirect(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(Gather g, canonical(call));
  OpPlan plan;
  if (g.shape.element_count() == 0) return plan;
  const Shape x{g.batch, g.before, g.extent, g.after}, indices{g.batch, g.index}, y{g.batch, g.before, g.index, g.after};
  KernelDispatch dispatch{.kernel_name = "gather", .kernel_text = kTexts.For(call.outputs[0].dtype), .stores_result = true};
  dispatch.tensors = {InputArgument("x", g.x, x, ReshapeMap(InputShape(call, size_t(g.x)), x)),
                      InputArgument("indices", g.indices, indices, ReshapeMap(InputShape(call, size_t(g.indices)), indices)),
                      OutputArgument("y", 0, y, ReshapeMap(g.shape, y))};
  SetLinearGrid(dispatch, request, g.batch * g.before * g.index * Slices(g.after));
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

// An empty axis has nothing to choose from.
template <Canonical canonical>
bool Accept(const KernelRequest& request) {
  auto g = canonical(request.call);
  return g.ok() && (g->extent > 0 || g->shape.element_count() == 0);
}

template <Canonical canonical>
constexpr KernelVariant kVariant = {.name = "direct",
                                    .what = "one invocation per slice after the axis",
                                    .accepts = Accept<canonical>,
                                    .plan = PlanDirect<canonical>};
template <Canonical canonical>
constexpr OpKernels kKernels = {.variants = {&kVariant<canonical>, 1}};

}  // namespace

extern const OpDef op_gather = {.name = "gather",
                                .attrs = kGatherAttrs,
                                .infer = Infer<AsGather>,
                                .reference = Reference<AsGather>,
                                .kernels = &kKernels<AsGather>,
                                .tflite = kGatherNames};
extern const OpDef op_embedding_lookup = {.name = "embedding_lookup",
                                          .infer = Infer<AsEmbedding>,
                                          .reference = Reference<AsEmbedding>,
                                          .kernels = &kKernels<AsEmbedding>,
                                          .tflite = kEmbeddingNames};

}  // namespace leeway
