// The type checker, behind Bind and InstantiateValueMap. It checks a function when it is first called, on a copy, resolves
// branches on constant expressions on the way (what they leave out is never looked at), and leaves a tree in which
//   - every expression has a concrete type, constants are literals, aliases are gone,
//   - `let`s that hold a pointer are gone: what they point to stands in their place,
//   - the names of locals are unique in their function and differ from all names of the module and of builtins,
//   - functions come callees first, and only what is used is there.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shader/builtins.h"
#include "shader/compile.h"
#include "shader/constants.h"

namespace leeway::shader {

class Checker {
 public:
  // `tensors` may be null (value maps have none). All are looked at as long as the checker lives.
  Checker(const Module& source, const Target& target, const std::map<std::string, VirtualTensor>* tensors);

  // All steps return false after the first error, which error() tells.
  const Error& error() const { return error_; }

  bool DeclareNames();
  bool BindConsts(const std::map<std::string, ConstValue>& bound);  // looked at as long as the checker lives
  bool CheckKernel();                                               // from the entry point

  // From the function `name`, as `instance`; `types` are names of types that the text may use. Other functions of the
  // module become instance_NAME.
  bool CheckValueMap(std::string_view name, std::string_view instance, std::vector<std::pair<std::string, Type>> types,
                     const std::vector<Type>& parameters, const Type& result);

  // What was checked, with everything but the functions moved in.
  Module TakeModule();
  const uint32_t* workgroup_size() const { return workgroup_size_; }
  bool uses_subgroups() const { return uses_subgroups_; }
  bool uses_barriers() const { return uses_barriers_; }
  bool uses_f16() const { return uses_f16_; }

 private:
  enum class GlobalKind : uint8_t { kTensor, kConst, kParam, kScratch, kVar, kStruct, kAlias, kFunction };
  struct Global {
    GlobalKind kind;
    uint32_t index;
  };
  enum class State : uint8_t { kNew, kBusy, kDone };
  struct ConstState {
    State state = State::kNew;
    int uses = 0;   // of a composite; scalars are literals where they are used
    ExprPtr value;  // given by the specialization, or checked
    Type type;
  };
  struct TypeState {  // structs and aliases
    State state = State::kNew;
    Type type;            // alias
    StructDecl resolved;  // struct
  };
  struct FunctionState {
    State state = State::kBusy;
    std::vector<Type> parameters;
    std::vector<std::string> builtins;  // hidden parameters, after the others
    Type result;
  };
  struct Local {
    std::string name, unique;
    Type type;
    Symbol symbol = Symbol::kLocal;
    bool is_var = false;
    ExprPtr constant;        // a `const`: its value
    ExprPtr pointer_target;  // a let that holds a pointer: what it points to
  };
  // A function being checked.
  struct Frame {
    Function* function = nullptr;
    bool is_prelude = false, is_value_map = false;
    std::vector<std::pair<std::string, Type>> types;  // V, E and the like
    std::vector<Local> locals;
    size_t scope_start = 0;  // first local of the innermost scope
    std::unordered_set<std::string> taken;
    int loops = 0, switches = 0;
    bool in_continuing = false;
  };
  // How a list of statements can be left.
  enum Exit : uint8_t { kNext = 1, kBreakOut = 2, kContinueOut = 4, kReturnOut = 8 };

  // check.cc: names, types, constants, functions, statements.
  bool Fail(Location at, std::string_view message);
  bool Resolve(Type& type, Location at);
  bool ResolveNamed(Type& type, Location at);
  const StructDecl* FindStruct(std::string_view name) const;
  bool NeedConst(size_t index, Location at);
  bool EvaluateConst(const ConstDecl& decl, ConstState& state);
  ExprPtr BoundConst(const Type& type, std::span<const double> values, size_t& next, const ConstDecl& decl);
  bool CheckStruct(size_t index, Location at);
  bool CheckTensors();
  bool ResolveResources();
  bool ResolveWorkgroupSize(const Function& entry);
  // `constants`: parameters (by name) that are bound in this instance and so none any more.
  FunctionState* NeedFunction(const Function& source, std::string instance, bool is_prelude,
                              std::vector<std::pair<std::string, Type>> types, Location call,
                              std::vector<std::pair<std::string, ExprPtr>> constants = {});
  bool IsConstructible(const Type& type, bool allow_atomics) const;
  bool ContainsAtomic(const Type& type) const;
  // Such values live in variables of functions and nowhere else.
  static bool HoldsMatrix(const Type& type);
  bool CheckBody(std::vector<StmtPtr>& body, uint8_t& exits);  // in a scope of its own
  bool CheckStatements(std::vector<StmtPtr>& body, uint8_t& exits);
  bool CheckStatement(StmtPtr& stmt, uint8_t& exits, std::vector<StmtPtr>& out);
  bool CheckDeclaration(StmtPtr& stmt, std::vector<StmtPtr>& out);
  bool CheckAssignment(Stmt& stmt);
  bool CheckSwitch(StmtPtr& stmt, uint8_t& exits, std::vector<StmtPtr>& out);
  std::string Unique(std::string_view name);
  std::string HiddenParameter(std::string_view builtin, Location at);
  Local* FindLocal(std::string_view name);
  const Global* FindGlobal(std::string_view name) const;
  Local& AddLocal(Local local);
  static Type BuiltinInputType(std::string_view builtin);

