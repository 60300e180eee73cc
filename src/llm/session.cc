#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>

#include "base/hash.h"
#include "base/strings.h"
#include "llm/engine.h"
#include "llm/text_stream.h"
#include "ops/sample.h"
#include "ops/step.h"

namespace leeway::llm {
namespace {

using Spans = std::vector<std::span<const std::byte>>;

constexpr uint32_t kSaveMagic = 0x5353574c;  // "LWSS"
constexpr uint32_t kSaveVersion = 1;

template <class T>
void Put(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Reads what Put wrote; after the end everything is zero and `failed` is set.
struct SaveReader {
  std::span<const std::byte> bytes;
  bool failed = false;
  std::span<const std::byte> Take(uint64_t count) {
    if (count > bytes.size()) {
      failed = true;
      bytes = {};
      return {};
    }
    const auto taken = bytes.first(size_t(count));
    bytes = bytes.subspan(size_t(count));
    return taken;
  }
  template <class T>
  T Get() {
    T value{};
    const auto taken = Take(sizeof(T));
    if (!failed) std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }
};

Error Damaged(const char* what) { return {Code::kInvalidArgument, StrCat("The saved session is damaged: ", what, ".")}; }

}  // namespace

struct Session::State {
  std::shared_ptr<Engine> engine;
  std::unique_ptr<StateSet> states;
  std::vector<std::unique_ptr<BoundStage>> stages;  // as Engine::State::stages
  std::unique_ptr<BoundStage> greedy;               // where the engine has that
  int tokens_state = -1, step_state = -1, sampler_state = -1;
  SamplingOptions sampling;
  std::vector<int32_t> ids;
  int processed = 0;  // so many of `ids` are in the caches
  int written = 0;    // positions that were ever written to the caches: rings hold the last ones of these
  std::atomic<bool> cancelled{false};

  Engine::State& shared() { return engine->state(); }
  Device* device() { return shared().device(); }

  static Result<std::unique_ptr<State>> Make(std::shared_ptr<Engine> engine, const SamplingOptions& sampling);
  Status WriteSampling();
  Status WriteStep(int position, int count);
  Status WriteTokens(int position, std::span<const int32_t> tokens);
  bool CanRewindTo(int position) const;
  bool IsGreedy() const { return greedy && sampling.temperature == 0 && sampling.repeat_penalty == 1; }

