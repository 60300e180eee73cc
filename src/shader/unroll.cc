#include "shader/unroll.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/strings.h"
#include "shader/build_tree.h"

namespace leeway::shader {
namespace {

using namespace build;

// A text of so many rounds would be compiled for long.
constexpr int64_t kMostRounds = 64;

bool IsMatrix(const Type& type) {
  return type.kind == Type::Kind::kMatrix || (type.kind == Type::Kind::kArray && type.element && IsMatrix(*type.element));
}

template <class Visit>
void EachStatement(const std::vector<StmtPtr>& body, Visit&& visit) {
  for (const StmtPtr& s : body) VisitStatements(*s, visit);
}

struct Rounds {
  std::string name;
  Scalar scalar = Scalar::kU32;
  int64_t first = 0, end = 0, step = 1;
};

bool IsName(const ExprPtr& e, std::string_view name) { return e && e->kind == ExprKind::kName && e->name == name; }
bool IsLiteral(const ExprPtr& e) { return e && e->kind == ExprKind::kLiteral && e->type.IsScalar(); }

// for (var i = FIRST; i < END; i += STEP), with a body that leaves i alone and the loop only at its end.
std::optional<Rounds> RoundsOf(const Stmt& loop) {
  if (loop.kind != StmtKind::kFor || loop.unroll >= 0 || !loop.init || !loop.value || !loop.update) return std::nullopt;
  const Stmt &init = *loop.init, &update = *loop.update;
  if (init.kind != StmtKind::kVar || !IsLiteral(init.value)) return std::nullopt;
  Rounds rounds{init.name, init.value->type.scalar, init.value->literal.i, 0, 1};
  if (rounds.scalar != Scalar::kU32 && rounds.scalar != Scalar::kI32) return std::nullopt;
  const Expr& condition = *loop.value;
  if (condition.kind != ExprKind::kBinary || condition.op != "<" || !IsName(condition.args[0], rounds.name) ||
      !IsLiteral(condition.args[1]) || !IsName(update.target, rounds.name)) {
    return std::nullopt;
  }
  rounds.end = condition.args[1]->literal.i;
  if (update.kind == StmtKind::kAssign && update.op == "+=" && IsLiteral(update.value)) {
    rounds.step = update.value->literal.i;
  } else if (update.kind != StmtKind::kIncrement || update.op != "++") {
    return std::nullopt;
  }
  if (rounds.step <= 0 || (rounds.end - rounds.first + rounds.step - 1) / rounds.step > kMostRounds) return std::nullopt;
  bool is_plain = true;
  EachStatement(loop.body, [&](Stmt& s) {
    if (s.kind == StmtKind::kReturn || s.kind == StmtKind::kBreak || s.kind == StmtKind::kContinue) is_plain = false;
    if ((s.kind == StmtKind::kAssign || s.kind == StmtKind::kIncrement) && IsName(s.target, rounds.name)) is_plain = false;
  });
  // A pointer to it might change it too.
  for (const StmtPtr& s : loop.body) {
    VisitExprs(*s, [&](ExprPtr& e) {
      if (e->kind == ExprKind::kUnary && e->op == "&" && IsName(e->args[0], rounds.name)) is_plain = false;
    });
  }
  if (!is_plain) return std::nullopt;
  return rounds;
}

class Unroller {
 public:
  explicit Unroller(Function& function) {
    for (const Parameter& p : function.parameters) taken_.insert(p.name);
    EachStatement(function.body, [&](Stmt& s) { taken_.insert(s.name); });
    function.body = Unrolled(std::move(function.body));
  }

 private:
  std::vector<StmtPtr> Unrolled(std::vector<StmtPtr> body) {
    std::vector<StmtPtr> out;
    for (StmtPtr& s : body) {
      s->body = Unrolled(std::move(s->body));
      s->else_body = Unrolled(std::move(s->else_body));
      for (SwitchCase& c : s->cases) c.body = Unrolled(std::move(c.body));
      const std::optional<Rounds> rounds = RoundsOf(*s);
      if (!rounds) {
        out.push_back(std::move(s));
        continue;
      }
      for (int64_t i = rounds->first; i < rounds->end; i += rounds->step) {
        for (StmtPtr& copy : Round(s->body, *rounds, i)) out.push_back(std::move(copy));
      }
    }
    return out;
  }

