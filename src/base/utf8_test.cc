#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace leeway {
namespace {

// By the definition: the character that the bits spell must be the one whose shortest form this is.
bool IsCharacter(const std::string& bytes) {
  const size_t n = bytes.size();
  auto byte = [&](size_t i) { return uint32_t(uint8_t(bytes[i])); };
  const uint32_t lead = byte(0);
  uint32_t value = n == 1 ? lead : n == 2 ? lead & 0x1f : n == 3 ? lead & 0x0f : lead & 0x07;
  const bool lead_fits = n == 1 ? lead < 0x80 : n == 2 ? lead >> 5 == 6 : n == 3 ? lead >> 4 == 14 : lead >> 3 == 30;
  if (!lead_fits) return false;
  for (size_t i = 1; i < n; ++i) {
    if (byte(i) >> 6 != 2) return false;
    value = value << 6 | (byte(i) & 0x3f);
  }
  const size_t shortest = value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
  return shortest == n && value <= 0x10ffff && (value < 0xd800 || value > 0xdfff);
}

TEST(Utf8, FollowsTheDefinitionForAllFirstTwoBytes) {
  for (int a = 0; a < 256; ++a) {
    EXPECT_EQ(IsUtf8(std::string{char(a)}), IsCharacter(std::string{char(a)})) << a;
    for (int b = 0; b < 256; ++b) {
      const std::string two{char(a), char(b)};
      EXPECT_EQ(IsUtf8(two), IsCharacter(two) || (a < 0x80 && b < 0x80)) << a << " " << b;
      for (char last : {'\x7f', '\x80', '\xbf', '\xc0'}) {
        const std::string three = two + last, four = three + '\x85';
        // What can also be several characters one after another is known from above.
        if (a >= 0xE0) { EXPECT_EQ(IsUtf8(three), IsCharacter(three)) << a << " " << b; }
        if (a >= 0xF0) { EXPECT_EQ(IsUtf8(four), IsCharacter(four)) << a << " " << b; }
      }
    }
  }
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82z"));
}

}  // namespace
}  // namespace leeway
