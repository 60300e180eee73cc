// Metal Shading Language 2.4. Buffers are [[buffer(n)]] in the order of their bindings, textures [[texture(n)]] likewise, the
// params a struct in constant memory behind the last buffer. What tests/metal can run on a CPU as well is what is printed:
// members of `constant` structs only, an address space on every pointer, one attribute per argument.
#include <cmath>

#include "shader/print_c.h"

namespace leeway::shader {

namespace {

const Words& MslWords() {
  static const Words words(
      R"(alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const const_cast
      constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
      goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
      reinterpret_cast return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
      true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
      kernel vertex fragment device constant thread threadgroup threadgroup_imageblock ray_data object_data metal main
      half bfloat uchar ushort uint ulong size_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
      char2 char3 char4 uchar2 uchar3 uchar4 short2 short3 short4 ushort2 ushort3 ushort4 int2 int3 int4 uint2 uint3 uint4 long2
      long3 long4 ulong2 ulong3 ulong4 half2 half3 half4 float2 float3 float4 bool2 bool3 bool4 packed_float2 packed_float3
      packed_float4 vec matrix array atomic atomic_int atomic_uint atomic_bool texture1d texture2d texture2d_array texture3d
      texturecube texture_buffer sampler access coord address filter mem_flags memory_order simd_vote as_type INFINITY NAN M_PI_F
      M_PI_H FLT_MAX HALF_MAX INT_MAX UINT_MAX local global read_only write_only read_write pipe
      abs absdiff acos acosh addsat all any asin asinh atan atan2 atanh ceil clamp clz copysign cos cosh cospi cross ctz degrees
      distance distance_squared divide dot exp exp10 exp2 extract_bits fabs faceforward fdim floor fma fmax fmax3 fmin fmin3 fmod
      fract frexp hadd ilogb insert_bits isfinite isinf isnan isnormal ldexp length length_squared log log10 log2 mad24 madhi madsat
      max max3 median3 min min3 mix modf mul24 mulhi nextafter normalize popcount pow powr precise fast radians reflect refract
      reverse_bits rhadd rint rotate round rsqrt saturate select sign signbit sin sincos sinh sinpi smoothstep sqrt step subsat tan
      tanh tanpi trunc simd_sum simd_max simd_min simd_product simd_and simd_or simd_xor simd_all simd_any simd_ballot
      simd_broadcast simd_broadcast_first simd_is_first simd_shuffle simd_shuffle_xor simd_shuffle_up simd_shuffle_down
      simd_prefix_exclusive_sum simd_prefix_inclusive_sum quad_sum threadgroup_barrier simdgroup_barrier dfdx dfdy fwidth
      atomic_load_explicit atomic_store_explicit atomic_exchange_explicit linux unix)",
      "acos acosh asin asinh atan atan2 atanh ceil cos cosh exp exp2 floor fract log log2 pow saturate sin sinh smoothstep "
      "sqrt "
      "step tan tanh trunc ldexp distance normalize cross dot reflect clamp max min sign fma",
      {
          {"abs", 'f', "fabs"},
          {"abs", 'i', "abs"},
          {"abs", 'u', "$0"},
          {"min", '*', "min"},
          {"max", '*', "max"},
          {"clamp", '*', "clamp"},
          {"sign", 'i', "clamp($0, $T(-1), $T(1))"},
          {"round", 'f', "rint"},
          {"inverseSqrt", 'f', "rsqrt"},
          {"degrees", 'f', "(%0 * $S(57.295779513f))"},
          {"radians", 'f', "(%0 * $S(0.017453292519943f))"},
          {"quantizeToF16", 'f', "$T(half$N($0))"},
          {"dot", '*', "fn $S @($A a, $A b) { return [[a$L * b$L| + ]]; }"},
          {"countLeadingZeros", '*', "clz"},
          {"countOneBits", '*', "popcount"},
          {"countTrailingZeros", '*', "ctz"},
          {"reverseBits", '*', "reverse_bits"},
          {"firstTrailingBit", '*', R"(fn $T @($T x) {
  $U bits = $U(x);
  return $T(31u - clz(bits & (0u - bits)));
})"},
          {"firstLeadingBit", 'u', "(31u - clz($0))"},
          {"firstLeadingBit", 'i', "fn $T @($T x) { return $T(31u - clz($U(x ^ (x >> 31)))); }"},
          {"extractBits", '*', R"(fn $T @($T x, uint offset, uint count) {
  uint first = min(offset, 32u);
  return extract_bits(x, first, min(count, 32u - first));
})"},
          {"insertBits", '*', R"(fn $T @($T x, $T bits, uint offset, uint count) {
  uint first = min(offset, 32u);
  return insert_bits(x, bits, first, min(count, 32u - first));
})"},
          {"pack4x8snorm", '*',
           "fn uint @(float4 v) { return as_type<uint>(char4(int4(floor(clamp(v, float4(-1.0f), float4(1.0f)) * 127.0f + "
           "0.5f)))); }"},
          {"pack4x8unorm", '*',
           "fn uint @(float4 v) { return as_type<uint>(uchar4(uint4(floor(clamp(v, float4(0.0f), float4(1.0f)) * 255.0f + "
           "0.5f)))); }"},
          {"pack2x16snorm", '*',
           "fn uint @(float2 v) { return as_type<uint>(short2(int2(floor(clamp(v, float2(-1.0f), float2(1.0f)) * 32767.0f + "
           "0.5f)))); }"},
          {"pack2x16unorm", '*',
           "fn uint @(float2 v) { return as_type<uint>(ushort2(uint2(floor(clamp(v, float2(0.0f), float2(1.0f)) * 65535.0f + "
           "0.5f)))); }"},
          {"unpack4x8snorm", '*', "fn float4 @(uint x) { return max(float4(as_type<char4>(x)) / 127.0f, float4(-1.0f)); }"},
          {"unpack4x8unorm", '*', "fn float4 @(uint x) { return float4(as_type<uchar4>(x)) / 255.0f; }"},
          {"unpack2x16snorm", '*', "fn float2 @(uint x) { return max(float2(as_type<short2>(x)) / 32767.0f, float2(-1.0f)); }"},
          {"unpack2x16unorm", '*', "fn float2 @(uint x) { return float2(as_type<ushort2>(x)) / 65535.0f; }"},
          {"pack4xI8", '*', "as_type<uint>(uchar4(uint4($0) & 0xffu))"},
          {"pack4xU8", '*', "as_type<uint>(uchar4(%0 & 0xffu))"},
          {"pack4xI8Clamp", '*', "as_type<uint>(char4(clamp($0, int4(-128), int4(127))))"},
          {"pack4xU8Clamp", '*', "as_type<uint>(uchar4(min($0, uint4(255u))))"},
          {"unpack4xI8", '*', "int4(as_type<char4>($0))"},
          {"unpack4xU8", '*', "uint4(as_type<uchar4>($0))"},
          {"pack2x16float", '*', "as_type<uint>(half2($0))"},
          {"unpack2x16float", '*', "float2(as_type<half2>($0))"},
          {"dot4I8Packed", '*', R"(fn int @(uint a, uint b) {
  int4 p = int4(as_type<char4>(a)) * int4(as_type<char4>(b));
  return p.x + p.y + p.z + p.w;
})"},
          {"dot4U8Packed", '*', R"(fn uint @(uint a, uint b) {
  uint4 p = uint4(as_type<uchar4>(a)) * uint4(as_type<uchar4>(b));
  return p.x + p.y + p.z + p.w;
})"},
          {"workgroupBarrier", '*', "threadgroup_barrier(mem_flags::mem_threadgroup)"},
          {"storageBarrier", '*', "threadgroup_barrier(mem_flags::mem_device)"},
          {"subgroupAdd", '*', "simd_sum"},
          {"subgroupMul", '*', "simd_product"},
          {"subgroupMax", '*', "simd_max"},
          {"subgroupMin", '*', "simd_min"},
          {"subgroupAnd", '*', "simd_and"},
          {"subgroupOr", '*', "simd_or"},
          {"subgroupXor", '*', "simd_xor"},
          {"subgroupExclusiveAdd", '*', "simd_prefix_exclusive_sum"},
          {"subgroupInclusiveAdd", '*', "simd_prefix_inclusive_sum"},
          {"subgroupExclusiveMul", '*', "simd_prefix_exclusive_product"},
          {"subgroupInclusiveMul", '*', "simd_prefix_inclusive_product"},
          {"subgroupBroadcast", '*', "simd_broadcast($0, ushort($1))"},
          {"subgroupBroadcastFirst", '*', "simd_broadcast_first"},
          {"subgroupShuffle", '*', "simd_shuffle($0, ushort($1))"},
          {"subgroupShuffleXor", '*', "simd_shuffle_xor($0, ushort($1))"},
          {"subgroupShuffleUp", '*', "simd_shuffle_up($0, ushort($1))"},
          {"subgroupShuffleDown", '*', "simd_shuffle_down($0, ushort($1))"},
          {"subgroupAll", '*', "simd_all"},
          {"subgroupAny", '*', "simd_any"},
          {"subgroupElect", '*', "simd_is_first()"},
          {"subgroupBallot", '*', R"(fn uint4 lw_subgroupBallot(bool b) {
  ulong lanes = ulong(simd_ballot(b));
  return uint4(uint(lanes), uint(lanes >> 32), 0u, 0u);
})"},
      });
  return words;
}

