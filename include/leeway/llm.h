// Language models: an Engine holds a model's weights and launch plans on a device, a Session is one conversation with it.
//
//   auto engine = leeway::llm::Engine::Load("smollm2-135m.gguf", {});
//   if (!engine.ok()) return Fail(engine.error().message);
//   auto session = leeway::llm::Session::Create(*engine, {});
//   auto prompt = (*engine)->ChatPrompt({{"user", "What is the capital of France?"}});
//   leeway::llm::GenerateOptions options;
//   options.on_token = [](const leeway::llm::Token& token) { Print(token.text); return true; };
//   auto result = (*session)->Generate(*prompt, options);
//
// Values and Result; nothing throws, prints or ends the process. Tokens are numbers of the model's vocabulary.
//
// Threads: an engine and all of its sessions may be used from one thread at a time together; only Session::Cancel may be called
// from any. Ownership: sessions keep their engine alive.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leeway/leeway.h"

namespace leeway::llm {

struct EngineOptions {
  // As OpenSharedDevice takes it; "cpu": the CPU references of all operators (slow, exact).
  std::string device;
  OpenOptions device_options;
  std::shared_ptr<Device> shared_device;  // instead of opening one

  // Of stored activations. What exceeds the range of f16 in a family (the residual sums of Gemma) is f32 all the same.
  Precision precision = Precision::kF32;
  // Matrices that a file holds in f32, f16 or bf16 are quantized while the model is loaded: to 8 bits, or to 4 (but for the
  // table of embeddings and the head, which get 8). 0: weights are what the file has. The blocks stay in host memory.
  int quantize_bits = 0;
  // How many tokens a session can hold, prompt and answers together; 0: 4096, or what the model was made for if that is less. A
  // greater number than that is taken as it is.
  int context = 0;
  // How many tokens of a prompt go in one run, for each of the plans; 1 is always there. Empty: chosen by device.
  std::vector<int> chunk_rows;
  // Loading fails with kOutOfMemory, before anything is allocated, where engine and one session would need more device memory
  // than this. 0: no limit.
  uint64_t memory_limit_bytes = 0;
  bool f32_cache = false;  // the KV cache is never narrower than f32
  // Decoding multiplies with activations in 8 bits where kernels of the device can. Not set: for the families that pass the
  // gate of this (AccuracyGate::Int8; docs/language-models.md says which).
  std::optional<bool> int8_activations;
  // Products and attention of prompts take their inputs as f16, sums stay f32, where subgroups of the device multiply matrices:
  // three times the rate, within the gate of f32 (docs/measurements/language-models.md), but no longer the same numbers as
  // decoding's. Not set: where int8_activations is not set either, or is true.
  std::optional<bool> half_prompts;
  // Whether steps of decoding are fused to few dispatches where kernels of the device can. Not set: on GPUs, and on CPUs
  // through OpenCL.
  std::optional<bool> fuse_decoding;

