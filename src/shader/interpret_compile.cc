#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "base/strings.h"
#include "shader/interpret_code.h"
#include "shader/value_map.h"
#include "tensor/address.h"

namespace leeway::shader::interpret {

namespace {

uint32_t RoundUp(uint32_t value, uint32_t multiple) { return (value + multiple - 1) / multiple * multiple; }
bool IsFloatScalar(Scalar s) { return s == Scalar::kF32 || s == Scalar::kF16 || s == Scalar::kAbstractFloat; }
bool IsUnsignedScalar(Scalar s) { return s == Scalar::kU32 || s == Scalar::kBool; }

int Lanes(const Type& type) { return type.kind == Type::Kind::kVector ? type.rows : 1; }

Scalar ScalarOf(DType dtype) {
  if (IsFloat(dtype)) return Scalar::kF32;
  return IsSignedInt(dtype) ? Scalar::kI32 : Scalar::kU32;
}

// Where a value lies that can be read, written or pointed to.
struct Ref {
  enum class Space : uint8_t { kRegister, kShared, kBuffer } space = Space::kRegister;
  Type type;
  int32_t base = 0;     // slots, workgroup words, or bytes
  int32_t dyn = kNone;  // slot with more of it
  int buffer = -1;
  std::string name;
};

struct FunctionInfo {
  const Function* function = nullptr;
  std::vector<int32_t> parameters;
  int32_t result = kNone, return_address = kNone, start = 0;
  int module = 0;  // index into the compiler's modules; also into Program::sources
};

struct TensorNode;
struct MapNode {
  const ValueMap* map = nullptr;
  int scalar_function = -1, vector_function = -1;
  std::vector<TensorNode> operands;
};
// A virtual tensor with the memory of its placed tensor, and the same for the operands of its value maps.
struct TensorNode {
  const VirtualTensor* tensor = nullptr;
  std::string name;
  int memory = -1;
  Access access = Access::kRead;
  std::vector<MapNode> maps;
};

struct BuiltinOp {
  const char* name;
  int arity;
  Op f, i, u;
};
constexpr Op kNoOp = Op::kEnd;
// Functions that are one operation per lane, by the scalar type of the arguments.
constexpr BuiltinOp kBuiltinOps[] = {
    {"abs", 1, Op::kAbsF, Op::kAbsI, Op::kMove},
    {"ceil", 1, Op::kCeilF, kNoOp, kNoOp},
    {"floor", 1, Op::kFloorF, kNoOp, kNoOp},
    {"round", 1, Op::kRoundF, kNoOp, kNoOp},
    {"trunc", 1, Op::kTruncF, kNoOp, kNoOp},
    {"fract", 1, Op::kFractF, kNoOp, kNoOp},
    {"sqrt", 1, Op::kSqrtF, kNoOp, kNoOp},
    {"inverseSqrt", 1, Op::kInverseSqrtF, kNoOp, kNoOp},
    {"exp", 1, Op::kExpF, kNoOp, kNoOp},
    {"exp2", 1, Op::kExp2F, kNoOp, kNoOp},
    {"log", 1, Op::kLogF, kNoOp, kNoOp},
    {"log2", 1, Op::kLog2F, kNoOp, kNoOp},
    {"sin", 1, Op::kSinF, kNoOp, kNoOp},
    {"cos", 1, Op::kCosF, kNoOp, kNoOp},
    {"tan", 1, Op::kTanF, kNoOp, kNoOp},
    {"asin", 1, Op::kAsinF, kNoOp, kNoOp},
    {"acos", 1, Op::kAcosF, kNoOp, kNoOp},
    {"atan", 1, Op::kAtanF, kNoOp, kNoOp},
    {"sinh", 1, Op::kSinhF, kNoOp, kNoOp},
    {"cosh", 1, Op::kCoshF, kNoOp, kNoOp},
    {"tanh", 1, Op::kTanhF, kNoOp, kNoOp},
    {"asinh", 1, Op::kAsinhF, kNoOp, kNoOp},
    {"acosh", 1, Op::kAcoshF, kNoOp, kNoOp},
    {"atanh", 1, Op::kAtanhF, kNoOp, kNoOp},
    {"sign", 1, Op::kSignF, Op::kSignI, kNoOp},
    {"saturate", 1, Op::kSaturateF, kNoOp, kNoOp},
    {"degrees", 1, Op::kDegreesF, kNoOp, kNoOp},
    {"radians", 1, Op::kRadiansF, kNoOp, kNoOp},
    {"quantizeToF16", 1, Op::kRoundF16, kNoOp, kNoOp},
    {"countLeadingZeros", 1, kNoOp, Op::kCountLeadingZeros, Op::kCountLeadingZeros},
    {"countTrailingZeros", 1, kNoOp, Op::kCountTrailingZeros, Op::kCountTrailingZeros},
    {"countOneBits", 1, kNoOp, Op::kCountOneBits, Op::kCountOneBits},
    {"reverseBits", 1, kNoOp, Op::kReverseBits, Op::kReverseBits},
    {"firstLeadingBit", 1, kNoOp, Op::kFirstLeadingBitI, Op::kFirstLeadingBitU},
    {"firstTrailingBit", 1, kNoOp, Op::kFirstTrailingBit, Op::kFirstTrailingBit},
    {"atan2", 2, Op::kAtan2F, kNoOp, kNoOp},
    {"pow", 2, Op::kPowF, kNoOp, kNoOp},
    {"min", 2, Op::kMinF, Op::kMinI, Op::kMinU},
    {"max", 2, Op::kMaxF, Op::kMaxI, Op::kMaxU},
    {"step", 2, Op::kStepF, kNoOp, kNoOp},
    {"ldexp", 2, Op::kLdexpF, kNoOp, kNoOp},
    {"fma", 3, Op::kFmaF, kNoOp, kNoOp},
    {"clamp", 3, Op::kClampF, Op::kClampI, Op::kClampU},
    {"mix", 3, Op::kMixF, kNoOp, kNoOp},
    {"smoothstep", 3, Op::kSmoothstepF, kNoOp, kNoOp},
    {"extractBits", 3, kNoOp, Op::kExtractBitsI, Op::kExtractBitsU},
    {"insertBits", 4, kNoOp, Op::kInsertBits, Op::kInsertBits},
};
const BuiltinOp* FindBuiltinOp(const std::string& name) {
  for (const BuiltinOp& op : kBuiltinOps) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

struct PackingName {
  const char* pack;
  const char* unpack;
  Packing packing;
  int lanes;
};
constexpr PackingName kPackings[] = {
    {"pack2x16float", "unpack2x16float", Packing::k2x16Float, 2},
    {"pack2x16snorm", "unpack2x16snorm", Packing::k2x16Snorm, 2},
    {"pack2x16unorm", "unpack2x16unorm", Packing::k2x16Unorm, 2},
    {"pack4x8snorm", "unpack4x8snorm", Packing::k4x8Snorm, 4},
    {"pack4x8unorm", "unpack4x8unorm", Packing::k4x8Unorm, 4},
    {"pack4xI8", "unpack4xI8", Packing::k4xI8, 4},
    {"pack4xU8", "unpack4xU8", Packing::k4xU8, 4},
    {"pack4xI8Clamp", "", Packing::k4xI8Clamp, 4},
    {"pack4xU8Clamp", "", Packing::k4xU8Clamp, 4},
};

struct AtomicName {
  const char* name;
  AtomicOp op;
};
constexpr AtomicName kAtomics[] = {
    {"atomicLoad", AtomicOp::kLoad},         {"atomicStore", AtomicOp::kStore}, {"atomicAdd", AtomicOp::kAdd},
    {"atomicSub", AtomicOp::kSub},           {"atomicMax", AtomicOp::kMax},     {"atomicMin", AtomicOp::kMin},
    {"atomicAnd", AtomicOp::kAnd},           {"atomicOr", AtomicOp::kOr},       {"atomicXor", AtomicOp::kXor},
    {"atomicExchange", AtomicOp::kExchange},
};

struct SubgroupName {
  const char* name;
  SubgroupOp op;
};
constexpr SubgroupName kSubgroupFunctions[] = {
    {"subgroupAdd", SubgroupOp::kAdd},
    {"subgroupMul", SubgroupOp::kMul},
    {"subgroupMin", SubgroupOp::kMin},
    {"subgroupMax", SubgroupOp::kMax},
    {"subgroupAnd", SubgroupOp::kAnd},
    {"subgroupOr", SubgroupOp::kOr},
    {"subgroupXor", SubgroupOp::kXor},
    {"subgroupAll", SubgroupOp::kAll},
    {"subgroupAny", SubgroupOp::kAny},
    {"subgroupElect", SubgroupOp::kElect},
    {"subgroupBallot", SubgroupOp::kBallot},
    {"subgroupBroadcast", SubgroupOp::kBroadcast},
    {"subgroupBroadcastFirst", SubgroupOp::kBroadcastFirst},
    {"subgroupExclusiveAdd", SubgroupOp::kExclusiveAdd},
    {"subgroupInclusiveAdd", SubgroupOp::kInclusiveAdd},
    {"subgroupExclusiveMul", SubgroupOp::kExclusiveMul},
    {"subgroupInclusiveMul", SubgroupOp::kInclusiveMul},
    {"subgroupShuffle", SubgroupOp::kShuffle},
    {"subgroupShuffleDown", SubgroupOp::kShuffleDown},
    {"subgroupShuffleUp", SubgroupOp::kShuffleUp},
    {"subgroupShuffleXor", SubgroupOp::kShuffleXor},
};

template <class Table>
auto FindNamed(const Table& table, const std::string& name) -> decltype(&table[0]) {
  for (const auto& row : table) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

int ComponentIndex(char c) {
  switch (c) {
    case 'x':
    case 'r': return 0;
    case 'y':
    case 'g': return 1;
    case 'z':
    case 'b': return 2;
    case 'w':
    case 'a': return 3;
    default: return -1;
  }
}

class Compiler {
 public:
  Compiler(const Module& module, const InterpretMemory& memory, const InterpretOptions& options)
      : module_(&module), memory_(memory), check_nan_(options.check_nan) {
    program_.name = module.name;
    program_.sources.push_back(StrCat(module.name, ".kernel"));
  }

  Result<Program> Bound(const BoundKernel& kernel) {
    std::copy(kernel.workgroup_size, kernel.workgroup_size + 3, program_.workgroup_size);
    for (const TensorDecl& decl : module_->tensors) {
      auto found = kernel.tensors.find(decl.name);
      if (found == kernel.tensors.end()) return Error{Code::kInvalidArgument, StrCat("Tensor ", decl.name, " is not bound.")};
      TensorNode node;
      RETURN_IF_ERROR(MakeNode(found->second, decl.name, decl.access, node));
      tensors_[decl.name] = {&decl, std::move(node)};
    }
    DeclareModule(*module_);
    for (auto& [name, entry] : tensors_) RETURN_IF_ERROR(CompileMaps(entry.second, *entry.first));
    RETURN_IF_ERROR(DeclareParams());
    for (const ScratchDecl& scratch : module_->scratches) {
      RETURN_IF_ERROR(AddScratch(scratch.name, scratch.name, scratch.type));
    }
    return Finish();
  }

  Result<Program> Lowered(const LoweredKernel& kernel) {
    std::copy(kernel.workgroup_size, kernel.workgroup_size + 3, program_.workgroup_size);
    for (const VarDecl& var : module_->vars) {
      if (var.binding < 0) continue;
      if (size_t(var.binding) >= kernel.bindings.size()) {
        return Error{Code::kInternal,
                     StrCat("Variable ", var.name, " has binding ", var.binding, " of ", kernel.bindings.size(), ".")};
      }
      RETURN_IF_ERROR(AddBinding(var, kernel.bindings[size_t(var.binding)]));
    }
    DeclareModule(*module_);
    RETURN_IF_ERROR(DeclareParams());
    return Finish();
  }

 private:
  // ---- Types --------------------------------------------------------------------------------------------------------

  const StructDecl* FindStruct(const std::string& name) const {
    for (const StructDecl& s : module_->structs) {
      if (s.name == name) return &s;
    }
    return nullptr;
  }

  Type Resolve(const Type& type) const {
    if (type.kind != Type::Kind::kStruct) return type;
    for (const AliasDecl& alias : module_->aliases) {
      if (alias.name == type.name) return Resolve(alias.type);
    }
    return type;
  }

  int32_t SlotsOf(const Type& unresolved) {
    const Type type = Resolve(unresolved);
    switch (type.kind) {
      case Type::Kind::kVoid:
      case Type::Kind::kTexture: return 0;
      case Type::Kind::kScalar:
      case Type::Kind::kAtomic:
      case Type::Kind::kPointer: return 1;
      case Type::Kind::kVector: return type.rows;
      case Type::Kind::kMatrix: return type.rows * type.columns;
      case Type::Kind::kArray: return int32_t(type.count) * SlotsOf(*type.element);
      case Type::Kind::kStruct: {
        int32_t slots = 0;
        if (const StructDecl* decl = FindStruct(type.name)) {
          for (const StructMember& member : decl->members) slots += SlotsOf(member.type);
        }
        return slots;
      }
    }
    return 0;
  }

  // Layout in buffers, as WGSL has it.
  uint32_t AlignOf(const Type& unresolved) {
    const Type type = Resolve(unresolved);
    const uint32_t scalar = type.scalar == Scalar::kF16 ? 2 : 4;
    switch (type.kind) {
      case Type::Kind::kVector: return scalar * (type.rows == 2 ? 2 : 4);
      case Type::Kind::kArray: return AlignOf(*type.element);
      case Type::Kind::kStruct: {
        uint32_t align = 4;
        if (const StructDecl* decl = FindStruct(type.name)) {
          for (const StructMember& member : decl->members) align = std::max(align, AlignOf(member.type));
        }
        return align;
      }
      default: return scalar;
    }
  }
  uint32_t StrideOf(const Type& element) { return RoundUp(SizeOf(element), AlignOf(element)); }
  uint32_t SizeOf(const Type& unresolved) {
    const Type type = Resolve(unresolved);
    const uint32_t scalar = type.scalar == Scalar::kF16 ? 2 : 4;
    switch (type.kind) {
      case Type::Kind::kVector: return scalar * type.rows;
      case Type::Kind::kArray: return type.count * StrideOf(*type.element);
      case Type::Kind::kStruct: {
        uint32_t size = 0;
        if (const StructDecl* decl = FindStruct(type.name)) {
          for (const StructMember& member : decl->members) { size = RoundUp(size, AlignOf(member.type)) + SizeOf(member.type); }
        }
        return RoundUp(size, AlignOf(type));
      }
      default: return scalar;
    }
  }
  static bool ContainsHalf(const Type& type) {
    if (type.kind == Type::Kind::kArray) return ContainsHalf(*type.element);
    return type.kind != Type::Kind::kStruct && type.scalar == Scalar::kF16;
  }

  // ---- Emission -----------------------------------------------------------------------------------------------------

  int32_t Emit(Op op, int n, int32_t dst, int32_t a = kNone, int32_t b = kNone, int32_t c = kNone, int32_t d = 0,
               int flags = 0) {
    Instruction i;
    i.op = op;
    i.n = uint8_t(n);
    i.flags = uint8_t(flags);
    i.dst = dst;
    i.a = a;
    i.b = b;
    i.c = c;
    i.d = d;
    program_.code.push_back(i);
    program_.locations.push_back(at_);
    program_.source_of.push_back(uint32_t(module_index_));
    return int32_t(program_.code.size()) - 1;
  }
  int32_t Here() const { return int32_t(program_.code.size()); }
  void Patch(int32_t instruction, int32_t target) {
    Instruction& i = program_.code[size_t(instruction)];
    (i.op == Op::kJumpUnlessLtU || i.op == Op::kJumpUnlessLtI ? i.c : i.b) = target;
  }
  void PatchAll(const std::vector<int32_t>& instructions, int32_t target) {
    for (int32_t i : instructions) Patch(i, target);
  }

  int32_t Fail(Location at, const std::string& message) {
    if (!error_) {
      error_ = Error{Code::kUnsupported, StrCat(program_.sources[module_index_], ":", at.line, ":", at.column, ": ", message,
                                                " (in the interpreter)")};
    }
    return ConstantU(0);
  }

  int32_t ConstantU(uint32_t bits) {
    auto [found, added] = constants_.try_emplace(bits, -1 - int32_t(program_.constants.size()));
    if (added) program_.constants.push_back(bits);
    return found->second;
  }
  int32_t ConstantF(float value) { return ConstantU(std::bit_cast<uint32_t>(value)); }

  int32_t Temp(int32_t slots) {
    const int32_t at = next_;
    next_ += slots;
    high_ = std::max(high_, next_);
    return at;
  }
  int32_t AllocateGlobal(int32_t slots) { return Temp(slots); }

  int32_t Want(int32_t want, int32_t slots) { return want == kNone ? Temp(slots) : want; }
  // The value in `slot`, where it is wanted.
  int32_t Place(int32_t slot, int32_t want, int32_t slots) {
    if (want == kNone || want == slot) return slot;
    Copy(want, slot, slots);
    return want;
  }
  void Copy(int32_t dst, int32_t src, int32_t slots) {
    if (dst == src || slots == 0) return;
    if (slots <= 4) {
      Emit(Op::kMove, slots, dst, src);
    } else {
      Emit(Op::kCopy, 1, dst, src, kNone, slots);
    }
  }

  // One operation per lane. Goes by way of a temporary where the result would overwrite an operand that is still needed.
  int32_t EmitLanes(Op op, int n, int32_t want, const Type& result, std::initializer_list<std::pair<int32_t, int>> operands) {
    int32_t slots[3] = {kNone, kNone, kNone};
    int flags = 0, k = 0;
    bool overlaps = false;
    for (auto [slot, lanes] : operands) {
      slots[k] = slot;
      const bool broadcast = lanes == 1 && n > 1;
      if (broadcast) flags |= 1 << k;
      if (want != kNone && slot + lanes > want && slot < want + n && (broadcast || slot != want)) overlaps = true;
      if (want != kNone && check_nan_ && slot + lanes > want && slot < want + n) overlaps = true;
      ++k;
    }
    const int32_t dst = want == kNone || overlaps ? Temp(n) : want;
    Emit(op, n, dst, slots[0], slots[1], slots[2], 0, flags);
    if (result.scalar == Scalar::kF16 && op != Op::kRoundF16) Emit(Op::kRoundF16, n, dst, dst);
    if (check_nan_ && IsFloatScalar(result.scalar) && op != Op::kMove && op != Op::kSelect) {
      Emit(Op::kCheckFinite, n, dst, slots[0], slots[1], slots[2], 0, flags);
    }
    return Place(dst, want, n);
  }

  // ---- Names --------------------------------------------------------------------------------------------------------

  void PushScope() { scopes_.emplace_back(); }
  void PopScope() { scopes_.pop_back(); }
  const Ref* Lookup(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      auto found = scopes_[i].find(name);
      if (found != scopes_[i].end()) return &found->second;
    }
    if (module_index_ < modules_.size()) {
      auto found = modules_[module_index_].globals.find(name);
      if (found != modules_[module_index_].globals.end()) return &found->second;
    }
    auto found = globals_.find(name);
    return found == globals_.end() ? nullptr : &found->second;
  }

  // ---- Setup --------------------------------------------------------------------------------------------------------

  Status MakeNode(const VirtualTensor& tensor, const std::string& name, Access access, TensorNode& node) {
    node.tensor = &tensor;
    node.name = name;
    node.access = access;
    auto bytes = memory_.tensors.find(name);
    if (bytes == memory_.tensors.end())
      return Error{Code::kInvalidArgument, StrCat("No memory is given for tensor ", name, ".")};
    if (int64_t(bytes->second.size()) < tensor.placement.storage_bytes()) {
      return Error{Code::kInvalidArgument, StrCat("Tensor ", name, " needs ", tensor.placement.storage_bytes(),
                                                  " bytes of memory, got ", bytes->second.size(), ".")};
    }
    Memory memory;
    memory.name = name;
    memory.data = bytes->second.data();
    memory.size_bytes = uint64_t(tensor.placement.storage_elements()) * DTypeBits(tensor.placement.dtype) / 8;
    memory.access = access;
    memory.dtype = tensor.placement.dtype;
    memory.granule = uint32_t(DTypeBits(tensor.placement.dtype) / 8);
    node.memory = int(program_.memories.size());
    program_.memories.push_back(memory);
    int operand = 0;
    for (const ValueMap& map : tensor.value_maps) {
      MapNode map_node;
      map_node.map = &map;
      for (const VirtualTensor& other : map.operands) {
        TensorNode other_node;
        RETURN_IF_ERROR(MakeNode(other, StrCat(name, "#", operand++), Access::kRead, other_node));
        map_node.operands.push_back(std::move(other_node));
      }
      node.maps.push_back(std::move(map_node));
    }
    return {};
  }

  // The functions of value maps, for scalars and vectors as far as the kernel needs them.
  Status CompileMaps(TensorNode& node, const TensorDecl& decl) {
    bool scalar = false, vector = false;
    auto note = [&](const Expr& e) {
      if (e.kind == ExprKind::kTensorCall && e.name == decl.name) {
        (e.method.find('4') != std::string::npos ? vector : scalar) = true;
      }
    };
    for (const Function& f : module_->functions) {
      for (const StmtPtr& s : f.body) VisitExprs(*s, note);
    }
    return CompileMaps(node, scalar, vector);
  }
  Status CompileMaps(TensorNode& node, bool scalar, bool vector) {
    for (size_t k = 0; k < node.maps.size(); ++k) {
      MapNode& map = node.maps[k];
      for (TensorNode& operand : map.operands) RETURN_IF_ERROR(CompileMaps(operand, scalar, vector));
      for (bool is_vector : {false, true}) {
        if (!(is_vector ? vector : scalar)) continue;
        Target target;  // nothing elementwise depends on it but f16
        target.f16 = true;
        ASSIGN_OR_RETURN(Module functions, InstantiateValueMap(*map.map, is_vector, "apply_map", target,
                                                               StrCat(module_->name, ", value map ", k, " of ", node.name)));
        map_modules_.push_back(std::make_unique<Module>(std::move(functions)));
        program_.sources.push_back(StrCat("value map ", k, " of ", node.name, " in ", module_->name, ".kernel"));
        DeclareModule(*map_modules_.back());
        (is_vector ? map.vector_function : map.scalar_function) = int(functions_.size()) - 1;
      }
    }
    return {};
  }

  static void VisitExprs(const Expr& e, const std::function<void(const Expr&)>& visit) {
    visit(e);
    for (const ExprPtr& arg : e.args) VisitExprs(*arg, visit);
  }
  static void VisitExprs(const Stmt& s, const std::function<void(const Expr&)>& visit) {
    if (s.target) VisitExprs(*s.target, visit);
    if (s.value) VisitExprs(*s.value, visit);
    if (s.init) VisitExprs(*s.init, visit);
    if (s.update) VisitExprs(*s.update, visit);
    for (const StmtPtr& child : s.body) VisitExprs(*child, visit);
    for (const StmtPtr& child : s.else_body) VisitExprs(*child, visit);
    for (const SwitchCase& c : s.cases) {
      for (const ExprPtr& selector : c.selectors) VisitExprs(*selector, visit);
      for (const StmtPtr& child : c.body) VisitExprs(*child, visit);
    }
  }

  Status AddScratch(const std::string& variable, const std::string& name, const Type& type) {
    auto bytes = memory_.scratch.find(name);
    if (bytes == memory_.scratch.end())
      return Error{Code::kInvalidArgument, StrCat("No memory is given for scratch ", name, ".")};
    return AddBuffer(variable, type, bytes->second, Access::kReadWrite);
  }

  Status AddBuffer(const std::string& variable, const Type& type, std::span<std::byte> bytes, Access access) {
    if (SizeOf(type) > bytes.size()) {
      return Error{Code::kInvalidArgument,
                   StrCat("Buffer ", variable, " needs ", SizeOf(type), " bytes of memory, got ", bytes.size(), ".")};
    }
    Memory memory;
    memory.name = variable;
    memory.data = bytes.data();
    memory.size_bytes = bytes.size();
    memory.access = access;
    memory.granule = ContainsHalf(type) ? 2 : 4;
    globals_[variable] = {Ref::Space::kBuffer, Resolve(type), 0, kNone, int(program_.memories.size()), variable};
    program_.memories.push_back(memory);
    return {};
  }

  Status DeclareParams() {
    uint32_t offset = 0;
    for (const ParamDecl& param : module_->params) {
      offset = RoundUp(offset, AlignOf(param.type));
      Ref ref{Ref::Space::kRegister, param.type, AllocateGlobal(SlotsOf(param.type)), kNone, -1, param.name};
      if (offset + SizeOf(param.type) > memory_.params.size()) {
        return Error{Code::kInvalidArgument, StrCat("Param ", param.name, " needs ", offset + SizeOf(param.type),
                                                    " bytes of params, got ", memory_.params.size(), ".")};
      }
      params_.push_back({ref, offset});
      globals_[param.name] = ref;
      offset += SizeOf(param.type);
    }
    return {};
  }

  Status AddBinding(const VarDecl& var, const BindingInfo& binding) {
    using Kind = BindingInfo::Kind;
    if (binding.kind == Kind::kParams) {
      // Never written: uniforms are read-only.
      std::span<std::byte> bytes(const_cast<std::byte*>(memory_.params.data()), memory_.params.size());
      return AddBuffer(var.name, var.type, bytes, Access::kRead);
    }
    if (binding.kind == Kind::kScratch) {
      const bool by_tensor = memory_.scratch.count(binding.tensor) > 0;
      return AddScratch(var.name, by_tensor ? binding.tensor : binding.name, var.type);
    }
    auto bytes = memory_.tensors.find(binding.tensor);
    if (bytes == memory_.tensors.end()) {
      return Error{Code::kInvalidArgument, StrCat("No memory is given for tensor ", binding.tensor, ".")};
    }
    auto placement = memory_.placements.find(binding.tensor);
    std::span<std::byte> part = bytes->second;
    if (placement != memory_.placements.end() && placement->second.elements_per_part > 0) {
      const uint64_t part_bytes = uint64_t(placement->second.elements_per_part) * DTypeBits(placement->second.dtype) / 8;
      const uint64_t begin = std::min<uint64_t>(part_bytes * uint64_t(binding.part), part.size());
      part = part.subspan(begin, std::min<uint64_t>(part_bytes, part.size() - begin));
    }
    if (var.type.kind != Type::Kind::kTexture) return AddBuffer(var.name, var.type, part, binding.access);
    if (placement == memory_.placements.end()) {
      return Error{Code::kInvalidArgument, StrCat("No placement is given for texture ", binding.tensor, ".")};
    }
    Memory memory;
    memory.name = var.name;
    memory.data = part.data();
    memory.size_bytes = part.size();
    memory.access = binding.access;
    memory.dtype = placement->second.dtype;
    memory.granule = uint32_t(DTypeBits(memory.dtype) / 2);  // a texel
    memory.extent = placement->second.texture_extent;
    memory.texture_dim = var.type.texture_dim;
    if (memory.texture_dim == "buffer") memory.extent = {uint32_t(part.size() / memory.granule), 1, 1};
    if (uint64_t(memory.extent[0]) * memory.extent[1] * memory.extent[2] * memory.granule > part.size()) {
      return Error{Code::kInvalidArgument, StrCat("Texture ", binding.tensor, " has more texels than memory.")};
    }
    textures_[var.name] = int(program_.memories.size());
    program_.memories.push_back(memory);
    return {};
  }

  // The kernel's own module first, then those of value maps, each with its own names.
  struct ModuleScope {
    const Module* module = nullptr;
    std::map<std::string, int> functions;
    std::map<std::string, Ref> globals;
  };

  void DeclareModule(const Module& module) {
    const size_t index = modules_.size();
    modules_.emplace_back();
    modules_.back().module = &module;
    auto& globals = modules_.back().globals;
    for (const ConstDecl& decl : module.consts) {
      if (!decl.value) continue;
      const Type type = Resolve(decl.type ? *decl.type : decl.value->type);
      globals[decl.name] = {Ref::Space::kRegister, type, AllocateGlobal(SlotsOf(type)), kNone, -1, decl.name};
    }
    if (index == 0) program_.private_begin = next_;
    for (const VarDecl& var : module.vars) {
      if (var.binding >= 0) continue;
      const Type type = Resolve(var.type);
      if (var.space == "private") {
        globals[var.name] = {Ref::Space::kRegister, type, AllocateGlobal(SlotsOf(type)), kNone, -1, var.name};
      }
      if (var.space != "workgroup") continue;
      globals[var.name] = {Ref::Space::kShared, type, program_.shared_words, kNone, -1, var.name};
      const int32_t words = SlotsOf(type);
      const int32_t element = type.kind == Type::Kind::kArray ? SlotsOf(*type.element) : std::max(words, 1);
      program_.shared.push_back({var.name, program_.shared_words, words, element});
      program_.shared_words += words;
    }
    if (index == 0) program_.private_end = next_;
    for (const Function& f : module.functions) {
      modules_.back().functions[f.name] = int(functions_.size());
      FunctionInfo info;
      info.function = &f;
      info.module = int(index);
      if (!f.is_entry) {
        for (const Parameter& parameter : f.parameters) info.parameters.push_back(AllocateGlobal(SlotsOf(parameter.type)));
        info.result = AllocateGlobal(SlotsOf(f.result));
        info.return_address = AllocateGlobal(1);
      }
      functions_.push_back(info);
    }
  }

  Result<Program> Finish() {
    // Globals first, once.
    program_.init_begin = Here();
    for (size_t m = 0; m < modules_.size(); ++m) {
      module_index_ = m;
      for (const ConstDecl& decl : modules_[m].module->consts) {
        if (decl.value) EvalInitial(modules_[m].globals[decl.name], decl.value.get());
      }
      for (const VarDecl& var : modules_[m].module->vars) {
        if (var.binding < 0 && var.space == "private") EvalInitial(modules_[m].globals[var.name], var.value.get());
      }
    }
    module_index_ = 0;
    for (const auto& [ref, offset] : params_) {
      int32_t slot = ref.base;
      LoadParam(ref.type, offset, slot);
    }
    Emit(Op::kEnd, 1, kNone);
    int entry = -1;
    for (size_t f = 0; f < functions_.size(); ++f) {
      if (functions_[f].function->is_entry) entry = int(f);
      CompileFunction(int(f));
    }
    if (error_) return *error_;
    if (entry < 0) return Error{Code::kInvalidArgument, StrCat("Kernel ", module_->name, " has no entry point.")};
    program_.entry = functions_[size_t(entry)].start;
    for (Instruction& i : program_.code) {
      if (i.op == Op::kCall) i.b = functions_[size_t(i.b)].start;
      if (i.op == Op::kBarrier || i.op == Op::kSubgroup) program_.needs_all_invocations = true;
    }
    program_.slots = high_;
    return std::move(program_);
  }

  void EvalInitial(const Ref& ref, const Expr* value) {
    const int32_t saved = next_;
    if (value != nullptr) {
      Eval(*value, ref.base);
    } else {
      Emit(Op::kZero, 1, ref.base, kNone, kNone, SlotsOf(ref.type));
    }
    next_ = saved;
  }

  // Params do not change during a dispatch: they become part of the image of globals.
  void LoadParam(const Type& unresolved, uint32_t offset, int32_t& slot) {
    const Type type = Resolve(unresolved);
    if (type.kind == Type::Kind::kScalar || type.kind == Type::Kind::kVector) {
      const uint32_t bytes = type.scalar == Scalar::kF16 ? 2 : 4;
      for (int lane = 0; lane < Lanes(type); ++lane) {
        uint32_t bits = 0;
        std::copy_n(memory_.params.data() + offset + uint32_t(lane) * bytes, bytes, reinterpret_cast<std::byte*>(&bits));
        if (bytes == 2) bits = std::bit_cast<uint32_t>(F16ToF32(uint16_t(bits)));
        Emit(Op::kMove, 1, slot++, ConstantU(bits));
      }
    } else if (type.kind == Type::Kind::kArray) {
      for (uint32_t i = 0; i < type.count; ++i) LoadParam(*type.element, offset + i * StrideOf(*type.element), slot);
    } else if (type.kind == Type::Kind::kStruct) {
      if (const StructDecl* decl = FindStruct(type.name)) {
        uint32_t at = 0;
        for (const StructMember& member : decl->members) {
          at = RoundUp(at, AlignOf(member.type));
          LoadParam(member.type, offset + at, slot);
          at += SizeOf(member.type);
        }
      }
    } else {
      Fail({}, StrCat("a param of type ", type.ToString(), " is not possible"));
    }
  }

  void CompileFunction(int index) {
    FunctionInfo& info = functions_[size_t(index)];
    const Function& f = *info.function;
    current_ = &info;
    module_index_ = size_t(info.module);
    at_ = f.at;
    next_ = high_;
    info.start = Here();
    PushScope();
    for (size_t i = 0; i < f.parameters.size(); ++i) {
      const Parameter& parameter = f.parameters[i];
      const Type type = Resolve(parameter.type);
      Ref ref{Ref::Space::kRegister, type, 0, kNone, -1, parameter.name};
      if (f.is_entry) {
        ref.base = Temp(SlotsOf(type));
        DeclareBuiltin(parameter, ref);
      } else if (type.kind == Type::Kind::kPointer) {
        ref.type = Resolve(*type.element);
        ref.dyn = info.parameters[i];
        if (type.name == "workgroup") ref.space = Ref::Space::kShared;
        if (type.name == "storage" || type.name == "uniform") {
          Fail(f.at, StrCat("parameter ", parameter.name, " is a pointer to ", type.name, " memory"));
        }
      } else {
        ref.base = info.parameters[i];
      }
      scopes_.back()[parameter.name] = ref;
    }
    for (const StmtPtr& s : f.body) Compile(*s);
    if (f.is_entry) {
      Emit(Op::kEnd, 1, kNone);
    } else {
      Emit(Op::kReturn, 1, kNone, info.return_address);
    }
    PopScope();
  }

  void DeclareBuiltin(const Parameter& parameter, const Ref& ref) {
    static constexpr std::pair<const char*, BuiltinInput> kInputs[] = {
        {"workgroup_id", BuiltinInput::kWorkgroupId},
        {"local_invocation_id", BuiltinInput::kLocalInvocationId},
        {"local_invocation_index", BuiltinInput::kLocalInvocationIndex},
        {"global_invocation_id", BuiltinInput::kGlobalInvocationId},
        {"num_workgroups", BuiltinInput::kNumWorkgroups},
        {"subgroup_size", BuiltinInput::kSubgroupSize},
        {"subgroup_invocation_id", BuiltinInput::kSubgroupInvocationId},
        {"subgroup_id", BuiltinInput::kSubgroupId},
        {"num_subgroups", BuiltinInput::kNumSubgroups},
    };
    for (const auto& [name, input] : kInputs) {
      if (parameter.builtin == name) {
        program_.builtins.push_back({input, ref.base});
        return;
      }
    }
    Fail(current_->function->at, StrCat("builtin ", parameter.builtin, " is not known"));
  }

  // ---- Statements ---------------------------------------------------------------------------------------------------

  struct Loop {
    std::vector<int32_t> breaks, continues;
    bool is_switch = false;
  };

  void CompileBody(const std::vector<StmtPtr>& body) {
    const int32_t saved = next_;
    PushScope();
    for (const StmtPtr& s : body) Compile(*s);
    PopScope();
    next_ = saved;
  }

  void Compile(const Stmt& s) {
    if (s.at.line != 0) at_ = s.at;
    switch (s.kind) {
      case StmtKind::kLet:
      case StmtKind::kVar:
      case StmtKind::kConst: return CompileDeclaration(s);
      default: break;
    }
    const int32_t saved = next_;
    switch (s.kind) {
      case StmtKind::kLet:
      case StmtKind::kVar:
      case StmtKind::kConst: break;
      case StmtKind::kAssign: CompileAssign(s); break;
      case StmtKind::kIncrement: {
        const Ref ref = RefOf(*s.target);
        const int32_t old = Load(ref, kNone);
        const int32_t one = ConstantU(1);
        const Op op = s.op == "++" ? Op::kAddI : Op::kSubI;
        if (ref.space == Ref::Space::kRegister && ref.dyn == kNone) {
          Emit(op, 1, ref.base, old, one);
        } else {
          const int32_t value = Temp(1);
          Emit(op, 1, value, old, one);
          Store(ref, value);
        }
        break;
      }
      case StmtKind::kCall: Eval(*s.value, kNone); break;
      case StmtKind::kIf: {
        std::vector<int32_t> to_else;
        JumpUnless(*s.value, to_else);
        CompileBody(s.body);
        if (s.else_body.empty()) {
          PatchAll(to_else, Here());
        } else {
          const int32_t over = Emit(Op::kJump, 1, kNone);
          PatchAll(to_else, Here());
          CompileBody(s.else_body);
          Patch(over, Here());
        }
        break;
      }
      case StmtKind::kFor: {
        PushScope();
        if (s.init) Compile(*s.init);
        const int32_t start = Here();
        Loop loop;
        if (s.value) JumpUnless(*s.value, loop.breaks);
        loops_.push_back(&loop);
        CompileBody(s.body);
        loops_.pop_back();
        PatchAll(loop.continues, Here());
        if (s.update) Compile(*s.update);
        if (s.at.line != 0) at_ = s.at;
        Emit(Op::kJump, 1, kNone, kNone, start);
        PatchAll(loop.breaks, Here());
        PopScope();
        break;
      }
      case StmtKind::kWhile: {
        const int32_t start = Here();
        Loop loop;
        JumpUnless(*s.value, loop.breaks);
        loops_.push_back(&loop);
        CompileBody(s.body);
        loops_.pop_back();
        PatchAll(loop.continues, start);
        if (s.at.line != 0) at_ = s.at;
        Emit(Op::kJump, 1, kNone, kNone, start);
        PatchAll(loop.breaks, Here());
        break;
      }
      case StmtKind::kLoop: {
        const int32_t start = Here();
        Loop loop;
        loops_.push_back(&loop);
        PushScope();  // names of the body are visible in the continuing block
        for (const StmtPtr& child : s.body) Compile(*child);
        PatchAll(loop.continues, Here());
        for (const StmtPtr& child : s.else_body) Compile(*child);
        PopScope();
        loops_.pop_back();
        if (s.at.line != 0) at_ = s.at;
        Emit(Op::kJump, 1, kNone, kNone, start);
        PatchAll(loop.breaks, Here());
        break;
      }
      case StmtKind::kSwitch: CompileSwitch(s); break;
      case StmtKind::kBreak: loops_.back()->breaks.push_back(Emit(Op::kJump, 1, kNone)); break;
      case StmtKind::kContinue:
        for (size_t i = loops_.size(); i-- > 0;) {
          if (loops_[i]->is_switch) continue;
          loops_[i]->continues.push_back(Emit(Op::kJump, 1, kNone));
          break;
        }
        break;
      case StmtKind::kBreakIf: {
        const int32_t condition = Eval(*s.value, kNone);
        loops_.back()->breaks.push_back(Emit(Op::kJumpIfNot0, 1, kNone, condition));
        break;
      }
      case StmtKind::kReturn:
        if (s.value) Eval(*s.value, current_->result);
        if (current_->function->is_entry) {
          Emit(Op::kEnd, 1, kNone);
        } else {
          Emit(Op::kReturn, 1, kNone, current_->return_address);
        }
        break;
      case StmtKind::kBlock: CompileBody(s.body); break;
    }
    next_ = saved;
  }

  void CompileDeclaration(const Stmt& s) {
    const Type declared = s.type ? *s.type : s.value->type;
    if (s.value && s.value->type.kind == Type::Kind::kPointer) {  // let p = &x: another name for the place
      Ref ref = RefOf(*s.value);
      if (ref.dyn != kNone) {  // later changes of an index do not move it
        const int32_t fixed = Temp(1);
        Copy(fixed, ref.dyn, 1);
        ref.dyn = fixed;
      }
      scopes_.back()[s.name] = ref;
      return;
    }
    const Type type = Resolve(declared);
    const int32_t slots = SlotsOf(type);
    const int32_t at = Temp(slots);
    const int32_t saved = next_;
    if (s.value) {
      Eval(*s.value, at);
    } else {
      Emit(Op::kZero, 1, at, kNone, kNone, slots);
    }
    next_ = saved;
    scopes_.back()[s.name] = {Ref::Space::kRegister, type, at, kNone, -1, s.name};
  }

  static bool Mentions(const Expr& e, const std::string& name) {
    if (e.kind == ExprKind::kName && e.name == name) return true;
    for (const ExprPtr& arg : e.args) {
      if (Mentions(*arg, name)) return true;
    }
    return false;
  }
  bool HasCall(const Expr& e) const {
    if (e.kind == ExprKind::kCall && modules_[module_index_].functions.count(e.name)) return true;
    for (const ExprPtr& arg : e.args) {
      if (HasCall(*arg)) return true;
    }
    return false;
  }

  void CompileAssign(const Stmt& s) {
    if (!s.target) {
      Eval(*s.value, kNone);
      return;
    }
    const Ref ref = RefOf(*s.target);
    const int32_t slots = SlotsOf(ref.type);
    const bool is_plain = ref.space == Ref::Space::kRegister && ref.dyn == kNone;
    if (s.op == "=") {
      // Evaluated in place where nothing of the old value can be read after the first write.
      const bool direct = is_plain &&
                          (!Mentions(*s.value, ref.name) ||
                           (s.value->kind == ExprKind::kBinary && s.value->op != "&&" && s.value->op != "||")) &&
                          !HasCall(*s.value);
      const int32_t value = Eval(*s.value, direct ? ref.base : kNone);
      if (!direct) Store(ref, value);
      return;
    }
    const std::string op = s.op.substr(0, s.op.size() - 1);
    const int32_t right = Eval(*s.value, kNone);
    const int32_t left = Load(ref, kNone);
    const int32_t value = Binary(op, ref.type, left, s.value->type, right, ref.type, is_plain ? ref.base : kNone);
    if (!is_plain || value != ref.base) {
      if (is_plain) {
        Copy(ref.base, value, slots);
      } else {
        Store(ref, value);
      }
    }
  }

  void CompileSwitch(const Stmt& s) {
    const int32_t value = Eval(*s.value, kNone);
    std::vector<std::vector<int32_t>> to_case(s.cases.size());
    int default_case = -1;
    for (size_t c = 0; c < s.cases.size(); ++c) {
      if (s.cases[c].is_default) default_case = int(c);
      for (const ExprPtr& selector : s.cases[c].selectors) {
        const int32_t equal = Temp(1);
        Emit(Op::kEq, 1, equal, value, Eval(*selector, kNone));
        to_case[c].push_back(Emit(Op::kJumpIfNot0, 1, kNone, equal));
      }
    }
    Loop loop;
    loop.is_switch = true;
    const int32_t otherwise = Emit(Op::kJump, 1, kNone);
    (default_case >= 0 ? to_case[size_t(default_case)] : loop.breaks).push_back(otherwise);
    loops_.push_back(&loop);
    for (size_t c = 0; c < s.cases.size(); ++c) {
      PatchAll(to_case[c], Here());
      CompileBody(s.cases[c].body);
      loop.breaks.push_back(Emit(Op::kJump, 1, kNone));
    }
    loops_.pop_back();
    PatchAll(loop.breaks, Here());
  }

  void JumpUnless(const Expr& e, std::vector<int32_t>& jumps) {
    if (e.kind == ExprKind::kBinary && e.op == "&&" && !e.constant) {
      JumpUnless(*e.args[0], jumps);
      JumpUnless(*e.args[1], jumps);
      return;
    }
    const int32_t saved = next_;
    if (e.kind == ExprKind::kBinary && (e.op == "<" || e.op == ">") && !e.constant && e.args[0]->type.IsScalar() &&
        !IsFloatScalar(e.args[0]->type.scalar)) {
      int32_t a = EvalBeside(*e.args[0], *e.args[1]);
      int32_t b = Eval(*e.args[1], kNone);
      if (e.op == ">") std::swap(a, b);
      const bool is_signed = !IsUnsignedScalar(e.args[0]->type.scalar);
      jumps.push_back(Emit(is_signed ? Op::kJumpUnlessLtI : Op::kJumpUnlessLtU, 1, kNone, a, b));
    } else {
      const int32_t condition = Eval(e, kNone);
      jumps.push_back(Emit(Op::kJumpIfZero, 1, kNone, condition));
    }
    next_ = saved;
  }

  // ---- Places -------------------------------------------------------------------------------------------------------

  bool IsPlace(const Expr& e) const {
    switch (e.kind) {
      case ExprKind::kName: return Lookup(e.name) != nullptr;
      case ExprKind::kUnary: return e.op == "&" || e.op == "*";
      case ExprKind::kIndex: return true;
      case ExprKind::kMember: return e.name.size() == 1 || !IsVectorValue(*e.args[0]);
      default: return false;
    }
  }
  // True for vectors and pointers to them.
  static bool IsVectorValue(const Expr& e) {
    return e.type.IsVector() || (e.type.kind == Type::Kind::kPointer && e.type.element->IsVector());
  }

  Ref RefOf(const Expr& e) {
    if (e.at.line != 0) at_ = e.at;
    switch (e.kind) {
      case ExprKind::kName: {
        const Ref* ref = Lookup(e.name);
        if (ref != nullptr) return *ref;
        Fail(e.at, StrCat("name ", e.name, " is not known"));
        return {Ref::Space::kRegister, e.type, ConstantU(0), kNone, -1, e.name};
      }
      case ExprKind::kUnary:
        if (e.op == "&" || e.op == "*") return RefOf(*e.args[0]);
        break;
      case ExprKind::kIndex: return IndexRef(e);
      case ExprKind::kMember:
        if (IsPlace(e)) return MemberRef(e);
        break;
      default: break;
    }
    return {Ref::Space::kRegister, Resolve(e.type), Eval(e, kNone), kNone, -1, "value"};
  }

  Ref IndexRef(const Expr& e) {
    Ref ref = RefOf(*e.args[0]);
    const Type container = Resolve(ref.type);
    uint32_t count = 0;
    Type element;
    switch (container.kind) {
      case Type::Kind::kArray:
        element = Resolve(*container.element);
        count = container.count;
        break;
      case Type::Kind::kVector:
        element = Type::Of(container.scalar);
        count = container.rows;
        break;
      default: Fail(e.at, StrCat("a ", container.ToString(), " has no elements")); return ref;
    }
    int32_t stride = SlotsOf(element);
    if (ref.space == Ref::Space::kBuffer) {
      stride = int32_t(StrideOf(element));
      if (container.kind == Type::Kind::kArray && count == 0) {
        count = uint32_t((program_.memories[size_t(ref.buffer)].size_bytes - uint64_t(ref.base)) / uint64_t(stride));
      }
    }
    ref.type = element;
    const std::optional<Literal>& constant = e.args[1]->constant;
    const bool is_literal = e.args[1]->kind == ExprKind::kLiteral;
    if (constant || is_literal) {
      const int64_t index = constant ? constant->i : e.args[1]->literal.i;
      if (index >= 0 && index < int64_t(count)) {
        ref.base += int32_t(index) * stride;
        return ref;
      }
    }
    const int32_t index = Eval(*e.args[1], kNone);
    at_ = e.at.line != 0 ? e.at : at_;
    const int32_t dyn = Temp(1);
    const int is_signed = e.args[1]->type.scalar != Scalar::kU32;
    program_.index_names[Emit(Op::kIndex, 1, dyn, index, int32_t(count), ref.dyn, stride, is_signed)] = ref.name;
    ref.dyn = dyn;
    return ref;
  }

  Ref MemberRef(const Expr& e) {
    Ref ref = RefOf(*e.args[0]);
    const Type container = Resolve(ref.type);
    if (container.kind == Type::Kind::kVector) {
      const int lane = ComponentIndex(e.name[0]);
      ref.base += lane * (ref.space != Ref::Space::kBuffer ? 1 : container.scalar == Scalar::kF16 ? 2 : 4);
      ref.type = Type::Of(container.scalar);
      return ref;
    }
    const StructDecl* decl = container.kind == Type::Kind::kStruct ? FindStruct(container.name) : nullptr;
    if (decl == nullptr) {
      Fail(e.at, StrCat("a ", container.ToString(), " has no member ", e.name));
      return ref;
    }
    int32_t slot = 0;
    uint32_t offset = 0;
    for (const StructMember& member : decl->members) {
      offset = RoundUp(offset, AlignOf(member.type));
      if (member.name == e.name) {
        ref.base += ref.space == Ref::Space::kBuffer ? int32_t(offset) : slot;
        ref.type = Resolve(member.type);
        ref.name = StrCat(ref.name, ".", e.name);
        return ref;
      }
      slot += SlotsOf(member.type);
      offset += SizeOf(member.type);
    }
    Fail(e.at, StrCat("struct ", container.name, " has no member ", e.name));
    return ref;
  }

  int32_t Load(const Ref& ref, int32_t want) {
    const int32_t slots = SlotsOf(ref.type);
    switch (ref.space) {
      case Ref::Space::kRegister: {
        if (ref.dyn == kNone) return Place(ref.base, want, slots);
        const int32_t dst = Want(want, slots);
        Emit(Op::kCopyFrom, 1, dst, ref.base, ref.dyn, slots);
        return dst;
      }
      case Ref::Space::kShared: {
        const int32_t dst = Want(want, slots);
        Emit(Op::kLoadShared, 1, dst, ref.dyn, ref.base, slots);
        return dst;
      }
      case Ref::Space::kBuffer: {
        const int32_t dst = Want(want, slots);
        int32_t slot = dst;
        TransferBuffer(Op::kLoadBuffer, ref.type, ref, ref.base, slot);
        return dst;
      }
    }
    return ref.base;
  }

  void Store(const Ref& ref, int32_t value) {
    const int32_t slots = SlotsOf(ref.type);
    switch (ref.space) {
      case Ref::Space::kRegister:
        if (ref.dyn == kNone) {
          Copy(ref.base, value, slots);
        } else {
          Emit(Op::kCopyTo, 1, ref.base, value, ref.dyn, slots);
        }
        break;
      case Ref::Space::kShared: Emit(Op::kStoreShared, 1, value, ref.dyn, ref.base, slots); break;
      case Ref::Space::kBuffer: {
        int32_t slot = value;
        TransferBuffer(Op::kStoreBuffer, ref.type, ref, ref.base, slot);
        break;
      }
    }
  }

  void TransferBuffer(Op op, const Type& unresolved, const Ref& ref, int32_t base, int32_t& slot) {
    const Type type = Resolve(unresolved);
    switch (type.kind) {
      case Type::Kind::kScalar:
      case Type::Kind::kVector: {
        const auto element = type.scalar == Scalar::kF16 ? BufferElement::kHalf : BufferElement::kWord;
        Emit(op, Lanes(type), slot, ref.dyn, base, ref.buffer, 0, int(element));
        slot += Lanes(type);
        break;
      }
      case Type::Kind::kArray:
        for (uint32_t i = 0; i < type.count; ++i) {
          TransferBuffer(op, *type.element, ref, base + int32_t(i * StrideOf(*type.element)), slot);
        }
        break;
      case Type::Kind::kStruct:
        if (const StructDecl* decl = FindStruct(type.name)) {
          uint32_t offset = 0;
          for (const StructMember& member : decl->members) {
            offset = RoundUp(offset, AlignOf(member.type));
            TransferBuffer(op, member.type, ref, base + int32_t(offset), slot);
            offset += SizeOf(member.type);
          }
        }
        break;
      default: Fail(at_, StrCat("a ", type.ToString(), " can't be moved to or from a buffer"));
    }
  }

  // ---- Expressions --------------------------------------------------------------------------------------------------

  uint32_t LiteralBits(const Literal& literal, Scalar scalar) const {
    switch (scalar) {
      case Scalar::kF32:
      case Scalar::kAbstractFloat: return std::bit_cast<uint32_t>(literal.is_float ? float(literal.f) : float(literal.i));
      case Scalar::kF16:
        return std::bit_cast<uint32_t>(F16ToF32(F32ToF16(literal.is_float ? float(literal.f) : float(literal.i))));
      default: return literal.is_float ? uint32_t(int64_t(literal.f)) : uint32_t(literal.i);
    }
  }

  // The value of `e`; kept apart from variables where evaluating `next` could change them.
  int32_t EvalBeside(const Expr& e, const Expr& next) {
    const int32_t slot = Eval(e, kNone);
    if (slot < 0 || !HasCall(next)) return slot;
    const int32_t slots = SlotsOf(e.type);
    const int32_t kept = Temp(slots);
    Copy(kept, slot, slots);
    return kept;
  }
  std::vector<int32_t> EvalArgs(const std::vector<ExprPtr>& args) {
    std::vector<int32_t> slots;
    for (size_t i = 0; i < args.size(); ++i) {
      bool later_call = false;
      for (size_t k = i + 1; k < args.size(); ++k) later_call = later_call || HasCall(*args[k]);
      int32_t slot = Eval(*args[i], kNone);
      if (later_call && slot >= 0) {
        const int32_t count = SlotsOf(args[i]->type);
        const int32_t kept = Temp(count);
        Copy(kept, slot, count);
        slot = kept;
      }
      slots.push_back(slot);
    }
    return slots;
  }

  int32_t Eval(const Expr& e, int32_t want) {
    if (e.at.line != 0) at_ = e.at;
    if (e.constant && e.type.IsScalar()) return Place(ConstantU(LiteralBits(*e.constant, e.type.scalar)), want, 1);
    if (e.type.kind == Type::Kind::kPointer) {  // as an argument: slot or workgroup word
      const Ref ref = RefOf(e);
      if (ref.space == Ref::Space::kBuffer) return Fail(e.at, "pointers to storage memory are not values");
      if (ref.dyn == kNone) return Place(ConstantU(uint32_t(ref.base)), want, 1);
      const int32_t dst = Want(want, 1);
      Emit(Op::kAddI, 1, dst, ref.dyn, ConstantU(uint32_t(ref.base)));
      return dst;
    }
    switch (e.kind) {
      case ExprKind::kLiteral: return Place(ConstantU(LiteralBits(e.literal, e.type.scalar)), want, 1);
      case ExprKind::kName:
      case ExprKind::kIndex: return Load(RefOf(e), want);
      case ExprKind::kMember: return EvalMember(e, want);
      case ExprKind::kUnary: {
        if (e.op == "&" || e.op == "*") return Load(RefOf(e), want);
        const int32_t a = Eval(*e.args[0], kNone);
        const int n = SlotsOf(e.type);
        const Scalar scalar = e.type.scalar;
        if (e.op == "-") return EmitLanes(IsFloatScalar(scalar) ? Op::kNegF : Op::kNegI, n, want, e.type, {{a, n}});
        if (e.op == "!") return EmitLanes(Op::kNotB, n, want, e.type, {{a, n}});
        if (e.op == "~") return EmitLanes(Op::kNot, n, want, e.type, {{a, n}});
        return Fail(e.at, StrCat("operator ", e.op, " is not known"));
      }
      case ExprKind::kBinary: {
        if (e.op == "&&" || e.op == "||") {
          const int32_t dst = want == kNone ? Temp(1) : want;
          Eval(*e.args[0], dst);
          const int32_t over = Emit(e.op == "&&" ? Op::kJumpIfZero : Op::kJumpIfNot0, 1, kNone, dst);
          Eval(*e.args[1], dst);
          Patch(over, Here());
          return dst;
        }
        const int32_t a = EvalBeside(*e.args[0], *e.args[1]);
        const int32_t b = Eval(*e.args[1], kNone);
        if (e.at.line != 0) at_ = e.at;
        return Binary(e.op, e.args[0]->type, a, e.args[1]->type, b, e.type, want);
      }
      case ExprKind::kCall: return EvalCall(e, want);
      case ExprKind::kConstruct: return EvalConstruct(e, want);
      case ExprKind::kBitcast: return EvalBitcast(e, want);
      case ExprKind::kTensorCall: return EvalTensorCall(e, want);
    }
    return ConstantU(0);
  }

  int32_t EvalMember(const Expr& e, int32_t want) {
    const Expr& object = *e.args[0];
    if (object.kind == ExprKind::kName && Lookup(object.name) == nullptr) {
      auto tensor = tensors_.find(object.name);
      if (tensor != tensors_.end()) {
        const TensorDecl& decl = *tensor->second.first;
        for (size_t axis = 0; axis < decl.axes.size(); ++axis) {
          if (decl.axes[axis] == e.name) {
            return Place(ConstantU(uint32_t(tensor->second.second.tensor->shape[int(axis)])), want, 1);
          }
        }
      }
    }
    if (IsPlace(e)) return Load(RefOf(e), want);
    const int32_t from = object.type.kind == Type::Kind::kPointer ? Load(RefOf(object), kNone) : Eval(object, kNone);
    const int n = int(e.name.size());
    int32_t pattern = 0;
    bool in_order = true;
    for (int i = 0; i < n; ++i) {
      const int lane = ComponentIndex(e.name[size_t(i)]);
      pattern |= lane << (2 * i);
      in_order = in_order && lane == ComponentIndex(e.name[0]) + i;
    }
    if (in_order) return Place(from + (pattern & 3), want, n);
    const int32_t dst = Temp(n);
    Emit(Op::kSwizzle, n, dst, from, kNone, kNone, pattern);
    return Place(dst, want, n);
  }

  int32_t Binary(const std::string& op, const Type& a_type, int32_t a, const Type& b_type, int32_t b, const Type& result,
                 int32_t want) {
    const int a_lanes = SlotsOf(a_type), b_lanes = SlotsOf(b_type);
    const int n = std::max(a_lanes, b_lanes);
    const Scalar scalar = a_type.scalar;
    const bool is_float = IsFloatScalar(scalar), is_unsigned = IsUnsignedScalar(scalar);
    auto pick = [&](Op f, Op i, Op u) { return is_float ? f : is_unsigned ? u : i; };
    Op code = Op::kEnd;
    bool swap = false;
    if (op == "+") code = pick(Op::kAddF, Op::kAddI, Op::kAddI);
    if (op == "-") code = pick(Op::kSubF, Op::kSubI, Op::kSubI);
    if (op == "*") code = pick(Op::kMulF, Op::kMulI, Op::kMulI);
    if (op == "/") code = pick(Op::kDivF, Op::kDivI, Op::kDivU);
    if (op == "%") code = pick(Op::kRemF, Op::kRemI, Op::kRemU);
    if (op == "&") code = Op::kAnd;
    if (op == "|") code = Op::kOr;
    if (op == "^") code = Op::kXor;
    if (op == "<<") code = Op::kShl;
    if (op == ">>") code = pick(kNoOp, Op::kShrI, Op::kShrU);
    if (op == "==") code = pick(Op::kEqF, Op::kEq, Op::kEq);
    if (op == "!=") code = pick(Op::kNeF, Op::kNe, Op::kNe);
    if (op == "<" || op == ">") code = pick(Op::kLtF, Op::kLtI, Op::kLtU);
    if (op == "<=" || op == ">=") code = pick(Op::kLeF, Op::kLeI, Op::kLeU);
    if (op == ">" || op == ">=") swap = true;
    if (code == Op::kEnd) return Fail(at_, StrCat("operator ", op, " is not known"));
    if (swap) return EmitLanes(code, n, want, result, {{b, b_lanes}, {a, a_lanes}});
    return EmitLanes(code, n, want, result, {{a, a_lanes}, {b, b_lanes}});
  }

  // `n` lanes of type `from` as type `to`.
  int32_t Convert(int32_t slot, Scalar from, Scalar to, int n, int32_t want) {
    const bool from_float = IsFloatScalar(from), to_float = IsFloatScalar(to);
    const Type type = Type::Of(to);
    if (to == Scalar::kBool) {
      if (from == Scalar::kBool) return Place(slot, want, n);
      return EmitLanes(from_float ? Op::kFloatToB : Op::kToB, n, want, type, {{slot, n}});
    }
    if (from_float && to_float) {
      if (to != Scalar::kF16 || from == Scalar::kF16) return Place(slot, want, n);
      return EmitLanes(Op::kRoundF16, n, want, type, {{slot, n}});
    }
    if (from_float) return EmitLanes(to == Scalar::kU32 ? Op::kFloatToU : Op::kFloatToI, n, want, type, {{slot, n}});
    if (to_float) return EmitLanes(IsUnsignedScalar(from) ? Op::kUToFloat : Op::kIToFloat, n, want, type, {{slot, n}});
    return Place(slot, want, n);
  }

  int32_t EvalConstruct(const Expr& e, int32_t want) {
    const Type type = Resolve(e.type);
    const int32_t slots = SlotsOf(type);
    if (e.args.empty()) {
      const int32_t dst = Want(want, slots);
      Emit(Op::kZero, 1, dst, kNone, kNone, slots);
      return dst;
    }
    switch (type.kind) {
      case Type::Kind::kScalar: return Convert(Eval(*e.args[0], kNone), e.args[0]->type.scalar, type.scalar, 1, want);
      case Type::Kind::kVector: {
        if (e.args.size() == 1 && e.args[0]->type.IsScalar()) {
          const int32_t one = Convert(Eval(*e.args[0], kNone), e.args[0]->type.scalar, type.scalar, 1, kNone);
          return EmitLanes(Op::kMove, slots, want, type, {{one, 1}});
        }
        const int32_t dst = Want(want, slots);
        int32_t at = dst;
        for (const ExprPtr& arg : e.args) {
          const int n = SlotsOf(arg->type);
          const int32_t saved = next_;
          Convert(Eval(*arg, arg->type.scalar == type.scalar ? at : kNone), arg->type.scalar, type.scalar, n, at);
          next_ = saved;
          at += n;
        }
        return dst;
      }
      case Type::Kind::kArray:
      case Type::Kind::kStruct: {
        const int32_t dst = Want(want, slots);
        int32_t at = dst;
        for (const ExprPtr& arg : e.args) {
          const int32_t saved = next_;
          Eval(*arg, at);
          next_ = saved;
          at += SlotsOf(arg->type);
        }
        return dst;
      }
      default: return Fail(e.at, StrCat("a ", type.ToString(), " can't be constructed"));
    }
  }

  int32_t EvalBitcast(const Expr& e, int32_t want) {
    const Type& from = e.args[0]->type;
    const bool from_half = from.scalar == Scalar::kF16, to_half = e.type.scalar == Scalar::kF16;
    const int32_t value = Eval(*e.args[0], kNone);
    const int32_t n = SlotsOf(e.type);
    if (from_half == to_half) return Place(value, want, n);
    const int32_t dst = Temp(n);
    const int words = from_half ? n : SlotsOf(from);
    for (int w = 0; w < words; ++w) {
      if (from_half) {
        Emit(Op::kPack, 2, dst + w, value + 2 * w, kNone, kNone, int32_t(Packing::kHalfBits));
      } else {
        Emit(Op::kUnpack, 2, dst + 2 * w, value + w, kNone, kNone, int32_t(Packing::kHalfBits));
      }
    }
    return Place(dst, want, n);
  }

  int32_t EvalCall(const Expr& e, int32_t want) {
    const auto& functions = modules_[module_index_].functions;
    auto user = functions.find(e.name);
    if (user != functions.end()) {
      const FunctionInfo& callee = functions_[size_t(user->second)];
      const std::vector<int32_t> args = EvalArgs(e.args);
      for (size_t i = 0; i < args.size(); ++i) {
        Copy(callee.parameters[i], args[i], e.args[i]->type.kind == Type::Kind::kPointer ? 1 : SlotsOf(e.args[i]->type));
      }
      if (e.at.line != 0) at_ = e.at;
      Emit(Op::kCall, 1, callee.return_address, kNone, user->second);
      const int32_t slots = SlotsOf(callee.function->result);
      if (slots == 0) return callee.result;
      const int32_t dst = Want(want, slots);
      Copy(dst, callee.result, slots);
      return dst;
    }
    return EvalBuiltin(e, want);
  }

  int32_t EvalBuiltin(const Expr& e, int32_t want) {
    const int n = SlotsOf(e.type);
    if (const BuiltinOp* builtin = FindBuiltinOp(e.name)) {
      if (int(e.args.size()) != builtin->arity) return Fail(e.at, StrCat(e.name, " takes ", builtin->arity, " arguments"));
      const Scalar scalar = e.args[0]->type.scalar;
      const Op op = IsFloatScalar(scalar) ? builtin->f : IsUnsignedScalar(scalar) ? builtin->u : builtin->i;
      if (op == kNoOp) return Fail(e.at, StrCat(e.name, " does not take ", e.args[0]->type.ToString()));
      const std::vector<int32_t> a = EvalArgs(e.args);
      if (e.at.line != 0) at_ = e.at;
      auto lanes = [&](size_t i) { return SlotsOf(e.args[i]->type); };
      switch (builtin->arity) {
        case 1: return EmitLanes(op, n, want, e.type, {{a[0], lanes(0)}});
        case 2: return EmitLanes(op, n, want, e.type, {{a[0], lanes(0)}, {a[1], lanes(1)}});
        case 3: return EmitLanes(op, n, want, e.type, {{a[0], lanes(0)}, {a[1], lanes(1)}, {a[2], lanes(2)}});
        default: {
          const int32_t dst = Temp(n);
          int flags = 0;
          for (size_t i = 0; i < 3; ++i) flags |= lanes(i) == 1 && n > 1 ? 1 << i : 0;
          Emit(op, n, dst, a[0], a[1], a[2], a[3], flags);
          return Place(dst, want, n);
        }
      }
    }
    for (const PackingName& packing : kPackings) {
      const bool is_pack = e.name == packing.pack;
      if (!is_pack && e.name != packing.unpack) continue;
      const int32_t value = Eval(*e.args[0], kNone);
      const int32_t dst = Temp(is_pack ? 1 : packing.lanes);
      Emit(is_pack ? Op::kPack : Op::kUnpack, packing.lanes, dst, value, kNone, kNone, int32_t(packing.packing));
      return Place(dst, want, is_pack ? 1 : packing.lanes);
    }
    if (const AtomicName* atomic = FindNamed(kAtomics, e.name)) return EvalAtomic(e, atomic->op, want);
    if (const SubgroupName* subgroup = FindNamed(kSubgroupFunctions, e.name)) return EvalSubgroup(e, subgroup->op, want);
    if (e.name.starts_with("subgroupMatrix")) return EvalMatrix(e, want);
    if (e.name == "workgroupBarrier") return EmitBarrier(kWorkgroupMemory);
    if (e.name == "storageBarrier") return EmitBarrier(kStorageMemory);
    if (e.name == "workgroupUniformLoad") {
      const Ref ref = RefOf(*e.args[0]);
      EmitBarrier(kWorkgroupMemory);
      const int32_t value = Load(ref, want);
      EmitBarrier(kWorkgroupMemory);
      return value;
    }
    if (e.name == "textureLoad" || e.name == "textureStore") return EvalTexture(e, want);
    if (e.name == "arrayLength") {
      const Ref ref = RefOf(*e.args[0]);
      const Type array = Resolve(ref.type);
      uint64_t count = array.count;
      if (count == 0 && ref.buffer >= 0) {
        count = (program_.memories[size_t(ref.buffer)].size_bytes - uint64_t(ref.base)) / StrideOf(*array.element);
      }
      return Place(ConstantU(uint32_t(count)), want, 1);
    }
    const std::vector<int32_t> a = EvalArgs(e.args);
    if (e.at.line != 0) at_ = e.at;
    const int in = e.args.empty() ? 0 : SlotsOf(e.args[0]->type);
    const Scalar scalar = e.args.empty() ? Scalar::kF32 : e.args[0]->type.scalar;
    auto round_half = [&](int32_t dst, int lanes) {
      if (e.type.scalar == Scalar::kF16) Emit(Op::kRoundF16, lanes, dst, dst);
      return Place(dst, want, lanes);
    };
    if (e.name == "select") {
      return EmitLanes(Op::kSelect, n, want, e.type, {{a[0], n}, {a[1], n}, {a[2], SlotsOf(e.args[2]->type)}});
    }
    if (e.name == "all" || e.name == "any") {
      const int32_t dst = Want(want, 1);
      Emit(e.name == "all" ? Op::kAll : Op::kAny, in, dst, a[0]);
      return dst;
    }
    if (e.name == "dot") {
      const int32_t dst = Temp(1);
      Emit(IsFloatScalar(scalar) ? Op::kDotF : Op::kDotI, in, dst, a[0], a[1]);
      return round_half(dst, 1);
    }
    if (e.name == "dot4I8Packed" || e.name == "dot4U8Packed") {
      const int32_t dst = Temp(1);
      Emit(e.name == "dot4I8Packed" ? Op::kDot4I8 : Op::kDot4U8, 1, dst, a[0], a[1]);
      return Place(dst, want, 1);
    }
    if (e.name == "cross") {
      const int32_t dst = Temp(3);
      Emit(Op::kCrossF, 3, dst, a[0], a[1]);
      return round_half(dst, 3);
    }
    if (e.name == "length" || e.name == "distance" || e.name == "normalize") {
      int32_t v = a[0];
      if (e.name == "distance") {
        v = Temp(in);
        Emit(Op::kSubF, in, v, a[0], a[1]);
      }
      const int32_t length = Temp(1);
      Emit(Op::kDotF, in, length, v, v);
      Emit(Op::kSqrtF, 1, length, length);
      if (e.name != "normalize") return round_half(length, 1);
      const int32_t dst = Temp(in);
      Emit(Op::kDivF, in, dst, v, length, kNone, 0, in > 1 ? kScalarB : 0);
      return round_half(dst, in);
    }
    if (e.name == "reflect") {
      const int32_t dot = Temp(1), dst = Temp(in);
      Emit(Op::kDotF, in, dot, a[1], a[0]);
      Emit(Op::kAddF, 1, dot, dot, dot);
      Emit(Op::kMulF, in, dst, a[1], dot, kNone, 0, kScalarB);
      Emit(Op::kSubF, in, dst, a[0], dst);
      return round_half(dst, in);
    }
    return Fail(e.at, StrCat("function ", e.name, " is not known"));
  }

  int32_t EmitBarrier(int32_t bits) {
    Emit(Op::kBarrier, 1, kNone, kNone, kNone, kNone, bits);
    return kNone;
  }

  int32_t EvalAtomic(const Expr& e, AtomicOp op, int32_t want) {
    const Ref ref = RefOf(*e.args[0]);
    const int32_t block = Temp(2);  // result, value
    if (e.args.size() > 1) Eval(*e.args[1], block + 1);
    if (ref.space == Ref::Space::kRegister) return Fail(e.at, "an atomic must be in workgroup or scratch memory");
    if (e.at.line != 0) at_ = e.at;
    Emit(Op::kAtomic, 1, block, ref.dyn, ref.base, ref.space == Ref::Space::kBuffer ? ref.buffer : kNone, int32_t(op),
         ref.type.scalar == Scalar::kI32);
    return Place(block, want, SlotsOf(e.type));
  }

  int32_t EvalSubgroup(const Expr& e, SubgroupOp op, int32_t want) {
    const std::vector<int32_t> a = EvalArgs(e.args);
    const int n = std::max<int32_t>(1, SlotsOf(e.type));
    const int32_t dst = Temp(n);
    const Scalar scalar = e.args.empty() ? Scalar::kU32 : e.args[0]->type.scalar;
    if (e.at.line != 0) at_ = e.at;
    Emit(Op::kSubgroup, n, dst, a.empty() ? kNone : a[0], a.size() > 1 ? a[1] : kNone, kNone, int32_t(op), int(scalar));
    return Place(dst, want, n);
  }

  int32_t EvalMatrix(const Expr& e, int32_t want) {
    const int32_t elements = Type::kMatrixExtent * Type::kMatrixExtent;
    if (e.name == "subgroupMatrixMultiplyAdd") {
      const std::vector<int32_t> a = EvalArgs(e.args);
      const int32_t dst = Temp(elements);
      Emit(Op::kMatrixMultiply, 1, dst, a[0], a[1], a[2]);
      return Place(dst, want, elements);
    }
    const Ref ref = RefOf(*e.args[0]);
    if (ref.space != Ref::Space::kShared || ref.dyn != kNone) return Fail(e.at, "a matrix is loaded from workgroup memory");
    const bool is_store = e.name == "subgroupMatrixStore";
    const int32_t offset = Eval(*e.args[1], kNone), pitch = Eval(*e.args[2], kNone);
    const int32_t value = is_store ? Eval(*e.args[3], kNone) : Temp(elements);
    if (e.at.line != 0) at_ = e.at;
    Emit(is_store ? Op::kMatrixStore : Op::kMatrixLoad, 1, value, offset, ref.base, pitch, SlotsOf(ref.type),
         e.name == "subgroupMatrixLoadRightTransposed");
    return is_store ? kNone : Place(value, want, elements);
  }

  int32_t EvalTexture(const Expr& e, int32_t want) {
    auto texture = textures_.find(e.args[0]->name);
    if (texture == textures_.end()) return Fail(e.at, StrCat("texture ", e.args[0]->name, " is not bound"));
    const bool is_array = program_.memories[size_t(texture->second)].texture_dim == "2d_array";
    const int n = SlotsOf(e.args[1]->type);
    const int32_t coords = Eval(*e.args[1], kNone);
    const int32_t layer = is_array ? Eval(*e.args[2], kNone) : kNone;
    if (e.name == "textureStore") {
      const int32_t value = Eval(*e.args.back(), kNone);
      if (e.at.line != 0) at_ = e.at;
      Emit(Op::kStoreTexture, n, value, coords, layer, texture->second);
      return kNone;
    }
    if (e.at.line != 0) at_ = e.at;
    const int32_t dst = Want(want, 4);
    Emit(Op::kLoadTexture, n, dst, coords, layer, texture->second);
    return dst;
  }

  // ---- Tensors ------------------------------------------------------------------------------------------------------

  int32_t EvalTensorCall(const Expr& e, int32_t want) {
    auto found = tensors_.find(e.name);
    if (found == tensors_.end()) return Fail(e.at, StrCat("tensor ", e.name, " is not known"));
    const TensorDecl& decl = *found->second.first;
    const TensorNode& node = found->second.second;
    const bool is_store = e.method == "store" || e.method == "store4";
    const bool by_slice = e.method.find('4') != std::string::npos;
    const bool or_zero = e.method.find("_or_zero") != std::string::npos;
    const int rank = node.tensor->shape.rank();
    std::vector<int32_t> args = EvalArgs(e.args);
    if (e.at.line != 0) at_ = e.at;
    const size_t skip = is_store ? 1 : 0;
    if (args.size() != size_t(rank) + skip || (by_slice && rank == 0)) {
      return Fail(e.at, StrCat(e.name, ".", e.method, " got ", args.size() - skip, " coordinates for ", rank, " axes"));
    }
    Site site;
    site.coords.assign(args.begin() + long(skip), args.end());
    site.by_slice = by_slice;
    site.what = StrCat(e.name, ".", e.method);
    site.axes = &decl.axes;
    if (e.method == "is_inside") {
      const int32_t dst = Want(want, 1);
      Emit(Op::kInside, 1, dst, AddAccess(node, site, Scalar::kF32));
      return dst;
    }
    if (is_store) {
      EmitWrite(node, site, args[0], decl.value);
      return kNone;
    }
    const int n = by_slice ? 4 : 1;
    const int32_t dst = Temp(n);
    if (!or_zero) {
      EmitRead(node, site, decl.value, dst, true);
      return Place(dst, want, n);
    }
    const int32_t inside = Temp(1);
    Emit(Op::kInside, 1, inside, AddAccess(node, site, decl.value));
    const int32_t to_zero = Emit(Op::kJumpIfZero, 1, kNone, inside);
    EmitRead(node, site, decl.value, dst, false);
    const int32_t over = Emit(Op::kJump, 1, kNone);
    Patch(to_zero, Here());
    Emit(Op::kZero, 1, dst, kNone, kNone, n);
    Patch(over, Here());
    return Place(dst, want, n);
  }

  // Where a kernel touches a tensor: slots with the kernel's coordinates.
  struct Site {
    std::vector<int32_t> coords;
    bool by_slice = false;
    std::string what;
    const std::vector<std::string>* axes = nullptr;
  };

  int32_t AddAccess(const TensorNode& node, const Site& site, Scalar value) {
    TensorAccess access;
    access.memory = node.memory;
    access.rank = node.tensor->shape.rank();
    access.by_slice = site.by_slice;
    access.value = value;
    access.what = site.what;
    access.axes = site.axes;
    for (int i = 0; i < access.rank; ++i) {
      access.coords[i] = site.coords[size_t(i)];
      access.extents[i] = uint32_t(node.tensor->shape[i]);
    }
    access.last_extent = access.rank == 0 ? 1 : uint32_t(node.tensor->shape.at(-1));
    if (site.by_slice) access.extents[access.rank - 1] = (access.last_extent + 3) / 4;
    program_.accesses.push_back(access);
    return int32_t(program_.accesses.size()) - 1;
  }

  static std::vector<IndexExpr> PlacedCoords(const VirtualTensor& tensor) {
    if (!tensor.map.is_identity()) return tensor.map.coords;
    std::vector<IndexExpr> coords;
    for (int i = 0; i < tensor.placement.shape.rank(); ++i) coords.push_back(IndexExpr::Axis(i));
    return coords;
  }

  // True where slice s of what the kernel sees is slice s of a row of the placed tensor.
  static bool KeepsSlices(const VirtualTensor& tensor) {
    const int rank = tensor.shape.rank();
    const std::vector<IndexExpr> coords = PlacedCoords(tensor);
    if (rank == 0 || coords.empty()) return false;
    if (!(coords.back() == IndexExpr::Axis(rank - 1))) return false;
    for (size_t i = 0; i + 1 < coords.size(); ++i) {
      if (coords[i].Uses(rank - 1)) return false;
    }
    if (tensor.map.inside && tensor.map.inside->Uses(rank - 1)) return false;
    return tensor.placement.shape.at(-1) >= tensor.shape.at(-1);
  }

  // Elements from the start of the storage, over kernel coordinates (the last one a slice where by_slice).
  static IndexExpr Address(const VirtualTensor& tensor, bool by_slice) {
    const Placement& placement = tensor.placement;
    std::vector<IndexExpr> coords = PlacedCoords(tensor);
    std::vector<int64_t> extents(tensor.shape.begin(), tensor.shape.end());
    if (by_slice) extents.back() = (extents.back() + 3) / 4;
    const bool is_texture = IsTexture(placement.storage);
    IndexExpr address, lane = IndexExpr::Const(0);
    if (placement.layout == Layout::kLinear || (!is_texture && !by_slice)) {
      if (by_slice) coords.back() = coords.back() * IndexExpr::Const(4);
      address = ElementAddress(placement, coords);
    } else {
      if (!by_slice && !coords.empty()) {
        lane = Mod(coords.back(), 4);
        coords.back() = Div(coords.back(), 4);
      }
      const std::vector<IndexExpr> parts = SliceAddress(placement, coords);
      for (size_t i = parts.size(); i-- > 0;) {
        address = i + 1 == parts.size() ? parts[i] : address * IndexExpr::Const(placement.texture_extent[i]) + parts[i];
      }
      address = address * IndexExpr::Const(4) + lane;
    }
    return address.SimplifiedFor(extents);
  }

  static bool AddAffine(const IndexExpr& e, int64_t factor, TensorAccess& access) {
    switch (e.kind()) {
      case IndexExpr::Kind::kConst: access.base += factor * e.value(); return true;
      case IndexExpr::Kind::kAxis: access.strides[e.value()] += factor; return true;
      case IndexExpr::Kind::kAdd: return AddAffine(e.arg(0), factor, access) && AddAffine(e.arg(1), factor, access);
      case IndexExpr::Kind::kMul:
        if (e.arg(0).IsConst()) return AddAffine(e.arg(1), factor * e.arg(0).value(), access);
        if (e.arg(1).IsConst()) return AddAffine(e.arg(0), factor * e.arg(1).value(), access);
        return false;
      default: return false;
    }
  }

  int32_t EmitIndex(const IndexExpr& e, const std::vector<int32_t>& coords) {
    using Kind = IndexExpr::Kind;
    auto two = [&](Op op) {
      const int32_t a = EmitIndex(e.arg(0), coords), b = EmitIndex(e.arg(1), coords);
      const int32_t dst = Temp(1);
      Emit(op, 1, dst, a, b);
      return dst;
    };
    switch (e.kind()) {
      case Kind::kConst: return ConstantU(uint32_t(int32_t(e.value())));
      case Kind::kAxis: return coords[size_t(e.value())];
      case Kind::kAdd: return two(Op::kAddI);
      case Kind::kMul: return two(Op::kMulI);
      case Kind::kDiv: return two(Op::kFloorDiv);
      case Kind::kMod: return two(Op::kFloorMod);
      case Kind::kMin: return two(Op::kMinI);
      case Kind::kMax: return two(Op::kMaxI);
      case Kind::kLess: return two(Op::kLtI);
      case Kind::kAnd: {
        int32_t both = kNone;
        for (int k = 0; k < 2; ++k) {
          const int32_t flag = Temp(1);
          Emit(Op::kToB, 1, flag, EmitIndex(e.arg(k), coords));
          if (k == 1) Emit(Op::kAnd, 1, both, both, flag);
          if (k == 0) both = flag;
        }
        return both;
      }
      case Kind::kTable: {
        const int32_t index = EmitIndex(e.arg(0), coords);
        const int32_t dst = Temp(1);
        program_.tables.push_back(e.table());
        Emit(Op::kTable, 1, dst, index, int32_t(program_.tables.size()) - 1);
        return dst;
      }
    }
    return ConstantU(0);
  }

  // The element or slice at the kernel coordinates, before value maps, as `value` lanes in dst.
  void EmitPlacedRead(const TensorNode& node, const Site& site, Scalar value, int32_t dst, bool check) {
    const VirtualTensor& tensor = *node.tensor;
    const int n = site.by_slice ? 4 : 1;
    const bool per_lane = site.by_slice && !KeepsSlices(tensor);
    const int32_t access = AddAccess(node, site, value);
    if (!per_lane && !tensor.map.inside && AddAffine(Address(tensor, site.by_slice), 1, program_.accesses[size_t(access)])) {
      Emit(Op::kTensorLoad, n, dst, access);
      return;
    }
    if (check) Emit(Op::kCheckCoordinates, 1, kNone, access);
    if (per_lane) {
      ForEachLane(
          node, site, [&](const Site& lane_site, int lane) { EmitPlacedRead(node, lane_site, value, dst + lane, false); },
          [&](int lane) { Emit(Op::kZero, 1, dst + lane, kNone, kNone, 1); });
      return;
    }
    int32_t to_outside = kNone;
    if (tensor.map.inside) { to_outside = Emit(Op::kJumpIfZero, 1, kNone, EmitIndex(*tensor.map.inside, site.coords)); }
    Emit(Op::kElementLoad, n, dst, access, EmitIndex(Address(tensor, site.by_slice), site.coords));
    if (tensor.map.inside) {
      const int32_t over = Emit(Op::kJump, 1, kNone);
      Patch(to_outside, Here());
      uint32_t bits = 0;
      if (IsFloatScalar(value)) {
        bits = std::bit_cast<uint32_t>(float(tensor.map.outside));
      } else {
        bits = uint32_t(int64_t(tensor.map.outside));
      }
      Emit(Op::kMove, n, dst, ConstantU(bits), kNone, kNone, 0, n > 1 ? kScalarA : 0);
      if (n > 1) Emit(Op::kMaskLanes, n, dst, access);
      Patch(over, Here());
    }
  }

  // Calls inside(site of the element, lane) for the four elements of a slice, beyond(lane) for those beyond the edge.
  template <class Inside, class Beyond>
  void ForEachLane(const TensorNode& node, const Site& site, Inside&& inside, Beyond&& beyond) {
    const int32_t last_extent = int32_t(node.tensor->shape.at(-1));
    for (int lane = 0; lane < 4; ++lane) {
      const int32_t saved = next_;
      Site lane_site = site;
      lane_site.by_slice = false;
      const int32_t index = Temp(1);
      Emit(Op::kShl, 1, index, site.coords.back(), ConstantU(2));
      if (lane > 0) Emit(Op::kAddI, 1, index, index, ConstantU(uint32_t(lane)));
      lane_site.coords.back() = index;
      const bool may_be_beyond = last_extent % 4 != 0 && lane > 0;
      int32_t to_beyond = kNone;
      if (may_be_beyond) to_beyond = Emit(Op::kJumpUnlessLtU, 1, kNone, index, ConstantU(uint32_t(last_extent)));
      inside(lane_site, lane);
      if (may_be_beyond) {
        const int32_t over = Emit(Op::kJump, 1, kNone);
        Patch(to_beyond, Here());
        beyond(lane);
        Patch(over, Here());
      }
      next_ = saved;
    }
  }

  static Scalar InFlight(DType dtype) { return ScalarOf(dtype); }

  int32_t EmitMap(const MapNode& map, const Site& site, int32_t value) {
    const int n = site.by_slice ? 4 : 1;
    const FunctionInfo& f = functions_[size_t(site.by_slice ? map.vector_function : map.scalar_function)];
    const Scalar scalar = InFlight(map.map->value);
    std::vector<int32_t> operands;
    for (const TensorNode& operand : map.operands) {
      const int32_t slot = Temp(n);
      EmitRead(operand, site, scalar, slot, false);
      operands.push_back(slot);
    }
    if (f.parameters.size() != operands.size() + 1) {
      Fail(at_, StrCat("a value map takes ", f.parameters.size(), " values, got ", operands.size() + 1));
      return value;
    }
    Copy(f.parameters[0], value, n);
    for (size_t i = 0; i < operands.size(); ++i) Copy(f.parameters[i + 1], operands[i], n);
    Emit(Op::kCall, 1, f.return_address, kNone, site.by_slice ? map.vector_function : map.scalar_function);
    const int32_t dst = Temp(n);
    Copy(dst, f.result, n);
    return dst;
  }

  // load and load4 with value maps; the coordinates are those of the kernel. Lanes beyond the edge are zero.
  void EmitRead(const TensorNode& node, const Site& site, Scalar value, int32_t dst, bool check) {
    const int32_t saved = next_;
    const int n = site.by_slice ? 4 : 1;
    if (node.maps.empty()) {
      EmitPlacedRead(node, site, value, dst, check);
      next_ = saved;
      return;
    }
    Scalar scalar = InFlight(node.maps[0].map->value);
    int32_t slot = Temp(n);
    EmitPlacedRead(node, site, scalar, slot, check);
    for (const MapNode& map : node.maps) {
      const Scalar in = InFlight(map.map->value);
      slot = EmitMap(map, site, Convert(slot, scalar, in, n, kNone));
      scalar = InFlight(map.map->result);
    }
    Convert(slot, scalar, value, n, dst);
    if (n > 1) Emit(Op::kMaskLanes, n, dst, AddAccess(node, site, value));
    next_ = saved;
  }

  void EmitWrite(const TensorNode& node, const Site& site, int32_t slot, Scalar value) {
    const int n = site.by_slice ? 4 : 1;
    Scalar scalar = value;
    if (!node.maps.empty()) Emit(Op::kCheckCoordinates, 1, kNone, AddAccess(node, site, scalar));
    for (const MapNode& map : node.maps) {
      const Scalar in = InFlight(map.map->value);
      slot = EmitMap(map, site, Convert(slot, scalar, in, n, kNone));
      scalar = InFlight(map.map->result);
    }
    EmitPlacedWrite(node, site, slot, scalar, node.maps.empty());
  }

  void EmitPlacedWrite(const TensorNode& node, const Site& site, int32_t slot, Scalar value, bool check) {
    const VirtualTensor& tensor = *node.tensor;
    const int n = site.by_slice ? 4 : 1;
    const bool per_lane = site.by_slice && !KeepsSlices(tensor);
    const int32_t access = AddAccess(node, site, value);
    if (!per_lane && !tensor.map.inside && AddAffine(Address(tensor, site.by_slice), 1, program_.accesses[size_t(access)])) {
      Emit(Op::kTensorStore, n, slot, access);
      return;
    }
    if (check) Emit(Op::kCheckCoordinates, 1, kNone, access);
    if (per_lane) {
      ForEachLane(
          node, site, [&](const Site& lane_site, int lane) { EmitPlacedWrite(node, lane_site, slot + lane, value, false); },
          [](int) {});
      return;
    }
    int32_t to_end = kNone;
    if (tensor.map.inside) to_end = Emit(Op::kJumpIfZero, 1, kNone, EmitIndex(*tensor.map.inside, site.coords));
    Emit(Op::kElementStore, n, slot, access, EmitIndex(Address(tensor, site.by_slice), site.coords));
    if (tensor.map.inside) Patch(to_end, Here());
  }

  Program program_;
  const Module* module_;
  const InterpretMemory& memory_;
  bool check_nan_;
  std::optional<Error> error_;
  std::map<uint32_t, int32_t> constants_;
  std::map<std::string, Ref> globals_;
  std::vector<std::map<std::string, Ref>> scopes_;
  std::map<std::string, int> textures_;
  std::map<std::string, std::pair<const TensorDecl*, TensorNode>> tensors_;
  std::vector<std::pair<Ref, uint32_t>> params_;
  std::vector<FunctionInfo> functions_;
  std::vector<ModuleScope> modules_;
  std::vector<std::unique_ptr<Module>> map_modules_;
  std::vector<Loop*> loops_;
  const FunctionInfo* current_ = nullptr;
  size_t module_index_ = 0;
  Location at_;
  int32_t next_ = 0, high_ = 0;
};

}  // namespace

Result<Program> CompileBound(const BoundKernel& kernel, const InterpretMemory& memory, const InterpretOptions& options) {
  return Compiler(kernel.module, memory, options).Bound(kernel);
}
Result<Program> CompileLowered(const LoweredKernel& kernel, const InterpretMemory& memory, const InterpretOptions& options) {
  return Compiler(kernel.module, memory, options).Lowered(kernel);
}

}  // namespace leeway::shader::interpret
