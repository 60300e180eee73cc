#include "llm/jinja/evaluate.h"

#include <cmath>

#include "base/strings.h"
#include "llm/jinja/builtins.h"
#include "llm/jinja/lexer.h"

namespace leeway::llm::jinja {
namespace {

using Kind = Expression::Kind;

constexpr int kMaxDepth = 500;  // of expressions, tags and macro calls within each other

enum class Flow { kNormal, kBreak, kContinue };

class Evaluator {
 public:
  Evaluator(const std::map<std::string, Value>& variables, const RunOptions& options) : work_left_(options.max_work) {
    context_.seconds_since_1970 = options.seconds_since_1970;
    context_.charge = [this](uint64_t work) { return Charge(work); };
    frames_.emplace_back(variables.begin(), variables.end());
    frames_.emplace_back();
  }

  Result<Text> Run(const std::vector<Node>& nodes) {
    Text out;
    RETURN_IF_ERROR(Execute(nodes, out));
    return out;
  }

 private:
  using Frame = std::map<std::string, Value, std::less<>>;
  static constexpr size_t kGlobalFrames = 2;  // variables, and what the template sets outside of everything

  struct Depth {
    explicit Depth(int& count) : count(count) { ++count; }
    ~Depth() { --count; }
    int& count;
  };

  Status Charge(uint64_t work) {
    if (work > uint64_t(work_left_)) {
      work_left_ = 0;
      return Error{Code::kInvalidArgument, "The template takes too many steps, or makes too much text."};
    }
    work_left_ -= int64_t(work);
    return {};
  }
  Status ChargeAt(uint64_t work, int line) { return Placed(Charge(work), line); }

  Error Fail(int line, std::string_view message) const { return ErrorAt(line, construct_, message); }
  // An error without a place gets the line and the tag that is being executed.
  template <class T>
  Result<T> Placed(Result<T> result, int line) const {
    if (result.ok()) return result;
    return Fail(line, result.error().message);
  }

  const Value* FindVariable(std::string_view name) const {
    for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
      if (const auto found = frame->find(name); found != frame->end()) return &found->second;
    }
    return nullptr;
  }

  // -- Statements -----------------------------------------------------------------------------------------------------------

  Result<Flow> Execute(const std::vector<Node>& nodes, Text& out) {
    const Depth depth(depth_);
    for (const Node& node : nodes) {
      if (depth_ > kMaxDepth) return Fail(node.line, "Tags and macros nest too deep.");
      ASSIGN_OR_RETURN(const Flow flow, Execute(node, out));
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Result<Flow> Execute(const Node& node, Text& out) {
    RETURN_IF_ERROR(ChargeAt(1, node.line));
    switch (node.kind) {
      case Node::Kind::kText:
        RETURN_IF_ERROR(ChargeAt(node.text.size() / 8, node.line));
        out.Append(node.text);
        return Flow::kNormal;
      case Node::Kind::kPrint: {
        construct_ = "{{ }}";
        ASSIGN_OR_RETURN(const Value value, Evaluate(*node.expressions[0]));
        RETURN_IF_ERROR(ChargeAt(ExtentOf(value).weight * 2, node.line));
        out.Append(ToText(value));
        return Flow::kNormal;
      }
      case Node::Kind::kIf: {
        construct_ = "{% if %}";
        ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.expressions[0]));
        return Execute(IsTrue(condition) ? node.body : node.otherwise, out);
      }
      case Node::Kind::kFor: return ExecuteFor(node, out);
      case Node::Kind::kSet: {
        construct_ = "{% set %}";
        ASSIGN_OR_RETURN(Value value, Evaluate(*node.expressions[0]));
        RETURN_IF_ERROR(Assign(node, std::move(value)));
        return Flow::kNormal;
      }
      case Node::Kind::kSetBlock:
      case Node::Kind::kFilterBlock: {
        Text content;
        frames_.emplace_back();
        Result<Flow> flow = Execute(node.body, content);
        frames_.pop_back();
        if (!flow.ok()) return flow;
        const bool is_set = node.kind == Node::Kind::kSetBlock;
        construct_ = is_set ? "{% set %}" : "{% filter %}";
        Value value(std::move(content));
        if (!node.expressions.empty()) {
          frames_.emplace_back();
          frames_.back()[kBlockContent] = std::move(value);
          Result<Value> filtered = Evaluate(*node.expressions[0]);
          frames_.pop_back();
          if (!filtered.ok()) return filtered.error();
          value = std::move(*filtered);
        }
        if (is_set) {
          RETURN_IF_ERROR(Assign(node, std::move(value)));
        } else {
          RETURN_IF_ERROR(ChargeAt(ExtentOf(value).weight * 2, node.line));
          out.Append(ToText(value));
        }
        return flow;
      }
      case Node::Kind::kMacro: {
        Value macro;
        macro.is = std::make_shared<const Function>(Function{node.text, &node, {}});
        frames_.back()[node.text] = std::move(macro);
        return Flow::kNormal;
      }
      case Node::Kind::kWith: {
        construct_ = "{% with %}";
        Frame frame;
        for (size_t i = 0; i < node.targets.size(); ++i) {
          ASSIGN_OR_RETURN(frame[node.targets[i].name], Evaluate(*node.expressions[i]));
        }
        frames_.push_back(std::move(frame));
        Result<Flow> flow = Execute(node.body, out);
        frames_.pop_back();
        return flow;
      }
      case Node::Kind::kBreak: return Flow::kBreak;
      case Node::Kind::kContinue: return Flow::kContinue;
      case Node::Kind::kGroup: return Execute(node.body, out);
    }
    return Flow::kNormal;
  }

