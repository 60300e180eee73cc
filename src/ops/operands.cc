#include "ops/operands.h"

#include <algorithm>
#include <cmath>

namespace leeway {

Status ExpectInputs(const OpCall& call, const char* op, size_t least, size_t most) {
  const size_t count = call.inputs.size();
  if (count < least || count > most) {
    return Invalid("Operator ", op, " has ", count, " inputs; it takes ", least,
                   least == most ? std::string() : StrCat(" to ", most), ".");
  }
  for (size_t i = 0; i < least; ++i) {
    if (call.inputs[i].absent) return Invalid("Operator ", op, " lacks input ", i, ", which it needs.");
  }
  return {};
}

Status ExpectFloat(const OpCall& call, const char* op, size_t i) {
  const DType dtype = call.inputs[i].type.dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16) {
    return Unsupported("Operator ", op, " has input ", i, " of type ", DTypeName(dtype), "; it takes f32 and f16.");
  }
  return {};
}

Status ExpectRank(const OpCall& call, const char* op, size_t i, int least, int most) {
  const int rank = InputShape(call, i).rank();
  if (rank < least || rank > most) {
    return Invalid("Operator ", op, " has input ", i, " of shape ", InputShape(call, i).ToString(), "; it takes ", least,
                   least == most ? std::string() : StrCat(" to ", most), " axes.");
  }
  return {};
}

Result<int> ResolveAxis(int64_t axis, int rank, const char* op) {
  if (axis < -rank || axis >= rank) {
    return Invalid("Operator ", op, " has axis ", axis, "; with ", rank, " axes it is from ", -rank, " to ", rank - 1, ".");
  }
  return int(axis < 0 ? axis + rank : axis);
}

std::vector<int64_t> Ints(const HostTensor& tensor) {
  std::vector<int64_t> values(size_t(tensor.element_count()));
  if (tensor.dtype() == DType::kI32) {
    std::ranges::copy(tensor.as<int32_t>(), values.begin());
  } else if (tensor.dtype() == DType::kI64) {
    std::ranges::copy(tensor.as<int64_t>(), values.begin());
  } else {
    for (size_t i = 0; i < values.size(); ++i) values[i] = int64_t(tensor.Get(int64_t(i)));
  }
  return values;
}

Result<std::vector<int64_t>> ConstantInts(const OpCall& call, const char* op, size_t i, const char* what) {
  if (i >= call.inputs.size() || call.inputs[i].absent) return Invalid("Operator ", op, " lacks input ", i, " (", what, ").");
  const OperandInfo& input = call.inputs[i];
  if (!IsInteger(input.type.dtype)) {
    return Invalid("Operator ", op, " has input ", i, " (", what, ") of type ", DTypeName(input.type.dtype),
                   "; it takes integers.");
  }
  if (input.constant == nullptr) {
    return Unsupported("Operator ", op, " has input ", i, " (", what,
                       ") that is only known at run time; only constants are supported, since shapes are fixed at load.");
  }
  return Ints(*input.constant);
}

Result<Shape> ShapeFrom(const std::vector<int64_t>& extents, const char* op) {
  auto shape = Shape::FromUntrusted(extents);
  if (!shape.ok()) return WithContext(shape.error(), StrCat("output of operator ", op));
  return shape;
}

Result<Shape> BroadcastShapes(const Shape& a, const Shape& b, const char* op) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> extents(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    const int in_a = i - (rank - a.rank()), in_b = i - (rank - b.rank());
    const int64_t extent_a = in_a < 0 ? 1 : a[in_a], extent_b = in_b < 0 ? 1 : b[in_b];
    if (extent_a != extent_b && extent_a != 1 && extent_b != 1) {
      return Invalid("Operator ", op, " has inputs of shapes ", a.ToString(), " and ", b.ToString(),
                     "; they cannot be broadcast to one shape.");
    }
    extents[size_t(i)] = extent_a == 1 ? extent_b : extent_a;
  }
  return ShapeFrom(extents, op);
}

DType InFlightType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF64:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL: return DType::kF32;
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
    case DType::kI4:
    case DType::kI2: return DType::kI32;
    case DType::kU64:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8:
    case DType::kU4:
    case DType::kBool: return DType::kU32;
  }
  return DType::kF32;
}

bool IsInteger(DType dtype) { return InFlightType(dtype) != DType::kF32 && dtype != DType::kBool; }

Result<DType> DTypeAttribute(const AttrSet& attrs, const char* name, DType fallback, const char* op) {
  const AttrValue* value = attrs.Find(name);
  if (value == nullptr) return fallback;
  if (const std::string* text = std::get_if<std::string>(value)) {
    const auto dtype = DTypeFromName(*text);
    if (!dtype) return Invalid("Operator ", op, " has ", name, " \"", *text, "\", which is no element type.");
    if (IsBlockQuantized(*dtype)) {
      return Invalid("Operator ", op, " has ", name, " \"", *text, "\", which only constants are stored as.");
    }
    return *dtype;
  }
  // The numbers of TensorType in the .tflite schema.
  switch (attrs.GetInt(name, -1)) {
    case 0: return DType::kF32;
    case 1: return DType::kF16;
    case 2: return DType::kI32;
    case 3: return DType::kU8;
    case 4: return DType::kI64;
    case 6: return DType::kBool;
    case 7: return DType::kI16;
    case 9: return DType::kI8;
    case 10: return DType::kF64;
    case 12: return DType::kU64;
    case 15: return DType::kU32;
    case 16: return DType::kU16;
    case 17: return DType::kI4;
    case 18: return DType::kBF16;
    default: return Unsupported("Operator ", op, " has ", name, " ", attrs.GetInt(name, -1), ", a type that is not supported.");
  }
}

}  // namespace leeway
