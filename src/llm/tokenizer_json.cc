#include "llm/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "llm/json_text.h"

namespace leeway::llm {
namespace {

using nlohmann::json;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr int64_t kMaxTokens = 1 << 24;

constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2Regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Texts that stay where they are, for views.
class TextStore {
 public:
  std::string_view Keep(std::string_view text) {
    if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < text.size()) {
      chunks_.emplace_back();
      chunks_.back().reserve(std::max(text.size(), size_t(1) << 18));
    }
    std::string& chunk = chunks_.back();
    const size_t at = chunk.size();
    chunk += text;
    return std::string_view(chunk).substr(at);
  }

 private:
  std::vector<std::string> chunks_;  // never grow beyond their capacity; moving one keeps its bytes in place, they are long
};

Error Invalid(std::string message) { return {Code::kInvalidModel, std::move(message)}; }
Error Unsupported(std::string message) { return {Code::kUnsupported, std::move(message)}; }

const json kNull;
const json& Get(const json& object, const char* key) {
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}
bool GetBool(const json& object, const char* key, bool otherwise) {
  const json& value = Get(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}
std::string_view GetText(const json& object, const char* key) {
  const json& value = Get(object, key);
  return value.is_string() ? std::string_view(value.get_ref<const std::string&>()) : std::string_view();
}
// The number as an id, kNoToken for anything else.
TokenId ToId(const json& value) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() >= uint64_t(kMaxTokens)))
    return kNoToken;
  const int64_t id = value.get<int64_t>();
  return id < 0 || id >= kMaxTokens ? kNoToken : TokenId(id);
}

struct Reader {
  TokenizerData data;
  std::shared_ptr<TextStore> store = std::make_shared<TextStore>();
  bool has_digits = false, has_byte_level = false, has_gpt2_regex = false, unknown_is_named = false;
  std::string_view split_regex;
  std::vector<bool> is_defined;

  Status Define(TokenId id, std::string_view spelling, const char* where) {
    if (id == kNoToken)
      return Invalid(StrCat("The token \"", spelling, "\" in ", where, " of tokenizer.json has no valid id."));
    if (size_t(id) >= data.tokens.size()) {
      data.tokens.resize(size_t(id) + 1);
      is_defined.resize(size_t(id) + 1);
    }
    if (!is_defined[size_t(id)] || data.tokens[size_t(id)] != spelling) data.tokens[size_t(id)] = store->Keep(spelling);
    is_defined[size_t(id)] = true;
    return {};
  }

  TokenId Find(std::string_view spelling) const {  // only for the few tokens that have a name
    if (spelling.empty()) return kNoToken;
    for (size_t id = 0; id < data.tokens.size(); ++id) {
      if (data.tokens[id] == spelling) return TokenId(id);
    }
    return kNoToken;
  }

