// Recursive descent over the words of a kernel text. No types are known here: a name followed by `<` begins a template list
// only if it is one of the type generators, and all other names of types are resolved by the checker.
#include <utility>

#include "base/strings.h"
#include "shader/compile.h"
#include "shader/lexer.h"

namespace leeway::shader {

namespace {

// Nesting of a text and operators of one expression, so that no text can exhaust the stack of a later stage.
constexpr int kMaxDepth = 200;
constexpr int kMaxOperators = 2000;

using Kind = Token::Kind;

ExprPtr MakeExpr(ExprKind kind, Location at) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->at = at;
  return expr;
}

StmtPtr MakeStmt(StmtKind kind, Location at) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->at = at;
  return stmt;
}

bool ScalarFromName(std::string_view name, Scalar& scalar) {
  if (name == "f32")
    scalar = Scalar::kF32;
  else if (name == "u32")
    scalar = Scalar::kU32;
  else if (name == "i32")
    scalar = Scalar::kI32;
  else if (name == "bool")
    scalar = Scalar::kBool;
  else if (name == "f16")
    scalar = Scalar::kF16;
  else
    return false;
  return true;
}

bool ScalarFromSuffix(char suffix, Scalar& scalar) {
  switch (suffix) {
    case 'f': scalar = Scalar::kF32; return true;
    case 'u': scalar = Scalar::kU32; return true;
    case 'i': scalar = Scalar::kI32; return true;
    case 'h': scalar = Scalar::kF16; return true;
  }
  return false;
}

// vec2, vec3f, ...: rows, and the suffix or 0.
bool IsVectorName(std::string_view name, int& rows, char& suffix) {
  if (name.size() < 4 || name.size() > 5 || name.substr(0, 3) != "vec" || name[3] < '2' || name[3] > '4') return false;
  rows = name[3] - '0';
  suffix = name.size() == 5 ? name[4] : '\0';
  Scalar scalar;
  return suffix == 0 || ScalarFromSuffix(suffix, scalar);
}

bool IsMatrixName(std::string_view name) {
  if (name.size() < 6 || name.size() > 7 || name.substr(0, 3) != "mat" || name[4] != 'x') return false;
  auto in_range = [](char c) { return c >= '2' && c <= '4'; };
  return in_range(name[3]) && in_range(name[5]) && (name.size() == 6 || name[6] == 'f' || name[6] == 'h');
}

// Names of the language's own types: no declaration may take them, so that `<` after one always begins a template list.
bool IsTypeName(std::string_view name) {
  Scalar scalar;
  int rows;
  char suffix;
  return ScalarFromName(name, scalar) || IsVectorName(name, rows, suffix) || IsMatrixName(name) || name == "array" ||
         name == "atomic" || name == "ptr" || name == "bitcast";
}

constexpr std::string_view kBuiltinInputs[] = {"workgroup_id",          "local_invocation_id", "local_invocation_index",
                                               "global_invocation_id",  "num_workgroups",      "subgroup_size",
                                               "subgroup_invocation_id"};

