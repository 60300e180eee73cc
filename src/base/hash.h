// A 64-bit hash of bytes that is the same on every machine (FNV-1a with a final mix). For keys of caches, not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace leeway {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325ull;

inline uint64_t HashBytes(std::span<const std::byte> bytes, uint64_t seed = kHashSeed) {
  uint64_t h = seed;
  for (std::byte b : bytes) h = (h ^ static_cast<uint8_t>(b)) * 0x100000001b3ull;
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15ull;
  return h ^ (h >> 29);
}
inline uint64_t HashText(std::string_view text, uint64_t seed = kHashSeed) {
  return HashBytes(std::as_bytes(std::span(text.data(), text.size())), seed);
}

}  // namespace leeway
