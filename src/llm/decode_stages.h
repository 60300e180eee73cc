// Fusions for graphs of one row: the operators between two points where all of a vector is needed become one, so that a step of
// decoding is a few dispatches a layer (ops/decode_linear.cc, decode_attention.cc, decode_greedy.cc). Five for a layer of
// Gemma 3 (queries, keys and values; attention; its projection; the gated pair; the way down) and as many for Llama.
#pragma once

#include "graph/graph.h"
#include "shader/target.h"

namespace leeway::llm {

struct DecodeStageOptions {
  // `sample` becomes "the largest logit".
  bool greedy = false;
  // Activations of products in 8 bits where a kernel takes them.
  bool int8 = false;
};

// Only what kernels for `target` take is fused; the rest stays as it is, so do logits with a bound (softcap) before `sample`.
// How many operators were made.
Result<int> FuseDecodeStages(Graph& graph, const shader::Target& target, const DecodeStageOptions& options);

}  // namespace leeway::llm
