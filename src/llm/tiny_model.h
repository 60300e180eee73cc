// Small language models with random weights, as GGUF files: for tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "import/gguf/gguf_writer.h"

namespace leeway::llm {

struct TinyModel {
  std::string architecture = "llama";  // "llama", "gemma3", "qwen3"
  int64_t layers = 2, width = 32, heads = 4, kv_heads = 2, head_size = 8, inner = 48, vocabulary = 64;
  int64_t trained_context = 256;
  int64_t window = 6, pattern = 2;  // gemma3
  unsigned seed = 1;
  bool tokenizer = true;
  DType type = DType::kF32;  // of the matrices
};

// Tokens 0 to 25 are the letters a to z, 26 the space, 27 "<|im_start|>", 28 "<|im_end|>", the end of an answer, 29 a line
// feed, 30 to 33 the four bytes of U+1F600, the rest "aa", "ab", ...: no text merges into them.
inline std::vector<std::string> TinyVocabulary(int64_t size) {
  std::vector<std::string> tokens;
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  tokens.insert(tokens.end(), {"\u0120", "<|im_start|>", "<|im_end|>", "\u010a"});
  // Bytes F0 9F 98 80 in the alphabet of byte-level tokens.
  tokens.insert(tokens.end(), {"\u00f0", "\u0141", "\u013a", "\u0122"});
  for (int i = 0; int64_t(tokens.size()) < size; ++i) tokens.push_back({char('a' + i / 26), char('a' + i % 26)});
  tokens.resize(size_t(size));
  return tokens;
}

inline std::vector<std::byte> WriteTinyModel(const TinyModel& tiny) {
  GgufWriter writer;
  const std::string& arch = tiny.architecture;
  auto key = [&](const char* name) { return StrCat(arch, ".", name); };
  writer.String("general.architecture", arch);
  writer.String("general.name", StrCat("tiny ", arch));
  writer.Number(key("block_count"), uint32_t(tiny.layers));
  writer.Number(key("context_length"), uint32_t(tiny.trained_context));
  writer.Number(key("embedding_length"), uint32_t(tiny.width));
  writer.Number(key("feed_forward_length"), uint32_t(tiny.inner));
  writer.Number(key("attention.head_count"), uint32_t(tiny.heads));
  writer.Number(key("attention.head_count_kv"), uint32_t(tiny.kv_heads));
  writer.Number(key("attention.key_length"), uint32_t(tiny.head_size));
  writer.Number(key("attention.value_length"), uint32_t(tiny.head_size));
  writer.Number(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  writer.Number(key("rope.freq_base"), 5000.f);
  const bool is_gemma = arch == "gemma3";
  if (is_gemma) {
    writer.Number(key("attention.sliding_window"), uint32_t(tiny.window));
    writer.Number(key("attention.sliding_window_pattern"), uint32_t(tiny.pattern));
  }
  if (tiny.tokenizer) {
    const std::vector<std::string> tokens = TinyVocabulary(tiny.vocabulary);
    std::vector<int32_t> types(tokens.size(), 1);
    types[27] = types[28] = 3;
    writer.String("tokenizer.ggml.model", "gpt2");
    writer.String("tokenizer.ggml.pre", "smollm");
    writer.Strings("tokenizer.ggml.tokens", tokens);
    writer.Numbers("tokenizer.ggml.token_type", types);
    writer.Strings("tokenizer.ggml.merges", std::vector<std::string>());
    writer.Number("tokenizer.ggml.bos_token_id", uint32_t(27));
    writer.Number("tokenizer.ggml.eos_token_id", uint32_t(28));
  }
  std::mt19937 random(tiny.seed);
  auto tensor = [&](const std::string& name, Shape shape, float scale, float offset = 0) {
    std::vector<float> values(size_t(shape.element_count()));
    for (float& v : values) v = offset + scale * (float(random() % 20001) / 10000 - 1);
    const HostTensor made = HostTensor::FromF32(shape, values);
    writer.Tensor(name, shape.rank() > 1 && tiny.type != DType::kF32 ? made.ConvertTo(tiny.type) : made);
  };
  const int64_t q = tiny.heads * tiny.head_size, kv = tiny.kv_heads * tiny.head_size;
  tensor("token_embd.weight", {tiny.vocabulary, tiny.width}, 1);
  for (int64_t l = 0; l < tiny.layers; ++l) {
    auto name = [&](const char* what) { return StrCat("blk.", l, ".", what, ".weight"); };
    tensor(name("attn_norm"), {tiny.width}, 0.2f, 1);
    tensor(name("attn_q"), {q, tiny.width}, 0.4f);
    tensor(name("attn_k"), {kv, tiny.width}, 0.4f);
    tensor(name("attn_v"), {kv, tiny.width}, 0.4f);
    tensor(name("attn_output"), {tiny.width, q}, 0.4f);
    tensor(name("ffn_norm"), {tiny.width}, 0.2f, 1);
    tensor(name("ffn_gate"), {tiny.inner, tiny.width}, 0.3f);
    tensor(name("ffn_up"), {tiny.inner, tiny.width}, 0.3f);
    tensor(name("ffn_down"), {tiny.width, tiny.inner}, 0.3f);
    if (arch == "qwen3" || is_gemma) {
      tensor(name("attn_q_norm"), {tiny.head_size}, 0.2f, 1);
      tensor(name("attn_k_norm"), {tiny.head_size}, 0.2f, 1);
    }
    if (is_gemma) {
      tensor(name("post_attention_norm"), {tiny.width}, 0.2f, 1);
      tensor(name("post_ffw_norm"), {tiny.width}, 0.2f, 1);
    }
  }
  tensor("output_norm.weight", {tiny.width}, 0.2f, 1);
  return writer.Finish();
}

// The file in the folder for temporary files, gone with the value.
struct TinyModelFile {
  explicit TinyModelFile(const TinyModel& tiny, std::string_view name = "tiny") {
    path = (std::filesystem::temp_directory_path() / StrCat("leeway-", name, "-", std::to_string(getpid()), ".gguf")).string();
    CHECK(WriteFileAtomically(path, WriteTinyModel(tiny)).ok());
  }
  ~TinyModelFile() {
    std::error_code error;
    std::filesystem::remove(path, error);
  }
  TinyModelFile(const TinyModelFile&) = delete;
  TinyModelFile& operator=(const TinyModelFile&) = delete;
  std::string path;
};

}  // namespace leeway::llm
