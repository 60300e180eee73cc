// Scores of given texts, the comparison of two engines, and quantizing on load, on small random models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "find_model.h"
#include "import/test_files.h"
#include "leeway/llm.h"
#include "llm/accuracy.h"
#include "llm/models/models.h"
#include "llm/models/random_model.h"
#include "llm/quantize_model.h"
#include "llm/tiny_model.h"
#include "runtime/test_devices.h"
#include "test_folder.h"

namespace leeway::llm {
namespace {

// Those that compile within seconds.
std::vector<std::string> Places() {
  std::vector<std::string> places = {"cpu"};
  for (const std::string& device : TestDevices()) {
    if (device.starts_with("opencl")) places.push_back(device);
  }
  return places;
}

EngineOptions On(const std::string& place, int context = 40) {
  EngineOptions options;
  options.device = place;
  options.device_options.cache_folder = "";
  options.cache_folder = "";
  options.chunk_rows = {4};
  options.context = context;
  options.threads = 1;
  return options;
}

std::shared_ptr<Engine> LoadTiny(const std::string& path, const EngineOptions& options) {
  auto engine = Engine::Load(path, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? *engine : nullptr;
}

std::unique_ptr<Session> NewSession(const std::shared_ptr<Engine>& engine) {
  auto session = Session::Create(engine);
  EXPECT_TRUE(session.ok()) << session.error().message;
  return std::move(*session);
}

ScoreResult Score(Session& session, std::span<const int32_t> ids, const ScoreOptions& options = {}) {
  auto result = session.Score(ids, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : ScoreResult();
}

std::vector<int32_t> Text(int count, int seed = 0) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * 7 + seed * 3 + i * i) % 60);
  return ids;
}

TEST(Score, GivesTheLogprobsThatGenerationHad) {
  TinyModel tiny;
  tiny.architecture = "gemma3";  // with rings
  TinyModelFile file(tiny, "score");
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(file.path, On(place));
    auto session = NewSession(engine);
    const std::vector<int32_t> prompt = Text(9);
    GenerateOptions options;
    options.max_tokens = 10;
    options.ignore_end = true;
    options.logprobs = 2;
    const auto generated = session->Generate(prompt, options);
    ASSERT_TRUE(generated.ok());
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), generated->ids.begin(), generated->ids.end());
    for (int in_flight : {1, 4}) {
      auto fresh = NewSession(engine);
      const ScoreResult scored = Score(*fresh, all, {.steps_in_flight = in_flight});
      ASSERT_EQ(scored.tokens.size(), all.size() - 1);  // nothing comes before the first
      double sum = 0;
      for (size_t i = 0; i < scored.tokens.size(); ++i) {
        EXPECT_EQ(scored.tokens[i].id, all[i + 1]);
        sum += scored.tokens[i].logprob;
      }
      EXPECT_NEAR(scored.logprob, sum, 1e-4);
      EXPECT_NEAR(scored.perplexity(), std::exp(-sum / double(all.size() - 1)), 1e-3);
      for (size_t i = 0; i < generated->ids.size(); ++i) {
        const ScoredToken& token = scored.tokens[prompt.size() - 1 + i];
        EXPECT_EQ(token.best, generated->ids[i]);
        EXPECT_NEAR(token.logprob, generated->logprobs[i][0].logprob, 1e-4);
        EXPECT_NEAR(token.best_logprob, token.logprob, 1e-6);
        EXPECT_NEAR(token.margin, token.best_logprob - generated->logprobs[i][2].logprob, 1e-4);
      }
      // Both hold the same now and go on alike.
      EXPECT_TRUE(std::ranges::equal(fresh->tokens(), session->tokens()));
      options.max_tokens = 5;
      EXPECT_EQ(fresh->Generate({}, options)->ids, NewSession(engine)->Generate(all, options)->ids);
    }
  }
}

TEST(Score, TakesATextInParts) {
  TinyModelFile file(TinyModel(), "score-parts");
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(file.path, On(place));
    const std::vector<int32_t> text = Text(17);
    const ScoreResult whole = Score(*NewSession(engine), text);
    auto session = NewSession(engine);
    std::vector<ScoredToken> parts;
    // After a prompt that was taken in at once, and after other parts.
    GenerateOptions fill;
    fill.max_tokens = 0;
    ASSERT_TRUE(session->Generate(std::span(text).first(6), fill).ok());
    for (auto [from, count] : {std::pair(6, 1), std::pair(7, 0), std::pair(7, 7), std::pair(14, 3)}) {
      const ScoreResult part = Score(*session, std::span(text).subspan(size_t(from), size_t(count)));
      EXPECT_EQ(int(part.tokens.size()), count);
      parts.insert(parts.end(), part.tokens.begin(), part.tokens.end());
    }
    ASSERT_EQ(parts.size(), 11u);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].id, whole.tokens[i + 5].id);
      EXPECT_NEAR(parts[i].logprob, whole.tokens[i + 5].logprob, 1e-4) << i;
    }
  }
}

