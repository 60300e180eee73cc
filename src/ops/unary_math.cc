// Functions of one number, element by element. Each runs as a value map: melted into its producer, or as a copy that applies
// it.
#include <cmath>

#include "ops/elementwise.h"

namespace leeway {
namespace {

constexpr UnaryRule kAbs = {.name = "abs",
                            .tflite = "ABS",
                            .on_floats = [](double a, double) { return std::fabs(a); },
                            .on_integers = [](int64_t a) { return a < 0 ? -a : a; },
                            .text = "return abs(a);",
                            .zero_to_zero = true};
constexpr UnaryRule kNeg = {.name = "neg",
                            .tflite = "NEG",
                            .on_floats = [](double a, double) { return -a; },
                            .on_integers = [](int64_t a) { return -a; },
                            .text = "return -a;",
                            .zero_to_zero = true};
constexpr UnaryRule kSign = {.name = "sign",
                             .tflite = "SIGN",
                             .on_floats = [](double a, double) { return a > 0   ? 1.0
                                                                        : a < 0 ? -1.0
                                                                                : a; },
                             .on_integers = [](int64_t a) { return int64_t(a > 0) - int64_t(a < 0); },
                             .text = "return sign(a);",
                             .zero_to_zero = true};
constexpr UnaryRule kSqrt = {.name = "sqrt",
                             .tflite = "SQRT",
                             .on_floats = [](double a, double) { return std::sqrt(a); },
                             .text = "return sqrt(a);",
                             .zero_to_zero = true};
constexpr UnaryRule kRsqrt = {.name = "rsqrt",
                              .tflite = "RSQRT",
                              .on_floats = [](double a, double) { return 1 / std::sqrt(a); },
                              .text = "return inverseSqrt(a);"};
constexpr UnaryRule kSquare = {.name = "square",
                               .tflite = "SQUARE",
                               .on_floats = [](double a, double) { return a * a; },
                               .text = "return a * a;",
                               .zero_to_zero = true};
constexpr UnaryRule kExp = {
    .name = "exp", .tflite = "EXP", .on_floats = [](double a, double) { return std::exp(a); }, .text = "return exp(a);"};
constexpr UnaryRule kLog = {
    .name = "log", .tflite = "LOG", .on_floats = [](double a, double) { return std::log(a); }, .text = "return log(a);"};
constexpr UnaryRule kSin = {.name = "sin",
                            .tflite = "SIN",
                            .on_floats = [](double a, double) { return std::sin(a); },
                            .text = "return sin_precise(a);",
                            .zero_to_zero = true};
constexpr UnaryRule kCos = {.name = "cos",
                            .tflite = "COS",
                            .on_floats = [](double a, double) { return std::cos(a); },
                            .text = "return cos_precise(a);"};
constexpr UnaryRule kFloor = {.name = "floor",
                              .tflite = "FLOOR",
                              .on_floats = [](double a, double) { return std::floor(a); },
                              .text = "return floor(a);",
                              .zero_to_zero = true};
constexpr UnaryRule kCeil = {.name = "ceil",
                             .tflite = "CEIL",
                             .on_floats = [](double a, double) { return std::ceil(a); },
                             .text = "return ceil(a);",
                             .zero_to_zero = true};
// Halves go to the even neighbour.
constexpr UnaryRule kRound = {.name = "round",
                              .tflite = "ROUND",
                              .on_floats = [](double a, double) { return std::nearbyint(a); },
                              .text = "return round(a);",
                              .zero_to_zero = true};
constexpr UnaryRule kZerosLike = {.name = "zeros_like",
                                  .tflite = "ZEROS_LIKE",
                                  .on_floats = [](double, double) { return 0.0; },
                                  .on_integers = [](int64_t) { return int64_t{0}; },
                                  .text = "return V(0);",
                                  .zero_to_zero = true};

}  // namespace

extern const OpDef op_abs = UnaryOp<kAbs>();
extern const OpDef op_neg = UnaryOp<kNeg>();
extern const OpDef op_sign = UnaryOp<kSign>();
extern const OpDef op_sqrt = UnaryOp<kSqrt>();
extern const OpDef op_rsqrt = UnaryOp<kRsqrt>();
extern const OpDef op_square = UnaryOp<kSquare>();
extern const OpDef op_exp = UnaryOp<kExp>();
extern const OpDef op_log = UnaryOp<kLog>();
extern const OpDef op_sin = UnaryOp<kSin>();
extern const OpDef op_cos = UnaryOp<kCos>();
extern const OpDef op_floor = UnaryOp<kFloor>();
extern const OpDef op_ceil = UnaryOp<kCeil>();
extern const OpDef op_round = UnaryOp<kRound>();
extern const OpDef op_zeros_like = UnaryOp<kZerosLike>();

}  // namespace leeway
