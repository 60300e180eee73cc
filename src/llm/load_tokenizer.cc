#include "llm/load_tokenizer.h"

#include <filesystem>

#include "base/strings.h"
#include "llm/tokenizer_gguf.h"
#include "llm/tokenizer_json.h"

namespace leeway::llm {
namespace {

Result<Tokenizer> FromGguf(std::shared_ptr<const GgufFile> file) {
  const std::string path = file->path();
  ASSIGN_OR_RETURN(TokenizerData data, ReadTokenizerGguf(std::move(file)));
  ASSIGN_OR_RETURN_CONTEXT(Tokenizer tokenizer, Tokenizer::Create(std::move(data)), path);
  return tokenizer;
}

Result<Tokenizer> FromJson(std::string_view json, std::string_view config, const std::string& path) {
  ASSIGN_OR_RETURN_CONTEXT(TokenizerData data, ReadTokenizerJson(json, config), path);
  ASSIGN_OR_RETURN_CONTEXT(Tokenizer tokenizer, Tokenizer::Create(std::move(data)), path);
  return tokenizer;
}

std::string_view ToText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<std::optional<Tokenizer>> LoadTokenizer(std::shared_ptr<const LlmFile> file) {
  if (const GgufFile* gguf = file->gguf()) {
    const GgufValue* model = gguf->Find("tokenizer.ggml.model");
    if (!model || (model->String() && *model->String() == "none")) return std::optional<Tokenizer>();
    ASSIGN_OR_RETURN(Tokenizer tokenizer, FromGguf(std::shared_ptr<const GgufFile>(file, gguf)));
    return std::optional<Tokenizer>(std::move(tokenizer));
  }
  if (file->tokenizer_json().empty()) return std::optional<Tokenizer>();
  ASSIGN_OR_RETURN(Tokenizer tokenizer, FromJson(file->tokenizer_json(), file->tokenizer_config_json(), file->path()));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Result<Tokenizer> LoadTokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  ASSIGN_OR_RETURN(const auto mapped, MappedFile::Open(is_folder ? (fs::path(path) / "tokenizer.json").string() : path));
  if (GgufFile::LooksLikeIt(mapped->bytes())) {
    ASSIGN_OR_RETURN(const auto file, GgufFile::Read(mapped));
    if (!file->Find("tokenizer.ggml.model")) return Error{Code::kNotFound, StrCat("The file ", path, " has no tokenizer.")};
    return FromGguf(file);
  }
  const fs::path config = fs::path(mapped->path()).parent_path() / "tokenizer_config.json";
  if (!fs::exists(config, ignored)) return FromJson(ToText(mapped->bytes()), {}, mapped->path());
  ASSIGN_OR_RETURN(const auto config_file, MappedFile::Open(config.string()));
  return FromJson(ToText(mapped->bytes()), ToText(config_file->bytes()), mapped->path());
}

}  // namespace leeway::llm
