#include "llm/jinja/builtins.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "llm/unicode.h"

namespace leeway::llm::jinja {
namespace {

Error Wrong(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
Error WrongType(std::string_view what, const Value& value, std::string_view expected) {
  return Wrong(StrCat(what, " is of type ", TypeName(value), ", expected is ", expected, "."));
}

// -- Text -----------------------------------------------------------------------------------------------------------------

bool IsPythonSpace(uint32_t c) { return ClassOf(c) == CharacterClass::kSpace || (c >= 0x1C && c <= 0x1F); }

// Where characters begin, and the end.
std::vector<size_t> CharacterStarts(std::string_view text) {
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += ReadCharacter(text, at).size_bytes) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

// `characters`: those to strip; null: white space.
Text Strip(const Text& text, const Text* characters, bool left, bool right) {
  const std::string_view view = text.view();
  auto is_stripped = [&](size_t at, size_t size) {
    if (!characters) return IsPythonSpace(ReadCharacter(view, at).value);
    return characters->view().find(view.substr(at, size)) != std::string_view::npos;
  };
  const std::vector<size_t> starts = CharacterStarts(view);
  size_t begin = 0, end = starts.size() - 1;
  while (left && begin < end && is_stripped(starts[begin], starts[begin + 1] - starts[begin])) ++begin;
  while (right && end > begin && is_stripped(starts[end - 1], starts[end] - starts[end - 1])) --end;
  return text.Substring(starts[begin], starts[end] - starts[begin]);
}

// map(out, character, index) appends what comes in its place.
template <class Map>
Text MapCharacters(const Text& text, const Map& map) {
  Text out;
  for (size_t at = 0; at < text.size();) {
    const Character c = ReadCharacter(text.view(), at);
    if (c.is_valid) {
      std::string mapped;
      map(mapped, c.value, at);
      out.Append(mapped, text.IsOutside(at));
    } else {
      out.Append(text.Substring(at, c.size_bytes));
    }
    at += c.size_bytes;
  }
  return out;
}
Text Upper(const Text& text) {
  return MapCharacters(text, [](std::string& out, uint32_t c, size_t) {
    c == 0xDF ? void(out += "SS") : AppendCharacter(out, ToUpper(c));  // the sharp s is the one common letter that becomes two
  });
}
Text Lower(const Text& text) {
  return MapCharacters(text, [](std::string& out, uint32_t c, size_t) { AppendCharacter(out, ToLower(c)); });
}
Text Title(const Text& text) {
  bool in_word = false;
  return MapCharacters(text, [&](std::string& out, uint32_t c, size_t) {
    AppendCharacter(out, in_word ? ToLower(c) : ToUpper(c));
    in_word = ClassOf(c) == CharacterClass::kLetter;
  });
}
Text Capitalize(const Text& text) {
  return MapCharacters(
      text, [](std::string& out, uint32_t c, size_t at) { AppendCharacter(out, at == 0 ? ToUpper(c) : ToLower(c)); });
}

Text ReplaceAll(const Text& text, const Text& from, const Text& to, int64_t count) {
  Text out;
  size_t at = 0;
  if (from.empty()) {  // Python puts the new text before each character and at the end
    const std::vector<size_t> starts = CharacterStarts(text.view());
    for (size_t i = 0; i < starts.size(); ++i) {
      if (count < 0 || int64_t(i) < count) out.Append(to);
      if (i + 1 < starts.size()) out.Append(text.Substring(starts[i], starts[i + 1] - starts[i]));
    }
    return out;
  }
  for (; count != 0; --count) {
    const size_t found = text.view().find(from.view(), at);
    if (found == std::string_view::npos) break;
    out.Append(text.Substring(at, found - at));
    out.Append(to);
    at = found + from.size();
  }
  out.Append(text.Substring(at));
  return out;
}

std::vector<Value> Split(const Text& text, const Text* separator, int64_t max_count) {
  std::vector<Value> parts;
  if (!separator) {  // at white space, without empty parts
    const std::vector<size_t> starts = CharacterStarts(text.view());
    auto is_space = [&](size_t i) { return IsPythonSpace(ReadCharacter(text.view(), starts[i]).value); };
    const size_t count = starts.size() - 1;
    for (size_t i = 0; i < count;) {
      while (i < count && is_space(i)) ++i;
      if (i == count) break;
      if (max_count >= 0 && int64_t(parts.size()) == max_count) {
        parts.push_back(Strip(text.Substring(starts[i]), nullptr, false, true));
        break;
      }
      const size_t begin = i;
      while (i < count && !is_space(i)) ++i;
      parts.push_back(text.Substring(starts[begin], starts[i] - starts[begin]));
    }
    return parts;
  }
  size_t at = 0;
  while (max_count < 0 || int64_t(parts.size()) < max_count) {
    const size_t found = text.view().find(separator->view(), at);
    if (found == std::string_view::npos) break;
    parts.push_back(text.Substring(at, found - at));
    at = found + separator->size();
  }
  parts.push_back(text.Substring(at));
  return parts;
}

std::vector<Value> SplitFromRight(const Text& text, const Text& separator, int64_t max_count) {
  std::vector<Value> parts;
  size_t end = text.size();
  while (max_count < 0 || int64_t(parts.size()) < max_count) {
    const size_t found =
        end < separator.size() ? std::string_view::npos : text.view().rfind(separator.view(), end - separator.size());
    if (found == std::string_view::npos) break;
    parts.push_back(text.Substring(found + separator.size(), end - found - separator.size()));
    end = found;
  }
  parts.push_back(text.Substring(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Value> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.view().find_first_of("\n\r", at), text.size());
    size_t next = end;
    if (next < text.size()) next += text.view().substr(next, 2) == "\r\n" ? 2 : 1;
    lines.push_back(text.Substring(at, (keep_ends ? next : end) - at));
    at = next;
  }
  return lines;
}

Text Indent(const Text& text, const Text& margin, bool first, bool blank) {
  Text out;
  bool is_first = true;
  for (size_t at = 0; at <= text.size(); is_first = false) {
    const size_t end = std::min(text.view().find('\n', at), text.size());
    if ((is_first && first) || (!is_first && (blank || end > at))) out.Append(margin);
    out.Append(text.Substring(at, end - at));
    if (end == text.size()) break;
    out.Append(text.Substring(end, 1));
    at = end + 1;
  }
  return out;
}

Text EscapeHtml(const Text& text) {
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text.view()[i]) {
      case '&': out.Append("&amp;"); break;
      case '<': out.Append("&lt;"); break;
      case '>': out.Append("&gt;"); break;
      case '"': out.Append("&#34;"); break;
      case '\'': out.Append("&#39;"); break;
      default: out.Append(text.Substring(i, 1));
    }
  }
  return out;
}

template <class Is>
bool AllCharacters(const Text& text, const Is& is) {
  for (size_t at = 0; at < text.size();) {
    const Character c = ReadCharacter(text.view(), at);
    if (!c.is_valid || !is(c.value)) return false;
    at += c.size_bytes;
  }
  return !text.empty();
}
// Python's isupper() and islower(): a letter of that case, and none of the other.
bool HasOnlyCase(const Text& text, bool (*is)(uint32_t), bool (*is_other)(uint32_t)) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const Character c = ReadCharacter(text.view(), at);
    if (c.is_valid && is_other(c.value)) return false;
    any = any || (c.is_valid && is(c.value));
    at += c.size_bytes;
  }
  return any;
}

