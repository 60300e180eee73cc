// Llama and SmolLM2. GGUF files have the rows of queries and keys permuted, so that pairs of the rope are neighbours.
#include <cmath>

#include "llm/models/pre_norm.h"

namespace leeway::llm {
namespace {

constexpr const char* kModelTypes[] = {"llama"};

void Read(ConfigReader& reader, ModelConfig& config) {
  config.score_scale = 1 / std::sqrt(double(config.layers[0].head_size));
  config.ropes[0].interleaved = reader.is_gguf();
  reader.Expect(nullptr, "attention_bias", 0);
  reader.Expect(nullptr, "mlp_bias", 0);
  reader.Expect("expert_count", "num_local_experts", 0);
  reader.Expect("attention.scale", nullptr, 0);
  reader.Expect("logit_scale", nullptr, 0);
}

}  // namespace

extern const Family family_llama;
const Family family_llama = {
    .architecture = "llama", .model_types = kModelTypes, .names = kPreNormNames, .read = Read, .build = BuildPreNorm};

}  // namespace leeway::llm
