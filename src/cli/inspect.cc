// leeway inspect: what became of a model: graph, placement, memory plan, launch plan, shader texts. Of a language model: what
// its files hold.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "cli/common.h"
#include "cli/llm_reports.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

struct InspectArguments {
  LoadArguments load;
  bool as_json = false, before = false, after = false, placement = false, memory = false, plan = false;
  std::string svg;
  int kernel = -1, context = 0;
  bool all_kernels = false;
  std::string target;
};

Status WriteText(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file && std::fclose(file) == 0;
  if (!written || !closed) return Error{Code::kIo, StrCat("The file ", path, " can't be written.")};
  return {};
}

std::string PlacementText(const CompiledModel& model) {
  const PlacementReport& report = model.placement();
  std::vector<std::vector<std::string>> rows = {{"node", "where", "variant", "dispatches", "reason"}};
  for (const NodePlacement& node : report.nodes) {
    rows.push_back({node.label, node.on_gpu ? "GPU" : "CPU", node.variant, StrCat(node.dispatches), node.reason});
  }
  std::string text = Table(rows, {false, false, false, true, false});
  text += StrCat(report.nodes_on_gpu, " nodes on the GPU, ", report.nodes_on_cpu, " on the CPU, ", report.handovers,
                 " hand-overs of ", BytesText(report.handover_bytes), " a run\n");
  for (const std::string& note : report.notes) text += note + "\n";
  return text;
}

