// What shape rules and references ask about the operands of a node. Errors name the operator and the operand.
#pragma once

#include <string>
#include <vector>

#include "base/strings.h"
#include "graph/op_def.h"

namespace leeway {

using InferredTypes = Result<std::vector<TensorType>>;

// Refusals. `Invalid`: the model breaks the operator's rules. `Unsupported`: a form that this build does not do.
template <class... Parts>
Error Invalid(const Parts&... parts) {
  return Error{Code::kInvalidModel, StrCat(parts...)};
}
template <class... Parts>
Error Unsupported(const Parts&... parts) {
  return Error{Code::kUnsupported, StrCat(parts...)};
}

// Between `least` and `most` inputs, of which the first `least` are present.
Status ExpectInputs(const OpCall& call, const char* op, size_t least, size_t most);
// Input `i` is a float (f32 or f16).
Status ExpectFloat(const OpCall& call, const char* op, size_t i);
Status ExpectRank(const OpCall& call, const char* op, size_t i, int least, int most);
inline bool HasInput(const OpCall& call, size_t i) { return i < call.inputs.size() && !call.inputs[i].absent; }
inline const Shape& InputShape(const OpCall& call, size_t i) { return call.inputs[i].type.shape; }

// An axis as the file has it, -rank..rank-1, as 0..rank-1.
Result<int> ResolveAxis(int64_t axis, int rank, const char* op);
// Every element of a constant integer input, row-major. `what` names it in the error where it is not constant.
Result<std::vector<int64_t>> ConstantInts(const OpCall& call, const char* op, size_t i, const char* what);
std::vector<int64_t> Ints(const HostTensor& tensor);
// A shape from numbers that come from the file.
Result<Shape> ShapeFrom(const std::vector<int64_t>& extents, const char* op);
// Numpy's rule for two shapes.
Result<Shape> BroadcastShapes(const Shape& a, const Shape& b, const char* op);

// The type that an element has in flight on a device: kF32, kI32 or kU32 (bool too).
DType InFlightType(DType dtype);
bool IsInteger(DType dtype);

// The dtype of an attribute that holds a TensorType number of the .tflite schema, or a dtype's name as text.
Result<DType> DTypeAttribute(const AttrSet& attrs, const char* name, DType fallback, const char* op);

}  // namespace leeway
