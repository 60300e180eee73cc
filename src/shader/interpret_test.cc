#include "shader/interpret.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

// A tensor of a test kernel: its values and where they lie.
struct Placed {
  HostTensor host;
  VirtualTensor tensor;
};

Placed Place(const HostTensor& host, Layout layout = Layout::kLinear, Storage storage = Storage::kBuffer,
             std::optional<DType> dtype = std::nullopt) {
  Placed placed;
  placed.host = host;
  placed.tensor.shape = host.shape();
  auto placement = PlaceTensor(host.shape(), dtype.value_or(host.dtype()), layout, storage, StorageLimits{});
  EXPECT_TRUE(placement.ok()) << placement.error().message;
  placed.tensor.placement = *placement;
  return placed;
}
Placed F32(Shape shape, std::vector<float> values) { return Place(HostTensor::FromF32(shape, values)); }
Placed F32(Shape shape) { return Place(HostTensor(DType::kF32, shape)); }
Placed I32(Shape shape, std::vector<int32_t> values) { return Place(HostTensor::FromI32(shape, values)); }
Placed I32(Shape shape) { return Place(HostTensor(DType::kI32, shape)); }

struct TestRun {
  std::string text;
  std::map<std::string, Placed> tensors;
  std::map<std::string, ConstValue> consts;
  uint32_t workgroups[3] = {1, 1, 1};
  InterpretOptions options;
  std::map<std::string, std::vector<std::byte>> scratch;
  std::vector<std::byte> params;
  InterpretResult result;

  // Values of the operands of value maps are given as "y#0". False where the kernel does not compile.
  bool Run() {
    auto module = Parse(text, "test");
    if (!module.ok()) return ADD_FAILURE() << module.error().message, false;
    Specialization specialization;
    specialization.consts = consts;
    for (auto& [name, placed] : tensors) {
      if (name.find('#') == std::string::npos) specialization.tensors[name] = placed.tensor;
    }
    Target target;
    target.f16 = true;
    target.subgroups = true;
    target.subgroup_min = target.subgroup_max = options.subgroup_size;
    auto bound = Bind(*module, specialization, target);
    if (!bound.ok()) return ADD_FAILURE() << bound.error().message, false;
    InterpretMemory memory;
    std::map<std::string, std::vector<std::byte>> storage;
    for (auto& [name, placed] : tensors) {
      storage[name] = PackForStorage(placed.host, placed.tensor.placement);
      memory.tensors[name] = storage[name];
    }
    for (auto& [name, bytes] : scratch) memory.scratch[name] = bytes;
    memory.params = params;
    auto run = Interpret(*bound, workgroups, memory, options);
    if (!run.ok()) return ADD_FAILURE() << run.error().message, false;
    result = *run;
    for (auto& [name, placed] : tensors) {
      placed.host = UnpackFromStorage(storage[name], placed.tensor.placement, placed.host.dtype());
    }
    return true;
  }

  void RunWithoutFaults() {
    if (!Run()) return;
    for (const Fault& fault : result.faults) ADD_FAILURE() << fault.message;
  }
  std::string OnlyFault() {
    if (!Run()) return "";
    EXPECT_EQ(result.faults.size(), 1u);
    for (size_t i = 1; i < result.faults.size(); ++i) ADD_FAILURE() << result.faults[i].message;
    return result.faults.empty() ? "" : result.faults[0].message;
  }
  // The first fault, where one mistake shows in several places.
  std::string FirstFault() {
    if (!Run()) return "";
    EXPECT_FALSE(result.faults.empty());
    return result.faults.empty() ? "" : result.faults[0].message;
  }
  std::vector<float> Floats(const std::string& name) { return tensors[name].host.ToF32(); }
};

// ---- Faults -----------------------------------------------------------------------------------------------------------

constexpr const char* kReverse = R"(
tensor x[n] : read;
tensor y[n] : write;
var<workgroup> tile : array<f32, 8>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lane : u32) {
  tile[lane] = x.load(lane);
  workgroupBarrier();
  y.store(tile[7u - lane], lane);
}
)";

TestRun ReverseRun(std::string text) {
  TestRun run;
  run.text = std::move(text);
  run.tensors["x"] = F32({8}, {0, 1, 2, 3, 4, 5, 6, 7});
  run.tensors["y"] = F32({8});
  return run;
}

std::string Without(std::string text, const std::string& part, const std::string& with = "") {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), with);
}

TEST(Interpret, RunsInvocationsOfAWorkgroupInTurns) {
  TestRun run = ReverseRun(kReverse);
  run.RunWithoutFaults();
  EXPECT_EQ(run.Floats("y"), (std::vector<float>{7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(run.result.counts.barriers, 1u);
  EXPECT_EQ(run.result.counts.loads, 8u);
  EXPECT_EQ(run.result.counts.stores, 8u);
}

TEST(InterpretFault, LeftOutBarrierIsAnUnwrittenReadOrRace) {
  const std::string fault = ReverseRun(Without(kReverse, "workgroupBarrier();")).FirstFault();
  // The first invocation runs to its end: it reads what nobody has written yet.
  EXPECT_EQ(fault,
            "test.kernel:9:15: workgroup variable tile, element 7 is read before it is written (workgroup 0,0,0, invocation "
            "0,0,0)");
}

TEST(InterpretFault, RaceInWorkgroupMemory) {
  TestRun run = ReverseRun(Without(kReverse, "  y.store(tile[7u - lane], lane);", R"(
  let v = tile[7u - lane];
  tile[lane] = v + 1.0;
  y.store(v, lane);)"));
  ASSERT_TRUE(run.Run());
  ASSERT_EQ(run.result.faults.size(), 2u);
  EXPECT_EQ(run.result.faults[0].message,
            "test.kernel:10:15: race on workgroup variable tile, element 3: read here, and written by invocation 3,0,0 without "
            "a barrier between (workgroup 0,0,0, invocation 4,0,0)");
  EXPECT_EQ(run.result.faults[1].message,
            "test.kernel:11:18: race on workgroup variable tile, element 4: written here, and read by invocation 3,0,0 without "
            "a barrier between (workgroup 0,0,0, invocation 4,0,0)");
}

TEST(InterpretFault, ReadAfterWriteByAnotherInvocation) {
  TestRun run = ReverseRun(Without(kReverse, "  y.store(tile[7u - lane], lane);", R"(
  tile[lane] = 1.0;
  y.store(tile[(lane + 7u) % 8u], lane);)"));
  const std::string fault = run.FirstFault();
  EXPECT_NE(
      fault.find("read here, and written by invocation 0,0,0 without a barrier between (workgroup 0,0,0, invocation 1,0,0)"),
      std::string::npos)
      << fault;
}

TEST(InterpretFault, WorkgroupMemoryIsUnwrittenInEveryWorkgroup) {
  TestRun run;
  run.text = R"(
tensor y[n] : write;
var<workgroup> total : f32;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  if group.x == 0u { total = 3.0; }
  y.store(total, group.x);
}
)";
  run.tensors["y"] = F32({2});
  run.workgroups[0] = 2;
  const std::string fault = run.OnlyFault();
  EXPECT_EQ(fault,
            "test.kernel:7:11: workgroup variable total is read before it is written (workgroup 1,0,0, invocation 0,0,0)");
}

TEST(InterpretFault, TwoInvocationsStoreTheSameElement) {
  TestRun run;
  run.text = R"(
tensor y[n] : write;
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) lane : u32) {
  y.store(f32(lane), lane / 2u);
}
)";
  run.tensors["y"] = F32({2});
  const std::string fault = run.OnlyFault();
  EXPECT_EQ(fault,
            "test.kernel:5:5: race on y, element 0 of its storage: written here, and by invocation 0,0,0 without a barrier "
            "between (workgroup 0,0,0, invocation 1,0,0)");
}

