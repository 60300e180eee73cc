#include "graph/passes/concat_in_place.h"

#include <algorithm>

#include "graph/passes/rewrite.h"
#include "tensor/coord_map.h"

namespace leeway {
namespace {

class ConcatInPlacePass {
 public:
  explicit ConcatInPlacePass(Graph& graph) : graph_(graph), uses_(graph) {}

  int Run() {
    int changes = 0;
    std::vector<Node> nodes;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].op->scatter && Rewrite(n)) ++changes;
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      auto copies = copies_.find(n);
      if (copies == copies_.end()) {
        nodes.push_back(std::move(graph_.nodes[n]));
      } else {
        for (Node& copy : copies->second) nodes.push_back(std::move(copy));
      }
    }
    graph_.nodes = std::move(nodes);
    return changes;
  }

 private:
  bool CanStoreInPlace(ValueId id) const {
    if (!uses_.IsPrivate(id)) return false;
    const Node& producer = graph_.nodes[size_t(uses_.producer[size_t(id)])];
    return producer.outputs.size() == 1 && !copies_.contains(size_t(uses_.producer[size_t(id)]));
  }

  // A scatter of this input alone that only copies it; none where the operator has no such form.
  std::optional<Node> CopyOf(const Node& scatter, ValueId id) const {
    Node copy;
    copy.name = scatter.name;
    copy.op = scatter.op;
    copy.attrs = scatter.attrs;
    copy.inputs = {id};
    copy.outputs = scatter.outputs;
    copy.result = graph_.value(id).type;
    std::vector<OperandInfo> operands = NodeOperands(graph_, copy);
    auto inferred = copy.op->infer(OpCall{copy.attrs, operands, {}, {}});
    if (!inferred.ok() || inferred->size() != 1 || (*inferred)[0] != copy.result) return std::nullopt;
    auto places = copy.op->scatter(OpCall{copy.attrs, operands, *inferred, {}});
    if (!places.ok() || places->places.size() != 1) return std::nullopt;
    CoordMap place = SimplifiedMap(places->places[0], copy.result.shape, copy.result.shape);
    if (!place.is_identity() || place.inside) return std::nullopt;
    return copy;
  }

  bool Rewrite(size_t n) {
    const Node& node = graph_.nodes[n];
    if (!node.epilogue.empty() || !node.input_views.empty() || node.output_view || node.outputs.size() != 1 || !node.op->infer)
      return false;
    ValueId result = node.outputs[0];
    const TensorType& type = graph_.value(result).type;
    std::vector<OperandInfo> operands = NodeOperands(graph_, node);
    auto scatter = node.op->scatter(OpCall{node.attrs, operands, std::span(&type, 1), {}});
    if (!scatter.ok() || scatter->places.size() != node.inputs.size()) return false;
    std::vector<Node> copies;
    std::vector<size_t> in_place;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId id = node.inputs[i];
      const CoordMap& place = scatter->places[i];
      if (operands[i].absent || place.inside || operands[i].type.dtype != type.dtype) return false;
      if (operands[i].type.shape.element_count() == 0) return false;
      if (CanStoreInPlace(id)) {
        in_place.push_back(i);
        continue;
      }
      auto copy = CopyOf(node, id);
      if (!copy) return false;
      copy->output_view = View{SimplifiedMap(place, operands[i].type.shape, type.shape), operands[i].type.shape};
      copies.push_back(std::move(*copy));
    }
    if (in_place.empty()) return false;
    for (size_t i : in_place) {
      ValueId id = node.inputs[i];
      Node& producer = graph_.nodes[size_t(uses_.producer[size_t(id)])];
      View view{scatter->places[i], operands[i].type.shape};
      if (producer.output_view) {
        auto composed = Compose(producer.output_view->map, scatter->places[i]);
        CHECK(composed.ok());  // neither has an outside
        view = View{*composed, producer.output_view->shape};
      } else if (producer.epilogue.empty()) {
        producer.result = operands[i].type;
      }
      view.map = SimplifiedMap(std::move(view.map), view.shape, type.shape);
      producer.output_view = std::move(view);
      producer.outputs[0] = result;
    }
    uses_.writers[size_t(result)] = int(node.inputs.size());
    copies_[n] = std::move(copies);
    return true;
  }

  Graph& graph_;
  Uses uses_;
  std::map<size_t, std::vector<Node>> copies_;  // what stands in the place of a scatter that is gone
};

}  // namespace

Result<int> ConcatInPlace(Graph& graph) { return ConcatInPlacePass(graph).Run(); }

}  // namespace leeway
