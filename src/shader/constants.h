// Arithmetic at compile time, as WGSL defines it for constant expressions. A Literal of a concrete type is always in range of
// it: i32 and u32 as their value, f32 and f16 rounded.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shader/ast.h"
#include "shader/builtins.h"

namespace leeway::shader {

struct Folded {
  std::optional<Literal> value;
  std::string error;  // set: the expression is wrong, as a division by zero is; neither: not known at compile time
};

Literal BoolLiteral(bool value);
Literal IntLiteral(int64_t value);
Literal FloatLiteral(double value);

// `op` as in Expr::op. `type` is the common scalar type of the operands; of the left one for shifts.
Folded FoldUnary(std::string_view op, Scalar type, const Literal& operand);
Folded FoldBinary(std::string_view op, Scalar type, const Literal& left, const Literal& right);
Folded FoldBuiltin(Builtin builtin, Scalar type, std::span<const Literal> arguments);
// What `to(x)` gives for an x of scalar type `from`: f32(1u), u32(2.5), bool(0).
Folded FoldConvert(const Literal& value, Scalar from, Scalar to);
// The value of an abstract literal as a value of type `to`; an error where it is not in range. Concrete literals round.
Folded FoldImplicit(const Literal& value, Scalar to);
Folded FoldBitcast(const Literal& value, Scalar from, Scalar to);

}  // namespace leeway::shader
