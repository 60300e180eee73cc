#include "shader/value_range.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "shader/build_tree.h"
#include "shader/builtins.h"

namespace leeway::shader {
namespace {

struct Range {
  int64_t low, high;
};

constexpr int64_t kMaxU32 = 0xffffffffll, kMinI32 = -0x80000000ll, kMaxI32 = 0x7fffffffll;

Range Limits(const Type& type) {
  if (type.IsScalar(Scalar::kI32)) return {kMinI32, kMaxI32};
  return {0, kMaxU32};
}
bool IsInteger(const Type& type) { return type.IsScalar(Scalar::kI32) || type.IsScalar(Scalar::kU32); }
Range Intersect(Range a, Range b) { return {std::max(a.low, b.low), std::min(a.high, b.high)}; }

// The variable behind an assignment's target or an address: x in x, x.y, x[i], *x.
const std::string* RootName(const Expr* e) {
  while (e) {
    if (e->kind == ExprKind::kName) return &e->name;
    e = e->args.empty() ? nullptr : e->args[0].get();
  }
  return nullptr;
}

class Analysis {
 public:
  Analysis(const BoundKernel& kernel, std::map<const Expr*, uint32_t>& proven) : kernel_(kernel), proven_(proven) {}

  void Run(const Function& function) {
    known_.clear();
    facts_.clear();
    builtins_.clear();
    changing_.clear();
    for (const StmtPtr& s : function.body) NoteChanges(*s, changing_);
    for (const Parameter& p : function.parameters) builtins_[p.name] = p.builtin;
    Walk(function.body);
  }

 private:
  // Names that are assigned somewhere under `stmt`, or whose address is taken.
  static void NoteChanges(const Stmt& stmt, std::set<std::string>& names) {
    build::VisitStatements(const_cast<Stmt&>(stmt), [&](Stmt& s) {
      if ((s.kind == StmtKind::kAssign || s.kind == StmtKind::kIncrement) && s.target) {
        if (const std::string* name = RootName(s.target.get())) names.insert(*name);
      }
    });
    build::VisitExprs(const_cast<Stmt&>(stmt), [&](ExprPtr& e) {
      if (e->kind != ExprKind::kUnary || e->op != "&") return;
      if (const std::string* name = RootName(e.get())) names.insert(*name);
    });
  }

  bool IsFixed(const Expr& e) const {
    switch (e.kind) {
      case ExprKind::kLiteral: return true;
      case ExprKind::kName: return e.symbol == Symbol::kParameter || (e.symbol == Symbol::kLocal && !changing_.count(e.name));
      case ExprKind::kMember:
      case ExprKind::kUnary:
      case ExprKind::kBinary:
      case ExprKind::kConstruct: break;
      default: return false;
    }
    return std::all_of(e.args.begin(), e.args.end(), [&](const ExprPtr& arg) { return IsFixed(*arg); });
  }

  Range RangeOf(const Expr& e) const {
    Range range = Computed(e);
    for (const auto& [fact, bounds] : facts_) {
      if (Equal(*fact, e)) range = Intersect(range, bounds);
    }
    return range;
  }

