// The tree of a kernel: what the parser makes, the checker types, the specializer binds, the lowering rewrites, the printers
// and the interpreter read. One kind of node for expressions and one for statements, so that a transformation is a function
// with a switch over `kind`. A tree is owned by its Module; nodes are never shared between two parents (Clone to copy).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace leeway::shader {

struct Location {
  uint32_t line = 0, column = 0;
};  // 1-based, in the kernel text; 0 for generated nodes

// ---- Types ------------------------------------------------------------------------------------------------------------

enum class Scalar : uint8_t { kBool, kI32, kU32, kF32, kF16, kAbstractInt, kAbstractFloat };

struct Type;
using TypePtr = std::shared_ptr<const Type>;
struct Expr;

struct Type {
  enum class Kind : uint8_t { kVoid, kScalar, kVector, kMatrix, kArray, kStruct, kAtomic, kPointer, kTexture };
  Kind kind = Kind::kVoid;
  Scalar scalar = Scalar::kF32;   // kScalar, kVector, kMatrix, kAtomic, kTexture (channel type)
  uint8_t rows = 0, columns = 0;  // kVector: rows 2..4; kMatrix: columns x rows, held by a subgroup together
  TypePtr element;                // kArray, kPointer
  uint32_t count = 0;             // kArray; 0 = runtime-sized (lowered storage buffers only)
  // kStruct; before checking also an alias that is not resolved yet. Of a kPointer the WGSL address space ("function",
  // "workgroup", "private"). Of a kMatrix its place in a product: "left", "right" or "sum".
  std::string name;
  // Before checking only: the number of elements of a kArray as written, and vec4(...) or array(...) whose element type (and
  // count) follows from the arguments.
  std::shared_ptr<const Expr> count_expr;
  bool inferred = false;
  // kTexture (lowered kernels only): "2d", "2d_array", "3d", "buffer"; written ones have a texel format ("rgba32float").
  std::string texture_dim, texel_format;

  static Type Void() { return {}; }
  static Type Of(Scalar s) {
    Type t;
    t.kind = Kind::kScalar;
    t.scalar = s;
    return t;
  }
  static Type Vector(Scalar s, int rows) {
    Type t;
    t.kind = Kind::kVector;
    t.scalar = s;
    t.rows = uint8_t(rows);
    return t;
  }
  static Type Array(Type element, uint32_t count) {
    Type t;
    t.kind = Kind::kArray;
    t.element = std::make_shared<const Type>(std::move(element));
    t.count = count;
    return t;
  }
  static Type Atomic(Scalar s) {
    Type t;
    t.kind = Kind::kAtomic;
    t.scalar = s;
    return t;
  }
  static Type Pointer(Type element, std::string space) {
    Type t;
    t.kind = Kind::kPointer;
    t.element = std::make_shared<const Type>(std::move(element));
    t.name = std::move(space);
    return t;
  }
  static Type Struct(std::string name) {
    Type t;
    t.kind = Kind::kStruct;
    t.name = std::move(name);
    return t;
  }

  // The matrices of the language are of one size: f16 [16, 16] on the left and on the right, f32 [16, 16] for sums.
  static constexpr uint8_t kMatrixExtent = 16;
  static Type SubgroupMatrix(std::string place) {
    Type t;
    t.kind = Kind::kMatrix;
    t.scalar = place == "sum" ? Scalar::kF32 : Scalar::kF16;
    t.rows = t.columns = kMatrixExtent;
    t.name = std::move(place);
    return t;
  }

  bool IsScalar() const { return kind == Kind::kScalar; }
  bool IsScalar(Scalar s) const { return kind == Kind::kScalar && scalar == s; }
  bool IsVector() const { return kind == Kind::kVector; }
  bool IsNumeric() const;   // scalar or vector of a number type
  bool IsAbstract() const;  // scalar, vector or array of abstract numbers (never after checking)
  bool operator==(const Type& other) const;
  std::string ToString() const;  // WGSL spelling: "vec4<f32>", "array<u32, 64>", "ptr<function, f32>"
};

// ---- Expressions ------------------------------------------------------------------------------------------------------

enum class ExprKind : uint8_t {
  kLiteral,     // `literal`
  kName,        // `name`: variable, let, const, param, function parameter
  kUnary,       // `op` args[0]:  - ! ~ & (address of) * (dereference)
  kBinary,      // args[0] `op` args[1]
  kIndex,       // args[0] [ args[1] ]
  kMember,      // args[0] . `name`: swizzle or struct member; `x.row` on a tensor: extent of an axis
  kCall,        // `name`(args): user function or builtin
  kConstruct,   // `type`(args): vec4f(...), f32(x), array<f32, 4>(...), a struct; no arguments: the zero value
  kBitcast,     // bitcast<`type`>(args[0])
  kTensorCall,  // `name` . `method` (args): tensor accessor; `name` is the tensor
};

// What a kName names; set by the checker, which also makes the names of locals unique in their function and different from
// all names of the module, so that no name shadows another one after it.
enum class Symbol : uint8_t {
  kNone,
  kLocal,      // let or var of a function
  kParameter,  // of a function
  kConst,      // module constant that is no scalar (scalars are literals by then)
  kParam,      // `param`
  kScratch,    // `scratch`
  kModuleVar,  // var<workgroup>, var<private>; lowered: a resource
};

// Exact until the type is known. Integers: i; floats: f. After checking `Expr::type` says which of them counts.
struct Literal {
  bool is_float = false, is_bool = false;
  int64_t i = 0;  // also 0 and 1 for bool
  double f = 0;
};

