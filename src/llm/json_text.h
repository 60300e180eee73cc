// A check before JSON from files and callers goes to functions that call themselves for each level.
#pragma once

#include <string_view>

namespace leeway::llm {

inline bool JsonNestsTooDeep(std::string_view text, int limit = 60) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limit) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace leeway::llm
