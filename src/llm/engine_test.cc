// Engine and session on small random models: the paths to an answer must all lead to the same one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <thread>

#include "leeway/llm.h"
#include "llm/tiny_model.h"
#include "runtime/test_devices.h"

namespace leeway::llm {
namespace {

// Software devices behind WebGPU compile for minutes: what does not depend on the device is shown on the others, unless the run
// names its devices.
std::set<std::string> SlowDevices() {
  std::set<std::string> slow;
  const char* named = std::getenv("LEEWAY_TEST_DEVICES");
  if (named && *named) return slow;
  for (const BackendReport& report : ListDevices()) {
    for (const FoundDevice& device : report.devices) {
      if (device.api == "webgpu" && device.is_software) slow.insert(StrCat(report.api, ":", device.index));
    }
  }
  return slow;
}
std::vector<std::string> AllPlaces() {
  std::vector<std::string> places = TestDevices();
  places.insert(places.begin(), "cpu");
  return places;
}
std::vector<std::string> Places() {
  std::vector<std::string> places = AllPlaces();
  const std::set<std::string> slow = SlowDevices();
  std::erase_if(places, [&](const std::string& place) { return slow.contains(place); });
  return places;
}

EngineOptions On(const std::string& place, std::vector<int> chunks = {4}, int context = 48) {
  EngineOptions options;
  options.device = place;
  options.device_options.cache_folder = "";
  options.cache_folder = "";
  options.chunk_rows = std::move(chunks);
  options.context = context;
  options.threads = 1;
  return options;
}

std::shared_ptr<Engine> LoadTiny(const std::string& path, const EngineOptions& options) {
  auto engine = Engine::Load(path, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? *engine : nullptr;
}

std::unique_ptr<Session> NewSession(const std::shared_ptr<Engine>& engine, const SamplingOptions& sampling = {}) {
  auto session = Session::Create(engine, {.sampling = sampling});
  EXPECT_TRUE(session.ok()) << session.error().message;
  return std::move(*session);
}

std::vector<int32_t> Prompt(int count, int seed = 0) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * 11 + seed * 5 + 3) % 26);
  return ids;
}

GenerateOptions Tokens(int count, int in_flight = 3) {
  GenerateOptions options;
  options.max_tokens = count;
  options.steps_in_flight = in_flight;
  options.ignore_end = true;
  return options;
}

GenerateResult Ask(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options) {
  auto result = session.Generate(prompt, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : GenerateResult();
}

class EngineFamilies : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tiny_.architecture = GetParam();
    file_.emplace(tiny_, StrCat("family-", GetParam()));
  }
  TinyModel tiny_;
  std::optional<TinyModelFile> file_;
};

