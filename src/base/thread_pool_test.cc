#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace leeway {
namespace {

TEST(ThreadPool, RunsEachTurnOnce) {
  for (int threads : {0, 1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> turns(static_cast<size_t>(count));
      pool.For(count, [&](int64_t i) { turns[size_t(i)]++; });
      for (auto& turn : turns) EXPECT_EQ(turn, 1);
    }
  }
}

TEST(ThreadPool, ManyShortRoundsLoseNone) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum = 0;
  for (int round = 0; round < 2000; ++round) pool.For(3, [&](int64_t i) { sum += i; });
  EXPECT_EQ(sum, 2000 * 3);
}

TEST(ThreadPool, SeesWhatTurnsWrote) {
  ThreadPool pool(3);
  std::vector<int64_t> squares(500);
  pool.For(500, [&](int64_t i) { squares[size_t(i)] = i * i; });
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(squares[size_t(i)], i * i);
}

TEST(ThreadPool, OneThreadRunsOnTheCaller) {
  ThreadPool pool(1);
  EXPECT_EQ(pool.thread_count(), 1);
  int order = 0;
  pool.For(4, [&](int64_t i) { EXPECT_EQ(i, order++); });
}

}  // namespace
}  // namespace leeway
