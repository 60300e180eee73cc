// pad, padv2, mirror_pad: the input with more around it: zeros, a constant, or its own elements mirrored.
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kPadNames[] = {"PAD", "PADV2"};
const char* const kMirrorPadNames[] = {"MIRROR_PAD"};
const AttrField kMirrorPadAttrs[] = {
    {"mode", int64_t{0}, "0 (reflect): the edge element is not repeated. 1 (symmetric): it is."}};

struct Padding {
  std::vector<int64_t> before, after;
};

Result<Padding> ReadPadding(const OpCall& call, const char* op) {
  ASSIGN_OR_RETURN(std::vector<int64_t> given, ConstantInts(call, op, 1, "paddings"));
  const int rank = InputShape(call, 0).rank();
  if (given.size() != 2 * size_t(rank)) {
    return Invalid("Operator ", op, " has ", given.size(), " paddings for an input of shape ", InputShape(call, 0).ToString(),
                   "; it takes two per axis.");
  }
  Padding padding;
  for (size_t i = 0; i < given.size(); i += 2) {
    if (given[i] < 0 || given[i + 1] < 0)
      return Invalid("Operator ", op, " has the padding ", given[i], ", ", given[i + 1], "; it is not negative.");
    padding.before.push_back(given[i]);
    padding.after.push_back(given[i + 1]);
  }
  return padding;
}

Result<Shape> PaddedShape(const OpCall& call, const Padding& padding, const char* op) {
  std::vector<int64_t> extents(InputShape(call, 0).begin(), InputShape(call, 0).end());
  for (size_t i = 0; i < extents.size(); ++i)
    extents[i] += std::min<int64_t>(padding.before[i], INT32_MAX) + std::min<int64_t>(padding.after[i], INT32_MAX);
  return ShapeFrom(extents, op);
}

// The value outside. A quantized tensor is padded with its zero point.
Result<double> PadValue(const OpCall& call) {
  if (HasInput(call, 2)) {
    if (call.inputs[2].constant == nullptr)
      return Unsupported("Operator pad has a padding value that is only known at run time.");
    if (call.inputs[2].constant->element_count() != 1)
      return Invalid("Operator pad has a padding value of shape ", InputShape(call, 2).ToString(), "; it takes one number.");
    return call.inputs[2].constant->Get(0);
  }
  const Quantization* q = call.inputs[0].quantization;
  return q == nullptr || q->zero_points.empty() ? 0.0 : double(q->zero_points[0]);
}

