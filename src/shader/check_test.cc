// What the checker refuses, with message and position. Bodies stand in the entry point of kKernel, from line 12 on.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "shader/builtins.h"
#include "shader/compile.h"

namespace leeway::shader {
namespace {

constexpr std::string_view kKernel = R"(tensor x[row, column] : read;
tensor y[row, column] : write;
tensor z[row] : read_write as i32;
param position : u32;
scratch arrived : array<atomic<u32>, 4>;
struct Pair { a : f32, b : vec2u }
alias Four = array<f32, 4>;
var<workgroup> tile : array<f32, 64>;
var<workgroup> counter : atomic<u32>;
fn twice(v : f32) -> f32 { return v * 2; }
@compute @workgroup_size(64) fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
)";

Specialization Placed() {
  Specialization specialization;
  for (auto [name, shape] : {std::pair<const char*, Shape>{"x", {2, 5}}, {"y", {2, 5}}, {"z", {7}}}) {
    VirtualTensor tensor;
    tensor.shape = tensor.placement.shape = shape;
    specialization.tensors.emplace(name, tensor);
  }
  return specialization;
}

std::string Check(std::string_view text, const Specialization& specialization, bool f16 = false, bool subgroups = true) {
  Target target;
  target.f16 = f16;
  target.subgroups = subgroups;
  target.subgroup_min = target.subgroup_max = 8;
  auto module = Parse(text, "k");
  if (!module.ok()) return module.error().message;
  auto kernel = Bind(*module, specialization, target);
  return kernel.ok() ? "fine" : kernel.error().message;
}

std::string CheckBody(std::string_view body, std::string_view functions = "") {
  return Check(StrCat(kKernel, body, "\n}\n", functions), Placed());
}
std::string CheckModule(std::string_view text) { return Check(text, {}); }

struct Row {
  const char* body;
  const char* error;  // without "k.kernel:"
};
void CheckRows(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    std::string want = std::string_view(row.error) == "fine" ? "fine" : StrCat("k.kernel:", row.error);
    EXPECT_EQ(CheckBody(row.body), want) << row.body;
  }
}

TEST(Check, Operators) {
  CheckRows({
      {"_ = 1.0 + lane;", "12:9: `+` takes two numbers of one type, got abstract-float and u32"},
      {"_ = x.load(0, 0) * lane;", "12:18: `*` takes two numbers of one type, got f32 and u32"},
      {"_ = vec2f(1) + vec3f(1);", "12:14: `+` takes two values of one type, got vec2<f32> and vec3<f32>"},
      {"_ = vec2f(1) * lane;", "12:14: `*` takes two numbers of one type, got vec2<f32> and u32"},
      {"_ = vec4f(1) * 2 + 1;", "fine"},
      {"_ = true + false;", "12:10: `+` takes numbers, got bool and bool"},
      {"_ = lane && true;", "12:10: `&&` takes two bools, got u32 and bool"},
      {"_ = lane == -1;", "12:13: the value -1 is out of the range of u32"},
      {"_ = lane < 3i;", "12:10: `<` takes two values of one type, got u32 and i32"},
      {"_ = 1.5 & 2;", "12:9: `&` takes two integers or two bools of one type, got abstract-float and abstract-int"},
      {"_ = lane << 32;", "12:13: a shift by 32 bits; there are 32"},
      {"_ = lane << 1i;", "12:10: `<<` takes an integer and a u32, or vectors of as many, got u32 and i32"},
      {"_ = vec2u(lane) << vec2u(1);", "fine"},
      {"_ = lane / 0;", "12:12: division by zero"},
      {"_ = lane % 0;", "12:12: remainder of a division by zero"},
      {"_ = 1 / 0;", "12:9: division by zero"},
      {"_ = 1.0 / 0.0;", "12:9: division by zero"},
      {"_ = 1e38f * 10f;", "12:11: the result is not a finite f32"},
      {"_ = 9223372036854775807 + 1;", "12:25: the result is out of the range of 64-bit integers"},
      {"_ = -lane;", "12:5: `-` takes a signed number, got u32"},
      {"_ = !lane;", "12:5: `!` takes a bool, got u32"},
      {"_ = ~1.5;", "12:5: `~` takes an integer, got abstract-float"},
      {"_ = *lane;", "12:5: `*` takes a pointer, got u32"},
      {"_ = 3000000000i;", "12:5: `3000000000i` is too large for i32"},
      {"_ = 2147483648i;", "12:5: the value 2147483648 is out of the range of i32"},
      {"let a = 3000000000;", "12:9: the value 3000000000 is out of the range of i32"},
      {"let a : f32 = 1e39;", "12:15: the value 1e+39 is out of the range of f32"},
  });
}

