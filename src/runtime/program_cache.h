// Compiled programs on disk, shared among processes: one file an entry, written under another name and renamed, so that a
// reader never sees half of one. Bounded: the entries that were not used for the longest time go first. A damaged entry is
// dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leeway {

class ProgramCache {
 public:
  // `folder` is made when the first entry is stored; empty: nothing is kept. A cache that cannot be read or written is empty,
  // never an error.
  explicit ProgramCache(std::string folder, uint64_t max_bytes = uint64_t(256) << 20);

  // $XDG_CACHE_HOME/leeway or ~/.cache/leeway; empty where neither variable is set.
  static std::string DefaultFolder();

  // The bytes stored under the key by any process. `key` is everything that the bytes depend on: text, device, driver.
  std::optional<std::vector<std::byte>> Load(std::string_view key);
  void Store(std::string_view key, std::span<const std::byte> bytes);
  void Drop(std::string_view key);
  // Removes the oldest entries until the folder is within its bound. Called by Store now and then; cheap to call again.
  void Evict();

  const std::string& folder() const { return folder_; }

 private:
  std::string PathOf(std::string_view key) const;

  std::string folder_;
  uint64_t max_bytes_ = 0;
  uint64_t stored_bytes_ = 0;  // since the last look at the whole folder
};

}  // namespace leeway
