// A template's text to its tree.
#pragma once

#include <string_view>
#include <vector>

#include "llm/jinja/ast.h"

namespace leeway::llm::jinja {

// kInvalidModel with the line and the construct for what is wrong or isn't known.
Result<std::vector<Node>> Parse(std::string_view source);

}  // namespace leeway::llm::jinja
