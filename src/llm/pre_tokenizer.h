// Cuts text into the pieces that merges of a byte-pair encoding don't cross. Written by hand for each family rather than with
// regular expressions: each cut looks at the text once, whatever the text is.
#pragma once

#include <string_view>

#include "base/result.h"
#include "llm/tokenizer_data.h"

namespace leeway::llm {

class PieceReader {
 public:
  // The text must outlive the reader.
  PieceReader(PreTokenizer kind, std::string_view text) : kind_(kind), text_(text), limit_(0) {}
  // The next piece, never empty; empty at the end. The pieces put together are the text.
  std::string_view Next();

 private:
  size_t PieceEnd();
  PreTokenizer kind_;
  std::string_view text_;
  size_t at_ = 0;
  size_t limit_;  // kDigitsGpt2: the stretch without numbers that at_ is in ends here
};

// The kind that a GGUF file's tokenizer.ggml.pre names; kUnsupported, by name, for one that isn't known.
Result<PreTokenizer> PreTokenizerByName(std::string_view name);

}  // namespace leeway::llm