// -- Arguments ------------------------------------------------------------------------------------------------------------

Result<int64_t> IntOr(const Arguments& arguments, size_t position, std::string_view name, int64_t otherwise) {
  const Value* value = arguments.Find(position, name);
  if (!value || value->IsNone()) return otherwise;
  if (!value->IsInt()) return WrongType(StrCat("The argument ", name), *value, "an integer");
  return value->Int();
}
Result<bool> BoolOr(const Arguments& arguments, size_t position, std::string_view name, bool otherwise) {
  const Value* value = arguments.Find(position, name);
  return value ? IsTrue(*value) : otherwise;
}
// Null where it isn't given or none.
Result<const Text*> TextOrNull(const Arguments& arguments, size_t position, std::string_view name) {
  const Value* value = arguments.Find(position, name);
  if (!value || value->IsNone()) return static_cast<const Text*>(nullptr);
  if (!value->AsText()) return WrongType(StrCat("The argument ", name), *value, "a text");
  return value->AsText();
}
Result<const Text*> NeedText(const Arguments& arguments, size_t position, std::string_view name) {
  ASSIGN_OR_RETURN(const Text* text, TextOrNull(arguments, position, name));
  if (!text) return Wrong(StrCat("The argument ", name, " is missing."));
  return text;
}

Result<std::string> FormatTime(std::string_view format, int64_t seconds) {
  const int64_t days = seconds >= 0 ? seconds / 86400 : -((-seconds + 86399) / 86400);
  const int64_t of_day = seconds - days * 86400;
  // The civil calendar from a count of days: years that begin in March, in cycles of 400.
  const int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, day_of_era = z - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t shifted_month = (5 * day_of_year + 2) / 153, day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
  const int64_t month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
  const int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  const int64_t weekday = ((days + 4) % 7 + 7) % 7;  // 0 is Sunday
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  static constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  auto two = [](int64_t n) { return StrCat(n < 10 ? "0" : "", n); };
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    switch (format[++i]) {
      case 'd': out += two(day); break;
      case 'm': out += two(month); break;
      case 'Y': out += StrCat(year); break;
      case 'y': out += two((year % 100 + 100) % 100); break;
      case 'b': out += std::string_view(kMonths[month - 1]).substr(0, 3); break;
      case 'B': out += kMonths[month - 1]; break;
      case 'a': out += std::string_view(kDays[weekday]).substr(0, 3); break;
      case 'A': out += kDays[weekday]; break;
      case 'H': out += two(of_day / 3600); break;
      case 'I': out += two((of_day / 3600 + 11) % 12 + 1); break;
      case 'p': out += of_day < 43200 ? "AM" : "PM"; break;
      case 'M': out += two(of_day / 60 % 60); break;
      case 'S': out += two(of_day % 60); break;
      case 'F': out += StrCat(year, "-", two(month), "-", two(day)); break;
      case 'T': out += StrCat(two(of_day / 3600), ":", two(of_day / 60 % 60), ":", two(of_day % 60)); break;
      case 'Z': out += "UTC"; break;
      case '%': out += '%'; break;
      default: return Wrong(StrCat("strftime_now does not know %", std::string(1, format[i]), "."));
    }
  }
  return out;
}

// The value at a path of names: "function.name".
Value LookupPath(const Value& value, std::string_view path) {
  Value at = value;
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    int64_t index = 0;
    const bool is_index = std::from_chars(name.data(), name.data() + name.size(), index).ptr == name.data() + name.size();
    if (is_index && at.AsList()) {
      at = index >= 0 && size_t(index) < at.AsList()->size() ? (*at.AsList())[size_t(index)] : Value();
    } else {
      at = Lookup(at, name);
    }
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

Result<Value> NewList(std::vector<Value> items, const Context& context) {
  RETURN_IF_ERROR(context.charge(items.size() * 2));
  return MakeList(std::move(items));
}

// Arguments without the first `count` by position.
Arguments Rest(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + std::ptrdiff_t(std::min(count, rest.positional.size())));
  return rest;
}

