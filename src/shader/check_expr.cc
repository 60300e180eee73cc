#include <algorithm>

#include "base/strings.h"
#include "shader/check.h"
#include "shader/prelude.h"
#include "shader/quantized.h"

namespace leeway::shader {

namespace {

bool IsAbstractScalar(Scalar s) { return s == Scalar::kAbstractInt || s == Scalar::kAbstractFloat; }
bool IsFloatScalar(Scalar s) { return s == Scalar::kF32 || s == Scalar::kF16 || s == Scalar::kAbstractFloat; }
bool IsIntScalar(Scalar s) { return s == Scalar::kI32 || s == Scalar::kU32 || s == Scalar::kAbstractInt; }

// May an abstract number become a `to`?
bool IsConvertible(Scalar from, Scalar to) {
  if (from == to) return true;
  if (from == Scalar::kAbstractInt) return to != Scalar::kBool;
  return from == Scalar::kAbstractFloat && (to == Scalar::kF32 || to == Scalar::kF16);
}

Type WithScalar(const Type& type, Scalar scalar) {
  Type result = type;
  if (type.kind == Type::Kind::kArray) {
    result.element = std::make_shared<const Type>(WithScalar(*type.element, scalar));
  } else {
    result.scalar = scalar;
  }
  return result;
}

Scalar InnerScalar(const Type& type) { return type.kind == Type::Kind::kArray ? InnerScalar(*type.element) : type.scalar; }

// The components of a constant scalar or vector, one literal each; empty: not constant.
std::vector<Literal> Components(const Expr& expr) {
  if (expr.kind == ExprKind::kLiteral) return {expr.literal};
  if (expr.kind != ExprKind::kConstruct || !expr.type.IsVector()) return {};
  std::vector<Literal> components;
  for (const ExprPtr& arg : expr.args) {
    if (arg->kind != ExprKind::kLiteral || arg->type.scalar != expr.type.scalar) return {};
    components.push_back(arg->literal);
  }
  if (components.empty()) {
    Literal zero = IsFloatScalar(expr.type.scalar)     ? FloatLiteral(0)
                   : expr.type.scalar == Scalar::kBool ? BoolLiteral(false)
                                                       : IntLiteral(0);
    components.push_back(zero);
  }
  if (components.size() == 1) components.resize(expr.type.rows, components[0]);
  return components.size() == expr.type.rows ? components : std::vector<Literal>{};
}

uint8_t SetOf(Scalar scalar) {
  switch (scalar) {
    case Scalar::kBool: return BuiltinInfo::kB;
    case Scalar::kI32: return BuiltinInfo::kI;
    case Scalar::kU32: return BuiltinInfo::kU;
    case Scalar::kF32:
    case Scalar::kF16:
    case Scalar::kAbstractFloat: return BuiltinInfo::kF;
    case Scalar::kAbstractInt: return BuiltinInfo::kI | BuiltinInfo::kU;
  }
  return 0;
}

std::string TypesOf(const std::vector<ExprPtr>& args) {
  std::string text = "(";
  for (size_t i = 0; i < args.size(); ++i) text += StrCat(i ? ", " : "", args[i]->type.ToString());
  return text + ")";
}

const char* SetText(uint8_t set) {
  constexpr uint8_t F = BuiltinInfo::kF, I = BuiltinInfo::kI, U = BuiltinInfo::kU, B = BuiltinInfo::kB;
  switch (set) {
    case F: return "floats";
    case F | I: return "floats or i32";
    case I | U: return "integers";
    case F | I | U: return "numbers";
    case F | I | U | B: return "numbers or bools";
    default: return "values";
  }
}

}  // namespace

bool Checker::Check(ExprPtr& expr) {
  switch (expr->kind) {
    case ExprKind::kLiteral:
      if (expr->type.IsScalar(Scalar::kI32) && expr->literal.i > 0x7FFFFFFF) {
        return Fail(expr->at, StrCat("the value ", expr->literal.i, " is out of the range of i32"));
      }
      expr->constant = expr->literal;
      return NeedScalar(expr->type.scalar, expr->at);
    case ExprKind::kName: return CheckName(expr);
    case ExprKind::kUnary: return CheckUnary(expr);
    case ExprKind::kBinary: return CheckBinary(expr);
    case ExprKind::kIndex: return CheckIndex(expr);
    case ExprKind::kMember: return CheckMember(expr);
    case ExprKind::kCall: return CheckCall(expr);
    case ExprKind::kConstruct: return CheckConstruct(expr);
    case ExprKind::kBitcast: return CheckBitcast(expr);
    case ExprKind::kTensorCall: return CheckTensorCall(expr);
  }
  return false;
}

bool Checker::NeedValue(const Expr& expr) {
  switch (expr.type.kind) {
    case Type::Kind::kVoid:
      return Fail(expr.at, StrCat("`", expr.kind == ExprKind::kTensorCall ? expr.method : expr.name, "` gives no value"));
    case Type::Kind::kPointer: return Fail(expr.at, "this is a pointer; write `*` before it to get what it points to");
    default:
      if (ContainsAtomic(expr.type)) {
        return Fail(expr.at, StrCat("the value of a ", expr.type.ToString(), " is read with atomicLoad"));
      }
      return true;
  }
}

bool Checker::CheckValue(ExprPtr& expr) { return Check(expr) && NeedValue(*expr); }
bool Checker::CheckConcrete(ExprPtr& expr) { return CheckValue(expr) && Default(expr); }

bool Checker::CheckCondition(ExprPtr& expr, std::string_view of) {
  if (!CheckValue(expr)) return false;
  if (expr->type.IsScalar(Scalar::kBool)) return true;
  return Fail(expr->at, StrCat("the condition of `", of, "` is a bool, got ", expr->type.ToString()));
}

void Checker::ReplaceByLiteral(Expr& expr, const Literal& value, Scalar type) {
  expr.kind = ExprKind::kLiteral;
  expr.literal = value;
  expr.constant = value;
  expr.type = Type::Of(type);
  expr.name.clear();
  expr.method.clear();
  expr.op.clear();
  expr.args.clear();
  expr.builtin = 0;
  expr.symbol = Symbol::kNone;
}

bool Checker::Fold(ExprPtr& expr, const Folded& folded, Scalar type) {
  if (!folded.error.empty()) return Fail(expr->at, folded.error);
  if (folded.value) ReplaceByLiteral(*expr, *folded.value, type);
  return true;
}

// A vector operation on constants becomes a vector of constants. `builtin` for calls.
bool Checker::FoldComponents(ExprPtr& expr, Builtin builtin) {
  if (!expr->type.IsVector()) return true;
  size_t rows = expr->type.rows;
  std::vector<std::vector<Literal>> args;
  for (const ExprPtr& arg : expr->args) {
    args.push_back(Components(*arg));
    if (args.back().empty()) return true;
    if (args.back().size() == 1) args.back().resize(rows, args.back()[0]);
    if (args.back().size() != rows) return true;
  }
  std::vector<Literal> results;
  Scalar type = expr->args[0]->type.scalar;
  for (size_t i = 0; i < rows; ++i) {
    std::vector<Literal> one;
    for (const auto& arg : args) one.push_back(arg[i]);
    Folded folded = expr->kind == ExprKind::kUnary    ? FoldUnary(expr->op, type, one[0])
                    : expr->kind == ExprKind::kBinary ? FoldBinary(expr->op, type, one[0], one[1])
                                                      : FoldBuiltin(builtin, type, one);
    if (!folded.error.empty()) return Fail(expr->at, folded.error);
    if (!folded.value) return true;
    results.push_back(*folded.value);
  }
  Type result = expr->type;
  auto made = std::make_unique<Expr>();
  made->kind = ExprKind::kConstruct;
  made->at = expr->at;
  made->type = result;
  for (const Literal& component : results) {
    auto one = std::make_unique<Expr>();
    one->at = expr->at;
    ReplaceByLiteral(*one, component, result.scalar);
    made->args.push_back(std::move(one));
  }
  expr = std::move(made);
  return true;
}

// ---- Conversions of abstract numbers ------------------------------------------------------------------------------------

// Everything abstract below `expr` gets the scalar type `to`. Abstract scalars are always literals by now.
bool Checker::Concretize(Expr& expr, Scalar to) {
  if (!expr.type.IsAbstract()) return true;
  if (expr.kind == ExprKind::kLiteral) {
    if (!NeedScalar(to, expr.at)) return false;
    Folded value = FoldImplicit(expr.literal, to);
    if (!value.value) return Fail(expr.at, value.error);
    ReplaceByLiteral(expr, *value.value, to);
    return true;
  }
  expr.type = WithScalar(expr.type, to);
  for (ExprPtr& arg : expr.args) {
    if (!Concretize(*arg, to)) return false;
  }
  return true;
}

bool Checker::Default(ExprPtr& expr) {
  if (!expr->type.IsAbstract()) return true;
  return Concretize(*expr, InnerScalar(expr->type) == Scalar::kAbstractInt ? Scalar::kI32 : Scalar::kF32);
}

bool Checker::Convert(ExprPtr& expr, const Type& to, std::string_view what, std::string_view name) {
  if (expr->type == to) return true;
  if (expr->type.IsAbstract() && IsConvertible(InnerScalar(expr->type), InnerScalar(to)) &&
      WithScalar(expr->type, InnerScalar(to)) == to) {
    return Concretize(*expr, InnerScalar(to));
  }
  Type got = expr->type;
  return Fail(expr->at, StrCat(what, name, " is ", to.ToString(), ", got ", got.ToString()));
}

bool Checker::Unify(std::vector<ExprPtr*> args, Location at, std::string_view what, Scalar& scalar) {
  scalar = (*args[0])->type.scalar;
  bool fits = true;
  for (ExprPtr* arg : args) {
    Scalar other = (*arg)->type.scalar;
    if (IsAbstractScalar(scalar) && IsConvertible(scalar, other)) scalar = other;
    fits = fits && (IsConvertible(other, scalar) || IsConvertible(scalar, other));
  }
  for (ExprPtr* arg : args) fits = fits && IsConvertible((*arg)->type.scalar, scalar);
  if (!fits) {
    std::string types;
    for (ExprPtr* arg : args)
      types += StrCat(types.empty() ? "" : arg == args.back() ? " and " : ", ", (*arg)->type.ToString());
    return Fail(at, StrCat(what, " have one scalar type, got ", types));
  }
  for (ExprPtr* arg : args) {
    if ((*arg)->type.scalar != scalar && !Concretize(**arg, scalar)) return false;
  }
  return true;
}

// ---- Names, references, pointers ----------------------------------------------------------------------------------------

bool Checker::CheckName(ExprPtr& expr) {
  if (Local* local = FindLocal(expr->name)) {
    if (local->constant) {
      Location at = expr->at;
      if (local->constant->type.IsScalar()) {
        expr = Clone(*local->constant);
        expr->at = at;
        return true;
      }
    }
    if (local->pointer_target) {
      auto address = std::make_unique<Expr>();
      address->kind = ExprKind::kUnary;
      address->op = "&";
      address->at = expr->at;
      address->type = local->type;
      address->args.push_back(Clone(*local->pointer_target));
      expr = std::move(address);
      return true;
    }
    expr->name = local->unique;
    expr->type = local->type;
    expr->symbol = local->symbol;
    return true;
  }
  const Global* global = FindGlobal(expr->name);
  if (!global) {
    auto known = known_.find(expr->name);
    bool is_unit = expr->name.substr(0, 5) == "unit_";
    if (known != known_.end() && (!is_unit || (frame_ && frame_->is_prelude))) {
      bool is_bool = expr->name == "has_f16" || expr->name == "is_software" || expr->name.substr(0, 8) == "unit_is_";
      ReplaceByLiteral(*expr, is_bool ? BoolLiteral(known->second != 0) : IntLiteral(int64_t(known->second)),
                       is_bool ? Scalar::kBool : Scalar::kU32);
      return true;
    }
    if (frame_ && frame_->is_prelude && !is_unit) return Fail(expr->at, StrCat("the prelude has no `", expr->name, "`"));
    if (frame_ && frame_->is_prelude) {
      const VarDecl* source = FindPreludeVar(expr->name);
      if (!source) { return Fail(expr->at, StrCat("`", expr->name, "` exists in kernels only, not in a value map")); }
      VarDecl var;
      var.space = source->space;
      var.type = source->type;
      var.at = expr->at;
      if (!Resolve(var.type, expr->at)) return false;
      var.name = StrCat(source->name, "_", PreludeSuffix(*var.type.element));
      expr->name = var.name;
      expr->type = var.type;
      expr->symbol = Symbol::kModuleVar;
      if (prelude_vars_.insert(var.name).second) out_.vars.push_back(std::move(var));
      return true;
    }
    if (FindBuiltin(expr->name) || FindPreludeFunction(expr->name)) {
      return Fail(expr->at, StrCat("`", expr->name, "` is a function; it needs arguments in parentheses"));
    }
    return Fail(expr->at, StrCat("there is nothing named `", expr->name, "` here"));
  }
  switch (global->kind) {
    case GlobalKind::kConst: {
      if (!NeedConst(global->index, expr->at)) return false;
      ConstState& state = consts_[global->index];
      if (!state.value) return Fail(expr->at, StrCat("the const ", expr->name, " depends on itself"));
      if (state.type.IsScalar()) {
        ReplaceByLiteral(*expr, state.value->literal, state.type.scalar);
        return NeedScalar(state.type.scalar, expr->at);
      }
      ++state.uses;
      expr->type = state.type;
      expr->symbol = Symbol::kConst;
      if (!function_prefix_.empty()) expr->name = StrCat(function_prefix_, "_", expr->name);
      return true;
    }
    case GlobalKind::kParam:
      if (!frame_) return Fail(expr->at, StrCat("the param ", expr->name, " is not known when the kernel is specialized"));
      expr->type = source_.params[global->index].type;
      expr->symbol = Symbol::kParam;
      return Resolve(expr->type, expr->at);
    case GlobalKind::kScratch:
      if (!frame_) return Fail(expr->at, StrCat("`", expr->name, "` is not constant"));
      for (const ScratchDecl& s : out_.scratches) {
        if (s.name == expr->name) expr->type = s.type;
      }
      expr->symbol = Symbol::kScratch;
      return true;
    case GlobalKind::kVar: {
      if (!frame_) return Fail(expr->at, StrCat("`", expr->name, "` is not constant"));
      const VarDecl& source = source_.vars[global->index];
      if (frame_->is_value_map) return Fail(expr->at, "a value map has no variables outside of its functions");
      State& state = vars_[global->index];
      if (state == State::kNew) {
        state = State::kDone;
        VarDecl var{source.name, source.space, source.type, nullptr, source.access, source.binding, source.at};
        Frame* outer = std::exchange(frame_, nullptr);
        bool ok = Resolve(var.type, source.at);
        if (ok && (!IsConstructible(var.type, source.space == "workgroup") || HoldsMatrix(var.type))) {
          ok = Fail(source.at, StrCat("var<", source.space, "> ", source.name, " cannot be a ", var.type.ToString()));
        }
        if (ok && source.value) {
          var.value = Clone(*source.value);
          ok = CheckValue(var.value) && Convert(var.value, var.type, "var ", var.name);
          if (ok && !IsConstantExpression(*var.value)) {
            ok = Fail(var.value->at, StrCat("the initial value of ", var.name, " is not constant"));
          }
        }
        frame_ = outer;
        if (!ok) return false;
        out_.vars.push_back(std::move(var));
      }
      for (const VarDecl& v : out_.vars) {
        if (v.name == expr->name) expr->type = v.type;
      }
      expr->symbol = Symbol::kModuleVar;
      return true;
    }
    case GlobalKind::kTensor:
      return Fail(expr->at,
                  StrCat("`", expr->name, "` is a tensor; its elements are read and written with load, store and the like"));
    case GlobalKind::kFunction:
      return Fail(expr->at, StrCat("`", expr->name, "` is a function; it needs arguments in parentheses"));
    case GlobalKind::kStruct:
    case GlobalKind::kAlias: return Fail(expr->at, StrCat("`", expr->name, "` is a type, not a value"));
  }
  return false;
}

Checker::Reference Checker::ReferenceOf(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kName:
      if (expr.symbol == Symbol::kScratch) return {true, "storage", {}};
      if (expr.symbol == Symbol::kModuleVar) {
        for (const VarDecl& v : out_.vars) {
          if (v.name == expr.name) return {true, v.space, {}};
        }
      }
      if (expr.symbol == Symbol::kLocal && frame_) {
        for (const Local& local : frame_->locals) {
          if (local.unique == expr.name && local.is_var) return {true, "function", {}};
        }
        return {false, {}, StrCat("`", expr.name, "` is a let; make it a var")};
      }
      if (expr.symbol == Symbol::kParameter) return {false, {}, StrCat("`", expr.name, "` is a parameter; copy it to a var")};
      return {false, {}, StrCat("`", expr.name, "` is constant")};
    case ExprKind::kIndex: return ReferenceOf(*expr.args[0]);
    case ExprKind::kMember:
      if (expr.args[0]->type.IsVector() && expr.name.size() > 1) {
        return {false, {}, StrCat("several components (", expr.name, ") at once are no place; assign them one by one")};
      }
      return ReferenceOf(*expr.args[0]);
    case ExprKind::kUnary:
      if (expr.op == "*") return {true, expr.args[0]->type.name, {}};
      break;
    default: break;
  }
  return {false, {}, "it is a value, not a variable"};
}

