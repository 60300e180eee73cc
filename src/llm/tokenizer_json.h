// The tokenizer.json that Hugging Face's models come with: byte-level BPE, BPE over characters with byte fallback, and Unigram.
#pragma once

#include <string_view>

#include "base/result.h"
#include "llm/tokenizer_data.h"

namespace leeway::llm {

// `tokenizer` is the text of tokenizer.json, `config` that of the tokenizer_config.json beside it, which names the tokens of
// beginning and end and often holds the chat template; empty where there is none. The result keeps nothing of either text.
// kInvalidModel for what is no such file, kUnsupported with the name of the step that isn't known.
Result<TokenizerData> ReadTokenizerJson(std::string_view tokenizer, std::string_view config = {});

}  // namespace leeway::llm