// select, reject, selectattr, rejectattr.
Result<Value> Select(const Value& input, const Arguments& arguments, bool by_attribute, bool wanted, const Context& context) {
  ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(input, context));
  std::string path;
  if (by_attribute) {
    ASSIGN_OR_RETURN(const Text* text, NeedText(arguments, 0, "attribute"));
    path = text->view();
  }
  const size_t test_at = by_attribute ? 1 : 0;
  ASSIGN_OR_RETURN(const Text* test, TextOrNull(arguments, test_at, "test"));
  const Arguments rest = Rest(arguments, test_at + 1);
  std::vector<Value> chosen;
  for (Value& item : items) {
    RETURN_IF_ERROR(context.charge(1));
    const Value looked_at = by_attribute ? LookupPath(item, path) : item;
    bool passes = IsTrue(looked_at);
    if (test) { ASSIGN_OR_RETURN(passes, ApplyTest(test->view(), looked_at, rest, context)); }
    if (passes == wanted) chosen.push_back(std::move(item));
  }
  return NewList(std::move(chosen), context);
}

Result<Value> Map(const Value& input, const Arguments& arguments, const Context& context) {
  ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(input, context));
  const Value* attribute = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") attribute = &value;
    if (name == "default") otherwise = &value;
  }
  if (attribute) {
    const std::string path(ToText(*attribute).view());
    for (Value& item : items) {
      RETURN_IF_ERROR(context.charge(1));
      item = LookupPath(item, path);
      if (item.IsUndefined() && otherwise) item = *otherwise;
    }
    return NewList(std::move(items), context);
  }
  ASSIGN_OR_RETURN(const Text* filter, NeedText(arguments, 0, "filter"));
  const Arguments rest = Rest(arguments, 1);
  for (Value& item : items) {
    RETURN_IF_ERROR(context.charge(1));
    ASSIGN_OR_RETURN(item, ApplyFilter(filter->view(), item, rest, context));
  }
  return NewList(std::move(items), context);
}

// Sorts by keys of one kind; `keys` belongs to `items`.
Result<std::vector<Value>> SortBy(std::vector<Value> items, const std::vector<Value>& keys, bool reverse,
                                  const Context& context) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Whether they have an order is found out before sorting, which can't fail halfway.
  for (size_t i = 1; i < keys.size(); ++i) RETURN_IF_ERROR(Compare(keys[0], keys[i]));
  for (const Value& key : keys) {
    if (key.AsList()) return Wrong("Lists are not sorted by lists.");
    RETURN_IF_ERROR(context.charge(ExtentOf(key).weight * 20));
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Result<int> compared = Compare(keys[a], keys[b]);
    return compared.ok() && (reverse ? *compared > 0 : *compared < 0);
  });
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  return sorted;
}

Value Folded(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.AsText() ? Value(Lower(*value.AsText())) : value;
}

Result<Value> FilterText(std::string_view name, const Text& text, const Arguments& arguments, const Context& context) {
  RETURN_IF_ERROR(context.charge(text.size() / 8));
  if (name == "trim") {
    ASSIGN_OR_RETURN(const Text* characters, TextOrNull(arguments, 0, "chars"));
    return Value(Strip(text, characters, true, true));
  }
  if (name == "upper") return Value(Upper(text));
  if (name == "lower") return Value(Lower(text));
  if (name == "title") return Value(Title(text));
  if (name == "capitalize") return Value(Capitalize(text));
  if (name == "escape" || name == "e" || name == "forceescape") return Value(EscapeHtml(text));
  if (name == "replace") {
    ASSIGN_OR_RETURN(const Text* from, NeedText(arguments, 0, "old"));
    ASSIGN_OR_RETURN(const Text* to, NeedText(arguments, 1, "new"));
    ASSIGN_OR_RETURN(const int64_t count, IntOr(arguments, 2, "count", -1));
    RETURN_IF_ERROR(context.charge((text.size() / std::max<size_t>(from->size(), 1) + 1) * (to->size() / 8 + 1)));
    return Value(ReplaceAll(text, *from, *to, count));
  }
  if (name == "indent") {
    const Value* width = arguments.Find(0, "width");
    Text margin(std::string(4, ' '));
    if (width && width->AsText()) {
      margin = *width->AsText();
    } else {
      ASSIGN_OR_RETURN(const int64_t count, IntOr(arguments, 0, "width", 4));
      if (count < 0 || count > 1000) return Wrong(StrCat("The width of indent is (", count, "), expected is 0 to 1000."));
      margin = Text(std::string(size_t(count), ' '));
    }
    ASSIGN_OR_RETURN(const bool first, BoolOr(arguments, 1, "first", false));
    ASSIGN_OR_RETURN(const bool blank, BoolOr(arguments, 2, "blank", false));
    const size_t lines = size_t(std::count(text.view().begin(), text.view().end(), '\n')) + 1;
    RETURN_IF_ERROR(context.charge(lines * (margin.size() / 8 + 1)));
    return Value(Indent(text, margin, first, blank));
  }
  return Wrong(StrCat("The filter \"", name, "\" is not known."));
}

