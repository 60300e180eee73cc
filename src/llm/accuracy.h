// Texts for measuring accuracy.
#pragma once

#include <span>
#include <string_view>

namespace leeway::llm {

// Passages of different kinds, about a thousand tokens together: what CompareDecoding (leeway/llm.h) is given where a user
// names no text.
std::span<const std::string_view> GatePassages();

}  // namespace leeway::llm