  std::vector<StateSet::Range> UsedCaches(int written_positions) const;
  Result<std::vector<std::byte>> ReadAll(std::span<const StateSet::Range> ranges);
  Status WaitFor(const EventPtr& event) {
    if (event->done()) return event->status();
    return device()->Wait(event);
  }
};

Result<std::unique_ptr<Session::State>> Session::State::Make(std::shared_ptr<Engine> engine, const SamplingOptions& sampling) {
  auto state = std::make_unique<State>();
  state->engine = std::move(engine);
  Engine::State& shared = state->shared();
  std::vector<const LaunchPlan*> plans;
  for (const auto& stage : shared.stages) plans.push_back(&stage.stage->plan());
  if (shared.greedy) plans.push_back(&shared.greedy->stage->plan());
  ASSIGN_OR_RETURN_CONTEXT(state->states, StateSet::Make(plans, shared.device()), "while making a session");
  for (const auto& stage : shared.stages) {
    ASSIGN_OR_RETURN_CONTEXT(auto bound, stage.stage->Bind(*state->states), "while making a session");
    state->stages.push_back(std::move(bound));
  }
  if (shared.greedy) {
    ASSIGN_OR_RETURN_CONTEXT(state->greedy, shared.greedy->stage->Bind(*state->states), "while making a session");
  }
  state->tokens_state = state->states->Find(kTokensState);
  state->step_state = state->states->Find(kStepState);
  state->sampler_state = state->states->Find(kSamplerState);
  if (state->tokens_state < 0 || state->step_state < 0 || state->sampler_state < 0) {
    return Error{Code::kInternal, "The model's graph lacks one of the states \"tokens\", \"step\" and \"sampler\"."};
  }
  state->sampling = sampling;
  RETURN_IF_ERROR(state->WriteSampling());
  return state;
}

Status Session::State::WriteSampling() {
  const SamplerSettings settings{.temperature = sampling.temperature,
                                 .top_k = sampling.top_k,
                                 .top_p = sampling.top_p,
                                 .min_p = sampling.min_p,
                                 .repeat_penalty = sampling.repeat_penalty,
                                 .repeat_window = sampling.repeat_window,
                                 .seed = sampling.seed};
  const auto values = SamplerValues(settings);
  return states->Write(sampler_state, 0, std::as_bytes(std::span(values)));
}

Status Session::State::WriteStep(int position, int count) {
  std::array<int32_t, kStepElements> step{};
  step[size_t(StepField::kPosition)] = position;
  step[size_t(StepField::kCount)] = count;
  return states->Write(step_state, 0, std::as_bytes(std::span(step)));
}

Status Session::State::WriteTokens(int position, std::span<const int32_t> tokens) {
  return states->Write(tokens_state, uint64_t(position) * 4, std::as_bytes(tokens));
}

bool Session::State::CanRewindTo(int position) const {
  return position == 0 || written - position <= engine->state().max_rewind;
}

// ---- Generating ----------------------------------------------------------------------------------------------------------

namespace {

Status CheckSampling(const SamplingOptions& s) {
  auto bad = [](const char* name, double value, const char* takes) {
    return Error{Code::kInvalidArgument, StrCat("The sampling setting ", name, " is ", value, "; it takes ", takes, ".")};
  };
  if (!(s.temperature >= 0 && s.temperature <= 1000)) return bad("temperature", s.temperature, "0 to 1000");
  if (s.top_k < 0) return bad("top_k", s.top_k, "0 (all) or more");
  if (!(s.top_p >= 0 && s.top_p <= 1)) return bad("top_p", s.top_p, "0 to 1");
  if (!(s.min_p >= 0 && s.min_p <= 1)) return bad("min_p", s.min_p, "0 to 1");
  if (!(s.repeat_penalty > 0 && s.repeat_penalty <= 1000)) return bad("repeat_penalty", s.repeat_penalty, "more than 0");
  if (s.repeat_window < 0) return bad("repeat_window", s.repeat_window, "0 or more");
  return {};
}

double LogSumExp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float l : logits) sum += std::exp(double(l) - largest);
  return std::log(sum) + largest;
}

// What Generate and Score ask of a call before anything is done.
Status CheckCall(const Engine::State& e, std::span<const int32_t> ids, int steps_in_flight) {
  if (e.busy) return Error{Code::kInvalidArgument, "A session of this engine is generating; the next one may when it is done."};
  if (steps_in_flight < 1 || steps_in_flight > 4) {
    return Error{Code::kInvalidArgument, StrCat("(", steps_in_flight, ") steps are asked to be in flight; it takes 1 to 4.")};
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= e.info.vocabulary) {
      return Error{Code::kInvalidArgument,
                   StrCat("Token ", i, " of the prompt is ", ids[i], "; the vocabulary has ", e.info.vocabulary, " tokens.")};
    }
  }
  return {};
}

}  // namespace

// Runs under way on the device for one call.
class Runs {
 protected:
  explicit Runs(Session::State& session) : s_(session), e_(session.shared()), start_ms_(NowMs()) {}

  // A part of a run on the device.
  struct Flight {
    EventPtr event;
    int chunk_end = -1;  // >= 0: with it the prompt is taken in up to here
    bool brings_token = false;
    int32_t id = 0;
    std::vector<float> logits;
    Status read;
  };

  // Starts part `part` of a run that takes in tokens up to `end`; with the last part and `wanted` the token that follows is
  // read, with `logits` what it was chosen from too.
  Status StartPart(BoundStage& bound, const EngineStage& planned, int part, int end, bool wanted, bool logits = false) {
    const bool is_last = part + 1 == bound.part_count();
    auto flight = std::make_shared<Flight>();
    std::vector<StageRead> reads;
    Device::ReadDone done;
    if (is_last && wanted) {
      flight->brings_token = true;
      reads.push_back({planned.tokens, uint64_t(end) * 4, 4});
      if (logits) reads.push_back({planned.logits, 0, uint64_t(e_.info.vocabulary) * 4});
      done = [flight](Result<Spans> read) {
        if (!read.ok()) {
          flight->read = read.error();
          return;
        }
        std::memcpy(&flight->id, (*read)[0].data(), 4);
        if (read->size() < 2) return;
        flight->logits.resize((*read)[1].size() / 4);
        std::memcpy(flight->logits.data(), (*read)[1].data(), flight->logits.size() * 4);
      };
    }
    s_.written = std::max(s_.written, end);
    ASSIGN_OR_RETURN(flight->event, bound.Start(part, reads, std::move(done)));
    if (is_last) flight->chunk_end = end;
    flights_.push_back(std::move(flight));
    return {};
  }

