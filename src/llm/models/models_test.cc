// Graphs of language models on the CPU references: random weights of every family against a forward pass written in plain
// loops, and what is refused.
#include "llm/models/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/strings.h"
#include "graph/passes/passes.h"
#include "llm/models/random_model.h"
#include "llm/models/test_session.h"
#include "ops/evaluate.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "ops/step.h"
#include "tensor/block_quant.h"

namespace leeway::llm {
namespace {

// ---- The same network as plain loops in double, the whole prompt at once, without caches ----

using Rows = std::vector<std::vector<double>>;

class Forward {
 public:
  Forward(const Tiny& tiny, const ModelFile& file) : tiny_(tiny), file_(file) {}

  std::vector<double> Logits(const std::vector<int>& ids) {
    const bool is_gemma = tiny_.architecture == "gemma3", has_norms = tiny_.architecture != "llama";
    const std::vector<float> table = Weights("token_embd.weight");
    Rows x;
    for (int id : ids) {
      std::vector<double> row(table.begin() + id * tiny_.width, table.begin() + (id + 1) * tiny_.width);
      for (double& value : row) value *= is_gemma ? std::sqrt(double(tiny_.width)) : 1;
      x.push_back(row);
    }
    for (int64_t l = 0; l < tiny_.layers; ++l) {
      const std::string b = StrCat("blk.", l, ".");
      const bool is_local = is_gemma && (l + 1) % tiny_.pattern != 0;
      Rows h = Norm(x, b + "attn_norm", tiny_.width);
      Rows q = MatMul(h, b + "attn_q"), k = MatMul(h, b + "attn_k"), v = MatMul(h, b + "attn_v");
      if (has_norms) q = Norm(q, b + "attn_q_norm", tiny_.head_size), k = Norm(k, b + "attn_k_norm", tiny_.head_size);
      Rope(q, is_local), Rope(k, is_local);
      Rows y = MatMul(Attend(q, k, v, is_local ? tiny_.window : int64_t(ids.size())), b + "attn_output");
      Add(x, is_gemma ? Norm(y, b + "post_attention_norm", tiny_.width) : y);
      h = Norm(x, b + "ffn_norm", tiny_.width);
      Rows gate = MatMul(h, b + "ffn_gate");
      const Rows up = MatMul(h, b + "ffn_up");
      for (size_t i = 0; i < gate.size(); ++i) {
        for (size_t c = 0; c < gate[i].size(); ++c) {
          const double g = gate[i][c];
          const double act =
              is_gemma ? 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) : g / (1 + std::exp(-g));
          gate[i][c] = act * up[i][c];
        }
      }
      y = MatMul(gate, b + "ffn_down");
      Add(x, is_gemma ? Norm(y, b + "post_ffw_norm", tiny_.width) : y);
    }
    const Rows last = Norm({x.back()}, "output_norm", tiny_.width);
    return MatMul(last, tiny_.tied ? "token_embd" : "output")[0];
  }

