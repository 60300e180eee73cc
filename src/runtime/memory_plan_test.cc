#include "runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace leeway {
namespace {

std::vector<MemoryItem> RandomItems(std::mt19937& random, int count) {
  std::vector<MemoryItem> items;
  for (int i = 0; i < count; ++i) {
    const int first = int(random() % 40);
    items.push_back({"t" + std::to_string(i), int64_t(random() % 5000), first, first + int(random() % 8)});
  }
  return items;
}

TEST(MemoryPlan, NothingGivesNothing) {
  auto plan = PlanMemory({}, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->total_bytes, 0);
  EXPECT_TRUE(plan->buffer_bytes.empty());
}

TEST(MemoryPlan, AChainNeedsTwoNeighbours) {
  std::vector<MemoryItem> items;
  for (int i = 0; i < 10; ++i) items.push_back({"t" + std::to_string(i), 1024, i, i + 1});
  auto plan = PlanMemory(items, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->total_bytes, 2048);
  EXPECT_EQ(plan->lower_bound_bytes, 2048);
  EXPECT_EQ(plan->without_reuse_bytes, 10240);
  EXPECT_EQ(FindMemoryPlanFault(items, {}, {}, *plan), "");
}

TEST(MemoryPlan, EmptyTensorsHaveAPlaceToo) {
  std::vector<MemoryItem> items = {{"a", 0, 0, 3}, {"b", 0, 0, 3}};
  auto plan = PlanMemory(items, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_NE(plan->slots[0].offset_bytes, plan->slots[1].offset_bytes);
}

TEST(MemoryPlan, RefusesWhatNoBufferHolds) {
  std::vector<MemoryItem> items = {{"huge", 5000, 0, 1}};
  auto plan = PlanMemory(items, {.max_buffer_bytes = 4096});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::kUnsupported);
  EXPECT_NE(plan.error().message.find("huge"), std::string::npos);
}

TEST(MemoryPlan, RandomLifetimesNeverOverlap) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    auto items = RandomItems(random, 1 + int(random() % 60));
    MemoryRules rules;
    if (seed % 3 == 1) rules.max_buffer_bytes = 8192;
    if (seed % 5 == 4) rules.reuse = false;
    if (seed % 7 == 3) {
      for (auto& item : items) item.at_start = random() % 3 == 0;
    }
    MemoryConflicts conflicts;
    if (seed % 2 == 1 && items.size() > 1) {
      for (int i = 0; i < 20; ++i) {
        const int a = int(random() % items.size()), b = int(random() % items.size());
        if (a != b) conflicts.push_back({a, b});
      }
    }
    auto plan = PlanMemory(items, rules, conflicts);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(FindMemoryPlanFault(items, rules, conflicts, *plan), "");
    EXPECT_GE(plan->total_bytes, rules.reuse ? plan->lower_bound_bytes : plan->without_reuse_bytes);
    EXPECT_LE(plan->total_bytes, plan->without_reuse_bytes);
  }
}

TEST(MemoryPlan, FindsTheFaultsThatItIsAskedFor) {
  std::vector<MemoryItem> items = {{"a", 512, 0, 2}, {"b", 512, 2, 3}};
  MemoryPlan plan;
  plan.buffer_bytes = {1024};
  plan.slots = {{0, 0}, {0, 256}};
  EXPECT_NE(FindMemoryPlanFault(items, {.alignment = 256}, {}, plan).find("overlap"), std::string::npos);
  plan.slots = {{0, 0}, {0, 100}};
  EXPECT_NE(FindMemoryPlanFault(items, {.alignment = 256}, {}, plan).find("multiple of 256"), std::string::npos);
  plan.slots = {{0, 0}, {0, 768}};
  EXPECT_NE(FindMemoryPlanFault(items, {.alignment = 256}, {}, plan).find("beyond"), std::string::npos);
  plan.slots = {{0, 0}, {0, 512}};
  EXPECT_EQ(FindMemoryPlanFault(items, {.alignment = 256}, {}, plan), "");
  EXPECT_NE(FindMemoryPlanFault(items, {.alignment = 256}, {{0, 1}}, plan).find("share a buffer"), std::string::npos);
}

TEST(MemoryPlan, DrawsEveryItem) {
  std::vector<MemoryItem> items = {{"a<b", 512, 0, 2}, {"c", 512, 2, 3}};
  auto plan = PlanMemory(items, {});
  ASSERT_TRUE(plan.ok());
  const std::string svg = MemoryPlanSvg(items, *plan);
  EXPECT_NE(svg.find("a&lt;b: 512 bytes"), std::string::npos);
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
  EXPECT_NE(svg.find(">c: 512 bytes"), std::string::npos);
  EXPECT_NE(MemoryPlanText(items, *plan).find("steps 2..3  c"), std::string::npos);
}

}  // namespace
}  // namespace leeway
