// Gemma 3 (text): four norms a layer, norms of queries and keys, sliding windows with a rope of their own.
#include <cmath>

#include "base/strings.h"
#include "llm/models/graph_builder.h"

namespace leeway::llm {
namespace {

constexpr const char* kModelTypes[] = {"gemma3_text", "gemma3"};
constexpr TensorName kNames[] = {
    {"layers.*.post_attention_layernorm.weight", "blk.*.post_attention_norm.weight"},
    {"layers.*.pre_feedforward_layernorm.weight", "blk.*.ffn_norm.weight"},
    {"layers.*.post_feedforward_layernorm.weight", "blk.*.post_ffw_norm.weight"},
};

void Read(ConfigReader& reader, ModelConfig& config) {
  config.activation = Activation::kGeluTanh;
  config.has_head_norms = true;
  config.embedding_scale = std::sqrt(double(config.width));
  const double head_size = double(config.layers[0].head_size);
  config.score_scale = 1 / std::sqrt(reader.Number(nullptr, "query_pre_attn_scalar", head_size));
  config.logit_softcap = reader.Number("final_logit_softcapping", "final_logit_softcapping", 0);
  config.score_softcap = reader.Number("attn_logit_softcapping", "attn_logit_softcapping", 0);
  // Rope 0 is that of full layers, 1 that of sliding ones.
  RopeConfig local = config.ropes[0];
  local.base = reader.Number("rope.freq_base_swa", "rope_local_base_freq", 10000);
  local.factors.clear();
  config.ropes.push_back(std::move(local));
  const int64_t window = reader.Int("attention.sliding_window", "sliding_window");
  if (window <= 0) reader.Refuse(StrCat("The sliding window is ", window, "; it is expected to be at least 1."));
  const std::vector<std::string> types = reader.Texts(nullptr, "layer_types");
  if (!types.empty() && types.size() != config.layers.size()) {
    reader.Refuse(StrCat("\"layer_types\" has ", types.size(), " entries for ", config.layers.size(), " layers."));
    return;
  }
  const int64_t pattern =
      reader.Int("attention.sliding_window_pattern",
                 reader.Has(nullptr, "_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern", 6);
  if (pattern < 1) {
    reader.Refuse(StrCat("The sliding window pattern is ", pattern, "; it is expected to be at least 1."));
    return;
  }
  for (size_t l = 0; l < config.layers.size(); ++l) {
    bool is_full = (int64_t(l) + 1) % pattern == 0;
    if (!types.empty()) {
      is_full = types[l] == "full_attention";
      if (!is_full && types[l] != "sliding_attention")
        reader.Refuse(StrCat("\"layer_types\" has \"", types[l], "\"; full_attention and sliding_attention are known."));
    }
    config.layers[l].window = is_full ? 0 : window;
    config.layers[l].rope = is_full ? 0 : 1;
  }
}

void Build(GraphBuilder& b) {
  ValueId x = b.Embed("token_embd.weight", b.config().embedding_scale);
  for (int64_t l = 0; l < b.layer_count(); ++l) {
    auto name = [&](const char* what) { return StrCat("blk.", l, ".", what); };
    const bool is_end = l + 1 == b.layer_count();
    ValueId h = b.Norm(x, LayerTensor(l, "attn_norm"));
    if (is_end && !b.has_head()) return b.AppendCache(l, h);
    h = b.Attention(l, h, b.NarrowsAt(l));
    if (b.NarrowsAt(l)) x = b.TakeLastRow(x, name("last_row"));
    h = b.Norm(b.Linear(h, LayerTensor(l, "attn_output"), b.config().width), LayerTensor(l, "post_attention_norm"));
    x = b.Add(x, h, name("attn_residual"));
    h = b.FeedForward(l, b.Norm(x, LayerTensor(l, "ffn_norm")));
    x = b.Add(x, b.Norm(h, LayerTensor(l, "post_ffw_norm")), name("ffn_residual"));
  }
  b.Head(x);
}

}  // namespace

extern const Family family_gemma3;
const Family family_gemma3 = {.architecture = "gemma3",
                              .model_types = kModelTypes,
                              .names = kNames,
                              .has_large_residuals = true,
                              .norms_lack_one = true,
                              .read = Read,
                              .build = Build};

}  // namespace leeway::llm
