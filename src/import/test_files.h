// Small files of language models, for tests and fuzzers.
#pragma once

#include <string>
#include <vector>

#include "base/strings.h"
#include "import/gguf/gguf_writer.h"
#include "tensor/block_quant.h"
#include "tensor/host_tensor.h"

namespace leeway {
namespace internal {

inline const char* SafetensorsTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kI64: return "I64";
    case DType::kU8: return "U8";
    default: CHECK(false && "no test writes this type");
  }
}

}  // namespace internal

// Elements that depend on the index only. Block-quantized types without an encoder get bytes of a pattern with small scales.
inline HostTensor TestGgufTensor(DType dtype, Shape shape) {
  HostTensor real(DType::kF32, shape);
  for (int64_t i = 0; i < real.element_count(); ++i) real.Set(i, double(i * 37 % 101 - 50) / 8);
  if (!IsBlockQuantized(dtype) || CanQuantize(dtype)) return real.ConvertTo(dtype);
  HostTensor blocks(dtype, shape);
  const auto bytes = blocks.mutable_bytes();
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte((i * 41 + 3) % 51);  // halves of less than 2
  return blocks;
}

// A model of every kind of metadata, and tensors of several types.
inline std::vector<std::byte> TestGguf() {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.String("general.name", "test");
  writer.Number("general.file_type", uint32_t{7});
  writer.Number("llama.block_count", uint32_t{2});
  writer.Number("llama.embedding_length", uint32_t{32});
  writer.Number("llama.attention.head_count", uint32_t{2});
  writer.Number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.Number("llama.rope.freq_base", 10000.0f);
  writer.Numbers("llama.attention.head_count_kv", std::vector<uint32_t>{1, 2});
  writer.Numbers("llama.attention.sliding_window_pattern", std::vector<uint8_t>{1, 0});
  writer.Number("test.i8", int8_t{-7});
  writer.Number("test.u16", uint16_t{65535});
  writer.Number("test.i16", int16_t{-300});
  writer.Number("test.u64", uint64_t{1} << 40);
  writer.Number("test.large", ~uint64_t{0});
  writer.Number("test.i64", -(int64_t{1} << 40));
  writer.Number("test.f64", 0.1);
  writer.Numbers("test.empty", std::vector<int32_t>{});
  writer.Number("tokenizer.ggml.add_bos_token", true);
  writer.String("tokenizer.ggml.model", "llama");
  const std::vector<std::string> tokens = {"<unk>", "\xE2\x96\x81the", "<0x0A>", ""};
  writer.Strings("tokenizer.ggml.tokens", tokens);
  writer.Numbers("tokenizer.ggml.scores", std::vector<float>{0, -1, -2.5f, -3});
  writer.Numbers("tokenizer.ggml.token_type", std::vector<int32_t>{2, 1, 6, 5});
  writer.String("tokenizer.chat_template", "{{ messages[0].content }}");
  writer.Tensor("token_embd.weight", TestGgufTensor(DType::kQ8_0, {4, 32}));
  writer.Tensor("blk.0.attn_q.weight", TestGgufTensor(DType::kQ4_0, {32, 32}));
  writer.Tensor("blk.0.attn_k.weight", TestGgufTensor(DType::kF16, {16, 32}));
  writer.Tensor("blk.0.ffn_down.weight", TestGgufTensor(DType::kQ6_K, {1, 256}));
  writer.Tensor("output_norm.weight", TestGgufTensor(DType::kF32, {32}));
  return writer.Finish();
}

// Several GGUF files that a reader takes: the one above, every element type, other alignments, nothing at all.
inline std::vector<std::vector<std::byte>> TestGgufFiles() {
  std::vector<std::vector<std::byte>> files = {TestGguf(), GgufWriter().Finish(), GgufWriter().Finish(32, 2)};
  GgufWriter types;
  types.String("general.architecture", "gemma3");
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = DType(i);
    if (GgufTensorTypeId(dtype)) types.Tensor(StrCat("t.", DTypeName(dtype)), TestGgufTensor(dtype, {1, 256}));
  }
  files.push_back(types.Finish());
  GgufWriter aligned;
  aligned.Number("general.alignment", uint32_t{8});
  aligned.String("general.architecture", "qwen3");
  aligned.Tensor("a", TestGgufTensor(DType::kF32, {2, 3, 1, 2}));
  aligned.Tensor("b", TestGgufTensor(DType::kF32, {}));
  aligned.Tensor("c", TestGgufTensor(DType::kQ4_1, {2, 32}));
  files.push_back(aligned.Finish(8));
  return files;
}

// A .safetensors file: `header` as it is, after its length, then the data.
inline std::vector<std::byte> SafetensorsBytes(const std::string& header, std::span<const std::byte> data) {
  std::vector<std::byte> file(8 + header.size());
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

struct NamedHostTensor {
  std::string name;
  HostTensor tensor;
};
// These tensors in this order, with a correct header.
inline std::vector<std::byte> WriteSafetensors(std::span<const NamedHostTensor> tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::vector<std::byte> data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.insert(data.end(), tensor.bytes().begin(), tensor.bytes().end());
    header += StrCat(",\"", name, "\":{\"dtype\":\"", internal::SafetensorsTypeName(tensor.dtype()), "\",\"shape\":[",
                     Join(tensor.shape(), ","), "],\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return SafetensorsBytes(header, data);
}

// Several that a reader takes.
inline std::vector<std::vector<std::byte>> TestSafetensorsFiles() {
  const std::vector<NamedHostTensor> tensors = {
      {"model.embed_tokens.weight", TestGgufTensor(DType::kF32, {4, 8})},
      {"model.norm.weight", TestGgufTensor(DType::kBF16, {8})},
      {"lm_head.weight", TestGgufTensor(DType::kF16, {4, 8})},
      {"scalar", TestGgufTensor(DType::kF32, {})},
      {"empty", HostTensor(DType::kF32, {0, 8})},
      {"position_ids", HostTensor(DType::kI64, {1, 2})},
  };
  const std::vector<std::byte> eight(8);
  return {
      WriteSafetensors(tensors),
      WriteSafetensors(std::span(tensors).subspan(1, 2)),
      SafetensorsBytes("{}      ", {}),
      SafetensorsBytes(R"({"a":{"data_offsets":[0,4],"x":{"y":[1,-2,0.5,null,{"z":true}]},"shape":[4],"dtype":"U8"},)"
                       R"("b":{"dtype":"F32","shape":[],"data_offsets":[4,8]}})",
                       eight),
  };
}

}  // namespace leeway
