#include "shader/check.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "shader/lexer.h"
#include "shader/prelude.h"
#include "shader/quantized.h"

namespace leeway::shader {

namespace {

constexpr uint32_t kMaxArrayElements = 1 << 24;

void SetLocation(Expr& expr, Location at) {
  expr.at = at;
  for (ExprPtr& arg : expr.args) SetLocation(*arg, at);
}

void SetLocation(std::vector<StmtPtr>& body, Location at) {
  for (StmtPtr& stmt : body) {
    stmt->at = at;
    if (stmt->target) SetLocation(*stmt->target, at);
    if (stmt->value) SetLocation(*stmt->value, at);
    for (StmtPtr* inner : {&stmt->init, &stmt->update}) {
      if (!*inner) continue;
      std::vector<StmtPtr> one;
      one.push_back(std::move(*inner));
      SetLocation(one, at);
      *inner = std::move(one[0]);
    }
    SetLocation(stmt->body, at);
    SetLocation(stmt->else_body, at);
    for (SwitchCase& c : stmt->cases) SetLocation(c.body, at);
  }
}

std::string AxesText(const TensorDecl& tensor) { return StrCat("[", Join(tensor.axes, ", "), "]"); }

}  // namespace

bool IsConstantExpression(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kLiteral: return true;
    case ExprKind::kName: return expr.symbol == Symbol::kConst;
    case ExprKind::kUnary:
      if (expr.op == "&" || expr.op == "*") return false;
      break;
    case ExprKind::kCall:
      if (expr.builtin == 0 || Builtin(expr.builtin) >= Builtin::kAtomicLoad) return false;
      break;
    case ExprKind::kTensorCall: return false;
    case ExprKind::kBinary:
    case ExprKind::kIndex:
    case ExprKind::kMember:
    case ExprKind::kConstruct:
    case ExprKind::kBitcast: break;
  }
  return std::all_of(expr.args.begin(), expr.args.end(), [](const ExprPtr& arg) { return IsConstantExpression(*arg); });
}

Checker::Checker(const Module& source, const Target& target, const std::map<std::string, VirtualTensor>* tensors)
    : source_(source), target_(target), tensors_(tensors) {
  out_.name = source.name;
  consts_.resize(source.consts.size());
  structs_.resize(source.structs.size());
  aliases_.resize(source.aliases.size());
  vars_.assign(source.vars.size(), State::kNew);
  bool is_certain = target.subgroups && target.subgroup_min == target.subgroup_max;
  known_ = {
      {"subgroup_size", is_certain ? target.subgroup_min : 0}, {"has_f16", target.f16}, {"is_software", target.is_software}};
}

bool Checker::Fail(Location at, std::string_view message) {
  if (!failed_) {
    failed_ = true;
    error_ = KernelError(source_.name, at, message);
  }
  return false;
}

// ---- Names ------------------------------------------------------------------------------------------------------------

bool Checker::DeclareNames() {
  auto declare = [this](const std::string& name, GlobalKind kind, size_t index, Location at) {
    // Constants may: they are literals where they are used, so no text ever holds the name.
    if (kind != GlobalKind::kConst && FindBuiltin(name)) {
      return Fail(at, StrCat("`", name, "` is a builtin function; no declaration can take its name"));
    }
    if (FindPreludeFunction(name) || IsPreludeInstanceName(name)) {
      return Fail(at, StrCat("`", name, "` is a function of the prelude; no declaration can take its name"));
    }
    if (!globals_.emplace(name, Global{kind, uint32_t(index)}).second) {
      return Fail(at, StrCat("`", name, "` is declared twice"));
    }
    return true;
  };
  globals_.reserve(32);
  auto all = [&](const auto& decls, GlobalKind kind) {
    for (size_t i = 0; i < decls.size(); ++i) {
      if (!declare(decls[i].name, kind, i, decls[i].at)) return false;
    }
    return true;
  };
  return all(source_.tensors, GlobalKind::kTensor) && all(source_.consts, GlobalKind::kConst) &&
         all(source_.params, GlobalKind::kParam) && all(source_.scratches, GlobalKind::kScratch) &&
         all(source_.vars, GlobalKind::kVar) && all(source_.structs, GlobalKind::kStruct) &&
         all(source_.aliases, GlobalKind::kAlias) && all(source_.functions, GlobalKind::kFunction);
}

Checker::Local* Checker::FindLocal(std::string_view name) {
  if (!frame_) return nullptr;
  for (size_t i = frame_->locals.size(); i-- > 0;) {
    if (frame_->locals[i].name == name) return &frame_->locals[i];
  }
  return nullptr;
}

const Checker::Global* Checker::FindGlobal(std::string_view name) const {
  if (frame_ && frame_->is_prelude) return nullptr;  // the prelude sees nothing of the kernel
  auto found = globals_.find(name);
  return found == globals_.end() ? nullptr : &found->second;
}

std::string Checker::Unique(std::string_view name) {
  auto is_free = [&](const std::string& candidate) {
    return !globals_.count(candidate) && !known_.count(candidate) && !FindBuiltin(candidate) &&
           !IsPreludeInstanceName(candidate) && frame_->taken.insert(candidate).second;
  };
  std::string unique(name);
  for (int i = 1; !is_free(unique); ++i) unique = StrCat(name, "_", i);
  return unique;
}

Checker::Local& Checker::AddLocal(Local local) {
  frame_->locals.push_back(std::move(local));
  return frame_->locals.back();
}

// ---- Types ------------------------------------------------------------------------------------------------------------

bool Checker::NeedScalar(Scalar scalar, Location at) {
  if (scalar != Scalar::kF16) return true;
  if (!target_.f16) { return Fail(at, "the type f16 is not available on this target; keep it under `if has_f16`"); }
  uses_f16_ = true;
  return true;
}

