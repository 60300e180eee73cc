// What the commands for language models share: loading with progress, sampling, texts as they come.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "leeway/llm.h"

namespace leeway::cli {

struct LlmArguments {
  std::string model, device, precision = "auto", cache_folder;
  std::vector<std::string> disabled_passes, excluded_nodes;
  std::vector<int> chunk_rows;
  int context = 0, threads = 0, memory_limit_mb = 0, quantize_bits = 0;
  bool no_cache = false, f32_cache = false, verbose = false;
  std::optional<bool> fuse_decoding;
};
void AddLlmArguments(CLI::App& command, LlmArguments& arguments);
llm::EngineOptions ToEngineOptions(const LlmArguments& arguments);
// What the engine made of --precision: "f32", "f16", "int8".
const char* PrecisionName(const llm::Engine& engine);

struct SamplingArguments {
  llm::SamplingOptions options;
  bool greedy = false;
};
// `temperature`: where none is given.
void AddSamplingArguments(CLI::App& command, SamplingArguments& arguments, double temperature);
llm::SamplingOptions ToSampling(const SamplingArguments& arguments);

// Loads with a bar on standard error, if that is a terminal and `quiet` is not set.
Result<std::shared_ptr<llm::Engine>> LoadEngine(const LlmArguments& arguments, bool quiet);

bool IsTerminal(int descriptor);
nlohmann::json ToJson(const llm::EngineMemory& memory);
nlohmann::json ToJson(const llm::EngineReport& report);
std::string MemoryText(const llm::EngineMemory& memory);

}  // namespace leeway::cli
