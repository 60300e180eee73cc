// Runs graphs on the CPU with the references of the operators: oracle, fallback, and what `leeway check` compares with. Views,
// epilogues and output views mean here what they mean on a device.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace leeway {

// One node. `inputs` are whole values, one per Node::inputs (anything for absent ones). `outputs` are the node's whole output
// values with their types; outputs[0] of a node with an output view keeps what others wrote into it.
Status EvaluateNode(const Graph& graph, int node, std::span<const HostTensor> inputs,
                    std::span<const std::vector<HostTensor>> step_inputs, std::span<HostTensor> outputs);

// What a caller may look at while a graph runs: after each node, with its outputs.
using NodeObserver = std::function<void(int node, std::span<const HostTensor> outputs)>;

// `inputs` in the order of Graph::inputs, of exactly their types. The outputs in the order of Graph::outputs. A value is freed
// after its last use.
Result<std::vector<HostTensor>> Evaluate(const Graph& graph, std::span<const HostTensor> inputs,
                                         const NodeObserver& observer = {});

}  // namespace leeway
