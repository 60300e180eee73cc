#include "tensor/coord_map.h"

#include <gtest/gtest.h>

namespace leeway {
namespace {

IndexExpr A(int axis) { return IndexExpr::Axis(axis); }

TEST(CoordMap, SimplifyingFindsTheIdentity) {
  CoordMap map{{Div(A(0) * IndexExpr::Const(4) + A(1), 4), Mod(A(0) * IndexExpr::Const(4) + A(1), 4)}, std::nullopt, 0};
  EXPECT_TRUE(SimplifiedMap(map, {3, 4}, {3, 4}).is_identity());
  EXPECT_FALSE(SimplifiedMap(map, {3, 5}, {3, 4}).is_identity());
  CoordMap swapped{{A(1), A(0)}, std::nullopt, 0};
  EXPECT_FALSE(SimplifiedMap(swapped, {4, 4}, {4, 4}).is_identity()) << "equal extents are not equal axes";
  CoordMap bounded{{A(0)}, Less(A(0), IndexExpr::Const(9)), 0};
  CoordMap simplified = SimplifiedMap(bounded, {9}, {9});
  EXPECT_TRUE(simplified.is_identity());
  EXPECT_FALSE(simplified.inside);
}

TEST(CoordMap, PermutationsAreTurnedRound) {
  Shape over{2, 1, 5, 3}, to{5, 2, 3};
  CoordMap map{{A(2), A(0), A(3)}, std::nullopt, 0};
  auto inverse = InverseOfPermutation(map, over, to);
  ASSERT_TRUE(inverse);
  auto there_and_back = Compose(*inverse, map);
  ASSERT_TRUE(there_and_back.ok());
  EXPECT_TRUE(SimplifiedMap(*there_and_back, to, to).is_identity());
}

TEST(CoordMap, WhatIsNoPermutationIsRefused) {
  EXPECT_FALSE(InverseOfPermutation({{A(0), A(0)}, std::nullopt, 0}, {2, 2}, {2, 2}));
  EXPECT_FALSE(InverseOfPermutation({{A(0) + IndexExpr::Const(1)}, std::nullopt, 0}, {2}, {3}));
  EXPECT_FALSE(InverseOfPermutation({{A(1), A(0)}, Less(A(0), IndexExpr::Const(1)), 0}, {2, 2}, {2, 2}));
  EXPECT_FALSE(InverseOfPermutation({{A(1)}, std::nullopt, 0}, {2, 2}, {2}));
}

}  // namespace
}  // namespace leeway
