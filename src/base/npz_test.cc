#include "base/npz.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace leeway {
namespace {

std::vector<std::byte> Raw(std::string_view text) {
  auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

NpyArray MakeArray(std::string descr, std::vector<int64_t> shape, uint32_t seed) {
  NpyArray array{std::move(descr), std::move(shape), {}};
  array.bytes.resize(size_t(array.element_count()) * NpyItemSize(array.descr));
  std::mt19937 random(seed);
  for (std::byte& b : array.bytes) b = std::byte(random() % 7);  // compressible
  return array;
}

std::vector<std::byte> Npy(std::string header, std::string_view data) {
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += char(header.size() & 255);
  text += char(header.size() >> 8);
  return Raw(text + header + std::string(data));
}

TEST(Npz, ArchivesReadBackAsWritten) {
  std::vector<std::pair<std::string, NpyArray>> arrays = {{"in0", MakeArray("<f4", {2, 3, 5}, 1)},
                                                          {"scalar", MakeArray("<i8", {}, 2)},
                                                          {"empty", MakeArray("<f2", {0, 4}, 3)},
                                                          {"row", MakeArray("|u1", {10007}, 4)},
                                                          {"name/with:marks", MakeArray("|b1", {3}, 5)}};
  for (bool compress : {false, true}) {
    auto bytes = WriteNpz(arrays, compress);
    ASSERT_TRUE(bytes.ok());
    auto read = ReadNpz(*bytes, "test");
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ((*read)[i].first, arrays[i].first);
      EXPECT_EQ((*read)[i].second.descr, arrays[i].second.descr);
      EXPECT_EQ((*read)[i].second.shape, arrays[i].second.shape);
      EXPECT_EQ((*read)[i].second.bytes, arrays[i].second.bytes);
    }
  }
}

TEST(Npz, EveryTruncationAndEveryChangedByteIsRefusedOrHarmless) {
  auto bytes = WriteNpz({{"a", MakeArray("<f4", {17}, 1)}, {"b", MakeArray("<i4", {3, 3}, 2)}});
  ASSERT_TRUE(bytes.ok());
  for (size_t n = 0; n < bytes->size(); ++n) EXPECT_FALSE(ReadNpz(std::span(*bytes).first(n), "cut").ok()) << n;
  for (size_t n = 0; n < bytes->size(); ++n) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = *bytes;
      damaged[n] ^= std::byte(1 << bit);
      auto read = ReadNpz(damaged, "damaged");
      if (!read.ok()) continue;
      for (const auto& [name, array] : *read)
        EXPECT_EQ(array.bytes.size(), size_t(array.element_count()) * NpyItemSize(array.descr));
    }
  }
}

TEST(Npy, OtherByteAndAxisOrdersAreTurned) {
  std::string data;
  for (int i = 0; i < 6; ++i) data += '\0', data += char(i);
  auto read = ReadNpy(Npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", data), "test");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->descr, "<i2");
  std::vector<int16_t> values(6);
  std::memcpy(values.data(), read->bytes.data(), 12);
  EXPECT_EQ(values, (std::vector<int16_t>{0, 2, 4, 1, 3, 5}));
}

TEST(Npy, RefusalsSayWhatIsWrong) {
  auto message = [](const std::vector<std::byte>& bytes) {
    auto read = ReadNpy(bytes, "x.npy");
    return read.ok() ? "accepted" : read.error().message;
  };
  EXPECT_NE(message(Raw("not an array file")).find("does not begin"), std::string::npos);
  EXPECT_NE(message(Npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "12345678")).find("\"|O\""),
            std::string::npos);
  EXPECT_NE(message(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "1234")).find("needs 12"),
            std::string::npos);
  EXPECT_NE(message(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "")).find("too large"),
            std::string::npos);
  EXPECT_NE(message(Npy("{'descr': '<f4', 'shape': (1,)}", "1234")).find("lacks"), std::string::npos);
  EXPECT_NE(message(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "")).find("extent"), std::string::npos);
}

}  // namespace
}  // namespace leeway
