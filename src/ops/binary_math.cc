// Functions of two numbers, element by element, with numpy's broadcasting.
#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace leeway {
namespace {

constexpr BinaryRule kAdd = {.name = "add",
                             .tflite = "ADD",
                             .on_floats = [](double a, double b) { return a + b; },
                             .on_integers = [](int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); },
                             .text = "return a + b;"};
constexpr BinaryRule kSub = {.name = "sub",
                             .tflite = "SUB",
                             .on_floats = [](double a, double b) { return a - b; },
                             .on_integers = [](int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); },
                             .text = "return a - b;"};
constexpr BinaryRule kMul = {.name = "mul",
                             .tflite = "MUL",
                             .on_floats = [](double a, double b) { return a * b; },
                             .on_integers = [](int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); },
                             .text = "return a * b;"};
// An integer divisor of zero, which only lanes beyond the edge of a tensor should have, counts as 1.
constexpr BinaryRule kDiv = {.name = "div",
                             .tflite = "DIV",
                             .on_floats = [](double a, double b) { return a / b; },
                             .on_integers = [](int64_t a, int64_t b) { return b == 0 ? a : a / b; },
                             .text = "return a / b;",
                             .integer_text = "return a / select(b, V(1), b == V(0));"};
constexpr BinaryRule kMaximum = {.name = "maximum",
                                 .tflite = "MAXIMUM",
                                 .on_floats = [](double a, double b) { return std::max(a, b); },
                                 .on_integers = [](int64_t a, int64_t b) { return std::max(a, b); },
                                 .text = "return max(a, b);"};
constexpr BinaryRule kMinimum = {.name = "minimum",
                                 .tflite = "MINIMUM",
                                 .on_floats = [](double a, double b) { return std::min(a, b); },
                                 .on_integers = [](int64_t a, int64_t b) { return std::min(a, b); },
                                 .text = "return min(a, b);"};
constexpr BinaryRule kSquaredDifference = {.name = "squared_difference",
                                           .tflite = "SQUARED_DIFFERENCE",
                                           .on_floats = [](double a, double b) { return (a - b) * (a - b); },
                                           .on_integers = [](int64_t a, int64_t b) { return (a - b) * (a - b); },
                                           .text = "return (a - b) * (a - b);"};

int64_t FloorDiv(int64_t a, int64_t b) {
  if (b == 0) return a;
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}
int64_t FloorMod(int64_t a, int64_t b) { return b == 0 ? 0 : a - FloorDiv(a, b) * b; }

constexpr BinaryRule kFloorDiv = {.name = "floor_div",
                                  .tflite = "FLOOR_DIV",
                                  .on_floats = [](double a, double b) { return std::floor(a / b); },
                                  .on_integers = FloorDiv,
                                  .text = "return floor(a / b);",
                                  .integer_text = R"(
    let divisor = select(b, V(1), b == V(0));
    let quotient = a / divisor;
    let remainder = a - quotient * divisor;
    return select(quotient, quotient - V(1), (remainder != V(0)) & ((remainder < V(0)) != (divisor < V(0))));)"};
constexpr BinaryRule kFloorMod = {.name = "floor_mod",
                                  .tflite = "FLOOR_MOD",
                                  .on_floats =
                                      [](double a, double b) {
                                        const double r = std::fmod(a, b);
                                        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
                                      },
                                  .on_integers = FloorMod,
                                  .text = R"(
    let remainder = a - trunc(a / b) * b;
    return select(remainder, remainder + b, (remainder != V(0)) & ((remainder < V(0)) != (b < V(0))));)",
                                  .integer_text = R"(
    let divisor = select(b, V(1), b == V(0));
    let remainder = a - (a / divisor) * divisor;
    return select(remainder, remainder + divisor, (remainder != V(0)) & ((remainder < V(0)) != (divisor < V(0))));)"};

int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1, factor = uint64_t(base);
  for (; exponent > 0; exponent /= 2, factor *= factor) {
    if (exponent % 2 == 1) result *= factor;
  }
  return int64_t(result);
}

constexpr BinaryRule kPow = {.name = "pow",
                             .tflite = "POW",
                             .on_floats = [](double a, double b) { return std::pow(a, b); },
                             .on_integers = IntegerPower,
                             // The language's pow has no negative bases: their sign comes from the exponent's parity. A
                             // fractional exponent of a negative base gives NaN, by the square root of a negative number.
                             .text = R"(
    let magnitude = pow(abs(a), b);
    let whole = floor(b) == b;
    let odd = floor(b * V(0.5)) * V(2) != b;
    let negative = select(sqrt(min(a, V(0))), select(magnitude, -magnitude, odd), whole);
    return select(select(magnitude, negative, a < V(0)), V(1), b == V(0));)",
                             // Small enough for f32 to be exact, or rounded as f32 arithmetic rounds.
                             .integer_text = R"(
    var result = V(1);
    var factor = a;
    var exponent = max(b, V(0));
    for (var i = 0u; i < 31u; i++) {
      result = select(result, result * factor, (exponent & V(1)) != V(0));
      factor = factor * factor;
      exponent = exponent / V(2);
    }
    let sign = select(V(1), V(-1), (b & V(1)) != V(0));
    let inverse = select(select(V(0), sign, a == V(-1)), V(1), a == V(1));
    return select(result, inverse, b < V(0));)"};
constexpr BinaryRule kAtan2 = {.name = "atan2",
                               .tflite = "ATAN2",
                               .on_floats = [](double a, double b) { return std::atan2(a, b); },
                               .text = "return atan2(a, b);"};

}  // namespace

extern const OpDef op_add = BinaryOp<kAdd>();
extern const OpDef op_sub = BinaryOp<kSub>();
extern const OpDef op_mul = BinaryOp<kMul>();
extern const OpDef op_div = BinaryOp<kDiv>();
extern const OpDef op_maximum = BinaryOp<kMaximum>();
extern const OpDef op_minimum = BinaryOp<kMinimum>();
extern const OpDef op_squared_difference = BinaryOp<kSquaredDifference>();
extern const OpDef op_floor_div = BinaryOp<kFloorDiv>();
extern const OpDef op_floor_mod = BinaryOp<kFloorMod>();
extern const OpDef op_pow = BinaryOp<kPow>();
extern const OpDef op_atan2 = BinaryOp<kAtan2>();

}  // namespace leeway
