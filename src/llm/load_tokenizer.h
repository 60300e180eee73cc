// The tokenizer of an opened file.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "import/llm_file.h"
#include "llm/tokenizer.h"

namespace leeway::llm {

// Nothing where the file has none.
Result<std::optional<Tokenizer>> LoadTokenizer(std::shared_ptr<const LlmFile> file);

// The tokenizer alone, from a GGUF file, a tokenizer.json, or a folder with one. kNotFound where there is none.
Result<Tokenizer> LoadTokenizer(const std::string& path);

}  // namespace leeway::llm
