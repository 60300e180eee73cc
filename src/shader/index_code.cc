#include "shader/index_code.h"

#include <algorithm>

#include "base/result.h"
#include "base/strings.h"
#include "shader/build_tree.h"

namespace leeway::shader {

using namespace build;
using Kind = IndexExpr::Kind;

// ---- Names ------------------------------------------------------------------------------------------------------------

ModuleNames::ModuleNames(const Module& module) {
  for (const auto& d : module.tensors) globals_.insert(d.name);
  for (const auto& d : module.consts) globals_.insert(d.name);
  for (const auto& d : module.params) globals_.insert(d.name);
  for (const auto& d : module.scratches) globals_.insert(d.name);
  for (const auto& d : module.vars) globals_.insert(d.name);
  for (const auto& d : module.structs) globals_.insert(d.name);
  for (const auto& d : module.aliases) globals_.insert(d.name);
  for (const auto& f : module.functions) {
    globals_.insert(f.name);
    for (const Parameter& p : f.parameters) locals_.insert(p.name);
    for (const StmtPtr& s : f.body) {
      VisitStatements(*s, [&](Stmt& stmt) {
        if (!stmt.name.empty()) locals_.insert(stmt.name);
      });
    }
  }
}

std::string ModuleNames::Global(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; globals_.count(name) || locals_.count(name); ++i) name = StrCat(wanted, "_", i);
  globals_.insert(name);
  return name;
}

void ModuleNames::RenameLocals(Function& function) const {
  std::map<std::string, std::string> renamed;
  std::set<std::string> taken;
  auto note = [&](const std::string& name) {
    if (!name.empty()) taken.insert(name);
    if (globals_.count(name)) renamed[name] = "";
  };
  for (const Parameter& p : function.parameters) note(p.name);
  for (StmtPtr& s : function.body) VisitStatements(*s, [&](Stmt& stmt) { note(stmt.name); });
  if (renamed.empty()) return;
  for (auto& [name, to] : renamed) {
    for (int i = 2; to.empty() || globals_.count(to) || taken.count(to); ++i) to = StrCat(name, "_", i);
    taken.insert(to);
  }
  auto apply = [&](std::string& name) {
    auto found = renamed.find(name);
    if (found != renamed.end()) name = found->second;
  };
  for (Parameter& p : function.parameters) apply(p.name);
  for (StmtPtr& s : function.body) VisitStatements(*s, [&](Stmt& stmt) { apply(stmt.name); });
  VisitExprs(function, [&](ExprPtr& e) {
    if (e->kind == ExprKind::kName && (e->symbol == Symbol::kLocal || e->symbol == Symbol::kParameter)) apply(e->name);
  });
}

// ---- Functions --------------------------------------------------------------------------------------------------------

FunctionWriter::FunctionWriter(ModuleNames& names, std::string function_name, Type result) : names_(names) {
  function_.name = std::move(function_name);
  function_.result = std::move(result);
  out_ = &function_.body;
}

std::string FunctionWriter::Local(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; names_.IsGlobal(name) || locals_.count(name); ++i) name = StrCat(wanted, "_", i);
  names_.AddLocal(name);  // later globals keep clear of it
  return name;
}

std::string FunctionWriter::Parameter(const std::string& wanted, Type type) {
  std::string name = Local(wanted);
  locals_[name] = {type, Symbol::kParameter};
  shader::Parameter p;
  p.name = name;
  p.type = std::move(type);
  function_.parameters.push_back(std::move(p));
  return name;
}

std::string FunctionWriter::Let(const std::string& wanted, ExprPtr value) {
  std::string name = Local(wanted);
  locals_[name] = {value->type, Symbol::kLocal};
  Add(build::Let(name, std::move(value)));
  return name;
}

ExprPtr FunctionWriter::Ref(const std::string& name) const {
  auto found = locals_.find(name);
  CHECK(found != locals_.end());
  return Name(name, found->second.first, found->second.second);
}

