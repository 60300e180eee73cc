// cast: the same number in another type. Floats become integers by cutting the fraction, bools by comparing with zero.
#include <cmath>

#include "ops/elementwise.h"

namespace leeway {
namespace {

const char* const kNames[] = {"CAST"};
const AttrField kAttrs[] = {
    {"out_data_type", std::string("f32"), "Type of the result: a name, or a TensorType number."},
    {"dtype", std::string("f32"), "The same, which counts where both are given: files may leave out the other."}};

Result<DType> ResultType(const AttrSet& attrs) {
  return DTypeAttribute(attrs, attrs.Has("dtype") ? "dtype" : "out_data_type", DType::kF32, "cast");
}

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "cast", 1, 1));
  ASSIGN_OR_RETURN(DType dtype, ResultType(call.attrs));
  return std::vector<TensorType>{{dtype, InputShape(call, 0)}};
}

Status Reference(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const HostTensor& x = inputs[0];
  HostTensor& y = outputs[0];
  for (int64_t i = 0; i < x.element_count(); ++i) {
    const double value = x.Get(i);
    if (y.dtype() == DType::kBool) {
      y.Set(i, value != 0);
    } else if (IsFloat(y.dtype())) {
      y.Set(i, value);
    } else if (IsFloat(x.dtype())) {
      y.Set(i, std::trunc(value));
    } else {
      SetWrapped(y, i, int64_t(value));
    }
  }
  return {};
}

Result<ValueMap> MakeValueMap(const OpCall& call, int) {
  ASSIGN_OR_RETURN(DType to, ResultType(call.attrs));
  const DType from = call.inputs[0].type.dtype;
  ValueMap map;
  map.value = InFlightType(from);
  map.result = InFlightType(to);
  map.zero_to_zero = true;
  const int bits = int(DTypeBits(to));
  if (to == DType::kBool) {
    map.text = "fn apply(a : V) -> R { return select(R(0), R(1), a != V(0)); }";
  } else if (IsFloat(to) || bits >= 32) {
    map.text = "fn apply(a : V) -> R { return R(a); }";
  } else if (IsFloat(from)) {  // saturates, as the reference does
    const int64_t lowest = IsSignedInt(to) ? -(int64_t{1} << (bits - 1)) : 0;
    const int64_t highest = (int64_t{1} << (IsSignedInt(to) ? bits - 1 : bits)) - 1;
    map.text = StrCat("fn apply(a : V) -> R { return clamp(R(a), R(", lowest, "), R(", highest, ")); }");
  } else if (IsSignedInt(to)) {  // keeps the low bits: up, and down again with the sign
    const int64_t factor = int64_t{1} << (32 - bits);
    map.text = StrCat("fn apply(a : V) -> R { return R(a) * R(", factor, ") / R(", factor, "); }");
  } else {
    map.text = StrCat("fn apply(a : V) -> R { return R(a) & R(", (int64_t{1} << bits) - 1, "); }");
  }
  return map;
}

}  // namespace

extern const OpDef op_cast = {
    .name = "cast", .attrs = kAttrs, .infer = Infer, .reference = Reference, .value_map = MakeValueMap, .tflite = kNames};

}  // namespace leeway
