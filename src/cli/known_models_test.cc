#include "cli/known_models.h"

#include <gtest/gtest.h>

#include <cmath>

namespace leeway::cli {
namespace {

std::vector<TensorShape> One(Shape shape) { return {{"x", DType::kF32, shape}}; }

TEST(FindMeaning, TellsModelsApartByTheirShapes) {
  EXPECT_EQ(FindMeaning(One({1, 256, 256, 3}), One({1, 256, 256, 1})).kind, Meaning::Kind::kMask);
  const Meaning hand =
      FindMeaning(One({1, 224, 224, 3}), std::vector<TensorShape>{{"a", DType::kF32, {1, 63}}, {"b", DType::kF32, {1, 1}}});
  EXPECT_EQ(hand.kind, Meaning::Kind::kLandmarks);
  EXPECT_EQ(hand.confidence, 1);
  EXPECT_EQ(FindMeaning(One({1, 224, 224, 3}), One({1, 1000})).kind, Meaning::Kind::kNone);
  EXPECT_EQ(FindMeaning({}, One({1, 1000})).kind, Meaning::Kind::kNone);
}

// Every detector's strides must give as many anchors as its outputs have rows: a box written at the last one is found.
TEST(DecodeBoxes, CoversAllAnchorsOfEachDetector) {
  struct Row {
    int size, anchors, values;
  };
  for (const Row& row : {Row{128, 896, 16}, Row{256, 896, 16}, Row{192, 2304, 16}, Row{192, 2016, 18}, Row{224, 2254, 12}}) {
    const std::vector<TensorShape> outputs = {{"scores", DType::kF32, {1, row.anchors, 1}},
                                              {"boxes", DType::kF32, {1, row.anchors, row.values}}};
    const Meaning meaning = FindMeaning(One({1, row.size, row.size, 3}), outputs);
    ASSERT_EQ(meaning.kind, Meaning::Kind::kBoxes) << row.anchors;
    EXPECT_EQ(meaning.scores, 0);
    HostTensor scores(DType::kF32, outputs[0].shape), boxes(DType::kF32, outputs[1].shape);
    for (int i = 0; i < row.anchors; ++i) scores.Set(i, -20);
    scores.Set(row.anchors - 1, 4);
    boxes.Set((row.anchors - 1) * row.values + 2, 32);
    boxes.Set((row.anchors - 1) * row.values + 3, 16);
    const std::vector<Box> found = DecodeBoxes(meaning, boxes, scores, row.size, row.size, 0.5f);
    ASSERT_EQ(found.size(), 1u) << row.anchors;
    EXPECT_NEAR(found[0].right - found[0].left, 32.0f / row.size, 1e-5f);
    EXPECT_NEAR(found[0].bottom - found[0].top, 16.0f / row.size, 1e-5f);
    EXPECT_GT(found[0].right, 0.8f);  // the last anchor is in the lower right corner
    EXPECT_NEAR(found[0].score, 1 / (1 + std::exp(-4.0)), 1e-5);
  }
}

TEST(DecodeBoxes, BlendsOverlappingBoxesAndKeepsOthers) {
  const std::vector<TensorShape> outputs = {{"boxes", DType::kF32, {1, 896, 16}}, {"scores", DType::kF32, {1, 896, 1}}};
  const Meaning meaning = FindMeaning(One({1, 128, 128, 3}), outputs);
  HostTensor boxes(DType::kF32, outputs[0].shape), scores(DType::kF32, outputs[1].shape);
  for (int i = 0; i < 896; ++i) scores.Set(i, -50);
  for (int i : {0, 1, 500}) {
    scores.Set(i, i == 0 ? 3 : 2);
    boxes.Set(i * 16 + 2, 20);
    boxes.Set(i * 16 + 3, 20);
  }
  EXPECT_EQ(DecodeBoxes(meaning, boxes, scores, 128, 128, 0.5f).size(), 2u);
  scores.Set(500, std::nan(""));
  EXPECT_EQ(DecodeBoxes(meaning, boxes, scores, 128, 128, 0.5f).size(), 1u);
}

TEST(Draw, CutsOutByTheMask) {
  const Meaning meaning = FindMeaning(One({1, 4, 4, 3}), One({1, 4, 4, 1}));
  HostTensor mask(DType::kF32, {1, 4, 4, 1});
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 2; ++x) mask.Set(y * 4 + x, 1);
  Image picture{4, 4, std::vector<uint8_t>(64, 255)};
  auto said = Draw(meaning, std::span(&mask, 1), {1, 4, 4, 3}, {}, picture);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(picture.at(0, 0)[0], 255);
  EXPECT_LT(picture.at(3, 0)[0], 100);
  EXPECT_NE(said->find("50.0 %"), std::string::npos) << *said;
}

TEST(Draw, SaysSoWhereTheMeaningIsNotKnown) {
  Image picture{1, 1, {0, 0, 0, 255}};
  EXPECT_EQ(Draw({}, {}, {1, 1, 1, 1}, {}, picture).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace leeway::cli
