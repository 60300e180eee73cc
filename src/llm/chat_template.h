// From messages to a prompt: the chat template of a model's file, or that of its family where the file has none.
//
// What comes from outside (content, roles, names, tools, variables) is told apart from the template's own text to the end: the
// result is a list of parts, and Tokenizer::Encode recognizes control tokens in trusted ones alone. So no message can open or
// close a turn.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "llm/tokenizer.h"

namespace leeway::llm {

struct ChatMessage {
  std::string role;  // system, user, assistant; tool where the template knows it
  std::string content;
  // Further fields as a JSON object, for templates that look at them: {"tool_calls": [...]}, {"reasoning_content": "..."}.
  // A field "content" in it stands in the place of the one above.
  std::string more_json;
};

struct ChatOptions {
  bool add_generation_prompt = true;  // end with the beginning of the answer
  std::string tools_json;             // a JSON list of tools, or empty
  std::string variables_json;         // a JSON object of what else the template may ask for: {"enable_thinking": false}
  // What templates that ask for the date are told; without it they use a date of their own, and prompts are reproducible.
  std::optional<int64_t> seconds_since_1970;
};

class ChatTemplate {
 public:
  // Parses a template in the language that chat templates are written in (Jinja), as far as such templates use it. Of `tokens`
  // the template may print bos_token, eos_token and the like. kInvalidModel with line and construct for what isn't understood.
  static Result<ChatTemplate> Parse(std::string_view source, const std::map<std::string, std::string>& tokens = {});

  // The template of the file that the tokenizer came from. Without one there, the family's, which the turn tokens of the
  // vocabulary tell: Gemma 3 and 4, Llama 3, Qwen3, ChatML. kUnsupported where there are none.
  static Result<ChatTemplate> For(const Tokenizer& tokenizer);

  // kInvalidArgument where the template refuses the messages (roles that don't alternate) or JSON is none; kInvalidModel where
  // it fails, or takes more work than a template may. A system message goes in front of the first user message where the
  // template has no place for one.
  Result<std::vector<PromptPart>> Render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  bool has_system_role() const { return has_system_role_; }
  const std::string& source() const { return source_; }

 private:
  struct Tree;
  ChatTemplate() = default;
  Result<std::vector<PromptPart>> RenderAsTheyAre(std::span<const ChatMessage> messages, const ChatOptions& options) const;

  std::string source_;
  std::map<std::string, std::string> tokens_;
  std::shared_ptr<const Tree> tree_;
  bool has_system_role_ = true;
};

// The tokens of a prompt; begins with the token of the beginning where the model wants one and the parts don't have it.
std::vector<TokenId> EncodePrompt(const Tokenizer& tokenizer, std::span<const PromptPart> parts);

// The text that models put around their thoughts. `control`: tokens that must be shown when decoding for it to appear.
struct ThoughtMarkers {
  std::string open, close;
  std::vector<TokenId> control;
};
// Those that the vocabulary has tokens for: <think> </think>, or Gemma 4's thought channel.
std::optional<ThoughtMarkers> FindThoughtMarkers(const Tokenizer& tokenizer);

}  // namespace leeway::llm
