#include "import/llm_file.h"

#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "base/utf8.h"

namespace leeway {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestConfigBytes = 16 << 20, kLargestTokenizerBytes = 512 << 20;

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}
bool IsFolder(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string_view Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A text file of the folder, or null where it is absent.
Result<std::shared_ptr<const MappedFile>> OpenText(const std::string& path, uint64_t largest_bytes) {
  if (!Exists(path)) return std::shared_ptr<const MappedFile>();
  ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  if (file->bytes().size() > largest_bytes) {
    return Error{Code::kInvalidModel,
                 StrCat("The file \"", path, "\" has ", file->bytes().size(), " bytes; at most ", largest_bytes, " are read.")};
  }
  if (!IsUtf8(Text(*file))) return Error{Code::kInvalidModel, StrCat("The file \"", path, "\" is no UTF-8 text.")};
  return file;
}

Result<json> ParseObject(const MappedFile& file) {
  json parsed = json::parse(Text(file), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Error{Code::kInvalidModel, StrCat("The file \"", file.path(), "\" is no JSON object.")};
  return parsed;
}

// A string, or the entry "default" of a list of {"name", "template"}; nothing for anything else.
std::optional<std::string> TemplateOf(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  std::optional<std::string> first;
  for (const json& item : value) {
    if (!item.is_object() || !item.contains("name") || !item.contains("template") || !item["template"].is_string()) continue;
    std::string text = item["template"].get<std::string>();
    if (item["name"] == "default") return text;
    if (!first) first = std::move(text);
  }
  return first;
}

}  // namespace

struct LlmConfig::Json {
  json root;

  const json* Find(std::string_view key) const {
    const json* at = &root;
    while (true) {
      const size_t dot = key.find('.');
      if (!at->is_object()) return nullptr;
      const auto found = at->find(std::string(key.substr(0, dot)));
      if (found == at->end() || found->is_null()) return nullptr;
      at = &*found;
      if (dot == std::string_view::npos) return at;
      key.remove_prefix(dot + 1);
    }
  }
};

namespace {

std::optional<int64_t> WholeNumber(std::optional<double> number) {
  if (!number || *number != std::trunc(*number) || std::abs(*number) > 0x1p53) return std::nullopt;
  return int64_t(*number);
}

// A value of either format, asked for one kind.
struct GgufItem {
  const GgufValue* value;
  uint64_t i;
  std::optional<int64_t> Int() const {
    if (const auto integer = value->Int(i)) return integer;
    return WholeNumber(value->Number(i));
  }
  std::optional<double> Number() const { return value->Number(i); }
  std::optional<bool> Bool() const { return value->Bool(i); }
  std::optional<std::string> String() const {
    const auto text = value->String(i);
    return text ? std::optional<std::string>(*text) : std::nullopt;
  }
};

struct JsonItem {
  const json* value;
  std::optional<int64_t> Int() const {
    if (value->is_number_unsigned()) {
      const uint64_t number = value->get<uint64_t>();
      return number <= uint64_t(INT64_MAX) ? std::optional<int64_t>(int64_t(number)) : std::nullopt;
    }
    if (value->is_number_integer()) return value->get<int64_t>();
    return WholeNumber(Number());
  }
  std::optional<double> Number() const {
    return value->is_number() ? std::optional<double>(value->get<double>()) : std::nullopt;
  }
  std::optional<bool> Bool() const { return value->is_boolean() ? std::optional<bool>(value->get<bool>()) : std::nullopt; }
  std::optional<std::string> String() const {
    return value->is_string() ? std::optional<std::string>(value->get<std::string>()) : std::nullopt;
  }
};

std::string Found(const GgufValue& value) { return value.TypeText(); }
std::string Found(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

Error WrongKind(const std::string& path, std::string_view key, const std::string& found, const char* expected) {
  return Error{Code::kInvalidModel,
               StrCat("The configuration of \"", path, "\" has ", found, " for key \"", key, "\"; expected ", expected, ".")};
}

}  // namespace

const GgufValue* LlmConfig::FindGguf(std::string_view key) const {
  if (!gguf_) return nullptr;
  if (const GgufValue* own = gguf_->Find(StrCat(architecture_, ".", key))) return own;
  return gguf_->Find(key);
}

Error LlmConfig::Missing(std::string_view key) const {
  const std::string shown = gguf_ ? StrCat(architecture_, ".", key) : std::string(key);
  return Error{Code::kInvalidModel, StrCat("The configuration of \"", path_, "\" has no key \"", shown, "\".")};
}

bool LlmConfig::Has(std::string_view key) const { return FindGguf(key) != nullptr || (json_ && json_->Find(key) != nullptr); }

// One value, by the accessor of that name; and all values of an array.
#define LEEWAY_ONE(kind, expected)                              \
  if (const GgufValue* value = FindGguf(key)) {                 \
    if (!value->is_array()) {                                   \
      if (auto item = GgufItem{value, 0}.kind()) return *item;  \
    }                                                           \
    return WrongKind(path_, key, Found(*value), expected);      \
  }                                                             \
  if (const json* value = json_ ? json_->Find(key) : nullptr) { \
    if (auto item = JsonItem{value}.kind()) return *item;       \
    return WrongKind(path_, key, Found(*value), expected);      \
  }                                                             \
  return Missing(key)

Result<int64_t> LlmConfig::Int(std::string_view key) const { LEEWAY_ONE(Int, "an integer"); }
Result<double> LlmConfig::Number(std::string_view key) const { LEEWAY_ONE(Number, "a number"); }
Result<bool> LlmConfig::Bool(std::string_view key) const { LEEWAY_ONE(Bool, "a bool"); }
Result<std::string> LlmConfig::String(std::string_view key) const { LEEWAY_ONE(String, "a string"); }
#undef LEEWAY_ONE

Result<int64_t> LlmConfig::Int(std::string_view key, int64_t fallback) const {
  if (!Has(key)) return fallback;
  return Int(key);
}
Result<double> LlmConfig::Number(std::string_view key, double fallback) const {
  if (!Has(key)) return fallback;
  return Number(key);
}
Result<bool> LlmConfig::Bool(std::string_view key, bool fallback) const {
  if (!Has(key)) return fallback;
  return Bool(key);
}
Result<std::string> LlmConfig::String(std::string_view key, std::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  return String(key);
}

namespace {

// The elements of `value` through `get`; an error at the first that is of another kind.
template <class T, class Get>
Result<std::vector<T>> AllOf(const std::string& path, std::string_view key, const GgufValue& value, const char* expected,
                             Get get) {
  std::vector<T> items;
  items.reserve(value.count());
  for (uint64_t i = 0; i < value.count(); ++i) {
    std::optional<T> item = get(GgufItem{&value, i});
    if (!item) return WrongKind(path, key, Found(value), expected);
    items.push_back(std::move(*item));
  }
  return items;
}
template <class T, class Get>
Result<std::vector<T>> AllOf(const std::string& path, std::string_view key, const json& value, const char* expected, Get get) {
  std::vector<T> items;
  const size_t count = value.is_array() ? value.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    std::optional<T> item = get(JsonItem{value.is_array() ? &value[i] : &value});
    if (!item) return WrongKind(path, key, Found(value), expected);
    items.push_back(std::move(*item));
  }
  return items;
}

template <class Item>
std::optional<int64_t> IntOrBool(const Item& item) {
  if (const auto flag = item.Bool()) return int64_t(*flag);
  return item.Int();
}

}  // namespace

Result<std::vector<int64_t>> LlmConfig::Ints(std::string_view key) const {
  auto get = [](const auto& item) { return IntOrBool(item); };
  if (const GgufValue* value = FindGguf(key)) return AllOf<int64_t>(path_, key, *value, "integers", get);
  if (const json* value = json_ ? json_->Find(key) : nullptr) return AllOf<int64_t>(path_, key, *value, "integers", get);
  return Missing(key);
}
Result<std::vector<double>> LlmConfig::Numbers(std::string_view key) const {
  auto get = [](const auto& item) { return item.Number(); };
  if (const GgufValue* value = FindGguf(key)) return AllOf<double>(path_, key, *value, "numbers", get);
  if (const json* value = json_ ? json_->Find(key) : nullptr) return AllOf<double>(path_, key, *value, "numbers", get);
  return Missing(key);
}
Result<std::vector<std::string>> LlmConfig::Strings(std::string_view key) const {
  auto get = [](const auto& item) { return item.String(); };
  if (const GgufValue* value = FindGguf(key)) return AllOf<std::string>(path_, key, *value, "strings", get);
  if (const json* value = json_ ? json_->Find(key) : nullptr) return AllOf<std::string>(path_, key, *value, "strings", get);
  return Missing(key);
}

bool LlmFile::LooksLikeIt(const std::string& path) {
  if (IsFolder(path)) return Exists(path + "/config.json");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  std::byte start[4];
  const size_t count = std::fread(start, 1, sizeof start, file);
  std::fclose(file);
  return GgufFile::LooksLikeIt(std::span<const std::byte>(start, count));
}

Result<std::shared_ptr<const LlmFile>> LlmFile::Open(const std::string& path) {
  if (IsFolder(path)) return FromFolder(path);
  ASSIGN_OR_RETURN(auto file, GgufFile::Open(path));
  return FromGguf(std::move(file));
}

Result<std::shared_ptr<const LlmFile>> LlmFile::FromGguf(std::shared_ptr<const GgufFile> file) {
  std::shared_ptr<LlmFile> model(new LlmFile);
  model->format_ = Format::kGguf;
  model->path_ = file->path();
  model->file_bytes_ = file->file_bytes();
  ASSIGN_OR_RETURN(const std::string_view architecture, file->String("general.architecture"));
  model->architecture_ = std::string(architecture);
  if (file->Find("split.count") != nullptr) {
    ASSIGN_OR_RETURN(const int64_t parts, file->Int("split.count"));
    if (parts > 1) {
      return Error{Code::kUnsupported, StrCat("The GGUF file \"", file->path(), "\" is one of ", parts,
                                              " parts of a model; Leeway reads models of one file.")};
    }
  }
  model->config_.gguf_ = file;
  model->config_.architecture_ = model->architecture_;
  model->config_.path_ = file->path();
  model->tensors_.reserve(file->tensors().size());
  for (const GgufTensor& tensor : file->tensors()) model->tensors_.push_back({tensor.name, file->View(tensor)});
  if (file->Find("tokenizer.chat_template") != nullptr) {
    ASSIGN_OR_RETURN(const std::string_view text, file->String("tokenizer.chat_template"));
    model->chat_template_ = std::string(text);
  }
  if (file->Find("tokenizer.huggingface.json") != nullptr) {
    ASSIGN_OR_RETURN(model->tokenizer_json_, file->String("tokenizer.huggingface.json"));
  }
  model->gguf_ = std::move(file);
  RETURN_IF_ERROR(model->Index());
  return std::shared_ptr<const LlmFile>(std::move(model));
}

Result<std::shared_ptr<const LlmFile>> LlmFile::FromFolder(const std::string& folder) {
  std::shared_ptr<LlmFile> model(new LlmFile);
  model->format_ = Format::kSafetensors;
  model->path_ = folder;
  const std::string config_path = folder + "/config.json";
  ASSIGN_OR_RETURN(model->config_file_, OpenText(config_path, kLargestConfigBytes));
  if (!model->config_file_)
    return Error{Code::kNotFound, StrCat("The folder \"", folder, "\" has no config.json, so it is no model.")};
  auto parsed = std::make_shared<LlmConfig::Json>();
  ASSIGN_OR_RETURN(parsed->root, ParseObject(*model->config_file_));
  model->config_json_ = Text(*model->config_file_);
  model->config_.json_ = std::move(parsed);
  model->config_.path_ = config_path;
  ASSIGN_OR_RETURN(model->architecture_, model->config_.String("model_type"));

  ASSIGN_OR_RETURN(model->safetensors_, SafetensorsFolder::Open(folder));
  for (const auto& file : model->safetensors_->files()) {
    model->file_bytes_ += file->file_bytes();
    for (const SafetensorsTensor& tensor : file->tensors()) model->tensors_.push_back({tensor.name, file->View(tensor)});
  }
  ASSIGN_OR_RETURN(model->tokenizer_file_, OpenText(folder + "/tokenizer.json", kLargestTokenizerBytes));
  if (model->tokenizer_file_) model->tokenizer_json_ = Text(*model->tokenizer_file_);
  ASSIGN_OR_RETURN(model->tokenizer_config_file_, OpenText(folder + "/tokenizer_config.json", kLargestConfigBytes));
  if (model->tokenizer_config_file_) {
    model->tokenizer_config_json_ = Text(*model->tokenizer_config_file_);
    ASSIGN_OR_RETURN(const json tokenizer_config, ParseObject(*model->tokenizer_config_file_));
    if (tokenizer_config.contains("chat_template")) model->chat_template_ = TemplateOf(tokenizer_config["chat_template"]);
  }
  // A file of its own is the newer way, and wins.
  ASSIGN_OR_RETURN(const auto chat_template, OpenText(folder + "/chat_template.jinja", kLargestConfigBytes));
  if (chat_template) model->chat_template_ = std::string(Text(*chat_template));
  RETURN_IF_ERROR(model->Index());
  return std::shared_ptr<const LlmFile>(std::move(model));
}

Status LlmFile::Index() {
  index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i).second) {
      return Error{Code::kInvalidModel, StrCat("The model \"", path_, "\" has the tensor \"", tensors_[i].name, "\" twice.")};
    }
  }
  return {};
}

const HostTensor* LlmFile::tensor(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second].tensor;
}

Result<const HostTensor*> LlmFile::Tensor(std::string_view name, const Shape& shape) const {
  const HostTensor* found = tensor(name);
  if (found == nullptr) return Error{Code::kInvalidModel, StrCat("The model \"", path_, "\" has no tensor \"", name, "\".")};
  if (found->shape() != shape) {
    return Error{Code::kInvalidModel, StrCat("The model \"", path_, "\" has the tensor \"", name, "\" of shape ",
                                             found->shape().ToString(), "; expected ", shape.ToString(), ".")};
  }
  return found;
}

}  // namespace leeway
