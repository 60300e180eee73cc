#include "import/llm_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/strings.h"
#include "find_model.h"
#include "import/quantize_weights.h"
#include "import/test_files.h"
#include "test_folder.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

Result<std::shared_ptr<const LlmFile>> FromBytes(std::vector<std::byte> bytes) {
  auto gguf = GgufFile::Read(MappedFile::FromBytes(std::move(bytes), "test.gguf"));
  if (!gguf.ok()) return gguf.error();
  return LlmFile::FromGguf(*gguf);
}

TEST(LlmFile, OfGguf) {
  auto opened = FromBytes(TestGguf());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const LlmFile& file = **opened;
  EXPECT_EQ(file.format(), LlmFile::Format::kGguf);
  EXPECT_EQ(file.architecture(), "llama");
  const LlmConfig& config = file.config();
  EXPECT_EQ(*config.Int("block_count"), 2);
  EXPECT_EQ(*config.String("general.name"), "test");
  EXPECT_EQ(*config.Int("rope.freq_base"), 10000);
  EXPECT_EQ(*config.Number("attention.layer_norm_rms_epsilon"), double(1e-5f));
  EXPECT_EQ(*config.Ints("attention.head_count_kv"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(*config.Ints("block_count"), std::vector<int64_t>{2});
  EXPECT_EQ(*config.Numbers("attention.head_count_kv"), (std::vector<double>{1, 2}));
  EXPECT_EQ(*config.Strings("general.name"), std::vector<std::string>{"test"});
  EXPECT_EQ(*config.Int("attention.key_length", 64), 64);
  EXPECT_EQ(*config.Int("block_count", 64), 2);
  EXPECT_EQ(*config.Number("rope.scaling.factor", 1), 1);
  EXPECT_EQ(*config.Bool("tokenizer.ggml.add_bos_token", false), true);
  EXPECT_EQ(*config.String("rope.scaling.type", "none"), "none");
  EXPECT_FALSE(config.Has("attention.key_length"));
  EXPECT_EQ(config.Int("attention.key_length").error().message,
            "The configuration of \"test.gguf\" has no key \"llama.attention.key_length\".");
  EXPECT_EQ(config.Int("general.name", 1).error().message,
            "The configuration of \"test.gguf\" has string for key \"general.name\"; expected an integer.");
  EXPECT_FALSE(config.Int("attention.head_count_kv").ok());
  EXPECT_FALSE(config.Int("attention.layer_norm_rms_epsilon").ok());
  EXPECT_FALSE(config.Ints("general.name").ok());
  EXPECT_FALSE(config.Numbers("general.name").ok());
  EXPECT_FALSE(config.Strings("block_count").ok());

  ASSERT_EQ(file.tensors().size(), 5u);
  ASSERT_NE(file.tensor("blk.0.ffn_down.weight"), nullptr);
  EXPECT_EQ(file.tensor("blk.0.ffn_down.weight")->dtype(), DType::kQ6_K);
  EXPECT_EQ(file.tensor("x"), nullptr);
  EXPECT_TRUE(file.Tensor("output_norm.weight", {32}).ok());
  EXPECT_EQ(file.Tensor("output_norm.weight", {33}).error().message,
            "The model \"test.gguf\" has the tensor \"output_norm.weight\" of shape [32]; expected [33].");
  EXPECT_EQ(file.Tensor("x", {33}).error().message, "The model \"test.gguf\" has no tensor \"x\".");
  EXPECT_NE(file.gguf(), nullptr);
  EXPECT_EQ(file.tokenizer_json(), "");
  EXPECT_EQ(file.chat_template(), "{{ messages[0].content }}");
}

TEST(LlmFile, GgufWithoutArchitectureOrInPartsIsRefused) {
  auto empty = FromBytes(GgufWriter().Finish());
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().message, "The GGUF file \"test.gguf\" has no key \"general.architecture\".");
  GgufWriter part;
  part.String("general.architecture", "llama");
  part.Number("split.count", uint16_t{3});
  auto refused = FromBytes(part.Finish());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "The GGUF file \"test.gguf\" is one of 3 parts of a model; Leeway reads models of one file.");
}

class LlmFolder : public TestFolder {
 protected:
  std::string Fault() {
    auto opened = LlmFile::Open(folder_.string());
    return opened.ok() ? "none" : opened.error().message;
  }
};

