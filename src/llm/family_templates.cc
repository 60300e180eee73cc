#include "llm/family_templates.h"

namespace leeway::llm {

const std::string_view kChatMlTemplate = R"({%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

// The system's text goes in front of the first user's: Gemma 3 has no turn for it.
const std::string_view kGemma3Template = R"({{- bos_token -}}
{%- set system, turns = '', messages -%}
{%- if messages and messages[0].role == 'system' -%}
  {%- set system, turns = messages[0].content + '\n\n', messages[1:] -%}
{%- endif -%}
{%- for message in turns -%}
  {%- if message.role != ('user', 'assistant')[loop.index0 % 2] -%}
    {{- raise_exception('Messages must alternate between user and assistant, and begin with user.') -}}
  {%- endif -%}
  {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' -}}
  {{- (system if loop.first else '') + message.content | trim + '<end_of_turn>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<start_of_turn>model\n' -}}
{%- endif -%}
)";

// Thoughts of earlier answers are left out. Without thinking the answer begins with an empty thought.
const std::string_view kGemma4Template = R"({%- macro without_thoughts(text) -%}
  {%- for part in text.split('<|channel>') -%}
    {{- part if loop.first else part.split('<channel|>')[-1] -}}
  {%- endfor -%}
{%- endmacro -%}
{{- bos_token -}}
{%- set thinks = enable_thinking is defined and enable_thinking -%}
{%- set has_system = messages and messages[0].role == 'system' -%}
{%- if has_system or thinks -%}
  {{- '<|turn>system\n' + ('<|think|>' if thinks else '') -}}
  {{- (messages[0].content | trim if has_system else '') + '<turn|>\n' -}}
{%- endif -%}
{%- for message in (messages[1:] if has_system else messages) -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|turn>model\n' + without_thoughts(message.content) | trim + '<turn|>\n' -}}
  {%- elif message.role == 'user' -%}
    {{- '<|turn>user\n' + message.content | trim + '<turn|>\n' -}}
  {%- else -%}
    {{- raise_exception('The role ' + message.role + ' has no place here; known are system (first), user and assistant.') -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|turn>model\n' + ('' if thinks else '<|channel>thought\n<channel|>') -}}
{%- endif -%}
)";

const std::string_view kLlama3Template = R"({{- bos_token -}}
{%- set has_system = messages and messages[0].role == 'system' -%}
{{- '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: ' -}}
{{- (strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024') + '\n\n' -}}
{{- (messages[0].content | trim if has_system else '') + '<|eot_id|>' -}}
{%- for message in (messages[1:] if has_system else messages) -%}
  {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

// Thoughts stay in the answers that follow the last question of a user, results of tools being no questions.
const std::string_view kQwen3Template = R"({%- set has_system = messages and messages[0].role == 'system' -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' + (messages[0].content + '\n\n' if has_system else '') -}}
  {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' -}}
  {{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' -}}
  {%- for tool in tools -%}
    {{- '\n' + tool | tojson -}}
  {%- endfor -%}
  {{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within ' -}}
  {{- '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n' -}}
  {{- '</tool_call><|im_end|>\n' -}}
{%- elif has_system -%}
  {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' -}}
{%- endif -%}
{%- set last = namespace(question=messages | length - 1) -%}
{%- for message in messages -%}
  {%- set is_result = message.content is string and message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>') -%}
  {%- if message.role == 'user' and not is_result -%}
    {%- set last.question = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'assistant' -%}
    {%- set thought = message.reasoning_content if message.reasoning_content is string else '' -%}
    {%- if not thought and '</think>' in content -%}
      {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
    {%- endif -%}
    {%- set content = content.split('</think>')[-1].lstrip('\n') -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if loop.index0 > last.question and (thought or loop.last) -%}
      {{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' -}}
    {%- endif -%}
    {{- content -}}
    {%- for call in (message.tool_calls or []) -%}
      {%- set function = call.function if call.function is defined else call -%}
      {{- '\n' if content or not loop.first else '' -}}
      {{- '<tool_call>\n{"name": "' + function.name + '", "arguments": ' -}}
      {{- (function.arguments if function.arguments is string else function.arguments | tojson) + '}\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- elif message.role == 'tool' -%}
    {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' else '' -}}
    {{- '\n<tool_response>\n' + content + '\n</tool_response>' -}}
    {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' else '' -}}
  {%- elif not (loop.first and has_system) -%}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {%- if enable_thinking is defined and enable_thinking is false -%}
    {{- '<think>\n\n</think>\n\n' -}}
  {%- endif -%}
{%- endif -%}
)";

}  // namespace leeway::llm