Result<Value> FilterNumber(std::string_view name, const Value& input, const Arguments& arguments) {
  if (name == "abs") {
    if (!input.IsNumber()) return WrongType("What abs is applied to", input, "a number");
    if (input.IsInt()) return input.Int() == INT64_MIN ? Value(-double(INT64_MIN)) : Value(std::abs(input.Int()));
    return Value(std::abs(input.Number()));
  }
  if (name == "round") {
    if (!input.IsNumber()) return WrongType("What round is applied to", input, "a number");
    ASSIGN_OR_RETURN(const int64_t precision, IntOr(arguments, 0, "precision", 0));
    ASSIGN_OR_RETURN(const Text* method, TextOrNull(arguments, 1, "method"));
    const double factor = std::pow(10.0, double(std::clamp<int64_t>(precision, -300, 300))), scaled = input.Number() * factor;
    const std::string_view how = method ? method->view() : "common";
    return Value((how == "ceil" ? std::ceil(scaled) : how == "floor" ? std::floor(scaled) : std::nearbyint(scaled)) / factor);
  }
  // int and float take text as well; what can't be read is the default.
  const bool is_int = name == "int";
  const Value* given = arguments.Find(0, "default");
  const Value otherwise = given ? *given : is_int ? Value(int64_t(0)) : Value(0.0);
  double number = 0;
  if (const Text* text = input.AsText()) {
    const Text stripped = Strip(*text, nullptr, true, true);
    std::string_view digits = stripped.view();
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t integer = 0;
    const char* end = digits.data() + digits.size();
    if (const auto read = std::from_chars(digits.data(), end, integer); is_int && read.ec == std::errc() && read.ptr == end) {
      return Value(integer);
    }
    const auto read = std::from_chars(digits.data(), end, number);
    if (digits.empty() || read.ec != std::errc() || read.ptr != end) return otherwise;
  } else if (input.IsNumber()) {
    if (is_int && input.IsInt()) return Value(input.Int());
    number = input.Number();
  } else {
    return otherwise;
  }
  if (!is_int) return Value(number);
  if (!(std::abs(number) < 9e18)) return otherwise;
  return Value(int64_t(number));
}

}  // namespace