TEST(InterpretFault, RaceAcrossWorkgroupsEvenWithABarrier) {
  TestRun run;
  run.text = R"(
tensor y[n] : read_write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  storageBarrier();
  let old = y.load(0u);
  y.store(old + 1.0, group.x);
}
)";
  run.tensors["y"] = F32({2});
  run.workgroups[0] = 2;
  const std::string fault = run.OnlyFault();
  EXPECT_NE(fault.find("test.kernel:6:"), std::string::npos) << fault;
  EXPECT_NE(fault.find("race on y, element 0 of its storage: read here, and written by another workgroup"), std::string::npos);
}

TEST(InterpretFault, ReadByAnotherWorkgroupThenWritten) {
  TestRun run;
  run.text = R"(
tensor y[n] : read_write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let old = y.load(1u);
  y.store(old + 1.0, group.x);
}
)";
  run.tensors["y"] = F32({2});
  run.workgroups[0] = 2;
  EXPECT_NE(
      run.OnlyFault().find("test.kernel:6:5: race on y, element 1 of its storage: written here, and read by another workgroup"),
      std::string::npos);
}

TEST(InterpretFault, StorageBarrierOrdersTensorsAndWorkgroupBarrierDoesNot) {
  TestRun run;
  run.text = R"(
tensor y[n] : read_write;
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) lane : u32) {
  y.store(f32(lane), lane);
  storageBarrier();
  let v = y.load(3u - lane);
  storageBarrier();
  y.store(v, lane);
}
)";
  run.tensors["y"] = F32({4});
  run.RunWithoutFaults();
  EXPECT_EQ(run.Floats("y"), (std::vector<float>{3, 2, 1, 0}));
  run.text = Without(run.text, "storageBarrier", "workgroupBarrier");
  EXPECT_NE(run.OnlyFault().find("test.kernel:7:"), std::string::npos);
}

TEST(InterpretFault, IndexOutOfBounds) {
  const std::string fault = ReverseRun(Without(kReverse, "7u - lane", "8u - lane")).OnlyFault();
  EXPECT_EQ(fault, "test.kernel:9:15: index 8 is outside tile, which has 8 elements (workgroup 0,0,0, invocation 0,0,0)");
}

TEST(InterpretFault, NegativeIndexOfALocalArray) {
  TestRun run;
  run.text = R"(
tensor y[n] : write;
@compute @workgroup_size(1)
fn main() {
  var a : array<f32, 4>;
  var i = 1i;
  i -= 3;
  a[i] = 1.0;
  y.store(a[0], 0u);
}
)";
  run.tensors["y"] = F32({1});
  EXPECT_EQ(run.OnlyFault(),
            "test.kernel:8:4: index -2 is outside a, which has 4 elements (workgroup 0,0,0, invocation 0,0,0)");
}

TEST(InterpretFault, CoordinateOutsideATensor) {
  TestRun run;
  run.text = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) lane : u32) {
  y.store(x.load(lane, 1u), 0u, lane % 3u);
}
)";
  run.tensors["x"] = F32({3, 2});
  run.tensors["y"] = F32({4, 3});
  const std::string fault = run.OnlyFault();
  EXPECT_EQ(fault,
            "test.kernel:6:13: x.load: coordinate 3 is outside axis row, which has 3 elements (workgroup 0,0,0, invocation "
            "3,0,0)");
}

TEST(InterpretFault, SliceOutsideATensor) {
  TestRun run;
  run.text = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
@compute @workgroup_size(1)
fn main() {
  let v = x.load4(0u, 1u);
  y.store4(v, 0u, 2u);
}
)";
  run.tensors["x"] = F32({1, 5}, {1, 2, 3, 4, 5});
  run.tensors["y"] = F32({1, 8});
  EXPECT_EQ(
      run.OnlyFault(),
      "test.kernel:7:5: y.store4: slice 2 is outside axis column, which has 2 slices (workgroup 0,0,0, invocation 0,0,0)");
}

TEST(InterpretFault, BarrierInDivergentFlowAtRunTime) {
  // The checker refuses what it can see; a barrier after an early return of some invocations is not always that.
  TestRun run = ReverseRun(kReverse);
  auto module = Parse(kReverse, "test");
  ASSERT_TRUE(module.ok()) << module.error().message;
  Specialization specialization;
  for (auto& [name, placed] : run.tensors) specialization.tensors[name] = placed.tensor;
  auto bound = Bind(*module, specialization, Target{});
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  // Put the barrier under a condition behind the checker's back.
  for (Function& f : bound->module.functions) {
    for (StmtPtr& s : f.body) {
      if (s->kind != StmtKind::kCall || s->value->name != "workgroupBarrier") continue;
      auto condition = std::make_unique<Expr>();
      condition->kind = ExprKind::kBinary;
      condition->op = "<";
      condition->type = Type::Of(Scalar::kBool);
      for (int k = 0; k < 2; ++k) {
        auto side = std::make_unique<Expr>();
        side->type = Type::Of(Scalar::kU32);
        side->kind = k == 0 ? ExprKind::kName : ExprKind::kLiteral;
        side->name = "lane";
        side->literal.i = 5;
        condition->args.push_back(std::move(side));
      }
      auto branch = std::make_unique<Stmt>();
      branch->kind = StmtKind::kIf;
      branch->at = s->at;
      branch->value = std::move(condition);
      branch->body.push_back(std::move(s));
      s = std::move(branch);
    }
  }
  InterpretMemory memory;
  std::map<std::string, std::vector<std::byte>> storage;
  for (auto& [name, placed] : run.tensors) {
    storage[name] = PackForStorage(placed.host, placed.tensor.placement);
    memory.tensors[name] = storage[name];
  }
  const uint32_t one[3] = {1, 1, 1};
  auto result = Interpret(*bound, one, memory, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  std::string all;
  for (const Fault& fault : result->faults) all += fault.message + "\n";
  EXPECT_NE(all.find("test.kernel:8:3: barrier is not reached by all: invocation"), std::string::npos) << all;
}

TEST(InterpretFault, DivisionByZero) {
  for (const char* expression : {"7 / i", "7 % i", "i32(7u / u32(i))", "i32(7u % u32(i))"}) {
    TestRun run;
    run.text = StrCat(R"(
tensor x[n] : read as i32;
tensor y[n] : write as i32;
@compute @workgroup_size(2)
fn main(@builtin(local_invocation_index) lane : u32) {
  let i = x.load(lane);
  y.store()",
                      expression, R"(, lane);
}
)");
    run.tensors["x"] = I32({2}, {2, 0});
    run.tensors["y"] = I32({2});
    const std::string fault = run.OnlyFault();
    EXPECT_NE(fault.find("integer division by zero (workgroup 0,0,0, invocation 1,0,0)"), std::string::npos) << fault;
    EXPECT_NE(fault.find("test.kernel:7:"), std::string::npos) << fault;
  }
}

TEST(InterpretFault, ShiftTooFar) {
  TestRun run;
  run.text = R"(
tensor x[n] : read as u32;
tensor y[n] : write as u32;
@compute @workgroup_size(1)
fn main() { y.store(1u << x.load(0u), 0u); }
)";
  run.tensors["x"] = Place(HostTensor(DType::kU32, {1}));
  run.tensors["x"].host.Set(0, 32);
  run.tensors["y"] = Place(HostTensor(DType::kU32, {1}));
  EXPECT_EQ(run.OnlyFault(), "test.kernel:5:24: shift by 32, more than 31 bits (workgroup 0,0,0, invocation 0,0,0)");
}

