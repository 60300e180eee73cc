#include <gtest/gtest.h>

#include <chrono>

#include "base/strings.h"
#include "shader/builtins.h"
#include "shader/compile.h"
#include "shader/value_map.h"

namespace leeway::shader {
namespace {

Target TestTarget() {
  Target target;
  target.f16 = true;
  target.subgroups = true;
  target.subgroup_min = target.subgroup_max = 32;
  return target;
}

VirtualTensor Placed(Shape shape) {
  VirtualTensor tensor;
  tensor.shape = shape;
  tensor.placement.shape = shape;
  return tensor;
}

struct Case {
  std::map<std::string, ConstValue> consts;
  std::map<std::string, VirtualTensor> tensors;
  Target target = TestTarget();
};

Result<BoundKernel> BindText(std::string_view text, const Case& c = {}) {
  ASSIGN_OR_RETURN(Module module, Parse(text, "k"));
  return Bind(module, Specialization{c.consts, c.tensors}, c.target);
}

// The bound kernel as text, or the error.
std::string Bound(std::string_view text, const Case& c = {}) {
  auto kernel = BindText(text, c);
  return kernel.ok() ? Format(kernel->module) : kernel.error().message;
}

// `body` in the entry point of a kernel with one tensor of each kind; the bound statements, one a line.
std::string Body(std::string_view body, const Case& extra = {}) {
  Case c = extra;
  c.tensors.emplace("x", Placed({2, 5}));
  c.tensors.emplace("y", Placed({2, 5}));
  c.tensors.emplace("n", Placed({7}));
  std::string text = StrCat(R"(tensor x[row, column] : read; tensor y[row, column] : write; tensor n[index] : read_write as i32;
var<workgroup> tile : array<f32, 64>; var<workgroup> counter : atomic<u32>;
@compute @workgroup_size(64) fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
)",
                            body, "\n}");
  auto kernel = BindText(text, c);
  if (!kernel.ok()) return kernel.error().message;
  std::string out;
  for (const StmtPtr& stmt : kernel->module.entry().body) out += Format(*stmt);
  return out;
}

// The type and text that an expression gets.
std::string Typed(std::string_view expression) {
  std::string body = Body(StrCat("let result = ", expression, ";"));
  return body.substr(0, 11) == "let result " ? body.substr(13, body.size() - 15) : body;
}

TEST(Bind, GivesLiteralsTheirTypes) {
  EXPECT_EQ(Typed("1"), "i32 = 1i");
  EXPECT_EQ(Typed("1.5"), "f32 = 1.5f");
  EXPECT_EQ(Typed("lane + 1"), "u32 = lane + 1u");
  EXPECT_EQ(Typed("1 + lane * 2"), "u32 = 1u + lane * 2u");
  EXPECT_EQ(Typed("x.load(0, lane) * 2"), "f32 = x.load(0u, lane) * 2.0f");
  EXPECT_EQ(Typed("vec2(1, 2.5)"), "vec2<f32> = vec2<f32>(1.0f, 2.5f)");
  EXPECT_EQ(Typed("vec2(1, 2) * 3"), "vec2<i32> = vec2<i32>(3i, 6i)");
  EXPECT_EQ(Typed("vec2(1, lane)"), "vec2<u32> = vec2<u32>(1u, lane)");
  EXPECT_EQ(Typed("array(1, 2.0)"), "array<f32, 2> = array<f32, 2>(1.0f, 2.0f)");
  EXPECT_EQ(Typed("vec4f(1)"), "vec4<f32> = vec4<f32>(1.0f)");
  EXPECT_EQ(Typed("vec4(vec2(1), lane, 2)"), "vec4<u32> = vec4<u32>(vec2<u32>(1u), lane, 2u)");
  EXPECT_EQ(Typed("select(1, 2, lane > 3)"), "i32 = select(1i, 2i, lane > 3u)");
  EXPECT_EQ(Typed("max(x.load(0, 1), 0)"), "f32 = max(x.load(0u, 1u), 0.0f)");
  EXPECT_EQ(Typed("-2147483648"), "i32 = -2147483648i");
  EXPECT_EQ(Typed("-2147483648i"), "i32 = -2147483648i");
  EXPECT_EQ(Typed("lane << 2"), "u32 = lane << 2u");
  EXPECT_EQ(Typed("f32(lane)"), "f32 = f32(lane)");
  EXPECT_EQ(Typed("u32(lane)"), "u32 = lane");
  EXPECT_EQ(Typed("vec3f(group)"), "vec3<f32> = vec3<f32>(group)");
  EXPECT_EQ(Typed("bitcast<f32>(lane)"), "f32 = bitcast<f32>(lane)");
}

TEST(Bind, EvaluatesConstants) {
  EXPECT_EQ(Typed("1 / 3.0 + 0.5"), "f32 = 0.8333333f");
  EXPECT_EQ(Typed("(7 / 2) * 2u"), "u32 = 6u");
  EXPECT_EQ(Typed("x.row * x.column + 3u"), "u32 = 13u");
  EXPECT_EQ(Typed("min(3, 4) + max(1, 2)"), "i32 = 5i");
  EXPECT_EQ(Typed("sqrt(16.0)"), "f32 = 4.0f");
  EXPECT_EQ(Typed("clamp(5, 0, 3)"), "i32 = 3i");
  EXPECT_EQ(Typed("select(1u, 2u, true)"), "u32 = 2u");
  EXPECT_EQ(Typed("0u - 1u"), "u32 = 4294967295u");
  EXPECT_EQ(Typed("~0u >> 28u"), "u32 = 15u");
  EXPECT_EQ(Typed("i32(-2.7)"), "i32 = -2i");
  EXPECT_EQ(Typed("u32(-2.7)"), "u32 = 0u");
  EXPECT_EQ(Typed("bitcast<u32>(1.0f)"), "u32 = 1065353216u");
  EXPECT_EQ(Typed("vec3(1, 2, 3).zx.x"), "i32 = 3i");
  EXPECT_EQ(Typed("vec4f(0.1).y"), "f32 = 0.1f");
  EXPECT_EQ(Typed("array(5, 6, 7)[1]"), "i32 = 6i");
  EXPECT_EQ(Typed("subgroup_size + u32(has_f16)"), "u32 = 33u");
  EXPECT_EQ(Typed("true && lane > 3u"), "bool = lane > 3u");
  EXPECT_EQ(Typed("!(1 < 2 || false)"), "bool = false");
  EXPECT_EQ(Typed("16777217.0f"), "f32 = 16777216.0f");
  EXPECT_EQ(Body("const n = 4; const m = n * 2 + 0.5; var a : array<f32, n + 1>; a[n] = m;"),
            "var a : array<f32, 5>;\na[4i] = 8.5f;\n");
}

TEST(Bind, ResolvesBranchesOnConstantsBeforeTheyAreChecked) {
  Case on{{{"use_bias", 1}}, {}}, off{{{"use_bias", 0}}, {}};
  constexpr std::string_view kText = R"(const use_bias : bool;
tensor bias[column] : read;
tensor y[column] : write;
fn biased(c : u32) -> f32 { return bias.load(c); }
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) group : vec3u) {
  var v = 1.0;
  if use_bias { v += biased(group.x); } else if !use_bias { v += 2.0; } else { nonsense(); }
  y.store(v, group.x);
})";
  on.tensors = {{"bias", Placed({4})}, {"y", Placed({4})}};
  off.tensors = {{"y", Placed({4})}};
  EXPECT_EQ(Bound(kText, off), R"(tensor y[column] : write;

@compute @workgroup_size(1u, 1u, 1u)
fn main(@builtin(workgroup_id) group : vec3<u32>) {
  var v : f32 = 1.0f;
  v += 2.0f;
  y.store(v, group.x);
}
)");
  EXPECT_NE(Bound(kText, on).find("v += biased(group.x);"), std::string::npos) << Bound(kText, on);
  on.tensors.erase("bias");
  EXPECT_EQ(Bound(kText, on), "k.kernel:4:41: the tensor bias is used but not placed");
  EXPECT_EQ(Body("if false { nonsense(); }"), "");
  EXPECT_EQ(Body("if true { return; } nonsense();"), "return;\n");
  EXPECT_EQ(Body("switch 3 { case 1: { nonsense(); } case 3: { _ = lane; } default: { more(); } }"), "_ = lane;\n");
  EXPECT_EQ(Body("switch 7 { case 1: { nonsense(); } default: { if lane > 2 { break; } _ = lane; } }"),
            "switch 7i {\n  default: {\n    if lane > 2u {\n      break;\n    }\n    _ = lane;\n  }\n}\n");
  EXPECT_EQ(Body("while false { nonsense(); }"), "");
}

