#include "cli/inspect_llm.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "base/utf8.h"
#include "cli/common.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

// Arrays of up to as many elements are shown, longer ones by type and length.
constexpr uint64_t kShownElements = 64;
constexpr size_t kShownCharacters = 200;

std::string Printable(std::string_view text) {
  return IsUtf8(text) ? std::string(text) : StrCat("(", text.size(), " bytes that are no text)");
}

json Element(const GgufValue& value, uint64_t i) {
  if (const auto flag = value.Bool(i)) return *flag;
  if (const auto text = value.String(i)) return Printable(*text);
  if (const auto integer = value.Int(i)) return *integer;
  if (const auto number = value.Number(i)) return *number;
  return nullptr;  // an integer beyond int64
}

json ValueJson(const GgufValue& value) {
  if (!value.is_array()) return Element(value, 0);
  if (value.count() > kShownElements) return value.TypeText();
  json items = json::array();
  for (uint64_t i = 0; i < value.count(); ++i) items.push_back(Element(value, i));
  return items;
}

// A value on one line.
std::string OneLine(const json& value) {
  std::string text;
  if (value.is_number_float()) {  // those of the files are mostly f32
    text = StrCat(float(value.get<double>()));
  } else {
    text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  if (text.size() > kShownCharacters) {
    size_t cut = kShownCharacters;
    while (cut > 0 && (uint8_t(text[cut]) & 0xC0) == 0x80) --cut;  // not within a character
    text = text.substr(0, cut) + "...";
  }
  return text;
}

struct TypeTotal {
  size_t tensors = 0;
  uint64_t elements = 0, bytes = 0;
};
// In the order of DType.
std::map<DType, TypeTotal> Totals(const LlmFile& file) {
  std::map<DType, TypeTotal> totals;
  for (const auto& [name, tensor] : file.tensors()) {
    TypeTotal& total = totals[tensor.dtype()];
    ++total.tensors;
    total.elements += uint64_t(tensor.element_count());
    total.bytes += tensor.bytes().size();
  }
  return totals;
}

const char* FormatName(const LlmFile& file) { return file.format() == LlmFile::Format::kGguf ? "gguf" : "safetensors"; }

// The tokenizer's and the rest of the metadata. For safetensors: the top of config.json is not kept as text, so its source is
// named.
json Metadata(const LlmFile& file) {
  json metadata = json::object();
  if (file.gguf() != nullptr) {
    for (const auto& [key, value] : file.gguf()->entries()) metadata[std::string(key)] = ValueJson(value);
  } else {
    metadata = json::parse(file.config_json(), nullptr, false);
  }
  return metadata;
}

}  // namespace

json LlmFileReport(const LlmFile& file) {
  json report;
  report["model"] = file.path();
  report["format"] = FormatName(file);
  if (file.gguf() != nullptr) report["format_version"] = file.gguf()->version();
  report["architecture"] = file.architecture();
  report["file_bytes"] = file.file_bytes();
  report["metadata"] = Metadata(file);
  report["has_chat_template"] = file.chat_template().has_value();
  report["tensors"] = json::array();
  uint64_t elements = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    report["tensors"].push_back({{"name", name},
                                 {"dtype", DTypeName(tensor.dtype())},
                                 {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                                 {"bytes", tensor.bytes().size()}});
    elements += uint64_t(tensor.element_count());
  }
  report["parameters"] = elements;
  report["types"] = json::object();
  for (const auto& [dtype, total] : Totals(file)) {
    report["types"][DTypeName(dtype)] = {{"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
  }
  return report;
}

std::string LlmFileText(const LlmFile& file) {
  std::string text = StrCat("== ", file.path(), "\n", FormatName(file));
  if (file.gguf() != nullptr) text += StrCat(" version ", file.gguf()->version());
  text += StrCat(", architecture ", file.architecture(), ", ", BytesText(file.file_bytes()), "\n== metadata\n");
  const json metadata = Metadata(file);
  for (const auto& [key, value] : metadata.items()) text += StrCat(key, ": ", OneLine(value), "\n");

  std::vector<std::vector<std::string>> rows = {{"tensor", "type", "shape", "bytes"}};
  for (const auto& [name, tensor] : file.tensors()) {
    rows.push_back({std::string(name), DTypeName(tensor.dtype()), tensor.shape().ToString(), StrCat(tensor.bytes().size())});
  }
  text += StrCat("== tensors\n", Table(rows, {false, false, false, true}));

  rows = {{"type", "tensors", "elements", "bytes", "bits/element"}};
  TypeTotal all;
  auto add = [&](const char* name, const TypeTotal& total) {
    char bits[32];
    std::snprintf(bits, sizeof bits, "%.2f", total.elements == 0 ? 0.0 : 8.0 * double(total.bytes) / double(total.elements));
    rows.push_back({name, StrCat(total.tensors), StrCat(total.elements), BytesText(total.bytes), bits});
  };
  for (const auto& [dtype, total] : Totals(file)) {
    add(DTypeName(dtype), total);
    all.tensors += total.tensors, all.elements += total.elements, all.bytes += total.bytes;
  }
  add("all", all);
  text += StrCat("== types\n", Table(rows, {false, true, true, true, true}));
  return text;
}

}  // namespace leeway::cli
