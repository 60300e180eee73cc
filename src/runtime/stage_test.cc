#include "runtime/stage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "ops/dispatch.h"
#include "runtime/test_devices.h"

namespace leeway {
namespace {

// accumulate: s' = s + x, in the memory of s.
Result<std::vector<TensorType>> InferAccumulate(const OpCall& call) { return std::vector<TensorType>{call.inputs[0].type}; }
Status Accumulate(const OpCall&, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  for (int64_t i = 0; i < outputs[0].element_count(); ++i) outputs[0].Set(i, outputs[0].Get(i) + inputs[1].Get(i));
  return {};
}
constexpr char kBody[] = R"(
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id : vec3u) {
  if (id.x >= s.row * s.column) { return; }
  let row = id.x / s.column;
  let column = id.x % s.column;
  s.store(s.load(row, column) + x.load(row, column), row, column);
}
)";
constexpr auto kF32 = JoinTexts(R"(
tensor x[row, column] : read as f32;
tensor s[row, column] : read_write as f32;)",
                                kBody);
constexpr auto kI32 = JoinTexts(R"(
tensor x[row, column] : read as i32;
tensor s[row, column] : read_write as i32;)",
                                kBody);
Result<OpPlan> PlanAccumulate(const KernelRequest& request) {
  const TensorType& type = request.call.outputs[0];
  KernelDispatch dispatch{.kernel_name = "accumulate", .kernel_text = type.dtype == DType::kI32 ? kI32.data() : kF32.data()};
  dispatch.tensors = {InputArgument("x", 1), OutputArgument("s", 0)};
  dispatch.workgroups[0] = uint32_t(DivideUp(type.shape.element_count(), 64));
  OpPlan plan;
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}
const OpDef::Update kUpdates[] = {{0, 0}};
constexpr KernelVariant kVariants[] = {{.name = "direct",
                                        .what = "one invocation per element",
                                        .accepts = AcceptAlways,
                                        .plan = PlanAccumulate,
                                        .no_epilogue = true}};
constexpr OpKernels kKernels = {.variants = kVariants};
const OpDef kAccumulate{
    .name = "accumulate", .infer = InferAccumulate, .reference = Accumulate, .updates = kUpdates, .kernels = &kKernels};

constexpr int64_t kRows = 3, kColumns = 5, kCount = kRows * kColumns;

// sum' = (sum + x) + (sum + x) in two updates, the second of which needs what was there before the first; count' = count + 1;
// y = sum' + weights.
struct Sums {
  Graph graph;
  ValueId x, y, sum, count;
  std::shared_ptr<const HostTensor> weights;
};
Sums MakeSums(std::shared_ptr<const HostTensor> weights = nullptr) {
  Sums made;
  Graph& graph = made.graph;
  graph.name = "sums";
  auto value = [&](const char* name, DType dtype = DType::kF32) {
    return graph.AddValue({name, {dtype, Shape{kRows, kColumns}}, nullptr, nullptr});
  };
  auto node = [&](const char* name, const OpDef* op, std::vector<ValueId> inputs, ValueId output) {
    Node n;
    n.name = name;
    n.op = op;
    n.inputs = std::move(inputs);
    n.outputs = {output};
    graph.nodes.push_back(std::move(n));
  };
  std::vector<float> numbers(kCount);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i) / 4;
  made.weights = weights ? weights : std::make_shared<HostTensor>(HostTensor::FromF32(Shape{kRows, kColumns}, numbers));
  const std::vector<int32_t> ones(kCount, 1);
  made.x = value("x");
  const ValueId sum0 = value("sum0"), sum1 = value("sum1"), before = value("before");
  const ValueId count0 = value("count0", DType::kI32);
  made.sum = value("sum2"), made.count = value("count1", DType::kI32), made.y = value("y");
  const ValueId w = graph.AddValue({"weights", {DType::kF32, Shape{kRows, kColumns}}, made.weights, nullptr});
  const ValueId one = graph.AddConstant("one", HostTensor::FromI32(Shape{kRows, kColumns}, ones));
  graph.inputs = {made.x, sum0, count0};
  node("read", FindOp("add"), {sum0, made.x}, before);
  node("first", &kAccumulate, {sum0, made.x}, sum1);
  node("second", &kAccumulate, {sum1, before}, made.sum);
  node("count", &kAccumulate, {count0, one}, made.count);
  node("result", FindOp("add"), {made.sum, w}, made.y);
  graph.outputs = {made.sum, made.count, made.y};
  graph.states = {{"sum", sum0, made.sum}, {"count", count0, made.count}};
  return made;
}

