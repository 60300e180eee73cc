#include "shader/constants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/strings.h"
#include "tensor/dtype.h"

namespace leeway::shader {

namespace {

bool IsFloatScalar(Scalar s) { return s == Scalar::kF32 || s == Scalar::kF16 || s == Scalar::kAbstractFloat; }

Folded Wrong(std::string message) { return {std::nullopt, std::move(message)}; }
Folded Value(Literal value) { return {value, {}}; }

// A float result in type `type`: rounded, and finite.
Folded Float(double value, Scalar type) {
  if (type == Scalar::kF32) value = float(value);
  if (type == Scalar::kF16) value = F16ToF32(F32ToF16(float(value)));
  if (!std::isfinite(value)) return Wrong(StrCat("the result is not a finite ", ScalarName(type)));
  return Value(FloatLiteral(value));
}

// An integer result: i32 and u32 wrap around, abstract ones are in range.
Folded Int(int64_t value, Scalar type) {
  if (type == Scalar::kI32) return Value(IntLiteral(int32_t(uint32_t(uint64_t(value)))));
  if (type == Scalar::kU32) return Value(IntLiteral(uint32_t(uint64_t(value))));
  return Value(IntLiteral(value));
}

Folded IntBinary(std::string_view op, Scalar type, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op[0]) {
    case '+': overflow = __builtin_add_overflow(a, b, &result); break;
    case '-': overflow = __builtin_sub_overflow(a, b, &result); break;
    case '*':
      // The product of two u32 needs 64 unsigned bits; only the low 32 count.
      overflow = __builtin_mul_overflow(a, b, &result) && type == Scalar::kAbstractInt;
      break;
    case '/':
    case '%':
      if (b == 0) return Wrong(op[0] == '/' ? "division by zero" : "remainder of a division by zero");
      if (b == -1 && a == (type == Scalar::kI32 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min())) {
        return Wrong("the quotient is out of range");
      }
      result = op[0] == '/' ? a / b : a % b;
      break;
    case '&': result = a & b; break;
    case '|': result = a | b; break;
    case '^': result = a ^ b; break;
    case '<':
    case '>': {
      int64_t bits = type == Scalar::kAbstractInt ? 64 : 32;
      if (b < 0 || b >= bits) return Wrong(StrCat("a shift by ", b, " bits; there are ", bits));
      if (op[0] == '>')
        result = a >> b;
      else
        result = int64_t(uint64_t(a) << b);
      break;
    }
    default: return {};
  }
  if (overflow && type == Scalar::kAbstractInt) return Wrong("the result is out of the range of 64-bit integers");
  return Int(result, type);
}

template <class T>
Folded Compare(std::string_view op, T a, T b) {
  bool result = op == "=="   ? a == b
                : op == "!=" ? a != b
                : op == "<"  ? a < b
                : op == "<=" ? a <= b
                : op == ">"  ? a > b
                             : a >= b;
  return Value(BoolLiteral(result));
}

bool IsComparison(std::string_view op) {
  return op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
}

}  // namespace

Literal BoolLiteral(bool value) {
  Literal literal;
  literal.is_bool = true;
  literal.i = value;
  return literal;
}
Literal IntLiteral(int64_t value) {
  Literal literal;
  literal.i = value;
  return literal;
}
Literal FloatLiteral(double value) {
  Literal literal;
  literal.is_float = true;
  literal.f = value;
  return literal;
}

Folded FoldUnary(std::string_view op, Scalar type, const Literal& operand) {
  if (op == "!") return Value(BoolLiteral(!operand.i));
  if (op == "~") return Int(~operand.i, type);
  if (op == "-") {
    if (IsFloatScalar(type)) return Value(FloatLiteral(-operand.f));
    if (type == Scalar::kAbstractInt) return IntBinary("-", type, 0, operand.i);
    return Int(int64_t(0 - uint64_t(operand.i)), type);
  }
  return {};
}