TEST(Check, Names) {
  CheckRows({
      {"_ = foo;", "12:5: there is nothing named `foo` here"},
      {"foo(1);", "12:1: there is no function `foo`"},
      {"_ = x;", "12:5: `x` is a tensor; its elements are read and written with load, store and the like"},
      {"_ = twice;", "12:5: `twice` is a function; it needs arguments in parentheses"},
      {"_ = max;", "12:5: `max` is a function; it needs arguments in parentheses"},
      {"_ = Pair;", "12:5: `Pair` is a type, not a value"},
      {"let a : Foo = 1;", "12:5: there is no type `Foo`"},
      {"let a : x = 1;", "12:5: `x` is no type"},
      {"_ = tile(1);", "12:5: `tile` is no function"},
      {"{ let a = 1; } _ = a;", "12:20: there is nothing named `a` here"},
      {"for (var i = 0; i < 2; i++) { } _ = i;", "12:37: there is nothing named `i` here"},
      {"main();", "12:1: the entry point main cannot be called"},
      {"_ = unit_lanes;", "12:5: there is nothing named `unit_lanes` here"},
      {"_ = arrayLength(&tile);",
       "12:5: there is no `arrayLength`: an array has the size that it is declared with; a tensor's extents are members of it"},
  });
  EXPECT_EQ(CheckModule("fn max(a : u32) {}"), "k.kernel:1:4: `max` is a builtin function; no declaration can take its name");
  EXPECT_EQ(CheckModule("const sum4 = 1;"),
            "k.kernel:1:7: `sum4` is a function of the prelude; no declaration can take its name");
  EXPECT_EQ(CheckModule("const relu_vec4f = 1;"),
            "k.kernel:1:7: `relu_vec4f` is a function of the prelude; no declaration can take its name");
  EXPECT_EQ(CheckModule("const a = 1; param a : u32;"), "k.kernel:1:20: `a` is declared twice");
}

TEST(Check, TypesAndConversions) {
  CheckRows({
      {"let a : u32 = 1.5;", "12:15: let a is u32, got abstract-float"},
      {"var a : f32 = lane;", "12:15: var a is f32, got u32"},
      {"const a : i32 = 2.0;", "12:17: const a is i32, got abstract-float"},
      {"const a = lane;", "12:11: the value of const a is not constant"},
      {"var a = 1; a = 2.0;", "12:16: the target of the assignment is i32, got abstract-float"},
      {"var a = 1; a += lane;", "12:12: `+` takes two numbers of one type, got i32 and u32"},
      {"var a = 1.0; a *= vec2f(1);", "12:14: `*=` gives a vec2<f32>, its target is a f32"},
      {"var a = vec2f(1); a *= 2; a.x += 1; a[1] = 3;", "fine"},
      {"var a = vec3f(1); a.xy = vec2f(1);",
       "12:21: this cannot be assigned to: several components (xy) at once are no place; assign them one by one"},
      {"let a = 1; a = 2;", "12:12: this cannot be assigned to: `a` is a let; make it a var"},
      {"lane = 2;", "12:1: this cannot be assigned to: `lane` is a parameter; copy it to a var"},
      {"position = 2;", "12:1: this cannot be assigned to: `position` is constant"},
      {"twice(1) = 2;", "12:1: this cannot be assigned to: it is a value, not a variable"},
      {"counter = 2;", "12:1: a atomic<u32> cannot be assigned to; use the atomic functions"},
      {"_ = counter;", "12:5: the value of a atomic<u32> is read with atomicLoad"},
      {"let a = arrived[0];", "12:16: the value of a atomic<u32> is read with atomicLoad"},
      {"var a = 1.0; a++;", "12:14: `++` takes an i32 or a u32, got f32"},
      {"if lane { }", "12:4: the condition of `if` is a bool, got u32"},
      {"while 1 { }", "12:7: the condition of `while` is a bool, got abstract-int"},
      {"for (; lane; ) { }", "12:8: the condition of `for` is a bool, got u32"},
      {"var a : atomic<u32>;", "12:5: `a` cannot be a atomic<u32>"},
      {"var a : array<u32, lane>;", "12:20: the number of elements of an array is a constant integer"},
      {"var a : array<u32, 2.5>;", "12:20: the number of elements of an array is a constant integer"},
      {"var a : array<u32, 0>;", "12:20: an array has 1 to 16777216 elements, not 0"},
      {"let a = f16(1);", "12:9: the type f16 is not available on this target; keep it under `if has_f16`"},
      {"let a = 1h;", "12:9: the type f16 is not available on this target; keep it under `if has_f16`"},
      {"if has_f16 { let a = 1h; }", "fine"},
      {"let a = &tile; _ = a;", "12:20: this is a pointer; write `*` before it to get what it points to"},
      {"var a = &tile;", "12:9: this is a pointer; write `*` before it to get what it points to"},
      {"_ = &lane;", "12:5: there is no pointer to this: `lane` is a parameter; copy it to a var"},
      {"let a = storageBarrier();", "12:9: `storageBarrier` gives no value"},
      {"max(1, 2);", "12:1: the result of this is not used"},
      {"max(lane, 2);", "12:1: the result of max is not used"},
      {"x.load(0, 0);", "12:1: the result of load is not used"},
      {"twice(1);", "fine"},
      {"atomicAdd(&counter, 1);", "fine"},
  });
}