 private:
  std::vector<float> Weights(const std::string& name) const { return file_.tensors.at(name)->ToF32(); }
  Rows MatMul(const Rows& x, const std::string& name) const {
    const std::vector<float> w = Weights(name + ".weight");
    const size_t columns = x[0].size(), rows = w.size() / columns;
    Rows y;
    for (const auto& row : x) {
      y.emplace_back(rows);
      for (size_t o = 0; o < rows; ++o)
        y.back()[o] = std::inner_product(row.begin(), row.end(), w.begin() + long(o * columns), 0.0);
    }
    return y;
  }
  Rows Norm(Rows x, const std::string& name, int64_t size) const {
    const std::vector<float> gain = Weights(name + ".weight");
    for (auto& row : x) {
      for (size_t start = 0; start < row.size(); start += size_t(size)) {
        double sum = 0;
        for (int64_t i = 0; i < size; ++i) sum += row[start + size_t(i)] * row[start + size_t(i)];
        for (int64_t i = 0; i < size; ++i) row[start + size_t(i)] *= gain[size_t(i)] / std::sqrt(sum / double(size) + 1e-5);
      }
    }
    return x;
  }
  void Rope(Rows& x, bool is_local) const {
    const int64_t half = tiny_.head_size / 2;
    std::vector<float> factors(size_t(half), 1.0f);
    if (tiny_.rope_factors) factors = Weights("rope_freqs.weight");
    for (size_t p = 0; p < x.size(); ++p) {
      for (size_t start = 0; start < x[p].size(); start += size_t(tiny_.head_size)) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle = double(p) * std::pow(is_local ? 10000.0 : 5000.0, -2.0 * double(i) / double(tiny_.head_size)) /
                               (is_local ? 1 : factors[size_t(i)]);
          const bool neighbours = tiny_.architecture == "llama";
          double &a = x[p][start + size_t(neighbours ? 2 * i : i)],
                 &b = x[p][start + size_t(neighbours ? 2 * i + 1 : i + half)];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = turned;
        }
      }
    }
  }
  Rows Attend(const Rows& q, const Rows& k, const Rows& v, int64_t window) const {
    const size_t size = size_t(tiny_.head_size), group = size_t(tiny_.heads / tiny_.kv_heads);
    Rows y(q.size(), std::vector<double>(q[0].size()));
    for (size_t p = 0; p < q.size(); ++p) {
      for (size_t head = 0; head < size_t(tiny_.heads); ++head) {
        const size_t own = head * size, theirs = head / group * size;
        auto score = [&](size_t j) {
          double sum = 0;
          for (size_t i = 0; i < size; ++i) sum += q[p][own + i] * k[j][theirs + i];
          return sum / std::sqrt(double(size));
        };
        double total = 0, largest = -INFINITY;
        const size_t first = size_t(std::max<int64_t>(int64_t(p) + 1 - window, 0));
        for (size_t j = first; j <= p; ++j) largest = std::max(largest, score(j));
        for (size_t j = first; j <= p; ++j) {
          const double weight = std::exp(score(j) - largest);
          total += weight;
          for (size_t i = 0; i < size; ++i) y[p][own + i] += weight * v[j][theirs + i];
        }
        for (size_t i = 0; i < size; ++i) y[p][own + i] /= total;
      }
    }
    return y;
  }
  static void Add(Rows& x, const Rows& y) {
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t c = 0; c < x[i].size(); ++c) x[i][c] += y[i][c];
  }

  const Tiny& tiny_;
  const ModelFile& file_;
};

double LargestDifference(const std::vector<float>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double difference = std::fabs(got[i] - want[i]);
    largest = std::isfinite(difference) ? std::max(largest, difference) : INFINITY;
  }
  return largest;
}

constexpr int kPrompt[] = {3, 17, 49, 0, 3, 21, 8};

struct Case {
  const char* name;
  Tiny tiny;
};

class RandomModels : public testing::TestWithParam<Case> {};

TEST_P(RandomModels, AgreeWithTheForwardPassInAnyChunks) {
  const Tiny& tiny = GetParam().tiny;
  const ModelFile file = RandomFile(tiny, 7);
  auto model = MakeModel(file);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<int> ids(std::begin(kPrompt), std::end(kPrompt));
  Forward forward(tiny, file);
  const std::vector<double> want = forward.Logits(ids);
  double magnitude = 0;
  for (double value : want) magnitude = std::max(magnitude, std::fabs(value));
  EXPECT_GT(magnitude, 0.1);
  for (int64_t chunk : {1, 2, 3, 7}) {
    TestSession session(*model, {.context = 9, .max_rows = 7});
    EXPECT_LT(LargestDifference(session.Prefill(ids, chunk), want), 2e-5 * magnitude) << "in chunks of " << chunk;
  }
}

Tiny Gemma(DType type = DType::kF32) {
  return {.architecture = "gemma3", .width = 32, .layers = 4, .heads = 4, .kv_heads = 1, .head_size = 16, .type = type};
}
Tiny Qwen(DType type = DType::kF32) {
  return {
      .architecture = "qwen3", .width = 32, .layers = 2, .heads = 6, .kv_heads = 2, .head_size = 16, .inner = 64, .type = type};
}
// Rows of whole blocks of 256.
Tiny Wide(DType type) {
  return {.architecture = "llama",
          .width = 256,
          .layers = 1,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 64,
          .inner = 256,
          .vocabulary = 50,
          .type = type};
}