  // Waits for what is under way longest.
  Result<std::shared_ptr<Flight>> Land() {
    auto flight = std::move(flights_.front());
    flights_.pop_front();
    RETURN_IF_ERROR(s_.WaitFor(flight->event));
    RETURN_IF_ERROR(flight->read);
    return flight;
  }

  Status Drain() {
    Status status;
    while (!flights_.empty()) {
      auto landed = Land();
      if (status.ok() && !landed.ok()) status = landed.error();
    }
    return status;
  }

  Status WriteRun(int position, int count) {
    RETURN_IF_ERROR(s_.WriteTokens(position, std::span<const int32_t>(s_.ids).subspan(size_t(position), size_t(count))));
    return s_.WriteStep(position, count);
  }

  bool IsCancelled() const { return s_.cancelled.load(std::memory_order_relaxed); }

  Session::State& s_;
  Engine::State& e_;
  const double start_ms_;
  std::deque<std::shared_ptr<Flight>> flights_;
};

// One call of Generate: what is under way on the device, and what becomes of what comes back.
class Generation : Runs {
 public:
  Generation(Session::State& session, const GenerateOptions& options)
      : Runs(session),
        options_(options),
        text_(options.stop_texts),
        decoder_(e_.tokenizer ? std::optional<TextDecoder>(TextDecoder(*e_.tokenizer, {.show_control = options.show_control}))
                              : std::nullopt) {}

  Result<GenerateResult> Run(std::span<const int32_t> prompt) {
    const size_t before = s_.ids.size();
    s_.ids.insert(s_.ids.end(), prompt.begin(), prompt.end());
    // With everything taken in already the last token is taken in once more, for what follows it.
    if (s_.processed == int(s_.ids.size()) && options_.max_tokens != 0) --s_.processed;
    result_.prompt_tokens = int(s_.ids.size()) - s_.processed;
    Status status = Prefill();
    if (status.ok() && !finished_) status = Decode();
    const Status drained = Drain();
    if (status.ok()) status = drained;
    if (!status.ok()) {
      s_.ids.resize(before);
      s_.processed = std::min(s_.processed, int(before));
      return status.error();
    }
    if (result_.ids.empty() && result_.reason == FinishReason::kCancelled) {
      // What was not taken in of the prompt is not there.
      result_.prompt_tokens -= int(s_.ids.size()) - s_.processed;
      s_.ids.resize(size_t(s_.processed));
    }
    result_.total_ms = NowMs() - start_ms_;
    if (result_.ids.size() > 1) result_.decode_ms = last_token_ms_ - result_.first_token_ms;
    return std::move(result_);
  }

 private:
  void Finish(FinishReason reason) {
    if (finished_) return;
    finished_ = true;
    result_.reason = reason;
  }

  bool wants_logits() const { return options_.logprobs > 0 || options_.logits; }

  // Which plans take `left` tokens in, the one with the most rows first; only the last run may have rows to spare. A run costs
  // its rows, used or not, and something for itself: on a GPU reading the weights, as much as some rows' arithmetic.
  std::vector<size_t> ChooseRuns(int left) const {
    const int of_itself = e_.device() && !e_.device()->info().is_software ? 24 : 2;
    std::vector<int> cost(size_t(left) + 1, INT32_MAX);
    std::vector<size_t> choice(size_t(left) + 1);
    cost[0] = 0;
    for (int n = 1; n <= left; ++n) {
      for (size_t i = 0; i < e_.stages.size(); ++i) {
        const int with = cost[size_t(std::max(0, n - e_.stages[i].rows))] + e_.stages[i].rows + of_itself;
        if (with >= cost[size_t(n)]) continue;
        cost[size_t(n)] = with;
        choice[size_t(n)] = i;
      }
    }
    std::vector<size_t> runs;
    for (int n = left; n > 0; n -= e_.stages[choice[size_t(n)]].rows) runs.push_back(choice[size_t(n)]);
    std::sort(runs.rbegin(), runs.rend());
    return runs;
  }

