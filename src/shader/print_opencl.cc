// OpenCL C 1.2, and what later versions add where a kernel asks for it (subgroups). Resources are arguments in the order of
// their bindings, then the params by value. A vector of bools is a vector of int, -1 where true, as comparisons give it.
#include <cmath>
#include <cstdio>

#include "base/hash.h"
#include "shader/print_c.h"

namespace leeway::shader {

namespace {

const Words& OpenClWords() {
  static const Words words(
      // Keywords, types, and functions of the library: a name must not hide what a printed expression may call.
      R"(auto break case char const continue default do double else enum extern float for goto if inline int long register restrict
      return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool bool half quad complex
      imaginary uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t char2 char3 char4 char8 char16 uchar2 uchar3 uchar4
      uchar8 uchar16 short2 short3 short4 ushort2 ushort3 ushort4 int2 int3 int4 int8 int16 uint2 uint3 uint4 uint8 uint16 long2
      long3 long4 ulong2 ulong3 ulong4 float2 float3 float4 float8 float16 half2 half3 half4 half8 half16 double2 double3 double4
      bool2 bool3 bool4 image1d_t image1d_buffer_t image1d_array_t image2d_t image2d_array_t image3d_t image2d_depth_t sampler_t
      event_t queue_t ndrange_t clk_event_t reserve_id_t cl_mem_fence_flags memory_order memory_scope atomic_int atomic_uint
      atomic_float atomic_flag kernel global local constant private generic read_only write_only read_write pipe uniform
      __kernel __global __local __constant __private __attribute__ asm typeof
      true false NULL INFINITY NAN HUGE_VALF FLT_MAX FLT_MIN FLT_EPSILON INT_MAX INT_MIN UINT_MAX M_PI M_PI_F M_E_F main
      get_global_id get_local_id get_group_id get_num_groups get_local_size get_global_size get_work_dim get_global_offset
      get_local_linear_id get_global_linear_id get_sub_group_size get_max_sub_group_size get_sub_group_id get_sub_group_local_id
      get_num_sub_groups barrier mem_fence read_mem_fence write_mem_fence work_group_barrier sub_group_barrier
      acos acosh acospi asin asinh asinpi atan atan2 atanh atanpi atan2pi cbrt ceil copysign cos cosh cospi erfc erf exp exp2
      exp10 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hypot ilogb ldexp lgamma lgamma_r log log2 log10 log1p logb mad
      maxmag minmag modf nan nextafter pow pown powr remainder remquo rint rootn round rsqrt sin sincos sinh sinpi sqrt tan tanh
      tanpi tgamma trunc half_exp native_exp abs abs_diff add_sat hadd rhadd clamp clz ctz mad_hi mad_sat max min mul_hi rotate
      sub_sat upsample popcount mad24 mul24 degrees mix radians step smoothstep sign cross dot distance length normalize
      fast_distance fast_length fast_normalize isequal isnotequal isgreater isless isfinite isinf isnan isnormal isordered
      signbit any all bitselect select vload2 vload4 vstore2 vstore4 vload_half vstore_half prefetch shuffle shuffle2 printf
      atomic_add atomic_sub atomic_xchg atomic_inc atomic_dec atomic_cmpxchg atomic_min atomic_max atomic_and atomic_or atomic_xor
      atomic_init atomic_load atomic_store atomic_exchange atomic_fetch_add read_imagef read_imagei read_imageui write_imagef
      write_imagei write_imageui get_image_width get_image_height get_image_depth wait_group_events async_work_group_copy
      as_float as_int as_uint as_half linux unix i386)",
      "acos acosh asin asinh atan atan2 atanh ceil cos cosh degrees exp exp2 floor log log2 pow radians sin sinh smoothstep "
      "sqrt "
      "step tan tanh trunc ldexp length distance normalize cross dot clamp max min sign",
      {
          {"abs", 'f', "fabs"},
          {"abs", 'i', "as_$T(abs($0))"},
          {"abs", 'u', "$0"},
          {"min", '*', "min"},
          {"max", '*', "max"},
          {"clamp", '*', "clamp"},
          {"sign", 'i', "clamp($0, ($T)(-1), ($T)(1))"},
          {"round", 'f', "rint"},
          {"fract", 'f', "fn $T @($T x) { return x - floor(x); }"},
          {"inverseSqrt", 'f', "rsqrt"},
          {"saturate", 'f', "clamp($0, ($T)(0.0f), ($T)(1.0f))"},
          {"fma", 'f', "mad"},
          {"mix", 'f', "mix"},
          {"quantizeToF16", 'f', R"(fn $T @($T x) {
  ushort bits[4];
  vstore_half$N(x, 0, (half*)bits);
  return vload_half$N(0, (const half*)bits);
})"},
          {"dot", '*', "fn $S @($A a, $A b) { return [[a$L * b$L| + ]]; }"},
          {"reflect", 'f', "fn $T @($T i, $T n) { return i - n * (($S)2.0f * dot(n, i)); }"},
          {"countLeadingZeros", '*', "clz"},
          {"countOneBits", '*', "popcount"},
          {"countTrailingZeros", '*', R"(fn $T @($T x) {
  $U bits = as_$U(x);
  return as_$T(popcount(~bits & (bits - 1u)));
})"},
          {"firstTrailingBit", '*', R"(fn $T @($T x) {
  $U bits = as_$U(x);
  return as_$T(31u - clz(bits & (0u - bits)));
})"},
          {"firstLeadingBit", 'u', "(31u - clz($0))"},
          {"firstLeadingBit", 'i', "fn $T @($T x) { return as_$T(31u - clz(as_$U(x ^ (x >> 31)))); }"},
          {"reverseBits", '*', R"(fn $T @($T x) {
  $U v = as_$U(x);
  v = ((v >> 1) & 0x55555555u) | ((v & 0x55555555u) << 1);
  v = ((v >> 2) & 0x33333333u) | ((v & 0x33333333u) << 2);
  v = ((v >> 4) & 0x0f0f0f0fu) | ((v & 0x0f0f0f0fu) << 4);
  v = ((v >> 8) & 0x00ff00ffu) | ((v & 0x00ff00ffu) << 8);
  return as_$T((v >> 16) | (v << 16));
})"},
          {"extractBits", '*', R"(fn $T @($T x, uint offset, uint count) {
  uint first = min(offset, 32u), bits = min(count, 32u - first);
  return bits == 0u ? ($T)(0) : as_$T(as_$U(x) << (32u - first - bits)) >> (32u - bits);
})"},
          {"insertBits", '*', R"(fn $T @($T x, $T bits_in, uint offset, uint count) {
  uint first = min(offset, 32u), bits = min(count, 32u - first);
  if (bits == 0u) return x;
  uint mask = (bits < 32u ? (1u << bits) - 1u : 0xffffffffu) << first;
  return as_$T((as_$U(x) & ~mask) | ((as_$U(bits_in) << first) & mask));
})"},
          {"pack4x8snorm", '*',
           "fn uint @(float4 v) { return as_uint(convert_char4(floor(clamp(v, -1.0f, 1.0f) * 127.0f + 0.5f))); }"},
          {"pack4x8unorm", '*',
           "fn uint @(float4 v) { return as_uint(convert_uchar4(floor(clamp(v, 0.0f, 1.0f) * 255.0f + 0.5f))); }"},
          {"pack2x16snorm", '*',
           "fn uint @(float2 v) { return as_uint(convert_short2(floor(clamp(v, -1.0f, 1.0f) * 32767.0f + 0.5f))); }"},
          {"pack2x16unorm", '*',
           "fn uint @(float2 v) { return as_uint(convert_ushort2(floor(clamp(v, 0.0f, 1.0f) * 65535.0f + 0.5f))); }"},
          {"unpack4x8snorm", '*', "fn float4 @(uint x) { return max(convert_float4(as_char4(x)) / 127.0f, -1.0f); }"},
          {"unpack4x8unorm", '*', "fn float4 @(uint x) { return convert_float4(as_uchar4(x)) / 255.0f; }"},
          {"unpack2x16snorm", '*', "fn float2 @(uint x) { return max(convert_float2(as_short2(x)) / 32767.0f, -1.0f); }"},
          {"unpack2x16unorm", '*', "fn float2 @(uint x) { return convert_float2(as_ushort2(x)) / 65535.0f; }"},
          // Bytes 0, 4, 8 and 12: the low byte of each lane, whatever is above it.
          {"pack4xI8", '*', "as_uint(as_uchar16($0).s048c)"},
          {"pack4xU8", '*', "as_uint(as_uchar16($0).s048c)"},
          {"pack4xI8Clamp", '*', "as_uint(convert_char4_sat($0))"},
          {"pack4xU8Clamp", '*', "as_uint(convert_uchar4_sat($0))"},
          {"unpack4xI8", '*', "convert_int4(as_char4($0))"},
          {"unpack4xU8", '*', "convert_uint4(as_uchar4($0))"},
          {"dot4I8Packed", '*', R"(fn int @(uint a, uint b) {
  int4 p = convert_int4(as_char4(a)) * convert_int4(as_char4(b));
  return p.x + p.y + p.z + p.w;
})"},
          {"dot4U8Packed", '*', R"(fn uint @(uint a, uint b) {
  uint4 p = convert_uint4(as_uchar4(a)) * convert_uint4(as_uchar4(b));
  return p.x + p.y + p.z + p.w;
})"},
          {"workgroupBarrier", '*', "barrier(CLK_LOCAL_MEM_FENCE)"},
          {"storageBarrier", '*', "barrier(CLK_GLOBAL_MEM_FENCE)"},
          {"subgroupBroadcastFirst", '*', "sub_group_broadcast($0, 0u)"},
          {"subgroupAll", '*', "(sub_group_all($0) != 0)"},
          {"subgroupAny", '*', "(sub_group_any($0) != 0)"},
          {"subgroupElect", '*', "(get_sub_group_local_id() == 0u)"},
          {"subgroupBallot", '*', "sub_group_ballot($0)"},
      });
  return words;
}