TEST_P(EngineFamilies, TheSameTokensHoweverThePromptIsCutAndHoweverManyStepsAreUnderWay) {
  const std::vector<int32_t> prompt = Prompt(19);
  std::vector<int32_t> expected;
  const std::set<std::string> slow = SlowDevices();
  for (const std::string& place : AllPlaces()) {
    SCOPED_TRACE(place);
    std::vector<std::vector<int>> cuts = {{7}};
    if (!slow.contains(place)) cuts.insert(cuts.end(), {{1}, {4, 64}, {512}});
    for (const std::vector<int>& chunks : cuts) {
      SCOPED_TRACE(StrCat("chunks of ", Join(chunks, ", ")));
      auto engine = LoadTiny(file_->path, On(place, chunks));
      ASSERT_TRUE(engine);
      for (int in_flight : {1, 2, 3, 4}) {
        auto session = NewSession(engine);
        const GenerateResult result = Ask(*session, prompt, Tokens(12, in_flight));
        EXPECT_EQ(result.reason, FinishReason::kMaxTokens);
        EXPECT_EQ(result.prompt_tokens, 19);
        if (expected.empty()) expected = result.ids;
        EXPECT_EQ(result.ids, expected) << in_flight << " under way";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineFamilies, testing::Values("llama", "qwen3", "gemma3"));

class EngineTest : public testing::Test {
 protected:
  // Each test's file; gemma3 has rings.
  const std::string& Gemma() {
    TinyModel tiny;
    tiny.architecture = "gemma3";
    if (!gemma_) gemma_.emplace(tiny, "engine-gemma");
    return gemma_->path;
  }
  const std::string& Llama() {
    if (!llama_) llama_.emplace(TinyModel(), "engine-llama");
    return llama_->path;
  }
  std::optional<TinyModelFile> gemma_, llama_;
};

TEST_F(EngineTest, FusedDecodingChoosesTheSameTokens) {
  TinyModel tiny;
  tiny.width = 64, tiny.head_size = 32, tiny.inner = 192, tiny.type = DType::kQ4_0;
  TinyModelFile file(tiny, "engine-fused");
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    std::vector<std::vector<int32_t>> greedy, sampled;
    for (bool fused : {false, true}) {
      EngineOptions options = On(place);
      options.fuse_decoding = fused;
      auto engine = LoadTiny(file.path, options);
      ASSERT_TRUE(engine);
      const auto stages = engine->stages();
      EXPECT_EQ(stages[0].rows, 1);
      EXPECT_TRUE(fused || !stages[0].only_greedy);
      auto session = NewSession(engine);
      greedy.push_back(Ask(*session, Prompt(7), Tokens(10)).ids);
      session = NewSession(engine, {.temperature = 1.1, .seed = 3});
      sampled.push_back(Ask(*session, Prompt(7), Tokens(10)).ids);
      // Scores are the plan's that makes logits.
      session = NewSession(engine);
      GenerateOptions scored = Tokens(10);
      scored.logprobs = 1;
      EXPECT_EQ(Ask(*session, Prompt(7), scored).ids, greedy[0]);
    }
    EXPECT_EQ(greedy[0], greedy[1]);
    EXPECT_EQ(sampled[0], sampled[1]);
  }
}

TEST_F(EngineTest, AnswersGoOnWhereTheyEnded) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Gemma(), On(place));
    auto whole = NewSession(engine), pieces = NewSession(engine);
    const auto prompt = Prompt(9);
    const GenerateResult expected = Ask(*whole, prompt, Tokens(14));
    std::vector<int32_t> ids;
    // Nothing at all, the prompt in two parts, then tokens in four goes.
    EXPECT_EQ(Ask(*pieces, std::span(prompt).first(5), Tokens(0)).ids.size(), 0u);
    for (int count : {1, 5, 2, 6}) {
      const auto rest = ids.empty() ? std::span<const int32_t>(prompt).subspan(5) : std::span<const int32_t>();
      const GenerateResult part = Ask(*pieces, rest, Tokens(count, 4));
      ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    }
    EXPECT_EQ(ids, expected.ids);
    EXPECT_TRUE(std::ranges::equal(whole->tokens(), pieces->tokens()));
  }
}

TEST_F(EngineTest, SessionsDoNotDisturbEachOther) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Gemma(), On(place));
    const SamplingOptions sampling{.temperature = 1.2, .top_k = 20, .seed = 5};
    std::vector<std::vector<int32_t>> alone;
    for (int s : {0, 1}) {
      auto session = NewSession(engine, s ? sampling : SamplingOptions());
      alone.push_back(Ask(*session, Prompt(8 + s, s), Tokens(12)).ids);
    }
    auto a = NewSession(engine), b = NewSession(engine, sampling);
    std::vector<int32_t> of_a, of_b;
    for (int turn = 0; turn < 6; ++turn) {
      const auto prompt_a = turn ? std::vector<int32_t>() : Prompt(8, 0),
                 prompt_b = turn ? std::vector<int32_t>() : Prompt(9, 1);
      const auto part_a = Ask(*a, prompt_a, Tokens(2)).ids, part_b = Ask(*b, prompt_b, Tokens(2)).ids;
      of_a.insert(of_a.end(), part_a.begin(), part_a.end());
      of_b.insert(of_b.end(), part_b.begin(), part_b.end());
    }
    EXPECT_EQ(of_a, alone[0]);
    EXPECT_EQ(of_b, alone[1]);
  }
}

