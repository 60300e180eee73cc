#include "ops/evaluate.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/strings.h"

namespace leeway {
namespace {

// Calls visit(i, coords) for the i-th element of `shape` in row-major order.
template <class Visit>
void ForEachCoordinate(const Shape& shape, Visit visit) {
  int64_t count = shape.element_count();
  std::vector<int64_t> coords(size_t(shape.rank()));
  for (int64_t i = 0; i < count; ++i) {
    visit(i, std::span<const int64_t>(coords));
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (++coords[size_t(axis)] < shape[axis]) break;
      coords[size_t(axis)] = 0;
    }
  }
}

// A map from coordinates to an element number, kept as a list of instructions over registers: maps are evaluated once per
// element.
class AddressProgram {
 public:
  AddressProgram(const CoordMap& map, const Shape& to) {
    IndexExpr element = IndexExpr::Const(0);
    for (int axis = 0; axis < to.rank(); ++axis) {
      element = element * IndexExpr::Const(to[axis]) + (map.is_identity() ? IndexExpr::Axis(axis) : map.coords[size_t(axis)]);
    }
    element_ = Emit(element);
    if (map.inside) inside_ = Emit(*map.inside);
    registers_.resize(code_.size());
  }

  // -1: outside.
  int64_t Run(std::span<const int64_t> coords) {
    for (size_t i = 0; i < code_.size(); ++i) {
      const Instruction& in = code_[i];
      auto a = [&] { return registers_[in.a]; };
      auto b = [&] { return registers_[in.b]; };
      int64_t r = 0;
      switch (in.kind) {
        case IndexExpr::Kind::kConst: r = in.value; break;
        case IndexExpr::Kind::kAxis: r = coords[size_t(in.value)]; break;
        case IndexExpr::Kind::kAdd: r = a() + b(); break;
        case IndexExpr::Kind::kMul: r = a() * b(); break;
        case IndexExpr::Kind::kDiv: r = FloorDiv(a(), b()); break;
        case IndexExpr::Kind::kMod: r = a() - FloorDiv(a(), b()) * b(); break;
        case IndexExpr::Kind::kMin: r = std::min(a(), b()); break;
        case IndexExpr::Kind::kMax: r = std::max(a(), b()); break;
        case IndexExpr::Kind::kLess: r = a() < b(); break;
        case IndexExpr::Kind::kAnd: r = a() != 0 && b() != 0; break;
        case IndexExpr::Kind::kTable:
          // Outside the map's domain the index may be anything; then the element is not used.
          r = a() >= 0 && size_t(a()) < in.table->size() ? (*in.table)[size_t(a())] : 0;
          break;
      }
      registers_[i] = r;
    }
    return inside_ && registers_[*inside_] == 0 ? -1 : registers_[element_];
  }

 private:
  struct Instruction {
    IndexExpr::Kind kind;
    int64_t value = 0;
    size_t a = 0, b = 0;
    const std::vector<int32_t>* table = nullptr;
  };

  static int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

  size_t Emit(const IndexExpr& expression) {
    kept_.push_back(expression);  // tables stay alive
    Instruction in{expression.kind()};
    switch (expression.kind()) {
      case IndexExpr::Kind::kConst:
      case IndexExpr::Kind::kAxis: in.value = expression.value(); break;
      case IndexExpr::Kind::kTable:
        in.a = Emit(expression.arg(0));
        in.table = &expression.table();
        break;
      case IndexExpr::Kind::kAdd:
      case IndexExpr::Kind::kMul:
      case IndexExpr::Kind::kDiv:
      case IndexExpr::Kind::kMod:
      case IndexExpr::Kind::kMin:
      case IndexExpr::Kind::kMax:
      case IndexExpr::Kind::kLess:
      case IndexExpr::Kind::kAnd:
        in.a = Emit(expression.arg(0));
        in.b = Emit(expression.arg(1));
        break;
    }
    code_.push_back(in);
    return code_.size() - 1;
  }