TEST(Check, Constructors) {
  CheckRows({
      {"_ = vec3f(1, 2);", "12:5: `vec3<f32>` takes 1 or 3 components, got (abstract-int, abstract-int)"},
      {"_ = vec3f(vec4f(1));", "12:5: `vec3<f32>` takes 1 or 3 components, got (vec4<f32>)"},
      {"_ = vec2f(lane, 1.0);", "12:11: a component of vec2<f32> is f32, got u32"},
      {"_ = vec2(lane, 1.5);", "12:5: the components of a vector have one scalar type, got u32 and abstract-float"},
      {"_ = vec4f(vec2u(1), 1.0, 1.0);", "12:11: a component of vec4<f32> is vec2<f32>, got vec2<u32>"},
      {"_ = vec2();", "12:5: `vec2` takes 1 or 2 components, got ()"},
      {"_ = f32(vec2f(1));", "12:5: `f32` takes one scalar, got (vec2<f32>)"},
      {"_ = f32(1, 2);", "12:5: `f32` takes one scalar, got (abstract-int, abstract-int)"},
      {"_ = u32(-1);", "12:5: the value -1 is out of the range of u32"},
      {"_ = u32(-1i) + u32(true) + u32(2.9);", "fine"},
      {"_ = array<f32, 2>(1);", "12:5: `array<f32, 2>` takes 2 elements, got 1"},
      {"_ = array<f32, 2>(1, lane);", "12:22: an element of array<f32, 2> is f32, got u32"},
      {"_ = array(1, lane, 2.5);",
       "12:5: the elements of an array have one scalar type, got abstract-int, u32 and abstract-float"},
      {"_ = array(1, vec2(1));", "12:14: the elements of an array have one type, got (abstract-int, vec2<abstract-int>)"},
      {"_ = array();", "12:5: an array without a type takes elements"},
      {"_ = Pair(1, vec2u(1)).b.y; _ = Pair(); _ = Four(1, 2, 3, 4)[lane];", "fine"},
      {"_ = Pair(1);", "12:5: `Pair` has 2 members, got 1"},
      {"_ = Pair(1, 2);", "12:13: the member b of Pair is vec2<u32>, got abstract-int"},
      {"_ = Pair().c;", "12:12: the struct Pair has no member `c`"},
      {"_ = bitcast<vec2u>(1.0);", "12:5: bitcast from f32 to vec2<u32>: the two need as many bits"},
      {"_ = bitcast<bool>(1.0);", "12:5: bitcast from f32 to bool: the two need as many bits"},
  });
}

TEST(Check, IndicesAndMembers) {
  CheckRows({
      {"_ = tile[64];", "12:10: the index 64 is outside of array<f32, 64>"},
      {"_ = tile[-1];", "12:10: the index -1 is outside of array<f32, 64>"},
      {"_ = vec3f(1)[3];", "12:14: the index 3 is outside of vec3<f32>"},
      {"_ = tile[1.5];", "12:10: an index is an i32 or a u32, got f32"},
      {"_ = lane[0];", "12:9: `[]` takes an array or a vector, got u32"},
      {"_ = group.w;", "12:11: a vec3<u32> has no components `w`"},
      {"_ = group.xr;", "12:11: a vec3<u32> has no components `xr`"},
      {"_ = group.xyzxy;", "12:11: a vec3<u32> has no components `xyzxy`"},
      {"_ = group.rgb + group.zzz;", "fine"},
      {"_ = lane.x;", "12:10: a u32 has no member `x`"},
      {"_ = x.depth;", "12:7: the tensor x has no axis `depth`; it has [row, column]"},
  });
}