TEST(Bind, BindsConsts) {
  constexpr std::string_view kText =
      R"(const n : u32; const order : array<u32, 3>; const shift : vec2i; const slope : f32 = 0.25;
tune rows : u32 in {4, 8}; const offsets : array<array<i32, 2>, 2>; const unused : array<f32, n>;
scratch out : array<f32, 64>;
@compute @workgroup_size(rows * 2, n) fn main(@builtin(local_invocation_index) lane : u32) {
  out[0] = f32(n + order[1]) + slope + f32(shift.y) + f32(offsets[1][0]);
  out[1] = f32(order[lane]);
})";
  Case c{{{"n", 2},
          {"order", ConstValue({2, 0, 1})},
          {"shift", ConstValue({-1, 3})},
          {"offsets", ConstValue({1, 2, 3, 4})},
          {"unused", ConstValue({0, 0})}},
         {}};
  EXPECT_EQ(Bound(kText, c), R"(const order : array<u32, 3> = array<u32, 3>(2u, 0u, 1u);
scratch out : array<f32, 64>;

@compute @workgroup_size(8u, 2u, 1u)
fn main(@builtin(local_invocation_index) lane : u32) {
  out[0i] = 8.25f;
  out[1i] = f32(order[lane]);
}
)");
  auto with = [&](const char* name, ConstValue value) {
    Case changed = c;
    changed.consts[name] = std::move(value);
    return Bound(kText, changed);
  };
  EXPECT_NE(with("rows", 8).find("@workgroup_size(16u, 2u, 1u)"), std::string::npos);
  EXPECT_EQ(with("rows", 3), "k.kernel:2:6: tune rows is bound to 3, which is none of {4, 8}");
  EXPECT_EQ(with("n", 2.5), "k.kernel:1:7: const n : u32 cannot be 2.5");
  EXPECT_EQ(with("n", -1), "k.kernel:1:7: const n : u32 cannot be -1");
  EXPECT_EQ(with("slope", 1), "k.kernel:1:72: const slope has a value of its own and cannot be bound");
  EXPECT_EQ(with("order", ConstValue({1, 2})), "k.kernel:1:22: const order takes more values than the 2 bound");
  EXPECT_EQ(with("order", ConstValue({1, 2, 0, 0})), "k.kernel:1:22: const order : array<u32, 3> takes 3 values, bound are 4");
  EXPECT_EQ(with("m", 1),
            "k.kernel:1:1: the kernel has no const `m` to bind; it has [n, order, shift, slope, rows, offsets, unused]");
  c.consts.erase("n");
  EXPECT_EQ(Bound(kText, c), "k.kernel:1:7: const n is not bound");
}

