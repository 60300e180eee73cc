// mean, sum, reduce_max, reduce_min, reduce_prod, reduce_any, reduce_all: over any set of axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/elementwise.h"
#include "ops/strided.h"

namespace leeway {
namespace {

enum class Reduce { kMean, kSum, kMax, kMin, kProd, kAny, kAll };

struct Row {
  const char* name;
  const char* tflite;
  double start;
};
constexpr Row kRows[] = {
    {"mean", "MEAN", 0},
    {"sum", "SUM", 0},
    {"reduce_max", "REDUCE_MAX", -std::numeric_limits<double>::infinity()},
    {"reduce_min", "REDUCE_MIN", std::numeric_limits<double>::infinity()},
    {"reduce_prod", "REDUCE_PROD", 1},
    {"reduce_any", "REDUCE_ANY", 0},
    {"reduce_all", "REDUCE_ALL", 1},
};
constexpr const Row& RowOf(Reduce kind) { return kRows[int(kind)]; }

const AttrField kAttrs[] = {{"keep_dims", false, "Reduced axes stay, with extent 1."}};

Result<std::vector<bool>> ReducedAxes(const OpCall& call, const char* op) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, ConstantInts(call, op, 1, "axes"));
  std::vector<bool> reduced(size_t(InputShape(call, 0).rank()), false);
  for (int64_t given : axes) {
    ASSIGN_OR_RETURN(int axis, ResolveAxis(given, InputShape(call, 0).rank(), op));
    reduced[size_t(axis)] = true;
  }
  return reduced;
}

template <Reduce kind>
InferredTypes Infer(const OpCall& call) {
  const char* op = RowOf(kind).name;
  RETURN_IF_ERROR(ExpectInputs(call, op, 2, 2));
  const DType dtype = call.inputs[0].type.dtype;
  if (kind == Reduce::kAny || kind == Reduce::kAll) {
    if (dtype != DType::kBool) return Invalid("Operator ", op, " has an input of type ", DTypeName(dtype), "; it takes bool.");
  } else if (!(dtype == DType::kF32 || dtype == DType::kF16 || IsInteger(dtype)) ||
             (call.inputs[0].quantization != nullptr && !call.inputs[0].quantization->scales.empty())) {
    return Unsupported("Operator ", op, " has an input of type ", DTypeName(dtype),
                       "; it takes floats and integers that are not quantized.");
  }
  ASSIGN_OR_RETURN(std::vector<bool> reduced, ReducedAxes(call, op));
  Shape shape;
  for (int axis = 0; axis < InputShape(call, 0).rank(); ++axis) {
    if (!reduced[size_t(axis)]) {
      shape.push_back(InputShape(call, 0)[axis]);
    } else if (call.attrs.GetBool("keep_dims")) {
      shape.push_back(1);
    }
  }
  return std::vector<TensorType>{{dtype, shape}};
}

template <Reduce kind>
double Combine(double a, double b) {
  switch (kind) {
    case Reduce::kMean:
    case Reduce::kSum: return a + b;
    case Reduce::kMax: return std::max(a, b);
    case Reduce::kMin: return std::min(a, b);
    case Reduce::kProd: return a * b;
    case Reduce::kAny: return double(a != 0 || b != 0);
    case Reduce::kAll: return double(a != 0 && b != 0);
  }
  return 0;
}

template <Reduce kind>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(std::vector<bool> reduced, ReducedAxes(call, RowOf(kind).name));
  const HostTensor& x = inputs[0];
  const Shape& shape = x.shape();
  std::vector<double> results(size_t(outputs[0].element_count()), RowOf(kind).start);
  Strides to{};  // of the result, along the input's axes
  int64_t step = 1, count = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (reduced[size_t(axis)]) {
      count *= shape[axis];
    } else {
      to[size_t(axis)] = step;
      step *= shape[axis];
    }
  }
  const std::vector<float> floats = IsFloat(x.dtype()) ? x.ToF32() : std::vector<float>();
  ForEachOffset<2>(shape, {RowMajorStrides(shape), to}, {0, 0}, [&](const std::array<int64_t, 2>& at) {
    double& result = results[size_t(at[1])];
    result = Combine<kind>(result, floats.empty() ? x.Get(at[0]) : double(floats[size_t(at[0])]));
  });
  for (size_t i = 0; i < results.size(); ++i) {
    double result = results[i];
    if (kind == Reduce::kMean) result /= double(count);
    if (IsFloat(x.dtype()) || x.dtype() == DType::kBool) {
      outputs[0].Set(int64_t(i), result);
    } else if (std::isinf(result)) {
      outputs[0].Set(int64_t(i), result);  // an empty reduction: saturates
    } else {
      SetWrapped(outputs[0], int64_t(i), int64_t(std::trunc(result)));
    }
  }
  return {};
}

template <Reduce kind>
constexpr OpDef ReduceOp() {
  return {.name = RowOf(kind).name,
          .attrs = kAttrs,
          .infer = Infer<kind>,
          .reference = Reference<kind>,
          .tflite = {&RowOf(kind).tflite, 1}};
}

}  // namespace

extern const OpDef op_mean = ReduceOp<Reduce::kMean>();
extern const OpDef op_sum = ReduceOp<Reduce::kSum>();
extern const OpDef op_reduce_max = ReduceOp<Reduce::kMax>();
extern const OpDef op_reduce_min = ReduceOp<Reduce::kMin>();
extern const OpDef op_reduce_prod = ReduceOp<Reduce::kProd>();
extern const OpDef op_reduce_any = ReduceOp<Reduce::kAny>();
extern const OpDef op_reduce_all = ReduceOp<Reduce::kAll>();

}  // namespace leeway
