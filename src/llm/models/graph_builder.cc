#include "llm/models/graph_builder.h"

#include <algorithm>

#include "base/strings.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "ops/step.h"

namespace leeway::llm {

std::string LayerTensor(int64_t l, std::string_view what) { return StrCat("blk.", l, ".", what, ".weight"); }

GraphBuilder::GraphBuilder(const LlmModel& model, const StageShape& shape) : model_(model), shape_(shape) {
  graph_.name = StrCat(config().name.empty() ? config().architecture : config().name, ", ", shape.rows,
                       shape.rows == 1 ? " row" : " rows");
  graph_.file = model.keep_alive;
  step_ = AddState("step", {DType::kI32, Shape{kStepElements}});
  tokens_ = AddState("tokens", {DType::kI32, Shape{shape.context + 1}});
  if (shape.sample) sampler_ = AddState("sampler", {DType::kF32, Shape{kSamplerElements}});
  for (int64_t l = 0; l < layer_count(); ++l) {
    key_states_.push_back(-1);
    if (layer(l).kv_layer != l) continue;
    const TensorType type{DType::kF32, Shape{layer(l).kv_heads, CacheSlots(layer(l), shape), layer(l).head_size}};
    key_states_.back() = int(AddState(StrCat("k.", l), type));
    AddState(StrCat("v.", l), type);
  }
  turns_.assign(config().ropes.size(), kNoValue);
}

size_t GraphBuilder::AddState(std::string name, TensorType type) {
  const ValueId value = graph_.AddValue({name, std::move(type), nullptr, nullptr});
  states_.push_back({std::move(name), value, value});
  return states_.size() - 1;
}

GraphBuilder::State& GraphBuilder::Cache(int64_t l, char which) {
  return states_[size_t(key_states_[size_t(layer(l).kv_layer)]) + (which == 'v' ? 1 : 0)];
}

void GraphBuilder::Refuse(std::string what) {
  if (status_.ok()) status_ = Error{Code::kInvalidModel, std::move(what)};
}

const Shape& GraphBuilder::ShapeOf(ValueId x) const {
  static const Shape kNone;
  return x == kNoValue ? kNone : graph_.value(x).type.shape;
}

ValueId GraphBuilder::Weight(const std::string& name, Shape shape) {
  if (!status_.ok()) return kNoValue;
  auto found = model_.tensors.find(name);
  if (found == model_.tensors.end()) {
    Refuse(StrCat("The model has no tensor \"", name, "\", which architecture ", config().architecture, " needs."));
    return kNoValue;
  }
  const HostTensor& tensor = *found->second;
  if (tensor.shape() != shape || !IsFloat(tensor.dtype())) {
    Refuse(StrCat("The tensor \"", name, "\" is ", DTypeName(tensor.dtype()), tensor.shape().ToString(),
                  "; the model's configuration makes it numbers of shape ", shape.ToString(), "."));
    return kNoValue;
  }
  used_.insert(name);
  for (size_t i = 0; i < graph_.values.size(); ++i) {  // the table of a tied head is one constant
    if (graph_.values[i].constant == found->second) return ValueId(i);
  }
  return graph_.AddValue({name, {DType::kF32, shape}, found->second, nullptr});
}

ValueId GraphBuilder::Op(const char* op_name, std::string name, std::vector<ValueId> inputs,
                         std::vector<std::pair<const char*, AttrValue>> attrs) {
  if (!status_.ok()) return kNoValue;
  Node node;
  node.op = FindOp(op_name);
  CHECK(node.op != nullptr);
  node.name = name;
  node.inputs = std::move(inputs);
  for (auto& [key, value] : attrs) node.attrs.Set(key, std::move(value));
  const std::vector<OperandInfo> operands = NodeOperands(graph_, node);
  auto types = node.op->infer({node.attrs, operands, {}, {}});
  if (!types.ok()) {
    Refuse(StrCat("While building node \"", name, "\": ", types.error().message));
    return kNoValue;
  }
  for (size_t i = 0; i < types->size(); ++i) {
    node.outputs.push_back(graph_.AddValue({i == 0 ? name : StrCat(name, ":", i), (*types)[i], nullptr, nullptr}));
  }
  const ValueId result = node.outputs[0];
  graph_.nodes.push_back(std::move(node));
  return result;
}

ValueId GraphBuilder::Embed(const std::string& table, double scale) {
  const ValueId weights = Weight(table, Shape{config().vocabulary, config().width});
  return Op("embed_tokens", "embed", {weights, states_[tokens_].after, states_[step_].after},
            {{"rows", shape_.rows}, {"scale", scale}});
}

ValueId GraphBuilder::Norm(ValueId x, const std::string& gain) {
  if (!status_.ok()) return kNoValue;
  std::vector<ValueId> inputs = {x};
  std::string name = "norm";
  if (!gain.empty()) {
    inputs.push_back(Weight(gain, Shape{ShapeOf(x).at(-1)}));
    name = gain.substr(0, gain.rfind(".weight"));
  }
  return Op("rms_norm", std::move(name), std::move(inputs), {{"epsilon", config().epsilon}});
}

ValueId GraphBuilder::Linear(ValueId x, const std::string& weights, int64_t outputs) {
  if (!status_.ok()) return kNoValue;
  const ValueId matrix = Weight(weights, Shape{outputs, ShapeOf(x).at(-1)});
  return Op("linear", weights.substr(0, weights.rfind(".weight")), {x, matrix});
}

ValueId GraphBuilder::Activate(ValueId x, std::string name) {
  switch (config().activation) {
    case Activation::kSilu: return Op("silu", std::move(name), {x});
    case Activation::kGeluTanh: return Op("gelu", std::move(name), {x}, {{"approximate", true}});
  }
  return kNoValue;
}

ValueId GraphBuilder::Softcap(ValueId x, double cap, const std::string& name) {
  const ValueId inverse = graph_.AddConstant(name + ".inverse", HostTensor::FromF32({}, std::vector<float>{float(1 / cap)}));
  const ValueId bound = graph_.AddConstant(name + ".bound", HostTensor::FromF32({}, std::vector<float>{float(cap)}));
  return Multiply(Op("tanh", name + ".tanh", {Multiply(x, inverse, name + ".scaled")}), bound, name);
}

ValueId GraphBuilder::Heads(ValueId x, int64_t heads, int64_t head_size, std::string name) {
  if (!status_.ok()) return kNoValue;
  return Op("reshape", std::move(name), {x}, {{"new_shape", std::vector<int64_t>{ShapeOf(x)[0], heads, head_size}}});
}

ValueId GraphBuilder::Turns(int rope) {
  ValueId& value = turns_[size_t(rope)];
  if (value == kNoValue) {
    const RopeConfig& config = this->config().ropes[size_t(rope)];
    const std::vector<uint32_t> turns = RopeTurns(config.base, config.rotated / 2, config.factors);
    HostTensor table(DType::kU32, Shape{int64_t(turns.size())});
    std::copy(turns.begin(), turns.end(), table.as_mutable<uint32_t>().begin());
    value = graph_.AddConstant(StrCat("rope.", rope), std::move(table));
  }
  return value;
}

ValueId GraphBuilder::Rotate(ValueId x, int rope, std::string name) {
  return Op("rope", std::move(name), {x, states_[step_].after, Turns(rope)},
            {{"interleaved", config().ropes[size_t(rope)].interleaved}, {"last", is_last_row_}});
}

ValueId GraphBuilder::TakeLastRow(ValueId x, std::string name) {
  is_last_row_ = true;
  return Op("take_last_row", std::move(name), {x, states_[step_].after});
}

void GraphBuilder::AppendCache(int64_t l, ValueId normed, bool normed_values) {
  const LayerConfig& layer = this->layer(l);
  auto name = [&](const char* what) { return StrCat("blk.", l, ".", what); };
  const int64_t width = layer.kv_heads * layer.head_size;
  ValueId k = Heads(Linear(normed, LayerTensor(l, "attn_k"), width), layer.kv_heads, layer.head_size, name("k_heads"));
  if (config().has_head_norms) k = Norm(k, LayerTensor(l, "attn_k_norm"));
  k = Rotate(k, layer.rope, name("k_rope"));
  ValueId v = Heads(Linear(normed, LayerTensor(l, "attn_v"), width), layer.kv_heads, layer.head_size, name("v_heads"));
  if (normed_values) v = Norm(v, "");
  for (auto [which, rows] : {std::pair('k', k), std::pair('v', v)}) {
    State& cache = Cache(l, which);
    cache.after = Op("kv_append", name(which == 'k' ? "k_append" : "v_append"), {cache.after, rows, states_[step_].after});
  }
}

ValueId GraphBuilder::Attention(int64_t l, ValueId normed, bool last_row, bool normed_values) {
  const LayerConfig& layer = this->layer(l);
  auto name = [&](const char* what) { return StrCat("blk.", l, ".", what); };
  if (layer.kv_layer == l) AppendCache(l, normed, normed_values);
  if (last_row) normed = TakeLastRow(normed, name("attn_last_row"));
  ValueId q = Linear(normed, LayerTensor(l, "attn_q"), layer.heads * layer.head_size);
  q = Heads(q, layer.heads, layer.head_size, name("q_heads"));
  if (config().has_head_norms) q = Norm(q, LayerTensor(l, "attn_q_norm"));
  q = Rotate(q, layer.rope, name("q_rope"));
  return Op(
      "attention", name("attention"), {q, Cache(l, 'k').after, Cache(l, 'v').after, states_[step_].after},
      {{"scale", config().score_scale}, {"window", layer.window}, {"softcap", config().score_softcap}, {"last", is_last_row_}});
}

ValueId GraphBuilder::FeedForward(int64_t l, ValueId normed) {
  const int64_t inner = layer(l).inner;
  const ValueId up = Linear(normed, LayerTensor(l, "ffn_up"), inner);
  const ValueId gate = Activate(Linear(normed, LayerTensor(l, "ffn_gate"), inner), StrCat("blk.", l, ".ffn_act"));
  return Linear(Multiply(gate, up, StrCat("blk.", l, ".ffn_inner")), LayerTensor(l, "ffn_down"), config().width);
}

void GraphBuilder::Head(ValueId hidden) {
  if (!is_last_row_ && shape_.rows > 1) hidden = TakeLastRow(hidden, "last_row");
  hidden = Norm(hidden, "output_norm.weight");
  logits_ = Linear(hidden, model_.has_tied_head() ? "token_embd.weight" : "output.weight", config().vocabulary);
  if (config().logit_softcap > 0) logits_ = Softcap(logits_, config().logit_softcap, "logits");
  if (!status_.ok()) return;
  if (shape_.sample) {
    const ValueId tokens =
        Op("sample", "sample", {logits_, states_[tokens_].after, states_[step_].after, states_[sampler_].after});
    if (!status_.ok()) return;
    states_[tokens_].after = tokens;
    states_[step_].after = graph_.nodes.back().outputs[1];
  }
}

Result<Graph> GraphBuilder::Finish() {
  RETURN_IF_ERROR(status_);
  if (shape_.logits) graph_.outputs.push_back(logits_);
  Signature signature{.key = "run", .inputs = {}, .outputs = {}};
  if (shape_.logits) signature.outputs.emplace_back("logits", logits_);
  for (const State& state : states_) {
    graph_.inputs.push_back(state.before);
    graph_.outputs.push_back(state.after);
    graph_.states.push_back({state.name, state.before, state.after});
    signature.inputs.emplace_back(state.name, state.before);
    signature.outputs.emplace_back(state.name, state.after);
  }
  graph_.signatures.push_back(std::move(signature));
  return std::move(graph_);
}

}  // namespace leeway::llm