  // The body with the variable's value in its place and its own names renamed.
  std::vector<StmtPtr> Round(const std::vector<StmtPtr>& body, const Rounds& rounds, int64_t value) {
    std::vector<StmtPtr> copy = Clone(body);
    std::map<std::string, std::string> renamed;
    EachStatement(copy, [&](Stmt& s) {
      if (s.kind != StmtKind::kLet && s.kind != StmtKind::kVar && s.kind != StmtKind::kConst) return;
      std::string name = s.name;
      for (int n = 1; !taken_.insert(name).second; ++n) name = StrCat(s.name, "_", n);
      renamed[s.name] = name;
      s.name = name;
    });
    for (StmtPtr& s : copy) {
      VisitExprs(*s, [&](ExprPtr& e) {
        if (e->kind != ExprKind::kName || e->symbol != Symbol::kLocal) return;
        if (e->name == rounds.name) {
          const Location at = e->at;
          e = TypedLiteral({.i = value}, rounds.scalar);
          e->at = at;
        } else if (auto found = renamed.find(e->name); found != renamed.end()) {
          e->name = found->second;
        }
      });
    }
    return copy;
  }

  std::set<std::string> taken_;
};

// Every use of the array is an element at a constant place.
bool IsSplittable(Function& function, const std::string& name) {
  int uses = 0, constant_uses = 0;
  VisitExprs(function, [&](ExprPtr& e) {
    if (e->kind == ExprKind::kName && e->name == name) ++uses;
    // The checker has refused constant places outside.
    if (e->kind == ExprKind::kIndex && IsName(e->args[0], name) && IsLiteral(e->args[1])) ++constant_uses;
  });
  return uses == constant_uses;
}

// Puts a variable for each element where an array of `elements` is declared.
void DeclareElements(std::vector<StmtPtr>& body, const std::map<std::string, std::vector<std::string>>& elements) {
  std::vector<StmtPtr> out;
  for (StmtPtr& s : body) {
    DeclareElements(s->body, elements);
    DeclareElements(s->else_body, elements);
    for (SwitchCase& c : s->cases) DeclareElements(c.body, elements);
    const auto found = s->kind == StmtKind::kVar ? elements.find(s->name) : elements.end();
    if (found == elements.end()) {
      out.push_back(std::move(s));
      continue;
    }
    for (const std::string& name : found->second) {
      StmtPtr one = Clone(*s);
      one->name = name;
      one->type = *s->type->element;
      out.push_back(std::move(one));
    }
  }
  body = std::move(out);
}

}  // namespace

bool DeclaresMatrices(const Function& function) {
  bool found = false;
  EachStatement(function.body, [&](Stmt& s) { found |= s.type && IsMatrix(*s.type); });
  return found;
}

void UnrollMatrixLoops(Module& module) {
  for (Function& function : module.functions) {
    if (DeclaresMatrices(function)) Unroller{function};
  }
}

void SplitMatrixArrays(Module& module) {
  for (Function& function : module.functions) {
    std::set<std::string> taken;
    for (const Parameter& p : function.parameters) taken.insert(p.name);
    EachStatement(function.body, [&](Stmt& s) { taken.insert(s.name); });
    std::map<std::string, std::vector<std::string>> elements;
    EachStatement(function.body, [&](Stmt& s) {
      if (s.kind != StmtKind::kVar || s.value || !s.type || s.type->kind != Type::Kind::kArray || !IsMatrix(*s.type) ||
          s.type->element->kind != Type::Kind::kMatrix || !IsSplittable(function, s.name)) {
        return;
      }
      for (uint32_t i = 0; i < s.type->count; ++i) {
        std::string name = StrCat(s.name, "_", i);
        while (!taken.insert(name).second) name += "_";
        elements[s.name].push_back(std::move(name));
      }
    });
    if (elements.empty()) continue;
    DeclareElements(function.body, elements);
    VisitExprs(function, [&](ExprPtr& e) {
      if (e->kind != ExprKind::kIndex || e->args[0]->kind != ExprKind::kName) return;
      const auto found = elements.find(e->args[0]->name);
      if (found == elements.end() || uint64_t(e->args[1]->literal.i) >= found->second.size()) return;
      const Location at = e->at;
      Type type = e->type;
      e = Name(found->second[size_t(e->args[1]->literal.i)], std::move(type), Symbol::kLocal);
      e->at = at;
    });
  }
}

}  // namespace leeway::shader
