#include "ops/elementwise.h"

#include "ops/strided.h"

namespace leeway {

void SetWrapped(HostTensor& tensor, int64_t i, int64_t value) {
  switch (tensor.dtype()) {
    case DType::kI64:
    case DType::kU64: tensor.as_mutable<int64_t>()[size_t(i)] = value; return;
    case DType::kI32:
    case DType::kU32: tensor.as_mutable<uint32_t>()[size_t(i)] = uint32_t(value); return;
    case DType::kI16:
    case DType::kU16: tensor.as_mutable<uint16_t>()[size_t(i)] = uint16_t(value); return;
    case DType::kI8:
    case DType::kU8: tensor.as_mutable<uint8_t>()[size_t(i)] = uint8_t(value); return;
    default: tensor.Set(i, double(value));
  }
}

namespace {

Status ExpectElementType(const char* op, DType dtype, bool floats, bool integers, bool bools) {
  const bool taken = dtype == DType::kF32 || dtype == DType::kF16 ? floats
                     : dtype == DType::kBool                      ? bools
                                                                  : integers && IsInteger(dtype);
  if (taken) return {};
  std::vector<std::string> names;
  if (floats) names.push_back("f32 and f16");
  if (integers) names.push_back("integers");
  if (bools) names.push_back("bool");
  return Unsupported("Operator ", op, " has inputs of type ", DTypeName(dtype), "; it takes ", Join(names, ", "), ".");
}

Status ExpectNotQuantized(const char* op, const OperandInfo& input) {
  if (input.quantization == nullptr || input.quantization->scales.empty()) return {};
  return Unsupported("Operator ", op, " has a quantized input (", input.type.ToString(),
                     " with a scale); arithmetic on quantized activations is not supported.");
}

}  // namespace

InferredTypes InferUnary(const UnaryRule& rule, const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, rule.name, 1, 1));
  const TensorType& type = call.inputs[0].type;
  RETURN_IF_ERROR(ExpectElementType(rule.name, type.dtype, true, rule.on_integers != nullptr, false));
  RETURN_IF_ERROR(ExpectNotQuantized(rule.name, call.inputs[0]));
  return std::vector<TensorType>{type};
}

Status UnaryReference(const UnaryRule& rule, const OpCall& call, std::span<const HostTensor> inputs,
                      std::span<HostTensor> outputs) {
  const HostTensor& x = inputs[0];
  HostTensor& y = outputs[0];
  const int64_t count = x.element_count();
  const double parameter = rule.parameter == nullptr ? 0 : call.attrs.GetFloat(rule.parameter, rule.parameter_fallback);
  if (x.dtype() == DType::kF32) {
    auto from = x.as<float>();
    auto to = y.as_mutable<float>();
    for (size_t i = 0; i < size_t(count); ++i) to[i] = float(rule.on_floats(from[i], parameter));
  } else if (IsFloat(x.dtype())) {
    for (int64_t i = 0; i < count; ++i) y.Set(i, rule.on_floats(x.Get(i), parameter));
  } else {
    for (int64_t i = 0; i < count; ++i) SetWrapped(y, i, rule.on_integers(int64_t(x.Get(i))));
  }
  return {};
}

Result<ValueMap> UnaryValueMap(const UnaryRule& rule, const OpCall& call, int) {
  ValueMap map;
  map.text = StrCat("fn apply(a : V) -> V { ", rule.text, " }");
  map.value = map.result = InFlightType(call.inputs[0].type.dtype);
  map.zero_to_zero = rule.zero_to_zero;
  if (rule.parameter != nullptr) map.consts[rule.parameter] = call.attrs.GetFloat(rule.parameter, rule.parameter_fallback);
  return map;
}

InferredTypes InferBinary(const BinaryRule& rule, const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, rule.name, 2, 2));
  const TensorType &a = call.inputs[0].type, &b = call.inputs[1].type;
  if (a.dtype != b.dtype) {
    return Invalid("Operator ", rule.name, " has inputs of types ", DTypeName(a.dtype), " and ", DTypeName(b.dtype),
                   "; they must be the same.");
  }
  RETURN_IF_ERROR(ExpectElementType(rule.name, a.dtype, rule.on_floats != nullptr,
                                    rule.on_integers != nullptr && rule.on_floats != nullptr, rule.takes_bool));
  RETURN_IF_ERROR(ExpectNotQuantized(rule.name, call.inputs[0]));
  RETURN_IF_ERROR(ExpectNotQuantized(rule.name, call.inputs[1]));
  ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(a.shape, b.shape, rule.name));
  return std::vector<TensorType>{{rule.gives_bool ? DType::kBool : a.dtype, shape}};
}

Status BinaryReference(const BinaryRule& rule, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const HostTensor &a = inputs[0], &b = inputs[1];
  HostTensor& y = outputs[0];
  const Strides to_a = BroadcastStrides(a.shape(), y.shape()), to_b = BroadcastStrides(b.shape(), y.shape());
  const Strides to_y = RowMajorStrides(y.shape());
  if (a.dtype() == DType::kF32 && !rule.gives_bool) {
    auto from_a = a.as<float>(), from_b = b.as<float>();
    auto to = y.as_mutable<float>();
    ForEachOffset<3>(y.shape(), {to_a, to_b, to_y}, {0, 0, 0}, [&](const std::array<int64_t, 3>& at) {
      to[size_t(at[2])] = float(rule.on_floats(from_a[size_t(at[0])], from_b[size_t(at[1])]));
    });
  } else if (IsFloat(a.dtype())) {
    ForEachOffset<3>(y.shape(), {to_a, to_b, to_y}, {0, 0, 0},
                     [&](const std::array<int64_t, 3>& at) { y.Set(at[2], rule.on_floats(a.Get(at[0]), b.Get(at[1]))); });
  } else {
    ForEachOffset<3>(y.shape(), {to_a, to_b, to_y}, {0, 0, 0}, [&](const std::array<int64_t, 3>& at) {
      SetWrapped(y, at[2], rule.on_integers(int64_t(a.Get(at[0])), int64_t(b.Get(at[1]))));
    });
  }
  return {};
}

Result<ValueMap> BinaryValueMap(const BinaryRule& rule, const OpCall& call, int chained) {
  ValueMap map;
  const DType dtype = call.inputs[0].type.dtype;
  const DType in_flight = InFlightType(dtype);
  const char* body = in_flight != DType::kF32 && rule.integer_text != nullptr ? rule.integer_text : rule.text;
  map.text = StrCat("fn apply(", chained == 0 ? "a : V, b : V" : "b : V, a : V", ") -> R { ", body, " }");
  map.value = in_flight;
  map.result = rule.gives_bool ? DType::kU32 : in_flight;
  return map;
}

}  // namespace leeway
