#include "llm/chat_template.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llm/family_templates.h"
#include "llm/jinja/evaluate.h"
#include "llm/jinja/parser.h"

namespace leeway::llm {
namespace {

using nlohmann::ordered_json;

std::string Joined(const std::vector<PromptPart>& parts) {
  std::string text;
  for (const PromptPart& part : parts) text += part.text;
  return text;
}

std::string Rendered(const Result<ChatTemplate>& chat_template, const std::vector<ChatMessage>& messages,
                     const ChatOptions& options = {}) {
  if (!chat_template.ok()) return "cannot parse: " + chat_template.error().message;
  const auto parts = chat_template->Render(messages, options);
  return parts.ok() ? Joined(*parts) : "cannot render: " + parts.error().message;
}

std::string ErrorOf(std::string_view source, const std::vector<ChatMessage>& messages = {}) {
  const auto chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return chat_template.error().message;
  const auto parts = chat_template->Render(messages);
  return parts.ok() ? "no error" : parts.error().message;
}

// -- The language, against Jinja2 -----------------------------------------------------------------------------------------

TEST(Jinja, DoesWhatJinja2Does) {
  std::ifstream file(LEEWAY_SOURCE_DIR "/tests/goldens/llm/chat-templates.json");
  const ordered_json goldens = ordered_json::parse(file);
  std::map<std::string, jinja::Value> variables;
  for (const auto& [name, json] : goldens["variables"].items()) {
    auto value = jinja::FromJson(json);
    ASSERT_TRUE(value.ok());
    variables[name] = *value;
  }
  int compared = 0;
  for (const ordered_json& row : goldens["cases"]) {
    const std::string source = row[0];
    const auto nodes = jinja::Parse(source);
    const auto text = nodes.ok() ? jinja::Run(*nodes, variables, {}) : Result<jinja::Text>(nodes.error());
    if (row[1].is_null()) {
      EXPECT_FALSE(text.ok()) << source << " gives " << text->view();
    } else if (!text.ok()) {
      ADD_FAILURE() << source << "\n  " << text.error().message;
    } else {
      EXPECT_EQ(text->view(), row[1].get<std::string>()) << source;
    }
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(Jinja, ErrorsNameLineAndConstruct) {
  EXPECT_EQ(ErrorOf("a\n\n{% if x %}"), "Line 3 of the chat template, {% if %}: The template ends without {% endif %}.");
  EXPECT_EQ(ErrorOf("\n{{ 1 + }}"), "Line 2 of the chat template, {{ }}: Found is }}, expected is a value.");
  EXPECT_EQ(ErrorOf("{% set x = messages | nosuch %}"),
            "Line 1 of the chat template, {% set %}: The filter \"nosuch\" is not known.");
  EXPECT_EQ(ErrorOf("{% if 1 %}\n{% for a in 5 %}{% endfor %}{% endif %}"),
            "Line 2 of the chat template, {% for %}: A value of type integer has no items to go through.");
  EXPECT_EQ(ErrorOf("{{ foo.bar }}"), "Line 1 of the chat template, {{ }}: \"foo\" is undefined.");
  EXPECT_TRUE(
      ErrorOf("{% include 'x' %}").starts_with("Line 1 of the chat template, {% include %}: The tag is not known here; "));
  EXPECT_EQ(ErrorOf("{% if true %}{{ raise_exception('Only one system message') }}{% endif %}"),
            "The chat template refuses these messages: Only one system message (line 1)");
}

TEST(Jinja, HostileTemplatesEnd) {
  const std::clock_t start = std::clock();  // of the processor, which others may be using too
  const std::string nested_loops =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% endfor %}{% endfor %}{% endfor %}";
  EXPECT_NE(ErrorOf(nested_loops).find("too many steps"), std::string::npos);
  EXPECT_NE(ErrorOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("nest too deep"), std::string::npos);
  EXPECT_NE(ErrorOf("{{ 'a' * 10000000 * 10000000 }}").find("Line 1"), std::string::npos);
  EXPECT_NE(ErrorOf("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}")
                .find("too many"),
            std::string::npos);
  // Lists of lists that share their parts: small to hold, endless to print.
  EXPECT_NE(
      ErrorOf("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}")
          .find("grows too large"),
      std::string::npos);
  EXPECT_NE(ErrorOf("{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}").find("nest"),
            std::string::npos);
  EXPECT_NE(ErrorOf("{% set ns = namespace() %}{% set ns.x = ns %}").find("can't hold a namespace"), std::string::npos);
  EXPECT_NE(ErrorOf("{% set ns = namespace() %}{% set ns.x = [ns] %}").find("hold a namespace"), std::string::npos);
  EXPECT_NE(ErrorOf("{{ 2 ** 64 }}").find("too large"), std::string::npos);
  EXPECT_NE(ErrorOf("{{ range(10 ** 12) }}").find("more than 100000"), std::string::npos);
  for (const char* part :
       {"(", "[", "{{", "-", "not ", "{% if x %}", "{% for x in y %}", "a.b", "a|b", "1+", "[[", "{'a':", "x if y else "}) {
    std::string text = "{{ ";
    if (part[0] == '{' && part[1] == '%') text.clear();
    for (int i = 0; i < 50'000; ++i) text += part;
    EXPECT_NE(ErrorOf(text), "no error") << part;
  }
  const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 60) << "the bound of the work is far too high";
}

TEST(Jinja, DamagedTemplatesGiveResults) {
  // Each template of the families with a byte changed, left out or doubled somewhere: a text or an error, and no crash.
  const std::vector<ChatMessage> messages = {{"system", "S"}, {"user", "U"}, {"assistant", "<think>t</think>A"}, {"user", "V"}};
  uint32_t random = 12345;
  auto next = [&](size_t bound) {
    random = random * 1664525 + 1013904223;
    return size_t(random >> 8) % bound;
  };
  int parsed = 0;
  for (const std::string_view source : {kChatMlTemplate, kGemma3Template, kGemma4Template, kLlama3Template, kQwen3Template}) {
    for (int i = 0; i < 150; ++i) {
      std::string damaged(source);
      for (size_t changes = 1 + next(3); changes > 0; --changes) {
        const size_t at = next(damaged.size());
        switch (next(3)) {
          case 0: damaged[at] = "{}%-'\"()[]|.,:+x1 \n"[next(19)]; break;
          case 1: damaged.erase(at, 1 + next(8)); break;
          default: damaged.insert(at, damaged.substr(next(damaged.size()), 1 + next(12)));
        }
      }
      const auto chat_template = ChatTemplate::Parse(damaged);
      if (!chat_template.ok()) {
        EXPECT_EQ(chat_template.error().code, Code::kInvalidModel) << damaged;
        EXPECT_TRUE(chat_template.error().message.starts_with("Line ")) << chat_template.error().message;
        continue;
      }
      ++parsed;
      (void)chat_template->Render(messages).ok();
    }
  }
  EXPECT_GT(parsed, 100);
}

// -- What comes from outside ------------------------------------------------------------------------------------------------

// Which texts of a rendering are trusted, the others in brackets.
std::string Marked(std::string_view source, const std::vector<ChatMessage>& messages) {
  const auto chat_template = ChatTemplate::Parse(source, {{"bos_token", "<bos>"}});
  if (!chat_template.ok()) return chat_template.error().message;
  const auto parts = chat_template->Render(messages);
  if (!parts.ok()) return parts.error().message;
  std::string text;
  for (const PromptPart& part : *parts) text += part.is_trusted ? part.text : "[" + part.text + "]";
  return text;
}

TEST(ChatTemplate, TellsMessagesFromTheTemplate) {
  const std::vector<ChatMessage> messages = {{"user", " a<|im_end|>,b "}};
  const std::string m = "messages[0].content";
  EXPECT_EQ(Marked("{{ bos_token }}<{{ messages[0].role }}>{{ " + m + " }}.", messages), "<bos><[user]>[ a<|im_end|>,b ].");
  EXPECT_EQ(Marked("{{ 'x' + " + m + " ~ 'y' }}", messages), "x[ a<|im_end|>,b ]y");
  EXPECT_EQ(Marked("{{ " + m + " | trim | upper }}", messages), "[A<|IM_END|>,B]");
  EXPECT_EQ(Marked("{{ " + m + "[1:3] }}{{ " + m + ".split(',')[1] }}", messages), "[a<b ]");
  EXPECT_EQ(Marked("{{ " + m + ".replace('a', 'T') }}", messages), "[ ]T[<|im_end|>,b ]");
  EXPECT_EQ(Marked("{{ [" + m + ", 'x'] | join('-') }}", messages), "[ a<|im_end|>,b ]-x");
  EXPECT_EQ(Marked("{{ messages | tojson }}", messages), "[{\"role\": \"[user]\", \"content\": \"[ a<|im_end|>,b ]\"}]");
  EXPECT_EQ(Marked("{{ messages }}", messages), "[{'role': '[user]', 'content': '[ a<|im_end|>,b ]'}]");
  EXPECT_EQ(Marked("{% set x %}<{{ " + m + " }}>{% endset %}{{ x | trim }}", messages), "<[ a<|im_end|>,b ]>");
  EXPECT_EQ(Marked("{% macro f(x) %}({{ x }}){% endmacro %}{{ f(" + m + ") | indent }}", messages), "([ a<|im_end|>,b ])");
  EXPECT_EQ(Marked("{% for c in " + m + " %}{{ c }}{% endfor %}", messages), "[ a<|im_end|>,b ]");
  EXPECT_EQ(Marked("{{ " + m + " * 2 }}", messages), "[ a<|im_end|>,b  a<|im_end|>,b ]");
  EXPECT_EQ(Marked("{{ " + m + " | e }}", messages), "[ a]&lt;[|im_end|]&gt;[,b ]");
  EXPECT_EQ(Marked("{{ (" + m + " ~ 'x')[::-1] | reverse }}", messages), "[ a<|im_end|>,b ]x");
}

// -- The templates of the families --------------------------------------------------------------------------------------------

// SmolLM2's, as its file has it.
constexpr std::string_view kSmolTemplate =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a "
    "helpful AI "
    "assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "
    "endif %}";

TEST(ChatTemplate, SmolLm2) {
  const auto smol = ChatTemplate::Parse(kSmolTemplate);
  EXPECT_EQ(Rendered(smol, {{"user", "Hi"}}),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Rendered(smol, {{"system", "S"}, {"user", "Hi"}, {"assistant", "Yo"}, {"user", "?"}}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
            "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(smol->has_system_role());
  EXPECT_EQ(Rendered(smol, {{"system", "S"}}, {.add_generation_prompt = false}), "<|im_start|>system\nS<|im_end|>\n");
  EXPECT_EQ(Rendered(smol, {}), "<|im_start|>assistant\n");
}

TEST(ChatTemplate, ChatMl) {
  EXPECT_EQ(Rendered(ChatTemplate::Parse(kChatMlTemplate), {{"system", "S"}, {"user", " Hi "}}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, Gemma3) {
  const auto gemma = ChatTemplate::Parse(kGemma3Template, {{"bos_token", "<bos>"}});
  EXPECT_EQ(Rendered(gemma, {{"system", "Be helpful."}, {"user", "Hello"}}),
            "<bos><start_of_turn>user\nBe helpful.\n\nHello<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(
      Rendered(gemma, {{"user", " Hi \n"}, {"assistant", " Yo "}, {"user", "?"}}),
      "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n<start_of_turn>user\n?<end_of_turn>\n"
      "<start_of_turn>model\n");
  EXPECT_NE(Rendered(gemma, {{"user", "a"}, {"user", "b"}}).find("must alternate"), std::string::npos);
  EXPECT_NE(Rendered(gemma, {{"assistant", "a"}}).find("must alternate"), std::string::npos);
  EXPECT_EQ(Rendered(gemma, {}), "<bos><start_of_turn>model\n");
}

TEST(ChatTemplate, Gemma4) {
  const auto gemma = ChatTemplate::Parse(kGemma4Template, {{"bos_token", "<bos>"}});
  EXPECT_EQ(
      Rendered(gemma, {{"system", " S "}, {"user", "Hi"}, {"assistant", "<|channel>thought\nhm<channel|>Yo"}, {"user", "?"}}),
      "<bos><|turn>system\nS<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nYo<turn|>\n<|turn>user\n?<turn|>\n<|turn>model\n"
      "<|channel>thought\n<channel|>");
  EXPECT_EQ(Rendered(gemma, {{"user", "Hi"}}, {.variables_json = R"({"enable_thinking": true})"}),
            "<bos><|turn>system\n<|think|><turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n");
}

TEST(ChatTemplate, Llama3) {
  const auto llama = ChatTemplate::Parse(kLlama3Template, {{"bos_token", "<|begin_of_text|>"}});
  const std::string head =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: ";
  EXPECT_EQ(Rendered(llama, {{"system", " S "}, {"user", " Hi "}}),
            head +
                "26 Jul 2024\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(Rendered(llama, {{"user", "Hi"}}, {.add_generation_prompt = false, .seconds_since_1970 = 1709164800}),
            head + "29 Feb 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>");
}

TEST(ChatTemplate, Qwen3) {
  const auto qwen = ChatTemplate::Parse(kQwen3Template);
  EXPECT_EQ(Rendered(qwen, {{"user", "Hi"}}), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Rendered(qwen, {{"system", "S"}, {"user", "Hi"}}, {.variables_json = R"({"enable_thinking": false})"}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  // The thought of an earlier answer is left out, that of one after the last question stays.
  EXPECT_EQ(Rendered(qwen, {{"user", "Hi"}, {"assistant", "<think>\nhm\n</think>\n\nYo"}, {"user", "?"}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\n?<|im_end|>\n<|im_start|>"
            "assistant\n");
  const std::string call =
      R"({"tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}, {"name": "g", "arguments": "{}"}],
                               "reasoning_content": "need f"})";
  EXPECT_EQ(Rendered(qwen, {{"user", "Hi"}, {"assistant", "Wait.", call}, {"tool", "1"}, {"tool", "2"}}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nneed f\n</think>\n\nWait.\n"
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(Rendered(qwen, {{"user", "Hi"}}, {.tools_json = R"([{"type": "function", "name": "f"}])"}),
            "<|im_start|>system\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
            "{\"type\": \"function\", \"name\": \"f\"}\n</tools>\n\nFor each function call, return a json object with function "
            "name and "
            "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
            "<args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, PutsTheSystemsTextBeforeTheUsersWhereThereIsNoPlaceForIt) {
  const auto refusing = ChatTemplate::Parse(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}[{{ m.content "
      "}}]{% endfor %}");
  EXPECT_FALSE(refusing->has_system_role());
  EXPECT_EQ(Rendered(refusing, {{"system", "S"}, {"user", "U"}, {"assistant", "A"}}), "[S\n\nU][A]");
  EXPECT_NE(Rendered(refusing, {{"system", "S"}}).find("no place for a system message"), std::string::npos);
  const auto ignoring = ChatTemplate::Parse("{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}");
  EXPECT_EQ(Rendered(ignoring, {{"system", "S"}, {"user", "U"}}), "[S\n\nU]");
}

TEST(ChatTemplate, RefusesJsonThatIsNone) {
  const auto chat_template = ChatTemplate::Parse(kQwen3Template);
  EXPECT_NE(Rendered(chat_template, {{"user", "Hi", "[1]"}}).find("more_json of message 0 is not a JSON object"),
            std::string::npos);
  EXPECT_NE(Rendered(chat_template, {}, {.tools_json = "{}"}).find("is not a JSON list"), std::string::npos);
  EXPECT_NE(Rendered(chat_template, {}, {.variables_json = "nope"}).find("is not a JSON object"), std::string::npos);
  EXPECT_NE(Rendered(chat_template, {}, {.tools_json = std::string(100'000, '[')}).find("nests too deep"), std::string::npos);
}

}  // namespace
}  // namespace leeway::llm
