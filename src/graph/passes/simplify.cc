#include "graph/passes/simplify.h"

#include "graph/passes/rewrite.h"

namespace leeway {

Result<int> Simplify(Graph& graph) {
  Uses uses(graph);
  int changes = 0;
  for (Node& node : graph.nodes) {
    if (node.outputs.size() != 1 || uses.is_output[size_t(node.outputs[0])]) continue;
    auto movement = MovementOf(graph, node);
    if (!movement || movement->map.inside || !movement->map.is_identity()) continue;
    ValueId source = node.inputs[size_t(movement->source)];
    if (graph.value(source).type != graph.value(node.outputs[0]).type) continue;
    ValueId result = node.outputs[0];
    node.op = nullptr;
    node.inputs.clear();
    ReplaceReads(graph, result, source);
    ++changes;
  }
  EraseMarked(graph);
  return changes;
}

}  // namespace leeway
