#include "shader/simplify.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>

#include "shader/build_tree.h"
#include "shader/builtins.h"
#include "shader/constants.h"

namespace leeway::shader {
namespace {

using namespace build;

bool IsLiteral(const ExprPtr& e) { return e && e->kind == ExprKind::kLiteral; }
bool IsInteger(const Type& type) { return type.IsScalar(Scalar::kI32) || type.IsScalar(Scalar::kU32); }
bool IsIntLiteral(const ExprPtr& e, int64_t value) { return IsLiteral(e) && IsInteger(e->type) && e->literal.i == value; }

class Simplifier {
 public:
  Simplifier(Module& module, bool identities) : module_(module), identities_(identities) {}

  void Run() {
    for (Function& f : module_.functions) {
      function_ = &f;
      // Each round may open the way for another one: a let that became a literal, a branch that became constant.
      for (int round = 0; round < 3; ++round) {
        VisitExprs(f, [&](ExprPtr& e) { SimplifyExpr(e); });
        SimplifyBody(f.body);
        if (!PropagateLets(f)) break;
      }
      if (IsPureFunction(f)) pure_functions_.insert(f.name);
    }
    DropUnused();
  }

 private:
  // ---- Expressions ----

  bool IsPure(const Expr& e) const {
    if (e.kind == ExprKind::kTensorCall) return false;
    if (e.kind == ExprKind::kCall) {
      if (e.builtin != 0) {
        const BuiltinInfo& info = InfoOf(e);
        if (info.is_atomic() || info.is_barrier() || info.is_subgroup()) return false;
      } else if (e.name != "textureLoad" && !pure_functions_.count(e.name)) {
        return false;
      }
    }
    return std::all_of(e.args.begin(), e.args.end(), [&](const ExprPtr& arg) { return IsPure(*arg); });
  }

  static void Become(ExprPtr& e, ExprPtr other) {
    if (other->at.line == 0) other->at = e->at;
    ExprPtr keep = std::move(other);  // may be a part of `e`
    e = std::move(keep);
  }
  static void BecomeLiteral(ExprPtr& e, const Literal& value) { Become(e, TypedLiteral(value, e->type.scalar)); }

  void SimplifyExpr(ExprPtr& e) {
    switch (e->kind) {
      case ExprKind::kUnary:
        if (IsLiteral(e->args[0]) && e->type.IsScalar()) {
          Folded folded = FoldUnary(e->op, e->args[0]->type.scalar, e->args[0]->literal);
          if (folded.value) BecomeLiteral(e, *folded.value);
        }
        return;
      case ExprKind::kBinary: return SimplifyBinary(e);
      case ExprKind::kConstruct:
        if (e->args.size() == 1 && e->type.IsScalar()) {
          if (e->args[0]->type == e->type) return Become(e, std::move(e->args[0]));
          if (IsLiteral(e->args[0])) {
            Folded folded = FoldConvert(e->args[0]->literal, e->args[0]->type.scalar, e->type.scalar);
            if (folded.value) BecomeLiteral(e, *folded.value);
          }
        }
        return;
      case ExprKind::kCall:
        if (e->builtin == uint16_t(Builtin::kSelect)) {
          if (!IsLiteral(e->args[2])) return;
          size_t taken = e->args[2]->literal.i ? 1 : 0;
          if (IsPure(*e->args[1 - taken])) Become(e, std::move(e->args[taken]));
          return;
        }
        if (e->builtin != 0 && e->type.IsScalar() && std::all_of(e->args.begin(), e->args.end(), IsLiteral)) {
          if (!IsInteger(e->type)) return;  // the device's own rounding of functions stays
          std::vector<Literal> values;
          for (const ExprPtr& arg : e->args) values.push_back(arg->literal);
          Folded folded = FoldBuiltin(Builtin(e->builtin), e->args[0]->type.scalar, values);
          if (folded.value) BecomeLiteral(e, *folded.value);
        }
        return;
      default: return;
    }
  }

