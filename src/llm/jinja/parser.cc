#include "llm/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/strings.h"
#include "llm/jinja/lexer.h"

namespace leeway::llm::jinja {
namespace {

using Kind = Expression::Kind;

constexpr size_t kMaxSourceBytes = 1 << 20;
constexpr int kMaxDepth = 100;            // of functions here within each other
constexpr int kMaxExpressionDepth = 200;  // of the tree, which chains of operators make deep without that

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<std::vector<Node>> Run() {
    ASSIGN_OR_RETURN(std::vector<Node> nodes, ParseBody({}, "{% %}"));
    return nodes;
  }

 private:
  // Counts how deep functions are in each other, so that no template exhausts the stack.
  struct Depth {
    explicit Depth(int& count) : count(count) { ++count; }
    ~Depth() { --count; }
    int& count;
  };

  const Token& Now() const { return tokens_[at_]; }
  const Token& Next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Advance() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool IsOperator(std::string_view op) const { return Now().kind == Token::Kind::kOperator && Now().text == op; }
  bool IsName(std::string_view name) const { return Now().kind == Token::Kind::kName && Now().text == name; }
  bool TakeOperator(std::string_view op) {
    if (!IsOperator(op)) return false;
    Advance();
    return true;
  }
  bool TakeName(std::string_view name) {
    if (!IsName(name)) return false;
    Advance();
    return true;
  }
  Error Fail(std::string_view message) const { return ErrorAt(Now().line, construct_, message); }
  std::string Found() const {
    switch (Now().kind) {
      case Token::Kind::kText: return "text";
      case Token::Kind::kPrintBegin: return "{{";
      case Token::Kind::kPrintEnd: return "}}";
      case Token::Kind::kTagBegin: return "{%";
      case Token::Kind::kTagEnd: return "%}";
      case Token::Kind::kEnd: return "the end of the template";
      case Token::Kind::kString: return "a text in quotes";
      default: return StrCat("\"", Now().text, "\"");
    }
  }
  Error Expected(std::string_view what) const { return Fail(StrCat("Found is ", Found(), ", expected is ", what, ".")); }
  Status Expect(std::string_view op) {
    if (TakeOperator(op)) return {};
    return Expected(StrCat("\"", op, "\""));
  }
  Status ExpectTagEnd() {
    if (Now().kind != Token::Kind::kTagEnd) return Expected("%}");
    Advance();
    return {};
  }
  Result<std::string> ExpectName() {
    if (Now().kind != Token::Kind::kName) return Expected("a name");
    std::string name = Now().text;
    Advance();
    return name;
  }

  ExpressionPtr Make(Kind kind, int line, std::string name = {}) {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = line;
    e->name = std::move(name);
    return e;
  }
  ExpressionPtr MakeConstant(Value value, int line) {
    ExpressionPtr e = Make(Kind::kConstant, line);
    e->constant = std::move(value);
    return e;
  }
  ExpressionPtr MakeOf(Kind kind, std::string name, ExpressionPtr a, ExpressionPtr b = nullptr) {
    ExpressionPtr e = Make(kind, a->line, std::move(name));
    e->operands.push_back(std::move(a));
    if (b) e->operands.push_back(std::move(b));
    Measure(*e);
    return e;
  }
  static void Measure(Expression& e) {
    for (const ExpressionPtr& operand : e.operands) {
      if (operand) e.depth = std::max(e.depth, operand->depth + 1);
    }
    for (const Argument& argument : e.arguments) e.depth = std::max(e.depth, argument.value->depth + 1);
  }
  // Measures the finished expression; where the tree is too deep, that is the error.
  Result<ExpressionPtr> Checked(ExpressionPtr e) const {
    Measure(*e);
    if (e->depth > kMaxExpressionDepth) return Fail("Expressions nest too deep.");
    return e;
  }

  // -- Statements -----------------------------------------------------------------------------------------------------------

