#include "runtime/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/strings.h"

namespace leeway {
namespace {

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

bool AliveTogether(const MemoryItem& a, const MemoryItem& b) { return a.first <= b.last && b.first <= a.last; }

struct Placer {
  std::span<const MemoryItem> items;
  const MemoryRules& rules;
  const std::vector<std::vector<int>>& rivals;  // by item: those that it may not share a buffer with

  std::vector<MemorySlot> slots = {};
  std::vector<std::vector<int>> buffer_items = {};  // by offset
  std::vector<int64_t> buffer_bytes = {};

  int64_t SizeOf(int item) const { return RoundUp(std::max<int64_t>(items[size_t(item)].size_bytes, 1), rules.alignment); }

  // The tightest gap among the items alive at the same time; beyond them all if there is none.
  int64_t OffsetIn(int buffer, int item, int64_t* gap_bytes) const {
    int64_t end = 0, best = -1;
    *gap_bytes = int64_t(1) << 62;
    for (int other : buffer_items[size_t(buffer)]) {
      if (rules.reuse && !AliveTogether(items[size_t(item)], items[size_t(other)])) continue;
      const int64_t start = slots[size_t(other)].offset_bytes;
      if (const int64_t gap = start - end; gap >= SizeOf(item) && gap < *gap_bytes) {
        best = end;
        *gap_bytes = gap;
      }
      end = std::max(end, start + SizeOf(other));
    }
    return best >= 0 ? best : end;
  }

  void Place(int item) {
    const int64_t size = SizeOf(item);
    int best_buffer = -1;
    int64_t best_offset = 0, best_growth = 0, best_gap = 0;
    for (int buffer = 0; buffer < int(buffer_bytes.size()); ++buffer) {
      bool rival = false;
      for (int other : rivals[size_t(item)]) rival |= slots[size_t(other)].buffer == buffer;
      if (rival) continue;
      int64_t gap = 0;
      const int64_t offset = OffsetIn(buffer, item, &gap);
      if (offset + size > rules.max_buffer_bytes || (items[size_t(item)].at_start && offset > 0)) continue;
      const int64_t growth = std::max<int64_t>(0, offset + size - buffer_bytes[size_t(buffer)]);
      if (best_buffer < 0 || growth < best_growth || (growth == best_growth && gap < best_gap)) {
        best_buffer = buffer;
        best_offset = offset;
        best_growth = growth;
        best_gap = gap;
      }
    }
    if (best_buffer < 0) {
      best_buffer = int(buffer_bytes.size());
      buffer_bytes.push_back(0);
      buffer_items.emplace_back();
    }
    slots[size_t(item)] = {best_buffer, best_offset};
    auto& bytes = buffer_bytes[size_t(best_buffer)];
    bytes = std::max(bytes, best_offset + size);
    auto& list = buffer_items[size_t(best_buffer)];
    list.insert(std::upper_bound(list.begin(), list.end(), best_offset,
                                 [&](int64_t offset, int other) { return offset < slots[size_t(other)].offset_bytes; }),
                item);
  }
};

// The greatest sum of sizes alive in one step, and that sum for each item's steps (its breadth).
int64_t LowerBound(std::span<const MemoryItem> items, int64_t alignment, std::vector<int64_t>* breadth) {
  int last = 0;
  for (const auto& item : items) last = std::max(last, item.last);
  std::vector<int64_t> alive(size_t(last) + 2, 0);
  for (const auto& item : items) {
    const int64_t size = RoundUp(std::max<int64_t>(item.size_bytes, 1), alignment);
    alive[size_t(std::max(item.first, 0))] += size;
    alive[size_t(item.last) + 1] -= size;
  }
  for (size_t step = 1; step < alive.size(); ++step) alive[step] += alive[step - 1];
  breadth->assign(items.size(), 0);
  for (size_t i = 0; i < items.size(); ++i) {
    for (int step = std::max(items[i].first, 0); step <= items[i].last; ++step) {
      (*breadth)[i] = std::max((*breadth)[i], alive[size_t(step)]);
    }
  }
  return *std::max_element(alive.begin(), alive.end());
}

}  // namespace

Result<MemoryPlan> PlanMemory(std::span<const MemoryItem> items, const MemoryRules& rules, const MemoryConflicts& conflicts) {
  MemoryPlan best;
  if (items.empty()) {
    best.strategy = "empty";
    return best;
  }
  for (const auto& item : items) {
    CHECK(item.first <= item.last);
    if (RoundUp(item.size_bytes, rules.alignment) > rules.max_buffer_bytes) {
      return Error{Code::kUnsupported,
                   StrCat("Tensor ", item.name, " needs ", item.size_bytes,
                          " bytes, more than the greatest buffer of the device (", rules.max_buffer_bytes, ").")};
    }
  }
  std::vector<std::vector<int>> rivals(items.size());
  for (auto [a, b] : conflicts) {
    CHECK(a != b);
    rivals[size_t(a)].push_back(b);
    rivals[size_t(b)].push_back(a);
  }
  std::vector<int64_t> breadth;
  const int64_t lower_bound = LowerBound(items, rules.alignment, &breadth);

  std::vector<int> by_size(items.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](int a, int b) {
    if (items[size_t(a)].size_bytes != items[size_t(b)].size_bytes)
      return items[size_t(a)].size_bytes > items[size_t(b)].size_bytes;
    return items[size_t(a)].first < items[size_t(b)].first;
  });
  auto by_breadth = by_size;  // what is alive in the fullest step comes first
  std::stable_sort(by_breadth.begin(), by_breadth.end(), [&](int a, int b) { return breadth[size_t(a)] > breadth[size_t(b)]; });
  auto by_start = by_size;
  std::stable_sort(by_start.begin(), by_start.end(),
                   [&](int a, int b) { return items[size_t(a)].first < items[size_t(b)].first; });
  auto by_duration = by_size;
  std::stable_sort(by_duration.begin(), by_duration.end(), [&](int a, int b) {
    return items[size_t(a)].last - items[size_t(a)].first > items[size_t(b)].last - items[size_t(b)].first;
  });