TEST(Check, Calls) {
  CheckRows({
      {"_ = twice(1, 2);", "12:5: `twice` takes 1 arguments, got 2"},
      {"_ = twice(lane);", "12:11: argument 1 of twice is f32, got u32"},
      {"_ = max(1.0);", "12:5: `max` takes 2 arguments, got 1"},
      {"_ = max(lane, 1.0);", "12:5: `max` takes 2 numbers of one type, got (u32, abstract-float)"},
      {"_ = max(vec2f(1), 1.0);", "12:5: `max` takes 2 numbers of one type, got (vec2<f32>, abstract-float)"},
      {"_ = exp(lane);", "12:5: `exp` takes floats, got (u32)"},
      {"_ = abs(true);", "12:5: `abs` takes numbers, got (bool)"},
      {"_ = countOneBits(1.5);", "12:5: `countOneBits` takes integers, got (abstract-float)"},
      {"_ = dot(1.0, 2.0);", "12:5: `dot` takes vectors of numbers, got (abstract-float, abstract-float)"},
      {"_ = dot(vec2f(1), vec3f(1));", "12:5: `dot` takes vectors of numbers, got (vec2<f32>, vec3<f32>)"},
      {"_ = cross(vec2f(1), vec2f(1));", "12:5: `cross` takes vectors of floats, got (vec2<f32>, vec2<f32>)"},
      {"_ = select(1, 2.0, lane);",
       "12:5: `select` takes two values of one type and a bool (or as many bools), got (abstract-float, abstract-float, u32)"},
      {"_ = all(lane);", "12:5: `all` takes a bool or a vector of bool, got (u32)"},
      {"_ = unpack2x16float(1.5);", "12:21: argument 1 of unpack2x16float is u32, got abstract-float"},
      {"_ = pack4xI8(vec4u(1));", "12:14: argument 1 of pack4xI8 is vec4<i32>, got vec4<u32>"},
      {"_ = atomicAdd(lane, 1);", "12:15: argument 1 of atomicAdd is a pointer to an atomic (`&counter`), got u32"},
      {"_ = atomicAdd(&tile, 1);",
       "12:15: argument 1 of atomicAdd is a pointer to an atomic (`&counter`), got ptr<workgroup, array<f32, 64>>"},
      {"_ = atomicAdd(&counter, 1i);", "12:25: argument 2 of atomicAdd is u32, got i32"},
      {"_ = workgroupUniformLoad(&arrived);",
       "12:26: argument 1 of workgroupUniformLoad is a pointer into workgroup memory, got ptr<storage, array<atomic<u32>, 4>>"},
      {"_ = subgroupShuffle(1.0, 1i);", "12:26: the lane of subgroupShuffle is u32, got i32"},
      {"_ = subgroupBroadcast(1.0, lane);",
       "12:28: the lane of subgroupBroadcast is constant; use subgroupShuffle for one that varies"},
      {"_ = sqrt(-1.0);", "12:5: sqrt of a negative value"},
      {"_ = clamp(1, 3, 2);", "12:5: clamp with a lower limit above the upper one"},
      {"_ = atomicCompareExchangeWeak(&counter, 1, 2);",
       "12:5: there is no `atomicCompareExchangeWeak`: compare-and-exchange is not supported, because not every target has it"},
      {"_ = mix(vec2f(1), vec2f(2), 0.5) + mix(vec2f(1), vec2f(2), vec2f(1));", "fine"},
      {"_ = mix(1, 2, lane);", "12:5: `mix` takes floats of one type, got (abstract-float, abstract-float, u32)"},
      {"_ = extractBits(lane, 1, 2) + insertBits(lane, 3, 1, 2);", "fine"},
      {"_ = ldexp(1.0, 3) + fma(1.0, 2.0, x.load(0, 0)) + distance(vec2f(1), vec2f(2));", "fine"},
  });
  EXPECT_EQ(
      Check(StrCat(kKernel, "_ = subgroupAdd(1.0);\n}"), Placed(), false, false),
      "k.kernel:12:5: `subgroupAdd` needs subgroups, which the target does not have; keep it under `if subgroup_size > 0u`");
  EXPECT_EQ(Check(StrCat(kKernel, "if subgroup_size > 0u { _ = subgroupAdd(1.0); }\n}"), Placed(), false, false), "fine");
}

// Every builtin takes some arguments; none is in the table without a rule that works.
TEST(Check, EveryBuiltinTakesSomething) {
  for (const BuiltinInfo& info : AllBuiltins()) {
    if (info.is_matrix()) continue;  // need types of their own: see SubgroupMatrices
    std::string first = info.rule == BuiltinRule::kFixed
                            ? (info.arity == 0 ? "" : StrCat(PlainType(info.arguments).ToString(), "()"))
                        : info.is_atomic()                       ? "&counter"
                        : info.rule == BuiltinRule::kUniformLoad ? "&tile[1]"
                        : info.rule == BuiltinRule::kVote        ? "(vec3u(lane) < vec3u(1, 2, 3))"
                        : (info.scalars & BuiltinInfo::kF)       ? "vec3f(f32(lane) * 0.5)"
                                                                 : "vec3u(lane)";
    std::string call = StrCat(info.name, "(", first);
    for (int i = 1; i < info.arity; ++i) {
      bool is_lane = info.rule == BuiltinRule::kLane || info.rule == BuiltinRule::kConstantLane || info.is_atomic();
      bool is_bits = (info.rule == BuiltinRule::kExtractBits && i >= 1) || (info.rule == BuiltinRule::kInsertBits && i >= 2);
      bool is_condition = info.rule == BuiltinRule::kSelect && i == 2;
      call += is_lane || is_bits                 ? ", 1u"
              : is_condition                     ? ", lane < 3u"
              : info.rule == BuiltinRule::kLdexp ? ", vec3i(2)"
                                                 : StrCat(", ", first);
    }
    call += ")";
    bool has_value =
        info.id != Builtin::kWorkgroupBarrier && info.id != Builtin::kStorageBarrier && info.id != Builtin::kAtomicStore;
    EXPECT_EQ(CheckBody(StrCat(has_value ? "let v = " : "", call, ";")), "fine") << call;
    EXPECT_NE(CheckBody(StrCat("let v = ", info.name, "(1, 2, 3, 4, 5);")), "fine") << info.name;
  }
}

