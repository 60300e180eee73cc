// Passes keep what a graph computes: random graphs, each pass on and off, evaluated on the references.
#include "graph/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/strings.h"
#include "ops/evaluate.h"
#include "tensor/coord_map.h"

namespace leeway {
namespace {

class GraphMaker {
 public:
  explicit GraphMaker(uint32_t seed) : random_(seed) { graph_.name = StrCat("seed ", seed); }

  Graph Make() {
    for (int i = 0, n = Below(2) + 1; i < n; ++i) {
      ValueId id = graph_.AddValue({StrCat("in", i), {DType::kF32, {1, 5, 6, i == 0 ? 3 : 4}}, nullptr, nullptr});
      graph_.inputs.push_back(id);
      live_.push_back(id);
    }
    for (int i = 0, n = 4 + Below(14); i < n; ++i) AddRandomNode();
    graph_.outputs.push_back(live_.back());
    for (int i = Below(2); i > 0; --i) {
      ValueId id = Pick();
      if (std::find(graph_.outputs.begin(), graph_.outputs.end(), id) == graph_.outputs.end()) graph_.outputs.push_back(id);
    }
    return std::move(graph_);
  }

  std::vector<HostTensor> Inputs(const Graph& graph) {
    std::vector<HostTensor> inputs;
    for (ValueId id : graph.inputs) inputs.push_back(Draw(graph.value(id).type.shape));
    return inputs;
  }

 private:
  int Below(int n) { return int(random_() % uint32_t(n)); }
  // Mostly what was made last, so that chains and shared values both occur.
  ValueId Pick() {
    return live_[Below(3) ? live_.size() - 1 - size_t(Below(int(std::min<size_t>(live_.size(), 3))))
                          : size_t(Below(int(live_.size())))];
  }
  const Shape& ShapeOf(ValueId id) const { return graph_.value(id).type.shape; }

  HostTensor Draw(Shape shape) {
    HostTensor tensor(DType::kF32, shape);
    for (int64_t i = 0; i < tensor.element_count(); ++i) tensor.Set(i, double(Below(2001) - 1000) / 500);
    return tensor;
  }
  ValueId Constant(Shape shape) { return graph_.AddConstant("c", Draw(shape)); }
  ValueId Ints(std::vector<int32_t> values, Shape shape) {
    return graph_.AddConstant("ints", HostTensor::FromI32(shape, values));
  }

  void Add(const char* op_name, std::vector<ValueId> inputs, AttrSet attrs = {}) {
    const OpDef* op = FindOp(op_name);
    ASSERT_NE(op, nullptr) << op_name;
    Node node;
    node.op = op;
    node.attrs = std::move(attrs);
    node.inputs = std::move(inputs);
    std::vector<OperandInfo> operands = NodeOperands(graph_, node);
    auto types = op->infer(OpCall{node.attrs, operands, {}, {}});
    if (!types.ok()) return;  // not for these shapes
    for (const TensorType& type : *types) {
      node.outputs.push_back(graph_.AddValue({StrCat(op_name, graph_.values.size()), type, nullptr, nullptr}));
      if (type.shape.element_count() > 0 && type.shape.element_count() < 4000) live_.push_back(node.outputs.back());
    }
    node.name = graph_.value(node.outputs[0]).name;
    graph_.nodes.push_back(std::move(node));
  }

  AttrSet With(std::initializer_list<std::pair<const char*, AttrValue>> values) {
    AttrSet attrs;
    for (const auto& [name, value] : values) attrs.Set(name, value);
    return attrs;
  }

