#include "ops/assemble.h"

#include <gtest/gtest.h>

#include <random>

namespace leeway {
namespace {

IndexExpr A(int axis) { return IndexExpr::Axis(axis); }
IndexExpr N(int64_t value) { return IndexExpr::Const(value); }

std::vector<int64_t> CoordsOf(int64_t index, const Shape& shape) {
  std::vector<int64_t> at(size_t(shape.rank()));
  for (int i = shape.rank() - 1; i >= 0; --i) {
    at[size_t(i)] = index % shape[i];
    index /= shape[i];
  }
  return at;
}
int64_t IndexOf(const std::vector<int64_t>& at, const Shape& shape) {
  int64_t index = 0;
  for (int i = 0; i < shape.rank(); ++i) index = index * shape[i] + at[size_t(i)];
  return index;
}
std::vector<int64_t> Apply(const CoordMap& map, const std::vector<int64_t>& at) {
  if (map.is_identity()) return at;
  std::vector<int64_t> out;
  for (const IndexExpr& e : map.coords) out.push_back(e.Evaluate(at));
  return out;
}
PlacedValue Placed(Shape shape) {
  return {shape, {}, *PlaceTensor(shape, DType::kF32, Layout::kPadded4, Storage::kBuffer, StorageLimits{})};
}

// Splits `count` into random factors, with ones in between.
Shape RandomFactors(std::mt19937& random, int64_t count) {
  Shape shape;
  while (shape.rank() < 7 && (count > 1 || random() % 3)) {
    std::vector<int64_t> divisors;
    for (int64_t d = 1; d <= count; ++d) {
      if (count % d == 0) divisors.push_back(d);
    }
    int64_t d = divisors[random() % divisors.size()];
    shape.push_back(d);
    count /= d;
  }
  shape.push_back(count);
  return shape;
}

TEST(ReshapeMap, KeepsRowMajorOrder) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    int64_t counts[] = {1, 7, 24, 30, 36, 120};
    int64_t count = counts[random() % 6];
    Shape from = RandomFactors(random, count), to = RandomFactors(random, count);
    CoordMap map = ReshapeMap(from, to);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(Apply(map, CoordsOf(i, to)), CoordsOf(i, from)) << from.ToString() << to.ToString();
    auto back = Compose(map, ReshapeMap(to, from));
    ASSERT_TRUE(back.ok());
    std::vector<int64_t> extents(to.begin(), to.end());
    for (int i = 0; i < to.rank() && !back->is_identity(); ++i) {
      IndexExpr e = back->coords[size_t(i)].SimplifiedFor(extents);
      EXPECT_TRUE(e == A(i) || (to[i] == 1 && e.IsConst(0))) << from.ToString() << to.ToString() << e.ToString();
    }
  }
}

TEST(ReshapeMap, LeavesEqualAxesAlone) {
  EXPECT_TRUE(ReshapeMap({2, 3}, {2, 3}).is_identity());
  CoordMap merged = ReshapeMap({1, 12, 12, 8}, {1, 144, 8});
  EXPECT_EQ(merged.coords[1].ToString(), "a1 / 12");
  EXPECT_EQ(merged.coords[2].ToString(), "a1 % 12");
  EXPECT_EQ(merged.coords[3].ToString(), "a2");
  EXPECT_EQ(ReshapeMap({}, {1, 1}).coords.size(), 0u);
  EXPECT_EQ(ReshapeMap({0, 3}, {3, 2, 0}).coords.size(), 2u);
}

TEST(BroadcastMap, FollowsNumpy) {
  auto map = BroadcastMap({3, 1}, {2, 3, 4});
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->coords[0].ToString(), "a1");
  EXPECT_TRUE(map->coords[1].IsConst(0));
  EXPECT_TRUE(BroadcastMap({2, 1}, {2, 1})->is_identity());
  EXPECT_TRUE(BroadcastMap({}, {2, 2})->coords.empty());
  EXPECT_EQ(BroadcastMap({3}, {2, 4}).error().message, "A tensor of shape [3] cannot be broadcast to [2, 4].");
  EXPECT_FALSE(BroadcastMap({1, 2, 4}, {2, 4}).ok());
}

