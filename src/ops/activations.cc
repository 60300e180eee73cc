// Activation functions. The importer splits them off the operators that carry one; passes melt them into the producer again.
#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace leeway {
namespace {

constexpr UnaryRule kRelu = {.name = "relu",
                             .tflite = "RELU",
                             .on_floats = [](double a, double) { return std::max(a, 0.0); },
                             .text = "return max(a, V(0));",
                             .zero_to_zero = true};
constexpr UnaryRule kRelu6 = {.name = "relu6",
                              .tflite = "RELU6",
                              .on_floats = [](double a, double) { return std::clamp(a, 0.0, 6.0); },
                              .text = "return clamp(a, V(0), V(6));",
                              .zero_to_zero = true};
constexpr UnaryRule kReluN1To1 = {.name = "relu_n1_to_1",
                                  .tflite = "RELU_N1_TO_1",
                                  .on_floats = [](double a, double) { return std::clamp(a, -1.0, 1.0); },
                                  .text = "return clamp(a, V(-1), V(1));",
                                  .zero_to_zero = true};
constexpr UnaryRule kRelu0To1 = {.name = "relu_0_to_1",
                                 .tflite = "RELU_0_TO_1",
                                 .on_floats = [](double a, double) { return std::clamp(a, 0.0, 1.0); },
                                 .text = "return clamp(a, V(0), V(1));",
                                 .zero_to_zero = true};
constexpr UnaryRule kLeakyRelu = {.name = "leaky_relu",
                                  .tflite = "LEAKY_RELU",
                                  .on_floats = [](double a, double alpha) { return a < 0 ? a * alpha : a; },
                                  .text = "return select(a, a * V(alpha), a < V(0));",
                                  .zero_to_zero = true,
                                  .parameter = "alpha"};
constexpr UnaryRule kElu = {.name = "elu",
                            .tflite = "ELU",
                            .on_floats = [](double a, double) { return a < 0 ? std::expm1(a) : a; },
                            // exp(a) - 1 loses all digits near zero, where the first terms of its series are exact enough.
                            .text = R"(
    let low = min(a, V(0));
    let series = low * (V(1) + low * (V(0.5) + low * V(0.16666667)));
    let negative = select(exp(low) - V(1), series, low > V(-0.01));
    return select(a, negative, a < V(0));)",
                            .zero_to_zero = true};
constexpr UnaryRule kHardSwish = {.name = "hard_swish",
                                  .tflite = "HARD_SWISH",
                                  .on_floats = [](double a, double) { return a * std::clamp(a + 3, 0.0, 6.0) / 6; },
                                  .text = "return a * clamp(a + V(3), V(0), V(6)) * V(0.16666667);",
                                  .zero_to_zero = true};
constexpr UnaryRule kLogistic = {.name = "logistic",
                                 .tflite = "LOGISTIC",
                                 .on_floats = [](double a, double) { return 1 / (1 + std::exp(-a)); },
                                 // Some drivers make NaN of a quotient with infinity, so the exponent stays finite.
                                 .text = "return V(1) / (V(1) + exp(min(-a, V(87))));"};
constexpr UnaryRule kTanh = {.name = "tanh",
                             .tflite = "TANH",
                             .on_floats = [](double a, double) { return std::tanh(a); },
                             // Some drivers return NaN for large arguments; tanh(15) is 1 in f32.
                             .text = "return tanh(clamp(a, V(-15), V(15)));",
                             .zero_to_zero = true};

// gelu: a * (share of the normal distribution below a), exactly or by tanh.
constexpr double kSqrt2OverPi = 0.7978845608028654;

constexpr UnaryRule kGeluExact = {.name = "gelu",
                                  .tflite = "GELU",
                                  .on_floats = [](double a, double) { return 0.5 * a * std::erfc(-a * 0.7071067811865476); },
                                  // erf by Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7.
                                  .text = R"(
    let z = abs(a) * V(0.70710678);
    let t = V(1) / (V(1) + V(0.3275911) * z);
    let series = t * (V(0.254829592) + t * (V(-0.284496736) + t * (V(1.421413741) + t * (V(-1.453152027) + t * V(1.061405429)))));
    let tail = V(0.5) * series * exp(-z * z);
    return a * select(V(1) - tail, tail, a < V(0));)",
                                  .zero_to_zero = true};
constexpr UnaryRule kGeluTanh = {
    .name = "gelu",
    .tflite = "GELU",
    .on_floats = [](double a, double) { return 0.5 * a * (1 + std::tanh(kSqrt2OverPi * (a + 0.044715 * a * a * a))); },
    .text = R"(
    let inner = V(0.7978845608) * (a + V(0.044715) * a * a * a);
    return V(0.5) * a * (V(1) + tanh(clamp(inner, V(-15), V(15))));)",
    .zero_to_zero = true};

constexpr UnaryRule kSilu = {.name = "silu",
                             .tflite = nullptr,
                             .on_floats = [](double a, double) { return a / (1 + std::exp(-a)); },
                             .text = "return a / (V(1) + exp(min(-a, V(87))));",
                             .zero_to_zero = true};

const UnaryRule& GeluRule(const OpCall& call) { return call.attrs.GetBool("approximate") ? kGeluTanh : kGeluExact; }

const AttrField kLeakyReluAttrs[] = {{"alpha", 0.0, "Factor for negative values."}};
const AttrField kGeluAttrs[] = {{"approximate", false, "By tanh instead of the error function."}};

}  // namespace

extern const OpDef op_relu = UnaryOp<kRelu>();
extern const OpDef op_relu6 = UnaryOp<kRelu6>();
extern const OpDef op_relu_n1_to_1 = UnaryOp<kReluN1To1>();
extern const OpDef op_relu_0_to_1 = UnaryOp<kRelu0To1>();
extern const OpDef op_leaky_relu = UnaryOp<kLeakyRelu>(kLeakyReluAttrs);
extern const OpDef op_elu = UnaryOp<kElu>();
extern const OpDef op_hard_swish = UnaryOp<kHardSwish>();
extern const OpDef op_logistic = UnaryOp<kLogistic>();
extern const OpDef op_tanh = UnaryOp<kTanh>();
extern const OpDef op_gelu = {
    .name = "gelu",
    .attrs = kGeluAttrs,
    .infer = [](const OpCall& call) { return InferUnary(GeluRule(call), call); },
    .reference = [](const OpCall& call, std::span<const HostTensor> inputs,
                    std::span<HostTensor> outputs) { return UnaryReference(GeluRule(call), call, inputs, outputs); },
    .value_map = [](const OpCall& call, int chained) { return UnaryValueMap(GeluRule(call), call, chained); },
    .tflite = {&kGeluExact.tflite, 1}};

extern const OpDef op_silu = {
    .name = "silu",
    .infer = [](const OpCall& call) { return InferUnary(kSilu, call); },
    .reference = [](const OpCall& call, std::span<const HostTensor> inputs,
                    std::span<HostTensor> outputs) { return UnaryReference(kSilu, call, inputs, outputs); },
    .value_map = [](const OpCall& call, int chained) { return UnaryValueMap(kSilu, call, chained); }};

}  // namespace leeway
