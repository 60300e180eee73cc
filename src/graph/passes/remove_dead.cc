#include "graph/passes/remove_dead.h"

#include <algorithm>

#include "graph/passes/rewrite.h"

namespace leeway {

Result<int> RemoveDead(Graph& graph) {
  int changes = 0;
  std::vector<int> uses = UseCounts(graph);
  auto release = [&](const std::vector<ValueId>& ids) {
    for (ValueId id : ids)
      if (id != kNoValue) --uses[size_t(id)];
  };
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return uses[size_t(id)] > 0; })) continue;
    release(node.inputs);
    for (const FusedStep& step : node.epilogue) release(step.inputs);
    node.op = nullptr;
    ++changes;
  }
  EraseMarked(graph);

  std::vector<bool> named(graph.values.size());
  auto name = [&](const std::vector<ValueId>& ids) {
    for (ValueId id : ids)
      if (id != kNoValue) named[size_t(id)] = true;
  };
  name(graph.inputs);
  name(graph.outputs);
  for (const Node& node : graph.nodes) {
    name(node.inputs);
    name(node.outputs);
    for (const FusedStep& step : node.epilogue) name(step.inputs);
  }
  for (const Signature& signature : graph.signatures) {
    for (const auto* list : {&signature.inputs, &signature.outputs})
      for (const auto& [text, id] : *list) named[size_t(id)] = true;
  }
  std::vector<ValueId> new_id(graph.values.size(), kNoValue);
  std::vector<Value> values;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (!named[id]) continue;
    new_id[id] = ValueId(values.size());
    values.push_back(std::move(graph.values[id]));
  }
  changes += int(graph.values.size() - values.size());
  graph.values = std::move(values);
  auto rename = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids)
      if (id != kNoValue) id = new_id[size_t(id)];
  };
  rename(graph.inputs);
  rename(graph.outputs);
  for (Node& node : graph.nodes) {
    rename(node.inputs);
    rename(node.outputs);
    for (FusedStep& step : node.epilogue) rename(step.inputs);
  }
  for (GraphState& state : graph.states) {
    state.before = new_id[size_t(state.before)];
    state.after = new_id[size_t(state.after)];
  }
  for (Signature& signature : graph.signatures) {
    for (auto* list : {&signature.inputs, &signature.outputs})
      for (auto& [text, id] : *list) id = new_id[size_t(id)];
  }
  return changes;
}

}  // namespace leeway
