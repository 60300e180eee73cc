// Comparisons and logic, element by element, with numpy's broadcasting. Their results are bools, which are u32 of 0 or 1 in
// flight.
#include "ops/elementwise.h"

namespace leeway {
namespace {

constexpr BinaryRule kEqual = {.name = "equal",
                               .tflite = "EQUAL",
                               .on_floats = [](double a, double b) { return double(a == b); },
                               .on_integers = [](int64_t a, int64_t b) { return int64_t(a == b); },
                               .text = "return select(R(0), R(1), a == b);",
                               .takes_bool = true,
                               .gives_bool = true};
constexpr BinaryRule kNotEqual = {.name = "not_equal",
                                  .tflite = "NOT_EQUAL",
                                  .on_floats = [](double a, double b) { return double(a != b); },
                                  .on_integers = [](int64_t a, int64_t b) { return int64_t(a != b); },
                                  .text = "return select(R(0), R(1), a != b);",
                                  .takes_bool = true,
                                  .gives_bool = true};
constexpr BinaryRule kLess = {.name = "less",
                              .tflite = "LESS",
                              .on_floats = [](double a, double b) { return double(a < b); },
                              .on_integers = [](int64_t a, int64_t b) { return int64_t(a < b); },
                              .text = "return select(R(0), R(1), a < b);",
                              .gives_bool = true};
constexpr BinaryRule kLessEqual = {.name = "less_equal",
                                   .tflite = "LESS_EQUAL",
                                   .on_floats = [](double a, double b) { return double(a <= b); },
                                   .on_integers = [](int64_t a, int64_t b) { return int64_t(a <= b); },
                                   .text = "return select(R(0), R(1), a <= b);",
                                   .gives_bool = true};
constexpr BinaryRule kGreater = {.name = "greater",
                                 .tflite = "GREATER",
                                 .on_floats = [](double a, double b) { return double(a > b); },
                                 .on_integers = [](int64_t a, int64_t b) { return int64_t(a > b); },
                                 .text = "return select(R(0), R(1), a > b);",
                                 .gives_bool = true};
constexpr BinaryRule kGreaterEqual = {.name = "greater_equal",
                                      .tflite = "GREATER_EQUAL",
                                      .on_floats = [](double a, double b) { return double(a >= b); },
                                      .on_integers = [](int64_t a, int64_t b) { return int64_t(a >= b); },
                                      .text = "return select(R(0), R(1), a >= b);",
                                      .gives_bool = true};
constexpr BinaryRule kLogicalAnd = {.name = "logical_and",
                                    .tflite = "LOGICAL_AND",
                                    .on_integers = [](int64_t a, int64_t b) { return int64_t(a != 0 && b != 0); },
                                    .text = "return select(R(0), R(1), (a != V(0)) & (b != V(0)));",
                                    .takes_bool = true,
                                    .gives_bool = true};
constexpr BinaryRule kLogicalOr = {.name = "logical_or",
                                   .tflite = "LOGICAL_OR",
                                   .on_integers = [](int64_t a, int64_t b) { return int64_t(a != 0 || b != 0); },
                                   .text = "return select(R(0), R(1), (a != V(0)) | (b != V(0)));",
                                   .takes_bool = true,
                                   .gives_bool = true};

const char* const kLogicalNotNames[] = {"LOGICAL_NOT"};

InferredTypes InferLogicalNot(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "logical_not", 1, 1));
  if (call.inputs[0].type.dtype != DType::kBool) {
    return Invalid("Operator logical_not has an input of type ", DTypeName(call.inputs[0].type.dtype), "; it takes bool.");
  }
  return std::vector<TensorType>{call.inputs[0].type};
}

}  // namespace

extern const OpDef op_equal = BinaryOp<kEqual>();
extern const OpDef op_not_equal = BinaryOp<kNotEqual>();
extern const OpDef op_less = BinaryOp<kLess>();
extern const OpDef op_less_equal = BinaryOp<kLessEqual>();
extern const OpDef op_greater = BinaryOp<kGreater>();
extern const OpDef op_greater_equal = BinaryOp<kGreaterEqual>();
extern const OpDef op_logical_and = BinaryOp<kLogicalAnd>();
extern const OpDef op_logical_or = BinaryOp<kLogicalOr>();
extern const OpDef op_logical_not = {
    .name = "logical_not",
    .infer = InferLogicalNot,
    .reference = [](const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) -> Status {
      for (int64_t i = 0; i < inputs[0].element_count(); ++i) outputs[0].Set(i, inputs[0].Get(i) == 0);
      return {};
    },
    .value_map = [](const OpCall&, int) -> Result<ValueMap> {
      return ValueMap{.text = "fn apply(a : V) -> R { return select(R(0), R(1), a == V(0)); }",
                      .value = DType::kU32,
                      .result = DType::kU32};
    },
    .tflite = kLogicalNotNames};

}  // namespace leeway