void Checker::Dereference(ExprPtr& expr) {
  if (expr->kind == ExprKind::kUnary && expr->op == "&") {
    ExprPtr inner = std::move(expr->args[0]);
    expr = std::move(inner);
    return;
  }
  auto deref = std::make_unique<Expr>();
  deref->kind = ExprKind::kUnary;
  deref->op = "*";
  deref->at = expr->at;
  deref->type = *expr->type.element;
  deref->args.push_back(std::move(expr));
  expr = std::move(deref);
}

// ---- Operators ----------------------------------------------------------------------------------------------------------

bool Checker::CheckUnary(ExprPtr& expr) {
  ExprPtr& operand = expr->args[0];
  // The least i32 is written as a negated literal that is out of range by itself.
  if (expr->op == "-" && operand->kind == ExprKind::kLiteral && operand->type.IsScalar(Scalar::kI32) &&
      operand->literal.i == 0x80000000ll) {
    ReplaceByLiteral(*expr, IntLiteral(-0x80000000ll), Scalar::kI32);
    return true;
  }
  if (!Check(operand)) return false;
  if (expr->op == "&") {
    Reference reference = ReferenceOf(*operand);
    if (!reference.is_reference) return Fail(expr->at, StrCat("there is no pointer to this: ", reference.why_not));
    bool is_component =
        (operand->kind == ExprKind::kIndex || operand->kind == ExprKind::kMember) && operand->args[0]->type.IsVector();
    if (is_component) return Fail(expr->at, "there is no pointer to a component of a vector");
    expr->type = Type::Pointer(operand->type, reference.space);
    return true;
  }
  if (expr->op == "*") {
    if (operand->type.kind != Type::Kind::kPointer) {
      return Fail(expr->at, StrCat("`*` takes a pointer, got ", operand->type.ToString()));
    }
    ExprPtr pointer = std::move(operand);
    expr = std::move(pointer);
    Dereference(expr);
    return true;
  }
  if (!NeedValue(*operand)) return false;
  const Type& type = operand->type;
  bool is_plain = type.IsScalar() || type.IsVector();
  bool fits = is_plain && (expr->op == "!"   ? type.scalar == Scalar::kBool
                           : expr->op == "~" ? IsIntScalar(type.scalar)
                                             : type.scalar != Scalar::kBool && type.scalar != Scalar::kU32);
  if (!fits) {
    const char* takes = expr->op == "!" ? "a bool" : expr->op == "~" ? "an integer" : "a signed number";
    return Fail(expr->at, StrCat("`", expr->op, "` takes ", takes, ", got ", type.ToString()));
  }
  expr->type = type;
  if (operand->constant) return Fold(expr, FoldUnary(expr->op, type.scalar, *operand->constant), type.scalar);
  return FoldComponents(expr, Builtin::kNone);
}