  std::vector<Instruction> code_;
  std::vector<IndexExpr> kept_;
  std::vector<int64_t> registers_;
  size_t element_ = 0;
  std::optional<size_t> inside_;
};

// Elements of a byte or more are moved as bytes, narrower ones through their values.
void CopyElement(const HostTensor& from, int64_t i, HostTensor& to, std::span<std::byte> to_bytes, int64_t j) {
  size_t bits = DTypeBits(from.dtype());
  if (bits % 8 != 0) {
    to.Set(j, from.Get(i));
    return;
  }
  std::memcpy(to_bytes.data() + size_t(j) * (bits / 8), from.bytes().data() + size_t(i) * (bits / 8), bits / 8);
}

HostTensor ApplyView(const HostTensor& value, const View& view) {
  HostTensor seen(value.dtype(), view.shape);
  AddressProgram program(view.map, value.shape());
  std::span<std::byte> bytes = seen.mutable_bytes();
  ForEachCoordinate(view.shape, [&](int64_t i, std::span<const int64_t> coords) {
    int64_t from = program.Run(coords);
    if (from >= 0) {
      CopyElement(value, from, seen, bytes, i);
    } else {
      seen.Set(i, view.map.outside);
    }
  });
  return seen;
}

void StoreThroughView(const HostTensor& result, const View& view, HostTensor& value) {
  AddressProgram program(view.map, value.shape());
  std::span<std::byte> bytes = value.mutable_bytes();
  ForEachCoordinate(view.shape, [&](int64_t i, std::span<const int64_t> coords) {
    CopyElement(result, i, value, bytes, program.Run(coords));
  });
}

// References see elements of the type that the value has, also where its constant is stored narrower.
HostTensor AsDeclared(const HostTensor& tensor, DType dtype) {
  return tensor.dtype() == dtype ? tensor : tensor.ConvertTo(dtype);
}

// Views move elements, which those of a block cannot be.
HostTensor WithoutBlocks(const HostTensor& tensor) {
  return IsBlockQuantized(tensor.dtype()) ? tensor.ConvertTo(DType::kF32) : tensor;
}

Result<HostTensor> RunStep(const Graph& graph, const FusedStep& step, const TensorType& in_flight_type, HostTensor in_flight,
                           std::span<const HostTensor> given) {
  std::vector<OperandInfo> operands = StepOperands(graph, step, in_flight_type);
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (int(i) == step.chained) {
      inputs.push_back(in_flight);
    } else if (operands[i].absent) {
      inputs.emplace_back();
    } else if (i < step.input_views.size() && step.input_views[i]) {
      inputs.push_back(AsDeclared(ApplyView(WithoutBlocks(given[i]), *step.input_views[i]), operands[i].type.dtype));
    } else {
      inputs.push_back(AsDeclared(given[i], operands[i].type.dtype));
    }
  }
  HostTensor result(step.result.dtype, step.result.shape);
  RETURN_IF_ERROR(
      step.op->reference(OpCall{step.attrs, operands, std::span(&step.result, 1), {}}, inputs, std::span(&result, 1)));
  return result;
}

}  // namespace

Status EvaluateNode(const Graph& graph, int node_index, std::span<const HostTensor> inputs,
                    std::span<const std::vector<HostTensor>> step_inputs, std::span<HostTensor> outputs) {
  const Node& node = graph.nodes[size_t(node_index)];
  if (!node.op->reference) {
    return Error{Code::kUnsupported, StrCat("The operator of node ", NodeLabel(graph, node_index), " cannot run on the CPU.")};
  }
  std::vector<OperandInfo> operands = NodeOperands(graph, node);
  std::vector<TensorType> types = NodeOutputTypes(graph, node);
  std::vector<HostTensor> seen;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const bool is_updated = std::any_of(node.op->updates.begin(), node.op->updates.end(),
                                        [&](const OpDef::Update& update) { return size_t(update.input) == i; });
    if (operands[i].absent || is_updated) {
      seen.emplace_back();
    } else if (i < node.input_views.size() && node.input_views[i]) {
      seen.push_back(AsDeclared(ApplyView(WithoutBlocks(inputs[i]), *node.input_views[i]), operands[i].type.dtype));
    } else {
      seen.push_back(AsDeclared(inputs[i], operands[i].type.dtype));
    }
  }
  bool direct = node.epilogue.empty() && !node.output_view;
  OpCall call{node.attrs, operands, types, node.custom_options};
  std::string context = StrCat("in node ", NodeLabel(graph, node_index));
  if (direct) {
    RETURN_IF_ERROR_CONTEXT(node.op->reference(call, seen, outputs), context);
    return {};
  }
  std::vector<HostTensor> results(outputs.begin(), outputs.end());
  results[0] = HostTensor(types[0].dtype, types[0].shape);
  RETURN_IF_ERROR_CONTEXT(node.op->reference(call, seen, results), context);
  TensorType in_flight = types[0];
  for (size_t s = 0; s < node.epilogue.size(); ++s) {
    ASSIGN_OR_RETURN_CONTEXT(results[0], RunStep(graph, node.epilogue[s], in_flight, std::move(results[0]), step_inputs[s]),
                             context);
    in_flight = node.epilogue[s].result;
  }
  if (node.output_view) {
    StoreThroughView(results[0], *node.output_view, outputs[0]);
  } else {
    outputs[0] = std::move(results[0]);
  }
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i] = std::move(results[i]);
  return {};
}

