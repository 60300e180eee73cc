#include "llm/decode_stages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/strings.h"
#include "graph/passes/remove_dead.h"
#include "graph/passes/rewrite.h"
#include "ops/cpu_target.h"
#include "ops/op_kernels.h"

namespace leeway::llm {
namespace {

class Fuser {
 public:
  Fuser(Graph& graph, const shader::Target& target, const DecodeStageOptions& options)
      : graph_(graph), target_(target), options_(options), uses_(graph) {}

  Result<int> Run() {
    for (int n = 0; n < int(graph_.nodes.size()); ++n) {
      // Each makes what it can of the node and leaves the rest for the next.
      if (IsOp(n, "attention")) FuseAttention(n);
      if (IsOp(n, "mul")) FuseGate(n);
      if (IsOp(n, "linear")) FuseLinear(n);
      if (IsOp(n, "sample") && options_.greedy) FuseGreedy(n);
    }
    EraseMarked(graph_);
    // What was read through the fused nodes alone.
    ASSIGN_OR_RETURN(const int removed, RemoveDead(graph_));
    (void)removed;
    return made_;
  }

 private:
  bool IsOp(int n, std::string_view name) const {
    const Node& node = graph_.nodes[size_t(n)];
    return node.op && node.op->name == name && node.input_views.empty() && node.epilogue.empty() && !node.output_view;
  }
  // The node that makes the value, if it is that operator; -1.
  int Producer(ValueId id, std::string_view name) const {
    if (id == kNoValue) return -1;
    const int n = uses_.producer[size_t(id)];
    return n >= 0 && IsOp(n, name) ? n : -1;
  }
  const Node& node(int n) const { return graph_.nodes[size_t(n)]; }
  ValueId Input(int n, size_t i) const { return i < node(n).inputs.size() ? node(n).inputs[i] : kNoValue; }
  ValueId Output(int n) const { return node(n).outputs[0]; }
  bool IsPrivate(ValueId id) const { return uses_.IsPrivate(id); }
  const Shape& ShapeOf(ValueId id) const { return graph_.value(id).type.shape; }

  // Through reshapes that nobody else looks at.
  ValueId Flat(ValueId id) const {
    while (id != kNoValue) {
      const int n = uses_.producer[size_t(id)];
      if (n < 0 || !node(n).op || !node(n).op->is_reshape || !node(n).input_views.empty() || !IsPrivate(id)) break;
      id = Input(n, 0);
    }
    return id;
  }

  // A product with constant weights, of one row and without a bias, that nobody else reads.
  struct Product {
    int node = -1;
    ValueId x = kNoValue, weights = kNoValue;
  };
  std::optional<Product> ProductOf(ValueId id) const {
    const int n = Producer(id, "linear");
    if (n < 0 || !IsPrivate(id)) return std::nullopt;
    return ProductAt(n);
  }
  std::optional<Product> ProductAt(int n) const {
    if (Input(n, 2) != kNoValue || !graph_.value(Input(n, 1)).constant || ShapeOf(Output(n))[0] != 1) return std::nullopt;
    return Product{n, Input(n, 0), Input(n, 1)};
  }

  // What a product can do to its input by itself: a norm that only the products read, and a residual before it.
  struct Before {
    std::string kind = "none";
    ValueId x = kNoValue, branch = kNoValue, gain = kNoValue, branch_gain = kNoValue;
    ValueId residual = kNoValue;  // the sum, which others read too
    double epsilon = 1e-6;
    std::vector<int> absorbed;
  };
  // `readers`: how many products read x. `at`: where the fused node will stand.
  Before BeforeOf(ValueId x, int readers, int at) const {
    Before before{.x = x};
    const int norm = Producer(x, "rms_norm");
    if (norm < 0 || uses_.count[size_t(x)] != readers || uses_.is_output[size_t(x)] || Input(norm, 1) == kNoValue)
      return before;
    before.kind = "norm";
    before.x = Input(norm, 0);
    before.gain = Input(norm, 1);
    before.epsilon = node(norm).attrs.GetFloat("epsilon", 1e-6);
    before.absorbed = {norm};
    const int add = Producer(before.x, "add");
    if (add < 0 || uses_.is_output[size_t(before.x)]) return before;
    for (size_t i : {size_t(1), size_t(0)}) {
      const ValueId branch = Input(add, i), other = Input(add, 1 - i);
      const int branch_norm = Producer(branch, "rms_norm");
      if (branch_norm < 0 || !IsPrivate(branch) || Input(branch_norm, 1) == kNoValue) continue;
      if (node(branch_norm).attrs.GetFloat("epsilon", 1e-6) != before.epsilon) continue;
      if (ShapeOf(other) != ShapeOf(branch) || !ReadOnlyFrom(before.x, at, norm)) continue;
      before.kind = "add_norm";
      before.residual = before.x;
      before.x = other;
      before.branch = Input(branch_norm, 0);
      before.branch_gain = Input(branch_norm, 1);
      before.absorbed.push_back(add);
      before.absorbed.push_back(branch_norm);
      break;
    }
    return before;
  }
  // Nobody but node `except` reads the value before node `at`.
  bool ReadOnlyFrom(ValueId id, int at, int except) const {
    for (int n = 0; n < at; ++n) {
      const Node& reader = node(n);
      if (n == except || !reader.op) continue;
      if (std::find(reader.inputs.begin(), reader.inputs.end(), id) != reader.inputs.end()) return false;
      for (const FusedStep& step : reader.epilogue) {
        if (std::find(step.inputs.begin(), step.inputs.end(), id) != step.inputs.end()) return false;
      }
    }
    return true;
  }

