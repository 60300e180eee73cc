#include <gtest/gtest.h>

#include "base/strings.h"
#include "shader/compile.h"
#include "shader/lexer.h"

namespace leeway::shader {
namespace {

std::string ErrorOf(std::string_view text) {
  auto module = Parse(text, "k");
  return module.ok() ? "no error" : module.error().message;
}

// The expression as the parser understood it, fully parenthesized.
std::string Tree(const Expr& e) {
  std::string args;
  for (size_t i = 0; i < e.args.size(); ++i) args += StrCat(i ? " " : "", Tree(*e.args[i]));
  switch (e.kind) {
    case ExprKind::kLiteral: return Format(e);
    case ExprKind::kName: return e.name;
    case ExprKind::kUnary:
    case ExprKind::kBinary: return StrCat("(", e.op, " ", args, ")");
    case ExprKind::kIndex: return StrCat("([] ", args, ")");
    case ExprKind::kMember: return StrCat("(.", e.name, " ", args, ")");
    case ExprKind::kCall: return StrCat("(", e.name, args.empty() ? "" : " ", args, ")");
    case ExprKind::kConstruct: return StrCat("(", e.type.ToString(), args.empty() ? "" : " ", args, ")");
    case ExprKind::kBitcast: return StrCat("(bitcast ", e.type.ToString(), " ", args, ")");
    case ExprKind::kTensorCall: return StrCat("(", e.name, ".", e.method, args.empty() ? "" : " ", args, ")");
  }
  return "?";
}

std::string TreeOf(std::string_view expression) {
  auto module = Parse(StrCat("const c = ", expression, ";"), "k");
  return module.ok() ? Tree(*module->consts[0].value) : module.error().message;
}

TEST(Parser, BindsOperatorsAsWgslDoes) {
  EXPECT_EQ(TreeOf("a + b * c - d"), "(- (+ a (* b c)) d)");
  EXPECT_EQ(TreeOf("-a * b"), "(* (- a) b)");
  EXPECT_EQ(TreeOf("a % b / c"), "(/ (% a b) c)");
  EXPECT_EQ(TreeOf("a + 1u < b * 2u && c"), "(&& (< (+ a 1u) (* b 2u)) c)");
  EXPECT_EQ(TreeOf("a && b && c"), "(&& (&& a b) c)");
  EXPECT_EQ(TreeOf("a == b || c >= d"), "(|| (== a b) (>= c d))");
  EXPECT_EQ(TreeOf("a & b & c"), "(& (& a b) c)");
  EXPECT_EQ(TreeOf("a << 2u"), "(<< a 2u)");
  EXPECT_EQ(TreeOf("(a + b) >> c"), "(>> (+ a b) c)");
  EXPECT_EQ(TreeOf("a >> 1u >= b"), "(>= (>> a 1u) b)");
  EXPECT_EQ(TreeOf("a < b"), "(< a b)");
  EXPECT_EQ(TreeOf("a < (b >> c)"), "(< a (>> b c))");
  EXPECT_EQ(TreeOf("!a || -b.x[1] == *p"), "(|| (! a) (== (- ([] (.x b) 1)) (* p)))");
  EXPECT_EQ(TreeOf("f(a, b,).xyz"), "(.xyz (f a b))");
  EXPECT_EQ(TreeOf("x.load4(b, r, s)[i]"), "([] (x.load4 b r s) i)");
  EXPECT_EQ(TreeOf("x.row + 3u"), "(+ (.row x) 3u)");
}

TEST(Parser, TellsTemplatesFromComparisons) {
  EXPECT_EQ(TreeOf("vec4<f32>(1.0)"), "(vec4<f32> 1.0)");
  EXPECT_EQ(TreeOf("vec2(a < b, c > d)"), "(vec2 (< a b) (> c d))");
  EXPECT_EQ(TreeOf("array<vec4<f32>, 2>(a, b)"), "(array<vec4<f32>, 2> a b)");
  EXPECT_EQ(TreeOf("array<array<u32, n * 2u>, (n >> 1u)>()"), "(array<array<u32, n * 2u>, (n >> 1u)>)");
  EXPECT_EQ(TreeOf("array<u32, select(1, 2, a > b)>()"), "(array<u32, select(1, 2, a > b)>)");
  EXPECT_EQ(TreeOf("bitcast<vec2<u32>>(x)"), "(bitcast vec2<u32> x)");
  EXPECT_EQ(TreeOf("vec3u(id) >= vec3u(1)"), "(>= (vec3<u32> id) (vec3<u32> 1))");
  EXPECT_EQ(TreeOf("vec4h(1.0h)"), "(vec4<f16> 1.0h)");
  auto module = Parse("fn f() { var a: array<f32,4>=b; let c: vec2<i32>= d; e >>= 1u; g >= h; }", "k");
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().message, "k.kernel:1:66: an expression alone does nothing; expected `=` or the like, found `>`");
}

TEST(Parser, ReadsNumbers) {
  EXPECT_EQ(TreeOf("f(0, 42, 7i, 4294967295u, 0xFFu, 0x7fffffff, 1.5, 1., .5, 1e3, 2.5e-3f, 1f, 0x1.8p1, 0x10)"),
            "(f 0 42 7i 4294967295u 255u 2147483647 1.5 1.0 0.5 1000.0 0.0025f 1.0f 3.0 16)");
  EXPECT_EQ(TreeOf("1e-400"), "0.0");
  EXPECT_EQ(ErrorOf("const c = 4294967296u;"), "k.kernel:1:11: `4294967296u` is too large for u32");
  EXPECT_EQ(ErrorOf("const c = 9223372036854775808;"),
            "k.kernel:1:11: `9223372036854775808` is too large for a 64-bit integer");
  EXPECT_EQ(ErrorOf("const c = 012;"), "k.kernel:1:11: a decimal number does not begin with 0");
  EXPECT_EQ(ErrorOf("const c = 1.5u;"), "k.kernel:1:11: a number with a point or an exponent cannot have the suffix u");
  EXPECT_EQ(ErrorOf("const c = 12abc;"), "k.kernel:1:11: `12abc` is not a number");
  EXPECT_EQ(ErrorOf("const c = 1e;"), "k.kernel:1:11: the exponent of this number has no digits");
  EXPECT_EQ(ErrorOf("const c = 0x;"), "k.kernel:1:11: this number has no digits");
  EXPECT_EQ(ErrorOf("const c = 0x1.8;"), "k.kernel:1:11: a hexadecimal number with a point needs an exponent, as in 0x1.8p0");
  EXPECT_EQ(ErrorOf("const c = 1e999;"), "k.kernel:1:11: this number is out of the range of 64-bit floats");
  EXPECT_EQ(ErrorOf("const c = 1e39f;"), "k.kernel:1:11: this number is too large for f32");
  EXPECT_EQ(ErrorOf("const c = 70000h;"), "k.kernel:1:11: this number is too large for f16");
}

constexpr std::string_view kEverything = R"(
// every construct of the language once
tensor x[batch, row, inner] : read;
tensor y[batch, row, column] : write as i32;
tensor cache[row] : read_write;
tensor scalar[] : read;
weights w[column, inner];
weights table[row, column] as u32;
const approximate : bool;
const order : array<u32, 4>;
const pi = 3.14159274;
const taps = array(1.0, 2.0, /* nested /* comment */ */ 3.0);
tune rows_per_unit : u32 in {1, 2, 4, 8,};
param position : u32;
scratch arrived : array<atomic<u32>, 64>;
alias Tile = array<vec4f, 8 * 8>;
struct Best { value : f32, index : u32 }
var<workgroup> tile : Tile;
var<private> seed : u32 = 7u;

fn add(a : f32, p : ptr<function, f32>) -> f32 {
  *p += a;
  return -(-*p);
}
fn fill(t : ptr<workgroup, array<vec4f, 64>>, at : u32) { (*t)[at] = vec4f(); }

@compute @workgroup_size(8, 8 * rows_per_unit)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let row = group.x;
  var total : f32;
  var v = x.load4(group.z, row, lane);
  const half = 0.5;
  if approximate && lane < 3u || (row > 2u) {
  }
})";