TEST(InterpretFault, EndlessLoop) {
  TestRun run;
  run.text = R"(
tensor x[n] : read;
tensor y[n] : write;
@compute @workgroup_size(1)
fn main() {
  var v = 0.0;
  while v < x.load(0u) { v *= 0.5; }
  y.store(v, 0u);
}
)";
  run.tensors["x"] = F32({1}, {1});
  run.tensors["y"] = F32({1});
  run.options.max_steps_per_invocation = 10000;
  EXPECT_EQ(run.OnlyFault(), "test.kernel:7:3: does not end within 10000 steps (workgroup 0,0,0, invocation 0,0,0)");
}

TEST(InterpretFault, NanMadeFromFiniteValues) {
  TestRun run;
  run.text = R"(
tensor x[n] : read;
tensor y[n] : write;
@compute @workgroup_size(2)
fn main(@builtin(local_invocation_index) lane : u32) {
  y.store(sqrt(x.load(lane)), lane);
}
)";
  run.tensors["x"] = F32({2}, {4, -1});
  run.tensors["y"] = F32({2});
  run.RunWithoutFaults();
  run.options.check_nan = true;
  run.tensors["x"] = F32({2}, {4, -1});
  EXPECT_EQ(run.OnlyFault(), "test.kernel:6:11: NaN made from finite values (workgroup 0,0,0, invocation 1,0,0)");
}

TEST(InterpretFault, StopsAtTheLimitAndReportsAPlaceOnce) {
  TestRun run;
  run.text = R"(
tensor y[n] : write;
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) lane : u32) {
  y.store(1.0, lane + 1u);
}
)";
  run.tensors["y"] = F32({1});
  run.workgroups[0] = 3;
  EXPECT_NE(run.OnlyFault().find("invocation 0,0,0"), std::string::npos);
  run.options.max_faults = 1;
  EXPECT_NE(run.OnlyFault().find("workgroup 0,0,0"), std::string::npos);
}

// ---- Values -----------------------------------------------------------------------------------------------------------

constexpr float kSamples[] = {-3.5f, -1.25f, -0.75f, -0.5f, 0.0f, 0.25f, 0.5f, 0.9f, 1.0f, 1.5f, 2.5f, 7.75f};

struct UnaryRow {
  const char* expression;
  float (*expected)(float);
  float low = -1e30f, high = 1e30f;  // samples outside are left out
};

TEST(InterpretValues, FloatFunctionsOfOneArgument) {
  const UnaryRow rows[] = {
      {"-v", [](float v) { return -v; }},
      {"abs(v)", [](float v) { return std::fabs(v); }},
      {"acos(v)", [](float v) { return std::acos(v); }, -1, 1},
      {"acosh(v)", [](float v) { return std::acosh(v); }, 1},
      {"asin(v)", [](float v) { return std::asin(v); }, -1, 1},
      {"asinh(v)", [](float v) { return std::asinh(v); }},
      {"atan(v)", [](float v) { return std::atan(v); }},
      {"atanh(v)", [](float v) { return std::atanh(v); }, -0.99f, 0.99f},
      {"ceil(v)", [](float v) { return std::ceil(v); }},
      {"cos(v)", [](float v) { return std::cos(v); }},
      {"cosh(v)", [](float v) { return std::cosh(v); }},
      {"degrees(v)", [](float v) { return v * 57.295779513082322865f; }},
      {"exp(v)", [](float v) { return std::exp(v); }},
      {"exp2(v)", [](float v) { return std::exp2(v); }},
      {"floor(v)", [](float v) { return std::floor(v); }},
      {"fract(v)", [](float v) { return v - std::floor(v); }},
      {"inverseSqrt(v)", [](float v) { return 1 / std::sqrt(v); }, 0.1f},
      {"log(v)", [](float v) { return std::log(v); }, 0.1f},
      {"log2(v)", [](float v) { return std::log2(v); }, 0.1f},
      {"quantizeToF16(v)", [](float v) { return F16ToF32(F32ToF16(v)); }},
      {"radians(v)", [](float v) { return v * 0.017453292519943295474f; }},
      {"round(v)", [](float v) { return std::nearbyint(v); }},
      {"saturate(v)", [](float v) { return v < 0   ? 0
                                           : v > 1 ? 1
                                                   : v; }},
      {"sign(v)", [](float v) { return v > 0   ? 1.0f
                                       : v < 0 ? -1.0f
                                               : 0.0f; }},
      {"sin(v)", [](float v) { return std::sin(v); }},
      {"sinh(v)", [](float v) { return std::sinh(v); }},
      {"sqrt(v)", [](float v) { return std::sqrt(v); }, 0},
      {"tan(v)", [](float v) { return std::tan(v); }},
      {"tanh(v)", [](float v) { return std::tanh(v); }},
      {"trunc(v)", [](float v) { return std::trunc(v); }},
      {"f32(i32(v))", [](float v) { return float(int(v)); }},
      {"f32(u32(v))", [](float v) { return float(unsigned(v)); }, 0},
      {"f32(v > 0.3)", [](float v) { return v > 0.3f ? 1.0f : 0.0f; }},
      {"f32(bool(v))", [](float v) { return v != 0 ? 1.0f : 0.0f; }},
      {"select(2.0, v, v < 1.0)", [](float v) { return v < 1 ? v : 2; }},
      {"f32(f16(v) * 3.1h)", [](float v) { return F16ToF32(F32ToF16(F16ToF32(F32ToF16(v)) * F16ToF32(F32ToF16(3.1f)))); }},
      {"bitcast<f32>(bitcast<u32>(v) ^ 0x80000000u)", [](float v) { return -v; }},
      {"length(v)", [](float v) { return std::fabs(v); }},
      {"unpack2x16float(pack2x16float(vec2f(v, 1.0))).x", [](float v) { return F16ToF32(F32ToF16(v)); }},
      {"unpack4x8unorm(pack4x8unorm(vec4f(0.0, v, 1.0, 0.5))).y",
       [](float v) { return std::floor(0.5f + 255 * std::clamp(v, 0.0f, 1.0f)) / 255; }},
      {"unpack4x8snorm(pack4x8snorm(vec4f(0.0, 1.0, v, 0.5))).z",
       [](float v) { return std::floor(0.5f + 127 * std::clamp(v, -1.0f, 1.0f)) / 127; }},
      {"unpack2x16unorm(pack2x16unorm(vec2f(0.3, v))).y",
       [](float v) { return std::floor(0.5f + 65535 * std::clamp(v, 0.0f, 1.0f)) / 65535; }},
      {"unpack2x16snorm(pack2x16snorm(vec2f(v, 0.3))).x",
       [](float v) { return std::floor(0.5f + 32767 * std::clamp(v, -1.0f, 1.0f)) / 32767; }},
  };
  for (const UnaryRow& row : rows) {
    SCOPED_TRACE(row.expression);
    std::vector<float> samples;
    for (float v : kSamples) {
      if (v >= row.low && v <= row.high) samples.push_back(v);
    }
    const int64_t n = int64_t(samples.size());
    TestRun run;
    run.text = StrCat(R"(
tensor x[n] : read;
tensor y[n] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let v = x.load(group.x);
  y.store()",
                      row.expression, ", group.x);\n}\n");
    run.tensors["x"] = F32({n}, samples);
    run.tensors["y"] = F32({n});
    run.workgroups[0] = uint32_t(n);
    run.RunWithoutFaults();
    const std::vector<float> got = run.Floats("y");
    for (size_t i = 0; i < samples.size(); ++i) EXPECT_EQ(got[i], row.expected(samples[i])) << "at " << samples[i];
  }
}

