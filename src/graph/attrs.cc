#include "base/strings.h"
#include "graph/op_def.h"

namespace leeway {
namespace {

struct AttrText {
  std::string operator()(bool value) const { return StrCat(value); }
  std::string operator()(int64_t value) const { return StrCat(value); }
  std::string operator()(double value) const {
    std::string text = StrCat(value);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // so that it reads as a float
  }
  std::string operator()(const std::string& value) const { return StrCat("\"", value, "\""); }
  std::string operator()(const std::vector<int64_t>& value) const { return StrCat("[", Join(value, ", "), "]"); }
  std::string operator()(const std::vector<double>& value) const {
    std::vector<std::string> texts;
    for (double v : value) texts.push_back((*this)(v));
    return StrCat("[", Join(texts, ", "), "]");
  }
};

template <class T>
const T* FindAs(const AttrSet& attrs, std::string_view name) {
  const AttrValue* value = attrs.Find(name);
  return value ? std::get_if<T>(value) : nullptr;
}

}  // namespace

const AttrValue* AttrSet::Find(std::string_view name) const {
  auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

bool AttrSet::GetBool(std::string_view name, bool fallback) const {
  auto* value = FindAs<bool>(*this, name);
  return value ? *value : fallback;
}

int64_t AttrSet::GetInt(std::string_view name, int64_t fallback) const {
  auto* value = FindAs<int64_t>(*this, name);
  return value ? *value : fallback;
}

double AttrSet::GetFloat(std::string_view name, double fallback) const {
  if (auto* value = FindAs<double>(*this, name)) return *value;
  auto* whole = FindAs<int64_t>(*this, name);
  return whole ? double(*whole) : fallback;
}

std::string AttrSet::GetString(std::string_view name, std::string_view fallback) const {
  auto* value = FindAs<std::string>(*this, name);
  return value ? *value : std::string(fallback);
}

std::vector<int64_t> AttrSet::GetInts(std::string_view name) const {
  auto* value = FindAs<std::vector<int64_t>>(*this, name);
  return value ? *value : std::vector<int64_t>();
}

std::string AttrSet::ToString() const {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values_) parts.push_back(StrCat(name, "=", std::visit(AttrText(), value)));
  return Join(parts, ", ");
}

std::string TensorType::ToString() const { return StrCat(DTypeName(dtype), shape.ToString()); }

}  // namespace leeway