  const std::pair<const char*, const std::vector<int>*> strategies[] = {{"greedy by size", &by_size},
                                                                        {"greedy by breadth", &by_breadth},
                                                                        {"best fit in order", &by_start},
                                                                        {"longest first", &by_duration}};
  for (const auto& [name, order] : strategies) {
    Placer placer{.items = items, .rules = rules, .rivals = rivals};
    placer.slots.assign(items.size(), MemorySlot{-1, 0});
    for (int item : *order) placer.Place(item);
    const int64_t total = std::accumulate(placer.buffer_bytes.begin(), placer.buffer_bytes.end(), int64_t(0));
    if (best.slots.empty() || total < best.total_bytes) {
      best.slots = std::move(placer.slots);
      best.buffer_bytes = std::move(placer.buffer_bytes);
      best.strategy = name;
      best.total_bytes = total;
    }
  }
  best.lower_bound_bytes = lower_bound;
  for (size_t i = 0; i < items.size(); ++i) {
    best.without_reuse_bytes += RoundUp(std::max<int64_t>(items[i].size_bytes, 1), rules.alignment);
  }
  return best;
}

std::string FindMemoryPlanFault(std::span<const MemoryItem> items, const MemoryRules& rules, const MemoryConflicts& conflicts,
                                const MemoryPlan& plan) {
  if (plan.slots.size() != items.size()) return StrCat(plan.slots.size(), " slots for ", items.size(), " items");
  for (size_t i = 0; i < items.size(); ++i) {
    const MemorySlot& slot = plan.slots[i];
    if (slot.buffer < 0 || slot.buffer >= int(plan.buffer_bytes.size())) return StrCat(items[i].name, " has no buffer");
    if (slot.offset_bytes < 0 || slot.offset_bytes % rules.alignment != 0) {
      return StrCat(items[i].name, " lies at offset ", slot.offset_bytes, ", not a multiple of ", rules.alignment);
    }
    if (items[i].at_start && slot.offset_bytes != 0) return StrCat(items[i].name, " does not lie at the start of its buffer");
    const int64_t buffer_bytes = plan.buffer_bytes[size_t(slot.buffer)];
    if (slot.offset_bytes + items[i].size_bytes > buffer_bytes || buffer_bytes > rules.max_buffer_bytes) {
      return StrCat(items[i].name, " ends beyond its buffer of ", buffer_bytes, " bytes");
    }
    for (size_t j = 0; j < i; ++j) {
      const MemorySlot& other = plan.slots[j];
      const bool together = !rules.reuse || AliveTogether(items[i], items[j]);
      if (together && slot.buffer == other.buffer && slot.offset_bytes < other.offset_bytes + items[j].size_bytes &&
          other.offset_bytes < slot.offset_bytes + items[i].size_bytes) {
        return StrCat(items[i].name, " and ", items[j].name, " overlap in time and place");
      }
    }
  }
  for (auto [a, b] : conflicts) {
    if (plan.slots[size_t(a)].buffer == plan.slots[size_t(b)].buffer) {
      return StrCat(items[size_t(a)].name, " and ", items[size_t(b)].name, " share a buffer and must not");
    }
  }
  return "";
}