InferredTypes InferPad(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "pad", 2, 3));
  ASSIGN_OR_RETURN(Padding padding, ReadPadding(call, "pad"));
  RETURN_IF_ERROR(PadValue(call));
  ASSIGN_OR_RETURN(Shape shape, PaddedShape(call, padding, "pad"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status PadReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(Padding padding, ReadPadding(call, "pad"));
  ASSIGN_OR_RETURN(double value, PadValue(call));
  HostTensor& y = outputs[0];
  if (value != 0) {
    for (int64_t i = 0; i < y.element_count(); ++i) y.Set(i, value);
  }
  const Strides strides = RowMajorStrides(y.shape());
  int64_t start = 0;
  for (size_t i = 0; i < padding.before.size(); ++i) start += padding.before[i] * strides[i];
  CopyStrided(inputs[0], 0, RowMajorStrides(inputs[0].shape()), y, start, strides, inputs[0].shape());
  return {};
}

Result<Movement> PadMovement(const OpCall& call) {
  ASSIGN_OR_RETURN(Padding padding, ReadPadding(call, "pad"));
  Movement movement;
  ASSIGN_OR_RETURN(movement.map.outside, PadValue(call));
  for (size_t i = 0; i < padding.before.size(); ++i) {
    const IndexExpr inner = IndexExpr::Axis(int(i)) - IndexExpr::Const(padding.before[i]);
    movement.map.coords.push_back(inner);
    auto require = [&](IndexExpr condition) {
      movement.map.inside = movement.map.inside ? And(*movement.map.inside, condition) : condition;
    };
    if (padding.before[i] > 0) require(Less(IndexExpr::Const(-1), inner));
    if (padding.after[i] > 0) require(Less(inner, IndexExpr::Const(InputShape(call, 0)[int(i)])));
  }
  return movement;
}

InferredTypes InferMirrorPad(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "mirror_pad", 2, 2));
  ASSIGN_OR_RETURN(Padding padding, ReadPadding(call, "mirror_pad"));
  const int64_t mode = call.attrs.GetInt("mode");
  if (mode != 0 && mode != 1)
    return Invalid("Operator mirror_pad has mode ", mode, "; it takes 0 (reflect) and 1 (symmetric).");
  for (size_t i = 0; i < padding.before.size(); ++i) {
    const int64_t most = InputShape(call, 0)[int(i)] - (mode == 0 ? 1 : 0);
    if (padding.before[i] > std::max<int64_t>(most, 0) || padding.after[i] > std::max<int64_t>(most, 0)) {
      return Invalid("Operator mirror_pad pads axis ", i, " of ", InputShape(call, 0).ToString(), " by ", padding.before[i],
                     " and ", padding.after[i], "; there are ", most, " elements to mirror.");
    }
  }
  ASSIGN_OR_RETURN(Shape shape, PaddedShape(call, padding, "mirror_pad"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

// Source index of each index of the result along an axis.
std::vector<int32_t> MirrorTable(int64_t extent, int64_t before, int64_t after, int64_t mode) {
  std::vector<int32_t> table;
  for (int64_t i = -before; i < extent + after; ++i) {
    int64_t source = i;
    if (i < 0) source = mode == 0 ? -i : -i - 1;
    if (i >= extent) source = mode == 0 ? 2 * (extent - 1) - i : 2 * extent - 1 - i;
    table.push_back(int32_t(source));
  }
  return table;
}

Status MirrorPadReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(Padding padding, ReadPadding(call, "mirror_pad"));
  const Shape &from = inputs[0].shape(), &to = outputs[0].shape();
  std::vector<std::vector<int32_t>> tables;
  for (int axis = 0; axis < from.rank(); ++axis) {
    tables.push_back(
        MirrorTable(from[axis], padding.before[size_t(axis)], padding.after[size_t(axis)], call.attrs.GetInt("mode")));
  }
  const Strides strides = RowMajorStrides(from);
  for (int64_t i = 0; i < to.element_count(); ++i) {
    int64_t rest = i, source = 0;
    for (int axis = to.rank() - 1; axis >= 0; --axis) {
      source += tables[size_t(axis)][size_t(rest % to[axis])] * strides[size_t(axis)];
      rest /= to[axis];
    }
    outputs[0].Set(i, inputs[0].Get(source));
  }
  return {};
}

Result<Movement> MirrorPadMovement(const OpCall& call) {
  ASSIGN_OR_RETURN(Padding padding, ReadPadding(call, "mirror_pad"));
  const Shape& from = InputShape(call, 0);
  const int64_t skip = call.attrs.GetInt("mode") == 0 ? 0 : 1;
  Movement movement;
  for (size_t i = 0; i < padding.before.size(); ++i) {
    // With c counted from the input's start: left of it max(c, -c - skip), right of it min(c, 2 * extent - 2 + skip - c).
    const IndexExpr c = IndexExpr::Axis(int(i)) - IndexExpr::Const(padding.before[i]);
    IndexExpr source = c;
    if (padding.before[i] > 0) source = Max(source, IndexExpr::Const(-skip) - c);
    if (padding.after[i] > 0) source = Min(source, IndexExpr::Const(2 * from[int(i)] - 2 + skip) - c);
    movement.map.coords.push_back(source);
  }
  return movement;
}

}  // namespace

extern const OpDef op_pad = {
    .name = "pad", .infer = InferPad, .reference = PadReference, .movement = PadMovement, .tflite = kPadNames};
extern const OpDef op_mirror_pad = {.name = "mirror_pad",
                                    .attrs = kMirrorPadAttrs,
                                    .infer = InferMirrorPad,
                                    .reference = MirrorPadReference,
                                    .movement = MirrorPadMovement,
                                    .tflite = kMirrorPadNames};

}  // namespace leeway
