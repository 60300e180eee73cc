// GLSL ES 3.10. Buffers are storage blocks with binding = n in their order, sampled textures and written images likewise each
// with a count of their own, the params the one uniform block (binding 0).
//
// The language has no pointers. A pointer to a variable of a function becomes `inout`; a function that takes a pointer to
// workgroup memory is printed once for each variable that it is called with.
#include <cmath>

#include "shader/print_c.h"

namespace leeway::shader {

namespace {

const Words& GlslWords() {
  static const Words words(
      R"(const uniform buffer shared coherent volatile restrict readonly writeonly atomic_uint layout centroid flat smooth patch
      sample precise break continue do for while switch case default if else subroutine in out inout float double int void bool
      true false invariant discard return mat2 mat3 mat4 mat2x2 mat2x3 mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3 mat4x4 vec2 vec3
      vec4 ivec2 ivec3 ivec4 bvec2 bvec3 bvec4 uint uvec2 uvec3 uvec4 lowp mediump highp precision sampler2D sampler3D samplerCube
      sampler2DShadow sampler2DArray isampler2D isampler3D isampler2DArray usampler2D usampler3D usampler2DArray sampler2DMS
      samplerBuffer imageBuffer image2D iimage2D uimage2D image3D iimage3D uimage3D image2DArray iimage2DArray uimage2DArray struct
      attribute varying common partition active asm class union enum typedef template this resource goto inline noinline public
      static extern external interface long short half fixed unsigned superp input output hvec2 hvec3 hvec4 dvec2 dvec3 dvec4
      sampler3DRect filter sizeof cast namespace using noperspective main image1D sampler1D
      radians degrees sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh pow exp log exp2 log2 sqrt inversesqrt abs sign
      floor trunc round roundEven ceil fract mod modf min max clamp mix step smoothstep isnan isinf floatBitsToInt floatBitsToUint
      intBitsToFloat uintBitsToFloat fma frexp ldexp packSnorm2x16 packUnorm2x16 packSnorm4x8 packUnorm4x8 unpackSnorm2x16
      unpackUnorm2x16 unpackSnorm4x8 unpackUnorm4x8 packHalf2x16 unpackHalf2x16 length distance dot cross normalize faceforward
      reflect refract matrixCompMult outerProduct transpose determinant inverse lessThan lessThanEqual greaterThan
      greaterThanEqual equal notEqual any all not bitfieldExtract bitfieldInsert bitfieldReverse bitCount findLSB findMSB uaddCarry
      usubBorrow umulExtended imulExtended textureSize texture textureProj textureLod textureOffset texelFetch texelFetchOffset
      textureGrad textureGather atomicCounter atomicAdd atomicMin atomicMax atomicAnd atomicOr atomicXor atomicExchange
      atomicCompSwap imageSize imageLoad imageStore imageAtomicAdd barrier memoryBarrier memoryBarrierShared memoryBarrierBuffer
      memoryBarrierImage groupMemoryBarrier dFdx dFdy fwidth)",
      "acos acosh asin asinh atan atanh ceil cos cosh degrees exp exp2 floor fract log log2 pow radians reflect sin sinh "
      "smoothstep "
      "sqrt step tan tanh trunc ldexp length distance normalize cross dot mix",
      {
          {"abs", 'u', "$0"},
          {"abs", '*', "abs"},
          {"min", '*', "min"},
          {"max", '*', "max"},
          {"clamp", '*', "clamp"},
          {"sign", '*', "sign"},
          {"atan2", 'f', "atan"},
          {"round", 'f', "roundEven"},
          {"inverseSqrt", 'f', "inversesqrt"},
          {"saturate", 'f', "clamp($0, 0.0, 1.0)"},
          {"fma", 'f', "(%0 * %1 + %2)"},
          {"quantizeToF16", 'f', "fn $T @($T x) { return $T([[unpackHalf2x16(packHalf2x16(vec2(x$L, 0.0))).x|, ]]); }"},
          {"dot", '*', "fn $S @($A a, $A b) { return [[a$L * b$L| + ]]; }"},
          {"countLeadingZeros", '*', "$T(31 - findMSB($U($0)))"},
          {"countOneBits", '*', "$T(bitCount($0))"},
          {"countTrailingZeros", '*', R"(fn $T @($T x) {
  $U bits = $U(x);
  return $T(bitCount(~bits & (bits - 1u)));
})"},
          {"firstLeadingBit", '*', "$T(findMSB($0))"},
          {"firstTrailingBit", '*', "$T(findLSB($0))"},
          {"reverseBits", '*', "bitfieldReverse"},
          {"extractBits", '*', R"(fn $T @($T x, uint offset, uint count) {
  uint first = min(offset, 32u), bits = min(count, 32u - first);
  if (bits == 0u) return $T(0);
  return bitfieldExtract(x, int(first), int(bits));
})"},
          {"insertBits", '*', R"(fn $T @($T x, $T bits_in, uint offset, uint count) {
  uint first = min(offset, 32u), bits = min(count, 32u - first);
  if (bits == 0u) return x;
  return bitfieldInsert(x, bits_in, int(first), int(bits));
})"},
          {"pack4x8snorm", '*', "packSnorm4x8"},
          {"pack4x8unorm", '*', "packUnorm4x8"},
          {"pack2x16snorm", '*', "packSnorm2x16"},
          {"pack2x16unorm", '*', "packUnorm2x16"},
          {"pack2x16float", '*', "packHalf2x16"},
          {"unpack4x8snorm", '*', "unpackSnorm4x8"},
          {"unpack4x8unorm", '*', "unpackUnorm4x8"},
          {"unpack2x16snorm", '*', "unpackSnorm2x16"},
          {"unpack2x16unorm", '*', "unpackUnorm2x16"},
          {"unpack2x16float", '*', "unpackHalf2x16"},
          {"pack4xI8", '*', R"(fn uint @(ivec4 v) {
  uvec4 b = uvec4(v) & 0xffu;
  return b.x | (b.y << 8) | (b.z << 16) | (b.w << 24);
})"},
          {"pack4xU8", '*', R"(fn uint @(uvec4 v) {
  uvec4 b = v & 0xffu;
  return b.x | (b.y << 8) | (b.z << 16) | (b.w << 24);
})"},
          {"pack4xI8Clamp", '*', R"(fn uint @(ivec4 v) {
  uvec4 b = uvec4(clamp(v, -128, 127)) & 0xffu;
  return b.x | (b.y << 8) | (b.z << 16) | (b.w << 24);
})"},
          {"pack4xU8Clamp", '*', R"(fn uint @(uvec4 v) {
  uvec4 b = min(v, 255u);
  return b.x | (b.y << 8) | (b.z << 16) | (b.w << 24);
})"},
          {"unpack4xI8", '*', "(ivec4(uvec4($0) << uvec4(24u, 16u, 8u, 0u)) >> 24)"},
          {"unpack4xU8", '*', "((uvec4($0) >> uvec4(0u, 8u, 16u, 24u)) & 0xffu)"},
          {"dot4I8Packed", '*', R"(fn int @(uint a, uint b) {
  uvec4 shift = uvec4(24u, 16u, 8u, 0u);
  ivec4 p = (ivec4(uvec4(a) << shift) >> 24) * (ivec4(uvec4(b) << shift) >> 24);
  return p.x + p.y + p.z + p.w;
})"},
          {"dot4U8Packed", '*', R"(fn uint @(uint a, uint b) {
  uvec4 shift = uvec4(0u, 8u, 16u, 24u);
  uvec4 p = ((uvec4(a) >> shift) & 0xffu) * ((uvec4(b) >> shift) & 0xffu);
  return p.x + p.y + p.z + p.w;
})"},
          {"all", '*', "all"},
          {"any", '*', "any"},
          {"workgroupBarrier", '*', "fn void lw_workgroupBarrier() {\n  memoryBarrierShared();\n  barrier();\n}"},
          {"storageBarrier", '*', "fn void lw_storageBarrier() {\n  memoryBarrierBuffer();\n  barrier();\n}"},
      });
  return words;
}

