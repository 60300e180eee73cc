// leeway chat: a conversation in the terminal.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>

#include "base/strings.h"
#include "cli/llm.h"
#include "llm/engine.h"
#include "llm/text_stream.h"

namespace leeway::cli {
namespace {

struct ChatArguments {
  LlmArguments load;
  SamplingArguments sampling;
  std::string system, prompt;
  int max_tokens = -1;
  bool show_thoughts = false;
};

// What Ctrl-C stops.
std::atomic<llm::Session*> answering{nullptr};

void OnInterrupt(int) {
  if (llm::Session* session = answering.load()) session->Cancel();
}

constexpr char kHelp[] =
    "  /stats       tokens held, speed and memory\n"
    "  /reset       forget the conversation\n"
    "  /system TEXT what the system says from the next conversation on (forgets this one)\n"
    "  /help        this\n"
    "  /quit        or the end of input: leave\n"
    "  Ctrl-C stops an answer\n";

// A line of input; nothing at its end. An interrupt gives an empty line.
std::optional<std::string> ReadLine() {
  std::string line;
  while (true) {
    char c = 0;
    const ssize_t n = read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) {
      std::printf("\n");
      return "";
    }
    if (n <= 0) return line.empty() ? std::nullopt : std::optional(line);
    if (c == '\n') return line;
    if (c != '\r') line += c;
  }
}

class Chat {
 public:
  Chat(const ChatArguments& a, std::shared_ptr<llm::Engine> engine, std::unique_ptr<llm::Session> session)
      : a_(a),
        engine_(std::move(engine)),
        session_(std::move(session)),
        system_(a.system),
        on_terminal_(IsTerminal(STDOUT_FILENO)) {
    Reset();
  }

  int Run() {
    const bool interactive = IsTerminal(STDIN_FILENO);
    if (on_terminal_ && interactive) {
      std::printf("%s on %s, room for %d tokens. /help says what there is besides talking.\n", engine_->model().name.c_str(),
                  engine_->device().name.c_str(), engine_->context());
    }
    if (!a_.prompt.empty()) {
      if (on_terminal_) std::printf("> %s\n", a_.prompt.c_str());
      if (!Answer(a_.prompt)) return kFailed;
    }
    while (true) {
      if (interactive) {
        std::printf("> ");
        std::fflush(stdout);
      }
      const std::optional<std::string> line = ReadLine();
      if (!line) break;
      if (line->empty()) continue;
      if ((*line)[0] == '/') {
        if (*line == "/quit") break;
        Command(*line);
        continue;
      }
      if (!Answer(*line)) return kFailed;
    }
    if (interactive) std::printf("\n");
    return kDone;
  }

 private:
  void Reset() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back({"system", system_});
    session_->Reset();
  }

  void Command(const std::string& line) {
    if (line == "/reset") {
      Reset();
      std::printf("The conversation is forgotten.\n");
    } else if (line.starts_with("/system")) {
      system_ = line.size() > 8 ? line.substr(8) : "";
      Reset();
      std::printf("A new conversation begins.\n");
    } else if (line == "/stats") {
      Stats();
    } else {
      if (line != "/help") std::printf("There is no command %s.\n", line.c_str());
      std::fputs(kHelp, stdout);
    }
  }

  void Stats() {
    std::printf("context       %zu of %d tokens, %zu messages\n", session_->tokens().size(), engine_->context(),
                messages_.size());
    if (last_) {
      std::printf("last answer   %zu tokens at %.1f a second; %d tokens taken in at %.1f a second; first token after %s\n",
                  last_->ids.size(), DecodeRate(*last_), last_->prompt_tokens, PrefillRate(*last_),
                  Milliseconds(last_->first_token_ms).c_str());
    }
    std::printf("device        %s, %s allocated\n", engine_->device().name.c_str(), BytesText(engine_->device_bytes()).c_str());
    std::fputs(MemoryText(engine_->memory()).c_str(), stdout);
  }

  static double PrefillRate(const llm::GenerateResult& r) {
    return r.first_token_ms > 0 ? double(r.prompt_tokens) / r.first_token_ms * 1e3 : 0;
  }
  static double DecodeRate(const llm::GenerateResult& r) {
    return r.decode_ms > 0 ? (double(r.ids.size()) - 1) / r.decode_ms * 1e3 : 0;
  }