TEST(Parser, RefusesMixedOperatorsWithoutParentheses) {
  EXPECT_EQ(ErrorOf("const c = a || b && d;"), "k.kernel:1:18: `&&` after `||` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a && b || d;"), "k.kernel:1:18: `||` after `&&` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a & b == d;"), "k.kernel:1:17: `==` after `&` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a + b & d;"), "k.kernel:1:17: `&` after `+` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a + b << 2u;"), "k.kernel:1:17: `<<` after `+` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a << 2u + b;"), "k.kernel:1:19: `+` after `<<` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a << b << d;"), "k.kernel:1:18: `<<` after `<<` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a < b < d;"), "k.kernel:1:17: `<` after `<` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf("const c = a | b & d;"), "k.kernel:1:17: `&` after `|` needs parentheses that say which comes first");
  EXPECT_EQ(ErrorOf(kEverything), "k.kernel:33:31: `||` after `&&` needs parentheses that say which comes first");
}

TEST(Parser, FormatsToTextThatReadsBackAsTheSameTree) {
  std::string text(kEverything.substr(0, kEverything.find("  if approximate")));
  text += R"(
  if (approximate && lane < 3u) || row > 2u { total = 1.0; } else if !approximate { total += 2.0; } else {}
  if lane == 0u {} else { total -= 1.0; { total *= 2.0; } }
  @unroll(4) for (var i = 0u; i < 4u; i++) { v[i] = total; continue; }
  @unroll for (var i = 0u; i < 2u; i += 1u) { break; }
  for (; ; ) { break; }
  while total < (3.0 - (1.0 - 2.0)) * 4.0 { total += 1.0; }
  loop { if total > 1e30f { break; } continuing { total = total * 2.0; break if total >= 4.0; } }
  loop { return; }
  switch row & 3u { case 0u, 1u: { total = 0.0; } case 2u, default { } }
  switch i32(row) { default: { total--; } case -1 { } }
  _ = add(1.0, &total);
  var a = ~row | (row ^ (row >> 1u)) | (row << 2u);
  a <<= 1u; a >>= 1u; a %= 7u; a /= 3u; a &= 1u; a ^= 1u; a |= 1u;
  let b = bitcast<vec4<u32>>(v).wzyx;
  let c = array<vec2<f32>, 2>(vec2(1, 2), vec2f(3.0));
  let big = f32(-2147483648) / (1.0 / 3.0) - -1.0;
  let p = &tile[lane];
  atomicAdd(&arrived[0], 1u);
  workgroupBarrier();
  y.store(i32(v.x) + i32(x.row), group.z, row, lane);
})";
  auto module = Parse(text, "k");
  ASSERT_TRUE(module.ok()) << module.error().message;
  std::string once = Format(*module);
  auto again = Parse(once, "k");
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << once;
  EXPECT_EQ(Format(*again), once);
  const Function& a = module->functions.back();
  const Function& b = again->functions.back();
  ASSERT_EQ(a.body.size(), b.body.size());
  for (size_t i = 0; i < a.body.size(); ++i) {
    if (!a.body[i]->value) continue;
    EXPECT_TRUE(Equal(*a.body[i]->value, *b.body[i]->value)) << Format(*a.body[i]);
  }
  EXPECT_EQ(Format(Clone(*module)), once);
}