bool IsBool(const Type& type) { return type.kind == Type::Kind::kScalar && type.scalar == Scalar::kBool; }
bool IsBoolVector(const Type& type) { return type.kind == Type::Kind::kVector && type.scalar == Scalar::kBool; }

class GlslPrinter : public CPrinter {
 public:
  GlslPrinter(const LoweredKernel& kernel, const Target& target, const PrintOptions& options)
      : CPrinter(kernel, target, options, GlslWords()) {}

 protected:
  bool params_need_binding() const override { return true; }
  std::string SpaceWord(std::string_view) const override { return ""; }
  std::string_view const_word() const override { return ""; }
  std::string_view constant_word() const override { return "const "; }
  std::string_view zero_braces() const override { return ""; }
  bool resources_are_arguments() const override { return false; }
  bool arrays_are_values() const override { return true; }
  std::string PassedDeclaration(const GlobalName&) override { return {}; }

  std::string TypeName(const Type& declared) override {
    static const char* const kScalars[] = {"bool", "int", "uint", "float", "", "int", "float"};
    static const char* const kVectors[] = {"bvec", "ivec", "uvec", "vec", "", "ivec", "vec"};
    const Type& type = Resolve(declared);
    if (type.scalar == Scalar::kF16 && (type.kind == Type::Kind::kScalar || type.kind == Type::Kind::kVector)) {
      Fail({}, "GLSL ES 3.10 has no type f16.");
      return {};
    }
    switch (type.kind) {
      case Type::Kind::kVoid: return "void";
      case Type::Kind::kScalar:
      case Type::Kind::kAtomic: return kScalars[int(type.scalar)];
      case Type::Kind::kVector: return StrCat(kVectors[int(type.scalar)], int(type.rows));
      case Type::Kind::kStruct: return StructName(type.name);
      case Type::Kind::kArray: {
        std::string extents;
        const Type* element = &type;
        while (element->kind == Type::Kind::kArray) {
          extents += StrCat("[", element->count, "]");
          element = &Resolve(*element->element);
        }
        return StrCat(TypeName(*element), extents);
      }
      case Type::Kind::kPointer: return TypeName(*type.element);
      case Type::Kind::kTexture:
      case Type::Kind::kMatrix: break;
    }
    Fail({}, StrCat("the type ", type.ToString(), " has no counterpart in ", LanguageName(target_.language), "."));
    return {};
  }