  // Takes the prompt in, in chunks; all but the last token where tokens are generated, since the plans for many rows make no
  // logits.
  Status Prefill() {
    const int first = s_.processed, total = int(s_.ids.size()), until = options_.max_tokens == 0 ? total : total - 1;
    // A software device takes up to a second for a part: nothing is gained by giving it the next one before.
    const size_t most = e_.device() && !e_.device()->info().is_software ? 2 : 1;
    auto land = [&]() -> Status {
      ASSIGN_OR_RETURN(auto flight, Land());
      if (flight->chunk_end < 0) return {};
      s_.processed = flight->chunk_end;
      if (options_.on_prefill && !options_.on_prefill(s_.processed - first, total - first)) s_.cancelled.store(true);
      return {};
    };
    bool cut = false;
    int position = first;
    for (const size_t stage : ChooseRuns(until - first)) {
      if (cut) break;
      const int count = std::min(e_.stages[stage].rows, until - position);
      for (int part = 0; part < s_.stages[stage]->part_count() && !cut; ++part) {
        while (flights_.size() >= most) RETURN_IF_ERROR(land());
        if (IsCancelled()) {
          cut = true;
          break;
        }
        if (part == 0) RETURN_IF_ERROR(WriteRun(position, count));
        RETURN_IF_ERROR(StartPart(*s_.stages[stage], e_.stages[stage], part, position + count, false));
      }
      position += count;
    }
    while (!flights_.empty()) RETURN_IF_ERROR(land());
    result_.prefill_ms = NowMs() - start_ms_;
    if (cut || IsCancelled()) {
      Finish(FinishReason::kCancelled);
    } else if (options_.max_tokens == 0) {
      Finish(FinishReason::kMaxTokens);
    }
    return {};
  }

  // The step state leads from one run to the next on the device; the host only knows where it must be.
  Status Decode() {
    const size_t depth = size_t(options_.steps_in_flight);
    int position = int(s_.ids.size()) - 1;  // of the next run, which takes in the token there
    RETURN_IF_ERROR(WriteRun(position, 1));
    const int64_t most = options_.max_tokens < 0 ? INT64_MAX : options_.max_tokens;
    const bool greedy = s_.IsGreedy() && !wants_logits();
    BoundStage& bound = greedy ? *s_.greedy : *s_.stages[0];
    const EngineStage& planned = greedy ? *e_.greedy : e_.stages[0];
    int64_t started = 0;
    while (!finished_) {
      while (flights_.size() < depth && started < most && position < e_.context) {
        for (int part = 0; part < bound.part_count(); ++part) {
          RETURN_IF_ERROR(StartPart(bound, planned, part, position + 1, true, wants_logits()));
        }
        ++position, ++started;
      }
      ASSIGN_OR_RETURN(auto flight, Land());
      if (flight->brings_token) TakeToken(*flight);
    }
    return {};
  }

  bool IsEnd(int32_t id) const {
    if (std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), id) != options_.stop_tokens.end()) return true;
    return !options_.ignore_end && e_.tokenizer && e_.tokenizer->IsStop(id);
  }

  void TakeToken(const Flight& flight) {
    s_.processed = int(s_.ids.size());
    s_.ids.push_back(flight.id);
    result_.ids.push_back(flight.id);
    last_token_ms_ = NowMs() - start_ms_;
    if (result_.ids.size() == 1) result_.first_token_ms = last_token_ms_;
    Token token;
    token.id = flight.id;
    token.time_ms = last_token_ms_;
    std::vector<TokenScore> scores;
    if (options_.logprobs > 0) {
      scores = Scores(flight.logits, flight.id);
      token.logprob = scores[0].logprob;
      token.best = std::span<const TokenScore>(scores).subspan(1);
      result_.logprobs.push_back(scores);
    }
    if (options_.logits) token.logits = flight.logits;

    std::string shown;
    if (IsEnd(flight.id)) {
      Finish(FinishReason::kStopToken);
    } else {
      shown = text_.Add(decoder_ ? decoder_->Add(flight.id) : "");
      if (text_.is_stopped()) Finish(FinishReason::kStopText);
    }
    if (int(result_.ids.size()) == options_.max_tokens) Finish(FinishReason::kMaxTokens);
    if (int(s_.ids.size()) > e_.context) Finish(FinishReason::kContextFull);
    if (finished_ && !text_.is_stopped()) {
      shown += text_.Add(decoder_ ? decoder_->Finish() : "");
      shown += text_.Finish();
    }
    result_.text += shown;
    token.text = shown;
    if (options_.on_token && !options_.on_token(token)) s_.cancelled.store(true);
    if (IsCancelled() && !finished_) {
      Finish(FinishReason::kCancelled);
      result_.text += text_.Add(decoder_ ? decoder_->Finish() : "");
      result_.text += text_.Finish();
    }
  }

  // The token's own logarithm of probability, then the best.
  std::vector<TokenScore> Scores(const std::vector<float>& logits, int32_t id) const {
    const double log_sum = LogSumExp(logits);
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
    const size_t count = std::min(order.size(), size_t(options_.logprobs));
    std::partial_sort(order.begin(), order.begin() + ptrdiff_t(count), order.end(), [&](int32_t a, int32_t b) {
      const float x = logits[size_t(a)], y = logits[size_t(b)];
      return x != y ? x > y : a < b;
    });
    auto score = [&](int32_t i) { return TokenScore{i, float(logits[size_t(i)] - log_sum)}; };
    std::vector<TokenScore> scores = {score(id)};
    for (size_t i = 0; i < count; ++i) scores.push_back(score(order[i]));
    return scores;
  }

  const GenerateOptions& options_;
  double last_token_ms_ = 0;
  StopWords text_;
  std::optional<TextDecoder> decoder_;
  bool finished_ = false;
  GenerateResult result_;
};

