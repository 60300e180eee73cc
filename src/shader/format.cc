// The kernel text of a tree: two spaces of indentation, one statement a line, only the parentheses that the grammar needs.
#include <cmath>

#include "base/strings.h"
#include "shader/compile.h"

namespace leeway::shader {

namespace {

// How tightly an expression binds; an operand that binds less than its place demands gets parentheses.
enum Level { kBitwise, kLogical, kRelational, kShift, kAdditive, kMultiplicative, kUnaryLevel, kPrimary };

Level LevelOf(std::string_view op) {
  if (op == "*" || op == "/" || op == "%") return kMultiplicative;
  if (op == "+" || op == "-") return kAdditive;
  if (op == "<<" || op == ">>") return kShift;
  if (op == "&&" || op == "||") return kLogical;
  if (op == "&" || op == "|" || op == "^") return kBitwise;
  return kRelational;
}

Level LevelOf(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kBinary: return LevelOf(expr.op);
    case ExprKind::kUnary: return kUnaryLevel;
    case ExprKind::kLiteral: {
      const Literal& l = expr.literal;
      return (l.is_float ? std::signbit(l.f) : l.i < 0) ? kUnaryLevel : kPrimary;
    }
    case ExprKind::kName:
    case ExprKind::kIndex:
    case ExprKind::kMember:
    case ExprKind::kCall:
    case ExprKind::kConstruct:
    case ExprKind::kBitcast:
    case ExprKind::kTensorCall: return kPrimary;
  }
  return kPrimary;
}

class Formatter {
 public:
  void Expression(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::kLiteral: Number(expr); break;
      case ExprKind::kName: out_ += expr.name; break;
      case ExprKind::kUnary: {
        out_ += expr.op;
        const Expr& operand = *expr.args[0];
        // `- -x` would read as a decrement, `& &x` as a logical and.
        bool doubled = LevelOf(operand) == kUnaryLevel && (operand.kind == ExprKind::kLiteral || operand.op == expr.op);
        Operand(operand, doubled ? kPrimary : kUnaryLevel);
        break;
      }
      case ExprKind::kBinary: {
        Level level = LevelOf(expr.op);
        auto same = [&](const Expr& e) { return e.kind == ExprKind::kBinary && e.op == expr.op; };
        Level left = level, right = kUnaryLevel;
        switch (level) {
          case kMultiplicative: break;
          case kAdditive: right = kMultiplicative; break;
          case kShift: left = kUnaryLevel; break;
          case kRelational: left = right = kShift; break;
          case kLogical:
            left = same(*expr.args[0]) ? kLogical : kRelational;
            right = kRelational;
            break;
          default: left = same(*expr.args[0]) ? kBitwise : kUnaryLevel; break;
        }
        Operand(*expr.args[0], left);
        Text(" ", expr.op, " ");
        Operand(*expr.args[1], right);
        break;
      }
      case ExprKind::kIndex:
        Operand(*expr.args[0], kPrimary);
        out_ += '[';
        Expression(*expr.args[1]);
        out_ += ']';
        break;
      case ExprKind::kMember:
        Operand(*expr.args[0], kPrimary);
        Text(".", expr.name);
        break;
      case ExprKind::kCall:
        out_ += expr.name;
        Arguments(expr);
        break;
      case ExprKind::kConstruct:
        out_ += expr.type.ToString();
        Arguments(expr);
        break;
      case ExprKind::kBitcast:
        Text("bitcast<", expr.type.ToString(), ">");
        Arguments(expr);
        break;
      case ExprKind::kTensorCall:
        Text(expr.name, ".", expr.method);
        Arguments(expr);
        break;
    }
  }