TEST(InterpretValues, FloatFunctionsOfMoreArguments) {
  struct Row {
    const char* expression;
    float (*expected)(float, float, float);
  };
  const Row rows[] = {
      {"a + b", [](float a, float b, float) { return a + b; }},
      {"a - b", [](float a, float b, float) { return a - b; }},
      {"a * b", [](float a, float b, float) { return a * b; }},
      {"a / b", [](float a, float b, float) { return a / b; }},
      {"a % b", [](float a, float b, float) { return std::fmod(a, b); }},
      {"min(a, b)", [](float a, float b, float) { return std::min(a, b); }},
      {"max(a, b)", [](float a, float b, float) { return std::max(a, b); }},
      {"clamp(a, 0.25, 1.25)", [](float a, float, float) { return std::clamp(a, 0.25f, 1.25f); }},
      {"atan2(a, b)", [](float a, float b, float) { return std::atan2(a, b); }},
      {"pow(abs(a) + 0.5, b)", [](float a, float b, float) { return std::pow(std::fabs(a) + 0.5f, b); }},
      {"step(a, b)", [](float a, float b, float) { return a <= b ? 1.0f : 0.0f; }},
      {"fma(a, b, c)", [](float a, float b, float c) { return std::fma(a, b, c); }},
      {"mix(a, b, c)", [](float a, float b, float c) { return a * (1 - c) + b * c; }},
      {"smoothstep(-1.0, 2.0, a)",
       [](float a, float, float) {
         const float t = std::clamp((a + 1.0f) / 3.0f, 0.0f, 1.0f);
         return t * t * (3 - 2 * t);
       }},
      {"ldexp(a, 3)", [](float a, float, float) { return a * 8; }},
      {"select(a, b, a < b)", [](float a, float b, float) { return a < b ? b : a; }},
      {"distance(vec2f(a, b), vec2f(c, 1.0))",
       [](float a, float b, float c) { return std::sqrt((a - c) * (a - c) + (b - 1) * (b - 1)); }},
      {"dot(vec3f(a, b, c), vec3f(c, 2.0, a))", [](float a, float b, float c) { return a * c + b * 2 + c * a; }},
      {"cross(vec3f(a, b, c), vec3f(1.0, 2.0, 3.0)).y", [](float a, float, float c) { return c * 1 - a * 3; }},
      {"normalize(vec2f(a, b + 9.0)).x", [](float a, float b, float) { return a / std::sqrt(a * a + (b + 9) * (b + 9)); }},
      {"reflect(vec2f(a, b), vec2f(0.0, 1.0)).y", [](float a, float b, float) { return b - 1 * (2 * (0 * a + 1 * b)); }},
      {"f32(all(vec2<bool>(a < b, b < c)))", [](float a, float b, float c) { return a < b && b < c ? 1.0f : 0.0f; }},
      {"f32(any(vec2<bool>(a < b, b < c)))", [](float a, float b, float c) { return a < b || b < c ? 1.0f : 0.0f; }},
      {"f32(a < b || (b >= c && a != c))", [](float a, float b, float c) { return a < b || (b >= c && a != c) ? 1.0f : 0.0f; }},
      {"vec4f(a, vec2f(b, c), 1.0).zyxw.x", [](float, float, float c) { return c; }},
      {"(vec3f(a, b, c) * b).z", [](float, float b, float c) { return c * b; }},
      {"(b / vec2f(a + 9.0, c)).x", [](float a, float b, float) { return b / (a + 9); }},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.expression);
    const int64_t n = int64_t(std::size(kSamples));
    std::vector<float> a(std::begin(kSamples), std::end(kSamples)), b = a, c = a;
    std::rotate(b.begin(), b.begin() + 5, b.end());
    std::rotate(c.begin(), c.begin() + 7, c.end());
    for (float& v : b) v += 0.125f;
    TestRun run;
    run.text = StrCat(R"(
tensor x[operand, n] : read;
tensor y[n] : write;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let i = id.x;
  if i >= y.n { return; }
  let a = x.load(0u, i);
  let b = x.load(1u, i);
  let c = x.load(2u, i);
  y.store()",
                      row.expression, ", i);\n}\n");
    std::vector<float> all = a;
    all.insert(all.end(), b.begin(), b.end());
    all.insert(all.end(), c.begin(), c.end());
    run.tensors["x"] = F32({3, n}, all);
    run.tensors["y"] = F32({n});
    run.workgroups[0] = uint32_t(n + 3) / 4;
    run.RunWithoutFaults();
    const std::vector<float> got = run.Floats("y");
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(got[i], row.expected(a[i], b[i], c[i])) << "at " << a[i] << ", " << b[i] << ", " << c[i];
    }
  }
}

