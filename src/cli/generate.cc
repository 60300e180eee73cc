// leeway generate: one prompt, one answer; for scripts.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "cli/llm.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

struct GenerateArguments {
  LlmArguments load;
  SamplingArguments sampling;
  std::string prompt, prompt_file, system;
  std::vector<int32_t> prompt_ids;
  std::vector<std::string> stops;
  int max_tokens = 128, logprobs = 0, in_flight = 3;
  bool special = false, chat = false, ignore_end = false, as_json = false, has_prompt = false;
};

llm::Session* interrupted_session = nullptr;

Result<std::string> PromptText(const GenerateArguments& a) {
  if (a.has_prompt) return a.prompt;
  if (!a.prompt_file.empty()) {
    ASSIGN_OR_RETURN(auto file, MappedFile::Open(a.prompt_file));
    return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  }
  return ReadStandardInput();
}

Result<std::vector<int32_t>> PromptIds(const GenerateArguments& a, const llm::Engine& engine) {
  if (!a.prompt_ids.empty()) return a.prompt_ids;
  ASSIGN_OR_RETURN(std::string text, PromptText(a));
  if (a.chat || !a.system.empty()) {
    std::vector<llm::Message> messages;
    if (!a.system.empty()) messages.push_back({"system", a.system});
    messages.push_back({"user", std::move(text)});
    return engine.ChatPrompt(messages);
  }
  return engine.Tokenize(text, {.special = a.special, .start = true});
}

int Generate(const GenerateArguments& a) {
  auto engine = LoadEngine(a.load, a.as_json);
  if (!engine.ok()) return Fail(engine.error(), a.as_json);
  auto prompt = PromptIds(a, **engine);
  if (!prompt.ok()) return Fail(prompt.error(), a.as_json);
  auto session = llm::Session::Create(*engine, {.sampling = ToSampling(a.sampling)});
  if (!session.ok()) return Fail(session.error(), a.as_json);

  llm::GenerateOptions options;
  options.max_tokens = a.max_tokens;
  options.stop_texts = a.stops;
  options.ignore_end = a.ignore_end;
  options.steps_in_flight = a.in_flight;
  options.logprobs = a.logprobs;
  if (!a.as_json) {
    options.on_token = [](const llm::Token& token) {
      std::fwrite(token.text.data(), 1, token.text.size(), stdout);
      std::fflush(stdout);
      return true;
    };
  }
  interrupted_session = session->get();
  std::signal(SIGINT, [](int) { interrupted_session->Cancel(); });
  auto result = (*session)->Generate(*prompt, options);
  std::signal(SIGINT, SIG_DFL);
  if (!result.ok()) return Fail(result.error(), a.as_json);
  if (!a.as_json && result->reason == llm::FinishReason::kContextFull && result->ids.empty()) {
    return Fail({Code::kInvalidArgument, StrCat("The prompt has ", prompt->size(), " tokens, and the context has room for (",
                                                (*engine)->context(), "); --context makes more.")},
                false);
  }

  const double decoded = double(result->ids.size()) - 1;
  const double prefill_rate = result->first_token_ms > 0 ? double(result->prompt_tokens) / result->first_token_ms * 1e3 : 0;
  const double decode_rate = result->decode_ms > 0 ? decoded / result->decode_ms * 1e3 : 0;
  if (!a.as_json) {
    std::printf("\n");
    if (IsTerminal(STDERR_FILENO)) {
      std::fprintf(stderr, "leeway: %d tokens taken in (%.1f a second), %zu generated (%.1f a second), %s\n",
                   result->prompt_tokens, prefill_rate, result->ids.size(), decode_rate, llm::FinishReasonName(result->reason));
    }
    return kDone;
  }
  const DeviceSummary device = (*engine)->device();
  json report = {{"model", (*engine)->model().name},
                 {"device", {{"api", device.api}, {"name", device.name}, {"driver", device.driver}}},
                 {"precision", PrecisionName(**engine)},
                 {"prompt_ids", *prompt},
                 {"ids", result->ids},
                 {"text", result->text},
                 {"finish", llm::FinishReasonName(result->reason)},
                 {"counts",
                  {{"prompt", result->prompt_tokens},
                   {"generated", result->ids.size()},
                   {"held", (*session)->tokens().size()},
                   {"context", (*engine)->context()}}},
                 {"times",
                  {{"load_ms", (*engine)->load_report().total_ms},
                   {"prefill_ms", result->prefill_ms},
                   {"first_token_ms", result->first_token_ms},
                   {"decode_ms", result->decode_ms},
                   {"total_ms", result->total_ms},
                   {"prefill_tok_s", prefill_rate},
                   {"decode_tok_s", decode_rate}}}};
  if (a.logprobs > 0) {
    report["logprobs"] = json::array();
    for (const auto& scores : result->logprobs) {
      json best = json::array();
      for (size_t i = 1; i < scores.size(); ++i) {
        best.push_back({{"id", scores[i].id},
                        {"logprob", scores[i].logprob},
                        {"text", (*engine)->Detokenize(std::span(&scores[i].id, 1), true)}});
      }
      report["logprobs"].push_back({{"id", scores[0].id}, {"logprob", scores[0].logprob}, {"best", best}});
    }
  }
  PrintJson(report);
  return kDone;
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Let a language model go on from a prompt");
  AddLlmArguments(*command, a->load);
  CLI::Option* prompt = command->add_option("-p,--prompt", a->prompt, "The text to go on from (default: standard input)");
  command->add_option("--prompt-file", a->prompt_file, "A file with it")->check(CLI::ExistingFile)->excludes(prompt);
  command->add_option("--prompt-ids", a->prompt_ids, "Its tokens, as in 2,818,5279")->delimiter(',')->excludes(prompt);
  command->add_flag("--special", a->special, "Control tokens that the prompt spells are control tokens");
  command->add_flag("--chat", a->chat, "The prompt is what a user says: put it in the model's format of conversations");
  command->add_option("--system", a->system, "What the system says before (implies --chat)");
  command->add_option("-n,--max-tokens", a->max_tokens, "Tokens to generate at most (default 128; -1: no bound)")
      ->check(CLI::Range(-1, INT32_MAX));
  command->add_option("--stop", a->stops, "A text that ends the answer; may be given several times");
  command->add_flag("--ignore-end", a->ignore_end, "Go on over the model's own end");
  command->add_option("--logprobs", a->logprobs, "With --json, the n most likely tokens at each step")
      ->check(CLI::Range(0, 1000));
  command->add_option("--in-flight", a->in_flight, "Steps under way before the first is known, 1 to 4 (default 3)")
      ->check(CLI::Range(1, 4));
  AddSamplingArguments(*command, a->sampling, 0.8);
  command->add_flag("--json", a->as_json, "Print JSON: prompt_ids, ids, text, counts, times");
  command->callback([&run, a, prompt] {
    a->has_prompt = prompt->count() > 0;
    run = [a] { return Generate(*a); };
  });
}

}  // namespace leeway::cli