TEST(Parser, KeepsPositions) {
  auto module = Parse("// \xC3\xA9\nfn f() {\n  /* \xE2\x82\xAC */ let a = 1 + x.row;\n}", "k");
  ASSERT_TRUE(module.ok()) << module.error().message;
  const Stmt& let = *module->functions[0].body[0];
  EXPECT_EQ(let.at.line, 3u);
  EXPECT_EQ(let.at.column, 15u);  // characters, not bytes
  EXPECT_EQ(let.value->at.column, 21u);
  EXPECT_EQ(let.value->args[1]->at.column, 25u);
}

TEST(Parser, NamesWhatItExpected) {
  EXPECT_EQ(ErrorOf("fn f() { let a = 1 }"), "k.kernel:1:20: expected `;`, found `}`");
  EXPECT_EQ(ErrorOf("fn f() {\n  let = 1;\n}"), "k.kernel:2:7: expected the name of a let, found `=`");
  EXPECT_EQ(ErrorOf("fn f() { if a {"), "k.kernel:1:16: expected `}` for the `{` in line 1, found the end of the text");
  EXPECT_EQ(ErrorOf("fn f() { a = ; }"), "k.kernel:1:14: expected an expression, found `;`");
  EXPECT_EQ(ErrorOf("fn f() { var a; }"), "k.kernel:1:15: expected a type or a value for a, found `;`");
  EXPECT_EQ(ErrorOf("fn f() { let filter = 1; }"), "k.kernel:1:14: `filter` is a reserved word of WGSL and cannot be a name");
  EXPECT_EQ(ErrorOf("fn f() { let vec4f = 1; }"), "k.kernel:1:14: `vec4f` is a type of the language and cannot be a name");
  EXPECT_EQ(ErrorOf("fn f() { let __a = 1; }"),
            "k.kernel:1:14: `__a` cannot be a name: `_` alone and names with two leading underscores are reserved");
  EXPECT_EQ(ErrorOf("tensor x[a, a] : read;"), "k.kernel:1:13: the axis a of x is named twice");
  EXPECT_EQ(ErrorOf("tensor x[a];"), "k.kernel:1:12: expected `:`, found `;`");
  EXPECT_EQ(ErrorOf("tensor x[a] : readonly;"),
            "k.kernel:1:15: expected how x is accessed (read, write or read_write), found `readonly`");
  EXPECT_EQ(ErrorOf("tensor x[a] : read as f16;"), "k.kernel:1:23: expected i32, u32, bool or f32 after `as`, found `f16`");
  EXPECT_EQ(ErrorOf("tensor x[a,b,c,d,e,f,g,h,i] : read;"), "k.kernel:1:26: the tensor x has more than 8 axes");
  EXPECT_EQ(ErrorOf("tune n : u32 in {};"), "k.kernel:1:18: expected a value that n may have, found `}`");
  EXPECT_EQ(ErrorOf("var x : f32;"),
            "k.kernel:1:5: expected `<workgroup>` or `<private>` after `var` at module scope, found `x`");
  EXPECT_EQ(ErrorOf("var<storage> x : f32;"),
            "k.kernel:1:5: var<storage> is generated; declare a tensor, a param or scratch memory");
  EXPECT_EQ(ErrorOf("var<workgroup> x : f32 = 1.0;"), "k.kernel:1:24: workgroup memory has no initial value");
  EXPECT_EQ(ErrorOf("fn f(m : mat4x4<f32>) {}"),
            "k.kernel:1:10: matrix types (mat4x4) are not supported; use vectors, or an array of them");
  EXPECT_EQ(ErrorOf("@compute fn f() {}"), "k.kernel:1:1: the entry point f has no @workgroup_size");
  EXPECT_EQ(ErrorOf("@workgroup_size(1) fn f() {}"),
            "k.kernel:1:1: the function f has @workgroup_size but is no entry point (@compute)");
  EXPECT_EQ(ErrorOf("@vertex fn f() {}"),
            "k.kernel:1:2: a function takes the attributes @compute and @workgroup_size, not `vertex`");
  EXPECT_EQ(ErrorOf("@compute @workgroup_size(1) fn f(@builtin(position) p : vec4f) {}"),
            "k.kernel:1:43: there is no builtin input `position`; there are workgroup_id, local_invocation_id, "
            "local_invocation_index, global_invocation_id, num_workgroups, subgroup_size, subgroup_invocation_id");
  EXPECT_EQ(ErrorOf("fn f(a : u32, a : u32) {}"), "k.kernel:1:15: the parameter a of f exists twice");
  EXPECT_EQ(ErrorOf("enable f16;"), "k.kernel:1:1: `enable` lines are generated for each target; leave this one out");
  EXPECT_EQ(ErrorOf("fn f() { @unroll(0) for (;;) {} }"), "k.kernel:1:18: @unroll takes a number from 1 to 1024, found `0`");
  EXPECT_EQ(ErrorOf("fn f() { @unroll while true {} }"), "k.kernel:1:18: expected a `for` loop after @unroll, found `while`");
  EXPECT_EQ(ErrorOf("fn f() { loop { continuing { } a = 1; } }"),
            "k.kernel:1:32: expected `}` (`continuing` is the last statement of a loop), found `a`");
  EXPECT_EQ(ErrorOf("fn f() { break if a; }"), "k.kernel:1:10: `break if` stands at the end of a `continuing` block only");
  EXPECT_EQ(ErrorOf("fn f() { discard; }"), "k.kernel:1:10: `discard` is for fragment shaders; this is a compute kernel");
  EXPECT_EQ(ErrorOf("fn f() { a.b.load(1); }"), "k.kernel:1:14: only a tensor, by its name, has accessors such as `load`");
  EXPECT_EQ(ErrorOf("/* open"), "k.kernel:1:1: this comment has no end");
  EXPECT_EQ(ErrorOf("const a = #;"), "k.kernel:1:11: the character `#` has no meaning here");
  EXPECT_EQ(ErrorOf("const \xC3\xA9 = 1;"), "k.kernel:1:7: characters beyond ASCII are allowed in comments only");
  EXPECT_EQ(ErrorOf("fn f() { if a { } else b(); }"), "k.kernel:1:24: expected `{`, found `b`");
  EXPECT_EQ(ErrorOf("foo x;"),
            "k.kernel:1:1: expected a declaration (tensor, weights, const, tune, param, scratch, var, struct, alias or fn), "
            "found `foo`");
}