  // check_expr.cc: expressions.
  bool Check(ExprPtr& expr);
  bool CheckValue(ExprPtr& expr);     // something that can be loaded: no pointer, atomic or nothing
  bool CheckConcrete(ExprPtr& expr);  // abstract numbers become i32 and f32
  bool CheckCondition(ExprPtr& expr, std::string_view of);
  bool NeedValue(const Expr& expr);
  bool CheckName(ExprPtr& expr);
  bool CheckUnary(ExprPtr& expr);
  bool CheckBinary(ExprPtr& expr);
  bool CheckIndex(ExprPtr& expr);
  bool CheckMember(ExprPtr& expr);
  bool CheckCall(ExprPtr& expr);
  bool CheckBuiltin(ExprPtr& expr, const BuiltinInfo& info);
  bool CheckPreludeCall(ExprPtr& expr, const Function& source);
  bool FinishCall(Expr& call, FunctionState& function, std::string_view shown_name);
  bool CheckConstruct(ExprPtr& expr);
  bool CheckVector(ExprPtr& expr);
  bool CheckBitcast(ExprPtr& expr);
  bool CheckTensorCall(ExprPtr& expr);
  bool CheckQuantizedCall(ExprPtr& expr, const TensorDecl& tensor);
  bool BinaryType(Expr& expr);
  void Dereference(ExprPtr& expr);  // a pointer becomes what it points to
  bool Convert(ExprPtr& expr, const Type& to, std::string_view what, std::string_view name = {});
  bool Concretize(Expr& expr, Scalar to);
  bool Default(ExprPtr& expr);
  // One scalar type for all of `args`, abstract ones converted; `what` for the message.
  bool Unify(std::vector<ExprPtr*> args, Location at, std::string_view what, Scalar& scalar);
  bool Fold(ExprPtr& expr, const Folded& folded, Scalar type);
  bool FoldComponents(ExprPtr& expr, Builtin builtin);
  const Expr* ConstantBehind(const Expr& base);
  void ForgetUse(const Expr& base);
  void ReplaceByLiteral(Expr& expr, const Literal& value, Scalar type);
  bool NeedScalar(Scalar scalar, Location at);
  struct Reference {
    bool is_reference = false;
    std::string space;
    std::string why_not;  // "`x` is a let"
  };
  Reference ReferenceOf(const Expr& expr);

  const Module& source_;
  const Target& target_;
  const std::map<std::string, VirtualTensor>* tensors_;
  std::unordered_map<std::string_view, Global> globals_;
  std::vector<ConstState> consts_;
  std::vector<TypeState> structs_, aliases_;
  std::vector<State> vars_;
  std::unordered_set<std::string> prelude_vars_;
  std::unordered_map<std::string, FunctionState> functions_;
  std::string function_prefix_;
  const std::map<std::string, ConstValue>* bound_ = nullptr;
  std::map<std::string, double, std::less<>> known_;  // subgroup_size and the like
  Frame* frame_ = nullptr;
  Module out_;
  uint32_t workgroup_size_[3] = {1, 1, 1};
  bool uses_subgroups_ = false, uses_barriers_ = false, uses_f16_ = false;
  bool failed_ = false;
  Error error_;
};

// True if a tree of checked expressions needs nothing but the compiler to be evaluated.
bool IsConstantExpression(const Expr& expr);

// Refuses barriers and subgroup functions that not all invocations of a workgroup reach together (uniformity.cc).
Status CheckUniformity(const Module& module);

}  // namespace leeway::shader