TEST(Check, SubgroupMatrices) {
  constexpr std::string_view kHead = R"(tensor y[n] : write;
var<workgroup> halves : array<f16, 512>;
var<workgroup> sums : array<f32, 256>;
BAD
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lane : u32) {
)";
  auto check = [&](std::string_view body, std::string_view global = "", bool has_matrices = true) {
    Target target;
    target.f16 = target.subgroups = true;
    target.subgroup_matrix = has_matrices;
    target.subgroup_min = target.subgroup_max = 32;
    std::string text(kHead);
    text.replace(text.find("BAD"), 3, global);
    auto module = Parse(StrCat(text, body, "\n}\n"), "k");
    if (!module.ok()) return module.error().message;
    Specialization specialization;
    specialization.tensors["y"] = Placed().tensors.at("z");
    auto kernel = Bind(*module, specialization, target);
    return kernel.ok() ? std::string("fine") : kernel.error().message;
  };
  EXPECT_EQ(check("let a = subgroupMatrixLoadLeft(&halves, 0u, 16u);\n"
                  "let b = subgroupMatrixLoadRightTransposed(&halves, 256, 16);\n"
                  "var c : subgroup_matrix_sum;\n"
                  "c = subgroupMatrixMultiplyAdd(a, b, c);\n"
                  "subgroupMatrixStore(&sums, 0u, 16u, c);"),
            "fine");
  EXPECT_EQ(check("let a = subgroupMatrixLoadLeft(&sums, 0u, 16u);"),
            "k.kernel:6:32: argument 1 of subgroupMatrixLoadLeft is a pointer to an array of f16 in workgroup memory, got "
            "ptr<workgroup, array<f32, 256>>");
  EXPECT_EQ(check("let a = subgroupMatrixLoadLeft(&halves[0], 0u, 16u);"),
            "k.kernel:6:32: argument 1 of subgroupMatrixLoadLeft is a pointer to an array of f16 in workgroup memory, got "
            "ptr<workgroup, f16>");
  EXPECT_EQ(check("let a = subgroupMatrixLoadLeft(&halves, -1i, 16u);"),
            "k.kernel:6:41: the offset of subgroupMatrixLoadLeft is u32, got i32");
  EXPECT_EQ(check("let a = subgroupMatrixLoadLeft(&halves, 0u, 16u);\nvar c : subgroup_matrix_sum;\n"
                  "c = subgroupMatrixMultiplyAdd(a, a, c);"),
            "k.kernel:8:5: `subgroupMatrixMultiplyAdd` takes a subgroup_matrix_left, a subgroup_matrix_right and a "
            "subgroup_matrix_sum, got (subgroup_matrix_left, subgroup_matrix_left, subgroup_matrix_sum)");
  EXPECT_EQ(check("if lane < 3u { let a = subgroupMatrixLoadLeft(&halves, 0u, 16u); }").substr(0, 70),
            "k.kernel:6:24: `subgroupMatrixLoadLeft` must be reached by all invocat");
  EXPECT_EQ(check("m[0] = 1.0;", "var<workgroup> m : array<subgroup_matrix_sum, 2>;"),
            "k.kernel:4:16: var<workgroup> m cannot be a array<subgroup_matrix_sum, 2>");
  EXPECT_EQ(
      check("var c : subgroup_matrix_sum;", "", false),
      "k.kernel:6:5: the type subgroup_matrix_sum needs products of matrices by subgroups, which the target does not have");
}