bool Checker::Resolve(Type& type, Location at) {
  switch (type.kind) {
    case Type::Kind::kVoid:
    case Type::Kind::kMatrix:
    case Type::Kind::kTexture: return true;
    case Type::Kind::kScalar:
    case Type::Kind::kVector:
    case Type::Kind::kAtomic: return NeedScalar(type.scalar, at);
    case Type::Kind::kStruct: return ResolveNamed(type, at);
    case Type::Kind::kPointer: {
      Type element = *type.element;
      if (!Resolve(element, at)) return false;
      if (!IsConstructible(element, true) || HoldsMatrix(element))
        return Fail(at, StrCat("there is no pointer to ", element.ToString()));
      type.element = std::make_shared<const Type>(std::move(element));
      return true;
    }
    case Type::Kind::kArray: {
      if (type.inferred) return true;
      Type element = *type.element;
      if (!Resolve(element, at)) return false;
      if (!IsConstructible(element, true)) return Fail(at, StrCat("there is no array of ", element.ToString()));
      if (!(element == *type.element)) type.element = std::make_shared<const Type>(std::move(element));
      if (type.count_expr) {
        ExprPtr count = Clone(*type.count_expr);
        if (!CheckConcrete(count)) return false;
        if (!count->constant || !count->type.IsScalar() || count->type.scalar == Scalar::kBool || count->literal.is_float) {
          return Fail(count->at, "the number of elements of an array is a constant integer");
        }
        int64_t n = count->literal.i;
        if (n < 1 || n > kMaxArrayElements) {
          return Fail(count->at, StrCat("an array has 1 to ", kMaxArrayElements, " elements, not ", n));
        }
        type.count = uint32_t(n);
        type.count_expr = nullptr;
      }
      return true;
    }
  }
  return true;
}

bool Checker::ResolveNamed(Type& type, Location at) {
  if (frame_) {
    for (const auto& [name, named] : frame_->types) {
      if (name == type.name) {
        type = named;
        return true;
      }
    }
  }
  const Global* global = FindGlobal(type.name);
  constexpr std::string_view kMatrixPrefix = "subgroup_matrix_";
  if (!global && type.name.starts_with(kMatrixPrefix)) {
    const std::string place = type.name.substr(kMatrixPrefix.size());
    if (place == "left" || place == "right" || place == "sum") {
      if (!target_.subgroup_matrix) {
        return Fail(at,
                    StrCat("the type ", type.name, " needs products of matrices by subgroups, which the target does not have"));
      }
      type = Type::SubgroupMatrix(place);
      return true;
    }
  }
  if (global && global->kind == GlobalKind::kStruct) return CheckStruct(global->index, at);
  if (!global || global->kind != GlobalKind::kAlias) {
    return Fail(at, StrCat(global ? "`" : "there is no type `", type.name, global ? "` is no type" : "`"));
  }
  TypeState& state = aliases_[global->index];
  if (state.state == State::kBusy) return Fail(at, StrCat("the alias ", type.name, " refers to itself"));
  if (state.state == State::kNew) {
    state.state = State::kBusy;
    state.type = source_.aliases[global->index].type;
    Frame* outer = std::exchange(frame_, nullptr);
    bool ok = Resolve(state.type, source_.aliases[global->index].at);
    frame_ = outer;
    if (!ok) return false;
    state.state = State::kDone;
  }
  type = state.type;
  return true;
}

bool Checker::CheckStruct(size_t index, Location at) {
  TypeState& state = structs_[index];
  if (state.state == State::kDone) return true;
  const StructDecl& decl = source_.structs[index];
  if (state.state == State::kBusy) return Fail(at, StrCat("the struct ", decl.name, " contains itself"));
  state.state = State::kBusy;
  Frame* outer = std::exchange(frame_, nullptr);
  state.resolved = decl;
  bool ok = true;
  for (StructMember& member : state.resolved.members) {
    ok = Resolve(member.type, decl.at);
    if (ok && (!IsConstructible(member.type, true) || HoldsMatrix(member.type))) {
      ok = Fail(decl.at, StrCat("the member ", member.name, " of ", decl.name, " cannot be a ", member.type.ToString()));
    }
    if (!ok) break;
  }
  frame_ = outer;
  if (!ok) return false;
  state.state = State::kDone;
  out_.structs.push_back(state.resolved);
  return true;
}

const StructDecl* Checker::FindStruct(std::string_view name) const {
  auto found = globals_.find(name);
  if (found == globals_.end() || found->second.kind != GlobalKind::kStruct) return nullptr;
  return &structs_[found->second.index].resolved;
}

bool Checker::IsConstructible(const Type& type, bool allow_atomics) const {
  switch (type.kind) {
    case Type::Kind::kScalar:
    case Type::Kind::kVector:
    case Type::Kind::kMatrix: return true;
    case Type::Kind::kAtomic: return allow_atomics;
    case Type::Kind::kArray: return type.element && (allow_atomics || !ContainsAtomic(*type.element));
    case Type::Kind::kStruct: return allow_atomics || !ContainsAtomic(type);
    case Type::Kind::kVoid:
    case Type::Kind::kPointer:
    case Type::Kind::kTexture: return false;
  }
  return false;
}

bool Checker::HoldsMatrix(const Type& type) {
  return type.kind == Type::Kind::kMatrix || (type.kind == Type::Kind::kArray && type.element && HoldsMatrix(*type.element));
}