Result<std::vector<HostTensor>> Evaluate(const Graph& graph, std::span<const HostTensor> inputs, const NodeObserver& observer) {
  if (inputs.size() != graph.inputs.size()) {
    return Error{Code::kInvalidArgument, StrCat("The graph \"", graph.name, "\" takes ", graph.inputs.size(), " inputs, ",
                                                inputs.size(), " are given.")};
  }
  std::unordered_map<ValueId, HostTensor> live;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    TensorType given{inputs[i].dtype(), inputs[i].shape()};
    if (given != value.type) {
      return Error{Code::kInvalidArgument, StrCat("Input ", i, ", \"", value.name, "\", is ", given.ToString(), "; expected ",
                                                  value.type.ToString(), ".")};
    }
    live[graph.inputs[i]] = inputs[i];
  }
  std::vector<int> uses = UseCounts(graph);
  auto fetch = [&](ValueId id) -> const HostTensor& {
    return graph.value(id).constant ? *graph.value(id).constant : live.at(id);
  };
  auto gather = [&](const std::vector<ValueId>& ids) {
    std::vector<HostTensor> tensors;
    for (ValueId id : ids) tensors.push_back(id == kNoValue ? HostTensor() : fetch(id));
    return tensors;
  };
  auto release = [&](const std::vector<ValueId>& ids) {
    for (ValueId id : ids) {
      if (id != kNoValue && --uses[size_t(id)] == 0) live.erase(id);
    }
  };
  for (int n = 0; n < int(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[size_t(n)];
    std::vector<HostTensor> node_inputs = gather(node.inputs), outputs;
    std::vector<std::vector<HostTensor>> step_inputs;
    for (const FusedStep& step : node.epilogue) step_inputs.push_back(gather(step.inputs));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      auto known = live.find(node.outputs[i]);
      const TensorType& type = graph.value(node.outputs[i]).type;
      if (known != live.end()) {  // others wrote their parts of it
        outputs.push_back(std::move(known->second));
        live.erase(known);
      } else {
        outputs.emplace_back(type.dtype, type.shape);
      }
    }
    for (const auto& update : node.op->updates) {
      ValueId before = node.inputs[size_t(update.input)];
      // Nobody reads it afterwards; the last reader gives its memory away instead of copying it.
      node_inputs[size_t(update.input)] = HostTensor();
      outputs[size_t(update.output)] = std::move(live.at(before));
      live[before] = HostTensor();
    }
    RETURN_IF_ERROR(EvaluateNode(graph, n, node_inputs, step_inputs, outputs));
    if (observer) observer(n, outputs);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (uses[size_t(node.outputs[i])] > 0) live[node.outputs[i]] = std::move(outputs[i]);
    }
    release(node.inputs);
    for (const FusedStep& step : node.epilogue) release(step.inputs);
  }
  std::vector<HostTensor> results;
  for (ValueId id : graph.outputs) results.push_back(AsDeclared(fetch(id), graph.value(id).type.dtype));
  return results;
}

}  // namespace leeway
