// The tree of a parsed template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/jinja/value.h"

namespace leeway::llm::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string name;  // empty: by position
  ExpressionPtr value;
};

struct Expression {
  enum class Kind {
    kConstant,   // constant
    kVariable,   // name
    kList,       // operands; name: kTuple for a tuple
    kDict,       // operands: key, value, key, value, ...
    kAttribute,  // operands[0] . name
    kItem,       // operands[0] [ operands[1] ]
    kSlice,      // operands[0] [ operands[1] : operands[2] : operands[3] ], absent ones null
    kCall,       // operands[0] ( arguments )
    kFilter,     // operands[0] | name ( arguments )
    kTest,       // operands[0] is name ( arguments )
    kUnary,      // name: - + not
    kBinary,     // name: + - * / // % ** ~
    kCompare,    // a < b < c: operands, and operators[i] between operands[i] and [i + 1]
    kAnd,
    kOr,
    kCondition,  // operands[0] if operands[1] else operands[2], which may be null
  };
  Kind kind;
  int line;
  int depth = 1;  // levels of expressions below, with this one
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<Argument> arguments;
  std::vector<std::string> operators;
};

// Where {% set %} and {% for %} put values.
struct Target {
  std::string name;
  std::string attribute;  // of the namespace `name`
};

struct Node {
  enum class Kind { kText, kPrint, kIf, kFor, kSet, kSetBlock, kMacro, kFilterBlock, kWith, kBreak, kContinue, kGroup };
  Kind kind;
  int line;
  std::string text;             // of kText; the name of a kMacro
  std::vector<Target> targets;  // of kFor, kSet, kSetBlock, kWith
  std::vector<ExpressionPtr>
      expressions;  // kPrint: the value; kIf: the condition; kFor: items, condition or null; kSet: the value;
                    // kWith: a value for each target; kFilterBlock, kSetBlock: filters around the content, or none
  std::vector<Argument> parameters;  // of kMacro: names, with defaults or null
  std::vector<Node> body, otherwise;
};

inline constexpr const char* kTuple = "tuple";
// Of a filter that is applied to a block: the place of what is filtered.
inline constexpr const char* kBlockContent = "(block)";

}  // namespace leeway::llm::jinja
