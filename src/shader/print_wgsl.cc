// WGSL: the kernel as it is, with bindings and `enable` lines.
#include <cmath>

#include "shader/builtins.h"
#include "shader/printer.h"

namespace leeway::shader {

namespace {

const Words& WgslWords() {
  // What WGSL reserves or predeclares. A kernel that was parsed has none of the keywords, but lowering makes names too.
  static const Words words(
      R"(alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let loop
      override requires return struct switch true var while bool f16 f32 i32 u32 vec2 vec3 vec4 vec2f vec3f vec4f vec2i vec3i
      vec4i vec2u vec3u vec4u vec2h vec3h vec4h mat2x2 mat2x3 mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3 mat4x4 array atomic ptr
      sampler texture_1d texture_2d texture_2d_array texture_3d texture_storage_2d texture_storage_2d_array texture_storage_3d
      bitcast select abs acos acosh all any asin asinh atan atan2 atanh ceil clamp cos cosh cross degrees distance dot exp exp2
      floor fma fract inverseSqrt ldexp length log log2 max min mix normalize pow radians round saturate sign sin sinh smoothstep
      sqrt step tan tanh trunc textureLoad textureStore textureDimensions arrayLength read write read_write storage uniform
      workgroup private function immediate
      NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become cast catch class co_await
      co_return co_yield coherent column_major common compile compile_fragment concept const_cast consteval constexpr constinit
      crate debugger decltype delete demote demote_to_helper do dynamic_cast enum explicit export extends extern external
      fallthrough filter final finally friend from fxgroup get goto groupshared highp impl implements import inline instanceof
      interface layout lowp macro macro_rules match mediump meta mod module move mut mutable namespace new nil noexcept noinline
      nointerpolation non_coherent noncoherent noperspective null nullptr of operator package packoffset partition pass patch
      pixelfragment precise precision premerge priv protected pub public readonly ref regardless register reinterpret_cast require
      resource restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super target template
      this thread_local throw trait try type typedef typeid typename typeof union unless unorm unsafe unsized use using varying
      virtual volatile wgsl where with writeonly yield)",
      "", {});
  return words;
}

class WgslPrinter : public Printer {
 public:
  WgslPrinter(const LoweredKernel& kernel, const Target& target, const PrintOptions& options)
      : Printer(kernel, target, options, WgslWords()) {}

 protected:
  bool params_need_binding() const override { return !target_.immediates; }

  std::string TypeName(const Type& declared) override {
    const Type& type = Resolve(declared);
    static const char* const kShort[] = {"", "i", "u", "f", "h", "i", "f"};
    switch (type.kind) {
      case Type::Kind::kVoid: return "void";
      case Type::Kind::kScalar: return ScalarText(type.scalar);
      case Type::Kind::kVector:
        if (type.scalar == Scalar::kBool) return StrCat("vec", int(type.rows), "<bool>");
        return StrCat("vec", int(type.rows), kShort[int(type.scalar)]);
      case Type::Kind::kMatrix:
        uses_matrices_ = true;
        return StrCat("subgroup_matrix_", type.name == "sum" ? "result" : type.name, "<", ScalarText(type.scalar), ", ",
                      int(type.columns), ", ", int(type.rows), ">");
      case Type::Kind::kArray:
        if (type.count == 0) return StrCat("array<", TypeName(*type.element), ">");
        return StrCat("array<", TypeName(*type.element), ", ", type.count, ">");
      case Type::Kind::kStruct: return StructName(type.name);
      case Type::Kind::kAtomic: return StrCat("atomic<", ScalarText(type.scalar), ">");
      case Type::Kind::kPointer: return StrCat("ptr<", type.name, ", ", TypeName(*type.element), ">");
      case Type::Kind::kTexture:
        if (type.texel_format.empty()) return StrCat("texture_", type.texture_dim, "<", ScalarText(type.scalar), ">");
        return StrCat("texture_storage_", type.texture_dim, "<", type.texel_format, ", write>");
    }
    return {};
  }
  std::string ParamMember(const Type& type, const std::string& name) override {
    return StrCat(name, " : ", TypeName(type), ",");
  }

  void PutFloat(float value) override {
    if (std::isfinite(value)) {
      Put(FloatText(value), "f");
      return;
    }
    // WGSL refuses a constant that is not finite, so the bits come from a variable.
    const char* name = std::isnan(value) ? "lw_nan_bits" : value > 0 ? "lw_infinity_bits" : "lw_minus_infinity_bits";
    const char* bits = std::isnan(value) ? "0x7fc00000u" : value > 0 ? "0x7f800000u" : "0xff800000u";
    AddHelper(name, StrCat("var<private> ", name, " : u32 = ", bits, ";"));
    Put("bitcast<f32>(", name, ")");
  }
  void PutHalf(float value) override {
    if (std::isfinite(value)) {
      Put(FloatText(value), "h");
      return;
    }
    Put("f16(");
    PutFloat(value);
    Put(")");
  }
  void PutInt(int64_t value, Scalar scalar) override {
    if (scalar == Scalar::kI32 && value == INT32_MIN) {
      Put("i32(-2147483648)");
    } else {
      Put(value, scalar == Scalar::kI32 ? "i" : scalar == Scalar::kU32 ? "u" : "");
    }
  }

