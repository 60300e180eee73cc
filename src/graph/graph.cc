#include "graph/graph.h"

#include <algorithm>

#include "base/strings.h"

namespace leeway {
namespace {

bool InRange(const Graph& graph, ValueId id) { return id >= 0 && size_t(id) < graph.values.size(); }

std::string ValueLabel(const Graph& graph, ValueId id) {
  if (!InRange(graph, id)) return StrCat("value ", id);
  return StrCat("value ", id, " \"", graph.value(id).name, "\"");
}

OperandInfo ValueOperand(const Graph& graph, ValueId id) {
  if (id == kNoValue) return OperandInfo{.absent = true};
  const Value& value = graph.value(id);
  return OperandInfo{value.type, value.constant.get(), value.quantization.get(), false};
}

OperandInfo ViewedOperand(const Graph& graph, const std::vector<ValueId>& inputs, const std::vector<std::optional<View>>& views,
                          size_t i) {
  OperandInfo info = ValueOperand(graph, inputs[i]);
  if (i < views.size() && views[i]) {
    info.type.shape = views[i]->shape;
    info.constant = nullptr;  // its elements are not where the operator would look for them
  }
  return info;
}

// A constant may be narrower than its value's type says (Value::constant).
bool StoredTypeFits(const TensorType& type, const HostTensor& constant) {
  if (constant.shape() != type.shape) return false;
  return constant.dtype() == type.dtype ||
         (type.dtype == DType::kF32 &&
          (constant.dtype() == DType::kF16 || constant.dtype() == DType::kBF16 || IsBlockQuantized(constant.dtype())));
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        written_(graph.values.size()),
        origin_(graph.values.size(), kNoValue),
        updated_(graph.values.size()),
        elements_(graph.values.size()) {}

  Status Run() {
    RETURN_IF_ERROR(Values());
    RETURN_IF_ERROR(Inputs());
    std::vector<int> writers_left(graph_.values.size());
    for (int n = 0; n < int(graph_.nodes.size()); ++n) {
      for (ValueId id : graph_.nodes[size_t(n)].outputs) {
        if (!InRange(graph_, id)) return Bad(n, StrCat("writes value ", id, ", which does not exist"));
        ++writers_left[size_t(id)];
      }
    }
    for (int n = 0; n < int(graph_.nodes.size()); ++n) {
      const Node& node = graph_.nodes[size_t(n)];
      RETURN_IF_ERROR(Reads(n, node.inputs, writers_left, -1));
      for (const FusedStep& step : node.epilogue) {
        if (step.chained < 0 || size_t(step.chained) >= step.inputs.size() || step.inputs[size_t(step.chained)] != kNoValue)
          return Bad(n, StrCat("has a fused ", step.op ? step.op->name : "step", " whose value in flight is not marked"));
        RETURN_IF_ERROR(Reads(n, step.inputs, writers_left, step.chained));
      }
      RETURN_IF_ERROR(Types(n));
      RETURN_IF_ERROR(Updates(n));
      RETURN_IF_ERROR(Writes(n, writers_left));
    }
    RETURN_IF_ERROR(Outputs());
    return States();
  }

 private:
  Status Values() const {
    for (ValueId id = 0; id < ValueId(graph_.values.size()); ++id) {
      const Value& value = graph_.value(id);
      if (IsBlockQuantized(value.type.dtype)) {
        return Error{Code::kInternal, StrCat("The type of ", ValueLabel(graph_, id), " is ", value.type.ToString(),
                                             "; only constants are stored in blocks, under a value of f32.")};
      }
      if (value.constant && !StoredTypeFits(value.type, *value.constant)) {
        TensorType stored{value.constant->dtype(), value.constant->shape()};
        return Error{Code::kInternal, StrCat("The constant of ", ValueLabel(graph_, id), " is ", stored.ToString(),
                                             ", its value is ", value.type.ToString(), ".")};
      }
    }
    return {};
  }

  Status Inputs() {
    for (ValueId id : graph_.inputs) {
      if (!InRange(graph_, id) || graph_.value(id).constant)
        return Error{Code::kInternal, StrCat("The graph's input, ", ValueLabel(graph_, id), ", is missing or constant.")};
      written_[size_t(id)] = true;
    }
    for (const GraphState& state : graph_.states) {
      if (std::find(graph_.inputs.begin(), graph_.inputs.end(), state.before) == graph_.inputs.end())
        return Error{Code::kInternal, StrCat("The state \"", state.name, "\" begins as value ", state.before,
                                             ", which is no input of the graph.")};
      origin_[size_t(state.before)] = state.before;
    }
    return {};
  }

  Status Reads(int n, const std::vector<ValueId>& inputs, const std::vector<int>& writers_left, int chained) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      ValueId id = inputs[i];
      if (id == kNoValue) continue;  // absent, or the value in flight
      if (int(i) == chained) continue;
      if (!InRange(graph_, id)) return Bad(n, StrCat("reads value ", id, ", which does not exist"));
      const Value& value = graph_.value(id);
      if (updated_[size_t(id)])
        return Bad(n, StrCat("reads ", ValueLabel(graph_, id), ", whose memory another node has updated already"));
      if (!value.constant && (!written_[size_t(id)] || writers_left[size_t(id)] > 0))
        return Bad(n, StrCat("reads ", ValueLabel(graph_, id), " before all of it is written"));
    }
    return {};
  }

