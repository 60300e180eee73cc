// Uniform control flow, as WGSL demands it: a barrier or a subgroup function has to be reached by all invocations of a
// workgroup together. The analysis walks the statements in order with one bit per variable (does it hold the same value in all
// invocations?) and one for the control flow; calls are analyzed for the bits of their arguments.
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/strings.h"
#include "shader/builtins.h"
#include "shader/check.h"
#include "shader/lexer.h"
#include "shader/prelude.h"

namespace leeway::shader {

namespace {

// Why something is not uniform; null: it is. Kept as the place of the first cause, for messages.
struct Cause {
  Location at;
  std::string what;
};
using Bit = const Cause*;

class Analysis {
 public:
  explicit Analysis(const Module& module) : module_(module) {
    for (const Function& f : module.functions) functions_.emplace(f.name, &f);
    for (const TensorDecl& t : module.tensors) tensors_.emplace(t.name, &t);
  }

  Status Run() {
    const Function& entry = module_.entry();
    Frame frame;
    for (const Parameter& p : entry.parameters) {
      bool is_uniform = p.builtin == "workgroup_id" || p.builtin == "num_workgroups";
      frame.values[p.name] = is_uniform ? nullptr : NewCause(entry.at, StrCat("the builtin ", p.builtin));
    }
    Analyze(entry, frame, nullptr);
    if (failed_) return error_;
    return {};
  }

 private:
  struct Frame {
    std::unordered_map<std::string_view, Bit> values;  // of locals and parameters; of what a pointer parameter points to
    Bit returned_flow = nullptr;                       // control flow in which a `return` happened
    Bit result = nullptr;
    Bit loop_flow = nullptr;  // control flow in which the innermost loop was left or continued
    bool break_leaves_switch = false;
  };
  struct Summary {
    Bit result = nullptr;
    std::vector<Bit> pointers;  // by parameter: what it points to afterwards
  };

  Bit NewCause(Location at, std::string what) {
    causes_.push_back(std::make_unique<Cause>(Cause{at, std::move(what)}));
    return causes_.back().get();
  }
  static Bit Join(Bit a, Bit b) { return a ? a : b; }

  void Need(Bit bit, const Expr& call, std::string_view name) {
    if (!bit || failed_) return;
    failed_ = true;
    // Inside of the prelude the caller's line is meant, and the function that it names.
    std::string_view shown = prelude_call_ ? std::string_view(prelude_call_->name) : name;
    if (prelude_call_) shown = shown.substr(0, shown.rfind('_'));
    error_ = KernelError(module_.name, prelude_call_ ? prelude_call_->at : call.at,
                         StrCat("`", shown,
                                "` must be reached by all invocations of the workgroup together, but the way here "
                                "depends on ",
                                bit->what, " in line ", bit->at.line));
  }

  void Analyze(const Function& function, Frame& frame, Bit flow) {
    Statements(function.body, frame, flow);
    frame.result = Join(frame.result, frame.returned_flow);
  }

  // ---- Expressions: is the value the same in all invocations? ----

  Bit Value(const Expr& expr, Frame& frame, Bit flow) {
    switch (expr.kind) {
      case ExprKind::kLiteral: return nullptr;
      case ExprKind::kName:
        switch (expr.symbol) {
          case Symbol::kLocal:
          case Symbol::kParameter: {
            auto found = frame.values.find(expr.name);
            return found == frame.values.end() ? nullptr : found->second;
          }
          case Symbol::kScratch:
          case Symbol::kModuleVar: return NewCauseFor(expr);
          case Symbol::kNone:
          case Symbol::kConst:
          case Symbol::kParam: return nullptr;
        }
        return nullptr;
      case ExprKind::kUnary:
        if (expr.op == "&") return Address(*expr.args[0], frame, flow);
        if (expr.op == "*" && expr.args[0]->type.name != "function") {
          return NewCause(expr.at, StrCat("memory that other invocations write (`", Format(expr), "`)"));
        }
        return Value(*expr.args[0], frame, flow);
      case ExprKind::kBinary:
        if (expr.op == "&&" || expr.op == "||") {  // the right side is reached depending on the left one
          Bit left = Value(*expr.args[0], frame, flow);
          return Join(left, Value(*expr.args[1], frame, Join(flow, left)));
        }
        return Join(Value(*expr.args[0], frame, flow), Value(*expr.args[1], frame, flow));
      case ExprKind::kIndex:
      case ExprKind::kMember:
      case ExprKind::kConstruct:
      case ExprKind::kBitcast: {
        Bit all = nullptr;
        for (const ExprPtr& arg : expr.args) all = Join(all, Value(*arg, frame, flow));
        return all;
      }
      case ExprKind::kTensorCall: {
        Bit all = nullptr;
        for (const ExprPtr& arg : expr.args) all = Join(all, Value(*arg, frame, flow));
        auto tensor = tensors_.find(expr.name);
        bool is_written = tensor != tensors_.end() && tensor->second->access != Access::kRead;
        if (is_written && expr.method != "is_inside") {
          all = Join(all, NewCause(expr.at, StrCat("the tensor ", expr.name, ", which the kernel writes")));
        }
        return all;
      }
      case ExprKind::kCall: return Call(expr, frame, flow);
    }
    return nullptr;
  }

