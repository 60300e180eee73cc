#include "cli/check_llm.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "llm/accuracy.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

// Tokens that the reference goes on with by itself, in texts as long as the context allows.
Result<std::vector<std::vector<int32_t>>> Generated(const std::shared_ptr<llm::Engine>& engine, const LlmCheckArguments& a) {
  std::vector<std::vector<int32_t>> texts;
  // Where a text begins: what the model puts first, or else something that texts begin with.
  std::vector<int32_t> start = {0};
  if (engine->model().has_tokenizer) { ASSIGN_OR_RETURN(start, engine->Tokenize("The", {.start = true})); }
  for (int left = a.generate; left > 0;) {
    ASSIGN_OR_RETURN(auto session, llm::Session::Create(
                                       engine, {.sampling = {.temperature = a.temperature, .seed = uint64_t(texts.size())}}));
    llm::GenerateOptions options;
    options.ignore_end = true;
    options.max_tokens = std::min(left, engine->context() - int(start.size()));
    ASSIGN_OR_RETURN(const auto result, session->Generate(start, options));
    texts.push_back(start);
    texts.back().insert(texts.back().end(), result.ids.begin(), result.ids.end());
    left -= options.max_tokens;
  }
  return texts;
}

Result<std::vector<std::vector<int32_t>>> Texts(const std::shared_ptr<llm::Engine>& engine, const LlmCheckArguments& a) {
  if (!a.ids.empty()) return std::vector<std::vector<int32_t>>{a.ids};
  if (a.generate > 0) return Generated(engine, a);
  std::vector<std::string> given;
  for (const std::string& path : a.text_files) {
    ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
    given.emplace_back(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  }
  if (given.empty()) {
    for (const std::string_view passage : llm::GatePassages()) given.emplace_back(passage);
  }
  std::vector<std::vector<int32_t>> texts;
  for (const std::string& text : given) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, engine->Tokenize(text, {.start = true}));
    // What does not fit begins anew.
    for (size_t at = 0; at < ids.size(); at += size_t(engine->context())) {
      const size_t end = std::min(ids.size(), at + size_t(engine->context()));
      texts.emplace_back(ids.begin() + ptrdiff_t(at), ids.begin() + ptrdiff_t(end));
    }
  }
  return texts;
}

std::string Number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

void AddLlmCheckArguments(CLI::App& command, LlmCheckArguments& a) {
  command.add_flag("--int8", a.int8, "Language models: with activations in 8 bits");
  command.add_option("--fuse-decoding", a.fuse_decoding, "Language models: few dispatches a token (default: by device)");
  command.add_option("--reference-device", a.reference_device,
                     "Language models: where the reference runs (default: as --device)");
  CLI::Option* text =
      command.add_option("--text", a.text_files, "Language models: files with texts (default: built-in passages)")
          ->check(CLI::ExistingFile);
  CLI::Option* ids =
      command.add_option("--ids", a.ids, "Language models: tokens instead of texts")->delimiter(',')->excludes(text);
  command
      .add_option("--generate", a.generate,
                  "Language models: so many tokens that the reference itself samples, instead of texts")
      ->check(CLI::PositiveNumber)
      ->excludes(text)
      ->excludes(ids);
  command.add_option("--temperature", a.temperature, "Of --generate (default 1; 0: always the most likely token)");
  command.add_option("-c,--context", a.context, "Language models: room for tokens; longer texts are cut (default 320)")
      ->check(CLI::Range(2, INT32_MAX));
}