TEST(Bind, MakesNamesUnique) {
  EXPECT_EQ(Body("let a = lane; { let a = a + 1; { let a = a + 2; _ = a; } _ = a; } let max = a; _ = max(max, a);"),
            "k.kernel:4:84: `max` is no function here");
  EXPECT_EQ(Body("let a = lane; { let a = a + 1; _ = a; } for (var a = 0; a < 2; a++) { } let max = a; _ = max;"),
            "let a : u32 = lane;\n{\n  let a_1 : u32 = a + 1u;\n  _ = a_1;\n}\n"
            "for (var a_2 : i32 = 0i; a_2 < 2i; a_2++) {}\nlet max_1 : u32 = a;\n_ = max_1;\n");
  EXPECT_EQ(Body("let x = 1; _ = x + x;"), "let x_1 : i32 = 1i;\n_ = x_1 + x_1;\n");  // hides the tensor
  EXPECT_EQ(Body("let a = 1; let a = 2;"), "k.kernel:4:16: `a` is already declared in this block");
  EXPECT_EQ(Body("let lane = 1;"), "k.kernel:4:5: `lane` is already declared in this block");
}

TEST(Bind, ReplacesPointersInLets) {
  EXPECT_EQ(Body("var v : array<vec2f, 4>; var i = lane; let p = &v[i % 4]; i = 0; (*p).x = 1; p.y += 2; let q = &p[0];"),
            "k.kernel:4:96: there is no pointer to a component of a vector");
  EXPECT_EQ(Body("var v : array<vec2f, 4>; var i = lane; let p = &v[i % 4]; i = 0; (*p).x = 1; p.y += 2;"),
            "var v : array<vec2<f32>, 4>;\nvar i : u32 = lane;\nlet p_index : u32 = i % 4u;\ni = 0u;\n"
            "v[p_index].x = 1.0f;\nv[p_index].y += 2.0f;\n");
}

