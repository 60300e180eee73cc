// Cuts a template into text and the tokens of its tags. White space around tags is treated as chat templates expect: the line
// end after a {% %} tag and the spaces before one that begins a line are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace leeway::llm::jinja {

struct Token {
  enum class Kind { kText, kPrintBegin, kPrintEnd, kTagBegin, kTagEnd, kName, kString, kInteger, kFloat, kOperator, kEnd };
  Kind kind;
  int line;
  std::string text;  // of a string: without quotes and escapes
};

// The last token is kEnd. kInvalidModel with the line for what can't be cut.
Result<std::vector<Token>> Lex(std::string_view source);

// "Line 3 of the chat template, {% if %}: The tag ..." Code kInvalidModel.
Error ErrorAt(int line, std::string_view construct, std::string_view message);

}  // namespace leeway::llm::jinja