  // ---- values
  void PutFloat(float value) override {
    if (std::isnan(value)) {
      Put("uintBitsToFloat(0x7fc00000u)");
    } else if (std::isinf(value)) {
      Put(value > 0 ? "uintBitsToFloat(0x7f800000u)" : "uintBitsToFloat(0xff800000u)");
    } else {
      Put(FloatText(value));
    }
  }
  void PutHalf(float) override { Fail({}, "GLSL ES 3.10 has no type f16."); }
  void PutInt(int64_t value, Scalar scalar) override {
    if (scalar == Scalar::kI32 && value == INT32_MIN) {
      Put("(-2147483647 - 1)");
    } else {
      Put(value, scalar == Scalar::kU32 ? "u" : "");
    }
  }
  std::string ZeroText(const Type& declared) override {
    const Type& type = Resolve(declared);
    if (type.kind == Type::Kind::kArray) {
      std::string one = ZeroText(*type.element), text = StrCat(TypeName(type), "(");
      for (uint32_t i = 0; i < type.count; ++i) text += StrCat(i ? ", " : "", one);
      return text + ")";
    }
    if (type.kind == Type::Kind::kStruct) {
      std::string text = StrCat(TypeName(type), "(");
      const StructDecl* s = FindStruct(type.name);
      for (size_t i = 0; s && i < s->members.size(); ++i) text += StrCat(i ? ", " : "", ZeroText(s->members[i].type));
      return text + ")";
    }
    const char* zero = type.scalar == Scalar::kF32    ? "0.0"
                       : type.scalar == Scalar::kU32  ? "0u"
                       : type.scalar == Scalar::kBool ? "false"
                                                      : "0";
    return type.kind == Type::Kind::kVector ? StrCat(TypeName(type), "(", zero, ")") : zero;
  }
  void PutStructValue(const Expr& expr) override {
    Put(TypeName(expr.type), "(");
    PutArguments(expr);
    Put(")");
  }
  std::string MemoryScalar(const Type& vector) override { return TypeName(ElementOf(vector)); }
  Level PutConstruct(const Expr& expr) override {
    const Type& type = Resolve(expr.type);
    if (expr.args.empty()) {
      Put(ZeroText(type));
      return Level::kPrimary;
    }
    if (expr.args.size() == 1 && type.kind != Type::Kind::kArray && type.kind != Type::Kind::kStruct) {
      const Expr& arg = *expr.args[0];
      if (arg.type == type) return Put(arg);
      char source = ClassOf(arg.type), sink = ClassOf(type);
      bool same_lanes = Lanes(arg.type) == Lanes(type);
      if (same_lanes && source == 'f' && (sink == 'i' || sink == 'u')) {
        // Out of range the language leaves it open; here the nearest value.
        std::string name = TypeName(type), from = TypeName(arg.type), helper = StrCat("lw_to_", name);
        AddHelper(helper, StrCat(name, " ", helper, "(", from, " x) { return ", name, "(clamp(x, ",
                                 sink == 'i' ? "-2147483648.0, 2147483520.0" : "0.0, 4294967040.0", ")); }"));
        Put(helper, "(");
        PutTop(arg);
        Put(")");
        return Level::kPrimary;
      }
    }
    Put(TypeName(type), "(");
    PutArguments(expr);
    Put(")");
    return Level::kPrimary;
  }
  Level PutBitcast(const Expr& expr) override {
    const Type &to = expr.type, &from = expr.args[0]->type;
    if (to == from) return Put(*expr.args[0]);
    char source = ClassOf(from), sink = ClassOf(to);
    if (source == 'f') {
      Put(sink == 'i' ? "floatBitsToInt(" : "floatBitsToUint(");
    } else if (sink == 'f') {
      Put(source == 'i' ? "intBitsToFloat(" : "uintBitsToFloat(");
    } else {
      Put(TypeName(to), "(");
    }
    PutTop(*expr.args[0]);
    Put(")");
    return Level::kPrimary;
  }