TEST_F(EngineTest, ForkedAndRestoredSessionsGoOnAlike) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Gemma(), On(place));
    const SamplingOptions sampling{.temperature = 0.9, .top_p = 0.9, .repeat_penalty = 1.1, .seed = 42};
    auto session = NewSession(engine, sampling);
    Ask(*session, Prompt(13), Tokens(5));
    auto fork = session->Fork();
    ASSERT_TRUE(fork.ok()) << fork.error().message;
    auto saved = session->Save();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    const std::vector<int32_t> more = Prompt(3, 2);
    const GenerateResult expected = Ask(*session, more, Tokens(9));
    EXPECT_EQ(Ask(**fork, more, Tokens(9)).ids, expected.ids);
    auto restored = NewSession(engine);
    Ask(*restored, Prompt(20, 7), Tokens(3));  // what was there is gone
    const Status status = restored->Restore(*saved);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(restored->sampling().seed, 42u);
    EXPECT_EQ(Ask(*restored, more, Tokens(9)).ids, expected.ids);
  }
}

TEST_F(EngineTest, RefusesSavedSessionsThatAreNotItsOwn) {
  auto engine = LoadTiny(Gemma(), On("cpu"));
  auto session = NewSession(engine);
  Ask(*session, Prompt(5), Tokens(2));
  const std::vector<std::byte> saved = *session->Save();
  const std::vector<int32_t> before(session->tokens().begin(), session->tokens().end());
  auto refusal = [&](Session& into, std::vector<std::byte> bytes) {
    const Status status = into.Restore(bytes);
    return status.ok() ? "taken" : status.error().message;
  };
  for (size_t size = 0; size < saved.size(); size += size < 64 ? 1 : 97) {
    EXPECT_NE(refusal(*session, {saved.begin(), saved.begin() + ptrdiff_t(size)}), "taken") << size;
  }
  for (size_t at = 0; at < saved.size(); at += 53) {
    std::vector<std::byte> damaged = saved;
    damaged[at] ^= std::byte(0x10);
    EXPECT_NE(refusal(*session, damaged), "taken") << at;
  }
  EXPECT_TRUE(std::ranges::equal(session->tokens(), before));
  auto other_context = NewSession(LoadTiny(Gemma(), On("cpu", {4}, 32)));
  EXPECT_NE(refusal(*other_context, saved).find("context"), std::string::npos);
  TinyModel other;
  other.architecture = "gemma3";
  other.seed = 9;
  TinyModelFile other_file(other, "engine-other");
  auto other_model = NewSession(LoadTiny(other_file.path, On("cpu")));
  EXPECT_NE(refusal(*other_model, saved).find("another model"), std::string::npos);
}

TEST_F(EngineTest, PromptsOfAnyLength) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Gemma(), On(place, {4, 16}, 24));
    auto session = NewSession(engine);
    // Empty.
    auto empty = session->Generate({}, Tokens(3));
    ASSERT_FALSE(empty.ok());
    EXPECT_EQ(empty.error().code, Code::kInvalidArgument);
    // Longer than the context: nothing happens.
    GenerateResult result = Ask(*session, Prompt(25), Tokens(3));
    EXPECT_EQ(result.reason, FinishReason::kContextFull);
    EXPECT_TRUE(result.ids.empty() && session->tokens().empty());
    // Exactly the context, which is longer than the window: one token more is known then.
    result = Ask(*session, Prompt(24), Tokens(-1));
    EXPECT_EQ(result.reason, FinishReason::kContextFull);
    EXPECT_EQ(result.ids.size(), 1u);
    EXPECT_EQ(Ask(*session, {}, Tokens(3)).reason, FinishReason::kContextFull);
    // The last slot is used: the answer that ends there is the beginning of the one in a larger context.
    session->Reset();
    result = Ask(*session, Prompt(10), Tokens(-1, 4));
    EXPECT_EQ(result.reason, FinishReason::kContextFull);
    EXPECT_EQ(result.ids.size(), 15u);
    EXPECT_EQ(session->tokens().size(), 25u);
    auto roomy = NewSession(LoadTiny(Gemma(), On(place, {4, 16}, 48)));
    EXPECT_EQ(Ask(*roomy, Prompt(10), Tokens(15)).ids, result.ids);
    // Tokens that do not exist.
    EXPECT_FALSE(session->Generate(std::vector<int32_t>{64}, Tokens(1)).ok());
    EXPECT_FALSE(session->Generate(std::vector<int32_t>{-1}, Tokens(1)).ok());
  }
}