  Status ReadBpe(const json& model) {
    data.byte_fallback = GetBool(model, "byte_fallback", false);
    data.ignore_merges = GetBool(model, "ignore_merges", false);
    data.fuse_unknown = GetBool(model, "fuse_unk", false);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!GetText(model, key).empty())
        return Unsupported(StrCat("tokenizer.json has a BPE model with ", key, ", which is not supported."));
    }
    const json& vocabulary = Get(model, "vocab");
    if (!vocabulary.is_object()) return Invalid("tokenizer.json has no object model.vocab.");
    for (const auto& [spelling, id] : vocabulary.items()) RETURN_IF_ERROR(Define(ToId(id), spelling, "model.vocab"));
    const json& merges = Get(model, "merges");
    if (!merges.is_array()) return Invalid("tokenizer.json has no list model.merges.");
    data.merges.reserve(merges.size());
    for (const json& merge : merges) {
      if (merge.is_string()) {
        const std::string& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ', 1);
        if (text.empty() || space == std::string::npos) {
          return Invalid(StrCat("Merge ", data.merges.size(), " of tokenizer.json is \"", text,
                                "\", expected are two parts and a space between."));
        }
        const std::string_view kept = store->Keep(text);
        data.merges.push_back({kept.substr(0, space), kept.substr(space + 1)});
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        data.merges.push_back(
            {store->Keep(merge[0].get_ref<const std::string&>()), store->Keep(merge[1].get_ref<const std::string&>())});
      } else {
        return Invalid(StrCat("Merge ", data.merges.size(), " of tokenizer.json is neither a text nor a pair of texts."));
      }
    }
    data.unknown = Find(GetText(model, "unk_token"));
    unknown_is_named = data.unknown != kNoToken;
    return {};
  }

  Status ReadUnigram(const json& model) {
    data.byte_fallback = GetBool(model, "byte_fallback", false);
    data.fuse_unknown = true;
    const json& vocabulary = Get(model, "vocab");
    if (!vocabulary.is_array()) return Invalid("tokenizer.json has no list model.vocab.");
    for (const json& entry : vocabulary) {
      const TokenId id = TokenId(data.tokens.size());
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() || id >= kMaxTokens) {
        return Invalid(StrCat("Token ", id, " in model.vocab of tokenizer.json is not a pair of text and score."));
      }
      RETURN_IF_ERROR(Define(id, entry[0].get_ref<const std::string&>(), "model.vocab"));
      data.scores.push_back(entry[1].get<float>());
    }
    data.unknown = ToId(Get(model, "unk_id"));
    unknown_is_named = data.unknown != kNoToken && size_t(data.unknown) < data.tokens.size();
    return {};
  }

  Status ReadNormalizer(const json& step) {
    if (step.is_null()) return {};
    const std::string_view type = GetText(step, "type");
    if (type == "Sequence") {
      for (const json& inner : Get(step, "normalizers")) RETURN_IF_ERROR(ReadNormalizer(inner));
    } else if (type == "NFC") {
      data.nfc = true;
    } else if (type == "Replace" && GetText(Get(step, "pattern"), "String") == " " && GetText(step, "content") == kSpaceMark) {
      data.escapes_spaces = true;
    } else if (type == "Prepend" && GetText(step, "prepend") == kSpaceMark) {
      data.space_prefix = SpacePrefix::kAfterEachMarker;
    } else {
      return Unsupported(StrCat("tokenizer.json has the normalizer ",
                                step.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 200),
                                ", which is not supported; supported are NFC, and spaces as U+2581."));
    }
    return {};
  }

  Status ReadPreTokenizer(const json& step) {
    if (step.is_null()) return {};
    const std::string_view type = GetText(step, "type");
    const json& pattern = Get(step, "pattern");
    if (type == "Sequence") {
      for (const json& inner : Get(step, "pretokenizers")) RETURN_IF_ERROR(ReadPreTokenizer(inner));
    } else if (type == "Digits" && GetBool(step, "individual_digits", false)) {
      has_digits = true;
    } else if (type == "ByteLevel" && !GetBool(step, "add_prefix_space", false)) {
      has_byte_level = true;
      has_gpt2_regex = has_gpt2_regex || GetBool(step, "use_regex", true);
    } else if (type == "Split" && !GetText(pattern, "Regex").empty() && split_regex.empty() &&
               !GetBool(step, "invert", false) && GetText(step, "behavior") == "Isolated") {
      split_regex = GetText(pattern, "Regex");
    } else if (type == "Split" && GetText(pattern, "String") == " " && data.escapes_spaces) {
      // No space is left to split at.
    } else if (type == "Metaspace" && (GetText(step, "replacement").empty() || GetText(step, "replacement") == kSpaceMark)) {
      const std::string_view scheme = GetText(step, "prepend_scheme");
      const bool has_prefix = scheme.empty() ? GetBool(step, "add_prefix_space", true) : scheme != "never";
      data.escapes_spaces = true;
      data.space_prefix = !has_prefix         ? SpacePrefix::kNever
                          : scheme == "first" ? SpacePrefix::kAtStart
                                              : SpacePrefix::kAfterEachMarker;
      data.space_prefix_once = true;
      if (GetBool(step, "split", true)) data.pre_tokenizer = PreTokenizer::kBeforeSpaces;
    } else {
      return Unsupported(StrCat("tokenizer.json has the pre-tokenizer ",
                                step.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 300),
                                ", which is not supported."));
    }
    return {};
  }

  Status ChoosePreTokenizer() {
    if (!has_byte_level) {
      if (!split_regex.empty() || has_digits)
        return Unsupported("tokenizer.json cuts the text and has no ByteLevel step, which is not supported.");
      return {};
    }
    if (split_regex == kGpt2Regex) split_regex = {}, has_gpt2_regex = true;
    if (split_regex.empty()) {
      if (has_digits && !has_gpt2_regex)
        return Unsupported("tokenizer.json cuts the text at digits alone, which is not supported.");
      data.pre_tokenizer = has_digits ? PreTokenizer::kDigitsGpt2 : has_gpt2_regex ? PreTokenizer::kGpt2 : PreTokenizer::kWhole;
      return {};
    }
    if (!has_digits && !has_gpt2_regex && split_regex == kLlama3Regex) {
      data.pre_tokenizer = PreTokenizer::kLlama3;
    } else if (!has_digits && !has_gpt2_regex && split_regex == kQwen2Regex) {
      data.pre_tokenizer = PreTokenizer::kQwen2;
    } else {
      return Unsupported(StrCat("tokenizer.json cuts the text by ", split_regex, ", a rule that is not known."));
    }
    return {};
  }

  Status ReadAddedTokens(const json& added) {
    if (!added.is_array() && !added.is_null()) return Invalid("added_tokens of tokenizer.json is no list.");
    struct Added {
      TokenId id;
      TokenKind kind;
    };
    std::vector<Added> kinds;
    for (const json& token : added) {
      const TokenId id = ToId(Get(token, "id"));
      const std::string_view content = GetText(token, "content");
      if (content.empty()) return Invalid("An added token of tokenizer.json has no content.");
      RETURN_IF_ERROR(Define(id, content, "added_tokens"));
      kinds.push_back({id, GetBool(token, "special", false) ? TokenKind::kControl : TokenKind::kUserDefined});
      AddedTokenRule rule{id, GetBool(token, "lstrip", false), GetBool(token, "rstrip", false),
                          GetBool(token, "single_word", false)};
      if (rule.takes_space_before || rule.takes_space_after || rule.only_whole_word) data.added_token_rules.push_back(rule);
    }
    data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
    for (size_t id = 0; id < is_defined.size(); ++id) {
      if (!is_defined[id]) data.kinds[id] = TokenKind::kUnused;
    }
    if (data.byte_fallback) {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      for (size_t id = 0; id < data.tokens.size(); ++id) {
        const std::string_view s = data.tokens[id];
        if (s.size() == 6 && s.starts_with("<0x") && s[5] == '>' && kDigits.find(s[3]) != kDigits.npos &&
            kDigits.find(s[4]) != kDigits.npos) {
          data.kinds[id] = TokenKind::kByte;
        }
      }
    }
    if (unknown_is_named) data.kinds[size_t(data.unknown)] = TokenKind::kUnknown;
    for (const Added& token : kinds) data.kinds[size_t(token.id)] = token.kind;
    if (data.model == TokenizerModel::kUnigram) data.scores.resize(data.tokens.size(), 0);
    return {};
  }

  // A template that puts a special token first says that prompts begin with it.
  void ReadPostProcessor(const json& step) {
    const std::string_view type = GetText(step, "type");
    if (type == "Sequence") {
      for (const json& inner : Get(step, "processors")) ReadPostProcessor(inner);
    } else if (type == "TemplateProcessing") {
      const json& single = Get(step, "single");
      if (!single.is_array() || single.empty()) return;
      const std::string_view name = GetText(Get(single[0], "SpecialToken"), "id");
      if (name.empty()) return;
      data.bos = Find(name);
      data.add_bos = data.bos != kNoToken;
    }
  }

  // A token's name in tokenizer_config.json: a text, or an object with its content.
  TokenId NamedToken(const json& config, const char* key) const {
    const json& value = Get(config, key);
    return Find(value.is_object() ? GetText(value, "content") : GetText(config, key));
  }

  void ReadConfig(const json& config) {
    if (const TokenId bos = NamedToken(config, "bos_token"); bos != kNoToken) data.bos = bos;
    data.eos = NamedToken(config, "eos_token");
    data.padding = NamedToken(config, "pad_token");
    data.add_bos = GetBool(config, "add_bos_token", data.add_bos) && data.bos != kNoToken;
    const json& chat_template = Get(config, "chat_template");
    if (chat_template.is_string()) {
      data.chat_template = store->Keep(chat_template.get_ref<const std::string&>());
    } else if (chat_template.is_array()) {  // several; the one for chatting is called default
      for (const json& entry : chat_template) {
        if (GetText(entry, "name") == "default") data.chat_template = store->Keep(GetText(entry, "template"));
      }
    }
  }
};

}  // namespace