bool Checker::BinaryType(Expr& expr) {
  ExprPtr &left = expr.args[0], &right = expr.args[1];
  const std::string& op = expr.op;
  auto fail = [&](std::string_view takes) {
    return Fail(expr.at, StrCat("`", op, "` takes ", takes, ", got ", left->type.ToString(), " and ", right->type.ToString()));
  };
  bool is_plain = (left->type.IsScalar() || left->type.IsVector()) && (right->type.IsScalar() || right->type.IsVector());
  if (op == "&&" || op == "||") {
    if (!left->type.IsScalar(Scalar::kBool) || !right->type.IsScalar(Scalar::kBool)) return fail("two bools");
    expr.type = Type::Of(Scalar::kBool);
    return true;
  }
  if (!is_plain) return fail("numbers or bools, or vectors of them");
  bool same_shape = left->type.kind == right->type.kind && left->type.rows == right->type.rows;
  if (op == "<<" || op == ">>") {
    if (!IsIntScalar(left->type.scalar) || !same_shape || !IsConvertible(right->type.scalar, Scalar::kU32)) {
      return fail("an integer and a u32, or vectors of as many");
    }
    bool is_constant = left->constant && right->constant;
    if (left->type.IsAbstract() && !is_constant && !Default(left)) return false;
    if (!Concretize(*right, Scalar::kU32)) return false;
    int64_t bits = left->type.IsAbstract() ? 64 : 32;
    if (right->constant && right->constant->i >= bits) {
      return Fail(right->at, StrCat("a shift by ", right->constant->i, " bits; there are ", bits));
    }
    expr.type = left->type;
    return true;
  }
  bool is_comparison = op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
  bool is_bitwise = op == "&" || op == "|" || op == "^";
  bool mixes = !is_comparison && !is_bitwise && (left->type.IsScalar() || right->type.IsScalar());
  if (!same_shape && !mixes) return fail("two values of one type");
  bool takes_bool = op == "==" || op == "!=" || op == "&" || op == "|";
  Scalar a = left->type.scalar, b = right->type.scalar;
  if ((a == Scalar::kBool || b == Scalar::kBool) && !(takes_bool && a == b)) {
    return fail(takes_bool ? "two values of one type" : "numbers");
  }
  if (is_bitwise && a != Scalar::kBool && (!IsIntScalar(a) || !IsIntScalar(b)))
    return fail("two integers or two bools of one type");
  if (!IsConvertible(a, b) && !IsConvertible(b, a)) return fail(mixes ? "two numbers of one type" : "two values of one type");
  Scalar scalar = IsConvertible(a, b) ? b : a;
  if (!Concretize(*left, scalar) || !Concretize(*right, scalar)) return false;
  if (is_comparison) {
    bool stays_abstract = IsAbstractScalar(scalar) && !(left->constant && right->constant);
    if (stays_abstract && (!Default(left) || !Default(right))) return false;
    expr.type = left->type.IsVector() ? Type::Vector(Scalar::kBool, left->type.rows) : Type::Of(Scalar::kBool);
  } else {
    expr.type = left->type.IsVector() ? left->type : right->type;
  }
  if ((op == "/" || op == "%") && IsIntScalar(scalar) && right->constant && right->constant->i == 0) {
    return Fail(right->at, op == "/" ? "division by zero" : "remainder of a division by zero");
  }
  return true;
}

