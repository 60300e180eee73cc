#include "llm/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "llm/unicode.h"

namespace leeway::llm::jinja {
namespace {

// Python's repr() of a text.
Text Quoted(const Text& text) {
  const bool has_single = text.view().find('\'') != std::string_view::npos;
  const char quote = has_single && text.view().find('"') == std::string_view::npos ? '"' : '\'';
  Text out;
  out.Append(std::string_view(&quote, 1));
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.view()[i];
    switch (c) {
      case '\n': out.Append("\\n"); break;
      case '\r': out.Append("\\r"); break;
      case '\t': out.Append("\\t"); break;
      case '\\': out.Append("\\\\"); break;
      default:
        if (c == quote) out.Append("\\");
        out.Append(std::string_view(&c, 1), text.IsOutside(i));
    }
  }
  out.Append(std::string_view(&quote, 1));
  return out;
}

void AppendRepr(Text& out, const Value& value) {
  if (const Text* text = value.AsText()) {
    out.Append(Quoted(*text));
  } else if (const List* list = value.AsList()) {
    out.Append(list->is_tuple ? "(" : "[");
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out.Append(", ");
      AppendRepr(out, (*list)[i]);
    }
    if (list->is_tuple && list->size() == 1) out.Append(",");
    out.Append(list->is_tuple ? ")" : "]");
  } else if (const Dict* dict = value.AsDict()) {
    out.Append("{");
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out.Append(", ");
      out.Append(Quoted(dict->items[i].first));
      out.Append(": ");
      AppendRepr(out, dict->items[i].second);
    }
    out.Append("}");
  } else {
    out.Append(ToText(value));
  }
}

void AppendJsonString(Text& out, const Text& text) {
  out.Append("\"");
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.view()[i];
    switch (c) {
      case '"': out.Append("\\\""); break;
      case '\\': out.Append("\\\\"); break;
      case '\n': out.Append("\\n"); break;
      case '\r': out.Append("\\r"); break;
      case '\t': out.Append("\\t"); break;
      case '\b': out.Append("\\b"); break;
      case '\f': out.Append("\\f"); break;
      default:
        if (uint8_t(c) < 0x20) {
          constexpr char kHex[] = "0123456789abcdef";
          const char escape[] = {'\\', 'u', '0', '0', kHex[uint8_t(c) >> 4], kHex[c & 15]};
          out.Append(std::string_view(escape, 6));
        } else {
          out.Append(std::string_view(&c, 1), text.IsOutside(i));
        }
    }
  }
  out.Append("\"");
}

Status AppendJson(Text& out, const Value& value, int indent, int level, bool sort_keys) {
  auto new_line = [&](int at_level) {
    if (indent < 0) return;
    out.Append("\n");
    out.Append(std::string(size_t(indent) * size_t(at_level), ' '));
  };
  const std::string_view separator = indent < 0 ? ", " : ",";
  if (value.IsNone()) {
    out.Append("null");
  } else if (value.Is<bool>()) {
    out.Append(value.Int() ? "true" : "false");
  } else if (value.IsNumber()) {
    out.Append(ToText(value));
  } else if (const Text* text = value.AsText()) {
    AppendJsonString(out, *text);
  } else if (const List* list = value.AsList()) {
    if (list->empty()) return out.Append("[]"), Status();
    out.Append("[");
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out.Append(separator);
      new_line(level + 1);
      RETURN_IF_ERROR(AppendJson(out, (*list)[i], indent, level + 1, sort_keys));
    }
    new_line(level);
    out.Append("]");
  } else if (const Dict* dict = value.AsDict(); dict && !dict->is_namespace) {
    if (dict->items.empty()) return out.Append("{}"), Status();
    std::vector<const std::pair<Text, Value>*> items;
    for (const auto& item : dict->items) items.push_back(&item);
    if (sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](auto* a, auto* b) { return a->first.view() < b->first.view(); });
    }
    out.Append("{");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out.Append(separator);
      new_line(level + 1);
      AppendJsonString(out, items[i]->first);
      out.Append(": ");
      RETURN_IF_ERROR(AppendJson(out, items[i]->second, indent, level + 1, sort_keys));
    }
    new_line(level);
    out.Append("}");
  } else {
    return Error{Code::kInvalidArgument, StrCat("A value of type ", TypeName(value), " can't be written as JSON.")};
  }
  return {};
}

}  // namespace

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name.view() == key) return &value;
  }
  return nullptr;
}

void Dict::Set(Text key, Value value) {
  for (auto& [name, old] : items) {
    if (name.view() == key.view()) {
      old = std::move(value);
      return;
    }
  }
  items.push_back({std::move(key), std::move(value)});
}

Extent ExtentOf(const Value& value) {
  if (const Text* text = value.AsText()) return {0, 1 + text->size() / 16};
  if (const List* list = value.AsList()) return list->extent;
  if (const Dict* dict = value.AsDict()) return dict->is_namespace ? Extent{kMaxValueDepth, 1} : dict->extent;
  return {};
}

namespace {
Status AddTo(Extent& whole, const Value& part) {
  const Extent extent = ExtentOf(part);
  if (extent.depth >= kMaxValueDepth) {
    return Error{Code::kInvalidArgument,
                 StrCat("Lists and dicts nest deeper than ", kMaxValueDepth, " levels, or hold a namespace.")};
  }
  whole.depth = std::max(whole.depth, extent.depth + 1);
  whole.weight += extent.weight;
  if (whole.weight > kMaxValueWeight) return Error{Code::kInvalidArgument, "A list or dict grows too large."};
  return {};
}
}  // namespace

