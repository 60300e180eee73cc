// What `leeway inspect` says of the files of language models.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "import/llm_file.h"

namespace leeway::cli {

// Format, architecture, configuration without the long arrays, tensors, bytes by element type.
nlohmann::json LlmFileReport(const LlmFile& file);
std::string LlmFileText(const LlmFile& file);

}  // namespace leeway::cli
