// leeway tokenize: text to the tokens of a model.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "cli/common.h"
#include "llm/load_tokenizer.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

struct TokenizeArguments {
  std::string model, text;
  bool has_text = false, special = false, bos = false, as_json = false;
};

// The text with what would disturb a table escaped.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(c));
      out += hex;
    } else {
      out += c;
    }
  }
  return out;
}

int Tokenize(const TokenizeArguments& a) {
  const Result<llm::Tokenizer> tokenizer = llm::LoadTokenizer(a.model);
  if (!tokenizer.ok()) return Fail(tokenizer.error(), a.as_json);
  const std::string text = a.has_text ? a.text : ReadStandardInput();
  const std::vector<llm::TokenId> ids = tokenizer->Encode(text, {.add_bos = a.bos, .allow_special = a.special});
  if (a.as_json) {
    json pieces = json::array();
    for (const llm::TokenId id : ids) pieces.push_back(tokenizer->BytesOf(id));
    PrintJson(
        {{"ids", ids}, {"pieces", pieces}, {"count", ids.size()}, {"text", tokenizer->Decode(ids, {.show_control = true})}});
    return kDone;
  }
  std::vector<std::vector<std::string>> rows = {{"id", "piece"}};
  for (const llm::TokenId id : ids) rows.push_back({StrCat(id), StrCat("\"", Escaped(tokenizer->BytesOf(id)), "\"")});
  std::printf("%s%zu tokens\n", Table(rows, {true, false}).c_str(), ids.size());
  return kDone;
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens that a model makes of a text");
  command->add_option("model", a->model, "A GGUF file, a tokenizer.json, or a folder with one")->required();
  CLI::Option* text = command->add_option("--text", a->text, "The text (default: standard input)");
  command->add_flag("--special", a->special, "Control tokens that the text spells become control tokens");
  command->add_flag("--bos", a->bos, "Put the token of the beginning first");
  command->add_flag("--json", a->as_json, "Print JSON");
  command->callback([&run, a, text] {
    a->has_text = text->count() > 0;
    run = [a] { return Tokenize(*a); };
  });
}

}  // namespace leeway::cli
