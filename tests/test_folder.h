// A folder of its own for each test, gone afterwards.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/strings.h"

namespace leeway {

class TestFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / StrCat("leeway_", testing::UnitTest::GetInstance()->random_seed(),
                                                                 "_", test->test_suite_name(), "_", test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, std::span<const std::byte> bytes) {
    ASSERT_TRUE(WriteFileAtomically((folder_ / name).string(), bytes).ok());
  }
  void Write(const std::string& name, const std::string& text) { Write(name, std::as_bytes(std::span(text))); }

  std::filesystem::path folder_;
};

}  // namespace leeway
