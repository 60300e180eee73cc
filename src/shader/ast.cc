#include "shader/ast.h"

#include <algorithm>

#include "base/result.h"
#include "base/strings.h"
#include "shader/compile.h"

namespace leeway::shader {

const char* ScalarName(Scalar scalar) {
  switch (scalar) {
    case Scalar::kBool: return "bool";
    case Scalar::kI32: return "i32";
    case Scalar::kU32: return "u32";
    case Scalar::kF32: return "f32";
    case Scalar::kF16: return "f16";
    case Scalar::kAbstractInt: return "abstract-int";
    case Scalar::kAbstractFloat: return "abstract-float";
  }
  return "?";
}

const char* AccessName(Access access) {
  switch (access) {
    case Access::kRead: return "read";
    case Access::kWrite: return "write";
    case Access::kReadWrite: return "read_write";
  }
  return "?";
}

bool Type::IsNumeric() const { return (kind == Kind::kScalar || kind == Kind::kVector) && scalar != Scalar::kBool; }

bool Type::IsAbstract() const {
  if (kind == Kind::kArray) return element && element->IsAbstract();
  return (kind == Kind::kScalar || kind == Kind::kVector) &&
         (scalar == Scalar::kAbstractInt || scalar == Scalar::kAbstractFloat);
}

bool Type::operator==(const Type& other) const {
  if (kind != other.kind) return false;
  switch (kind) {
    case Kind::kVoid: return true;
    case Kind::kScalar:
    case Kind::kAtomic: return scalar == other.scalar;
    case Kind::kVector: return scalar == other.scalar && rows == other.rows && inferred == other.inferred;
    case Kind::kMatrix: return name == other.name;
    case Kind::kStruct: return name == other.name;
    case Kind::kPointer: return name == other.name && *element == *other.element;
    case Kind::kTexture:
      return scalar == other.scalar && texture_dim == other.texture_dim && texel_format == other.texel_format;
    case Kind::kArray:
      if (count != other.count || inferred != other.inferred || !count_expr != !other.count_expr) return false;
      if (count_expr && !Equal(*count_expr, *other.count_expr)) return false;
      if (!element || !other.element) return !element && !other.element;
      return *element == *other.element;
  }
  return false;
}

std::string Type::ToString() const {
  switch (kind) {
    case Kind::kVoid: return "void";
    case Kind::kScalar: return ScalarName(scalar);
    case Kind::kVector:
      if (inferred) return StrCat("vec", int(rows));
      return StrCat("vec", int(rows), "<", ScalarName(scalar), ">");
    case Kind::kMatrix: return StrCat("subgroup_matrix_", name);
    case Kind::kArray:
      if (inferred) return "array";
      if (count_expr) {
        bool closes = count_expr->kind == ExprKind::kBinary && count_expr->op[0] == '>';  // would end the template list
        return StrCat("array<", element->ToString(), ", ", closes ? "(" : "", Format(*count_expr), closes ? ")" : "", ">");
      }
      if (count == 0) return StrCat("array<", element->ToString(), ">");
      return StrCat("array<", element->ToString(), ", ", count, ">");
    case Kind::kStruct: return name;
    case Kind::kAtomic: return StrCat("atomic<", ScalarName(scalar), ">");
    case Kind::kPointer: return StrCat("ptr<", name, ", ", element->ToString(), ">");
    case Kind::kTexture: {
      if (!texel_format.empty()) return StrCat("texture_storage_", texture_dim, "<", texel_format, ", write>");
      return StrCat("texture_", texture_dim, "<", ScalarName(scalar), ">");
    }
  }
  return "?";
}

const Function& Module::entry() const {
  for (const Function& f : functions) {
    if (f.is_entry) return f;
  }
  CheckFailed("a module has an entry point", __FILE__, __LINE__);
}

ExprPtr Clone(const Expr& expr) {
  auto copy = std::make_unique<Expr>();
  copy->kind = expr.kind;
  copy->symbol = expr.symbol;
  copy->builtin = expr.builtin;
  copy->at = expr.at;
  copy->type = expr.type;
  copy->name = expr.name;
  copy->method = expr.method;
  copy->op = expr.op;
  copy->literal = expr.literal;
  copy->constant = expr.constant;
  copy->args.reserve(expr.args.size());
  for (const ExprPtr& arg : expr.args) copy->args.push_back(Clone(*arg));
  return copy;
}

namespace {
ExprPtr CloneOrNull(const ExprPtr& expr) { return expr ? Clone(*expr) : nullptr; }
}  // namespace

std::vector<StmtPtr> Clone(const std::vector<StmtPtr>& body) {
  std::vector<StmtPtr> copy;
  copy.reserve(body.size());
  for (const StmtPtr& stmt : body) copy.push_back(Clone(*stmt));
  return copy;
}

StmtPtr Clone(const Stmt& stmt) {
  auto copy = std::make_unique<Stmt>();
  copy->kind = stmt.kind;
  copy->at = stmt.at;
  copy->name = stmt.name;
  copy->op = stmt.op;
  copy->type = stmt.type;
  copy->target = CloneOrNull(stmt.target);
  copy->value = CloneOrNull(stmt.value);
  if (stmt.init) copy->init = Clone(*stmt.init);
  if (stmt.update) copy->update = Clone(*stmt.update);
  copy->body = Clone(stmt.body);
  copy->else_body = Clone(stmt.else_body);
  copy->cases.reserve(stmt.cases.size());
  for (const SwitchCase& c : stmt.cases) {
    SwitchCase case_copy;
    for (const ExprPtr& selector : c.selectors) case_copy.selectors.push_back(Clone(*selector));
    case_copy.is_default = c.is_default;
    case_copy.body = Clone(c.body);
    copy->cases.push_back(std::move(case_copy));
  }
  copy->unroll = stmt.unroll;
  return copy;
}

Function Clone(const Function& function) {
  Function copy;
  copy.name = function.name;
  copy.parameters = function.parameters;
  copy.result = function.result;
  copy.body = Clone(function.body);
  copy.is_entry = function.is_entry;
  for (const ExprPtr& size : function.workgroup_size) copy.workgroup_size.push_back(Clone(*size));
  copy.at = function.at;
  return copy;
}

Module Clone(const Module& module) {
  Module copy;
  copy.name = module.name;
  copy.tensors = module.tensors;
  copy.consts.reserve(module.consts.size());
  for (const ConstDecl& c : module.consts) {
    copy.consts.push_back({c.name, c.type, CloneOrNull(c.value), c.tune_values, c.is_tune, c.at});
  }
  copy.params = module.params;
  copy.scratches = module.scratches;
  copy.vars.reserve(module.vars.size());
  for (const VarDecl& v : module.vars) {
    copy.vars.push_back({v.name, v.space, v.type, CloneOrNull(v.value), v.access, v.binding, v.at});
  }
  copy.structs = module.structs;
  copy.aliases = module.aliases;
  copy.functions.reserve(module.functions.size());
  for (const Function& f : module.functions) copy.functions.push_back(Clone(f));
  return copy;
}

bool Equal(const Expr& a, const Expr& b) {
  if (a.kind != b.kind || a.name != b.name || a.method != b.method || a.op != b.op || a.args.size() != b.args.size() ||
      !(a.type == b.type)) {
    return false;
  }
  if (a.kind == ExprKind::kLiteral) {
    if (a.literal.is_float != b.literal.is_float || a.literal.is_bool != b.literal.is_bool) return false;
    if (a.literal.is_float ? a.literal.f != b.literal.f : a.literal.i != b.literal.i) return false;
  }
  for (size_t i = 0; i < a.args.size(); ++i) {
    if (!Equal(*a.args[i], *b.args[i])) return false;
  }
  return true;
}

TypeLayout LayoutOf(const Type& type, const Module& module) {
  auto round_up = [](uint32_t value, uint32_t to) { return (value + to - 1) / to * to; };
  switch (type.kind) {
    case Type::Kind::kVoid:
    case Type::Kind::kMatrix:
    case Type::Kind::kPointer:
    case Type::Kind::kTexture: return {0, 1};
    case Type::Kind::kAtomic: return {4, 4};
    case Type::Kind::kScalar: return type.scalar == Scalar::kF16 ? TypeLayout{2, 2} : TypeLayout{4, 4};
    case Type::Kind::kVector: {
      uint32_t one = type.scalar == Scalar::kF16 ? 2 : 4;
      return {one * type.rows, one * (type.rows == 2 ? 2 : 4)};
    }
    case Type::Kind::kArray: {
      TypeLayout one = LayoutOf(*type.element, module);
      return {round_up(one.size, one.align) * std::max(type.count, 1u), one.align};
    }
    case Type::Kind::kStruct: {
      TypeLayout all{0, 1};
      for (const StructDecl& s : module.structs) {
        if (s.name != type.name) continue;
        for (const StructMember& m : s.members) {
          TypeLayout one = LayoutOf(m.type, module);
          all.size = round_up(all.size, one.align) + one.size;
          all.align = std::max(all.align, one.align);
        }
      }
      return {round_up(all.size, all.align), all.align};
    }
  }
  return {0, 1};
}

}  // namespace leeway::shader