bool Checker::ContainsAtomic(const Type& type) const {
  if (type.kind == Type::Kind::kAtomic) return true;
  if (type.kind == Type::Kind::kArray) return ContainsAtomic(*type.element);
  if (type.kind != Type::Kind::kStruct) return false;
  const StructDecl* decl = FindStruct(type.name);
  if (!decl) return false;
  return std::any_of(decl->members.begin(), decl->members.end(),
                     [this](const StructMember& m) { return ContainsAtomic(m.type); });
}

// ---- Constants --------------------------------------------------------------------------------------------------------

bool Checker::BindConsts(const std::map<std::string, ConstValue>& bound) {
  bound_ = &bound;
  for (const auto& [name, value] : bound) {
    auto found = globals_.find(name);
    if (found != globals_.end() && found->second.kind == GlobalKind::kConst) continue;
    auto known = known_.find(name);
    if (known != known_.end() && !value.is_array && value.values.size() == 1) {
      known->second = value.values[0];
      continue;
    }
    std::vector<std::string> names;
    for (const ConstDecl& c : source_.consts) names.push_back(c.name);
    return Fail({1, 1}, StrCat("the kernel has no const `", name, "` to bind; it has [", Join(names, ", "), "]"));
  }
  for (size_t i = 0; i < consts_.size(); ++i) {
    if (!NeedConst(i, source_.consts[i].at)) return false;
  }
  return true;
}

bool Checker::NeedConst(size_t index, Location at) {
  ConstState& state = consts_[index];
  const ConstDecl& decl = source_.consts[index];
  if (state.state == State::kDone) return true;
  if (state.state == State::kBusy) return Fail(at, StrCat("the const ", decl.name, " depends on itself"));
  state.state = State::kBusy;
  Frame* outer = std::exchange(frame_, nullptr);
  bool ok = EvaluateConst(decl, state);
  frame_ = outer;
  state.state = State::kDone;
  return ok;
}

bool Checker::EvaluateConst(const ConstDecl& decl, ConstState& state) {
  if (decl.type) {
    state.type = *decl.type;
    if (!Resolve(state.type, decl.at)) return false;
    if (!IsConstructible(state.type, false) || HoldsMatrix(state.type) || state.type.kind == Type::Kind::kStruct) {
      return Fail(decl.at, StrCat("a const cannot be a ", state.type.ToString()));
    }
    if (!state.type.IsScalar() && FindBuiltin(decl.name)) {
      return Fail(decl.at, StrCat("`", decl.name, "` is a builtin function; only a scalar const can take its name"));
    }
  }
  const ConstValue* bound = nullptr;
  if (bound_) {
    auto found = bound_->find(decl.name);
    if (found != bound_->end()) bound = &found->second;
  }
  if (decl.value) {
    if (bound) return Fail(decl.at, StrCat("const ", decl.name, " has a value of its own and cannot be bound"));
    state.value = Clone(*decl.value);
    if (!CheckValue(state.value)) return false;
    if (decl.type && !Convert(state.value, state.type, "const ", decl.name)) return false;
    // A composite is a variable of the printed text, so its type is settled here.
    if (!state.value->type.IsScalar() && !Default(state.value)) return false;
    if (!IsConstantExpression(*state.value)) {
      return Fail(state.value->at, StrCat("the value of const ", decl.name, " is not constant"));
    }
    state.type = state.value->type;
    return true;
  }
  ConstValue fallback;
  if (!bound && decl.is_tune) {
    fallback = ConstValue(decl.tune_values[0]);
    bound = &fallback;
  }
  if (!bound) {
    auto known = known_.find(decl.name);
    if (known == known_.end()) return Fail(decl.at, StrCat("const ", decl.name, " is not bound"));
    fallback = ConstValue(known->second);
    bound = &fallback;
  }
  if (decl.is_tune && std::find(decl.tune_values.begin(), decl.tune_values.end(),
                                bound->values.empty() ? NAN : bound->values[0]) == decl.tune_values.end()) {
    return Fail(decl.at, StrCat("tune ", decl.name, " is bound to ", Join(bound->values, ", "), ", which is none of {",
                                Join(decl.tune_values, ", "), "}"));
  }
  size_t next = 0;
  state.value = BoundConst(state.type, bound->values, next, decl);
  if (!state.value) return false;
  if (next != bound->values.size()) {
    return Fail(decl.at, StrCat("const ", decl.name, " : ", state.type.ToString(), " takes ", next, " values, bound are ",
                                bound->values.size()));
  }
  return true;
}

ExprPtr Checker::BoundConst(const Type& type, std::span<const double> values, size_t& next, const ConstDecl& decl) {
  auto expr = std::make_unique<Expr>();
  expr->at = decl.at;
  expr->type = type;
  if (!type.IsScalar()) {
    expr->kind = ExprKind::kConstruct;
    size_t count = type.IsVector() ? type.rows : type.count;
    Type element = type.IsVector() ? Type::Of(type.scalar) : *type.element;
    for (size_t i = 0; i < count; ++i) {
      ExprPtr one = BoundConst(element, values, next, decl);
      if (!one) return nullptr;
      expr->args.push_back(std::move(one));
    }
    return expr;
  }
  if (next >= values.size()) {
    Fail(decl.at, StrCat("const ", decl.name, " takes more values than the ", values.size(), " bound"));
    return nullptr;
  }
  double value = values[next++];
  bool fits = std::isfinite(value);
  Literal literal;
  switch (type.scalar) {
    case Scalar::kBool:
      fits = value == 0 || value == 1;
      literal = BoolLiteral(value != 0);
      break;
    case Scalar::kI32:
    case Scalar::kU32:
      fits = fits && value == std::floor(value) && value >= (type.scalar == Scalar::kU32 ? 0.0 : -2147483648.0) &&
             value <= (type.scalar == Scalar::kU32 ? 4294967295.0 : 2147483647.0);
      if (fits) literal = IntLiteral(int64_t(value));
      break;
    case Scalar::kF32:
    case Scalar::kF16:
    case Scalar::kAbstractInt:
    case Scalar::kAbstractFloat: {
      Folded rounded = FoldImplicit(FloatLiteral(value), type.scalar);
      fits = fits && rounded.value.has_value();
      if (fits) literal = *rounded.value;
      break;
    }
  }
  if (!fits) {
    Fail(decl.at, StrCat(decl.is_tune ? "tune " : "const ", decl.name, " : ", type.ToString(), " cannot be ", value));
    return nullptr;
  }
  ReplaceByLiteral(*expr, literal, type.scalar);
  return expr;
}

