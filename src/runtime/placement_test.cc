#include "runtime/placement.h"

#include <gtest/gtest.h>

#include <random>

namespace leeway {
namespace {

// A graph of copies: node i reads the given values and writes value i + 1; value 0 is the input.
Graph Chain(const std::vector<std::vector<ValueId>>& reads) {
  static const OpDef op{.name = "test_copy"};
  Graph graph;
  auto add = [&](const std::string& name) {
    Value value;
    value.name = name;
    value.type = {DType::kF32, {4}};
    return graph.AddValue(std::move(value));
  };
  graph.inputs = {add("in")};
  for (size_t i = 0; i < reads.size(); ++i) {
    Node node;
    node.name = "n" + std::to_string(i);
    node.op = &op;
    node.inputs = reads[i];
    node.outputs = {add("v" + std::to_string(i + 1))};
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = {ValueId(reads.size())};
  return graph;
}

std::vector<NodeSide> Sides(const std::string& letters) {
  std::vector<NodeSide> sides;
  for (char letter : letters) sides.push_back({letter == 'g', letter == 'g' ? "" : "because"});
  return sides;
}

std::string Text(const std::vector<PlacementStep>& steps) {
  std::string text;
  for (const auto& step : steps) {
    text += step.on_gpu ? "g:" : "c:";
    for (int n : step.nodes) text += " " + std::to_string(n);
    text += "; ";
  }
  return text;
}

TEST(Placement, OneStepWhereAllIsOnTheGpu) {
  const Graph graph = Chain({{0}, {1}, {2}});
  EXPECT_EQ(Text(MakeSteps(graph, Sides("ggg"))), "g: 0 1 2; ");
}

TEST(Placement, ChangesSidesOnlyWhereItMust) {
  // Two branches, a CPU node in each: both are done in one visit to the CPU.
  const Graph graph = Chain({{0}, {1}, {1}, {2}, {3}, {4, 5}});
  EXPECT_EQ(Text(MakeSteps(graph, Sides("gccggg"))), "g: 0; c: 1 2; g: 3 4 5; ");
  EXPECT_EQ(Text(MakeSteps(graph, Sides("gcgcgg"))), "g: 0 2 4; c: 1 3; g: 5; ");
  EXPECT_EQ(Text(MakeSteps(graph, Sides("cggggg"))), "c: 0; g: 1 2 3 4 5; ");
}

TEST(Placement, EveryNodeIsInExactlyOneStepAfterWhatItReads) {
  std::mt19937 generator(7);
  auto random = [&](uint32_t below) { return uint32_t(generator()) % below; };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<ValueId>> reads;
    std::string letters;
    for (int n = 0; n < 12; ++n) {
      reads.push_back({ValueId(random(uint32_t(n) + 1)), ValueId(random(uint32_t(n) + 1))});
      letters += random(2) ? 'g' : 'c';
    }
    const Graph graph = Chain(reads);
    std::vector<bool> written(graph.values.size(), false);
    written[0] = true;
    int count = 0;
    for (const auto& step : MakeSteps(graph, Sides(letters))) {
      for (int n : step.nodes) {
        EXPECT_EQ(step.on_gpu, letters[size_t(n)] == 'g');
        for (ValueId id : graph.nodes[size_t(n)].inputs) EXPECT_TRUE(written[size_t(id)]) << "round " << round;
        EXPECT_FALSE(written[size_t(n) + 1]);
        written[size_t(n) + 1] = true;
        ++count;
      }
    }
    EXPECT_EQ(count, 12);
  }
}

TEST(Placement, NamesAllNodesOnTheCpu) {
  const Graph graph = Chain({{0}, {1}, {2}});
  EXPECT_TRUE(RequireAllOnGpu(graph, Sides("ggg")).ok());
  const Status status = RequireAllOnGpu(graph, Sides("cgc"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_NE(status.error().message.find("2 of 3"), std::string::npos);
  EXPECT_NE(status.error().message.find("n0"), std::string::npos);
  EXPECT_NE(status.error().message.find("n2"), std::string::npos);
  EXPECT_NE(status.error().message.find("because"), std::string::npos);
  EXPECT_EQ(status.error().message.find("n1"), std::string::npos);
}

TEST(Placement, NodesAreExcludedByNumberNameOrOperator) {
  const Graph graph = Chain({{0}, {1}});
  const std::vector<std::string> by_number = {"1"}, by_name = {"n0"}, by_op = {"op:test_copy"}, other = {"op:conv_2d", "n"};
  EXPECT_FALSE(IsExcluded(graph, 0, by_number));
  EXPECT_TRUE(IsExcluded(graph, 1, by_number));
  EXPECT_TRUE(IsExcluded(graph, 0, by_name));
  EXPECT_TRUE(IsExcluded(graph, 0, by_op));
  EXPECT_FALSE(IsExcluded(graph, 0, other));
}

TEST(Placement, NodesThatFillOneTensorStayTogether) {
  Graph graph = Chain({{0}, {0}, {0}});
  graph.nodes[0].outputs = graph.nodes[1].outputs = {1};
  graph.nodes[0].output_view = graph.nodes[1].output_view = View{};
  auto sides = Sides("cgg");
  JoinSides(graph, sides);
  EXPECT_FALSE(sides[1].on_gpu);
  EXPECT_NE(sides[1].reason.find("n0"), std::string::npos);
  EXPECT_TRUE(sides[2].on_gpu);
}

}  // namespace
}  // namespace leeway
