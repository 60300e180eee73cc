// fold_pad: zeros put around a picture by a node of its own become attributes of the operator that reads it
// (OpDef::accepts_explicit_padding). Left: padding of batch or channels, other values than zero, a padded value that more than
// one node reads.
#pragma once

#include "graph/graph.h"

namespace leeway {
Result<int> FoldPad(Graph& graph);
}
