#include "graph/passes/rewrite.h"

#include <algorithm>

#include "tensor/coord_map.h"

namespace leeway {

Uses::Uses(const Graph& graph)
    : count(UseCounts(graph)), producer(Producers(graph)), writers(graph.values.size()), is_output(graph.values.size()) {
  for (const Node& node : graph.nodes)
    for (ValueId id : node.outputs) ++writers[size_t(id)];
  for (ValueId id : graph.outputs) is_output[size_t(id)] = true;
}

std::optional<Movement> MovementOf(const Graph& graph, const Node& node) {
  if (!node.op || !node.op->movement || node.outputs.size() != 1) return std::nullopt;
  if (!node.input_views.empty() || !node.epilogue.empty() || node.output_view) return std::nullopt;
  std::vector<OperandInfo> operands = NodeOperands(graph, node);
  std::vector<TensorType> outputs = NodeOutputTypes(graph, node);
  auto movement = node.op->movement(OpCall{node.attrs, operands, outputs, node.custom_options});
  if (!movement.ok()) return std::nullopt;  // a form that only the reference does
  const OperandInfo& source = operands[size_t(movement->source)];
  if (source.absent || source.type.dtype != outputs[0].dtype) return std::nullopt;
  movement->map = SimplifiedMap(std::move(movement->map), outputs[0].shape, source.type.shape);
  return *movement;
}

void ReplaceReads(Graph& graph, ValueId from, ValueId to) {
  auto replace = [&](std::vector<ValueId>& ids) { std::replace(ids.begin(), ids.end(), from, to); };
  for (Node& node : graph.nodes) {
    replace(node.inputs);
    for (FusedStep& step : node.epilogue) replace(step.inputs);
  }
  replace(graph.outputs);
  for (GraphState& state : graph.states)
    if (state.after == from) state.after = to;
  for (Signature& signature : graph.signatures) {
    for (auto& [name, id] : signature.outputs)
      if (id == from) id = to;
  }
}

void EraseMarked(Graph& graph) {
  std::erase_if(graph.nodes, [](const Node& node) { return node.op == nullptr; });
}

}  // namespace leeway