// ---- Module-scope resources ---------------------------------------------------------------------------------------------

bool Checker::CheckTensors() {
  for (const auto& [name, tensor] : *tensors_) {
    auto found = globals_.find(name);
    if (found == globals_.end() || found->second.kind != GlobalKind::kTensor) {
      std::vector<std::string> names;
      for (const TensorDecl& t : source_.tensors) names.push_back(t.name);
      return Fail({1, 1}, StrCat("the kernel has no tensor `", name, "` to place; it has [", Join(names, ", "), "]"));
    }
    const TensorDecl& decl = source_.tensors[found->second.index];
    if (size_t(tensor.shape.rank()) != decl.axes.size()) {
      return Fail(decl.at, StrCat("the tensor ", name, " has the axes ", AxesText(decl), " but is placed with shape ",
                                  tensor.shape.ToString()));
    }
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
      if (tensor.shape[axis] > 0x7FFFFFFF) {
        return Fail(decl.at, StrCat("the axis ", decl.axes[size_t(axis)], " of ", name, " has ", tensor.shape[axis],
                                    " elements, more than 2^31 - 1"));
      }
    }
  }
  // A tensor that is not placed is an error where it is used; under `if has_bias` it may be absent.
  for (const TensorDecl& decl : source_.tensors) {
    auto placed = tensors_->find(decl.name);
    if (placed != tensors_->end() && !IsQuantized(placed->second)) out_.tensors.push_back(decl);
  }
  return true;
}

bool Checker::ResolveResources() {
  for (const ParamDecl& decl : source_.params) {
    ParamDecl param = decl;
    if (!Resolve(param.type, decl.at)) return false;
    bool is_shareable = (param.type.IsScalar() || param.type.IsVector()) && param.type.scalar != Scalar::kBool &&
                        param.type.scalar != Scalar::kF16;
    if (!is_shareable) {
      return Fail(decl.at, StrCat("a param is a number or a vector of i32, u32 or f32, not ", param.type.ToString()));
    }
    out_.params.push_back(std::move(param));
  }
  for (const ScratchDecl& decl : source_.scratches) {
    ScratchDecl scratch = decl;
    if (!Resolve(scratch.type, decl.at)) return false;
    const Type* inner = &scratch.type;
    while (inner->kind == Type::Kind::kArray) inner = inner->element.get();
    if (inner->kind == Type::Kind::kPointer || ((inner->IsScalar() || inner->IsVector()) && inner->scalar == Scalar::kBool)) {
      return Fail(decl.at, StrCat("scratch memory cannot hold ", scratch.type.ToString()));
    }
    out_.scratches.push_back(std::move(scratch));
  }
  return true;
}

bool Checker::ResolveWorkgroupSize(const Function& entry) {
  uint64_t invocations = 1;
  for (size_t i = 0; i < entry.workgroup_size.size(); ++i) {
    ExprPtr size = Clone(*entry.workgroup_size[i]);
    if (!CheckConcrete(size)) return false;
    if (!size->constant || size->literal.is_float || size->literal.is_bool) {
      return Fail(size->at, "@workgroup_size takes constant integers");
    }
    int64_t n = size->literal.i;
    if (n < 1 || n > target_.max_workgroup_size[i]) {
      return Fail(size->at, StrCat("the workgroup has ", n, " invocations in ", "xyz"[i], ", the target takes 1 to ",
                                   target_.max_workgroup_size[i]));
    }
    workgroup_size_[i] = uint32_t(n);
    invocations *= uint64_t(n);
  }
  if (invocations > target_.max_invocations) {
    return Fail(entry.workgroup_size[0]->at,
                StrCat("the workgroup has ", invocations, " invocations, the target takes ", target_.max_invocations));
  }
  uint32_t lanes = workgroup_size_[0], size = uint32_t(known_.find("subgroup_size")->second);
  known_["unit_lanes"] = lanes;
  known_["unit_invocations"] = double(invocations);
  // Several units in a workgroup are subgroups each only if invocations are dealt out to subgroups in order, as all drivers do
  // for workgroups whose x extent is a multiple of the subgroup's size.
  bool is_subgroup = size != 0 && (size == lanes || (lanes == invocations && invocations <= size));
  known_["unit_is_subgroup"] = is_subgroup;
  // Several units share a subgroup.
  known_["unit_is_part_of_subgroup"] =
      size > lanes && lanes > 1 && !is_subgroup && (lanes & (lanes - 1)) == 0 && size % lanes == 0 && invocations % size == 0;
  known_["unit_is_subgroups"] = size > 1 && !is_subgroup && lanes % size == 0;
  return true;
}