using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  Symbol symbol = Symbol::kNone;  // kName
  uint16_t builtin = 0;           // kCall after checking: shader::Builtin (builtins.h), 0 for a user function
  Location at;
  Type type;  // set by the checker (kConstruct, kBitcast: by the parser; kLiteral: abstract unless it has a suffix)
  std::string name;
  std::string method;  // kTensorCall
  std::string op;      // kUnary, kBinary: as spelled in WGSL
  Literal literal;
  std::vector<ExprPtr> args;
  // Set by the checker: the value if it is known at compile time (scalars only). Such an expression is a kLiteral by then.
  std::optional<Literal> constant;
};

// ---- Statements -------------------------------------------------------------------------------------------------------

enum class StmtKind : uint8_t {
  kLet,
  kVar,
  kConst,      // `name` [: `type`] [= value]
  kAssign,     // target `op` value: "=", "+=", ... ; `_ = value` has no target
  kIncrement,  // target `op`: "++" or "--"
  kCall,       // value (a kCall or kTensorCall whose result is dropped)
  kIf,         // value, body, else_body (else if: one kIf in else_body)
  kFor,        // init, value (condition, may be null), update, body
  kWhile,      // value, body
  kLoop,       // body, continuing (else_body; `break if` is a kBreakIf at its end)
  kSwitch,     // value, cases
  kBreak,
  kContinue,
  kBreakIf /* value */,
  kReturn /* value or null */,
  kBlock,  // body
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;

struct SwitchCase {
  std::vector<ExprPtr> selectors;  // empty with is_default alone
  bool is_default = false;
  std::vector<StmtPtr> body;
};

struct Stmt {
  StmtKind kind = StmtKind::kBlock;
  Location at;
  std::string name, op;
  std::optional<Type> type;  // declared; after checking always the type of the variable
  ExprPtr target, value;
  StmtPtr init, update;
  std::vector<StmtPtr> body, else_body;
  std::vector<SwitchCase> cases;
  int unroll = 0;  // kFor: @unroll(n); -1 = @unroll without a number: fully
};

// ---- Declarations -----------------------------------------------------------------------------------------------------

enum class Access : uint8_t { kRead, kWrite, kReadWrite };

struct TensorDecl {  // tensor x[batch, row, inner] : read;   weights w[column, inner];
  std::string name;
  std::vector<std::string> axes;
  Access access = Access::kRead;
  bool is_weights = false;
  // The scalar type that load gives and store takes: f32 unless the declaration ends in `as i32`, `as u32` or `as bool`,
  // as in `tensor indices[n] : read as i32;`.
  Scalar value = Scalar::kF32;
  Location at;
};

struct ConstDecl {  // const n : u32;   const order : array<u32, 4>;   const pi = 3.14;  (bound or given)
  std::string name;
  std::optional<Type> type;
  ExprPtr value;                    // null until bound
  std::vector<double> tune_values;  // tune n : u32 in {1, 2, 4}; the first is the default
  bool is_tune = false;
  Location at;
};

struct ParamDecl {
  std::string name;
  Type type;
  Location at;
};  // param position : u32;
struct ScratchDecl {
  std::string name;
  Type type;
  Location at;
};  // scratch arrived : array<atomic<u32>, 64>;

struct VarDecl {            // var<workgroup> tile : array<vec4f, 64>;  var<private> ...
  std::string name, space;  // "workgroup", "private"; lowered: "storage", "uniform", "texture"
  Type type;
  ExprPtr value;                       // private only
  Access access = Access::kReadWrite;  // lowered resources
  int binding = -1;                    // lowered resources: number in the one bind group
  Location at;
};

struct StructMember {
  std::string name;
  Type type;
};
struct StructDecl {
  std::string name;
  std::vector<StructMember> members;
  Location at;
};
struct AliasDecl {
  std::string name;
  Type type;
  Location at;
};

struct Parameter {
  std::string name;
  Type type;
  std::string builtin;  // entry point: "workgroup_id", "local_invocation_id", "local_invocation_index",
};                      // "global_invocation_id", "num_workgroups", "subgroup_size", "subgroup_invocation_id"

struct Function {
  std::string name;
  std::vector<Parameter> parameters;
  Type result;
  std::vector<StmtPtr> body;
  bool is_entry = false;                // @compute
  std::vector<ExprPtr> workgroup_size;  // 1 to 3 constant expressions
  Location at;
};

struct Module {
  std::string name;  // "softmax": for messages, and the entry point's name in printed texts
  std::vector<TensorDecl> tensors;
  std::vector<ConstDecl> consts;  // const and tune
  std::vector<ParamDecl> params;
  std::vector<ScratchDecl> scratches;
  std::vector<VarDecl> vars;
  std::vector<StructDecl> structs;
  std::vector<AliasDecl> aliases;
  std::vector<Function> functions;  // callees before callers after checking

  const Function& entry() const;
};

ExprPtr Clone(const Expr& expr);
StmtPtr Clone(const Stmt& stmt);
std::vector<StmtPtr> Clone(const std::vector<StmtPtr>& body);
Function Clone(const Function& function);
Module Clone(const Module& module);

// The same tree, positions aside.
bool Equal(const Expr& a, const Expr& b);

// Size and alignment in bytes of a type in workgroup memory or a storage buffer, by WGSL's rules. Structs by name from
// `module`. Of a runtime-sized array the size of one element with its stride.
struct TypeLayout {
  uint32_t size = 0, align = 1;
};
TypeLayout LayoutOf(const Type& type, const Module& module);

const char* ScalarName(Scalar scalar);  // "f32"
const char* AccessName(Access access);  // "read_write"

}  // namespace leeway::shader
