#include "llm/tokenizer_gguf.h"

#include <algorithm>

#include "base/strings.h"
#include "llm/pre_tokenizer.h"

namespace leeway::llm {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// Tokens that end a text or a turn wherever they appear. Some files call them ordinary words; text from outside must not be
// able to make them all the same (the rule is llama.cpp's).
constexpr std::string_view kAlwaysControl[] = {"<|eot_id|>", "<|im_end|>",    "<|end|>",         "<end_of_turn>", "<turn|>",
                                               "</s>",       "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>"};

struct Reader {
  const GgufFile& file;

  static std::string Key(std::string_view name) { return StrCat(kPrefix, name); }
  bool Has(std::string_view name) const { return file.Find(Key(name)) != nullptr; }
  // Absent keys are `otherwise`; keys of another kind are errors.
  Result<bool> Flag(std::string_view name, bool otherwise) const {
    return Has(name) ? file.Bool(Key(name)) : Result<bool>(otherwise);
  }
  Result<std::string_view> String(std::string_view name) const {
    return Has(name) ? file.String(Key(name)) : Result<std::string_view>(std::string_view());
  }
  Result<TokenId> Id(std::string_view name, TokenId otherwise) const {
    if (!Has(name)) return otherwise;
    ASSIGN_OR_RETURN(const int64_t id, file.Int(Key(name)));
    if (id < 0 || id > INT32_MAX) {
      // Some converters write -1, or its unsigned form, for "none".
      if (id == -1 || id == int64_t(UINT32_MAX)) return kNoToken;
      return Error{Code::kInvalidModel,
                   StrCat("The key ", Key(name), " of ", file.path(), " is (", id, "), which is no token.")};
    }
    return TokenId(id);
  }
};

}  // namespace

Result<TokenizerData> ReadTokenizerGguf(std::shared_ptr<const GgufFile> file) {
  const Reader reader{*file};
  TokenizerData data;
  data.owner = file;
  ASSIGN_OR_RETURN(const std::string_view model, file->String(Reader::Key("model")));
  ASSIGN_OR_RETURN(const std::string_view pre, reader.String("pre"));
  ASSIGN_OR_RETURN(const auto tokens, file->Strings(Reader::Key("tokens")));
  data.tokens.assign(tokens.begin(), tokens.end());
  if (reader.Has("token_type")) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> kinds, file->Ints(Reader::Key("token_type")));
    data.kinds.reserve(kinds.size());
    for (const int64_t kind : kinds)
      data.kinds.push_back(kind >= 1 && kind <= 6 ? TokenKind(kind) : TokenKind(0));  // Create refuses 0
  }

  for (size_t id = 0; id < std::min(data.kinds.size(), data.tokens.size()); ++id) {
    const auto& names = kAlwaysControl;
    if (data.kinds[id] == TokenKind::kUserDefined &&
        std::find(std::begin(names), std::end(names), data.tokens[id]) != std::end(names)) {
      data.kinds[id] = TokenKind::kControl;
    }
  }

  const bool is_sentence_piece = model == "llama", is_gemma4 = model == "gemma4";
  bool adds_bos = is_sentence_piece || is_gemma4;
  if (is_sentence_piece) {
    data.model = TokenizerModel::kSentencePiece;
    ASSIGN_OR_RETURN(data.scores, file->Floats(Reader::Key("scores")));
    data.escapes_spaces = true;
    data.byte_fallback = true;
    ASSIGN_OR_RETURN(const bool has_prefix, reader.Flag("add_space_prefix", true));
    data.space_prefix = has_prefix ? SpacePrefix::kAfterEachMarker : SpacePrefix::kNever;
  } else if (model == "gpt2") {
    data.model = TokenizerModel::kByteLevelBpe;
    ASSIGN_OR_RETURN(data.pre_tokenizer, PreTokenizerByName(pre));
    data.ignore_merges = adds_bos = data.pre_tokenizer == PreTokenizer::kLlama3;
  } else if (is_gemma4) {
    data.model = TokenizerModel::kBpe;
    data.pre_tokenizer = PreTokenizer::kNewlineRuns;
    data.escapes_spaces = true;
    data.byte_fallback = true;
    data.fuse_unknown = true;
  } else {
    return Error{Code::kUnsupported, StrCat("The file ", file->path(), " has a tokenizer of the model \"", model,
                                            "\"; supported are llama, gpt2 and gemma4.")};
  }
  if (!is_sentence_piece) {
    ASSIGN_OR_RETURN(const auto merges, file->Strings(Reader::Key("merges")));
    data.merges.reserve(merges.size());
    for (const std::string_view merge : merges) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos) {
        return Error{Code::kInvalidModel, StrCat("Merge ", data.merges.size(), " of ", file->path(), " is \"", merge,
                                                 "\", expected are two parts and a space between.")};
      }
      data.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
  }

  ASSIGN_OR_RETURN(data.bos, reader.Id("bos_token_id", is_sentence_piece ? 1 : kNoToken));
  ASSIGN_OR_RETURN(data.eos, reader.Id("eos_token_id", is_sentence_piece ? 2 : kNoToken));
  ASSIGN_OR_RETURN(data.eot, reader.Id("eot_token_id", kNoToken));
  ASSIGN_OR_RETURN(data.eom, reader.Id("eom_token_id", kNoToken));
  ASSIGN_OR_RETURN(data.padding, reader.Id("padding_token_id", kNoToken));
  // Byte-level vocabularies name a control token here, which text must not become: what they lack is left out.
  if (model != "gpt2") { ASSIGN_OR_RETURN(data.unknown, reader.Id("unknown_token_id", is_sentence_piece ? 0 : kNoToken)); }
  ASSIGN_OR_RETURN(data.add_bos, reader.Flag("add_bos_token", adds_bos));
  if (is_gemma4) data.add_bos = true;  // files of this family say otherwise, and need it
  if (file->Find("tokenizer.chat_template")) { ASSIGN_OR_RETURN(data.chat_template, file->String("tokenizer.chat_template")); }
  return data;
}

}  // namespace leeway::llm