TEST(InterpretValues, IntegerFunctions) {
  struct Row {
    const char* expression;  // of a, b : i32, ua, ub : u32
    int32_t (*expected)(int32_t, int32_t);
  };
  const Row rows[] = {
      {"a + b", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); }},
      {"a - b", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) - uint32_t(b)); }},
      {"a * b", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) * uint32_t(b)); }},
      {"a / b", [](int32_t a, int32_t b) { return int32_t(int64_t(a) / b); }},
      {"a % b", [](int32_t a, int32_t b) { return int32_t(int64_t(a) % b); }},
      {"i32(ua / ub)", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) / uint32_t(b)); }},
      {"i32(ua % ub)", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) % uint32_t(b)); }},
      {"a & b", [](int32_t a, int32_t b) { return a & b; }},
      {"a | b", [](int32_t a, int32_t b) { return a | b; }},
      {"a ^ b", [](int32_t a, int32_t b) { return a ^ b; }},
      {"~a", [](int32_t a, int32_t) { return ~a; }},
      {"-a", [](int32_t a, int32_t) { return int32_t(0u - uint32_t(a)); }},
      {"a << (ub & 31u)", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) << (b & 31)); }},
      {"a >> (ub & 31u)", [](int32_t a, int32_t b) { return a >> (b & 31); }},
      {"i32(ua >> (ub & 31u))", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) >> (b & 31)); }},
      {"abs(a)", [](int32_t a, int32_t) { return int32_t(a < 0 ? 0u - uint32_t(a) : uint32_t(a)); }},
      {"sign(a)", [](int32_t a, int32_t) { return a > 0   ? 1
                                                  : a < 0 ? -1
                                                          : 0; }},
      {"min(a, b)", [](int32_t a, int32_t b) { return std::min(a, b); }},
      {"max(a, b)", [](int32_t a, int32_t b) { return std::max(a, b); }},
      {"i32(min(ua, ub))", [](int32_t a, int32_t b) { return int32_t(std::min(uint32_t(a), uint32_t(b))); }},
      {"i32(max(ua, ub))", [](int32_t a, int32_t b) { return int32_t(std::max(uint32_t(a), uint32_t(b))); }},
      {"clamp(a, -5, 5)", [](int32_t a, int32_t) { return std::clamp(a, -5, 5); }},
      {"i32(clamp(ua, 2u, 5u))", [](int32_t a, int32_t) { return int32_t(std::clamp(uint32_t(a), 2u, 5u)); }},
      {"countLeadingZeros(a)", [](int32_t a, int32_t) { return std::countl_zero(uint32_t(a)); }},
      {"countTrailingZeros(a)", [](int32_t a, int32_t) { return std::countr_zero(uint32_t(a)); }},
      {"countOneBits(a)", [](int32_t a, int32_t) { return std::popcount(uint32_t(a)); }},
      {"reverseBits(a)",
       [](int32_t a, int32_t) {
         uint32_t r = 0;
         for (int i = 0; i < 32; ++i) r |= (uint32_t(a) >> i & 1) << (31 - i);
         return int32_t(r);
       }},
      {"firstLeadingBit(a)",
       [](int32_t a, int32_t) { return a == 0 || a == -1 ? -1 : 31 - std::countl_zero(uint32_t(a < 0 ? ~a : a)); }},
      {"i32(firstLeadingBit(ua))", [](int32_t a, int32_t) { return a == 0 ? -1 : 31 - std::countl_zero(uint32_t(a)); }},
      {"firstTrailingBit(a)", [](int32_t a, int32_t) { return a == 0 ? -1 : std::countr_zero(uint32_t(a)); }},
      {"extractBits(a, 3u, 5u)", [](int32_t a, int32_t) { return int32_t(uint32_t(a) << 24) >> 27; }},
      {"i32(extractBits(ua, 3u, 5u))", [](int32_t a, int32_t) { return int32_t(uint32_t(a) >> 3 & 31); }},
      {"insertBits(a, b, 4u, 6u)", [](int32_t a, int32_t b) { return (a & ~0x3f0) | ((b & 0x3f) << 4); }},
      {"dot(vec2i(a, b), vec2i(2, 3))", [](int32_t a, int32_t b) { return int32_t(uint32_t(a) * 2 + uint32_t(b) * 3); }},
      {"dot4I8Packed(ua, ub)",
       [](int32_t a, int32_t b) {
         int32_t sum = 0;
         for (int i = 0; i < 4; ++i) sum += int8_t(a >> (8 * i)) * int8_t(b >> (8 * i));
         return sum;
       }},
      {"i32(dot4U8Packed(ua, ub))",
       [](int32_t a, int32_t b) {
         int32_t sum = 0;
         for (int i = 0; i < 4; ++i) sum += uint8_t(a >> (8 * i)) * uint8_t(b >> (8 * i));
         return sum;
       }},
      {"unpack4xI8(ua).z", [](int32_t a, int32_t) { return int32_t(int8_t(a >> 16)); }},
      {"i32(unpack4xU8(ua).y)", [](int32_t a, int32_t) { return int32_t(uint8_t(a >> 8)); }},
      {"i32(pack4xI8(vec4i(a, b, 1, 2)))",
       [](int32_t a, int32_t b) { return int32_t((a & 255) | (b & 255) << 8 | 1 << 16 | 2 << 24); }},
      {"i32(pack4xU8(vec4u(ua, ub, 1u, 2u)))",
       [](int32_t a, int32_t b) { return int32_t((a & 255) | (b & 255) << 8 | 1 << 16 | 2 << 24); }},
      {"i32(pack4xI8Clamp(vec4i(a, 0, 0, 0)))", [](int32_t a, int32_t) { return int32_t(std::clamp(a, -128, 127) & 255); }},
      {"i32(pack4xU8Clamp(vec4u(ua, 0u, 0u, 0u)))", [](int32_t a, int32_t) { return int32_t(std::min(uint32_t(a), 255u)); }},
      {"i32(a < b) + 2 * i32(a <= b) + 4 * i32(a == b) + 8 * i32(a != b)",
       [](int32_t a, int32_t b) { return int32_t(a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b); }},
      {"i32(ua > ub) + 2 * i32(ua >= ub)",
       [](int32_t a, int32_t b) { return int32_t(uint32_t(a) > uint32_t(b)) + 2 * (uint32_t(a) >= uint32_t(b)); }},
      {"select(b, a, a > b)", [](int32_t a, int32_t b) { return a > b ? a : b; }},
      {"i32(f32(a))", [](int32_t a, int32_t) { return a == 0x7fffffff ? 0x7fffffff : int32_t(float(a)); }},
      {"bitcast<i32>(bitcast<f32>(a & 0x7fffff))", [](int32_t a, int32_t) { return a & 0x7fffff; }},
  };
  const std::vector<int32_t> a = {0, 1, -1, 7, -7, 255, -256, 123456789, -123456789, 0x7fffffff, int32_t(0x80000000)};
  std::vector<int32_t> b = {3, -4, 5, 1, 31, -1, 17, 100, 2, -1, -1};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.expression);
    const int64_t n = int64_t(a.size());
    TestRun run;
    run.text = StrCat(R"(
tensor x[operand, n] : read as i32;
tensor y[n] : write as i32;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let i = id.x;
  if i >= y.n { return; }
  let a = x.load(0u, i);
  let b = x.load(1u, i);
  let ua = u32(a);
  let ub = u32(b);
  y.store()",
                      row.expression, ", i);\n}\n");
    std::vector<int32_t> all = a;
    all.insert(all.end(), b.begin(), b.end());
    run.tensors["x"] = I32({2, n}, all);
    run.tensors["y"] = I32({n});
    run.workgroups[0] = uint32_t(n + 3) / 4;
    run.RunWithoutFaults();
    const auto got = run.tensors["y"].host.as<int32_t>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(got[i], row.expected(a[i], b[i])) << "at " << a[i] << ", " << b[i];
  }
}

