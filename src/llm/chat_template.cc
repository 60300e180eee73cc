#include "llm/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "llm/family_templates.h"
#include "llm/jinja/evaluate.h"
#include "llm/jinja/parser.h"
#include "llm/json_text.h"

namespace leeway::llm {
namespace {

using nlohmann::ordered_json;

Result<ordered_json> ParseJson(const std::string& text, const char* what, bool is_list) {
  if (JsonNestsTooDeep(text)) return Error{Code::kInvalidArgument, StrCat("The JSON of ", what, " nests too deep.")};
  ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (is_list ? !json.is_array() : !json.is_object()) {
    return Error{Code::kInvalidArgument, StrCat("What is given as ", what, " is not a JSON ", is_list ? "list." : "object.")};
  }
  return json;
}

std::vector<PromptPart> ToParts(const jinja::Text& text) {
  std::vector<PromptPart> parts;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && text.IsOutside(end) == text.IsOutside(at)) ++end;
    parts.push_back({std::string(text.view().substr(at, end - at)), !text.IsOutside(at)});
    at = end;
  }
  return parts;
}

bool Contains(std::span<const PromptPart> parts, std::string_view text) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const PromptPart& part) { return part.text.find(text) != part.text.npos; });
}

}  // namespace

struct ChatTemplate::Tree {
  std::vector<jinja::Node> nodes;
};

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, const std::map<std::string, std::string>& tokens) {
  ChatTemplate parsed;
  parsed.source_ = source;
  parsed.tokens_ = tokens;
  auto tree = std::make_shared<Tree>();
  ASSIGN_OR_RETURN(tree->nodes, jinja::Parse(source));
  parsed.tree_ = std::move(tree);
  // Whether a system message arrives is found out by giving it one. A template that fails without one as well says so when it
  // is used.
  const ChatMessage probe[] = {{"system", "probe of the system role"}, {"user", "probe of the user role"}};
  const auto without = parsed.RenderAsTheyAre(std::span(probe).subspan(1), {});
  const auto with = parsed.RenderAsTheyAre(probe, {});
  parsed.has_system_role_ = !without.ok() || (with.ok() && Contains(*with, probe[0].content));
  return parsed;
}

Result<ChatTemplate> ChatTemplate::For(const Tokenizer& tokenizer) {
  std::map<std::string, std::string> tokens;
  const TokenizerData& data = tokenizer.data();
  struct Named {
    const char* name;
    TokenId id;
  };
  for (const Named& named :
       {Named{"bos_token", data.bos}, {"eos_token", data.eos}, {"unk_token", data.unknown}, {"pad_token", data.padding}}) {
    tokens[named.name] = tokenizer.SpellingOf(named.id);
  }
  if (!tokenizer.chat_template().empty()) return Parse(tokenizer.chat_template(), tokens);
  auto has = [&](std::string_view token) { return tokenizer.Find(token) != kNoToken; };
  if (has("<|turn>")) return Parse(kGemma4Template, tokens);
  if (has("<start_of_turn>")) return Parse(kGemma3Template, tokens);
  if (has("<|start_header_id|>")) return Parse(kLlama3Template, tokens);
  if (has("<|im_start|>")) return Parse(has("<think>") ? kQwen3Template : kChatMlTemplate, tokens);
  return Error{Code::kUnsupported,
               "The model has no chat template, and its vocabulary has no turn tokens of a family that is known."};
}

Result<std::vector<PromptPart>> ChatTemplate::Render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  if (has_system_role_ || messages.empty() || messages[0].role != "system") return RenderAsTheyAre(messages, options);
  std::vector<ChatMessage> turns(messages.begin() + 1, messages.end());
  for (ChatMessage& message : turns) {
    if (message.role != "user") continue;
    message.content = StrCat(messages[0].content, "\n\n", message.content);
    return RenderAsTheyAre(turns, options);
  }
  return Error{Code::kInvalidArgument,
               "The chat template has no place for a system message, and there is no user message to put it in front of."};
}

Result<std::vector<PromptPart>> ChatTemplate::RenderAsTheyAre(std::span<const ChatMessage> messages,
                                                              const ChatOptions& options) const {
  using jinja::Text, jinja::Value;
  std::map<std::string, Value> variables;
  size_t outside_bytes = options.tools_json.size() + options.variables_json.size();
  std::vector<Value> list;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    outside_bytes += message.role.size() + message.content.size() + message.more_json.size();
    jinja::Dict dict;
    dict.Set(Text("role"), Text(message.role, /*is_outside=*/true));
    dict.Set(Text("content"), Text(message.content, /*is_outside=*/true));
    if (!message.more_json.empty()) {
      ASSIGN_OR_RETURN(const ordered_json more,
                       ParseJson(message.more_json, StrCat("more_json of message ", i).c_str(), false));
      for (const auto& [key, field] : more.items()) {
        ASSIGN_OR_RETURN(Value value, jinja::FromJson(field));
        dict.Set(Text(key, true), std::move(value));
      }
    }
    ASSIGN_OR_RETURN(Value value, jinja::MakeDict(std::move(dict)));
    list.push_back(std::move(value));
  }
  ASSIGN_OR_RETURN(variables["messages"], jinja::MakeList(std::move(list)));
  for (const auto& [name, spelling] : tokens_) variables[name] = Text(spelling);
  variables["add_generation_prompt"] = options.add_generation_prompt;
  variables["tools"] = jinja::None{};
  variables["documents"] = jinja::None{};
  if (!options.tools_json.empty()) {
    ASSIGN_OR_RETURN(const ordered_json tools, ParseJson(options.tools_json, "tools_json", true));
    ASSIGN_OR_RETURN(variables["tools"], jinja::FromJson(tools));
  }
  if (!options.variables_json.empty()) {
    ASSIGN_OR_RETURN(const ordered_json more, ParseJson(options.variables_json, "variables_json", false));
    for (const auto& [name, variable] : more.items()) { ASSIGN_OR_RETURN(variables[name], jinja::FromJson(variable)); }
  }
  jinja::RunOptions run;
  run.seconds_since_1970 = options.seconds_since_1970;
  run.max_work += int64_t(outside_bytes) * 8;
  ASSIGN_OR_RETURN(const Text text, jinja::Run(tree_->nodes, variables, run));
  return ToParts(text);
}

std::vector<TokenId> EncodePrompt(const Tokenizer& tokenizer, std::span<const PromptPart> parts) {
  std::vector<TokenId> ids = tokenizer.Encode(parts);
  if (tokenizer.adds_bos() && (ids.empty() || ids[0] != tokenizer.bos())) ids.insert(ids.begin(), tokenizer.bos());
  return ids;
}

std::optional<ThoughtMarkers> FindThoughtMarkers(const Tokenizer& tokenizer) {
  struct Row {
    std::string_view open_token, close_token, open;
  };
  static constexpr Row kRows[] = {{"<think>", "</think>", "<think>"}, {"<|channel>", "<channel|>", "<|channel>thought\n"}};
  for (const Row& row : kRows) {
    const TokenId open = tokenizer.Find(row.open_token), close = tokenizer.Find(row.close_token);
    if (open == kNoToken || close == kNoToken) continue;
    ThoughtMarkers markers{std::string(row.open), std::string(row.close_token), {}};
    for (const TokenId id : {open, close}) {
      if (tokenizer.IsControl(id)) markers.control.push_back(id);
    }
    return markers;
  }
  return std::nullopt;
}

}  // namespace leeway::llm