  // Up to a tag with one of the names in `ends`, which is not taken yet but for its beginning; without ends: to the end.
  Result<std::vector<Node>> ParseBody(std::vector<std::string_view> ends, std::string opened_by) {
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) return Fail("Tags nest too deep.");
    const int opened_line = Now().line;
    std::vector<Node> nodes;
    while (true) {
      switch (Now().kind) {
        case Token::Kind::kText:
          nodes.push_back({Node::Kind::kText, Now().line, Now().text});
          Advance();
          break;
        case Token::Kind::kPrintBegin: {
          construct_ = "{{ }}";
          Node node{Node::Kind::kPrint, Now().line};
          Advance();
          ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
          if (Now().kind != Token::Kind::kPrintEnd) return Expected("}}");
          Advance();
          node.expressions.push_back(std::move(value));
          nodes.push_back(std::move(node));
          break;
        }
        case Token::Kind::kTagBegin: {
          Advance();
          construct_ = "{% %}";
          if (Now().kind != Token::Kind::kName) return Expected("the name of a tag");
          if (std::find(ends.begin(), ends.end(), Now().text) != ends.end()) return nodes;
          RETURN_IF_ERROR(ParseTag(nodes));
          break;
        }
        default:
          if (ends.empty()) return nodes;
          return ErrorAt(opened_line, opened_by, StrCat("The template ends without {% ", ends.back(), " %}."));
      }
    }
  }

  Status ParseTag(std::vector<Node>& nodes) {
    const int line = Now().line;
    const std::string name = Now().text;
    construct_ = StrCat("{% ", name, " %}");
    const std::string construct = construct_;
    Advance();
    if (name == "if") {
      ASSIGN_OR_RETURN(Node node, ParseIf(line));
      nodes.push_back(std::move(node));
      return {};
    }
    if (name == "for") {
      ASSIGN_OR_RETURN(Node node, ParseFor(line));
      nodes.push_back(std::move(node));
      return {};
    }
    if (name == "set") {
      ASSIGN_OR_RETURN(Node node, ParseSet(line));
      nodes.push_back(std::move(node));
      return {};
    }
    if (name == "macro") {
      ASSIGN_OR_RETURN(Node node, ParseMacro(line));
      nodes.push_back(std::move(node));
      return {};
    }
    if (name == "filter") {
      Node node{Node::Kind::kFilterBlock, line};
      ASSIGN_OR_RETURN(ExpressionPtr filters, ParseFilters(Make(Kind::kVariable, line, kBlockContent), /*has_first=*/true));
      node.expressions.push_back(std::move(filters));
      ASSIGN_OR_RETURN(node.body, ParseBlock("endfilter", construct));
      nodes.push_back(std::move(node));
      return {};
    }
    if (name == "with") {
      Node node{Node::Kind::kWith, line};
      while (Now().kind != Token::Kind::kTagEnd) {
        if (!node.targets.empty()) RETURN_IF_ERROR(Expect(","));
        ASSIGN_OR_RETURN(std::string target, ExpectName());
        RETURN_IF_ERROR(Expect("="));
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        node.targets.push_back({std::move(target), {}});
        node.expressions.push_back(std::move(value));
      }
      ASSIGN_OR_RETURN(node.body, ParseBlock("endwith", construct));
      nodes.push_back(std::move(node));
      return {};
    }
    if (name == "generation") {  // marks answers for training; nothing to do here
      Node node{Node::Kind::kGroup, line};
      ASSIGN_OR_RETURN(node.body, ParseBlock("endgeneration", construct));
      nodes.push_back(std::move(node));
      return {};
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return Fail("It stands outside of {% for %}.");
      nodes.push_back({name == "break" ? Node::Kind::kBreak : Node::Kind::kContinue, line});
      return ExpectTagEnd();
    }
    return Fail("The tag is not known here; known are if, for, set, macro, filter, with, break, continue, raw and generation.");
  }

  // The rest of an opening tag, its content, and the closing tag.
  Result<std::vector<Node>> ParseBlock(std::string_view end, std::string construct) {
    RETURN_IF_ERROR(ExpectTagEnd());
    ASSIGN_OR_RETURN(std::vector<Node> body, ParseBody({end}, std::move(construct)));
    construct_ = StrCat("{% ", end, " %}");
    Advance();
    if (end == "endmacro" && Now().kind == Token::Kind::kName) Advance();  // its name may be repeated
    RETURN_IF_ERROR(ExpectTagEnd());
    return body;
  }