TEST(InterpretValues, ControlFlow) {
  TestRun run;
  run.text = R"(
tensor y[n] : write as i32;
fn collatz(start : u32) -> i32 {
  var n = start;
  var steps = 0i;
  loop {
    if n == 1u { break; }
    if n % 2u == 0u { n /= 2u; steps++; continue; }
    n = 3u * n + 1u;
    steps++;
  }
  return steps;
}
fn classify(v : u32) -> i32 {
  switch v % 5u {
    case 0u: { return 100; }
    case 1u, 3u: { return 200; }
    default: { }
  }
  return 300;
}
fn add_to(sum : ptr<function, i32>, amount : i32) { *sum += amount; }
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let i = group.x;
  var total = collatz(i + 1u);
  add_to(&total, classify(i));
  var fill = array<i32, 3>(1, 2, 3);
  for (var k = 0u; k < 3u; k++) { fill[k] += i32(k * i); }
  var sum = 0i;
  for (var k = 2i; k >= 0; k -= 1) { if k == 1 { continue; } sum += fill[k]; }
  var j = 0i;
  while true { j += 2; if j > 7 { break; } }
  loop { sum += 1; continuing { j -= 1; break if j < 5; } }
  y.store(total * 1000 + sum * 10 + j, i);
}
)";
  run.tensors["y"] = I32({6});
  run.workgroups[0] = 6;
  run.RunWithoutFaults();
  const int collatz[] = {0, 1, 7, 2, 5, 8}, classes[] = {100, 200, 300, 200, 300, 100};
  for (int i = 0; i < 6; ++i) {
    const int sum = 1 + 3 + 2 * i + 4;  // fill[0] + fill[2] + four turns of the loop
    EXPECT_EQ(run.tensors["y"].host.as<int32_t>()[size_t(i)], (collatz[i] + classes[i]) * 1000 + sum * 10 + 4) << i;
  }
}

TEST(InterpretValues, AssignmentsThatReadTheirTarget) {
  TestRun run;
  run.text = R"(
tensor y[n] : write;
@compute @workgroup_size(1)
fn main() {
  var v = vec4f(1.0, 2.0, 3.0, 4.0);
  v = v.wzyx;
  v *= v.x;
  v = vec4f(v.y, v.x, v.w, v.z);
  v.y += v.x;
  var b = v.x < v.y;
  b = v.x > 100.0 || b;
  var i = 2u;
  v[i] = v[i - 1u] * 2.0;
  y.store4(v, 0u);
  y.store(f32(b), 4u);
}
)";
  run.tensors["y"] = F32({5});
  run.RunWithoutFaults();
  EXPECT_EQ(run.Floats("y"), (std::vector<float>{12, 28, 56, 8, 1}));
}

TEST(InterpretValues, HalfRoundsAtEachOperation) {
  TestRun run;
  run.text = R"(
tensor x[n] : read;
tensor y[n] : write;
@compute @workgroup_size(1)
fn main() {
  var sum = f16(0.0);
  for (var i = 0u; i < x.n; i++) { sum += f16(x.load(i)) * 0.1h; }
  y.store(f32(sum), 0u);
}
)";
  std::vector<float> values;
  for (int i = 0; i < 100; ++i) values.push_back(float(i) * 0.37f);
  run.tensors["x"] = F32({100}, values);
  run.tensors["y"] = F32({1});
  run.RunWithoutFaults();
  auto half = [](float v) { return F16ToF32(F32ToF16(v)); };
  float sum = 0;
  for (float v : values) sum = half(sum + half(half(v) * half(0.1f)));
  EXPECT_EQ(run.Floats("y")[0], sum);
}

TEST(InterpretValues, AtomicsInWorkgroupAndScratchMemory) {
  TestRun run;
  run.text = R"(
tensor y[n] : write as u32;
scratch total : array<atomic<u32>, 2>;
var<workgroup> count : atomic<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lane : u32, @builtin(workgroup_id) group : vec3u) {
  if lane == 0u { atomicStore(&count, 0u); }
  workgroupBarrier();
  atomicAdd(&count, lane);
  atomicMax(&total[1], lane * 10u + group.x);
  workgroupBarrier();
  if lane == 0u {
    let before = atomicAdd(&total[0], atomicLoad(&count));
    y.store(before, group.x);
  }
}
)";
  run.tensors["y"] = Place(HostTensor(DType::kU32, {3}));
  run.scratch["total"] = std::vector<std::byte>(8);
  run.workgroups[0] = 3;
  run.RunWithoutFaults();
  uint32_t total[2];
  std::memcpy(total, run.scratch["total"].data(), 8);
  EXPECT_EQ(total[0], 84u);
  EXPECT_EQ(total[1], 72u);
  EXPECT_EQ(run.tensors["y"].host.Get(2), 56);
}

TEST(InterpretValues, ParamsAndConstArrays) {
  TestRun run;
  run.text = R"(
tensor y[n] : write;
const order : array<u32, 3>;
param scale : f32;
param shift : vec2u;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  y.store(scale * f32(order[group.x] + shift.y), group.x);
}
)";
  run.tensors["y"] = F32({3});
  run.consts["order"] = ConstValue(std::vector<double>{2, 0, 1});
  run.workgroups[0] = 3;
  run.params.resize(16);
  const float scale = 0.5f;
  const uint32_t shift[2] = {7, 10};
  std::memcpy(run.params.data(), &scale, 4);
  std::memcpy(run.params.data() + 8, shift, 8);
  run.RunWithoutFaults();
  EXPECT_EQ(run.Floats("y"), (std::vector<float>{6, 5, 5.5f}));
}