TEST(Check, Tensors) {
  CheckRows({
      {"_ = x.load4(0, 0, 0);", "12:7: load4 takes 2 coordinates of [row, column], got 3"},
      {"_ = x.load(0);", "12:7: load takes 2 coordinates of [row, column], got 1"},
      {"_ = z.load();", "12:7: load takes 1 coordinate of [row], got 0"},
      {"y.store(1.0, 0);", "12:3: store takes a value and 2 coordinates of [row, column], got 1"},
      {"y.store();", "12:3: store takes a value and 2 coordinates of [row, column], got 0"},
      {"_ = y.load(0, 0);", "12:7: the tensor y is declared as write, so it has no load"},
      {"x.store(1.0, 0, 0);", "12:3: the tensor x is declared as read, so it has no store"},
      {"_ = x.fetch(0, 0);",
       "12:7: tensors have no `fetch`; there are load, load4, load_or_zero, load4_or_zero, store, store4 and is_inside"},
      {"_ = lane.load(0);", "12:10: `lane` is no tensor, so it has no `load`"},
      {"_ = x.load(0, i32(lane));",
       "12:15: the coordinate column of x is u32, got i32; signed coordinates are for load_or_zero"},
      {"_ = x.load4(i32(lane), 0);",
       "12:13: the coordinate row of x is u32, got i32; signed coordinates are for load4_or_zero"},
      {"_ = x.load(0, 1.5);", "12:15: the coordinate column is u32, got abstract-float"},
      {"_ = x.load4(0, 1.5);", "12:16: the slice of column is u32, got abstract-float"},
      {"_ = x.load(0, -1);", "12:15: the value -1 is out of the range of u32"},
      {"_ = x.load_or_zero(-1, lane) + x.load_or_zero(i32(lane), 2);", "fine"},
      {"_ = x.load_or_zero(1.5, 0);", "12:20: the coordinate row of x is i32 or u32, got abstract-float"},
      {"_ = x.is_inside(-1, lane) && z.is_inside(3);", "fine"},
      {"y.store(lane, 0, 0);", "12:9: the value of store for y is f32, got u32"},
      {"y.store4(1.0, 0, 0);", "12:10: the value of store4 for y is vec4<f32>, got abstract-float"},
      {"z.store(z.load(1) + 1, 1); z.store4(z.load4(0) * 2, 0);", "fine"},
      {"let v = y.store(1.0, 0, 0);", "12:11: `store` gives no value"},
  });
  Specialization wrong_rank = Placed();
  wrong_rank.tensors["x"].shape = {2, 5, 1};
  EXPECT_EQ(Check(StrCat(kKernel, "}"), wrong_rank),
            "k.kernel:1:8: the tensor x has the axes [row, column] but is placed with shape [2, 5, 1]");
  Specialization unknown = Placed();
  unknown.tensors["w"] = unknown.tensors["x"];
  EXPECT_EQ(Check(StrCat(kKernel, "}"), unknown), "k.kernel:1:1: the kernel has no tensor `w` to place; it has [x, y, z]");
  EXPECT_EQ(Check("tensor s[] : read; @compute @workgroup_size(1) fn main() { _ = s.load(); _ = s.load4(); }",
                  [] {
                    Specialization s;
                    s.tensors["s"] = {};
                    return s;
                  }()),
            "k.kernel:1:80: load4 needs an axis, the tensor s has none");
}