TEST(Bind, CallsFunctionsAndOrdersThemCalleesFirst) {
  std::string text = Bound(R"(scratch out : array<f32, 4>;
@compute @workgroup_size(1) fn main() { var t = 1.0; a(&t, 2); out[0] = t + c(1); }
fn a(p : ptr<function, f32>, by : f32) { *p += b(by); }
fn b(v : f32) -> f32 { return c(v) * 2; }
fn c(v : f32) -> f32 { if v > 1 { return v; } else { return 1; } }
fn unused() { nonsense(); }
)");
  EXPECT_EQ(text, R"(scratch out : array<f32, 4>;

fn c(v : f32) -> f32 {
  if v > 1.0f {
    return v;
  } else {
    return 1.0f;
  }
}

fn b(v : f32) -> f32 {
  return c(v) * 2.0f;
}

fn a(p : ptr<function, f32>, by : f32) {
  *p += b(by);
}

@compute @workgroup_size(1u, 1u, 1u)
fn main() {
  var t : f32 = 1.0f;
  a(&t, 2.0f);
  out[0i] = t + c(1.0f);
}
)");
}

TEST(Bind, AddsThePreludeByUse) {
  Case c;
  c.tensors = {{"x", Placed({8, 10})}, {"y", Placed({8, 10})}};
  constexpr std::string_view kSoftmax = R"(tensor x[row, column] : read;
tensor y[row, column] : write;
const lanes : u32;
@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let row = group.x;
  let slices = (x.column + 3u) / 4u;
  var largest = -3.0e38;
  for (var s = lane; s < slices; s += lanes) { largest = max(largest, max4_inside(x.load4(row, s), s, x.column)); }
  largest = unit_max(largest);
  var total = 0.0;
  for (var s = lane; s < slices; s += lanes) { total += sum4_inside(exp(x.load4(row, s) - largest), s, x.column); }
  total = unit_sum(total);
  for (var s = lane; s < slices; s += lanes) { y.store4(exp(x.load4(row, s) - largest) / total, row, s); }
})";
  c.consts["lanes"] = 32;
  std::string with_subgroups = Bound(kSoftmax, c);
  EXPECT_NE(with_subgroups.find("return subgroupMax(v);"), std::string::npos) << with_subgroups;
  EXPECT_EQ(with_subgroups.find("unit_memory"), std::string::npos);
  c.target.subgroup_min = 8;  // no certain size
  auto kernel = BindText(kSoftmax, c);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(kernel->workgroup_bytes, 32u * 4);
  EXPECT_TRUE(kernel->uses_barriers);
  EXPECT_FALSE(kernel->uses_subgroups);
  std::string with_tree = Format(kernel->module);
  EXPECT_NE(with_tree.find("largest = unit_max_f32(largest, lane);"), std::string::npos) << with_tree;
  EXPECT_NE(with_tree.find("fn unit_sum_f32(v : f32, lane : u32) -> f32 {"), std::string::npos) << with_tree;
  c.consts["lanes"] = 1;
  EXPECT_EQ(Bound(kSoftmax, c).find("unit_memory"), std::string::npos);
  // Several subgroups leave their parts in workgroup memory; extents of whole slices need no masks.
  c.consts["lanes"] = 32;
  c.target.subgroup_max = 8;
  EXPECT_NE(with_tree.find("select("), std::string::npos);
  c.tensors = {{"x", Placed({8, 12})}, {"y", Placed({8, 12})}};
  std::string with_parts = Bound(kSoftmax, c);
  EXPECT_NE(with_parts.find("unit_memory_f32[lane / 8u] = part;"), std::string::npos) << with_parts;
  EXPECT_EQ(with_parts.find("select("), std::string::npos) << with_parts;
}