TEST(Score, EndsWithTheContextAndWhenItIsCancelled) {
  TinyModelFile file(TinyModel(), "score-ends");
  auto engine = LoadTiny(file.path, On("cpu", 12));
  auto session = NewSession(engine);
  EXPECT_EQ(Score(*session, Text(14)).reason, FinishReason::kContextFull);
  EXPECT_TRUE(session->tokens().empty());
  // The last token need not be taken in to be scored.
  EXPECT_EQ(Score(*session, Text(13)).tokens.size(), 12u);
  EXPECT_EQ(session->tokens().size(), 13u);
  session->Reset();
  int seen = 0;
  const ScoreResult cut = Score(*session, Text(12), {.on_token = [&](const ScoredToken&, std::span<const float> logits) {
    EXPECT_EQ(logits.size(), 64u);
    return ++seen < 4;
  }});
  EXPECT_EQ(cut.reason, FinishReason::kCancelled);
  const size_t held = session->tokens().size();
  EXPECT_LT(held, 12u);
  EXPECT_GE(held, 5u);
  EXPECT_EQ(cut.tokens.size(), held - 1);
  // What is left can be scored then.
  EXPECT_EQ(Score(*session, std::span<const int32_t>(Text(12)).subspan(held)).tokens.size(), 12 - held);
  EXPECT_FALSE(session->Score(std::vector<int32_t>{64}).ok());
  EXPECT_FALSE(session->Score(Text(2), {.steps_in_flight = 0}).ok());
  session->Reset();
  EXPECT_TRUE(Score(*session, {}).tokens.empty());
  EXPECT_EQ(Score(*session, Text(1)).tokens.size(), 0u);
  EXPECT_EQ(session->tokens().size(), 1u);
}

TEST(CompareDecoding, AModelAgreesWithItselfAndNotWithAnother) {
  TinyModel tiny, other, larger;
  other.seed = 2;
  larger.vocabulary = 70;
  TinyModelFile file(tiny, "compare"), other_file(other, "compare-other"), larger_file(larger, "compare-larger");
  auto engine = LoadTiny(file.path, On("cpu"));
  const std::vector<std::vector<int32_t>> texts = {Text(37), Text(1), {}, Text(20, 3)};
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    int calls = 0;
    auto same = CompareDecoding(engine, LoadTiny(file.path, On(place)), texts, [&](int done, int total) {
      EXPECT_EQ(total, 36 + 19);
      EXPECT_LE(done, total);
      return ++calls > 0;
    });
    ASSERT_TRUE(same.ok()) << same.error().message;
    EXPECT_EQ(same->steps, 36 + 19);
    EXPECT_GT(calls, 3);
    EXPECT_EQ(same->same_best, same->steps);
    EXPECT_LT(same->max_logit_difference, 1e-3);
    EXPECT_LT(std::fabs(same->mean_divergence), 1e-4);
    EXPECT_NEAR(same->perplexity(), same->reference_perplexity(), 1e-3 * same->perplexity());
    EXPECT_EQ(AccuracyGate::Int8().Unmet(*same), "");
    EXPECT_EQ(AccuracyGate::F32().Unmet(*same), "");
  }
  auto differs = CompareDecoding(engine, LoadTiny(other_file.path, On("cpu")), texts);
  ASSERT_TRUE(differs.ok());
  EXPECT_LT(differs->agreement(), 0.5);
  EXPECT_GT(differs->largest_flipped_margin, 0);
  EXPECT_GT(differs->mean_divergence, 0.01);
  EXPECT_GT(differs->mean_logit_difference, 0);
  EXPECT_NE(AccuracyGate::Int8().Unmet(*differs).find("most likely token"), std::string::npos);
  EXPECT_NE(AccuracyGate::F16().Unmet(*differs).find("logit"), std::string::npos);
  EXPECT_FALSE(CompareDecoding(engine, LoadTiny(larger_file.path, On("cpu")), texts).ok());
  EXPECT_FALSE(CompareDecoding(engine, engine, std::vector<std::vector<int32_t>>{Text(41)}).ok());
  EXPECT_EQ(CompareDecoding(engine, engine, texts, [](int, int) { return false; }).error().code, Code::kCancelled);
}

