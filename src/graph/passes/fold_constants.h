// fold_constants: nodes whose inputs are all constant become constants, computed by the reference of their operator.
#pragma once

#include "graph/graph.h"

namespace leeway {

// Computes the outputs of `node` (which need not be in the graph) into constants of its output values, where its inputs are
// constants or its operator needs only their types. False: nothing is done; there is no reference, an input is not known,
// a view or epilogue is in the way, or an output is also an output of the graph.
Result<bool> FoldNode(Graph& graph, const Node& node);

Result<int> FoldConstants(Graph& graph);

}  // namespace leeway