int Inspect(const InspectArguments& a) {
  if (llm::Engine::IsLanguageModel(a.load.model)) {
    LlmArguments load = ToLlmArguments(a.load);
    load.context = a.context;
    return InspectLlm(load, a.plan, a.as_json);
  }
  Result<CompiledModel> model = CompiledModel::FromFile(a.load.model, ToCompileOptions(a.load));
  if (!model.ok()) return Fail(model.error(), a.as_json);

  if (a.kernel >= 0 || a.all_kernels) {
    const int count = int(model->dispatches().size());
    if (a.kernel >= count) {
      return Fail(
          {Code::kInvalidArgument, StrCat("There is no kernel ", a.kernel, ": the launch plan has ", count, " dispatches.")},
          a.as_json);
    }
    json texts = json::array();
    for (int i = a.all_kernels ? 0 : a.kernel; i < (a.all_kernels ? count : a.kernel + 1); ++i) {
      const Result<std::string> text = a.target.empty() ? model->ProgramText(i) : model->ProgramText(i, a.target);
      if (!text.ok()) return Fail(text.error(), a.as_json);
      const DispatchInfo& dispatch = model->dispatches()[size_t(i)];
      if (a.as_json) {
        texts.push_back({{"dispatch", i}, {"node", dispatch.label}, {"kernel", dispatch.kernel}, {"text", *text}});
      } else {
        std::printf("// dispatch %d: %s for %s\n%s\n", i, dispatch.kernel.c_str(), dispatch.label.c_str(), text->c_str());
      }
    }
    if (a.as_json) PrintJson(texts);
    return kDone;
  }
  if (!a.svg.empty()) {
    if (Status status = WriteText(a.svg, model->MemoryPlanSvg()); !status.ok()) return Fail(status.error(), a.as_json);
  }

  if (a.as_json) {
    json report;
    report["model"] = model->name();
    report["device"] = ToJson(model->device());
    report["inputs"] = json::array();
    for (const TensorInfo& t : model->inputs()) report["inputs"].push_back(ToJson(t));
    report["outputs"] = json::array();
    for (const TensorInfo& t : model->outputs()) report["outputs"].push_back(ToJson(t));
    report["metadata"] = model->metadata();
    report["load"] = ToJson(model->load_report());
    report["memory"] = ToJson(model->memory());
    const PlacementReport& placement = model->placement();
    report["nodes_on_gpu"] = placement.nodes_on_gpu;
    report["nodes_on_cpu"] = placement.nodes_on_cpu;
    report["handovers"] = placement.handovers;
    report["notes"] = placement.notes;
    report["nodes"] = json::array();
    for (const NodePlacement& node : placement.nodes) {
      report["nodes"].push_back({{"node", node.node},
                                 {"name", node.name},
                                 {"op", node.op},
                                 {"on_gpu", node.on_gpu},
                                 {"reason", node.reason},
                                 {"variant", node.variant},
                                 {"dispatches", node.dispatches}});
    }
    report["dispatches"] = json::array();
    for (const DispatchInfo& d : model->dispatches()) {
      report["dispatches"].push_back({{"node", d.node},
                                      {"label", d.label},
                                      {"kernel", d.kernel},
                                      {"variant", d.variant},
                                      {"workgroups", d.workgroups},
                                      {"workgroup_size", d.workgroup_size},
                                      {"flops", d.flops},
                                      {"read_bytes", d.read_bytes},
                                      {"write_bytes", d.write_bytes}});
    }
    report["graph_before"] = model->GraphTextBefore();
    report["graph_after"] = model->GraphTextAfter();
    report["plan"] = model->PlanText();
    report["memory_plan"] = model->MemoryPlanText();
    PrintJson(report);
    return kDone;
  }

  const bool everything = !a.before && !a.after && !a.placement && !a.memory && !a.plan && a.svg.empty();
  auto section = [](const char* title, const std::string& text) { std::printf("== %s\n%s\n", title, text.c_str()); };
  if (everything) {
    std::string text;
    for (const TensorInfo& t : model->inputs()) text += StrCat("input  ", t.name, "  ", ShapeText(t), "\n");
    for (const TensorInfo& t : model->outputs()) text += StrCat("output ", t.name, "  ", ShapeText(t), "\n");
    for (const auto& [key, value] : model->metadata()) text += StrCat(key, ": ", value, "\n");
    section(model->name().c_str(), text);
  }
  if (everything || a.before) section("graph of the file", model->GraphTextBefore());
  if (everything || a.after) {
    std::string passes;
    for (const PassSummary& pass : model->load_report().passes) {
      passes += StrCat(
          pass.name, pass.disabled ? ": off" : StrCat(": ", pass.changes, " changes, ", Milliseconds(pass.milliseconds)), "\n");
    }
    section("passes", passes);
    section("graph after passes", model->GraphTextAfter());
  }
  if (everything || a.placement) section("placement", PlacementText(*model));
  if (everything || a.memory) section("memory plan", model->MemoryPlanText());
  if (everything || a.plan) section("launch plan", model->PlanText());
  return kDone;
}

}  // namespace

void AddInspectCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<InspectArguments>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show graph, passes, placement, layouts, memory plan, launch plan and shader texts");
  AddLoadArguments(*command, a->load);
  command->add_flag("--json", a->as_json, "Print JSON");
  command->add_flag("--before", a->before, "Only the graph of the file");
  command->add_flag("--after", a->after, "Only passes and the graph after them");
  command->add_flag("--placement", a->placement, "Only where each node runs, and why");
  command->add_flag("--memory", a->memory, "Only the memory plan");
  command->add_flag("--plan", a->plan, "Only the launch plan");
  command->add_option("--svg", a->svg, "Write the memory plan as a picture to this file");
  command->add_option("--kernel", a->kernel, "The shader text of dispatch N of the launch plan")->check(CLI::NonNegativeNumber);
  command->add_flag("--kernels", a->all_kernels, "The shader texts of all dispatches");
  command->add_option("-c,--context", a->context, "Language models: tokens to have room for")->check(CLI::NonNegativeNumber);
  command->add_option("--target", a->target, "Language of the shader text (default: the device's)")
      ->check(CLI::IsMember({"wgsl", "opencl", "glsl", "msl", "kernel"}));
  command->callback([&run, a] { run = [a] { return Inspect(*a); }; });
}

}  // namespace leeway::cli