TEST(InterpretValues, SubgroupFunctions) {
  struct Row {
    const char* expression;  // of v : u32, lane
    uint32_t (*expected)(std::span<const uint32_t> group, uint32_t lane);
  };
  const Row rows[] = {
      {"subgroupAdd(v)",
       [](std::span<const uint32_t> g, uint32_t) {
         uint32_t sum = 0;
         for (uint32_t v : g) sum += v;
         return sum;
       }},
      {"subgroupMul(v)",
       [](std::span<const uint32_t> g, uint32_t) {
         uint32_t product = 1;
         for (uint32_t v : g) product *= v;
         return product;
       }},
      {"subgroupMin(v)", [](std::span<const uint32_t> g, uint32_t) { return *std::min_element(g.begin(), g.end()); }},
      {"subgroupMax(v)", [](std::span<const uint32_t> g, uint32_t) { return *std::max_element(g.begin(), g.end()); }},
      {"u32(subgroupMax(-f32(v)) * -2.0)",
       [](std::span<const uint32_t> g, uint32_t) { return 2 * *std::min_element(g.begin(), g.end()); }},
      {"subgroupXor(v)",
       [](std::span<const uint32_t> g, uint32_t) {
         uint32_t x = 0;
         for (uint32_t v : g) x ^= v;
         return x;
       }},
      {"subgroupExclusiveAdd(v)",
       [](std::span<const uint32_t> g, uint32_t lane) {
         uint32_t sum = 0;
         for (uint32_t k = 0; k < lane; ++k) sum += g[k];
         return sum;
       }},
      {"subgroupInclusiveAdd(v)",
       [](std::span<const uint32_t> g, uint32_t lane) {
         uint32_t sum = 0;
         for (uint32_t k = 0; k <= lane; ++k) sum += g[k];
         return sum;
       }},
      {"subgroupInclusiveMul(v)",
       [](std::span<const uint32_t> g, uint32_t lane) {
         uint32_t product = 1;
         for (uint32_t k = 0; k <= lane; ++k) product *= g[k];
         return product;
       }},
      {"subgroupBroadcastFirst(v)", [](std::span<const uint32_t> g, uint32_t) { return g[0]; }},
      {"subgroupShuffleXor(v, 1u)",
       [](std::span<const uint32_t> g, uint32_t lane) { return (lane ^ 1) < g.size() ? g[lane ^ 1] : 0; }},
      {"subgroupShuffleDown(v, 1u)",
       [](std::span<const uint32_t> g, uint32_t lane) { return lane + 1 < g.size() ? g[lane + 1] : 0; }},
      {"subgroupShuffle(v, 0u)", [](std::span<const uint32_t> g, uint32_t) { return g[0]; }},
      {"subgroupBallot(v % 2u == 0u).x",
       [](std::span<const uint32_t> g, uint32_t) {
         uint32_t bits = 0;
         for (size_t k = 0; k < std::min<size_t>(g.size(), 32); ++k) bits |= uint32_t(g[k] % 2 == 0) << k;
         return bits;
       }},
      {"u32(subgroupElect())", [](std::span<const uint32_t>, uint32_t lane) { return uint32_t(lane == 0); }},
      {"u32(subgroupAll(v < 40u)) + 2u * u32(subgroupAny(v < 40u))",
       [](std::span<const uint32_t> g, uint32_t) {
         bool all = true, any = false;
         for (uint32_t v : g) all = all && v < 40, any = any || v < 40;
         return uint32_t(all) + 2 * uint32_t(any);
       }},
  };
  for (const uint32_t size : {1u, 4u, 8u, 16u, 32u, 64u}) {
    for (const Row& row : rows) {
      SCOPED_TRACE(StrCat(row.expression, " in subgroups of ", size));
      TestRun run;
      run.text = StrCat(R"(
tensor y[n] : write as u32;
@compute @workgroup_size(16, 3)
fn main(@builtin(local_invocation_index) index : u32) {
  let v = index * 7u % 61u + 1u;
  y.store()",
                        row.expression, ", index);\n}\n");
      run.tensors["y"] = Place(HostTensor(DType::kU32, {48}));
      run.options.subgroup_size = size;
      run.RunWithoutFaults();
      std::vector<uint32_t> values;
      for (uint32_t i = 0; i < 48; ++i) values.push_back(i * 7 % 61 + 1);
      for (uint32_t i = 0; i < 48; ++i) {
        const uint32_t first = i / size * size;
        const std::span<const uint32_t> group(values.data() + first, std::min(size, 48 - first));
        EXPECT_EQ(uint32_t(run.tensors["y"].host.Get(i)), row.expected(group, i - first)) << "invocation " << i;
      }
    }
  }
}

// ---- Tensors ----------------------------------------------------------------------------------------------------------

constexpr const char* kCopy = R"(
tensor x[a, b, c] : read;
tensor y[a, b, c] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) { y.store(x.load(group.z, group.y, group.x), group.z, group.y, group.x); }
)";
constexpr const char* kCopy4 = R"(
tensor x[a, b, c] : read;
tensor y[a, b, c] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) { y.store4(x.load4(group.z, group.y, group.x), group.z, group.y, group.x); }
)";

HostTensor Numbered(Shape shape, DType dtype = DType::kF32) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.element_count(); ++i) tensor.Set(i, double(i + 1));
  return tensor;
}

TEST(InterpretTensors, EveryLayoutAndStorage) {
  const Shape shape = {2, 3, 5};
  for (const char* text : {kCopy, kCopy4}) {
    for (Layout layout : {Layout::kLinear, Layout::kPadded4, Layout::kSliced4}) {
      for (Storage storage :
           {Storage::kBuffer, Storage::kImageBuffer, Storage::kTexture2D, Storage::kTexture2DArray, Storage::kTexture3D}) {
        if (storage != Storage::kBuffer && layout == Layout::kLinear) continue;
        for (DType dtype : {DType::kF32, DType::kF16}) {
          SCOPED_TRACE(StrCat(text == kCopy ? "load" : "load4", " ", LayoutName(layout), " ", StorageName(storage), " ",
                              DTypeName(dtype)));
          TestRun run;
          run.text = text;
          run.tensors["x"] = Place(Numbered(shape), layout, storage, dtype);
          // Storing single elements is for buffers.
          run.tensors["y"] = Place(HostTensor(DType::kF32, shape), layout, text == kCopy ? Storage::kBuffer : storage, dtype);
          run.workgroups[0] = text == kCopy ? 5 : 2;
          run.workgroups[1] = 3;
          run.workgroups[2] = 2;
          run.RunWithoutFaults();
          EXPECT_EQ(run.Floats("y"), Numbered(shape).ToF32());
        }
      }
    }
  }
}

