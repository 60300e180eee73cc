#include "shader/printer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace leeway::shader {

namespace {

template <class Visit>
void ForEachWord(std::string_view words, Visit visit) {
  size_t at = 0;
  while (at < words.size()) {
    size_t begin = words.find_first_not_of(" \n", at);
    if (begin == std::string_view::npos) return;
    size_t end = words.find_first_of(" \n", begin);
    if (end == std::string_view::npos) end = words.size();
    visit(words.substr(begin, end - begin));
    at = end;
  }
}

bool IsIdentifier(std::string_view text) {
  for (char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

void Replace(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) text.replace(at, what.size(), with);
}

template <class Visit>
void ForEachExpr(const Expr* expr, Visit& visit) {
  if (!expr) return;
  visit(*expr);
  for (const ExprPtr& arg : expr->args) ForEachExpr(arg.get(), visit);
}
template <class Visit>
void ForEachExpr(const Stmt* stmt, Visit& visit);
template <class Visit>
void ForEachExpr(const std::vector<StmtPtr>& body, Visit& visit) {
  for (const StmtPtr& stmt : body) ForEachExpr(stmt.get(), visit);
}
template <class Visit>
void ForEachExpr(const Stmt* stmt, Visit& visit) {
  if (!stmt) return;
  ForEachExpr(stmt->target.get(), visit);
  ForEachExpr(stmt->value.get(), visit);
  ForEachExpr(stmt->init.get(), visit);
  ForEachExpr(stmt->update.get(), visit);
  ForEachExpr(stmt->body, visit);
  ForEachExpr(stmt->else_body, visit);
  for (const SwitchCase& c : stmt->cases) {
    for (const ExprPtr& selector : c.selectors) ForEachExpr(selector.get(), visit);
    ForEachExpr(c.body, visit);
  }
}

}  // namespace

Words::Words(std::string_view reserved_words, std::string_view same, std::initializer_list<Spelling> spellings) {
  ForEachWord(reserved_words, [&](std::string_view word) { reserved.insert(word); });
  ForEachWord(same, [&](std::string_view word) { builtins[word].push_back({word, 'f', word}); });
  for (const Spelling& spelling : spellings) builtins[spelling.name].push_back(spelling);
}

Printer::Printer(const LoweredKernel& kernel, const Target& target, const PrintOptions& options, const Words& words)
    : kernel_(kernel), module_(kernel.module), target_(target), options_(options), words_(words) {}

Result<KernelText> Printer::Print() {
  NameGlobals();
  FindUses();
  for (const Function& function : module_.functions) {
    if (error_) break;
    last_line_ = 0;
    if (function.is_entry) {
      PutEntry(function);
    } else {
      PutFunction(function);
    }
  }
  if (error_) return *error_;
  KernelText text;
  text.name = module_.name;
  text.language = target_.language;
  text.text = Assemble();
  if (error_) return *error_;
  text.entry_point = entry_name_;
  text.bindings = kernel_.bindings;
  text.params = kernel_.params;
  text.params_bytes = kernel_.params_bytes;
  for (int i = 0; i < 3; ++i) text.workgroup_size[i] = kernel_.workgroup_size[i];
  text.workgroup_bytes = kernel_.workgroup_bytes;
  text.uses_f16 = kernel_.uses_f16;
  text.uses_subgroups = kernel_.uses_subgroups;
  bool bound = false;
  for (const BindingInfo& binding : text.bindings) bound |= binding.kind == BindingInfo::Kind::kParams;
  if (HasParams() && params_need_binding() && !bound) {
    BindingInfo params;
    params.name = params_name_;
    params.kind = BindingInfo::Kind::kParams;
    text.bindings.push_back(std::move(params));
  }
  return text;
}

void Printer::Fail(Location at, std::string message) {
  if (error_) return;
  std::string where = StrCat(module_.name, ".kernel:");
  if (at.line) where += StrCat(at.line, ":", at.column, ":");
  error_ = Error{Code::kUnsupported, StrCat(where, " ", message)};
}

// ---- Names ------------------------------------------------------------------------------------------------------------

std::string Printer::UniqueName(std::string_view wanted) {
  std::string name;
  name.reserve(wanted.size() + 4);
  for (char c : wanted) {
    if (static_cast<unsigned char>(c) >= 0x80) {
      static const char kHex[] = "0123456789abcdef";
      name += 'u';
      name += kHex[(c >> 4) & 15];
      name += kHex[c & 15];
    } else if (!IsIdentifier({&c, 1})) {
      name += '_';
    } else if (c != '_' || name.empty() || name.back() != '_') {  // two in a row are reserved in two of the languages
      name += c;
    }
  }
  // What starts so belongs to a language or to our helper functions.
  if (name.empty() || (name[0] >= '0' && name[0] <= '9') || name.starts_with("gl_") || name.starts_with("lw_") || name == "_") {
    name.insert(0, "n_");
  }
  if (words_.reserved.contains(name)) name += name.back() == '_' ? "1" : "_";
  auto used = [&](const std::string& n) {
    return taken_.contains(n) || locals_.printed.contains(n) || words_.reserved.contains(n);
  };
  if (!used(name)) return name;
  std::string base = name.back() == '_' ? name : name + "_";
  for (int i = 1;; ++i) {
    name = StrCat(base, i);
    if (!used(name)) return name;
  }
}

std::string Printer::MemberName(std::string_view name) const {
  std::string text(name);
  if (words_.reserved.contains(name)) text += '_';
  Replace(text, "__", "_");
  return text;
}

void Printer::NameGlobals() {
  auto take = [&](std::string_view wanted) {
    std::string name = UniqueName(wanted);
    taken_.insert(name);
    return name;
  };
  auto take_at_file_scope = [&](std::string_view wanted) { return take(StrCat(wanted, file_scope_suffix_)); };
  entry_name_ = target_.language == Language::kGlslEs ? std::string("main") : take_at_file_scope(module_.name);
  for (const Function& function : module_.functions) {
    functions_by_name_[function.name] = &function;
    function_names_[function.name] = function.is_entry ? entry_name_ : take_at_file_scope(function.name);
  }
  for (const StructDecl& s : module_.structs) struct_names_[s.name] = take_at_file_scope(s.name);
  int order = 0;
  using Kind = GlobalName::Kind;
  std::vector<const VarDecl*> resources, others;
  for (const VarDecl& var : module_.vars) (var.binding >= 0 ? resources : others).push_back(&var);
  std::stable_sort(resources.begin(), resources.end(),
                   [](const VarDecl* a, const VarDecl* b) { return a->binding < b->binding; });
  for (const VarDecl* var : resources) {
    Kind kind = var->space == "uniform"                  ? Kind::kUniform
                : var->type.kind == Type::Kind::kTexture ? Kind::kTexture
                                                         : Kind::kBuffer;
    globals_[var->name] = {kind, take(var->name), &var->type, var, nullptr, order++};
    if (kind == Kind::kUniform) params_name_ = globals_[var->name].text;
  }
  bool has_uniform = false;
  for (const VarDecl* var : resources) has_uniform |= var->space == "uniform";
  if (HasParams() && !has_uniform) params_name_ = take("params");
  for (const ParamDecl& param : module_.params) {
    globals_[param.name] = {Kind::kParam, {}, &param.type, nullptr, nullptr, order++};
  }
  for (const VarDecl* var : others) {
    Kind kind = var->space == "workgroup" ? Kind::kWorkgroup : Kind::kPrivate;
    globals_[var->name] = {kind, take(var->name), &var->type, var, nullptr, order++};
  }
  for (const ConstDecl& constant : module_.consts) {
    if (!constant.value) continue;
    const Type& type = constant.type ? *constant.type : constant.value->type;
    globals_[constant.name] = {Kind::kConst, take_at_file_scope(constant.name), &type, nullptr, &constant, order++};
  }
  // Params last: in a language where they are names of their own they give way to all others.
  for (const ParamDecl& param : module_.params) globals_[param.name].text = take(param.name);
}

void Printer::FindUses() {
  auto by_order = [](const GlobalName* a, const GlobalName* b) { return a->order < b->order; };
  std::set<const GlobalName*> any;
  for (const Function& function : module_.functions) {
    std::vector<const GlobalName*>& used = used_by_[function.name];
    auto visit = [&](const Expr& expr) {
      if (expr.kind == ExprKind::kName) {
        if (const GlobalName* global = FindGlobal(expr.name)) used.push_back(global);
      } else if (expr.kind == ExprKind::kCall) {
        if (FindFunction(expr.name)) {
          const std::vector<const GlobalName*>& more = used_by_[expr.name];
          used.insert(used.end(), more.begin(), more.end());
        }
      } else if (expr.kind == ExprKind::kMember && expr.args[0]->kind == ExprKind::kName) {
        // A member of the uniform block is a param.
        const GlobalName* block = FindGlobal(expr.args[0]->name);
        if (block && block->kind == GlobalName::Kind::kUniform) {
          if (const GlobalName* global = FindGlobal(expr.name)) used.push_back(global);
        }
      }
    };
    ForEachExpr(function.body, visit);
    std::sort(used.begin(), used.end(), by_order);
    used.erase(std::unique(used.begin(), used.end()), used.end());
    any.insert(used.begin(), used.end());
  }
  used_by_any_.assign(any.begin(), any.end());
  std::sort(used_by_any_.begin(), used_by_any_.end(), by_order);
}

void Printer::OpenScope() { locals_.scopes.push_back(locals_.all.size()); }

void Printer::CloseScope() {
  size_t keep = locals_.scopes.back();
  locals_.scopes.pop_back();
  while (locals_.all.size() > keep) {
    Locals::Local& local = locals_.all.back();
    if (local.hidden >= 0) {
      locals_.visible[local.name] = local.hidden;
    } else {
      locals_.visible.erase(local.name);
    }
    if (!local.is_alias) locals_.printed.erase(local.printed);
    locals_.all.pop_back();
  }
}

std::string_view Printer::DeclareLocal(std::string_view name) {
  Locals::Local local;
  local.name = name;
  local.printed = UniqueName(name);
  auto [it, is_new] = locals_.visible.try_emplace(name, int(locals_.all.size()));
  if (!is_new) {
    local.hidden = it->second;
    it->second = int(locals_.all.size());
  }
  locals_.printed.insert(local.printed);
  locals_.all.push_back(std::move(local));
  return *FindLocal(name);
}

const std::string* Printer::FindLocal(std::string_view name) const {
  auto it = locals_.visible.find(name);
  return it == locals_.visible.end() ? nullptr : &locals_.all[size_t(it->second)].printed;
}
const GlobalName* Printer::FindGlobal(std::string_view name) const {
  auto it = globals_.find(name);
  return it == globals_.end() ? nullptr : &it->second;
}
const Function* Printer::FindFunction(std::string_view name) const {
  auto it = functions_by_name_.find(name);
  return it == functions_by_name_.end() ? nullptr : it->second;
}
const StructDecl* Printer::FindStruct(std::string_view name) const {
  for (const StructDecl& s : module_.structs) {
    if (s.name == name) return &s;
  }
  return nullptr;
}
const Type& Printer::Resolve(const Type& type) const {
  if (type.kind == Type::Kind::kStruct) {
    for (const AliasDecl& alias : module_.aliases) {
      if (alias.name == type.name) return Resolve(alias.type);
    }
  }
  return type;
}
const std::string& Printer::StructName(const std::string& name) {
  auto it = struct_names_.find(name);
  if (it != struct_names_.end()) return it->second;
  Fail({}, StrCat("the type ", name, " is not declared."));
  return name;
}

// ---- Types ------------------------------------------------------------------------------------------------------------

Type Printer::ElementOf(const Type& type) { return Type::Of(type.scalar); }
Type Printer::WithScalar(const Type& type, Scalar scalar) {
  return type.kind == Type::Kind::kVector ? Type::Vector(scalar, type.rows) : Type::Of(scalar);
}
char Printer::ClassOf(const Type& type) {
  switch (type.scalar) {
    case Scalar::kBool: return 'b';
    case Scalar::kI32:
    case Scalar::kAbstractInt: return 'i';
    case Scalar::kU32: return 'u';
    case Scalar::kF32:
    case Scalar::kF16:
    case Scalar::kAbstractFloat: return 'f';
  }
  return 'f';
}

std::string Printer::FloatText(float value) {
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string out(text, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string Printer::LiteralInt(const Literal& literal, Scalar scalar) {
  int64_t value = literal.is_float ? int64_t(literal.f) : literal.i;
  if (scalar == Scalar::kU32) return StrCat(uint32_t(value));
  if (scalar == Scalar::kI32) return StrCat(int32_t(value));
  return StrCat(value);
}

// ---- Expressions ------------------------------------------------------------------------------------------------------

Level Printer::LevelOf(std::string_view op) {
  if (op == "*" || op == "/" || op == "%") return Level::kMul;
  if (op == "+" || op == "-") return Level::kAdd;
  if (op == "<<" || op == ">>") return Level::kShift;
  if (op == "&&") return Level::kAndAnd;
  if (op == "||") return Level::kOrOr;
  if (op == "&") return Level::kBitAnd;
  if (op == "|") return Level::kBitOr;
  if (op == "^") return Level::kBitXor;
  return Level::kRelational;
}

Level Printer::Put(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kLiteral: {
      const Literal& l = expr.literal;
      double as_float = l.is_float || l.i == 0 ? l.f : double(l.i);
      size_t start = out_.size();
      switch (expr.type.scalar) {
        case Scalar::kBool: Put(l.i != 0 ? "true" : "false"); return Level::kPrimary;
        case Scalar::kF32:
        case Scalar::kAbstractFloat: PutFloat(float(as_float)); break;
        case Scalar::kF16: PutHalf(float(as_float)); break;
        case Scalar::kI32: PutInt(int32_t(l.is_float ? int64_t(l.f) : l.i), Scalar::kI32); break;
        case Scalar::kU32: PutInt(uint32_t(l.is_float ? int64_t(l.f) : l.i), Scalar::kU32); break;
        case Scalar::kAbstractInt: PutInt(l.is_float ? int64_t(l.f) : l.i, Scalar::kAbstractInt); break;
      }
      return out_[start] == '-' ? Level::kUnary : Level::kPrimary;
    }
    case ExprKind::kName: {
      if (const std::string* local = FindLocal(expr.name)) return PutLocal(expr, *local);
      if (const GlobalName* global = FindGlobal(expr.name)) return PutGlobal(*global);
      Fail(expr.at, StrCat("the name ", expr.name, " is not declared."));
      return Level::kPrimary;
    }
    case ExprKind::kUnary:
      if (expr.op == "&") return PutAddressOf(*expr.args[0]);
      if (expr.op == "*") return PutDereference(*expr.args[0]);
      return PutUnary(expr);
    case ExprKind::kBinary: return PutBinary(expr);
    case ExprKind::kIndex: return PutIndex(expr);
    case ExprKind::kMember: {
      const Expr& base = *expr.args[0];
      if (base.kind == ExprKind::kName && !FindLocal(base.name)) {
        const GlobalName* block = FindGlobal(base.name);
        if (block && block->kind == GlobalName::Kind::kUniform) {
          if (const GlobalName* param = FindGlobal(expr.name)) return PutGlobal(*param);
        }
      }
      return PutMember(expr);
    }
    case ExprKind::kCall:
      if (const Function* callee = FindFunction(expr.name)) return PutUserCall(expr, *callee);
      return PutBuiltin(expr);
    case ExprKind::kConstruct: return PutConstruct(expr);
    case ExprKind::kBitcast: return PutBitcast(expr);
    case ExprKind::kTensorCall: Fail(expr.at, StrCat(expr.name, ".", expr.method, " is not lowered.")); return Level::kPrimary;
  }
  return Level::kPrimary;
}

void Printer::PutAt(const Expr& expr, Level level) {
  size_t start = out_.size();
  if (Put(expr) < level) {
    out_.insert(start, 1, '(');
    out_ += ')';
  }
}

// The strictest of the four grammars is WGSL's: it allows few mixtures of operators without parentheses, and they read well
// everywhere.
void Printer::PutOperand(const Expr& expr, Level parent, bool is_right) {
  size_t start = out_.size();
  Level level = Put(expr);
  bool fits = false;
  switch (parent) {
    case Level::kMul: fits = is_right ? level >= Level::kUnary : level >= Level::kMul; break;
    case Level::kAdd: fits = is_right ? level >= Level::kMul : level >= Level::kAdd; break;
    case Level::kShift: fits = level >= Level::kUnary; break;
    case Level::kRelational: fits = level >= Level::kShift; break;
    case Level::kBitAnd:
    case Level::kBitOr:
    case Level::kBitXor: fits = level >= Level::kUnary || (!is_right && level == parent); break;
    case Level::kAndAnd:
    case Level::kOrOr: fits = level >= Level::kRelational || (!is_right && level == parent); break;
    case Level::kUnary: fits = level >= Level::kUnary && out_[start] != '-' && out_[start] != '&'; break;
    case Level::kTernary: fits = level > Level::kTernary; break;
    case Level::kPrimary: fits = level == Level::kPrimary; break;
  }
  if (!fits) {
    out_.insert(start, 1, '(');
    out_ += ')';
  }
}

Level Printer::PutInfix(const Expr& left, std::string_view op, Level level, const Expr& right) {
  PutOperand(left, level, false);
  Put(" ", op, " ");
  PutOperand(right, level, true);
  return level;
}

void Printer::PutArguments(const Expr& expr, size_t from) {
  for (size_t i = from; i < expr.args.size(); ++i) {
    if (i > from) out_ += ", ";
    PutArgument(*expr.args[i], i + 1 == expr.args.size());
  }
}

Level Printer::PutGlobal(const GlobalName& global) {
  out_ += global.text;
  return Level::kPrimary;
}
Level Printer::PutLocal(const Expr&, std::string_view printed) {
  out_ += printed;
  return Level::kPrimary;
}
Level Printer::PutAddressOf(const Expr& operand) {
  out_ += '&';
  PutOperand(operand, Level::kUnary, true);
  return Level::kUnary;
}
Level Printer::PutDereference(const Expr& pointer) {
  out_ += '*';
  PutOperand(pointer, Level::kUnary, true);
  return Level::kUnary;
}
Level Printer::PutUnary(const Expr& expr) {
  out_ += expr.op;
  PutOperand(*expr.args[0], Level::kUnary, true);
  return Level::kUnary;
}
Level Printer::PutBinary(const Expr& expr) { return PutInfix(*expr.args[0], expr.op, LevelOf(expr.op), *expr.args[1]); }
Level Printer::PutIndex(const Expr& expr) {
  PutAt(*expr.args[0], Level::kPrimary);
  out_ += '[';
  PutTop(*expr.args[1]);
  out_ += ']';
  return Level::kPrimary;
}
Level Printer::PutMember(const Expr& expr) {
  PutAt(*expr.args[0], Level::kPrimary);
  out_ += '.';
  if (expr.args[0]->type.kind == Type::Kind::kVector) {  // rgba is not a swizzle everywhere
    for (char c : expr.name) {
      size_t lane = std::string_view("rgba").find(c);
      out_ += lane == std::string_view::npos ? c : "xyzw"[lane];
    }
  } else {
    out_ += MemberName(expr.name);
  }
  return Level::kPrimary;
}
Level Printer::PutUserCall(const Expr& expr, const Function& callee) {
  Put(FunctionName(callee), "(");
  PutArguments(expr);
  out_ += ')';
  return Level::kPrimary;
}

bool Printer::IsPure(const Expr& expr) {
  if (expr.kind == ExprKind::kCall) {
    // Names of builtins without side effects and without meaning for other invocations; anything else is a user's function,
    // an atomic, a barrier or a subgroup operation.
    static const std::unordered_set<std::string_view> kPure = {"abs",           "acos",         "acosh",
                                                               "all",           "any",          "asin",
                                                               "asinh",         "atan",         "atan2",
                                                               "atanh",         "ceil",         "clamp",
                                                               "cos",           "cosh",         "cross",
                                                               "degrees",       "distance",     "dot",
                                                               "dot4I8Packed",  "dot4U8Packed", "exp",
                                                               "exp2",          "extractBits",  "floor",
                                                               "fma",           "fract",        "insertBits",
                                                               "inverseSqrt",   "ldexp",        "length",
                                                               "log",           "log2",         "max",
                                                               "min",           "mix",          "normalize",
                                                               "pow",           "radians",      "round",
                                                               "saturate",      "select",       "sign",
                                                               "sin",           "sinh",         "smoothstep",
                                                               "sqrt",          "step",         "tan",
                                                               "tanh",          "trunc",        "unpack2x16float",
                                                               "pack2x16float", "unpack4xI8",   "unpack4xU8",
                                                               "pack4xI8",      "pack4xU8",     "textureLoad",
                                                               "countOneBits",  "reverseBits",  "unpack4x8snorm",
                                                               "unpack4x8unorm"};
    if (!kPure.contains(expr.name)) return false;
  }
  for (const ExprPtr& arg : expr.args) {
    if (!IsPure(*arg)) return false;
  }
  return true;
}

const Spelling* Printer::FindSpelling(std::string_view name, char of) const {
  auto it = words_.builtins.find(name);
  if (it == words_.builtins.end()) return nullptr;
  for (const Spelling& spelling : it->second) {
    if (spelling.of == of || spelling.of == '*') return &spelling;
  }
  return nullptr;
}

Level Printer::PutBuiltin(const Expr& expr) {
  if (std::optional<Level> level = PutSpecialBuiltin(expr)) return *level;
  char of = expr.args.empty() ? '*' : ClassOf(expr.args[0]->type);
  if (const Spelling* spelling = FindSpelling(expr.name, of)) return PutSpelling(expr, spelling->text);
  Fail(expr.at, StrCat("the function ", expr.name, "(", expr.args.empty() ? "" : expr.args[0]->type.ToString(),
                       ") has no counterpart in ", LanguageName(target_.language), "."));
  return Level::kPrimary;
}

std::string Printer::Fill(std::string_view pattern, const Type& result, const Type& first, std::string_view name) {
  std::string text;
  text.reserve(pattern.size() + 64);
  static const char* const kLanes[] = {".x", ".y", ".z", ".w"};
  for (size_t i = 0; i < pattern.size(); ++i) {
    char c = pattern[i];
    char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '@') {
      text += name;
    } else if (c == '[' && next == '[') {
      size_t bar = pattern.find('|', i), end = pattern.find("]]", i);
      while (bar + 1 < end && pattern[bar + 1] == '|') bar = pattern.find('|', bar + 2);
      std::string_view each = pattern.substr(i + 2, bar - i - 2), separator = pattern.substr(bar + 1, end - bar - 1);
      for (int lane = 0; lane < Lanes(first); ++lane) {
        if (lane) text += separator;
        std::string one(each);
        Replace(one, "$L", first.kind == Type::Kind::kVector ? kLanes[lane] : "");
        text += Fill(one, result, first, name);
      }
      i = end + 1;
    } else if (c == '$' && next != '\0' && !(next >= '0' && next <= '9')) {
      switch (next) {
        case 'T': text += TypeName(result); break;
        case 'S': text += TypeName(ElementOf(result)); break;
        case 'U': text += TypeName(WithScalar(result, Scalar::kU32)); break;
        case 'A': text += TypeName(first); break;
        case 'E': text += TypeName(ElementOf(first)); break;
        case 'N':
          if (first.kind == Type::Kind::kVector) text += StrCat(int(first.rows));
          break;
        default: text += c; continue;
      }
      ++i;
    } else {
      text += c;
    }
  }
  return text;
}

void Printer::AddHelper(const std::string& name, const std::string& text) {
  if (!helper_names_.insert(name).second) return;
  const bool guarded = !file_scope_suffix_.empty();
  if (guarded) helpers_ += StrCat("#ifndef HAS_", name, "\n#define HAS_", name, "\n");
  helpers_ += text + "\n";
  if (guarded) helpers_ += "#endif\n";
}

Level Printer::PutSpelling(const Expr& expr, std::string_view text) {
  static const Type kNone = Type::Void();
  const Type& first = expr.args.empty() ? kNone : expr.args[0]->type;
  if (text == "$0" || text == "%0") return Put(*expr.args[0]);
  if (text.starts_with("fn ")) {
    std::string name = StrCat("lw_", expr.name);
    if (text.find("$") != std::string_view::npos) name += StrCat("_", TypeName(first));
    for (char& c : name) {
      if (c == ' ') c = '_';
    }
    if (!helper_names_.contains(name)) AddHelper(name, Fill(text.substr(3), expr.type, first, name));
    Put(name, "(");
    PutArguments(expr);
    out_ += ')';
    return Level::kPrimary;
  }
  if (IsIdentifier(text)) {
    Put(text, "(");
    PutArguments(expr);
    out_ += ')';
    return Level::kPrimary;
  }
  // Placeholders but those of arguments first, so that the text of an argument is never looked at.
  std::string filled = Fill(text, expr.type, first, "");
  for (size_t i = 0; i < filled.size(); ++i) {
    char c = filled[i];
    if ((c == '$' || c == '%') && i + 1 < filled.size() && filled[i + 1] >= '0' && filled[i + 1] <= '9') {
      size_t index = size_t(filled[++i] - '0');
      if (index >= expr.args.size()) {
        Fail(expr.at, StrCat(expr.name, " has too few arguments (", expr.args.size(), ")."));
        return Level::kPrimary;
      }
      if (c == '$') {
        PutTop(*expr.args[index]);
      } else {
        PutAt(*expr.args[index], Level::kPrimary);
      }
    } else {
      out_ += c;
    }
  }
  return Level::kPrimary;
}

std::string Printer::ParamMembers(uint32_t vec3_align) {
  std::string text;
  std::vector<const ParamField*> fields;
  for (const ParamField& field : kernel_.params) fields.push_back(&field);
  std::stable_sort(fields.begin(), fields.end(),
                   [](const ParamField* a, const ParamField* b) { return a->offset_bytes < b->offset_bytes; });
  uint32_t at = 0;
  int pads = 0;
  for (const ParamField* field : fields) {
    const Type& type = field->type;
    uint32_t element = type.scalar == Scalar::kF16 ? 2 : 4, size = element * uint32_t(Lanes(type));
    uint32_t align = Lanes(type) == 3 ? vec3_align : size;
    auto next = [&] { return (at + align - 1) / align * align; };
    for (; next() < field->offset_bytes; at += 4) {
      text += StrCat("  ", ParamMember(Type::Of(Scalar::kU32), StrCat("lw_pad_", pads++)), "\n");
    }
    if (next() != field->offset_bytes || (type.kind != Type::Kind::kScalar && type.kind != Type::Kind::kVector)) {
      Fail({}, StrCat("the param ", field->name, " of type ", field->type.ToString(), " cannot lie at offset ",
                      field->offset_bytes, "."));
      return text;
    }
    text += StrCat("  ", ParamMember(type, MemberName(field->name)), "\n");
    at = field->offset_bytes + size;
  }
  return text;
}

// ---- Statements -------------------------------------------------------------------------------------------------------

void Printer::StartLine() { out_.append(size_t(indent_) * 2, ' '); }

void Printer::Line(const Stmt& stmt) {
  if (!options_.line_numbers || stmt.at.line == 0 || stmt.at.line == last_line_) return;
  last_line_ = stmt.at.line;
  PutLineNumber(stmt.at.line);
}

void Printer::PutStatements(const std::vector<StmtPtr>& body) {
  for (const StmtPtr& stmt : body) PutStatement(*stmt);
}

void Printer::PutBlock(const std::vector<StmtPtr>& body) {
  Put("{\n");
  ++indent_;
  OpenScope();
  PutStatements(body);
  CloseScope();
  --indent_;
  StartLine();
  Put("}");
}

void Printer::PutBody(const Function& function) {
  ++indent_;
  PutStatements(function.body);
  --indent_;
}

bool Printer::EndsFlow(const std::vector<StmtPtr>& body) {
  if (body.empty()) return false;
  StmtKind kind = body.back()->kind;
  return kind == StmtKind::kBreak || kind == StmtKind::kContinue || kind == StmtKind::kReturn;
}

void Printer::PutAssign(const Stmt& stmt) {
  if (!stmt.target) {
    PutDiscard(*stmt.value);
    return;
  }
  PutTop(*stmt.target);
  Put(" ", stmt.op, " ");
  PutTop(*stmt.value);
}

void Printer::PutReturn(const Stmt& stmt) {
  Put("return");
  if (stmt.value) {
    out_ += ' ';
    PutTop(*stmt.value);
  }
  Put(";\n");
}

void Printer::PutContinue() {
  // What `continuing` holds is printed before each `continue`, and once more at the end of the loop.
  if (continuing_) {
    const std::vector<StmtPtr>* statements = continuing_;
    if (in_switch_of_loop_ && !statements->empty() && statements->back()->kind == StmtKind::kBreakIf) {
      Fail(statements->back()->at, "a continue inside a switch in front of `break if` has no counterpart in this language.");
    }
    continuing_ = nullptr;
    OpenScope();
    PutStatements(*statements);
    CloseScope();
    continuing_ = statements;
  }
  StartLine();
  Put("continue;\n");
}

void Printer::PutBreakIf(const Stmt& stmt) {
  StartLine();
  Put("if (");
  PutTop(*stmt.value);
  Put(") break;\n");
}

void Printer::PutSimple(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::kLet:
    case StmtKind::kVar:
    case StmtKind::kConst: PutDeclaration(stmt); return;
    case StmtKind::kAssign: PutAssign(stmt); return;
    case StmtKind::kIncrement:
      PutAt(*stmt.target, Level::kPrimary);
      Put(stmt.op);
      return;
    case StmtKind::kCall: PutTop(*stmt.value); return;
    default: Fail(stmt.at, "a statement other than a declaration, an assignment or a call stands in a for clause.");
  }
}

