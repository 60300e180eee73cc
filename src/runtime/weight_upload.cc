#include "runtime/weight_upload.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/strings.h"
#include "ops/dispatch.h"
#include "shader/compile.h"
#include "tensor/address.h"
#include "tensor/block_pack.h"

namespace leeway {
namespace {

// Blocks lie at even bytes only. Halves become f32 by whole numbers: drivers may take small ones for zero.
constexpr char kReading[] = R"(
tensor raw[word] : read as u32;
tensor quants[word] : write as u32;
tensor factors[word] : write as u32;
const kind : u32;
const block_bytes : u32;
const halves : bool;

fn word_at(at : u32) -> u32 {
  let low = raw.load(at / 4u);
  if at % 4u == 0u { return low; }
  return (low >> 16u) | (raw.load(at / 4u + 1u) << 16u);
}
fn half_at(at : u32) -> u32 { return (raw.load(at / 4u) >> (at % 4u * 8u)) & 0xffffu; }
fn byte_at(at : u32) -> u32 { return (raw.load(at / 4u) >> (at % 4u * 8u)) & 0xffu; }
fn widened(half : u32) -> u32 {
  let sign = (half & 0x8000u) << 16u;
  let magnitude = half & 0x7fffu;
  if magnitude < 0x400u { return sign | bitcast<u32>(f32(magnitude) * 5.9604644775390625e-8); }
  if magnitude < 0x7c00u { return sign | ((magnitude << 13u) + 0x38000000u); }
  return sign | 0x7f800000u | (magnitude << 13u);
}
)";

// The types with blocks of 32: kinds 40 (q4_0), 41, 50, 51, 80 and 45 (iq4_nl). Two blocks an invocation, whose factors as
// halves are one word.
constexpr auto kBlocks32 = JoinTexts(kReading, R"(
const levels = array(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

// Four bits, spread to bit 4 of four bytes.
fn fifth_bits(bits : u32) -> u32 {
  return ((bits & 1u) << 4u) | ((bits & 2u) << 11u) | ((bits & 4u) << 18u) | ((bits & 8u) << 25u);
}
// 0..31 in each byte, 16 less.
fn less_16(codes : u32) -> u32 { return (codes & 0x0f0f0f0fu) | ((~codes & 0x10101010u) * 15u); }
fn levels4(nibbles : u32) -> u32 {
  return pack4xI8(vec4i(levels[nibbles & 15u], levels[(nibbles >> 8u) & 15u], levels[(nibbles >> 16u) & 15u],
                        levels[(nibbles >> 24u) & 15u]));
}
// Codes of a word of nibbles, number i of the block; high: those of the upper half.
fn codes4(at : u32, i : u32, high : u32) -> u32 {
  if kind == 45u {
    return levels4((word_at(at + 2u + 4u * i) >> (4u * high)) & 0x0f0f0f0fu);
  } else if kind == 50u {
    let bits = word_at(at + 2u) >> (4u * i + 16u * high);
    return less_16(((word_at(at + 6u + 4u * i) >> (4u * high)) & 0x0f0f0f0fu) | fifth_bits(bits));
  } else {
    let bits = word_at(at + 4u) >> (4u * i + 16u * high);
    return ((word_at(at + 8u + 4u * i) >> (4u * high)) & 0x0f0f0f0fu) | fifth_bits(bits);
  }
}
fn four_words(at : u32) -> vec4u { return vec4u(word_at(at), word_at(at + 4u), word_at(at + 8u), word_at(at + 12u)); }

fn repack(block : u32) {
  let at = 16u + block * block_bytes;
  if kind == 40u {
    quants.store4(four_words(at + 2u), block);
  } else if kind == 41u {
    quants.store4(four_words(at + 4u), block);
  } else if kind == 80u {
    quants.store4(four_words(at + 2u), 2u * block);
    quants.store4(four_words(at + 18u), 2u * block + 1u);
  } else {
    for (var high = 0u; high < 2u; high++) {
      quants.store4(vec4u(codes4(at, 0u, high), codes4(at, 1u, high), codes4(at, 2u, high), codes4(at, 3u, high)),
                    2u * block + high);
    }
  }
  if kind == 41u || kind == 51u {
    if halves {
      factors.store(word_at(at), block);
    } else {
      factors.store(widened(half_at(at)), 2u * block);
      factors.store(widened(half_at(at + 2u)), 2u * block + 1u);
    }
  } else if !halves {
    factors.store(widened(half_at(at)), block);
  }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let count = raw.load(0u);
  let first = 2u * id.x;
  if first >= count { return; }
  repack(first);
  if first + 1u < count { repack(first + 1u); }
  if halves && kind != 41u && kind != 51u {
    var both = half_at(16u + first * block_bytes);
    if first + 1u < count { both |= half_at(16u + (first + 1u) * block_bytes) << 16u; }
    factors.store(both, id.x);
  }
}
)");

// The types with blocks of 256, kinds 2 to 6: an invocation has the elements 32 part to 32 part + 31 of a block. Factors are
// f32.
constexpr auto kBlocks256 = JoinTexts(kReading, R"(
// Codes of the elements 4 i to 4 i + 3 of the part.
fn codes4(at : u32, part : u32, i : u32) -> u32 {
  let half = part / 4u;
  if kind == 2u {
    return (word_at(at + 16u + 32u * half + 4u * i) >> (part % 4u * 2u)) & 0x03030303u;
  } else if kind == 3u {
    let low = (word_at(at + 32u + 32u * half + 4u * i) >> (part % 4u * 2u)) & 0x03030303u;
    return low + ((word_at(at + 4u * i) >> part) & 0x01010101u) * 4u + 0x04040404u;
  } else if kind == 4u {
    return (word_at(at + 16u + part / 2u * 32u + 4u * i) >> (part % 2u * 4u)) & 0x0f0f0f0fu;
  } else if kind == 5u {
    let low = (word_at(at + 48u + part / 2u * 32u + 4u * i) >> (part % 2u * 4u)) & 0x0f0f0f0fu;
    return low | (((word_at(at + 16u + 4u * i) >> part) & 0x01010101u) << 4u);
  } else {
    let low = (word_at(at + 64u * half + part % 2u * 32u + 4u * i) >> (part % 4u / 2u * 4u)) & 0x0f0f0f0fu;
    let codes = low | (((word_at(at + 128u + 32u * half + 4u * i) >> (part % 4u * 2u)) & 0x03030303u) << 4u);
    // 32 less in each byte.
    return (codes & 0x1f1f1f1fu) | ((~codes & 0x20202020u) * 7u);
  }
}
fn half_value(at : u32) -> f32 { return bitcast<f32>(widened(half_at(at))); }
// The 6-bit scale (which 0) or minimum (1) of a part, in the twelve bytes of q4_K and q5_K.
fn six_bits(at : u32, part : u32, which : u32) -> u32 {
  if part < 4u { return byte_at(at + part + 4u * which) & 63u; }
  return ((byte_at(at + part + 4u) >> (4u * which)) & 15u) | ((byte_at(at + part - 4u + 4u * which) >> 6u) << 4u);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let block = id.x / 8u;
  let part = id.x % 8u;
  if block >= raw.load(0u) { return; }
  let at = 16u + block * block_bytes;
  let low = vec4u(codes4(at, part, 0u), codes4(at, part, 1u), codes4(at, part, 2u), codes4(at, part, 3u));
  let high = vec4u(codes4(at, part, 4u), codes4(at, part, 5u), codes4(at, part, 6u), codes4(at, part, 7u));
  if kind <= 4u {
    quants.store4(low | (high << vec4u(4u)), id.x);
  } else {
    quants.store4(low, 2u * id.x);
    quants.store4(high, 2u * id.x + 1u);
  }
  if kind == 4u || kind == 5u {
    factors.store(bitcast<u32>(half_value(at) * f32(six_bits(at + 4u, part, 0u))), 2u * id.x);
    factors.store(bitcast<u32>(-(half_value(at + 2u) * f32(six_bits(at + 4u, part, 1u)))), 2u * id.x + 1u);
  } else {
    for (var g = 0u; g < 2u; g++) {
      let group = 2u * part + g;
      let to = 2u * id.x + g;
      if kind == 2u {
        let scales = byte_at(at + group);
        factors.store(bitcast<u32>(half_value(at + 80u) * f32(scales & 15u)), 2u * to);
        factors.store(bitcast<u32>(-(half_value(at + 82u) * f32(scales >> 4u))), 2u * to + 1u);
      } else if kind == 3u {
        let nibble = (byte_at(at + 96u + group % 8u) >> (group / 8u * 4u)) & 15u;
        let top = (byte_at(at + 104u + group % 4u) >> (group / 4u * 2u)) & 3u;
        factors.store(bitcast<u32>(half_value(at + 108u) * f32(i32(nibble | (top << 4u)) - 32)), to);
      } else {
        let scale = i32(byte_at(at + 192u + group) << 24u) >> 24u;
        factors.store(bitcast<u32>(half_value(at + 208u) * f32(scale)), to);
      }
    }
  }
}
)");

struct Kind {
  DType dtype;
  uint32_t number;
};
constexpr Kind kKinds[] = {{DType::kQ4_0, 40}, {DType::kQ4_1, 41},   {DType::kQ5_0, 50}, {DType::kQ5_1, 51},
                           {DType::kQ8_0, 80}, {DType::kIQ4_NL, 45}, {DType::kQ2_K, 2},  {DType::kQ3_K, 3},
                           {DType::kQ4_K, 4},  {DType::kQ5_K, 5},    {DType::kQ6_K, 6}};

VirtualTensor Words(size_t bytes) {
  VirtualTensor tensor;
  tensor.shape = {int64_t(bytes + 15) / 16 * 4};
  tensor.placement.layout = Layout::kLinear;
  tensor.placement.dtype = DType::kU32;
  tensor.placement.shape = tensor.shape;
  return tensor;
}

// Slices begin at blocks whose pieces begin where a binding may begin.
constexpr size_t kBlocksAligned = 1024;

// One constant, cut into slices.
template <class Visit>
Status ForEachSlice(const QuantizedUpload& upload, const QuantizedUploadOptions& options, Visit&& visit) {
  const DType dtype = upload.constant->dtype();
  const auto bytes = upload.constant->bytes();
  const size_t elements = BlockElements(dtype);
  const size_t block_bytes = BlockBytes(dtype), blocks = bytes.size() / block_bytes;
  const size_t per_slice = std::max<size_t>(options.slice_bytes / block_bytes / kBlocksAligned, 1) * kBlocksAligned;
  for (size_t first = 0; first < blocks; first += per_slice) {
    const size_t count = std::min(per_slice, blocks - first);
    RETURN_IF_ERROR_CONTEXT(visit(bytes.subspan(first * block_bytes, count * block_bytes), first, count),
                            StrCat("while uploading weights ", upload.name));
    if (!options.progress) continue;
    RETURN_IF_ERROR(options.progress((upload.quants ? QuantsBytes(upload.format, count * elements) : 0) +
                                     (upload.factors ? FactorsBytes(upload.format, count * elements) : 0)));
  }
  return {};
}

Status PackOnHost(Device& device, ThreadPool& pool, std::span<const QuantizedUpload> uploads,
                  const QuantizedUploadOptions& options) {
  std::vector<std::byte> quants, factors;
  for (const QuantizedUpload& upload : uploads) {
    const DType dtype = upload.constant->dtype();
    const BlockFormat& format = upload.format;
    const size_t elements = BlockElements(dtype), block_bytes = BlockBytes(dtype);
    auto pack = [&](std::span<const std::byte> raw, size_t first, size_t count) -> Status {
      quants.assign((QuantsBytes(format, count * elements) + 3) / 4 * 4, std::byte(0));
      factors.assign((FactorsBytes(format, count * elements) + 3) / 4 * 4, std::byte(0));
      const size_t share = kBlocksAligned;
      pool.For(int64_t((count + share - 1) / share), [&](int64_t i) {
        const size_t begin = size_t(i) * share, blocks = std::min(share, count - begin);
        const size_t before = begin * elements, here = blocks * elements;
        PackBlocks(dtype, raw.subspan(begin * block_bytes, blocks * block_bytes), format,
                   std::span(quants).subspan(QuantsBytes(format, before), QuantsBytes(format, here)),
                   std::span(factors).subspan(FactorsBytes(format, before), FactorsBytes(format, here)));
      });
      if (upload.quants) {
        const uint64_t at = upload.quants_offset_bytes + QuantsBytes(format, first * elements);
        RETURN_IF_ERROR(device.Write(*upload.quants, at, quants));
      }
      if (upload.factors) {
        const uint64_t at = upload.factors_offset_bytes + FactorsBytes(format, first * elements);
        RETURN_IF_ERROR(device.Write(*upload.factors, at, factors));
      }
      return {};
    };
    RETURN_IF_ERROR(ForEachSlice(upload, options, pack));
  }
  return {};
}

class DevicePacker {
 public:
  DevicePacker(Device& device, const QuantizedUploadOptions& options) : device_(device), options_(options) {}

  Status Upload(const QuantizedUpload& upload) {
    auto pack = [&](std::span<const std::byte> raw, size_t first, size_t count) { return Slice(upload, raw, first, count); };
    return ForEachSlice(upload, options_, pack);
  }
  Status Finish() {
    while (!in_flight_.empty()) RETURN_IF_ERROR(WaitForOne());
    return {};
  }

 private:
  // So many slices are on their way at a time: the next one is copied while one is repacked.
  static constexpr size_t kInFlight = 2;

  struct Sent {
    EventPtr event;
    std::unique_ptr<Recording> recording;
  };

  Status Slice(const QuantizedUpload& upload, std::span<const std::byte> raw, size_t first, size_t count) {
    const DType dtype = upload.constant->dtype();
    const BlockFormat& format = upload.format;
    ASSIGN_OR_RETURN(const Pipeline* pipeline, PipelineFor(dtype, format));
    if (in_flight_.size() >= kInFlight) RETURN_IF_ERROR(WaitForOne());
    const size_t number = next_++ % kInFlight;
    if (staging_.size() <= number) {
      ASSIGN_OR_RETURN(auto made, device_.CreateBuffer(StagingBytes(), "raw weights"));
      staging_.push_back(std::move(made));
    }
    Buffer& staging = *staging_[number];
    const uint32_t header[4] = {uint32_t(count), 0, 0, 0};
    RETURN_IF_ERROR(device_.Write(staging, 0, std::as_bytes(std::span(header))));
    // Straight from the mapped file, but for what is no whole word at the end.
    const size_t whole = raw.size() / 4 * 4;
    RETURN_IF_ERROR(device_.Write(staging, kRepackHeaderBytes, raw.first(whole)));
    if (whole < raw.size()) {
      std::byte tail[4] = {};
      std::memcpy(tail, raw.data() + whole, raw.size() - whole);
      RETURN_IF_ERROR(device_.Write(staging, kRepackHeaderBytes + whole, tail));
    }
    const size_t elements = BlockElements(dtype);
    auto range = [&](Buffer* buffer, uint64_t offset, size_t before, size_t bytes) {
      BindingResource bound;
      bound.buffer = buffer;
      bound.offset_bytes = offset + before;
      bound.size_bytes = (bytes + 3) / 4 * 4;
      return bound;
    };
    Dispatch dispatch;
    dispatch.pipeline = pipeline;
    BindingResource from;
    from.buffer = &staging;
    for (const std::string& tensor : bindings_[dtype]) {
      if (tensor == "raw") dispatch.bindings.push_back(from);
      if (tensor == "quants") {
        dispatch.bindings.push_back(range(upload.quants, upload.quants_offset_bytes, QuantsBytes(format, first * elements),
                                          QuantsBytes(format, count * elements)));
      }
      if (tensor == "factors") {
        dispatch.bindings.push_back(range(upload.factors, upload.factors_offset_bytes, FactorsBytes(format, first * elements),
                                          FactorsBytes(format, count * elements)));
      }
    }
    dispatch.workgroups[0] = RepackKernelFor(dtype, format, count).workgroups;
    dispatch.label = StrCat("repack ", upload.name);
    std::vector<Dispatch> dispatches;
    dispatches.push_back(std::move(dispatch));
    ASSIGN_OR_RETURN(auto recording, device_.Record(std::move(dispatches)));
    ASSIGN_OR_RETURN(EventPtr event, device_.Submit(*recording, {}));
    in_flight_.push_back({std::move(event), std::move(recording)});
    return {};
  }

  uint64_t StagingBytes() const {
    return kRepackHeaderBytes + std::max<uint64_t>(options_.slice_bytes, 256 * kBlocksAligned) + 16;
  }

  Status WaitForOne() {
    const Status status = device_.Wait(in_flight_.front().event);
    in_flight_.pop_front();
    return status;
  }

  Result<const Pipeline*> PipelineFor(DType dtype, const BlockFormat& format) {
    auto& pipeline = pipelines_[{dtype, format.factor}];
    if (pipeline) return pipeline.get();
    const RepackKernel kernel = RepackKernelFor(dtype, format, StagingBytes() / BlockBytes(dtype));
    ASSIGN_OR_RETURN(const shader::Module module, shader::Parse(kernel.text, kernel.name));
    ASSIGN_OR_RETURN(const shader::KernelText text, shader::Compile(module, kernel.specialization, device_.info().target));
    ASSIGN_OR_RETURN(Device::Compiling compiling, device_.StartCompile(text));
    RETURN_IF_ERROR(device_.Wait(compiling.ready));
    auto& names = bindings_[dtype];
    names.clear();
    for (const auto& binding : text.bindings) names.push_back(binding.tensor);
    pipeline = std::move(compiling.pipeline);
    return pipeline.get();
  }

  Device& device_;
  const QuantizedUploadOptions& options_;
  std::map<std::pair<DType, DType>, std::unique_ptr<Pipeline>> pipelines_;  // by type and type of factors
  std::map<DType, std::vector<std::string>> bindings_;
  std::vector<std::unique_ptr<Buffer>> staging_;
  std::deque<Sent> in_flight_;
  size_t next_ = 0;
};

}  // namespace

RepackKernel RepackKernelFor(DType dtype, const BlockFormat& format, size_t most_blocks) {
  RepackKernel kernel;
  const bool large = BlockElements(dtype) == 256;
  kernel.name = large ? "repack_blocks_of_256" : "repack_blocks_of_32";
  kernel.text = large ? kBlocks256.data() : kBlocks32.data();
  for (const Kind& kind : kKinds) {
    if (kind.dtype == dtype) kernel.specialization.consts["kind"] = kind.number;
  }
  const size_t elements = most_blocks * BlockElements(dtype);
  kernel.specialization.consts["block_bytes"] = double(BlockBytes(dtype));
  kernel.specialization.consts["halves"] = format.factor == DType::kF16;
  // A block that ends in the middle of a word is read with the word after it.
  kernel.specialization.tensors["raw"] = Words(kRepackHeaderBytes + most_blocks * BlockBytes(dtype) + 4);
  kernel.specialization.tensors["quants"] = Words(QuantsBytes(format, elements));
  kernel.specialization.tensors["factors"] = Words(FactorsBytes(format, elements));
  const size_t invocations = large ? most_blocks * 8 : (most_blocks + 1) / 2;
  kernel.workgroups = uint32_t((invocations + 63) / 64);
  return kernel;
}

Status UploadQuantized(Device& device, ThreadPool& pool, std::span<const QuantizedUpload> uploads,
                       const QuantizedUploadOptions& options) {
  DevicePacker packer(device, options);
  const bool on_device = options.on_device.value_or(!device.info().is_software);
  for (const QuantizedUpload& upload : uploads) {
    // A kernel writes both pieces, and begins where bindings may.
    const uint64_t alignment = device.info().buffer_offset_alignment;
    const bool is_aligned = upload.quants_offset_bytes % alignment == 0 && upload.factors_offset_bytes % alignment == 0;
    if (on_device && is_aligned && upload.quants && upload.factors) {
      RETURN_IF_ERROR(packer.Upload(upload));
    } else {
      RETURN_IF_ERROR(PackOnHost(device, pool, {&upload, 1}, options));
    }
  }
  return packer.Finish();
}

}  // namespace leeway
