#include "runtime/placement.h"

#include <algorithm>

#include "base/strings.h"

namespace leeway {
namespace {

std::vector<ValueId> ReadValues(const Node& node) {
  std::vector<ValueId> values;
  for (ValueId id : node.inputs) {
    if (id != kNoValue) values.push_back(id);
  }
  for (const auto& step : node.epilogue) {
    for (ValueId id : step.inputs) {
      if (id != kNoValue) values.push_back(id);
    }
  }
  return values;
}

}  // namespace

bool IsExcluded(const Graph& graph, int node, std::span<const std::string> patterns) {
  const Node& n = graph.nodes[size_t(node)];
  const std::string number = StrCat(node);
  for (const auto& pattern : patterns) {
    if (pattern == number || pattern == n.name) return true;
    if (pattern.starts_with("op:") && std::string_view(pattern).substr(3) == n.op->name) return true;
  }
  return false;
}

void JoinSides(const Graph& graph, std::vector<NodeSide>& sides) {
  std::vector<int> cpu_writer(graph.values.size(), -1);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!sides[n].on_gpu && graph.nodes[n].output_view) cpu_writer[size_t(graph.nodes[n].outputs[0])] = int(n);
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!sides[n].on_gpu || !graph.nodes[n].output_view) continue;
    if (int other = cpu_writer[size_t(graph.nodes[n].outputs[0])]; other >= 0) {
      sides[n] = {false, StrCat("it fills one tensor together with ", NodeLabel(graph, other), ", which is on the CPU")};
    }
  }
}

std::vector<PlacementStep> MakeSteps(const Graph& graph, std::span<const NodeSide> sides) {
  const size_t count = graph.nodes.size();
  std::vector<std::vector<int>> writers(graph.values.size());
  for (size_t n = 0; n < count; ++n) {
    for (ValueId id : graph.nodes[n].outputs) {
      if (id != kNoValue) writers[size_t(id)].push_back(int(n));
    }
  }
  std::vector<std::vector<int>> readers(graph.values.size());
  for (size_t n = 0; n < count; ++n) {
    for (ValueId id : ReadValues(graph.nodes[n])) readers[size_t(id)].push_back(int(n));
  }
  std::vector<int> waiting(count, 0);  // for how many nodes
  std::vector<std::vector<int>> followers(count);
  for (size_t n = 0; n < count; ++n) {
    std::vector<int> before;
    for (ValueId id : ReadValues(graph.nodes[n])) {
      for (int writer : writers[size_t(id)]) {
        if (writer < int(n)) before.push_back(writer);
      }
    }
    // Memory is updated when all have read what was there.
    for (const auto& update : graph.nodes[n].op->updates) {
      for (int reader : readers[size_t(graph.nodes[n].inputs[size_t(update.input)])]) {
        if (reader < int(n)) before.push_back(reader);
      }
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    waiting[n] = int(before.size());
    for (int writer : before) followers[size_t(writer)].push_back(int(n));
  }

  std::vector<bool> done(count, false);
  std::vector<PlacementStep> steps;
  size_t done_count = 0;
  bool on_gpu = count == 0 || sides[0].on_gpu;
  while (done_count < count) {
    PlacementStep step{.on_gpu = on_gpu, .nodes = {}};
    // One sweep in graph order takes all that this side can do: a node comes after those that it waits for.
    for (size_t n = 0; n < count; ++n) {
      if (done[n] || sides[n].on_gpu != on_gpu || waiting[n] > 0) continue;
      done[n] = true;
      step.nodes.push_back(int(n));
      for (int follower : followers[n]) --waiting[size_t(follower)];
    }
    done_count += step.nodes.size();
    if (!step.nodes.empty()) steps.push_back(std::move(step));
    on_gpu = !on_gpu;
  }
  return steps;
}

Status RequireAllOnGpu(const Graph& graph, std::span<const NodeSide> sides) {
  std::string list;
  int count = 0;
  for (size_t n = 0; n < sides.size(); ++n) {
    if (sides[n].on_gpu) continue;
    ++count;
    list += StrCat("\n  ", NodeLabel(graph, int(n)), ": ", sides[n].reason);
  }
  if (count == 0) return {};
  return Error{Code::kUnsupported,
               StrCat("All nodes are asked to be on the GPU, and ", count, " of ", sides.size(), " are not:", list)};
}

}  // namespace leeway
