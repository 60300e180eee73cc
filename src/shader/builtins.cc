#include "shader/builtins.h"

#include <unordered_map>

#include "base/result.h"

namespace leeway::shader {

namespace {

using B = Builtin;
using R = BuiltinRule;
using P = BuiltinInfo::Plain;
constexpr uint8_t F = BuiltinInfo::kF, I = BuiltinInfo::kI, U = BuiltinInfo::kU;
constexpr uint8_t N = F | I | U, IU = I | U, ALL = N | BuiltinInfo::kB;

// In the order of the enumeration.
constexpr BuiltinInfo kTable[] = {
    {"abs", B::kAbs, 1, R::kSame, N},
    {"min", B::kMin, 2, R::kSame, N},
    {"max", B::kMax, 2, R::kSame, N},
    {"clamp", B::kClamp, 3, R::kSame, N},
    {"sign", B::kSign, 1, R::kSame, F | I},
    {"acos", B::kAcos, 1, R::kSame, F},
    {"acosh", B::kAcosh, 1, R::kSame, F},
    {"asin", B::kAsin, 1, R::kSame, F},
    {"asinh", B::kAsinh, 1, R::kSame, F},
    {"atan", B::kAtan, 1, R::kSame, F},
    {"atanh", B::kAtanh, 1, R::kSame, F},
    {"ceil", B::kCeil, 1, R::kSame, F},
    {"cos", B::kCos, 1, R::kSame, F},
    {"cosh", B::kCosh, 1, R::kSame, F},
    {"degrees", B::kDegrees, 1, R::kSame, F},
    {"exp", B::kExp, 1, R::kSame, F},
    {"exp2", B::kExp2, 1, R::kSame, F},
    {"floor", B::kFloor, 1, R::kSame, F},
    {"fract", B::kFract, 1, R::kSame, F},
    {"inverseSqrt", B::kInverseSqrt, 1, R::kSame, F},
    {"log", B::kLog, 1, R::kSame, F},
    {"log2", B::kLog2, 1, R::kSame, F},
    {"quantizeToF16", B::kQuantizeToF16, 1, R::kSame, F},
    {"radians", B::kRadians, 1, R::kSame, F},
    {"round", B::kRound, 1, R::kSame, F},
    {"saturate", B::kSaturate, 1, R::kSame, F},
    {"sin", B::kSin, 1, R::kSame, F},
    {"sinh", B::kSinh, 1, R::kSame, F},
    {"sqrt", B::kSqrt, 1, R::kSame, F},
    {"tan", B::kTan, 1, R::kSame, F},
    {"tanh", B::kTanh, 1, R::kSame, F},
    {"trunc", B::kTrunc, 1, R::kSame, F},
    {"atan2", B::kAtan2, 2, R::kSame, F},
    {"pow", B::kPow, 2, R::kSame, F},
    {"step", B::kStep, 2, R::kSame, F},
    {"fma", B::kFma, 3, R::kSame, F},
    {"smoothstep", B::kSmoothstep, 3, R::kSame, F},
    {"mix", B::kMix, 3, R::kMix, F},
    {"ldexp", B::kLdexp, 2, R::kLdexp, F},
    {"dot", B::kDot, 2, R::kVectorToScalar, N},
    {"length", B::kLength, 1, R::kToScalar, F},
    {"distance", B::kDistance, 2, R::kToScalar, F},
    {"normalize", B::kNormalize, 1, R::kVectorSame, F},
    {"cross", B::kCross, 2, R::kVectorSame, F},
    {"reflect", B::kReflect, 2, R::kVectorSame, F},
    {"countLeadingZeros", B::kCountLeadingZeros, 1, R::kSame, IU},
    {"countOneBits", B::kCountOneBits, 1, R::kSame, IU},
    {"countTrailingZeros", B::kCountTrailingZeros, 1, R::kSame, IU},
    {"firstLeadingBit", B::kFirstLeadingBit, 1, R::kSame, IU},
    {"firstTrailingBit", B::kFirstTrailingBit, 1, R::kSame, IU},
    {"reverseBits", B::kReverseBits, 1, R::kSame, IU},
    {"extractBits", B::kExtractBits, 3, R::kExtractBits, IU},
    {"insertBits", B::kInsertBits, 4, R::kInsertBits, IU},
    {"all", B::kAll, 1, R::kVote},
    {"any", B::kAny, 1, R::kVote},
    {"select", B::kSelect, 3, R::kSelect, ALL},
    {"dot4U8Packed", B::kDot4U8Packed, 2, R::kFixed, 0, P::kU32, P::kU32},
    {"dot4I8Packed", B::kDot4I8Packed, 2, R::kFixed, 0, P::kU32, P::kI32},
    {"pack4x8snorm", B::kPack4x8snorm, 1, R::kFixed, 0, P::kVec4F, P::kU32},
    {"pack4x8unorm", B::kPack4x8unorm, 1, R::kFixed, 0, P::kVec4F, P::kU32},
    {"pack4xI8", B::kPack4xI8, 1, R::kFixed, 0, P::kVec4I, P::kU32},
    {"pack4xU8", B::kPack4xU8, 1, R::kFixed, 0, P::kVec4U, P::kU32},
    {"pack4xI8Clamp", B::kPack4xI8Clamp, 1, R::kFixed, 0, P::kVec4I, P::kU32},
    {"pack4xU8Clamp", B::kPack4xU8Clamp, 1, R::kFixed, 0, P::kVec4U, P::kU32},
    {"pack2x16snorm", B::kPack2x16snorm, 1, R::kFixed, 0, P::kVec2F, P::kU32},
    {"pack2x16unorm", B::kPack2x16unorm, 1, R::kFixed, 0, P::kVec2F, P::kU32},
    {"pack2x16float", B::kPack2x16float, 1, R::kFixed, 0, P::kVec2F, P::kU32},
    {"unpack4x8snorm", B::kUnpack4x8snorm, 1, R::kFixed, 0, P::kU32, P::kVec4F},
    {"unpack4x8unorm", B::kUnpack4x8unorm, 1, R::kFixed, 0, P::kU32, P::kVec4F},
    {"unpack4xI8", B::kUnpack4xI8, 1, R::kFixed, 0, P::kU32, P::kVec4I},
    {"unpack4xU8", B::kUnpack4xU8, 1, R::kFixed, 0, P::kU32, P::kVec4U},
    {"unpack2x16snorm", B::kUnpack2x16snorm, 1, R::kFixed, 0, P::kU32, P::kVec2F},
    {"unpack2x16unorm", B::kUnpack2x16unorm, 1, R::kFixed, 0, P::kU32, P::kVec2F},
    {"unpack2x16float", B::kUnpack2x16float, 1, R::kFixed, 0, P::kU32, P::kVec2F},
    {"atomicLoad", B::kAtomicLoad, 1, R::kAtomicLoad},
    {"atomicStore", B::kAtomicStore, 2, R::kAtomicStore},
    {"atomicAdd", B::kAtomicAdd, 2, R::kAtomicUpdate},
    {"atomicSub", B::kAtomicSub, 2, R::kAtomicUpdate},
    {"atomicMax", B::kAtomicMax, 2, R::kAtomicUpdate},
    {"atomicMin", B::kAtomicMin, 2, R::kAtomicUpdate},
    {"atomicAnd", B::kAtomicAnd, 2, R::kAtomicUpdate},
    {"atomicOr", B::kAtomicOr, 2, R::kAtomicUpdate},
    {"atomicXor", B::kAtomicXor, 2, R::kAtomicUpdate},
    {"atomicExchange", B::kAtomicExchange, 2, R::kAtomicUpdate},
    {"workgroupBarrier", B::kWorkgroupBarrier, 0, R::kFixed},
    {"storageBarrier", B::kStorageBarrier, 0, R::kFixed},
    {"workgroupUniformLoad", B::kWorkgroupUniformLoad, 1, R::kUniformLoad},
    {"subgroupAdd", B::kSubgroupAdd, 1, R::kSame, N},
    {"subgroupMul", B::kSubgroupMul, 1, R::kSame, N},
    {"subgroupMax", B::kSubgroupMax, 1, R::kSame, N},
    {"subgroupMin", B::kSubgroupMin, 1, R::kSame, N},
    {"subgroupAnd", B::kSubgroupAnd, 1, R::kSame, IU},
    {"subgroupOr", B::kSubgroupOr, 1, R::kSame, IU},
    {"subgroupXor", B::kSubgroupXor, 1, R::kSame, IU},
    {"subgroupExclusiveAdd", B::kSubgroupExclusiveAdd, 1, R::kSame, N},
    {"subgroupInclusiveAdd", B::kSubgroupInclusiveAdd, 1, R::kSame, N},
    {"subgroupExclusiveMul", B::kSubgroupExclusiveMul, 1, R::kSame, N},
    {"subgroupInclusiveMul", B::kSubgroupInclusiveMul, 1, R::kSame, N},
    {"subgroupBroadcast", B::kSubgroupBroadcast, 2, R::kConstantLane, N},
    {"subgroupBroadcastFirst", B::kSubgroupBroadcastFirst, 1, R::kSame, N},
    {"subgroupShuffle", B::kSubgroupShuffle, 2, R::kLane, N},
    {"subgroupShuffleXor", B::kSubgroupShuffleXor, 2, R::kLane, N},
    {"subgroupShuffleUp", B::kSubgroupShuffleUp, 2, R::kLane, N},
    {"subgroupShuffleDown", B::kSubgroupShuffleDown, 2, R::kLane, N},
    {"subgroupBallot", B::kSubgroupBallot, 1, R::kFixed, 0, P::kBool, P::kVec4U},
    {"subgroupElect", B::kSubgroupElect, 0, R::kFixed, 0, P::kVoid, P::kBool},
    {"subgroupAll", B::kSubgroupAll, 1, R::kFixed, 0, P::kBool, P::kBool},
    {"subgroupAny", B::kSubgroupAny, 1, R::kFixed, 0, P::kBool, P::kBool},
    {"subgroupMatrixLoadLeft", B::kSubgroupMatrixLoadLeft, 3, R::kMatrixLoad},
    {"subgroupMatrixLoadRight", B::kSubgroupMatrixLoadRight, 3, R::kMatrixLoad},
    {"subgroupMatrixLoadRightTransposed", B::kSubgroupMatrixLoadRightTransposed, 3, R::kMatrixLoad},
    {"subgroupMatrixMultiplyAdd", B::kSubgroupMatrixMultiplyAdd, 3, R::kMatrixMultiply},
    {"subgroupMatrixStore", B::kSubgroupMatrixStore, 4, R::kMatrixStore},
};
constexpr size_t kCount = sizeof(kTable) / sizeof(kTable[0]);

constexpr bool IsInOrder() {
  for (size_t i = 0; i < kCount; ++i) {
    if (size_t(kTable[i].id) != i + 1) return false;
  }
  return kTable[kCount - 1].id == B::kSubgroupMatrixStore;
}
static_assert(IsInOrder(), "the table follows the enumeration");

}  // namespace

Type PlainType(P plain) {
  switch (plain) {
    case P::kVoid: return Type::Void();
    case P::kBool: return Type::Of(Scalar::kBool);
    case P::kI32: return Type::Of(Scalar::kI32);
    case P::kU32: return Type::Of(Scalar::kU32);
    case P::kF32: return Type::Of(Scalar::kF32);
    case P::kVec2F: return Type::Vector(Scalar::kF32, 2);
    case P::kVec4F: return Type::Vector(Scalar::kF32, 4);
    case P::kVec4I: return Type::Vector(Scalar::kI32, 4);
    case P::kVec4U: return Type::Vector(Scalar::kU32, 4);
  }
  return Type::Void();
}

std::span<const BuiltinInfo> AllBuiltins() { return kTable; }

const BuiltinInfo* FindBuiltin(std::string_view name) {
  static const std::unordered_map<std::string_view, const BuiltinInfo*> by_name = [] {
    std::unordered_map<std::string_view, const BuiltinInfo*> map;
    for (const BuiltinInfo& info : kTable) map.emplace(info.name, &info);
    return map;
  }();
  auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

const BuiltinInfo& InfoOf(Builtin builtin) {
  CHECK(builtin != Builtin::kNone && size_t(builtin) <= kCount);
  return kTable[size_t(builtin) - 1];
}

const char* WhyNotBuiltin(std::string_view name) {
  if (name == "atomicCompareExchangeWeak") return "compare-and-exchange is not supported, because not every target has it";
  if (name == "frexp" || name == "modf") return "functions with a struct as their result are not supported";
  if (name == "transpose" || name == "determinant") return "matrices are not supported";
  if (name == "textureBarrier") return "textures are written through tensors, which need no barrier of their own";
  if (name.substr(0, 7) == "texture") return "textures are read and written through tensors";
  if (name == "arrayLength") return "an array has the size that it is declared with; a tensor's extents are members of it";
  if (name.substr(0, 3) == "dpd" || name.substr(0, 6) == "fwidth") return "derivatives are for fragment shaders";
  if (name.substr(0, 4) == "quad") return "quad functions are not supported; use the subgroup functions";
  return nullptr;
}

}  // namespace leeway::shader