// ---- Index expressions ------------------------------------------------------------------------------------------------

IndexCode::IndexCode(FunctionWriter& writer, ModuleNames& names, Module& module, std::vector<std::string> axes,
                     std::vector<int64_t> extents, bool may_be_outside)
    : writer_(writer),
      names_(names),
      module_(module),
      axes_(std::move(axes)),
      extents_(std::move(extents)),
      may_be_outside_(may_be_outside) {}

std::string IndexCode::Key(const IndexExpr& e) {
  switch (e.kind()) {
    case Kind::kConst: return StrCat(e.value());
    case Kind::kAxis: return StrCat("a", e.value());
    case Kind::kTable: return StrCat("t", reinterpret_cast<uintptr_t>(&e.table()), "[", Key(e.arg(0)), "]");
    default: return StrCat(int(e.kind()), "(", Key(e.arg(0)), ",", Key(e.arg(1)), ")");
  }
}

void IndexCode::Count(const IndexExpr& e) {
  if (e.kind() == Kind::kConst || e.kind() == Kind::kAxis) return;
  if (uses_[Key(e)]++ > 0) return;
  Count(e.arg(0));
  if (e.kind() != Kind::kTable) Count(e.arg(1));
}

bool IndexCode::NotNegative(const IndexExpr& e) const { return e.Bounds(extents_).low >= 0; }

ExprPtr IndexCode::AsU32(const IndexExpr& e) {
  Coded coded = Code(e);
  return coded.is_unsigned ? std::move(coded.expr) : ConstructOf(Type::Of(Scalar::kU32), std::move(coded.expr));
}

ExprPtr IndexCode::CodeSigned(const IndexExpr& e) {
  if (e.IsConst()) return I32(e.value());
  Coded coded = Code(e);
  return coded.is_unsigned ? ConstructOf(Type::Of(Scalar::kI32), std::move(coded.expr)) : std::move(coded.expr);
}

ExprPtr IndexCode::AsBool(const IndexExpr& e) {
  Type type = Type::Of(Scalar::kBool);
  switch (e.kind()) {
    case Kind::kConst: return Bool(e.value() != 0);
    case Kind::kLess:
      if (NotNegative(e.arg(0)) && NotNegative(e.arg(1))) return Binary("<", AsU32(e.arg(0)), AsU32(e.arg(1)), type);
      return Binary("<", CodeSigned(e.arg(0)), CodeSigned(e.arg(1)), type);
    case Kind::kAnd: return Binary("&&", AsBool(e.arg(0)), AsBool(e.arg(1)), type);
    default: {
      Coded coded = Code(e);
      ExprPtr zero = coded.is_unsigned ? U32(0) : I32(0);
      return Binary("!=", std::move(coded.expr), std::move(zero), type);
    }
  }
}

IndexCode::Coded IndexCode::Code(const IndexExpr& e) {
  if (e.kind() == Kind::kConst || e.kind() == Kind::kAxis) return CodeNode(e);
  std::string key = Key(e);
  auto found = lets_.find(key);
  if (found != lets_.end()) return {writer_.Ref(found->second.first), found->second.second};
  Coded coded = CodeNode(e);
  auto uses = uses_.find(key);
  if (uses == uses_.end() || uses->second < 2) return coded;
  std::string name = writer_.Let("i", std::move(coded.expr));
  lets_[key] = {name, coded.is_unsigned};
  return {writer_.Ref(name), coded.is_unsigned};
}

