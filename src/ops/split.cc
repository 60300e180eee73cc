// split, split_v, unpack: one input cut along an axis into several outputs (unpack: into indices, dropping the axis).
//   copies   one copy dispatch per output
#include "ops/copy_kernel.h"
#include "ops/window.h"

namespace leeway {
namespace {

const char* const kSplitNames[] = {"SPLIT"};
const char* const kSplitVNames[] = {"SPLIT_V"};
const char* const kUnpackNames[] = {"UNPACK"};
const AttrField kSplitAttrs[] = {{"num_splits", int64_t{1}, "Number of equal parts."}};
const AttrField kUnpackAttrs[] = {{"axis", int64_t{0}, "The axis to cut."},
                                  {"num", int64_t{0}, "Its extent; 0: whatever it is."}};

Result<int> ConstantAxis(const OpCall& call, const char* op, size_t input, int rank) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, ConstantInts(call, op, input, "axis"));
  if (axes.size() != 1) return Invalid("Operator ", op, " has ", axes.size(), " axes; it takes one.");
  return ResolveAxis(axes[0], rank, op);
}

std::vector<Window> CutAxis(const Shape& from, int axis, const std::vector<int64_t>& sizes) {
  std::vector<Window> windows;
  int64_t start = 0;
  for (int64_t size : sizes) {
    Window window = WholeWindow(from);
    window.start[size_t(axis)] = start;
    window.shape[axis] = size;
    windows.push_back(std::move(window));
    start += size;
  }
  return windows;
}

// Inputs of SPLIT: axis, x.
Result<std::vector<Window>> SplitWindows(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "split", 2, 2));
  const Shape& from = InputShape(call, 1);
  ASSIGN_OR_RETURN(int axis, ConstantAxis(call, "split", 0, from.rank()));
  const int64_t parts = call.attrs.GetInt("num_splits", 1);
  if (parts < 1 || from[axis] % parts != 0) {
    return Invalid("Operator split cuts axis ", axis, " of ", from.ToString(), " into ", parts,
                   " parts; its extent must be a multiple.");
  }
  return CutAxis(from, axis, std::vector<int64_t>(size_t(parts), from[axis] / parts));
}

// Inputs of SPLIT_V: x, sizes, axis.
Result<std::vector<Window>> SplitVWindows(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "split_v", 3, 3));
  const Shape& from = InputShape(call, 0);
  ASSIGN_OR_RETURN(int axis, ConstantAxis(call, "split_v", 2, from.rank()));
  ASSIGN_OR_RETURN(std::vector<int64_t> sizes, ConstantInts(call, "split_v", 1, "sizes"));
  int64_t known = 0;
  int64_t* open = nullptr;
  for (int64_t& size : sizes) {
    if (size == -1 && open == nullptr) {
      open = &size;
    } else if (size < 0 || size > from[axis]) {
      return Invalid("Operator split_v has the sizes [", Join(sizes, ", "), "] for axis ", axis, " of ", from.ToString(), ".");
    } else {
      known += size;
    }
  }
  if (open != nullptr) *open = std::max<int64_t>(from[axis] - known, 0), known += *open;
  if (known != from[axis]) {
    return Invalid("Operator split_v has the sizes [", Join(sizes, ", "), "], whose sum is not the extent of axis ", axis,
                   " of ", from.ToString(), ".");
  }
  return CutAxis(from, axis, sizes);
}

Result<std::vector<Window>> UnpackWindows(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "unpack", 1, 1));
  const Shape& from = InputShape(call, 0);
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis"), from.rank(), "unpack"));
  if (const int64_t num = call.attrs.GetInt("num"); num != 0 && num != from[axis]) {
    return Invalid("Operator unpack makes ", num, " outputs of axis ", axis, " of ", from.ToString(), ".");
  }
  std::vector<Window> windows;
  for (int64_t index = 0; index < from[axis]; ++index) {
    Window window = WholeWindow(from);
    window.start[size_t(axis)] = index;
    window.result_axes.erase(window.result_axes.begin() + axis);
    window.shape = Shape();
    for (int i : window.result_axes) window.shape.push_back(from[i]);
    windows.push_back(std::move(window));
  }
  return windows;
}

using MakeWindows = Result<std::vector<Window>> (*)(const OpCall&);

template <MakeWindows make, int source>
InferredTypes Infer(const OpCall& call) {
  ASSIGN_OR_RETURN(std::vector<Window> windows, make(call));
  std::vector<TensorType> types;
  for (const Window& window : windows) types.push_back({call.inputs[source].type.dtype, window.shape});
  return types;
}
template <MakeWindows make, int source>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(std::vector<Window> windows, make(call));
  for (size_t i = 0; i < windows.size(); ++i) CopyWindow(windows[i], inputs[source], outputs[i]);
  return {};
}
template <MakeWindows make, int source>
Result<OpPlan> PlanCopies(const KernelRequest& request) {
  ASSIGN_OR_RETURN(std::vector<Window> windows, make(request.call));
  OpPlan plan;
  for (size_t i = 0; i < windows.size(); ++i) {
    const Movement movement = WindowMovement(windows[i], source);
    RETURN_IF_ERROR(
        AddCopy(plan, request, {.input = source, .input_map = movement.map, .output = int(i), .shape = windows[i].shape}));
  }
  return plan;
}

template <MakeWindows make, int source>
constexpr KernelVariant kCopies = {.name = "copies",
                                   .what = "one copy per output",
                                   .accepts = [](const KernelRequest&) { return true; },
                                   .plan = PlanCopies<make, source>,
                                   .no_epilogue = true};
constexpr OpKernels kSplitKernels = {.variants = {&kCopies<SplitWindows, 1>, 1}};
constexpr OpKernels kSplitVKernels = {.variants = {&kCopies<SplitVWindows, 0>, 1}};
constexpr OpKernels kUnpackKernels = {.variants = {&kCopies<UnpackWindows, 0>, 1}};

}  // namespace

extern const OpDef op_split = {.name = "split",
                               .attrs = kSplitAttrs,
                               .infer = Infer<SplitWindows, 1>,
                               .reference = Reference<SplitWindows, 1>,
                               .kernels = &kSplitKernels,
                               .tflite = kSplitNames};
extern const OpDef op_split_v = {.name = "split_v",
                                 .infer = Infer<SplitVWindows, 0>,
                                 .reference = Reference<SplitVWindows, 0>,
                                 .kernels = &kSplitVKernels,
                                 .tflite = kSplitVNames};
extern const OpDef op_unpack = {.name = "unpack",
                                .attrs = kUnpackAttrs,
                                .infer = Infer<UnpackWindows, 0>,
                                .reference = Reference<UnpackWindows, 0>,
                                .kernels = &kUnpackKernels,
                                .tflite = kUnpackNames};

}  // namespace leeway
