// fuse_elementwise: an elementwise node becomes a step of the node that makes one of its inputs, where nothing else reads that
// input and the result has its shape; chains fuse one by one. The node moves to where the elementwise node was, so its other
// operands are there. Left: results read elsewhere, nodes with several results, more operands than bindings (kMax... in the
// source).
#pragma once

#include "graph/graph.h"

namespace leeway {
Result<int> FuseElementwise(Graph& graph);
}
