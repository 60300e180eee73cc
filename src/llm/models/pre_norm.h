// The plain decoder layer that Llama and Qwen share: a norm before attention and one before the feed-forward block.
#pragma once

#include "llm/models/graph_builder.h"

namespace leeway::llm {

inline constexpr TensorName kPreNormNames[] = {{"layers.*.post_attention_layernorm.weight", "blk.*.ffn_norm.weight"}};

void BuildPreNorm(GraphBuilder& builder);

}  // namespace leeway::llm
