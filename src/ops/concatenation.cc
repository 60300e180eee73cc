// concatenation, pack: the inputs side by side along an axis, which pack makes.
#include "ops/operands.h"
#include "ops/strided.h"

namespace leeway {
namespace {

const char* const kConcatenationNames[] = {"CONCATENATION"};
const char* const kPackNames[] = {"PACK"};
const AttrField kConcatenationAttrs[] = {{"axis", int64_t{0}, "Along which the inputs follow each other."}};
const AttrField kPackAttrs[] = {{"axis", int64_t{0}, "The new axis."}};

Status ExpectAlike(const OpCall& call, const char* op, int except_axis) {
  const TensorType& first = call.inputs[0].type;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorType& type = call.inputs[i].type;
    bool alike = !call.inputs[i].absent && type.dtype == first.dtype && type.shape.rank() == first.shape.rank();
    for (int axis = 0; alike && axis < first.shape.rank(); ++axis)
      alike = axis == except_axis || type.shape[axis] == first.shape[axis];
    if (!alike) {
      return Invalid("Operator ", op, " has input 0 ", first.ToString(), " and input ", i, " ", type.ToString(),
                     ", which do not fit.");
    }
    const Quantization *q = call.inputs[i].quantization, *q0 = call.inputs[0].quantization;
    if (q != nullptr && q0 != nullptr && (q->scales != q0->scales || q->zero_points != q0->zero_points)) {
      return Unsupported("Operator ", op, " has quantized inputs of different scales.");
    }
  }
  return {};
}

InferredTypes InferConcatenation(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "concatenation", 1, 4096));
  Shape shape = InputShape(call, 0);
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis"), shape.rank(), "concatenation"));
  RETURN_IF_ERROR(ExpectAlike(call, "concatenation", axis));
  for (size_t i = 1; i < call.inputs.size(); ++i) shape[axis] += InputShape(call, i)[axis];
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status ConcatenationReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis"), outputs[0].shape().rank(), "concatenation"));
  const Strides strides = RowMajorStrides(outputs[0].shape());
  int64_t start = 0;
  for (const HostTensor& input : inputs) {
    CopyStrided(input, 0, RowMajorStrides(input.shape()), outputs[0], start, strides, input.shape());
    start += input.shape()[axis] * strides[size_t(axis)];
  }
  return {};
}

Result<Scatter> ConcatenationScatter(const OpCall& call) {
  const int rank = call.outputs[0].shape.rank();
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis"), rank, "concatenation"));
  Scatter scatter;
  int64_t start = 0;
  for (const OperandInfo& input : call.inputs) {
    CoordMap place;
    for (int i = 0; i < rank; ++i)
      place.coords.push_back(i == axis ? IndexExpr::Axis(i) + IndexExpr::Const(start) : IndexExpr::Axis(i));
    scatter.places.push_back(std::move(place));
    start += input.type.shape[axis];
  }
  return scatter;
}

InferredTypes InferPack(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "pack", 1, 4096));
  const Shape& from = InputShape(call, 0);
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis"), from.rank() + 1, "pack"));
  RETURN_IF_ERROR(ExpectAlike(call, "pack", -1));
  std::vector<int64_t> extents(from.begin(), from.end());
  extents.insert(extents.begin() + axis, int64_t(call.inputs.size()));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom(extents, "pack"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status PackReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const int rank = outputs[0].shape().rank();
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis"), rank, "pack"));
  const Strides own = RowMajorStrides(outputs[0].shape());
  Strides strides{};
  for (int i = 0, k = 0; i < rank; ++i) {
    if (i != axis) strides[size_t(k++)] = own[size_t(i)];
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    CopyStrided(inputs[i], 0, RowMajorStrides(inputs[i].shape()), outputs[0], int64_t(i) * own[size_t(axis)], strides,
                inputs[i].shape());
  }
  return {};
}

Result<Scatter> PackScatter(const OpCall& call) {
  const int rank = call.outputs[0].shape.rank();
  ASSIGN_OR_RETURN(int axis, ResolveAxis(call.attrs.GetInt("axis"), rank, "pack"));
  Scatter scatter;
  for (size_t n = 0; n < call.inputs.size(); ++n) {
    CoordMap place;
    for (int i = 0; i < rank; ++i)
      place.coords.push_back(i == axis ? IndexExpr::Const(int64_t(n)) : IndexExpr::Axis(i < axis ? i : i - 1));
    scatter.places.push_back(std::move(place));
  }
  return scatter;
}

}  // namespace

extern const OpDef op_concatenation = {.name = "concatenation",
                                       .attrs = kConcatenationAttrs,
                                       .infer = InferConcatenation,
                                       .reference = ConcatenationReference,
                                       .scatter = ConcatenationScatter,
                                       .tflite = kConcatenationNames};
extern const OpDef op_pack = {.name = "pack",
                              .attrs = kPackAttrs,
                              .infer = InferPack,
                              .reference = PackReference,
                              .scatter = PackScatter,
                              .tflite = kPackNames};

}  // namespace leeway