TEST(Bind, ThreadsBuiltinInputsThroughCalls) {
  EXPECT_EQ(Bound(R"(scratch out : array<f32, 4>;
fn deep(v : f32) -> f32 { return unit_sum(v * 2); }
fn outer(v : f32) -> f32 { return deep(v); }
@compute @workgroup_size(4) fn main() { out[0] = outer(1); }
)",
                  {{{"subgroup_size", 4}}, {}}),
            R"(scratch out : array<f32, 4>;

fn unit_sum_f32(v : f32, lane : u32) -> f32 {
  return subgroupAdd(v);
}

fn deep(v : f32, local_invocation_index : u32) -> f32 {
  return unit_sum_f32(v * 2.0f, local_invocation_index);
}

fn outer(v : f32, local_invocation_index : u32) -> f32 {
  return deep(v, local_invocation_index);
}

@compute @workgroup_size(4u, 1u, 1u)
fn main(@builtin(local_invocation_index) local_invocation_index : u32) {
  out[0i] = outer(1.0f, local_invocation_index);
}
)");
}

// Every function of the prelude for every type that it is for.
TEST(Bind, ChecksTheWholePrelude) {
  for (const char* type : {"f32", "vec4f"}) {
    for (const char* f : {"relu", "relu6", "relu_n1_to_1", "sigmoid", "silu", "tanh_clamped", "gelu_tanh", "erf", "gelu_erf",
                          "hard_sigmoid", "hard_swish", "elu", "softplus", "unit_sum", "unit_max", "unit_min"}) {
      std::string text = Body(StrCat("var v = ", type, "(x.load(0, 0)); v = ", f, "(v);"));
      EXPECT_NE(text.find("v = "), std::string::npos) << f << ": " << text;
    }
  }
  EXPECT_EQ(Body("_ = leaky_relu(x.load4(0, 0), 0.1);"), "_ = leaky_relu_vec4f(x.load4(0u, 0u), 0.1f);\n");
  EXPECT_EQ(Body("_ = sum4(vec4u(lane)); _ = max4(n.load4(0)); _ = min4(vec4f(1)); _ = product4(vec4f(2));"),
            "_ = sum4_vec4u(vec4<u32>(lane));\n_ = max4_vec4i(n.load4(0u));\n_ = min4_vec4f(vec4<f32>(1.0f));\n"
            "_ = product4_vec4f(vec4<f32>(2.0f));\n");
  EXPECT_EQ(Body("_ = min4_inside(x.load4(0, 0), 0, 5); _ = inside4(lane, 5);"),
            "_ = min4_inside_vec4f_5(x.load4(0u, 0u), 0u);\n_ = inside4_5(lane);\n");
  EXPECT_EQ(Body("_ = max4_inside(x.load4(0, 0), 0, lane);"), "_ = max4_inside_vec4f(x.load4(0u, 0u), 0u, lane);\n");
  EXPECT_EQ(Body("_ = max4_inside(x.load4(0, 0), 0, 1.5);"),
            "k.kernel:4:35: argument 3 of max4_inside is u32, got abstract-float");
  EXPECT_EQ(Body("_ = sum4(1.0);"), "k.kernel:4:10: argument 1 of sum4 is a vector of four numbers, got f32");
  EXPECT_EQ(Body("_ = relu(true);"), "k.kernel:4:10: argument 1 of relu is a number or a vector of numbers, got bool");
  EXPECT_EQ(Body("_ = sigmoid(lane);"), "k.kernel:4:5: `-` takes a signed number, got u32");
}

TEST(Bind, CountsWorkgroupMemoryAndChecksLimits) {
  constexpr std::string_view kText = R"(const n : u32;
var<workgroup> tile : array<vec4f, n>;
var<workgroup> unused : array<vec4f, 1000000>;
var<workgroup> flag : u32;
@compute @workgroup_size(n, 2) fn main() { tile[0] = vec4f(1); flag = 1; })";
  auto with = [&](double n) { return BindText(kText, {{{"n", n}}, {}}); };
  ASSERT_TRUE(with(8).ok()) << with(8).error().message;
  EXPECT_EQ(with(8)->workgroup_bytes, 8u * 16 + 16);
  EXPECT_EQ(with(8)->module.vars.size(), 2u);
  EXPECT_EQ(with(8)->workgroup_size[0], 8u);
  EXPECT_EQ(with(8)->workgroup_size[1], 2u);
  EXPECT_EQ(with(129).error().message, "k.kernel:5:26: the workgroup has 258 invocations, the target takes 256");
  EXPECT_EQ(with(300).error().message, "k.kernel:5:26: the workgroup has 300 invocations in x, the target takes 1 to 256");
  EXPECT_EQ(with(0).error().message, "k.kernel:5:26: the workgroup has 0 invocations in x, the target takes 1 to 256");
  Case small{{{"n", 8}}, {}};
  small.target.max_workgroup_bytes = 100;
  EXPECT_EQ(BindText(kText, small).error().message,
            "k.kernel:2:16: the kernel has 144 bytes of workgroup memory (tile alone 128), the target takes 100");
}