// Binary operators by how tightly they bind. The bitwise ones and shifts take no other binary operator as an operand without
// parentheses, which is WGSL's rule.
enum class Level { kNone, kBitwise, kLogical, kRelational, kShift, kAdditive, kMultiplicative };

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view name) : tokens_(std::move(tokens)) { module_.name = std::string(name); }

  Result<Module> Run() {
    while (!failed_ && Next().kind != Kind::kEnd) Declaration();
    if (failed_) return std::move(error_);
    return std::move(module_);
  }

 private:
  // ---- Words ----------------------------------------------------------------------------------------------------------

  const Token& Next(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool IsPunct(uint32_t punct, size_t ahead = 0) const {
    return Next(ahead).kind == Kind::kPunct && Next(ahead).punct == punct;
  }
  bool IsWord(std::string_view word, size_t ahead = 0) const {
    return Next(ahead).kind == Kind::kName && Next(ahead).text == word;
  }
  bool AcceptPunct(uint32_t punct) {
    if (!IsPunct(punct)) return false;
    Take();
    return true;
  }
  bool AcceptWord(std::string_view word) {
    if (!IsWord(word)) return false;
    Take();
    return true;
  }

  // The first error counts; everything unwinds after it.
  std::nullptr_t Fail(Location at, std::string_view message) {
    if (!failed_) {
      failed_ = true;
      error_ = KernelError(module_.name, at, message);
    }
    return nullptr;
  }
  static std::string Describe(const Token& token) {
    return token.kind == Kind::kEnd ? std::string("the end of the text") : StrCat("`", token.text, "`");
  }
  std::nullptr_t FailExpected(std::string_view what) {
    return Fail(Next().at, StrCat("expected ", what, ", found ", Describe(Next())));
  }
  bool ExpectPunct(uint32_t punct, const char* spelled) {
    if (failed_) return false;
    if (AcceptPunct(punct)) return true;
    FailExpected(StrCat("`", spelled, "`"));
    return false;
  }
  bool ExpectWord(std::string_view word) {
    if (failed_) return false;
    if (AcceptWord(word)) return true;
    FailExpected(StrCat("`", word, "`"));
    return false;
  }

  // A new name for `what`.
  std::string NewName(std::string_view what) {
    if (failed_) return {};
    const Token& token = Next();
    if (token.kind != Kind::kName) {
      FailExpected(StrCat("the name of ", what));
      return {};
    }
    CheckName(token);
    Take();
    return std::string(token.text);
  }
  void CheckName(const Token& token) {
    std::string_view name = token.text;
    if (IsReservedWord(name)) {
      Fail(token.at, StrCat("`", name, "` is a reserved word of WGSL and cannot be a name"));
    } else if (IsTypeName(name)) {
      Fail(token.at, StrCat("`", name, "` is a type of the language and cannot be a name"));
    } else if (name == "_" || name.substr(0, 2) == "__") {
      Fail(token.at, StrCat("`", name, "` cannot be a name: `_` alone and names with two leading underscores are reserved"));
    }
  }

  // Counts nesting; every recursive rule holds one.
  struct Nest {
    explicit Nest(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kMaxDepth) {
        parser.Fail(parser.Next().at, StrCat("this is nested more than ", kMaxDepth, " levels deep"));
      }
    }
    ~Nest() { --parser.depth_; }
    Parser& parser;
  };

  // ---- Types ----------------------------------------------------------------------------------------------------------

  bool ExpectOpenTemplate(std::string_view name) {
    if (failed_) return false;
    if (AcceptPunct(Punct("<"))) return true;
    FailExpected(StrCat("`<` after ", name));
    return false;
  }
  bool ExpectCloseTemplate() {
    AcceptPunct(Punct(","));  // a comma may trail
    return ExpectPunct(Punct(">"), ">");
  }

  Type ScalarOnly(std::string_view of, bool allow_bool) {
    const Token& token = Next();
    Scalar scalar;
    if (failed_ || token.kind != Kind::kName || !ScalarFromName(token.text, scalar) ||
        (scalar == Scalar::kBool && !allow_bool)) {
      FailExpected(StrCat("a scalar type in ", of, "<>"));
      return {};
    }
    Take();
    return Type::Of(scalar);
  }

  // `inferred`: vec4(...) and array(...) without template are allowed (constructors only).
  Type ParseType(bool inferred = false) {
    Nest nest(*this);
    if (failed_) return {};
    const Token& token = Next();
    if (token.kind != Kind::kName) {
      FailExpected("a type");
      return {};
    }
    std::string_view name = token.text;
    Type type;
    Scalar scalar;
    int rows;
    char suffix;
    if (ScalarFromName(name, scalar)) {
      Take();
      return Type::Of(scalar);
    }
    if (IsVectorName(name, rows, suffix)) {
      Take();
      if (suffix != 0) {
        ScalarFromSuffix(suffix, scalar);
        return Type::Vector(scalar, rows);
      }
      if (inferred && !IsPunct(Punct("<"))) {
        type = Type::Vector(Scalar::kAbstractInt, rows);
        type.inferred = true;
        return type;
      }
      if (!ExpectOpenTemplate(name)) return {};
      type = Type::Vector(ScalarOnly(name, true).scalar, rows);
      ExpectCloseTemplate();
      return type;
    }
    if (IsMatrixName(name)) {
      Fail(token.at, StrCat("matrix types (", name, ") are not supported; use vectors, or an array of them"));
      return {};
    }
    if (name == "atomic") {
      Take();
      if (!ExpectOpenTemplate(name)) return {};
      const Token& inner = Next();
      type = Type::Atomic(ScalarOnly(name, false).scalar);
      if (!failed_ && type.scalar != Scalar::kU32 && type.scalar != Scalar::kI32) {
        Fail(inner.at, StrCat("an atomic holds i32 or u32, not ", inner.text));
      }
      ExpectCloseTemplate();
      return type;
    }
    if (name == "array") {
      Take();
      if (inferred && !IsPunct(Punct("<"))) {
        type.kind = Type::Kind::kArray;
        type.inferred = true;
        return type;
      }
      if (!ExpectOpenTemplate(name)) return {};
      type.kind = Type::Kind::kArray;
      type.element = std::make_shared<const Type>(ParseType());
      if (failed_) return {};
      if (!AcceptPunct(Punct(","))) {
        FailExpected("`,` and the number of elements of the array");
        return {};
      }
      bool outer = std::exchange(in_template_, true);
      ExprPtr count = Expression();
      in_template_ = outer;
      type.count_expr = std::shared_ptr<const Expr>(std::move(count));
      ExpectCloseTemplate();
      return type;
    }
    if (name == "ptr") {
      Take();
      if (!ExpectOpenTemplate(name)) return {};
      const Token& space = Take();
      if (space.text != "function" && space.text != "workgroup" && space.text != "private") {
        Fail(space.at, StrCat("a pointer is into function, workgroup or private memory, not ", Describe(space)));
        return {};
      }
      if (!ExpectPunct(Punct(","), ",")) return {};
      type = Type::Pointer(ParseType(), std::string(space.text));
      ExpectCloseTemplate();
      return type;
    }
    if (IsReservedWord(name)) {
      FailExpected("a type");
      return {};
    }
    Take();
    if (IsPunct(Punct("<"))) {
      Fail(Next().at, StrCat("the type ", name, " takes no template arguments"));
      return {};
    }
    return Type::Struct(std::string(name));
  }

  // ---- Expressions ----------------------------------------------------------------------------------------------------

  struct Operator {
    Level level = Level::kNone;
    const char* spelled = "";
    int words = 1;
  };

  // The binary operator at this point.
  Operator PeekOperator() const {
    const Token& token = Next();
    if (token.kind != Kind::kPunct) return {};
    switch (token.punct) {
      case Punct("*"): return {Level::kMultiplicative, "*"};
      case Punct("/"): return {Level::kMultiplicative, "/"};
      case Punct("%"): return {Level::kMultiplicative, "%"};
      case Punct("+"): return {Level::kAdditive, "+"};
      case Punct("-"): return {Level::kAdditive, "-"};
      case Punct("<<"): return {Level::kShift, "<<"};
      case Punct("<"): return {Level::kRelational, "<"};
      case Punct("<="): return {Level::kRelational, "<="};
      case Punct("=="): return {Level::kRelational, "=="};
      case Punct("!="): return {Level::kRelational, "!="};
      case Punct("&&"): return {Level::kLogical, "&&"};
      case Punct("||"): return {Level::kLogical, "||"};
      case Punct("&"): return {Level::kBitwise, "&"};
      case Punct("|"): return {Level::kBitwise, "|"};
      case Punct("^"): return {Level::kBitwise, "^"};
      case Punct(">"): break;
      default: return {};
    }
    if (in_template_) return {};
    if (token.joined && IsPunct(Punct(">"), 1)) {
      if (Next(1).joined && IsPunct(Punct("="), 2)) return {};  // >>= is an assignment
      return {Level::kShift, ">>", 2};
    }
    if (token.joined && IsPunct(Punct("="), 1)) return {Level::kRelational, ">=", 2};
    return {Level::kRelational, ">"};
  }

  bool CountOperator() {
    if (++operators_ <= kMaxOperators) return true;
    Fail(Next().at, StrCat("more than ", kMaxOperators, " operators in one expression"));
    return false;
  }

  ExprPtr Binary(ExprPtr left, const Operator& op, Location at, ExprPtr right) {
    if (!left || !right || !CountOperator()) return nullptr;
    ExprPtr expr = MakeExpr(ExprKind::kBinary, at);
    expr->op = op.spelled;
    expr->args.push_back(std::move(left));
    expr->args.push_back(std::move(right));
    return expr;
  }

  Operator TakeOperator(Location& at) {
    Operator op = PeekOperator();
    at = Next().at;
    for (int i = 0; i < op.words; ++i) Take();
    return op;
  }

  ExprPtr Expression() {
    if (depth_in_expression_ == 0) operators_ = 0;
    ++depth_in_expression_;
    ExprPtr expr = InnerExpression();
    --depth_in_expression_;
    return expr;
  }

  ExprPtr InnerExpression() {
    Nest nest(*this);
    if (failed_) return nullptr;
    ExprPtr left = Unary();
    if (!left) return nullptr;
    Operator first = PeekOperator();
    if (first.level == Level::kNone) return left;
    if (first.level == Level::kBitwise) {
      left = Chain(std::move(left), first, [this] { return Unary(); });
    } else {
      left = Relational(std::move(left));
      Operator next = PeekOperator();
      if (next.level == Level::kLogical) {
        first = next;
        left = Chain(std::move(left), next, [this] { return Relational(Unary()); });
      }
    }
    if (!left) return nullptr;
    Operator rest = PeekOperator();
    if (rest.level != Level::kNone) {
      return Fail(Next().at,
                  StrCat("`", rest.spelled, "` after `", last_operator_, "` needs parentheses that say which comes first"));
    }
    return left;
  }

  // left op x op y ..., all the same operator.
  template <class Operand>
  ExprPtr Chain(ExprPtr left, const Operator& op, Operand operand) {
    while (left && PeekOperator().spelled == std::string_view(op.spelled)) {
      Location at;
      Operator taken = TakeOperator(at);
      left = Binary(std::move(left), taken, at, operand());
      last_operator_ = taken.spelled;
    }
    return left;
  }

  ExprPtr Relational(ExprPtr left) {
    left = Shift(std::move(left));
    if (!left || PeekOperator().level != Level::kRelational) return left;
    Location at;
    Operator op = TakeOperator(at);
    ExprPtr right = Shift(Unary());
    last_operator_ = op.spelled;
    return Binary(std::move(left), op, at, std::move(right));
  }

  ExprPtr Shift(ExprPtr left) {
    if (!left) return nullptr;
    Location at;
    if (PeekOperator().level == Level::kShift) {
      Operator op = TakeOperator(at);
      last_operator_ = op.spelled;
      left = Binary(std::move(left), op, at, Unary());
      Operator next = PeekOperator();
      if (left && next.level >= Level::kShift) {
        return Fail(Next().at,
                    StrCat("`", next.spelled, "` after `", op.spelled, "` needs parentheses that say which comes first"));
      }
      return left;
    }
    left = Multiplicative(std::move(left));
    while (left && PeekOperator().level == Level::kAdditive) {
      Operator op = TakeOperator(at);
      last_operator_ = op.spelled;
      left = Binary(std::move(left), op, at, Multiplicative(Unary()));
    }
    if (left && PeekOperator().level == Level::kShift) {
      return Fail(Next().at, StrCat("`", PeekOperator().spelled, "` after `", last_operator_,
                                    "` needs parentheses that say which comes first"));
    }
    return left;
  }

  ExprPtr Multiplicative(ExprPtr left) {
    while (left && PeekOperator().level == Level::kMultiplicative) {
      Location at;
      Operator op = TakeOperator(at);
      last_operator_ = op.spelled;
      left = Binary(std::move(left), op, at, Unary());
    }
    return left;
  }

  ExprPtr Unary() {
    Nest nest(*this);
    if (failed_) return nullptr;
    const Token& token = Next();
    const char* op = nullptr;
    if (token.kind == Kind::kPunct) {
      switch (token.punct) {
        case Punct("-"): op = "-"; break;
        case Punct("!"): op = "!"; break;
        case Punct("~"): op = "~"; break;
        case Punct("&"): op = "&"; break;
        case Punct("*"): op = "*"; break;
        default: break;
      }
    }
    if (!op) return Postfix();
    Take();
    ExprPtr operand = Unary();
    if (!operand) return nullptr;
    ExprPtr expr = MakeExpr(ExprKind::kUnary, token.at);
    expr->op = op;
    expr->args.push_back(std::move(operand));
    return expr;
  }

  ExprPtr Postfix() {
    ExprPtr expr = Primary();
    while (expr) {
      const Token& token = Next();
      if ((IsPunct(Punct("[")) || IsPunct(Punct("."))) && !CountOperator()) return nullptr;
      if (AcceptPunct(Punct("["))) {
        bool outer = std::exchange(in_template_, false);
        ExprPtr index = Expression();
        in_template_ = outer;
        if (!ExpectPunct(Punct("]"), "]")) return nullptr;
        ExprPtr access = MakeExpr(ExprKind::kIndex, token.at);
        access->args.push_back(std::move(expr));
        access->args.push_back(std::move(index));
        expr = std::move(access);
      } else if (AcceptPunct(Punct("."))) {
        const Token& member = Next();
        if (member.kind != Kind::kName) return FailExpected("a member after `.`");
        Take();
        if (IsPunct(Punct("("))) {
          if (expr->kind != ExprKind::kName) {
            return Fail(member.at, StrCat("only a tensor, by its name, has accessors such as `", member.text, "`"));
          }
          ExprPtr call = MakeExpr(ExprKind::kTensorCall, member.at);
          call->name = expr->name;
          call->method = std::string(member.text);
          if (!Arguments(call->args)) return nullptr;
          expr = std::move(call);
        } else {
          ExprPtr access = MakeExpr(ExprKind::kMember, member.at);
          access->name = std::string(member.text);
          access->args.push_back(std::move(expr));
          expr = std::move(access);
        }
      } else {
        break;
      }
    }
    return expr;
  }

  bool Arguments(std::vector<ExprPtr>& args) {
    if (!ExpectPunct(Punct("("), "(")) return false;
    bool outer = std::exchange(in_template_, false);
    while (!failed_ && !IsPunct(Punct(")"))) {
      ExprPtr arg = Expression();
      if (!arg) return false;
      args.push_back(std::move(arg));
      if (!AcceptPunct(Punct(","))) break;
    }
    in_template_ = outer;
    return ExpectPunct(Punct(")"), ")");
  }

  ExprPtr Primary() {
    if (failed_) return nullptr;
    const Token& token = Next();
    if (token.kind == Kind::kNumber) {
      Take();
      ExprPtr expr = MakeExpr(ExprKind::kLiteral, token.at);
      expr->literal = token.literal;
      expr->type = Type::Of(token.scalar);
      return expr;
    }
    if (token.kind == Kind::kPunct) {
      if (!AcceptPunct(Punct("("))) return FailExpected("an expression");
      bool outer = std::exchange(in_template_, false);
      ExprPtr expr = Expression();
      in_template_ = outer;
      return ExpectPunct(Punct(")"), ")") ? std::move(expr) : nullptr;
    }
    if (token.kind != Kind::kName) return FailExpected("an expression");
    if (token.text == "true" || token.text == "false") {
      Take();
      ExprPtr expr = MakeExpr(ExprKind::kLiteral, token.at);
      expr->literal.is_bool = true;
      expr->literal.i = token.text == "true";
      expr->type = Type::Of(Scalar::kBool);
      return expr;
    }
    if (token.text == "bitcast") {
      Take();
      if (!ExpectOpenTemplate("bitcast")) return nullptr;
      ExprPtr expr = MakeExpr(ExprKind::kBitcast, token.at);
      expr->type = ParseType();
      if (!ExpectCloseTemplate() || !Arguments(expr->args)) return nullptr;
      if (expr->args.size() != 1) { return Fail(token.at, StrCat("bitcast takes 1 argument, got ", expr->args.size())); }
      return expr;
    }
    if (IsTypeName(token.text)) {
      ExprPtr expr = MakeExpr(ExprKind::kConstruct, token.at);
      expr->type = ParseType(/*inferred=*/true);
      if (failed_) return nullptr;
      if (expr->type.kind == Type::Kind::kPointer || expr->type.kind == Type::Kind::kAtomic) {
        return Fail(token.at, StrCat("no value of type ", token.text, " can be constructed"));
      }
      if (!Arguments(expr->args)) return nullptr;
      return expr;
    }
    if (IsReservedWord(token.text)) {
      return Fail(token.at, StrCat("expected an expression, found the reserved word `", token.text, "`"));
    }
    Take();
    // A struct or alias constructor looks like a call; the checker knows which it is.
    ExprPtr expr = MakeExpr(IsPunct(Punct("(")) ? ExprKind::kCall : ExprKind::kName, token.at);
    expr->name = std::string(token.text);
    if (expr->kind == ExprKind::kCall && !Arguments(expr->args)) return nullptr;
    return expr;
  }

  // ---- Statements -----------------------------------------------------------------------------------------------------

  bool Body(std::vector<StmtPtr>& body) {
    Nest nest(*this);
    const Token& open = Next();
    if (!ExpectPunct(Punct("{"), "{")) return false;
    while (!failed_ && !IsPunct(Punct("}"))) {
      if (Next().kind == Kind::kEnd) {
        Fail(Next().at, StrCat("expected `}` for the `{` in line ", open.at.line, ", found the end of the text"));
        return false;
      }
      if (AcceptPunct(Punct(";"))) continue;
      StmtPtr stmt = Statement();
      if (!stmt) return false;
      body.push_back(std::move(stmt));
    }
    return ExpectPunct(Punct("}"), "}");
  }

  StmtPtr Statement() {
    Nest nest(*this);
    if (failed_) return nullptr;
    const Token& token = Next();
    int unroll = 0;
    if (AcceptPunct(Punct("@"))) {
      if (!AcceptWord("unroll")) return Fail(Next().at, "a statement takes the attribute @unroll only");
      unroll = -1;
      if (AcceptPunct(Punct("("))) {
        const Token& number = Take();
        if (number.kind != Kind::kNumber || number.literal.is_float || number.literal.i < 1 || number.literal.i > 1024) {
          return Fail(number.at, StrCat("@unroll takes a number from 1 to 1024, found ", Describe(number)));
        }
        unroll = int(number.literal.i);
        if (!ExpectPunct(Punct(")"), ")")) return nullptr;
      }
      if (!IsWord("for")) return FailExpected("a `for` loop after @unroll");
    }
    if (token.kind == Kind::kPunct && IsPunct(Punct("{"))) {
      StmtPtr stmt = MakeStmt(StmtKind::kBlock, token.at);
      return Body(stmt->body) ? std::move(stmt) : nullptr;
    }
    if (Next().kind == Kind::kName) {
      std::string_view word = Next().text;
      if (word == "if") return If();
      if (word == "for") return For(unroll);
      if (word == "while") {
        StmtPtr stmt = MakeStmt(StmtKind::kWhile, Take().at);
        stmt->value = Expression();
        return stmt->value && Body(stmt->body) ? std::move(stmt) : nullptr;
      }
      if (word == "loop") return Loop();
      if (word == "switch") return Switch();
      if (word == "discard") return Fail(token.at, "`discard` is for fragment shaders; this is a compute kernel");
      if (word == "const_assert") return Fail(token.at, "`const_assert` is not supported");
      if (word == "else") return Fail(token.at, "`else` without an `if` before it");
      if (word == "fallthrough") return Fail(token.at, "`fallthrough` is not part of WGSL; list several values in one case");
      if (word == "break") {
        Take();
        if (IsWord("if")) return Fail(token.at, "`break if` stands at the end of a `continuing` block only");
        return Terminated(MakeStmt(StmtKind::kBreak, token.at));
      }
      if (word == "continue") {
        Take();
        return Terminated(MakeStmt(StmtKind::kContinue, token.at));
      }
      if (word == "return") {
        StmtPtr stmt = MakeStmt(StmtKind::kReturn, Take().at);
        if (!IsPunct(Punct(";"))) {
          stmt->value = Expression();
          if (!stmt->value) return nullptr;
        }
        return Terminated(std::move(stmt));
      }
    }
    StmtPtr stmt = Simple();
    return stmt ? Terminated(std::move(stmt)) : nullptr;
  }

  StmtPtr Terminated(StmtPtr stmt) { return ExpectPunct(Punct(";"), ";") ? std::move(stmt) : nullptr; }

  // What may also stand in the head of a `for`: a declaration, an assignment, an increment, a call.
  StmtPtr Simple() {
    const Token& token = Next();
    if (IsWord("let") || IsWord("var") || IsWord("const")) {
      StmtKind kind = IsWord("let") ? StmtKind::kLet : IsWord("var") ? StmtKind::kVar : StmtKind::kConst;
      Take();
      StmtPtr stmt = MakeStmt(kind, token.at);
      if (kind == StmtKind::kVar && AcceptPunct(Punct("<"))) {
        if (!AcceptWord("function")) {
          return Fail(Next().at, "a variable inside a function is in `function` memory; declare others at module scope");
        }
        if (!ExpectPunct(Punct(">"), ">")) return nullptr;
      }
      stmt->at = Next().at;
      stmt->name = NewName(kind == StmtKind::kLet ? "a let" : kind == StmtKind::kVar ? "a var" : "a const");
      if (failed_) return nullptr;
      if (AcceptPunct(Punct(":"))) stmt->type = ParseType();
      if (failed_) return nullptr;
      if (AcceptPunct(Punct("="))) {
        stmt->value = Expression();
        if (!stmt->value) return nullptr;
      } else if (kind != StmtKind::kVar) {
        return FailExpected(StrCat("`=` and the value of ", stmt->name));
      } else if (!stmt->type) {
        return FailExpected(StrCat("a type or a value for ", stmt->name));
      }
      return stmt;
    }
    if (IsWord("_") && IsPunct(Punct("="), 1)) {
      Take();
      Take();
      StmtPtr stmt = MakeStmt(StmtKind::kAssign, token.at);
      stmt->op = "=";
      stmt->value = Expression();
      return stmt->value ? std::move(stmt) : nullptr;
    }
    operators_ = 0;
    ExprPtr target = Unary();
    if (!target) return nullptr;
    const Token& op = Next();
    if (op.kind == Kind::kPunct) {
      if (op.punct == Punct("++") || op.punct == Punct("--")) {
        Take();
        StmtPtr stmt = MakeStmt(StmtKind::kIncrement, token.at);
        stmt->op = std::string(op.text);
        stmt->target = std::move(target);
        return stmt;
      }
      std::string assign;
      switch (op.punct) {
        case Punct("="):
        case Punct("+="):
        case Punct("-="):
        case Punct("*="):
        case Punct("/="):
        case Punct("%="):
        case Punct("&="):
        case Punct("|="):
        case Punct("^="):
        case Punct("<<="):
          assign = std::string(op.text);
          Take();
          break;
        case Punct(">"):
          if (op.joined && IsPunct(Punct(">"), 1) && Next(1).joined && IsPunct(Punct("="), 2)) {
            assign = ">>=";
            Take();
            Take();
            Take();
          }
          break;
        default: break;
      }
      if (!assign.empty()) {
        StmtPtr stmt = MakeStmt(StmtKind::kAssign, token.at);
        stmt->op = std::move(assign);
        stmt->target = std::move(target);
        stmt->value = Expression();
        return stmt->value ? std::move(stmt) : nullptr;
      }
    }
    if (target->kind != ExprKind::kCall && target->kind != ExprKind::kTensorCall) {
      return Fail(op.at, StrCat("an expression alone does nothing; expected `=` or the like, found ", Describe(op)));
    }
    StmtPtr stmt = MakeStmt(StmtKind::kCall, token.at);
    stmt->value = std::move(target);
    return stmt;
  }

  StmtPtr If() {
    Nest nest(*this);
    StmtPtr stmt = MakeStmt(StmtKind::kIf, Take().at);
    stmt->value = Expression();
    if (!stmt->value || !Body(stmt->body)) return nullptr;
    if (AcceptWord("else")) {
      if (IsWord("if")) {
        StmtPtr nested = If();
        if (!nested) return nullptr;
        stmt->else_body.push_back(std::move(nested));
      } else {
        const Token& open = Next();
        if (!Body(stmt->else_body)) return nullptr;
        // `else {}` and no else at all differ in nothing but text; an empty block keeps the text the same.
        if (stmt->else_body.empty()) stmt->else_body.push_back(MakeStmt(StmtKind::kBlock, open.at));
      }
    }
    return stmt;
  }

  StmtPtr For(int unroll) {
    StmtPtr stmt = MakeStmt(StmtKind::kFor, Take().at);
    stmt->unroll = unroll;
    if (!ExpectPunct(Punct("("), "(")) return nullptr;
    if (!IsPunct(Punct(";"))) {
      stmt->init = Simple();
      if (!stmt->init) return nullptr;
    }
    if (!ExpectPunct(Punct(";"), ";")) return nullptr;
    if (!IsPunct(Punct(";"))) {
      stmt->value = Expression();
      if (!stmt->value) return nullptr;
    }
    if (!ExpectPunct(Punct(";"), ";")) return nullptr;
    if (!IsPunct(Punct(")"))) {
      stmt->update = Simple();
      if (!stmt->update) return nullptr;
      StmtKind kind = stmt->update->kind;
      if (kind == StmtKind::kLet || kind == StmtKind::kVar || kind == StmtKind::kConst) {
        return Fail(stmt->update->at, "the last part of a `for` cannot declare anything");
      }
    }
    if (!ExpectPunct(Punct(")"), ")")) return nullptr;
    return Body(stmt->body) ? std::move(stmt) : nullptr;
  }

  StmtPtr Loop() {
    Nest nest(*this);
    StmtPtr stmt = MakeStmt(StmtKind::kLoop, Take().at);
    if (!ExpectPunct(Punct("{"), "{")) return nullptr;
    while (!failed_ && !IsPunct(Punct("}")) && !IsWord("continuing")) {
      if (AcceptPunct(Punct(";"))) continue;
      StmtPtr inner = Statement();
      if (!inner) return nullptr;
      stmt->body.push_back(std::move(inner));
    }
    if (AcceptWord("continuing")) {
      if (!ExpectPunct(Punct("{"), "{")) return nullptr;
      while (!failed_ && !IsPunct(Punct("}"))) {
        if (AcceptPunct(Punct(";"))) continue;
        if (IsWord("break") && IsWord("if", 1)) {
          StmtPtr exit = MakeStmt(StmtKind::kBreakIf, Take().at);
          Take();
          exit->value = Expression();
          if (!exit->value || !ExpectPunct(Punct(";"), ";")) return nullptr;
          stmt->else_body.push_back(std::move(exit));
          if (!IsPunct(Punct("}"))) return FailExpected("`}` (`break if` is the last statement of `continuing`)");
          break;
        }
        StmtPtr inner = Statement();
        if (!inner) return nullptr;
        stmt->else_body.push_back(std::move(inner));
      }
      if (!ExpectPunct(Punct("}"), "}")) return nullptr;
      if (!IsPunct(Punct("}"))) return FailExpected("`}` (`continuing` is the last statement of a loop)");
    }
    return ExpectPunct(Punct("}"), "}") ? std::move(stmt) : nullptr;
  }

  StmtPtr Switch() {
    StmtPtr stmt = MakeStmt(StmtKind::kSwitch, Take().at);
    stmt->value = Expression();
    if (!stmt->value || !ExpectPunct(Punct("{"), "{")) return nullptr;
    while (!failed_ && !IsPunct(Punct("}"))) {
      SwitchCase branch;
      if (AcceptWord("default")) {
        branch.is_default = true;
      } else {
        if (!ExpectWord("case")) return nullptr;
        while (!failed_ && !IsPunct(Punct(":")) && !IsPunct(Punct("{"))) {
          if (AcceptWord("default")) {
            branch.is_default = true;
          } else {
            ExprPtr selector = Expression();
            if (!selector) return nullptr;
            branch.selectors.push_back(std::move(selector));
          }
          if (!AcceptPunct(Punct(","))) break;
        }
        if (branch.selectors.empty() && !branch.is_default) return FailExpected("a value after `case`");
      }
      AcceptPunct(Punct(":"));
      if (!Body(branch.body)) return nullptr;
      stmt->cases.push_back(std::move(branch));
    }
    return ExpectPunct(Punct("}"), "}") ? std::move(stmt) : nullptr;
  }

  // ---- Declarations ---------------------------------------------------------------------------------------------------

  void Declaration() {
    if (AcceptPunct(Punct(";"))) return;
    const Token& token = Next();
    if (token.kind == Kind::kPunct && token.punct == Punct("@")) return FunctionDecl();
    if (token.kind != Kind::kName) {
      FailExpected("a declaration");
      return;
    }
    std::string_view word = token.text;
    if (word == "fn") return FunctionDecl();
    if (word == "tensor" || word == "weights") return Tensor();
    if (word == "const" || word == "tune") return Const();
    if (word == "param" || word == "scratch") return ParamOrScratch();
    if (word == "var") return Var();
    if (word == "struct") return Struct();
    if (word == "alias") return Alias();
    if (word == "enable" || word == "requires" || word == "diagnostic") {
      Fail(token.at, StrCat("`", word, "` lines are generated for each target; leave this one out"));
    } else if (word == "override") {
      Fail(token.at, "there is no `override`; declare a `const` and bind it when the kernel is specialized");
    } else if (word == "const_assert") {
      Fail(token.at, "`const_assert` is not supported");
    } else if (word == "let") {
      Fail(token.at, "`let` stands inside functions only; at module scope use `const`");
    } else {
      FailExpected("a declaration (tensor, weights, const, tune, param, scratch, var, struct, alias or fn)");
    }
  }

  void EndDeclaration() { ExpectPunct(Punct(";"), ";"); }

  void Tensor() {
    TensorDecl decl;
    decl.is_weights = Take().text == "weights";
    decl.at = Next().at;
    decl.name = NewName(decl.is_weights ? "weights" : "a tensor");
    if (!ExpectPunct(Punct("["), "[")) return;
    while (!failed_ && !IsPunct(Punct("]"))) {
      const Token& token = Next();
      std::string axis = NewName("an axis");
      for (const std::string& other : decl.axes) {
        if (other == axis) Fail(token.at, StrCat("the axis ", axis, " of ", decl.name, " is named twice"));
      }
      decl.axes.push_back(std::move(axis));
      if (decl.axes.size() > 8) Fail(token.at, StrCat("the tensor ", decl.name, " has more than 8 axes"));
      if (!AcceptPunct(Punct(","))) break;
    }
    if (!ExpectPunct(Punct("]"), "]")) return;
    if (!decl.is_weights) {
      if (!ExpectPunct(Punct(":"), ":")) return;
      if (AcceptWord("read"))
        decl.access = Access::kRead;
      else if (AcceptWord("write"))
        decl.access = Access::kWrite;
      else if (AcceptWord("read_write"))
        decl.access = Access::kReadWrite;
      else
        FailExpected(StrCat("how ", decl.name, " is accessed (read, write or read_write)"));
    }
    if (AcceptWord("as")) {
      const Token& token = Next();
      Scalar scalar;
      if (token.kind != Kind::kName || !ScalarFromName(token.text, scalar) || scalar == Scalar::kF16) {
        FailExpected("i32, u32, bool or f32 after `as`");
        return;
      }
      Take();
      decl.value = scalar;
    }
    EndDeclaration();
    module_.tensors.push_back(std::move(decl));
  }

  bool Number(double& value) {
    bool negative = AcceptPunct(Punct("-"));
    const Token& token = Next();
    if (AcceptWord("true") || AcceptWord("false")) {
      value = token.text == "true";
      return true;
    }
    if (token.kind != Kind::kNumber) {
      FailExpected("a number");
      return false;
    }
    Take();
    value = token.literal.is_float ? token.literal.f : double(token.literal.i);
    if (negative) value = -value;
    return true;
  }

  void Const() {
    ConstDecl decl;
    decl.is_tune = Take().text == "tune";
    decl.at = Next().at;
    decl.name = NewName(decl.is_tune ? "a tune" : "a const");
    if (failed_) return;
    if (AcceptPunct(Punct(":"))) decl.type = ParseType();
    if (failed_) return;
    if (decl.is_tune) {
      if (!decl.type) {
        FailExpected(StrCat("`:` and the type of ", decl.name));
        return;
      }
      if (!ExpectWord("in") || !ExpectPunct(Punct("{"), "{")) return;
      while (!failed_ && !IsPunct(Punct("}"))) {
        double value = 0;
        if (!Number(value)) return;
        decl.tune_values.push_back(value);
        if (!AcceptPunct(Punct(","))) break;
      }
      if (decl.tune_values.empty()) {
        FailExpected(StrCat("a value that ", decl.name, " may have"));
        return;
      }
      if (!ExpectPunct(Punct("}"), "}")) return;
    } else if (AcceptPunct(Punct("="))) {
      decl.value = Expression();
    } else if (!decl.type) {
      FailExpected(StrCat("a type or a value for ", decl.name));
    }
    EndDeclaration();
    module_.consts.push_back(std::move(decl));
  }

  void ParamOrScratch() {
    bool is_param = Take().text == "param";
    Location at = Next().at;
    std::string name = NewName(is_param ? "a param" : "scratch memory");
    if (!ExpectPunct(Punct(":"), ":")) return;
    Type type = ParseType();
    EndDeclaration();
    if (is_param)
      module_.params.push_back({std::move(name), std::move(type), at});
    else
      module_.scratches.push_back({std::move(name), std::move(type), at});
  }

  void Var() {
    Take();
    VarDecl decl;
    if (!AcceptPunct(Punct("<"))) {
      FailExpected("`<workgroup>` or `<private>` after `var` at module scope");
      return;
    }
    const Token& space = Take();
    if (space.text == "storage" || space.text == "uniform") {
      Fail(space.at, StrCat("var<", space.text, "> is generated; declare a tensor, a param or scratch memory"));
      return;
    }
    if (space.text != "workgroup" && space.text != "private") {
      Fail(space.at, StrCat("a variable at module scope is in workgroup or private memory, not ", Describe(space)));
      return;
    }
    decl.space = std::string(space.text);
    if (!ExpectPunct(Punct(">"), ">")) return;
    decl.at = Next().at;
    decl.name = NewName("a var");
    if (failed_) return;
    if (AcceptPunct(Punct(":"))) {
      decl.type = ParseType();
    } else {
      FailExpected(StrCat("`:` and the type of ", decl.name));
      return;
    }
    if (IsPunct(Punct("=")) && decl.space == "workgroup") {
      Fail(Next().at, "workgroup memory has no initial value");
      return;
    }
    if (AcceptPunct(Punct("="))) decl.value = Expression();
    EndDeclaration();
    module_.vars.push_back(std::move(decl));
  }

  void Struct() {
    Take();
    StructDecl decl;
    decl.at = Next().at;
    decl.name = NewName("a struct");
    if (!ExpectPunct(Punct("{"), "{")) return;
    while (!failed_ && !IsPunct(Punct("}"))) {
      const Token& token = Next();
      StructMember member;
      member.name = NewName("a member");
      for (const StructMember& other : decl.members) {
        if (other.name == member.name) Fail(token.at, StrCat("the member ", member.name, " of ", decl.name, " exists twice"));
      }
      if (!ExpectPunct(Punct(":"), ":")) return;
      member.type = ParseType();
      decl.members.push_back(std::move(member));
      if (!AcceptPunct(Punct(","))) break;
    }
    if (!ExpectPunct(Punct("}"), "}")) return;
    if (decl.members.empty()) Fail(decl.at, StrCat("the struct ", decl.name, " has no members"));
    AcceptPunct(Punct(";"));
    module_.structs.push_back(std::move(decl));
  }

  void Alias() {
    Take();
    AliasDecl decl;
    decl.at = Next().at;
    decl.name = NewName("an alias");
    if (!ExpectPunct(Punct("="), "=")) return;
    decl.type = ParseType();
    EndDeclaration();
    module_.aliases.push_back(std::move(decl));
  }

  void FunctionDecl() {
    Function function;
    const Token& first = Next();
    while (AcceptPunct(Punct("@"))) {
      const Token& attribute = Take();
      if (attribute.text == "compute") {
        function.is_entry = true;
      } else if (attribute.text == "workgroup_size") {
        if (!function.workgroup_size.empty()) Fail(attribute.at, "@workgroup_size is given twice");
        if (!Arguments(function.workgroup_size)) return;
        if (function.workgroup_size.empty() || function.workgroup_size.size() > 3) {
          Fail(attribute.at, StrCat("@workgroup_size takes 1 to 3 numbers, got ", function.workgroup_size.size()));
        }
      } else {
        Fail(attribute.at, StrCat("a function takes the attributes @compute and @workgroup_size, not ", Describe(attribute)));
      }
      if (failed_) return;
    }
    if (!ExpectWord("fn")) return;
    function.at = Next().at;
    function.name = NewName("a function");
    if (!ExpectPunct(Punct("("), "(")) return;
    while (!failed_ && !IsPunct(Punct(")"))) {
      Parameter parameter;
      if (AcceptPunct(Punct("@"))) {
        const Token& attribute = Take();
        if (attribute.text != "builtin") {
          Fail(attribute.at, StrCat("a parameter takes the attribute @builtin only, not ", Describe(attribute)));
          return;
        }
        if (!ExpectPunct(Punct("("), "(")) return;
        const Token& input = Take();
        bool known = false;
        for (std::string_view name : kBuiltinInputs) known |= name == input.text;
        if (!known) {
          Fail(input.at, StrCat("there is no builtin input ", Describe(input), "; there are ", Join(kBuiltinInputs, ", ")));
          return;
        }
        parameter.builtin = std::string(input.text);
        if (!ExpectPunct(Punct(")"), ")")) return;
      }
      const Token& token = Next();
      parameter.name = NewName("a parameter");
      for (const Parameter& other : function.parameters) {
        if (other.name == parameter.name) {
          Fail(token.at, StrCat("the parameter ", parameter.name, " of ", function.name, " exists twice"));
        }
      }
      if (!ExpectPunct(Punct(":"), ":")) return;
      parameter.type = ParseType();
      function.parameters.push_back(std::move(parameter));
      if (!AcceptPunct(Punct(","))) break;
    }
    if (!ExpectPunct(Punct(")"), ")")) return;
    if (AcceptPunct(Punct("->"))) function.result = ParseType();
    if (function.is_entry && function.workgroup_size.empty()) {
      Fail(first.at, StrCat("the entry point ", function.name, " has no @workgroup_size"));
    }
    if (!function.is_entry && !function.workgroup_size.empty()) {
      Fail(first.at, StrCat("the function ", function.name, " has @workgroup_size but is no entry point (@compute)"));
    }
    if (!Body(function.body)) return;
    module_.functions.push_back(std::move(function));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, depth_in_expression_ = 0, operators_ = 0;
  bool in_template_ = false;  // `>` closes a template list here
  std::string_view last_operator_;
  Module module_;
  bool failed_ = false;
  Error error_;
};

}  // namespace

Result<Module> Parse(std::string_view text, std::string_view name) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(text, name));
  return Parser(std::move(tokens), name).Run();
}

}  // namespace leeway::shader