bool Checker::CheckBinary(ExprPtr& expr) {
  if (!CheckValue(expr->args[0]) || !CheckValue(expr->args[1]) || !BinaryType(*expr)) return false;
  ExprPtr &left = expr->args[0], &right = expr->args[1];
  if (left->constant && right->constant) {
    Scalar type = left->type.scalar;
    return Fold(expr, FoldBinary(expr->op, type, *left->constant, *right->constant), expr->type.scalar);
  }
  if (expr->op == "&&" || expr->op == "||") {
    if (left->constant) {
      ExprPtr decided = bool(left->constant->i) == (expr->op == "&&") ? std::move(right) : std::move(left);
      expr = std::move(decided);
    } else if (right->constant && bool(right->constant->i) == (expr->op == "&&")) {
      ExprPtr decided = std::move(left);
      expr = std::move(decided);
    }
    return true;
  }
  return FoldComponents(expr, Builtin::kNone);
}

// ---- Parts --------------------------------------------------------------------------------------------------------------

// The value of a name that stands for a constant vector or array; other expressions are returned as they are.
const Expr* Checker::ConstantBehind(const Expr& base) {
  if (base.kind != ExprKind::kName) return &base;
  if (base.symbol == Symbol::kConst) {
    std::string_view name = base.name;
    if (!function_prefix_.empty()) name.remove_prefix(function_prefix_.size() + 1);
    return consts_[globals_.find(name)->second.index].value.get();
  }
  if (base.symbol == Symbol::kLocal) {
    for (const Local& local : frame_->locals) {
      if (local.unique == base.name && local.constant) return ConstantBehind(*local.constant);
    }
  }
  return &base;
}

// The name of a constant was replaced by (a part of) its value.
void Checker::ForgetUse(const Expr& base) {
  if (base.kind != ExprKind::kName || base.symbol != Symbol::kConst) return;
  std::string_view name = base.name;
  if (!function_prefix_.empty()) name.remove_prefix(function_prefix_.size() + 1);
  --consts_[globals_.find(name)->second.index].uses;
}

bool Checker::CheckIndex(ExprPtr& expr) {
  ExprPtr &base = expr->args[0], &index = expr->args[1];
  if (!Check(base)) return false;
  if (base->type.kind == Type::Kind::kPointer) Dereference(base);
  if (!CheckConcrete(index)) return false;
  if (base->type.kind != Type::Kind::kArray && !base->type.IsVector()) {
    return Fail(expr->at, StrCat("`[]` takes an array or a vector, got ", base->type.ToString()));
  }
  if (!index->type.IsScalar(Scalar::kI32) && !index->type.IsScalar(Scalar::kU32)) {
    return Fail(index->at, StrCat("an index is an i32 or a u32, got ", index->type.ToString()));
  }
  uint32_t count = base->type.IsVector() ? base->type.rows : base->type.count;
  if (index->constant && (index->constant->i < 0 || (count > 0 && index->constant->i >= int64_t(count)))) {
    return Fail(index->at, StrCat("the index ", index->constant->i, " is outside of ", base->type.ToString()));
  }
  if (base->type.IsAbstract() && !index->constant && !Default(base)) return false;
  Type element = base->type.IsVector() ? Type::Of(base->type.scalar) : *base->type.element;
  if (index->constant) {
    // An element of a constant is a constant.
    const Expr* value = ConstantBehind(*base);
    size_t at = size_t(index->constant->i);
    if (std::vector<Literal> components = Components(*value); !components.empty()) {
      ForgetUse(*base);
      ReplaceByLiteral(*expr, components[at], element.scalar);
      return true;
    }
    if (value->kind == ExprKind::kConstruct && value->type.kind == Type::Kind::kArray && at < value->args.size() &&
        IsConstantExpression(*value->args[at])) {
      Location where = expr->at;
      ExprPtr part = Clone(*value->args[at]);
      ForgetUse(*base);
      expr = std::move(part);
      expr->at = where;
      return true;
    }
  }
  expr->type = std::move(element);
  return true;
}

bool Checker::CheckMember(ExprPtr& expr) {
  ExprPtr& base = expr->args[0];
  if (base->kind == ExprKind::kName && !FindLocal(base->name)) {
    const Global* global = FindGlobal(base->name);
    if (global && global->kind == GlobalKind::kTensor) {
      const TensorDecl& tensor = source_.tensors[global->index];
      auto axis = std::find(tensor.axes.begin(), tensor.axes.end(), expr->name);
      auto asked = tensors_->find(tensor.name);
      if (axis == tensor.axes.end() && asked != tensors_->end()) {
        if (const int fact = QuantizedFact(asked->second, expr->name); fact >= 0) {
          const bool is_bool = IsBoolFact(expr->name);
          ReplaceByLiteral(*expr, Literal{.is_bool = is_bool, .i = fact}, is_bool ? Scalar::kBool : Scalar::kU32);
          return true;
        }
      }
      if (axis == tensor.axes.end()) {
        return Fail(expr->at, StrCat("the tensor ", tensor.name, " has no axis `", expr->name, "`; it has [",
                                     Join(tensor.axes, ", "), "]"));
      }
      auto placed = tensors_->find(tensor.name);
      if (placed == tensors_->end()) return Fail(expr->at, StrCat("the tensor ", tensor.name, " is used but not placed"));
      ReplaceByLiteral(*expr, IntLiteral(placed->second.shape[int(axis - tensor.axes.begin())]), Scalar::kU32);
      return true;
    }
  }
  if (!Check(base)) return false;
  if (base->type.kind == Type::Kind::kPointer) Dereference(base);
  if (base->type.kind == Type::Kind::kStruct) {
    const StructDecl* decl = FindStruct(base->type.name);
    for (const StructMember& member : decl->members) {
      if (member.name != expr->name) continue;
      expr->type = member.type;
      return true;
    }
    return Fail(expr->at, StrCat("the struct ", decl->name, " has no member `", expr->name, "`"));
  }
  if (!base->type.IsVector()) {
    return Fail(expr->at, StrCat("a ", base->type.ToString(), " has no member `", expr->name, "`"));
  }
  constexpr std::string_view kPlaces = "xyzw", kColors = "rgba";
  std::string_view letters = kPlaces.find(expr->name[0]) != std::string_view::npos ? kPlaces : kColors;
  bool ok = expr->name.size() <= 4;
  std::string swizzle;
  for (char c : expr->name) {
    size_t at = letters.find(c);
    if (at == std::string_view::npos || at >= base->type.rows) {
      ok = false;
      break;
    }
    swizzle += kPlaces[at];
  }
  if (!ok) return Fail(expr->at, StrCat("a ", base->type.ToString(), " has no components `", expr->name, "`"));
  expr->name = swizzle;
  expr->type = swizzle.size() == 1 ? Type::Of(base->type.scalar) : Type::Vector(base->type.scalar, int(swizzle.size()));
  if (std::vector<Literal> components = Components(*ConstantBehind(*base)); !components.empty()) {
    Scalar scalar = base->type.scalar;
    ForgetUse(*base);
    if (swizzle.size() == 1) {
      ReplaceByLiteral(*expr, components[kPlaces.find(swizzle[0])], scalar);
      return true;
    }
    auto made = std::make_unique<Expr>();
    made->kind = ExprKind::kConstruct;
    made->at = expr->at;
    made->type = expr->type;
    for (char c : swizzle) {
      auto one = std::make_unique<Expr>();
      one->at = expr->at;
      ReplaceByLiteral(*one, components[kPlaces.find(c)], scalar);
      made->args.push_back(std::move(one));
    }
    expr = std::move(made);
  }
  return true;
}

