// Real models against answers that llama.cpp gave with f32 weights, activations and caches. Without the model files
// (tests/find_model.h) the tests are skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "device/device.h"
#include "find_model.h"
#include "leeway/llm.h"
#include "runtime/test_devices.h"

namespace leeway::llm {
namespace {

// The slow software devices answer only the shortest question.
bool IsQuick(const DeviceSummary& device) { return !device.is_software || device.api == "opencl"; }

struct Case {
  const char* name;
  double tolerance;  // of logits in f32
};

class AnswerGoldens : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto path = FindModel(StrCat(GetParam().name, ".gguf"));
    if (!path) GTEST_SKIP() << GetParam().name << ".gguf is not there: `leeway pull " << GetParam().name << "` fetches it";
    path_ = *path;
    std::ifstream file(StrCat(LEEWAY_SOURCE_DIR, "/tests/goldens/llm/", GetParam().name, "-answers.json"));
    goldens_ = nlohmann::json::parse(file, nullptr, false);
    ASSERT_FALSE(goldens_.is_discarded());
  }

  void Check(Engine& engine, std::shared_ptr<Engine> shared, double tolerance) {
    const bool quick = IsQuick(engine.device());
    auto made = Session::Create(std::move(shared), {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    Session& session = **made;
    size_t count = 0;
    for (const auto& golden : goldens_["logits"]) {
      if (!quick && count++ > 0) break;
      SCOPED_TRACE(StrCat("logits of ", golden["name"].get<std::string>()));
      const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
      GenerateOptions options;
      options.max_tokens = 1;
      options.logits = true;
      double largest = 0;
      options.on_token = [&](const Token& token) {
        for (size_t i = 0; i < golden["ids"].size(); ++i) {
          largest = std::max(
              largest, std::fabs(double(token.logits[golden["ids"][i].get<size_t>()]) - golden["logits"][i].get<double>()));
        }
        return true;
      };
      session.Reset();
      const auto result = session.Generate(prompt, options);
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_LE(largest, tolerance);
      RecordProperty(StrCat("largest difference of ", golden["name"].get<std::string>()), std::to_string(largest));
    }
    count = 0;
    for (const auto& golden : goldens_["greedy"]) {
      if (!quick && count++ > 0) break;
      SCOPED_TRACE(StrCat("answer to ", golden["name"].get<std::string>()));
      const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
      std::vector<int32_t> expected = golden["ids"].get<std::vector<int32_t>>();
      // Up to where the two best are closer than what is allowed.
      size_t sure = 0;
      while (sure < expected.size() && golden["margins"][sure].get<double>() >= tolerance) ++sure;
      if (!quick) sure = std::min<size_t>(sure, 4);
      if (sure == 0) continue;
      expected.resize(sure);
      GenerateOptions options;
      options.max_tokens = int(sure);
      session.Reset();
      const auto result = session.Generate(prompt, options);
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_EQ(result->ids, expected);
    }
  }

  std::string path_;
  nlohmann::json goldens_;
};

TEST_P(AnswerGoldens, AnswersAndLogitsAreThoseOfTheReference) {
  const auto devices = TestDevices();
  if (devices.empty()) GTEST_SKIP() << "there is no device";
  for (const std::string& device : devices) {
    SCOPED_TRACE(device);
    EngineOptions options;
    options.device = device;
    options.context = 256;
    auto engine = Engine::Load(path_, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    Check(**engine, *engine, GetParam().tolerance);
  }
}

// Where the device has halves.
TEST_P(AnswerGoldens, InF16LogitsAreWithinTheGateOfF16) {
  int checked = 0;
  for (const std::string& device : TestDevices()) {
    SCOPED_TRACE(device);
    EngineOptions options;
    auto opened = OpenSharedDevice(device, options.device_options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    if (!(*opened)->info().target.f16) continue;
    options.shared_device = *opened;
    options.precision = Precision::kF16;
    options.context = 64;
    if ((*opened)->info().is_software) options.chunk_rows = {16};
    auto engine = Engine::Load(path_, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    EXPECT_EQ((*engine)->precision(), Precision::kF16);
    Check(**engine, *engine, AccuracyGate::F16().max_logit_difference);
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "no device has halves";
}

INSTANTIATE_TEST_SUITE_P(Models, AnswerGoldens, testing::Values(Case{"smollm2-135m", 0.05}, Case{"gemma3-270m", 0.07}),
                         [](const auto& info) { return info.index == 0 ? "SmolLm2" : "Gemma3"; });

}  // namespace
}  // namespace leeway::llm