TEST(Bind, InstantiatesValueMaps) {
  ValueMap map;
  map.text =
      "fn apply(v : V, other : V) -> V { return gelu_tanh(v * scale + other) + twice(v); } fn twice(v : V) -> V { return v * "
      "2; }";
  map.consts = {{"scale", 0.5}};
  map.operands.resize(1);
  auto vector = InstantiateValueMap(map, true, "map_1", TestTarget(), "k");
  ASSERT_TRUE(vector.ok()) << vector.error().message;
  ASSERT_EQ(vector->functions.size(), 4u);
  EXPECT_EQ(vector->functions[2].name, "map_1_twice");
  EXPECT_EQ(Format(vector->functions[3]),
            "fn map_1(v : vec4<f32>, other : vec4<f32>) -> vec4<f32> {\n"
            "  return gelu_tanh_vec4f(v * 0.5f + other) + map_1_twice(v);\n}\n");
  auto scalar = InstantiateValueMap(map, false, "map_2", TestTarget(), "k");
  ASSERT_TRUE(scalar.ok()) << scalar.error().message;
  MergeModule(*scalar, std::move(*vector));
  EXPECT_EQ(scalar->functions.size(), 8u);
  auto error = [&](const char* text) {
    map.text = text;
    auto result = InstantiateValueMap(map, true, "f", TestTarget(), "k");
    return result.ok() ? "no error" : result.error().message;
  };
  EXPECT_EQ(error("fn apply(v : V) -> V { return v; }"),
            "k value map.kernel:1:4: the value map takes 1 values, it gets 2 (the value in flight and its operands)");
  EXPECT_EQ(error("fn apply(v : I, o : V) -> V { return o; }"),
            "k value map.kernel:1:4: the value map takes vec4<i32> as its first value, it gets vec4<f32>");
  EXPECT_EQ(error("fn apply(v : V, o : V) -> U { return U(v); }"),
            "k value map.kernel:1:4: the value map gives vec4<u32>, expected is vec4<f32>");
  EXPECT_EQ(error("fn apply(v : V, o : f32) -> V { return v; }"),
            "k value map.kernel:1:4: operand 1 of the value map is a f32; write V, F, I, U or B");
  EXPECT_EQ(error("fn other(v : V) -> V { return v; }"), "k value map.kernel:1:1: the value map has no function `apply`");
  EXPECT_EQ(error("fn apply(v : V, o : V) -> V { return unit_sum(v); }"),
            "k value map.kernel:1:38: a value map has no local_invocation_index");
  EXPECT_EQ(error("fn apply(v : V, o : V) -> V { workgroupBarrier(); return v; }"),
            "k value map.kernel:1:31: `workgroupBarrier` is not allowed in a value map");
  map.value = DType::kI32;
  map.result = DType::kF32;
  map.operands.resize(1);
  map.consts = {{"zero_point", 3}};
  map.text = "fn apply(v : V, keep : B) -> R { return select(R(0), R(v - zero_point), keep); }";
  auto mixed = InstantiateValueMap(map, false, "f", TestTarget(), "k");
  ASSERT_TRUE(mixed.ok()) << mixed.error().message;
  EXPECT_EQ(Format(mixed->functions[0]), "fn f(v : i32, keep : bool) -> f32 {\n  return select(0.0f, f32(v - 3i), keep);\n}\n");
}

TEST(Bind, KeepsAFormattedTreeReadable) {
  std::string text = Body("var v = x.load4(1, lane); v.x = -v.y; if any(v > vec4f(0)) { y.store4(v.zyxw, 1, lane); }");
  EXPECT_EQ(text,
            "var v : vec4<f32> = x.load4(1u, lane);\nv.x = -v.y;\n"
            "if any(v > vec4<f32>(0.0f)) {\n  y.store4(v.zyxw, 1u, lane);\n}\n");
}

}  // namespace
}  // namespace leeway::shader
