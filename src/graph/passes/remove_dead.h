// remove_dead: nodes none of whose results is read, and values that nothing names any more, constants with them. Inputs of the
// graph stay. Values get new ids.
#pragma once

#include "graph/graph.h"

namespace leeway {
Result<int> RemoveDead(Graph& graph);
}
