// Graphs of language models as stages on the devices of this machine: the same tokens and logits as on the CPU references, and
// models of the cache against their goldens.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "find_model.h"
#include "graph/passes/passes.h"
#include "import/llm_file.h"
#include "llm/models/random_model.h"
#include "llm/models/test_session.h"
#include "runtime/stage.h"
#include "runtime/test_devices.h"

namespace leeway::llm {
namespace {

// Stages of one model over one set of states.
class DeviceSession {
 public:
  DeviceSession(const std::string& device, const LlmModel& model, StageShape shape)
      : context_(*OpenSharedDevice(device, {.cache_folder = ""}), "", 1), model_(model), shape_(shape) {}

  // Adds a stage; all of them before Start.
  int Add(int64_t rows, bool logits, bool sample) {
    StageShape shape = shape_;
    shape.rows = rows, shape.logits = logits, shape.sample = sample;
    auto graph = BuildGraph(model_, shape);
    if (!graph.ok()) return Fail(graph.error());
    if (auto report = RunPasses(*graph, {}); !report.ok()) return Fail(report.error());
    const ValueId outputs = logits ? graph->outputs[0] : kNoValue;
    PlanOptions options;
    options.require_gpu = true;
    auto plan = MakePlan(*graph, &context_.device->info(), options, context_.pool);
    if (!plan.ok()) return Fail(plan.error());
    context_.arena.Reserve(*plan);
    plans_.push_back(std::move(*plan));
    logits_.push_back(outputs);
    return int(plans_.size()) - 1;
  }
  void Start(const std::vector<int>& ids) {
    for (size_t i = 0; i < plans_.size(); ++i) {
      auto stage = Stage::Make(std::move(plans_[i]), context_);
      ASSERT_TRUE(stage.ok()) << stage.error().message;
      stages_.push_back({std::move(*stage), nullptr, logits_[i]});
    }
    std::vector<const LaunchPlan*> plans;
    for (const auto& made : stages_) plans.push_back(&made.stage->plan());
    auto states = StateSet::Make(plans, context_.device.get());
    ASSERT_TRUE(states.ok()) << states.error().message;
    states_ = std::move(*states);
    for (auto& made : stages_) {
      auto bound = made.stage->Bind(*states_);
      ASSERT_TRUE(bound.ok()) << bound.error().message;
      made.bound = std::move(*bound);
    }
    Write("tokens", 0, std::span(ids));
    const auto sampler = SamplerValues({});
    if (states_->Find("sampler") >= 0) Write("sampler", 0, std::span<const float>(sampler));
  }
  template <class T>
  void Write(const char* name, int64_t at, std::span<const T> values) {
    const Status status = states_->Write(states_->Find(name), uint64_t(at) * 4, std::as_bytes(values));
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  // position < 0: where the last run left off.
  std::vector<float> Run(int stage, int64_t position, int64_t count) {
    if (position >= 0) {
      const std::vector<int32_t> step = {int32_t(position), int32_t(count), 0, 0};
      Write("step", 0, std::span<const int32_t>(step));
    }
    Made& made = stages_[size_t(stage)];
    std::vector<float> logits;
    std::vector<StageRead> reads;
    if (made.logits != kNoValue) reads.push_back({made.logits, 0, uint64_t((model_.config.vocabulary + 3) / 4 * 16)});
    Wait(made.bound->Run(reads, [&](Result<std::vector<std::span<const std::byte>>> bytes) {
      ASSERT_TRUE(bytes.ok()) << bytes.error().message;
      if (reads.empty()) return;
      logits.resize(size_t(model_.config.vocabulary));
      std::memcpy(logits.data(), (*bytes)[0].data(), logits.size() * 4);
    }));
    return logits;
  }
  std::vector<int32_t> Tokens(int64_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    const StateSet::Range range{states_->Find("tokens"), 0, uint64_t(count) * 4};
    Wait(states_->Read(std::span(&range, 1), [&](Result<std::vector<std::span<const std::byte>>> bytes) {
      ASSERT_TRUE(bytes.ok());
      std::memcpy(tokens.data(), (*bytes)[0].data(), tokens.size() * 4);
    }));
    return tokens;
  }

 private:
  struct Made {
    std::unique_ptr<Stage> stage;
    std::unique_ptr<BoundStage> bound;
    ValueId logits = kNoValue;
  };
  int Fail(const Error& error) {
    ADD_FAILURE() << error.message;
    return -1;
  }
  void Wait(const Result<EventPtr>& event) {
    ASSERT_TRUE(event.ok()) << event.error().message;
    const Status status = (*event)->done() ? (*event)->status() : context_.device->Wait(*event);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }

  StageContext context_;
  const LlmModel& model_;
  StageShape shape_;
  std::unique_ptr<StateSet> states_;
  std::vector<LaunchPlan> plans_;  // until Start
  std::vector<ValueId> logits_;
  std::vector<Made> stages_;
};

double LargestDifference(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double difference = std::fabs(double(got[i]) - want[i]);
    largest = std::isfinite(difference) ? std::max(largest, difference) : INFINITY;
  }
  return largest;
}

TEST(ModelsOnDevices, TheSameTokensAndLogitsAsOnTheCpu) {
  const Tiny models[] = {
      {.architecture = "gemma3", .width = 64, .layers = 2, .heads = 4, .kv_heads = 1, .head_size = 64, .type = DType::kQ4_0},
      {.architecture = "llama", .width = 96, .layers = 2, .heads = 6, .kv_heads = 2, .head_size = 16, .type = DType::kQ8_0},
      {.architecture = "qwen3", .width = 64, .layers = 1, .heads = 4, .kv_heads = 2, .head_size = 32, .type = DType::kF16},
  };
  const std::vector<int> prompt = {3, 17, 49, 0, 3, 21, 8};
  const StageShape shape{.context = 16, .max_rows = 4};
  for (const std::string& device : TestDevices()) {
    for (const Tiny& tiny : models) {
      SCOPED_TRACE(StrCat(tiny.architecture, " on ", device));
      auto model = MakeModel(RandomFile(tiny, 21));
      ASSERT_TRUE(model.ok()) << model.error().message;
      TestSession cpu(*model, shape);
      DeviceSession session(device, *model, shape);
      const int fill = session.Add(4, false, false), head = session.Add(4, true, true), decode = session.Add(1, true, true);
      ASSERT_TRUE(fill >= 0 && head >= 0 && decode >= 0);
      session.Start(prompt);
      if (HasFatalFailure()) return;
      cpu.SetTokens(prompt);
      cpu.Run(0, 4, 4, false);
      session.Run(fill, 0, 4);
      std::vector<float> want = cpu.Run(4, 3, 4, true, true), got = session.Run(head, 4, 3);
      double magnitude = 0;
      for (float value : want) magnitude = std::max(magnitude, double(std::fabs(value)));
      EXPECT_LT(LargestDifference(got, want), 1e-3 * magnitude) << "after the prompt";
      for (int i = 0; i < 5; ++i) {
        want = cpu.Run(-1, 0, 1, true, true);
        got = session.Run(decode, -1, 0);
        EXPECT_LT(LargestDifference(got, want), 1e-3 * magnitude) << "step " << i;
      }
      const std::vector<int32_t> tokens = session.Tokens(13);
      for (int i = 0; i < 13; ++i) EXPECT_EQ(tokens[size_t(i)], cpu.Token(i)) << "token " << i;
      if (HasFailure()) return;
    }
  }
}

struct Golden {
  const char* model;
  const char* entry;
  double allowed;
  bool is_large;
};

class GoldensOnDevices : public testing::TestWithParam<Golden> {};

TEST_P(GoldensOnDevices, Logits) {
  const Golden& golden = GetParam();
  if (golden.is_large && !std::getenv("LEEWAY_TEST_ALL_WAYS")) GTEST_SKIP() << "Takes long; LEEWAY_TEST_ALL_WAYS is not set.";
  const auto path = SharedFolder() / "goldens/llm" / StrCat(golden.model, "-logits.json");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "There is no " << path;
  const auto model_path = FindModel(StrCat(golden.model, ".gguf"));
  if (!model_path) GTEST_SKIP() << "There is no " << golden.model << ".gguf";
  const auto entries = nlohmann::json::parse(std::ifstream(path))["entries"];
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e["name"] == golden.entry; });
  ASSERT_NE(entry, entries.end());
  auto file = LlmFile::Open(*model_path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto contents = ModelFileOf(*file);
  ASSERT_TRUE(contents.ok()) << contents.error().message;
  auto model = MakeModel(std::move(*contents));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto ids = (*entry)["prompt_ids"].get<std::vector<int>>();
  const auto best = (*entry)["f32"]["ids"].get<std::vector<int>>();
  const auto want = (*entry)["f32"]["logits"].get<std::vector<double>>();
  for (const std::string& device : TestDevices()) {
    SCOPED_TRACE(device);
    DeviceSession session(device, *model, {.context = 64, .max_rows = 16});
    // All but the last token in one run, the last as decoding does it.
    const int fill = session.Add(16, false, false), decode = session.Add(1, true, false);
    ASSERT_TRUE(fill >= 0 && decode >= 0);
    session.Start(ids);
    if (HasFatalFailure()) return;
    session.Run(fill, 0, int64_t(ids.size()) - 1);
    const std::vector<float> logits = session.Run(decode, int64_t(ids.size()) - 1, 1);
    ASSERT_EQ(int64_t(logits.size()), model->config.vocabulary);
    for (size_t i = 0; i < best.size(); ++i)
      EXPECT_NEAR(logits[size_t(best[i])], want[i], golden.allowed) << "token " << best[i];
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), best[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(, GoldensOnDevices,
                         testing::Values(Golden{"smollm2-135m", "plain", 0.05, false},
                                         Golden{"gemma3-270m", "plain", 0.07, true}),
                         [](const auto& info) { return std::string(info.param.model).substr(0, 6); });

}  // namespace
}  // namespace leeway::llm