  ValueId AddF32(std::string name, Shape shape) {
    const ValueId id = graph_.AddValue({std::move(name), {DType::kF32, shape}, nullptr, nullptr});
    uses_.count.push_back(1);
    uses_.producer.push_back(-1);
    uses_.writers.push_back(1);
    uses_.is_output.push_back(false);
    return id;
  }

  // A node that a kernel takes, with outputs of the types that it infers; nothing else is promised of it yet.
  bool Accepted(const Node& made) const {
    const std::vector<OperandInfo> operands = NodeOperands(graph_, made);
    auto types = made.op->infer(OpCall{made.attrs, operands, {}, {}});
    if (!types.ok()) return false;
    const OpCall call{made.attrs, operands, *types, {}};
    return !AcceptingVariants(*made.op, KernelRequest{call, target_, false, made.op}).empty();
  }

  std::optional<Node> MakeLinear(std::string name, const Before& before, std::string after, const std::vector<ValueId>& weights,
                                 int64_t heads = 0) const {
    Node made;
    made.name = std::move(name);
    made.op = FindOp("decode_linear");
    made.attrs.Set("before", before.kind);
    made.attrs.Set("after", std::move(after));
    made.attrs.Set("epsilon", before.epsilon);
    if (heads > 0) made.attrs.Set("heads", heads);
    made.inputs = {before.x, before.branch, before.gain, before.branch_gain};
    made.inputs.insert(made.inputs.end(), weights.begin(), weights.end());
    for (const char* activations : {"int8", "float"}) {
      if (std::string_view(activations) == "int8" && !options_.int8) continue;
      made.attrs.Set("activations", std::string(activations));
      if (Accepted(made)) return made;
    }
    return std::nullopt;
  }

  // It keeps its place until the end, and reads and writes nothing.
  void Erase(int n) { graph_.nodes[size_t(n)] = Node{}; }

  // Puts nodes in the place of node n, one of them for itself and the others before it.
  void Replace(int n, std::vector<Node> made) {
    for (Node& one : made) {
      ++made_;
      // Nodes that are erased anyway give their places.
      inserted_.push_back({n, std::move(one)});
    }
    Erase(n);
  }