  std::optional<std::string> cache_folder;      // as CompileOptions has it
  std::vector<std::string> excluded_nodes;      // as CompileOptions has it
  std::set<std::string> disabled_passes;        // as CompileOptions has it
  int threads = 0;                              // for planning and packing; 0: as many as the machine has cores
  std::function<void(const std::string&)> log;  // one line a call; may be null
  // Called on the loading thread: "reading", "quantizing", "planning", "uploading", "compiling"; returning false ends the load
  // with kCancelled. May be null.
  std::function<bool(const LoadProgress&)> progress;
};

// Device memory by what it is for, and what is expected of the host.
struct EngineMemory {
  uint64_t weights_bytes = 0;
  uint64_t activations_bytes = 0;  // shared by all plans
  uint64_t cache_bytes = 0;        // keys and values of one session
  uint64_t session_bytes = 0;      // the rest of a session: tokens, position, sampling
  uint64_t other_bytes = 0;        // inputs, outputs, kernel scratch
  uint64_t total_bytes = 0;        // with one session
  uint64_t file_bytes = 0;         // mapped by the host
  int context = 0;                 // tokens that the caches hold
};

// What a model is.
struct ModelInfo {
  std::string name;          // of the file's metadata, or of the file
  std::string architecture;  // "llama", "gemma3", "qwen3"
  int layers = 0;
  int trained_context = 0;  // tokens; 0: not told
  int vocabulary = 0;
  uint64_t parameters = 0;
  bool has_tokenizer = false, has_chat_template = false;
  struct TypeShare {
    std::string type;  // "q4_0"
    int tensors = 0;
    uint64_t bytes = 0;
  };
  std::vector<TypeShare> types;  // of the tensors, most bytes first
  struct Tensor {
    std::string name, type;
    std::vector<int64_t> shape;
    uint64_t bytes = 0;
  };
  std::vector<Tensor> tensors;  // in the order of the file
};

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct SamplingOptions {
  double temperature = 0;     // 0: always the most likely token (greedy), of equal ones the lowest number
  int top_k = 0;              // only the k most likely; 0: all
  double top_p = 1;           // only the most likely that have this share of the probability together; 1: all
  double min_p = 0;           // only those with this share of the best one's probability; 0: all
  double repeat_penalty = 1;  // makes the tokens of the last `repeat_window` less likely; 1: off
  int repeat_window = 64;
  uint64_t seed = 0;  // the same seed, settings and prompt give the same tokens
};

struct TokenScore {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm of the probability, before sampling settings
};

// A generated token, on its way to the caller. What it points at is valid during the call.
struct Token {
  int32_t id = 0;
  // What can be shown with it: whole characters, nothing of a stop text; may be empty, or more than this token's own text.
  std::string_view text;
  double time_ms = 0;                // since Generate was called
  std::span<const TokenScore> best;  // with GenerateOptions::logprobs: so many, the best first
  float logprob = 0;                 // of this token, with logprobs
  std::span<const float> logits;     // with GenerateOptions::logits: of the whole vocabulary
};

struct GenerateOptions {
  // 0: the prompt is taken in and nothing is generated; -1: until something else ends it.
  int max_tokens = -1;
  std::vector<std::string> stop_texts;  // an answer ends where one of these begins
  std::vector<int32_t> stop_tokens;     // and with one of these, besides the model's own
  bool ignore_end = false;              // the model's own end tokens do not end it (benchmarks)
  bool show_control = false;            // control tokens are spelled out in texts
  // How many tokens are under way on the device before the first of them is known, 1 to 4. 1: the host waits for every token.
  int steps_in_flight = 3;
  int logprobs = 0;
  bool logits = false;
  // Returning false ends the answer (kCancelled). May be null.
  std::function<bool(const Token&)> on_token;
  // Tokens of the prompt that are taken in, of how many; returning false cancels. May be null.
  std::function<bool(int done, int total)> on_prefill;
};

enum class FinishReason : uint8_t {
  kStopToken,    // the model ended its answer, or a stop token came
  kStopText,     // a stop text came
  kMaxTokens,    // as many as were asked for
  kContextFull,  // the session holds as many tokens as it can; with a prompt that does not fit nothing is taken in
  kCancelled,    // the caller stopped it; what was generated so far stays
};
const char* FinishReasonName(FinishReason reason);  // "stop_token"

struct GenerateResult {
  FinishReason reason = FinishReason::kMaxTokens;
  std::vector<int32_t> ids;                       // generated, a stop token included
  std::string text;                               // without stop token and stop text
  std::vector<std::vector<TokenScore>> logprobs;  // with GenerateOptions::logprobs: the token itself first, then the best
  int prompt_tokens = 0;                          // taken in by this call
  double prefill_ms = 0;  // until the prompt is taken in, but for its last token, which the first step of decoding takes
  double decode_ms = 0;   // from the first token to the last
  double total_ms = 0;
  double first_token_ms = 0;  // since the call; 0: there was none
};

// A token of a given text as the model judges it after those before it. Logarithms are natural ones.
struct ScoredToken {
  int32_t id = 0;
  float logprob = 0;  // of its probability
  int32_t best = 0;   // the most likely token there, of equal ones the lowest number
  float best_logprob = 0;
  float margin = 0;  // by how much its logit is ahead of the second best
};

struct ScoreOptions {
  int steps_in_flight = 3;  // as GenerateOptions has it
  // After each token, with the logits of the whole vocabulary, which are valid during the call; returning false ends the call
  // (kCancelled). May be null.
  std::function<bool(const ScoredToken&, std::span<const float> logits)> on_token;
};

struct ScoreResult {
  FinishReason reason = FinishReason::kMaxTokens;  // all of them; kContextFull: none was taken in; kCancelled: some were
  std::vector<ScoredToken> tokens;                 // in order; nothing comes before the first of an empty session: it has none
  double logprob = 0;                              // of all of them together
  double total_ms = 0;
  double perplexity() const { return tokens.empty() ? 0 : std::exp(-logprob / double(tokens.size())); }
};

// What a run of one token costs, for benchmarks.
struct StageReport {
  int rows = 0;
  bool only_greedy = false;  // chooses the most likely token whatever a session's settings are: for sessions that want that
  int dispatches = 0, submissions = 0, nodes_on_cpu = 0;
  uint64_t weights_read_bytes = 0;  // of constants that a run reads, each once
  double flops = 0;
  std::vector<DispatchInfo> kernels;
};

struct EngineReport {
  double open_device_ms = 0, read_ms = 0, build_ms = 0, plan_ms = 0, compile_ms = 0, upload_ms = 0, total_ms = 0;
  int cache_hits = 0, cache_misses = 0;  // of compiled programs
};

class Session;

class Engine {
 public:
  // A GGUF file, or a folder with safetensors. The file is mapped and must not be changed as long as the engine lives.
  static Result<std::shared_ptr<Engine>> Load(const std::string& path, const EngineOptions& options = {});
  // What Load would need, without allocating anything on the device.
  static Result<EngineMemory> EstimateMemory(const std::string& path, const EngineOptions& options = {});
  static Result<ModelInfo> Inspect(const std::string& path);
  // True if Load is the way to read it (by its first bytes; a folder by its config.json).
  static bool IsLanguageModel(const std::string& path);
  ~Engine();

