// A model as a graph of values and nodes. Nodes are kept in an order in which they can run. Passes rewrite it in place.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/op_def.h"

namespace leeway {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

struct Value {
  std::string name;
  TensorType type;
  // Weights and shapes; views of the mapped file. Under an f32 `type` the constant may be stored as f16, bf16 or in quantized
  // blocks: whoever reads it widens (HostTensor::Get, ToF32 and ConvertTo do), whoever uploads it may keep it narrow.
  std::shared_ptr<const HostTensor> constant;
  std::shared_ptr<const Quantization> quantization;
};

// How a node or a step reads a value: through a coordinate map, as a tensor of another shape.
struct View {
  CoordMap map;  // coordinates that the reader sees -> coordinates of the value
  Shape shape;   // as the reader sees it
};

// An elementwise operator melted into the node whose result it takes. The value in flight is input `chained`, which is
// kNoValue in `inputs`; the others are read at the same output coordinates, broadcast as the operator's rule says.
struct FusedStep {
  const OpDef* op = nullptr;
  AttrSet attrs;
  std::vector<ValueId> inputs;
  int chained = 0;
  TensorType result;
  // As long as `inputs` or empty, as Node::input_views.
  std::vector<std::optional<View>> input_views;
  std::shared_ptr<const Quantization> in_flight_quantization;  // what the value in flight had as a value of the graph
};

struct Node {
  std::string name;
  const OpDef* op = nullptr;
  AttrSet attrs;
  std::string custom_options;
  std::vector<ValueId> inputs;  // kNoValue: an optional input that is absent
  std::vector<ValueId> outputs;
  // Set by passes. As long as `inputs` or empty; a node sees input i through input_views[i] where that is set.
  std::vector<std::optional<View>> input_views;
  std::vector<FusedStep> epilogue;  // on output 0, in order
  // Where output 0, after the epilogue, lies inside the value outputs[0], which several nodes fill together (concat in place):
  // the map goes from this node's result coordinates to the value's. Its `shape` is the shape of this node's result.
  std::optional<View> output_view;
  TensorType result;  // type of output 0 before the epilogue; set when there is one or a view
};

struct Signature {  // names under which the outside knows inputs and outputs
  std::string key;
  std::vector<std::pair<std::string, ValueId>> inputs, outputs;
};

// A tensor that lives on between runs: an input of the graph whose memory holds, after a run, an output. Operators change it
// step by step (OpDef::updates); where none does, both are one value.
struct GraphState {
  std::string name;  // graphs that share states know them by it
  ValueId before = kNoValue, after = kNoValue;
  bool may_be_f16 = false;  // floats may be stored as f16 where the device has it (caches)
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;
  std::vector<Signature> signatures;
  std::vector<GraphState> states;
  // Small texts of the file. For inputs with a normalization in the file: "input0.mean" and "input0.std", numbers separated by
  // spaces, one or one per channel; a picture's values 0..255 become (value - mean) / std.
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const void> file;                       // keeps the mapped file alive
  std::vector<std::shared_ptr<const OpDef>> foreign_ops;  // operators that only this graph knows: no rule, no reference

  ValueId AddValue(Value value) {
    values.push_back(std::move(value));
    return ValueId(values.size() - 1);
  }
  ValueId AddConstant(std::string name, HostTensor tensor);
  const Value& value(ValueId id) const { return values[size_t(id)]; }
};

// The operands of a node as its operator sees them (views applied).
std::vector<OperandInfo> NodeOperands(const Graph& graph, const Node& node);
std::vector<OperandInfo> StepOperands(const Graph& graph, const FusedStep& step, const TensorType& in_flight);
std::vector<TensorType> NodeOutputTypes(const Graph& graph, const Node& node);  // before epilogue and output view
// How many times each value is read: as input of a node or of a fused step, or as output of the graph.
std::vector<int> UseCounts(const Graph& graph);
// The node that writes each value, -1 for constants and inputs; of several (output views) the last.
std::vector<int> Producers(const Graph& graph);

// What must hold between passes: ids in range, order, types as the operators infer them, each value written exactly once (or
// in disjoint parts by output views), no constant written. Names node and value.
Status Verify(const Graph& graph);

// Readable text: one line a value or node. For `leeway inspect`, tests and messages.
std::string Format(const Graph& graph);
std::string NodeLabel(const Graph& graph, int node);  // 12 [conv_2d "stem"]

}  // namespace leeway