  Range Computed(const Expr& e) const {
    Range limits = Limits(e.type);
    if (!IsInteger(e.type)) return e.type.IsScalar(Scalar::kBool) ? Range{0, 1} : limits;
    // A result that may wrap may be anything.
    auto fit = [&](Range r) { return r.low < limits.low || r.high > limits.high || r.low > r.high ? limits : r; };
    switch (e.kind) {
      case ExprKind::kLiteral: return {e.literal.i, e.literal.i};
      case ExprKind::kName: {
        auto found = known_.find(e.name);
        if (found != known_.end()) return found->second;
        auto builtin = builtins_.find(e.name);
        if (builtin != builtins_.end() && builtin->second == "local_invocation_index") {
          int64_t count = int64_t(kernel_.workgroup_size[0]) * kernel_.workgroup_size[1] * kernel_.workgroup_size[2];
          return {0, count - 1};
        }
        return limits;
      }
      case ExprKind::kMember: {
        const Expr& base = *e.args[0];
        auto builtin = base.kind == ExprKind::kName ? builtins_.find(base.name) : builtins_.end();
        if (builtin == builtins_.end() || builtin->second != "local_invocation_id") return limits;
        int axis = e.name == "x" ? 0 : e.name == "y" ? 1 : 2;
        return {0, int64_t(kernel_.workgroup_size[axis]) - 1};
      }
      case ExprKind::kConstruct: {
        if (e.args.size() != 1 || !e.args[0]->type.IsScalar()) return limits;
        const Type& from = e.args[0]->type;
        return IsInteger(from) || from.IsScalar(Scalar::kBool) ? fit(RangeOf(*e.args[0])) : limits;
      }
      case ExprKind::kBinary: {
        if (!IsInteger(e.args[0]->type) || !IsInteger(e.args[1]->type)) return limits;
        Range a = RangeOf(*e.args[0]), b = RangeOf(*e.args[1]);
        if (a.low > a.high || b.low > b.high) return limits;  // code that is never reached
        if (e.op == "+") return fit({a.low + b.low, a.high + b.high});
        if (e.op == "-") return fit({a.low - b.high, a.high - b.low});
        if (e.op == "*" && a.low >= 0 && b.low >= 0 && (b.high == 0 || a.high <= kMaxU32 / b.high)) {
          return fit({a.low * b.low, a.high * b.high});
        }
        if (e.op == "/" && a.low >= 0 && b.low > 0) return {a.low / b.high, a.high / b.low};
        if (e.op == "%" && a.low >= 0 && b.low > 0) return {0, std::min(a.high, b.high - 1)};
        if (e.op == "&" && a.low >= 0 && b.low >= 0) return {0, std::min(a.high, b.high)};
        if (e.op == ">>" && a.low >= 0 && b.low == b.high && b.low < 32) return {a.low >> b.low, a.high >> b.low};
        if (e.op == "<<" && a.low >= 0 && b.low == b.high && b.low < 32) return fit({a.low << b.low, a.high << b.low});
        return limits;
      }
      case ExprKind::kCall: {
        auto arg = [&](size_t i) { return RangeOf(*e.args[i]); };
        switch (Builtin(e.builtin)) {
          case Builtin::kMin: return {std::min(arg(0).low, arg(1).low), std::min(arg(0).high, arg(1).high)};
          case Builtin::kMax: return {std::max(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
          case Builtin::kSelect: return {std::min(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
          case Builtin::kClamp: {
            Range v = arg(0), low = arg(1), high = arg(2);
            return {std::min(std::max(v.low, low.low), high.low), std::min(std::max(v.high, low.high), high.high)};
          }
          default: return limits;
        }
      }
      default: return limits;
    }
  }

  // Adds what follows from `condition` being `truth`.
  void Assume(const Expr& condition, bool truth) {
    if (condition.kind == ExprKind::kUnary && condition.op == "!") return Assume(*condition.args[0], !truth);
    if (condition.kind != ExprKind::kBinary) return;
    const std::string& op = condition.op;
    const Expr &a = *condition.args[0], &b = *condition.args[1];
    if (op == "&&" || op == "||") {
      if ((op == "&&") != truth) return;
      Assume(a, truth);
      return Assume(b, truth);
    }
    if (!IsInteger(a.type) || !IsInteger(b.type)) return;
    bool less = op == "<", less_equal = op == "<=", greater = op == ">", greater_equal = op == ">=";
    if (!truth) {
      std::swap(less, greater_equal);
      std::swap(less_equal, greater);
    }
    bool equal = truth ? op == "==" : op == "!=";
    Range ra = RangeOf(a), rb = RangeOf(b), la = Limits(a.type), lb = Limits(b.type);
    if (less) la.high = rb.high - 1, lb.low = ra.low + 1;
    if (less_equal) la.high = rb.high, lb.low = ra.low;
    if (greater) la.low = rb.low + 1, lb.high = ra.high - 1;
    if (greater_equal) la.low = rb.low, lb.high = ra.high;
    if (equal) la = rb, lb = ra;
    if (IsFixed(a) && a.kind != ExprKind::kLiteral) facts_.push_back({&a, la});
    if (IsFixed(b) && b.kind != ExprKind::kLiteral) facts_.push_back({&b, lb});
  }

  void Look(const ExprPtr& e) {
    if (!e) return;
    for (const ExprPtr& arg : e->args) Look(arg);
    if (e->kind != ExprKind::kTensorCall || (e->method != "load_or_zero" && e->method != "load4_or_zero")) return;
    auto tensor = kernel_.tensors.find(e->name);
    if (tensor == kernel_.tensors.end()) return;
    uint32_t bits = 0;
    for (size_t i = 0; i < e->args.size(); ++i) {
      int64_t extent = tensor->second.shape[int(i)];
      if (i + 1 == e->args.size() && e->method == "load4_or_zero") extent = (extent + 3) / 4;
      Range range = RangeOf(*e->args[i]);
      if (range.low >= 0 && range.high < extent) bits |= 1u << i;
    }
    proven_[e.get()] = bits;
  }

  static bool Leaves(const std::vector<StmtPtr>& body) {
    if (body.empty()) return false;
    StmtKind last = body.back()->kind;
    return last == StmtKind::kReturn || last == StmtKind::kBreak || last == StmtKind::kContinue;
  }

  void Walk(const std::vector<StmtPtr>& body) {
    size_t facts = facts_.size();
    for (const StmtPtr& s : body) Walk(*s);
    facts_.resize(facts);
  }
  void WalkAssuming(const Expr& condition, bool truth, const std::vector<StmtPtr>& body) {
    size_t facts = facts_.size();
    Assume(condition, truth);
    Walk(body);
    facts_.resize(facts);
  }

  void Walk(const Stmt& s) {
    switch (s.kind) {
      case StmtKind::kLet:
      case StmtKind::kVar:
        Look(s.value);
        if (s.value && s.type && IsInteger(*s.type) && !changing_.count(s.name)) known_[s.name] = RangeOf(*s.value);
        return;
      case StmtKind::kIf:
        Look(s.value);
        WalkAssuming(*s.value, true, s.body);
        WalkAssuming(*s.value, false, s.else_body);
        if (Leaves(s.body)) Assume(*s.value, false);
        if (Leaves(s.else_body)) Assume(*s.value, true);
        return;
      case StmtKind::kFor: return WalkFor(s);
      case StmtKind::kWhile: Look(s.value); return WalkAssuming(*s.value, true, s.body);
      case StmtKind::kSwitch:
        Look(s.value);
        for (const SwitchCase& c : s.cases) Walk(c.body);
        return;
      default:
        Look(s.target);
        Look(s.value);
        Walk(s.body);
        Walk(s.else_body);
        return;
    }
  }

  // A loop that counts its variable up to a bound: inside, the variable is below the bound and not below its start.
  void WalkFor(const Stmt& s) {
    if (s.init) Walk(*s.init);
    Look(s.value);
    if (s.update) Walk(*s.update);
    size_t facts = facts_.size();
    std::string counted = CountedVariable(s);
    if (!counted.empty()) {
      int64_t start = RangeOf(*s.init->value).low;
      Range range = Limits(*s.init->type);
      range.low = start;
      known_[counted] = range;
      changing_.erase(counted);  // fixed for the length of the body
    }
    if (s.value) Assume(*s.value, true);
    Walk(s.body);
    facts_.resize(facts);
    if (!counted.empty()) {
      known_.erase(counted);
      changing_.insert(counted);
    }
  }

  std::string CountedVariable(const Stmt& s) const {
    if (!s.init || s.init->kind != StmtKind::kVar || !s.init->value || !s.init->type || !IsInteger(*s.init->type)) return "";
    if (!s.update || !s.update->target || s.update->target->kind != ExprKind::kName) return "";
    const std::string& name = s.init->name;
    if (s.update->target->name != name) return "";
    bool up = s.update->kind == StmtKind::kIncrement && s.update->op == "++";
    if (s.update->kind == StmtKind::kAssign && s.update->op == "+=") {
      // Steps that cannot carry a variable below its bound past the end of its type.
      Range step = RangeOf(*s.update->value);
      up = step.low >= 0 && step.high <= 1 << 24;
    }
    if (!up || !s.value || s.value->kind != ExprKind::kBinary || (s.value->op != "<" && s.value->op != "<=")) return "";
    if (s.value->args[0]->kind != ExprKind::kName || s.value->args[0]->name != name) return "";
    if (RangeOf(*s.value->args[1]).high > kMaxI32 - (1 << 24)) return "";
    std::set<std::string> changed;
    for (const StmtPtr& inner : s.body) NoteChanges(*inner, changed);
    return changed.count(name) ? "" : name;
  }

  const BoundKernel& kernel_;
  std::map<const Expr*, uint32_t>& proven_;
  std::map<std::string, Range> known_;           // of names that do not change
  std::map<std::string, std::string> builtins_;  // parameters of the entry point
  std::set<std::string> changing_;
  std::vector<std::pair<const Expr*, Range>> facts_;
};

}  // namespace

std::map<const Expr*, uint32_t> ProvenCoordinates(const Module& module, const BoundKernel& kernel) {
  std::map<const Expr*, uint32_t> proven;
  Analysis analysis(kernel, proven);
  for (const Function& f : module.functions) analysis.Run(f);
  return proven;
}

}  // namespace leeway::shader