TEST_F(EngineTest, CancelsInDecodeAndInPrefill) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Llama(), On(place, {2}));
    auto session = NewSession(engine);
    const auto prompt = Prompt(20);
    const GenerateResult expected = Ask(*session, prompt, Tokens(20));
    // In the middle of an answer: what came stays, and it can go on.
    session->Reset();
    GenerateOptions options = Tokens(20);
    int seen = 0;
    options.on_token = [&](const Token&) {
      if (++seen == 5) session->Cancel();
      return true;
    };
    GenerateResult result = Ask(*session, prompt, options);
    EXPECT_EQ(result.reason, FinishReason::kCancelled);
    EXPECT_EQ(result.ids.size(), 5u);
    GenerateResult rest = Ask(*session, {}, Tokens(15));
    result.ids.insert(result.ids.end(), rest.ids.begin(), rest.ids.end());
    EXPECT_EQ(result.ids, expected.ids);
    // While the prompt is taken in: what was taken in stays.
    session->Reset();
    options = Tokens(20);
    options.on_prefill = [&](int done, int) {
      if (done >= 6) session->Cancel();
      return true;
    };
    result = Ask(*session, prompt, options);
    EXPECT_EQ(result.reason, FinishReason::kCancelled);
    EXPECT_TRUE(result.ids.empty());
    const size_t kept = session->tokens().size();
    EXPECT_GE(kept, 6u);
    EXPECT_LT(kept, 20u);
    EXPECT_EQ(size_t(result.prompt_tokens), kept);
    EXPECT_EQ(Ask(*session, std::span(prompt).subspan(kept), Tokens(20)).ids, expected.ids);
    // From another thread.
    session->Reset();
    options = Tokens(-1);
    options.on_token = [&](const Token&) {
      std::thread([&] { session->Cancel(); }).join();
      return true;
    };
    EXPECT_EQ(Ask(*session, prompt, options).reason, FinishReason::kCancelled);
  }
}

TEST_F(EngineTest, GoesBackAsFarAsRingsAllow) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Gemma(), On(place, {4}));
    auto session = NewSession(engine);
    const auto prompt = Prompt(20);
    const GenerateResult expected = Ask(*session, prompt, Tokens(6));
    // Within what a ring holds beyond its window.
    ASSERT_TRUE(session->Rewind(24).ok());
    std::vector<int32_t> ids(expected.ids.begin(), expected.ids.begin() + 4);
    GenerateResult rest = Ask(*session, {}, Tokens(2));
    ids.insert(ids.end(), rest.ids.begin(), rest.ids.end());
    EXPECT_EQ(ids, expected.ids);
    EXPECT_EQ(session->Rewind(3).error().code, Code::kUnsupported);
    // A new prompt with a common beginning: either that is kept, or all begins anew; the answer is the same.
    for (size_t common : {size_t(23), size_t(2)}) {
      std::vector<int32_t> next(session->tokens().begin(), session->tokens().begin() + ptrdiff_t(common));
      for (int32_t id : {1, 2, 3}) next.push_back(id);
      const int kept = session->KeepCommon(next);
      EXPECT_EQ(kept, common == 2 ? 0 : int(common));
      const GenerateResult again = Ask(*session, std::span(next).subspan(size_t(kept)), Tokens(5));
      auto fresh = NewSession(engine);
      EXPECT_EQ(Ask(*fresh, next, Tokens(5)).ids, again.ids);
    }
  }
}

