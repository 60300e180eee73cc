// slice, strided_slice, reverse_v2: a window of the input.
#include <algorithm>

#include "ops/window.h"

namespace leeway {
namespace {

const char* const kSliceNames[] = {"SLICE"};
const char* const kStridedSliceNames[] = {"STRIDED_SLICE"};
const char* const kReverseNames[] = {"REVERSE_V2"};
const AttrField kStridedSliceAttrs[] = {
    {"begin_mask", int64_t{0}, "Bit i: entry i begins at its axis's start, whatever `begin` says."},
    {"end_mask", int64_t{0}, "Bit i: entry i goes to its axis's end."},
    {"ellipsis_mask", int64_t{0}, "Bit i: entry i stands for as many whole axes as are left."},
    {"new_axis_mask", int64_t{0}, "Bit i: entry i adds an axis of extent 1."},
    {"shrink_axis_mask", int64_t{0}, "Bit i: entry i takes one index and drops the axis."},
    {"offset", false, "`end` counts from `begin`."}};

Result<Window> SliceWindow(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "slice", 3, 3));
  ASSIGN_OR_RETURN(std::vector<int64_t> begin, ConstantInts(call, "slice", 1, "begin"));
  ASSIGN_OR_RETURN(std::vector<int64_t> size, ConstantInts(call, "slice", 2, "size"));
  const Shape& from = InputShape(call, 0);
  if (int(begin.size()) != from.rank() || int(size.size()) != from.rank()) {
    return Invalid("Operator slice has ", begin.size(), " begins and ", size.size(), " sizes for an input of shape ",
                   from.ToString(), ".");
  }
  Window window = WholeWindow(from);
  for (int axis = 0; axis < from.rank(); ++axis) {
    const int64_t start = begin[size_t(axis)], count = size[size_t(axis)] == -1 ? from[axis] - start : size[size_t(axis)];
    if (start < 0 || count < 0 || start > from[axis] || count > from[axis] - start) {
      return Invalid("Operator slice takes ", size[size_t(axis)], " from ", start, " on axis ", axis, " of ", from.ToString(),
                     ", which is outside.");
    }
    window.start[size_t(axis)] = start;
    window.shape[axis] = count;
  }
  return window;
}