Result<TokenizerData> ReadTokenizerJson(std::string_view tokenizer, std::string_view config_text) {
  if (JsonNestsTooDeep(tokenizer) || JsonNestsTooDeep(config_text))
    return Invalid("tokenizer.json or its configuration nests too deep.");
  const json root = json::parse(tokenizer, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return Invalid("tokenizer.json is not a JSON object.");
  const json config = config_text.empty() ? json::object() : json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return Invalid("tokenizer_config.json is not a JSON object.");
  Reader reader;
  const json& model = Get(root, "model");
  std::string_view type = GetText(model, "type");
  if (type.empty() && Get(model, "merges").is_array()) type = "BPE";
  if (type != "BPE" && type != "Unigram") {
    return Unsupported(StrCat("tokenizer.json has the model type \"", type, "\"; supported are BPE and Unigram."));
  }
  RETURN_IF_ERROR(reader.ReadNormalizer(Get(root, "normalizer")));
  RETURN_IF_ERROR(reader.ReadPreTokenizer(Get(root, "pre_tokenizer")));
  RETURN_IF_ERROR(reader.ChoosePreTokenizer());
  TokenizerData& data = reader.data;
  if (type == "Unigram") {
    if (reader.has_byte_level) return Unsupported("tokenizer.json has a byte-level Unigram model, which is not supported.");
    data.model = TokenizerModel::kUnigram;
    RETURN_IF_ERROR(reader.ReadUnigram(model));
  } else {
    data.model = reader.has_byte_level ? TokenizerModel::kByteLevelBpe : TokenizerModel::kBpe;
    RETURN_IF_ERROR(reader.ReadBpe(model));
  }
  RETURN_IF_ERROR(reader.ReadAddedTokens(Get(root, "added_tokens")));
  // Decoders that turn U+2581 back into a space do so in all tokens.
  data.unescapes_user_defined = data.escapes_spaces;
  reader.ReadPostProcessor(Get(root, "post_processor"));
  reader.ReadConfig(config);
  data.owner = reader.store;
  return std::move(data);
}

}  // namespace leeway::llm
