#include "llm/pre_tokenizer.h"

#include "base/strings.h"
#include "llm/unicode.h"

namespace leeway::llm {
namespace {

using enum CharacterClass;

struct Seen {
  CharacterClass cls;
  uint32_t value, size;
};
Seen At(std::string_view text, size_t at) {
  const uint8_t byte = uint8_t(text[at]);
  if (byte < 0x80) return {ClassOf(byte), byte, 1};
  const Character c = ReadCharacter(text, at);
  return {c.is_valid ? ClassOf(c.value) : kOther, c.value, c.size_bytes};
}

bool IsLineEnd(uint32_t c) { return c == '\r' || c == '\n'; }

// The end of the run of characters of one class that begins at `at`, at most `max_count` of them.
size_t RunEnd(std::string_view text, size_t at, CharacterClass cls, size_t max_count = SIZE_MAX) {
  while (at < text.size() && max_count-- > 0) {
    const Seen c = At(text, at);
    if (c.cls != cls) break;
    at += c.size;
  }
  return at;
}

// The size of 's 't 're 've 'm 'll 'd at `at`, where an apostrophe stands; 0 without one.
size_t ContractionSize(std::string_view text, size_t at, bool any_case) {
  auto letter = [&](size_t i) -> char {
    if (at + i >= text.size()) return 0;
    const char c = text[at + i];
    return any_case && c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  };
  const char a = letter(1), b = letter(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

// White space that no other rule took. A run before something else leaves its last character to that; a run to the end of the
// text is one piece.
size_t SpaceRunEnd(std::string_view text, size_t at) {
  size_t end = at, last = at;
  while (end < text.size()) {
    const Seen c = At(text, end);
    if (c.cls != kSpace) return last > at ? last : end;
    last = end;
    end += c.size;
  }
  return end;
}

// '(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t Gpt2End(std::string_view text, size_t at) {
  const Seen first = At(text, at);
  if (first.value == '\'') {
    if (const size_t size = ContractionSize(text, at, false)) return at + size;
  }
  if (first.cls != kSpace) return RunEnd(text, at, first.cls);
  if (first.value == ' ' && at + 1 < text.size()) {
    const Seen second = At(text, at + 1);
    if (second.cls != kSpace) return RunEnd(text, at + 1, second.cls);
  }
  return SpaceRunEnd(text, at);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t Llama3End(std::string_view text, size_t at, size_t max_digits) {
  const Seen first = At(text, at);
  if (first.value == '\'') {
    if (const size_t size = ContractionSize(text, at, true)) return at + size;
  }
  if (first.cls == kLetter) return RunEnd(text, at, kLetter);
  if (first.cls == kNumber) return RunEnd(text, at, kNumber, max_digits);
  const size_t next = at + first.size;
  if (next < text.size() && !IsLineEnd(first.value) && At(text, next).cls == kLetter) return RunEnd(text, next, kLetter);
  const bool space_and_other = first.value == ' ' && next < text.size() && At(text, next).cls == kOther;
  if (first.cls == kOther || space_and_other) {
    size_t end = RunEnd(text, space_and_other ? next : at, kOther);
    while (end < text.size() && IsLineEnd(uint8_t(text[end]))) ++end;
    return end;
  }
  // White space: up to and with the last line end of the run.
  size_t end = at, after_line_end = at;
  while (end < text.size()) {
    const Seen c = At(text, end);
    if (c.cls != kSpace) break;
    end += c.size;
    if (IsLineEnd(c.value)) after_line_end = end;
  }
  return after_line_end > at ? after_line_end : SpaceRunEnd(text, at);
}

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

}  // namespace

size_t PieceReader::PieceEnd() {
  switch (kind_) {
    case PreTokenizer::kWhole: return text_.size();
    case PreTokenizer::kGpt2: return Gpt2End(text_, at_);
    case PreTokenizer::kDigitsGpt2: {
      if (at_ >= limit_) {
        const Seen c = At(text_, at_);
        if (c.cls == kNumber) return at_ + c.size;
        for (limit_ = at_; limit_ < text_.size();) {
          const Seen next = At(text_, limit_);
          if (next.cls == kNumber) break;
          limit_ += next.size;
        }
      }
      return Gpt2End(text_.substr(0, limit_), at_);
    }
    case PreTokenizer::kLlama3: return Llama3End(text_, at_, 3);
    case PreTokenizer::kQwen2: return Llama3End(text_, at_, 1);
    case PreTokenizer::kNewlineRuns: {
      const size_t end = text_[at_] == '\n' ? text_.find_first_not_of('\n', at_) : text_.find('\n', at_);
      return std::min(end, text_.size());
    }
    case PreTokenizer::kBeforeSpaces: return std::min(text_.find(kSpaceMark, at_ + 1), text_.size());
  }
  return text_.size();
}

std::string_view PieceReader::Next() {
  if (at_ >= text_.size()) return {};
  const size_t begin = at_;
  at_ = PieceEnd();
  return text_.substr(begin, at_ - begin);
}

Result<PreTokenizer> PreTokenizerByName(std::string_view name) {
  struct Row {
    std::string_view name;
    PreTokenizer kind;
  };
  static constexpr Row kRows[] = {
      {"", PreTokenizer::kGpt2},
      {"default", PreTokenizer::kGpt2},
      {"gpt-2", PreTokenizer::kGpt2},
      {"gpt2", PreTokenizer::kGpt2},
      {"smollm", PreTokenizer::kDigitsGpt2},
      {"starcoder", PreTokenizer::kDigitsGpt2},
      {"refact", PreTokenizer::kDigitsGpt2},
      {"llama-bpe", PreTokenizer::kLlama3},
      {"llama3", PreTokenizer::kLlama3},
      {"llama-v3", PreTokenizer::kLlama3},
      {"qwen2", PreTokenizer::kQwen2},
      {"qwen3", PreTokenizer::kQwen2},
      {"deepseek-r1-qwen", PreTokenizer::kQwen2},
      {"gemma4", PreTokenizer::kNewlineRuns},
  };
  std::string known;
  for (const Row& row : kRows) {
    if (row.name == name) return row.kind;
    if (!row.name.empty()) known += StrCat(known.empty() ? "" : ", ", row.name);
  }
  return Error{Code::kUnsupported,
               StrCat("The pre-tokenizer \"", name, "\" (tokenizer.ggml.pre) is not known; known are: ", known, ".")};
}

}  // namespace leeway::llm