Result<GenerateResult> Session::Generate(std::span<const int32_t> prompt, const GenerateOptions& options) {
  State& s = *state_;
  Engine::State& e = s.shared();
  RETURN_IF_ERROR(CheckCall(e, prompt, options.steps_in_flight));
  if (options.max_tokens < -1 || options.logprobs < 0) {
    return Error{Code::kInvalidArgument, StrCat("max_tokens is ", options.max_tokens, " and logprobs ", options.logprobs,
                                                "; they take -1 or more and 0 or more.")};
  }
  if (s.ids.empty() && prompt.empty()) {
    return Error{Code::kInvalidArgument, "The prompt and the session are empty: there is nothing to go on from."};
  }
  s.cancelled.store(false);
  if (s.ids.size() + prompt.size() > size_t(e.context)) {
    GenerateResult full;
    full.reason = FinishReason::kContextFull;
    return full;
  }
  e.busy = true;
  Generation generation(s, options);
  auto result = generation.Run(prompt);
  e.busy = false;
  return result;
}

// One call of Score: steps of decoding whose tokens are given instead of chosen.
class Scoring : Runs {
 public:
  Scoring(Session::State& session, const ScoreOptions& options) : Runs(session), options_(options) {}

  Result<ScoreResult> Run(std::span<const int32_t> ids) {
    const size_t before = s_.ids.size();
    s_.ids.insert(s_.ids.end(), ids.begin(), ids.end());
    // The token before the first of them says how likely that is, taken in or not.
    if (before > 0) s_.processed = std::min(s_.processed, int(before) - 1);
    Status status = Steps(before);
    const Status drained = Drain();
    if (status.ok()) status = drained;
    if (!status.ok()) {
      s_.ids.resize(before);
      s_.processed = std::min(s_.processed, int(before));
      return status.error();
    }
    if (result_.reason == FinishReason::kCancelled) s_.ids.resize(std::max(before, size_t(s_.processed) + 1));
    result_.total_ms = NowMs() - start_ms_;
    return std::move(result_);
  }

 private:
  Status Steps(size_t before) {
    const int until = int(s_.ids.size()) - 1;  // nothing is known to follow the last one
    int started = s_.processed;
    BoundStage& bound = *s_.stages[0];
    const EngineStage& planned = e_.stages[0];
    if (started < until) RETURN_IF_ERROR(s_.WriteStep(started, 1));
    while (s_.processed < until) {
      while (flights_.size() < size_t(options_.steps_in_flight) && started < until && !IsCancelled()) {
        // What the step before chose for this place is not what is given.
        RETURN_IF_ERROR(s_.WriteTokens(started, std::span<const int32_t>(s_.ids).subspan(size_t(started), 1)));
        for (int part = 0; part < bound.part_count(); ++part) {
          RETURN_IF_ERROR(StartPart(bound, planned, part, started + 1, true, true));
        }
        ++started;
      }
      if (flights_.empty()) break;
      ASSIGN_OR_RETURN(auto flight, Land());
      if (!flight->brings_token) continue;
      const size_t next = size_t(++s_.processed);
      if (next < before) continue;
      const ScoredToken token = Judge(flight->logits, s_.ids[next]);
      result_.logprob += token.logprob;
      result_.tokens.push_back(token);
      if (options_.on_token && !options_.on_token(token, flight->logits)) s_.cancelled.store(true);
    }
    if (s_.processed < until) result_.reason = FinishReason::kCancelled;
    return {};
  }

