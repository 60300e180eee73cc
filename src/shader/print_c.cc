#include "shader/print_c.h"

namespace leeway::shader {

// ---- Declarations -----------------------------------------------------------------------------------------------------

std::string CPrinter::Declarator(const Type& declared, std::string_view name) {
  const Type* type = &Resolve(declared);
  if (type->kind == Type::Kind::kPointer) return PointerDeclarator(type->name, *type->element, name);
  std::string extents;
  while (type->kind == Type::Kind::kArray) {
    extents += StrCat("[", type->count, "]");
    type = &Resolve(*type->element);
  }
  return StrCat(TypeName(*type), " ", name, extents);
}

// A pointer to an array is one to its first element: it is then indexed as the array is.
std::string CPrinter::PointerDeclarator(std::string_view space, const Type& pointee, std::string_view name, bool is_const) {
  const Type* type = &Resolve(pointee);
  std::string extents;
  bool first = true;
  while (type->kind == Type::Kind::kArray) {
    if (!first) extents += StrCat("[", type->count, "]");
    first = false;
    type = &Resolve(*type->element);
  }
  std::string head = StrCat(SpaceWord(space), is_const ? "const " : "", TypeName(*type));
  if (extents.empty()) return StrCat(head, "* ", name);
  return StrCat(head, " (*", name, ")", extents);
}

std::string CPrinter::ParameterList(const Function& function, std::string_view first) {
  std::string list(first);
  auto add = [&](const std::string& one) {
    if (!list.empty()) list += ", ";
    list += one;
  };
  for (const Parameter& p : function.parameters) {
    std::string_view name = DeclareLocal(p.name);
    if (IsArray(p.type) && !arrays_are_values()) {
      add(PointerDeclarator("function", p.type, name, true));
    } else {
      add(Declarator(p.type, name));
    }
  }
  if (resources_are_arguments()) {
    bool params = false;
    for (const GlobalName* global : UsedBy(function)) {
      if (global->kind == GlobalName::Kind::kConst || global->kind == GlobalName::Kind::kUniform) continue;
      std::string declaration = PassedDeclaration(*global);
      if (global->kind == GlobalName::Kind::kParam) {
        if (params && params_need_binding()) continue;  // all params in one block
        params = true;
      }
      add(declaration);
    }
  }
  return list;
}

void CPrinter::PutFunction(const Function& function) {
  if (IsArray(function.result) && !arrays_are_values()) {
    Fail(function.at, StrCat("the function ", function.name, " returns an array, which ", LanguageName(target_.language),
                             " does not have."));
    return;
  }
  OpenScope();
  in_entry_ = false;
  std::string parameters = ParameterList(function);
  Put(TypeName(function.result), " ", FunctionName(function), "(", parameters.empty() ? "void" : parameters, ") {\n");
  PutBody(function);
  Put("}\n\n");
  CloseScope();
}

void CPrinter::PutStructs(std::string_view before, bool is_typedef) {
  std::string_view params_struct;
  for (const VarDecl& var : module_.vars) {
    if (var.space == "uniform") params_struct = var.type.name;
  }
  for (const StructDecl& s : module_.structs) {
    if (s.name == params_struct) continue;
    Put(before, "struct ", StructName(s.name), " {\n");
    for (const StructMember& member : s.members) Put("  ", Declarator(member.type, MemberName(member.name)), ";\n");
    Put("}");
    if (is_typedef) Put(" ", StructName(s.name));
    Put(";\n\n");
  }
}

void CPrinter::PutConstants() {
  for (const GlobalName* global : UsedByAny()) {
    if (global->kind != GlobalName::Kind::kConst) continue;
    const Expr& value = *global->constant->value;
    Put(constant_word(), Declarator(*global->type, global->text), " = ");
    if (IsArray(*global->type) && !arrays_are_values()) {
      PutBraces(value);
    } else {
      PutTop(value);
    }
    Put(";\n");
  }
}

void CPrinter::PutVariables() {
  for (const GlobalName* global : UsedByAny()) {
    if (global->kind == GlobalName::Kind::kWorkgroup) {
      StartLine();
      Put(SpaceWord("workgroup"), Declarator(*global->type, global->text), ";\n");
    } else if (global->kind == GlobalName::Kind::kPrivate) {
      StartLine();
      Put(Declarator(*global->type, global->text), " = ");
      const ExprPtr& value = global->var->value;
      if (IsArray(*global->type)) {
        value ? PutBraces(*value) : Put(zero_braces());
      } else {
        value ? PutTop(*value) : Put(ZeroText(*global->type));
      }
      Put(";\n");
    }
  }
}
std::string CPrinter::PrintToString(const Expr& expr) {
  size_t start = out_.size();
  PutTop(expr);
  std::string text = out_.substr(start);
  out_.resize(start);
  return text;
}

void CPrinter::PutBraces(const Expr& construct) {
  if (construct.kind != ExprKind::kConstruct) {
    Fail(construct.at, "an array inside of an array's value is not written out.");
    return;
  }
  if (construct.args.empty()) {
    Put(zero_braces());
    return;
  }
  Put("{");
  for (size_t i = 0; i < construct.args.size(); ++i) {
    if (i) Put(", ");
    if (IsArray(construct.args[i]->type)) {
      PutBraces(*construct.args[i]);
    } else {
      PutTop(*construct.args[i]);
    }
  }
  Put("}");
}

void CPrinter::PutArrayCopy(const Type& declared, const std::string& target, const std::string& source) {
  const Type* type = &Resolve(declared);
  std::string index;
  for (int depth = 0; type->kind == Type::Kind::kArray; ++depth) {
    std::string i = StrCat("lw_i", depth);
    Put("for (int ", i, " = 0; ", i, " < ", type->count, "; ++", i, ") ");
    index += StrCat("[", i, "]");
    type = &Resolve(*type->element);
  }
  Put(target, index, " = ", source, index);
}

void CPrinter::PutDeclaration(const Stmt& stmt) {
  const Type& type = Resolve(stmt.type && stmt.type->kind != Type::Kind::kVoid ? *stmt.type : stmt.value->type);
  if (type.kind == Type::Kind::kArray && !arrays_are_values()) {
    bool written_out = !stmt.value || stmt.value->kind == ExprKind::kConstruct;
    size_t start = out_.size();
    if (stmt.value && written_out) PutBraces(*stmt.value);
    std::string value =
        stmt.value ? (written_out ? out_.substr(start) : PrintToString(*stmt.value)) : std::string(zero_braces());
    out_.resize(start);
    std::string name(DeclareLocal(stmt.name));
    Put(Declarator(type, name));
    if (written_out) {
      Put(" = ", value);
    } else {
      Put(";\n");
      StartLine();
      PutArrayCopy(type, name, value);
    }
    return;
  }
  std::string value = stmt.value ? PrintToString(*stmt.value) : ZeroText(type);  // before its name is known
  bool is_fixed = stmt.kind != StmtKind::kVar && type.kind != Type::Kind::kPointer;
  Put(is_fixed ? const_word() : std::string_view(), Declarator(type, DeclareLocal(stmt.name)), " = ", value);
}

// ---- Statements -------------------------------------------------------------------------------------------------------

void CPrinter::PutAssign(const Stmt& stmt) {
  if (!stmt.target) {
    PutDiscard(*stmt.value);
    return;
  }
  const Type& type = Resolve(stmt.target->type);
  if (type.kind == Type::Kind::kArray && !arrays_are_values()) {
    if (stmt.value->kind == ExprKind::kConstruct) {
      Put("{ ", Declarator(type, "lw_value"), " = ");
      PutBraces(*stmt.value);
      Put("; ");
      PutArrayCopy(type, PrintToString(*stmt.target), "lw_value");
      Put("; }");
    } else {
      PutArrayCopy(type, PrintToString(*stmt.target), PrintToString(*stmt.value));
    }
    return;
  }
  PutTop(*stmt.target);
  if (stmt.op == "%=" && ClassOf(type) == 'f') {
    Put(" = fmod(");
    PutTop(*stmt.target);
    Put(", ");
    PutSplat(*stmt.value, type);
    Put(")");
    return;
  }
  Put(" ", stmt.op, " ");
  if (stmt.op == "<<=" || stmt.op == ">>=") {
    PutShiftAmount(*stmt.value);
  } else {
    PutTop(*stmt.value);
  }
}

void CPrinter::PutDiscard(const Expr& value) {
  Put("(void)");
  PutAt(value, Level::kPrimary);
}

void CPrinter::PutLoop(const Stmt& stmt) {
  StartLine();
  Put("for (;;) {\n");
  ++indent_;
  OpenScope();
  continuing_ = stmt.else_body.empty() ? nullptr : &stmt.else_body;
  PutStatements(stmt.body);
  continuing_ = nullptr;
  if (!EndsFlow(stmt.body)) PutStatements(stmt.else_body);
  CloseScope();
  --indent_;
  StartLine();
  Put("}\n");
}

void CPrinter::PutSwitch(const Stmt& stmt) {
  StartLine();
  Put("switch (");
  PutTop(*stmt.value);
  Put(") {\n");
  ++indent_;
  for (const SwitchCase& c : stmt.cases) {
    StartLine();
    for (const ExprPtr& selector : c.selectors) {
      Put("case ");
      PutTop(*selector);
      Put(": ");
    }
    if (c.is_default || c.selectors.empty()) Put("default: ");
    Put("{\n");
    ++indent_;
    OpenScope();
    PutStatements(c.body);
    if (!EndsFlow(c.body)) {
      StartLine();
      Put("break;\n");
    }
    CloseScope();
    --indent_;
    StartLine();
    Put("}\n");
  }
  --indent_;
  StartLine();
  Put("}\n");
}

// ---- Expressions ------------------------------------------------------------------------------------------------------

// Variables of the kernel reach other functions as pointers.
Level CPrinter::PutGlobal(const GlobalName& global) {
  using Kind = GlobalName::Kind;
  bool is_pointer = false;
  if (resources_are_arguments() && !IsArray(*global.type)) {
    is_pointer =
        global.kind == Kind::kBuffer || (!in_entry_ && (global.kind == Kind::kWorkgroup || global.kind == Kind::kPrivate));
  }
  if (is_pointer) {
    Put("(*", global.text, ")");
  } else {
    Put(global.text);
  }
  return Level::kPrimary;
}

Level CPrinter::PutAddressOf(const Expr& operand) {
  if (operand.kind == ExprKind::kUnary && operand.op == "*") return Put(*operand.args[0]);
  if (IsArray(operand.type)) return Put(operand);
  size_t start = out_.size();
  Level level = Put(operand);
  std::string_view printed = std::string_view(out_).substr(start);
  if (operand.kind == ExprKind::kName && printed.starts_with("(*")) {  // of what is passed as a pointer already
    out_.pop_back();
    out_.erase(start, 2);
    return Level::kPrimary;
  }
  if (level < Level::kPrimary) {
    out_.insert(start, 1, '(');
    out_ += ')';
  }
  out_.insert(start, 1, '&');
  return Level::kUnary;
}

Level CPrinter::PutDereference(const Expr& pointer) {
  if (pointer.type.kind == Type::Kind::kPointer && IsArray(*pointer.type.element)) return Put(pointer);
  if (pointer.kind == ExprKind::kUnary && pointer.op == "&") return Put(*pointer.args[0]);
  Put("(*");
  PutAt(pointer, Level::kUnary);
  Put(")");
  return Level::kPrimary;
}

void CPrinter::PutSplat(const Expr& expr, const Type& as) {
  if (as.kind != Type::Kind::kVector || expr.type.kind == Type::Kind::kVector) {
    PutTop(expr);
    return;
  }
  Put(target_.language == Language::kOpenClC ? StrCat("(", TypeName(as), ")(") : StrCat(TypeName(as), "("));
  PutTop(expr);
  Put(")");
}

Level CPrinter::PutBinary(const Expr& expr) {
  const Expr &left = *expr.args[0], &right = *expr.args[1];
  if (left.type.kind == Type::Kind::kMatrix || right.type.kind == Type::Kind::kMatrix) {
    Fail(expr.at, StrCat("matrices have no counterpart in ", LanguageName(target_.language), "."));
  }
  if (expr.op == "%" && ClassOf(expr.type) == 'f') {
    Put("fmod(");
    PutSplat(left, expr.type);
    Put(", ");
    PutSplat(right, expr.type);
    Put(")");
    return Level::kPrimary;
  }
  if (expr.op == "<<" || expr.op == ">>") {
    PutOperand(left, Level::kShift, false);
    Put(" ", expr.op, " ");
    PutShiftAmount(right);
    return Level::kShift;
  }
  return Printer::PutBinary(expr);
}

std::string_view CPrinter::SpaceOfPlace(const Expr& place, bool* is_const) const {
  const Expr* base = &place;
  while (base->kind == ExprKind::kIndex || base->kind == ExprKind::kMember) base = base->args[0].get();
  *is_const = false;
  if (base->kind == ExprKind::kUnary && base->op == "*") {
    const std::string& space = base->args[0]->type.name;
    return space == "workgroup" || space == "storage" ? std::string_view(space) : std::string_view();
  }
  if (base->kind != ExprKind::kName || FindLocal(base->name)) return {};
  const GlobalName* global = FindGlobal(base->name);
  if (!global) return {};
  switch (global->kind) {
    case GlobalName::Kind::kBuffer: *is_const = global->var->access == Access::kRead; return "storage";
    case GlobalName::Kind::kWorkgroup: return "workgroup";
    case GlobalName::Kind::kConst: *is_const = true; return "constant";
    default: return {};
  }
}

bool CPrinter::PutMemoryLane(const Expr& expr, bool whole_only) {
  const Expr &vector = *expr.args[0], &lane = *expr.args[1];
  bool is_const = false;
  std::string_view space = SpaceOfPlace(vector, &is_const);
  if (space.empty() || vector.type.kind != Type::Kind::kVector || vector.type.scalar == Scalar::kBool) return false;
  if (vector.type.rows == 3 || lane.kind == ExprKind::kLiteral) return false;
  std::string_view word = constant_word();
  std::string pointer = StrCat("((", space == "constant" ? std::string(word) : SpaceWord(space),
                               is_const && space != "constant" ? "const " : "", MemoryScalar(vector.type), "*)");
  auto literal = [](const Expr& e, int64_t value) { return e.kind == ExprKind::kLiteral && e.literal.i == value; };
  if (vector.kind == ExprKind::kIndex && vector.type.rows == 4 && IsArray(vector.args[0]->type)) {
    const Expr& index = *vector.args[1];
    bool halves = index.kind == ExprKind::kBinary && lane.kind == ExprKind::kBinary &&
                  ((index.op == ">>" && literal(*index.args[1], 2)) || (index.op == "/" && literal(*index.args[1], 4))) &&
                  ((lane.op == "&" && literal(*lane.args[1], 3)) || (lane.op == "%" && literal(*lane.args[1], 4)));
    if (halves) {
      std::string element = PrintToString(*index.args[0]);
      if (element == PrintToString(*lane.args[0])) {
        Put(pointer);
        PutAt(*vector.args[0], Level::kUnary);
        Put(")[", element, "]");
        return true;
      }
    }
  }
  if (whole_only) return false;
  Put(pointer, "&");
  PutAt(vector, Level::kPrimary);
  Put(")[");
  PutTop(lane);
  Put("]");
  return true;
}

Level CPrinter::PutUserCall(const Expr& expr, const Function& callee) {
  Put(FunctionName(callee), "(");
  bool first = true;
  auto next = [&] {
    if (!first) Put(", ");
    first = false;
  };
  for (const ExprPtr& arg : expr.args) {
    next();
    if (IsArray(arg->type) && !arrays_are_values()) {
      bool in_place = arg->kind == ExprKind::kName ? FindLocal(arg->name) != nullptr : arg->kind == ExprKind::kUnary;
      if (!in_place)
        Fail(arg->at, StrCat("an array passed to ", callee.name, " is neither a variable nor a pointer's target."));
    }
    PutTop(*arg);
  }
  if (resources_are_arguments()) {
    using Kind = GlobalName::Kind;
    bool params = false;
    for (const GlobalName* global : UsedBy(callee)) {
      if (global->kind == Kind::kConst || global->kind == Kind::kUniform) continue;
      if (global->kind == Kind::kParam && params_need_binding()) {
        if (params) continue;
        params = true;
        next();
        Put(params_name_);
        continue;
      }
      next();
      bool by_address =
          in_entry_ && !IsArray(*global->type) && (global->kind == Kind::kWorkgroup || global->kind == Kind::kPrivate);
      Put(by_address ? "&" : "", global->text);
    }
  }
  Put(")");
  return Level::kPrimary;
}

}  // namespace leeway::shader
