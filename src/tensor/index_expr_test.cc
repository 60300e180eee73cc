#include "tensor/index_expr.h"

#include <gtest/gtest.h>

#include <random>

namespace leeway {
namespace {

IndexExpr A(int axis) { return IndexExpr::Axis(axis); }
IndexExpr N(int64_t value) { return IndexExpr::Const(value); }

int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// A random expression, built and evaluated at once: `values` are computed without IndexExpr.
struct Built {
  IndexExpr expr;
  std::vector<int64_t> values;  // at each point
};
struct Generator {
  std::mt19937 random;
  std::vector<std::vector<int64_t>> points;
  int axes = 3;

  int Pick(int count) { return int(random() % uint32_t(count)); }
  template <class F>
  static Built Combine(const Built& a, const Built& b, IndexExpr expr, F&& f) {
    Built out{std::move(expr), {}};
    for (size_t i = 0; i < a.values.size(); ++i) out.values.push_back(f(a.values[i], b.values[i]));
    return out;
  }
  Built Constant(int64_t value) { return {N(value), std::vector<int64_t>(points.size(), value)}; }
  Built Make(int depth) {
    if (depth == 0 || Pick(8) == 0) {
      if (Pick(4) == 0) return Constant(Pick(13) - 4);
      int axis = Pick(axes);
      Built out{A(axis), {}};
      for (auto& point : points) out.values.push_back(point[size_t(axis)]);
      return out;
    }
    Built a = Make(depth - 1);
    int64_t divisors[] = {1, 2, 3, 4, 6, 8, 12, 24, 5};
    int64_t d = divisors[Pick(9)];
    switch (Pick(11)) {
      case 0:
      case 1: {
        Built b = Make(depth - 1);
        return Combine(a, b, a.expr + b.expr, [](int64_t x, int64_t y) { return x + y; });
      }
      case 2: {
        Built b = Make(depth - 1);
        return Combine(a, b, a.expr - b.expr, [](int64_t x, int64_t y) { return x - y; });
      }
      case 3:
      case 4: {
        Built b = Pick(6) == 0 ? Make(1) : Constant(divisors[Pick(9)] * (Pick(4) == 0 ? -1 : 1));
        return Combine(a, b, a.expr * b.expr, [](int64_t x, int64_t y) { return x * y; });
      }
      case 5:
      case 6: return Combine(a, a, Div(a.expr, d), [d](int64_t x, int64_t) { return FloorDiv(x, d); });
      case 7:
      case 8: return Combine(a, a, Mod(a.expr, d), [d](int64_t x, int64_t) { return x - FloorDiv(x, d) * d; });
      case 9: {
        Built b = Make(depth - 1);
        if (Pick(2)) return Combine(a, b, Min(a.expr, b.expr), [](int64_t x, int64_t y) { return std::min(x, y); });
        return Combine(a, b, Max(a.expr, b.expr), [](int64_t x, int64_t y) { return std::max(x, y); });
      }
      default: {
        Built b = Make(depth - 1);
        if (Pick(3)) return Combine(a, b, Less(a.expr, b.expr), [](int64_t x, int64_t y) { return int64_t(x < y); });
        auto table = std::make_shared<std::vector<int32_t>>();
        for (int i = 0; i < 5; ++i) table->push_back(int32_t(Pick(2) ? i * 3 - 2 : Pick(20)));
        return Combine(a, a, IndexExpr::Table(table, Mod(a.expr, 5)),
                       [&](int64_t x, int64_t) { return int64_t((*table)[size_t(x - FloorDiv(x, 5) * 5)]); });
      }
    }
  }
};

TEST(IndexExpr, SimplifiedExpressionsKeepTheirValue) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Generator generator;
    generator.random.seed(seed);
    int64_t choices[] = {1, 2, 3, 4, 6, 8, 12};
    std::vector<int64_t> extents;
    for (int i = 0; i < 3; ++i) extents.push_back(choices[generator.Pick(7)]);
    for (int64_t i = 0; i < extents[0]; ++i) {
      for (int64_t j = 0; j < extents[1]; ++j) {
        for (int64_t k = 0; k < extents[2]; ++k) generator.points.push_back({i, j, k});
      }
    }
    Built built = generator.Make(5);
    IndexExpr simplified = built.expr.SimplifiedFor(extents);
    IndexExpr::Range range = simplified.Bounds(extents);
    std::vector<IndexExpr> shifted = {A(0) + N(1), A(1) * N(2), A(2) - A(0)};
    IndexExpr substituted = built.expr.Substitute(shifted);
    for (size_t i = 0; i < generator.points.size(); ++i) {
      auto& p = generator.points[i];
      ASSERT_EQ(built.expr.Evaluate(p), built.values[i]) << built.expr.ToString();
      ASSERT_EQ(simplified.Evaluate(p), built.values[i]) << built.expr.ToString() << " became " << simplified.ToString();
      ASSERT_LE(range.low, built.values[i]) << simplified.ToString();
      ASSERT_GE(range.high, built.values[i]) << simplified.ToString();
      std::vector<int64_t> at = {p[0] + 1, p[1] * 2, p[2] - p[0]};
      ASSERT_EQ(substituted.Evaluate(p), built.expr.Evaluate(at)) << substituted.ToString();
    }
  }
}