IndexCode::Coded IndexCode::CodeNode(const IndexExpr& e) {
  Type u32 = Type::Of(Scalar::kU32), i32 = Type::Of(Scalar::kI32);
  // A product with a negative constant, or a negative constant: what is subtracted; else null.
  auto negated = [](const IndexExpr& x) -> std::optional<IndexExpr> {
    if (x.IsConst() && x.value() < 0) return IndexExpr::Const(-x.value());
    if (x.kind() == Kind::kMul && x.arg(1).IsConst() && x.arg(1).value() < 0)
      return x.arg(0) * IndexExpr::Const(-x.arg(1).value());
    return std::nullopt;
  };
  auto operation = [&](const char* op, const IndexExpr& a, const IndexExpr& b) -> Coded {
    if (NotNegative(e) && NotNegative(a) && NotNegative(b)) return {Binary(op, AsU32(a), AsU32(b), u32), true};
    return {Binary(op, CodeSigned(a), CodeSigned(b), i32), false};
  };
  switch (e.kind()) {
    case Kind::kConst: return e.value() >= 0 ? Coded{U32(e.value()), true} : Coded{I32(e.value()), false};
    case Kind::kAxis: return {writer_.Ref(axes_[size_t(e.value())]), true};
    case Kind::kAdd: {
      if (auto minus = negated(e.arg(1))) return operation("-", e.arg(0), *minus);
      if (auto minus = negated(e.arg(0))) return operation("-", e.arg(1), *minus);
      return operation("+", e.arg(0), e.arg(1));
    }
    case Kind::kMul: return operation("*", e.arg(0), e.arg(1));
    case Kind::kDiv:
    case Kind::kMod: {
      const char* op = e.kind() == Kind::kDiv ? "/" : "%";
      int64_t divisor = e.arg(1).value();
      int64_t low = e.arg(0).Bounds(extents_).low;
      if (low >= 0) return {Binary(op, AsU32(e.arg(0)), U32(divisor), u32), true};
      // Moved up by a multiple of the divisor the dividend is not negative, so rounding towards zero is rounding down.
      int64_t steps = (-low + divisor - 1) / divisor;
      CHECK(steps * divisor < (int64_t(1) << 31));
      ExprPtr moved = ConstructOf(u32, Binary("+", CodeSigned(e.arg(0)), I32(steps * divisor), i32));
      ExprPtr result = Binary(op, std::move(moved), U32(divisor), u32);
      if (e.kind() == Kind::kMod) return {std::move(result), true};
      return {Binary("-", ConstructOf(i32, std::move(result)), I32(steps), i32), false};
    }
    case Kind::kMin:
    case Kind::kMax: {
      const char* name = e.kind() == Kind::kMin ? "min" : "max";
      if (NotNegative(e.arg(0)) && NotNegative(e.arg(1)))
        return {Call(name, List(AsU32(e.arg(0)), AsU32(e.arg(1))), u32), true};
      return {Call(name, List(CodeSigned(e.arg(0)), CodeSigned(e.arg(1))), i32), false};
    }
    case Kind::kLess:
    case Kind::kAnd: return {Call("select", List(U32(0), U32(1), AsBool(e)), u32), true};
    case Kind::kTable: {
      const std::vector<int32_t>& table = e.table();
      bool is_unsigned = *std::min_element(table.begin(), table.end()) >= 0;
      Type element = is_unsigned ? u32 : i32;
      Type array = Type::Array(element, uint32_t(table.size()));
      std::string& name = tables_[&table];
      if (name.empty()) {
        name = names_.Global("table");
        ConstDecl decl;
        decl.name = name;
        decl.type = array;
        std::vector<ExprPtr> values;
        for (int32_t value : table) values.push_back(is_unsigned ? U32(value) : I32(value));
        decl.value = Construct(array, std::move(values));
        module_.consts.push_back(std::move(decl));
      }
      IndexExpr::Range range = e.arg(0).Bounds(extents_);
      int64_t last = int64_t(table.size()) - 1;
      ExprPtr index = AsU32(e.arg(0));
      if (may_be_outside_ || range.low < 0 || range.high > last) index = Call("min", List(std::move(index), U32(last)), u32);
      return {Index(Name(name, array, Symbol::kConst), std::move(index), element), is_unsigned};
    }
  }
  CHECK(false);
}

}  // namespace leeway::shader
