// The builtin functions of the kernel language: one table that the checker, the printers and the interpreter read.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shader/ast.h"

namespace leeway::shader {

// clang-format off
enum class Builtin : uint16_t {
  kNone,
  // numbers
  kAbs, kMin, kMax, kClamp, kSign,
  // floats
  kAcos, kAcosh, kAsin, kAsinh, kAtan, kAtanh, kCeil, kCos, kCosh, kDegrees, kExp, kExp2, kFloor, kFract, kInverseSqrt, kLog,
  kLog2, kQuantizeToF16, kRadians, kRound, kSaturate, kSin, kSinh, kSqrt, kTan, kTanh, kTrunc, kAtan2, kPow, kStep, kFma,
  kSmoothstep, kMix, kLdexp,
  // vectors
  kDot, kLength, kDistance, kNormalize, kCross, kReflect,
  // bits
  kCountLeadingZeros, kCountOneBits, kCountTrailingZeros, kFirstLeadingBit, kFirstTrailingBit, kReverseBits, kExtractBits,
  kInsertBits,
  // logic
  kAll, kAny, kSelect,
  // packing
  kDot4U8Packed, kDot4I8Packed, kPack4x8snorm, kPack4x8unorm, kPack4xI8, kPack4xU8, kPack4xI8Clamp, kPack4xU8Clamp,
  kPack2x16snorm, kPack2x16unorm, kPack2x16float, kUnpack4x8snorm, kUnpack4x8unorm, kUnpack4xI8, kUnpack4xU8,
  kUnpack2x16snorm, kUnpack2x16unorm, kUnpack2x16float,
  // atomics; the first argument is a pointer to the atomic
  kAtomicLoad, kAtomicStore, kAtomicAdd, kAtomicSub, kAtomicMax, kAtomicMin, kAtomicAnd, kAtomicOr, kAtomicXor,
  kAtomicExchange,
  // synchronization
  kWorkgroupBarrier, kStorageBarrier, kWorkgroupUniformLoad,
  // subgroups
  kSubgroupAdd, kSubgroupMul, kSubgroupMax, kSubgroupMin, kSubgroupAnd, kSubgroupOr, kSubgroupXor, kSubgroupExclusiveAdd,
  kSubgroupInclusiveAdd, kSubgroupExclusiveMul, kSubgroupInclusiveMul, kSubgroupBroadcast, kSubgroupBroadcastFirst,
  kSubgroupShuffle, kSubgroupShuffleXor, kSubgroupShuffleUp, kSubgroupShuffleDown, kSubgroupBallot, kSubgroupElect,
  kSubgroupAll, kSubgroupAny,
  // matrices of a subgroup; the first argument of loads and of the store is a pointer to an array in workgroup memory
  kSubgroupMatrixLoadLeft, kSubgroupMatrixLoadRight, kSubgroupMatrixLoadRightTransposed, kSubgroupMatrixMultiplyAdd,
  kSubgroupMatrixStore,
};
// clang-format on

// How the types of arguments and result hang together. T is a scalar or a vector of a scalar in `scalars`.
enum class BuiltinRule : uint8_t {
  kSame,        // (T, ...) -> T
  kVectorSame,  // the same, vectors only
  kToScalar,    // (T, ...) -> the scalar of T
  kVectorToScalar,
  kVote,            // (bool or vector of bool) -> bool
  kSelect,          // (T, T, bool or as many bools as T has) -> T
  kMix,             // (T, T, T or the scalar of T) -> T
  kLdexp,           // (T, i32s as many as T has) -> T
  kExtractBits,     // (T, u32, u32) -> T
  kInsertBits,      // (T, T, u32, u32) -> T
  kFixed,           // `arguments` -> `result`
  kAtomicLoad,      // (ptr<atomic<T>>) -> T
  kAtomicStore,     // (ptr<atomic<T>>, T)
  kAtomicUpdate,    // (ptr<atomic<T>>, T) -> T, the old value
  kUniformLoad,     // (ptr<workgroup, T>) -> T
  kLane,            // (T, u32) -> T
  kConstantLane,    // (T, constant u32) -> T
  kMatrixLoad,      // (ptr<workgroup, array<f16, n>>, offset u32, pitch u32) -> the matrix of `place`
  kMatrixMultiply,  // (left, right, sum) -> sum
  kMatrixStore,     // (ptr<workgroup, array<f32, n>>, offset u32, pitch u32, sum)
};

struct BuiltinInfo {
  // Sets of scalars, one bit each.
  static constexpr uint8_t kF = 1, kI = 2, kU = 4, kB = 8;
  // The few types of kFixed.
  enum class Plain : uint8_t { kVoid, kBool, kI32, kU32, kF32, kVec2F, kVec4F, kVec4I, kVec4U };

  const char* name;
  Builtin id;
  uint8_t arity;
  BuiltinRule rule;
  uint8_t scalars = 0;
  Plain arguments = Plain::kVoid, result = Plain::kVoid;  // kFixed: all arguments have the same type

  bool is_subgroup() const { return id >= Builtin::kSubgroupAdd; }
  bool is_matrix() const { return id >= Builtin::kSubgroupMatrixLoadLeft; }
  // The first argument is a pointer.
  bool takes_pointer() const {
    return is_atomic() || rule == BuiltinRule::kUniformLoad || rule == BuiltinRule::kMatrixLoad ||
           rule == BuiltinRule::kMatrixStore;
  }
  bool is_atomic() const { return id >= Builtin::kAtomicLoad && id <= Builtin::kAtomicExchange; }
  bool is_barrier() const {
    return id == Builtin::kWorkgroupBarrier || id == Builtin::kStorageBarrier || id == Builtin::kWorkgroupUniformLoad;
  }
};

Type PlainType(BuiltinInfo::Plain plain);
std::span<const BuiltinInfo> AllBuiltins();             // index i holds Builtin(i + 1)
const BuiltinInfo* FindBuiltin(std::string_view name);  // null: no such function
const BuiltinInfo& InfoOf(Builtin builtin);             // not kNone
inline const BuiltinInfo& InfoOf(const Expr& call) { return InfoOf(Builtin(call.builtin)); }
// Functions of WGSL that the language leaves out: what to say about one, or null.
const char* WhyNotBuiltin(std::string_view name);

}  // namespace leeway::shader