TEST(IndexExpr, FoldsAndCollects) {
  EXPECT_EQ((A(0) * N(1) + N(0)).ToString(), "a0");
  EXPECT_EQ((A(0) + A(1) - A(0)).ToString(), "a1");
  EXPECT_EQ(Div(A(0) * N(12), 4).ToString(), "a0 * 3");
  EXPECT_EQ(Div(Div(A(0), 3), 4).ToString(), "a0 / 12");
  EXPECT_EQ(Mod(Mod(A(0), 12), 4).ToString(), "a0 % 4");
  EXPECT_EQ((Div(A(0), 7) * N(7) + Mod(A(0), 7)).ToString(), "a0");
  EXPECT_TRUE(Mod(A(0) * N(8), 4).IsConst(0));
}

TEST(IndexExpr, UsesTheExtents) {
  std::vector<int64_t> extents = {5, 3, 4};
  EXPECT_EQ(Div(A(0) * N(12) + A(1) * N(4) + A(2), 4).SimplifiedFor(extents).ToString(), "a0 * 3 + a1");
  EXPECT_EQ(Mod(A(0) * N(12) + A(1) * N(4) + A(2), 12).SimplifiedFor(extents).ToString(), "a1 * 4 + a2");
  EXPECT_TRUE(Less(A(2), N(4)).SimplifiedFor(extents).IsConst(1));
  EXPECT_TRUE(Less(A(1), A(1)).SimplifiedFor(extents).IsConst(0));
  EXPECT_EQ(Min(A(0), N(9)).SimplifiedFor(extents).ToString(), "a0");
  std::vector<int64_t> ones = {1, 3};
  EXPECT_EQ((A(0) * N(3) + A(1)).SimplifiedFor(ones).ToString(), "a1");
}

TEST(IndexExpr, AReshapeUndoneIsTheIdentity) {
  // [24] seen as [2, 3, 4] and flattened again.
  IndexExpr back = Div(A(0), 12) * N(12) + Mod(Div(A(0), 4), 3) * N(4) + Mod(A(0), 4);
  std::vector<int64_t> extents = {24};
  EXPECT_EQ(back.SimplifiedFor(extents).ToString(), "a0");
}

TEST(IndexExpr, EvenTablesBecomeArithmetic) {
  auto reversed = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{4, 3, 2, 1, 0});
  EXPECT_EQ(IndexExpr::Table(reversed, A(0)).ToString(), "a0 * (-1) + 4");
  auto odd = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{0, 2, 1});
  EXPECT_EQ(IndexExpr::Table(odd, A(0)).ToString(), "{0, 2, 1}[a0]");
  EXPECT_TRUE(IndexExpr::Table(odd, N(1)).IsConst(2));
}

}  // namespace
}  // namespace leeway
