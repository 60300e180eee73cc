// A language model as files hold it, whatever their format: architecture, configuration, tensors by name, the source of the
// tokenizer, and the chat template. Names of keys and tensors are the file's own; what they mean is known to the families
// (src/llm/models), which look at format() where the formats differ.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/gguf/gguf.h"
#include "import/safetensors/safetensors.h"

namespace leeway {

// The configuration. For GGUF a key is looked up as "<architecture>.<key>" first and as it stands then: "attention.head_count",
// "general.name". For safetensors it is a key of config.json, with dots into objects: "rope_scaling.factor"; null counts as
// absent. Errors name the key, the file, and what was found.
class LlmConfig {
 public:
  LlmConfig() = default;
  bool Has(std::string_view key) const;
  // The value, which must be there.
  Result<int64_t> Int(std::string_view key) const;  // any integer; also a number like 8.0
  Result<double> Number(std::string_view key) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;
  // The value, or `fallback` where the key is absent. A value of another kind is an error all the same.
  Result<int64_t> Int(std::string_view key, int64_t fallback) const;
  Result<double> Number(std::string_view key, double fallback) const;
  Result<bool> Bool(std::string_view key, bool fallback) const;
  Result<std::string> String(std::string_view key, std::string_view fallback) const;
  // An array; a single value counts as an array of one. Bools count as 0 and 1 among integers.
  Result<std::vector<int64_t>> Ints(std::string_view key) const;
  Result<std::vector<double>> Numbers(std::string_view key) const;
  Result<std::vector<std::string>> Strings(std::string_view key) const;

 private:
  friend class LlmFile;
  struct Json;  // keeps the JSON library out of this header
  const GgufValue* FindGguf(std::string_view key) const;
  Error Missing(std::string_view key) const;

  std::shared_ptr<const GgufFile> gguf_;
  std::string architecture_;
  std::shared_ptr<const Json> json_;
  std::string path_;
};

class LlmFile {
 public:
  enum class Format { kGguf, kSafetensors };
  struct NamedTensor {
    std::string_view name;
    HostTensor tensor;  // a view of the mapped file
  };

  // A GGUF file, or a folder with config.json and .safetensors files. Told apart by what is there, not by names.
  static Result<std::shared_ptr<const LlmFile>> Open(const std::string& path);
  static Result<std::shared_ptr<const LlmFile>> FromGguf(std::shared_ptr<const GgufFile> file);
  // True if Open is the way to read it: the file begins as GGUF does, or the folder has a config.json.
  static bool LooksLikeIt(const std::string& path);

  Format format() const { return format_; }
  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }  // of all files with tensors
  // "llama", "gemma3", "qwen3": general.architecture, or the model_type of config.json ("gemma3_text").
  const std::string& architecture() const { return architecture_; }
  const LlmConfig& config() const { return config_; }
  std::string_view config_json() const { return config_json_; }  // the text of config.json; empty for GGUF

  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  const HostTensor* tensor(std::string_view name) const;  // null where there is none
  // One that must be there and have this shape.
  Result<const HostTensor*> Tensor(std::string_view name, const Shape& shape) const;

  // Where the tokenizer comes from: the metadata of the GGUF file (null for safetensors), or the text of tokenizer.json (empty
  // where there is none; for GGUF the text that some files carry along).
  const GgufFile* gguf() const { return gguf_.get(); }
  std::string_view tokenizer_json() const { return tokenizer_json_; }
  std::string_view tokenizer_config_json() const { return tokenizer_config_json_; }
  // The template of chats, as the file has it; of several the one named "default".
  const std::optional<std::string>& chat_template() const { return chat_template_; }

 private:
  LlmFile() = default;
  static Result<std::shared_ptr<const LlmFile>> FromFolder(const std::string& folder);
  Status Index();

  Format format_ = Format::kGguf;
  std::string path_, architecture_;
  uint64_t file_bytes_ = 0;
  LlmConfig config_;
  std::vector<NamedTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  std::shared_ptr<const GgufFile> gguf_;
  std::shared_ptr<const SafetensorsFolder> safetensors_;
  std::shared_ptr<const MappedFile> config_file_, tokenizer_file_, tokenizer_config_file_;
  std::string_view config_json_, tokenizer_json_, tokenizer_config_json_;
  std::optional<std::string> chat_template_;
};

}  // namespace leeway
