// simplify: movements that move nothing (a transpose or slice that keeps everything, a reshape to the same shape) are taken
// out. One whose result is an output of the graph stays, so that the output keeps its own value.
#pragma once

#include "graph/graph.h"

namespace leeway {
Result<int> Simplify(Graph& graph);
}