  Bit NewCauseFor(const Expr& name) {
    auto [found, is_new] = memory_causes_.try_emplace(name.name, nullptr);
    if (is_new)
      found->second = NewCause(name.at, StrCat("`", name.name, "`, which is memory that other invocations may write"));
    return found->second;
  }

  // An address is uniform if its indices are.
  Bit Address(const Expr& expr, Frame& frame, Bit flow) {
    if (expr.kind == ExprKind::kIndex) return Join(Address(*expr.args[0], frame, flow), Value(*expr.args[1], frame, flow));
    if (expr.kind == ExprKind::kMember) return Address(*expr.args[0], frame, flow);
    return nullptr;
  }

  static const Expr* Root(const Expr& place) {
    const Expr* root = &place;
    while (!root->args.empty()) root = root->args[0].get();
    return root;
  }

  Bit Call(const Expr& expr, Frame& frame, Bit flow) {
    if (expr.builtin != 0) {
      const BuiltinInfo& info = InfoOf(expr);
      Bit all = nullptr;
      for (const ExprPtr& arg : expr.args) all = Join(all, Value(*arg, frame, flow));
      if (info.is_barrier() || info.is_subgroup()) Need(flow, expr, info.name);
      if (info.id == Builtin::kWorkgroupUniformLoad) {
        Need(all, expr, info.name);
        return nullptr;
      }
      if (info.is_atomic()) return NewCause(expr.at, StrCat("the result of ", info.name));
      if (info.is_subgroup()) return NewCause(expr.at, StrCat("the result of ", info.name));
      return all;
    }
    auto found = functions_.find(expr.name);
    if (found == functions_.end()) return nullptr;
    const Function& function = *found->second;
    std::string key = expr.name;
    key += flow ? '!' : '.';
    Frame inner;
    for (size_t i = 0; i < expr.args.size(); ++i) {
      const Parameter& p = function.parameters[i];
      Bit bit = Value(*expr.args[i], frame, flow);
      if (p.type.kind == Type::Kind::kPointer && p.type.name == "function") {
        // The bit of what the pointer points to, and of where: one bit for both.
        const Expr* root = Root(*expr.args[i]);
        auto held = frame.values.find(root->name);
        if (held != frame.values.end()) bit = Join(bit, held->second);
      }
      inner.values[p.name] = bit;
      key += bit ? '1' : '0';
    }
    bool enters_prelude = !prelude_call_ && IsPreludeInstanceName(expr.name);
    if (enters_prelude) prelude_call_ = &expr;
    Summary& summary = Summarize(key, function, std::move(inner), flow);
    if (enters_prelude) prelude_call_ = nullptr;
    for (size_t i = 0; i < expr.args.size() && i < summary.pointers.size(); ++i) {
      const Type& type = function.parameters[i].type;
      if (type.kind != Type::Kind::kPointer || type.name != "function") continue;
      const Expr* root = Root(*expr.args[i]);
      Bit& held = frame.values[root->name];
      held = Join(held, Join(summary.pointers[i], flow));
    }
    return summary.result;
  }

