// fuse_movements: movements (reshape, transpose, slice, pad, ...) melt into the nodes around them and cost no dispatch of their
// own.
//
// One that is one to one (reshape, transpose) goes to the node that makes its input, where nothing else reads that: the node
// stores at the moved place (output_view). Others go to the nodes that read their result (input_views), where all of them can
// take it: steps and nodes that read each element once (elementwise, movements, scatters) take any map; others only maps that
// keep slices whole and need no division or bounds check, since they read the same element many times. What is left is a copy.
#pragma once

#include "graph/graph.h"

namespace leeway {
Result<int> FuseMovements(Graph& graph);
}
