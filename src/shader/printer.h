// What the printers of all four languages share: the walk over a lowered kernel, the names, the parentheses, the table of
// builtin functions. A language is a subclass that says what differs, and two tables: words that a name must not be, and how
// each builtin function is spelled.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/strings.h"
#include "shader/compile.h"

namespace leeway::shader {

// How tightly printed text binds, loosest first.
enum class Level : uint8_t {
  kTernary,
  kOrOr,
  kAndAnd,
  kBitOr,
  kBitXor,
  kBitAnd,
  kRelational,
  kShift,
  kAdd,
  kMul,
  kUnary,
  kPrimary
};

// A builtin function of WGSL in another language. `of` is the element type of its first argument: f float, i i32, u u32,
// b bool, * any. `text` is one of
//   name            a call of that function with the same arguments
//   $0 ... %1       a pattern that is a primary expression: $n argument n, %n the same with parentheses where it is none
//   fn T @(...) {}  a function that is printed once for each type and then called
// In patterns and functions: $T the result type, $S its element type, $U the result's type with u32 elements, $A the type of
// argument 0, $E its element type, $N its number of lanes ("" for a scalar), [[a$L + b$L|, ]] the text once per lane of
// argument 0 with $L the lane's swizzle.
struct Spelling {
  std::string_view name;
  char of;
  std::string_view text;
};

// The tables of a language, made once.
struct Words {
  std::unordered_set<std::string_view> reserved;
  std::unordered_map<std::string_view, std::vector<Spelling>> builtins;
  // `same`: builtins of floats spelled as in WGSL, separated by spaces. `reserved_words` likewise separated.
  Words(std::string_view reserved_words, std::string_view same, std::initializer_list<Spelling> spellings);
};

struct GlobalName {
  enum class Kind : uint8_t { kBuffer, kTexture, kUniform, kWorkgroup, kPrivate, kParam, kConst };
  Kind kind = Kind::kBuffer;
  std::string text;              // as printed
  const Type* type = nullptr;    // as declared
  const VarDecl* var = nullptr;  // of all but kParam and kConst
  const ConstDecl* constant = nullptr;
  int order = 0;  // in which they are passed on
};

class Printer {
 public:
  Printer(const LoweredKernel& kernel, const Target& target, const PrintOptions& options, const Words& words);
  virtual ~Printer() = default;
  Result<KernelText> Print();

 protected:
  // ---- what a language says
  virtual std::string TypeName(const Type& type) = 0;  // of values; arrays only where the language has them as types
  virtual std::string ParamMember(const Type& type, const std::string& name) { return StrCat(TypeName(type), " ", name, ";"); }
  virtual void PutEntry(const Function& function) = 0;
  virtual void PutFunction(const Function& function) = 0;
  virtual void PutDeclaration(const Stmt& stmt) = 0;  // kLet, kVar, kConst, without the end of the line
  virtual std::string Assemble() = 0;                 // the whole text out of the parts
  virtual bool params_need_binding() const = 0;

  virtual void PutFloat(float value) = 0;
  virtual void PutHalf(float value) = 0;
  virtual void PutInt(int64_t value, Scalar scalar) = 0;
  virtual Level PutGlobal(const GlobalName& global);
  virtual Level PutLocal(const Expr& name, std::string_view printed);
  virtual Level PutAddressOf(const Expr& operand);
  virtual Level PutDereference(const Expr& pointer);
  virtual Level PutUnary(const Expr& expr);
  virtual Level PutBinary(const Expr& expr);
  virtual Level PutIndex(const Expr& expr);
  virtual Level PutMember(const Expr& expr);
  virtual Level PutUserCall(const Expr& expr, const Function& callee);
  virtual Level PutConstruct(const Expr& expr) = 0;
  virtual Level PutBitcast(const Expr& expr) = 0;
  // Builtin functions that are no row of the table.
  virtual std::optional<Level> PutSpecialBuiltin(const Expr& expr) = 0;
  virtual void PutAssign(const Stmt& stmt);
  virtual void PutLoop(const Stmt& stmt) = 0;
  virtual void PutSwitch(const Stmt& stmt) = 0;
  virtual void PutDiscard(const Expr& value) = 0;  // `_ = value`
  virtual void PutArgument(const Expr& arg, bool is_last) {
    (void)is_last;
    PutTop(arg);
  }
  virtual void PutUnrollHint(int unroll) { (void)unroll; }
  virtual void PutReturn(const Stmt& stmt);
  virtual void PutContinue();
  virtual void PutBreakIf(const Stmt& stmt);
  virtual void PutLineNumber(uint32_t line) = 0;