  Summary& Summarize(const std::string& key, const Function& function, Frame frame, Bit flow) {
    auto [found, is_new] = summaries_.try_emplace(key);
    if (!is_new) return found->second;
    Summary& summary = found->second;
    Analyze(function, frame, flow);
    summary.result = frame.result;
    for (const Parameter& p : function.parameters) summary.pointers.push_back(frame.values[p.name]);
    return summary;
  }

  // ---- Statements: the control flow after them ----

  Bit Statements(const std::vector<StmtPtr>& body, Frame& frame, Bit flow) {
    for (const StmtPtr& stmt : body) flow = Statement(*stmt, frame, flow);
    return flow;
  }

  // True if the statements can end in a jump out of them: what follows is then reached by some invocations only.
  static bool Jumps(const std::vector<StmtPtr>& body, bool in_loop, bool in_switch) {
    for (const StmtPtr& s : body) {
      switch (s->kind) {
        case StmtKind::kReturn: return true;
        case StmtKind::kBreak:
          if (!in_loop && !in_switch) return true;
          break;
        case StmtKind::kContinue:
          if (!in_loop) return true;
          break;
        case StmtKind::kIf:
          if (Jumps(s->body, in_loop, in_switch) || Jumps(s->else_body, in_loop, in_switch)) return true;
          break;
        case StmtKind::kBlock:
          if (Jumps(s->body, in_loop, in_switch)) return true;
          break;
        case StmtKind::kFor:
        case StmtKind::kWhile:
        case StmtKind::kLoop:
          if (Jumps(s->body, true, false)) return true;
          break;
        case StmtKind::kSwitch:
          for (const SwitchCase& c : s->cases) {
            if (Jumps(c.body, in_loop, true)) return true;
          }
          break;
        case StmtKind::kLet:
        case StmtKind::kVar:
        case StmtKind::kConst:
        case StmtKind::kAssign:
        case StmtKind::kIncrement:
        case StmtKind::kCall:
        case StmtKind::kBreakIf: break;
      }
    }
    return false;
  }

  void Store(const Expr& place, Bit value, Frame& frame, bool whole) {
    const Expr* root = Root(place);
    if (root->symbol == Symbol::kLocal || root->symbol == Symbol::kParameter) {
      Bit& held = frame.values[root->name];
      held = whole ? value : Join(held, value);
    }
  }

  void Merge(std::unordered_map<std::string_view, Bit>& into, const std::unordered_map<std::string_view, Bit>& other) {
    for (const auto& [name, bit] : other) {
      Bit& held = into[name];
      held = Join(held, bit);
    }
  }

  Bit Statement(const Stmt& stmt, Frame& frame, Bit flow) {
    switch (stmt.kind) {
      case StmtKind::kLet:
      case StmtKind::kVar:
      case StmtKind::kConst: {
        Bit value = stmt.value ? Value(*stmt.value, frame, flow) : nullptr;
        frame.values[stmt.name] = stmt.kind == StmtKind::kVar ? Join(value, flow) : value;
        return flow;
      }
      case StmtKind::kAssign: {
        Bit value = Value(*stmt.value, frame, flow);
        if (!stmt.target) return flow;
        Bit where = Address(*stmt.target, frame, flow);
        bool whole = stmt.op == "=" && stmt.target->kind == ExprKind::kName;
        if (stmt.target->kind == ExprKind::kUnary) Value(*stmt.target->args[0], frame, flow);
        Store(*stmt.target, Join(Join(value, where), flow), frame, whole);
        return flow;
      }
      case StmtKind::kIncrement: {
        Bit where = Address(*stmt.target, frame, flow);
        Store(*stmt.target, Join(where, flow), frame, false);
        return flow;
      }
      case StmtKind::kCall: Value(*stmt.value, frame, flow); return flow;
      case StmtKind::kIf: {
        Bit condition = Value(*stmt.value, frame, flow);
        Bit inner = Join(flow, condition);
        Frame other = frame;
        Statements(stmt.body, frame, inner);
        Statements(stmt.else_body, other, inner);
        Merge(frame.values, other.values);
        frame.returned_flow = Join(frame.returned_flow, other.returned_flow);
        frame.result = Join(frame.result, other.result);
        frame.loop_flow = Join(frame.loop_flow, other.loop_flow);
        bool jumps = Jumps(stmt.body, false, false) || Jumps(stmt.else_body, false, false);
        return jumps ? inner : flow;
      }
      case StmtKind::kSwitch: {
        Bit condition = Value(*stmt.value, frame, flow);
        Bit inner = Join(flow, condition);
        Frame before = frame;
        bool jumps = false;
        for (const SwitchCase& c : stmt.cases) {
          Frame one = before;
          one.break_leaves_switch = true;
          Statements(c.body, one, inner);
          Merge(frame.values, one.values);
          frame.returned_flow = Join(frame.returned_flow, one.returned_flow);
          frame.result = Join(frame.result, one.result);
          frame.loop_flow = Join(frame.loop_flow, one.loop_flow);
          jumps |= Jumps(c.body, false, true);
        }
        return jumps ? inner : flow;
      }
      case StmtKind::kFor:
      case StmtKind::kWhile:
      case StmtKind::kLoop: return Loop(stmt, frame, flow);
      case StmtKind::kBreak:
        if (!frame.break_leaves_switch) frame.loop_flow = Join(frame.loop_flow, flow);
        return flow;
      case StmtKind::kContinue: frame.loop_flow = Join(frame.loop_flow, flow); return flow;
      case StmtKind::kBreakIf:
        frame.loop_flow = Join(frame.loop_flow, Join(flow, Value(*stmt.value, frame, flow)));
        return flow;
      case StmtKind::kReturn:
        if (stmt.value) frame.result = Join(frame.result, Value(*stmt.value, frame, flow));
        frame.returned_flow = Join(frame.returned_flow, flow);
        return flow;
      case StmtKind::kBlock: return Statements(stmt.body, frame, flow);
    }
    return flow;
  }