  Result<Node> ParseIf(int line) {
    // A chain of elif becomes one node within the other's `otherwise`, without going deeper here.
    Node root{Node::Kind::kIf, line};
    Node* node = &root;
    for (int branches = 0;; ++branches) {
      if (branches > kMaxDepth) return Fail("The chain of {% elif %} is too long.");
      const std::string construct = construct_;
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple());
      node->expressions.push_back(std::move(condition));
      RETURN_IF_ERROR(ExpectTagEnd());
      ASSIGN_OR_RETURN(node->body, ParseBody({"elif", "else", "endif"}, construct));
      const std::string end = Now().text;
      const int end_line = Now().line;
      construct_ = StrCat("{% ", end, " %}");
      Advance();
      if (end == "elif") {
        node->otherwise.push_back({Node::Kind::kIf, end_line});
        node = &node->otherwise.back();
        continue;
      }
      if (end == "else") {
        RETURN_IF_ERROR(ExpectTagEnd());
        ASSIGN_OR_RETURN(node->otherwise, ParseBody({"endif"}, "{% else %}"));
        construct_ = "{% endif %}";
        Advance();
      }
      RETURN_IF_ERROR(ExpectTagEnd());
      return root;
    }
  }

  Result<std::vector<Target>> ParseTargets(bool with_attribute) {
    std::vector<Target> targets;
    const bool in_brackets = TakeOperator("(");
    do {
      if (!targets.empty() && Now().kind != Token::Kind::kName) break;  // a comma at the end
      ASSIGN_OR_RETURN(std::string name, ExpectName());
      Target target{std::move(name), {}};
      if (with_attribute && TakeOperator(".")) { ASSIGN_OR_RETURN(target.attribute, ExpectName()); }
      targets.push_back(std::move(target));
    } while (TakeOperator(","));
    if (in_brackets) RETURN_IF_ERROR(Expect(")"));
    return targets;
  }

  Result<Node> ParseFor(int line) {
    const std::string construct = construct_;
    Node node{Node::Kind::kFor, line};
    ASSIGN_OR_RETURN(node.targets, ParseTargets(false));
    if (!TakeName("in")) return Expected("\"in\"");
    ASSIGN_OR_RETURN(ExpressionPtr items, ParseTuple(/*with_condition=*/false));
    node.expressions.push_back(std::move(items));
    node.expressions.push_back(nullptr);
    if (TakeName("if")) { ASSIGN_OR_RETURN(node.expressions[1], ParseExpression()); }
    if (IsName("recursive")) return Fail("Recursive loops are not supported.");
    RETURN_IF_ERROR(ExpectTagEnd());
    ++loops_;
    ASSIGN_OR_RETURN(node.body, ParseBody({"else", "endfor"}, construct));
    --loops_;
    const bool has_else = IsName("else");
    construct_ = StrCat("{% ", Now().text, " %}");
    Advance();
    if (has_else) {
      RETURN_IF_ERROR(ExpectTagEnd());
      ASSIGN_OR_RETURN(node.otherwise, ParseBody({"endfor"}, "{% else %}"));
      construct_ = "{% endfor %}";
      Advance();
    }
    RETURN_IF_ERROR(ExpectTagEnd());
    return node;
  }

  Result<Node> ParseSet(int line) {
    const std::string construct = construct_;
    Node node{Node::Kind::kSet, line};
    ASSIGN_OR_RETURN(node.targets, ParseTargets(true));
    if (TakeOperator("=")) {
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
      node.expressions.push_back(std::move(value));
      RETURN_IF_ERROR(ExpectTagEnd());
      return node;
    }
    node.kind = Node::Kind::kSetBlock;
    if (node.targets.size() != 1) return Expected("\"=\"");
    if (IsOperator("|")) {
      ASSIGN_OR_RETURN(ExpressionPtr filters, ParseFilters(Make(Kind::kVariable, line, kBlockContent)));
      node.expressions.push_back(std::move(filters));
    }
    ASSIGN_OR_RETURN(node.body, ParseBlock("endset", construct));
    return node;
  }

  Result<Node> ParseMacro(int line) {
    const std::string construct = construct_;
    Node node{Node::Kind::kMacro, line};
    ASSIGN_OR_RETURN(node.text, ExpectName());
    RETURN_IF_ERROR(Expect("("));
    while (!TakeOperator(")")) {
      if (!node.parameters.empty()) RETURN_IF_ERROR(Expect(","));
      if (TakeOperator(")")) break;
      Argument parameter;
      ASSIGN_OR_RETURN(parameter.name, ExpectName());
      if (TakeOperator("=")) {
        ASSIGN_OR_RETURN(parameter.value, ParseExpression());
      } else if (!node.parameters.empty() && node.parameters.back().value) {
        return Fail(StrCat("The parameter \"", parameter.name, "\" needs a default, the one before has one."));
      }
      node.parameters.push_back(std::move(parameter));
    }
    const int outer_loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(node.body, ParseBlock("endmacro", construct));
    loops_ = outer_loops;
    return node;
  }

  // -- Expressions, the loosest binding first
  // -----------------------------------------------------------------------------------

  // An expression, or several with commas between: a tuple.
  Result<ExpressionPtr> ParseTuple(bool with_condition = true) {
    const int line = Now().line;
    ASSIGN_OR_RETURN(ExpressionPtr first, with_condition ? ParseExpression() : ParseOr());
    if (!IsOperator(",")) return first;
    ExpressionPtr tuple = Make(Kind::kList, line, kTuple);
    tuple->operands.push_back(std::move(first));
    while (TakeOperator(",")) {
      if (Now().kind == Token::Kind::kTagEnd || Now().kind == Token::Kind::kPrintEnd || IsOperator(")")) break;
      ASSIGN_OR_RETURN(ExpressionPtr item, with_condition ? ParseExpression() : ParseOr());
      tuple->operands.push_back(std::move(item));
    }
    return Checked(std::move(tuple));
  }

  Result<ExpressionPtr> ParseExpression() {
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) return Fail("Expressions nest too deep.");
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
    for (int count = 0; TakeName("if"); ++count) {
      if (count > kMaxDepth) return Fail("Expressions nest too deep.");
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
      ExpressionPtr otherwise;
      if (TakeName("else")) { ASSIGN_OR_RETURN(otherwise, ParseExpression()); }
      value = MakeOf(Kind::kCondition, {}, std::move(value), std::move(condition));
      value->operands.push_back(std::move(otherwise));
    }
    return Checked(std::move(value));
  }

  // Operators of one level group to the left; chains of them make the tree deep, so they are counted as depth.
  template <class Parse, class Take, class Join>
  Result<ExpressionPtr> ParseLevel(const Parse& parse, const Take& take, const Join& join) {
    ASSIGN_OR_RETURN(ExpressionPtr left, parse());
    std::string op;
    for (int count = 0; take(op); ++count) {
      if (count > kMaxDepth) return Fail(StrCat("More than ", kMaxDepth, " operators follow each other."));
      ASSIGN_OR_RETURN(ExpressionPtr right, parse());
      left = join(op, std::move(left), std::move(right));
    }
    return Checked(std::move(left));
  }
  auto TakeOneOf(std::initializer_list<std::string_view> operators) {
    return [this, operators = std::vector<std::string_view>(operators)](std::string& op) {
      for (const std::string_view candidate : operators) {
        if (TakeOperator(candidate)) return op = std::string(candidate), true;
      }
      return false;
    };
  }
  auto JoinAs(Kind kind) {
    return [this, kind](const std::string& op, ExpressionPtr a, ExpressionPtr b) {
      return MakeOf(kind, op, std::move(a), std::move(b));
    };
  }

  Result<ExpressionPtr> ParseOr() {
    return ParseLevel([&] { return ParseAnd(); }, [&](std::string&) { return TakeName("or"); }, JoinAs(Kind::kOr));
  }
  Result<ExpressionPtr> ParseAnd() {
    return ParseLevel([&] { return ParseNot(); }, [&](std::string&) { return TakeName("and"); }, JoinAs(Kind::kAnd));
  }
  Result<ExpressionPtr> ParseNot() {
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) return Fail("Expressions nest too deep.");
    if (!IsName("not")) return ParseCompare();
    Advance();
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
    return MakeOf(Kind::kUnary, "not", std::move(operand));
  }

  Result<ExpressionPtr> ParseCompare() {
    ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
    ExpressionPtr chain = Make(Kind::kCompare, first->line);
    chain->operands.push_back(std::move(first));
    while (true) {
      std::string op;
      for (const std::string_view candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (op.empty() && TakeOperator(candidate)) op = std::string(candidate);
      }
      if (op.empty() && TakeName("in")) op = "in";
      if (op.empty() && IsName("not") && Next().kind == Token::Kind::kName && Next().text == "in") {
        Advance();
        Advance();
        op = "not in";
      }
      if (op.empty()) break;
      ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
      chain->operators.push_back(op);
      chain->operands.push_back(std::move(operand));
    }
    if (chain->operators.empty()) return std::move(chain->operands[0]);
    return Checked(std::move(chain));
  }

  Result<ExpressionPtr> ParseSum() {
    return ParseLevel([&] { return ParseConcat(); }, TakeOneOf({"+", "-"}), JoinAs(Kind::kBinary));
  }
  Result<ExpressionPtr> ParseConcat() {
    return ParseLevel([&] { return ParseProduct(); }, TakeOneOf({"~"}), JoinAs(Kind::kBinary));
  }
  Result<ExpressionPtr> ParseProduct() {
    return ParseLevel([&] { return ParsePower(); }, TakeOneOf({"*", "//", "/", "%"}), JoinAs(Kind::kBinary));
  }
  Result<ExpressionPtr> ParsePower() {
    return ParseLevel([&] { return ParseUnary(true); }, TakeOneOf({"**"}), JoinAs(Kind::kBinary));
  }

  Result<ExpressionPtr> ParseUnary(bool with_filters) {
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) return Fail("Expressions nest too deep.");
    ExpressionPtr value;
    if (IsOperator("-") || IsOperator("+")) {
      const std::string op = Now().text;
      Advance();
      ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
      value = MakeOf(Kind::kUnary, op, std::move(operand));
    } else {
      ASSIGN_OR_RETURN(value, ParsePrimary());
    }
    ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
    return with_filters ? ParseFilters(std::move(value)) : std::move(value);
  }

  Result<ExpressionPtr> ParsePrimary() {
    const Token token = Now();
    const int line = token.line;
    switch (token.kind) {
      case Token::Kind::kName:
        Advance();
        if (token.text == "true" || token.text == "True") return MakeConstant(true, line);
        if (token.text == "false" || token.text == "False") return MakeConstant(false, line);
        if (token.text == "none" || token.text == "None") return MakeConstant(None{}, line);
        return Make(Kind::kVariable, line, token.text);
      case Token::Kind::kString: {
        std::string text;
        for (; Now().kind == Token::Kind::kString; Advance()) text += Now().text;  // neighbours are one text
        return MakeConstant(Text(std::move(text)), line);
      }
      case Token::Kind::kInteger: {
        int64_t number = 0;
        const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        if (error != std::errc()) return Fail(StrCat("The number ", token.text, " is too large."));
        Advance();
        return MakeConstant(number, line);
      }
      case Token::Kind::kFloat: {
        double number = 0;
        const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        if (error != std::errc()) return Fail(StrCat("The number ", token.text, " is too large."));
        Advance();
        return MakeConstant(number, line);
      }
      default: break;
    }
    if (TakeOperator("(")) {
      if (TakeOperator(")")) return Make(Kind::kList, line, kTuple);
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
      RETURN_IF_ERROR(Expect(")"));
      return value;
    }
    if (TakeOperator("[")) {
      ExpressionPtr list = Make(Kind::kList, line);
      while (!TakeOperator("]")) {
        if (!list->operands.empty()) RETURN_IF_ERROR(Expect(","));
        if (TakeOperator("]")) break;
        ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
        list->operands.push_back(std::move(item));
      }
      return Checked(std::move(list));
    }
    if (TakeOperator("{")) {
      ExpressionPtr dict = Make(Kind::kDict, line);
      while (!TakeOperator("}")) {
        if (!dict->operands.empty()) RETURN_IF_ERROR(Expect(","));
        if (TakeOperator("}")) break;
        ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
        RETURN_IF_ERROR(Expect(":"));
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        dict->operands.push_back(std::move(key));
        dict->operands.push_back(std::move(value));
      }
      return Checked(std::move(dict));
    }
    return Expected("a value");
  }

  Result<ExpressionPtr> ParsePostfix(ExpressionPtr value) {
    for (int count = 0;; ++count) {
      if (count > kMaxDepth) return Fail("Too many accesses follow each other.");
      if (TakeOperator(".")) {
        if (Now().kind == Token::Kind::kInteger) {
          ASSIGN_OR_RETURN(ExpressionPtr index, ParsePrimary());
          value = MakeOf(Kind::kItem, {}, std::move(value), std::move(index));
          continue;
        }
        ASSIGN_OR_RETURN(std::string name, ExpectName());
        value = MakeOf(Kind::kAttribute, std::move(name), std::move(value));
      } else if (TakeOperator("[")) {
        ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
      } else if (IsOperator("(")) {
        value = MakeOf(Kind::kCall, {}, std::move(value));
        ASSIGN_OR_RETURN(value->arguments, ParseArguments());
        Measure(*value);
      } else {
        return value;
      }
    }
  }

  Result<ExpressionPtr> ParseSubscript(ExpressionPtr value) {
    ExpressionPtr bounds[3];
    int colons = 0;
    while (!IsOperator("]")) {
      if (TakeOperator(":")) {
        if (++colons > 2) return Fail("A slice has at most two colons.");
        continue;
      }
      if (bounds[colons]) return Expected("\"]\"");
      ASSIGN_OR_RETURN(bounds[colons], ParseExpression());
    }
    if (colons == 0 && !bounds[0]) return Expected("a value");
    Advance();
    if (colons == 0) return MakeOf(Kind::kItem, {}, std::move(value), std::move(bounds[0]));
    value = MakeOf(Kind::kSlice, {}, std::move(value));
    for (ExpressionPtr& bound : bounds) value->operands.push_back(std::move(bound));
    return Checked(std::move(value));
  }

  // ( value, value, name = value )
  Result<std::vector<Argument>> ParseArguments() {
    std::vector<Argument> arguments;
    RETURN_IF_ERROR(Expect("("));
    while (!TakeOperator(")")) {
      if (!arguments.empty()) RETURN_IF_ERROR(Expect(","));
      if (TakeOperator(")")) break;
      if (IsOperator("*") || IsOperator("**")) return Fail("Arguments with * or ** are not supported.");
      Argument argument;
      if (Now().kind == Token::Kind::kName && Next().kind == Token::Kind::kOperator && Next().text == "=") {
        argument.name = Now().text;
        Advance();
        Advance();
      } else if (!arguments.empty() && !arguments.back().name.empty()) {
        return Fail("An argument without a name follows one with a name.");
      }
      ASSIGN_OR_RETURN(argument.value, ParseExpression());
      arguments.push_back(std::move(argument));
    }
    return arguments;
  }

  // | filter(...) and `is test ...`, in a row. has_first: the first filter's name comes without a bar.
  Result<ExpressionPtr> ParseFilters(ExpressionPtr value, bool has_first = false) {
    for (int count = 0;; ++count) {
      if (count > kMaxDepth) return Fail("Too many filters follow each other.");
      if (std::exchange(has_first, false) || TakeOperator("|")) {
        ASSIGN_OR_RETURN(std::string name, ExpectName());
        value = MakeOf(Kind::kFilter, std::move(name), std::move(value));
        if (IsOperator("(")) {
          ASSIGN_OR_RETURN(value->arguments, ParseArguments());
          Measure(*value);
        }
      } else if (TakeName("is")) {
        const bool negated = TakeName("not");
        ASSIGN_OR_RETURN(std::string name, ExpectName());
        value = MakeOf(Kind::kTest, std::move(name), std::move(value));
        if (IsOperator("(")) {
          ASSIGN_OR_RETURN(value->arguments, ParseArguments());
        } else if (TakesOperand()) {
          ASSIGN_OR_RETURN(ExpressionPtr operand, ParsePrimary());
          ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
          value->arguments.push_back({{}, std::move(operand)});
        }
        Measure(*value);
        if (negated) value = MakeOf(Kind::kUnary, "not", std::move(value));
      } else if (IsOperator("(")) {
        value = MakeOf(Kind::kCall, {}, std::move(value));
        ASSIGN_OR_RETURN(value->arguments, ParseArguments());
        Measure(*value);
      } else {
        return value;
      }
    }
  }
  // Whether a test's operand follows without brackets: `is divisibleby 3`.
  bool TakesOperand() const {
    if (Now().kind == Token::Kind::kName) {
      for (const std::string_view name : {"else", "or", "and", "is", "if", "in", "not"}) {
        if (Now().text == name) return false;
      }
      return true;
    }
    return Now().kind == Token::Kind::kString || Now().kind == Token::Kind::kInteger || Now().kind == Token::Kind::kFloat ||
           IsOperator("[") || IsOperator("{");
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  std::string construct_ = "{% %}";
};

}  // namespace

Result<std::vector<Node>> Parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return Error{Code::kInvalidModel,
                 StrCat("The chat template has (", source.size(), ") bytes, at most (", kMaxSourceBytes, ") are taken.")};
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace leeway::llm::jinja
