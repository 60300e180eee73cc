// Characters of UTF-8 text: reading, writing, classes. Whatever the bytes are, the results are defined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace leeway::llm {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Character {
  uint32_t value;       // U+FFFD where the bytes are no character
  uint32_t size_bytes;  // at least 1
  bool is_valid;
};
// The character that begins at text[at]; at < text.size(). Where none does: the longest beginning of one that stands there
// ("maximal subpart" in Unicode's words), at least a byte.
Character ReadCharacter(std::string_view text, size_t at);
void AppendCharacter(std::string& text, uint32_t value);

// Whether the bytes are the beginning of a character that more bytes could complete. At least one byte.
bool IsBeginningOfCharacter(std::string_view bytes);

// The text with U+FFFD in the place of each part that is no character.
std::string ToValidUtf8(std::string_view text);

enum class CharacterClass : uint8_t { kLetter, kNumber, kSpace, kOther };
// Unicode's general categories L* and N*, and White_Space.
CharacterClass ClassOf(uint32_t character);
bool IsUpper(uint32_t character);
bool IsLower(uint32_t character);
// The simple mappings, a character for a character.
uint32_t ToUpper(uint32_t character);
uint32_t ToLower(uint32_t character);

// Normalization form C. Parts that are no UTF-8 stay as they are.
std::string ToNfc(std::string_view text);

}  // namespace leeway::llm
