#include "cli/inspect_llm.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "import/test_files.h"

namespace leeway::cli {
namespace {

std::shared_ptr<const LlmFile> TestFile() {
  auto gguf = GgufFile::Read(MappedFile::FromBytes(TestGguf(), "test.gguf"));
  return *LlmFile::FromGguf(*gguf);
}

TEST(InspectLlm, ReportsTypesAndTensors) {
  const nlohmann::json report = LlmFileReport(*TestFile());
  EXPECT_EQ(report["architecture"], "llama");
  EXPECT_EQ(report["format"], "gguf");
  EXPECT_EQ(report["format_version"], 3);
  EXPECT_EQ(report["metadata"]["llama.block_count"], 2);
  EXPECT_EQ(report["metadata"]["tokenizer.ggml.tokens"].size(), 4u);
  EXPECT_TRUE(report["metadata"]["test.large"].is_null());
  EXPECT_EQ(report["tensors"].size(), 5u);
  EXPECT_EQ(report["tensors"][0]["name"], "token_embd.weight");
  EXPECT_EQ(report["tensors"][0]["dtype"], "q8_0");
  EXPECT_EQ(report["tensors"][0]["shape"], (std::vector<int>{4, 32}));
  EXPECT_EQ(report["types"]["q8_0"]["bytes"], 4 * 34);
  EXPECT_EQ(report["types"]["q4_0"]["elements"], 32 * 32);
  EXPECT_EQ(report["parameters"], 4 * 32 + 32 * 32 + 16 * 32 + 256 + 32);
}

TEST(InspectLlm, TextHasALineForEachAndCutsLongOnes) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.String("long", std::string(199, 'x') + "\xC3\xA9 and more");
  writer.Strings("vocabulary", std::vector<std::string>(1000, "t"));
  writer.Number("third", 0.1f);
  writer.Tensor("w", TestGgufTensor(DType::kQ8_0, {2, 32}));
  auto gguf = GgufFile::Read(MappedFile::FromBytes(writer.Finish(), "test.gguf"));
  ASSERT_TRUE(gguf.ok());
  const std::string text = LlmFileText(**LlmFile::FromGguf(*gguf));
  EXPECT_NE(text.find("gguf version 3, architecture llama"), std::string::npos) << text;
  EXPECT_NE(text.find("long: \"" + std::string(199, 'x') + "...\n"), std::string::npos) << text;
  EXPECT_NE(text.find("vocabulary: \"array of 1000 string\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find("third: 0.1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("8.50"), std::string::npos) << text;  // bits of an element of q8_0
}

}  // namespace
}  // namespace leeway::cli
