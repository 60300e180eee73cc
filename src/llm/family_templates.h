// The chat templates of the families, for files that have none.
#pragma once

#include <string_view>

namespace leeway::llm {

extern const std::string_view kChatMlTemplate, kGemma3Template, kGemma4Template, kLlama3Template, kQwen3Template;

}  // namespace leeway::llm