bool Checker::CheckKernel() {
  const Function* entry = nullptr;
  for (const Function& f : source_.functions) {
    if (!f.is_entry) continue;
    if (entry) return Fail(f.at, StrCat("a kernel has one entry point; ", entry->name, " is another one"));
    entry = &f;
  }
  if (!entry) return Fail({1, 1}, "the kernel has no entry point (@compute)");
  if (!CheckTensors() || !ResolveResources() || !ResolveWorkgroupSize(*entry)) return false;
  if (!NeedFunction(*entry, entry->name, false, {}, entry->at)) return false;
  Function& out = out_.functions.back();
  out.workgroup_size.clear();
  for (uint32_t n : workgroup_size_) {
    auto size = std::make_unique<Expr>();
    size->at = entry->at;
    ReplaceByLiteral(*size, IntLiteral(n), Scalar::kU32);
    out.workgroup_size.push_back(std::move(size));
  }
  return true;
}

bool Checker::CheckValueMap(std::string_view name, std::string_view instance, std::vector<std::pair<std::string, Type>> types,
                            const std::vector<Type>& parameters, const Type& result) {
  const Function* source = nullptr;
  for (const Function& f : source_.functions) {
    if (f.name == name) source = &f;
  }
  if (!source) return Fail({1, 1}, StrCat("the value map has no function `", name, "`"));
  function_prefix_ = instance;
  known_.erase("unit_lanes");
  FunctionState* state = NeedFunction(*source, std::string(instance), false, std::move(types), source->at);
  if (!state) return false;
  if (state->parameters.size() != parameters.size()) {
    return Fail(source->at, StrCat("the value map takes ", state->parameters.size(), " values, it gets ", parameters.size(),
                                   " (the value in flight and its operands)"));
  }
  if (!(state->parameters[0] == parameters[0])) {
    return Fail(source->at, StrCat("the value map takes ", state->parameters[0].ToString(), " as its first value, it gets ",
                                   parameters[0].ToString()));
  }
  for (size_t i = 1; i < parameters.size(); ++i) {
    const Type& type = state->parameters[i];
    if (type.kind != parameters[i].kind || type.rows != parameters[i].rows) {
      return Fail(source->at, StrCat("operand ", i, " of the value map is a ", type.ToString(), "; write V, F, I, U or B"));
    }
  }
  if (!(state->result == result)) {
    return Fail(source->at, StrCat("the value map gives ", state->result.ToString(), ", expected is ", result.ToString()));
  }
  return true;
}

Module Checker::TakeModule() {
  for (size_t i = 0; i < consts_.size(); ++i) {
    if (consts_[i].uses == 0) continue;
    ConstDecl decl;
    decl.name = function_prefix_.empty() ? source_.consts[i].name : StrCat(function_prefix_, "_", source_.consts[i].name);
    decl.type = consts_[i].type;
    decl.value = std::move(consts_[i].value);
    decl.at = source_.consts[i].at;
    out_.consts.push_back(std::move(decl));
  }
  return std::move(out_);
}

// ---- Functions --------------------------------------------------------------------------------------------------------

Type Checker::BuiltinInputType(std::string_view builtin) {
  bool is_scalar = builtin == "local_invocation_index" || builtin == "subgroup_size" || builtin == "subgroup_invocation_id";
  return is_scalar ? Type::Of(Scalar::kU32) : Type::Vector(Scalar::kU32, 3);
}

// The parameter of the current function that carries a builtin input, added where there is none.
std::string Checker::HiddenParameter(std::string_view builtin, Location at) {
  for (const Parameter& p : frame_->function->parameters) {
    if (p.builtin == builtin) return p.name;
  }
  if (frame_->is_value_map) {
    Fail(at, StrCat("a value map has no ", builtin));
    return {};
  }
  Parameter parameter{Unique(builtin), BuiltinInputType(builtin), std::string(builtin)};
  frame_->function->parameters.push_back(parameter);
  return parameter.name;
}

Checker::FunctionState* Checker::NeedFunction(const Function& source, std::string instance, bool is_prelude,
                                              std::vector<std::pair<std::string, Type>> types, Location call,
                                              std::vector<std::pair<std::string, ExprPtr>> constants) {
  auto [found, is_new] = functions_.try_emplace(instance);
  FunctionState& state = found->second;
  if (!is_new) {
    if (state.state == State::kDone) return &state;
    Fail(call, StrCat("`", source.name, "` calls itself, here or through other functions; there is no recursion"));
    return nullptr;
  }
  Function function = Clone(source);
  function.name = std::move(instance);
  if (is_prelude) {
    function.at = call;
    SetLocation(function.body, call);
  }
  Frame frame;
  frame.function = &function;
  frame.is_prelude = is_prelude;
  frame.is_value_map = !function_prefix_.empty();
  frame.types = std::move(types);
  Frame* outer = std::exchange(frame_, &frame);
  auto check = [&] {
    for (auto& [name, value] : constants) {
      std::erase_if(function.parameters, [&name = name](const Parameter& p) { return p.name == name; });
      Local local;
      local.name = name;
      local.type = value->type;
      local.constant = std::move(value);
      AddLocal(std::move(local));
    }
    std::stable_partition(function.parameters.begin(), function.parameters.end(),
                          [](const Parameter& p) { return p.builtin.empty(); });
    for (Parameter& p : function.parameters) {
      if (!Resolve(p.type, function.at)) return false;
      if (function.is_entry && p.builtin.empty()) {
        return Fail(function.at, StrCat("the parameter ", p.name, " of the entry point is no @builtin"));
      }
      if (!p.builtin.empty()) {
        if (!(p.type == BuiltinInputType(p.builtin))) {
          return Fail(function.at, StrCat("the builtin ", p.builtin, " is a ", BuiltinInputType(p.builtin).ToString(), ", not ",
                                          p.type.ToString()));
        }
        if (p.builtin.substr(0, 8) == "subgroup") {
          if (!target_.subgroups) {
            return Fail(function.at, StrCat("the builtin ", p.builtin, " needs subgroups, which the target does not have"));
          }
          uses_subgroups_ = true;
        }
        if (frame.is_value_map) return Fail(function.at, StrCat("a value map has no ", p.builtin));
      } else {
        if (p.type.kind != Type::Kind::kPointer && !IsConstructible(p.type, false)) {
          return Fail(function.at, StrCat("the parameter ", p.name, " of ", source.name, " cannot be a ", p.type.ToString()));
        }
        state.parameters.push_back(p.type);
      }
      Local local;
      local.name = p.name;
      local.unique = p.name = Unique(p.name);
      local.type = p.type;
      local.symbol = Symbol::kParameter;
      AddLocal(std::move(local));
    }
    if (!Resolve(function.result, function.at)) return false;
    if (function.result.kind != Type::Kind::kVoid && (function.is_entry || !IsConstructible(function.result, false))) {
      return Fail(function.at,
                  StrCat(source.name, function.is_entry ? ", the entry point, returns nothing; not " : " cannot return ",
                         function.result.ToString()));
    }
    state.result = function.result;
    uint8_t exits = kNext;
    if (!CheckStatements(function.body, exits)) return false;
    if (function.result.kind != Type::Kind::kVoid && (exits & kNext)) {
      return Fail(function.at, StrCat("`", source.name, "` can end without returning its ", function.result.ToString()));
    }
    return true;
  };
  bool ok = check();
  frame_ = outer;
  if (!ok) return nullptr;
  if (!function.is_entry) {
    for (Parameter& p : function.parameters) {
      if (!p.builtin.empty()) state.builtins.push_back(std::exchange(p.builtin, {}));
    }
  }
  out_.functions.push_back(std::move(function));
  state.state = State::kDone;
  return &state;
}