struct Fixture {
  explicit Fixture(const std::string& device_name)
      : context(device_name == "cpu" ? nullptr : *OpenSharedDevice(device_name, {.cache_folder = ""}), "", 1) {}
  Device* device() { return context.device.get(); }
  LaunchPlan Plan(const Graph& graph, std::vector<std::string> excluded = {}) {
    PlanOptions options;
    options.excluded_nodes = std::move(excluded);
    auto plan = MakePlan(graph, device() ? &device()->info() : nullptr, options, context.pool);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return std::move(*plan);
  }
  std::unique_ptr<Stage> MakeStage(const Graph& graph, std::vector<std::string> excluded = {}) {
    auto stage = Stage::Make(Plan(graph, std::move(excluded)), context);
    EXPECT_TRUE(stage.ok()) << stage.error().message;
    return std::move(*stage);
  }
  std::unique_ptr<StateSet> MakeStates(const Stage& stage) {
    const LaunchPlan* plan = &stage.plan();
    auto states = StateSet::Make(std::span(&plan, 1), device());
    EXPECT_TRUE(states.ok()) << states.error().message;
    return std::move(*states);
  }
  std::unique_ptr<BoundStage> Bind(Stage& stage, StateSet& states) {
    auto bound = stage.Bind(states);
    EXPECT_TRUE(bound.ok()) << bound.error().message;
    return std::move(*bound);
  }
  void Wait(const Result<EventPtr>& event) {
    ASSERT_TRUE(event.ok()) << event.error().message;
    if (!device()) {
      EXPECT_TRUE((*event)->done());
      return;
    }
    const Status status = (*event)->done() ? (*event)->status() : device()->Wait(*event);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  StageContext context;
};

std::vector<std::string> Places() {
  std::vector<std::string> places = TestDevices();
  places.insert(places.begin(), "cpu");
  return places;
}

// What a session of runs gives: element 7 of y and of count.
struct Expected {
  double sum = 0;
  int count = 0;
  void Run(double x) {
    sum = 2 * (sum + x);
    ++count;
  }
  double y() const { return sum + 7.0 / 4; }
};

// Element 7 is in the second row, whose stored place depends on the padding: whole tensors are read and looked into.
double StoredElement7(const LaunchPlan& plan, ValueId id, std::span<const std::byte> bytes) {
  const int r = plan.value_resource[size_t(id)];
  const bool padded = r >= 0 && plan.resources[size_t(r)].placement.layout == Layout::kPadded4;
  const size_t at = padded ? 1 * 8 + 2 : 7;
  if (plan.graph.value(id).type.dtype == DType::kI32) {
    int32_t v;
    std::memcpy(&v, bytes.data() + at * 4, 4);
    return v;
  }
  float v;
  std::memcpy(&v, bytes.data() + at * 4, 4);
  return v;
}
StageRead Whole(const LaunchPlan& plan, ValueId id) {
  const int r = plan.value_resource[size_t(id)];
  return {id, 0, r >= 0 ? plan.resources[size_t(r)].size_bytes : uint64_t(kCount * 4)};
}

void RunAndCheck(Fixture& f, Stage& stage, BoundStage& bound, const Sums& sums, double x, Expected& expected) {
  const std::vector<float> values(kCount, float(x));
  ASSERT_TRUE(stage.WriteInput(sums.x, std::as_bytes(std::span(values))).ok());
  expected.Run(x);
  const StageRead read = Whole(stage.plan(), sums.y);
  double got = NAN;
  f.Wait(bound.Run(std::span(&read, 1), [&](Result<std::vector<std::span<const std::byte>>> bytes) {
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    got = StoredElement7(stage.plan(), sums.y, (*bytes)[0]);
  }));
  EXPECT_EQ(got, expected.y());
}

double ReadState(Fixture& f, const Stage& stage, StateSet& states, const char* name, ValueId id) {
  const int index = states.Find(name);
  const StateSet::Range range{index, 0, states.StoredBytes(index)};
  double got = NAN;
  f.Wait(states.Read(std::span(&range, 1), [&](Result<std::vector<std::span<const std::byte>>> bytes) {
    ASSERT_TRUE(bytes.ok());
    got = StoredElement7(stage.plan(), id, (*bytes)[0]);
  }));
  return got;
}

TEST(Stage, UpdatesStatesOnAllSidesOfTheBorder) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    Fixture f(place);
    const Sums sums = MakeSums();
    ASSERT_TRUE(Verify(sums.graph).ok()) << Verify(sums.graph).error().message;
    for (const char* excluded : {"", "first", "second", "read", "result", "op:accumulate"}) {
      SCOPED_TRACE(excluded);
      auto stage = f.MakeStage(sums.graph, {excluded});
      auto states = f.MakeStates(*stage);
      auto bound = f.Bind(*stage, *states);
      Expected expected;
      for (double x : {1.0, -2.5, 3.0}) RunAndCheck(f, *stage, *bound, sums, x, expected);
      EXPECT_EQ(ReadState(f, *stage, *states, "sum", sums.sum), expected.sum);
      EXPECT_EQ(ReadState(f, *stage, *states, "count", sums.count), expected.count);
    }
  }
}