// Subgroup functions that take scalars only, and the extension that has them.
struct SubgroupName {
  std::string_view name, text, extension;
};
constexpr std::string_view kArithmetic = "cl_khr_subgroup_non_uniform_arithmetic", kShuffle = "cl_khr_subgroup_shuffle",
                           kRelative = "cl_khr_subgroup_shuffle_relative", kBasic = "cl_khr_subgroups";
constexpr SubgroupName kSubgroups[] = {
    {"subgroupAdd", "sub_group_reduce_add", kBasic},
    {"subgroupMax", "sub_group_reduce_max", kBasic},
    {"subgroupMin", "sub_group_reduce_min", kBasic},
    {"subgroupExclusiveAdd", "sub_group_scan_exclusive_add", kBasic},
    {"subgroupInclusiveAdd", "sub_group_scan_inclusive_add", kBasic},
    {"subgroupBroadcast", "sub_group_broadcast", kBasic},
    {"subgroupMul", "sub_group_non_uniform_reduce_mul", kArithmetic},
    {"subgroupAnd", "sub_group_non_uniform_reduce_and", kArithmetic},
    {"subgroupOr", "sub_group_non_uniform_reduce_or", kArithmetic},
    {"subgroupXor", "sub_group_non_uniform_reduce_xor", kArithmetic},
    {"subgroupExclusiveMul", "sub_group_non_uniform_scan_exclusive_mul", kArithmetic},
    {"subgroupInclusiveMul", "sub_group_non_uniform_scan_inclusive_mul", kArithmetic},
    {"subgroupShuffle", "sub_group_shuffle", kShuffle},
    {"subgroupShuffleXor", "sub_group_shuffle_xor", kShuffle},
    {"subgroupShuffleUp", "sub_group_shuffle_up", kRelative},
    {"subgroupShuffleDown", "sub_group_shuffle_down", kRelative},
};

