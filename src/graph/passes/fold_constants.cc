#include "graph/passes/fold_constants.h"

#include <algorithm>

#include "base/strings.h"

namespace leeway {
namespace {

// A constant that is much larger than what it is made of costs more to keep and upload than to compute.
constexpr int64_t kMaxGrowthElements = 1 << 16;

bool IsKnown(const Graph& graph, const Node& node) {
  for (ValueId id : node.inputs)
    if (id != kNoValue && !graph.value(id).constant) return false;
  return true;
}

}  // namespace

Result<bool> FoldNode(Graph& graph, const Node& node) {
  if (!node.op->infer || !node.op->reference || !node.epilogue.empty() || !node.input_views.empty() || node.output_view)
    return false;
  if (!node.op->needs_types_only && !IsKnown(graph, node)) return false;
  std::vector<OperandInfo> operands = NodeOperands(graph, node);
  std::vector<TensorType> types = NodeOutputTypes(graph, node);
  std::vector<HostTensor> inputs, outputs;
  for (const OperandInfo& operand : operands) {
    if (operand.absent || node.op->needs_types_only) {
      inputs.emplace_back();
    } else {
      const HostTensor& constant = *operand.constant;
      inputs.push_back(constant.dtype() == operand.type.dtype ? constant : constant.ConvertTo(operand.type.dtype));
    }
  }
  for (const TensorType& type : types) outputs.emplace_back(type.dtype, type.shape);
  RETURN_IF_ERROR_CONTEXT(node.op->reference(OpCall{node.attrs, operands, types, node.custom_options}, inputs, outputs),
                          StrCat("while computing the constant \"", node.name, "\""));
  for (size_t i = 0; i < outputs.size(); ++i)
    graph.values[size_t(node.outputs[i])].constant = std::make_shared<const HostTensor>(std::move(outputs[i]));
  return true;
}

Result<int> FoldConstants(Graph& graph) {
  int changes = 0;
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    int64_t in = 0, out = 0;
    for (ValueId id : node.inputs)
      if (id != kNoValue) in += graph.value(id).type.shape.element_count();
    for (ValueId id : node.outputs) out += graph.value(id).type.shape.element_count();
    if (out <= in + kMaxGrowthElements) {
      ASSIGN_OR_RETURN(bool folded, FoldNode(graph, node));
      if (folded) {
        ++changes;
        continue;
      }
    }
    kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  return changes;
}

}  // namespace leeway