  // ---- pointers: the place itself
  Level PutAddressOf(const Expr& operand) override { return Put(operand); }
  Level PutDereference(const Expr& pointer) override { return Put(pointer); }

  // ---- operators
  Level PutUnary(const Expr& expr) override {
    if (expr.op == "!" && IsBoolVector(expr.type)) {
      Put("not(");
      PutTop(*expr.args[0]);
      Put(")");
      return Level::kPrimary;
    }
    return CPrinter::PutUnary(expr);
  }
  Level PutCall2(std::string_view name, const Expr& left, const Expr& right) {
    Put(name, "(");
    PutTop(left);
    Put(", ");
    PutTop(right);
    Put(")");
    return Level::kPrimary;
  }
  // % as WGSL has it: the sign of the dividend. The language's own leaves it open for negative numbers, mod() has the
  // divisor's.
  Level PutRemainder(const Expr& left, const Expr& right, const Type& type) {
    std::string name = TypeName(type), helper = StrCat("lw_remainder_", name);
    bool is_float = ClassOf(type) == 'f';
    AddHelper(helper, StrCat(name, " ", helper, "(", name, " a, ", name, " b) { return a - b * ",
                             is_float ? "trunc(a / b)" : "(a / b)", "; }"));
    Put(helper, "(");
    PutSplat(left, type);
    Put(", ");
    PutSplat(right, type);
    Put(")");
    return Level::kPrimary;
  }
  Level PutBoolean(const Expr& left, const std::string& op, const Expr& right) {
    bool is_and = op[0] == '&';
    if (left.type.kind == Type::Kind::kVector) {
      std::string name = TypeName(left.type), helper = StrCat(is_and ? "lw_and_" : "lw_or_", name);
      AddHelper(helper, Fill(StrCat("$T @($T a, $T b) { return $T([[a$L ", is_and ? "&&" : "||", " b$L|, ]]); }"), left.type,
                             left.type, helper));
      return PutCall2(helper, left, right);
    }
    if (IsPure(left) && IsPure(right))
      return PutInfix(left, is_and ? "&&" : "||", is_and ? Level::kAndAnd : Level::kOrOr, right);
    Put("((uint(");
    PutTop(left);
    Put(is_and ? ") & uint(" : ") | uint(");
    PutTop(right);
    Put(")) != 0u)");
    return Level::kPrimary;
  }
  Level PutBinary(const Expr& expr) override {
    const Expr &left = *expr.args[0], &right = *expr.args[1];
    if (expr.op == "%" && ClassOf(expr.type) != 'u') return PutRemainder(left, right, expr.type);
    if ((expr.op == "&" || expr.op == "|") && left.type.scalar == Scalar::kBool) return PutBoolean(left, expr.op, right);
    if (LevelOf(expr.op) == Level::kRelational && left.type.kind == Type::Kind::kVector) {
      static const std::unordered_map<std::string_view, std::string_view> kNames = {
          {"<", "lessThan"},          {"<=", "lessThanEqual"}, {">", "greaterThan"},
          {">=", "greaterThanEqual"}, {"==", "equal"},         {"!=", "notEqual"}};
      return PutCall2(kNames.at(expr.op), left, right);
    }
    return CPrinter::PutBinary(expr);
  }
  void PutShiftAmount(const Expr& amount) override {
    if (amount.kind == ExprKind::kLiteral) {
      PutTop(amount);
      return;
    }
    Put("(");
    PutOperand(amount, Level::kBitAnd, false);
    Put(" & 31u)");
  }
  void PutAssign(const Stmt& stmt) override {
    if (stmt.target) {
      const Type& type = stmt.target->type;
      if (stmt.op == "%=" && ClassOf(type) != 'u') {
        PutTop(*stmt.target);
        Put(" = ");
        PutRemainder(*stmt.target, *stmt.value, type);
        return;
      }
      if ((stmt.op == "&=" || stmt.op == "|=") && (IsBool(type) || IsBoolVector(type))) {
        PutTop(*stmt.target);
        Put(" = ");
        PutBoolean(*stmt.target, stmt.op, *stmt.value);
        return;
      }
    }
    CPrinter::PutAssign(stmt);
  }
  void PutDiscard(const Expr& value) override { PutTop(value); }
  void PutDeclaration(const Stmt& stmt) override {
    const Type& type = Resolve(stmt.type && stmt.type->kind != Type::Kind::kVoid ? *stmt.type : stmt.value->type);
    if (type.kind == Type::Kind::kPointer) {
      DeclareAlias(stmt.name, PrintToString(*stmt.value));
      return;
    }
    bool is_zero = !stmt.value || (stmt.value->kind == ExprKind::kConstruct && stmt.value->args.empty());
    if (type.kind == Type::Kind::kArray && is_zero && type.count > 16) {
      const Type* element = &type;
      while (element->kind == Type::Kind::kArray) element = &Resolve(*element->element);
      std::string name(DeclareLocal(stmt.name));
      Put(Declarator(type, name), ";\n");
      StartLine();
      PutArrayFill(type, name);
      return;
    }
    CPrinter::PutDeclaration(stmt);
  }
  void PutArrayFill(const Type& declared, const std::string& name) {
    const Type* type = &declared;
    std::string index;
    for (int depth = 0; type->kind == Type::Kind::kArray; ++depth) {
      std::string i = StrCat("lw_i", depth);
      Put("for (int ", i, " = 0; ", i, " < ", type->count, "; ++", i, ") ");
      index += StrCat("[", i, "]");
      type = &Resolve(*type->element);
    }
    Put(name, index, " = ", ZeroText(*type));
  }
  void DeclareAlias(std::string_view name, const std::string& place) {
    DeclareLocal(name);
    locals_.printed.erase(locals_.all.back().printed);
    locals_.all.back().printed = place;
    locals_.all.back().is_alias = true;
  }