  static ScoredToken Judge(std::span<const float> logits, int32_t id) {
    const auto best = std::max_element(logits.begin(), logits.end());
    float second = -INFINITY;
    for (auto at = logits.begin(); at != logits.end(); ++at) {
      if (at != best) second = std::max(second, *at);
    }
    const double log_sum = LogSumExp(logits);
    return {.id = id,
            .logprob = float(logits[size_t(id)] - log_sum),
            .best = int32_t(best - logits.begin()),
            .best_logprob = float(*best - log_sum),
            .margin = *best - second};
  }

  const ScoreOptions& options_;
  ScoreResult result_;
};

Result<ScoreResult> Session::Score(std::span<const int32_t> ids, const ScoreOptions& options) {
  State& s = *state_;
  Engine::State& e = s.shared();
  RETURN_IF_ERROR(CheckCall(e, ids, options.steps_in_flight));
  s.cancelled.store(false);
  if (s.ids.size() + ids.size() > size_t(e.context) + 1) {
    ScoreResult full;
    full.reason = FinishReason::kContextFull;
    return full;
  }
  e.busy = true;
  Scoring scoring(s, options);
  auto result = scoring.Run(ids);
  e.busy = false;
  return result;
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken: return "stop_token";
    case FinishReason::kStopText: return "stop_text";
    case FinishReason::kMaxTokens: return "max_tokens";
    case FinishReason::kContextFull: return "context_full";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "?";
}

// ---- The rest ------------------------------------------------------------------------------------------------------------

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Create(std::shared_ptr<Engine> engine, const SessionOptions& options) {
  RETURN_IF_ERROR(CheckSampling(options.sampling));
  ASSIGN_OR_RETURN(auto state, State::Make(std::move(engine), options.sampling));
  return std::make_unique<Session>(std::move(state));
}

void Session::Cancel() { state_->cancelled.store(true); }

Status Session::SetSampling(const SamplingOptions& sampling) {
  RETURN_IF_ERROR(CheckSampling(sampling));
  state_->sampling = sampling;
  return state_->WriteSampling();
}
const SamplingOptions& Session::sampling() const { return state_->sampling; }
std::span<const int32_t> Session::tokens() const { return state_->ids; }
int Session::context() const { return state_->shared().context; }

Status Session::Rewind(int count) {
  State& s = *state_;
  if (count < 0 || count > int(s.ids.size())) {
    return Error{Code::kInvalidArgument,
                 StrCat("The session holds ", s.ids.size(), " tokens and can't be rewound to (", count, ").")};
  }
  if (!s.CanRewindTo(std::min(count, s.processed))) {
    return Error{Code::kUnsupported, StrCat("The caches of sliding windows have moved on to position ", s.written,
                                            " and no longer hold what ", count, " tokens need; the session can be reset.")};
  }
  s.ids.resize(size_t(count));
  s.processed = std::min(s.processed, count);
  if (s.processed == 0) s.written = 0;
  return {};
}

void Session::Reset() { (void)Rewind(0); }

int Session::KeepCommon(std::span<const int32_t> ids) {
  State& s = *state_;
  size_t common = 0;
  while (common < ids.size() && common < s.ids.size() && ids[common] == s.ids[common]) ++common;
  if (!Rewind(int(common)).ok()) Reset();
  return int(s.ids.size());
}

// The part of each cache that `positions` positions have written: all heads up to the slot, or the whole of a ring.
std::vector<StateSet::Range> Session::State::UsedCaches(int positions) const {
  std::vector<StateSet::Range> ranges;
  const auto& all = states->states();
  for (size_t i = 0; i < all.size(); ++i) {
    if (int(i) == tokens_state || int(i) == step_state || int(i) == sampler_state) continue;
    const uint64_t bytes = states->StoredBytes(int(i));
    const Shape& shape = all[i].type.shape;
    if (shape.rank() != 3 || bytes == 0 || positions >= shape[1]) {
      ranges.push_back({int(i), 0, bytes});
      continue;
    }
    const DType dtype = all[i].buffer ? all[i].placement.dtype : all[i].type.dtype;
    const int64_t row = all[i].buffer ? (shape[2] + 3) / 4 * 4 : shape[2];
    const uint64_t row_bytes = DTypeBytes(dtype, size_t(row));
    for (int64_t head = 0; head < shape[0]; ++head) {
      ranges.push_back({int(i), uint64_t(head * shape[1]) * row_bytes, uint64_t(positions) * row_bytes});
    }
  }
  std::erase_if(ranges, [](const StateSet::Range& range) { return range.size_bytes == 0; });
  return ranges;
}

