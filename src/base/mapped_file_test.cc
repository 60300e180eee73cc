#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstring>

namespace leeway {
namespace {

std::vector<std::byte> Raw(std::string_view text) {
  auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

TEST(MappedFile, ShowsWhatWasWrittenAndWhatReplacedIt) {
  std::string path = testing::TempDir() + "/mapped_file_test";
  for (std::string text : {"first", "", "a longer second text"}) {
    ASSERT_TRUE(WriteFileAtomically(path, Raw(text)).ok());
    auto file = MappedFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>((*file)->bytes().data()), (*file)->bytes().size()), text);
  }
}

TEST(MappedFile, NamesTheFileThatIsMissing) {
  auto file = MappedFile::Open("/no/such/model.tflite");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, Code::kNotFound);
  EXPECT_NE(file.error().message.find("/no/such/model.tflite"), std::string::npos);
  auto folder = MappedFile::Open(testing::TempDir());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, Code::kIo);
}

TEST(MappedFile, FromBytesKeepsThem) {
  auto file = MappedFile::FromBytes(Raw("bytes"), "memory");
  EXPECT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(file->path(), "memory");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->bytes().data()) % 16, 0u);
}

}  // namespace
}  // namespace leeway
