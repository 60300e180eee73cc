#include "ops/evaluate.h"

#include <gtest/gtest.h>

#include "graph/graph.h"

namespace leeway {
namespace {

Result<std::vector<TensorType>> LikeFirst(const OpCall& call) { return std::vector<TensorType>{call.inputs[0].type}; }
Status AddUp(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  for (int64_t i = 0; i < inputs[0].element_count(); ++i) outputs[0].Set(i, inputs[0].Get(i) + inputs[1].Get(i));
  return {};
}
const OpDef kAdd{.name = "add", .infer = LikeFirst, .reference = AddUp};

TEST(Evaluate, ReferencesSeeQuantizedConstantsAsNumbers) {
  std::vector<float> numbers(3 * 32);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i % 127) - 63;
  numbers[0] = numbers[32] = numbers[64] = 127;  // a scale of 1: nothing is rounded
  const HostTensor blocks = HostTensor::FromF32({3, 32}, numbers).ConvertTo(DType::kQ8_0);
  for (bool viewed : {false, true}) {
    Graph graph;
    const Shape shape = viewed ? Shape{32, 3} : Shape{3, 32};
    const ValueId x = graph.AddValue({"x", {DType::kF32, shape}, nullptr, nullptr});
    const ValueId y = graph.AddValue({"y", {DType::kF32, shape}, nullptr, nullptr});
    const ValueId c = graph.AddConstant("c", blocks);
    Node node;
    node.name = "y";
    node.op = &kAdd;
    node.inputs = {x, c};
    node.outputs = {y};
    if (viewed) {  // transposed
      CoordMap map;
      map.coords = {IndexExpr::Axis(1), IndexExpr::Axis(0)};
      node.input_views = {std::nullopt, View{map, shape}};
    }
    graph.nodes.push_back(std::move(node));
    graph.inputs = {x};
    graph.outputs = {y};
    const HostTensor ones = HostTensor::FromF32(shape, std::vector<float>(96, 1));
    auto outputs = Evaluate(graph, std::span(&ones, 1));
    ASSERT_TRUE(outputs.ok()) << outputs.error().message;
    for (int64_t i = 0; i < 96; ++i) {
      const int64_t from = viewed ? i % 3 * 32 + i / 3 : i;
      ASSERT_EQ((*outputs)[0].Get(i), 1 + numbers[size_t(from)]) << i;
    }
  }
}

}  // namespace
}  // namespace leeway
