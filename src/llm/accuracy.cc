#include "llm/accuracy.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "base/strings.h"
#include "leeway/llm.h"

namespace leeway::llm {
namespace {

// Tokens that one of the two goes ahead by: so many rows of logits are kept.
constexpr size_t kStride = 16;

// What is learned of one step.
void Compare(std::span<const float> want, std::span<const float> got, const ScoredToken& wanted, const ScoredToken& judged,
             AccuracyReport& report) {
  double sum = 0, largest = 0;
  double divergence = 0;
  // log p - log q of the two distributions, weighed by p.
  const double want_log_sum = double(want[size_t(wanted.best)]) - wanted.best_logprob;
  const double got_log_sum = double(got[size_t(judged.best)]) - judged.best_logprob;
  bool is_finite = true;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(double(want[i]) - got[i]);
    is_finite = is_finite && std::isfinite(got[i]);
    sum += difference;
    largest = std::max(largest, difference);
    const double logprob = want[i] - want_log_sum;
    if (logprob > -30) divergence += std::exp(logprob) * (logprob - (got[i] - got_log_sum));
  }
  if (!is_finite) ++report.not_finite;
  if (largest > report.max_logit_difference || !std::isfinite(largest)) {
    report.max_logit_difference = largest;
    report.max_logit_difference_at = report.steps;
  }
  report.mean_logit_difference += sum / double(want.size());
  report.mean_divergence += divergence;
  const bool same = wanted.best == judged.best;
  if (same) ++report.same_best;
  if (!same) report.largest_flipped_margin = std::max(report.largest_flipped_margin, double(wanted.margin));
  report.reference_logprob += wanted.logprob;
  report.logprob += judged.logprob;
  ++report.steps;
}

}  // namespace

double AccuracyReport::agreement() const { return steps > 0 ? double(same_best) / steps : 0; }
double AccuracyReport::reference_perplexity() const { return steps > 0 ? std::exp(-reference_logprob / steps) : 0; }
double AccuracyReport::perplexity() const { return steps > 0 ? std::exp(-logprob / steps) : 0; }

std::string AccuracyGate::Unmet(const AccuracyReport& report) const {
  if (report.steps == 0) return "No step was compared.";
  if (report.not_finite > 0) return StrCat("(", report.not_finite, ") steps have logits that are not finite.");
  if (report.agreement() < min_agreement) {
    return StrCat("The most likely token is the same in ", report.agreement() * 100, " % of the steps; the gate asks for ",
                  min_agreement * 100, " %.");
  }
  const double rise = report.perplexity() / report.reference_perplexity() - 1;
  if (std::isfinite(max_perplexity_rise) && !(rise <= max_perplexity_rise)) {
    return StrCat("The perplexity is ", rise * 100, " % above the reference's; the gate allows ", max_perplexity_rise * 100,
                  " %.");
  }
  if (!(report.max_logit_difference <= max_logit_difference)) {
    return StrCat("A logit differs by ", report.max_logit_difference, "; the gate allows ", max_logit_difference, ".");
  }
  return "";
}

Result<AccuracyReport> CompareDecoding(const std::shared_ptr<Engine>& reference, const std::shared_ptr<Engine>& engine,
                                       std::span<const std::vector<int32_t>> texts,
                                       const std::function<bool(int done, int total)>& progress) {
  if (reference->model().vocabulary != engine->model().vocabulary) {
    return Error{Code::kInvalidArgument, StrCat("The vocabularies of the two have ", reference->model().vocabulary, " and ",
                                                engine->model().vocabulary, " tokens: they can't be compared.")};
  }
  ASSIGN_OR_RETURN(auto expected, Session::Create(reference));
  ASSIGN_OR_RETURN(auto tried, Session::Create(engine));
  int total = 0;
  for (const auto& text : texts) {
    total += std::max(0, int(text.size()) - 1);
    const int context = std::min(reference->context(), engine->context());
    if (int(text.size()) > context) {
      return Error{Code::kInvalidArgument,
                   StrCat("A text has ", text.size(), " tokens, and the context has room for (", context, ").")};
    }
  }
  AccuracyReport report;
  std::vector<std::vector<float>> kept(kStride);
  for (const auto& text : texts) {
    expected->Reset();
    tried->Reset();
    for (size_t at = 0; at < text.size(); at += kStride) {
      const auto part = std::span(text).subspan(at, std::min(kStride, text.size() - at));
      size_t next = 0;
      ScoreOptions options;
      options.on_token = [&](const ScoredToken&, std::span<const float> logits) {
        kept[next++].assign(logits.begin(), logits.end());
        return true;
      };
      ASSIGN_OR_RETURN(const ScoreResult wanted, expected->Score(part, options));
      next = 0;
      options.on_token = [&](const ScoredToken& token, std::span<const float> logits) {
        Compare(kept[next], logits, wanted.tokens[next], token, report);
        ++next;
        return true;
      };
      ASSIGN_OR_RETURN(const ScoreResult judged, tried->Score(part, options));
      if (progress && !progress(report.steps, total)) return Error{Code::kCancelled, "The caller ended the comparison."};
    }
  }
  if (report.steps > 0) {
    report.mean_logit_difference /= report.steps;
    report.mean_divergence /= report.steps;
  }
  return report;
}

}  // namespace leeway::llm