  const ModelInfo& model() const;
  int context() const;            // tokens that a session can hold
  Precision precision() const;    // of stored activations
  bool int8_activations() const;  // decoding does multiply with activations in 8 bits
  EngineMemory memory() const;
  uint64_t device_bytes() const;  // what is allocated now
  DeviceSummary device() const;
  const EngineReport& load_report() const;
  // The plans, those for a single token first; of these the one for greedy sessions, if there is one.
  std::vector<StageReport> stages() const;
  // The launch plan of one of them for people.
  Result<std::string> PlanText(int rows) const;

  // kUnsupported where the file has no tokenizer, here and below. `special`: control tokens that the text spells become control
  // tokens; text from users should not. `start`: the token of the beginning is put first where the model wants it.
  struct TokenizeOptions {
    bool special = false, start = false;
  };
  Result<std::vector<int32_t>> Tokenize(std::string_view text, TokenizeOptions options) const;
  std::string Detokenize(std::span<const int32_t> ids, bool show_control = false) const;
  // The tokens of a conversation in the model's own format, ending where the assistant's answer begins. What messages say
  // never becomes control tokens.
  Result<std::vector<int32_t>> ChatPrompt(std::span<const Message> messages) const;
  std::vector<int32_t> stop_tokens() const;

  struct State;  // internal
  explicit Engine(std::unique_ptr<State> state);
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct SessionOptions {
  SamplingOptions sampling;
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(std::shared_ptr<Engine> engine, const SessionOptions& options = {});
  ~Session();

  // Takes the prompt in after what the session holds and generates an answer. An empty prompt goes on from there; in an empty
  // session it is kInvalidArgument. After an error of the device the session is as before the call, as far as the device is.
  Result<GenerateResult> Generate(std::span<const int32_t> prompt, const GenerateOptions& options = {});
  // Takes `ids` in after what the session holds, in one step of decoding each, and says how likely each of them was: with the
  // plans, and so the accuracy, of decoding. Errors as of Generate.
  Result<ScoreResult> Score(std::span<const int32_t> ids, const ScoreOptions& options = {});
  // From any thread: a Generate or Score that is going ends within one submission (kCancelled); without one, nothing happens.
  void Cancel();

  Status SetSampling(const SamplingOptions& sampling);
  const SamplingOptions& sampling() const;

  // All tokens that the session holds: prompts and answers.
  std::span<const int32_t> tokens() const;
  int context() const;
  // Forgets all but the first `count` tokens. kUnsupported where caches of sliding windows no longer hold what these need.
  Status Rewind(int count);
  void Reset();
  // Rewinds to the longest beginning that the session has in common with `ids` and that can be gone back to; how many tokens
  // that is. Generate(ids without these) goes on from there.
  int KeepCommon(std::span<const int32_t> ids);

  // A session in the same state, on its own from here on.
  Result<std::unique_ptr<Session>> Fork();
  // Everything that another session of the same model and context needs to go on.
  Result<std::vector<std::byte>> Save();
  // kInvalidArgument, naming the difference, for bytes that are damaged, of another model, context or cache type; the session
  // is unchanged then.
  Status Restore(std::span<const std::byte> bytes);

  // Milliseconds of each dispatch of one run of the single-token plan, at the present position and without moving on; empty
  // where the device has no timestamps. The order is that of StageReport::kernels of the first plan, or of the first that is
  // not only_greedy where the session's settings are not greedy.
  Result<std::vector<double>> ProfileDecode();
  // The same of the plan for `rows` tokens (StageReport::rows, at least 2) over positions 0 to rows - 1. For an empty session
  // only (Reset): the caches hold nothing of use afterwards.
  Result<std::vector<double>> ProfilePrefill(int rows);

  struct State;  // internal
  explicit Session(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

// How decoding of one engine differs from that of another, step by step over given tokens: every step has the same past in
// both.
struct AccuracyReport {
  int steps = 0;
  int same_best = 0;                  // steps with the same most likely token
  double largest_flipped_margin = 0;  // among the others: by how much the reference's best was ahead of its second best
  double max_logit_difference = 0;    // of any logit of any step
  int max_logit_difference_at = -1;   // the step
  double mean_logit_difference = 0;   // of all logits of all steps
  double mean_divergence = 0;         // Kullback-Leibler, of the reference's distribution from the other's, in nats
  int not_finite = 0;                 // steps with logits that are no numbers
  double reference_logprob = 0, logprob = 0;
  double agreement() const;  // 0 to 1
  double reference_perplexity() const;
  double perplexity() const;
};

// What is asked of such a report.
struct AccuracyGate {
  double min_agreement = 0;
  double max_perplexity_rise = INFINITY;   // 0.005: by half a percent
  double max_logit_difference = INFINITY;  // of any logit
  // Activations in 8 bits: the same most likely token in 99 of 100 steps, of which there should be 1,000, and a perplexity that
  // rises by half a percent at most.
  static AccuracyGate Int8() { return {.min_agreement = 0.99, .max_perplexity_rise = 0.005}; }
  // Activations stored as halves, and other devices in f32.
  static AccuracyGate F16() { return {.max_logit_difference = 0.3}; }
  static AccuracyGate F32() { return {.max_logit_difference = 0.05}; }
  // The first demand that is not met, in words; empty if all are.
  std::string Unmet(const AccuracyReport& report) const;
};

// Both engines take each text in, token by token; the context must have room for the longest. `progress` over steps, returning
// false cancels; may be null.
Result<AccuracyReport> CompareDecoding(const std::shared_ptr<Engine>& reference, const std::shared_ptr<Engine>& engine,
                                       std::span<const std::vector<int32_t>> texts,
                                       const std::function<bool(int done, int total)>& progress = nullptr);

}  // namespace leeway::llm
