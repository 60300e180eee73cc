// The values of the template language: Python's, as far as chat templates see them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "llm/jinja/text.h"

namespace leeway::llm::jinja {

struct Value;
struct Node;
struct List;
struct Dict;
struct Loop;
struct Function;

struct Undefined {
  std::string name;  // of what was asked for, for messages
};
struct None {};

struct Value {
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
               std::shared_ptr<Dict>, std::shared_ptr<Loop>, std::shared_ptr<const Function>>
      is;

  Value() = default;
  Value(None none) : is(none) {}
  Value(bool value) : is(value) {}
  Value(int64_t value) : is(value) {}
  Value(double value) : is(value) {}
  Value(Text text) : is(std::make_shared<const Text>(std::move(text))) {}
  Value(const char*) = delete;
  static Value UndefinedNamed(std::string name) {
    Value value;
    value.is = Undefined{std::move(name)};
    return value;
  }

  template <class T>
  bool Is() const {
    return std::holds_alternative<T>(is);
  }
  bool IsUndefined() const { return Is<Undefined>(); }
  bool IsNone() const { return Is<None>(); }
  bool IsInt() const { return Is<int64_t>() || Is<bool>(); }
  bool IsNumber() const { return IsInt() || Is<double>(); }
  const Text* AsText() const { return Get<const Text>(); }
  const List* AsList() const { return Get<const List>(); }
  Dict* AsDict() const { return Get<Dict>(); }
  Loop* AsLoop() const { return Get<Loop>(); }
  const Function* AsFunction() const { return Get<const Function>(); }
  int64_t Int() const { return Is<bool>() ? int64_t(std::get<bool>(is)) : std::get<int64_t>(is); }
  double Number() const { return Is<double>() ? std::get<double>(is) : double(Int()); }

 private:
  template <class T>
  T* Get() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&is);
    return pointer ? pointer->get() : nullptr;
  }
};

// How deep a value nests, and about how much work it is to look at all of it, shared parts as often as they appear.
struct Extent {
  int depth = 0;
  uint64_t weight = 1;
};

struct List {
  std::vector<Value> items;
  Extent extent;
  bool is_tuple = false;  // matters when it is printed
  size_t size() const { return items.size(); }
  bool empty() const { return items.empty(); }
  auto begin() const { return items.begin(); }
  auto end() const { return items.end(); }
  const Value& operator[](size_t i) const { return items[i]; }
};

// In the order of insertion. Keys are text.
struct Dict {
  std::vector<std::pair<Text, Value>> items;
  Extent extent;
  bool is_namespace = false;  // the only kind that templates may change
  const Value* Find(std::string_view key) const;
  void Set(Text key, Value value);
};

struct Loop {
  std::shared_ptr<const List> items;
  size_t index0 = 0;
  Value last_changed;
  bool has_changed = false;
};

// Something that can be called.
struct Function {
  std::string name;
  const Node* macro = nullptr;  // the {% macro %}, which the template owns
  Value self;                   // of a method: what it is called on
};

// Bounds of lists and dicts.
inline constexpr int kMaxValueDepth = 64;
inline constexpr uint64_t kMaxValueWeight = 4'000'000;
Extent ExtentOf(const Value& value);
// kInvalidArgument where they would go beyond, or hold a namespace (which could then hold itself).
Result<Value> MakeList(std::vector<Value> items, bool is_tuple = false);
Result<Value> MakeDict(Dict dict);

bool IsTrue(const Value& value);
bool Equal(const Value& a, const Value& b);
// Negative, zero or positive; kInvalidArgument for values that have no order.
Result<int> Compare(const Value& a, const Value& b);
const char* TypeName(const Value& value);

// What {{ value }} prints: Python's str().
Text ToText(const Value& value);
// JSON as json.dumps writes it; `indent` below 0: on one line.
Result<Text> ToJson(const Value& value, int indent, bool sort_keys);
std::string NumberText(double number);

// Text in it is from outside. kInvalidArgument where it nests too deep.
Result<Value> FromJson(const nlohmann::ordered_json& json);

}  // namespace leeway::llm::jinja
