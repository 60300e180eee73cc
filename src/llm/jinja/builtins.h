// Filters, tests, methods and functions of the template language.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/jinja/value.h"

namespace leeway::llm::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at this position or with this name; null where it isn't given.
  const Value* Find(size_t position, std::string_view name) const;
};

// What filters and tests need of the run.
struct Context {
  std::function<Status(uint64_t work)> charge;  // an error once the work is too much
  std::optional<int64_t> seconds_since_1970;
};

// Errors are kInvalidArgument without a place; the caller adds it.
Result<Value> ApplyFilter(std::string_view name, const Value& input, const Arguments& arguments, const Context& context);
Result<bool> ApplyTest(std::string_view name, const Value& input, const Arguments& arguments, const Context& context);
// A method of the value, if it has one of that name.
std::optional<Value> FindMethod(const Value& self, std::string_view name);
Result<Value> CallMethod(const Function& method, const Arguments& arguments, const Context& context);
// range, dict, namespace, raise_exception, strftime_now.
bool IsFunction(std::string_view name, const Context& context);
Result<Value> CallFunction(std::string_view name, const Arguments& arguments, const Context& context);

// What {% for %} and filters go through: items of a list, keys of a dict, characters of a text; undefined has none.
Result<std::vector<Value>> ItemsOf(const Value& value, const Context& context);
// value.name and value["name"] of data; undefined where there is none.
Value Lookup(const Value& value, std::string_view name);
Result<Value> LookupItem(const Value& value, const Value& key);
Result<Value> Slice(const Value& value, const Value* begin, const Value* end, const Value* step, const Context& context);

}  // namespace leeway::llm::jinja
