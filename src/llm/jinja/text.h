// Text that remembers which of its bytes came from outside: from messages, tools and variables rather than from the template.
// Every operation of the template language keeps that, so that the caller can tell them apart in what was rendered.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leeway::llm::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool is_outside = false)
      : bytes_(std::move(bytes)), outside_(is_outside ? std::string(bytes_.size(), char(1)) : std::string()) {}

  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool IsOutside(size_t at) const { return !outside_.empty() && outside_[at] != 0; }
  bool HasOutside() const { return outside_.find(char(1)) != std::string::npos; }

  Text Substring(size_t at, size_t count = std::string::npos) const {
    Text part;
    part.bytes_ = bytes_.substr(at, count);
    if (!outside_.empty()) part.outside_ = outside_.substr(at, count);
    return part;
  }
  void Append(std::string_view bytes, bool is_outside) {
    if (is_outside && outside_.empty()) outside_.assign(bytes_.size(), char(0));
    bytes_ += bytes;
    if (is_outside || !outside_.empty()) outside_.append(bytes.size(), char(is_outside));
  }
  void Append(std::string_view bytes) { Append(bytes, false); }
  void Append(const Text& text) {
    if (text.outside_.empty()) return Append(text.bytes_, false);
    if (outside_.empty()) outside_.assign(bytes_.size(), char(0));
    bytes_ += text.bytes_;
    outside_ += text.outside_;
  }

 private:
  std::string bytes_;
  std::string outside_;  // a 1 for each byte from outside; empty: there is none
};

}  // namespace leeway::llm::jinja