TEST(Check, Functions) {
  auto with = [](std::string_view functions) { return CheckBody("var v = 1.0; f(&v);", functions); };
  EXPECT_EQ(with("fn f(p : ptr<function, f32>) { g(p); } fn g(p : ptr<function, f32>) { f(p); }"),
            "k.kernel:14:71: `f` calls itself, here or through other functions; there is no recursion");
  EXPECT_EQ(with("fn f(p : ptr<function, f32>) -> f32 { if *p > 1 { return 1.0; } }"),
            "k.kernel:14:4: `f` can end without returning its f32");
  EXPECT_EQ(with("fn f(p : ptr<function, f32>) -> f32 { return; }"), "k.kernel:14:39: `return` without the f32 to return");
  EXPECT_EQ(with("fn f(p : ptr<function, f32>) { return 1.0; }"), "k.kernel:14:39: `f` returns nothing");
  EXPECT_EQ(with("fn f(p : ptr<function, f32>) -> u32 { return *p; }"), "k.kernel:14:47: the result is u32, got f32");
  EXPECT_EQ(with("fn f(p : ptr<function, u32>) { }"),
            "k.kernel:12:16: argument 1 of f is ptr<function, u32>, got ptr<function, f32>");
  EXPECT_EQ(with("fn f(p : ptr<workgroup, f32>) { }"),
            "k.kernel:12:16: argument 1 of f is ptr<workgroup, f32>, got ptr<function, f32>");
  EXPECT_EQ(with("fn f(p : f32) { }"), "k.kernel:12:16: this is a pointer; write `*` before it to get what it points to");
  EXPECT_EQ(with("fn f(p : ptr<function, f32>) -> f32 { loop { if *p > 1 { return 1.0; } } }"), "fine");
  EXPECT_EQ(with("fn f(p : ptr<function, f32>) -> f32 { switch u32(*p) { case 1: { return 1; } default: { return 2; } } }"),
            "fine");
  EXPECT_EQ(with("fn f(a : atomic<u32>) { }"), "k.kernel:14:4: the parameter a of f cannot be a atomic<u32>");
  EXPECT_EQ(CheckBody("var v = vec2f(1); g(&v, &v);",
                      "fn g(a : ptr<function, vec2f>, b : ptr<function, vec2f>) { (*a).x = (*b).y; }"),
            "k.kernel:12:25: two pointers into `v` in one call of g");
  EXPECT_EQ(CheckModule("@compute @workgroup_size(1) fn main(a : u32) { }"),
            "k.kernel:1:32: the parameter a of the entry point is no @builtin");
  EXPECT_EQ(CheckModule("@compute @workgroup_size(1) fn main(@builtin(workgroup_id) a : u32) { }"),
            "k.kernel:1:32: the builtin workgroup_id is a vec3<u32>, not u32");
  EXPECT_EQ(CheckModule("@compute @workgroup_size(1) fn main() -> u32 { return 1; }"),
            "k.kernel:1:32: main, the entry point, returns nothing; not u32");
  EXPECT_EQ(CheckModule("fn f() { }"), "k.kernel:1:1: the kernel has no entry point (@compute)");
  EXPECT_EQ(CheckModule("@compute @workgroup_size(1) fn a() { } @compute @workgroup_size(1) fn b() { }"),
            "k.kernel:1:71: a kernel has one entry point; a is another one");
  EXPECT_EQ(CheckModule("param n : u32; @compute @workgroup_size(n) fn main() { }"),
            "k.kernel:1:41: the param n is not known when the kernel is specialized");
  EXPECT_EQ(CheckModule("@compute @workgroup_size(1.5) fn main() { }"),
            "k.kernel:1:26: @workgroup_size takes constant integers");
}

TEST(Check, Declarations) {
  auto with = [](std::string_view declarations, std::string_view use = "") {
    return CheckModule(StrCat(declarations, "\n@compute @workgroup_size(1) fn main() { ", use, " }"));
  };
  EXPECT_EQ(with("const step = 3; const min : u32 = 1;", "_ = step + min;"), "fine");
  EXPECT_EQ(with("const step : vec2u;"), "k.kernel:1:7: `step` is a builtin function; only a scalar const can take its name");
  EXPECT_EQ(with("param step : u32;"), "k.kernel:1:7: `step` is a builtin function; no declaration can take its name");
  EXPECT_EQ(with("const a = b; const b = a;"), "k.kernel:1:24: the const a depends on itself");
  EXPECT_EQ(with("alias A = B; alias B = A;", "var v : A;"), "k.kernel:1:20: the alias A refers to itself");
  EXPECT_EQ(with("struct S { a : array<S, 2> }", "var v : S;"), "k.kernel:1:8: the struct S contains itself");
  EXPECT_EQ(with("param p : bool;"), "k.kernel:1:7: a param is a number or a vector of i32, u32 or f32, not bool");
  EXPECT_EQ(with("param p : array<u32, 2>;"),
            "k.kernel:1:7: a param is a number or a vector of i32, u32 or f32, not array<u32, 2>");
  EXPECT_EQ(with("scratch s : array<bool, 2>;"), "k.kernel:1:9: scratch memory cannot hold array<bool, 2>");
  EXPECT_EQ(with("var<private> p : atomic<u32>;", "_ = &p;"), "k.kernel:1:14: var<private> p cannot be a atomic<u32>");
  EXPECT_EQ(with("var<private> p : u32 = 1.5;", "p = 2;"), "k.kernel:1:24: var p is u32, got abstract-float");
  EXPECT_EQ(with("var<private> p : u32 = 1 + 2;", "p++;"), "fine");
  EXPECT_EQ(with("const c : ptr<function, u32>;"), "k.kernel:1:7: a const cannot be a ptr<function, u32>");
  EXPECT_EQ(with("fn f() -> u32 { return 1; } const c = f();"), "k.kernel:1:39: a call of f is not constant");
}