TEST(Parser, SurvivesDeepAndLongTexts) {
  std::string deep = "const c = ";
  for (int i = 0; i < 100000; ++i) deep += "(";
  EXPECT_NE(ErrorOf(deep).find("nested more than 200 levels deep"), std::string::npos);
  std::string unary = "const c = ";
  for (int i = 0; i < 100000; ++i) unary += "!";
  EXPECT_NE(ErrorOf(unary).find("nested more than 200 levels deep"), std::string::npos);
  std::string chain = "const c = 1";
  for (int i = 0; i < 100000; ++i) chain += " + 1";
  EXPECT_NE(ErrorOf(chain + ";").find("more than 2000 operators in one expression"), std::string::npos);
  std::string accesses = "const c = a";
  for (int i = 0; i < 100000; ++i) accesses += i % 2 ? ".b" : "[0]";
  EXPECT_NE(ErrorOf(accesses + ";").find("more than 2000 operators in one expression"), std::string::npos);
  std::string blocks = "fn f() ";
  for (int i = 0; i < 100000; ++i) blocks += "{";
  EXPECT_NE(ErrorOf(blocks).find("nested more than 200 levels deep"), std::string::npos);
  std::string ifs = "fn f() { if a {}";
  for (int i = 0; i < 100000; ++i) ifs += " else if a {}";
  EXPECT_NE(ErrorOf(ifs).find("nested more than 200 levels deep"), std::string::npos);
  std::string types = "const c : ";
  for (int i = 0; i < 100000; ++i) types += "array<";
  EXPECT_NE(ErrorOf(types).find("nested more than 200 levels deep"), std::string::npos);
}

