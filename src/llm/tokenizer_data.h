// What defines a tokenizer, as plain data: the form that GGUF metadata and tokenizer.json are both brought into.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leeway::llm {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

enum class TokenizerModel {
  kSentencePiece,  // characters merged by the scores of the results
  kByteLevelBpe,   // bytes, spelled in the alphabet of GPT-2, merged by the order of the list of merges
  kBpe,            // characters merged by the order of the list of merges
  kUnigram,        // the division with the greatest sum of scores
};

// How text is cut into the pieces that merges don't cross.
enum class PreTokenizer {
  kWhole,         // not at all
  kGpt2,          // words with the space before them, numbers, punctuation, white space
  kDigitsGpt2,    // each digit alone, GPT-2's rule between them: SmolLM, StarCoder
  kLlama3,        // contractions in any case, up to three digits, line ends with what precedes them
  kQwen2,         // as Llama 3 with each digit alone
  kNewlineRuns,   // runs of line feeds and what lies between: Gemma 4
  kBeforeSpaces,  // before each U+2581: Metaspace with `split`
};

// The values are those of tokenizer.ggml.token_type.
enum class TokenKind : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// How a token that is cut out of the text before anything else treats its surroundings (tokenizer.json's added_tokens).
struct AddedTokenRule {
  TokenId id = kNoToken;
  bool takes_space_before = false, takes_space_after = false;
  bool only_whole_word = false;
};

// Where U+2581 is put in front of a text.
enum class SpacePrefix {
  kNever,
  kAtStart,          // of the whole text
  kAfterEachMarker,  // and after each token that is cut out: llama.cpp's rule for `add_space_prefix`
};

struct TokenizerData {
  TokenizerModel model = TokenizerModel::kByteLevelBpe;
  PreTokenizer pre_tokenizer = PreTokenizer::kWhole;
  std::vector<std::string_view> tokens;                               // by id
  std::vector<TokenKind> kinds;                                       // by id; empty: all are normal
  std::vector<float> scores;                                          // by id; of kSentencePiece and kUnigram
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // of kBpe and kByteLevelBpe, the first is done first
  std::vector<AddedTokenRule> added_token_rules;                      // only of tokens that need one

  TokenId bos = kNoToken, eos = kNoToken, eot = kNoToken, eom = kNoToken, unknown = kNoToken, padding = kNoToken;
  bool add_bos = false;  // whether prompts of this model begin with `bos`

  bool escapes_spaces = false;          // a space is spelled U+2581
  bool unescapes_user_defined = false;  // and in user-defined tokens as well, when they are turned into text
  bool byte_fallback = false;           // characters that are no token become the tokens <0x00>..<0xFF> of their bytes
  bool ignore_merges = false;           // a piece that is a token is that token, whatever the merges say
  bool fuse_unknown = false;            // neighbouring unknown characters become one unknown token
  bool nfc = false;                     // text is brought into normalization form C
  SpacePrefix space_prefix = SpacePrefix::kNever;
  bool space_prefix_once = false;  // not in front of a text that begins with a space

  std::string_view chat_template;     // the file's, empty without one
  std::shared_ptr<const void> owner;  // keeps what the views point at
};

}  // namespace leeway::llm
