#include "graph/passes/fold_pad.h"

#include "graph/passes/rewrite.h"

namespace leeway {
namespace {

struct Margins {
  std::vector<int64_t> before, after;  // per axis
};

// How far a movement shifts each axis, where all it does is to put zeros around its input.
std::optional<Margins> ZeroMargins(const Movement& movement, const Shape& from, const Shape& to) {
  if (movement.map.outside != 0 || !movement.map.inside || from.rank() != to.rank()) return std::nullopt;
  if (movement.map.coords.size() != size_t(to.rank())) return std::nullopt;
  Margins margins;
  for (int i = 0; i < to.rank(); ++i) {
    const IndexExpr& c = movement.map.coords[size_t(i)];
    for (int other = 0; other < to.rank(); ++other)
      if (other != i && c.Uses(other)) return std::nullopt;
    std::vector<int64_t> at(size_t(to.rank()), 0);
    int64_t before = from[i] == to[i] ? 0 : -c.Evaluate(at);
    if (before < 0 || to[i] - from[i] - before < 0) return std::nullopt;
    for (at[size_t(i)] = 0; at[size_t(i)] < to[i]; ++at[size_t(i)])
      if (c.Evaluate(at) != at[size_t(i)] - before) return std::nullopt;
    margins.before.push_back(before);
    margins.after.push_back(to[i] - from[i] - before);
  }
  // Inside exactly where the source has elements: seen at the corners of it and just beyond.
  std::vector<int64_t> low = margins.before, high(size_t(to.rank()));
  for (int i = 0; i < to.rank(); ++i) high[size_t(i)] = margins.before[size_t(i)] + from[i] - 1;
  if (movement.map.inside->Evaluate(low) == 0 || movement.map.inside->Evaluate(high) == 0) return std::nullopt;
  for (int i = 0; i < to.rank(); ++i) {
    std::vector<int64_t> beyond = low;
    beyond[size_t(i)] = low[size_t(i)] - 1;
    if (beyond[size_t(i)] >= 0 && movement.map.inside->Evaluate(beyond) != 0) return std::nullopt;
    beyond = high;
    beyond[size_t(i)] = high[size_t(i)] + 1;
    if (beyond[size_t(i)] < to[i] && movement.map.inside->Evaluate(beyond) != 0) return std::nullopt;
  }
  return margins;
}

std::vector<int64_t> Plus(std::vector<int64_t> known, int64_t height, int64_t width) {
  if (known.size() != 2) known = {0, 0};
  return {known[0] + height, known[1] + width};
}

}  // namespace

Result<int> FoldPad(Graph& graph) {
  Uses uses(graph);
  int changes = 0;
  for (Node& node : graph.nodes) {
    if (!node.op->accepts_explicit_padding || node.inputs.empty() || !uses.IsPrivate(node.inputs[0])) continue;
    if (!node.input_views.empty() && node.input_views[0]) continue;
    int producer = uses.producer[size_t(node.inputs[0])];
    Node& pad = graph.nodes[size_t(producer)];
    auto movement = MovementOf(graph, pad);
    if (!movement) continue;
    ValueId source = pad.inputs[size_t(movement->source)];
    const TensorType& from = graph.value(source).type;
    const TensorType& to = graph.value(node.inputs[0]).type;
    if (!IsFloat(from.dtype) || from.shape.rank() != 4 || from.shape.element_count() == 0) continue;
    auto margins = ZeroMargins(*movement, from.shape, to.shape);
    if (!margins || margins->before[0] != 0 || margins->before[3] != 0 || margins->after[0] != 0 || margins->after[3] != 0)
      continue;
    node.attrs.Set("pad_before", Plus(node.attrs.GetInts("pad_before"), margins->before[1], margins->before[2]));
    node.attrs.Set("pad_after", Plus(node.attrs.GetInts("pad_after"), margins->after[1], margins->after[2]));
    node.inputs[0] = source;
    pad.op = nullptr;
    pad.inputs.clear();
    ++changes;
  }
  EraseMarked(graph);
  return changes;
}

}  // namespace leeway