Folded FoldBinary(std::string_view op, Scalar type, const Literal& left, const Literal& right) {
  if (type == Scalar::kBool) {
    if (op == "&&" || op == "&") return Value(BoolLiteral(left.i && right.i));
    if (op == "||" || op == "|") return Value(BoolLiteral(left.i || right.i));
    if (op == "^") return Value(BoolLiteral(left.i != right.i));
    return Compare(op, left.i, right.i);
  }
  if (IsFloatScalar(type)) {
    double a = left.f, b = right.f;
    if (IsComparison(op)) return Compare(op, a, b);
    // One operation on floats in double and then rounded is the operation in float (53 > 2 * 24 + 2 bits).
    switch (op[0]) {
      case '+': return Float(a + b, type);
      case '-': return Float(a - b, type);
      case '*': return Float(a * b, type);
      case '/': return b == 0 ? Wrong("division by zero") : Float(a / b, type);
      case '%': return b == 0 ? Wrong("remainder of a division by zero") : Float(std::fmod(a, b), type);
      default: return {};
    }
  }
  if (IsComparison(op)) return Compare(op, left.i, right.i);
  return IntBinary(op, type, left.i, right.i);
}

Folded FoldConvert(const Literal& value, Scalar from, Scalar to) {
  if (to == Scalar::kBool) return Value(BoolLiteral(IsFloatScalar(from) ? value.f != 0 : value.i != 0));
  if (IsFloatScalar(to)) return Float(IsFloatScalar(from) ? value.f : double(value.i), to);
  if (IsFloatScalar(from)) {
    // Towards zero and saturating, as WGSL says.
    double low = to == Scalar::kU32 ? 0.0 : -2147483648.0, high = to == Scalar::kU32 ? 4294967295.0 : 2147483647.0;
    return Value(IntLiteral(int64_t(std::clamp(std::trunc(value.f), low, high))));
  }
  if (from == Scalar::kAbstractInt) return FoldImplicit(value, to);
  return Int(value.i, to);
}

Folded FoldImplicit(const Literal& value, Scalar to) {
  if (to == Scalar::kBool) return Value(BoolLiteral(value.i != 0));
  if (IsFloatScalar(to)) {
    double v = value.is_float ? value.f : double(value.i);
    Folded result = Float(v, to);
    if (!result.value) result.error = StrCat("the value ", v, " is out of the range of ", ScalarName(to));
    return result;
  }
  int64_t low = to == Scalar::kU32 ? 0 : to == Scalar::kI32 ? -2147483648ll : std::numeric_limits<int64_t>::min();
  int64_t high = to == Scalar::kU32 ? 4294967295ll : to == Scalar::kI32 ? 2147483647ll : std::numeric_limits<int64_t>::max();
  if (value.i < low || value.i > high) return Wrong(StrCat("the value ", value.i, " is out of the range of ", ScalarName(to)));
  return Value(IntLiteral(value.i));
}

Folded FoldBitcast(const Literal& value, Scalar from, Scalar to) {
  uint32_t bits;
  if (from == Scalar::kF32)
    bits = std::bit_cast<uint32_t>(float(value.f));
  else if (from == Scalar::kF16)
    return from == to ? Value(value) : Folded{};
  else
    bits = uint32_t(uint64_t(value.i));
  if (to == Scalar::kF32) {
    float f = std::bit_cast<float>(bits);
    // NaN and infinity are no constants, but bits of them may be wanted at run time.
    if (!std::isfinite(f)) return Wrong("the bits are not those of a finite f32");
    return Value(FloatLiteral(f));
  }
  if (to == Scalar::kI32) return Value(IntLiteral(int32_t(bits)));
  if (to == Scalar::kU32) return Value(IntLiteral(bits));
  return {};
}

