// The fusions of decoding: the same tokens and caches as with fine operators, in as few dispatches as they promise.
#include "llm/decode_stages.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/passes/passes.h"
#include "llm/models/random_model.h"
#include "llm/models/test_session.h"

namespace leeway::llm {
namespace {

shader::Target LargeGpu() {
  shader::Target target = shader::TypicalTarget(shader::Language::kWgsl);
  target.subgroups = true;
  target.subgroup_min = target.subgroup_max = 32;
  target.packed_dot = true;
  target.max_storage_buffers = 16;
  target.max_invocations = 1024;
  target.max_workgroup_bytes = 49152;
  return target;
}

shader::Target Cpu() {
  shader::Target target = shader::TypicalTarget(shader::Language::kOpenClC);
  target.is_software = true;
  return target;
}

Tiny TinyOf(const char* architecture) {
  Tiny tiny;
  tiny.architecture = architecture;
  tiny.width = 64, tiny.heads = 4, tiny.kv_heads = 2, tiny.head_size = 32, tiny.inner = 192, tiny.vocabulary = 300;
  tiny.type = DType::kQ4_0;
  return tiny;
}

std::map<std::string, int> CountOps(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) ++counts[node.op->name];
  return counts;
}

class Families : public testing::TestWithParam<const char*> {};

TEST_P(Families, FiveOperatorsALayer) {
  const Tiny tiny = TinyOf(GetParam());
  auto model = MakeModel(RandomFile(tiny, 5));
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const shader::Target& target : {LargeGpu(), Cpu()}) {
    SCOPED_TRACE(target.is_software);
    auto graph = BuildGraph(*model, {.rows = 1, .context = 40, .max_rows = 8, .sample = true});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    auto made = FuseDecodeStages(*graph, target, {.greedy = true, .int8 = true});
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Status status = Verify(*graph);
    ASSERT_TRUE(status.ok()) << status.error().message << Format(*graph);
    ASSERT_TRUE(RunPasses(*graph, {}).ok());
    auto counts = CountOps(*graph);
    EXPECT_EQ(counts["decode_linear"], 4 * tiny.layers) << Format(*graph);
    EXPECT_EQ(counts["decode_attention"], tiny.layers);
    EXPECT_EQ(counts["decode_greedy"], 1);
    EXPECT_EQ(int(graph->nodes.size()), 5 * tiny.layers + 2) << Format(*graph);  // and embed_tokens
  }
}

TEST_P(Families, TheSameTokensAndCaches) {
  auto model = MakeModel(RandomFile(TinyOf(GetParam()), 6));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const StageShape shape{.context = 24, .max_rows = 8};
  TestSession fine(*model, shape), fused(*model, shape);
  const std::vector<int> prompt = {3, 250, 17, 4, 99};
  for (TestSession* session : {&fine, &fused}) {
    session->SetTokens(prompt);
    session->Run(0, 4, 8, false);
  }
  auto change = [&](Graph& graph) {
    auto made = FuseDecodeStages(graph, LargeGpu(), {.greedy = true});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_GT(*made, 8);
  };
  fine.Run(4, 1, 1, false, true);
  fused.Run(4, 1, 1, false, true, change);
  for (int i = 0; i < 20; ++i) {  // beyond the end of the context, where nothing changes any more
    fine.Run(-1, 0, 1, false, true);
    fused.Run(-1, 0, 1, false, true, change);
  }
  for (int64_t position = 0; position <= 24; ++position) EXPECT_EQ(fine.Token(position), fused.Token(position)) << position;
  for (const char* name : {"step", "k.0", "v.1"}) {
    const HostTensor &a = fine.state(name), &b = fused.state(name);
    for (int64_t i = 0; i < a.element_count(); ++i) ASSERT_NEAR(a.Get(i), b.Get(i), 1e-4) << name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(DecodeStages, Families, testing::Values("llama", "qwen3", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DecodeStages, WithoutSubgroupsNothingIsFused) {
  auto model = MakeModel(RandomFile(TinyOf("llama"), 7));
  ASSERT_TRUE(model.ok());
  auto graph = BuildGraph(*model, {.rows = 1, .context = 40, .max_rows = 8, .sample = true});
  ASSERT_TRUE(graph.ok());
  const size_t before = graph->nodes.size();
  auto made = FuseDecodeStages(*graph, shader::MinimalWgslTarget(), {.greedy = true});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(*made, 0);
  EXPECT_EQ(graph->nodes.size(), before);
}

}  // namespace
}  // namespace leeway::llm