const Value* Arguments::Find(size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<std::vector<Value>> ItemsOf(const Value& value, const Context& context) {
  RETURN_IF_ERROR(context.charge(ExtentOf(value).depth > 0 ? 1 : ExtentOf(value).weight * 16));
  if (value.IsUndefined()) return std::vector<Value>();
  if (const List* list = value.AsList()) {
    RETURN_IF_ERROR(context.charge(list->size()));
    return list->items;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.AsDict(); dict && !dict->is_namespace) {
    RETURN_IF_ERROR(context.charge(dict->items.size() * 2));
    for (const auto& item : dict->items) items.push_back(item.first);
    return items;
  }
  if (const Text* text = value.AsText()) {
    const std::vector<size_t> starts = CharacterStarts(text->view());
    for (size_t i = 0; i + 1 < starts.size(); ++i) items.push_back(text->Substring(starts[i], starts[i + 1] - starts[i]));
    return items;
  }
  return Wrong(StrCat("A value of type ", TypeName(value), " has no items to go through."));
}

Value Lookup(const Value& value, std::string_view name) {
  if (const Dict* dict = value.AsDict()) {
    if (const Value* found = dict->Find(name)) return *found;
  }
  if (const Loop* loop = value.AsLoop()) {
    const int64_t index0 = int64_t(loop->index0), length = int64_t(loop->items->size());
    if (name == "index") return index0 + 1;
    if (name == "index0") return index0;
    if (name == "revindex") return length - index0;
    if (name == "revindex0") return length - index0 - 1;
    if (name == "first") return index0 == 0;
    if (name == "last") return index0 + 1 == length;
    if (name == "length") return length;
    if (name == "depth") return int64_t(1);
    if (name == "depth0") return int64_t(0);
    if (name == "previtem" && index0 > 0) return (*loop->items)[size_t(index0) - 1];
    if (name == "nextitem" && index0 + 1 < length) return (*loop->items)[size_t(index0) + 1];
  }
  return Value::UndefinedNamed(std::string(name));
}

Result<Value> LookupItem(const Value& value, const Value& key) {
  if (const Text* name = key.AsText()) return Lookup(value, name->view());
  if (!key.IsInt()) {
    if (value.AsList() || value.AsText()) return WrongType("An index", key, "an integer");
    return Value::UndefinedNamed(std::string(ToText(key).view()));
  }
  int64_t index = key.Int();
  if (const List* list = value.AsList()) {
    if (index < 0) index += int64_t(list->size());
    if (index >= 0 && index < int64_t(list->size())) return (*list)[size_t(index)];
  } else if (const Text* text = value.AsText()) {
    const std::vector<size_t> starts = CharacterStarts(text->view());
    const int64_t count = int64_t(starts.size()) - 1;
    if (index < 0) index += count;
    if (index >= 0 && index < count) {
      return Value(text->Substring(starts[size_t(index)], starts[size_t(index) + 1] - starts[size_t(index)]));
    }
  }
  return Value::UndefinedNamed(StrCat("[", key.Int(), "]"));
}

Result<Value> Slice(const Value& value, const Value* begin, const Value* end, const Value* step, const Context& context) {
  const List* list = value.AsList();
  const Text* text = value.AsText();
  if (!list && !text) return WrongType("What is sliced", value, "a list or a text");
  std::vector<size_t> starts;
  if (text) {
    RETURN_IF_ERROR(context.charge(text->size() / 8));
    starts = CharacterStarts(text->view());
  }
  const int64_t count = list ? int64_t(list->size()) : int64_t(starts.size()) - 1;
  auto is_given = [](const Value* bound) { return bound && !bound->IsNone(); };
  for (const Value* bound : {begin, end, step}) {
    if (is_given(bound) && !bound->IsInt()) return WrongType("A bound of a slice", *bound, "an integer");
  }
  const int64_t by = is_given(step) ? step->Int() : 1;
  if (by == 0) return Wrong("The step of a slice is 0.");
  auto clamp = [&](const Value* bound, int64_t otherwise) {
    if (!is_given(bound)) return otherwise;
    const int64_t index = bound->Int() < 0 ? std::max(bound->Int(), -count - 1) + count : bound->Int();
    return std::clamp<int64_t>(index, by > 0 ? 0 : -1, by > 0 ? count : count - 1);
  };
  const int64_t from = clamp(begin, by > 0 ? 0 : count - 1), to = clamp(end, by > 0 ? count : -1);
  if (text && by == 1) {
    return Value(from >= to ? Text() : text->Substring(starts[size_t(from)], starts[size_t(to)] - starts[size_t(from)]));
  }
  std::vector<Value> items;
  Text out;
  const int64_t stride = std::clamp<int64_t>(by, -count - 1, count + 1);  // no overflow, the same items
  for (int64_t i = from; by > 0 ? i < to : i > to; i += stride) {
    if (list) {
      items.push_back((*list)[size_t(i)]);
    } else {
      out.Append(text->Substring(starts[size_t(i)], starts[size_t(i) + 1] - starts[size_t(i)]));
    }
  }
  if (!list) return Value(std::move(out));
  RETURN_IF_ERROR(context.charge(items.size() * 2));
  return MakeList(std::move(items), list->is_tuple);
}

Result<Value> ApplyFilter(std::string_view name, const Value& input, const Arguments& arguments, const Context& context) {
  RETURN_IF_ERROR(context.charge(1));
  if (name == "default" || name == "d") {
    ASSIGN_OR_RETURN(const bool for_false, BoolOr(arguments, 1, "boolean", false));
    const Value* otherwise = arguments.Find(0, "default_value");
    if (input.IsUndefined() || (for_false && !IsTrue(input))) return otherwise ? *otherwise : Value(Text());
    return input;
  }
  if (name == "tojson") {
    ASSIGN_OR_RETURN(const int64_t indent, IntOr(arguments, 0, "indent", -1));
    // Both json.dumps's own argument and the one of the filter that ships with the template language.
    bool sort_keys = false;
    for (const auto& [key, value] : arguments.named) sort_keys = sort_keys || (key == "sort_keys" && IsTrue(value));
    if (indent > 16) return Wrong(StrCat("The indent of tojson is (", indent, "), at most 16 is taken."));
    const uint64_t weight = ExtentOf(input).weight;
    RETURN_IF_ERROR(context.charge(weight * (indent > 0 ? 64 : 8)));
    ASSIGN_OR_RETURN(Text text, ToJson(input, int(std::max<int64_t>(indent, -1)), sort_keys));
    return Value(std::move(text));
  }
  if (name == "length" || name == "count") {
    if (const Text* text = input.AsText()) {
      RETURN_IF_ERROR(context.charge(text->size() / 8));
      return Value(int64_t(CharacterStarts(text->view()).size()) - 1);
    }
    if (const List* list = input.AsList()) return Value(int64_t(list->size()));
    if (const Dict* dict = input.AsDict()) return Value(int64_t(dict->items.size()));
    if (input.IsUndefined()) return Value(int64_t(0));
    return WrongType(StrCat("What ", name, " is applied to"), input, "a text, list or dict");
  }
  if (name == "string") {
    RETURN_IF_ERROR(context.charge(ExtentOf(input).weight * 8));
    return Value(ToText(input));
  }
  if (name == "safe") return input;
  if (name == "int" || name == "float" || name == "abs" || name == "round") return FilterNumber(name, input, arguments);
  if (name == "list") {
    ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(input, context));
    return NewList(std::move(items), context);
  }
  if (name == "first" || name == "last" || name == "reverse") {
    ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(input, context));
    if (name == "reverse" && input.AsText()) {
      Text out;
      for (auto item = items.rbegin(); item != items.rend(); ++item) out.Append(*item->AsText());
      return Value(std::move(out));
    }
    if (name == "reverse") {
      std::reverse(items.begin(), items.end());
      return NewList(std::move(items), context);
    }
    if (items.empty()) return Value::UndefinedNamed(StrCat("the ", name, " of nothing"));
    return name == "first" ? items.front() : items.back();
  }
  if (name == "join") {
    ASSIGN_OR_RETURN(const Text* separator, TextOrNull(arguments, 0, "d"));
    const Value* attribute = arguments.Find(1, "attribute");
    ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(input, context));
    Text out;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0 && separator) out.Append(*separator);
      const Value item = attribute ? LookupPath(items[i], ToText(*attribute).view()) : items[i];
      RETURN_IF_ERROR(context.charge(ExtentOf(item).weight * 2 + (separator ? separator->size() / 8 : 0)));
      out.Append(ToText(item));
    }
    return Value(std::move(out));
  }
  if (name == "map") return Map(input, arguments, context);
  if (name == "select") return Select(input, arguments, false, true, context);
  if (name == "reject") return Select(input, arguments, false, false, context);
  if (name == "selectattr") return Select(input, arguments, true, true, context);
  if (name == "rejectattr") return Select(input, arguments, true, false, context);
  if (name == "items" || name == "dictsort") {
    if (input.IsUndefined() && name == "items") return MakeList({});
    const Dict* dict = input.AsDict();
    if (!dict || dict->is_namespace) return WrongType(StrCat("What ", name, " is applied to"), input, "a dict");
    ASSIGN_OR_RETURN(const bool case_sensitive, BoolOr(arguments, 0, "case_sensitive", false));
    ASSIGN_OR_RETURN(const Text* by, TextOrNull(arguments, 1, "by"));
    ASSIGN_OR_RETURN(const bool reverse, BoolOr(arguments, 2, "reverse", false));
    std::vector<Value> pairs, keys;
    for (const auto& [key, value] : dict->items) {
      RETURN_IF_ERROR(context.charge(4));
      ASSIGN_OR_RETURN(Value pair, MakeList({Value(key), value}, /*is_tuple=*/true));
      pairs.push_back(std::move(pair));
      keys.push_back(Folded(by && by->view() == "value" ? value : Value(key), case_sensitive));
    }
    if (name == "dictsort") { ASSIGN_OR_RETURN(pairs, SortBy(std::move(pairs), keys, reverse, context)); }
    return NewList(std::move(pairs), context);
  }
  if (name == "sort" || name == "min" || name == "max" || name == "unique" || name == "sum") {
    ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(input, context));
    const size_t attribute_at = name == "sort" ? 2 : name == "sum" ? 0 : 1;
    const Value* attribute = arguments.Find(attribute_at, "attribute");
    if (name == "sum") {
      const Value* start = arguments.Find(1, "start");
      double sum = start && start->IsNumber() ? start->Number() : 0;
      bool is_int = !start || start->IsInt();
      for (const Value& item : items) {
        const Value part = attribute ? LookupPath(item, ToText(*attribute).view()) : item;
        if (!part.IsNumber()) return WrongType("What sum adds", part, "a number");
        is_int = is_int && part.IsInt();
        sum += part.Number();
      }
      return is_int && std::abs(sum) < 9e15 ? Value(int64_t(sum)) : Value(sum);
    }
    ASSIGN_OR_RETURN(const bool case_sensitive, BoolOr(arguments, name == "sort" ? 1 : 0, "case_sensitive", false));
    std::vector<Value> keys;
    for (const Value& item : items) {
      RETURN_IF_ERROR(context.charge(ExtentOf(item).weight));
      keys.push_back(Folded(attribute ? LookupPath(item, ToText(*attribute).view()) : item, case_sensitive));
    }
    if (name == "unique") {
      std::vector<Value> unique, seen;
      for (size_t i = 0; i < items.size(); ++i) {
        RETURN_IF_ERROR(context.charge(seen.size() * (1 + ExtentOf(keys[i]).weight)));
        if (std::any_of(seen.begin(), seen.end(), [&](const Value& key) { return Equal(key, keys[i]); })) continue;
        seen.push_back(keys[i]);
        unique.push_back(std::move(items[i]));
      }
      return NewList(std::move(unique), context);
    }
    ASSIGN_OR_RETURN(const bool reverse, BoolOr(arguments, name == "sort" ? 0 : 9, "reverse", name == "max"));
    ASSIGN_OR_RETURN(items, SortBy(std::move(items), keys, reverse, context));
    if (name == "sort") return NewList(std::move(items), context);
    return items.empty() ? Value::UndefinedNamed(StrCat("the ", name, " of nothing")) : items.front();
  }
  static constexpr std::string_view kTextFilters[] = {"trim",   "upper", "lower",       "title",   "capitalize",
                                                      "escape", "e",     "forceescape", "replace", "indent"};
  if (std::find(std::begin(kTextFilters), std::end(kTextFilters), name) != std::end(kTextFilters)) {
    RETURN_IF_ERROR(context.charge(input.AsText() ? 1 : ExtentOf(input).weight * 8));
    return FilterText(name, ToText(input), arguments, context);
  }
  return Wrong(StrCat("The filter \"", name, "\" is not known."));
}