TEST_F(LlmFolder, OfSafetensors) {
  EXPECT_FALSE(LlmFile::LooksLikeIt(folder_.string()));
  EXPECT_NE(Fault().find("has no config.json"), std::string::npos) << Fault();
  Write("config.json", R"({"model_type":"llama","hidden_size":8,"rope_theta":1e5,"tie_word_embeddings":true,
    "rope_scaling":{"factor":8.0,"rope_type":"linear"},"quantization_config":null,"eos_token_id":[1,2],
    "layer_types":["full_attention","sliding_attention"],"rms_norm_eps":1e-05,"huge":18446744073709551615})");
  EXPECT_TRUE(LlmFile::LooksLikeIt(folder_.string()));
  Write("model.safetensors", TestSafetensorsFiles()[0]);
  Write("tokenizer.json", R"({"version":"1.0"})");
  Write("tokenizer_config.json", R"({"chat_template":[{"name":"tool","template":"T"},{"name":"default","template":"D"}]})");
  auto opened = LlmFile::Open(folder_.string());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const LlmFile& file = **opened;
  EXPECT_EQ(file.format(), LlmFile::Format::kSafetensors);
  EXPECT_EQ(file.architecture(), "llama");
  EXPECT_EQ(file.gguf(), nullptr);
  EXPECT_EQ(file.tokenizer_json(), R"({"version":"1.0"})");
  EXPECT_EQ(file.chat_template(), "D");
  const LlmConfig& config = file.config();
  EXPECT_EQ(*config.Int("hidden_size"), 8);
  EXPECT_EQ(*config.Int("rope_theta"), 100000);
  EXPECT_EQ(*config.Number("rope_scaling.factor"), 8);
  EXPECT_EQ(*config.String("rope_scaling.rope_type"), "linear");
  EXPECT_EQ(*config.Bool("tie_word_embeddings"), true);
  EXPECT_FALSE(config.Has("quantization_config"));
  EXPECT_EQ(*config.Ints("eos_token_id"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(*config.Ints("hidden_size"), std::vector<int64_t>{8});
  EXPECT_EQ(*config.Strings("layer_types"), (std::vector<std::string>{"full_attention", "sliding_attention"}));
  EXPECT_FALSE(config.Int("rms_norm_eps").ok());
  EXPECT_FALSE(config.Int("huge").ok());
  EXPECT_FALSE(config.Int("hidden_size.more").ok());
  EXPECT_NE(config.Int("layer_types").error().message.find("has [\"full_attention\",\"sliding_attention\"] for key"),
            std::string::npos);
  ASSERT_NE(file.tensor("model.norm.weight"), nullptr);
  EXPECT_EQ(file.tensor("model.norm.weight")->ToF32(), TestGgufTensor(DType::kBF16, {8}).ToF32());

  Write("chat_template.jinja", "own file");
  EXPECT_EQ((*LlmFile::Open(folder_.string()))->chat_template(), "own file");
  Write("tokenizer_config.json", "{");
  EXPECT_NE(Fault().find("tokenizer_config.json\" is no JSON object"), std::string::npos) << Fault();
  Write("config.json", "{}");
  EXPECT_NE(Fault().find("has no key \"model_type\""), std::string::npos) << Fault();
  Write("config.json", "\xff");
  EXPECT_NE(Fault().find("is no UTF-8 text"), std::string::npos) << Fault();
}

TEST_F(LlmFolder, GgufFilesAreKnownByTheirContent) {
  Write("model.bin", TestGguf());
  Write("model.gguf", "something else");
  EXPECT_TRUE(LlmFile::LooksLikeIt((folder_ / "model.bin").string()));
  EXPECT_FALSE(LlmFile::LooksLikeIt((folder_ / "model.gguf").string()));
  EXPECT_FALSE(LlmFile::LooksLikeIt((folder_ / "nothing").string()));
  EXPECT_TRUE(LlmFile::Open((folder_ / "model.bin").string()).ok());
}

TEST(QuantizeWeights, SameBlocksWithAnyNumberOfThreads) {
  HostTensor weights(DType::kBF16, {700, 320});  // several turns
  for (int64_t i = 0; i < weights.element_count(); ++i) weights.Set(i, std::sin(double(i) * 0.7) * double(i % 320));
  ThreadPool one(1), three(3);
  for (DType dtype : {DType::kQ4_0, DType::kQ8_0}) {
    auto a = QuantizeWeights(weights, dtype, one), b = QuantizeWeights(weights, dtype, three);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->shape(), weights.shape());
    const HostTensor want = weights.ConvertTo(dtype);
    EXPECT_TRUE(std::equal(a->bytes().begin(), a->bytes().end(), want.bytes().begin(), want.bytes().end()));
    EXPECT_TRUE(std::equal(b->bytes().begin(), b->bytes().end(), want.bytes().begin(), want.bytes().end()));
  }
  auto again = QuantizeWeights(*QuantizeWeights(weights, DType::kQ8_0, one), DType::kQ4_0, three);  // from blocks
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(QuantizeWeights(HostTensor(DType::kF32, {0, 32}), DType::kQ4_0, one).ok());
}