int CheckLlm(const LlmCheckArguments& a) {
  LlmArguments load = a.load;
  load.context = a.context;
  load.fuse_decoding = a.fuse_decoding;
  if (a.int8) load.precision = "int8";
  LlmArguments reference_load = a.load;
  reference_load.context = a.context;
  reference_load.precision = "f32";
  reference_load.f32_cache = true;
  reference_load.fuse_decoding = false;
  if (!a.reference_device.empty()) reference_load.device = a.reference_device;
  // Plans for many rows have no part in this.
  load.chunk_rows = reference_load.chunk_rows = {1};
  auto reference = LoadEngine(reference_load, a.as_json);
  if (!reference.ok()) return Fail(reference.error(), a.as_json);
  auto engine = LoadEngine(load, a.as_json);
  if (!engine.ok()) return Fail(engine.error(), a.as_json);
  auto texts = Texts(*reference, a);
  if (!texts.ok()) return Fail(texts.error(), a.as_json);

  const bool shows_progress = !a.as_json && IsTerminal(STDERR_FILENO);
  auto compared = llm::CompareDecoding(*reference, *engine, *texts, [&](int done, int total) {
    if (shows_progress) std::fprintf(stderr, "\r%d of %d steps\033[K", done, total);
    return true;
  });
  if (shows_progress) std::fprintf(stderr, "\r\033[K");
  if (!compared.ok()) return Fail(compared.error(), a.as_json);
  const llm::AccuracyReport& r = *compared;
  const std::string precision = PrecisionName(**engine);
  const llm::AccuracyGate gate = precision == "int8"  ? llm::AccuracyGate::Int8()
                                 : precision == "f16" ? llm::AccuracyGate::F16()
                                                      : llm::AccuracyGate::F32();
  const std::string unmet = gate.Unmet(r);
  const DeviceSummary device = (*engine)->device(), reference_device = (*reference)->device();
  const double rise = r.perplexity() / r.reference_perplexity() - 1;
  if (a.as_json) {
    json asked = {{"min_agreement", gate.min_agreement}};
    if (std::isfinite(gate.max_perplexity_rise)) asked["max_perplexity_rise"] = gate.max_perplexity_rise;
    if (std::isfinite(gate.max_logit_difference)) asked["max_logit_difference"] = gate.max_logit_difference;
    PrintJson({{"model", (*engine)->model().name},
               {"device", {{"api", device.api}, {"name", device.name}, {"driver", device.driver}}},
               {"reference_device", {{"api", reference_device.api}, {"name", reference_device.name}}},
               {"precision", precision},
               {"dispatches_per_token", (*engine)->stages()[0].dispatches},
               {"texts", texts->size()},
               {"steps", r.steps},
               {"same_best", r.same_best},
               {"agreement", r.agreement()},
               {"largest_flipped_margin", r.largest_flipped_margin},
               {"max_logit_difference", r.max_logit_difference},
               {"max_logit_difference_at", r.max_logit_difference_at},
               {"mean_logit_difference", r.mean_logit_difference},
               {"mean_divergence", r.mean_divergence},
               {"not_finite", r.not_finite},
               {"reference_perplexity", r.reference_perplexity()},
               {"perplexity", r.perplexity()},
               {"perplexity_rise", rise},
               {"gate", asked},
               {"passed", unmet.empty()},
               {"unmet", unmet}});
    return unmet.empty() ? kDone : kDiffers;
  }
  std::printf("%s in %s on %s (%s), beside f32 on %s (%s): %d steps of %zu texts\n", (*engine)->model().name.c_str(),
              precision.c_str(), device.name.c_str(), device.api.c_str(), reference_device.name.c_str(),
              reference_device.api.c_str(), r.steps, texts->size());
  std::fputs(
      Table({{"same most likely token", Number("%.2f %%", r.agreement() * 100), StrCat(r.same_best, " of ", r.steps)},
             {"largest margin where not", Number("%.4f", r.largest_flipped_margin), "logits"},
             {"perplexity", Number("%.4f", r.perplexity()),
              StrCat("the reference's ", Number("%.4f", r.reference_perplexity()), ", ", Number("%+.3f %%", rise * 100))},
             {"largest difference of a logit", Number("%.4f", r.max_logit_difference),
              StrCat("step ", r.max_logit_difference_at)},
             {"mean difference of a logit", Number("%.5f", r.mean_logit_difference), ""},
             {"mean divergence", Number("%.6f", r.mean_divergence), "nats"}},
            {false, true, false})
          .c_str(),
      stdout);
  std::printf("%s\n", unmet.empty() ? "The gate is passed." : StrCat("The gate is NOT passed. ", unmet).c_str());
  return unmet.empty() ? kDone : kDiffers;
}

}  // namespace leeway::cli
