#include "runtime/host_values.h"

#include <algorithm>

#include "base/strings.h"
#include "ops/evaluate.h"
#include "runtime/pack.h"

namespace leeway {

HostValues::HostValues(const LaunchPlan& plan) : plan_(&plan), values_(plan.graph.values.size()) {
  auto add = [&](ValueId id) {
    if (id == kNoValue || values_[size_t(id)].bytes().data() != nullptr) return;
    const Value& value = plan.graph.value(id);
    values_[size_t(id)] = value.constant ? *value.constant : HostTensor(value.type.dtype, value.type.shape);
  };
  for (const auto& planned : plan.steps) {
    if (planned.on_gpu) continue;
    for (int n : planned.nodes) {
      const Node& node = plan.graph.nodes[size_t(n)];
      for (ValueId id : node.inputs) add(id);
      for (ValueId id : node.outputs) add(id);
      for (const auto& fused : node.epilogue) {
        for (ValueId id : fused.inputs) add(id);
      }
    }
  }
}

void HostValues::Unpack(const PlanTransfer& transfer, std::span<const std::byte> bytes) {
  HostTensor& tensor = values_[size_t(transfer.value)];
  if (tensor.bytes().data() == nullptr) {  // given away to a value after it
    const TensorType& type = plan_->graph.value(transfer.value).type;
    tensor = HostTensor(type.dtype, type.shape);
  }
  UnpackInto(bytes, plan_->resources[size_t(transfer.resource)].placement, tensor.dtype(), tensor.mutable_bytes());
}

std::vector<std::byte> HostValues::Pack(const PlanTransfer& transfer) const {
  const PlanResource& resource = plan_->resources[size_t(transfer.resource)];
  std::vector<std::byte> packed(resource.size_bytes);
  PackThroughMap(values_[size_t(transfer.value)], {}, resource.placement, packed);
  return packed;
}

Status HostValues::Evaluate(int n) {
  const Graph& graph = plan_->graph;
  const Node& node = graph.nodes[size_t(n)];
  auto take = [&](const std::vector<ValueId>& ids) {
    std::vector<HostTensor> tensors;
    for (ValueId id : ids) tensors.push_back(id == kNoValue ? HostTensor() : values_[size_t(id)]);
    return tensors;
  };
  std::vector<HostTensor> inputs = take(node.inputs);
  std::vector<std::vector<HostTensor>> step_inputs;
  for (const auto& fused : node.epilogue) step_inputs.push_back(take(fused.inputs));
  std::vector<HostTensor> outputs = take(node.outputs);
  for (ValueId id : node.outputs) values_[size_t(id)] = HostTensor();  // so that the outputs are not shared
  // Several nodes fill the value together: what is there stays. Otherwise the reference starts from zeros.
  if (!node.output_view) {
    for (auto& tensor : outputs) {
      auto bytes = tensor.mutable_bytes();
      std::fill(bytes.begin(), bytes.end(), std::byte(0));
    }
  }
  for (const auto& update : node.op->updates) {
    const ValueId before = node.inputs[size_t(update.input)];
    inputs[size_t(update.input)] = HostTensor();
    outputs[size_t(update.output)] = std::move(values_[size_t(before)]);
    values_[size_t(before)] = HostTensor();
  }
  Status status = EvaluateNode(graph, n, inputs, step_inputs, outputs);
  for (size_t i = 0; i < node.outputs.size(); ++i) values_[size_t(node.outputs[i])] = std::move(outputs[i]);
  if (!status.ok()) return WithContext(status.error(), StrCat("in node ", NodeLabel(graph, n), " on the CPU"));
  return status;
}

}  // namespace leeway