TEST(QuantizeWeights, RefusesWhatCannotBe) {
  ThreadPool threads(1);
  auto fault = [&](const HostTensor& tensor, DType dtype) {
    auto result = QuantizeWeights(tensor, dtype, threads);
    return result.ok() ? "none" : result.error().message;
  };
  EXPECT_EQ(fault(HostTensor(DType::kF32, {2, 33}), DType::kQ8_0),
            "A tensor f32[2, 33] cannot be quantized to q8_0: rows must be whole blocks of 32 elements.");
  EXPECT_NE(fault(HostTensor(DType::kF32, {}), DType::kQ8_0).find("whole blocks"), std::string::npos);
  EXPECT_NE(fault(HostTensor(DType::kI32, {32}), DType::kQ8_0).find("only real numbers"), std::string::npos);
  EXPECT_NE(fault(HostTensor(DType::kF32, {256}), DType::kQ4_K).find("no encoder"), std::string::npos);
  EXPECT_NE(fault(HostTensor(DType::kF32, {256}), DType::kI8).find("no encoder"), std::string::npos);
}

// The real files, where a folder of models is at hand.
TEST(RealLanguageModels, SmolLm2) {
  const auto path = FindModel("smollm2-135m.gguf");
  if (!path) GTEST_SKIP() << "there is no smollm2-135m.gguf in LEEWAY_MODELS or .cache/models";
  auto opened = LlmFile::Open(*path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const LlmFile& file = **opened;
  EXPECT_EQ(file.architecture(), "llama");
  EXPECT_EQ(*file.config().Int("block_count"), 30);
  EXPECT_EQ(*file.config().Int("embedding_length"), 576);
  EXPECT_EQ(*file.config().Int("attention.head_count"), 9);
  EXPECT_EQ(*file.config().Int("attention.head_count_kv"), 3);
  EXPECT_EQ(*file.config().Number("rope.freq_base"), 100000);
  EXPECT_EQ(file.gguf()->Strings("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_TRUE(file.chat_template().has_value());
  const auto embedding = file.Tensor("token_embd.weight", {49152, 576});
  ASSERT_TRUE(embedding.ok()) << embedding.error().message;
  EXPECT_EQ((*embedding)->dtype(), DType::kQ8_0);
  const auto query = file.Tensor("blk.29.attn_q.weight", {576, 576});
  ASSERT_TRUE(query.ok()) << query.error().message;
  EXPECT_EQ((*query)->dtype(), DType::kQ4_1);
  // Weights of a trained layer: small, around zero.
  double sum = 0, squares = 0;
  const std::vector<float> values = (*query)->ToF32();
  for (float v : values) sum += v, squares += double(v) * v;
  EXPECT_LT(std::abs(sum / double(values.size())), 0.01);
  EXPECT_GT(std::sqrt(squares / double(values.size())), 0.01);
  EXPECT_LT(std::sqrt(squares / double(values.size())), 1.0);
}

TEST(RealLanguageModels, Gemma3) {
  const auto path = FindModel("gemma3-270m.gguf");
  if (!path) GTEST_SKIP() << "there is no gemma3-270m.gguf in LEEWAY_MODELS or .cache/models";
  auto opened = LlmFile::Open(*path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const LlmFile& file = **opened;
  EXPECT_EQ(file.architecture(), "gemma3");
  EXPECT_EQ(*file.config().Int("block_count"), 18);
  EXPECT_EQ(*file.config().Int("attention.sliding_window"), 512);
  EXPECT_EQ(file.gguf()->Strings("tokenizer.ggml.tokens")->size(), 262144u);
  EXPECT_FALSE(file.chat_template().has_value());
  std::set<DType> types;
  for (const auto& [name, tensor] : file.tensors()) types.insert(tensor.dtype());
  EXPECT_EQ(types, (std::set<DType>{DType::kF32, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}));
  EXPECT_TRUE(file.Tensor("blk.17.ffn_down.weight", {640, 2048}).ok());
}

}  // namespace
}  // namespace leeway