Result<Window> StridedSliceWindow(const OpCall& call) {
  constexpr const char* kOp = "strided_slice";
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 4, 4));
  ASSIGN_OR_RETURN(std::vector<int64_t> begin, ConstantInts(call, kOp, 1, "begin"));
  ASSIGN_OR_RETURN(std::vector<int64_t> end, ConstantInts(call, kOp, 2, "end"));
  ASSIGN_OR_RETURN(std::vector<int64_t> step, ConstantInts(call, kOp, 3, "strides"));
  const size_t entries = begin.size();
  if (end.size() != entries || step.size() != entries || entries > 16) {
    return Invalid("Operator strided_slice has ", entries, " begins, ", end.size(), " ends and ", step.size(),
                   " strides; they must be as many, and 16 at most.");
  }
  auto is_set = [&](const char* mask, size_t i) { return ((call.attrs.GetInt(mask) >> i) & 1) != 0; };
  const Shape& from = InputShape(call, 0);
  int taken = 0;  // axes of the input that entries other than the ellipsis take
  for (size_t i = 0; i < entries; ++i) taken += !is_set("ellipsis_mask", i) && !is_set("new_axis_mask", i);
  if (taken > from.rank()) {
    return Invalid("Operator strided_slice has ", taken, " entries for an input of shape ", from.ToString(), ".");
  }

  Window window{.start = std::vector<int64_t>(size_t(from.rank()), 0), .step = std::vector<int64_t>(size_t(from.rank()), 1)};
  std::vector<int64_t> extents;
  int axis = 0;
  bool ellipsis_seen = false;
  auto take_whole = [&](int count) {
    for (; count > 0; --count, ++axis) {
      window.result_axes.push_back(axis);
      extents.push_back(from[axis]);
    }
  };
  for (size_t i = 0; i < entries; ++i) {
    if (is_set("ellipsis_mask", i)) {
      if (ellipsis_seen) return Invalid("Operator strided_slice has two ellipses.");
      ellipsis_seen = true;
      take_whole(from.rank() - taken);
      continue;
    }
    if (is_set("new_axis_mask", i)) {
      window.result_axes.push_back(-1);
      extents.push_back(1);
      continue;
    }
    const int64_t extent = from[axis], stride = step[i];
    if (stride == 0 || std::abs(stride) > INT32_MAX)
      return Invalid("Operator strided_slice has stride ", stride, " on axis ", axis, ".");
    auto from_end = [&](int64_t index) { return index < 0 ? index + extent : index; };
    if (is_set("shrink_axis_mask", i)) {
      const int64_t index = from_end(begin[i]);
      if (index < 0 || index >= extent) {
        return Invalid("Operator strided_slice takes index ", begin[i], " of axis ", axis, " of ", from.ToString(),
                       ", which is outside.");
      }
      window.start[size_t(axis)] = index;
      ++axis;
      continue;
    }
    // Where indices may stand: one beyond the last element in the direction of the walk.
    const int64_t lowest = stride > 0 ? 0 : -1, highest = stride > 0 ? extent : extent - 1;
    const int64_t first =
        is_set("begin_mask", i) ? (stride > 0 ? 0 : extent - 1) : std::clamp(from_end(begin[i]), lowest, highest);
    const int64_t given_end = call.attrs.GetBool("offset") ? first + end[i] : from_end(end[i]);
    const int64_t beyond = is_set("end_mask", i) ? (stride > 0 ? extent : -1) : std::clamp(given_end, lowest, highest);
    const int64_t distance = stride > 0 ? beyond - first : first - beyond;
    const int64_t count = distance <= 0 ? 0 : (distance - 1) / std::abs(stride) + 1;
    window.start[size_t(axis)] = count == 0 ? 0 : first;
    window.step[size_t(axis)] = stride;
    window.result_axes.push_back(axis);
    extents.push_back(count);
    ++axis;
  }
  take_whole(from.rank() - axis);
  ASSIGN_OR_RETURN(window.shape, ShapeFrom(extents, kOp));
  return window;
}

Result<Window> ReverseWindow(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "reverse_v2", 2, 2));
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, ConstantInts(call, "reverse_v2", 1, "axes"));
  const Shape& from = InputShape(call, 0);
  Window window = WholeWindow(from);
  for (int64_t given : axes) {
    ASSIGN_OR_RETURN(int axis, ResolveAxis(given, from.rank(), "reverse_v2"));
    window.start[size_t(axis)] = std::max<int64_t>(from[axis] - 1, 0);
    window.step[size_t(axis)] = -1;
  }
  return window;
}

using MakeWindow = Result<Window> (*)(const OpCall&);

template <MakeWindow make>
InferredTypes Infer(const OpCall& call) {
  ASSIGN_OR_RETURN(Window window, make(call));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, window.shape}};
}
template <MakeWindow make>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(Window window, make(call));
  CopyWindow(window, inputs[0], outputs[0]);
  return {};
}
template <MakeWindow make>
Result<Movement> MakeMovement(const OpCall& call) {
  ASSIGN_OR_RETURN(Window window, make(call));
  return WindowMovement(window, 0);
}

}  // namespace

extern const OpDef op_slice = {.name = "slice",
                               .infer = Infer<SliceWindow>,
                               .reference = Reference<SliceWindow>,
                               .movement = MakeMovement<SliceWindow>,
                               .tflite = kSliceNames};
extern const OpDef op_strided_slice = {.name = "strided_slice",
                                       .attrs = kStridedSliceAttrs,
                                       .infer = Infer<StridedSliceWindow>,
                                       .reference = Reference<StridedSliceWindow>,
                                       .movement = MakeMovement<StridedSliceWindow>,
                                       .tflite = kStridedSliceNames};
extern const OpDef op_reverse_v2 = {.name = "reverse_v2",
                                    .infer = Infer<ReverseWindow>,
                                    .reference = Reference<ReverseWindow>,
                                    .movement = MakeMovement<ReverseWindow>,
                                    .tflite = kReverseNames};

}  // namespace leeway