INSTANTIATE_TEST_SUITE_P(
    , RandomModels,
    testing::Values(Case{"gemma3", Gemma()}, Case{"gemma3_q4_0", Gemma(DType::kQ4_0)}, Case{"gemma3_bf16", Gemma(DType::kBF16)},
                    Case{"llama", Tiny{}}, Case{"llama_factors", Tiny{.rope_factors = true}},
                    Case{"llama_untied", Tiny{.tied = false}},
                    Case{"llama_groups_of_three", Tiny{.heads = 9, .kv_heads = 3, .type = DType::kF16}}, Case{"qwen3", Qwen()},
                    Case{"qwen3_q8_0", Qwen(DType::kQ8_0)}, Case{"q4_1", Wide(DType::kQ4_1)}, Case{"q5_0", Wide(DType::kQ5_0)},
                    Case{"q5_1", Wide(DType::kQ5_1)}, Case{"q2_k", Wide(DType::kQ2_K)}, Case{"q3_k", Wide(DType::kQ3_K)},
                    Case{"q4_k", Wide(DType::kQ4_K)}, Case{"q5_k", Wide(DType::kQ5_K)}, Case{"q6_k", Wide(DType::kQ6_K)},
                    Case{"iq4_nl", Wide(DType::kIQ4_NL)}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Models, DecodeGoesOnByItselfUntilTheContextIsFull) {
  for (const Tiny& tiny : {Gemma(), Tiny{}, Qwen()}) {
    const ModelFile file = RandomFile(tiny, 11);
    auto model = MakeModel(file);
    ASSERT_TRUE(model.ok()) << model.error().message;
    constexpr int64_t kContext = 12;
    std::vector<int> ids(std::begin(kPrompt), std::end(kPrompt));
    TestSession session(*model, {.context = kContext, .max_rows = 4});
    session.SetTokens(ids);
    session.Run(0, 4, 4, false);
    session.Run(4, 3, 4, false, true);
    Forward forward(tiny, file);
    for (int64_t n = int64_t(ids.size()); n <= kContext; ++n) {
      const std::vector<double> want = forward.Logits(ids);
      const int best = int(std::max_element(want.begin(), want.end()) - want.begin());
      ASSERT_EQ(session.Token(n), best) << tiny.architecture << " at " << n;
      ids.push_back(best);
      if (n < kContext) session.Run(-1, 0, 1, false, true);
    }
    EXPECT_EQ(session.state("step").Get(1), 0);
    EXPECT_EQ(session.state("step").Get(3), 1);
    // A run beyond the end changes nothing.
    const std::string k = "k." + std::to_string(tiny.layers - 1);
    const std::vector<float> cache = session.state(k).ToF32();
    session.Run(-1, 0, 1, false, true);
    EXPECT_EQ(session.state(k).ToF32(), cache);
    EXPECT_EQ(session.state("step").Get(0), kContext + 0.0);
  }
}

TEST(Models, PassesKeepTheResultAndLeaveNoMovements) {
  for (const Tiny& tiny : {Gemma(), Tiny{}, Qwen()}) {
    const ModelFile file = RandomFile(tiny, 5);
    auto model = MakeModel(file);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::vector<int> ids(std::begin(kPrompt), std::end(kPrompt));
    for (int64_t rows : {1, 7}) {
      TestSession plain(*model, {.context = 20, .max_rows = 7}), passed(*model, {.context = 20, .max_rows = 7});
      for (TestSession* session : {&plain, &passed}) session->Prefill(ids, 7);
      std::map<std::string, int> ops;
      const auto want = plain.Run(7, rows, rows, true, true);
      const auto got = passed.Run(7, rows, rows, true, true, [&](Graph& graph) {
        auto report = RunPasses(graph, {});
        ASSERT_TRUE(report.ok()) << report.error().message;
        for (const Node& node : graph.nodes) ++ops[node.op->name];
      });
      EXPECT_EQ(got, want);
      EXPECT_EQ(plain.Token(7 + rows), passed.Token(7 + rows));
      EXPECT_EQ(ops["reshape"], 0);
      EXPECT_EQ(ops["add"] + ops["mul"] + ops["silu"] + ops["gelu"], 0) << "elementwise operators by themselves";
      EXPECT_EQ(ops["linear"], 7 * tiny.layers + 1);
    }
  }
}

TEST(Models, SafetensorsOfTheSameModelGiveTheSameLogits) {
  const std::vector<int> ids(std::begin(kPrompt), std::end(kPrompt));
  for (const Tiny& tiny : {Gemma(), Tiny{.tied = false}, Qwen()}) {
    const ModelFile gguf = RandomFile(tiny, 3);
    ModelFile file;
    file.format = ModelFile::Format::kSafetensors;
    file.path = "tiny/config.json";
    const bool is_gemma = tiny.architecture == "gemma3";
    nlohmann::json config = {{"model_type", is_gemma ? "gemma3_text" : tiny.architecture},
                             {"hidden_size", tiny.width},
                             {"num_hidden_layers", tiny.layers},
                             {"num_attention_heads", tiny.heads},
                             {"num_key_value_heads", tiny.kv_heads},
                             {"head_dim", tiny.head_size},
                             {"intermediate_size", tiny.inner},
                             {"vocab_size", tiny.vocabulary},
                             {"rms_norm_eps", 1e-5},
                             {"rope_theta", 5000.0},
                             {"max_position_embeddings", 1000},
                             {"tie_word_embeddings", tiny.tied},
                             {"rope_scaling", nullptr}};
    if (is_gemma) {
      config["sliding_window"] = tiny.window, config["rope_local_base_freq"] = 10000;
      std::vector<std::string> types;
      for (int64_t l = 0; l < tiny.layers; ++l)
        types.push_back((l + 1) % tiny.pattern == 0 ? "full_attention" : "sliding_attention");
      config["layer_types"] = types;
    }
    auto metadata = MetadataFromJson(config.dump(), file.path);
    ASSERT_TRUE(metadata.ok());
    file.metadata = *metadata;
    std::map<std::string, std::string> names = {
        {"attn_norm", "input_layernorm"},
        {"attn_q", "self_attn.q_proj"},
        {"attn_k", "self_attn.k_proj"},
        {"attn_v", "self_attn.v_proj"},
        {"attn_output", "self_attn.o_proj"},
        {"attn_q_norm", "self_attn.q_norm"},
        {"attn_k_norm", "self_attn.k_norm"},
        {"ffn_gate", "mlp.gate_proj"},
        {"ffn_up", "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"},
        {"ffn_norm", is_gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm"},
        {"post_attention_norm", "post_attention_layernorm"},
        {"post_ffw_norm", "post_feedforward_layernorm"}};
    for (const auto& [name, tensor] : gguf.tensors) {
      std::string renamed = name == "token_embd.weight"    ? "model.embed_tokens.weight"
                            : name == "output_norm.weight" ? "model.norm.weight"
                                                           : "lm_head.weight";
      std::vector<float> values = tensor->ToF32();
      if (name.starts_with("blk.")) {
        const size_t dot = name.find('.', 4);
        const std::string what = name.substr(dot + 1, name.size() - dot - 1 - 7);
        renamed = "model.layers." + name.substr(4, dot - 4) + "." + names.at(what) + ".weight";
        if (tiny.architecture == "llama" && (what == "attn_q" || what == "attn_k")) {
          const std::vector<float> rows = values;  // row 2i + s of a head was row s * half + i
          const int64_t half = tiny.head_size / 2;
          for (int64_t r = 0; r < tensor->shape()[0]; ++r) {
            const int64_t in_head = r % tiny.head_size, head = r - in_head;
            const int64_t from = head + (in_head % half) * 2 + in_head / half;
            std::copy_n(rows.begin() + from * tiny.width, tiny.width, values.begin() + r * tiny.width);
          }
        }
      }
      if (is_gemma && name.ends_with("norm.weight"))
        for (float& value : values) value -= 1;
      file.tensors[renamed] = std::make_shared<const HostTensor>(HostTensor::FromF32(tensor->shape(), values));
    }
    auto a = MakeModel(gguf), b = MakeModel(file);
    ASSERT_TRUE(a.ok()) << a.error().message;
    ASSERT_TRUE(b.ok()) << b.error().message;
    TestSession first(*a, {.context = 9, .max_rows = 7}), second(*b, {.context = 9, .max_rows = 7});
    const std::vector<float> want = first.Prefill(ids, 7);
    EXPECT_LT(LargestDifference(second.Prefill(ids, 7), std::vector<double>(want.begin(), want.end())), 1e-4)
        << tiny.architecture;
  }
}

TEST(Models, Llama3FactorsOfConfigJson) {
  ModelFile file = RandomFile(Tiny{.heads = 1, .kv_heads = 1, .head_size = 64}, 1);
  file.format = ModelFile::Format::kSafetensors;
  file.metadata = *MetadataFromJson(R"({"rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1,
      "high_freq_factor": 4, "original_max_position_embeddings": 8192}})",
                                    "config.json");
  ConfigReader reader(file, "llama");
  const std::vector<double> factors = ReadRopeFactors(reader, 500000, 64);
  ASSERT_TRUE(reader.status().ok()) << reader.status().error().message;
  EXPECT_EQ(factors[14], 1);
  EXPECT_NEAR(factors[15], 1.651329, 1e-5);
  EXPECT_NEAR(factors[16], 3.292262, 1e-5);
  EXPECT_NEAR(factors[17], 9.666729, 1e-4);
  EXPECT_EQ(factors[31], 32);
}