// ---- Calls --------------------------------------------------------------------------------------------------------------

bool Checker::CheckCall(ExprPtr& expr) {
  if (FindLocal(expr->name)) return Fail(expr->at, StrCat("`", expr->name, "` is no function here"));
  if (const Global* global = FindGlobal(expr->name)) {
    if (global->kind == GlobalKind::kStruct || global->kind == GlobalKind::kAlias) {
      expr->kind = ExprKind::kConstruct;
      expr->type = Type::Struct(std::exchange(expr->name, {}));
      return CheckConstruct(expr);
    }
    if (global->kind != GlobalKind::kFunction) return Fail(expr->at, StrCat("`", expr->name, "` is no function"));
    if (!frame_) return Fail(expr->at, StrCat("a call of ", expr->name, " is not constant"));
    const Function& source = source_.functions[global->index];
    if (source.is_entry) return Fail(expr->at, StrCat("the entry point ", source.name, " cannot be called"));
    for (ExprPtr& arg : expr->args) {
      if (!Check(arg)) return false;
    }
    std::string instance = function_prefix_.empty() ? source.name : StrCat(function_prefix_, "_", source.name);
    FunctionState* function = NeedFunction(source, instance, false, frame_->types, expr->at);
    if (!function) return false;
    std::string shown = std::exchange(expr->name, instance);
    return FinishCall(*expr, *function, shown);
  }
  if (frame_) {  // V(0.0) in the prelude and in value maps
    for (const auto& [name, type] : frame_->types) {
      if (name != expr->name) continue;
      expr->kind = ExprKind::kConstruct;
      expr->type = type;
      expr->name.clear();
      return CheckConstruct(expr);
    }
  }
  if (const BuiltinInfo* info = FindBuiltin(expr->name)) return CheckBuiltin(expr, *info);
  if (const Function* source = FindPreludeFunction(expr->name)) return CheckPreludeCall(expr, *source);
  if (const char* why = WhyNotBuiltin(expr->name)) return Fail(expr->at, StrCat("there is no `", expr->name, "`: ", why));
  return Fail(expr->at, StrCat("there is no function `", expr->name, "`"));
}

bool Checker::FinishCall(Expr& call, FunctionState& function, std::string_view shown_name) {
  if (call.args.size() != function.parameters.size()) {
    return Fail(call.at, StrCat("`", shown_name, "` takes ", function.parameters.size(), " arguments, got ", call.args.size()));
  }
  std::vector<const Expr*> roots;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const Type& to = function.parameters[i];
    if (to.kind != Type::Kind::kPointer && !NeedValue(*call.args[i])) return false;
    if (!Convert(call.args[i], to, StrCat("argument ", i + 1, " of "), shown_name)) return false;
    if (to.kind != Type::Kind::kPointer) continue;
    const Expr* root = call.args[i].get();
    while (!root->args.empty()) root = root->args[0].get();
    for (const Expr* other : roots) {
      if (other->name == root->name) {
        return Fail(call.args[i]->at, StrCat("two pointers into `", root->name, "` in one call of ", shown_name));
      }
    }
    roots.push_back(root);
  }
  for (const std::string& builtin : function.builtins) {
    auto hidden = std::make_unique<Expr>();
    hidden->kind = ExprKind::kName;
    hidden->at = call.at;
    hidden->type = BuiltinInputType(builtin);
    hidden->symbol = Symbol::kParameter;
    hidden->name = HiddenParameter(builtin, call.at);
    if (failed_) return false;
    call.args.push_back(std::move(hidden));
  }
  call.type = function.result;
  return true;
}

bool Checker::CheckPreludeCall(ExprPtr& expr, const Function& source) {
  if (!frame_) return Fail(expr->at, StrCat("a call of ", expr->name, " is not constant"));
  size_t count = 0;
  for (const Parameter& p : source.parameters) count += p.builtin.empty();
  if (expr->args.size() != count) {
    return Fail(expr->at, StrCat("`", source.name, "` takes ", count, " arguments, got ", expr->args.size()));
  }
  std::vector<std::pair<std::string, Type>> types;
  std::string instance = source.name;
  for (size_t i = 0; i < count; ++i) {
    if (!CheckValue(expr->args[i])) return false;
    const Type& wanted = source.parameters[i].type;
    if (wanted.kind != Type::Kind::kStruct || (wanted.name != "V" && wanted.name != "V4")) continue;
    if (!types.empty()) continue;
    ExprPtr& arg = expr->args[i];
    // A plain number stands for a float here, and so does a vector of them.
    if (arg->type.IsAbstract() && !Concretize(*arg, Scalar::kF32)) return false;
    bool fits = wanted.name == "V4" ? arg->type.IsNumeric() && arg->type.rows == 4 : arg->type.IsNumeric();
    if (!fits) {
      return Fail(arg->at, StrCat("argument ", i + 1, " of ", source.name, " is ",
                                  wanted.name == "V4" ? "a vector of four numbers" : "a number or a vector of numbers",
                                  ", got ", arg->type.ToString()));
    }
    types = {{wanted.name, arg->type}, {"E", Type::Of(arg->type.scalar)}};
    instance = StrCat(source.name, "_", PreludeSuffix(arg->type));
  }
  std::vector<std::pair<std::string, ExprPtr>> constants;
  for (size_t i = count; i-- > 0;) {
    const Parameter& p = source.parameters[i];
    if (p.type.kind != Type::Kind::kStruct || p.type.name != "N") continue;
    ExprPtr& arg = expr->args[i];
    if (!Convert(arg, Type::Of(Scalar::kU32), StrCat("argument ", i + 1, " of "), source.name)) return false;
    if (!arg->constant) continue;
    instance = StrCat(instance, "_", arg->constant->i);
    constants.emplace_back(p.name, std::move(arg));
    expr->args.erase(expr->args.begin() + std::ptrdiff_t(i));
  }
  types.emplace_back("N", Type::Of(Scalar::kU32));
  FunctionState* function = NeedFunction(source, instance, true, std::move(types), expr->at, std::move(constants));
  if (!function) return false;
  expr->name = instance;
  return FinishCall(*expr, *function, source.name);
}