  // ---- what a language uses
  template <class... Parts>
  void Put(const Parts&... parts) {
    (internal::Append(out_, parts), ...);
  }
  void Fail(Location at, std::string message);  // the first one counts
  Level Put(const Expr& expr);
  void PutTop(const Expr& expr) { Put(expr); }
  // With parentheses unless it binds at least as tightly as `level`.
  void PutAt(const Expr& expr, Level level);
  void PutOperand(const Expr& expr, Level parent, bool is_right);
  void PutArguments(const Expr& expr, size_t from = 0);  // "a, b, c"
  Level PutInfix(const Expr& left, std::string_view op, Level level, const Expr& right);
  Level PutSpelling(const Expr& expr, std::string_view text);
  Level PutBuiltin(const Expr& expr);
  static Level LevelOf(std::string_view op);
  std::string LiteralInt(const Literal& literal, Scalar scalar);
  const Spelling* FindSpelling(std::string_view name, char of) const;
  // Adds a function to the text once; `name` is its key and its printed name.
  void AddHelper(const std::string& name, const std::string& text);
  // The members of a struct or block with the params, each at the offset that `kernel_.params` says. `vec3_align` is that of a
  // vector of three in this language.
  std::string ParamMembers(uint32_t vec3_align);
  // Fills in a pattern's placeholders but $n and %n.
  std::string Fill(std::string_view pattern, const Type& result, const Type& first, std::string_view name);

  void StartLine();
  void PutStatements(const std::vector<StmtPtr>& body);
  void PutBlock(const std::vector<StmtPtr>& body);  // "{ ... }" after which the line may go on
  void PutStatement(const Stmt& stmt);
  void PutSimple(const Stmt& stmt);  // declaration, assignment, increment or call, without the end of the line
  void PutBody(const Function& function);
  static bool EndsFlow(const std::vector<StmtPtr>& body);

  // Names. Locals live until the end of their block; none hides another one or a global.
  void OpenScope();
  void CloseScope();
  std::string_view DeclareLocal(std::string_view name);
  std::string UniqueName(std::string_view wanted);
  std::string MemberName(std::string_view name) const;
  const std::string* FindLocal(std::string_view name) const;
  const GlobalName* FindGlobal(std::string_view name) const;
  const Function* FindFunction(std::string_view name) const;
  const StructDecl* FindStruct(std::string_view name) const;
  const Type& Resolve(const Type& type) const;  // an alias' type
  const std::string& FunctionName(const Function& function) const { return function_names_.at(function.name); }
  const std::string& StructName(const std::string& name);
  // Globals that a function uses, itself or through what it calls, in order.
  const std::vector<const GlobalName*>& UsedBy(const Function& function) const { return used_by_.at(function.name); }
  const std::vector<const GlobalName*>& UsedByAny() const { return used_by_any_; }
  bool HasParams() const { return !kernel_.params.empty(); }

  static bool IsPure(const Expr& expr);
  static Type ElementOf(const Type& type);  // of a vector: its scalar; of a scalar: itself
  static Type WithScalar(const Type& type, Scalar scalar);
  static int Lanes(const Type& type) { return type.kind == Type::Kind::kVector ? type.rows : 1; }
  static std::string FloatText(float value);  // shortest that reads back; always with a point or an exponent
  static char ClassOf(const Type& type);      // 'f', 'i', 'u', 'b'

  const LoweredKernel& kernel_;
  const Module& module_;
  const Target& target_;
  const PrintOptions& options_;
  const Words& words_;
  std::string out_;        // what is being printed
  std::string helpers_;    // functions that the text needs
  std::string functions_;  // done
  std::string entry_name_;
  std::string params_name_ = "params";
  // At the end of the names of functions, types and tables; where there is one, helper functions are printed so that they may
  // come twice.
  std::string file_scope_suffix_;
  int indent_ = 0;
  std::optional<Error> error_;
  // `continue` of the innermost loop runs these first (languages without a continuing block).
  const std::vector<StmtPtr>* continuing_ = nullptr;
  bool in_switch_of_loop_ = false;

  struct Locals {
    struct Local {
      std::string_view name;
      std::string printed;
      int hidden = -1;
      bool is_alias = false;  // `printed` is a place that belongs to another name
    };
    std::vector<Local> all;
    std::vector<size_t> scopes;
    std::unordered_map<std::string_view, int> visible;
    std::unordered_set<std::string> printed;
  };
  Locals locals_;

 private:
  void NameGlobals();
  void FindUses();
  void Line(const Stmt& stmt);

  std::unordered_map<std::string_view, GlobalName> globals_;
  std::unordered_map<std::string_view, const Function*> functions_by_name_;
  std::unordered_map<std::string_view, std::string> function_names_, struct_names_;
  std::unordered_map<std::string_view, std::vector<const GlobalName*>> used_by_;
  std::vector<const GlobalName*> used_by_any_;
  std::unordered_set<std::string> taken_;  // printed names of globals
  std::unordered_set<std::string> helper_names_;
  uint32_t last_line_ = 0;
};

// The four languages.
Result<KernelText> PrintWgsl(const LoweredKernel& kernel, const Target& target, const PrintOptions& options);
Result<KernelText> PrintOpenClC(const LoweredKernel& kernel, const Target& target, const PrintOptions& options);
Result<KernelText> PrintGlslEs(const LoweredKernel& kernel, const Target& target, const PrintOptions& options);
Result<KernelText> PrintMsl(const LoweredKernel& kernel, const Target& target, const PrintOptions& options);

}  // namespace leeway::shader