  Level PutGlobal(const GlobalName& global) override {
    if (global.kind != GlobalName::Kind::kParam) return Printer::PutGlobal(global);
    std::string name;
    for (const ParamDecl& param : module_.params) {
      if (&param.type == global.type) name = MemberName(param.name);
    }
    Put(params_name_, ".", name);
    return Level::kPrimary;
  }
  // `a < b >> c` would be read as a template too.
  Level PutBinary(const Expr& expr) override {
    const Expr& right = *expr.args[1];
    if (expr.op != "<" || right.kind != ExprKind::kBinary || right.op != ">>") return Printer::PutBinary(expr);
    PutAt(*expr.args[0], Level::kUnary);
    Put(" < (");
    PutTop(right);
    Put(")");
    return Level::kRelational;
  }
  // `f(a < b, c > d)` would be read as a template.
  void PutArgument(const Expr& arg, bool is_last) override {
    if (!is_last && arg.kind == ExprKind::kBinary && LevelOf(arg.op) == Level::kRelational) {
      PutAt(arg, Level::kUnary);
    } else {
      PutTop(arg);
    }
  }
  Level PutConstruct(const Expr& expr) override {
    Put(TypeName(expr.type), "(");
    PutArguments(expr);
    Put(")");
    return Level::kPrimary;
  }
  Level PutBitcast(const Expr& expr) override {
    Put("bitcast<", TypeName(expr.type), ">(");
    PutTop(*expr.args[0]);
    Put(")");
    return Level::kPrimary;
  }
  std::optional<Level> PutSpecialBuiltin(const Expr& expr) override {
    if (expr.builtin != 0 && InfoOf(expr).is_matrix()) {
      PutMatrixFunction(expr);
      return Level::kPrimary;
    }
    Put(expr.name, "(");
    PutArguments(expr);
    Put(")");
    return Level::kPrimary;
  }

  void PutMatrixFunction(const Expr& expr) {
    uses_matrices_ = true;
    if (Builtin(expr.builtin) == Builtin::kSubgroupMatrixMultiplyAdd) {
      Put("subgroupMatrixMultiplyAccumulate(");
      PutArguments(expr);
    } else {
      const bool is_store = Builtin(expr.builtin) == Builtin::kSubgroupMatrixStore;
      Put(is_store ? "subgroupMatrixStore" : StrCat("subgroupMatrixLoad<", TypeName(expr.type), ">"), "(");
      for (size_t i : {size_t(0), size_t(1), size_t(3)}) {
        if (i >= expr.args.size()) continue;
        PutArgument(*expr.args[i], false);
        Put(", ");
      }
      // By columns?
      Put(Builtin(expr.builtin) == Builtin::kSubgroupMatrixLoadRightTransposed ? "true" : "false", ", ");
      PutArgument(*expr.args[2], true);
    }
    Put(")");
  }

  void PutDeclaration(const Stmt& stmt) override {
    static const char* const kWords[] = {"let ", "var ", "const "};
    std::string value;
    // A name is visible only after its declaration.
    size_t start = out_.size();
    if (stmt.value) PutTop(*stmt.value);
    value = out_.substr(start);
    out_.resize(start);
    Put(kWords[int(stmt.kind)], DeclareLocal(stmt.name));
    bool typed = stmt.type && stmt.type->kind != Type::Kind::kVoid && stmt.type->kind != Type::Kind::kPointer;
    if (typed && (!stmt.value || !(stmt.value->type == *stmt.type))) Put(" : ", TypeName(*stmt.type));
    if (stmt.value) {
      Put(" = ", value);
    } else if (stmt.kind == StmtKind::kVar && typed &&
               (stmt.type->kind == Type::Kind::kArray || stmt.type->kind == Type::Kind::kMatrix)) {
      // Zero by the standard, in each round of a loop; with Mesa's lavapipe an array without a value keeps the last round's,
      // and so does a matrix with NVIDIA's driver.
      Put(" = ", TypeName(*stmt.type), "()");
    }
  }
  void PutDiscard(const Expr& value) override {
    Put("_ = ");
    PutTop(value);
  }
  void PutLoop(const Stmt& stmt) override {
    StartLine();
    Put("loop {\n");
    ++indent_;
    OpenScope();
    PutStatements(stmt.body);
    if (!stmt.else_body.empty()) {
      StartLine();
      Put("continuing ");
      PutBlock(stmt.else_body);
      Put("\n");
    }
    CloseScope();
    --indent_;
    StartLine();
    Put("}\n");
  }
  void PutSwitch(const Stmt& stmt) override {
    StartLine();
    Put("switch (");
    PutTop(*stmt.value);
    Put(") {\n");
    ++indent_;
    for (const SwitchCase& c : stmt.cases) {
      StartLine();
      if (c.selectors.empty()) {
        Put("default ");
      } else {
        Put("case ");
        for (size_t i = 0; i < c.selectors.size(); ++i) {
          if (i) Put(", ");
          PutTop(*c.selectors[i]);
        }
        Put(c.is_default ? ", default " : " ");
      }
      PutBlock(c.body);
      Put("\n");
    }
    --indent_;
    StartLine();
    Put("}\n");
  }
  void PutBreakIf(const Stmt& stmt) override {
    StartLine();
    Put("break if ");
    PutTop(*stmt.value);
    Put(";\n");
  }
  void PutContinue() override {
    StartLine();
    Put("continue;\n");
  }
  void PutLineNumber(uint32_t line) override { Put("// ", module_.name, ".kernel:", line, "\n"); }