Result<bool> ApplyTest(std::string_view name, const Value& input, const Arguments& arguments, const Context& context) {
  RETURN_IF_ERROR(context.charge(1));
  if (name == "defined") return !input.IsUndefined();
  if (name == "undefined") return input.IsUndefined();
  if (name == "none") return input.IsNone();
  if (name == "string") return input.AsText() != nullptr;
  if (name == "mapping") return input.AsDict() != nullptr && !input.AsDict()->is_namespace;
  if (name == "sequence") return input.AsText() || input.AsList() || (input.AsDict() && !input.AsDict()->is_namespace);
  if (name == "iterable") {
    return input.AsText() || input.AsList() || input.IsUndefined() || (input.AsDict() && !input.AsDict()->is_namespace);
  }
  if (name == "number") return input.IsNumber();
  if (name == "boolean") return input.Is<bool>();
  if (name == "integer") return input.Is<int64_t>();
  if (name == "float") return input.Is<double>();
  if (name == "true") return input.Is<bool>() && input.Int() == 1;
  if (name == "false") return input.Is<bool>() && input.Int() == 0;
  if (name == "callable") return input.AsFunction() != nullptr;
  if (name == "lower" || name == "upper") {
    const Text text = ToText(input);
    RETURN_IF_ERROR(context.charge(text.size() / 8));
    return name == "lower" ? HasOnlyCase(text, IsLower, IsUpper) : HasOnlyCase(text, IsUpper, IsLower);
  }
  if (name == "odd" || name == "even" || name == "divisibleby") {
    if (!input.IsInt()) return WrongType("What is tested", input, "an integer");
    ASSIGN_OR_RETURN(const int64_t divisor, IntOr(arguments, 0, "num", 2));
    if (divisor == 0) return Wrong("Divided by 0.");
    const bool divides = divisor == -1 || input.Int() % divisor == 0;
    return name == "odd" ? !divides : divides;
  }
  const Value* other = arguments.Find(0, "other");
  if (!other) other = arguments.Find(0, "seq");
  static constexpr std::string_view kWithOther[] = {"eq", "equalto", "sameas",      "ne", "lt", "lessthan",
                                                    "le", "gt",      "greaterthan", "ge", "in"};
  if (std::find(std::begin(kWithOther), std::end(kWithOther), name) == std::end(kWithOther)) {
    return Wrong(StrCat("The test \"", name, "\" is not known."));
  }
  if (!other) return Wrong(StrCat("The test \"", name, "\" needs an argument."));
  RETURN_IF_ERROR(context.charge(ExtentOf(input).weight + ExtentOf(*other).weight));
  if (name == "eq" || name == "equalto") return Equal(input, *other);
  if (name == "ne") return !Equal(input, *other);
  if (name == "sameas") return input.is.index() == other->is.index() && Equal(input, *other);
  if (name == "in") {
    if (const Text* text = other->AsText()) {
      if (!input.AsText()) return WrongType("What is looked for in a text", input, "a text");
      return text->view().find(input.AsText()->view()) != std::string_view::npos;
    }
    if (const Dict* dict = other->AsDict()) return input.AsText() && dict->Find(input.AsText()->view());
    if (const List* list = other->AsList()) {
      RETURN_IF_ERROR(context.charge(list->size() * ExtentOf(input).weight));
      return std::any_of(list->begin(), list->end(), [&](const Value& item) { return Equal(item, input); });
    }
    if (other->IsUndefined()) return false;
    return WrongType("What is looked in", *other, "a text, list or dict");
  }
  ASSIGN_OR_RETURN(const int compared, Compare(input, *other));
  if (name == "lt" || name == "lessthan") return compared < 0;
  if (name == "le") return compared <= 0;
  if (name == "gt" || name == "greaterthan") return compared > 0;
  return compared >= 0;
}