bool IsBoolVector(const Type& type) { return type.kind == Type::Kind::kVector && type.scalar == Scalar::kBool; }
bool IsBool(const Type& type) { return type.kind == Type::Kind::kScalar && type.scalar == Scalar::kBool; }
bool IsHalfVector(const Type& type) { return type.kind == Type::Kind::kVector && type.scalar == Scalar::kF16; }

class OpenClPrinter : public CPrinter {
 public:
  OpenClPrinter(const LoweredKernel& kernel, const Target& target, const PrintOptions& options, std::string suffix)
      : CPrinter(kernel, target, options, OpenClWords()) {
    file_scope_suffix_ = std::move(suffix);
  }

 protected:
  bool params_need_binding() const override { return false; }
  std::string SpaceWord(std::string_view space) const override {
    return space == "workgroup" ? "__local " : space == "storage" ? "__global " : "";
  }
  std::string_view constant_word() const override { return "__constant "; }
  std::string_view zero_braces() const override { return "{0}"; }

  static std::string ScalarText(Scalar scalar) {
    static const char* const kNames[] = {"bool", "int", "uint", "float", "half", "int", "float"};
    return kNames[int(scalar)];
  }
  std::string TypeName(const Type& declared) override {
    const Type& type = Resolve(declared);
    switch (type.kind) {
      case Type::Kind::kVoid: return "void";
      case Type::Kind::kScalar: return ScalarText(type.scalar);
      case Type::Kind::kVector: return StrCat(type.scalar == Scalar::kBool ? "int" : ScalarText(type.scalar), int(type.rows));
      case Type::Kind::kStruct: return StructName(type.name);
      case Type::Kind::kAtomic: return ScalarText(type.scalar);
      case Type::Kind::kPointer: return PointerDeclarator(type.name, *type.element, "");
      case Type::Kind::kTexture:
        if (type.texture_dim == "buffer") return "image1d_buffer_t";
        return StrCat("image", type.texture_dim, "_t");
      case Type::Kind::kArray:
      case Type::Kind::kMatrix: break;
    }
    Fail({}, StrCat("the type ", type.ToString(), " has no counterpart in ", LanguageName(target_.language), "."));
    return {};
  }