class MslPrinter : public CPrinter {
 public:
  MslPrinter(const LoweredKernel& kernel, const Target& target, const PrintOptions& options)
      : CPrinter(kernel, target, options, MslWords()) {
    params_struct_ = StrCat("lw_params");
  }

 protected:
  bool params_need_binding() const override { return true; }
  std::string SpaceWord(std::string_view space) const override {
    return space == "workgroup" ? "threadgroup " : space == "storage" ? "device " : "thread ";
  }
  std::string_view constant_word() const override { return "constant "; }
  std::string_view zero_braces() const override { return "{}"; }

  static std::string ScalarText(Scalar scalar) {
    static const char* const kNames[] = {"bool", "int", "uint", "float", "half", "int", "float"};
    return kNames[int(scalar)];
  }
  std::string TypeName(const Type& declared) override {
    const Type& type = Resolve(declared);
    switch (type.kind) {
      case Type::Kind::kVoid: return "void";
      case Type::Kind::kScalar: return ScalarText(type.scalar);
      case Type::Kind::kVector: return StrCat(ScalarText(type.scalar), int(type.rows));
      case Type::Kind::kStruct: return StructName(type.name);
      case Type::Kind::kAtomic: return StrCat("atomic_", ScalarText(type.scalar));
      case Type::Kind::kPointer: return PointerDeclarator(type.name, *type.element, "");
      case Type::Kind::kTexture: {
        const char* access = type.texel_format.empty() ? "read" : "write";
        const std::string& dim = type.texture_dim;
        std::string name = dim == "buffer" ? "texture_buffer" : StrCat("texture", dim);
        return StrCat(name, "<", ScalarText(type.scalar), ", access::", access, ">");
      }
      case Type::Kind::kArray:
      case Type::Kind::kMatrix: break;
    }
    Fail({}, StrCat("the type ", type.ToString(), " has no counterpart in ", LanguageName(target_.language), "."));
    return {};
  }
  // A vector of three takes 16 bytes here; packed it takes 12, as in the other languages.
  std::string ParamMember(const Type& type, const std::string& name) override {
    return StrCat(Lanes(type) == 3 ? "packed_" : "", TypeName(type), " ", name, ";");
  }

