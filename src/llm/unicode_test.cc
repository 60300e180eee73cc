#include "llm/unicode.h"

#include <gtest/gtest.h>

namespace leeway::llm {
namespace {

TEST(Unicode, ReadsBackEveryCharacter) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendCharacter(text, c);
    const Character read = ReadCharacter(text, 0);
    ASSERT_TRUE(read.is_valid) << c;
    ASSERT_EQ(read.value, c);
    ASSERT_EQ(read.size_bytes, text.size());
    // Every shorter part could still become a character, and is none yet.
    for (size_t size = 1; size < text.size(); ++size) {
      ASSERT_TRUE(IsBeginningOfCharacter(std::string_view(text).substr(0, size))) << c;
    }
    ASSERT_FALSE(IsBeginningOfCharacter(text)) << c;
  }
}

TEST(Unicode, ReplacesEachLongestBeginningOnce) {
  const std::string r(kReplacement);
  EXPECT_EQ(ToValidUtf8("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(ToValidUtf8("\xC0\xAF"), r + r);          // overlong
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(ToValidUtf8("\xF0\x9F\x98"
                        "a"),
            r + "a");                                         // three bytes of four
  EXPECT_EQ(ToValidUtf8("\xF4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(ToValidUtf8("\xE2\x82"), r);
  EXPECT_EQ(ToValidUtf8("\xE2\xE2\x82\xAC"), r + "€");
  EXPECT_EQ(ToValidUtf8(""), "");
}

TEST(Unicode, ClassesAreThoseOfTheStandard) {
  for (uint32_t c : {0x09u, 0x0Bu, 0x0Du, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2003u, 0x2028u, 0x202Fu, 0x3000u}) {
    EXPECT_EQ(ClassOf(c), CharacterClass::kSpace) << c;
  }
  for (uint32_t c : {0x61u, 0xE9u, 0x1C5u, 0x2B0u, 0x3B1u, 0x5D0u, 0x4E2Du, 0x10330u}) {
    EXPECT_EQ(ClassOf(c), CharacterClass::kLetter) << c;
  }
  for (uint32_t c : {0x30u, 0xB2u, 0x661u, 0x2167u, 0x2460u, 0x1D7D9u}) EXPECT_EQ(ClassOf(c), CharacterClass::kNumber) << c;
  for (uint32_t c : {0x21u, 0x301u, 0x200Bu, 0x20ACu, 0x1F600u, 0xFEFFu, 0xFFFDu, 0x00u, 0x1Cu}) {
    EXPECT_EQ(ClassOf(c), CharacterClass::kOther) << c;
  }
}

TEST(Unicode, ComposesAndLeavesBrokenParts) {
  EXPECT_EQ(ToNfc("cafe\xCC\x81"), "caf\xC3\xA9");
  EXPECT_EQ(ToNfc("\xFF"
                  "e\xCC\x81\xE2\x82"),
            "\xFF\xC3\xA9\xE2\x82");
  EXPECT_EQ(ToNfc("plain"), "plain");
  EXPECT_EQ(ToNfc(std::string_view("a\0e\xCC\x81", 5)), std::string_view("a\0\xC3\xA9", 4));
}

}  // namespace
}  // namespace leeway::llm
