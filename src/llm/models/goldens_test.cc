// Models of the cache on the CPU references against goldens that llama.cpp made.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "find_model.h"
#include "import/llm_file.h"
#include "llm/models/test_session.h"

namespace leeway::llm {
namespace {

struct Golden {
  const char* model;
  const char* entry;
  double allowed;
  int steps;
};

class Goldens : public testing::TestWithParam<Golden> {};

TEST_P(Goldens, LogitsAndGreedyIds) {
  const Golden& golden = GetParam();
  const auto path = SharedFolder() / "goldens/llm" / StrCat(golden.model, "-logits.json");
  const auto model_path = FindModel(StrCat(golden.model, ".gguf"));
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "There is no " << path;
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
  TestSession session(*model, {.context = 64, .max_rows = 16});
  const std::vector<float> logits = session.Prefill(ids, 16);
  const auto best = (*entry)["f32"]["ids"].get<std::vector<int>>();
  const auto want = (*entry)["f32"]["logits"].get<std::vector<double>>();
  ASSERT_EQ(int(logits.size()), model->config.vocabulary);
  for (size_t i = 0; i < best.size(); ++i) EXPECT_NEAR(logits[size_t(best[i])], want[i], golden.allowed) << "token " << best[i];
  EXPECT_EQ(Best(logits), best[0]);
  // The text that goes on from the same prompt, if there is one, where the best is ahead by more than the error.
  const auto texts =
      nlohmann::json::parse(std::ifstream(SharedFolder() / "goldens/llm" / StrCat(golden.model, "-text.json")))["entries"];
  const auto text =
      std::find_if(texts.begin(), texts.end(), [&](const auto& e) { return e["prompt_ids"] == (*entry)["prompt_ids"]; });
  if (text == texts.end()) return;
  const auto greedy = (*text)["f32"]["ids"].get<std::vector<int>>();
  const auto margins = (*text)["f32"]["margins"].get<std::vector<double>>();
  std::vector<float> now = logits;
  for (int i = 0; i < golden.steps && size_t(i) < greedy.size(); ++i) {
    if (margins[size_t(i)] > golden.allowed) { ASSERT_EQ(Best(now), greedy[size_t(i)]) << "step " << i; }
    session.SetTokens({greedy[size_t(i)]}, int64_t(ids.size()) + i);
    if (i + 1 < golden.steps) now = session.Run(int64_t(ids.size()) + i, 1, 1, true);
  }
}

INSTANTIATE_TEST_SUITE_P(, Goldens,
                         testing::Values(Golden{"smollm2-135m", "plain", 0.05, 3}, Golden{"gemma3-270m", "plain", 0.07, 2}),
                         [](const auto& info) { return std::string(info.param.model).substr(0, 6); });

}  // namespace
}  // namespace leeway::llm
