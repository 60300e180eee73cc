#include "graph/graph.h"

#include <gtest/gtest.h>

#include "base/strings.h"
#include "graph/passes/fold_constants.h"
#include "graph/passes/remove_dead.h"

namespace leeway {
namespace {

Result<std::vector<TensorType>> SameType(const OpCall& call) {
  if (call.inputs.size() < 1) return Error{Code::kInvalidModel, "No input."};
  return std::vector<TensorType>{call.inputs[0].type};
}
Status Negate(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  for (int64_t i = 0; i < inputs[0].element_count(); ++i) outputs[0].Set(i, -inputs[0].Get(i));
  return {};
}
Status AddUp(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  for (int64_t i = 0; i < inputs[0].element_count(); ++i) outputs[0].Set(i, inputs[0].Get(i) + inputs[1].Get(i));
  return {};
}
Result<ValueMap> AnyMap(const OpCall&, int) { return ValueMap{.text = "fn apply(a : V) -> V { return -a; }"}; }
Result<std::vector<TensorType>> OneNumber(const OpCall&) { return std::vector<TensorType>{{DType::kI32, {1}}}; }
Status Rank(const OpCall& call, std::span<const HostTensor>, std::span<HostTensor> outputs) {
  outputs[0].Set(0, call.inputs[0].type.shape.rank());
  return {};
}

const OpDef kNegate{.name = "negate", .infer = SameType, .reference = Negate, .value_map = AnyMap};
const OpDef kAdd{.name = "add", .infer = SameType, .reference = AddUp, .value_map = AnyMap};
const OpDef kRank{.name = "rank", .infer = OneNumber, .reference = Rank, .needs_types_only = true};

ValueId AddF32(Graph& graph, std::string name, Shape shape) {
  return graph.AddValue({std::move(name), {DType::kF32, shape}, nullptr, nullptr});
}
void AddNode(Graph& graph, const OpDef& op, std::vector<ValueId> inputs, ValueId output) {
  Node node;
  node.name = graph.value(output).name;
  node.op = &op;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  graph.nodes.push_back(std::move(node));
}

// x -> negate -> y -> add a constant -> z
Graph Chain() {
  Graph graph;
  graph.name = "chain";
  ValueId x = AddF32(graph, "x", {2, 3}), y = AddF32(graph, "y", {2, 3}), z = AddF32(graph, "z", {2, 3});
  ValueId c = graph.AddConstant("c", HostTensor::FromF32({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}));
  AddNode(graph, kNegate, {x}, y);
  AddNode(graph, kAdd, {y, c}, z);
  graph.inputs = {x};
  graph.outputs = {z};
  return graph;
}

std::string Fault(const Graph& graph) {
  Status status = Verify(graph);
  return status.ok() ? "none" : status.error().message;
}
#define EXPECT_FAULT(graph, part)                            \
  do {                                                       \
    std::string fault = Fault(graph);                        \
    EXPECT_NE(fault.find(part), std::string::npos) << fault; \
  } while (false)

TEST(Graph, TheVerifierFindsEachKindOfFault) {
  auto change = [](auto edit) {
    Graph graph = Chain();
    edit(graph);
    return graph;
  };
  using G = Graph&;
  ASSERT_EQ(Fault(Chain()), "none");
  EXPECT_FAULT(change([](G g) { std::swap(g.nodes[0], g.nodes[1]); }), "before all of it is written");
  EXPECT_FAULT(change([](G g) { g.nodes[1].inputs[0] = 99; }), "reads value 99, which does not exist");
  EXPECT_FAULT(change([](G g) { g.nodes[1].outputs[0] = 99; }), "writes value 99, which does not exist");
  EXPECT_FAULT(change([](G g) { g.nodes[1].outputs[0] = 1; }), "before all of it is written");
  EXPECT_FAULT(change([](G g) {
                 g.nodes[1].inputs = {0, 3};
                 g.nodes[1].outputs[0] = 1;
               }),
               "written already");
  EXPECT_FAULT(change([](G g) { g.nodes[1].outputs[0] = 3; }), "a constant");
  EXPECT_FAULT(change([](G g) { g.nodes[1].outputs.clear(); }), "no outputs");
  EXPECT_FAULT(change([](G g) { g.nodes[1].op = nullptr; }), "no operator");
  EXPECT_FAULT(change([](G g) { g.values[2].type.shape = {3, 2}; }), "its operator gives f32[2, 3]");
  EXPECT_FAULT(change([](G g) { g.values[3].type.shape = {6}; }), "The constant of value 3 \"c\"");
  EXPECT_FAULT(change([](G g) { g.outputs = {99}; }), "The graph's output");
  EXPECT_FAULT(change([](G g) { g.inputs = {3}; }), "is missing or constant");
  EXPECT_FAULT(change([](G g) { g.nodes[0].input_views.resize(2); }), "2 input views for 1 inputs");
  EXPECT_FAULT(change([](G g) {
                 g.nodes[0].result = g.values[1].type;
                 g.nodes[0].epilogue.push_back({&kRank, {}, {kNoValue}, 0, {DType::kI32, {1}}});
               }),
               "not elementwise");
  EXPECT_FAULT(change([](G g) {
                 g.nodes[0].result = g.values[1].type;
                 g.nodes[0].epilogue.push_back({&kAdd, {}, {kNoValue, 2}, 0, g.values[1].type});
               }),
               "before all of it is written");
  EXPECT_FAULT(change([](G g) {
                 g.signatures.push_back({"serve", {{"x", 44}}, {}});
               }),
               "names \"x\" a value that does not exist");
}

// Two nodes fill one value: rows 0..1 and rows 2..4.
Graph InParts(int64_t second_rows) {
  Graph graph;
  ValueId a = AddF32(graph, "a", {2, 3}), b = AddF32(graph, "b", {second_rows, 3}), y = AddF32(graph, "y", {5, 3}),
          z = AddF32(graph, "z", {5, 3});
  graph.inputs = {a, b};
  graph.outputs = {z};
  for (ValueId part : {a, b}) {
    AddNode(graph, kNegate, {part}, y);
    Node& node = graph.nodes.back();
    node.result = graph.value(part).type;
    IndexExpr row = IndexExpr::Axis(0) + IndexExpr::Const(part == a ? 0 : 2);
    node.output_view = View{{{row, IndexExpr::Axis(1)}, std::nullopt, 0}, node.result.shape};
  }
  AddNode(graph, kNegate, {y}, z);
  return graph;
}

TEST(Graph, PartsOfAValueMustCoverItBeforeItIsRead) {
  EXPECT_EQ(Fault(InParts(3)), "none");
  EXPECT_FAULT(InParts(2), "of which 12 of 15 elements are written");
  Graph early = InParts(3);
  std::swap(early.nodes[1], early.nodes[2]);
  EXPECT_FAULT(early, "before all of it is written");
}

TEST(Graph, ANarrowConstantStandsForAnF32Value) {
  Graph graph = Chain();
  graph.values[3].constant = std::make_shared<const HostTensor>(graph.values[3].constant->ConvertTo(DType::kF16));
  EXPECT_EQ(Fault(graph), "none");
  graph.values[3].constant = std::make_shared<const HostTensor>(graph.values[3].constant->ConvertTo(DType::kI32));
  EXPECT_FAULT(graph, "is i32[2, 3], its value is f32[2, 3]");
}

TEST(Graph, BlocksAreAFormOfConstantsOnly) {
  Graph graph;
  const ValueId x = AddF32(graph, "x", {2, 32}), y = AddF32(graph, "y", {2, 32});
  const ValueId c = graph.AddConstant("c", HostTensor(DType::kQ4_0, {2, 32}));
  AddNode(graph, kAdd, {x, c}, y);
  graph.inputs = {x};
  graph.outputs = {y};
  EXPECT_EQ(graph.value(c).type.dtype, DType::kF32);
  EXPECT_EQ(Fault(graph), "none");
  graph.values[size_t(c)].type.dtype = DType::kQ4_0;
  EXPECT_FAULT(graph, "is q4_0[2, 32]; only constants are stored in blocks");
}

TEST(Graph, TextShowsNodesOperandsAndSteps) {
  Graph graph = Chain();
  graph.nodes[1].attrs.Set("axis", int64_t{2});
  graph.nodes[1].result = graph.values[2].type;
  graph.nodes[1].epilogue.push_back({&kAdd, {}, {0, kNoValue}, 1, graph.values[2].type});
  std::string text = Format(graph);
  EXPECT_NE(text.find("%2:f32[2, 3] = add(%1, #3:f32[2, 3]) {axis=2} \"z\""), std::string::npos) << text;
  EXPECT_NE(text.find("then add(%0, it) -> f32[2, 3]"), std::string::npos) << text;
  EXPECT_EQ(NodeLabel(graph, 1), "1 [add \"z\"]");
  EXPECT_EQ(UseCounts(graph), (std::vector<int>{2, 1, 1, 1}));
  EXPECT_EQ(Producers(graph), (std::vector<int>{-1, 0, 1, -1}));
}

TEST(Attrs, ValuesAreFoundByKindAndPrinted) {
  AttrSet attrs;
  attrs.Set("flag", true);
  attrs.Set("count", int64_t{3});
  attrs.Set("beta", 1.0);
  attrs.Set("mode", std::string("SAME"));
  attrs.Set("pads", std::vector<int64_t>{1, 2});
  EXPECT_TRUE(attrs.GetBool("flag"));
  EXPECT_EQ(attrs.GetInt("count"), 3);
  EXPECT_EQ(attrs.GetInt("beta", 7), 7) << "another kind";
  EXPECT_EQ(attrs.GetFloat("count"), 3);
  EXPECT_EQ(attrs.GetString("none", "x"), "x");
  EXPECT_EQ(attrs.GetInts("pads"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(attrs.ToString(), "beta=1.0, count=3, flag=true, mode=\"SAME\", pads=[1, 2]");
  attrs.Erase("flag");
  EXPECT_FALSE(attrs.Has("flag"));
}

TEST(FoldConstants, ComputesWhatIsKnownAndLeavesTheRest) {
  Graph graph = Chain();
  ValueId d = AddF32(graph, "d", {2, 3}), e = AddF32(graph, "e", {2, 3}),
          r = graph.AddValue({"r", {DType::kI32, {1}}, nullptr, nullptr});
  Graph before = graph;
  before.nodes.clear();
  AddNode(before, kNegate, {3}, d);  // constant
  AddNode(before, kAdd, {d, 3}, e);  // constant, once d is
  AddNode(before, kNegate, {0}, 1);  // not
  AddNode(before, kRank, {1}, r);    // follows from a type
  AddNode(before, kAdd, {1, e}, 2);  // not
  before.outputs = {2, r};
  ASSERT_EQ(Fault(before), "none");
  auto changes = FoldConstants(before);
  ASSERT_TRUE(changes.ok());
  EXPECT_EQ(*changes, 3);
  EXPECT_EQ(Fault(before), "none");
  ASSERT_EQ(before.nodes.size(), 2u);
  ASSERT_TRUE(before.value(e).constant);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(before.value(e).constant->Get(i), 0);
  EXPECT_EQ(before.value(r).constant->Get(0), 2);
}

const OpDef::Update kFirst[] = {{0, 0}};
Status AddInPlace(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  for (int64_t i = 0; i < outputs[0].element_count(); ++i) outputs[0].Set(i, outputs[0].Get(i) + inputs[1].Get(i));
  return {};
}
const OpDef kAccumulate{.name = "accumulate", .infer = SameType, .reference = AddInPlace, .updates = kFirst};

// A state that is accumulated twice by x.
Graph Accumulator() {
  Graph graph;
  graph.name = "accumulator";
  ValueId x = AddF32(graph, "x", {2}), s0 = AddF32(graph, "s", {2}), s1 = AddF32(graph, "s1", {2}),
          s2 = AddF32(graph, "s2", {2});
  graph.inputs = {x, s0};
  AddNode(graph, kAccumulate, {s0, x}, s1);
  AddNode(graph, kAccumulate, {s1, x}, s2);
  graph.outputs = {s2};
  graph.states = {{"s", s0, s2}};
  return graph;
}

TEST(States, OneMemoryUpdatedStepByStep) { EXPECT_EQ(Fault(Accumulator()), "none"); }

TEST(States, NobodyReadsWhatIsUpdated) {
  Graph graph = Accumulator();
  ValueId late = AddF32(graph, "late", {2});
  AddNode(graph, kNegate, {graph.inputs[1]}, late);
  EXPECT_FAULT(graph, "updated already");
}

TEST(States, OnlyStatesAreUpdatedAndTheLastValueIsTheState) {
  Graph graph = Accumulator();
  graph.states[0].after = graph.nodes[0].outputs[0];
  EXPECT_FAULT(graph, "updates further");
  graph = Accumulator();
  graph.states.clear();
  EXPECT_FAULT(graph, "no state");
  graph = Accumulator();
  graph.outputs = {graph.nodes[0].outputs[0]};
  EXPECT_FAULT(graph, "no output");
}

TEST(States, RemovingWhatIsDeadKeepsThem) {
  Graph graph = Accumulator();
  graph.values.insert(graph.values.begin(), Value{"unused", {DType::kF32, {1}}, nullptr, nullptr});
  auto shift = [](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) ++id;
  };
  shift(graph.inputs), shift(graph.outputs);
  for (Node& node : graph.nodes) shift(node.inputs), shift(node.outputs);
  ++graph.states[0].before, ++graph.states[0].after;
  ASSERT_EQ(Fault(graph), "none");
  ASSERT_TRUE(RemoveDead(graph).ok());
  EXPECT_EQ(graph.values.size(), 4u);
  EXPECT_EQ(Fault(graph), "none");
}

}  // namespace
}  // namespace leeway