TEST(AccuracyGate, NamesWhatIsNotMet) {
  AccuracyReport report;
  EXPECT_NE(AccuracyGate::Int8().Unmet(report), "");
  report = {.steps = 1000, .same_best = 990, .max_logit_difference = 0.2, .reference_logprob = -2000, .logprob = -2004};
  EXPECT_EQ(AccuracyGate::Int8().Unmet(report), "");
  EXPECT_EQ(AccuracyGate::F16().Unmet(report), "");
  EXPECT_NE(AccuracyGate::F32().Unmet(report), "");
  report.logprob = -2006;
  EXPECT_NE(AccuracyGate::Int8().Unmet(report).find("perplexity"), std::string::npos);
  report.logprob = -1990;  // better than the reference is good enough
  EXPECT_EQ(AccuracyGate::Int8().Unmet(report), "");
  report.same_best = 989;
  EXPECT_NE(AccuracyGate::Int8().Unmet(report).find("99"), std::string::npos);
  report.same_best = 1000, report.not_finite = 1;
  EXPECT_NE(AccuracyGate::F16().Unmet(report).find("finite"), std::string::npos);
  report.not_finite = 0, report.max_logit_difference = NAN;
  EXPECT_NE(AccuracyGate::F16().Unmet(report), "");
  report.logprob = NAN;
  EXPECT_NE(AccuracyGate::Int8().Unmet(report), "");
}

TEST(QuantizeModel, TurnsMatricesIntoBlocksAndLeavesTheRest) {
  Tiny tiny;
  tiny.type = DType::kBF16, tiny.tied = false,
  tiny.heads = tiny.kv_heads = 5;  // the projection's rows of 40 are no whole blocks
  auto model = MakeModel(RandomFile(tiny, 3));
  ASSERT_TRUE(model.ok()) << model.error().message;
  ThreadPool threads(2);
  for (int bits : {4, 8}) {
    LlmModel quantized = *model;
    int calls = 0;
    const Status status = QuantizeModel(quantized, bits, threads, [&](int, int) { return ++calls, Status(); });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(calls, int(model->tensors.size()) + 1);
    const DType inner = bits == 4 ? DType::kQ4_0 : DType::kQ8_0;
    EXPECT_EQ(quantized.Find("token_embd.weight")->dtype(), DType::kQ8_0);
    EXPECT_EQ(quantized.Find("output.weight")->dtype(), DType::kQ8_0);
    EXPECT_EQ(quantized.Find("blk.1.ffn_down.weight")->dtype(), inner);
    EXPECT_EQ(quantized.Find("blk.0.attn_q.weight")->dtype(), inner);
    EXPECT_EQ(quantized.Find("blk.0.attn_output.weight")->dtype(), DType::kBF16);
    EXPECT_EQ(quantized.Find("blk.0.attn_norm.weight")->dtype(), DType::kF32);
    // Again: nothing is left to do.
    const auto before = quantized.tensors;
    ASSERT_TRUE(QuantizeModel(quantized, 4, threads, [](int, int) { return Status(); }).ok());
    EXPECT_EQ(quantized.tensors.at("blk.1.ffn_down.weight"), before.at("blk.1.ffn_down.weight"));
  }
  LlmModel model_copy = *model;
  EXPECT_EQ(QuantizeModel(model_copy, 5, threads, [](int, int) { return Status(); }).error().code, Code::kInvalidArgument);
  EXPECT_FALSE(QuantizeModel(model_copy, 8, threads, [](int done, int) {
                 return done < 3 ? Status() : Status(Error{Code::kCancelled, "enough"});
               }).ok());
}

