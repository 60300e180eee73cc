// The tokenizer that a GGUF file's metadata describe.
#pragma once

#include <memory>

#include "import/gguf/gguf.h"
#include "llm/tokenizer_data.h"

namespace leeway::llm {

// Of the models "llama" (SentencePiece), "gpt2" (byte-level BPE) and "gemma4" (BPE over characters); the others are
// kUnsupported by name. The data's views are of the file, which they keep open.
Result<TokenizerData> ReadTokenizerGguf(std::shared_ptr<const GgufFile> file);

}  // namespace leeway::llm