  // ---- functions
  Level PutSelect(const Expr& expr) {
    const Expr &no = *expr.args[0], &yes = *expr.args[1], &condition = *expr.args[2];
    if (condition.type.kind == Type::Kind::kVector) {
      Put("mix(");
      PutArguments(expr);
      Put(")");
      return Level::kPrimary;
    }
    if (!IsPure(no) || !IsPure(yes)) {  // a function, so that both are evaluated
      std::string type = TypeName(expr.type), name = StrCat("lw_select_", type);
      AddHelper(name,
                StrCat(type, " ", name, "(", type, " no, ", type, " yes, bool condition) { return condition ? yes : no; }"));
      Put(name, "(");
      PutArguments(expr);
      Put(")");
      return Level::kPrimary;
    }
    PutOperand(condition, Level::kTernary, false);
    Put(" ? ");
    PutOperand(yes, Level::kTernary, false);
    Put(" : ");
    PutOperand(no, Level::kTernary, true);
    return Level::kTernary;
  }
  std::optional<Level> PutSpecialBuiltin(const Expr& expr) override {
    const std::string& name = expr.name;
    if (name == "select") return PutSelect(expr);
    if ((name == "all" || name == "any") && expr.args[0]->type.kind != Type::Kind::kVector) return Put(*expr.args[0]);
    if (name == "textureLoad" || name == "textureStore") {
      const Type& texture = Resolve(expr.args[0]->type);
      bool store = name == "textureStore";
      const std::string& dim = texture.texture_dim;
      Put(store ? "imageStore(" : "texelFetch(");
      PutTop(*expr.args[0]);
      Put(", ");
      const char* lanes = dim == "3d" ? "ivec3(" : "ivec2(";
      bool convert = expr.args[1]->type.scalar != Scalar::kI32;
      if (dim == "2d_array") Put("ivec3(");
      if (convert) Put(lanes);
      PutTop(*expr.args[1]);
      if (convert) Put(")");
      if (dim == "2d_array") {
        Put(", int(");
        PutTop(*expr.args[2]);
        Put("))");
      }
      Put(", ");
      if (store) {
        PutTop(*expr.args.back());
      } else {
        Put("0");
      }
      Put(")");
      return Level::kPrimary;
    }
    if (name.starts_with("atomic")) return PutAtomic(expr);
    if (name == "workgroupUniformLoad") {
      std::string place = PrintToString(*expr.args[0]), helper = StrCat("lw_uniform_load_", place);
      for (char& c : helper) {
        if (c == '[' || c == ']' || c == '.') c = '_';
      }
      bool is_fixed = helper.find_first_of(" (+-*&") == std::string::npos;
      const Expr* base = expr.args[0].get();
      while (base->kind == ExprKind::kUnary || base->kind == ExprKind::kIndex || base->kind == ExprKind::kMember) {
        if (base->kind == ExprKind::kIndex) is_fixed &= base->args[1]->kind == ExprKind::kLiteral;
        base = base->args[0].get();
      }
      if (!is_fixed) Fail(expr.at, "workgroupUniformLoad takes a variable or a constant element of it in GLSL ES.");
      std::string type = TypeName(expr.type);
      AddHelper(helper, StrCat(type, " ", helper, "() {\n  memoryBarrierShared();\n  barrier();\n  ", type, " value = ", place,
                               ";\n  barrier();\n  return value;\n}"));
      Put(helper, "()");
      return Level::kPrimary;
    }
    if (name.starts_with("subgroup")) {
      const char* extension = name == "subgroupElect"                                        ? "basic"
                              : name == "subgroupAll" || name == "subgroupAny"               ? "vote"
                              : name == "subgroupShuffle" || name == "subgroupShuffleXor"    ? "shuffle"
                              : name == "subgroupShuffleUp" || name == "subgroupShuffleDown" ? "shuffle_relative"
                              : name.starts_with("subgroupB") /* Ballot, Broadcast */        ? "ballot"
                                                                                             : "arithmetic";
      extensions_.insert(StrCat("GL_KHR_shader_subgroup_", extension));
      Put(name, "(");
      PutArguments(expr);
      Put(")");
      return Level::kPrimary;
    }
    return std::nullopt;
  }
  Level PutAtomic(const Expr& expr) {
    Scalar scalar = expr.name == "atomicStore" ? expr.args[1]->type.scalar : expr.type.scalar;
    const char* zero = scalar == Scalar::kI32 ? "0" : "0u";
    std::string_view name = expr.name == "atomicStore"  ? "atomicExchange"
                            : expr.name == "atomicSub"  ? "atomicAdd"
                            : expr.name == "atomicLoad" ? "atomicOr"
                                                        : std::string_view(expr.name);
    Put(name, "(");
    PutTop(*expr.args[0]);
    Put(", ");
    if (expr.name == "atomicLoad") {
      Put(zero);
    } else if (expr.name == "atomicSub") {
      Put(zero, " - ");
      PutOperand(*expr.args[1], Level::kAdd, true);
    } else {
      PutTop(*expr.args[1]);
    }
    Put(")");
    return Level::kPrimary;
  }

