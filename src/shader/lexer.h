// Words of a kernel text. Comments and spaces vanish; every word keeps its position.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "shader/ast.h"

namespace leeway::shader {

// Punctuation is compared as a number: its characters, first one lowest.
constexpr uint32_t Punct(const char* text) {
  uint32_t code = 0;
  for (int i = 0; text[i]; ++i) code |= uint32_t(uint8_t(text[i])) << (8 * i);
  return code;
}

struct Token {
  enum class Kind : uint8_t { kEnd, kName, kNumber, kPunct };
  Kind kind = Kind::kEnd;
  // kPunct: `>` always stands alone, so that `array<vec4<f32>>` needs no second look; the parser joins `>=` and `>>`.
  bool joined = false;                   // nothing between this word and the next one
  Scalar scalar = Scalar::kAbstractInt;  // kNumber: by its suffix
  uint32_t punct = 0;
  Location at;
  std::string_view text;  // into the kernel text
  Literal literal;        // kNumber
};

// The last token is kEnd. An error begins with "NAME.kernel:LINE:COL: ".
Result<std::vector<Token>> Lex(std::string_view text, std::string_view name);

// True for words that WGSL keeps for itself or for later, which no declaration may take as its name.
bool IsReservedWord(std::string_view word);

// "NAME.kernel:LINE:COL: MESSAGE".
Error KernelError(std::string_view name, Location at, std::string_view message);

}  // namespace leeway::shader