bool Checker::CheckBuiltin(ExprPtr& expr, const BuiltinInfo& info) {
  std::vector<ExprPtr>& args = expr->args;
  if (args.size() != info.arity) {
    return Fail(expr->at, StrCat("`", info.name, "` takes ", int(info.arity),
                                 info.arity == 1 ? " argument, got " : " arguments, got ", args.size()));
  }
  expr->builtin = uint16_t(info.id);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!(info.takes_pointer() && i == 0 ? Check(args[i]) : CheckValue(args[i]))) return false;
  }
  if (info.is_barrier() || info.is_subgroup() || info.is_atomic()) {
    if (!frame_) return Fail(expr->at, StrCat("`", info.name, "` is not constant"));
    if (frame_->is_value_map) return Fail(expr->at, StrCat("`", info.name, "` is not allowed in a value map"));
  }
  if (info.is_barrier()) uses_barriers_ = true;
  if (info.is_subgroup()) {
    if (!target_.subgroups) {
      return Fail(expr->at, StrCat("`", info.name,
                                   "` needs subgroups, which the target does not have; keep it under `if subgroup_size > 0u`"));
    }
    uses_subgroups_ = true;
  }
  if (info.is_matrix() && !target_.subgroup_matrix) {
    return Fail(expr->at, StrCat("`", info.name, "` needs products of matrices by subgroups, which the target does not have"));
  }
  auto wrong = [&](std::string_view takes) {
    return Fail(expr->at, StrCat("`", info.name, "` takes ", takes, ", got ", TypesOf(args)));
  };
  auto is_plain = [](const Expr& e) { return e.type.IsScalar() || e.type.IsVector(); };
  // Arguments 0..n-1 become one scalar or vector type out of info.scalars; false without an error: they do not fit.
  auto same = [&](size_t n) {
    bool wants_float = info.scalars == BuiltinInfo::kF;
    std::vector<ExprPtr*> all;
    Scalar scalar = Scalar::kAbstractInt;
    for (size_t i = 0; i < n; ++i) {
      if (!is_plain(*args[i]) || args[i]->type.kind != args[0]->type.kind || args[i]->type.rows != args[0]->type.rows)
        return false;
      if (wants_float && args[i]->type.IsAbstract() && args[i]->type.scalar == Scalar::kAbstractInt &&
          !Concretize(*args[i], Scalar::kAbstractFloat)) {
        return false;
      }
      Scalar other = args[i]->type.scalar;
      if (i == 0 || IsConvertible(scalar, other)) scalar = other;
      all.push_back(&args[i]);
    }
    for (ExprPtr* arg : all) {
      if (!IsConvertible((*arg)->type.scalar, scalar) || !Concretize(**arg, scalar)) return false;
    }
    return (SetOf(scalar) & info.scalars) != 0;
  };
  std::string kinds = StrCat(int(info.arity), " ", SetText(info.scalars), info.arity > 1 ? " of one type" : "");
  if (info.arity == 1) kinds = SetText(info.scalars);
  switch (info.rule) {
    case BuiltinRule::kSame:
    case BuiltinRule::kVectorSame:
    case BuiltinRule::kToScalar:
    case BuiltinRule::kVectorToScalar: {
      bool wants_vector = info.rule == BuiltinRule::kVectorSame || info.rule == BuiltinRule::kVectorToScalar;
      if (!same(args.size()) || (wants_vector && !args[0]->type.IsVector()) ||
          (info.id == Builtin::kCross && args[0]->type.rows != 3) ||
          (info.id == Builtin::kQuantizeToF16 && args[0]->type.scalar == Scalar::kF16)) {
        return failed_ ? false : wrong(wants_vector ? StrCat("vectors of ", SetText(info.scalars)) : kinds);
      }
      bool to_scalar = info.rule == BuiltinRule::kToScalar || info.rule == BuiltinRule::kVectorToScalar;
      expr->type = to_scalar ? Type::Of(args[0]->type.scalar) : args[0]->type;
      break;
    }
    case BuiltinRule::kVote:
      if (!is_plain(*args[0]) || args[0]->type.scalar != Scalar::kBool) return wrong("a bool or a vector of bool");
      expr->type = Type::Of(Scalar::kBool);
      break;
    case BuiltinRule::kSelect:
      if (!same(2) || !is_plain(*args[2]) || args[2]->type.scalar != Scalar::kBool ||
          (args[2]->type.IsVector() && args[2]->type.rows != args[0]->type.rows)) {
        return failed_ ? false : wrong("two values of one type and a bool (or as many bools)");
      }
      expr->type = args[0]->type;
      break;
    case BuiltinRule::kMix: {
      bool by_scalar = is_plain(*args[2]) && args[2]->type.IsScalar() && args[0]->type.IsVector();
      if (by_scalar) {
        std::vector<ExprPtr*> all{&args[0], &args[1], &args[2]};
        Scalar scalar = Scalar::kBool;
        if (!same(2) || args[2]->type.scalar == Scalar::kBool) return failed_ ? false : wrong("floats of one type");
        if (!Unify(all, expr->at, "the arguments of mix", scalar)) return false;
        if (!IsFloatScalar(scalar)) return wrong("floats of one type");
      } else if (!same(3)) {
        return failed_ ? false : wrong("floats of one type");
      }
      expr->type = args[0]->type;
      break;
    }
    case BuiltinRule::kLdexp: {
      if (!same(1) || !is_plain(*args[1]) || !IsConvertible(args[1]->type.scalar, Scalar::kI32) ||
          args[1]->type.kind != args[0]->type.kind || args[1]->type.rows != args[0]->type.rows) {
        return failed_ ? false : wrong("a float and an i32, or vectors of as many");
      }
      if (!Default(args[0]) || !Concretize(*args[1], Scalar::kI32)) return false;
      expr->type = args[0]->type;
      break;
    }
    case BuiltinRule::kExtractBits:
    case BuiltinRule::kInsertBits: {
      size_t values = info.rule == BuiltinRule::kExtractBits ? 1 : 2;
      if (!same(values)) return failed_ ? false : wrong("integers, an offset and a count");
      Type u32 = Type::Of(Scalar::kU32);
      for (size_t i = 0; i < values; ++i) {
        if (!Default(args[i])) return false;
      }
      if (!Convert(args[values], u32, "the offset of ", info.name) ||
          !Convert(args[values + 1], u32, "the count of ", info.name))
        return false;
      expr->type = args[0]->type;
      return true;
    }
    case BuiltinRule::kFixed: {
      Type want = PlainType(info.arguments);
      for (size_t i = 0; i < args.size(); ++i) {
        if (!Convert(args[i], want, StrCat("argument ", i + 1, " of "), info.name)) return false;
      }
      expr->type = PlainType(info.result);
      return true;
    }
    case BuiltinRule::kAtomicLoad:
    case BuiltinRule::kAtomicStore:
    case BuiltinRule::kAtomicUpdate: {
      const Type& pointer = args[0]->type;
      if (pointer.kind != Type::Kind::kPointer || pointer.element->kind != Type::Kind::kAtomic) {
        return Fail(args[0]->at,
                    StrCat("argument 1 of ", info.name, " is a pointer to an atomic (`&counter`), got ", pointer.ToString()));
      }
      Type value = Type::Of(pointer.element->scalar);
      if (args.size() > 1 && !Convert(args[1], value, "argument 2 of ", info.name)) return false;
      expr->type = info.rule == BuiltinRule::kAtomicStore ? Type::Void() : value;
      return true;
    }
    case BuiltinRule::kUniformLoad: {
      const Type& pointer = args[0]->type;
      if (pointer.kind != Type::Kind::kPointer || pointer.name != "workgroup") {
        return Fail(args[0]->at,
                    StrCat("argument 1 of ", info.name, " is a pointer into workgroup memory, got ", pointer.ToString()));
      }
      const Type& element = *pointer.element;
      if (element.kind == Type::Kind::kAtomic) {
        expr->type = Type::Of(element.scalar);
        return true;
      }
      if (!IsConstructible(element, false)) return Fail(args[0]->at, StrCat(info.name, " cannot load a ", element.ToString()));
      expr->type = element;
      return true;
    }
    case BuiltinRule::kLane:
    case BuiltinRule::kConstantLane: {
      if (!same(1)) return failed_ ? false : wrong("a number or a vector of numbers, and a lane");
      if (!Convert(args[1], Type::Of(Scalar::kU32), "the lane of ", info.name)) return false;
      if (info.rule == BuiltinRule::kConstantLane && !args[1]->constant) {
        return Fail(args[1]->at, StrCat("the lane of ", info.name, " is constant; use subgroupShuffle for one that varies"));
      }
      if (!Default(args[0])) return false;
      expr->type = args[0]->type;
      return true;
    }
    case BuiltinRule::kMatrixMultiply: {
      const char* const places[] = {"left", "right", "sum"};
      for (size_t i = 0; i < 3; ++i) {
        if (!(args[i]->type == Type::SubgroupMatrix(places[i]))) {
          return wrong("a subgroup_matrix_left, a subgroup_matrix_right and a subgroup_matrix_sum");
        }
      }
      expr->type = Type::SubgroupMatrix("sum");
      return true;
    }
    case BuiltinRule::kMatrixLoad:
    case BuiltinRule::kMatrixStore: {
      const bool is_store = info.rule == BuiltinRule::kMatrixStore;
      const Type& pointer = args[0]->type;
      const bool is_array = pointer.kind == Type::Kind::kPointer && pointer.name == "workgroup" &&
                            args[0]->args[0]->kind == ExprKind::kName && pointer.element->kind == Type::Kind::kArray &&
                            pointer.element->element->IsScalar(is_store ? Scalar::kF32 : Scalar::kF16);
      if (!is_array) {
        return Fail(args[0]->at, StrCat("argument 1 of ", info.name, " is a pointer to an array of ", is_store ? "f32" : "f16",
                                        " in workgroup memory, got ", pointer.ToString()));
      }
      if (!Convert(args[1], Type::Of(Scalar::kU32), "the offset of ", info.name) ||
          !Convert(args[2], Type::Of(Scalar::kU32), "the pitch of ", info.name)) {
        return false;
      }
      if (!is_store) {
        expr->type = Type::SubgroupMatrix(info.id == Builtin::kSubgroupMatrixLoadLeft ? "left" : "right");
        return true;
      }
      if (!(args[3]->type == Type::SubgroupMatrix("sum"))) {
        return Fail(args[3]->at,
                    StrCat("argument 4 of ", info.name, " is subgroup_matrix_sum, got ", args[3]->type.ToString()));
      }
      expr->type = Type::Void();
      return true;
    }
  }
  if (info.is_subgroup()) {
    if (!Default(args[0])) return false;
    expr->type = args[0]->type;
    return true;
  }
  // What is constant is evaluated now.
  std::vector<Literal> literals;
  for (const ExprPtr& arg : args) {
    if (!arg->constant) break;
    literals.push_back(*arg->constant);
  }
  if (!args.empty() && literals.size() == args.size()) {
    if (!Fold(expr, FoldBuiltin(info.id, args[0]->type.scalar, literals), expr->type.scalar)) return false;
    if (expr->constant) return true;
  } else {
    if (!FoldComponents(expr, info.id)) return false;
    if (expr->kind != ExprKind::kCall) return true;
  }
  // An abstract value that could not be evaluated gets its type here.
  for (ExprPtr& arg : expr->args) {
    if (!Default(arg)) return false;
  }
  if (expr->type.IsAbstract()) {
    expr->type = WithScalar(expr->type, expr->type.scalar == Scalar::kAbstractInt ? Scalar::kI32 : Scalar::kF32);
  }
  return true;
}

