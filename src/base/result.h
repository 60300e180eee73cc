// Result and Error for use inside the library: the public types, plus the macros that pass an error on.
#pragma once

#include "leeway/result.h"

#define LEEWAY_CONCAT_INNER(a, b) a##b
#define LEEWAY_CONCAT(a, b) LEEWAY_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(Plan plan, MakePlan()): the value, or the function returns the error.
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(LEEWAY_CONCAT(leeway_result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.error();                      \
  declaration = std::move(result).value()

#define RETURN_IF_ERROR(expression)                                                           \
  do {                                                                                        \
    if (auto leeway_status = (expression); !leeway_status.ok()) return leeway_status.error(); \
  } while (false)

// As above, with a word in front that says what was being done: `while compiling node 12 [conv_2d "stem"]`.
#define ASSIGN_OR_RETURN_CONTEXT(declaration, expression, context) \
  ASSIGN_OR_RETURN_CONTEXT_INNER(LEEWAY_CONCAT(leeway_result_, __LINE__), declaration, expression, context)
#define ASSIGN_OR_RETURN_CONTEXT_INNER(result, declaration, expression, context) \
  auto result = (expression);                                                    \
  if (!result.ok()) return ::leeway::WithContext(result.error(), context);       \
  declaration = std::move(result).value()
#define RETURN_IF_ERROR_CONTEXT(expression, context)                                                                          \
  do {                                                                                                                        \
    if (auto leeway_status = (expression); !leeway_status.ok()) return ::leeway::WithContext(leeway_status.error(), context); \
  } while (false)

// A condition that only a mistake of ours can break.
#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) ::leeway::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

namespace leeway {
// The same code; the message becomes "<message> (<context>)".
Error WithContext(const Error& error, const std::string& context);
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace leeway