  void FuseAttention(int n) {
    const ValueId keys = Input(n, 1), values = Input(n, 2), step = Input(n, 3);
    if (node(n).attrs.GetFloat("softcap") != 0 || ShapeOf(Input(n, 0))[0] != 1) return;
    struct Side {
      std::optional<Product> product;
      ValueId gain = kNoValue, turns = kNoValue;
      double epsilon = 1e-6;
      bool interleaved = false;
      std::vector<int> absorbed;
    };
    auto side_of = [&](ValueId rows, bool turned) -> std::optional<Side> {
      Side side;
      rows = Flat(rows);
      if (turned) {
        const int rope = Producer(rows, "rope");
        if (rope < 0 || !IsPrivate(rows) || Input(rope, 1) != step) return std::nullopt;
        side.turns = Input(rope, 2);
        side.interleaved = node(rope).attrs.GetBool("interleaved");
        side.absorbed.push_back(rope);
        rows = Flat(Input(rope, 0));
        if (const int norm = Producer(rows, "rms_norm"); norm >= 0) {
          if (!IsPrivate(rows) || Input(norm, 1) == kNoValue) return std::nullopt;
          side.gain = Input(norm, 1);
          side.epsilon = node(norm).attrs.GetFloat("epsilon", 1e-6);
          side.absorbed.push_back(norm);
          rows = Flat(Input(norm, 0));
        }
      }
      side.product = ProductOf(rows);
      if (!side.product) return std::nullopt;
      side.absorbed.push_back(side.product->node);
      return side;
    };
    const int key_append = Producer(keys, "kv_append"), value_append = Producer(values, "kv_append");
    if (key_append < 0 || value_append < 0 || Input(key_append, 2) != step || Input(value_append, 2) != step) return;
    const auto q = side_of(Input(n, 0), true), k = side_of(Input(key_append, 1), true),
               v = side_of(Input(value_append, 1), false);
    if (!q || !k || !v || q->turns != k->turns || q->interleaved != k->interleaved) return;
    const ValueId x = q->product->x;
    if (k->product->x != x || v->product->x != x) return;
    if (q->gain != kNoValue && k->gain != kNoValue && q->epsilon != k->epsilon) return;

    // The caches are updated here and not where they were appended to; nobody may read them between.
    for (ValueId cache : {keys, values}) {
      if (!ReadOnlyFrom(cache, n, -1)) return;
    }
    const Shape& cache = ShapeOf(keys);
    const int64_t heads = ShapeOf(Input(n, 0))[1];
    const Before before = BeforeOf(x, 3, n);
    auto linear = MakeLinear(StrCat(node(q->product->node).name, "kv"), before, "none",
                             {q->product->weights, k->product->weights, v->product->weights});
    if (!linear) return;

    Node attention;
    attention.name = node(n).name;
    attention.op = FindOp("decode_attention");
    // Enough splits to have several multiprocessors at it, few enough for the next stage to merge; on a CPU, where heads are
    // dealt out as well, only what lets threads end together.
    const int64_t splits = RunsWorkgroupsOnThreads(target_) ? (8 + heads) / heads : std::clamp<int64_t>(cache[1] / 32, 1, 16);
    attention.attrs.Set("heads", heads);
    attention.attrs.Set("splits", splits);
    attention.attrs.Set("scale", node(n).attrs.GetFloat("scale", 1));
    attention.attrs.Set("window", node(n).attrs.GetInt("window"));
    attention.attrs.Set("interleaved", q->interleaved);
    attention.attrs.Set("epsilon", q->gain != kNoValue ? q->epsilon : k->epsilon);
    const ValueId row = AddF32(linear->name, Shape{1, (heads + 2 * cache[0]) * cache[2]});
    linear->outputs = {row};
    if (before.residual != kNoValue) linear->outputs.push_back(before.residual);
    attention.inputs = {row, q->gain, k->gain, q->turns, step, Input(key_append, 0), Input(value_append, 0)};
    if (!Accepted(attention)) return;

    // Its consumer merges the splits.
    const ValueId result = Output(n);
    if (!IsPrivate(result)) return;
    std::optional<int> projection;
    for (int m = n + 1; m < int(graph_.nodes.size()) && !projection; ++m) {
      if (!node(m).op) continue;
      if (IsOp(m, "linear") && Flat(Input(m, 0)) == result && ProductAt(m)) projection = m;
    }
    if (!projection) return;
    const ValueId splits_value = AddF32(attention.name + ".splits", Shape{splits, heads * (cache[2] + 4)});
    attention.outputs = {splits_value, keys, values};
    Before merge{.kind = "merge", .x = splits_value};
    auto out = MakeLinear(node(*projection).name, merge, "none", {Input(*projection, 1)}, heads);
    if (!out) return;
    out->outputs = {Output(*projection)};

    for (const auto& side : {*q, *k, *v}) {
      for (int absorbed : side.absorbed) Erase(absorbed);
    }
    for (int absorbed : before.absorbed) Erase(absorbed);
    Erase(key_append);
    Erase(value_append);
    Replace(n, {std::move(*linear), std::move(attention)});
    Replace(*projection, {std::move(*out)});
    Settle();
  }