Result<Value> MakeList(std::vector<Value> items, bool is_tuple) {
  List list{std::move(items), {1, 1}, is_tuple};
  for (const Value& item : list.items) RETURN_IF_ERROR(AddTo(list.extent, item));
  Value value;
  value.is = std::make_shared<const List>(std::move(list));
  return value;
}

Result<Value> MakeDict(Dict dict) {
  dict.extent = {1, 1};
  for (const auto& [key, item] : dict.items) {
    dict.extent.weight += 1 + key.size() / 16;
    RETURN_IF_ERROR(AddTo(dict.extent, item));
  }
  Value value;
  value.is = std::make_shared<Dict>(std::move(dict));
  return value;
}

bool IsTrue(const Value& value) {
  if (value.IsUndefined() || value.IsNone()) return false;
  if (value.IsNumber()) return value.Number() != 0;
  if (const Text* text = value.AsText()) return !text->empty();
  if (const List* list = value.AsList()) return !list->empty();
  if (const Dict* dict = value.AsDict()) return dict->is_namespace || !dict->items.empty();
  return true;
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsInt() && b.IsInt()) return a.Int() == b.Int();
  if (a.IsNumber() && b.IsNumber()) return a.Number() == b.Number();
  if (a.AsText() && b.AsText()) return a.AsText()->view() == b.AsText()->view();
  if (a.AsList() && b.AsList()) {
    return std::equal(a.AsList()->begin(), a.AsList()->end(), b.AsList()->begin(), b.AsList()->end(), Equal);
  }
  if (a.AsDict() && b.AsDict()) {
    const Dict &x = *a.AsDict(), &y = *b.AsDict();
    if (&x == &y) return true;
    if (x.items.size() != y.items.size() || x.is_namespace || y.is_namespace) return false;
    return std::all_of(x.items.begin(), x.items.end(), [&](const auto& item) {
      const Value* other = y.Find(item.first.view());
      return other && Equal(item.second, *other);
    });
  }
  return (a.IsNone() && b.IsNone()) || (a.IsUndefined() && b.IsUndefined());
}

Result<int> Compare(const Value& a, const Value& b) {
  auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.IsInt() && b.IsInt()) return sign(a.Int(), b.Int());
  if (a.IsNumber() && b.IsNumber()) return sign(a.Number(), b.Number());
  if (a.AsText() && b.AsText()) return sign(a.AsText()->view(), b.AsText()->view());
  if (a.AsList() && b.AsList()) {
    const List &x = *a.AsList(), &y = *b.AsList();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (Equal(x[i], y[i])) continue;
      return Compare(x[i], y[i]);
    }
    return sign(x.size(), y.size());
  }
  return Error{Code::kInvalidArgument,
               StrCat("A value of type ", TypeName(a), " and one of type ", TypeName(b), " have no order.")};
}

const char* TypeName(const Value& value) {
  if (value.IsUndefined()) return "undefined";
  if (value.IsNone()) return "none";
  if (value.Is<bool>()) return "boolean";
  if (value.IsInt()) return "integer";
  if (value.IsNumber()) return "float";
  if (value.AsText()) return "text";
  if (value.AsList()) return "list";
  if (const Dict* dict = value.AsDict()) return dict->is_namespace ? "namespace" : "dict";
  return value.AsLoop() ? "loop" : "function";
}

std::string NumberText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the number; an exponent below 1e-4 and from 1e16 on.
  char text[64];
  const double magnitude = std::abs(number);
  const bool has_exponent = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto end =
      std::to_chars(text, text + sizeof text, number, has_exponent ? std::chars_format::scientific : std::chars_format::fixed)
          .ptr;
  std::string out(text, end);
  if (!has_exponent && out.find('.') == std::string::npos) out += ".0";
  return out;
}

Text ToText(const Value& value) {
  if (value.IsUndefined()) return {};
  if (value.IsNone()) return Text("None");
  if (value.Is<bool>()) return Text(value.Int() ? "True" : "False");
  if (value.IsInt()) return Text(StrCat(value.Int()));
  if (value.IsNumber()) return Text(NumberText(value.Number()));
  if (const Text* text = value.AsText()) return *text;
  if (value.AsList() || value.AsDict()) {
    Text out;
    AppendRepr(out, value);
    return out;
  }
  return Text(StrCat("<", TypeName(value), ">"));
}

Result<Text> ToJson(const Value& value, int indent, bool sort_keys) {
  Text out;
  RETURN_IF_ERROR(AppendJson(out, value, indent, 0, sort_keys));
  return out;
}

Result<Value> FromJson(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean: return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer: return Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      return json.get<uint64_t>() > uint64_t(INT64_MAX) ? Value(json.get<double>()) : Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_float: return Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string: return Value(Text(json.get_ref<const std::string&>(), /*is_outside=*/true));
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) {
        ASSIGN_OR_RETURN(Value value, FromJson(item));
        items.push_back(std::move(value));
      }
      return MakeList(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        ASSIGN_OR_RETURN(Value value, FromJson(item));
        dict.items.push_back({Text(key, true), std::move(value)});
      }
      return MakeDict(std::move(dict));
    }
    default: return Value(None{});
  }
}

}  // namespace leeway::llm::jinja
