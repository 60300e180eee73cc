// quantize, dequantize: between real numbers and q, where real = scale * (q - zero_point); the scale of a weight may differ per
// index of one axis. An f16 constant behind dequantize is just a narrower float.
#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace leeway {
namespace {

const char* const kQuantizeNames[] = {"QUANTIZE"};
const char* const kDequantizeNames[] = {"DEQUANTIZE"};
const AttrField kQuantizeAttrs[] = {{"scale", 1.0, "Real distance between two neighbouring quantized values."},
                                    {"zero_point", int64_t{0}, "The quantized value of zero."},
                                    {"dtype", std::string("i8"), "Type of the result: i8, u8 or i16."}};

bool IsQuantizedType(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI16 || dtype == DType::kI32 || dtype == DType::kI4 ||
         dtype == DType::kI2;
}

// Least and greatest value of a quantized type.
double Lowest(DType dtype) { return IsSignedInt(dtype) ? -std::ldexp(1.0, int(DTypeBits(dtype)) - 1) : 0.0; }
double Highest(DType dtype) { return std::ldexp(1.0, int(DTypeBits(dtype)) - (IsSignedInt(dtype) ? 1 : 0)) - 1; }

// From one integer type to another the input has a scale of its own.
InferredTypes InferQuantize(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "quantize", 1, 1));
  ASSIGN_OR_RETURN(DType dtype, DTypeAttribute(call.attrs, "dtype", DType::kI8, "quantize"));
  if (dtype != DType::kI8 && dtype != DType::kU8 && dtype != DType::kI16) {
    return Unsupported("Operator quantize has the result type ", DTypeName(dtype), "; it gives i8, u8 or i16.");
  }
  if (call.attrs.GetFloat("scale", 1) <= 0) {
    return Invalid("Operator quantize has scale ", call.attrs.GetFloat("scale", 1), "; a scale is positive.");
  }
  const OperandInfo& x = call.inputs[0];
  if (!IsFloat(x.type.dtype) && (x.quantization == nullptr || x.quantization->scales.size() != 1)) {
    return Unsupported("Operator quantize has an input of type ", x.type.ToString(),
                       " without one scale; it takes floats, or integers with a scale.");
  }
  return std::vector<TensorType>{{dtype, x.type.shape}};
}

Status QuantizeReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const double scale = call.attrs.GetFloat("scale", 1), zero_point = double(call.attrs.GetInt("zero_point", 0));
  const Quantization* own = call.inputs[0].quantization;
  const bool requantize = !IsFloat(inputs[0].dtype());
  const double own_scale = requantize ? own->scales[0] : 1, own_zero = requantize ? double(own->zero_points[0]) : 0;
  for (int64_t i = 0; i < inputs[0].element_count(); ++i) {
    const double real = (inputs[0].Get(i) - own_zero) * own_scale;
    const float quotient = float(real) / float(scale);  // in f32, or ties would fall differently than in the format's kernels
    outputs[0].Set(
        i, std::clamp(double(std::round(quotient)) + zero_point, Lowest(outputs[0].dtype()), Highest(outputs[0].dtype())));
  }
  return {};
}

Result<ValueMap> QuantizeValueMap(const OpCall& call, int) {
  ASSIGN_OR_RETURN(DType dtype, DTypeAttribute(call.attrs, "dtype", DType::kI8, "quantize"));
  const OperandInfo& x = call.inputs[0];
  const bool requantize = !IsFloat(x.type.dtype);
  ValueMap map;
  map.value = InFlightType(x.type.dtype);
  map.result = InFlightType(dtype);
  if (requantize) return Unsupported("Operator quantize from ", x.type.ToString(), " has no kernel; it runs on the CPU.");
  // Halves away from zero.
  map.text = R"(fn apply(a : V) -> R {
  let quotient = a / V(scale);
  let rounded = trunc(quotient + select(V(0.5), V(-0.5), quotient < V(0)));
  return R(clamp(rounded + V(zero_point), V(lowest), V(highest)));
})";
  map.consts = {{"scale", call.attrs.GetFloat("scale", 1)},
                {"zero_point", double(call.attrs.GetInt("zero_point", 0))},
                {"lowest", Lowest(dtype)},
                {"highest", Highest(dtype)}};
  return map;
}

InferredTypes InferDequantize(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "dequantize", 1, 1));
  const OperandInfo& x = call.inputs[0];
  if (IsFloat(x.type.dtype)) return std::vector<TensorType>{{DType::kF32, x.type.shape}};
  if (!IsQuantizedType(x.type.dtype)) {
    return Unsupported("Operator dequantize has an input of type ", DTypeName(x.type.dtype),
                       "; it takes f16 and quantized integers.");
  }
  const Quantization* q = x.quantization;
  if (q == nullptr || q->scales.empty() || q->scales.size() != q->zero_points.size()) {
    return Invalid("Operator dequantize has an input of type ", x.type.ToString(), " without scale and zero point.");
  }
  if (q->scales.size() > 1 &&
      (q->axis < 0 || q->axis >= x.type.shape.rank() || x.type.shape[q->axis] != int64_t(q->scales.size()))) {
    return Invalid("Operator dequantize has ", q->scales.size(), " scales for axis ", q->axis, " of its input ",
                   x.type.ToString(), ".");
  }
  return std::vector<TensorType>{{DType::kF32, x.type.shape}};
}

Status DequantizeReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const HostTensor& x = inputs[0];
  auto y = outputs[0].as_mutable<float>();
  const int64_t count = x.element_count();
  if (IsFloat(x.dtype())) {
    for (int64_t i = 0; i < count; ++i) y[size_t(i)] = float(x.Get(i));
    return {};
  }
  const Quantization& q = *call.inputs[0].quantization;
  int64_t inner = 1;
  for (int axis = q.axis + 1; axis < x.shape().rank(); ++axis) inner *= x.shape()[axis];
  const int64_t scales = int64_t(q.scales.size());
  for (int64_t i = 0; i < count; ++i) {
    const size_t k = scales == 1 ? 0 : size_t(i / inner % scales);
    y[size_t(i)] = float((x.Get(i) - double(q.zero_points[k])) * double(q.scales[k]));
  }
  return {};
}

Result<ValueMap> DequantizeValueMap(const OpCall& call, int) {
  const OperandInfo& x = call.inputs[0];
  ValueMap map;
  map.value = InFlightType(x.type.dtype);
  map.result = DType::kF32;
  if (IsFloat(x.type.dtype)) {
    map.text = "fn apply(a : V) -> V { return a; }";
    map.zero_to_zero = true;
    return map;
  }
  if (x.quantization->scales.size() != 1) {
    return Unsupported(
        "Operator dequantize with a scale per index of an axis runs on the CPU; for weights it is folded at load.");
  }
  // Written into the text, since constants of a map have the type of V, which is an integer here.
  map.text = StrCat("fn apply(a : V) -> R { return (R(a) - R(", x.quantization->zero_points[0], ")) * R(",
                    double(x.quantization->scales[0]), "); }");
  return map;
}

}  // namespace

extern const OpDef op_quantize = {.name = "quantize",
                                  .attrs = kQuantizeAttrs,
                                  .infer = InferQuantize,
                                  .reference = QuantizeReference,
                                  .value_map = QuantizeValueMap,
                                  .tflite = kQuantizeNames};
extern const OpDef op_dequantize = {.name = "dequantize",
                                    .infer = InferDequantize,
                                    .reference = DequantizeReference,
                                    .value_map = DequantizeValueMap,
                                    .tflite = kDequantizeNames};

}  // namespace leeway