void Printer::PutStatement(const Stmt& stmt) {
  if (error_) return;
  Line(stmt);
  const std::vector<StmtPtr>* continuing = continuing_;
  bool in_switch = in_switch_of_loop_;
  switch (stmt.kind) {
    case StmtKind::kLet:
    case StmtKind::kVar:
    case StmtKind::kConst:
    case StmtKind::kAssign:
    case StmtKind::kIncrement:
    case StmtKind::kCall: {
      size_t line = out_.size();
      StartLine();
      size_t start = out_.size();
      PutSimple(stmt);
      if (out_.size() == start) {
        out_.resize(line);  // nothing is left of it in this language
      } else {
        Put(";\n");
      }
      return;
    }
    case StmtKind::kIf: {
      StartLine();
      const Stmt* now = &stmt;
      while (true) {
        Put("if (");
        PutTop(*now->value);
        Put(") ");
        PutBlock(now->body);
        if (now->else_body.empty()) break;
        Put(" else ");
        if (now->else_body.size() == 1 && now->else_body[0]->kind == StmtKind::kIf) {
          now = now->else_body[0].get();
          continue;
        }
        PutBlock(now->else_body);
        break;
      }
      Put("\n");
      return;
    }
    case StmtKind::kFor:
      continuing_ = nullptr;
      in_switch_of_loop_ = false;
      if (stmt.unroll) PutUnrollHint(stmt.unroll);
      StartLine();
      OpenScope();
      Put("for (");
      if (stmt.init) PutSimple(*stmt.init);
      Put("; ");
      if (stmt.value) PutTop(*stmt.value);
      Put("; ");
      if (stmt.update) PutSimple(*stmt.update);
      Put(") ");
      PutBlock(stmt.body);
      CloseScope();
      Put("\n");
      break;
    case StmtKind::kWhile:
      continuing_ = nullptr;
      in_switch_of_loop_ = false;
      StartLine();
      Put("while (");
      PutTop(*stmt.value);
      Put(") ");
      PutBlock(stmt.body);
      Put("\n");
      break;
    case StmtKind::kLoop:
      in_switch_of_loop_ = false;
      PutLoop(stmt);
      break;
    case StmtKind::kSwitch:
      in_switch_of_loop_ = true;
      PutSwitch(stmt);
      break;
    case StmtKind::kBreak:
      StartLine();
      Put("break;\n");
      return;
    case StmtKind::kContinue: PutContinue(); return;
    case StmtKind::kBreakIf: PutBreakIf(stmt); return;
    case StmtKind::kReturn:
      StartLine();
      PutReturn(stmt);
      return;
    case StmtKind::kBlock:
      StartLine();
      PutBlock(stmt.body);
      Put("\n");
      return;
  }
  continuing_ = continuing;
  in_switch_of_loop_ = in_switch;
}

}  // namespace leeway::shader