Result<std::vector<std::byte>> Session::State::ReadAll(std::span<const StateSet::Range> ranges) {
  std::vector<std::byte> bytes;
  if (ranges.empty()) return bytes;
  Status status;
  ASSIGN_OR_RETURN(EventPtr event, states->Read(ranges, [&](Result<Spans> read) {
    if (!read.ok()) return void(status = read.error());
    for (const auto& span : *read) bytes.insert(bytes.end(), span.begin(), span.end());
  }));
  RETURN_IF_ERROR(WaitFor(event));
  RETURN_IF_ERROR(status);
  return bytes;
}

Result<std::unique_ptr<Session>> Session::Fork() {
  State& s = *state_;
  ASSIGN_OR_RETURN(auto copy, State::Make(s.engine, s.sampling));
  const auto ranges = s.UsedCaches(s.written);
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, s.ReadAll(ranges));
  size_t at = 0;
  for (const auto& range : ranges) {
    RETURN_IF_ERROR(copy->states->Write(range.state, range.offset_bytes, std::span(bytes).subspan(at, range.size_bytes)));
    at += range.size_bytes;
  }
  RETURN_IF_ERROR(copy->WriteTokens(0, s.ids));
  copy->ids = s.ids;
  copy->processed = s.processed;
  copy->written = s.written;
  return std::make_unique<Session>(std::move(copy));
}

Result<std::vector<std::byte>> Session::Save() {
  State& s = *state_;
  std::vector<std::byte> out;
  Put(out, kSaveMagic);
  Put(out, kSaveVersion);
  Put(out, s.shared().model_hash);
  Put(out, int32_t(s.shared().context));
  Put(out, s.sampling.temperature);
  Put(out, int32_t(s.sampling.top_k));
  Put(out, s.sampling.top_p);
  Put(out, s.sampling.min_p);
  Put(out, s.sampling.repeat_penalty);
  Put(out, int32_t(s.sampling.repeat_window));
  Put(out, s.sampling.seed);
  Put(out, int32_t(s.processed));
  Put(out, int32_t(s.written));
  Put(out, uint32_t(s.ids.size()));
  for (int32_t id : s.ids) Put(out, id);
  const auto ranges = s.UsedCaches(s.written);
  Put(out, uint32_t(ranges.size()));
  for (const auto& range : ranges) {
    const auto& state = s.states->states()[size_t(range.state)];
    Put(out, HashText(StrCat(state.name, " ", state.type.ToString(), " ",
                             DTypeName(state.buffer ? state.placement.dtype : state.type.dtype))));
    Put(out, range.offset_bytes);
    Put(out, range.size_bytes);
  }
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, s.ReadAll(ranges));
  out.insert(out.end(), bytes.begin(), bytes.end());
  Put(out, HashBytes(out));
  return out;
}