TEST(Compose, IsOneMapAfterTheOther) {
  CoordMap transpose{.coords = {A(1), A(0)}};
  CoordMap pad{.coords = {A(0) - N(1), A(1) - N(2)}, .inside = And(Less(N(0), A(0)), Less(N(1), A(1))), .outside = 3};
  auto both = Compose(transpose, pad);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->coords[0].ToString(), "a1 - 1");
  EXPECT_EQ(both->inside->ToString(), "(0 < a1) && (1 < a0)");
  EXPECT_EQ(both->outside, 3);
  auto twice = Compose(pad, pad);
  ASSERT_TRUE(twice.ok());
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      std::vector<int64_t> at = {i, j};
      EXPECT_EQ(twice->inside->Evaluate(at), i > 1 && j > 3);
      EXPECT_EQ(Apply(*twice, at), (std::vector<int64_t>{i - 2, j - 4}));
    }
  }
  CoordMap other = pad;
  other.outside = 0;
  EXPECT_EQ(Compose(pad, other).error().code, Code::kUnsupported);
  EXPECT_TRUE(Compose({}, {})->is_identity());
}

TEST(AssembleDispatch, PutsViewsAndEpilogueTogether) {
  // The kernel sees output [2, 3, 5] as [6, 5]; the result lies at offset 4 of the last axis of a [2, 3, 9].
  KernelDispatch dispatch{.kernel_name = "k", .stores_result = true};
  dispatch.consts["n"] = 3;
  dispatch.tensors.push_back({.name = "x", .kind = TensorArgument::Kind::kInput, .index = 0});
  dispatch.tensors.push_back({.name = "y",
                              .kind = TensorArgument::Kind::kOutput,
                              .index = 0,
                              .shape = {6, 5},
                              .map = ReshapeMap({2, 3, 5}, {6, 5}),
                              .as_is = false});
  PlacedValue input = Placed({4});
  PlacedValue output = Placed({2, 3, 9});
  output.shape = {2, 3, 5};
  output.view.coords = {A(0), A(1), A(2) + N(4)};
  PlacedValue scalar = Placed({}), bias = Placed({5}), column = Placed({3, 1});
  std::vector<PlacedStep> epilogue(2);
  epilogue[0] = {
      .function = {.text = "fn apply(v : V, a : V) -> V { return v + a; }"}, .operands = {bias}, .result_shape = {2, 3, 5}};
  epilogue[1] = {.function = {.text = "fn apply(v : V, a : V, b : V) -> V { return v * a + b; }"},
                 .operands = {scalar, column},
                 .result_shape = {1, 2, 3, 5}};
  auto assembled = AssembleDispatch(dispatch, {&input, 1}, {&output, 1}, {}, epilogue);
  ASSERT_TRUE(assembled.ok()) << assembled.error().message;
  const VirtualTensor& x = assembled->specialization.tensors.at("x");
  const VirtualTensor& y = assembled->specialization.tensors.at("y");
  EXPECT_TRUE(x.map.is_identity());
  EXPECT_TRUE(x.value_maps.empty());
  EXPECT_EQ(y.shape, (Shape{6, 5}));
  ASSERT_EQ(y.value_maps.size(), 2u);
  const VirtualTensor& bias_seen = y.value_maps[0].operands[0];
  const VirtualTensor& column_seen = y.value_maps[1].operands[1];
  EXPECT_TRUE(y.value_maps[1].operands[0].map.coords.empty());
  for (int64_t i = 0; i < 30; ++i) {
    std::vector<int64_t> at = CoordsOf(i, {6, 5}), node = CoordsOf(i, {2, 3, 5});
    EXPECT_EQ(Apply(y.map, at), (std::vector<int64_t>{node[0], node[1], node[2] + 4}));
    EXPECT_EQ(Apply(bias_seen.map, at), (std::vector<int64_t>{node[2]}));
    EXPECT_EQ(Apply(column_seen.map, at), (std::vector<int64_t>{node[1], 0}));
    EXPECT_EQ(IndexOf(at, {6, 5}), i);
  }
  using Kind = AssembledDispatch::Source::Kind;
  EXPECT_EQ(assembled->sources.at("x").kind, Kind::kInput);
  EXPECT_EQ(assembled->sources.at("y").kind, Kind::kOutput);
  EXPECT_EQ(assembled->sources.at("y#0").index, 0);
  EXPECT_EQ(assembled->sources.at("y#2").kind, Kind::kStepOperand);
  EXPECT_EQ(assembled->sources.at("y#2").index, 1);
  EXPECT_EQ(assembled->sources.at("y#2").operand, 1);
  EXPECT_EQ(assembled->sources.size(), 5u);
}

