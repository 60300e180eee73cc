#include "runtime/program_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace leeway {
namespace {
namespace fs = std::filesystem;

struct CacheTest : testing::Test {
  void SetUp() override {
    folder = fs::path(testing::TempDir()) /
             ("leeway_cache_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  static std::vector<std::byte> Bytes(size_t count, int seed) {
    std::vector<std::byte> bytes(count);
    for (size_t i = 0; i < count; ++i) bytes[i] = std::byte(i * 7 + size_t(seed));
    return bytes;
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    if (fs::exists(folder)) {
      for (auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    }
    return files;
  }
  fs::path folder;
};

TEST_F(CacheTest, GivesBackWhatWasStored) {
  ProgramCache cache(folder.string());
  EXPECT_FALSE(cache.Load("key"));
  cache.Store("key", Bytes(1000, 1));
  cache.Store("other", Bytes(0, 2));
  ProgramCache second(folder.string());
  EXPECT_EQ(second.Load("key"), Bytes(1000, 1));
  EXPECT_EQ(second.Load("other"), Bytes(0, 2));
  EXPECT_FALSE(second.Load("third"));
  cache.Store("key", Bytes(10, 3));
  EXPECT_EQ(second.Load("key"), Bytes(10, 3));
  second.Drop("key");
  EXPECT_FALSE(cache.Load("key"));
}

TEST_F(CacheTest, DropsDamagedEntriesAtEveryLength) {
  ProgramCache cache(folder.string());
  cache.Store("key", Bytes(40, 1));
  ASSERT_EQ(Files().size(), 1u);
  const fs::path file = Files()[0];
  const auto full = fs::file_size(file);
  for (size_t length = 0; length < full; ++length) {
    cache.Store("key", Bytes(40, 1));
    fs::resize_file(file, length);
    EXPECT_FALSE(cache.Load("key")) << "cut to " << length;
    EXPECT_FALSE(fs::exists(file));
  }
  for (size_t at : {size_t(0), size_t(17), size_t(full - 1)}) {
    cache.Store("key", Bytes(40, 1));
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(long(at));
    stream.put('\x5a');
    stream.close();
    EXPECT_FALSE(cache.Load("key")) << "changed at " << at;
  }
}

TEST_F(CacheTest, StaysWithinItsBoundAndKeepsWhatWasUsedLast) {
  ProgramCache cache(folder.string(), 10000);
  for (int i = 0; i < 30; ++i) {
    cache.Store("key" + std::to_string(i), Bytes(900, i));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    cache.Load("key0");
  }
  cache.Evict();
  uint64_t total = 0;
  for (auto& file : Files()) total += fs::file_size(file);
  EXPECT_LE(total, 10000u);
  EXPECT_GE(total, 5000u);
  EXPECT_TRUE(cache.Load("key0"));
  EXPECT_FALSE(cache.Load("key1"));
  EXPECT_TRUE(cache.Load("key29"));
}

TEST_F(CacheTest, WithoutAFolderNothingIsKept) {
  ProgramCache cache("");
  cache.Store("key", Bytes(10, 1));
  EXPECT_FALSE(cache.Load("key"));
  cache.Evict();
}

TEST_F(CacheTest, AFolderThatCannotBeMadeIsNoError) {
  std::ofstream(folder.string()) << "a file in the way";
  ProgramCache cache((folder / "below").string());
  cache.Store("key", Bytes(10, 1));
  EXPECT_FALSE(cache.Load("key"));
}

TEST_F(CacheTest, ManyThreadsMayUseOneFolder) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ProgramCache cache(folder.string());
      for (int i = 0; i < 50; ++i) {
        const std::string key = "key" + std::to_string(i % 5);
        auto bytes = cache.Load(key);
        EXPECT_TRUE(!bytes || *bytes == Bytes(3000, i % 5));
        cache.Store(key, Bytes(3000, i % 5));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(Files().size(), 5u);
}

}  // namespace
}  // namespace leeway