  // act(gate) * up over one input.
  void FuseGate(int n) {
    for (size_t i : {size_t(0), size_t(1)}) {
      const ValueId activated = Input(n, i);
      const int act = uses_.producer[size_t(activated)];
      if (act < 0 || !IsPrivate(activated)) continue;
      const bool gelu = IsOp(act, "gelu") && node(act).attrs.GetBool("approximate");
      if (!gelu && !IsOp(act, "silu")) continue;
      const auto gate = ProductOf(Input(act, 0)), up = ProductOf(Input(n, 1 - i));
      if (!gate || !up || gate->x != up->x) continue;
      const Before before = BeforeOf(gate->x, 2, n);
      auto linear = MakeLinear(node(n).name, before, gelu ? "gelu" : "silu", {gate->weights, up->weights});
      if (!linear) continue;
      linear->outputs = {Output(n)};
      if (before.residual != kNoValue) linear->outputs.push_back(before.residual);
      for (int absorbed : before.absorbed) Erase(absorbed);
      for (int absorbed : {act, gate->node, up->node}) Erase(absorbed);
      Replace(n, {std::move(*linear)});
      Settle();
      return;
    }
  }

  void FuseLinear(int n) {
    const auto product = ProductAt(n);
    if (!product || WillBeFused(n)) return;
    // Thousands of workgroups had better not repeat a norm.
    const bool is_long = ShapeOf(product->weights)[0] > 16384;
    const Before before = is_long ? Before{.x = product->x} : BeforeOf(product->x, 1, n);
    auto linear = MakeLinear(node(n).name, before, "none", {product->weights});
    if (!linear) return;
    linear->outputs = {Output(n)};
    if (before.residual != kNoValue) linear->outputs.push_back(before.residual);
    for (int absorbed : before.absorbed) Erase(absorbed);
    Replace(n, {std::move(*linear)});
    Settle();
  }
  // Its reader comes later and takes it along: a gate, attention, or the choice of a token.
  bool WillBeFused(int n) const {
    for (int m = n + 1; m < int(graph_.nodes.size()); ++m) {
      if (!node(m).op || node(m).op->is_reshape) continue;
      for (ValueId id : node(m).inputs) {
        if (id == kNoValue || graph_.value(id).constant || Flat(id) != Output(n)) continue;
        const std::string_view reader = node(m).op->name;
        return reader == "gelu" || reader == "silu" || reader == "mul" || reader == "rope" || reader == "kv_append" ||
               (reader == "rms_norm" && ShapeOf(id).rank() == 3) || (reader == "sample" && options_.greedy);
      }
    }
    return false;
  }

  void FuseGreedy(int n) {
    const auto product = ProductOf(Input(n, 0));
    if (!product) return;
    const Before before = BeforeOf(product->x, 1, n);
    if (before.kind != "norm" && before.kind != "add_norm") return;
    if (before.residual != kNoValue && uses_.count[size_t(before.residual)] != 1) return;
    Node made;
    made.name = node(n).name;
    made.op = FindOp("decode_greedy");
    made.attrs.Set("epsilon", before.epsilon);
    made.inputs = {before.x, before.branch, before.gain, before.branch_gain, product->weights, Input(n, 1), Input(n, 2)};
    made.outputs = node(n).outputs;
    bool accepted = false;
    for (const char* activations : {"int8", "float"}) {
      if (accepted || (std::string_view(activations) == "int8" && !options_.int8)) continue;
      made.attrs.Set("activations", std::string(activations));
      accepted = Accepted(made);
    }
    if (!accepted) return;
    for (int absorbed : before.absorbed) Erase(absorbed);
    Erase(product->node);
    Replace(n, {std::move(made)});
    Settle();
  }

  // Puts the nodes that were made where they belong. Places before stay what they are, since erased nodes keep theirs until
  // the end, and the first of the new ones takes the place of the node that it stands for.
  void Settle() {
    std::stable_sort(inserted_.begin(), inserted_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = inserted_.size(); i-- > 0;) {
      const int at = inserted_[i].first;
      const bool is_first_there = i == 0 || inserted_[i - 1].first != at;
      if (is_first_there) {
        graph_.nodes[size_t(at)] = std::move(inserted_[i].second);
      } else {
        graph_.nodes.insert(graph_.nodes.begin() + at + 1, std::move(inserted_[i].second));
      }
    }
    inserted_.clear();
    uses_ = Uses(graph_);
  }

  Graph& graph_;
  const shader::Target& target_;
  const DecodeStageOptions& options_;
  Uses uses_;
  std::vector<std::pair<int, Node>> inserted_;
  int made_ = 0;
};

}  // namespace

Result<int> FuseDecodeStages(Graph& graph, const shader::Target& target, const DecodeStageOptions& options) {
  return Fuser(graph, target, options).Run();
}

}  // namespace leeway::llm