  void PutFloat(float value) override {
    if (std::isnan(value)) {
      Put("NAN");
    } else if (std::isinf(value)) {
      Put(value > 0 ? "INFINITY" : "-INFINITY");
    } else {
      Put(FloatText(value), "f");
    }
  }
  void PutHalf(float value) override {
    if (std::isfinite(value)) {
      Put(FloatText(value), "h");
    } else {
      Put("half(");
      PutFloat(value);
      Put(")");
    }
  }
  void PutInt(int64_t value, Scalar scalar) override {
    if (scalar == Scalar::kI32 && value == INT32_MIN) {
      Put("(-2147483647 - 1)");
    } else {
      Put(value, scalar == Scalar::kU32 ? "u" : "");
    }
  }
  std::string ZeroText(const Type& declared) override {
    const Type& type = Resolve(declared);
    if (type.kind == Type::Kind::kStruct) return "{}";
    const char* zero = type.scalar == Scalar::kF32    ? "0.0f"
                       : type.scalar == Scalar::kF16  ? "0.0h"
                       : type.scalar == Scalar::kU32  ? "0u"
                       : type.scalar == Scalar::kBool ? "false"
                                                      : "0";
    return type.kind == Type::Kind::kVector ? StrCat(TypeName(type), "(", zero, ")") : zero;
  }
  void PutStructValue(const Expr& expr) override {
    Put(TypeName(expr.type));
    PutBraces(expr);
  }
  std::string MemoryScalar(const Type& vector) override { return ScalarText(vector.scalar); }
  Level PutConvert(const Type& to, const Expr& arg) {
    const Type& from = arg.type;
    bool is_vector = from.kind == Type::Kind::kVector;
    char source = ClassOf(from), sink = ClassOf(to);
    std::string name = TypeName(to);
    if (is_vector == (to.kind == Type::Kind::kVector) && from.scalar == to.scalar) return Put(arg);
    if (is_vector && sink == 'b') {
      Put("(");
      PutAt(arg, Level::kShift);
      Put(" != ", ZeroText(from), ")");
      return Level::kPrimary;
    }
    if (is_vector && source == 'b') {
      std::string one = to.scalar == Scalar::kF32   ? "1.0f"
                        : to.scalar == Scalar::kF16 ? "1.0h"
                        : to.scalar == Scalar::kU32 ? "1u"
                                                    : "1";
      Put("select(", ZeroText(to), ", ", name, "(", one, "), ");
      PutTop(arg);
      Put(")");
      return Level::kPrimary;
    }
    if (source == 'f' && (sink == 'i' || sink == 'u') && is_vector == (to.kind == Type::Kind::kVector)) {
      // Out of range the language leaves it open; here the nearest value.
      std::string wide = TypeName(WithScalar(from, Scalar::kF32)), helper = StrCat("lw_to_", name);
      const char* low = sink == 'i' ? "-2147483648.0f" : "0.0f";
      const char* high = sink == 'i' ? "2147483520.0f" : "4294967040.0f";
      AddHelper(helper, StrCat(name, " ", helper, "(", wide, " x) { return ", name, "(clamp(x, ", wide, "(", low, "), ", wide,
                               "(", high, "))); }"));
      bool is_half = from.scalar == Scalar::kF16;
      Put(helper, "(", is_half ? wide + "(" : "");
      PutTop(arg);
      Put(is_half ? "))" : ")");
      return Level::kPrimary;
    }
    Put(name, "(");
    PutTop(arg);
    Put(")");
    return Level::kPrimary;
  }
  Level PutConstruct(const Expr& expr) override {
    const Type& type = Resolve(expr.type);
    if (type.kind == Type::Kind::kStruct) {
      PutStructValue(expr);
      return Level::kPrimary;
    }
    if (type.kind == Type::Kind::kArray) {
      Fail(expr.at, "an array value outside of a declaration or an assignment has no counterpart in MSL.");
      return Level::kPrimary;
    }
    if (expr.args.empty()) {
      Put(ZeroText(type));
      return Level::kPrimary;
    }
    if (expr.args.size() == 1) return PutConvert(type, *expr.args[0]);
    Put(TypeName(type), "(");
    PutArguments(expr);
    Put(")");
    return Level::kPrimary;
  }
  Level PutBitcast(const Expr& expr) override {
    if (expr.type == expr.args[0]->type) return Put(*expr.args[0]);
    Put("as_type<", TypeName(expr.type), ">(");
    PutTop(*expr.args[0]);
    Put(")");
    return Level::kPrimary;
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
  Level PutLane(const Expr& expr) {
    bool is_lane = expr.args[0]->type.kind == Type::Kind::kVector && expr.type.kind == Type::Kind::kScalar;
    if (is_lane && expr.kind == ExprKind::kIndex && PutMemoryLane(expr, true)) return Level::kPrimary;
    bool is_bool = is_lane && expr.type.scalar == Scalar::kBool;
    if (is_bool) Put("bool(");
    expr.kind == ExprKind::kMember ? CPrinter::PutMember(expr) : CPrinter::PutIndex(expr);
    if (is_bool) Put(")");
    return Level::kPrimary;
  }
  Level PutMember(const Expr& expr) override { return PutLane(expr); }
  Level PutIndex(const Expr& expr) override { return PutLane(expr); }
  void PutAssign(const Stmt& stmt) override {
    if (stmt.target && (stmt.target->kind == ExprKind::kMember || stmt.target->kind == ExprKind::kIndex) &&
        stmt.target->args[0]->type.kind == Type::Kind::kVector && stmt.target->type.scalar == Scalar::kBool) {
      stmt.target->kind == ExprKind::kMember ? CPrinter::PutMember(*stmt.target) : CPrinter::PutIndex(*stmt.target);
      Put(" ", stmt.op, " ");
      PutTop(*stmt.value);
      return;
    }
    CPrinter::PutAssign(stmt);
  }

  std::optional<Level> PutSpecialBuiltin(const Expr& expr) override {
    const std::string& name = expr.name;
    if (name == "select") return PutSelect(expr);
    if ((name == "all" || name == "any") && expr.args[0]->type.kind != Type::Kind::kVector) return Put(*expr.args[0]);
    if (name == "all" || name == "any") return PutSpelling(expr, name);
    if (name == "length") return PutSpelling(expr, expr.args[0]->type.kind == Type::Kind::kVector ? "length" : "fabs");
    if (name == "distance" && expr.args[0]->type.kind != Type::Kind::kVector) return PutSpelling(expr, "fabs(%0 - %1)");
    if (name == "mix") {
      Put("mix(");
      for (size_t i = 0; i < 3; ++i) {
        if (i) Put(", ");
        PutSplat(*expr.args[i], expr.type);
      }
      Put(")");
      return Level::kPrimary;
    }
    if (name == "textureLoad" || name == "textureStore") {
      const Type& texture = Resolve(expr.args[0]->type);
      bool store = name == "textureStore", is_array = texture.texture_dim == "2d_array";
      const char* at = texture.texture_dim == "3d" ? "uint3" : texture.texture_dim.starts_with("2d") ? "uint2" : "uint";
      PutTop(*expr.args[0]);
      Put(store ? ".write(" : ".read(");
      if (store) {
        PutTop(*expr.args.back());
        Put(", ");
      }
      bool is_unsigned = expr.args[1]->type.scalar == Scalar::kU32;
      Put(is_unsigned ? "" : at, is_unsigned ? "" : "(");
      PutTop(*expr.args[1]);
      Put(is_unsigned ? "" : ")");
      if (is_array) {
        Put(", ");
        bool convert = expr.args[2]->type.scalar != Scalar::kU32;
        Put(convert ? "uint(" : "");
        PutTop(*expr.args[2]);
        Put(convert ? ")" : "");
      }
      Put(")");
      return Level::kPrimary;
    }
    if (name.starts_with("atomic")) return PutAtomic(expr);
    if (name == "workgroupUniformLoad") {
      const Type& pointee = *expr.args[0]->type.element;
      std::string type = TypeName(expr.type), helper = StrCat("lw_workgroupUniformLoad_", type);
      bool is_atomic = Resolve(pointee).kind == Type::Kind::kAtomic;
      if (is_atomic) helper += "_atomic";
      AddHelper(helper, StrCat(type, " ", helper, "(threadgroup ", is_atomic ? "" : "const ", TypeName(pointee),
                               "* at) {\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n  ", type,
                               " value = ", is_atomic ? "atomic_load_explicit(at, memory_order_relaxed)" : "*at",
                               ";\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n  return value;\n}"));
      Put(helper, "(");
      PutTop(*expr.args[0]);
      Put(")");
      return Level::kPrimary;
    }
    return std::nullopt;
  }
  Level PutSelect(const Expr& expr) {
    const Expr &no = *expr.args[0], &yes = *expr.args[1], &condition = *expr.args[2];
    if (condition.type.kind == Type::Kind::kVector) {
      Put("select(");
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
  Level PutAtomic(const Expr& expr) {
    static const std::unordered_map<std::string_view, std::string_view> kNames = {
        {"atomicAdd", "fetch_add"}, {"atomicSub", "fetch_sub"}, {"atomicMax", "fetch_max"}, {"atomicMin", "fetch_min"},
        {"atomicAnd", "fetch_and"}, {"atomicOr", "fetch_or"},   {"atomicXor", "fetch_xor"}, {"atomicExchange", "exchange"},
        {"atomicStore", "store"},   {"atomicLoad", "load"}};
    auto it = kNames.find(expr.name);
    if (it == kNames.end()) {
      Fail(expr.at, StrCat("the function ", expr.name, " has no counterpart in MSL."));
      return Level::kPrimary;
    }
    Put("atomic_", it->second, "_explicit(");
    PutArguments(expr);
    Put(", memory_order_relaxed)");
    return Level::kPrimary;
  }

  // ---- the kernel
  std::string_view ParamNameOf(const GlobalName& global) const {
    for (const ParamDecl& param : module_.params) {
      if (&param.type == global.type) return param.name;
    }
    return {};
  }
  Level PutGlobal(const GlobalName& global) override {
    if (global.kind != GlobalName::Kind::kParam) return CPrinter::PutGlobal(global);
    std::string member = StrCat(params_name_, ".", MemberName(ParamNameOf(global)));
    if (Lanes(*global.type) == 3) {
      Put(TypeName(*global.type), "(", member, ")");
    } else {
      Put(member);
    }
    return Level::kPrimary;
  }
  std::string BufferDeclaration(const GlobalName& global) {
    return PointerDeclarator("storage", *global.type, global.text, global.var->access == Access::kRead);
  }
  std::string PassedDeclaration(const GlobalName& global) override {
    using Kind = GlobalName::Kind;
    switch (global.kind) {
      case Kind::kBuffer: return BufferDeclaration(global);
      case Kind::kTexture: return StrCat(TypeName(*global.type), " ", global.text);
      case Kind::kWorkgroup: return PointerDeclarator("workgroup", *global.type, global.text);
      case Kind::kPrivate: return PointerDeclarator("private", *global.type, global.text);
      case Kind::kParam: return StrCat("constant ", params_struct_, "& ", params_name_);
      case Kind::kUniform:
      case Kind::kConst: break;
    }
    return {};
  }
  void PutEntry(const Function& function) override {
    static const std::unordered_map<std::string_view, std::string_view> kAttributes = {
        {"workgroup_id", "threadgroup_position_in_grid"},
        {"local_invocation_id", "thread_position_in_threadgroup"},
        {"global_invocation_id", "thread_position_in_grid"},
        {"local_invocation_index", "thread_index_in_threadgroup"},
        {"num_workgroups", "threadgroups_per_grid"},
        {"subgroup_size", "threads_per_simdgroup"},
        {"subgroup_invocation_id", "thread_index_in_simdgroup"}};
    OpenScope();
    in_entry_ = true;
    Put("kernel void ", entry_name_, "(");
    bool first = true;
    auto next = [&] {
      if (!first) Put(",\n    ");
      first = false;
    };
    int buffers = 0, textures = 0;
    for (size_t i = 0; i < kernel_.bindings.size(); ++i) {
      for (const VarDecl& var : module_.vars) {
        if (var.binding != int(i) || var.space == "uniform") continue;
        next();
        const GlobalName& global = *FindGlobal(var.name);
        if (global.kind == GlobalName::Kind::kTexture) {
          Put(TypeName(*global.type), " ", global.text, " [[texture(", textures++, ")]]");
        } else {
          Put(BufferDeclaration(global), " [[buffer(", buffers++, ")]]");
        }
      }
    }
    if (HasParams()) {
      next();
      Put("constant ", params_struct_, "& ", params_name_, " [[buffer(", buffers, ")]]");
    }
    for (const Parameter& p : function.parameters) {
      auto it = kAttributes.find(p.builtin);
      if (it == kAttributes.end()) {
        Fail(function.at, StrCat("the builtin value ", p.builtin, " has no counterpart in MSL."));
        return;
      }
      next();
      Put(Declarator(p.type, DeclareLocal(p.name)), " [[", it->second, "]]");
    }
    Put(") {\n");
    ++indent_;
    PutVariables();
    --indent_;
    PutBody(function);
    Put("}\n");
    CloseScope();
  }
  void PutUnrollHint(int unroll) override {
    if (unroll < 0) {
      Put("#pragma unroll\n");
    } else {
      Put("#pragma unroll ", unroll, "\n");
    }
  }
  void PutLineNumber(uint32_t line) override { Put("#line ", line, " \"", module_.name, ".kernel\"\n"); }

  std::string Assemble() override {
    std::string functions = std::move(out_);
    out_.clear();
    Put("#include <metal_stdlib>\nusing namespace metal;\n\n");
    PutStructs("", false);
    if (HasParams()) Put("struct ", params_struct_, " {\n", ParamMembers(4), "};\n\n");
    size_t start = out_.size();
    PutConstants();
    Put(helpers_);
    if (out_.size() > start) Put("\n");
    Put(functions);
    return std::move(out_);
  }

 private:
  std::string params_struct_;
};

}  // namespace

Result<KernelText> PrintMsl(const LoweredKernel& kernel, const Target& target, const PrintOptions& options) {
  return MslPrinter(kernel, target, options).Print();
}

}  // namespace leeway::shader