  // False: it failed for good.
  bool Answer(const std::string& text) {
    messages_.push_back({"user", text});
    auto prompt = engine_->ChatPrompt(messages_);
    if (!prompt.ok()) {
      Fail(prompt.error(), false);
      return false;
    }
    const int kept = session_->KeepCommon(*prompt);
    llm::GenerateOptions options;
    options.max_tokens = a_.max_tokens;
    const auto markers = Thoughts();
    options.show_control = markers && !markers->control.empty();
    llm::ThoughtSplitter splitter(markers ? markers->open : "<think>", markers ? markers->close : "</think>");
    std::string said;
    options.on_token = [&](const llm::Token& token) {
      Show(splitter.Add(token.text), said);
      return true;
    };
    options.on_prefill = [&](int done, int total) {
      if (on_terminal_ && total > 64) {
        std::printf("\r(reading: %d of %d tokens)\033[K", done, total);
        if (done == total - 1 || done == total) std::printf("\r\033[K");
        std::fflush(stdout);
      }
      return true;
    };
    answering.store(session_.get());
    auto result = session_->Generate(std::span(*prompt).subspan(size_t(kept)), options);
    answering.store(nullptr);
    if (!result.ok()) {
      Fail(result.error(), false);
      return false;
    }
    Show(splitter.Finish(), said);
    if (thought_words_ > 0) EndThought();
    std::printf("\n");
    if (result->reason == llm::FinishReason::kContextFull) {
      std::printf("(the context of %d tokens is full; /reset begins anew)\n", engine_->context());
    }
    if (result->reason == llm::FinishReason::kCancelled) std::printf("(stopped)\n");
    if (on_terminal_) {
      std::printf("\033[2m[%zu tokens, %.1f a second, %zu of %d held]\033[0m\n", result->ids.size(), DecodeRate(*result),
                  session_->tokens().size(), engine_->context());
    }
    std::fflush(stdout);
    if (result->ids.empty()) {
      messages_.pop_back();  // nothing came of it
    } else {
      messages_.push_back({"assistant", said});
    }
    last_ = std::move(*result);
    return true;
  }

  std::optional<llm::ThoughtMarkers> Thoughts() const {
    const auto& tokenizer = engine_->state().tokenizer;
    return tokenizer ? llm::FindThoughtMarkers(*tokenizer) : std::nullopt;
  }

  // Answers as they come; of a thought only that there is one, and how long it was.
  void Show(const std::vector<llm::ThoughtSplitter::Piece>& pieces, std::string& said) {
    for (const auto& [is_thought, text] : pieces) {
      if (!is_thought) {
        if (thought_words_ > 0) EndThought();
        said += text;
        std::fwrite(text.data(), 1, text.size(), stdout);
        continue;
      }
      if (a_.show_thoughts) std::printf("\033[2m%s\033[0m", text.c_str());
      if (thought_words_ == 0 && !a_.show_thoughts && on_terminal_) std::printf("\033[2m(thinking...)\033[0m");
      thought_words_ += 1 + int(std::count(text.begin(), text.end(), ' '));
    }
    std::fflush(stdout);
  }

  void EndThought() {
    if (a_.show_thoughts) {
      std::printf("\n");
    } else if (on_terminal_) {
      std::printf("\r\033[K\033[2m(thought, about %d words)\033[0m\n", thought_words_);
    }
    thought_words_ = 0;
  }

  const ChatArguments& a_;
  std::shared_ptr<llm::Engine> engine_;
  std::unique_ptr<llm::Session> session_;
  std::string system_;
  const bool on_terminal_;
  int thought_words_ = 0;  // of the thought that is going on
  std::vector<llm::Message> messages_;
  std::optional<llm::GenerateResult> last_;
};

int RunChat(const ChatArguments& a) {
  auto engine = LoadEngine(a.load, false);
  if (!engine.ok()) return Fail(engine.error(), false);
  auto session = llm::Session::Create(*engine, {.sampling = ToSampling(a.sampling)});
  if (!session.ok()) return Fail(session.error(), false);
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: reading a line ends
  sigaction(SIGINT, &action, nullptr);
  return Chat(a, *engine, std::move(*session)).Run();
}

}  // namespace

void AddChatCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<ChatArguments>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a language model");
  AddLlmArguments(*command, a->load);
  command->add_option("--system", a->system, "What the system says before");
  command->add_option("-p,--prompt", a->prompt, "What to say first");
  command->add_option("-n,--max-tokens", a->max_tokens, "Tokens of an answer at most (default: until it ends)")
      ->check(CLI::Range(-1, INT32_MAX));
  command->add_flag("--show-thoughts", a->show_thoughts, "Show what a model thinks before it answers");
  AddSamplingArguments(*command, a->sampling, 0.7);
  command->callback([&run, a] { run = [a] { return RunChat(*a); }; });
}

}  // namespace leeway::cli
