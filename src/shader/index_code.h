// Index expressions as code: IndexExpr to typed tree.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "shader/ast.h"
#include "tensor/index_expr.h"

namespace leeway::shader {

// Names of a module: what generated code may be called.
class ModuleNames {
 public:
  explicit ModuleNames(const Module& module);
  // A name that is nowhere in the module, neither global nor local; taken from now on.
  std::string Global(const std::string& wanted);
  bool IsGlobal(const std::string& name) const { return globals_.count(name) > 0; }
  void AddGlobal(const std::string& name) { globals_.insert(name); }
  void AddLocal(const std::string& name) { locals_.insert(name); }
  // The locals and parameters of `function` that are called like a global are renamed.
  void RenameLocals(Function& function) const;

 private:
  std::set<std::string> globals_, locals_;
};

// A function being written.
class FunctionWriter {
 public:
  FunctionWriter(ModuleNames& names, std::string function_name, Type result);

  // A parameter, named `wanted` if that is free; the name it got.
  std::string Parameter(const std::string& wanted, Type type);
  // let wanted = value; the name it got.
  std::string Let(const std::string& wanted, ExprPtr value);
  ExprPtr Ref(const std::string& name) const;  // of a parameter or let
  void Add(StmtPtr stmt) { out_->push_back(std::move(stmt)); }
  // Statements go to `block` until the next call; null: to the function's body again.
  void Into(std::vector<StmtPtr>* block) { out_ = block ? block : &function_.body; }
  std::vector<StmtPtr>* into() const { return out_; }
  Function Take() { return std::move(function_); }

 private:
  std::string Local(const std::string& wanted);
  ModuleNames& names_;
  Function function_;
  std::vector<StmtPtr>* out_;
  std::map<std::string, std::pair<Type, Symbol>> locals_;
};

// Writes index expressions over axes that stand for names of u32 values in `writer`, each within its extent unless
// `may_be_outside` (then results may be anything, but tables are never read outside). Subexpressions that occur more than once
// among the expressions given to Count become lets. Tables become constants of `module`.
class IndexCode {
 public:
  IndexCode(FunctionWriter& writer, ModuleNames& names, Module& module, std::vector<std::string> axes,
            std::vector<int64_t> extents, bool may_be_outside);

  void Count(const IndexExpr& e);
  ExprPtr AsU32(const IndexExpr& e);   // a value that is not negative
  ExprPtr AsBool(const IndexExpr& e);  // not zero

 private:
  struct Coded {
    ExprPtr expr;
    bool is_unsigned = true;
  };
  Coded Code(const IndexExpr& e);
  Coded CodeNode(const IndexExpr& e);
  ExprPtr CodeSigned(const IndexExpr& e);
  bool NotNegative(const IndexExpr& e) const;
  static std::string Key(const IndexExpr& e);

  FunctionWriter& writer_;
  ModuleNames& names_;
  Module& module_;
  std::vector<std::string> axes_;
  std::vector<int64_t> extents_;
  bool may_be_outside_;
  std::map<std::string, int> uses_;
  std::map<std::string, std::pair<std::string, bool>> lets_;
  std::map<const void*, std::string> tables_;
};

}  // namespace leeway::shader
