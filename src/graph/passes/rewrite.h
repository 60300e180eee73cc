// What several passes need to rewrite a graph.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace leeway {

// Who reads and writes a value, kept up to date by the pass that uses it.
struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<int> count;       // reads by nodes, steps and outputs of the graph
  std::vector<int> producer;    // node that writes it, -1: none; of several the last
  std::vector<int> writers;     // how many nodes write it
  std::vector<bool> is_output;  // of the graph

  // Written whole by one node and read once, by a node: it need not exist.
  bool IsPrivate(ValueId id) const {
    return id != kNoValue && count[size_t(id)] == 1 && writers[size_t(id)] == 1 && !is_output[size_t(id)];
  }
};

// The movement of a node that moves elements of one input without views or steps in the way; none for other nodes.
std::optional<Movement> MovementOf(const Graph& graph, const Node& node);

// Every read of `from`, by nodes, steps and outputs, becomes one of `to`.
void ReplaceReads(Graph& graph, ValueId from, ValueId to);

// Takes out the nodes whose op is null, which is how passes mark them.
void EraseMarked(Graph& graph);

}  // namespace leeway