Folded FoldBuiltin(Builtin builtin, Scalar type, std::span<const Literal> a) {
  if (builtin == Builtin::kSelect) return Value(a[2].i ? a[1] : a[0]);
  if (builtin == Builtin::kAll || builtin == Builtin::kAny) return Value(a[0]);
  if (IsFloatScalar(type)) {
    double x = a[0].f, y = a.size() > 1 ? a[1].f : 0, z = a.size() > 2 ? a[2].f : 0;
    switch (builtin) {
      case Builtin::kAbs: return Float(std::abs(x), type);
      case Builtin::kMin: return Float(std::min(x, y), type);
      case Builtin::kMax: return Float(std::max(x, y), type);
      case Builtin::kClamp:
        return y > z ? Wrong("clamp with a lower limit above the upper one") : Float(std::clamp(x, y, z), type);
      case Builtin::kSign: return Float(x > 0 ? 1 : x < 0 ? -1 : 0, type);
      case Builtin::kAcos: return std::abs(x) > 1 ? Wrong("acos of a value outside -1 to 1") : Float(std::acos(x), type);
      case Builtin::kAsin: return std::abs(x) > 1 ? Wrong("asin of a value outside -1 to 1") : Float(std::asin(x), type);
      case Builtin::kAtan: return Float(std::atan(x), type);
      case Builtin::kAtan2: return Float(std::atan2(x, y), type);
      case Builtin::kCeil: return Float(std::ceil(x), type);
      case Builtin::kFloor: return Float(std::floor(x), type);
      case Builtin::kTrunc: return Float(std::trunc(x), type);
      case Builtin::kRound: return Float(std::nearbyint(x), type);
      case Builtin::kFract: return Float(x - std::floor(x), type);
      case Builtin::kSaturate: return Float(std::clamp(x, 0.0, 1.0), type);
      case Builtin::kSin: return Float(std::sin(x), type);
      case Builtin::kCos: return Float(std::cos(x), type);
      case Builtin::kTan: return Float(std::tan(x), type);
      case Builtin::kSinh: return Float(std::sinh(x), type);
      case Builtin::kCosh: return Float(std::cosh(x), type);
      case Builtin::kTanh: return Float(std::tanh(x), type);
      case Builtin::kExp: return Float(std::exp(x), type);
      case Builtin::kExp2: return Float(std::exp2(x), type);
      case Builtin::kLog: return x <= 0 ? Wrong("log of a value that is not positive") : Float(std::log(x), type);
      case Builtin::kLog2: return x <= 0 ? Wrong("log2 of a value that is not positive") : Float(std::log2(x), type);
      case Builtin::kSqrt: return x < 0 ? Wrong("sqrt of a negative value") : Float(std::sqrt(x), type);
      case Builtin::kInverseSqrt:
        return x <= 0 ? Wrong("inverseSqrt of a value that is not positive") : Float(1 / std::sqrt(x), type);
      case Builtin::kPow: return Float(std::pow(x, y), type);
      case Builtin::kFma: return Float(std::fma(x, y, z), type);
      case Builtin::kMix: return Float(x * (1 - z) + y * z, type);
      case Builtin::kStep: return Float(y >= x ? 1 : 0, type);
      case Builtin::kQuantizeToF16: return Float(F16ToF32(F32ToF16(float(x))), type);
      default: return {};  // left to run time
    }
  }
  int64_t x = a[0].i, y = a.size() > 1 ? a[1].i : 0, z = a.size() > 2 ? a[2].i : 0;
  uint32_t bits = uint32_t(uint64_t(x));
  switch (builtin) {
    case Builtin::kAbs: return type == Scalar::kU32 ? Value(a[0]) : Int(x < 0 ? int64_t(0 - uint64_t(x)) : x, type);
    case Builtin::kMin: return Int(std::min(x, y), type);
    case Builtin::kMax: return Int(std::max(x, y), type);
    case Builtin::kClamp: return y > z ? Wrong("clamp with a lower limit above the upper one") : Int(std::clamp(x, y, z), type);
    case Builtin::kSign: return Int(x > 0 ? 1 : x < 0 ? -1 : 0, type);
    case Builtin::kCountOneBits: return type == Scalar::kAbstractInt ? Folded{} : Int(std::popcount(bits), type);
    case Builtin::kCountLeadingZeros: return type == Scalar::kAbstractInt ? Folded{} : Int(std::countl_zero(bits), type);
    case Builtin::kCountTrailingZeros: return type == Scalar::kAbstractInt ? Folded{} : Int(std::countr_zero(bits), type);
    case Builtin::kFirstTrailingBit:
      return type == Scalar::kAbstractInt ? Folded{} : Int(bits == 0 ? -1 : std::countr_zero(bits), type);
    case Builtin::kFirstLeadingBit:
      if (type == Scalar::kU32) return Int(bits == 0 ? -1 : 31 - std::countl_zero(bits), type);
      return {};
    default: return {};
  }
}

}  // namespace leeway::shader
