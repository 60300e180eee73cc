// Small helpers for text: messages are put together with StrCat, lists with Join.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

namespace leeway {

namespace internal {
inline void Append(std::string& out, std::string_view text) { out += text; }
inline void Append(std::string& out, const char* text) { out += text; }
inline void Append(std::string& out, char c) { out += c; }
inline void Append(std::string& out, bool b) { out += b ? "true" : "false"; }
template <class T>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>) void Append(std::string& out,
                                                                                                      T number) {
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, number).ptr;  // shortest text that reads back as the same number
  out.append(text, end);
}
}  // namespace internal

template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::string out;
  (internal::Append(out, parts), ...);
  return out;
}

template <class Range>
std::string Join(const Range& range, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& item : range) {
    if (!first) out += separator;
    first = false;
    internal::Append(out, item);
  }
  return out;
}

}  // namespace leeway