TEST(AssembleDispatch, TheEpilogueGoesOnlyWhereTheResultIsStored) {
  KernelDispatch dispatch{.kernel_name = "k"};
  dispatch.tensors.push_back({.name = "y", .kind = TensorArgument::Kind::kOutput});
  PlacedValue output = Placed({4});
  std::vector<PlacedStep> epilogue = {{.function = {.text = "fn apply(v : V) -> V { return v; }"}, .result_shape = {4}}};
  auto assembled = AssembleDispatch(dispatch, {}, {&output, 1}, {}, epilogue);
  ASSERT_TRUE(assembled.ok());
  EXPECT_TRUE(assembled->specialization.tensors.at("y").value_maps.empty());
  dispatch.stores_result = true;
  dispatch.tensors[0].index = 1;
  EXPECT_FALSE(AssembleDispatch(dispatch, {}, {&output, 1}, {}, epilogue).ok());
}

TEST(AssembleDispatch, OwnStepsReadInputsAndComeFirst) {
  KernelDispatch dispatch{.kernel_name = "k", .stores_result = true};
  dispatch.tensors.push_back({.name = "x", .kind = TensorArgument::Kind::kInput, .index = 1});
  dispatch.tensors.push_back({.name = "y", .kind = TensorArgument::Kind::kOutput});
  dispatch.own_steps.push_back({.function = {.text = "fn apply(v : V, a : V) -> V { return v - a; }"}, .inputs = {0}});
  PlacedValue inputs[2] = {Placed({3, 1}), Placed({3, 4})}, output = Placed({3, 4}), other = Placed({4});
  std::vector<PlacedStep> epilogue = {
      {.function = {.text = "fn apply(v : V, a : V) -> V { return v * a; }"}, .operands = {other}, .result_shape = {3, 4}}};
  auto assembled = AssembleDispatch(dispatch, inputs, {&output, 1}, {}, epilogue);
  ASSERT_TRUE(assembled.ok()) << assembled.error().message;
  const VirtualTensor& y = assembled->specialization.tensors.at("y");
  ASSERT_EQ(y.value_maps.size(), 2u);
  EXPECT_EQ(y.value_maps[0].operands[0].map.coords[0].ToString(), "a0");
  EXPECT_TRUE(y.value_maps[0].operands[0].map.coords[1].IsConst(0));
  EXPECT_EQ(y.value_maps[1].operands[0].map.coords[0].ToString(), "a1");
  using Kind = AssembledDispatch::Source::Kind;
  EXPECT_EQ(assembled->sources.at("y#0").kind, Kind::kInput);
  EXPECT_EQ(assembled->sources.at("y#0").index, 0);
  EXPECT_EQ(assembled->sources.at("y#1").kind, Kind::kStepOperand);
  dispatch.own_steps[0].inputs[0] = 2;
  EXPECT_EQ(AssembleDispatch(dispatch, inputs, {&output, 1}, {}, epilogue).error().code, Code::kInternal);
}

TEST(AssembleDispatch, RefusesAViewThatDoesNotFit) {
  KernelDispatch dispatch{.kernel_name = "k"};
  dispatch.tensors.push_back({.name = "x", .kind = TensorArgument::Kind::kInput});
  PlacedValue input = Placed({4, 4});
  input.shape = {16};
  EXPECT_EQ(AssembleDispatch(dispatch, {&input, 1}, {}, {}, {}).error().code, Code::kInternal);
  input.view.coords = {A(0)};
  EXPECT_EQ(AssembleDispatch(dispatch, {&input, 1}, {}, {}, {}).error().code, Code::kInternal);
  input.view = ReshapeMap({4, 4}, {16});
  EXPECT_TRUE(AssembleDispatch(dispatch, {&input, 1}, {}, {}, {}).ok());
}

}  // namespace
}  // namespace leeway