  void PutFunction(const Function& function) override {
    OpenScope();
    Put("fn ", FunctionName(function), "(");
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      const Parameter& p = function.parameters[i];
      if (i) Put(", ");
      if (!p.builtin.empty()) Put("@builtin(", p.builtin, ") ");
      Put(DeclareLocal(p.name), " : ", TypeName(p.type));
    }
    Put(")");
    if (function.result.kind != Type::Kind::kVoid) Put(" -> ", TypeName(function.result));
    Put(" {\n");
    PutBody(function);
    Put("}\n\n");
    CloseScope();
  }
  void PutEntry(const Function& function) override {
    const uint32_t* size = kernel_.workgroup_size;
    Put("@compute @workgroup_size(", size[0], ", ", size[1], ", ", size[2], ")\n");
    PutFunction(function);
  }

  std::string Assemble() override {
    std::string functions = std::move(out_);
    out_.clear();
    if (kernel_.uses_f16) Put("enable f16;\n");
    if (kernel_.uses_subgroups) Put("enable subgroups;\n");
    if (uses_matrices_) Put("enable chromium_experimental_subgroup_matrix;\n");
    bool immediates = HasParams() && target_.immediates;
    if (immediates) Put("requires immediate_address_space;\n");
    // The checker has proven more than WGSL's own rules can see, for subgroup sizes that are known.
    if (kernel_.uses_subgroups) Put("diagnostic(off, subgroup_uniformity);\n");
    if (uses_matrices_) Put("diagnostic(off, chromium.subgroup_matrix_uniformity);\n");
    if (!out_.empty()) Put("\n");

    std::string_view params_struct;
    for (const VarDecl& var : module_.vars) {
      if (var.space == "uniform") params_struct = var.type.name;
    }
    for (const StructDecl& s : module_.structs) {
      if (s.name == params_struct) continue;
      Put("struct ", StructName(s.name), " {\n");
      for (const StructMember& member : s.members) Put("  ", MemberName(member.name), " : ", TypeName(member.type), ",\n");
      Put("}\n\n");
    }
    for (size_t i = 0; i < kernel_.bindings.size(); ++i) {
      for (const VarDecl& var : module_.vars) {
        if (var.binding != int(i) || var.space == "uniform") continue;
        Put("@group(0) @binding(", i, ") var");
        if (var.type.kind != Type::Kind::kTexture)
          Put(var.access == Access::kRead ? "<storage, read>" : "<storage, read_write>");
        Put(" ", FindGlobal(var.name)->text, " : ", TypeName(var.type), ";\n");
      }
    }
    if (HasParams()) {
      std::string name = UniqueName("Params");
      size_t binding = kernel_.bindings.size();
      for (size_t i = 0; i < kernel_.bindings.size(); ++i) {
        if (kernel_.bindings[i].kind == BindingInfo::Kind::kParams) binding = i;
      }
      Put("struct ", name, " {\n", ParamMembers(16), "}\n");
      if (immediates) {
        Put("var<immediate> ");
      } else {
        Put("@group(0) @binding(", binding, ") var<uniform> ");
      }
      Put(params_name_, " : ", name, ";\n");
    }
    Put("\n");
    size_t start = out_.size();
    for (const GlobalName* global : UsedByAny()) {
      if (global->kind == GlobalName::Kind::kConst) {
        Put("const ", global->text, " = ");
        PutTop(*global->constant->value);
        Put(";\n");
      } else if (global->kind == GlobalName::Kind::kWorkgroup) {
        Put("var<workgroup> ", global->text, " : ", TypeName(*global->type), ";\n");
      } else if (global->kind == GlobalName::Kind::kPrivate) {
        Put("var<private> ", global->text, " : ", TypeName(*global->type));
        if (global->var->value) {
          Put(" = ");
          PutTop(*global->var->value);
        }
        Put(";\n");
      }
    }
    Put(helpers_);
    if (out_.size() > start) Put("\n");
    Put(functions);
    while (out_.ends_with("\n\n")) out_.pop_back();
    return std::move(out_);
  }

 private:
  static const char* ScalarText(Scalar scalar) {
    static const char* const kNames[] = {"bool", "i32", "u32", "f32", "f16", "i32", "f32"};
    return kNames[int(scalar)];
  }

  bool uses_matrices_ = false;
};

}  // namespace

Result<KernelText> PrintWgsl(const LoweredKernel& kernel, const Target& target, const PrintOptions& options) {
  return WgslPrinter(kernel, target, options).Print();
}

}  // namespace leeway::shader
