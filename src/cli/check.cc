// leeway check: every node on the device against its CPU reference; of a language model, decoding against decoding in f32.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "cli/check_llm.h"
#include "cli/common.h"
#include "cli/inputs.h"
#include "cli/llm_reports.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

struct CheckArguments {
  LoadArguments load;
  InputArguments inputs;
  CheckOptions options;
  bool as_json = false, all = false;
  LlmCheckArguments llm;
};

json ToJson(const NodeCheck& n) {
  return {{"node", n.node},
          {"label", n.label},
          {"value", n.value},
          {"max_difference", n.max_difference},
          {"range", n.range},
          {"at", n.at},
          {"device_value", n.device_value},
          {"reference_value", n.reference_value},
          {"not_finite", n.not_finite},
          {"max_magnitude", n.max_magnitude},
          {"differs", n.differs},
          {"leaves_f16", n.leaves_f16}};
}

std::string Number(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", v);
  return text;
}

int Check(const CheckArguments& a) {
  if (llm::Engine::IsLanguageModel(a.load.model)) {
    LlmCheckArguments arguments = a.llm;
    arguments.load = ToLlmArguments(a.load);
    arguments.as_json = a.as_json;
    return CheckLlm(arguments);
  }
  Result<CompiledModel> model = CompiledModel::FromFile(a.load.model, ToCompileOptions(a.load));
  if (!model.ok()) return Fail(model.error(), a.as_json);
  const Meaning meaning = FindMeaning(ToShapes(model->inputs()), ToShapes(model->outputs()));
  InputArguments arguments = a.inputs;
  arguments.random = true;  // inputs that are not given: zeros would hide most mistakes
  Result<InputsSet> inputs = SetInputs(*model, meaning, arguments);
  if (!inputs.ok()) return Fail(inputs.error(), a.as_json);
  Result<CheckReport> report = model->Check(a.options);
  if (!report.ok()) return Fail(report.error(), a.as_json);
  const bool differs = report->first_difference >= 0;

  if (a.as_json) {
    json out = {
        {"device", model->device().name},
        {"nodes_checked", report->nodes.size()},
        {"nodes_on_cpu", model->placement().nodes_on_cpu},
        {"differs", differs},
        {"first_difference", differs ? ToJson(report->nodes[size_t(report->first_difference)]) : json()},
        {"first_beyond_f16", report->first_beyond_f16 >= 0 ? ToJson(report->nodes[size_t(report->first_beyond_f16)]) : json()},
        {"nodes", json::array()}};
    for (const NodeCheck& node : report->nodes) out["nodes"].push_back(ToJson(node));
    PrintJson(out);
    return differs ? kDiffers : kDone;
  }
  if (a.all) {
    std::vector<std::vector<std::string>> rows = {{"node", "value", "greatest difference", "range", "result"}};
    for (const NodeCheck& n : report->nodes) {
      rows.push_back({n.label, n.value, Number(n.max_difference), Number(n.range), n.differs ? "DIFFERS" : "same"});
    }
    std::fputs(Table(rows, {false, false, true, true, false}).c_str(), stdout);
  }
  std::printf("%zu nodes checked on %s\n", report->nodes.size(), model->device().name.c_str());
  if (differs) {
    const NodeCheck& n = report->nodes[size_t(report->first_difference)];
    std::printf(
        "first node that differs: %s, value %s: element %lld is %s on the device and %s in the reference (range %s%s)\n",
        n.label.c_str(), n.value.c_str(), static_cast<long long>(n.at), Number(n.device_value).c_str(),
        Number(n.reference_value).c_str(), Number(n.range).c_str(),
        n.not_finite ? StrCat(", ", n.not_finite, " elements not finite").c_str() : "");
  } else {
    std::printf("no node differs from its CPU reference\n");
  }
  if (report->first_beyond_f16 >= 0) {
    const NodeCheck& n = report->nodes[size_t(report->first_beyond_f16)];
    std::printf("first node that leaves the f16 range: %s, value %s: magnitude %s\n", n.label.c_str(), n.value.c_str(),
                Number(n.max_magnitude).c_str());
  } else {
    std::printf("every value stays within the f16 range\n");
  }
  return differs ? kDiffers : kDone;
}

}  // namespace

void AddCheckCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<CheckArguments>();
  CLI::App* command = app.add_subcommand("check", "Compare what a device computes with a reference");
  AddLoadArguments(*command, a->load);
  AddInputArguments(*command, a->inputs);
  command
      ->add_option("--tolerance", a->options.tolerance, "Relative to the range of a node's values (default: 1e-4, f16: 1e-2)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--stop-at-first", a->options.stop_at_first, "Stop at the first node that differs");
  command->add_flag("--all", a->all, "List every node");
  AddLlmCheckArguments(*command, a->llm);
  command->add_flag("--json", a->as_json, "Print JSON");
  command->footer(
      "Exit code 3: a node differs, or a language model misses the gate of its precision. Inputs that are not given are drawn "
      "at "
      "random, the same in each call.\nLanguage models take given tokens in one by one, with the plans of decoding, beside a "
      "reference in f32 whose decoding is not fused; what is compared is every logit of every step.");
  command->callback([&run, a] { run = [a] { return Check(*a); }; });
}

}  // namespace leeway::cli