TEST_F(EngineTest, StopsAtTokensAndTexts) {
  auto engine = LoadTiny(Llama(), On("cpu"));
  auto session = NewSession(engine);
  const auto prompt = Prompt(6);
  GenerateOptions options = Tokens(16);
  std::string streamed;
  options.on_token = [&](const Token& token) {
    streamed += token.text;
    return true;
  };
  const GenerateResult all = Ask(*session, prompt, options);
  EXPECT_EQ(streamed, all.text);
  EXPECT_EQ(all.text, engine->Detokenize(all.ids));
  ASSERT_GE(all.text.size(), 6u);
  // A token that comes later than the first.
  session->Reset();
  options.stop_tokens = {all.ids[3]};
  const size_t at = size_t(std::find(all.ids.begin(), all.ids.end(), all.ids[3]) - all.ids.begin());
  GenerateResult result = Ask(*session, prompt, options);
  EXPECT_EQ(result.reason, FinishReason::kStopToken);
  EXPECT_EQ(result.ids.size(), at + 1);
  // A text across two tokens.
  session->Reset();
  options.stop_tokens.clear();
  options.stop_texts = {all.text.substr(3, 3)};
  streamed.clear();
  result = Ask(*session, prompt, options);
  EXPECT_EQ(result.reason, FinishReason::kStopText);
  EXPECT_EQ(result.text, all.text.substr(0, all.text.find(options.stop_texts[0])));
  EXPECT_EQ(streamed, result.text);
  // The model's own end.
  session->Reset();
  EXPECT_EQ(engine->stop_tokens(), std::vector<int32_t>{28});
}

TEST_F(EngineTest, ScoresAreThoseOfTheLogits) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Llama(), On(place));
    auto session = NewSession(engine);
    GenerateOptions options = Tokens(3);
    options.logprobs = 4;
    options.logits = true;
    int seen = 0;
    options.on_token = [&](const Token& token) {
      EXPECT_EQ(token.logits.size(), 64u);
      double sum = 0;
      for (float l : token.logits) sum += std::exp(double(l));
      const float largest = *std::max_element(token.logits.begin(), token.logits.end());
      EXPECT_NEAR(token.logprob, largest - std::log(sum), 1e-4);
      EXPECT_EQ(token.best.size(), 4u);
      EXPECT_EQ(token.best[0].id, token.id);
      for (size_t i = 1; i < token.best.size(); ++i) EXPECT_GE(token.best[i - 1].logprob, token.best[i].logprob);
      ++seen;
      return true;
    };
    const GenerateResult result = Ask(*session, Prompt(4), options);
    EXPECT_EQ(seen, 3);
    EXPECT_EQ(result.logprobs.size(), 3u);
  }
}

TEST_F(EngineTest, SamplingIsReproducibleAndSeedsDiffer) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    auto engine = LoadTiny(Llama(), On(place));
    auto of_seed = [&](uint64_t seed, int in_flight) {
      auto session = NewSession(engine, {.temperature = 1.5, .seed = seed});
      return Ask(*session, Prompt(5), Tokens(16, in_flight)).ids;
    };
    EXPECT_EQ(of_seed(1, 1), of_seed(1, 4));
    EXPECT_NE(of_seed(1, 3), of_seed(2, 3));
  }
  auto engine = LoadTiny(Llama(), On("cpu"));
  EXPECT_FALSE(Session::Create(engine, {.sampling = {.temperature = -1}}).ok());
  EXPECT_FALSE(Session::Create(engine, {.sampling = {.top_p = 2}}).ok());
  EXPECT_FALSE(Session::Create(engine, {.sampling = {.repeat_penalty = 0}}).ok());
}

