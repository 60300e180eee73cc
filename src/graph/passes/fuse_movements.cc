#include "graph/passes/fuse_movements.h"

#include <algorithm>

#include "graph/passes/rewrite.h"
#include "tensor/coord_map.h"

namespace leeway {
namespace {

// Only sums and products of axes and constants.
bool IsLinear(const IndexExpr& e) {
  switch (e.kind()) {
    case IndexExpr::Kind::kConst:
    case IndexExpr::Kind::kAxis: return true;
    case IndexExpr::Kind::kAdd:
    case IndexExpr::Kind::kMul: return IsLinear(e.arg(0)) && IsLinear(e.arg(1));
    case IndexExpr::Kind::kDiv:
    case IndexExpr::Kind::kMod:
    case IndexExpr::Kind::kMin:
    case IndexExpr::Kind::kMax:
    case IndexExpr::Kind::kLess:
    case IndexExpr::Kind::kAnd:
    case IndexExpr::Kind::kTable: return false;
  }
  return false;
}

// Four neighbours on the last axis stay four neighbours that begin at a multiple of four, and nothing is divided or checked.
bool KeepsSlices(const CoordMap& map, const Shape& over) {
  if (map.inside) return false;
  if (map.is_identity()) return true;
  int last = over.rank() - 1;
  for (size_t i = 0; i < map.coords.size(); ++i) {
    const IndexExpr& c = map.coords[i];
    if (!IsLinear(c)) return false;
    if (i + 1 < map.coords.size()) {
      if (c.Uses(last)) return false;
      continue;
    }
    std::vector<int64_t> origin(size_t(over.rank()), 0);
    int64_t offset = c.Evaluate(origin);
    if (offset % 4 != 0 || !(c == IndexExpr::Axis(last) + IndexExpr::Const(offset))) return false;
  }
  return true;
}

bool ReadsOnce(const OpDef& op) { return op.value_map || op.movement || op.scatter; }

// The view of an input whose view so far is `known`, when the movement's result is replaced by its source; none where the two
// maps do not go together.
std::optional<View> ViewThrough(const std::optional<View>& known, const CoordMap& map, const Shape& moved,
                                const Shape& source) {
  View view{map, moved};
  if (known) {
    auto composed = Compose(known->map, map);
    if (!composed.ok()) return std::nullopt;
    view = View{*composed, known->shape};
  }
  view.map = SimplifiedMap(std::move(view.map), view.shape, source);
  return view;
}

class FuseMovementsPass {
 public:
  explicit FuseMovementsPass(Graph& graph) : graph_(graph), uses_(graph) {}

  int Run() {
    int changes = 0;
    for (int n = 0; n < int(graph_.nodes.size()); ++n) {
      auto movement = MovementOf(graph_, graph_.nodes[size_t(n)]);
      if (movement && (IntoProducer(n, *movement) || IntoConsumers(n, *movement))) ++changes;
    }
    EraseMarked(graph_);
    return changes;
  }

 private:
  bool IntoProducer(int n, const Movement& movement) {
    Node& node = graph_.nodes[size_t(n)];
    ValueId source = node.inputs[size_t(movement.source)], result = node.outputs[0];
    if (!uses_.IsPrivate(source)) return false;
    Node& producer = graph_.nodes[size_t(uses_.producer[size_t(source)])];
    if (producer.outputs.size() != 1) return false;
    const Shape& from = graph_.value(source).type.shape;
    const Shape& to = graph_.value(result).type.shape;
    std::optional<CoordMap> inverse;
    if (node.op->is_reshape) {
      inverse = ReshapeMap(to, from);
    } else {
      inverse = InverseOfPermutation(movement.map, to, from);
    }
    if (!inverse) return false;
    View view{*inverse, from};
    if (producer.output_view) {
      auto composed = Compose(producer.output_view->map, *inverse);
      if (!composed.ok()) return false;
      view = View{*composed, producer.output_view->shape};
    } else if (producer.epilogue.empty()) {
      producer.result = graph_.value(source).type;
    }
    view.map = SimplifiedMap(std::move(view.map), view.shape, to);
    producer.output_view = std::move(view);
    producer.outputs[0] = result;
    uses_.producer[size_t(result)] = uses_.producer[size_t(source)];
    Remove(node);
    return true;
  }

  bool IntoConsumers(int n, const Movement& movement) {
    Node& node = graph_.nodes[size_t(n)];
    ValueId source = node.inputs[size_t(movement.source)], result = node.outputs[0];
    if (uses_.is_output[size_t(result)]) return false;
    // A constant that an operator wants to look at must stay one.
    if (graph_.value(source).constant) return false;
    const Shape& moved = graph_.value(result).type.shape;
    const Shape& from = graph_.value(source).type.shape;
    struct Read {
      std::vector<ValueId>* inputs;
      std::vector<std::optional<View>>* views;
      size_t input;
      View view;
    };
    std::vector<Read> reads;
    // False: this reader cannot take the map. `once`: it reads each element once.
    auto collect = [&](std::vector<ValueId>& inputs, std::vector<std::optional<View>>& views, bool once) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] != result) continue;
        auto view = ViewThrough(i < views.size() ? views[i] : std::nullopt, movement.map, moved, from);
        if (!view || !(once || KeepsSlices(view->map, view->shape))) return false;
        reads.push_back({&inputs, &views, i, std::move(*view)});
      }
      return true;
    };
    for (size_t c = size_t(n) + 1; c < graph_.nodes.size(); ++c) {
      Node& consumer = graph_.nodes[c];
      if (!consumer.op) continue;
      for (FusedStep& step : consumer.epilogue)
        if (!collect(step.inputs, step.input_views, true)) return false;
      bool reads_it = std::find(consumer.inputs.begin(), consumer.inputs.end(), result) != consumer.inputs.end();
      if (!reads_it) continue;
      if (!consumer.op->infer || !collect(consumer.inputs, consumer.input_views, ReadsOnce(*consumer.op))) return false;
    }
    // Each reader pays for the map; with many of them a copy is cheaper.
    if (reads.size() > 2) return false;
    for (Read& read : reads) {
      if (read.views->empty()) read.views->resize(read.inputs->size());
      (*read.inputs)[read.input] = source;
      bool plain = read.view.map.is_identity() && !read.view.map.inside && read.view.shape == from;
      (*read.views)[read.input] = plain ? std::nullopt : std::optional(std::move(read.view));
    }
    uses_.count[size_t(source)] += int(reads.size());
    uses_.count[size_t(result)] = 0;
    Remove(node);
    return true;
  }

  void Remove(Node& node) {
    for (ValueId id : node.inputs)
      if (id != kNoValue) --uses_.count[size_t(id)];
    node = Node{};
  }

  Graph& graph_;
  Uses uses_;
};

}  // namespace

Result<int> FuseMovements(Graph& graph) { return FuseMovementsPass(graph).Run(); }

}  // namespace leeway