  Status Views(int n, const std::vector<ValueId>& inputs, const std::vector<std::optional<View>>& views) const {
    if (!views.empty() && views.size() != inputs.size())
      return Bad(n, StrCat("has ", views.size(), " input views for ", inputs.size(), " inputs"));
    for (size_t i = 0; i < views.size(); ++i) {
      if (!views[i]) continue;
      if (inputs[i] == kNoValue) return Bad(n, StrCat("has a view on input ", i, ", which is no value"));
      const Shape& shape = graph_.value(inputs[i]).type.shape;
      const CoordMap& map = views[i]->map;
      if (map.coords.size() != size_t(shape.rank()) && !(map.coords.empty() && views[i]->shape == shape))
        return Bad(n, StrCat("has a view on input ", i, " that does not fit ", ValueLabel(graph_, inputs[i])));
    }
    return {};
  }

  Status Types(int n) const {
    const Node& node = graph_.nodes[size_t(n)];
    if (!node.op) return Bad(n, "has no operator");
    if (node.outputs.empty()) return Bad(n, "has no outputs");
    RETURN_IF_ERROR(Views(n, node.inputs, node.input_views));
    for (const FusedStep& step : node.epilogue) RETURN_IF_ERROR(Views(n, step.inputs, step.input_views));
    std::vector<TensorType> types = NodeOutputTypes(graph_, node);
    if (node.op->infer) {
      std::vector<OperandInfo> operands = NodeOperands(graph_, node);
      auto inferred = node.op->infer(OpCall{node.attrs, operands, {}, node.custom_options});
      if (!inferred.ok()) return WithContext(inferred.error(), StrCat("in node ", NodeLabel(graph_, n)));
      if (inferred->size() != types.size())
        return Bad(n, StrCat("has ", types.size(), " outputs, its operator gives ", inferred->size()));
      for (size_t i = 0; i < types.size(); ++i) {
        if ((*inferred)[i] != types[i])
          return Bad(n,
                     StrCat("has output ", i, " of ", types[i].ToString(), ", its operator gives ", (*inferred)[i].ToString()));
      }
    }
    TensorType in_flight = types[0];
    for (const FusedStep& step : node.epilogue) {
      if (!step.op || !step.op->value_map) return Bad(n, "has a fused step that is not elementwise");
      std::vector<OperandInfo> operands = StepOperands(graph_, step, in_flight);
      auto inferred = step.op->infer(OpCall{step.attrs, operands, {}, {}});
      if (!inferred.ok())
        return WithContext(inferred.error(), StrCat("in the fused ", step.op->name, " of node ", NodeLabel(graph_, n)));
      if (inferred->size() != 1 || (*inferred)[0] != step.result || step.result.shape != in_flight.shape)
        return Bad(n,
                   StrCat("has a fused ", step.op->name, " that makes ", step.result.ToString(), " of ", in_flight.ToString()));
      in_flight = step.result;
    }
    const TensorType& stored = graph_.value(node.outputs[0]).type;
    if (node.output_view) {
      if (node.output_view->shape != in_flight.shape) return Bad(n, "has an output view of another shape than its result");
      if (node.output_view->map.inside) return Bad(n, "has an output view that drops elements");
      if (!node.output_view->map.coords.empty() && node.output_view->map.coords.size() != size_t(stored.shape.rank()))
        return Bad(n, StrCat("has an output view that does not fit ", ValueLabel(graph_, node.outputs[0])));
      in_flight.shape = stored.shape;
    }
    if (stored != in_flight)
      return Bad(
          n, StrCat("makes ", in_flight.ToString(), " for ", ValueLabel(graph_, node.outputs[0]), " of ", stored.ToString()));
    return {};
  }