Status Session::Restore(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (bytes.size() < 16) return Damaged("it is too short");
  SaveReader reader{bytes.first(bytes.size() - 8)};
  if (reader.Get<uint32_t>() != kSaveMagic) return Error{Code::kInvalidArgument, "The bytes are no saved session."};
  if (const uint32_t version = reader.Get<uint32_t>(); version != kSaveVersion) {
    return Error{Code::kInvalidArgument,
                 StrCat("The saved session has version ", version, ", and ", kSaveVersion, " is expected.")};
  }
  uint64_t hash = 0;
  std::memcpy(&hash, bytes.data() + bytes.size() - 8, 8);
  if (hash != HashBytes(bytes.first(bytes.size() - 8))) return Damaged("its bytes do not have the hash that they had");
  if (reader.Get<uint64_t>() != s.shared().model_hash) {
    return Error{Code::kInvalidArgument, "The saved session is of another model."};
  }
  if (const int context = reader.Get<int32_t>(); context != s.shared().context) {
    return Error{Code::kInvalidArgument, StrCat("The saved session is of a context of (", context,
                                                ") tokens, and this one has (", s.shared().context, ").")};
  }
  SamplingOptions sampling;
  sampling.temperature = reader.Get<double>();
  sampling.top_k = reader.Get<int32_t>();
  sampling.top_p = reader.Get<double>();
  sampling.min_p = reader.Get<double>();
  sampling.repeat_penalty = reader.Get<double>();
  sampling.repeat_window = reader.Get<int32_t>();
  sampling.seed = reader.Get<uint64_t>();
  const int processed = reader.Get<int32_t>(), written = reader.Get<int32_t>();
  const uint32_t count = reader.Get<uint32_t>();
  const auto id_bytes = reader.Take(uint64_t(count) * 4);
  if (reader.failed || count > uint32_t(s.shared().context) + 1 || processed < 0 || processed > int(count) ||
      written < processed || written > s.shared().context) {
    return Damaged("its counts contradict each other");
  }
  std::vector<int32_t> ids(count);
  if (count > 0) std::memcpy(ids.data(), id_bytes.data(), id_bytes.size());
  for (int32_t id : ids) {
    if (id < 0 || id >= s.shared().info.vocabulary) return Damaged("it has tokens that the model does not know");
  }
  RETURN_IF_ERROR(CheckSampling(sampling));
  const auto ranges = s.UsedCaches(written);
  if (reader.Get<uint32_t>() != ranges.size()) return Damaged("it has other caches than the model");
  uint64_t total = 0;
  for (const auto& range : ranges) {
    const auto& state = s.states->states()[size_t(range.state)];
    const DType stored = state.buffer ? state.placement.dtype : state.type.dtype;
    if (reader.Get<uint64_t>() != HashText(StrCat(state.name, " ", state.type.ToString(), " ", DTypeName(stored)))) {
      return Error{Code::kInvalidArgument, StrCat("The saved cache \"", state.name, "\" is not the ", DTypeName(stored),
                                                  " of this session: precision and device have to be of the same kind.")};
    }
    if (reader.Get<uint64_t>() != range.offset_bytes || reader.Get<uint64_t>() != range.size_bytes) {
      return Damaged("a cache has another size");
    }
    total += range.size_bytes;
  }
  if (reader.failed || reader.bytes.size() != total) return Damaged("the caches are not complete");
  for (const auto& range : ranges)
    RETURN_IF_ERROR(s.states->Write(range.state, range.offset_bytes, reader.Take(range.size_bytes)));
  s.sampling = sampling;
  RETURN_IF_ERROR(s.WriteSampling());
  s.ids = std::move(ids);
  s.processed = processed;
  s.written = written;
  return {};
}

namespace {
// A run with a timestamp at each dispatch.
Result<std::vector<double>> TimesOf(Session::State& s, BoundStage& bound) {
  ASSIGN_OR_RETURN(EventPtr event, bound.Run({}, nullptr, true));
  RETURN_IF_ERROR(s.WaitFor(event));
  std::vector<double> times;
  for (uint64_t ns : bound.Times()) times.push_back(double(ns) / 1e6);
  return times;
}
}  // namespace

Result<std::vector<double>> Session::ProfileDecode() {
  State& s = *state_;
  if (!s.device() || !s.device()->info().timestamps) return std::vector<double>();
  if (s.shared().busy) return Error{Code::kInvalidArgument, "A session of this engine is generating."};
  // What this run leaves at the next position is written again before anybody reads it.
  const int position = std::min(s.processed, s.shared().context - 1);
  RETURN_IF_ERROR(s.WriteStep(position, 1));
  s.written = std::max(s.written, position + 1);
  return TimesOf(s, s.IsGreedy() ? *s.greedy : *s.stages[0]);
}

Result<std::vector<double>> Session::ProfilePrefill(int rows) {
  State& s = *state_;
  if (!s.device() || !s.device()->info().timestamps) return std::vector<double>();
  if (s.shared().busy) return Error{Code::kInvalidArgument, "A session of this engine is generating."};
  if (!s.ids.empty()) {
    return Error{Code::kInvalidArgument,
                 StrCat("The session holds (", s.ids.size(), ") tokens; profiling a prompt takes an empty one.")};
  }
  for (size_t i = 1; i < s.stages.size(); ++i) {
    if (s.shared().stages[i].rows != rows) continue;
    const std::vector<int32_t> tokens(size_t(rows), 1);
    RETURN_IF_ERROR(s.WriteTokens(0, tokens));
    RETURN_IF_ERROR(s.WriteStep(0, rows));
    return TimesOf(s, *s.stages[i]);
  }
  return Error{Code::kNotFound, StrCat("There is no plan for runs of (", rows, ") tokens.")};
}

}  // namespace leeway::llm