// ---- Constructors -------------------------------------------------------------------------------------------------------

bool Checker::CheckConstruct(ExprPtr& expr) {
  if (!expr->type.inferred && !Resolve(expr->type, expr->at)) return false;
  for (ExprPtr& arg : expr->args) {
    if (!CheckValue(arg)) return false;
  }
  std::vector<ExprPtr>& args = expr->args;
  const Type type = expr->type;
  switch (type.kind) {
    case Type::Kind::kScalar: {
      if (args.empty()) {
        Literal zero = type.scalar == Scalar::kBool ? BoolLiteral(false)
                       : IsFloatScalar(type.scalar) ? FloatLiteral(0)
                                                    : IntLiteral(0);
        ReplaceByLiteral(*expr, zero, type.scalar);
        return true;
      }
      if (args.size() != 1 || !args[0]->type.IsScalar()) {
        return Fail(expr->at, StrCat("`", type.ToString(), "` takes one scalar, got ", TypesOf(args)));
      }
      if (args[0]->constant) return Fold(expr, FoldConvert(*args[0]->constant, args[0]->type.scalar, type.scalar), type.scalar);
      if (args[0]->type == type) {
        ExprPtr same = std::move(args[0]);
        expr = std::move(same);
      }
      return true;
    }
    case Type::Kind::kVector: return CheckVector(expr);
    case Type::Kind::kArray: {
      if (type.inferred) {
        if (args.empty()) return Fail(expr->at, "an array without a type takes elements");
        std::vector<ExprPtr*> all;
        for (ExprPtr& arg : args) {
          all.push_back(&arg);
          bool same_kind = arg->type.kind == args[0]->type.kind && arg->type.rows == args[0]->type.rows;
          if (!same_kind) return Fail(arg->at, StrCat("the elements of an array have one type, got ", TypesOf(args)));
        }
        if (args[0]->type.IsScalar() || args[0]->type.IsVector()) {
          Scalar scalar;
          if (!Unify(all, expr->at, "the elements of an array", scalar)) return false;
        }
        expr->type = Type::Array(args[0]->type, uint32_t(args.size()));
        for (ExprPtr& arg : args) {
          if (!Convert(arg, args[0]->type, "an element of the array")) return false;
        }
        return true;
      }
      if (!IsConstructible(type, false))
        return Fail(expr->at, StrCat("no value of type ", type.ToString(), " can be constructed"));
      if (!args.empty() && args.size() != type.count) {
        return Fail(expr->at, StrCat("`", type.ToString(), "` takes ", type.count, " elements, got ", args.size()));
      }
      for (ExprPtr& arg : args) {
        if (!Convert(arg, *type.element, "an element of ", type.ToString())) return false;
      }
      return true;
    }
    case Type::Kind::kStruct: {
      const StructDecl* decl = FindStruct(type.name);
      if (!IsConstructible(type, false)) return Fail(expr->at, StrCat("no value of type ", type.name, " can be constructed"));
      if (!args.empty() && args.size() != decl->members.size()) {
        return Fail(expr->at, StrCat("`", type.name, "` has ", decl->members.size(), " members, got ", args.size()));
      }
      for (size_t i = 0; i < args.size(); ++i) {
        if (!Convert(args[i], decl->members[i].type, StrCat("the member ", decl->members[i].name, " of "), type.name))
          return false;
      }
      return true;
    }
    case Type::Kind::kVoid:
    case Type::Kind::kMatrix:
    case Type::Kind::kAtomic:
    case Type::Kind::kPointer:
    case Type::Kind::kTexture: break;
  }
  return Fail(expr->at, StrCat("no value of type ", type.ToString(), " can be constructed"));
}

bool Checker::CheckVector(ExprPtr& expr) {
  std::vector<ExprPtr>& args = expr->args;
  Type& type = expr->type;
  std::string shown = type.ToString();
  auto wrong = [&] {
    return Fail(expr->at, StrCat("`", shown, "` takes 1 or ", int(type.rows), " components, got ", TypesOf(args)));
  };
  size_t components = 0;
  for (ExprPtr& arg : args) {
    if (!arg->type.IsScalar() && !arg->type.IsVector()) return wrong();
    components += arg->type.IsVector() ? arg->type.rows : 1;
  }
  if (args.empty()) {
    if (type.inferred) return wrong();
    return true;
  }
  bool is_conversion = args.size() == 1 && args[0]->type.IsVector();
  bool is_splat = args.size() == 1 && args[0]->type.IsScalar();
  if (is_conversion ? args[0]->type.rows != type.rows : (!is_splat && components != type.rows)) return wrong();
  if (type.inferred) {
    std::vector<ExprPtr*> all;
    for (ExprPtr& arg : args) all.push_back(&arg);
    Scalar scalar;
    if (!Unify(all, expr->at, "the components of a vector", scalar)) return false;
    type = Type::Vector(scalar, type.rows);
  }
  if (is_conversion) {
    Scalar from = args[0]->type.scalar;
    if (from == type.scalar || (IsConvertible(from, type.scalar) && args[0]->type.IsAbstract())) {
      if (!Concretize(*args[0], type.scalar)) return false;
      ExprPtr same = std::move(args[0]);
      expr = std::move(same);
      return true;
    }
    std::vector<Literal> values = Components(*args[0]);
    if (values.empty()) return Default(args[0]);
    args.clear();
    for (const Literal& value : values) {
      auto one = std::make_unique<Expr>();
      one->kind = ExprKind::kLiteral;
      one->at = expr->at;
      if (!Fold(one, FoldConvert(value, from, type.scalar), type.scalar)) return false;
      args.push_back(std::move(one));
    }
    return true;
  }
  for (ExprPtr& arg : args) {
    Type want = arg->type.IsVector() ? Type::Vector(type.scalar, arg->type.rows) : Type::Of(type.scalar);
    if (!Convert(arg, want, "a component of ", shown)) return false;
  }
  return true;
}