  // Outputs in the memory of an input: of a value that nobody else may read from then on.
  Status Updates(int n) {
    const Node& node = graph_.nodes[size_t(n)];
    for (const auto& update : node.op->updates) {
      if (size_t(update.output) >= node.outputs.size() || size_t(update.input) >= node.inputs.size())
        return Bad(n, "updates an operand that it does not have");
      ValueId before = node.inputs[size_t(update.input)], after = node.outputs[size_t(update.output)];
      if (before == kNoValue || graph_.value(before).constant)
        return Bad(n, StrCat("updates input ", update.input, ", which is absent or constant"));
      if (graph_.value(before).type != graph_.value(after).type)
        return Bad(n, StrCat("updates ", ValueLabel(graph_, before), " of ", graph_.value(before).type.ToString(), " to ",
                             ValueLabel(graph_, after), " of ", graph_.value(after).type.ToString()));
      if (size_t(update.input) < node.input_views.size() && node.input_views[size_t(update.input)])
        return Bad(n, StrCat("updates ", ValueLabel(graph_, before), " through a view"));
      if (origin_[size_t(before)] == kNoValue)
        return Bad(n, StrCat("updates ", ValueLabel(graph_, before), ", which is no state of the graph"));
      updated_[size_t(before)] = true;
      origin_[size_t(after)] = origin_[size_t(before)];
    }
    return {};
  }

  Status Writes(int n, std::vector<int>& writers_left) {
    const Node& node = graph_.nodes[size_t(n)];
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      ValueId id = node.outputs[i];
      const Value& value = graph_.value(id);
      if (value.constant) return Bad(n, StrCat("writes ", ValueLabel(graph_, id), ", a constant"));
      bool in_part = i == 0 && node.output_view;
      int64_t count = in_part ? node.output_view->shape.element_count() : value.type.shape.element_count();
      if (written_[size_t(id)] && !(in_part && elements_[size_t(id)] >= 0))
        return Bad(n, StrCat("writes ", ValueLabel(graph_, id), ", which is written already"));
      written_[size_t(id)] = true;
      elements_[size_t(id)] = in_part ? elements_[size_t(id)] + count : -1;
      if (--writers_left[size_t(id)] == 0 && in_part && elements_[size_t(id)] != value.type.shape.element_count())
        return Bad(n, StrCat("is the last to write ", ValueLabel(graph_, id), ", of which ", elements_[size_t(id)], " of ",
                             value.type.shape.element_count(), " elements are written"));
    }
    return {};
  }

  Status Outputs() const {
    for (ValueId id : graph_.outputs) {
      if (!InRange(graph_, id) || (!graph_.value(id).constant && !written_[size_t(id)]))
        return Error{Code::kInternal, StrCat("The graph's output, ", ValueLabel(graph_, id), ", is never written.")};
    }
    for (const Signature& signature : graph_.signatures) {
      for (const auto* names : {&signature.inputs, &signature.outputs}) {
        for (const auto& [name, id] : *names) {
          if (!InRange(graph_, id))
            return Error{Code::kInternal,
                         StrCat("The signature \"", signature.key, "\" names \"", name, "\" a value that does not exist.")};
        }
      }
    }
    return {};
  }

  Status States() const {
    for (const GraphState& state : graph_.states) {
      if (!InRange(graph_, state.after) || origin_[size_t(state.after)] != state.before)
        return Error{Code::kInternal, StrCat("The state \"", state.name, "\" of the graph ends as ",
                                             ValueLabel(graph_, state.after), ", which is not in its memory.")};
      if (updated_[size_t(state.after)])
        return Error{Code::kInternal, StrCat("The state \"", state.name, "\" of the graph ends as ",
                                             ValueLabel(graph_, state.after), ", which a node updates further.")};
      if (std::find(graph_.outputs.begin(), graph_.outputs.end(), state.after) == graph_.outputs.end())
        return Error{Code::kInternal, StrCat("The state \"", state.name, "\" ends as ", ValueLabel(graph_, state.after),
                                             ", which is no output of the graph.")};
    }
    return {};
  }

  Error Bad(int n, std::string what) const {
    return Error{Code::kInternal, StrCat("Node ", NodeLabel(graph_, n), " ", what, ".")};
  }

  const Graph& graph_;
  std::vector<bool> written_;
  std::vector<ValueId> origin_;    // the input whose memory the value has, of states
  std::vector<bool> updated_;      // its memory holds a later value
  std::vector<int64_t> elements_;  // written through output views so far; -1: written whole
};

std::string FormatMap(const CoordMap& map) {
  std::vector<std::string> parts;
  for (const IndexExpr& e : map.coords) parts.push_back(e.ToString());
  std::string text = map.is_identity() ? "(same)" : StrCat("(", Join(parts, ", "), ")");
  if (map.inside) text += StrCat(" if ", map.inside->ToString(), " else ", map.outside);
  return text;
}

std::string FormatOperand(const Graph& graph, ValueId id) {
  if (id == kNoValue) return "none";
  const Value& value = graph.value(id);
  return value.constant ? StrCat("#", id, ":", value.type.ToString()) : StrCat("%", id);
}

}  // namespace

