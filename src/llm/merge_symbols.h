// The loop that all byte-pair encodings share: neighbouring symbols merge, the best pair of the whole text first, until none
// can.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "llm/tokenizer_data.h"

namespace leeway::llm {

struct Symbol {
  uint32_t begin_bytes, size_bytes;  // in the text; size 0: merged into one to its left
  TokenId id;                        // kNoToken where the bytes are no token (yet)
  int32_t previous, next;            // neighbours, -1 at the ends
};

struct MergeCandidate {
  uint32_t order;         // the lowest is done first, of equals the leftmost
  TokenId id = kNoToken;  // what comes of it; kNoToken: nothing
};

// Memory that calls of MergeSymbols reuse.
struct MergeScratch {
  struct Entry {
    uint64_t order;  // of the pair, then its place
    int32_t left, right;
    uint32_t size_bytes;  // of both; when it differs, one of the two has changed since
    TokenId id;
  };
  std::vector<Symbol> symbols;
  std::vector<Entry> heap;
};

// Merges scratch.symbols, which must be linked in order. find(left, right) returns the MergeCandidate of two symbols. Takes
// O(n log n) for n symbols; short lists are searched for their best pair instead, which is quicker up to some thirty.
template <class Find>
void MergeSymbols(MergeScratch& scratch, const Find& find) {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<MergeScratch::Entry>& heap = scratch.heap;
  using Entry = MergeScratch::Entry;
  auto later = [](const Entry& a, const Entry& b) { return a.order > b.order; };
  auto candidate = [&](int32_t left, int32_t right) -> Entry {
    if (left < 0 || right < 0) return {0, 0, 0, 0, kNoToken};
    const MergeCandidate found = find(symbols[size_t(left)], symbols[size_t(right)]);
    return {uint64_t(found.order) << 32 | uint32_t(left), left, right,
            symbols[size_t(left)].size_bytes + symbols[size_t(right)].size_bytes, found.id};
  };
  auto merge = [&](const Entry& e) {
    Symbol& left = symbols[size_t(e.left)];
    Symbol& right = symbols[size_t(e.right)];
    left.size_bytes += right.size_bytes;
    left.id = e.id;
    left.next = right.next;
    right.size_bytes = 0;
    if (left.next >= 0) symbols[size_t(left.next)].previous = e.left;
  };

  heap.clear();
  constexpr size_t kShort = 24;
  if (symbols.size() <= kShort) {
    // heap holds the candidate of each symbol with its right neighbour, at the symbol's place.
    for (size_t i = 0; i < symbols.size(); ++i) heap.push_back(candidate(int32_t(i), symbols[i].next));
    while (true) {
      const Entry* best = nullptr;
      for (const Entry& e : heap) {
        if (e.id != kNoToken && (!best || e.order < best->order)) best = &e;
      }
      if (!best) return;
      const Entry e = *best;
      merge(e);
      heap[size_t(e.right)].id = kNoToken;
      heap[size_t(e.left)] = candidate(e.left, symbols[size_t(e.left)].next);
      if (const int32_t previous = symbols[size_t(e.left)].previous; previous >= 0) {
        heap[size_t(previous)] = candidate(previous, e.left);
      }
    }
  }

  for (size_t i = 0; i < symbols.size(); ++i) {
    if (const Entry e = candidate(int32_t(i), symbols[i].next); e.id != kNoToken) heap.push_back(e);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  auto push = [&](int32_t left, int32_t right) {
    const Entry e = candidate(left, right);
    if (e.id == kNoToken) return;
    heap.push_back(e);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    const Entry e = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const Symbol &left = symbols[size_t(e.left)], &right = symbols[size_t(e.right)];
    if (left.size_bytes == 0 || right.size_bytes == 0 || left.size_bytes + right.size_bytes != e.size_bytes) continue;
    merge(e);
    push(left.previous, e.left);
    push(e.left, left.next);
  }
}

}  // namespace leeway::llm
