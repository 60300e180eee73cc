// From the spelling of a token to its id, and from a pair of tokens to what they merge into: flat hash tables that are built in
// one go (a vocabulary of 262144 tokens in some ten milliseconds) and then only read.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "llm/tokenizer_data.h"

namespace leeway::llm {

class TokenTable {
 public:
  TokenTable() = default;
  // `tokens` must outlive the table. Of equal spellings the lowest id is found. Only ids for which `is_taken` is true.
  template <class IsTaken>
  TokenTable(const std::vector<std::string_view>& tokens, IsTaken is_taken) : tokens_(&tokens) {
    slots_.resize(std::bit_ceil(tokens.size() * 2 + 2));
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (!is_taken(TokenId(id))) continue;
      max_size_ = std::max(max_size_, tokens[id].size());
      Slot* slot = Seek(HashOf(tokens[id]), tokens[id]);
      if (slot->id == kNoToken) *slot = {uint32_t(HashOf(tokens[id]) >> 32), TokenId(id)};
    }
  }

  TokenId Find(std::string_view spelling) const {
    if (spelling.size() > max_size_ || slots_.empty()) return kNoToken;
    return const_cast<TokenTable*>(this)->Seek(HashOf(spelling), spelling)->id;
  }
  // The length of the longest spelling.
  size_t max_size_bytes() const { return max_size_; }

 private:
  struct Slot {
    uint32_t hash = 0;  // the upper half, to look at few spellings
    TokenId id = kNoToken;
  };
  static uint64_t HashOf(std::string_view text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
    hash ^= hash >> 29;
    return hash * 0x9E3779B97F4A7C15;
  }
  Slot* Seek(uint64_t hash, std::string_view spelling) {
    const size_t mask = slots_.size() - 1;
    for (size_t i = size_t(hash >> 20) & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.id == kNoToken || (slot.hash == uint32_t(hash >> 32) && (*tokens_)[size_t(slot.id)] == spelling)) return &slot;
    }
  }

  const std::vector<std::string_view>* tokens_ = nullptr;
  std::vector<Slot> slots_;
  size_t max_size_ = 0;
};

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = 0;
    TokenId id = kNoToken;  // kNoToken: the two don't merge
  };
  MergeTable() = default;
  explicit MergeTable(size_t merge_count) : slots_(std::bit_ceil(merge_count * 2 + 2)) {}
  // The first merge of a pair stays. At most as many as the constructor was told.
  void Add(TokenId left, TokenId right, Merge merge) {
    Slot* slot = Seek(KeyOf(left, right));
    if (slot->merge.id == kNoToken) *slot = {KeyOf(left, right), merge};
  }
  Merge Find(TokenId left, TokenId right) const {
    if (left < 0 || right < 0 || slots_.empty()) return {};
    return const_cast<MergeTable*>(this)->Seek(KeyOf(left, right))->merge;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge;
  };
  static uint64_t KeyOf(TokenId left, TokenId right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
  Slot* Seek(uint64_t key) {
    const size_t mask = slots_.size() - 1;
    uint64_t hash = key * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
    for (size_t i = size_t(hash) & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.merge.id == kNoToken || slot.key == key) return &slot;
    }
  }
  std::vector<Slot> slots_;
};

}  // namespace leeway::llm
