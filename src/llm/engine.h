// What an engine is made of; sessions look into it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "import/llm_file.h"
#include "leeway/llm.h"
#include "llm/chat_template.h"
#include "llm/tokenizer.h"
#include "runtime/stage.h"

namespace leeway::llm {

// The names under which the graphs of models know what every session has besides its caches.
inline constexpr char kTokensState[] = "tokens";
inline constexpr char kStepState[] = "step";
inline constexpr char kSamplerState[] = "sampler";

// The plan for so many tokens at a time.
struct EngineStage {
  int rows = 0;
  std::unique_ptr<Stage> stage;
  ValueId tokens = kNoValue, logits = kNoValue;  // after a run
};

struct Engine::State {
  EngineOptions options;
  std::shared_ptr<const LlmFile> file;
  ModelInfo info;
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  Error no_template;        // why there is none
  uint64_t model_hash = 0;  // of configuration and samples of the tensors
  int context = 0;
  // Runs may be taken back by so many positions at least: what rings hold beyond their window.
  int max_rewind = 0;
  std::unique_ptr<StageContext> shared;
  std::vector<EngineStage> stages;    // fewest rows first
  std::optional<EngineStage> greedy;  // for one token: the most likely one, without logits to read
  EngineMemory memory;
  EngineReport report;
  bool has_int8 = false;  // products of decoding take activations in 8 bits
  bool busy = false;      // a session generates

  Device* device() const { return shared->device.get(); }
};

// Milliseconds of a steady clock.
double NowMs();

}  // namespace leeway::llm