  void AddRandomNode() {
    ValueId x = Below(10) ? Pick() : Constant(ShapeOf(Pick()));  // what is made of constants alone is known
    const Shape shape = ShapeOf(x);
    int rank = shape.rank();
    switch (Below(12)) {
      case 0: return Add(Below(2) ? "relu" : "hard_swish", {x});
      case 1: return Add(Below(2) ? "add" : "mul", {x, Constant(Below(2) && rank ? Shape{shape.at(-1)} : shape)});
      case 2: {  // two values of one shape
        for (ValueId other : live_)
          if (other != x && ShapeOf(other) == shape) return Below(2) ? Add("add", {x, other}) : Add("sub", {other, x});
        return Add("maximum", {x, x});
      }
      case 3: {  // a random factoring of the element count
        std::vector<int64_t> extents;
        int64_t left = shape.element_count();
        for (int64_t divisor : {2, 3, 5, 2}) {
          if (left % divisor == 0 && Below(2)) extents.push_back(divisor), left /= divisor;
        }
        extents.insert(extents.begin() + Below(int(extents.size()) + 1), left);
        return Add("reshape", {x}, With({{"new_shape", extents}}));
      }
      case 4: {
        std::vector<int32_t> order(static_cast<size_t>(rank));
        for (int i = 0; i < rank; ++i) order[size_t(i)] = i;
        if (Below(5)) std::shuffle(order.begin(), order.end(), random_);
        return Add("transpose", {x, Ints(order, {rank})});
      }
      case 5: {
        std::vector<int32_t> begin, size;
        for (int i = 0; i < rank; ++i) {
          begin.push_back(Below(2) ? 0 : Below(int(shape[i])));
          size.push_back(1 + Below(int(shape[i]) - begin.back()));
        }
        return Add("slice", {x, Ints(begin, {rank}), Ints(size, {rank})});
      }
      case 6: {
        std::vector<int32_t> margins(size_t(2 * rank));
        for (int i = 2; i + 2 < 2 * rank; ++i) margins[size_t(i)] = Below(3);
        if (Below(4) == 0 && rank) margins.back() = 1;
        return Add("pad", {x, Ints(margins, {rank, 2})});
      }
      case 7:
      case 8: {
        int64_t axis = rank ? Below(rank) : 0;
        std::vector<ValueId> parts = {x};
        for (ValueId other : live_) {
          if (parts.size() == 3 || ShapeOf(other).rank() != rank) continue;
          bool fits = true;
          for (int i = 0; i < rank; ++i) fits &= i == axis || ShapeOf(other)[i] == shape[i];
          if (fits && (Below(2) || other != x)) parts.push_back(other);
        }
        return Add("concatenation", parts, With({{"axis", axis}}));
      }
      case 9:
      case 10: {
        if (rank != 4) return;
        AttrSet attrs = With({{"padding", int64_t(Below(2))},
                              {"stride_h", int64_t(1 + Below(2))},
                              {"stride_w", int64_t(1 + Below(2))},
                              {"dilation_h_factor", int64_t(1)},
                              {"dilation_w_factor", int64_t(1)},
                              {"depth_multiplier", int64_t(1)}});
        int k = 1 + Below(3);
        if (Below(2)) return Add("depthwise_conv_2d", {x, Constant({1, k, k, shape[3]}), Constant({shape[3]})}, attrs);
        int out = 1 + Below(9);
        return Add("conv_2d", {x, Constant({out, k, k, shape[3]}), Below(2) ? Constant({out}) : kNoValue}, attrs);
      }
      default: return Add("expand_dims", {x}, With({{"axis", int64_t(Below(rank + 1))}}));
    }
  }

