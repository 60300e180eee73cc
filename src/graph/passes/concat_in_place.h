// concat_in_place: nodes whose result is only laid beside others (concat, pack) store right where it belongs, and the scatter
// is gone. Inputs that other nodes read too, that are inputs or constants, or whose node has several results are copied there
// by a scatter of that input alone, where the operator can do that; else the whole scatter stays.
#pragma once

#include "graph/graph.h"

namespace leeway {
Result<int> ConcatInPlace(Graph& graph);
}