TEST(Stage, StagesShareStatesAndWeightsAndSessionsDoNotMix) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    Fixture f(place);
    const Sums a = MakeSums(), b = MakeSums(a.weights);
    auto first = f.MakeStage(a.graph), second = f.MakeStage(b.graph, {"count"});
    const uint64_t weights = f.context.weights.size_bytes();
    auto third = f.MakeStage(b.graph);
    // Only the constant that is not shared by address comes anew.
    if (f.device()) { EXPECT_LE(f.context.weights.size_bytes(), weights + 512); }
    auto one = f.MakeStates(*first), other = f.MakeStates(*first);
    auto first_one = f.Bind(*first, *one), second_one = f.Bind(*second, *one), third_other = f.Bind(*third, *other);
    Expected of_one, of_other;
    RunAndCheck(f, *first, *first_one, a, 1, of_one);
    RunAndCheck(f, *third, *third_other, b, 5, of_other);
    RunAndCheck(f, *second, *second_one, b, 2, of_one);
    RunAndCheck(f, *third, *third_other, b, -1, of_other);
    RunAndCheck(f, *first, *first_one, a, 0.5, of_one);
    EXPECT_EQ(ReadState(f, *first, *one, "count", a.count), 3);
    EXPECT_EQ(ReadState(f, *first, *other, "count", a.count), 2);
  }
}

TEST(Stage, SeveralRunsAreUnderWayAndEachReadSeesItsOwn) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    Fixture f(place);
    const Sums sums = MakeSums();
    auto stage = f.MakeStage(sums.graph);
    auto states = f.MakeStates(*stage);
    auto bound = f.Bind(*stage, *states);
    const std::vector<float> ones(kCount, 1.f);
    ASSERT_TRUE(stage->WriteInput(sums.x, std::as_bytes(std::span(ones))).ok());
    const StageRead read = Whole(stage->plan(), sums.count);
    std::vector<double> seen(6);
    std::vector<Result<EventPtr>> events;
    for (size_t run = 0; run < seen.size(); ++run) {
      events.push_back(bound->Run(std::span(&read, 1), [&, run](Result<std::vector<std::span<const std::byte>>> bytes) {
        ASSERT_TRUE(bytes.ok());
        seen[run] = StoredElement7(stage->plan(), sums.count, (*bytes)[0]);
      }));
    }
    for (const auto& event : events) f.Wait(event);
    EXPECT_EQ(seen, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  }
}

TEST(Stage, HalfStatesWhereTheDeviceHasThemUnlessToldOtherwise) {
  Sums sums = MakeSums();
  sums.graph.states[0].may_be_f16 = true;
  DeviceInfo info;
  info.target = shader::TypicalTarget(shader::Language::kWgsl);
  info.target.f16 = true;
  ThreadPool pool(1);
  for (bool f32 : {false, true}) {
    PlanOptions options;
    options.select.f32_caches = f32;
    auto plan = MakePlan(sums.graph, &info, options, pool);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto& state = plan->resources[size_t(plan->states[0].resource)];
    EXPECT_EQ(state.placement.dtype, f32 ? DType::kF32 : DType::kF16);
    EXPECT_EQ(state.kind, PlanResource::Kind::kState);
    EXPECT_EQ(plan->memory.states_bytes, plan->resources[size_t(plan->states[0].resource)].size_bytes +
                                             plan->resources[size_t(plan->states[1].resource)].size_bytes);
  }
}

TEST(Stage, RefusesStatesThatAreNotItsOwn) {
  Fixture f("cpu");
  const Sums sums = MakeSums();
  auto stage = f.MakeStage(sums.graph);
  StateSet none;
  auto bound = stage->Bind(none);
  ASSERT_FALSE(bound.ok());
  EXPECT_NE(bound.error().message.find("no \"sum\""), std::string::npos) << bound.error().message;
  EXPECT_FALSE(stage->WriteInput(sums.graph.states[0].before, {}).ok());
  auto states = f.MakeStates(*stage);
  EXPECT_FALSE(states->Write(0, kCount * 4, std::as_bytes(std::span("abcd", 4))).ok());
}

}  // namespace
}  // namespace leeway