  // ---- values
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
      Put("((half)");
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
    if (type.kind == Type::Kind::kStruct) return "{0}";
    const char* zero = type.scalar == Scalar::kF32                                        ? "0.0f"
                       : type.scalar == Scalar::kF16                                      ? "0.0h"
                       : type.scalar == Scalar::kU32                                      ? "0u"
                       : type.scalar == Scalar::kBool && type.kind == Type::Kind::kScalar ? "false"
                                                                                          : "0";
    return type.kind == Type::Kind::kVector ? StrCat("(", TypeName(type), ")(", zero, ")") : zero;
  }
  void PutStructValue(const Expr& expr) override {
    Put("(", TypeName(expr.type), ")");
    PutBraces(expr);
  }
  std::string MemoryScalar(const Type& vector) override {
    return ScalarText(vector.scalar == Scalar::kBool ? Scalar::kI32 : vector.scalar);
  }

  // A bool as a lane of a vector of bools.
  void PutBoolLane(const Expr& expr) {
    if (expr.kind == ExprKind::kLiteral) {
      Put(expr.literal.i ? "-1" : "0");
      return;
    }
    Put("-(int)");
    PutAt(expr, Level::kPrimary);
  }
  Level PutConvert(const Type& to, const Expr& arg) {
    const Type& from = arg.type;
    std::string name = TypeName(to);
    char source = ClassOf(from), sink = ClassOf(to);
    bool is_vector = to.kind == Type::Kind::kVector;
    if (is_vector && from.kind != Type::Kind::kVector) {  // the same in all lanes
      Put("(", name, ")(");
      if (sink == 'b') {
        PutBoolLane(arg);
      } else {
        PutTop(arg);
      }
      Put(")");
      return Level::kUnary;
    }
    if (from.scalar == to.scalar) return Put(arg);
    if (sink == 'b') {
      if (is_vector && from.scalar == Scalar::kF16) Put("convert_", name);
      Put("(");
      PutAt(arg, Level::kShift);
      Put(" != ", ZeroText(from), ")");
      return Level::kPrimary;
    }
    if (source == 'b') {
      if (is_vector) {
        Put("convert_", name, "(-");
        PutAt(arg, Level::kPrimary);
        Put(")");
        return Level::kPrimary;
      }
      Put("(", name, ")");
      PutAt(arg, Level::kPrimary);
      return Level::kUnary;
    }
    bool reinterpret = is_vector && source != 'f' && sink != 'f';
    bool saturate = source == 'f' && sink != 'f';
    if (is_vector || saturate) {
      Put(reinterpret ? "as_" : "convert_", name, saturate ? "_sat(" : "(");
      PutTop(arg);
      Put(")");
      return Level::kPrimary;
    }
    Put("(", name, ")");
    PutAt(arg, Level::kPrimary);
    return Level::kUnary;
  }
  Level PutConstruct(const Expr& expr) override {
    const Type& type = Resolve(expr.type);
    if (type.kind == Type::Kind::kStruct) {
      PutStructValue(expr);
      return Level::kPrimary;
    }
    if (type.kind == Type::Kind::kArray) {
      Put("(", TypeName(*type.element), "[", type.count, "])");
      PutBraces(expr);
      return Level::kPrimary;
    }
    if (expr.args.empty()) {
      Put(ZeroText(type));
      return type.kind == Type::Kind::kVector ? Level::kUnary : Level::kPrimary;
    }
    if (expr.args.size() == 1) return PutConvert(type, *expr.args[0]);
    Put("(", TypeName(type), ")(");
    for (size_t i = 0; i < expr.args.size(); ++i) {
      if (i) Put(", ");
      if (IsBool(expr.args[i]->type)) {
        PutBoolLane(*expr.args[i]);
      } else {
        PutTop(*expr.args[i]);
      }
    }
    Put(")");
    return Level::kUnary;
  }
  Level PutBitcast(const Expr& expr) override {
    if (expr.type == expr.args[0]->type) return Put(*expr.args[0]);
    Put("as_", TypeName(expr.type), "(");
    PutTop(*expr.args[0]);
    Put(")");
    return Level::kPrimary;
  }

  // ---- operators
  Level PutUnary(const Expr& expr) override {
    if (expr.op == "!" && IsBoolVector(expr.type)) {
      Put("~");
      PutOperand(*expr.args[0], Level::kUnary, true);
      return Level::kUnary;
    }
    return CPrinter::PutUnary(expr);
  }
  Level PutBinary(const Expr& expr) override {
    if (LevelOf(expr.op) == Level::kRelational && IsHalfVector(expr.args[0]->type)) {  // gives short
      Put("convert_", TypeName(expr.type), "(");
      CPrinter::PutBinary(expr);
      Put(")");
      return Level::kPrimary;
    }
    return CPrinter::PutBinary(expr);
  }
  // The language takes the amount modulo 32 itself.
  void PutShiftAmount(const Expr& amount) override { PutOperand(amount, Level::kShift, true); }

  Level PutMember(const Expr& expr) override {
    if (IsBool(expr.type) && expr.args[0]->type.kind == Type::Kind::kVector) {
      Put("(");
      CPrinter::PutMember(expr);
      Put(" != 0)");
      return Level::kPrimary;
    }
    return CPrinter::PutMember(expr);
  }
  // Lane `index` of a vector as a place: OpenCL C has no subscripts of vectors.
  void PutLanePlace(const Expr& expr) {
    if (PutMemoryLane(expr, false)) return;
    bool is_const = false;
    std::string_view space = SpaceOfPlace(*expr.args[0], &is_const);
    Put("((", space.empty() ? "" : SpaceWord(space), MemoryScalar(expr.args[0]->type), "*)&");
    PutAt(*expr.args[0], Level::kPrimary);
    Put(")[");
    PutTop(*expr.args[1]);
    Put("]");
  }
  // An address in 64 bits: LLVM must take sums of 32 bits to wrap around, and then sees neither that numbers lie side by side
  // nor what stays the same from one turn of a loop to the next.
  void PutWideIndex(const Expr& expr) {
    if (expr.kind == ExprKind::kBinary && (expr.op == "+" || expr.op == "*") && expr.type.IsScalar(Scalar::kU32)) {
      Put("(");
      PutWideIndex(*expr.args[0]);
      Put(" ", expr.op, " ");
      PutWideIndex(*expr.args[1]);
      Put(")");
    } else {
      Put("(ulong)");
      PutOperand(expr, Level::kUnary, true);
    }
  }
  Level PutIndex(const Expr& expr) override {
    const Type& base = expr.args[0]->type;
    bool is_const = false;
    if (base.kind != Type::Kind::kVector && target_.is_software && SpaceOfPlace(*expr.args[0], &is_const) == "storage" &&
        expr.args[1]->kind == ExprKind::kBinary && expr.args[1]->type.IsScalar(Scalar::kU32)) {
      PutAt(*expr.args[0], Level::kPrimary);
      Put("[");
      PutWideIndex(*expr.args[1]);
      Put("]");
      return Level::kPrimary;
    }
    if (base.kind != Type::Kind::kVector) return CPrinter::PutIndex(expr);
    if (PutMemoryLane(expr, false)) return Level::kPrimary;
    bool is_bool = base.scalar == Scalar::kBool;
    if (is_bool) Put("(");
    if (expr.args[1]->kind == ExprKind::kLiteral) {
      PutAt(*expr.args[0], Level::kPrimary);
      Put(".", std::string_view("xyzw").substr(size_t(expr.args[1]->literal.i) & 3, 1));
    } else {
      std::string type = TypeName(base), name = StrCat("lw_lane_", type);
      std::string text =
          StrCat(ScalarText(is_bool ? Scalar::kI32 : base.scalar), " ", name, "(", type, " v, uint lane) { return ");
      for (int lane = 0; lane + 1 < int(base.rows); ++lane) text += StrCat("lane == ", lane, "u ? v.", "xyzw"[lane], " : ");
      AddHelper(name, StrCat(text, "v.", "xyzw"[base.rows - 1], "; }"));
      Put(name, "(");
      PutTop(*expr.args[0]);
      Put(", ");
      PutTop(*expr.args[1]);
      Put(")");
    }
    if (is_bool) Put(" != 0)");
    return Level::kPrimary;
  }
  void PutAssign(const Stmt& stmt) override {
    if (stmt.target && (stmt.target->kind == ExprKind::kIndex || stmt.target->kind == ExprKind::kMember)) {
      const Expr& target = *stmt.target;
      const Type& base = target.args[0]->type;
      if (base.kind == Type::Kind::kVector) {
        bool dynamic = target.kind == ExprKind::kIndex && target.args[1]->kind != ExprKind::kLiteral;
        if (dynamic || base.scalar == Scalar::kBool) {
          if (dynamic) {
            PutLanePlace(target);
          } else if (target.kind == ExprKind::kIndex) {
            PutAt(*target.args[0], Level::kPrimary);
            Put(".", std::string_view("xyzw").substr(size_t(target.args[1]->literal.i) & 3, 1));
          } else {
            CPrinter::PutMember(target);
          }
          if (stmt.op == "%=") Fail(stmt.at, "%= of a lane that is chosen at run time has no counterpart in OpenCL C.");
          Put(" ", stmt.op, " ");
          if (base.scalar == Scalar::kBool) {
            PutBoolLane(*stmt.value);
          } else {
            PutTop(*stmt.value);
          }
          return;
        }
      }
    }
    CPrinter::PutAssign(stmt);
  }

  // ---- functions
  void PutMask(const Expr& condition, const Type& value) {
    if (value.scalar == Scalar::kF16) {
      Put("convert_short", Lanes(value), "(");
      PutTop(condition);
      Put(")");
    } else {
      PutTop(condition);
    }
  }
  Level PutSelect(const Expr& expr) {
    const Expr &no = *expr.args[0], &yes = *expr.args[1], &condition = *expr.args[2];
    if (condition.type.kind == Type::Kind::kVector) {
      Put("select(");
      PutTop(no);
      Put(", ");
      PutTop(yes);
      Put(", ");
      PutMask(condition, expr.type);
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
  std::string Coordinates(const Expr& expr, const Type& texture) {
    const Expr& at = *expr.args[1];
    std::string text = PrintToString(at);
    bool is_unsigned = at.type.scalar == Scalar::kU32;
    if (texture.texture_dim == "buffer" || texture.texture_dim == "1d") return is_unsigned ? StrCat("(int)(", text, ")") : text;
    if (is_unsigned) text = StrCat("as_int", Lanes(at.type), "(", text, ")");
    if (texture.texture_dim == "2d_array") return StrCat("(int4)(", text, ", (int)(", PrintToString(*expr.args[2]), "), 0)");
    if (texture.texture_dim == "3d") return StrCat("(int4)(", text, ", 0)");
    return text;
  }
  static const char* ImageSuffix(const Type& texture) {
    return texture.scalar == Scalar::kI32 ? "i" : texture.scalar == Scalar::kU32 ? "ui" : "f";
  }
  std::optional<Level> PutSpecialBuiltin(const Expr& expr) override {
    const std::string& name = expr.name;
    if (name == "select") return PutSelect(expr);
    if (name == "all" || name == "any") {
      if (expr.args[0]->type.kind != Type::Kind::kVector) return Put(*expr.args[0]);
      Put("(", name, "(");
      PutTop(*expr.args[0]);
      Put(") != 0)");
      return Level::kPrimary;
    }
    if (name == "mix" || name == "ldexp") {
      Put(name, "(");
      for (size_t i = 0; i < expr.args.size(); ++i) {
        if (i) Put(", ");
        if (name == "mix") {
          PutSplat(*expr.args[i], expr.type);
        } else {
          PutTop(*expr.args[i]);
        }
      }
      Put(")");
      return Level::kPrimary;
    }
    if (name == "textureLoad") {
      const Type& texture = Resolve(expr.args[0]->type);
      bool is_buffer = texture.texture_dim == "buffer";
      std::string at = Coordinates(expr, texture);
      Put("read_image", ImageSuffix(texture), "(");
      PutTop(*expr.args[0]);
      Put(is_buffer ? ", " : ", lw_texels, ", at, ")");
      uses_sampler_ |= !is_buffer;
      return Level::kPrimary;
    }
    if (name == "textureStore") {
      const Type& texture = Resolve(expr.args[0]->type);
      if (texture.texture_dim == "3d") extensions_.insert("cl_khr_3d_image_writes");
      std::string at = Coordinates(expr, texture);
      Put("write_image", ImageSuffix(texture), "(");
      PutTop(*expr.args[0]);
      Put(", ", at, ", ");
      PutTop(*expr.args.back());
      Put(")");
      return Level::kPrimary;
    }
    if (name.starts_with("atomic")) return PutAtomic(expr);
    if (name == "workgroupUniformLoad") {
      std::string type = TypeName(expr.type), helper = StrCat("lw_workgroupUniformLoad_", type);
      AddHelper(helper, StrCat(type, " ", helper, "(__local const ", type, "* at) {\n  barrier(CLK_LOCAL_MEM_FENCE);\n  ", type,
                               " value = *at;\n  barrier(CLK_LOCAL_MEM_FENCE);\n  return value;\n}"));
      Put(helper, "(");
      PutTop(*expr.args[0]);
      Put(")");
      return Level::kPrimary;
    }
    // With the extension where the device says it has it; 4-lane arithmetic elsewhere.
    if (target_.packed_dot && (name == "dot4I8Packed" || name == "dot4U8Packed")) {
      extensions_.insert("cl_khr_integer_dot_product");
      Put(name == "dot4I8Packed" ? "dot_4x8packed_ss_int(" : "dot_4x8packed_uu_uint(");
      PutArguments(expr);
      Put(")");
      return Level::kPrimary;
    }
    if (name == "pack2x16float" || name == "unpack2x16float") {
      bool pack = name == "pack2x16float";
      // vload_half and vstore_half need no half arithmetic, so they are there without cl_khr_fp16.
      const char* body =
          pack ? (target_.f16 ? "(float2 v) { return as_uint(convert_half2(v)); }"
                              : "(float2 v) {\n  uint bits;\n  vstore_half2(v, 0, (half*)&bits);\n  return bits;\n}")
               : (target_.f16 ? "(uint x) { return convert_float2(as_half2(x)); }"
                              : "(uint x) { return vload_half2(0, (const half*)&x); }");
      std::string helper = StrCat("lw_", name);
      AddHelper(helper, StrCat(pack ? "uint " : "float2 ", helper, body));
      if (target_.f16) extensions_.insert("cl_khr_fp16");
      Put(helper, "(");
      PutTop(*expr.args[0]);
      Put(")");
      return Level::kPrimary;
    }
    if (name.starts_with("subgroup")) {
      extensions_.insert(std::string(kBasic));
      if (name == "subgroupBallot") extensions_.insert("cl_khr_subgroup_ballot");
      for (const SubgroupName& row : kSubgroups) {
        if (row.name == name) return PutSubgroup(expr, row);
      }
      if (name == "subgroupBroadcastFirst") return PutSubgroup(expr, {name, "", kBasic});
    }
    return std::nullopt;
  }
  Level PutSubgroup(const Expr& expr, const SubgroupName& row) {
    extensions_.insert(std::string(row.extension));
    const Type& type = expr.args[0]->type;
    bool has_lane = expr.args.size() > 1;
    auto call = [&](std::string_view value) {
      if (row.text.empty()) return StrCat("sub_group_broadcast(", value, ", 0u)");
      return StrCat(row.text, "(", value, has_lane ? ", lane" : "", ")");
    };
    if (type.kind != Type::Kind::kVector && !row.text.empty()) {
      Put(row.text, "(");
      PutArguments(expr);
      Put(")");
      return Level::kPrimary;
    }
    std::string name = TypeName(type), helper = StrCat("lw_", row.name, "_", name);
    std::string text = StrCat(name, " ", helper, "(", name, " v", has_lane ? ", uint lane" : "", ") { return ");
    if (type.kind == Type::Kind::kVector) {
      text += StrCat("(", name, ")(");
      for (int lane = 0; lane < int(type.rows); ++lane) text += StrCat(lane ? ", " : "", call(StrCat("v.", "xyzw"[lane])));
      text += ")";
    } else {
      text += call("v");
    }
    AddHelper(helper, text + "; }");
    Put(helper, "(");
    PutArguments(expr);
    Put(")");
    return Level::kPrimary;
  }
  Level PutAtomic(const Expr& expr) {
    static const std::unordered_map<std::string_view, std::string_view> kNames = {
        {"atomicAdd", "atomic_add"}, {"atomicSub", "atomic_sub"},       {"atomicMax", "atomic_max"},
        {"atomicMin", "atomic_min"}, {"atomicAnd", "atomic_and"},       {"atomicOr", "atomic_or"},
        {"atomicXor", "atomic_xor"}, {"atomicExchange", "atomic_xchg"}, {"atomicStore", "atomic_xchg"},
        {"atomicLoad", "atomic_or"}};
    auto it = kNames.find(expr.name);
    if (it == kNames.end()) {
      Fail(expr.at, StrCat("the function ", expr.name, " has no counterpart in OpenCL C."));
      return Level::kPrimary;
    }
    if (expr.name == "atomicStore") Put("(void)");
    Put(it->second, "(");
    PutArguments(expr);
    if (expr.name == "atomicLoad") Put(expr.type.scalar == Scalar::kI32 ? ", 0" : ", 0u");
    Put(")");
    return Level::kPrimary;
  }

  // ---- the kernel
  std::string TextureDeclaration(const GlobalName& global) {
    bool written = !global.type->texel_format.empty();
    return StrCat(written ? "__write_only " : "__read_only ", TypeName(*global.type), " ", global.text);
  }
  std::string PassedDeclaration(const GlobalName& global) override {
    using Kind = GlobalName::Kind;
    switch (global.kind) {
      case Kind::kBuffer: return PointerDeclarator("storage", *global.type, global.text, global.var->access == Access::kRead);
      case Kind::kTexture: return TextureDeclaration(global);
      case Kind::kWorkgroup: return PointerDeclarator("workgroup", *global.type, global.text);
      case Kind::kPrivate: return PointerDeclarator("private", *global.type, global.text);
      case Kind::kParam: return Declarator(*global.type, global.text);
      case Kind::kUniform:
      case Kind::kConst: break;
    }
    return {};
  }
  std::string BuiltinValue(const std::string& name) {
    const uint32_t* size = kernel_.workgroup_size;
    auto three = [](const char* function) {
      return StrCat("(uint3)(", function, "(0), ", function, "(1), ", function, "(2))");
    };
    if (name == "workgroup_id") return three("get_group_id");
    if (name == "local_invocation_id") return three("get_local_id");
    if (name == "global_invocation_id") return three("get_global_id");
    if (name == "num_workgroups") return three("get_num_groups");
    if (name == "local_invocation_index") {
      std::string index = "(uint)get_local_id(0)";
      if (size[1] > 1) index += StrCat(" + (uint)get_local_id(1) * ", size[0], "u");
      if (size[2] > 1) index += StrCat(" + (uint)get_local_id(2) * ", uint64_t(size[0]) * size[1], "u");
      return index;
    }
    if (name == "subgroup_size") {
      extensions_.insert(std::string(kBasic));
      return "get_max_sub_group_size()";
    }
    if (name == "subgroup_invocation_id") {
      extensions_.insert(std::string(kBasic));
      return "get_sub_group_local_id()";
    }
    Fail({}, StrCat("the builtin value ", name, " has no counterpart in OpenCL C."));
    return {};
  }
  void PutEntry(const Function& function) override {
    OpenScope();
    in_entry_ = true;
    const uint32_t* size = kernel_.workgroup_size;
    Put("__kernel __attribute__((reqd_work_group_size(", size[0], ", ", size[1], ", ", size[2], ")))\n");
    Put("void ", entry_name_, "(");
    bool first = true;
    auto next = [&] {
      if (!first) Put(", ");
      first = false;
    };
    // A tensor that is bound twice: a promise that nothing else points there would be wrong.
    std::map<std::pair<std::string, int>, int> tensors;
    for (const BindingInfo& binding : kernel_.bindings) ++tensors[{binding.tensor, binding.part}];
    for (size_t i = 0; i < kernel_.bindings.size(); ++i) {
      const BindingInfo& binding = kernel_.bindings[i];
      for (const VarDecl& var : module_.vars) {
        if (var.binding != int(i) || var.space == "uniform") continue;
        next();
        const GlobalName& global = *FindGlobal(var.name);
        if (global.kind == GlobalName::Kind::kTexture) {
          Put(TextureDeclaration(global));
        } else {
          bool alone = tensors[{binding.tensor, binding.part}] == 1 && var.access == Access::kRead;
          Put(PointerDeclarator("storage", var.type, StrCat(alone ? "restrict " : "", global.text),
                                var.access == Access::kRead));
        }
      }
    }
    for (const ParamField& param : kernel_.params) {
      next();
      Put(Declarator(param.type, FindGlobal(param.name)->text));
    }
    Put(") {\n");
    ++indent_;
    for (const Parameter& p : function.parameters) {
      std::string value = BuiltinValue(p.builtin);
      StartLine();
      Put("const ", Declarator(p.type, DeclareLocal(p.name)), " = ", value, ";\n");
    }
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
    if (kernel_.uses_f16) extensions_.insert("cl_khr_fp16");
    for (const std::string& extension : extensions_) {
      // Only some of them have to be switched on, and compilers differ in which.
      Put("#ifdef ", extension, "\n#pragma OPENCL EXTENSION ", extension, " : enable\n#endif\n");
    }
    if (uses_sampler_) {
      Put("#ifndef HAS_lw_texels\n#define HAS_lw_texels\n");
      Put("__constant sampler_t lw_texels = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n#endif\n");
    }
    if (!out_.empty()) Put("\n");
    PutStructs("typedef ", true);
    size_t start = out_.size();
    PutConstants();
    Put(helpers_);
    if (out_.size() > start) Put("\n");
    Put(functions);
    return std::move(out_);
  }

 private:
  std::set<std::string> extensions_;
  bool uses_sampler_ = false;
};

}  // namespace

Result<KernelText> PrintOpenClC(const LoweredKernel& kernel, const Target& target, const PrintOptions& options) {
  ASSIGN_OR_RETURN(KernelText plain, OpenClPrinter(kernel, target, options, "").Print());
  // Once more, with names at file scope that no other text has: one program may then be made of many texts, which saves PoCL
  // most of its time (opencl_device.cc).
  char suffix[16];
  std::snprintf(suffix, sizeof suffix, "_%08x", unsigned(HashText(plain.text) & 0xffffffffu));
  return OpenClPrinter(kernel, target, options, suffix).Print();
}

}  // namespace leeway::shader