TEST_F(EngineTest, TheSameWithAColdAndAWarmProgramCache) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / StrCat("leeway-cache-", std::to_string(getpid()))).string();
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    std::vector<std::vector<int32_t>> ids;
    for (int start = 0; start < 2; ++start) {
      EngineOptions options = On(place);
      options.cache_folder = folder;
      auto engine = LoadTiny(Llama(), options);
      auto session = NewSession(engine);
      ids.push_back(Ask(*session, Prompt(9), Tokens(8)).ids);
    }
    EXPECT_EQ(ids[0], ids[1]);
  }
  std::error_code error;
  std::filesystem::remove_all(folder, error);
}

TEST_F(EngineTest, TellsItsMemoryBeforeAndKeepsToLimits) {
  for (const std::string& place : Places()) {
    SCOPED_TRACE(place);
    if (place == "cpu") continue;  // it has no memory of a device
    EngineOptions options = On(place);
    const auto estimate = Engine::EstimateMemory(Gemma(), options);
    ASSERT_TRUE(estimate.ok()) << estimate.error().message;
    EXPECT_EQ(estimate->context, 48);
    EXPECT_GT(estimate->weights_bytes, 0u);
    EXPECT_GT(estimate->cache_bytes, 0u);
    auto engine = LoadTiny(Gemma(), options);
    EXPECT_EQ(engine->memory().total_bytes, estimate->total_bytes);
    const uint64_t before = engine->device_bytes();
    auto session = NewSession(engine);
    const uint64_t of_session = engine->device_bytes() - before;
    EXPECT_NEAR(double(of_session), double(estimate->cache_bytes + estimate->session_bytes), 4096);
    options.memory_limit_bytes = estimate->total_bytes - 1;
    const auto refused = Engine::Load(Gemma(), options);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
  }
}

TEST_F(EngineTest, LoadsCanBeCancelledAtEveryStep) {
  EngineOptions options = On("cpu");
  int calls = 0;
  options.progress = [&](const LoadProgress&) { return ++calls, true; };
  ASSERT_TRUE(LoadTiny(Llama(), options));
  const int all = calls;
  EXPECT_GT(all, 3);
  for (int n = 1; n <= all; ++n) {
    calls = 0;
    options.progress = [&](const LoadProgress&) { return ++calls < n; };
    const auto cancelled = Engine::Load(Llama(), options);
    ASSERT_FALSE(cancelled.ok()) << n;
    EXPECT_EQ(cancelled.error().code, Code::kCancelled);
  }
}

TEST_F(EngineTest, WithoutATokenizerTokensAreAllThereIs) {
  TinyModel tiny;
  tiny.tokenizer = false;
  TinyModelFile file(tiny, "engine-mute");
  auto engine = LoadTiny(file.path, On("cpu"));
  EXPECT_FALSE(engine->model().has_tokenizer);
  EXPECT_EQ(engine->Tokenize("text", {}).error().code, Code::kUnsupported);
  auto session = NewSession(engine);
  const GenerateResult result = Ask(*session, Prompt(3), Tokens(4));
  EXPECT_EQ(result.ids.size(), 4u);
  EXPECT_EQ(result.text, "");
}

TEST_F(EngineTest, OneGenerationAtATime) {
  auto engine = LoadTiny(Llama(), On("cpu"));
  auto a = NewSession(engine), b = NewSession(engine);
  GenerateOptions options = Tokens(2);
  options.on_token = [&](const Token&) {
    EXPECT_EQ(b->Generate(Prompt(2), Tokens(1)).error().code, Code::kInvalidArgument);
    return true;
  };
  Ask(*a, Prompt(3), options);
  EXPECT_TRUE(b->Generate(Prompt(2), Tokens(1)).ok());
  options = Tokens(1);
  options.steps_in_flight = 5;
  EXPECT_FALSE(a->Generate({}, options).ok());
}

}  // namespace
}  // namespace leeway::llm
