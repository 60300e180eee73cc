#include "shader/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/strings.h"

namespace leeway::shader {

Error KernelError(std::string_view name, Location at, std::string_view message) {
  return Error{Code::kInvalidArgument, StrCat(name, ".kernel:", at.line, ":", at.column, ": ", message)};
}

namespace {

// Keywords and reserved words of the WGSL standard, sorted.
constexpr std::string_view kReserved[] = {
    "NULL",
    "Self",
    "abstract",
    "active",
    "alias",
    "alignas",
    "alignof",
    "as",
    "asm",
    "asm_fragment",
    "async",
    "attribute",
    "auto",
    "await",
    "become",
    "break",
    "case",
    "cast",
    "catch",
    "class",
    "co_await",
    "co_return",
    "co_yield",
    "coherent",
    "column_major",
    "common",
    "compile",
    "compile_fragment",
    "concept",
    "const",
    "const_assert",
    "const_cast",
    "consteval",
    "constexpr",
    "constinit",
    "continue",
    "continuing",
    "crate",
    "debugger",
    "decltype",
    "default",
    "delete",
    "demote",
    "demote_to_helper",
    "diagnostic",
    "discard",
    "do",
    "dynamic_cast",
    "else",
    "enable",
    "enum",
    "explicit",
    "export",
    "extends",
    "extern",
    "external",
    "fallthrough",
    "false",
    "filter",
    "final",
    "finally",
    "fn",
    "for",
    "friend",
    "from",
    "fxgroup",
    "get",
    "goto",
    "groupshared",
    "highp",
    "if",
    "impl",
    "implements",
    "import",
    "inline",
    "instanceof",
    "interface",
    "layout",
    "let",
    "loop",
    "lowp",
    "macro",
    "macro_rules",
    "match",
    "mediump",
    "meta",
    "mod",
    "module",
    "move",
    "mut",
    "mutable",
    "namespace",
    "new",
    "nil",
    "noexcept",
    "noinline",
    "nointerpolation",
    "non_coherent",
    "noncoherent",
    "noperspective",
    "null",
    "nullptr",
    "of",
    "operator",
    "override",
    "package",
    "packoffset",
    "pass",
    "patch",
    "pixelfragment",
    "precise",
    "precision",
    "premerge",
    "priv",
    "protected",
    "pub",
    "public",
    "readonly",
    "ref",
    "regardless",
    "register",
    "reinterpret_cast",
    "require",
    "requires",
    "resource",
    "restrict",
    "return",
    "self",
    "set",
    "shared",
    "sizeof",
    "smooth",
    "snorm",
    "static",
    "static_assert",
    "static_cast",
    "std",
    "struct",
    "subroutine",
    "super",
    "switch",
    "target",
    "template",
    "this",
    "thread_local",
    "throw",
    "trait",
    "true",
    "try",
    "type",
    "typedef",
    "typeid",
    "typename",
    "typeof",
    "union",
    "unless",
    "unorm",
    "unsafe",
    "unsized",
    "use",
    "using",
    "var",
    "varying",
    "virtual",
    "volatile",
    "wgsl",
    "where",
    "while",
    "with",
    "writeonly",
    "yield",
};

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<std::vector<Token>> Run() {
    tokens_.reserve(text_.size() / 4 + 8);
    while (true) {
      size_t before = at_;
      if (!SkipSpace()) return error_;
      if (at_ == before && !tokens_.empty()) tokens_.back().joined = true;
      if (at_ >= text_.size()) break;
      Token token;
      token.at = Here(at_);
      char c = text_[at_];
      size_t start = at_;
      if (IsNameStart(c)) {
        token.kind = Token::Kind::kName;
        while (at_ < text_.size() && IsNamePart(text_[at_])) ++at_;
      } else if (IsDigit(c) || (c == '.' && IsDigit(Peek(1)))) {
        token.kind = Token::Kind::kNumber;
        if (!Number(token)) return error_;
      } else if (!Punctuation(token)) {
        return error_;
      }
      token.text = text_.substr(start, at_ - start);
      tokens_.push_back(token);
    }
    Token end;
    end.at = Here(at_);
    tokens_.push_back(end);
    return std::move(tokens_);
  }