  std::mt19937 random_;
  Graph graph_;
  std::vector<ValueId> live_;
};

std::string CompareOutputs(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  if (a.size() != b.size()) return "numbers of outputs differ";
  for (size_t o = 0; o < a.size(); ++o) {
    if (a[o].shape() != b[o].shape()) return StrCat("output ", o, " has shape ", b[o].shape().ToString());
    for (int64_t i = 0; i < a[o].element_count(); ++i) {
      double difference = std::abs(a[o].Get(i) - b[o].Get(i));
      if (!(difference <= 1e-5 * std::max(1.0, std::abs(a[o].Get(i)))))
        return StrCat("output ", o, " differs at ", i, ": ", a[o].Get(i), " and ", b[o].Get(i));
    }
  }
  return "";
}

TEST(Passes, RandomGraphsComputeTheSameWithAndWithoutEach) {
  std::map<std::string, int> changes;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    GraphMaker maker(seed);
    const Graph graph = maker.Make();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).error().message << "\n" << Format(graph);
    std::vector<HostTensor> inputs = maker.Inputs(graph);
    auto expected = Evaluate(graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.error().message;

    std::vector<PassOptions> variants(1);  // all on, one off, one alone
    for (const Pass& pass : AllPasses()) {
      PassOptions alone;
      for (const Pass& other : AllPasses())
        if (std::string(other.name) != pass.name) alone.disabled.insert(other.name);
      variants.push_back(alone);
      variants.push_back({{pass.name}});
    }
    for (size_t v = 0; v < variants.size(); ++v) {
      Graph copy = graph;
      auto reports = RunPasses(copy, variants[v]);
      ASSERT_TRUE(reports.ok()) << reports.error().message << " (seed " << seed << ")\n" << Format(graph) << Format(copy);
      auto outputs = Evaluate(copy, inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.error().message;
      ASSERT_EQ(CompareOutputs(*expected, *outputs), "")
          << "seed " << seed << ", off: [" << Join(variants[v].disabled, ", ") << "]\n"
          << Format(graph) << Format(copy);
      if (v == 0) {
        for (const PassReport& report : *reports) changes[report.name] += report.changes;
      }
    }
  }
  for (const Pass& pass : AllPasses()) EXPECT_GT(changes[pass.name], 5) << pass.name << " has hardly been tried";
}

TEST(Passes, AnUnknownNameIsRefused) {
  Graph graph;
  auto reports = RunPasses(graph, {{"fuse_all"}});
  ASSERT_FALSE(reports.ok());
  EXPECT_NE(reports.error().message.find("\"fuse_all\""), std::string::npos);
}

// A block as real networks have it: pad, convolution, activation, residual add, and two heads reshaped and laid side by side.
TEST(Passes, ATypicalBlockBecomesItsConvolutions) {
  Graph graph;
  auto value = [&](Shape shape) { return graph.AddValue({"v", {DType::kF32, shape}, nullptr, nullptr}); };
  auto constant = [&](Shape shape) { return graph.AddConstant("w", HostTensor(DType::kF32, shape)); };
  auto node = [&](const char* op, std::vector<ValueId> inputs, Shape result, AttrSet attrs = {}) {
    Node n;
    n.op = FindOp(op);
    n.name = op;
    n.inputs = std::move(inputs);
    n.attrs = std::move(attrs);
    n.outputs = {value(result)};
    graph.nodes.push_back(n);
    return graph.nodes.back().outputs[0];
  };
  AttrSet conv;
  conv.Set("padding", int64_t{1});
  AttrSet flat;
  ValueId x = value({1, 8, 8, 4});
  graph.inputs = {x};
  ValueId margins = graph.AddConstant("margins", HostTensor::FromI32({4, 2}, std::vector<int32_t>{0, 0, 1, 1, 1, 1, 0, 0}));
  ValueId padded = node("pad", {x, margins}, {1, 10, 10, 4});
  ValueId y = node("conv_2d", {padded, constant({4, 3, 3, 4}), constant({4})}, {1, 8, 8, 4}, conv);
  y = node("add", {y, x}, {1, 8, 8, 4});
  y = node("relu", {y}, {1, 8, 8, 4});
  std::vector<ValueId> heads;
  for (int64_t boxes : {2, 6}) {
    ValueId head = node("conv_2d", {y, constant({boxes * 4, 1, 1, 4}), constant({boxes * 4})}, {1, 8, 8, boxes * 4}, conv);
    AttrSet shape;
    shape.Set("new_shape", std::vector<int64_t>{1, 64 * boxes, 4});
    heads.push_back(node("reshape", {head}, {1, 64 * boxes, 4}, shape));
  }
  AttrSet axis;
  axis.Set("axis", int64_t{1});
  graph.outputs = {node("concatenation", heads, {1, 512, 4}, axis)};
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).error().message;
  auto reports = RunPasses(graph, {});
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  ASSERT_EQ(graph.nodes.size(), 3u) << Format(graph);
  EXPECT_EQ(graph.nodes[0].epilogue.size(), 2u);
  EXPECT_EQ(graph.nodes[0].attrs.GetInts("pad_before"), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(graph.nodes[1].outputs, graph.nodes[2].outputs);
}

}  // namespace
}  // namespace leeway