  Result<Flow> ExecuteFor(const Node& node, Text& out) {
    construct_ = "{% for %}";
    ASSIGN_OR_RETURN(const Value source, Evaluate(*node.expressions[0]));
    ASSIGN_OR_RETURN(std::vector<Value> items, Placed(ItemsOf(source, context_), node.line));
    frames_.emplace_back();
    const size_t own_frame = frames_.size() - 1;
    // Whatever ends the loop, the frames are as they were.
    struct Restore {
      std::vector<Frame>& frames;
      size_t size;
      ~Restore() { frames.resize(size); }
    } restore{frames_, own_frame};
    if (node.expressions[1]) {
      std::vector<Value> chosen;
      for (Value& item : items) {
        RETURN_IF_ERROR(Unpack(node, item));
        ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.expressions[1]));
        if (IsTrue(condition)) chosen.push_back(std::move(item));
      }
      items = std::move(chosen);
    }
    if (items.empty()) {
      frames_[own_frame].clear();
      return Execute(node.otherwise, out);
    }
    auto loop = std::make_shared<Loop>();
    ASSIGN_OR_RETURN(const Value list, Placed(MakeList(std::move(items)), node.line));
    loop->items = std::get<std::shared_ptr<const List>>(list.is);
    Value loop_value;
    loop_value.is = loop;
    for (loop->index0 = 0; loop->index0 < loop->items->size(); ++loop->index0) {
      construct_ = "{% for %}";
      RETURN_IF_ERROR(ChargeAt(2, node.line));
      frames_[own_frame].clear();
      RETURN_IF_ERROR(Unpack(node, (*loop->items)[loop->index0]));
      frames_[own_frame]["loop"] = loop_value;
      ASSIGN_OR_RETURN(const Flow flow, Execute(node.body, out));
      if (flow == Flow::kBreak) break;
    }
    return Flow::kNormal;
  }

  // Into the innermost frame.
  Status Unpack(const Node& node, const Value& value) {
    if (node.targets.size() == 1) {
      frames_.back()[node.targets[0].name] = value;
      return {};
    }
    const List* list = value.AsList();
    if (!list || list->size() != node.targets.size()) {
      return Fail(node.line, StrCat("There are ", node.targets.size(), " names for a value of type ", TypeName(value),
                                    list ? StrCat(" with ", list->size(), " items.") : std::string(".")));
    }
    for (size_t i = 0; i < node.targets.size(); ++i) frames_.back()[node.targets[i].name] = (*list)[i];
    return {};
  }

  Status Assign(const Node& node, Value value) {
    if (node.targets.size() > 1) return Unpack(node, value);
    const Target& target = node.targets[0];
    if (target.attribute.empty()) {
      frames_.back()[target.name] = std::move(value);
      return {};
    }
    const Value* holder = FindVariable(target.name);
    Dict* dict = holder ? holder->AsDict() : nullptr;
    if (!dict || !dict->is_namespace)
      return Fail(node.line, StrCat("\"", target.name, "\" is no namespace; only those have attributes that can be set."));
    if (ExtentOf(value).depth >= kMaxValueDepth)
      return Fail(node.line, "A namespace can't hold a namespace, nor values that nest deep.");
    RETURN_IF_ERROR(ChargeAt(dict->items.size(), node.line));
    dict->Set(Text(target.attribute), std::move(value));
    return {};
  }

  // -- Expressions ----------------------------------------------------------------------------------------------------------

  Result<Value> Evaluate(const Expression& e) {
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) return Fail(e.line, "Expressions and macros nest too deep.");
    RETURN_IF_ERROR(ChargeAt(1, e.line));
    switch (e.kind) {
      case Kind::kConstant: return e.constant;
      case Kind::kVariable: {
        if (const Value* found = FindVariable(e.name)) return *found;
        if (IsFunction(e.name, context_)) {
          Value function;
          function.is = std::make_shared<const Function>(Function{e.name, nullptr, {}});
          return function;
        }
        return Value::UndefinedNamed(e.name);
      }
      case Kind::kList: {
        std::vector<Value> items;
        for (const ExpressionPtr& operand : e.operands) {
          ASSIGN_OR_RETURN(Value item, Evaluate(*operand));
          items.push_back(std::move(item));
        }
        return Placed(MakeList(std::move(items), e.name == kTuple), e.line);
      }
      case Kind::kDict: {
        Dict dict;
        for (size_t i = 0; i < e.operands.size(); i += 2) {
          ASSIGN_OR_RETURN(const Value key, Evaluate(*e.operands[i]));
          ASSIGN_OR_RETURN(Value value, Evaluate(*e.operands[i + 1]));
          if (!key.AsText()) return Fail(e.line, StrCat("A key of a dict is of type ", TypeName(key), ", expected is a text."));
          RETURN_IF_ERROR(ChargeAt(i, e.line));
          dict.Set(*key.AsText(), std::move(value));
        }
        return Placed(MakeDict(std::move(dict)), e.line);
      }
      case Kind::kAttribute: {
        ASSIGN_OR_RETURN(const Value of, Evaluate(*e.operands[0]));
        if (of.IsUndefined()) return UndefinedError(of, e.line);
        if (std::optional<Value> method = FindMethod(of, e.name)) return std::move(*method);
        RETURN_IF_ERROR(ChargeLookup(of, e.line));
        return Lookup(of, e.name);
      }
      case Kind::kItem: {
        ASSIGN_OR_RETURN(const Value of, Evaluate(*e.operands[0]));
        if (of.IsUndefined()) return UndefinedError(of, e.line);
        ASSIGN_OR_RETURN(const Value key, Evaluate(*e.operands[1]));
        RETURN_IF_ERROR(ChargeLookup(of, e.line));
        ASSIGN_OR_RETURN(Value item, Placed(LookupItem(of, key), e.line));
        if (item.IsUndefined() && key.AsText()) {
          if (std::optional<Value> method = FindMethod(of, key.AsText()->view())) return std::move(*method);
        }
        return item;
      }
      case Kind::kSlice: {
        ASSIGN_OR_RETURN(const Value of, Evaluate(*e.operands[0]));
        if (of.IsUndefined()) return UndefinedError(of, e.line);
        std::optional<Value> bounds[3];
        for (size_t i = 0; i < 3; ++i) {
          if (!e.operands[i + 1]) continue;
          ASSIGN_OR_RETURN(bounds[i], Evaluate(*e.operands[i + 1]));
        }
        auto pointer = [](const std::optional<Value>& value) { return value ? &*value : nullptr; };
        return Placed(Slice(of, pointer(bounds[0]), pointer(bounds[1]), pointer(bounds[2]), context_), e.line);
      }
      case Kind::kCall: return EvaluateCall(e);
      case Kind::kFilter: {
        ASSIGN_OR_RETURN(const Value input, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(e));
        return Placed(ApplyFilter(e.name, input, arguments, context_), e.line);
      }
      case Kind::kTest: {
        ASSIGN_OR_RETURN(const Value input, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(e));
        ASSIGN_OR_RETURN(const bool passes, Placed(ApplyTest(e.name, input, arguments, context_), e.line));
        return Value(passes);
      }
      case Kind::kUnary: {
        ASSIGN_OR_RETURN(const Value operand, Evaluate(*e.operands[0]));
        if (e.name == "not") return Value(!IsTrue(operand));
        if (operand.IsUndefined()) return UndefinedError(operand, e.line);
        if (!operand.IsNumber())
          return Fail(e.line, StrCat("The operand of ", e.name, " is of type ", TypeName(operand), ", expected is a number."));
        if (e.name == "+") return operand;
        if (!operand.IsInt()) return Value(-operand.Number());
        int64_t negated = 0;
        if (__builtin_sub_overflow(int64_t(0), operand.Int(), &negated)) return Overflow(e.line);
        return Value(negated);
      }
      case Kind::kBinary: {
        ASSIGN_OR_RETURN(const Value a, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Value b, Evaluate(*e.operands[1]));
        return EvaluateBinary(e, a, b);
      }
      case Kind::kCompare: {
        ASSIGN_OR_RETURN(Value left, Evaluate(*e.operands[0]));
        for (size_t i = 0; i < e.operators.size(); ++i) {
          ASSIGN_OR_RETURN(Value right, Evaluate(*e.operands[i + 1]));
          ASSIGN_OR_RETURN(const bool holds, EvaluateCompare(e, e.operators[i], left, right));
          if (!holds) return Value(false);
          left = std::move(right);
        }
        return Value(true);
      }
      case Kind::kAnd:
      case Kind::kOr: {
        ASSIGN_OR_RETURN(Value left, Evaluate(*e.operands[0]));
        if (IsTrue(left) == (e.kind == Kind::kOr)) return left;
        return Evaluate(*e.operands[1]);
      }
      case Kind::kCondition: {
        ASSIGN_OR_RETURN(const Value condition, Evaluate(*e.operands[1]));
        if (IsTrue(condition)) return Evaluate(*e.operands[0]);
        return e.operands[2] ? Evaluate(*e.operands[2])
                             : Result<Value>(Value::UndefinedNamed("the other branch of the condition"));
      }
    }
    return Value();
  }

  Error UndefinedError(const Value& value, int line) const {
    return Fail(line, StrCat("\"", std::get<Undefined>(value.is).name, "\" is undefined."));
  }
  Error Overflow(int line) const { return Fail(line, "A number becomes too large."); }
  Status ChargeLookup(const Value& of, int line) {
    if (const Dict* dict = of.AsDict()) return ChargeAt(dict->items.size() / 4, line);
    if (const Text* text = of.AsText()) return ChargeAt(text->size() / 8, line);
    return {};
  }

  Result<Arguments> EvaluateArguments(const Expression& e) {
    Arguments arguments;
    for (const Argument& argument : e.arguments) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*argument.value));
      if (argument.name.empty()) {
        arguments.positional.push_back(std::move(value));
      } else {
        arguments.named.push_back({argument.name, std::move(value)});
      }
    }
    return arguments;
  }

  Result<Value> EvaluateCall(const Expression& e) {
    ASSIGN_OR_RETURN(const Value callee, Evaluate(*e.operands[0]));
    if (callee.IsUndefined()) return UndefinedError(callee, e.line);
    const Function* function = callee.AsFunction();
    if (!function)
      return Fail(e.line,
                  StrCat("A value of type ", TypeName(callee), " is called; only functions, macros and methods can be."));
    ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(e));
    if (function->macro) return CallMacro(*function->macro, std::move(arguments), e.line);
    if (!function->self.IsUndefined()) return Placed(CallMethod(*function, arguments, context_), e.line);
    Result<Value> result = CallFunction(function->name, arguments, context_);
    if (!result.ok() && function->name == "raise_exception") {
      return Error{Code::kInvalidArgument,
                   StrCat("The chat template refuses these messages: ", result.error().message, " (line ", e.line, ")")};
    }
    return Placed(std::move(result), e.line);
  }

  Result<Value> CallMacro(const Node& macro, Arguments arguments, int line) {
    if (arguments.positional.size() > macro.parameters.size()) {
      return Fail(line, StrCat("The macro \"", macro.text, "\" has ", macro.parameters.size(), " parameters, given are ",
                               arguments.positional.size(), " arguments."));
    }
    for (const auto& [name, value] : arguments.named) {
      bool is_known = false;
      for (const Argument& parameter : macro.parameters) is_known = is_known || parameter.name == name;
      if (!is_known) return Fail(line, StrCat("The macro \"", macro.text, "\" has no parameter \"", name, "\"."));
    }
    // A macro sees the variables and what the template sets outside of everything, not the place that it is called from.
    std::vector<Frame> hidden(std::make_move_iterator(frames_.begin() + kGlobalFrames), std::make_move_iterator(frames_.end()));
    frames_.resize(kGlobalFrames);
    frames_.emplace_back();
    const std::string_view construct = construct_;
    Result<Value> result = RunMacro(macro, arguments);
    construct_ = construct;
    frames_.resize(kGlobalFrames);
    frames_.insert(frames_.end(), std::make_move_iterator(hidden.begin()), std::make_move_iterator(hidden.end()));
    return result;
  }

  Result<Value> RunMacro(const Node& macro, const Arguments& arguments) {
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const Argument& parameter = macro.parameters[i];
      const Value* given = arguments.Find(i, parameter.name);
      if (given) {
        frames_.back()[parameter.name] = *given;
      } else if (parameter.value) {
        ASSIGN_OR_RETURN(frames_.back()[parameter.name], Evaluate(*parameter.value));
      } else {
        frames_.back()[parameter.name] = Value::UndefinedNamed(parameter.name);
      }
    }
    Text out;
    RETURN_IF_ERROR(Execute(macro.body, out));
    return Value(std::move(out));
  }

  Result<bool> EvaluateCompare(const Expression& e, std::string_view op, const Value& a, const Value& b) {
    struct Row {
      std::string_view op, test;
    };
    static constexpr Row kRows[] = {{"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {"<=", "le"},
                                    {">", "gt"},  {">=", "ge"}, {"in", "in"}};
    if (op == "not in") {
      ASSIGN_OR_RETURN(const bool is_in, EvaluateCompare(e, "in", a, b));
      return !is_in;
    }
    if (op == "in" && b.IsUndefined()) return UndefinedError(b, e.line);
    for (const Row& row : kRows) {
      if (row.op == op) return Placed(ApplyTest(row.test, a, {{b}, {}}, context_), e.line);
    }
    return Fail(e.line, StrCat("The operator ", op, " is not known."));
  }

  Result<Value> EvaluateBinary(const Expression& e, const Value& a, const Value& b) {
    const std::string& op = e.name;
    if (op == "~") {
      RETURN_IF_ERROR(ChargeAt((ExtentOf(a).weight + ExtentOf(b).weight) * 2, e.line));
      Text text = ToText(a);
      text.Append(ToText(b));
      return Value(std::move(text));
    }
    if (a.IsUndefined()) return UndefinedError(a, e.line);
    if (b.IsUndefined()) return UndefinedError(b, e.line);
    if (op == "+" && a.AsText() && b.AsText()) {
      RETURN_IF_ERROR(ChargeAt((a.AsText()->size() + b.AsText()->size()) / 8, e.line));
      Text text = *a.AsText();
      text.Append(*b.AsText());
      return Value(std::move(text));
    }
    if (op == "+" && a.AsList() && b.AsList()) {
      RETURN_IF_ERROR(ChargeAt((a.AsList()->size() + b.AsList()->size()) * 2, e.line));
      std::vector<Value> items = a.AsList()->items;
      items.insert(items.end(), b.AsList()->begin(), b.AsList()->end());
      return Placed(MakeList(std::move(items), a.AsList()->is_tuple), e.line);
    }
    if (op == "*" && (a.IsInt() != b.IsInt()) && (a.AsText() || b.AsText() || a.AsList() || b.AsList())) {
      const int64_t count = std::max<int64_t>(a.IsInt() ? a.Int() : b.Int(), 0);
      const Value& repeated = a.IsInt() ? b : a;
      const uint64_t weight = repeated.AsText() ? repeated.AsText()->size() / 8 + 1 : repeated.AsList()->size() * 2 + 1;
      if (count > 10'000'000) return Overflow(e.line);
      RETURN_IF_ERROR(ChargeAt(uint64_t(count) * weight, e.line));
      Text text;
      std::vector<Value> items;
      for (int64_t i = 0; i < count; ++i) {
        if (repeated.AsText()) {
          text.Append(*repeated.AsText());
        } else {
          items.insert(items.end(), repeated.AsList()->begin(), repeated.AsList()->end());
        }
      }
      return repeated.AsText() ? Result<Value>(Value(std::move(text)))
                               : Placed(MakeList(std::move(items), repeated.AsList()->is_tuple), e.line);
    }
    if (!a.IsNumber() || !b.IsNumber()) {
      return Fail(e.line,
                  StrCat("The operator ", op, " is applied to values of the types ", TypeName(a), " and ", TypeName(b), "."));
    }
    const bool divides = op == "/" || op == "//" || op == "%";
    if (divides && b.Number() == 0) return Fail(e.line, "Divided by 0.");
    if (a.IsInt() && b.IsInt() && op != "/") return EvaluateIntegers(e, a.Int(), b.Int());
    const double x = a.Number(), y = b.Number();
    if (op == "+") return Value(x + y);
    if (op == "-") return Value(x - y);
    if (op == "*") return Value(x * y);
    if (op == "/") return Value(x / y);
    if (op == "//") return Value(std::floor(x / y));
    if (op == "**") return Value(std::pow(x, y));
    const double rest = std::fmod(x, y);
    return Value(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }

  Result<Value> EvaluateIntegers(const Expression& e, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflows = false;
    if (e.name == "+") {
      overflows = __builtin_add_overflow(a, b, &result);
    } else if (e.name == "-") {
      overflows = __builtin_sub_overflow(a, b, &result);
    } else if (e.name == "*") {
      overflows = __builtin_mul_overflow(a, b, &result);
    } else if (e.name == "**") {
      if (b < 0) return Value(std::pow(double(a), double(b)));
      result = 1;
      const bool is_small = a >= -1 && a <= 1;
      for (int64_t i = 0, count = is_small ? std::min<int64_t>(b, 2 + b % 2) : b; i < count && !overflows; ++i) {
        overflows = __builtin_mul_overflow(result, a, &result);
      }
    } else {  // // and %: towards minus infinity, the rest has the sign of b
      overflows = a == INT64_MIN && b == -1;
      if (!overflows) {
        const int64_t quotient = a / b, rest = a % b;
        const bool is_off = rest != 0 && (rest < 0) != (b < 0);
        result = e.name == "//" ? quotient - (is_off ? 1 : 0) : rest + (is_off ? b : 0);
      }
    }
    if (overflows) return Overflow(e.line);
    return Value(result);
  }

  std::vector<Frame> frames_;
  Context context_;
  int64_t work_left_;
  int depth_ = 0;
  std::string_view construct_ = "{{ }}";
};

}  // namespace

Result<Text> Run(const std::vector<Node>& nodes, const std::map<std::string, Value>& variables, const RunOptions& options) {
  return Evaluator(variables, options).Run(nodes);
}

}  // namespace leeway::llm::jinja