// ---- Statements -------------------------------------------------------------------------------------------------------

bool Checker::CheckBody(std::vector<StmtPtr>& body, uint8_t& exits) {
  size_t outer = std::exchange(frame_->scope_start, frame_->locals.size());
  bool ok = CheckStatements(body, exits);
  frame_->locals.resize(frame_->scope_start);
  frame_->scope_start = outer;
  return ok;
}

bool Checker::CheckStatements(std::vector<StmtPtr>& body, uint8_t& exits) {
  exits = kNext;
  std::vector<StmtPtr> out;
  out.reserve(body.size());
  for (StmtPtr& stmt : body) {
    // What follows a return, break or continue is never reached: often because a branch on a constant was resolved.
    if (!(exits & kNext)) break;
    uint8_t one = kNext;
    if (!CheckStatement(stmt, one, out)) return false;
    exits = uint8_t((exits & ~kNext) | one);
  }
  body = std::move(out);
  return true;
}

bool Checker::CheckStatement(StmtPtr& stmt, uint8_t& exits, std::vector<StmtPtr>& out) {
  exits = kNext;
  // A loop is left by its condition, by `break`, or not at all.
  auto leave_loop = [&](uint8_t body, bool has_exit) {
    exits = uint8_t((body & kReturnOut) | (has_exit || (body & kBreakOut) ? kNext : 0));
    if (exits == 0) return Fail(stmt->at, "this loop has no way out");
    return true;
  };
  switch (stmt->kind) {
    case StmtKind::kLet:
    case StmtKind::kVar:
    case StmtKind::kConst: return CheckDeclaration(stmt, out);
    case StmtKind::kAssign:
    case StmtKind::kIncrement:
      if (!CheckAssignment(*stmt)) return false;
      break;
    case StmtKind::kCall: {
      bool is_tensor = stmt->value->kind == ExprKind::kTensorCall;
      if (!Check(stmt->value)) return false;
      const Expr& call = *stmt->value;
      bool has_effect = call.type.kind == Type::Kind::kVoid;
      if (call.kind == ExprKind::kCall) has_effect |= call.builtin == 0 || InfoOf(call).is_atomic();
      if (!has_effect) {
        return Fail(stmt->at, StrCat("the result of ",
                                     is_tensor           ? call.method
                                     : call.name.empty() ? "this"
                                                         : call.name,
                                     " is not used"));
      }
      break;
    }
    case StmtKind::kIf: {
      if (!CheckCondition(stmt->value, "if")) return false;
      if (stmt->value->constant) {
        std::vector<StmtPtr>& taken = stmt->value->constant->i ? stmt->body : stmt->else_body;
        if (!CheckBody(taken, exits)) return false;
        for (StmtPtr& inner : taken) out.push_back(std::move(inner));
        return true;
      }
      uint8_t otherwise = kNext;
      if (!CheckBody(stmt->body, exits) || !CheckBody(stmt->else_body, otherwise)) return false;
      exits |= otherwise;
      break;
    }
    case StmtKind::kFor: {
      size_t outer = std::exchange(frame_->scope_start, frame_->locals.size());
      std::vector<StmtPtr> init, update;
      uint8_t ignored = kNext, body = kNext;
      if (stmt->init) {
        if (!CheckStatement(stmt->init, ignored, init)) return false;
        if (init.size() > 1) return Fail(stmt->at, "the first part of a `for` cannot hold a pointer to a computed index");
        stmt->init = init.empty() ? nullptr : std::move(init[0]);
      }
      if (stmt->value && !CheckCondition(stmt->value, "for")) return false;
      ++frame_->loops;
      int switches = std::exchange(frame_->switches, 0);
      if (!CheckBody(stmt->body, body)) return false;
      frame_->switches = switches;
      --frame_->loops;
      if (stmt->update) {
        if (!CheckStatement(stmt->update, ignored, update)) return false;
        stmt->update = update.empty() ? nullptr : std::move(update[0]);
      }
      frame_->locals.resize(frame_->scope_start);
      frame_->scope_start = outer;
      if (!leave_loop(body, stmt->value && !(stmt->value->constant && stmt->value->constant->i))) return false;
      break;
    }
    case StmtKind::kWhile: {
      if (!CheckCondition(stmt->value, "while")) return false;
      if (stmt->value->constant && !stmt->value->constant->i) return true;
      ++frame_->loops;
      int switches = std::exchange(frame_->switches, 0);
      uint8_t body = kNext;
      if (!CheckBody(stmt->body, body)) return false;
      frame_->switches = switches;
      --frame_->loops;
      if (!leave_loop(body, !stmt->value->constant)) return false;
      break;
    }
    case StmtKind::kLoop: {
      size_t outer = std::exchange(frame_->scope_start, frame_->locals.size());
      uint8_t body = kNext, continuing = kNext;
      ++frame_->loops;
      int switches = std::exchange(frame_->switches, 0);
      if (!CheckStatements(stmt->body, body)) return false;
      bool has_break_if = !stmt->else_body.empty() && stmt->else_body.back()->kind == StmtKind::kBreakIf;
      int loops = std::exchange(frame_->loops, 0);
      bool in_continuing = std::exchange(frame_->in_continuing, true);
      if (!CheckBody(stmt->else_body, continuing)) return false;
      frame_->in_continuing = in_continuing;
      frame_->loops = loops - 1;
      frame_->switches = switches;
      frame_->locals.resize(frame_->scope_start);
      frame_->scope_start = outer;
      if (!leave_loop(body, has_break_if)) return false;
      break;
    }
    case StmtKind::kSwitch: return CheckSwitch(stmt, exits, out);
    case StmtKind::kBreak:
      if (frame_->loops == 0 && frame_->switches == 0) {
        return Fail(stmt->at, frame_->in_continuing
                                  ? "`break` cannot leave a loop from its `continuing`; use `break if` at its end"
                                  : "`break` outside of a loop or switch");
      }
      exits = kBreakOut;
      break;
    case StmtKind::kContinue:
      if (frame_->loops == 0) {
        return Fail(stmt->at, frame_->in_continuing ? "`continue` inside of a `continuing`" : "`continue` outside of a loop");
      }
      exits = kContinueOut;
      break;
    case StmtKind::kBreakIf:
      if (!CheckCondition(stmt->value, "break if")) return false;
      break;
    case StmtKind::kReturn: {
      exits = kReturnOut;
      if (frame_->in_continuing) return Fail(stmt->at, "`return` inside of a `continuing`");
      const Type& result = frame_->function->result;
      if (!stmt->value) {
        if (result.kind != Type::Kind::kVoid)
          return Fail(stmt->at, StrCat("`return` without the ", result.ToString(), " to return"));
        break;
      }
      if (result.kind == Type::Kind::kVoid) {
        return Fail(stmt->value->at, StrCat("`", frame_->function->name, "` returns nothing"));
      }
      if (!CheckValue(stmt->value) || !Convert(stmt->value, result, "the result")) return false;
      break;
    }
    case StmtKind::kBlock:
      if (!CheckBody(stmt->body, exits)) return false;
      break;
  }
  out.push_back(std::move(stmt));
  return true;
}