namespace {

std::string XmlEscape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string Fixed(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

}  // namespace

std::string MemoryPlanSvg(std::span<const MemoryItem> items, const MemoryPlan& plan) {
  constexpr double kWidth = 1200, kHeight = 700, kLeft = 90, kTop = 50, kGap = 8;
  int steps = 1;
  for (const auto& item : items) steps = std::max(steps, item.last + 1);
  const double step_width = kWidth / steps;
  const double scale = plan.total_bytes > 0 ? kHeight / double(plan.total_bytes) : 0;
  std::vector<double> buffer_bottom;  // y of offset 0
  double y = kTop;
  for (int64_t bytes : plan.buffer_bytes) {
    y += double(bytes) * scale;
    buffer_bottom.push_back(y);
    y += kGap;
  }
  std::string out = StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", Fixed(kWidth + kLeft + 20), "\" height=\"",
                           Fixed(y + 30), "\" font-family=\"sans-serif\" font-size=\"11\">\n");
  out += StrCat("<text x=\"10\" y=\"20\" font-size=\"14\">", plan.total_bytes, " bytes in ", plan.buffer_bytes.size(),
                " buffers (", plan.strategy, "); without reuse ", plan.without_reuse_bytes, ", at least ",
                plan.lower_bound_bytes, "</text>\n");
  out += StrCat("<text x=\"10\" y=\"38\">steps to the right, addresses upwards</text>\n");
  for (size_t b = 0; b < plan.buffer_bytes.size(); ++b) {
    const double height = double(plan.buffer_bytes[b]) * scale;
    out += StrCat("<rect x=\"", Fixed(kLeft), "\" y=\"", Fixed(buffer_bottom[b] - height), "\" width=\"", Fixed(kWidth),
                  "\" height=\"", Fixed(height), "\" fill=\"#f2f2f2\"/>\n");
    out += StrCat("<text x=\"5\" y=\"", Fixed(buffer_bottom[b] - height / 2), "\">buffer ", b, "</text>\n");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const MemorySlot& slot = plan.slots[i];
    const double x = kLeft + items[i].first * step_width, width = (items[i].last - items[i].first + 1) * step_width;
    const double height = double(items[i].size_bytes) * scale;
    const double top = buffer_bottom[size_t(slot.buffer)] - double(slot.offset_bytes) * scale - height;
    out += StrCat("<g><title>", XmlEscape(items[i].name), ": ", items[i].size_bytes, " bytes at ", slot.offset_bytes,
                  ", steps ", items[i].first, " to ", items[i].last, "</title><rect x=\"", Fixed(x), "\" y=\"", Fixed(top),
                  "\" width=\"", Fixed(width), "\" height=\"", Fixed(height), "\" fill=\"hsl(", (i * 137) % 360,
                  ",55%,70%)\" stroke=\"#333\" stroke-width=\"0.5\"/>");
    if (height > 12 && width > 40) {
      const std::string label = items[i].name.substr(0, size_t(width / 7));
      out += StrCat("<text x=\"", Fixed(x + 3), "\" y=\"", Fixed(top + height / 2 + 4), "\">", XmlEscape(label), "</text>");
    }
    out += "</g>\n";
  }
  return out + "</svg>\n";
}

std::string MemoryPlanText(std::span<const MemoryItem> items, const MemoryPlan& plan) {
  std::string out = StrCat(plan.total_bytes, " bytes in ", plan.buffer_bytes.size(), " buffers (", plan.strategy,
                           "); without reuse ", plan.without_reuse_bytes, ", at least ", plan.lower_bound_bytes, "\n");
  for (size_t i = 0; i < items.size(); ++i) {
    const MemorySlot& slot = plan.slots[i];
    out += StrCat("  buffer ", slot.buffer, " + ", slot.offset_bytes, "  ", items[i].size_bytes, " bytes  steps ",
                  items[i].first, "..", items[i].last, "  ", items[i].name, "\n");
  }
  return out;
}

}  // namespace leeway