 private:
  char Peek(size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  Location Here(size_t at) const { return {line_, uint32_t(at - line_start_ - continuation_bytes_ + 1)}; }
  bool Fail(Location at, std::string message) {
    error_ = KernelError(name_, at, message);
    return false;
  }
  void NewLine() {
    ++line_;
    line_start_ = at_;
    continuation_bytes_ = 0;
  }
  // Columns count characters, so the later bytes of a UTF-8 sequence (they occur in comments) do not.
  void Advance() {
    char c = text_[at_++];
    if (c == '\n') {
      NewLine();
    } else if ((uint8_t(c) & 0xC0) == 0x80) {
      ++continuation_bytes_;
    }
  }

  bool SkipSpace() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        Advance();
      } else if (c == '/' && Peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') Advance();
      } else if (c == '/' && Peek(1) == '*') {
        Location start = Here(at_);
        int depth = 0;  // block comments nest
        do {
          if (at_ >= text_.size()) return Fail(start, "this comment has no end");
          if (text_[at_] == '/' && Peek(1) == '*') {
            ++depth;
            at_ += 2;
          } else if (text_[at_] == '*' && Peek(1) == '/') {
            --depth;
            at_ += 2;
          } else {
            Advance();
          }
        } while (depth > 0);
      } else {
        break;
      }
    }
    return true;
  }

  bool Number(Token& token) {
    size_t start = at_;
    bool is_hex = text_[at_] == '0' && (Peek(1) == 'x' || Peek(1) == 'X');
    if (is_hex) at_ += 2;
    auto is_digit = is_hex ? IsHexDigit : IsDigit;
    size_t digits_start = at_;
    bool is_float = false;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    // `v.0` is no number, but `1.` and `1.5` are; `1..` is not ours to judge.
    if (Peek(0) == '.') {
      is_float = true;
      ++at_;
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    }
    char e = Peek(0);
    if (is_hex ? (e == 'p' || e == 'P') : (e == 'e' || e == 'E')) {
      is_float = true;
      ++at_;
      if (Peek(0) == '+' || Peek(0) == '-') ++at_;
      if (!IsDigit(Peek(0))) return Fail(token.at, "the exponent of this number has no digits");
      while (IsDigit(Peek(0))) ++at_;
    } else if (is_hex && is_float) {
      return Fail(token.at, "a hexadecimal number with a point needs an exponent, as in 0x1.8p0");
    }
    std::string_view digits = text_.substr(digits_start, at_ - digits_start);
    char suffix = Peek(0);
    if (suffix == 'u' || suffix == 'i' || (!is_hex && (suffix == 'f' || suffix == 'h')) ||
        (is_hex && is_float && (suffix == 'f' || suffix == 'h'))) {
      ++at_;
    } else {
      suffix = 0;
    }
    if (IsNamePart(Peek(0))) {
      while (IsNamePart(Peek(0))) ++at_;
      return Fail(token.at, StrCat("`", text_.substr(start, at_ - start), "` is not a number"));
    }
    if (digits.empty() || digits == ".") return Fail(token.at, "this number has no digits");
    if (suffix == 'f' || suffix == 'h') is_float = true;
    if (is_float && (suffix == 'u' || suffix == 'i')) {
      return Fail(token.at, StrCat("a number with a point or an exponent cannot have the suffix ", suffix));
    }
    if (!is_float) {
      if (!is_hex && digits.size() > 1 && digits[0] == '0') return Fail(token.at, "a decimal number does not begin with 0");
      uint64_t value = 0;
      auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
      uint64_t limit = suffix == 'u' ? 0xFFFFFFFFull : suffix == 'i' ? 0x80000000ull : 0x7FFFFFFFFFFFFFFFull;
      // 2147483648i is let through here because only `-2147483648i` is in range; the checker sees the sign.
      if (end.ec != std::errc() || value > limit) {
        return Fail(token.at, StrCat("`", text_.substr(start, at_ - start), "` is too large for ",
                                     suffix == 'u'   ? "u32"
                                     : suffix == 'i' ? "i32"
                                                     : "a 64-bit integer"));
      }
      token.literal.i = int64_t(value);
      token.scalar = suffix == 'u' ? Scalar::kU32 : suffix == 'i' ? Scalar::kI32 : Scalar::kAbstractInt;
      return true;
    }
    double value = 0;
    auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                               is_hex ? std::chars_format::hex : std::chars_format::general);
    // from_chars reports numbers below the least double as out of range too; they are zero, as in WGSL.
    if (end.ec == std::errc::result_out_of_range && IsTiny(digits, is_hex))
      value = 0;
    else if (end.ec != std::errc())
      return Fail(token.at, "this number is out of the range of 64-bit floats");
    if (suffix == 'f' && std::abs(value) > 3.4028235677973366e38) return Fail(token.at, "this number is too large for f32");
    if (suffix == 'h' && std::abs(value) >= 65520) return Fail(token.at, "this number is too large for f16");
    token.literal.is_float = true;
    token.literal.f = value;
    token.scalar = suffix == 'f' ? Scalar::kF32 : suffix == 'h' ? Scalar::kF16 : Scalar::kAbstractFloat;
    return true;
  }

  static bool IsTiny(std::string_view digits, bool is_hex) {
    size_t mark = digits.find_first_of(is_hex ? "pP" : "eE");
    return mark != std::string_view::npos && mark + 1 < digits.size() && digits[mark + 1] == '-';
  }

  bool Punctuation(Token& token) {
    static constexpr std::string_view kLong[] = {
        "<<=", "->", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", "<=", "==", "!=", "&&", "||"};
    token.kind = Token::Kind::kPunct;
    std::string_view rest = text_.substr(at_);
    size_t length = 0;
    for (std::string_view p : kLong) {
      if (rest.substr(0, p.size()) == p) {
        length = p.size();
        break;
      }
    }
    if (length == 0) {
      if (std::string_view("+-*/%&|^~!=<>()[]{},;:.@").find(rest[0]) == std::string_view::npos) {
        uint8_t c = uint8_t(rest[0]);
        if (c >= 0x80) return Fail(token.at, "characters beyond ASCII are allowed in comments only");
        if (c < 0x20 || c == 0x7F) return Fail(token.at, StrCat("a control character (", int(c), ") has no meaning here"));
        return Fail(token.at, StrCat("the character `", rest[0], "` has no meaning here"));
      }
      length = 1;
    }
    for (size_t i = 0; i < length; ++i) token.punct |= uint32_t(uint8_t(rest[i])) << (8 * i);
    at_ += length;
    return true;
  }

  std::string_view text_, name_;
  size_t at_ = 0, line_start_ = 0, continuation_bytes_ = 0;
  uint32_t line_ = 1;
  std::vector<Token> tokens_;
  Error error_;
};

}  // namespace

bool IsReservedWord(std::string_view word) { return std::binary_search(std::begin(kReserved), std::end(kReserved), word); }

Result<std::vector<Token>> Lex(std::string_view text, std::string_view name) { return Lexer(text, name).Run(); }

}  // namespace leeway::shader
