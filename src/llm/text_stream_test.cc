#include "llm/text_stream.h"

#include <gtest/gtest.h>

namespace leeway::llm {
namespace {

// "t:" before thoughts, "a:" before answers; the text cut into pieces of `size` bytes.
std::string Split(std::string_view text, size_t size, bool starts_in_thought = false) {
  ThoughtSplitter splitter("<think>", "</think>", starts_in_thought);
  std::vector<ThoughtSplitter::Piece> all;
  auto take = [&](std::vector<ThoughtSplitter::Piece> pieces) {
    for (auto& piece : pieces) {
      EXPECT_FALSE(piece.text.empty());
      if (!all.empty() && all.back().is_thought == piece.is_thought) {
        all.back().text += piece.text;
      } else {
        all.push_back(piece);
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += size) take(splitter.Add(text.substr(at, size)));
  take(splitter.Finish());
  std::string out;
  for (const auto& piece : all) out += (piece.is_thought ? "t:" : "a:") + piece.text + ";";
  return out;
}

TEST(ThoughtSplitter, TellsThoughtsFromAnswersHoweverTheTextIsCut) {
  struct Row {
    std::string_view text, expected;
    bool starts_in_thought = false;
  };
  const Row rows[] = {
      {"", ""},
      {"Hello", "a:Hello;"},
      {"  Hello", "a:  Hello;"},
      {"<think>\nhm, 1 < 2\n</think>\n\nHello\n", "t:hm, 1 < 2;a:Hello\n;"},
      {"<think>a</think><think>b</think>c", "t:ab;a:c;"},
      {"\n<think></think>\n\nx", "a:x;"},
      {"<thin", "a:<thin;"},
      {"<thinking>", "a:<thinking>;"},
      {"x <think>y</think>", "a:x <think>y</think>;"},
      {"<think>never ends\n</thin", "t:never ends\n</thin;"},
      {"<think>a</think>b</think>", "t:a;a:b</think>;"},
      {"hm\n</think>\n\nHello", "t:hm;a:Hello;", true},
      {"<think>a\n\nb</think> \n", "t:a\n\nb;"},
      {"<think>日本</think>é", "t:日本;a:é;"},
  };
  for (const Row& row : rows) {
    for (size_t size = 1; size <= row.text.size() + 1; ++size) {
      EXPECT_EQ(Split(row.text, size, row.starts_in_thought), row.expected) << row.text << " in pieces of " << size;
    }
  }
}

TEST(ThoughtSplitter, ShowsTextAsSoonAsItIsCertain) {
  ThoughtSplitter splitter("<think>", "</think>");
  using Pieces = std::vector<ThoughtSplitter::Piece>;
  EXPECT_EQ(splitter.Add("<thi"), Pieces());
  EXPECT_EQ(splitter.Add("nk>one"), (Pieces{{true, "one"}}));
  EXPECT_TRUE(splitter.is_in_thought());
  EXPECT_EQ(splitter.Add("\n</th"), Pieces());
  EXPECT_EQ(splitter.Add("at"), (Pieces{{true, "\n</that"}}));
  EXPECT_EQ(splitter.Add("</think> two"), (Pieces{{false, "two"}}));
  EXPECT_EQ(splitter.Add(" three"), (Pieces{{false, " three"}}));
}

TEST(StopWords, EndTheTextAndNeverShowABeginning) {
  for (size_t size = 1; size < 20; ++size) {
    StopWords stop({"END", "\n\nUser:", ""});
    const std::string_view text = "Hello\n\nUsual ENough\n\nUser: more END";
    std::string shown;
    for (size_t at = 0; at < text.size(); at += size) {
      shown += stop.Add(text.substr(at, size));
      EXPECT_TRUE(std::string_view("Hello\n\nUsual ENough").starts_with(shown)) << shown;
    }
    EXPECT_TRUE(stop.is_stopped());
    shown += stop.Finish();
    EXPECT_EQ(shown, "Hello\n\nUsual ENough");
  }
  StopWords stop({"END"});
  EXPECT_EQ(stop.Add("xEN"), "x");
  EXPECT_EQ(stop.Finish(), "EN");
}

}  // namespace
}  // namespace leeway::llm