TEST(InterpretTensors, CoordinateMaps) {
  // x is seen transposed and padded: x[a, b, c] = inside ? placed[c - 1][b] : -5
  for (const char* text : {kCopy, kCopy4}) {
    for (Layout layout : {Layout::kLinear, Layout::kPadded4, Layout::kSliced4}) {
      SCOPED_TRACE(StrCat(text == kCopy ? "load" : "load4", " ", LayoutName(layout)));
      TestRun run;
      run.text = text;
      run.tensors["x"] = Place(Numbered({4, 3}), layout);
      VirtualTensor& x = run.tensors["x"].tensor;
      x.shape = {2, 3, 6};
      x.map.coords = {IndexExpr::Axis(2) - IndexExpr::Const(1), IndexExpr::Axis(1)};
      x.map.inside = And(Less(IndexExpr::Const(0), IndexExpr::Axis(2)), Less(IndexExpr::Axis(2), IndexExpr::Const(5)));
      x.map.outside = -5;
      // y is stored reversed along b.
      run.tensors["y"] = Place(HostTensor(DType::kF32, {2, 3, 6}), layout);
      VirtualTensor& y = run.tensors["y"].tensor;
      y.map.coords = {IndexExpr::Axis(0), IndexExpr::Const(2) - IndexExpr::Axis(1), IndexExpr::Axis(2)};
      run.workgroups[0] = text == kCopy ? 6 : 2;
      run.workgroups[1] = 3;
      run.workgroups[2] = 2;
      run.RunWithoutFaults();
      for (int a = 0; a < 2; ++a) {
        for (int b = 0; b < 3; ++b) {
          for (int c = 0; c < 6; ++c) {
            const float expected = c > 0 && c < 5 ? float((c - 1) * 3 + b + 1) : -5.0f;
            EXPECT_EQ(run.Floats("y")[size_t((a * 3 + 2 - b) * 6 + c)], expected) << a << b << c;
          }
        }
      }
    }
  }
}

TEST(InterpretTensors, ValueMapsAtLoadsAndStores) {
  for (const char* text : {kCopy, kCopy4}) {
    for (Layout layout : {Layout::kLinear, Layout::kPadded4, Layout::kSliced4}) {
      SCOPED_TRACE(StrCat(text == kCopy ? "load" : "load4", " ", LayoutName(layout)));
      const Shape shape = {1, 2, 5};
      TestRun run;
      run.text = text;
      run.tensors["x"] = Place(Numbered(shape), layout);
      ValueMap plus_one;
      plus_one.text = "fn apply(v : V) -> V { return v + V(amount); }";
      plus_one.consts["amount"] = 1;
      run.tensors["x"].tensor.value_maps = {plus_one};
      // Adds a row that is broadcast, then applies relu.
      ValueMap add_row, relu;
      add_row.text = "fn apply(v : V, other : V) -> V { return v - other; }";
      Placed row = Place(Numbered({5}), layout);
      row.tensor.shape = shape;
      row.tensor.map.coords = {IndexExpr::Axis(2)};
      add_row.operands = {row.tensor};
      relu.text = "fn apply(v : V) -> V { return max(v, V(3.0)); }";
      run.tensors["y"] = Place(HostTensor(DType::kF32, shape), layout);
      run.tensors["y"].tensor.value_maps = {add_row, relu};
      run.tensors["y#0"] = row;
      run.workgroups[0] = text == kCopy ? 5 : 2;
      run.workgroups[1] = 2;
      run.RunWithoutFaults();
      for (int b = 0; b < 2; ++b) {
        for (int c = 0; c < 5; ++c) {
          EXPECT_EQ(run.Floats("y")[size_t(b * 5 + c)], std::max(float(b * 5 + c + 2) - float(c + 1), 3.0f));
        }
      }
    }
  }
}

TEST(InterpretTensors, LanesBeyondTheEdgeAreZeroAfterValueMaps) {
  TestRun run;
  run.text = R"(
tensor x[n] : read;
tensor y[n] : write;
@compute @workgroup_size(1)
fn main() { y.store4(x.load4(1u), 0u); }
)";
  run.tensors["x"] = Place(Numbered({6}), Layout::kPadded4);
  ValueMap map;
  map.text = "fn apply(v : V) -> V { return v + V(1.0); }";
  run.tensors["x"].tensor.value_maps = {map};
  run.tensors["y"] = F32({4});
  run.RunWithoutFaults();
  EXPECT_EQ(run.Floats("y"), (std::vector<float>{6, 7, 0, 0}));
}

TEST(InterpretTensors, OrZeroAndIsInside) {
  TestRun run;
  run.text = R"(
tensor x[row, column] : read;
tensor y[kind, place] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let place = i32(group.x) - 1;
  y.store(x.load_or_zero(place, 1), 0u, group.x);
  y.store(x.load4_or_zero(1, place).x, 1u, group.x);
  y.store(select(0.0, 1.0, x.is_inside(u32(place), 0u)), 2u, group.x);
}
)";
  run.tensors["x"] = Place(Numbered({2, 5}), Layout::kPadded4);
  run.tensors["y"] = F32({3, 4});
  run.workgroups[0] = 4;
  run.RunWithoutFaults();
  EXPECT_EQ(run.Floats("y"), (std::vector<float>{0, 2, 7, 0, 0, 6, 10, 0, 0, 1, 1, 0}));
}

TEST(InterpretTensors, IntegersBoolsAndPackedWeights) {
  TestRun run;
  run.text = R"(
tensor x[n] : read as i32;
tensor flag[n] : read as bool;
weights w[n];
tensor y[n] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let i = group.x;
  y.store(select(-1.0, f32(x.load(i)) + w.load(i), flag.load(i)), i);
}
)";
  run.tensors["x"] = I32({3}, {-7, 8, 9});
  run.tensors["flag"] = Place(HostTensor(DType::kBool, {3}), Layout::kLinear, Storage::kBuffer, DType::kU32);
  run.tensors["flag"].host.Set(0, 1);
  run.tensors["flag"].host.Set(2, 1);
  run.tensors["w"] = Place(HostTensor(DType::kI8, {3}), Layout::kPadded4, Storage::kBuffer, DType::kI8);
  run.tensors["w"].host.Set(0, -100);
  run.tensors["w"].host.Set(2, 127);
  run.tensors["y"] = F32({3});
  run.workgroups[0] = 3;
  run.RunWithoutFaults();
  EXPECT_EQ(run.Floats("y"), (std::vector<float>{-107, -1, 136}));
}

TEST(InterpretTensors, CountsWhatAKernelDoes) {
  TestRun run;
  run.text = R"(
tensor x[n] : read;
tensor y[n] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let v = x.load4(group.x);
  y.store4(fma(v, v, v) + 1.0, group.x);
}
)";
  run.tensors["x"] = Place(Numbered({6}), Layout::kPadded4);
  run.tensors["y"] = Place(HostTensor(DType::kF32, {6}), Layout::kPadded4);
  run.workgroups[0] = 2;
  run.RunWithoutFaults();
  EXPECT_EQ(run.result.counts.loads, 6u);
  EXPECT_EQ(run.result.counts.stores, 6u);
  EXPECT_EQ(run.result.counts.arithmetic, 2u * (8 + 4));
}

}  // namespace
}  // namespace leeway::shader
