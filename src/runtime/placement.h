// Which nodes run on the device and which on the CPU, and in which order, so that a run changes sides as rarely as it can.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace leeway {

struct NodeSide {
  bool on_gpu = true;
  std::string reason;  // why it is on the CPU
};

// A stretch of a run on one side. Nodes are in an order in which they can run.
struct PlacementStep {
  bool on_gpu = true;
  std::vector<int> nodes;
};

// Does one of the patterns mean this node? A pattern is the node's number, its name, or "op:" and an operator's name.
bool IsExcluded(const Graph& graph, int node, std::span<const std::string> patterns);

// Nodes that fill one value together have to be on the same side: where one is on the CPU, all are.
void JoinSides(const Graph& graph, std::vector<NodeSide>& sides);

// Nodes are reordered only where that saves a change of sides.
std::vector<PlacementStep> MakeSteps(const Graph& graph, std::span<const NodeSide> sides);

// An error that names all nodes on the CPU, with the reasons; fine if there are none.
Status RequireAllOnGpu(const Graph& graph, std::span<const NodeSide> sides);

}  // namespace leeway