  static bool TakesPlace(const Parameter& p) {  // a pointer that cannot be an inout parameter
    return p.type.kind == Type::Kind::kPointer && p.type.name != "function" && p.type.name != "private";
  }
  static bool IsSpecialized(const Function& function) {
    for (const Parameter& p : function.parameters) {
      if (TakesPlace(p)) return true;
    }
    return false;
  }
  // The function with `places` (in order) for its pointers to workgroup memory.
  void PutFunctionFor(const Function& function, const std::string& name, const std::vector<std::string>& places) {
    OpenScope();
    in_entry_ = false;
    std::string list;
    size_t place = 0;
    for (const Parameter& p : function.parameters) {
      if (TakesPlace(p)) {
        DeclareAlias(p.name, places[place++]);
        continue;
      }
      bool is_pointer = p.type.kind == Type::Kind::kPointer;
      std::string_view parameter = DeclareLocal(p.name);
      list += StrCat(list.empty() ? "" : ", ", is_pointer ? "inout " : "",
                     Declarator(is_pointer ? *p.type.element : p.type, parameter));
    }
    Put(TypeName(function.result), " ", name, "(", list, ") {\n");
    PutBody(function);
    Put("}\n\n");
    CloseScope();
  }
  void PutFunction(const Function& function) override {
    if (IsSpecialized(function)) return;
    PutFunctionFor(function, FunctionName(function), {});
    functions_ += out_;
    out_.clear();
  }
  Level PutUserCall(const Expr& expr, const Function& callee) override {
    if (!IsSpecialized(callee)) return CPrinter::PutUserCall(expr, callee);
    std::vector<std::string> places;
    std::string key = callee.name;
    for (size_t i = 0; i < callee.parameters.size(); ++i) {
      if (!TakesPlace(callee.parameters[i])) continue;
      std::string place = PrintToString(*expr.args[i]);
      bool is_variable = false;
      for (const VarDecl& var : module_.vars) is_variable |= var.space == "workgroup" && FindGlobal(var.name)->text == place;
      if (!is_variable) {
        Fail(expr.args[i]->at, StrCat("a pointer into workgroup memory that is passed to ", callee.name,
                                      " must be a whole variable in GLSL ES, found ", place, "."));
        return Level::kPrimary;
      }
      places.push_back(place);
      key += StrCat("|", place);
    }
    auto [it, is_new] = specialized_.try_emplace(key);
    if (is_new) {
      it->second = UniqueName(StrCat(FunctionName(callee), "_", Join(places, "_")));
      std::string name = it->second, outer;
      Locals locals;
      std::swap(out_, outer);
      std::swap(locals_, locals);
      int indent = std::exchange(indent_, 0);
      bool in_entry = in_entry_, in_switch = std::exchange(in_switch_of_loop_, false);
      const std::vector<StmtPtr>* continuing = std::exchange(continuing_, nullptr);
      PutFunctionFor(callee, name, places);
      functions_ += out_;
      out_ = std::move(outer);
      locals_ = std::move(locals);
      indent_ = indent;
      in_entry_ = in_entry;
      in_switch_of_loop_ = in_switch;
      continuing_ = continuing;
    }
    Put(specialized_.at(key), "(");
    bool first = true;
    for (size_t i = 0; i < callee.parameters.size(); ++i) {
      if (TakesPlace(callee.parameters[i])) continue;
      Put(first ? "" : ", ");
      first = false;
      PutTop(*expr.args[i]);
    }
    Put(")");
    return Level::kPrimary;
  }