std::optional<Value> FindMethod(const Value& self, std::string_view name) {
  static constexpr std::string_view kOfText[] = {
      "strip",    "lstrip",  "rstrip",  "split",   "rsplit",     "splitlines",   "startswith",
      "endswith", "upper",   "lower",   "title",   "capitalize", "replace",      "join",
      "find",     "rfind",   "index",   "count",   "isdigit",    "isdecimal",    "isnumeric",
      "isalpha",  "isalnum", "isspace", "isupper", "islower",    "removeprefix", "removesuffix"};
  static constexpr std::string_view kOfDict[] = {"items", "keys", "values", "get"};
  static constexpr std::string_view kOfList[] = {"index", "count"};
  static constexpr std::string_view kOfLoop[] = {"cycle", "changed"};
  auto has = [&](const auto& names) { return std::find(std::begin(names), std::end(names), name) != std::end(names); };
  const Dict* dict = self.AsDict();
  if ((self.AsText() && has(kOfText)) || (dict && !dict->is_namespace && has(kOfDict)) || (self.AsList() && has(kOfList)) ||
      (self.AsLoop() && has(kOfLoop))) {
    Value method;
    method.is = std::make_shared<const Function>(Function{std::string(name), nullptr, self});
    return method;
  }
  return std::nullopt;
}

namespace {

Result<Value> CallTextMethod(std::string_view name, const Text& text, const Arguments& arguments, const Context& context) {
  RETURN_IF_ERROR(context.charge(text.size() / 8));
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    ASSIGN_OR_RETURN(const Text* characters, TextOrNull(arguments, 0, "chars"));
    if (characters) RETURN_IF_ERROR(context.charge(characters->size()));
    return Value(Strip(text, characters, name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    ASSIGN_OR_RETURN(const Text* separator, TextOrNull(arguments, 0, "sep"));
    ASSIGN_OR_RETURN(const int64_t count, IntOr(arguments, 1, "maxsplit", -1));
    if (separator && separator->empty()) return Wrong("The separator of split is empty.");
    if (name == "rsplit" && !separator && count >= 0) return Wrong("rsplit with a count needs a separator.");
    RETURN_IF_ERROR(context.charge(text.size() / (separator ? separator->size() : 1)));
    return NewList(name == "rsplit" && separator ? SplitFromRight(text, *separator, count) : Split(text, separator, count),
                   context);
  }
  if (name == "splitlines") {
    ASSIGN_OR_RETURN(const bool keep_ends, BoolOr(arguments, 0, "keepends", false));
    RETURN_IF_ERROR(context.charge(text.size()));
    return NewList(SplitLines(text, keep_ends), context);
  }
  if (name == "startswith" || name == "endswith") {
    const Value* wanted = arguments.Find(0, "prefix");
    if (!wanted) return Wrong(StrCat(name, " needs an argument."));
    auto fits = [&](const Value& value) {
      const std::string_view part = value.AsText()->view();
      return name == "startswith" ? text.view().starts_with(part) : text.view().ends_with(part);
    };
    if (wanted->AsText()) return Value(fits(*wanted));
    const List* list = wanted->AsList();
    if (!list || !std::all_of(list->begin(), list->end(), [](const Value& item) { return item.AsText() != nullptr; })) {
      return WrongType(StrCat("The argument of ", name), *wanted, "a text or a list of texts");
    }
    RETURN_IF_ERROR(context.charge(list->extent.weight));
    return Value(std::any_of(list->begin(), list->end(), fits));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    ASSIGN_OR_RETURN(const Text* part, NeedText(arguments, 0, "part"));
    if (name == "removeprefix") return Value(text.view().starts_with(part->view()) ? text.Substring(part->size()) : text);
    return Value(text.view().ends_with(part->view()) ? text.Substring(0, text.size() - part->size()) : text);
  }
  if (name == "join") {
    const Value* items = arguments.Find(0, "iterable");
    if (!items) return Wrong("join needs an argument.");
    return ApplyFilter("join", *items, {{Value(text)}, {}}, context);
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "count") {
    ASSIGN_OR_RETURN(const Text* part, NeedText(arguments, 0, "sub"));
    if (name == "count") {
      int64_t count = 0;
      for (size_t at = 0; !part->empty() && (at = text.view().find(part->view(), at)) != std::string_view::npos;
           at += part->size())
        ++count;
      return Value(part->empty() ? int64_t(CharacterStarts(text.view()).size()) : count);
    }
    const size_t found = name == "rfind" ? text.view().rfind(part->view()) : text.view().find(part->view());
    if (found == std::string_view::npos)
      return name == "index" ? Result<Value>(Wrong("The text that index looks for is not there.")) : Value(int64_t(-1));
    return Value(int64_t(CharacterStarts(text.view().substr(0, found)).size()) - 1);
  }
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric") {
    return Value(AllCharacters(text, [](uint32_t c) { return ClassOf(c) == CharacterClass::kNumber; }));
  }
  if (name == "isalpha") return Value(AllCharacters(text, [](uint32_t c) { return ClassOf(c) == CharacterClass::kLetter; }));
  if (name == "isalnum") {
    return Value(AllCharacters(
        text, [](uint32_t c) { return ClassOf(c) == CharacterClass::kLetter || ClassOf(c) == CharacterClass::kNumber; }));
  }
  if (name == "isspace") return Value(AllCharacters(text, IsPythonSpace));
  if (name == "isupper") return Value(HasOnlyCase(text, IsUpper, IsLower));
  if (name == "islower") return Value(HasOnlyCase(text, IsLower, IsUpper));
  return FilterText(name, text, arguments, context);
}

}  // namespace

