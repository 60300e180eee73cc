// What the interpreter runs: a kernel as instructions over a register file of 32-bit slots per invocation. Internal to
// interpret*.cc.
//
// A scalar takes one slot, a vector one per lane, arrays and structs their elements one after another. f16 values are kept as
// f32 that are rounded after each operation. Constants lie at negative slots. As there is no recursion, every function has
// its own fixed part of the file, so a call is a jump.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "shader/ast.h"
#include "shader/interpret.h"

namespace leeway::shader::interpret {

inline constexpr int32_t kNone = std::numeric_limits<int32_t>::min();

// Suffix F: f32, I: i32, U: u32, B: bool; none: any word.
enum class Op : uint16_t {
  // Moves. kCopy: c slots; kCopyFrom: dst[0..c) = file[a + file[b]...]; kCopyTo: file[dst + file[b]...] = a[0..c)
  kMove,  // n lanes, a may be broadcast
  kCopy,  // c slots
  kZero,  // c slots
  kCopyFrom,
  kCopyTo,
  kSwizzle,  // n lanes of a; d: two bits per lane
  kSelect,   // c ? b : a, per lane
  // Arithmetic, per lane
  kAddF,
  kSubF,
  kMulF,
  kDivF,
  kRemF,
  kNegF,
  kAddI,
  kSubI,
  kMulI,
  kDivI,
  kRemI,
  kNegI,
  kDivU,
  kRemU,
  kAnd,
  kOr,
  kXor,
  kNot,
  kNotB,
  kShl,
  kShrI,
  kShrU,
  kEqF,
  kNeF,
  kLtF,
  kLeF,
  kEq,
  kNe,
  kLtI,
  kLeI,
  kLtU,
  kLeU,
  kFloatToI,
  kFloatToU,
  kFloatToB,
  kIToFloat,
  kUToFloat,
  kToB,
  kRoundF16,
  // Functions, per lane
  kAbsF,
  kCeilF,
  kFloorF,
  kRoundF,
  kTruncF,
  kFractF,
  kSqrtF,
  kInverseSqrtF,
  kExpF,
  kExp2F,
  kLogF,
  kLog2F,
  kSinF,
  kCosF,
  kTanF,
  kAsinF,
  kAcosF,
  kAtanF,
  kSinhF,
  kCoshF,
  kTanhF,
  kAsinhF,
  kAcoshF,
  kAtanhF,
  kSignF,
  kSaturateF,
  kDegreesF,
  kRadiansF,
  kAtan2F,
  kPowF,
  kMinF,
  kMaxF,
  kStepF,
  kLdexpF,
  kFmaF,
  kClampF,
  kMixF,
  kSmoothstepF,
  kAbsI,
  kSignI,
  kMinI,
  kMaxI,
  kClampI,
  kMinU,
  kMaxU,
  kClampU,
  kCountLeadingZeros,
  kCountTrailingZeros,
  kCountOneBits,
  kReverseBits,
  kFirstLeadingBitI,
  kFirstLeadingBitU,
  kFirstTrailingBit,
  kExtractBitsI,
  kExtractBitsU,
  kInsertBits /* d: slot of the fourth argument */,
  // Over lanes, to one
  kDotF,
  kDotI,
  kAll,
  kAny,
  kCrossF,
  // Packing: d is a Packing
  kPack,
  kUnpack,
  kDot4I8,
  kDot4U8,
  // Index expressions: division towards minus infinity by positive b
  kFloorDiv,
  kFloorMod,
  kTable,  // dst = tables[b][a]
  // Control
  kJump,
  kJumpIfZero,
  kJumpIfNot0,  // b: target, a: condition
  kJumpUnlessLtU,
  kJumpUnlessLtI,  // unless a < b: to c
  kCall,
  kReturn,  // kCall: dst: slot of the return address, b: function; kReturn: a
  kEnd,
  // Memory
  kIndex,  // dst = (c is kNone ? 0 : file[c]) + file[a] * d, checked against b; flags 1: the index is signed
  kLoadShared,
  kStoreShared,  // workgroup words b + file[a]; c slots; dst / value dst
  kLoadBuffer,
  kStoreBuffer,  // buffer c, byte b + file[a], n lanes, flags: BufferElement; dst is the value
  kLoadTexture,
  kStoreTexture,  // texture c, coordinates a (n of them), dst the four channels; b: slot of the layer or kNone
  kAtomic,        // see AtomicOp in d; a: dynamic offset, b: base, c: buffer or kNone; dst, the value at dst + 1
  // Tensors: accesses[a]
  kTensorLoad,
  kTensorStore,       // affine address; dst is the value
  kCheckCoordinates,  // faults
  kInside,            // dst = all coordinates inside
  kElementLoad,
  kElementStore,  // b: slot of the element address
  kMaskLanes,     // dst: vec4 of the slice in the last coordinate: lanes beyond the edge become 0
  // Between invocations
  kBarrier,   // d: BarrierBits
  kSubgroup,  // d: SubgroupOp, n lanes of a; b: second argument; flags: Scalar
  // Matrices: each invocation holds all 16 x 16 elements, row by row. Loads and stores: at file[a] of the workgroup words from
  // b on, d of them; c: slot of the pitch. flags 1: transposed. Of a store each lane of a subgroup does its share.
  kMatrixLoad,
  kMatrixStore,
  kMatrixMultiply,  // dst = a * b + c
  kCheckFinite,     // dst was made from a, b, c
};

enum BarrierBits : int32_t { kWorkgroupMemory = 1, kStorageMemory = 2 };
enum class BufferElement : uint8_t { kWord, kHalf };
enum class Packing : uint8_t {
  k2x16Float,
  k2x16Snorm,
  k2x16Unorm,
  k4x8Snorm,
  k4x8Unorm,
  k4xI8,
  k4xU8,
  k4xI8Clamp,
  k4xU8Clamp,
  kHalfBits /* 2 lanes */,
};
enum class AtomicOp : uint8_t { kLoad, kStore, kAdd, kSub, kMax, kMin, kAnd, kOr, kXor, kExchange };
enum class SubgroupOp : uint8_t {
  kAdd,
  kMul,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kAll,
  kAny,
  kElect,
  kBallot,
  kBroadcast,
  kBroadcastFirst,
  kExclusiveAdd,
  kInclusiveAdd,
  kExclusiveMul,
  kInclusiveMul,
  kShuffle,
  kShuffleDown,
  kShuffleUp,
  kShuffleXor,
};

// Bits of `flags` in operations per lane: the operand is one lane, used for all.
enum OperandFlags : uint8_t { kScalarA = 1, kScalarB = 2, kScalarC = 4 };

struct Instruction {
  Op op;
  uint8_t n = 1;
  uint8_t flags = 0;
  int32_t dst = kNone, a = kNone, b = kNone, c = kNone, d = 0;
};

// The bytes behind a tensor (before lowering) or a buffer or texture (after).
struct Memory {
  std::string name;
  std::byte* data = nullptr;
  uint64_t size_bytes = 0;
  Access access = Access::kRead;
  DType dtype = DType::kF32;         // tensors and textures
  uint32_t granule = 4;              // bytes that one entry of the shadow stands for
  std::array<uint32_t, 3> extent{};  // textures
  std::string texture_dim;
};

// How a tensor is accessed at one place.
struct TensorAccess {
  int memory = 0;
  int rank = 0;
  bool by_slice = false;  // load4, store4: the last coordinate is a slice
  bool or_zero = false;
  Scalar value = Scalar::kF32;
  uint32_t last_extent = 0;  // elements
  int32_t coords[8] = {};
  uint32_t extents[8] = {};           // the last one in slices where by_slice
  int64_t strides[8] = {}, base = 0;  // elements, of kTensorLoad and kTensorStore
  std::string what;                   // "x.load4"
  const std::vector<std::string>* axes = nullptr;
};

struct SharedVariable {
  std::string name;
  int32_t base = 0, words = 0, element_words = 1;
};

enum class BuiltinInput : uint8_t {
  kWorkgroupId,
  kLocalInvocationId,
  kLocalInvocationIndex,
  kGlobalInvocationId,
  kNumWorkgroups,
  kSubgroupSize,
  kSubgroupInvocationId,
  kSubgroupId,
  kNumSubgroups,
};

struct Program {
  std::string name;  // of the kernel
  std::vector<Instruction> code;
  std::vector<Location> locations;    // per instruction
  std::vector<uint32_t> source_of;    // per instruction: index into sources
  std::vector<std::string> sources;   // "copy.kernel", "value map of y"
  int32_t init_begin = 0, entry = 0;  // init: run once, makes the image of globals
  std::vector<uint32_t> constants;    // constants[k] is slot -1 - k
  int32_t slots = 0;                  // non-negative slots
  int32_t private_begin = 0, private_end = 0;
  std::vector<std::pair<BuiltinInput, int32_t>> builtins;  // entry parameters and their slots
  std::vector<Memory> memories;
  std::vector<TensorAccess> accesses;
  std::vector<SharedVariable> shared;
  int32_t shared_words = 0;
  std::vector<std::vector<int32_t>> tables;
  std::map<int32_t, std::string> index_names;  // of kIndex: what is indexed
  bool needs_all_invocations = false;          // barriers or subgroup functions: invocations take turns
  uint32_t workgroup_size[3] = {1, 1, 1};
};

Result<Program> CompileBound(const BoundKernel& kernel, const InterpretMemory& memory, const InterpretOptions& options);
Result<Program> CompileLowered(const LoweredKernel& kernel, const InterpretMemory& memory, const InterpretOptions& options);

InterpretResult Run(const Program& program, const uint32_t workgroups[3], const InterpretOptions& options);

}  // namespace leeway::shader::interpret
