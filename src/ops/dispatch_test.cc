#include "ops/dispatch.h"

#include <gtest/gtest.h>

namespace leeway {
namespace {

KernelDispatch GridFor(int64_t invocations, uint32_t max_workgroups, bool linear) {
  static const AttrSet attrs;
  shader::Target target;
  target.max_workgroups = max_workgroups;
  const OpCall call{attrs, {}, {}};
  const KernelRequest request{.call = call, .target = target};
  KernelDispatch dispatch;
  linear ? SetLinearGrid(dispatch, request, invocations) : SetGroupGrid(dispatch, request, invocations);
  return dispatch;
}

TEST(Dispatch, GridsStayWithinTheLimitAndCoverEverything) {
  for (uint32_t most : {4u, 7u, 65535u}) {
    for (int64_t groups : {0, 1, 3, 4, 5, 6, 7, 8, 13, 16}) {
      const KernelDispatch dispatch = GridFor(groups, most, false);
      const int64_t x = dispatch.workgroups[0], y = dispatch.workgroups[1];
      EXPECT_LE(x, most);
      EXPECT_LE(y, most);
      EXPECT_GE(x * y, groups);
      EXPECT_LT(x * y - std::max<int64_t>(groups, 1), x)
          << "a whole row of workgroups has nothing to do for " << groups << " of at most " << most;
      EXPECT_EQ(dispatch.workgroups[2], 1u);
      EXPECT_EQ(dispatch.consts.at("groups_per_row").values[0], double(x));
    }
  }
}

TEST(Dispatch, LinearGridsCountInvocations) {
  EXPECT_EQ(GridFor(1, 65535, true).workgroups[0], 1u);
  EXPECT_EQ(GridFor(64, 65535, true).workgroups[0], 1u);
  EXPECT_EQ(GridFor(65, 65535, true).workgroups[0], 2u);
  const KernelDispatch large = GridFor(int64_t{64} * 65536, 65535, true);
  EXPECT_EQ(large.workgroups[0], 32768u);
  EXPECT_EQ(large.workgroups[1], 2u);
}

}  // namespace
}  // namespace leeway