  void SimplifyBinary(ExprPtr& e) {
    ExprPtr &a = e->args[0], &b = e->args[1];
    const std::string& op = e->op;
    if (IsLiteral(a) && IsLiteral(b) && e->type.IsScalar()) {
      Folded folded = FoldBinary(op, a->type.scalar, a->literal, b->literal);
      if (folded.value) BecomeLiteral(e, *folded.value);
      return;
    }
    if (e->type.IsScalar(Scalar::kBool) && (op == "&&" || op == "||")) {
      bool absorbing = op == "||";  // the operand that decides alone
      if (IsLiteral(a))
        return bool(a->literal.i) == absorbing ? BecomeLiteral(e, BoolLiteral(absorbing)) : Become(e, std::move(b));
      if (IsLiteral(b) && bool(b->literal.i) != absorbing) return Become(e, std::move(a));
      if (IsLiteral(b) && IsPure(*a)) return BecomeLiteral(e, BoolLiteral(absorbing));
      return;
    }
    if (!IsInteger(e->type) || !identities_) return;
    if (op == "+") {
      if (IsIntLiteral(a, 0)) return Become(e, std::move(b));
      if (IsIntLiteral(b, 0)) return Become(e, std::move(a));
    } else if (op == "-" || op == "<<" || op == ">>" || op == "|" || op == "^") {
      if (IsIntLiteral(b, 0)) return Become(e, std::move(a));
    } else if (op == "*") {
      if (IsIntLiteral(a, 1)) return Become(e, std::move(b));
      if (IsIntLiteral(b, 1)) return Become(e, std::move(a));
      if ((IsIntLiteral(a, 0) && IsPure(*b)) || (IsIntLiteral(b, 0) && IsPure(*a))) return BecomeLiteral(e, IntLiteral(0));
    } else if (op == "/" || op == "%") {
      if (!IsLiteral(b)) return;
      int64_t divisor = b->literal.i;
      if (divisor == 1 && op == "/") return Become(e, std::move(a));
      if (divisor == 1 && IsPure(*a)) return BecomeLiteral(e, IntLiteral(0));
      if (divisor < 2 || !e->type.IsScalar(Scalar::kU32) || !std::has_single_bit(uint64_t(divisor))) return;
      int shift = std::countr_zero(uint64_t(divisor));
      e->op = op == "/" ? ">>" : "&";
      b = U32(e->op == "&" ? divisor - 1 : shift);
    }
  }

  // ---- Statements ----

  void SimplifyBody(std::vector<StmtPtr>& body) {
    std::vector<StmtPtr> out;
    out.reserve(body.size());
    for (StmtPtr& s : body) {
      SimplifyBody(s->body);
      SimplifyBody(s->else_body);
      for (SwitchCase& c : s->cases) SimplifyBody(c.body);
      if (s->kind == StmtKind::kIf && IsLiteral(s->value)) {
        // Names of locals are unique in their function, so a branch can be put in place of its `if`.
        for (StmtPtr& inner : s->value->literal.i ? s->body : s->else_body) out.push_back(std::move(inner));
      } else if (s->kind == StmtKind::kIf && s->body.empty() && s->else_body.empty() && IsPure(*s->value)) {
        continue;
      } else if (s->kind == StmtKind::kWhile && IsLiteral(s->value) && !s->value->literal.i) {
        continue;
      } else {
        out.push_back(std::move(s));
      }
      // Nothing runs after these.
      if (out.empty()) continue;
      StmtKind last = out.back()->kind;
      if (last == StmtKind::kReturn || last == StmtKind::kBreak || last == StmtKind::kContinue) break;
    }
    body = std::move(out);
  }

