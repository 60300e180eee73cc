// Text to tokens and back, for the vocabularies of GGUF files and of tokenizer.json.
//
// Control tokens (<bos>, <|im_end|> and the like) come into being only where the caller says so: text from a user that spells
// one is encoded as the letters that it is. Tokens that a vocabulary calls user-defined are ordinary words of it and are always
// recognized.
//
// Any bytes may be encoded. Bytes that are no UTF-8 become the tokens of these bytes where the vocabulary has such tokens, so
// that they survive; what a vocabulary has no token for becomes its unknown token, or is left out if it has none.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "llm/tokenizer_data.h"

namespace leeway::llm {

struct EncodeOptions {
  bool add_bos = false;        // put the token of the beginning first, if the vocabulary has one
  bool allow_special = false;  // control tokens that the text spells become control tokens
};

// A stretch of a prompt: text of a template, which may spell control tokens, or text from outside, which can't.
struct PromptPart {
  std::string text;
  bool is_trusted = false;
  bool operator==(const PromptPart&) const = default;
};

struct DecodeOptions {
  bool show_control = false;           // control tokens give their spelling; otherwise nothing
  std::vector<TokenId> shown_control;  // these do in any case
};

// Immutable; copies are cheap and share everything; may be used from several threads at a time.
class Tokenizer {
 public:
  // kInvalidModel for data that contradicts itself.
  static Result<Tokenizer> Create(TokenizerData data);

  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options = {}) const;
  // The tokens of all parts put together. A control token is recognized where its whole spelling is trusted; apart from that
  // the seams have no effect, words merge across them. `allow_special` is not looked at.
  std::vector<TokenId> Encode(std::span<const PromptPart> parts, EncodeOptions options = {}) const;

  // Valid UTF-8, with U+FFFD for what isn't. Ids that are no token give nothing.
  std::string Decode(std::span<const TokenId> tokens, const DecodeOptions& options = {}) const;

  int vocabulary_size() const;
  // The token as the file spells it, and the bytes that it stands for. Empty for ids that are no token.
  std::string_view SpellingOf(TokenId id) const;
  std::string_view BytesOf(TokenId id) const;
  TokenKind KindOf(TokenId id) const;  // kUnused for ids that are no token
  bool IsControl(TokenId id) const;    // control and unknown tokens
  // The token with this spelling, of any kind but byte tokens; kNoToken without one.
  TokenId Find(std::string_view spelling) const;

  TokenId bos() const;
  TokenId eos() const;
  TokenId padding() const;
  bool adds_bos() const;  // prompts of this model begin with bos()
  // The tokens that end an answer: the file's end tokens, and those with a well-known name (<end_of_turn>, <|im_end|>, ...).
  std::span<const TokenId> stop_tokens() const;
  bool IsStop(TokenId id) const;
  std::string_view chat_template() const;  // the file's, or empty
  const TokenizerData& data() const;

 private:
  friend class TextDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Tokens to text as they come: what it returns never ends within a character, and put together it is what Decode returns for
// all tokens.
class TextDecoder {
 public:
  explicit TextDecoder(Tokenizer tokenizer, DecodeOptions options = {})
      : tokenizer_(std::move(tokenizer)), options_(std::move(options)) {}
  std::string Add(TokenId token);
  // What an unfinished character is replaced by; afterwards a new text begins.
  std::string Finish();

 private:
  void FlushPending(std::string& text);
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string pending_;  // the beginning of a character
  bool at_start_ = true;
};

}  // namespace leeway::llm
