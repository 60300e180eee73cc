#include "llm/jinja/lexer.h"

#include "base/strings.h"
#include "llm/unicode.h"

namespace leeway::llm::jinja {
namespace {

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    // Line ends become LF, and the last one is left out.
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        source_ += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        source_ += source[i];
      }
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      size_t begin = at_;
      while (begin < source_.size() &&
             !(source_[begin] == '{' && begin + 1 < source_.size() && IsTagLetter(source_[begin + 1]))) {
        ++begin;
      }
      std::string_view text = std::string_view(source_).substr(at_, begin - at_);
      if (begin == source_.size()) {
        AddText(text);
        break;
      }
      const char letter = source_[begin + 1];
      const char sign = begin + 2 < source_.size() ? source_[begin + 2] : char(0);
      const bool has_sign = sign == '-' || sign == '+';
      if (sign == '-') {
        while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
      } else if (sign != '+' && letter != '{') {
        const size_t line_begin = text.rfind('\n') + 1;  // 0 without a line end
        if ((line_begin > 0 || at_line_start_) && text.find_first_not_of(" \t\v\f", line_begin) == text.npos) {
          text = text.substr(0, line_begin);
        }
      }
      AddText(text);
      CountLines(at_, begin);
      at_ = begin + 2 + (has_sign ? 1 : 0);
      if (letter == '#') {
        RETURN_IF_ERROR(Comment());
      } else if (letter == '%' && StartsRaw()) {
        RETURN_IF_ERROR(Raw());
      } else {
        RETURN_IF_ERROR(Tag(letter == '{'));
      }
    }
    tokens_.push_back({Token::Kind::kEnd, line_, ""});
    return std::move(tokens_);
  }

 private:
  static bool IsTagLetter(char c) { return c == '{' || c == '%' || c == '#'; }
  void CountLines(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) line_ += source_[i] == '\n';
  }
  void AddText(std::string_view text) {
    if (!text.empty()) tokens_.push_back({Token::Kind::kText, line_, std::string(text)});
  }
  bool StandsAt(size_t at, std::string_view what) const { return std::string_view(source_).substr(at, what.size()) == what; }

  // After the closing brace of a tag. `sign`: what stood before it. Print tags keep the line end.
  void AfterTag(char sign, bool is_print) {
    const size_t begin = at_;
    if (sign == '-') {
      while (at_ < source_.size() && IsSpace(source_[at_])) ++at_;
    } else if (sign != '+' && !is_print && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    at_line_start_ = at_ > begin && source_[at_ - 1] == '\n';
    CountLines(begin, at_);
  }

  Status Comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return ErrorAt(line_, "{# #}", "The comment does not end.");
    CountLines(at_, end);
    const char sign = end > at_ ? source_[end - 1] : char(0);
    at_ = end + 2;
    AfterTag(sign, false);
    return {};
  }

  // Whether the tag that has begun is {% raw %}; goes behind it if so.
  bool StartsRaw() {
    size_t i = at_;
    while (i < source_.size() && IsSpace(source_[i])) ++i;
    if (!StandsAt(i, "raw")) return false;
    i += 3;
    while (i < source_.size() && IsSpace(source_[i])) ++i;
    const char sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : char(0);
    if (!StandsAt(i, "%}")) return false;
    CountLines(at_, i);
    at_ = i + 2;
    AfterTag(sign, false);
    return true;
  }

  Status Raw() {
    for (size_t i = at_; (i = source_.find("{%", i)) != std::string::npos; ++i) {
      size_t j = i + 2;
      const bool strips = j < source_.size() && source_[j] == '-';
      if (strips || (j < source_.size() && source_[j] == '+')) ++j;
      while (j < source_.size() && IsSpace(source_[j])) ++j;
      if (!StandsAt(j, "endraw")) continue;
      j += 6;
      while (j < source_.size() && IsSpace(source_[j])) ++j;
      const char sign = j < source_.size() && (source_[j] == '-' || source_[j] == '+') ? source_[j++] : char(0);
      if (!StandsAt(j, "%}")) continue;
      std::string_view text = std::string_view(source_).substr(at_, i - at_);
      while (strips && !text.empty() && IsSpace(text.back())) text.remove_suffix(1);
      AddText(text);
      CountLines(at_, j);
      at_ = j + 2;
      AfterTag(sign, false);
      return {};
    }
    return ErrorAt(line_, "{% raw %}", "It has no {% endraw %}.");
  }

  Status Tag(bool is_print) {
    const std::string_view construct = is_print ? "{{ }}" : "{% %}";
    const int begin_line = line_;
    tokens_.push_back({is_print ? Token::Kind::kPrintBegin : Token::Kind::kTagBegin, line_, ""});
    std::string open;  // brackets
    while (true) {
      while (at_ < source_.size() && IsSpace(source_[at_])) line_ += source_[at_++] == '\n';
      if (at_ >= source_.size()) return ErrorAt(begin_line, construct, "The tag does not end.");
      const char c = source_[at_];
      const std::string_view close = is_print ? "}}" : "%}";
      const bool has_sign = (c == '-' || c == '+') && StandsAt(at_ + 1, close);
      if (open.empty() && (has_sign || StandsAt(at_, close))) {
        at_ += has_sign ? 3 : 2;
        tokens_.push_back({is_print ? Token::Kind::kPrintEnd : Token::Kind::kTagEnd, line_, ""});
        AfterTag(has_sign ? c : char(0), is_print);
        return {};
      }
      if (IsNameStart(c)) {
        const size_t begin = at_;
        while (at_ < source_.size() && (IsNameStart(source_[at_]) || IsDigit(source_[at_]))) ++at_;
        tokens_.push_back({Token::Kind::kName, line_, source_.substr(begin, at_ - begin)});
      } else if (IsDigit(c)) {
        Number();
      } else if (c == '"' || c == '\'') {
        RETURN_IF_ERROR(String(c, construct));
      } else {
        std::string_view found;
        for (const std::string_view op : kOperators) {
          if (found.empty() && StandsAt(at_, op)) found = op;
        }
        if (found.empty()) {
          return ErrorAt(line_, construct,
                         StrCat("The character \"", source_.substr(at_, ReadCharacter(source_, at_).size_bytes),
                                "\" has no meaning here."));
        }
        if (found == "(" || found == "[" || found == "{") open += found;
        if (found == ")" || found == "]" || found == "}") {
          const char expected = found == ")" ? '(' : found == "]" ? '[' : '{';
          if (open.empty() || open.back() != expected)
            return ErrorAt(line_, construct, StrCat("The bracket \"", found, "\" closes none."));
          open.pop_back();
        }
        tokens_.push_back({Token::Kind::kOperator, line_, std::string(found)});
        at_ += found.size();
      }
    }
  }

  void Number() {
    std::string text;
    auto digits = [&] {
      while (at_ < source_.size() && (IsDigit(source_[at_]) || (source_[at_] == '_' && !text.empty()))) {
        if (source_[at_] != '_') text += source_[at_];
        ++at_;
      }
    };
    digits();
    bool is_float = false;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && IsDigit(source_[at_ + 1])) {
      is_float = true;
      text += source_[at_++];
      digits();
    }
    if (at_ + 1 < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      const bool has_sign = source_[at_ + 1] == '-' || source_[at_ + 1] == '+';
      if (at_ + (has_sign ? 2 : 1) < source_.size() && IsDigit(source_[at_ + (has_sign ? 2 : 1)])) {
        is_float = true;
        text += 'e';
        ++at_;
        if (has_sign) text += source_[at_++];
        digits();
      }
    }
    tokens_.push_back({is_float ? Token::Kind::kFloat : Token::Kind::kInteger, line_, text});
  }

  Status String(char quote, std::string_view construct) {
    const int begin_line = line_;
    std::string text;
    for (++at_; at_ < source_.size(); ++at_) {
      char c = source_[at_];
      if (c == quote) {
        ++at_;
        tokens_.push_back({Token::Kind::kString, begin_line, text});
        return {};
      }
      line_ += c == '\n';
      if (c != '\\' || at_ + 1 >= source_.size()) {
        text += c;
        continue;
      }
      c = source_[++at_];
      switch (c) {
        case 'n': text += '\n'; break;
        case 't': text += '\t'; break;
        case 'r': text += '\r'; break;
        case 'b': text += '\b'; break;
        case 'f': text += '\f'; break;
        case 'v': text += '\v'; break;
        case 'a': text += '\a'; break;
        case '0': text += '\0'; break;
        case '\\':
        case '\'':
        case '"': text += c; break;
        case '\n': ++line_; break;
        case 'x':
        case 'u':
        case 'U': {
          const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
          uint32_t value = 0;
          bool is_valid = at_ + count < source_.size();
          for (size_t i = 1; is_valid && i <= count; ++i) {
            const char h = source_[at_ + i];
            const int digit = IsDigit(h)             ? h - '0'
                              : h >= 'a' && h <= 'f' ? h - 'a' + 10
                              : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                                     : -1;
            is_valid = digit >= 0;
            value = value << 4 | uint32_t(digit);
          }
          if (!is_valid || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
            return ErrorAt(line_, construct, StrCat("The escape \\", c, " in a text is not followed by a character's number."));
          }
          AppendCharacter(text, value);
          at_ += count;
          break;
        }
        default: text += '\\'; text += c;
      }
    }
    return ErrorAt(begin_line, construct, "The text in quotes does not end.");
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Lex(std::string_view source) { return Lexer(source).Run(); }

Error ErrorAt(int line, std::string_view construct, std::string_view message) {
  return {Code::kInvalidModel, StrCat("Line ", line, " of the chat template, ", construct, ": ", message)};
}

}  // namespace leeway::llm::jinja