  // Lets that are literals or other lets or parameters are replaced by them; lets that are not used go. True: something
  // changed.
  bool PropagateLets(Function& f) {
    std::map<std::string, ExprPtr> known;
    std::set<std::string> fixed;  // names whose value never changes
    for (const Parameter& p : f.parameters) fixed.insert(p.name);
    auto each_statement = [&](auto&& visit) {
      for (StmtPtr& s : f.body) VisitStatements(*s, visit);
    };
    each_statement([&](Stmt& s) {
      if (s.kind == StmtKind::kLet) fixed.insert(s.name);
    });
    each_statement([&](Stmt& s) {
      if (s.kind != StmtKind::kLet || !s.value) return;
      bool simple = IsLiteral(s.value) || (s.value->kind == ExprKind::kName && fixed.count(s.value->name));
      if (simple && s.value->type == *s.type) known[s.name] = Clone(*s.value);
    });
    std::map<std::string, int> uses;
    bool changed = false;
    VisitExprs(f, [&](ExprPtr& e) {
      if (e->kind != ExprKind::kName) return;
      for (auto found = known.find(e->name); found != known.end(); found = known.find(e->name)) {
        Location at = e->at;
        e = Clone(*found->second);
        e->at = at;
        changed = true;
        if (e->kind != ExprKind::kName) return;
      }
      ++uses[e->name];
    });
    changed = DropLets(f.body, uses) || changed;
    return changed;
  }

  bool DropLets(std::vector<StmtPtr>& body, const std::map<std::string, int>& uses) {
    size_t before = body.size();
    body.erase(std::remove_if(
                   body.begin(), body.end(),
                   [&](const StmtPtr& s) { return s->kind == StmtKind::kLet && !uses.count(s->name) && IsPure(*s->value); }),
               body.end());
    bool changed = body.size() != before;
    for (StmtPtr& s : body) {
      changed = DropLets(s->body, uses) || changed;
      changed = DropLets(s->else_body, uses) || changed;
      for (SwitchCase& c : s->cases) changed = DropLets(c.body, uses) || changed;
    }
    return changed;
  }

  // ---- Functions ----

  // Straight code that only computes: what the generated loads are.
  bool IsPureFunction(const Function& f) const {
    if (f.is_entry) return false;
    for (const StmtPtr& s : f.body) {
      if (!IsPureStatement(*s)) return false;
    }
    return true;
  }
  bool IsPureStatement(const Stmt& s) const {
    switch (s.kind) {
      case StmtKind::kLet:
      case StmtKind::kReturn: return !s.value || IsPure(*s.value);
      case StmtKind::kIf: {
        auto pure = [&](const StmtPtr& inner) { return IsPureStatement(*inner); };
        return IsPure(*s.value) && std::all_of(s.body.begin(), s.body.end(), pure) &&
               std::all_of(s.else_body.begin(), s.else_body.end(), pure);
      }
      default: return false;
    }
  }

  void DropUnused() {
    std::map<std::string, Function*> by_name;
    for (Function& f : module_.functions) by_name[f.name] = &f;
    std::set<std::string> reached, names;
    std::vector<Function*> work;
    for (Function& f : module_.functions) {
      if (f.is_entry) work.push_back(&f);
    }
    while (!work.empty()) {
      Function* f = work.back();
      work.pop_back();
      if (!reached.insert(f->name).second) continue;
      VisitExprs(*f, [&](ExprPtr& e) {
        if (e->kind == ExprKind::kName) names.insert(e->name);
        if (e->kind != ExprKind::kCall || e->builtin != 0) return;
        auto callee = by_name.find(e->name);
        if (callee != by_name.end()) work.push_back(callee->second);
      });
    }
    std::erase_if(module_.functions, [&](const Function& f) { return !reached.count(f.name); });
    std::erase_if(module_.consts, [&](const ConstDecl& c) { return !names.count(c.name); });
  }

  Module& module_;
  const bool identities_;  // rules for one constant operand
  Function* function_ = nullptr;
  std::set<std::string> pure_functions_;
};

}  // namespace

void Simplify(Module& module) { Simplifier(module, true).Run(); }
void FoldConstants(Module& module) { Simplifier(module, false).Run(); }

}  // namespace leeway::shader
