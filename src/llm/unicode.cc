#include "llm/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>

namespace leeway::llm {
namespace {

// How a character may go on after its first byte: Unicode's table of well-formed byte sequences.
struct Lead {
  uint8_t continuation_bytes, low, high;  // bounds of the first continuation byte; the later ones are 80..BF
};
constexpr Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

bool IsWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

CharacterClass SlowClassOf(uint32_t c) {
  if (IsWhiteSpace(c)) return CharacterClass::kSpace;
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharacterClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharacterClass::kNumber;
    default: return CharacterClass::kOther;
  }
}

constexpr std::array<CharacterClass, 128> MakeAsciiClasses() {
  std::array<CharacterClass, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    classes[size_t(c)] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? CharacterClass::kLetter
                         : c >= '0' && c <= '9'                           ? CharacterClass::kNumber
                         : c == ' ' || (c >= 9 && c <= 13)                ? CharacterClass::kSpace
                                                                          : CharacterClass::kOther;
  }
  return classes;
}
constexpr std::array<CharacterClass, 128> kAsciiClasses = MakeAsciiClasses();

}  // namespace

Character ReadCharacter(std::string_view text, size_t at) {
  const uint8_t first = uint8_t(text[at]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = LeadOf(first);
  if (lead.continuation_bytes == 0) return {0xFFFD, 1, false};
  uint32_t value = first & (0x3Fu >> lead.continuation_bytes);
  for (uint32_t i = 1; i <= lead.continuation_bytes; ++i) {
    const uint8_t byte = at + i < text.size() ? uint8_t(text[at + i]) : 0;
    if (byte < (i == 1 ? lead.low : 0x80) || byte > (i == 1 ? lead.high : 0xBF)) return {0xFFFD, i, false};
    value = value << 6 | (byte & 0x3Fu);
  }
  return {value, lead.continuation_bytes + 1u, true};
}

void AppendCharacter(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text += char(c);
  } else if (c < 0x800) {
    text += char(0xC0 | c >> 6);
    text += char(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    text += char(0xE0 | c >> 12);
    text += char(0x80 | (c >> 6 & 0x3F));
    text += char(0x80 | (c & 0x3F));
  } else {
    text += char(0xF0 | c >> 18);
    text += char(0x80 | (c >> 12 & 0x3F));
    text += char(0x80 | (c >> 6 & 0x3F));
    text += char(0x80 | (c & 0x3F));
  }
}

bool IsBeginningOfCharacter(std::string_view bytes) {
  const Character c = ReadCharacter(bytes, 0);
  return !c.is_valid && c.size_bytes == bytes.size() && LeadOf(uint8_t(bytes[0])).continuation_bytes > 0;
}

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = ReadCharacter(text, at);
    valid += c.is_valid ? text.substr(at, c.size_bytes) : kReplacement;
    at += c.size_bytes;
  }
  return valid;
}

CharacterClass ClassOf(uint32_t c) { return c < 128 ? kAsciiClasses[c] : SlowClassOf(c); }
bool IsUpper(uint32_t c) { return utf8proc_category(utf8proc_int32_t(c)) == UTF8PROC_CATEGORY_LU; }
bool IsLower(uint32_t c) { return utf8proc_category(utf8proc_int32_t(c)) == UTF8PROC_CATEGORY_LL; }
uint32_t ToUpper(uint32_t c) { return uint32_t(utf8proc_toupper(utf8proc_int32_t(c))); }
uint32_t ToLower(uint32_t c) { return uint32_t(utf8proc_tolower(utf8proc_int32_t(c))); }

std::string ToNfc(std::string_view text) {
  std::string normal;
  for (size_t at = 0; at < text.size();) {
    // A stretch of valid text, then what is none.
    size_t end = at;
    Character c{};
    bool is_ascii = true;
    while (end < text.size() && (c = ReadCharacter(text, end)).is_valid) {
      is_ascii = is_ascii && c.value < 0x80;
      end += c.size_bytes;
    }
    const std::string_view stretch = text.substr(at, end - at);
    utf8proc_uint8_t* mapped = nullptr;
    utf8proc_ssize_t size = -1;
    if (!is_ascii) {
      size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(stretch.data()), utf8proc_ssize_t(stretch.size()), &mapped,
                          utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    }
    normal += size >= 0 ? std::string_view(reinterpret_cast<const char*>(mapped), size_t(size)) : stretch;
    std::free(mapped);
    at = end;
    if (at < text.size()) {
      normal += text.substr(at, c.size_bytes);
      at += c.size_bytes;
    }
  }
  return normal;
}

}  // namespace leeway::llm
