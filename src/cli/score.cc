// leeway score: how likely a text is to a language model.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "cli/llm.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

struct ScoreArguments {
  LlmArguments load;
  std::string text, file;
  std::vector<int32_t> ids;
  bool has_text = false, special = false, as_json = false, tokens = false;
};

Result<std::vector<int32_t>> Ids(const ScoreArguments& a, const llm::Engine& engine) {
  if (!a.ids.empty()) return a.ids;
  std::string text = a.text;
  if (!a.file.empty()) {
    ASSIGN_OR_RETURN(auto file, MappedFile::Open(a.file));
    text.assign(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  } else if (!a.has_text) {
    text = ReadStandardInput();
  }
  return engine.Tokenize(text, {.special = a.special, .start = true});
}

int Score(const ScoreArguments& a) {
  auto engine = LoadEngine(a.load, a.as_json);
  if (!engine.ok()) return Fail(engine.error(), a.as_json);
  auto ids = Ids(a, **engine);
  if (!ids.ok()) return Fail(ids.error(), a.as_json);
  auto session = llm::Session::Create(*engine);
  if (!session.ok()) return Fail(session.error(), a.as_json);
  auto scored = (*session)->Score(*ids);
  if (!scored.ok()) return Fail(scored.error(), a.as_json);
  if (scored->reason == llm::FinishReason::kContextFull) {
    return Fail({Code::kInvalidArgument, StrCat("The text has ", ids->size(), " tokens, and the context has room for (",
                                                (*engine)->context(), "); --context makes more.")},
                a.as_json);
  }
  auto text_of = [&](int32_t id) { return (*engine)->Detokenize(std::span(&id, 1), true); };
  const double rate = scored->total_ms > 0 ? double(scored->tokens.size()) / scored->total_ms * 1e3 : 0;
  if (a.as_json) {
    json tokens = json::array();
    for (const llm::ScoredToken& token : scored->tokens) {
      tokens.push_back({{"id", token.id},
                        {"text", text_of(token.id)},
                        {"logprob", token.logprob},
                        {"best", token.best},
                        {"best_logprob", token.best_logprob},
                        {"margin", token.margin}});
    }
    PrintJson({{"model", (*engine)->model().name},
               {"precision", PrecisionName(**engine)},
               {"ids", *ids},
               {"scored", scored->tokens.size()},
               {"logprob", scored->logprob},
               {"perplexity", scored->perplexity()},
               {"tok_s", rate},
               {"tokens", tokens}});
    return kDone;
  }
  if (a.tokens) {
    std::vector<std::vector<std::string>> rows = {{"id", "text", "logprob", "most likely", "its logprob"}};
    auto number = [](double value) {
      char text[32];
      std::snprintf(text, sizeof text, "%.4f", value);
      return std::string(text);
    };
    for (const llm::ScoredToken& token : scored->tokens) {
      rows.push_back({StrCat(token.id), json(text_of(token.id)).dump(-1, ' ', false, json::error_handler_t::replace),
                      number(token.logprob), json(text_of(token.best)).dump(-1, ' ', false, json::error_handler_t::replace),
                      number(token.best_logprob)});
    }
    std::fputs(Table(rows, {true, false, true, false, true}).c_str(), stdout);
  }
  std::printf("%zu tokens scored, perplexity %.4f, logprob %.4f, %.1f tokens a second\n", scored->tokens.size(),
              scored->perplexity(), scored->logprob, rate);
  return kDone;
}

}  // namespace

void AddScoreCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<ScoreArguments>();
  CLI::App* command =
      app.add_subcommand("score", "Say how likely a text is to a language model: log-probabilities, perplexity");
  AddLlmArguments(*command, a->load);
  CLI::Option* text = command->add_option("--text", a->text, "The text (default: standard input)");
  CLI::Option* file = command->add_option("--text-file", a->file, "A file with it")->check(CLI::ExistingFile)->excludes(text);
  command->add_option("--ids", a->ids, "Its tokens, as in 2,818,5279")->delimiter(',')->excludes(text)->excludes(file);
  command->add_flag("--special", a->special, "Control tokens that the text spells are control tokens");
  command->add_flag("--tokens", a->tokens, "A line for each token");
  command->add_flag("--json", a->as_json, "Print JSON: ids, tokens with logprob, perplexity");
  command->callback([&run, a, text] {
    a->has_text = text->count() > 0;
    run = [a] { return Score(*a); };
  });
}

}  // namespace leeway::cli
