// The passes, in the order in which they run. Each is one function in a file of its name, can be switched off by name, is
// timed, and the verifier runs after it.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace leeway {

struct PassOptions {
  std::set<std::string> disabled;
};

struct PassReport {
  std::string name;
  double milliseconds = 0;
  int changes = 0;
  bool disabled = false;
};

struct Pass {
  const char* name;
  Result<int> (*run)(Graph& graph);  // how many places it changed
};
std::span<const Pass> AllPasses();

Result<std::vector<PassReport>> RunPasses(Graph& graph, const PassOptions& options);

}  // namespace leeway