  // ---- the kernel
  Level PutGlobal(const GlobalName& global) override {
    if (global.kind == GlobalName::Kind::kBuffer) {
      Put(global.text);
      return Level::kPrimary;
    }
    if (global.kind != GlobalName::Kind::kParam) return CPrinter::PutGlobal(global);
    std::string_view name;
    for (const ParamDecl& param : module_.params) {
      if (&param.type == global.type) name = param.name;
    }
    Put(params_name_, ".", MemberName(name));
    return Level::kPrimary;
  }
  void PutEntry(const Function& function) override {
    static const std::unordered_map<std::string_view, std::string_view> kValues = {
        {"workgroup_id", "gl_WorkGroupID"},
        {"local_invocation_id", "gl_LocalInvocationID"},
        {"global_invocation_id", "gl_GlobalInvocationID"},
        {"local_invocation_index", "gl_LocalInvocationIndex"},
        {"num_workgroups", "gl_NumWorkGroups"},
        {"subgroup_size", "gl_SubgroupSize"},
        {"subgroup_invocation_id", "gl_SubgroupInvocationID"}};
    OpenScope();
    in_entry_ = true;
    Put("void main() {\n");
    ++indent_;
    for (const Parameter& p : function.parameters) {
      auto it = kValues.find(p.builtin);
      if (it == kValues.end()) {
        Fail(function.at, StrCat("the builtin value ", p.builtin, " has no counterpart in GLSL ES."));
        return;
      }
      if (it->second.starts_with("gl_Subgroup")) extensions_.insert("GL_KHR_shader_subgroup_basic");
      StartLine();
      Put(Declarator(p.type, DeclareLocal(p.name)), " = ", it->second, ";\n");
    }
    --indent_;
    PutBody(function);
    Put("}\n");
    CloseScope();
    functions_ += out_;
    out_.clear();
  }
  void PutLineNumber(uint32_t line) override { Put("#line ", line, "\n"); }