// ---- Refusals ----

TEST(Models, RefusalsNameWhatIsWrong) {
  auto refusal = [](const std::function<void(ModelFile&)>& change, const Tiny& tiny = Tiny{}) {
    ModelFile file = RandomFile(tiny, 1);
    change(file);
    auto model = MakeModel(std::move(file));
    return model.ok() ? std::string("none") : model.error().message;
  };
  auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
    EXPECT_NE(text.find("tiny.gguf"), std::string::npos) << text;
  };
  EXPECT_EQ(refusal([](ModelFile&) {}), "none");
  auto tensor = [](Shape shape) { return std::make_shared<const HostTensor>(DType::kF32, shape); };
  has(refusal([](ModelFile& f) { f.metadata["general.architecture"].texts[0] = "mamba"; }),
      "\"mamba\"; those that are supported are gemma3, llama, qwen3");
  has(refusal([](ModelFile& f) { f.metadata.erase("general.architecture"); }), "\"general.architecture\" is missing");
  has(refusal([](ModelFile& f) { f.metadata.erase("llama.block_count"); }), "\"llama.block_count\" is missing");
  has(refusal([](ModelFile& f) { f.metadata["llama.block_count"] = Number(2.5); }), "is 2.5; a whole number");
  has(refusal([](ModelFile& f) { f.metadata["llama.block_count"] = Number(0); }), "0 layers");
  has(refusal([](ModelFile& f) { f.metadata["llama.attention.head_count_kv"] = Number(3); }), "4 heads for 3 heads of keys");
  has(refusal([](ModelFile& f) { f.metadata["llama.attention.value_length"] = Number(4); }),
      "Keys have 8 channels and values 4");
  has(refusal([](ModelFile& f) { f.metadata["llama.rope.dimension_count"] = Number(9); }), "turns 9 of 8");
  has(refusal([](ModelFile& f) { f.metadata["llama.rope.scaling.type"] = {.texts = {"yarn"}}; }), "\"yarn\"");
  has(refusal([](ModelFile& f) { f.metadata["llama.vocab_size"] = Number(51); }),
      "51 by the settings, and the table of embeddings has 50");
  has(refusal([](ModelFile& f) {
        f.metadata["llama.feed_forward_length"] = {.numbers = {64, 64, 64}, .is_list = true};
      }),
      "has 3 numbers; the model has 2 layers");
  has(refusal([](ModelFile& f) { f.metadata["llama.expert_count"] = Number(8); }), "\"llama.expert_count\" is 8");
  has(refusal([](ModelFile& f) { f.tensors.erase("blk.1.ffn_up.weight"); }), "no tensor \"blk.1.ffn_up.weight\"");
  has(refusal([&](ModelFile& f) {
        f.tensors["blk.1.ffn_up.weight"] = tensor({64, 31});
      }),
      "\"blk.1.ffn_up.weight\" is f32[64, 31]");
  has(refusal([&](ModelFile& f) { f.tensors["blk.0.attn_q.bias"] = tensor({32}); }), "has no tensor \"blk.0.attn_q.bias\"");
  has(refusal([&](ModelFile& f) { f.tensors["rope_freqs.weight"] = tensor({4}); }), "divisor 0");
  has(refusal([&](ModelFile& f) { f.tensors.erase("token_embd.weight"); }), "no table of token embeddings");
  has(refusal([](ModelFile& f) { f.metadata.erase("gemma3.attention.sliding_window"); }, Gemma()),
      "sliding_window\" is missing");
  has(refusal([](ModelFile& f) { f.tensors.erase("blk.0.attn_k_norm.weight"); }, Qwen()),
      "no tensor \"blk.0.attn_k_norm.weight\"");
  EXPECT_EQ(MetadataFromJson("[1]", "config.json").error().message,
            "The file config.json is no JSON object; a model's configuration is one.");
}

TEST(Models, StagesThatDoNotFitAreRefused) {
  auto model = MakeModel(RandomFile(Tiny{}, 1));
  ASSERT_TRUE(model.ok());
  EXPECT_FALSE(BuildGraph(*model, {.rows = 0, .context = 8}).ok());
  EXPECT_FALSE(BuildGraph(*model, {.rows = 9, .context = 8, .max_rows = 9}).ok());
  EXPECT_FALSE(BuildGraph(*model, {.rows = 4, .context = 8, .max_rows = 2}).ok());
}

TEST(Models, CachesOfSlidingLayersAreRings) {
  auto model = MakeModel(RandomFile(Gemma(), 1));
  ASSERT_TRUE(model.ok());
  const StageShape shape{.rows = 1, .context = 100, .max_rows = 4};
  EXPECT_EQ(CacheSlots(model->config.layers[0], shape), 6);  // a window of 3 for each of 4 rows
  EXPECT_EQ(CacheSlots(model->config.layers[1], shape), 100);
}

}  // namespace
}  // namespace leeway::llm
