// Chat templates that are damaged, with a conversation of two turns: each ends with a prompt or an error in words, and what
// users say never becomes trusted. See import/file_fuzz.h for the program.

#include "import/file_fuzz.h"
#include "llm/chat_template.h"

namespace {

using leeway::llm::ChatMessage;
using leeway::llm::ChatTemplate;

// A word that no template of the corpus has.
constexpr std::string_view kSaid = "qzxjvkwyq";

void Read(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat_template = ChatTemplate::Parse(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!chat_template.ok()) {
    if (chat_template.error().code == leeway::Code::kInternal || chat_template.error().message.empty()) std::abort();
    return;
  }
  const std::vector<ChatMessage> messages = {
      {"system", "Be brief.", ""}, {"user", std::string(kSaid), ""}, {"assistant", "Yes.", ""}, {"user", "And?", ""}};
  const auto parts = chat_template->Render(
      messages,
      {.tools_json = "[{\"name\": \"f\"}]", .variables_json = "{\"enable_thinking\": false}", .seconds_since_1970 = 1});
  if (!parts.ok()) {
    if (parts.error().code == leeway::Code::kInternal || parts.error().message.empty()) std::abort();
    return;
  }
  for (const leeway::llm::PromptPart& part : *parts) {
    if (part.is_trusted && part.text.find(kSaid) != std::string::npos && source.find(kSaid) == std::string_view::npos)
      std::abort();
  }
}

std::vector<std::vector<std::byte>> Templates() {
  std::vector<std::vector<std::byte>> all;
  for (const std::string_view text : {
           std::string_view(
               "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
               "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
           std::string_view(
               "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] | trim + "
               "'\n\n' -%}{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set loop_messages = messages -%}{%- endif "
               "-%}{%- for m in loop_messages -%}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ "
               "raise_exception(\"turns\") }}{%- endif -%}{{ '<start_of_turn>' ~ m.role ~ (first if loop.first else '') }}{{ "
               "m['content'] | trim }}{{ '<end_of_turn>\n' }}{%- endfor -%}"),
           std::string_view(
               "{%- macro show(x, n=3) -%}{{ x | upper }}{{ n * 2 }}{%- endmacro -%}{% set ns = namespace(a=1, b=[]) %}{% for "
               "k, v in {'a': 1, 'b': [1, 2.5, none]}.items() %}{{ show(k) }}{{ v | tojson }}{% set ns.a = ns.a + 1 %}{% "
               "endfor %}{# comment #}{{ ns.a // 2 ** 3 }}{{ messages | length }}{{ 'x,y'.split(',') | join('-') }}{% if tools "
               "is defined and not tools is none %}{{ tools | tojson(indent=2) }}{% endif %}"),
           std::string_view(
               "{{ messages | map(attribute='role') | list }}{{ range(3) | list }}{{ strftime_now('%d %b %Y') }}{{ "
               "messages[-1].content[::-1] }}{{ 'abc' in 'xabcx' and 1 < 2 or false }}{% filter upper %}a{% endfilter %}"),
       }) {
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    all.emplace_back(bytes, bytes + text.size());
  }
  return all;
}

constexpr leeway::fuzz::Target kTarget = {"chat_template_fuzz", ".jinja", Read, Templates};

}  // namespace

LEEWAY_FUZZ_MAIN(kTarget)
