#include "base/strings.h"
#include "import/llm_file.h"
#include "llm/config.h"

namespace leeway::llm {

Result<ModelFile> ModelFileOf(std::shared_ptr<const LlmFile> source) {
  ModelFile file;
  file.path = source->path();
  if (const GgufFile* gguf = source->gguf()) {
    for (const GgufFile::Entry& entry : gguf->entries()) {
      if (entry.key.starts_with("tokenizer.")) continue;
      MetaValue value;
      value.is_list = entry.value.is_array();
      for (uint64_t i = 0; i < entry.value.count(); ++i) {
        if (const auto text = entry.value.String(i)) {
          value.texts.emplace_back(*text);
        } else if (const auto flag = entry.value.Bool(i)) {
          value.numbers.push_back(*flag ? 1 : 0);
        } else if (const auto number = entry.value.Number(i)) {
          value.numbers.push_back(*number);
        }
      }
      file.metadata.emplace(entry.key, std::move(value));
    }
  } else {
    file.format = ModelFile::Format::kSafetensors;
    ASSIGN_OR_RETURN(file.metadata, MetadataFromJson(source->config_json(), source->path()));
  }
  for (const LlmFile::NamedTensor& named : source->tensors()) {
    file.tensors.emplace(named.name, std::make_shared<const HostTensor>(named.tensor));
  }
  file.keep_alive = std::move(source);
  return file;
}

}  // namespace leeway::llm
