// The blocks that families put layers together from. Values are activations [rows, ...] of the run; the first thing that is
// wrong is kept and everything after it is a no-op, so that a family reads as the network does.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "llm/models/models.h"

namespace leeway::llm {

class GraphBuilder {
 public:
  GraphBuilder(const LlmModel& model, const StageShape& shape);

  const ModelConfig& config() const { return model_.config; }
  const StageShape& shape() const { return shape_; }
  int64_t layer_count() const { return int64_t(config().layers.size()); }
  const LayerConfig& layer(int64_t l) const { return config().layers[size_t(l)]; }
  // Logits are wanted or the next token.
  bool has_head() const { return shape_.logits || shape_.sample; }

  // A tensor of the model as a constant; refuses another shape.
  ValueId Weight(const std::string& name, Shape shape);
  // A node with one output, whose type the operator infers.
  ValueId Op(const char* op, std::string name, std::vector<ValueId> inputs,
             std::vector<std::pair<const char*, AttrValue>> attrs = {});

  ValueId Embed(const std::string& table, double scale);
  ValueId Norm(ValueId x, const std::string& gain);  // "blk.0.attn_norm.weight"; "" : no gain
  ValueId Linear(ValueId x, const std::string& weights, int64_t outputs);
  ValueId Add(ValueId a, ValueId b, std::string name) { return Op("add", std::move(name), {a, b}); }
  ValueId Multiply(ValueId a, ValueId b, std::string name) { return Op("mul", std::move(name), {a, b}); }
  ValueId Activate(ValueId x, std::string name);  // as the config says
  ValueId Softcap(ValueId x, double cap, const std::string& name);
  ValueId Heads(ValueId x, int64_t heads, int64_t head_size, std::string name);  // [M, H * D] as [M, H, D]
  ValueId Rotate(ValueId x, int rope, std::string name);                         // [M, H, D]
  const Shape& ShapeOf(ValueId x) const;

  // From here on the rows are the last valid one alone. `x` becomes that row.
  ValueId TakeLastRow(ValueId x, std::string name);

  // Attention of layer l over its normed input, without the projection of the result: queries and keys normed where the config
  // says so; `normed_values` norms values without a gain. Appends to the cache where the layer has one of its own. With
  // `last_row` queries are made of the last valid row only, as many as logits need of the last layer.
  ValueId Attention(int64_t l, ValueId normed, bool last_row = false, bool normed_values = false);
  // Puts the layer's keys and values into its cache and nothing else.
  void AppendCache(int64_t l, ValueId normed, bool normed_values = false);
  // down(act(gate) * up).
  ValueId FeedForward(int64_t l, ValueId normed);
  // Is layer l the last, with several rows of which only the last is wanted?
  bool NarrowsAt(int64_t l) const { return l + 1 == layer_count() && shape_.rows > 1 && has_head(); }

  // Logits from the last hidden state (norm, head, softcap), and the sampler; for stages with a head.
  void Head(ValueId hidden);

  Result<Graph> Finish();
  const Status& status() const { return status_; }
  void Refuse(std::string what);
  const std::set<std::string, std::less<>>& used_tensors() const { return used_; }

 private:
  struct State {
    std::string name;
    ValueId before = kNoValue, after = kNoValue;
  };
  size_t AddState(std::string name, TensorType type);
  State& Cache(int64_t l, char which);
  ValueId Turns(int rope);

  const LlmModel& model_;
  const StageShape shape_;
  Status status_;
  Graph graph_;
  std::vector<State> states_;
  std::vector<int> key_states_;  // by layer; values have the next number; -1: none of its own
  std::vector<ValueId> turns_;   // by rope
  size_t step_ = 0, tokens_ = 0, sampler_ = 0;
  bool is_last_row_ = false;
  ValueId logits_ = kNoValue;
  std::set<std::string, std::less<>> used_;
};

// "blk.<l>.<what>.weight"
std::string LayerTensor(int64_t l, std::string_view what);

}  // namespace leeway::llm
