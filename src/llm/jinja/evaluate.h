// Runs a parsed template.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "llm/jinja/ast.h"

namespace leeway::llm::jinja {

struct RunOptions {
  // For strftime_now; without it the function isn't defined, and templates fall back to a date of their own.
  std::optional<int64_t> seconds_since_1970;
  // Bounds the work: about one unit for each step and for each 8 bytes of text that are made.
  int64_t max_work = 10'000'000;
};

// What the template prints. Variables come first, then the template's own names. kInvalidModel where the template fails (naming
// line and construct), kInvalidArgument with the template's own words where it calls raise_exception: the messages are not such
// as it takes.
Result<Text> Run(const std::vector<Node>& nodes, const std::map<std::string, Value>& variables, const RunOptions& options);

}  // namespace leeway::llm::jinja