TEST(Check, ControlFlow) {
  CheckRows({
      {"break;", "12:1: `break` outside of a loop or switch"},
      {"continue;", "12:1: `continue` outside of a loop"},
      {"switch lane { default: { continue; } }", "12:26: `continue` outside of a loop"},
      {"loop { }", "12:1: this loop has no way out"},
      {"for (;;) { _ = lane; }", "12:1: this loop has no way out"},
      {"while true { }", "12:1: this loop has no way out"},
      {"while true { if lane > 1 { break; } }", "fine"},
      {"loop { continuing { break; } }", "12:21: `break` cannot leave a loop from its `continuing`; use `break if` at its end"},
      {"loop { continuing { continue; } }", "12:21: `continue` inside of a `continuing`"},
      {"loop { continuing { return; } }", "12:21: `return` inside of a `continuing`"},
      {"loop { continuing { for (var i = 0; i < 3; i++) { if i == 1 { break; } } break if true; } }", "fine"},
      {"loop { let a = lane; continuing { break if a > 3; } }", "fine"},
      {"switch lane { case 1: { } }", "12:1: this switch has no default"},
      {"switch lane { default: { } default: { } }", "12:1: this switch has two defaults"},
      {"switch lane { case 1, 1: { } default: { } }", "12:23: the case 1 exists twice"},
      {"switch lane { case 1i: { } default: { } }",
       "12:1: the value and the cases of a switch have one scalar type, got u32 and i32"},
      {"switch lane { case lane: { } default: { } }", "12:20: a case is a constant integer"},
      {"switch 1.5 { default: { } }", "12:8: `switch` takes an i32 or a u32, got abstract-float"},
  });
}

TEST(Check, UniformControlFlow) {
  CheckRows({
      {"workgroupBarrier(); if group.x > 1 { workgroupBarrier(); }", "fine"},
      {"if lane > 1 { workgroupBarrier(); }",
       "12:15: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"if lane > 1 { return; } workgroupBarrier();",
       "12:25: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"if group.x > 1 { return; } workgroupBarrier();", "fine"},
      {"if lane > 1 { tile[lane] = 1; } workgroupBarrier();", "fine"},
      {"for (var i = lane; i < 9; i++) { workgroupBarrier(); }",
       "12:34: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"for (var i = lane; i < 9; i++) { tile[i] = 1; } workgroupBarrier();", "fine"},
      {"for (var i = 0u; i < position; i++) { workgroupBarrier(); }", "fine"},
      {"for (var i = 0u; i < 9; i++) { workgroupBarrier(); if lane > i { break; } }",
       "12:32: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"for (var i = 0u; i < 9; i++) { if lane > i { continue; } tile[lane] = 1; } workgroupBarrier();", "fine"},
      {"for (var i = 0u; i < 9; i++) { switch lane { case 1: { break; } default: { tile[lane] = 1; } } workgroupBarrier(); }",
       "fine"},
      {"var a = 1u; if lane > 1 { a = 2; } if a > 1 { workgroupBarrier(); }",
       "12:47: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"var a = lane; a = 2; if a > 1 { workgroupBarrier(); }", "fine"},
      {"if tile[0] > 1 { workgroupBarrier(); }",
       "12:18: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here depends on "
       "`tile`, which is memory that other invocations may write in line 12"},
      {"if workgroupUniformLoad(&tile[3]) > 1 { workgroupBarrier(); }", "fine"},
      {"_ = workgroupUniformLoad(&tile[lane]);",
       "12:5: `workgroupUniformLoad` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"if x.load(0, group.y) > 1 { workgroupBarrier(); }", "fine"},
      {"if z.load(group.y) > 1 { workgroupBarrier(); }",
       "12:26: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the tensor z, which the kernel writes in line 12"},
      {"if lane > 1 { _ = subgroupAdd(1.0); }",
       "12:19: `subgroupAdd` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"if lane > 1 { _ = unit_sum(1.0); }",
       "12:19: `unit_sum` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
      {"_ = unit_sum(1.0); if lane > 1 && unit_sum(2.0) > 1 { }",
       "12:35: `unit_sum` must be reached by all invocations of the workgroup together, but the way here depends on "
       "the builtin local_invocation_index in line 11"},
  });
  std::string_view functions = R"(fn wait(n : u32) { if n > 1 { workgroupBarrier(); } }
fn put(p : ptr<function, u32>, to : u32) { *p = to; }
fn early(n : u32) -> u32 { if n > 1 { return 1; } return 2; })";
  EXPECT_EQ(CheckBody("wait(group.x); wait(3);", functions), "fine");
  EXPECT_EQ(CheckBody("wait(group.x); wait(lane);", functions),
            "k.kernel:14:31: `workgroupBarrier` must be reached by all invocations of the workgroup together, but the way here "
            "depends on the builtin local_invocation_index in line 11");
  EXPECT_EQ(CheckBody("var a = 1u; put(&a, group.x); wait(a);", functions), "fine");
  EXPECT_NE(CheckBody("var a = 1u; put(&a, lane); wait(a);", functions), "fine");
  EXPECT_EQ(CheckBody("wait(early(group.x));", functions), "fine");
  EXPECT_NE(CheckBody("wait(early(lane));", functions), "fine");
  EXPECT_EQ(CheckBody("_ = early(lane); workgroupBarrier();", functions), "fine");
}

}  // namespace
}  // namespace leeway::shader
