// The settings of the operator `sample` as it reads them.
#pragma once

#include <array>
#include <cstdint>

namespace leeway {

inline constexpr int64_t kSamplerElements = 16;

struct SamplerSettings {
  double temperature = 0;     // 0: always the most likely token
  int64_t top_k = 0;          // 0: all
  double top_p = 1;           // 1 or more: all
  double min_p = 0;           // 0: all
  double repeat_penalty = 1;  // 1: none
  int64_t repeat_window = 64;
  uint64_t seed = 0;
  bool operator==(const SamplerSettings&) const = default;
};

// Numbers 0 to 5 are the settings in this order, 6 to 9 the seed in pieces of 16 bits, the lowest first: as bits of a float
// they would be at the mercy of devices that flush small numbers to zero. The rest is 0.
std::array<float, kSamplerElements> SamplerValues(const SamplerSettings& settings);

}  // namespace leeway
