#include "graph/passes/fuse_elementwise.h"

#include <algorithm>

#include "graph/passes/rewrite.h"

namespace leeway {
namespace {

// WebGPU's standard allows 8 storage buffers in a kernel; a node with many inputs of its own leaves less for its steps.
constexpr size_t kMaxStepTensors = 4, kMaxTensors = 8;

size_t TensorCount(const std::vector<ValueId>& ids) {
  return ids.size() - size_t(std::count(ids.begin(), ids.end(), kNoValue));
}

bool TakesSteps(const Node& node) { return node.op && node.outputs.size() == 1 && !node.output_view; }

bool HasRoomFor(const Node& producer, const Node& node) {
  size_t own = TensorCount(producer.inputs) + 1, steps = TensorCount(node.inputs) - 1;
  for (const FusedStep& step : producer.epilogue) steps += TensorCount(step.inputs);
  // A scatter is a dispatch per input, each with one of them.
  if (producer.op->scatter) own = 2;
  return steps <= kMaxStepTensors && own + steps <= kMaxTensors;
}

// `node` with input `chained` as a step; none where the operator or the shapes do not allow it.
std::optional<FusedStep> AsStep(const Graph& graph, const Node& node, int chained) {
  const Value& input = graph.value(node.inputs[size_t(chained)]);
  const TensorType& result = graph.value(node.outputs[0]).type;
  if (input.type.shape != result.shape) return std::nullopt;
  FusedStep step{node.op, node.attrs, node.inputs, chained, result, {}, input.quantization};
  step.inputs[size_t(chained)] = kNoValue;
  std::vector<OperandInfo> operands = StepOperands(graph, step, input.type);
  OpCall call{step.attrs, operands, std::span(&result, 1), {}};
  if (!node.op->value_map(call, chained).ok()) return std::nullopt;
  auto inferred = node.op->infer(OpCall{step.attrs, operands, {}, {}});
  if (!inferred.ok() || inferred->size() != 1 || (*inferred)[0] != result) return std::nullopt;
  return step;
}

}  // namespace

Result<int> FuseElementwise(Graph& graph) {
  Uses uses(graph);
  int changes = 0;
  for (int n = 0; n < int(graph.nodes.size()); ++n) {
    Node& node = graph.nodes[size_t(n)];
    if (!node.op->value_map || !node.op->infer || node.outputs.size() != 1 || !node.epilogue.empty() ||
        !node.input_views.empty() || node.output_view || !node.custom_options.empty())
      continue;
    // Of several inputs one that is not moved (a movement can be read through a view, and then is gone), then the one made
    // last: its node moves least.
    int best = -1, best_producer = -1;
    bool best_moves = true;
    for (int i = 0; i < int(node.inputs.size()); ++i) {
      if (!uses.IsPrivate(node.inputs[size_t(i)])) continue;
      int producer = uses.producer[size_t(node.inputs[size_t(i)])];
      const Node& candidate = graph.nodes[size_t(producer)];
      bool moves = candidate.op && candidate.op->movement && candidate.epilogue.empty();
      if (best >= 0 && (moves != best_moves ? moves : producer < best_producer)) continue;
      if (!TakesSteps(candidate) || !HasRoomFor(candidate, node) || !AsStep(graph, node, i)) continue;
      best = i;
      best_producer = producer;
      best_moves = moves;
    }
    if (best < 0) continue;
    Node fused = std::move(graph.nodes[size_t(best_producer)]);
    graph.nodes[size_t(best_producer)] = Node{};  // marked
    if (fused.epilogue.empty()) fused.result = graph.value(fused.outputs[0]).type;
    fused.epilogue.push_back(*AsStep(graph, node, best));
    fused.outputs = node.outputs;
    fused.name = node.name;
    node = std::move(fused);
    uses.producer[size_t(node.outputs[0])] = n;
    ++changes;
  }
  EraseMarked(graph);
  return changes;
}

}  // namespace leeway