Result<Value> CallMethod(const Function& method, const Arguments& arguments, const Context& context) {
  RETURN_IF_ERROR(context.charge(1));
  const Value& self = method.self;
  const std::string_view name = method.name;
  if (const Text* text = self.AsText()) return CallTextMethod(name, *text, arguments, context);
  if (const Dict* dict = self.AsDict()) {
    if (name == "get") {
      const Value* key = arguments.Find(0, "key");
      const Value* otherwise = arguments.Find(1, "default");
      if (!key) return Wrong("get needs an argument.");
      const Value* found = key->AsText() ? dict->Find(key->AsText()->view()) : nullptr;
      return found ? *found : otherwise ? *otherwise : Value(None{});
    }
    if (name == "items") return ApplyFilter("items", self, {}, context);
    std::vector<Value> items;
    for (const auto& [key, value] : dict->items) items.push_back(name == "keys" ? Value(key) : value);
    return NewList(std::move(items), context);
  }
  if (const List* list = self.AsList()) {
    const Value* wanted = arguments.Find(0, "value");
    if (!wanted) return Wrong(StrCat(name, " needs an argument."));
    RETURN_IF_ERROR(context.charge(list->size() * ExtentOf(*wanted).weight));
    if (name == "count") {
      return Value(int64_t(std::count_if(list->begin(), list->end(), [&](const Value& item) { return Equal(item, *wanted); })));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      if (Equal((*list)[i], *wanted)) return Value(int64_t(i));
    }
    return Wrong("The value that index looks for is not in the list.");
  }
  Loop& loop = *self.AsLoop();
  if (name == "cycle") {
    if (arguments.positional.empty()) return Wrong("loop.cycle needs arguments.");
    return arguments.positional[loop.index0 % arguments.positional.size()];
  }
  ASSIGN_OR_RETURN(Value now, MakeList(arguments.positional));
  RETURN_IF_ERROR(context.charge(ExtentOf(now).weight));
  const bool is_changed = !loop.has_changed || !Equal(loop.last_changed, now);
  loop.last_changed = std::move(now);
  loop.has_changed = true;
  return Value(is_changed);
}

bool IsFunction(std::string_view name, const Context& context) {
  if (name == "strftime_now") return context.seconds_since_1970.has_value();
  return name == "range" || name == "dict" || name == "namespace" || name == "raise_exception";
}

Result<Value> CallFunction(std::string_view name, const Arguments& arguments, const Context& context) {
  RETURN_IF_ERROR(context.charge(1));
  if (name == "raise_exception") {
    const Value* message = arguments.Find(0, "message");
    return Wrong(message ? std::string(ToText(*message).view()) : "(without a message)");
  }
  if (name == "strftime_now") {
    ASSIGN_OR_RETURN(const Text* format, NeedText(arguments, 0, "format"));
    ASSIGN_OR_RETURN(std::string time, FormatTime(format->view(), context.seconds_since_1970.value_or(0)));
    return Value(Text(std::move(time)));
  }
  if (name == "range") {
    if (arguments.positional.empty() || arguments.positional.size() > 3 || !arguments.named.empty())
      return Wrong("range needs one to three arguments.");
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < arguments.positional.size(); ++i) {
      const Value& value = arguments.positional[i];
      if (!value.IsInt()) return WrongType("An argument of range", value, "an integer");
      bounds[arguments.positional.size() == 1 ? 1 : i] = value.Int();
    }
    if (bounds[2] == 0) return Wrong("The step of range is 0.");
    std::vector<Value> items;
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
      if (items.size() >= 100'000) return Wrong("range has more than 100000 numbers.");
      items.push_back(i);
      if (__builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return NewList(std::move(items), context);
  }
  // dict and namespace: names and values, after those of a dict.
  Dict dict;
  if (!arguments.positional.empty()) {
    const Dict* first = arguments.positional[0].AsDict();
    if (!first || first->is_namespace || arguments.positional.size() > 1)
      return Wrong(StrCat(name, " takes a dict and named arguments."));
    dict.items = first->items;
  }
  RETURN_IF_ERROR(context.charge(dict.items.size() + arguments.named.size()));
  for (const auto& [key, value] : arguments.named) dict.Set(Text(key), value);
  ASSIGN_OR_RETURN(Value value, MakeDict(std::move(dict)));
  value.AsDict()->is_namespace = name == "namespace";
  return value;
}

}  // namespace leeway::llm::jinja
