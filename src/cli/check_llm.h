// leeway check for language models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/llm.h"

namespace leeway::cli {

struct LlmCheckArguments {
  LlmArguments load;
  bool int8 = false, as_json = false;
  std::optional<bool> fuse_decoding;
  std::string reference_device;
  std::vector<std::string> text_files;
  std::vector<int32_t> ids;
  int generate = 0, context = 320;
  double temperature = 1;
};

void AddLlmCheckArguments(CLI::App& command, LlmCheckArguments& arguments);
int CheckLlm(const LlmCheckArguments& arguments);

}  // namespace leeway::cli