bool Checker::CheckSwitch(StmtPtr& stmt, uint8_t& exits, std::vector<StmtPtr>& out) {
  if (!CheckValue(stmt->value)) return false;
  // An abstract value takes the type of the cases.
  Type type = stmt->value->type;
  bool is_integer =
      type.IsScalar() && (type.scalar == Scalar::kI32 || type.scalar == Scalar::kU32 || type.scalar == Scalar::kAbstractInt);
  if (!is_integer) return Fail(stmt->value->at, StrCat("`switch` takes an i32 or a u32, got ", type.ToString()));
  std::vector<ExprPtr*> all{&stmt->value};
  bool has_default = false;
  for (SwitchCase& c : stmt->cases) {
    if (c.is_default && has_default) return Fail(stmt->at, "this switch has two defaults");
    has_default |= c.is_default;
    for (ExprPtr& selector : c.selectors) {
      if (!CheckValue(selector)) return false;
      if (!selector->constant || selector->literal.is_float || selector->literal.is_bool) {
        return Fail(selector->at, "a case is a constant integer");
      }
      all.push_back(&selector);
    }
  }
  if (!has_default) return Fail(stmt->at, "this switch has no default");
  Scalar scalar;
  if (!Unify(all, stmt->at, "the value and the cases of a switch", scalar)) return false;
  if (scalar == Scalar::kAbstractInt) {
    for (ExprPtr* one : all) {
      if (!Concretize(**one, Scalar::kI32)) return false;
    }
  }
  std::unordered_set<int64_t> seen;
  for (SwitchCase& c : stmt->cases) {
    for (ExprPtr& selector : c.selectors) {
      if (!seen.insert(selector->literal.i).second)
        return Fail(selector->at, StrCat("the case ", selector->literal.i, " exists twice"));
    }
  }
  auto check = [&](std::vector<StmtPtr>& body, uint8_t& body_exits) {
    ++frame_->switches;
    bool ok = CheckBody(body, body_exits);
    --frame_->switches;
    return ok;
  };
  auto leave = [](uint8_t body) { return uint8_t((body & ~kBreakOut) | (body & kBreakOut ? kNext : 0)); };
  if (stmt->value->constant) {
    SwitchCase* taken = nullptr;
    for (SwitchCase& c : stmt->cases) {
      bool matches = std::any_of(c.selectors.begin(), c.selectors.end(),
                                 [&](const ExprPtr& s) { return s->literal.i == stmt->value->literal.i; });
      if (matches || (c.is_default && !taken)) taken = &c;
      if (matches) break;
    }
    uint8_t body = kNext;
    if (!check(taken->body, body)) return false;
    exits = leave(body);
    if (!(body & kBreakOut)) {
      for (StmtPtr& inner : taken->body) out.push_back(std::move(inner));
      return true;
    }
    SwitchCase only;  // its `break`s need a switch around them
    only.is_default = true;
    only.body = std::move(taken->body);
    stmt->cases.clear();
    stmt->cases.push_back(std::move(only));
    out.push_back(std::move(stmt));
    return true;
  }
  exits = 0;
  for (SwitchCase& c : stmt->cases) {
    uint8_t body = kNext;
    if (!check(c.body, body)) return false;
    exits |= leave(body);
  }
  out.push_back(std::move(stmt));
  return true;
}