  void PutTexture(const VarDecl& var, int sampled, int images) {
    const Type& type = var.type;
    const std::string& dim = type.texture_dim;
    std::string kind = dim == "2d" ? "2D" : dim == "2d_array" ? "2DArray" : dim == "3d" ? "3D" : "";
    if (kind.empty()) {
      Fail(var.at, StrCat("a texture of kind ", dim, " has no counterpart in GLSL ES 3.10."));
      return;
    }
    const char* prefix = type.scalar == Scalar::kI32 ? "i" : type.scalar == Scalar::kU32 ? "u" : "";
    const std::string& name = FindGlobal(var.name)->text;
    if (type.texel_format.empty()) {
      Put("layout(binding = ", sampled, ") uniform highp ", prefix, "sampler", kind, " ", name, ";\n");
      return;
    }
    static const std::unordered_map<std::string_view, std::string_view> kFormats = {
        {"rgba32float", "rgba32f"}, {"rgba16float", "rgba16f"}, {"rgba32sint", "rgba32i"}, {"rgba32uint", "rgba32ui"},
        {"rgba16sint", "rgba16i"},  {"rgba16uint", "rgba16ui"}, {"rgba8sint", "rgba8i"},   {"rgba8uint", "rgba8ui"},
        {"rgba8unorm", "rgba8"},    {"r32float", "r32f"},       {"r32sint", "r32i"},       {"r32uint", "r32ui"}};
    auto it = kFormats.find(type.texel_format);
    if (it == kFormats.end()) {
      Fail(var.at, StrCat("the texel format ", type.texel_format, " has no counterpart in GLSL ES 3.10."));
      return;
    }
    Put("layout(binding = ", images, ", ", it->second, ") writeonly uniform highp ", prefix, "image", kind, " ", name, ";\n");
  }
  void PutVariable(std::string_view word, const GlobalName& global) {
    Put(word, Declarator(*global.type, global.text));
    if (global.kind == GlobalName::Kind::kPrivate) {
      Put(" = ");
      global.var->value ? PutTop(*global.var->value) : Put(ZeroText(*global.type));
    }
    Put(";\n");
  }
  std::string Assemble() override {
    out_.clear();
    const uint32_t* size = kernel_.workgroup_size;
    Put("#version 310 es\n");
    for (const std::string& extension : extensions_) Put("#extension ", extension, " : require\n");
    Put("precision highp float;\nprecision highp int;\n\n");
    Put("layout(local_size_x = ", size[0], ", local_size_y = ", size[1], ", local_size_z = ", size[2], ") in;\n\n");
    PutStructs("", false);
    int buffers = 0, sampled = 0, images = 0;
    for (size_t i = 0; i < kernel_.bindings.size(); ++i) {
      for (const VarDecl& var : module_.vars) {
        if (var.binding != int(i) || var.space == "uniform") continue;
        if (var.type.kind == Type::Kind::kTexture) {
          PutTexture(var, sampled, images);
          ++(var.type.texel_format.empty() ? sampled : images);
          continue;
        }
        const std::string& name = FindGlobal(var.name)->text;
        std::string declaration = Declarator(var.type, name);
        if (var.type.kind == Type::Kind::kArray && var.type.count == 0) {
          declaration.replace(declaration.find("[0]"), 3, "[]");
        }
        Put("layout(std430, binding = ", buffers++, ") ", var.access == Access::kRead ? "readonly " : "", "buffer ",
            UniqueName(StrCat(name, "_block")), " { ", declaration, "; };\n");
      }
    }
    if (HasParams()) {
      Put("layout(std140, binding = 0) uniform ", UniqueName("Params"), " {\n", ParamMembers(16), "} ", params_name_, ";\n");
    }
    Put("\n");
    size_t start = out_.size();
    PutConstants();
    for (const GlobalName* global : UsedByAny()) {
      if (global->kind == GlobalName::Kind::kWorkgroup) PutVariable("shared ", *global);
      if (global->kind == GlobalName::Kind::kPrivate) PutVariable("", *global);
    }
    Put(helpers_);
    if (out_.size() > start) Put("\n");
    Put(functions_);
    return std::move(out_);
  }

 private:
  std::set<std::string> extensions_;
  std::map<std::string, std::string> specialized_;  // function and places: its printed name
};

}  // namespace

Result<KernelText> PrintGlslEs(const LoweredKernel& kernel, const Target& target, const PrintOptions& options) {
  return GlslPrinter(kernel, target, options).Print();
}

}  // namespace leeway::shader