bool Checker::CheckBitcast(ExprPtr& expr) {
  if (!Resolve(expr->type, expr->at) || !CheckConcrete(expr->args[0])) return false;
  const Type &to = expr->type, &from = expr->args[0]->type;
  auto bits = [](const Type& t) {
    if ((!t.IsScalar() && !t.IsVector()) || t.scalar == Scalar::kBool) return 0;
    return (t.scalar == Scalar::kF16 ? 16 : 32) * (t.IsVector() ? int(t.rows) : 1);
  };
  if (bits(to) == 0 || bits(to) != bits(from)) {
    return Fail(expr->at, StrCat("bitcast from ", from.ToString(), " to ", to.ToString(), ": the two need as many bits"));
  }
  if (to == from) {
    ExprPtr same = std::move(expr->args[0]);
    expr = std::move(same);
    return true;
  }
  if (expr->args[0]->constant && to.IsScalar()) {
    Folded folded = FoldBitcast(*expr->args[0]->constant, from.scalar, to.scalar);
    if (folded.value) return Fold(expr, folded, to.scalar);
  }
  return true;
}

// ---- Tensors ------------------------------------------------------------------------------------------------------------

bool Checker::CheckTensorCall(ExprPtr& expr) {
  const Global* global = FindLocal(expr->name) ? nullptr : FindGlobal(expr->name);
  if (!global || global->kind != GlobalKind::kTensor) {
    return Fail(expr->at, StrCat("`", expr->name, "` is no tensor, so it has no `", expr->method, "`"));
  }
  const TensorDecl& tensor = source_.tensors[global->index];
  if (!frame_) return Fail(expr->at, "an element of a tensor is not constant");
  if (!tensors_->count(tensor.name)) return Fail(expr->at, StrCat("the tensor ", tensor.name, " is used but not placed"));
  const VirtualTensor& placed = tensors_->at(tensor.name);
  if (IsQuantized(placed)) return CheckQuantizedCall(expr, tensor);
  const std::string& method = expr->method;
  if (IsQuantizedMethod(method)) {
    return Fail(expr->at, StrCat("the tensor ", tensor.name, " is not quantized here, so it has no ", method,
                                 "; put it under `if ", tensor.name, ".bits != 0u`"));
  }
  bool is_store = method == "store" || method == "store4";
  bool is_vector = method == "load4" || method == "store4" || method == "load4_or_zero";
  bool or_zero = method == "load_or_zero" || method == "load4_or_zero";
  bool is_inside = method == "is_inside";
  if (!is_store && !or_zero && !is_inside && method != "load" && method != "load4") {
    return Fail(expr->at, StrCat("tensors have no `", method,
                                 "`; there are load, load4, load_or_zero, load4_or_zero, store, store4 and is_inside"));
  }
  if (is_store && tensor.access == Access::kRead) {
    return Fail(expr->at, StrCat("the tensor ", tensor.name, " is declared as read, so it has no ", method));
  }
  if (!is_store && !is_inside && tensor.access == Access::kWrite) {
    return Fail(expr->at, StrCat("the tensor ", tensor.name, " is declared as write, so it has no ", method));
  }
  size_t rank = tensor.axes.size(), first = is_store ? 1 : 0;
  if (is_vector && rank == 0) return Fail(expr->at, StrCat(method, " needs an axis, the tensor ", tensor.name, " has none"));
  if (expr->args.size() != first + rank) {
    size_t got = expr->args.size() < first ? 0 : expr->args.size() - first;
    return Fail(expr->at,
                StrCat(method, " takes ", is_store ? "a value and " : "", rank,
                       rank == 1 ? " coordinate of [" : " coordinates of [", Join(tensor.axes, ", "), "], got ", got));
  }
  Type value = is_vector ? Type::Vector(tensor.value, 4) : Type::Of(tensor.value);
  for (size_t i = 0; i < expr->args.size(); ++i) {
    ExprPtr& arg = expr->args[i];
    if (!CheckValue(arg)) return false;
    if (i < first) {
      if (!Convert(arg, value, StrCat("the value of ", method, " for "), tensor.name)) return false;
      continue;
    }
    const std::string& axis = tensor.axes[i - first];
    bool is_slice = is_vector && i + 1 == expr->args.size();
    if (or_zero || is_inside) {
      if (arg->type.IsScalar(Scalar::kAbstractInt) && !Concretize(*arg, Scalar::kI32)) return false;
      if (arg->type.IsScalar(Scalar::kI32) || arg->type.IsScalar(Scalar::kU32)) continue;
      return Fail(arg->at, StrCat("the coordinate ", axis, " of ", tensor.name, " is i32 or u32, got ", arg->type.ToString()));
    }
    if (arg->type.IsScalar(Scalar::kI32)) {
      return Fail(arg->at, StrCat("the coordinate ", axis, " of ", tensor.name,
                                  " is u32, got i32; signed coordinates are for load", is_vector ? "4" : "", "_or_zero"));
    }
    if (!Convert(arg, Type::Of(Scalar::kU32), is_slice ? "the slice of " : "the coordinate ", axis)) return false;
  }
  expr->type = is_store ? Type::Void() : is_inside ? Type::Of(Scalar::kBool) : value;
  return true;
}

// An accessor of a quantized tensor is a call of a function that ExpandQuantized has added.
bool Checker::CheckQuantizedCall(ExprPtr& expr, const TensorDecl& tensor) {
  const std::string method = expr->method, function = QuantizedFunction(tensor.name, method);
  if (function.empty()) {
    return Fail(expr->at, StrCat("the tensor ", tensor.name, " is quantized and only read, so it has no ", method));
  }
  if (expr->args.size() != 2) {
    return Fail(expr->at, StrCat(method, " takes 2 coordinates of [", Join(tensor.axes, ", "), "], got ", expr->args.size()));
  }
  const bool is_signed = method == "load_or_zero" || method == "load4_or_zero" || method == "is_inside";
  for (size_t i = 0; i < 2; ++i) {
    ExprPtr& arg = expr->args[i];
    if (!CheckValue(arg)) return false;
    if (is_signed) {
      // A negative coordinate is far outside as a u32.
      if (arg->type.IsScalar(Scalar::kAbstractInt) && !Concretize(*arg, Scalar::kI32)) return false;
      if (arg->type.IsScalar(Scalar::kI32)) {
        auto as_unsigned = std::make_unique<Expr>();
        as_unsigned->kind = ExprKind::kConstruct;
        as_unsigned->at = arg->at;
        as_unsigned->type = Type::Of(Scalar::kU32);
        as_unsigned->args.push_back(std::move(arg));
        arg = std::move(as_unsigned);
        continue;
      }
    }
    if (!Convert(arg, Type::Of(Scalar::kU32), "the coordinate ", i == 0 ? tensor.axes[0] : method)) return false;
  }
  const Global* global = FindGlobal(function);
  if (!global || global->kind != GlobalKind::kFunction) {
    return Fail(expr->at, StrCat("`", function, "` is taken by the accessor of a quantized tensor"));
  }
  FunctionState* state = NeedFunction(source_.functions[global->index], function, false, frame_->types, expr->at);
  if (!state) return false;
  expr->kind = ExprKind::kCall;
  expr->name = function;
  expr->method.clear();
  expr->type = state->result;
  return true;
}

}  // namespace leeway::shader