// A text cut anywhere is an error with a position, or a shorter program; never a crash.
TEST(Parser, SurvivesTruncation) {
  for (size_t length = 0; length < kEverything.size(); ++length) {
    auto module = Parse(kEverything.substr(0, length), "k");
    if (module.ok()) continue;
    EXPECT_EQ(module.error().message.substr(0, 9), "k.kernel:") << length;
  }
}

// Words of a kernel dropped, doubled, exchanged: an error with a position, or another kernel; never a crash.
TEST(Parser, SurvivesDamagedTexts) {
  constexpr std::string_view kText = R"(
tensor x[row, column] : read; tensor y[row, column] : write;
const n : u32; const order : array<u32, 3>; tune rows : u32 in {1, 2};
var<workgroup> tile : array<vec4f, n * 4>; scratch count : array<atomic<u32>, 2>;
struct Best { value : f32, at : vec2u } alias Four = array<f32, 4>;
fn add(p : ptr<function, f32>, by : f32) -> f32 { *p += by; return *p; }
@compute @workgroup_size(n, rows)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  var best = Best(x.load(0, 0), vec2u(1, 2)); var four = Four(1, 2, 3, 4);
  for (var s = lane; s < (x.column + 3) / 4; s += n) { tile[lane % n] += x.load4(group.x, s).wzyx * 2.0; }
  workgroupBarrier();
  const k = order[1] + 2; let p = &four[k % 4]; *p = max(best.value, -1.5) + add(&best.value, f32(k));
  if n > 2u && !(k == 1) { y.store(unit_sum(four[lane % 4]), group.x, lane); } else { atomicAdd(&count[0], 1); }
  switch order[0] { case 0, 1: { best.at.x++; } default: { loop { break; } } }
  loop { four[0] *= 0.5; continuing { break if four[0] < 1 || lane >> 1u == 0; } }
  y.store4(select(vec4f(0), tile[0], vec4f(1) > tile[n]), group.x, bitcast<u32>(four[1]) & 1u);
})";
  auto tokens = Lex(kText, "k");
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  Specialization specialization;
  specialization.consts = {{"n", 4}, {"order", ConstValue({2, 0, 1})}};
  for (const char* name : {"x", "y"}) {
    VirtualTensor tensor;
    tensor.shape = tensor.placement.shape = {3, 9};
    specialization.tensors.emplace(name, tensor);
  }
  auto whole = Parse(kText, "k");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  auto bound = Bind(*whole, specialization, {});
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  uint32_t seed = 1;
  auto random = [&seed](size_t below) {
    seed = seed * 1664525u + 1013904223u;
    return size_t(seed >> 8) % below;
  };
  int parsed = 0, fine = 0;
  for (int round = 0; round < 1500; ++round) {
    std::vector<std::string> words;  // `>>` is two words without a space between
    for (const Token& token : *tokens) words.push_back(StrCat(token.text, token.joined ? "" : " "));
    for (size_t change = 0; change <= random(2); ++change) {
      size_t at = random(words.size()), other = random(words.size());
      switch (random(4)) {
        case 0: words.erase(words.begin() + std::ptrdiff_t(at)); break;
        case 1: words.insert(words.begin() + std::ptrdiff_t(at), std::string(words[other])); break;
        case 2: std::swap(words[at], words[other]); break;
        default: words[at] = words[other]; break;
      }
    }
    std::string text = Join(words, "");
    auto module = Parse(text, "k");
    if (!module.ok()) {
      EXPECT_EQ(module.error().message.substr(0, 9), "k.kernel:") << text;
      continue;
    }
    ++parsed;
    std::string once = Format(*module);
    auto again = Parse(once, "k");
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << once;
    EXPECT_EQ(Format(*again), once);
    auto kernel = Bind(*module, specialization, {});
    if (kernel.ok())
      ++fine;
    else
      EXPECT_EQ(kernel.error().message.substr(0, 9), "k.kernel:") << text;
  }
  EXPECT_GT(parsed, 100);
  EXPECT_GT(fine, 10);
}

}  // namespace
}  // namespace leeway::shader
