// Short ways to make typed nodes, for the passes that generate code.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "shader/ast.h"

namespace leeway::shader::build {

inline Type Vec4(Scalar s) { return Type::Vector(s, 4); }

inline ExprPtr TypedLiteral(Literal literal, Scalar scalar) {
  auto e = std::make_unique<Expr>();
  e->kind = ExprKind::kLiteral;
  e->type = Type::Of(scalar);
  e->literal = literal;
  e->constant = literal;
  return e;
}
inline ExprPtr U32(int64_t value) { return TypedLiteral({.i = value}, Scalar::kU32); }
inline ExprPtr I32(int64_t value) { return TypedLiteral({.i = value}, Scalar::kI32); }
inline ExprPtr F32(double value) { return TypedLiteral({.is_float = true, .f = value}, Scalar::kF32); }
inline ExprPtr Bool(bool value) { return TypedLiteral({.is_bool = true, .i = value}, Scalar::kBool); }
inline ExprPtr Number(double value, Scalar scalar) {
  switch (scalar) {
    case Scalar::kBool: return Bool(value != 0);
    case Scalar::kI32:
    case Scalar::kU32: return TypedLiteral({.i = int64_t(value)}, scalar);
    default: return TypedLiteral({.is_float = true, .f = value}, scalar);
  }
}

inline ExprPtr Name(std::string name, Type type, Symbol symbol) {
  auto e = std::make_unique<Expr>();
  e->kind = ExprKind::kName;
  e->name = std::move(name);
  e->type = std::move(type);
  e->symbol = symbol;
  return e;
}

template <class... Args>
std::vector<ExprPtr> List(Args... args) {
  std::vector<ExprPtr> list;
  list.reserve(sizeof...(args));
  (list.push_back(std::move(args)), ...);
  return list;
}
inline ExprPtr WithArgs(ExprKind kind, Type type, std::vector<ExprPtr> args) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->type = std::move(type);
  e->args = std::move(args);
  return e;
}
inline ExprPtr Binary(const char* op, ExprPtr a, ExprPtr b, Type type) {
  ExprPtr e = WithArgs(ExprKind::kBinary, std::move(type), List(std::move(a), std::move(b)));
  e->op = op;
  return e;
}
inline ExprPtr Not(ExprPtr a) {
  ExprPtr e = WithArgs(ExprKind::kUnary, Type::Of(Scalar::kBool), List(std::move(a)));
  e->op = "!";
  return e;
}
inline ExprPtr Index(ExprPtr base, ExprPtr index, Type type) {
  return WithArgs(ExprKind::kIndex, std::move(type), List(std::move(base), std::move(index)));
}
// A swizzle or member: base.name
inline ExprPtr Member(ExprPtr base, std::string name, Type type) {
  ExprPtr e = WithArgs(ExprKind::kMember, std::move(type), List(std::move(base)));
  e->name = std::move(name);
  return e;
}
inline ExprPtr Construct(Type type, std::vector<ExprPtr> args) {
  return WithArgs(ExprKind::kConstruct, std::move(type), std::move(args));
}
template <class... Args>
ExprPtr ConstructOf(Type type, Args... args) {
  return Construct(std::move(type), List(std::move(args)...));
}
// A function of the module, or a builtin (texture functions too, which only lowered kernels have).
ExprPtr Call(std::string name, std::vector<ExprPtr> args, Type type);

inline StmtPtr Let(std::string name, ExprPtr value) {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kLet;
  s->name = std::move(name);
  s->type = value->type;
  s->value = std::move(value);
  return s;
}
inline StmtPtr Assign(ExprPtr target, ExprPtr value) {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kAssign;
  s->op = "=";
  s->target = std::move(target);
  s->value = std::move(value);
  return s;
}
inline StmtPtr CallStatement(ExprPtr call) {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kCall;
  s->value = std::move(call);
  return s;
}
inline StmtPtr If(ExprPtr condition, std::vector<StmtPtr> body, std::vector<StmtPtr> else_body = {}) {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kIf;
  s->value = std::move(condition);
  s->body = std::move(body);
  s->else_body = std::move(else_body);
  return s;
}
inline StmtPtr Return(ExprPtr value) {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kReturn;
  s->value = std::move(value);
  return s;
}

// Calls visit(expr) for every expression under a statement, parents after their arguments; it may replace the node.
template <class Visit>
void VisitExprs(ExprPtr& expr, Visit&& visit) {
  if (!expr) return;
  for (ExprPtr& arg : expr->args) VisitExprs(arg, visit);
  visit(expr);
}
template <class Visit>
void VisitExprs(Stmt& stmt, Visit&& visit) {
  VisitExprs(stmt.target, visit);
  VisitExprs(stmt.value, visit);
  if (stmt.init) VisitExprs(*stmt.init, visit);
  if (stmt.update) VisitExprs(*stmt.update, visit);
  for (StmtPtr& s : stmt.body) VisitExprs(*s, visit);
  for (StmtPtr& s : stmt.else_body) VisitExprs(*s, visit);
  for (SwitchCase& c : stmt.cases) {
    for (ExprPtr& e : c.selectors) VisitExprs(e, visit);
    for (StmtPtr& s : c.body) VisitExprs(*s, visit);
  }
}
template <class Visit>
void VisitExprs(Function& function, Visit&& visit) {
  for (StmtPtr& s : function.body) VisitExprs(*s, visit);
}
// Calls visit(stmt) for every statement, outer ones first.
template <class Visit>
void VisitStatements(Stmt& stmt, Visit&& visit) {
  visit(stmt);
  if (stmt.init) VisitStatements(*stmt.init, visit);
  if (stmt.update) VisitStatements(*stmt.update, visit);
  for (StmtPtr& s : stmt.body) VisitStatements(*s, visit);
  for (StmtPtr& s : stmt.else_body) VisitStatements(*s, visit);
  for (SwitchCase& c : stmt.cases) {
    for (StmtPtr& s : c.body) VisitStatements(*s, visit);
  }
}

}  // namespace leeway::shader::build
