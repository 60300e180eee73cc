// Streams of text on their way to a reader: thoughts told from answers, and an end at the words that the caller chose.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leeway::llm {

// Tells the thoughts of a model from its answer, as the text comes. A thought begins with `open` where nothing but white space
// came before, or after another thought; it ends with `close`. The markers themselves, line ends at the edges of a thought and
// white space between it and the answer are left out; everything else comes out once, in order, as early as it is certain.
class ThoughtSplitter {
 public:
  struct Piece {
    bool is_thought;
    std::string text;
    bool operator==(const Piece&) const = default;
  };

  // starts_in_thought: the prompt ended with `open` already.
  ThoughtSplitter(std::string open, std::string close, bool starts_in_thought = false);
  std::vector<Piece> Add(std::string_view text);
  // What was held back; afterwards a new text begins.
  std::vector<Piece> Finish();
  bool is_in_thought() const { return state_ == State::kThought; }

 private:
  enum class State { kBefore, kThought, kAnswer };
  void Emit(std::vector<Piece>& pieces, std::string_view text) const;

  std::string open_, close_, held_;
  State first_state_, state_;
  bool after_thought_ = false;    // kBefore: white space is left out
  bool at_thought_start_ = true;  // kThought: line ends are left out
};

// Ends a text at the first of some words, without showing the beginning of one that may be coming.
class StopWords {
 public:
  explicit StopWords(std::vector<std::string> words);
  // What of the text may be shown now.
  std::string Add(std::string_view text);
  // What was held back; afterwards a new text begins.
  std::string Finish();
  bool is_stopped() const { return is_stopped_; }  // a word came; nothing is shown any more

 private:
  std::vector<std::string> words_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace leeway::llm
