// The longest of a set of tokens that stands at a place of a text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "llm/tokenizer_data.h"

namespace leeway::llm {

class TokenTrie {
 public:
  TokenTrie() { roots_.fill(kNone); }

  // Of equal spellings the first stays. Empty ones are left out.
  void Add(std::string_view spelling, TokenId id) {
    if (spelling.empty()) return;
    uint32_t* link = &roots_[uint8_t(spelling[0])];
    for (size_t i = 0;; ++i) {
      while (*link != kNone && nodes_[*link].byte != uint8_t(spelling[i])) link = &nodes_[*link].sibling;
      uint32_t node = *link;
      if (node == kNone) {
        *link = node = uint32_t(nodes_.size());  // before push_back, which moves what link points at
        nodes_.push_back({kNone, kNone, kNoToken, uint8_t(spelling[i])});
      }
      if (i + 1 == spelling.size()) {
        if (nodes_[node].id == kNoToken) nodes_[node].id = id;
        return;
      }
      link = &nodes_[node].child;
    }
  }

  // Calls found(id, size_bytes) for each token that stands at text[at], the shortest first.
  template <class Found>
  void ForEachAt(std::string_view text, size_t at, const Found& found) const {
    uint32_t node = roots_[uint8_t(text[at])];
    for (size_t i = at; node != kNone;) {
      if (nodes_[node].id != kNoToken) found(nodes_[node].id, i + 1 - at);
      if (++i >= text.size()) return;
      node = nodes_[node].child;
      while (node != kNone && nodes_[node].byte != uint8_t(text[i])) node = nodes_[node].sibling;
    }
  }

  // The token with exactly this spelling.
  TokenId Find(std::string_view spelling) const {
    TokenId exact = kNoToken;
    if (spelling.empty()) return exact;
    ForEachAt(spelling, 0, [&](TokenId id, size_t size) {
      if (size == spelling.size()) exact = id;
    });
    return exact;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint32_t child, sibling;
    TokenId id;
    uint8_t byte;
  };
  std::array<uint32_t, 256> roots_;
  std::vector<Node> nodes_;
};

}  // namespace leeway::llm