bool Checker::CheckDeclaration(StmtPtr& stmt, std::vector<StmtPtr>& out) {
  for (size_t i = frame_->scope_start; i < frame_->locals.size(); ++i) {
    if (frame_->locals[i].name == stmt->name)
      return Fail(stmt->at, StrCat("`", stmt->name, "` is already declared in this block"));
  }
  if (stmt->type && !Resolve(*stmt->type, stmt->at)) return false;
  Local local;
  local.name = stmt->name;
  local.is_var = stmt->kind == StmtKind::kVar;
  if (stmt->value) {
    if (!Check(stmt->value)) return false;
    if (stmt->value->type.kind == Type::Kind::kPointer && stmt->kind == StmtKind::kLet) {
      if (stmt->type && !(*stmt->type == stmt->value->type)) {
        return Fail(stmt->at,
                    StrCat("let ", stmt->name, " is ", stmt->type->ToString(), ", got ", stmt->value->type.ToString()));
      }
      local.type = stmt->value->type;
      Dereference(stmt->value);
      // Indices are evaluated here, once; what they are made of may change before the pointer is used.
      for (Expr* step = stmt->value.get(); !step->args.empty(); step = step->args[0].get()) {
        if (step->kind != ExprKind::kIndex || step->args[1]->constant) continue;
        ExprPtr& index = step->args[1];
        auto let = std::make_unique<Stmt>();
        let->kind = StmtKind::kLet;
        let->at = stmt->at;
        let->name = Unique(StrCat(stmt->name, "_index"));
        let->type = index->type;
        let->value = std::move(index);
        index = std::make_unique<Expr>();
        index->kind = ExprKind::kName;
        index->at = stmt->at;
        index->name = let->name;
        index->type = *let->type;
        index->symbol = Symbol::kLocal;
        out.push_back(std::move(let));
      }
      local.pointer_target = std::move(stmt->value);
      AddLocal(std::move(local));
      return true;
    }
    if (!NeedValue(*stmt->value)) return false;
    if (stmt->type && !Convert(stmt->value, *stmt->type,
                               stmt->kind == StmtKind::kLet   ? "let "
                               : stmt->kind == StmtKind::kVar ? "var "
                                                              : "const ",
                               stmt->name)) {
      return false;
    }
    bool is_abstract_const = stmt->kind == StmtKind::kConst && stmt->value->type.IsScalar();
    if (!is_abstract_const && !Default(stmt->value)) return false;
    stmt->type = stmt->value->type;
  }
  if (!IsConstructible(*stmt->type, false)) {
    return Fail(stmt->at, StrCat("`", stmt->name, "` cannot be a ", stmt->type->ToString()));
  }
  local.type = *stmt->type;
  if (stmt->kind == StmtKind::kConst) {
    if (!IsConstantExpression(*stmt->value))
      return Fail(stmt->value->at, StrCat("the value of const ", stmt->name, " is not constant"));
    local.constant = Clone(*stmt->value);
    if (stmt->type->IsScalar()) {  // literals take its place
      AddLocal(std::move(local));
      return true;
    }
    stmt->kind = StmtKind::kLet;
  }
  local.unique = stmt->name = Unique(stmt->name);
  AddLocal(std::move(local));
  out.push_back(std::move(stmt));
  return true;
}

bool Checker::CheckAssignment(Stmt& stmt) {
  if (!stmt.target) return CheckConcrete(stmt.value);
  if (!Check(stmt.target)) return false;
  Reference reference = ReferenceOf(*stmt.target);
  if (!reference.is_reference) return Fail(stmt.target->at, StrCat("this cannot be assigned to: ", reference.why_not));
  const Type type = stmt.target->type;
  if (!IsConstructible(type, false)) {
    return Fail(stmt.target->at, StrCat("a ", type.ToString(), " cannot be assigned to",
                                        ContainsAtomic(type) ? "; use the atomic functions" : ""));
  }
  if (stmt.kind == StmtKind::kIncrement) {
    if (!type.IsScalar(Scalar::kI32) && !type.IsScalar(Scalar::kU32)) {
      return Fail(stmt.target->at, StrCat("`", stmt.op, "` takes an i32 or a u32, got ", type.ToString()));
    }
    return true;
  }
  if (!CheckValue(stmt.value)) return false;
  if (stmt.op == "=") return Convert(stmt.value, type, "the target of the assignment");
  Expr binary;
  binary.kind = ExprKind::kBinary;
  binary.at = stmt.at;
  binary.op = stmt.op.substr(0, stmt.op.size() - 1);
  binary.args.push_back(std::move(stmt.target));
  binary.args.push_back(std::move(stmt.value));
  bool ok = BinaryType(binary);
  stmt.target = std::move(binary.args[0]);
  stmt.value = std::move(binary.args[1]);
  if (!ok) return false;
  if (!(binary.type == type)) {
    return Fail(stmt.at, StrCat("`", stmt.op, "` gives a ", binary.type.ToString(), ", its target is a ", type.ToString()));
  }
  return true;
}

}  // namespace leeway::shader
