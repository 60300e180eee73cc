// For tests: random models, as the files of their families would be.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "base/strings.h"
#include "block_types.h"
#include "llm/models/models.h"
#include "tensor/block_quant.h"

namespace leeway::llm {

struct Tiny {
  std::string architecture = "llama";
  int64_t width = 32, layers = 2, heads = 4, kv_heads = 2, head_size = 8, inner = 64, vocabulary = 50;
  int64_t window = 3, pattern = 2;
  DType type = DType::kF32;
  bool tied = true, rope_factors = false;
};

inline std::shared_ptr<const HostTensor> RandomTensor(const Shape& shape, DType type, double mean, double deviation,
                                                      std::mt19937& random) {
  std::normal_distribution<float> normal{float(mean), float(deviation)};
  HostTensor tensor(DType::kF32, shape);
  for (float& value : tensor.as_mutable<float>()) value = normal(random);
  if (!IsBlockQuantized(type) || CanQuantize(type)) return std::make_shared<const HostTensor>(tensor.ConvertTo(type));
  // Random quants under scales of a fitting size: halves have their places in the block.
  HostTensor blocks(type, shape);
  std::span<std::byte> bytes = blocks.mutable_bytes();
  for (std::byte& byte : bytes) byte = std::byte(random() & 0xff);
  const size_t block = BlockBytes(type);
  for (size_t at = 0; at < bytes.size(); at += block) {
    double scale = deviation / 60;
    switch (type) {
      case DType::kQ2_K: scale = deviation / 20; break;
      case DType::kQ3_K: scale = deviation / 40; break;
      case DType::kQ4_K: scale = deviation / 800; break;
      case DType::kQ5_K: scale = deviation / 1600; break;
      case DType::kQ6_K: scale = deviation / 1300; break;
      default: break;
    }
    for (size_t half : HalvesOf(type)) {
      const uint16_t bits = F32ToF16(float(scale));
      bytes[at + half] = std::byte(bits & 0xff), bytes[at + half + 1] = std::byte(bits >> 8);
    }
  }
  return std::make_shared<const HostTensor>(std::move(blocks));
}

inline MetaValue Number(double value) { return {.numbers = {value}}; }

inline ModelFile RandomFile(const Tiny& tiny, uint32_t seed) {
  std::mt19937 random(seed);
  ModelFile file;
  file.path = "tiny.gguf";
  const std::string& a = tiny.architecture;
  file.metadata["general.architecture"] = {.texts = {a}};
  auto set = [&](const char* key, double value) { file.metadata[a + "." + key] = Number(value); };
  set("embedding_length", double(tiny.width)), set("block_count", double(tiny.layers)), set("context_length", 1000);
  set("feed_forward_length", double(tiny.inner)), set("attention.head_count", double(tiny.heads));
  set("attention.head_count_kv", double(tiny.kv_heads)), set("attention.layer_norm_rms_epsilon", 1e-5);
  set("attention.key_length", double(tiny.head_size)), set("attention.value_length", double(tiny.head_size));
  set("rope.freq_base", 5000);
  const bool is_gemma = a == "gemma3", has_norms = a != "llama";
  if (is_gemma)
    set("attention.sliding_window", double(tiny.window)), set("attention.sliding_window_pattern", double(tiny.pattern));
  auto add = [&](const std::string& name, Shape shape, DType type, double mean, double deviation) {
    file.tensors[name] = RandomTensor(shape, type, mean, deviation, random);
  };
  auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    add(name, Shape{rows, columns}, tiny.type, 0, 1.5 / std::sqrt(double(columns)));
  };
  auto gain = [&](const std::string& name, int64_t size) { add(name, Shape{size}, DType::kF32, 1, 0.2); };
  matrix("token_embd.weight", tiny.vocabulary, tiny.width);
  if (!tiny.tied) matrix("output.weight", tiny.vocabulary, tiny.width);
  gain("output_norm.weight", tiny.width);
  if (tiny.rope_factors) add("rope_freqs.weight", Shape{tiny.head_size / 2}, DType::kF32, 8, 1);
  for (int64_t l = 0; l < tiny.layers; ++l) {
    auto name = [&](const char* what) { return StrCat("blk.", l, ".", what, ".weight"); };
    gain(name("attn_norm"), tiny.width), gain(name("ffn_norm"), tiny.width);
    matrix(name("attn_q"), tiny.heads * tiny.head_size, tiny.width);
    matrix(name("attn_k"), tiny.kv_heads * tiny.head_size, tiny.width);
    matrix(name("attn_v"), tiny.kv_heads * tiny.head_size, tiny.width);
    matrix(name("attn_output"), tiny.width, tiny.heads * tiny.head_size);
    matrix(name("ffn_gate"), tiny.inner, tiny.width), matrix(name("ffn_up"), tiny.inner, tiny.width);
    matrix(name("ffn_down"), tiny.width, tiny.inner);
    if (has_norms) gain(name("attn_q_norm"), tiny.head_size), gain(name("attn_k_norm"), tiny.head_size);
    if (is_gemma) gain(name("post_attention_norm"), tiny.width), gain(name("post_ffw_norm"), tiny.width);
  }
  return file;
}

}  // namespace leeway::llm
