#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "base/strings.h"
#include "shader/interpret_code.h"

namespace leeway::shader::interpret {

namespace {

float F(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t U(float value) { return std::bit_cast<uint32_t>(value); }
float RoundToHalf(float value) { return F16ToF32(F32ToF16(value)); }

// Conversions saturate, as WGSL has it; NaN becomes 0.
uint32_t FloatToI(uint32_t bits) {
  const float f = F(bits);
  if (std::isnan(f)) return 0;
  if (f >= 2147483648.0f) return 0x7fffffffu;
  if (f <= -2147483648.0f) return 0x80000000u;
  return uint32_t(int32_t(f));
}
uint32_t FloatToU(uint32_t bits) {
  const float f = F(bits);
  if (!(f > 0)) return 0;
  if (f >= 4294967296.0f) return 0xffffffffu;
  return uint32_t(f);
}

uint32_t ReverseBits(uint32_t v) {
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result |= ((v >> i) & 1u) << (31 - i);
  return result;
}

uint32_t PackLane(float value, float scale, float low) {
  return uint32_t(int32_t(std::floor(0.5f + scale * std::clamp(value, low, 1.0f))));
}

uint32_t Pack(Packing packing, const uint32_t* a) {
  uint32_t word = 0;
  auto put = [&](int lane, int bits, uint32_t value) { word |= (value & ((1u << bits) - 1)) << (lane * bits); };
  switch (packing) {
    case Packing::k2x16Float:
    case Packing::kHalfBits:
      for (int i = 0; i < 2; ++i) put(i, 16, F32ToF16(F(a[i])));
      break;
    case Packing::k2x16Snorm:
      for (int i = 0; i < 2; ++i) put(i, 16, PackLane(F(a[i]), 32767, -1));
      break;
    case Packing::k2x16Unorm:
      for (int i = 0; i < 2; ++i) put(i, 16, PackLane(F(a[i]), 65535, 0));
      break;
    case Packing::k4x8Snorm:
      for (int i = 0; i < 4; ++i) put(i, 8, PackLane(F(a[i]), 127, -1));
      break;
    case Packing::k4x8Unorm:
      for (int i = 0; i < 4; ++i) put(i, 8, PackLane(F(a[i]), 255, 0));
      break;
    case Packing::k4xI8:
    case Packing::k4xU8:
      for (int i = 0; i < 4; ++i) put(i, 8, a[i]);
      break;
    case Packing::k4xI8Clamp:
      for (int i = 0; i < 4; ++i) put(i, 8, uint32_t(std::clamp(int32_t(a[i]), -128, 127)));
      break;
    case Packing::k4xU8Clamp:
      for (int i = 0; i < 4; ++i) put(i, 8, std::min(a[i], 255u));
      break;
  }
  return word;
}

void Unpack(Packing packing, uint32_t word, uint32_t* dst) {
  auto lane16 = [&](int i) { return uint16_t(word >> (16 * i)); };
  auto lane8 = [&](int i) { return uint8_t(word >> (8 * i)); };
  switch (packing) {
    case Packing::k2x16Float:
    case Packing::kHalfBits:
      for (int i = 0; i < 2; ++i) dst[i] = U(F16ToF32(lane16(i)));
      break;
    case Packing::k2x16Snorm:
      for (int i = 0; i < 2; ++i) dst[i] = U(std::max(float(int16_t(lane16(i))) / 32767.0f, -1.0f));
      break;
    case Packing::k2x16Unorm:
      for (int i = 0; i < 2; ++i) dst[i] = U(float(lane16(i)) / 65535.0f);
      break;
    case Packing::k4x8Snorm:
      for (int i = 0; i < 4; ++i) dst[i] = U(std::max(float(int8_t(lane8(i))) / 127.0f, -1.0f));
      break;
    case Packing::k4x8Unorm:
      for (int i = 0; i < 4; ++i) dst[i] = U(float(lane8(i)) / 255.0f);
      break;
    case Packing::k4xI8:
    case Packing::k4xI8Clamp:
      for (int i = 0; i < 4; ++i) dst[i] = uint32_t(int32_t(int8_t(lane8(i))));
      break;
    case Packing::k4xU8:
    case Packing::k4xU8Clamp:
      for (int i = 0; i < 4; ++i) dst[i] = lane8(i);
      break;
  }
}

// What was done to one element: who wrote and who read it last, and whether others read it too.
struct Shadow {
  uint32_t write_step = 0, read_step = 0;  // 0: never
  uint16_t writer = 0, reader = 0;
  bool many_readers = false;     // in read_step
  bool other_workgroup = false;  // an earlier workgroup read it
};

class Machine {
 public:
  Machine(const Program& program, const uint32_t workgroups[3], const InterpretOptions& options)
      : p_(program), options_(options) {
    std::copy(workgroups, workgroups + 3, workgroups_);
    invocations_ = program.workgroup_size[0] * program.workgroup_size[1] * program.workgroup_size[2];
    subgroup_size_ = std::clamp(options.subgroup_size, 1u, 64u);
    constant_count_ = program.constants.size();
    file_slots_ = constant_count_ + size_t(program.slots) + 4;
    const size_t files = program.needs_all_invocations ? invocations_ : 1;
    registers_.assign(files * file_slots_, 0);
    shared_.assign(size_t(program.shared_words), 0);
    shared_shadow_.resize(shared_.size());
    if (options.check_races) {
      shadows_.resize(program.memories.size());
      for (size_t m = 0; m < program.memories.size(); ++m) {
        const Memory& memory = program.memories[m];
        if (memory.access != Access::kRead) shadows_[m].resize(size_t(memory.size_bytes / memory.granule + 1));
      }
    }
    for (size_t file = 0; file < files; ++file) {
      for (size_t k = 0; k < constant_count_; ++k) Registers(file)[-1 - int64_t(k)] = program.constants[k];
    }
    if (files > 0) {
      Invocation init;
      init.registers = Registers(0);
      init.pc = program.init_begin;
      Execute(init);
      for (size_t file = 1; file < files; ++file) std::copy_n(Registers(0), program.slots, Registers(file));
      image_.assign(Registers(0) + program.private_begin, Registers(0) + program.private_end);
    }
  }

  InterpretResult Run() {
    std::vector<Invocation> group(p_.needs_all_invocations ? invocations_ : 1);
    for (uint32_t z = 0; z < workgroups_[2]; ++z) {
      for (uint32_t y = 0; y < workgroups_[1]; ++y) {
        for (uint32_t x = 0; x < workgroups_[0]; ++x) {
          workgroup_[0] = x, workgroup_[1] = y, workgroup_[2] = z;
          first_step_ = shared_step_ = storage_step_ = ++last_step_;
          if (!p_.needs_all_invocations) {
            for (uint32_t i = 0; i < invocations_ && !full_; ++i) {
              Start(group[0], i, 0);
              Execute(group[0]);
            }
          } else {
            RunTogether(group);
          }
          if (full_) return std::move(result_);
        }
      }
    }
    return std::move(result_);
  }

 private:
  enum class State : uint8_t { kRunning, kAtBarrier, kAtSubgroup, kDone, kFailed };
  struct Invocation {
    uint32_t* registers = nullptr;
    int32_t pc = 0;
    uint32_t index = 0;
    uint64_t steps = 0;
    State state = State::kRunning;
  };

  uint32_t* Registers(size_t file) { return registers_.data() + file * file_slots_ + constant_count_; }

  void LocalId(uint32_t index, uint32_t id[3]) const {
    id[0] = index % p_.workgroup_size[0];
    id[1] = index / p_.workgroup_size[0] % p_.workgroup_size[1];
    id[2] = index / p_.workgroup_size[0] / p_.workgroup_size[1];
  }

  void Start(Invocation& invocation, uint32_t index, size_t file) {
    uint32_t* r = invocation.registers = Registers(file);
    invocation.pc = p_.entry;
    invocation.index = index;
    invocation.steps = 0;
    invocation.state = State::kRunning;
    std::copy(image_.begin(), image_.end(), r + p_.private_begin);
    uint32_t local[3];
    LocalId(index, local);
    for (const auto& [input, slot] : p_.builtins) {
      switch (input) {
        case BuiltinInput::kWorkgroupId: std::copy_n(workgroup_, 3, r + slot); break;
        case BuiltinInput::kLocalInvocationId: std::copy_n(local, 3, r + slot); break;
        case BuiltinInput::kLocalInvocationIndex: r[slot] = index; break;
        case BuiltinInput::kGlobalInvocationId:
          for (int i = 0; i < 3; ++i) r[slot + i] = workgroup_[i] * p_.workgroup_size[i] + local[i];
          break;
        case BuiltinInput::kNumWorkgroups: std::copy_n(workgroups_, 3, r + slot); break;
        case BuiltinInput::kSubgroupSize: r[slot] = subgroup_size_; break;
        case BuiltinInput::kSubgroupInvocationId: r[slot] = index % subgroup_size_; break;
        case BuiltinInput::kSubgroupId: r[slot] = index / subgroup_size_; break;
        case BuiltinInput::kNumSubgroups: r[slot] = (invocations_ + subgroup_size_ - 1) / subgroup_size_; break;
      }
    }
  }

  // ---- Faults -------------------------------------------------------------------------------------------------------

  std::string InvocationText(uint32_t index) const {
    uint32_t id[3];
    LocalId(index, id);
    return StrCat(id[0], ",", id[1], ",", id[2]);
  }

  // One fault per kind and place in the kernel; many invocations usually make the same mistake.
  void Report(int32_t pc, uint32_t invocation, const char* kind, const std::string& message) {
    const Location at = p_.locations[size_t(pc)];
    const uint32_t source = p_.source_of[size_t(pc)];
    if (full_ || !reported_.insert({source, at.line, at.column, kind}).second) return;
    result_.faults.push_back(
        {StrCat(p_.sources[source], ":", at.line, ":", at.column, ": ", message, " (workgroup ", workgroup_[0], ",",
                workgroup_[1], ",", workgroup_[2], ", invocation ", InvocationText(invocation), ")")});
    full_ = int(result_.faults.size()) >= options_.max_faults;
  }

  // ---- Shadow -------------------------------------------------------------------------------------------------------

  template <class Describe>
  void NoteRead(Shadow& s, uint32_t step, int32_t pc, uint32_t invocation, Describe&& describe) {
    if (s.write_step == step ? s.writer != invocation : s.write_step != 0 && s.write_step < first_step_) {
      const bool same_group = s.write_step == step;
      Report(pc, invocation, "race",
             same_group ? StrCat("race on ", describe(), ": read here, and written by invocation ", InvocationText(s.writer),
                                 " without a barrier between")
                        : StrCat("race on ", describe(), ": read here, and written by another workgroup"));
    }
    if (s.read_step != 0 && s.read_step < first_step_) s.other_workgroup = true;
    if (s.read_step == step) {
      s.many_readers = s.many_readers || s.reader != invocation;
    } else {
      s.many_readers = false;
    }
    s.read_step = step;
    s.reader = uint16_t(invocation);
  }

  template <class Describe>
  void NoteWrite(Shadow& s, uint32_t step, int32_t pc, uint32_t invocation, Describe&& describe) {
    if (s.write_step == step ? s.writer != invocation : s.write_step != 0 && s.write_step < first_step_) {
      const bool same_group = s.write_step == step;
      Report(pc, invocation, "race",
             same_group ? StrCat("race on ", describe(), ": written here, and by invocation ", InvocationText(s.writer),
                                 " without a barrier between")
                        : StrCat("race on ", describe(), ": written here, and by another workgroup"));
    } else if (s.read_step == step && (s.many_readers || s.reader != invocation)) {
      Report(pc, invocation, "race",
             StrCat("race on ", describe(), ": written here, and read by ",
                    s.many_readers ? std::string("other invocations") : StrCat("invocation ", InvocationText(s.reader)),
                    " without a barrier between"));
    } else if (s.other_workgroup || (s.read_step != 0 && s.read_step < first_step_)) {
      Report(pc, invocation, "race", StrCat("race on ", describe(), ": written here, and read by another workgroup"));
    }
    s.write_step = step;
    s.writer = uint16_t(invocation);
  }

  std::string DescribeShared(int32_t word) const {
    for (const SharedVariable& v : p_.shared) {
      if (word < v.base || word >= v.base + v.words) continue;
      if (v.words == v.element_words) return StrCat("workgroup variable ", v.name);
      return StrCat("workgroup variable ", v.name, ", element ", (word - v.base) / v.element_words);
    }
    return StrCat("workgroup word ", word);
  }
  std::string DescribeMemory(int memory, uint64_t unit) const {
    return StrCat(p_.memories[size_t(memory)].name, ", element ", unit, " of its storage");
  }

  void NoteMemory(int memory, uint64_t first, uint64_t count, bool write, int32_t pc, uint32_t invocation) {
    if (shadows_.empty() || shadows_[size_t(memory)].empty()) return;
    std::vector<Shadow>& shadow = shadows_[size_t(memory)];
    for (uint64_t unit = first; unit < first + count; ++unit) {
      auto describe = [&] { return DescribeMemory(memory, unit); };
      if (write) {
        NoteWrite(shadow[unit], storage_step_, pc, invocation, describe);
      } else {
        NoteRead(shadow[unit], storage_step_, pc, invocation, describe);
      }
    }
  }

  // ---- Scheduling ---------------------------------------------------------------------------------------------------

  void RunTogether(std::vector<Invocation>& group) {
    for (uint32_t i = 0; i < invocations_; ++i) Start(group[i], i, i);
    while (true) {
      for (Invocation& invocation : group) {
        if (invocation.state == State::kRunning) Execute(invocation);
        if (full_) return;
      }
      bool progress = false;
      for (uint32_t first = 0; first < invocations_; first += subgroup_size_) {
        progress |= TrySubgroup({group.data() + first, std::min<size_t>(subgroup_size_, invocations_ - first)});
      }
      if (progress) continue;
      if (!TryBarrier(group)) return;
    }
  }

  // Runs the subgroup function that all of the subgroup wait at.
  bool TrySubgroup(std::span<Invocation> subgroup) {
    int32_t pc = kNone;
    for (const Invocation& i : subgroup) {
      if (i.state == State::kFailed) continue;
      if (i.state != State::kAtSubgroup || (pc != kNone && i.pc != pc)) return false;
      pc = i.pc;
    }
    if (pc == kNone) return false;
    RunSubgroupFunction(p_.code[size_t(pc)], subgroup);
    for (Invocation& i : subgroup) {
      if (i.state != State::kAtSubgroup) continue;
      i.state = State::kRunning;
      ++i.pc;
    }
    return true;
  }

  // True where all went on; false at the end of the workgroup, or where it can't go on.
  bool TryBarrier(std::vector<Invocation>& group) {
    const Invocation* waiting = nullptr;
    const Invocation* other = nullptr;
    for (const Invocation& i : group) {
      if (i.state == State::kAtBarrier || i.state == State::kAtSubgroup) {
        if (waiting == nullptr) {
          waiting = &i;
        } else if (i.pc != waiting->pc) {
          other = &i;
        }
      } else if (i.state == State::kDone) {
        other = &i;
      }
    }
    if (waiting == nullptr) return false;
    if (other != nullptr) {
      // Where an invocation has failed this is a consequence of what is reported already.
      if (std::any_of(group.begin(), group.end(), [](const Invocation& i) { return i.state == State::kFailed; })) return false;
      const bool barrier = waiting->state == State::kAtBarrier;
      std::string where = "is at the end of the kernel";
      if (other->state != State::kDone) {
        const Location at = p_.locations[size_t(other->pc)];
        where = StrCat("waits at ", at.line, ":", at.column);
      }
      Report(waiting->pc, waiting->index, "divergence",
             StrCat(barrier ? "barrier" : "subgroup function", " is not reached by all: invocation ",
                    InvocationText(other->index), " ", where));
      return false;
    }
    if (waiting->state == State::kAtSubgroup) return false;
    const int32_t bits = p_.code[size_t(waiting->pc)].d;
    const uint32_t step = ++last_step_;
    if (bits & kWorkgroupMemory) shared_step_ = step;
    if (bits & kStorageMemory) storage_step_ = step;
    ++result_.counts.barriers;
    for (Invocation& i : group) {
      if (i.state != State::kAtBarrier) continue;
      i.state = State::kRunning;
      ++i.pc;
    }
    return true;
  }

  static uint32_t Combine(SubgroupOp op, Scalar scalar, uint32_t a, uint32_t b) {
    const bool is_float = scalar == Scalar::kF32 || scalar == Scalar::kF16;
    const bool is_signed = scalar == Scalar::kI32;
    auto rounded = [&](float v) { return U(scalar == Scalar::kF16 ? RoundToHalf(v) : v); };
    switch (op) {
      case SubgroupOp::kAdd:
      case SubgroupOp::kExclusiveAdd:
      case SubgroupOp::kInclusiveAdd: return is_float ? rounded(F(a) + F(b)) : a + b;
      case SubgroupOp::kMul:
      case SubgroupOp::kExclusiveMul:
      case SubgroupOp::kInclusiveMul: return is_float ? rounded(F(a) * F(b)) : a * b;
      case SubgroupOp::kMin:
        if (is_float) return F(b) < F(a) ? b : a;
        return is_signed ? uint32_t(std::min(int32_t(a), int32_t(b))) : std::min(a, b);
      case SubgroupOp::kMax:
        if (is_float) return F(a) < F(b) ? b : a;
        return is_signed ? uint32_t(std::max(int32_t(a), int32_t(b))) : std::max(a, b);
      case SubgroupOp::kAnd:
      case SubgroupOp::kAll: return a & b;
      case SubgroupOp::kOr:
      case SubgroupOp::kAny: return a | b;
      case SubgroupOp::kXor: return a ^ b;
      default: return a;
    }
  }

  void RunSubgroupFunction(const Instruction& i, std::span<Invocation> subgroup) {
    const SubgroupOp op = SubgroupOp(i.d);
    const Scalar scalar = Scalar(i.flags);
    const bool is_float = scalar == Scalar::kF32 || scalar == Scalar::kF16;
    std::vector<uint32_t> live;
    for (uint32_t k = 0; k < subgroup.size(); ++k) {
      if (subgroup[k].state == State::kAtSubgroup) live.push_back(k);
    }
    auto argument = [&](uint32_t k, int lane) { return subgroup[k].registers[i.a + lane]; };
    auto second = [&](uint32_t k) { return subgroup[k].registers[i.b]; };
    // All results are made before the first is written: a result may take an argument's place.
    std::vector<uint32_t> results(subgroup.size() * i.n);
    auto from = [&](uint32_t k, int64_t source, int lane) {
      const bool exists =
          source >= 0 && source < int64_t(subgroup.size()) && subgroup[size_t(source)].state == State::kAtSubgroup;
      return exists ? argument(uint32_t(source), lane) : 0u * k;
    };
    for (int lane = 0; lane < i.n; ++lane) {
      switch (op) {
        case SubgroupOp::kAdd:
        case SubgroupOp::kMul:
        case SubgroupOp::kMin:
        case SubgroupOp::kMax:
        case SubgroupOp::kAnd:
        case SubgroupOp::kOr:
        case SubgroupOp::kXor:
        case SubgroupOp::kAll:
        case SubgroupOp::kAny: {
          uint32_t value = argument(live[0], lane);
          for (size_t k = 1; k < live.size(); ++k) value = Combine(op, scalar, value, argument(live[k], lane));
          for (uint32_t k : live) results[k * i.n + size_t(lane)] = value;
          break;
        }
        case SubgroupOp::kExclusiveAdd:
        case SubgroupOp::kInclusiveAdd:
        case SubgroupOp::kExclusiveMul:
        case SubgroupOp::kInclusiveMul: {
          const bool is_mul = op == SubgroupOp::kExclusiveMul || op == SubgroupOp::kInclusiveMul;
          const bool exclusive = op == SubgroupOp::kExclusiveAdd || op == SubgroupOp::kExclusiveMul;
          uint32_t value = is_mul ? (is_float ? U(1.0f) : 1u) : 0u;
          for (uint32_t k : live) {
            const uint32_t next = Combine(op, scalar, value, argument(k, lane));
            results[k * i.n + size_t(lane)] = exclusive ? value : next;
            value = next;
          }
          break;
        }
        case SubgroupOp::kElect:
          for (uint32_t k : live) results[k * i.n] = k == live[0];
          break;
        case SubgroupOp::kBallot: {
          uint32_t words[4] = {};
          for (uint32_t k : live) {
            if (argument(k, 0) != 0) words[k / 32] |= 1u << (k % 32);
          }
          for (uint32_t k : live) results[k * i.n + size_t(lane)] = words[lane];
          break;
        }
        case SubgroupOp::kBroadcastFirst:
          for (uint32_t k : live) results[k * i.n + size_t(lane)] = argument(live[0], lane);
          break;
        case SubgroupOp::kBroadcast:
        case SubgroupOp::kShuffle:
          for (uint32_t k : live) results[k * i.n + size_t(lane)] = from(k, second(k), lane);
          break;
        case SubgroupOp::kShuffleDown:
          for (uint32_t k : live) results[k * i.n + size_t(lane)] = from(k, int64_t(k) + second(k), lane);
          break;
        case SubgroupOp::kShuffleUp:
          for (uint32_t k : live) results[k * i.n + size_t(lane)] = from(k, int64_t(k) - second(k), lane);
          break;
        case SubgroupOp::kShuffleXor:
          for (uint32_t k : live) results[k * i.n + size_t(lane)] = from(k, k ^ second(k), lane);
          break;
      }
    }
    for (uint32_t k : live) std::copy_n(results.begin() + long(k * i.n), i.n, subgroup[k].registers + i.dst);
    if (is_float) result_.counts.arithmetic += live.size() * i.n;
  }

  // ---- Memory -------------------------------------------------------------------------------------------------------

  static uint32_t ReadElement(const std::byte* at, DType dtype, Scalar scalar) {
    double number = 0;
    switch (dtype) {
      case DType::kF32: {
        float f;
        std::memcpy(&f, at, 4);
        if (scalar == Scalar::kF32) return U(f);
        number = f;
        break;
      }
      case DType::kF16: {
        uint16_t h;
        std::memcpy(&h, at, 2);
        const float f = F16ToF32(h);
        if (scalar == Scalar::kF32) return U(f);
        number = f;
        break;
      }
      case DType::kI32:
      case DType::kU32: {
        uint32_t word;
        std::memcpy(&word, at, 4);
        if (scalar == Scalar::kI32 || scalar == Scalar::kU32) return word;
        if (scalar == Scalar::kBool) return word != 0;
        number = dtype == DType::kI32 ? double(int32_t(word)) : double(word);
        break;
      }
      case DType::kI8: number = double(int8_t(*at)); break;
      case DType::kU8:
      case DType::kBool: number = double(uint8_t(*at)); break;
      default: break;
    }
    switch (scalar) {
      case Scalar::kF32:
      case Scalar::kF16: return U(float(number));
      case Scalar::kBool: return number != 0;
      case Scalar::kU32: return number < 0 && number > -2147483649.0 ? uint32_t(int32_t(number)) : FloatToU(U(float(number)));
      default: return uint32_t(int32_t(std::clamp(number, -2147483648.0, 2147483647.0)));
    }
  }

  static void WriteElement(std::byte* at, DType dtype, Scalar scalar, uint32_t bits) {
    const bool is_float = scalar == Scalar::kF32 || scalar == Scalar::kF16;
    const float number = is_float ? F(bits) : scalar == Scalar::kI32 ? float(int32_t(bits)) : float(bits);
    switch (dtype) {
      case DType::kF32: std::memcpy(at, &number, 4); break;
      case DType::kF16: {
        const uint16_t h = F32ToF16(number);
        std::memcpy(at, &h, 2);
        break;
      }
      case DType::kI32: {
        const uint32_t word = is_float ? FloatToI(U(std::nearbyint(number))) : bits;
        std::memcpy(at, &word, 4);
        break;
      }
      case DType::kU32: {
        const uint32_t word = is_float ? FloatToU(U(std::nearbyint(number))) : bits;
        std::memcpy(at, &word, 4);
        break;
      }
      case DType::kI8:
        *at = std::byte(int8_t(std::clamp(int32_t(is_float ? FloatToI(U(std::nearbyint(number))) : bits), -128, 127)));
        break;
      case DType::kU8: *at = std::byte(uint8_t(std::min(is_float ? FloatToU(U(std::nearbyint(number))) : bits, 255u))); break;
      default: break;
    }
  }

  // -1 where all coordinates are inside; else the axis that is not.
  static int OutsideAxis(const TensorAccess& a, const uint32_t* r) {
    for (int i = 0; i < a.rank; ++i) {
      if (r[a.coords[i]] >= a.extents[i]) return i;
    }
    return -1;
  }
  std::string OutsideText(const TensorAccess& a, const uint32_t* r, int axis) const {
    const bool is_slice = a.by_slice && axis == a.rank - 1;
    return StrCat(a.what, ": ", is_slice ? "slice " : "coordinate ", int32_t(r[a.coords[axis]]), " is outside axis ",
                  (*a.axes)[size_t(axis)], ", which has ", a.extents[axis], is_slice ? " slices" : " elements");
  }

  // Lanes that exist.
  static int LaneCount(const TensorAccess& a, const uint32_t* r) {
    if (!a.by_slice) return 1;
    return int(std::min(4u, a.last_extent - 4 * r[a.coords[a.rank - 1]]));
  }

  bool AddressInside(const Memory& memory, int64_t address, int count, uint32_t element_bytes) {
    return address >= 0 && uint64_t(address + count) * element_bytes <= memory.size_bytes;
  }

  bool LoadElements(const TensorAccess& a, int64_t address, const Instruction& i, Invocation& invocation, int32_t pc) {
    uint32_t* r = invocation.registers;
    const Memory& memory = p_.memories[size_t(a.memory)];
    const int count = LaneCount(a, r);
    if (!AddressInside(memory, address, count, memory.granule)) {
      Report(pc, invocation.index, "address", StrCat(a.what, ": address ", address, " is outside the storage"));
      return false;
    }
    NoteMemory(a.memory, uint64_t(address), uint64_t(count), false, pc, invocation.index);
    const std::byte* at = memory.data + address * memory.granule;
    for (int lane = 0; lane < count; ++lane)
      r[i.dst + lane] = ReadElement(at + lane * int(memory.granule), memory.dtype, a.value);
    for (int lane = count; lane < i.n; ++lane) r[i.dst + lane] = 0;
    result_.counts.loads += uint64_t(count);
    return true;
  }

  bool StoreElements(const TensorAccess& a, int64_t address, const Instruction& i, Invocation& invocation, int32_t pc) {
    const uint32_t* r = invocation.registers;
    const Memory& memory = p_.memories[size_t(a.memory)];
    const int count = LaneCount(a, r);
    if (!AddressInside(memory, address, count, memory.granule)) {
      Report(pc, invocation.index, "address", StrCat(a.what, ": address ", address, " is outside the storage"));
      return false;
    }
    NoteMemory(a.memory, uint64_t(address), uint64_t(count), true, pc, invocation.index);
    std::byte* at = memory.data + address * memory.granule;
    for (int lane = 0; lane < count; ++lane)
      WriteElement(at + lane * int(memory.granule), memory.dtype, a.value, r[i.dst + lane]);
    result_.counts.stores += uint64_t(count);
    return true;
  }

  bool TransferBuffer(bool write, const Instruction& i, Invocation& invocation, int32_t pc) {
    uint32_t* r = invocation.registers;
    const Memory& memory = p_.memories[size_t(i.c)];
    const bool half = BufferElement(i.flags) == BufferElement::kHalf;
    const uint64_t bytes = half ? 2 : 4;
    const uint64_t at = uint64_t(uint32_t(i.b)) + (i.a == kNone ? 0 : r[i.a]);
    if (at + i.n * bytes > memory.size_bytes) {
      Report(pc, invocation.index, "bounds",
             StrCat("bytes ", at, " to ", at + i.n * bytes - 1, " of ", memory.name, " are outside its ", memory.size_bytes));
      return false;
    }
    NoteMemory(i.c, at / memory.granule, std::max<uint64_t>(1, i.n * bytes / memory.granule), write, pc, invocation.index);
    std::byte* data = memory.data + at;
    for (int lane = 0; lane < i.n; ++lane) {
      if (half) {
        uint16_t h = 0;
        if (write) {
          h = F32ToF16(F(r[i.dst + lane]));
          std::memcpy(data + 2 * lane, &h, 2);
        } else {
          std::memcpy(&h, data + 2 * lane, 2);
          r[i.dst + lane] = U(F16ToF32(h));
        }
      } else if (write) {
        std::memcpy(data + 4 * lane, &r[i.dst + lane], 4);
      } else {
        std::memcpy(&r[i.dst + lane], data + 4 * lane, 4);
      }
    }
    (write ? result_.counts.stores : result_.counts.loads) += i.n;
    return true;
  }

  bool TransferTexture(bool write, const Instruction& i, Invocation& invocation, int32_t pc) {
    uint32_t* r = invocation.registers;
    const Memory& memory = p_.memories[size_t(i.c)];
    uint32_t coords[3] = {0, 0, 0};
    for (int k = 0; k < i.n; ++k) coords[k] = r[i.a + k];
    if (i.b != kNone) coords[2] = r[i.b];
    for (int k = 0; k < 3; ++k) {
      if (coords[k] < memory.extent[size_t(k)]) continue;
      Report(pc, invocation.index, "bounds",
             StrCat("texel coordinate ", int32_t(coords[k]), " is outside axis ", k, " of texture ", memory.name,
                    ", which has ", memory.extent[size_t(k)], " texels"));
      return false;
    }
    const uint64_t texel = coords[0] + uint64_t(memory.extent[0]) * (coords[1] + uint64_t(memory.extent[1]) * coords[2]);
    NoteMemory(i.c, texel, 1, write, pc, invocation.index);
    const bool half = memory.dtype == DType::kF16;
    std::byte* at = memory.data + texel * memory.granule;
    for (int lane = 0; lane < 4; ++lane) {
      if (half) {
        uint16_t h = 0;
        if (write) {
          h = F32ToF16(F(r[i.dst + lane]));
          std::memcpy(at + 2 * lane, &h, 2);
        } else {
          std::memcpy(&h, at + 2 * lane, 2);
          r[i.dst + lane] = U(F16ToF32(h));
        }
      } else if (write) {
        std::memcpy(at + 4 * lane, &r[i.dst + lane], 4);
      } else {
        std::memcpy(&r[i.dst + lane], at + 4 * lane, 4);
      }
    }
    (write ? result_.counts.stores : result_.counts.loads) += 4;
    return true;
  }

  bool TransferShared(bool write, const Instruction& i, Invocation& invocation, int32_t pc) {
    uint32_t* r = invocation.registers;
    const int32_t at = i.b + (i.a == kNone ? 0 : int32_t(r[i.a]));
    if (at < 0 || at + i.c > int32_t(shared_.size())) {
      Report(pc, invocation.index, "bounds", "address is outside workgroup memory");
      return false;
    }
    for (int32_t k = 0; k < i.c; ++k) {
      Shadow& shadow = shared_shadow_[size_t(at + k)];
      auto describe = [&] { return DescribeShared(at + k); };
      if (write) {
        if (options_.check_races) {
          NoteSharedWrite(shadow, pc, invocation.index, describe);
        } else {
          shadow.write_step = shared_step_;
        }
        shared_[size_t(at + k)] = r[i.dst + k];
      } else {
        if (shadow.write_step < first_step_) {
          Report(pc, invocation.index, "unwritten", StrCat(describe(), " is read before it is written"));
          return false;
        }
        if (options_.check_races) NoteSharedRead(shadow, pc, invocation.index, describe);
        r[i.dst + k] = shared_[size_t(at + k)];
      }
    }
    return true;
  }
  bool TransferMatrix(const Instruction& i, Invocation& invocation, int32_t pc) {
    constexpr int64_t kExtent = Type::kMatrixExtent;
    const bool write = i.op == Op::kMatrixStore;
    const int64_t offset = invocation.registers[i.a], pitch = invocation.registers[i.c];
    for (int64_t e = 0; e < kExtent * kExtent; ++e) {
      if (write && uint32_t(e) % subgroup_size_ != invocation.index % subgroup_size_) continue;
      const int64_t row = e / kExtent, column = e % kExtent;
      const int64_t at = offset + (i.flags ? column * pitch + row : row * pitch + column);
      if (at >= i.d) {
        Report(pc, invocation.index, "bounds", StrCat("a matrix has an element at ", at, " of an array of ", i.d));
        return false;
      }
      Instruction one = i;
      one.dst = i.dst + int32_t(e);
      one.a = kNone;
      one.b = i.b + int32_t(at);
      one.c = 1;
      if (!TransferShared(write, one, invocation, pc)) return false;
    }
    return true;
  }
  static void MultiplyMatrices(const Instruction& i, uint32_t* r) {
    constexpr int32_t kExtent = Type::kMatrixExtent;
    float sums[kExtent * kExtent];
    for (int32_t m = 0; m < kExtent; ++m) {
      for (int32_t n = 0; n < kExtent; ++n) {
        float sum = F(r[i.c + m * kExtent + n]);
        for (int32_t k = 0; k < kExtent; ++k) sum += F(r[i.a + m * kExtent + k]) * F(r[i.b + k * kExtent + n]);
        sums[m * kExtent + n] = sum;
      }
    }
    for (int32_t e = 0; e < kExtent * kExtent; ++e) r[i.dst + e] = U(sums[e]);
  }
  // Workgroup memory begins afresh in each workgroup.
  template <class Describe>
  void NoteSharedRead(Shadow& shadow, int32_t pc, uint32_t invocation, Describe&& describe) {
    if (shadow.read_step < first_step_) shadow.read_step = 0;
    NoteRead(shadow, shared_step_, pc, invocation, describe);
  }
  template <class Describe>
  void NoteSharedWrite(Shadow& shadow, int32_t pc, uint32_t invocation, Describe&& describe) {
    if (shadow.read_step < first_step_) shadow.read_step = 0;
    if (shadow.write_step < first_step_) shadow.write_step = 0;
    NoteWrite(shadow, shared_step_, pc, invocation, describe);
  }

  bool Atomic(const Instruction& i, Invocation& invocation, int32_t pc) {
    uint32_t* r = invocation.registers;
    const uint64_t at = uint64_t(uint32_t(i.b)) + (i.a == kNone ? 0 : r[i.a]);
    const AtomicOp op = AtomicOp(i.d);
    uint32_t* word = nullptr;
    if (i.c == kNone) {
      if (at >= shared_.size()) {
        Report(pc, invocation.index, "bounds", "address is outside workgroup memory");
        return false;
      }
      Shadow& shadow = shared_shadow_[size_t(at)];
      if (op != AtomicOp::kStore && shadow.write_step < first_step_) {
        Report(pc, invocation.index, "unwritten", StrCat(DescribeShared(int32_t(at)), " is read before it is written"));
        return false;
      }
      shadow.write_step = shared_step_;
      word = &shared_[size_t(at)];
    } else {
      const Memory& memory = p_.memories[size_t(i.c)];
      if (at + 4 > memory.size_bytes) {
        Report(pc, invocation.index, "bounds", StrCat("byte ", at, " of ", memory.name, " is outside its ", memory.size_bytes));
        return false;
      }
      word = reinterpret_cast<uint32_t*>(memory.data + at);
    }
    const uint32_t old = *word, value = r[i.dst + 1];
    const bool is_signed = i.flags != 0;
    r[i.dst] = old;
    switch (op) {
      case AtomicOp::kLoad: break;
      case AtomicOp::kStore:
      case AtomicOp::kExchange: *word = value; break;
      case AtomicOp::kAdd: *word = old + value; break;
      case AtomicOp::kSub: *word = old - value; break;
      case AtomicOp::kMax: *word = is_signed ? uint32_t(std::max(int32_t(old), int32_t(value))) : std::max(old, value); break;
      case AtomicOp::kMin: *word = is_signed ? uint32_t(std::min(int32_t(old), int32_t(value))) : std::min(old, value); break;
      case AtomicOp::kAnd: *word = old & value; break;
      case AtomicOp::kOr: *word = old | value; break;
      case AtomicOp::kXor: *word = old ^ value; break;
    }
    return true;
  }

  // ---- Execution ----------------------------------------------------------------------------------------------------

  template <class Fn>
  static void Lanes1(uint32_t* r, const Instruction& i, Fn&& fn) {
    if (i.n == 1) {
      r[i.dst] = fn(r[i.a]);
      return;
    }
    for (int k = 0; k < i.n; ++k) r[i.dst + k] = fn(r[i.a + (i.flags & kScalarA ? 0 : k)]);
  }
  template <class Fn>
  static void Lanes2(uint32_t* r, const Instruction& i, Fn&& fn) {
    if (i.n == 1) {
      r[i.dst] = fn(r[i.a], r[i.b]);
      return;
    }
    const int sa = i.flags & kScalarA ? 0 : 1, sb = i.flags & kScalarB ? 0 : 1;
    for (int k = 0; k < i.n; ++k) r[i.dst + k] = fn(r[i.a + k * sa], r[i.b + k * sb]);
  }
  template <class Fn>
  static void Lanes3(uint32_t* r, const Instruction& i, Fn&& fn) {
    const int sa = i.flags & kScalarA ? 0 : 1, sb = i.flags & kScalarB ? 0 : 1, sc = i.flags & kScalarC ? 0 : 1;
    for (int k = 0; k < i.n; ++k) r[i.dst + k] = fn(r[i.a + k * sa], r[i.b + k * sb], r[i.c + k * sc]);
  }

  void Execute(Invocation& invocation);
  bool DivisorsAreZero(const uint32_t* r, const Instruction& i) const {
    for (int k = 0; k < i.n; ++k) {
      if (r[i.b + (i.flags & kScalarB ? 0 : k)] == 0) return true;
    }
    return false;
  }

  const Program& p_;
  const InterpretOptions& options_;
  uint32_t workgroups_[3], workgroup_[3] = {0, 0, 0};
  uint32_t invocations_ = 0, subgroup_size_ = 1;
  size_t constant_count_ = 0, file_slots_ = 0;
  std::vector<uint32_t> registers_, image_, shared_;
  std::vector<Shadow> shared_shadow_;
  std::vector<std::vector<Shadow>> shadows_;
  // Steps number the stretches between barriers, over all workgroups; those of a workgroup begin at first_step_.
  uint32_t last_step_ = 0, first_step_ = 0, shared_step_ = 0, storage_step_ = 0;
  bool full_ = false;
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, std::string>> reported_;
  InterpretResult result_;
};

void Machine::Execute(Invocation& invocation) {
  uint32_t* const r = invocation.registers;
  const Instruction* const code = p_.code.data();
  int32_t pc = invocation.pc;
  uint64_t flops = 0;
  auto leave = [&](State state) {
    invocation.pc = pc;
    invocation.state = state;
    result_.counts.arithmetic += flops;
  };
  auto fault = [&](const char* kind, const std::string& message) {
    Report(pc, invocation.index, kind, message);
    leave(State::kFailed);
  };

#define UNARY_F(OP, EXPRESSION)                  \
  case Op::OP:                                   \
    flops += i.n;                                \
    Lanes1(r, i, [](uint32_t bits) -> uint32_t { \
      const float a = F(bits);                   \
      return U(EXPRESSION);                      \
    });                                          \
    break;
#define BINARY_F(OP, EXPRESSION)                          \
  case Op::OP:                                            \
    flops += i.n;                                         \
    Lanes2(r, i, [](uint32_t x, uint32_t y) -> uint32_t { \
      const float a = F(x), b = F(y);                     \
      return U(EXPRESSION);                               \
    });                                                   \
    break;
#define COMPARE_F(OP, EXPRESSION)                         \
  case Op::OP:                                            \
    Lanes2(r, i, [](uint32_t x, uint32_t y) -> uint32_t { \
      const float a = F(x), b = F(y);                     \
      return EXPRESSION;                                  \
    });                                                   \
    break;
#define TERNARY_F(OP, COUNT, EXPRESSION)                              \
  case Op::OP:                                                        \
    flops += COUNT * i.n;                                             \
    Lanes3(r, i, [](uint32_t x, uint32_t y, uint32_t z) -> uint32_t { \
      const float a = F(x), b = F(y), c = F(z);                       \
      return U(EXPRESSION);                                           \
    });                                                               \
    break;
#define UNARY_W(OP, EXPRESSION)                                      \
  case Op::OP:                                                       \
    Lanes1(r, i, [](uint32_t a) -> uint32_t { return EXPRESSION; }); \
    break;
#define BINARY_W(OP, EXPRESSION) \
  case Op::OP: Lanes2(r, i, [](uint32_t a, uint32_t b) -> uint32_t { return EXPRESSION; }); break;

  while (true) {
    const Instruction& i = code[pc];
    switch (i.op) {
      case Op::kMove: Lanes1(r, i, [](uint32_t a) { return a; }); break;
      case Op::kCopy: std::memmove(r + i.dst, r + i.a, size_t(i.c) * 4); break;
      case Op::kZero: std::fill_n(r + i.dst, uint32_t(i.c), 0u); break;
      case Op::kCopyFrom: std::memmove(r + i.dst, r + i.a + int32_t(r[i.b]), size_t(i.c) * 4); break;
      case Op::kCopyTo: std::memmove(r + i.dst + int32_t(r[i.b]), r + i.a, size_t(i.c) * 4); break;
      case Op::kSwizzle: {
        const uint32_t lanes[4] = {r[i.a + (i.d & 3)], r[i.a + (i.n > 1 ? i.d >> 2 & 3 : 0)],
                                   r[i.a + (i.n > 2 ? i.d >> 4 & 3 : 0)], r[i.a + (i.n > 3 ? i.d >> 6 & 3 : 0)]};
        for (int k = 0; k < i.n; ++k) r[i.dst + k] = lanes[k];
        break;
      }
      case Op::kSelect:
        Lanes3(r, i, [](uint32_t a, uint32_t b, uint32_t c) { return c != 0 ? b : a; });
        break;

        BINARY_F(kAddF, a + b)
        BINARY_F(kSubF, a - b)
        BINARY_F(kMulF, a * b)
        BINARY_F(kDivF, a / b)
        BINARY_F(kRemF, std::fmod(a, b))
        UNARY_F(kNegF, -a)
        BINARY_W(kAddI, a + b)
        BINARY_W(kSubI, a - b)
        BINARY_W(kMulI, a * b)
        UNARY_W(kNegI, 0u - a)
      case Op::kDivI:
      case Op::kRemI:
      case Op::kDivU:
      case Op::kRemU:
        if (DivisorsAreZero(r, i)) return fault("division", "integer division by zero");
        switch (i.op) {
          case Op::kDivI:
            Lanes2(r, i, [](uint32_t a, uint32_t b) { return b == 0xffffffffu ? 0u - a : uint32_t(int32_t(a) / int32_t(b)); });
            break;
          case Op::kRemI:
            Lanes2(r, i, [](uint32_t a, uint32_t b) { return b == 0xffffffffu ? 0u : uint32_t(int32_t(a) % int32_t(b)); });
            break;
          case Op::kDivU: Lanes2(r, i, [](uint32_t a, uint32_t b) { return a / b; }); break;
          default: Lanes2(r, i, [](uint32_t a, uint32_t b) { return a % b; }); break;
        }
        break;
        BINARY_W(kAnd, a & b)
        BINARY_W(kOr, a | b)
        BINARY_W(kXor, a ^ b)
        UNARY_W(kNot, ~a)
        UNARY_W(kNotB, a == 0)
      case Op::kShl:
      case Op::kShrI:
      case Op::kShrU: {
        for (int k = 0; k < i.n; ++k) {
          const uint32_t amount = r[i.b + (i.flags & kScalarB ? 0 : k)];
          if (amount >= 32) return fault("shift", StrCat("shift by ", amount, ", more than 31 bits"));
        }
        if (i.op == Op::kShl) {
          Lanes2(r, i, [](uint32_t a, uint32_t b) { return a << b; });
        } else if (i.op == Op::kShrU) {
          Lanes2(r, i, [](uint32_t a, uint32_t b) { return a >> b; });
        } else {
          Lanes2(r, i, [](uint32_t a, uint32_t b) { return uint32_t(int32_t(a) >> b); });
        }
        break;
      }
        COMPARE_F(kEqF, a == b)
        COMPARE_F(kNeF, a != b)
        COMPARE_F(kLtF, a < b)
        COMPARE_F(kLeF, a <= b)
        BINARY_W(kEq, a == b)
        BINARY_W(kNe, a != b)
        BINARY_W(kLtI, int32_t(a) < int32_t(b))
        BINARY_W(kLeI, int32_t(a) <= int32_t(b))
        BINARY_W(kLtU, a < b)
        BINARY_W(kLeU, a <= b)
        UNARY_W(kFloatToI, FloatToI(a))
        UNARY_W(kFloatToU, FloatToU(a))
        UNARY_W(kFloatToB, F(a) != 0)
        UNARY_W(kIToFloat, U(float(int32_t(a))))
        UNARY_W(kUToFloat, U(float(a)))
        UNARY_W(kToB, a != 0)
        UNARY_W(kRoundF16, U(RoundToHalf(F(a))))

        UNARY_F(kAbsF, std::fabs(a))
        UNARY_F(kCeilF, std::ceil(a))
        UNARY_F(kFloorF, std::floor(a))
        UNARY_F(kRoundF, std::nearbyint(a))
        UNARY_F(kTruncF, std::trunc(a))
        UNARY_F(kFractF, a - std::floor(a))
        UNARY_F(kSqrtF, std::sqrt(a))
        UNARY_F(kInverseSqrtF, 1.0f / std::sqrt(a))
        UNARY_F(kExpF, std::exp(a))
        UNARY_F(kExp2F, std::exp2(a))
        UNARY_F(kLogF, std::log(a))
        UNARY_F(kLog2F, std::log2(a))
        UNARY_F(kSinF, std::sin(a))
        UNARY_F(kCosF, std::cos(a))
        UNARY_F(kTanF, std::tan(a))
        UNARY_F(kAsinF, std::asin(a))
        UNARY_F(kAcosF, std::acos(a))
        UNARY_F(kAtanF, std::atan(a))
        UNARY_F(kSinhF, std::sinh(a))
        UNARY_F(kCoshF, std::cosh(a))
        UNARY_F(kTanhF, std::tanh(a))
        UNARY_F(kAsinhF, std::asinh(a))
        UNARY_F(kAcoshF, std::acosh(a))
        UNARY_F(kAtanhF, std::atanh(a))
        UNARY_F(kSignF, a > 0 ? 1.0f : a < 0 ? -1.0f : 0.0f)
        UNARY_F(kSaturateF, std::min(std::max(a, 0.0f), 1.0f))
        UNARY_F(kDegreesF, a * 57.295779513082322865f)
        UNARY_F(kRadiansF, a * 0.017453292519943295474f)
        BINARY_F(kAtan2F, std::atan2(a, b))
        BINARY_F(kPowF, std::pow(a, b))
        BINARY_F(kMinF, b < a ? b : a)
        BINARY_F(kMaxF, a < b ? b : a)
        BINARY_F(kStepF, a <= b ? 1.0f : 0.0f)
      case Op::kLdexpF:
        flops += i.n;
        Lanes2(r, i, [](uint32_t a, uint32_t b) { return U(std::ldexp(F(a), int32_t(b))); });
        break;
        TERNARY_F(kFmaF, 2, std::fma(a, b, c))
        TERNARY_F(kClampF, 2, std::min(std::max(a, b), c))
        TERNARY_F(kMixF, 3, a * (1.0f - c) + b * c)
      case Op::kSmoothstepF:
        flops += 7 * i.n;
        Lanes3(r, i, [](uint32_t low, uint32_t high, uint32_t x) {
          const float t = std::clamp((F(x) - F(low)) / (F(high) - F(low)), 0.0f, 1.0f);
          return U(t * t * (3.0f - 2.0f * t));
        });
        break;
        UNARY_W(kAbsI, int32_t(a) < 0 ? 0u - a : a)
        UNARY_W(kSignI, int32_t(a) > 0 ? 1u : a == 0 ? 0u : 0xffffffffu)
        BINARY_W(kMinI, uint32_t(std::min(int32_t(a), int32_t(b))))
        BINARY_W(kMaxI, uint32_t(std::max(int32_t(a), int32_t(b))))
        BINARY_W(kMinU, std::min(a, b))
        BINARY_W(kMaxU, std::max(a, b))
      case Op::kClampI:
        Lanes3(r, i, [](uint32_t a, uint32_t b, uint32_t c) {
          return uint32_t(std::min(std::max(int32_t(a), int32_t(b)), int32_t(c)));
        });
        break;
      case Op::kClampU:
        Lanes3(r, i, [](uint32_t a, uint32_t b, uint32_t c) { return std::min(std::max(a, b), c); });
        break;
        UNARY_W(kCountLeadingZeros, uint32_t(std::countl_zero(a)))
        UNARY_W(kCountTrailingZeros, uint32_t(std::countr_zero(a)))
        UNARY_W(kCountOneBits, uint32_t(std::popcount(a)))
        UNARY_W(kReverseBits, ReverseBits(a))
        UNARY_W(kFirstLeadingBitU, a == 0 ? 0xffffffffu : 31u - uint32_t(std::countl_zero(a)))
        UNARY_W(kFirstLeadingBitI,
                a == 0 || a == 0xffffffffu ? 0xffffffffu : 31u - uint32_t(std::countl_zero(int32_t(a) < 0 ? ~a : a)))
        UNARY_W(kFirstTrailingBit, a == 0 ? 0xffffffffu : uint32_t(std::countr_zero(a)))
      case Op::kExtractBitsI:
      case Op::kExtractBitsU: {
        const bool is_signed = i.op == Op::kExtractBitsI;
        Lanes3(r, i, [&](uint32_t a, uint32_t offset, uint32_t count) -> uint32_t {
          const uint32_t o = std::min(offset, 32u), c = std::min(count, 32u - o);
          if (c == 0) return 0;
          const uint32_t high = a << (32 - c - o);
          return is_signed ? uint32_t(int32_t(high) >> (32 - c)) : high >> (32 - c);
        });
        break;
      }
      case Op::kInsertBits:
        for (int k = i.n; k-- > 0;) {
          const uint32_t o = std::min(r[i.c + (i.flags & kScalarC ? 0 : k)], 32u), c = std::min(r[i.d], 32u - o);
          const uint32_t mask = c == 0 ? 0 : (c == 32 ? 0xffffffffu : ((1u << c) - 1)) << o;
          const uint32_t inserted = o < 32 ? r[i.b + k] << o : 0;
          r[i.dst + k] = (r[i.a + k] & ~mask) | (inserted & mask);
        }
        break;

      case Op::kDotF: {
        flops += uint64_t(2 * i.n - 1);
        float sum = F(r[i.a]) * F(r[i.b]);
        for (int k = 1; k < i.n; ++k) sum += F(r[i.a + k]) * F(r[i.b + k]);
        r[i.dst] = U(sum);
        break;
      }
      case Op::kDotI: {
        uint32_t sum = 0;
        for (int k = 0; k < i.n; ++k) sum += r[i.a + k] * r[i.b + k];
        r[i.dst] = sum;
        break;
      }
      case Op::kAll:
      case Op::kAny: {
        uint32_t all = 1, any = 0;
        for (int k = 0; k < i.n; ++k) all &= r[i.a + k], any |= r[i.a + k];
        r[i.dst] = i.op == Op::kAll ? all : any;
        break;
      }
      case Op::kCrossF: {
        flops += 9;
        const float a[3] = {F(r[i.a]), F(r[i.a + 1]), F(r[i.a + 2])}, b[3] = {F(r[i.b]), F(r[i.b + 1]), F(r[i.b + 2])};
        for (int k = 0; k < 3; ++k) {
          const int x = (k + 1) % 3, y = (k + 2) % 3;
          r[i.dst + k] = U(a[x] * b[y] - a[y] * b[x]);
        }
        break;
      }
      case Op::kPack: r[i.dst] = Pack(Packing(i.d), r + i.a); break;
      case Op::kUnpack: Unpack(Packing(i.d), r[i.a], r + i.dst); break;
      case Op::kDot4I8:
      case Op::kDot4U8: {
        uint32_t sum = 0;
        for (int k = 0; k < 4; ++k) {
          const uint8_t a = uint8_t(r[i.a] >> (8 * k)), b = uint8_t(r[i.b] >> (8 * k));
          sum += i.op == Op::kDot4I8 ? uint32_t(int8_t(a) * int8_t(b)) : uint32_t(a) * b;
        }
        r[i.dst] = sum;
        break;
      }
      case Op::kFloorDiv:
      case Op::kFloorMod: {
        const int32_t a = int32_t(r[i.a]), b = int32_t(r[i.b]);
        const int32_t quotient = a >= 0 ? a / b : -int32_t((uint32_t(-(a + 1)) / uint32_t(b))) - 1;
        r[i.dst] = uint32_t(i.op == Op::kFloorDiv ? quotient : a - quotient * b);
        break;
      }
      case Op::kTable: {
        const std::vector<int32_t>& table = p_.tables[size_t(i.b)];
        if (r[i.a] >= table.size()) {
          return fault("table", StrCat("index ", int32_t(r[i.a]), " is outside a coordinate table of ", table.size()));
        }
        r[i.dst] = uint32_t(table[r[i.a]]);
        break;
      }
      case Op::kJump:
        if (i.b <= pc) {
          invocation.steps += uint64_t(pc - i.b) + 1;
          if (invocation.steps > options_.max_steps_per_invocation) {
            return fault("steps", StrCat("does not end within ", options_.max_steps_per_invocation, " steps"));
          }
        }
        pc = i.b;
        continue;
      case Op::kJumpIfZero: pc = r[i.a] == 0 ? i.b : pc + 1; continue;
      case Op::kJumpIfNot0: pc = r[i.a] != 0 ? i.b : pc + 1; continue;
      case Op::kJumpUnlessLtU: pc = r[i.a] < r[i.b] ? pc + 1 : i.c; continue;
      case Op::kJumpUnlessLtI: pc = int32_t(r[i.a]) < int32_t(r[i.b]) ? pc + 1 : i.c; continue;
      case Op::kCall:
        r[i.dst] = uint32_t(pc + 1);
        pc = i.b;
        continue;
      case Op::kReturn: pc = int32_t(r[i.a]); continue;
      case Op::kEnd: return leave(State::kDone);

      case Op::kIndex: {
        const uint32_t index = r[i.a];
        if (index >= uint32_t(i.b)) {
          auto name = p_.index_names.find(pc);
          return fault("bounds", StrCat("index ", i.flags ? int64_t(int32_t(index)) : int64_t(index), " is outside ",
                                        name == p_.index_names.end() ? std::string("value") : name->second, ", which has ", i.b,
                                        " elements"));
        }
        r[i.dst] = (i.c == kNone ? 0u : r[i.c]) + index * uint32_t(i.d);
        break;
      }
      case Op::kLoadShared:
      case Op::kStoreShared:
        if (!TransferShared(i.op == Op::kStoreShared, i, invocation, pc)) return leave(State::kFailed);
        break;
      case Op::kMatrixLoad:
      case Op::kMatrixStore:
        if (!TransferMatrix(i, invocation, pc)) return leave(State::kFailed);
        break;
      case Op::kMatrixMultiply: MultiplyMatrices(i, r); break;
      case Op::kLoadBuffer:
      case Op::kStoreBuffer:
        if (!TransferBuffer(i.op == Op::kStoreBuffer, i, invocation, pc)) return leave(State::kFailed);
        break;
      case Op::kLoadTexture:
      case Op::kStoreTexture:
        if (!TransferTexture(i.op == Op::kStoreTexture, i, invocation, pc)) return leave(State::kFailed);
        break;
      case Op::kAtomic:
        if (!Atomic(i, invocation, pc)) return leave(State::kFailed);
        break;

      case Op::kTensorLoad:
      case Op::kTensorStore: {
        const TensorAccess& a = p_.accesses[size_t(i.a)];
        int64_t address = a.base;
        for (int k = 0; k < a.rank; ++k) {
          const uint32_t coordinate = r[a.coords[k]];
          if (coordinate >= a.extents[k]) return fault("bounds", OutsideText(a, r, k));
          address += int64_t(coordinate) * a.strides[k];
        }
        const bool ok = i.op == Op::kTensorLoad ? LoadElements(a, address, i, invocation, pc)
                                                : StoreElements(a, address, i, invocation, pc);
        if (!ok) return leave(State::kFailed);
        break;
      }
      case Op::kCheckCoordinates: {
        const TensorAccess& a = p_.accesses[size_t(i.a)];
        const int axis = OutsideAxis(a, r);
        if (axis >= 0) return fault("bounds", OutsideText(a, r, axis));
        break;
      }
      case Op::kInside: r[i.dst] = OutsideAxis(p_.accesses[size_t(i.a)], r) < 0; break;
      case Op::kElementLoad:
        if (!LoadElements(p_.accesses[size_t(i.a)], int32_t(r[i.b]), i, invocation, pc)) return leave(State::kFailed);
        break;
      case Op::kElementStore:
        if (!StoreElements(p_.accesses[size_t(i.a)], int32_t(r[i.b]), i, invocation, pc)) return leave(State::kFailed);
        break;
      case Op::kMaskLanes: {
        const int count = LaneCount(p_.accesses[size_t(i.a)], r);
        for (int lane = count; lane < 4; ++lane) r[i.dst + lane] = 0;
        break;
      }

      case Op::kBarrier: return leave(State::kAtBarrier);
      case Op::kSubgroup: return leave(State::kAtSubgroup);
      case Op::kCheckFinite:
        for (int k = 0; k < i.n; ++k) {
          if (std::isfinite(F(r[i.dst + k]))) continue;
          bool finite = true;
          for (int operand = 0; operand < 3; ++operand) {
            const int32_t slot = operand == 0 ? i.a : operand == 1 ? i.b : i.c;
            if (slot == kNone) continue;
            finite = finite && std::isfinite(F(r[slot + (i.flags & (1 << operand) ? 0 : k)]));
          }
          if (finite) {
            Report(pc, invocation.index, "nan",
                   StrCat(std::isnan(F(r[i.dst + k])) ? "NaN" : "infinity", " made from finite values"));
          }
        }
        break;
    }
    ++pc;
  }
#undef UNARY_F
#undef BINARY_F
#undef COMPARE_F
#undef TERNARY_F
#undef UNARY_W
#undef BINARY_W
}

}  // namespace

InterpretResult Run(const Program& program, const uint32_t workgroups[3], const InterpretOptions& options) {
  return Machine(program, workgroups, options).Run();
}

}  // namespace leeway::shader::interpret