  // A loop that some invocations leave earlier than others has no uniform control flow inside; after it all meet again. The
  // bits only ever grow, so the walk is repeated until they stand still.
  Bit Loop(const Stmt& stmt, Frame& frame, Bit flow) {
    if (stmt.init) Statement(*stmt.init, frame, flow);
    Bit outer_loop = std::exchange(frame.loop_flow, nullptr);
    Bit outer_returned = std::exchange(frame.returned_flow, nullptr);
    bool outer_break = std::exchange(frame.break_leaves_switch, false);
    Bit inner = flow;
    while (!failed_) {
      auto before = frame.values;
      Bit flow_before = inner;
      // The first walks may find a barrier uniform that is not; the last one decides, and it comes after all bits are set.
      Bit at = inner;
      if (stmt.value) {
        Bit condition = Value(*stmt.value, frame, at);
        frame.loop_flow = Join(frame.loop_flow, condition);
        at = Join(at, condition);
      }
      Statements(stmt.body, frame, at);
      if (stmt.kind == StmtKind::kLoop) Statements(stmt.else_body, frame, Join(at, frame.loop_flow));
      if (stmt.update) Statement(*stmt.update, frame, Join(at, frame.loop_flow));
      Merge(frame.values, before);
      inner = Join(inner, Join(frame.loop_flow, frame.returned_flow));
      if (SameBits(before, frame.values) && !flow_before == !inner) break;
    }
    Bit returned = frame.returned_flow;
    frame.loop_flow = outer_loop;
    frame.break_leaves_switch = outer_break;
    frame.returned_flow = Join(outer_returned, returned);
    return Join(flow, returned);
  }

  static bool SameBits(const std::unordered_map<std::string_view, Bit>& before,
                       const std::unordered_map<std::string_view, Bit>& after) {
    for (const auto& [name, bit] : after) {
      auto found = before.find(name);
      bool was = found != before.end() && found->second;
      if (!was != !bit) return false;
    }
    return true;
  }

  const Module& module_;
  std::unordered_map<std::string_view, const Function*> functions_;
  std::unordered_map<std::string_view, const TensorDecl*> tensors_;
  std::map<std::string, Summary> summaries_;
  std::map<std::string, Bit> memory_causes_;
  std::vector<std::unique_ptr<Cause>> causes_;
  const Expr* prelude_call_ = nullptr;  // the kernel's call of a function of the prelude that is being analyzed
  bool failed_ = false;
  Error error_;
};

}  // namespace

Status CheckUniformity(const Module& module) { return Analysis(module).Run(); }

}  // namespace leeway::shader
