// `leeway bench` and `leeway inspect` for language models.
#pragma once

#include "cli/llm.h"

namespace leeway::cli {

struct LlmBenchArguments {
  LlmArguments load;
  int prompt = 512, decode = 128, context = 640, repeats = 3, in_flight = 4, quantize_bits = 0;
  std::vector<int> chunk_rows;
  std::optional<bool> fuse_decoding;
  bool int8 = false, no_cold_start = false, kernels = false, no_roofline = false, as_json = false;
};

LlmArguments ToLlmArguments(const LoadArguments& arguments);
// The published recipe: a prompt, then an answer of the most likely tokens; the host waits for every token, and then with
// several under way.
int BenchLlm(const LlmBenchArguments& arguments);
int InspectLlm(const LlmArguments& arguments, bool plan, bool as_json);

}  // namespace leeway::cli