ValueId Graph::AddConstant(std::string name, HostTensor tensor) {
  Value value;
  value.name = std::move(name);
  value.type = {IsBlockQuantized(tensor.dtype()) ? DType::kF32 : tensor.dtype(), tensor.shape()};
  value.constant = std::make_shared<const HostTensor>(std::move(tensor));
  return AddValue(std::move(value));
}

std::vector<OperandInfo> NodeOperands(const Graph& graph, const Node& node) {
  std::vector<OperandInfo> operands;
  operands.reserve(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) operands.push_back(ViewedOperand(graph, node.inputs, node.input_views, i));
  return operands;
}

std::vector<OperandInfo> StepOperands(const Graph& graph, const FusedStep& step, const TensorType& in_flight) {
  std::vector<OperandInfo> operands;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (int(i) == step.chained) {
      operands.push_back({.type = in_flight, .quantization = step.in_flight_quantization.get()});
    } else {
      operands.push_back(ViewedOperand(graph, step.inputs, step.input_views, i));
    }
  }
  return operands;
}

std::vector<TensorType> NodeOutputTypes(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (ValueId id : node.outputs) types.push_back(graph.value(id).type);
  if (!types.empty() && (!node.epilogue.empty() || node.output_view)) types[0] = node.result;
  return types;
}

std::vector<int> UseCounts(const Graph& graph) {
  std::vector<int> uses(graph.values.size());
  auto count = [&](const std::vector<ValueId>& ids) {
    for (ValueId id : ids)
      if (id != kNoValue) ++uses[size_t(id)];
  };
  for (const Node& node : graph.nodes) {
    count(node.inputs);
    for (const FusedStep& step : node.epilogue) count(step.inputs);
  }
  count(graph.outputs);
  return uses;
}

std::vector<int> Producers(const Graph& graph) {
  std::vector<int> producers(graph.values.size(), -1);
  for (int n = 0; n < int(graph.nodes.size()); ++n)
    for (ValueId id : graph.nodes[size_t(n)].outputs) producers[size_t(id)] = n;
  return producers;
}

Status Verify(const Graph& graph) { return Verifier(graph).Run(); }

std::string NodeLabel(const Graph& graph, int node) {
  const Node& n = graph.nodes[size_t(node)];
  return StrCat(node, " [", n.op ? n.op->name : "?", " \"", n.name, "\"]");
}

std::string Format(const Graph& graph) {
  std::string out = StrCat("graph \"", graph.name, "\"\n");
  for (ValueId id : graph.inputs)
    out += StrCat("  input %", id, " ", graph.value(id).type.ToString(), " \"", graph.value(id).name, "\"\n");
  for (int n = 0; n < int(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[size_t(n)];
    std::vector<std::string> outputs, inputs;
    for (ValueId id : node.outputs) outputs.push_back(StrCat("%", id, ":", graph.value(id).type.ToString()));
    for (ValueId id : node.inputs) inputs.push_back(FormatOperand(graph, id));
    out += StrCat("  ", Join(outputs, ", "), " = ", node.op ? node.op->name : "?", "(", Join(inputs, ", "), ")");
    if (!node.attrs.values().empty()) out += StrCat(" {", node.attrs.ToString(), "}");
    out += StrCat(" \"", node.name, "\"\n");
    auto views_text = [&](const std::vector<std::optional<View>>& views) {
      for (size_t i = 0; i < views.size(); ++i) {
        if (views[i])
          out += StrCat("      input ", i, " as ", views[i]->shape.ToString(), " at ", FormatMap(views[i]->map), "\n");
      }
    };
    views_text(node.input_views);
    for (const FusedStep& step : node.epilogue) {
      std::vector<std::string> operands;
      for (size_t i = 0; i < step.inputs.size(); ++i)
        operands.push_back(int(i) == step.chained ? "it" : FormatOperand(graph, step.inputs[i]));
      out += StrCat("      then ", step.op->name, "(", Join(operands, ", "), ")");
      if (!step.attrs.values().empty()) out += StrCat(" {", step.attrs.ToString(), "}");
      out += StrCat(" -> ", step.result.ToString(), "\n");
      views_text(step.input_views);
    }
    if (node.output_view) out += StrCat("      stored at ", FormatMap(node.output_view->map), "\n");
  }
  for (const GraphState& state : graph.states)
    out += StrCat("  state \"", state.name, "\" from %", state.before, " to %", state.after, "\n");
  for (ValueId id : graph.outputs)
    out += StrCat("  output ", FormatOperand(graph, id), " ", graph.value(id).type.ToString(), " \"", graph.value(id).name,
                  "\"\n");
  return out;
}

}  // namespace leeway