TEST(QuantizeModel, AnEngineQuantizesAsTheFileWouldBe) {
  TinyModel tiny;
  tiny.inner = 64;
  TinyModelFile plain(tiny, "quantize-plain");
  tiny.type = DType::kQ8_0;
  TinyModelFile blocks(tiny, "quantize-blocks");
  const std::vector<std::vector<int32_t>> texts = {Text(24)};
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    EngineOptions options = On(place);
    auto as_file = LoadTiny(blocks.path, options), as_is = LoadTiny(plain.path, options);
    options.quantize_bits = 8;
    auto quantized = LoadTiny(plain.path, options);
    auto same = CompareDecoding(as_file, quantized, texts);
    ASSERT_TRUE(same.ok()) << same.error().message;
    EXPECT_EQ(same->max_logit_difference, 0);
    auto near = CompareDecoding(as_is, quantized, texts);
    ASSERT_TRUE(near.ok());
    EXPECT_GT(near->max_logit_difference, 0);
    EXPECT_LT(near->mean_logit_difference, 0.2);
    // Sessions of the one are not for the other.
    auto session = NewSession(quantized);
    Score(*session, Text(5));
    EXPECT_FALSE(NewSession(as_is)->Restore(*session->Save()).ok());
    options.quantize_bits = 4;
    auto coarse = CompareDecoding(as_is, LoadTiny(plain.path, options), texts);
    ASSERT_TRUE(coarse.ok());
    EXPECT_GT(coarse->mean_logit_difference, near->mean_logit_difference);
    EXPECT_LT(coarse->mean_logit_difference, 2);
  }
  EngineOptions options = On("cpu");
  options.quantize_bits = 3;
  EXPECT_EQ(Engine::Load(plain.path, options).error().code, Code::kInvalidArgument);
}

using QuantizeFolder = TestFolder;

// A folder as checkpoints of Llama come, with weights in bf16.
TEST_F(QuantizeFolder, SafetensorsBecomeBlocks) {
  Tiny tiny;
  const ModelFile made = RandomFile(tiny, 5);
  std::vector<NamedHostTensor> tensors;
  auto add = [&](const std::string& gguf, const std::string& name) {
    tensors.push_back({name, made.tensors.at(gguf)->ConvertTo(DType::kBF16)});
  };
  add("token_embd.weight", "model.embed_tokens.weight");
  add("output_norm.weight", "model.norm.weight");
  for (int l = 0; l < int(tiny.layers); ++l) {
    for (auto [gguf, name] :
         {std::pair("attn_norm", "input_layernorm"), std::pair("ffn_norm", "post_attention_layernorm"),
          std::pair("attn_q", "self_attn.q_proj"), std::pair("attn_k", "self_attn.k_proj"),
          std::pair("attn_v", "self_attn.v_proj"), std::pair("attn_output", "self_attn.o_proj"),
          std::pair("ffn_gate", "mlp.gate_proj"), std::pair("ffn_up", "mlp.up_proj"), std::pair("ffn_down", "mlp.down_proj")}) {
      add(StrCat("blk.", l, ".", gguf, ".weight"), StrCat("model.layers.", l, ".", name, ".weight"));
    }
  }
  Write("model.safetensors", WriteSafetensors(tensors));
  Write("config.json", StrCat("{\"model_type\": \"llama\", \"hidden_size\": ", tiny.width,
                              ", \"num_hidden_layers\": ", tiny.layers, ", \"num_attention_heads\": ", tiny.heads,
                              ", \"num_key_value_heads\": ", tiny.kv_heads, ", \"head_dim\": ", tiny.head_size,
                              ", \"intermediate_size\": ", tiny.inner, ", \"vocab_size\": ", tiny.vocabulary,
                              ", \"max_position_embeddings\": 1000, \"rms_norm_eps\": 1e-5, \"rope_theta\": 5000, ",
                              "\"tie_word_embeddings\": true}"));
  EngineOptions options = On("cpu");
  auto as_is = LoadTiny(folder_.string(), options);
  ASSERT_TRUE(as_is);
  std::vector<std::vector<int32_t>> texts = {Text(20)};
  for (int32_t& id : texts[0]) id %= int32_t(tiny.vocabulary);
  for (int bits : {8, 4}) {
    options.quantize_bits = bits;
    auto quantized = LoadTiny(folder_.string(), options);
    ASSERT_TRUE(quantized);
    auto report = CompareDecoding(as_is, quantized, texts);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_GT(report->mean_logit_difference, 0);
    EXPECT_LT(report->mean_logit_difference, bits == 8 ? 0.05 : 0.5);
  }
}

TEST(GatePassages, AreAThousandTokensAndReadable) {
  size_t letters = 0;
  for (std::string_view passage : GatePassages()) letters += passage.size();
  EXPECT_GT(GatePassages().size(), 4u);
  EXPECT_GT(letters, 4400u);
}

}  // namespace
}  // namespace leeway::llm
