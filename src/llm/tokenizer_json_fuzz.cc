// Texts of tokenizer.json that are damaged: each is refused in words, or makes a tokenizer that encodes any bytes and whose
// tokens can all be decoded. After a zero byte comes the text of tokenizer_config.json. See import/file_fuzz.h for the program.
#include "import/file_fuzz.h"
#include "llm/tokenizer.h"
#include "llm/tokenizer_json.h"

namespace {

using leeway::llm::TokenId;

void Read(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t zero = text.find('\0');
  auto read = leeway::llm::ReadTokenizerJson(text.substr(0, zero),
                                             zero == std::string_view::npos ? std::string_view() : text.substr(zero + 1));
  auto failed = [](const leeway::Error& error) {
    if (error.code == leeway::Code::kInternal || error.message.empty()) std::abort();
  };
  if (!read.ok()) return failed(read.error());
  const auto tokenizer = leeway::llm::Tokenizer::Create(std::move(*read));
  if (!tokenizer.ok()) return failed(tokenizer.error());
  const int count = tokenizer->vocabulary_size();
  for (const std::string_view said :
       {std::string_view("abc a\xCC\x81 <s>12\n\xF0\x9F\x98\x80 \xff"), std::string_view(), text.substr(0, 64)}) {
    for (const bool special : {false, true}) {
      const std::vector<TokenId> ids = tokenizer->Encode(said, {.add_bos = true, .allow_special = special});
      for (const TokenId id : ids) {
        if (id < 0 || id >= count) std::abort();
        if (!special && id != tokenizer->bos() && tokenizer->KindOf(id) == leeway::llm::TokenKind::kControl) std::abort();
      }
      (void)tokenizer->Decode(ids, {.show_control = true});
    }
  }
  leeway::llm::TextDecoder decoder(*tokenizer);
  for (TokenId id = -1; id <= count && id < 400; ++id) (void)decoder.Add(id);
  (void)decoder.Finish();
}

std::vector<std::vector<std::byte>> Files() {
  std::vector<std::string> texts = {
      R"({"added_tokens": [{"id": 6, "content": "<s>", "special": true}, {"id": 7, "content": "<t>", "special": false}],
"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]},
"model": {"type": "BPE", "ignore_merges": true, "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "\u0120": 5}, "merges": ["a b", ["ab", "c"]]}})",
      R"({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, "pre_tokenizer": {"type": "Split",
"pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}, "decoder": {"type": "Sequence", "decoders": [{"type":
"Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}, "model": {"type": "BPE",
"byte_fallback": true, "unk_token": "<unk>", "vocab": {"<unk>": 0, "<0x0A>": 1, "\u2581": 2, "a": 3, "\u2581a": 4}, "merges": ["\u2581 a"]}})",
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["\u2581", -2.5], ["a", -1], ["ab", -1.5], ["b", -3]]}})",
  };
  texts.push_back(
      texts[0] + std::string(1, '\0') +
      R"({"eos_token": {"content": "<s>"}, "bos_token": "<t>", "add_bos_token": true, "chat_template": [{"name": "default", "template": "y"}]})");
  std::vector<std::vector<std::byte>> files;
  for (const std::string& text : texts) {
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    files.emplace_back(bytes, bytes + text.size());
  }
  return files;
}

constexpr leeway::fuzz::Target kTarget = {"tokenizer_json_fuzz", ".json", Read, Files};

}  // namespace

LEEWAY_FUZZ_MAIN(kTarget)
