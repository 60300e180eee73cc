// Qwen3 (dense): Llama's layer with norms of queries and keys; heads are wider than width / heads.
#include <cmath>

#include "llm/models/pre_norm.h"

namespace leeway::llm {
namespace {

constexpr const char* kModelTypes[] = {"qwen3"};

void Read(ConfigReader& reader, ModelConfig& config) {
  config.score_scale = 1 / std::sqrt(double(config.layers[0].head_size));
  reader.Expect(nullptr, "attention_bias", 0);
  reader.Expect(nullptr, "use_sliding_window", 0);
  config.has_head_norms = true;
}

}  // namespace

extern const Family family_qwen3;
const Family family_qwen3 = {
    .architecture = "qwen3", .model_types = kModelTypes, .names = kPreNormNames, .read = Read, .build = BuildPreNorm};

}  // namespace leeway::llm
