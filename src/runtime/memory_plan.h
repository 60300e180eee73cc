// Where tensors lie in shared buffers: items with lifetimes get a buffer and an offset, so that no two items that are alive at
// the same time overlap. Several orders of placing are tried and the smallest result wins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace leeway {

struct MemoryItem {
  std::string name;
  int64_t size_bytes = 0;
  int first = 0, last = 0;  // steps during which it is alive, both included
  bool at_start = false;    // must lie at offset 0 of its buffer
};

// Of offsets and sizes in buffers: a multiple of what every known device asks (WebGPU 256, NVIDIA's OpenCL 512).
inline constexpr int64_t kOffsetAlignment = 512;

struct MemoryRules {
  int64_t alignment = kOffsetAlignment;
  int64_t max_buffer_bytes = int64_t(1) << 62;
  bool reuse = true;  // false: every item has bytes of its own
};

// Pairs of items that must not lie in the same buffer even where they do not overlap. (A WebGPU dispatch must not write a
// buffer that it reads through another binding.)
using MemoryConflicts = std::vector<std::pair<int, int>>;

struct MemorySlot {
  int buffer = 0;
  int64_t offset_bytes = 0;
};

struct MemoryPlan {
  std::vector<MemorySlot> slots;  // one per item
  std::vector<int64_t> buffer_bytes;
  std::string strategy;             // the order that won
  int64_t total_bytes = 0;          // of the buffers
  int64_t without_reuse_bytes = 0;  // sum of the items
  int64_t lower_bound_bytes = 0;    // the greatest sum alive in one step
};

// An error where one item is larger than a buffer may be.
Result<MemoryPlan> PlanMemory(std::span<const MemoryItem> items, const MemoryRules& rules,
                              const MemoryConflicts& conflicts = {});

// A sentence for the first pair of items that overlap in time and place, or for a broken rule; empty: the plan is sound.
std::string FindMemoryPlanFault(std::span<const MemoryItem> items, const MemoryRules& rules, const MemoryConflicts& conflicts,
                                const MemoryPlan& plan);

// The plan as a drawing: steps to the right, addresses upwards, one box an item.
std::string MemoryPlanSvg(std::span<const MemoryItem> items, const MemoryPlan& plan);
std::string MemoryPlanText(std::span<const MemoryItem> items, const MemoryPlan& plan);

}  // namespace leeway
