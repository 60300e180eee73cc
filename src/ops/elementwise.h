// Elementwise operators in a line each: a rule with the reference and the kernel text, and a template that makes the OpDef.
//
//   constexpr BinaryRule kAdd = {.name = "add", .tflite = "ADD", .on_floats = [](double a, double b) { return a + b; },
//                                .on_integers = [](int64_t a, int64_t b) { return a + b; }, .text = "return a + b;"};
//   extern const OpDef op_add = BinaryOp<kAdd>();
#pragma once

#include "ops/operands.h"

namespace leeway {

struct UnaryRule {
  const char* name;
  const char* tflite;
  double (*on_floats)(double a, double parameter);
  int64_t (*on_integers)(int64_t a) = nullptr;  // null: floats only
  // The body of a function over `a` of type V, as ValueMap::text has it, for floats and integers; it may use the attribute
  // `parameter` by its name.
  const char* text;
  bool zero_to_zero = false;
  const char* parameter = nullptr;
  double parameter_fallback = 0;
};

struct BinaryRule {
  const char* name;
  const char* tflite;
  double (*on_floats)(double a, double b) = nullptr;       // null: no floats
  int64_t (*on_integers)(int64_t a, int64_t b) = nullptr;  // null: no integers
  const char* text;                                        // the body over a and b of type V; R is the type of the result
  const char* integer_text = nullptr;                      // where it differs from `text`
  bool takes_bool = false;
  bool gives_bool = false;
};

InferredTypes InferUnary(const UnaryRule& rule, const OpCall& call);
Status UnaryReference(const UnaryRule& rule, const OpCall& call, std::span<const HostTensor> inputs,
                      std::span<HostTensor> outputs);
Result<ValueMap> UnaryValueMap(const UnaryRule& rule, const OpCall& call, int chained);

InferredTypes InferBinary(const BinaryRule& rule, const OpCall& call);
Status BinaryReference(const BinaryRule& rule, std::span<const HostTensor> inputs, std::span<HostTensor> outputs);
Result<ValueMap> BinaryValueMap(const BinaryRule& rule, const OpCall& call, int chained);

template <const UnaryRule& rule>
constexpr OpDef UnaryOp(std::span<const AttrField> attrs = {}) {
  return {.name = rule.name,
          .attrs = attrs,
          .infer = [](const OpCall& call) { return InferUnary(rule, call); },
          .reference = [](const OpCall& call, std::span<const HostTensor> inputs,
                          std::span<HostTensor> outputs) { return UnaryReference(rule, call, inputs, outputs); },
          .value_map = [](const OpCall& call, int chained) { return UnaryValueMap(rule, call, chained); },
          .tflite = {&rule.tflite, 1}};
}

template <const BinaryRule& rule>
constexpr OpDef BinaryOp() {
  return {.name = rule.name,
          .infer = [](const OpCall& call) { return InferBinary(rule, call); },
          .reference = [](const OpCall&, std::span<const HostTensor> inputs,
                          std::span<HostTensor> outputs) { return BinaryReference(rule, inputs, outputs); },
          .value_map = [](const OpCall& call, int chained) { return BinaryValueMap(rule, call, chained); },
          .tflite = {&rule.tflite, 1}};
}

// An integer stored into a tensor of an integer type wraps around, as device arithmetic does.
void SetWrapped(HostTensor& tensor, int64_t i, int64_t value);

}  // namespace leeway