  void Statement(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kIf:
        Indent();
        If(stmt);
        out_ += '\n';
        break;
      case StmtKind::kFor:
        Indent();
        if (stmt.unroll < 0) out_ += "@unroll ";
        if (stmt.unroll > 0) Text("@unroll(", stmt.unroll, ") ");
        out_ += "for (";
        if (stmt.init) Simple(*stmt.init);
        out_ += ';';
        if (stmt.value) {
          out_ += ' ';
          Expression(*stmt.value);
        }
        out_ += ';';
        if (stmt.update) {
          out_ += ' ';
          Simple(*stmt.update);
        }
        out_ += ") ";
        Block(stmt.body);
        out_ += '\n';
        break;
      case StmtKind::kWhile:
        Indent();
        out_ += "while ";
        Expression(*stmt.value);
        out_ += ' ';
        Block(stmt.body);
        out_ += '\n';
        break;
      case StmtKind::kLoop:
        Indent();
        out_ += "loop {\n";
        ++depth_;
        for (const StmtPtr& inner : stmt.body) Statement(*inner);
        if (!stmt.else_body.empty()) {
          Indent();
          out_ += "continuing ";
          Block(stmt.else_body);
          out_ += '\n';
        }
        --depth_;
        Indent();
        out_ += "}\n";
        break;
      case StmtKind::kSwitch:
        Indent();
        out_ += "switch ";
        Expression(*stmt.value);
        out_ += " {\n";
        ++depth_;
        for (const SwitchCase& c : stmt.cases) {
          Indent();
          if (c.selectors.empty()) {
            out_ += "default";
          } else {
            out_ += "case ";
            for (size_t i = 0; i < c.selectors.size(); ++i) {
              if (i > 0) out_ += ", ";
              Expression(*c.selectors[i]);
            }
            if (c.is_default) out_ += ", default";
          }
          out_ += ": ";
          Block(c.body);
          out_ += '\n';
        }
        --depth_;
        Indent();
        out_ += "}\n";
        break;
      case StmtKind::kBlock:
        Indent();
        Block(stmt.body);
        out_ += '\n';
        break;
      case StmtKind::kLet:
      case StmtKind::kVar:
      case StmtKind::kConst:
      case StmtKind::kAssign:
      case StmtKind::kIncrement:
      case StmtKind::kCall:
      case StmtKind::kBreak:
      case StmtKind::kContinue:
      case StmtKind::kBreakIf:
      case StmtKind::kReturn:
        Indent();
        Simple(stmt);
        out_ += ";\n";
        break;
    }
  }

  void Declare(const Function& f) {
    if (f.is_entry) {
      out_ += "@compute @workgroup_size(";
      for (size_t i = 0; i < f.workgroup_size.size(); ++i) {
        if (i > 0) out_ += ", ";
        Expression(*f.workgroup_size[i]);
      }
      out_ += ")\n";
    }
    Text("fn ", f.name, "(");
    for (size_t i = 0; i < f.parameters.size(); ++i) {
      if (i > 0) out_ += ", ";
      const Parameter& p = f.parameters[i];
      if (!p.builtin.empty()) Text("@builtin(", p.builtin, ") ");
      Text(p.name, " : ", p.type.ToString());
    }
    out_ += ") ";
    if (f.result.kind != Type::Kind::kVoid) Text("-> ", f.result.ToString(), " ");
    Block(f.body);
    out_ += '\n';
  }

  void Declare(const Module& m) {
    for (const TensorDecl& t : m.tensors) {
      Text(t.is_weights ? "weights " : "tensor ", t.name, "[", Join(t.axes, ", "), "]");
      if (!t.is_weights) Text(" : ", AccessName(t.access));
      if (t.value != Scalar::kF32) Text(" as ", ScalarName(t.value));
      out_ += ";\n";
    }
    for (const ConstDecl& c : m.consts) {
      Text(c.is_tune ? "tune " : "const ", c.name);
      if (c.type) Text(" : ", c.type->ToString());
      if (c.is_tune) {
        Text(" in {", Join(c.tune_values, ", "), "}");
      } else if (c.value) {
        out_ += " = ";
        Expression(*c.value);
      }
      out_ += ";\n";
    }
    for (const AliasDecl& a : m.aliases) Text("alias ", a.name, " = ", a.type.ToString(), ";\n");
    for (const StructDecl& s : m.structs) {
      Text("struct ", s.name, " {\n");
      for (const StructMember& member : s.members) Text("  ", member.name, " : ", member.type.ToString(), ",\n");
      out_ += "}\n";
    }
    for (const ParamDecl& p : m.params) Text("param ", p.name, " : ", p.type.ToString(), ";\n");
    for (const ScratchDecl& s : m.scratches) Text("scratch ", s.name, " : ", s.type.ToString(), ";\n");
    for (const VarDecl& v : m.vars) {
      if (v.binding >= 0) Text("@binding(", v.binding, ") ");
      Text("var");
      if (v.space == "storage")
        Text("<storage, ", AccessName(v.access), ">");
      else if (v.space != "texture")
        Text("<", v.space, ">");
      Text(" ", v.name, " : ", v.type.ToString());
      if (v.value) {
        out_ += " = ";
        Expression(*v.value);
      }
      out_ += ";\n";
    }
    for (const Function& f : m.functions) {
      if (!out_.empty()) out_ += '\n';
      Declare(f);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  template <class... Parts>
  void Text(const Parts&... parts) {
    (internal::Append(out_, parts), ...);
  }
  void Indent() { out_.append(size_t(depth_) * 2, ' '); }

  void Number(const Expr& expr) {
    const Literal& l = expr.literal;
    if (l.is_bool) {
      out_ += l.i ? "true" : "false";
      return;
    }
    if (!l.is_float) {
      Text(l.i);
      if (expr.type.IsScalar(Scalar::kU32)) out_ += 'u';
      if (expr.type.IsScalar(Scalar::kI32)) out_ += 'i';
      return;
    }
    size_t start = out_.size();
    if (expr.type.IsScalar(Scalar::kF32))
      Text(float(l.f));
    else
      Text(l.f);
    if (out_.find_first_of(".en", start) == std::string::npos) out_ += ".0";
    if (expr.type.IsScalar(Scalar::kF32)) out_ += 'f';
    if (expr.type.IsScalar(Scalar::kF16)) out_ += 'h';
  }

  void Operand(const Expr& expr, Level least) {
    bool parentheses = LevelOf(expr) < least;
    if (parentheses) out_ += '(';
    Expression(expr);
    if (parentheses) out_ += ')';
  }

  void Arguments(const Expr& expr) {
    out_ += '(';
    for (size_t i = 0; i < expr.args.size(); ++i) {
      if (i > 0) out_ += ", ";
      Expression(*expr.args[i]);
    }
    out_ += ')';
  }

  void Block(const std::vector<StmtPtr>& body) {
    if (body.empty()) {
      out_ += "{}";
      return;
    }
    out_ += "{\n";
    ++depth_;
    for (const StmtPtr& stmt : body) Statement(*stmt);
    --depth_;
    Indent();
    out_ += '}';
  }

  void If(const Stmt& stmt) {
    out_ += "if ";
    Expression(*stmt.value);
    out_ += ' ';
    Block(stmt.body);
    if (stmt.else_body.empty()) return;
    out_ += " else ";
    if (stmt.else_body.size() == 1 && stmt.else_body[0]->kind == StmtKind::kIf) {
      If(*stmt.else_body[0]);
    } else if (stmt.else_body.size() == 1 && stmt.else_body[0]->kind == StmtKind::kBlock && stmt.else_body[0]->body.empty()) {
      out_ += "{}";
    } else {
      Block(stmt.else_body);
    }
  }

  // Without indentation and `;`.
  void Simple(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kLet:
      case StmtKind::kVar:
      case StmtKind::kConst:
        Text(stmt.kind == StmtKind::kLet ? "let " : stmt.kind == StmtKind::kVar ? "var " : "const ", stmt.name);
        if (stmt.type) Text(" : ", stmt.type->ToString());
        if (stmt.value) {
          out_ += " = ";
          Expression(*stmt.value);
        }
        break;
      case StmtKind::kAssign:
        if (stmt.target)
          Expression(*stmt.target);
        else
          out_ += '_';
        Text(" ", stmt.op, " ");
        Expression(*stmt.value);
        break;
      case StmtKind::kIncrement:
        Expression(*stmt.target);
        out_ += stmt.op;
        break;
      case StmtKind::kCall: Expression(*stmt.value); break;
      case StmtKind::kBreak: out_ += "break"; break;
      case StmtKind::kContinue: out_ += "continue"; break;
      case StmtKind::kBreakIf:
        out_ += "break if ";
        Expression(*stmt.value);
        break;
      case StmtKind::kReturn:
        out_ += "return";
        if (stmt.value) {
          out_ += ' ';
          Expression(*stmt.value);
        }
        break;
      case StmtKind::kIf:
      case StmtKind::kFor:
      case StmtKind::kWhile:
      case StmtKind::kLoop:
      case StmtKind::kSwitch:
      case StmtKind::kBlock: Statement(stmt); break;
    }
  }

  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string Format(const Module& module) {
  Formatter formatter;
  formatter.Declare(module);
  return formatter.Take();
}
std::string Format(const Function& function) {
  Formatter formatter;
  formatter.Declare(function);
  return formatter.Take();
}
std::string Format(const Expr& expr) {
  Formatter formatter;
  formatter.Expression(expr);
  return formatter.Take();
}
std::string Format(const Stmt& stmt) {
  Formatter formatter;
  formatter.Statement(stmt);
  return formatter.Take();
}

}  // namespace leeway::shader
