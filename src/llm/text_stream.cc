#include "llm/text_stream.h"

#include <algorithm>
#include <utility>

namespace leeway::llm {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

// The size of the longest end of the text with which `word` begins, shorter than the word.
size_t BegunSize(std::string_view text, std::string_view word) {
  size_t size = word.empty() ? 0 : std::min(text.size(), word.size() - 1);
  while (size > 0 && text.substr(text.size() - size) != word.substr(0, size)) --size;
  return size;
}

}  // namespace

ThoughtSplitter::ThoughtSplitter(std::string open, std::string close, bool starts_in_thought)
    : open_(std::move(open)),
      close_(std::move(close)),
      first_state_(starts_in_thought ? State::kThought : State::kBefore),
      state_(first_state_) {}

void ThoughtSplitter::Emit(std::vector<Piece>& pieces, std::string_view text) const {
  if (text.empty()) return;
  const bool is_thought = state_ == State::kThought;
  if (!pieces.empty() && pieces.back().is_thought == is_thought) {
    pieces.back().text += text;
  } else {
    pieces.push_back({is_thought, std::string(text)});
  }
}

std::vector<ThoughtSplitter::Piece> ThoughtSplitter::Add(std::string_view added) {
  std::vector<Piece> pieces;
  held_ += added;
  while (!held_.empty()) {
    if (state_ == State::kAnswer) {
      Emit(pieces, held_);
      held_.clear();
    } else if (state_ == State::kBefore) {
      const size_t begin = std::min(held_.find_first_not_of(kWhiteSpace), held_.size());
      const std::string_view rest = std::string_view(held_).substr(begin);
      if (rest.size() < open_.size() && open_.starts_with(rest)) break;  // may yet become the marker
      if (rest.starts_with(open_)) {
        held_.erase(0, begin + open_.size());
        state_ = State::kThought;
        at_thought_start_ = true;
      } else {
        if (after_thought_) held_.erase(0, begin);
        state_ = State::kAnswer;
      }
    } else {
      if (at_thought_start_) {
        held_.erase(0, held_.find_first_not_of('\n'));
        if (held_.empty()) break;
        at_thought_start_ = false;
      }
      const size_t found = held_.find(close_);
      // Line ends before the marker are left out, so they wait for what follows.
      size_t end = found != std::string::npos ? found : held_.size() - BegunSize(held_, close_);
      while (end > 0 && held_[end - 1] == '\n') --end;
      Emit(pieces, std::string_view(held_).substr(0, end));
      if (found == std::string::npos) {
        held_.erase(0, end);
        break;
      }
      held_.erase(0, found + close_.size());
      state_ = State::kBefore;
      after_thought_ = true;
    }
  }
  return pieces;
}

std::vector<ThoughtSplitter::Piece> ThoughtSplitter::Finish() {
  std::vector<Piece> pieces;
  if (state_ == State::kBefore && after_thought_) held_.erase(0, std::min(held_.find_first_not_of(kWhiteSpace), held_.size()));
  Emit(pieces, held_);
  held_.clear();
  state_ = first_state_;
  after_thought_ = false;
  at_thought_start_ = true;
  return pieces;
}

StopWords::StopWords(std::vector<std::string> words) : words_(std::move(words)) {
  words_.erase(std::remove(words_.begin(), words_.end(), ""), words_.end());
}

std::string StopWords::Add(std::string_view text) {
  if (is_stopped_) return {};
  held_ += text;
  size_t stop = std::string::npos, begun = 0;
  for (const std::string& word : words_) {
    stop = std::min(stop, held_.find(word));
    begun = std::max(begun, BegunSize(held_, word));
  }
  is_stopped_ = stop != std::string::npos;
  const size_t shown = is_stopped_ ? stop : held_.size() - begun;
  std::string out = held_.substr(0, shown);
  held_.erase(0, shown);
  if (is_stopped_) held_.clear();
  return out;
}

std::string StopWords::Finish() {
  std::string out = std::exchange(held_, {});
  is_stopped_ = false;
  return out;
}

}  // namespace leeway::llm
