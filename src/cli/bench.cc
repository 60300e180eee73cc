// leeway bench: how fast a model loads and runs, and what share of the device it uses.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "cli/common.h"
#include "cli/inputs.h"
#include "cli/llm_reports.h"
#include "device/measure.h"

namespace leeway::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct BenchArguments {
  LoadArguments load;
  InputArguments inputs;
  int runs = 50, warmup = 10, profiles = 5;
  double seconds = 10;
  bool as_json = false, kernels = false, no_roofline = false;
  LlmBenchArguments llm;
};

double Since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

double At(const std::vector<double>& sorted, double share) {
  return sorted.empty() ? 0 : sorted[std::min(sorted.size() - 1, size_t(double(sorted.size()) * share))];
}

int Bench(const BenchArguments& a) {
  if (llm::Engine::IsLanguageModel(a.load.model)) {
    LlmBenchArguments arguments = a.llm;
    arguments.load = ToLlmArguments(a.load);
    arguments.load.context = a.llm.context;
    arguments.as_json = a.as_json;
    arguments.kernels = a.kernels;
    arguments.no_roofline = a.no_roofline;
    return BenchLlm(arguments);
  }
  const auto load_start = Clock::now();
  const CompileOptions options = ToCompileOptions(a.load);
  Result<CompiledModel> model = CompiledModel::FromFile(a.load.model, options);
  if (!model.ok()) return Fail(model.error(), a.as_json);
  const double load_ms = Since(load_start);
  const Meaning meaning = FindMeaning(ToShapes(model->inputs()), ToShapes(model->outputs()));
  InputArguments inputs = a.inputs;
  inputs.random = true;
  if (auto set = SetInputs(*model, meaning, inputs); !set.ok()) return Fail(set.error(), a.as_json);

  const auto first_start = Clock::now();
  if (Status status = model->Run(); !status.ok()) return Fail(status.error(), a.as_json);
  const double first_ms = Since(first_start);
  for (int i = 0; i < a.warmup && Since(first_start) < a.seconds * 200; ++i) {
    if (Status status = model->Run(); !status.ok()) return Fail(status.error(), a.as_json);
  }
  std::vector<double> times;
  const auto runs_start = Clock::now();
  // At least three runs, then as many as asked for within the time.
  while (int(times.size()) < a.runs && (times.size() < 3 || Since(runs_start) < a.seconds * 1000)) {
    const auto start = Clock::now();
    if (Status status = model->Run(); !status.ok()) return Fail(status.error(), a.as_json);
    times.push_back(Since(start));
  }
  std::sort(times.begin(), times.end());

  // Per dispatch: the median of several profiled runs.
  const std::vector<DispatchInfo>& dispatches = model->dispatches();
  std::vector<std::vector<double>> per_dispatch(dispatches.size());
  std::vector<double> gpu_sums;
  for (int i = 0; i < a.profiles && !dispatches.empty(); ++i) {
    Result<Profile> profile = model->ProfileRun();
    if (!profile.ok()) return Fail(profile.error(), a.as_json);
    if (!profile->has_timestamps) break;
    gpu_sums.push_back(profile->gpu_ms);
    for (const DispatchTime& t : profile->dispatches) per_dispatch[size_t(t.dispatch)].push_back(t.gpu_ms);
  }
  std::sort(gpu_sums.begin(), gpu_sums.end());
  double flops = 0;
  uint64_t bytes = 0;
  for (const DispatchInfo& d : dispatches) flops += d.flops, bytes += d.read_bytes + d.write_bytes;

  DeviceSpeed measure;
  if (!a.no_roofline && model->device().api != "cpu") {
    Result<std::shared_ptr<Device>> device = OpenSharedDevice(a.load.device, options.device_options);
    if (!device.ok()) return Fail(device.error(), a.as_json);
    Result<DeviceSpeed> measured = MeasureDevice(**device);
    if (!measured.ok()) return Fail(measured.error(), a.as_json);
    measure = *measured;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const uint64_t host_peak = uint64_t(usage.ru_maxrss) * 1024;
  const MemoryReport memory = model->memory();
  const double median = At(times, 0.5), gpu_ms = At(gpu_sums, 0.5);

  if (a.as_json) {
    json report = {
        {"model", model->name()},
        {"device", {{"api", model->device().api}, {"name", model->device().name}, {"driver", model->device().driver}}},
        {"precision", a.load.precision},
        {"load_ms", load_ms},
        {"load", ToJson(model->load_report())},
        {"first_ms", first_ms},
        {"runs", times.size()},
        {"median_ms", median},
        {"p10_ms", At(times, 0.1)},
        {"p90_ms", At(times, 0.9)},
        {"gpu_ms", gpu_sums.empty() ? json() : json(gpu_ms)},
        {"dispatches", dispatches.size()},
        {"flops", flops},
        {"bytes", bytes},
        {"nodes_on_gpu", model->placement().nodes_on_gpu},
        {"nodes_on_cpu", model->placement().nodes_on_cpu},
        {"host_peak_bytes", host_peak},
        {"memory", ToJson(memory)},
        {"device_bytes_per_s", measure.read_bytes_per_second},
        {"device_flops_per_s", measure.f32_flops},
        {"device_dispatch_us", measure.dispatch_seconds * 1e6},
        {"device_round_trip_us", measure.round_trip_seconds * 1e6},
        {"kernels", json::array()}};
    for (size_t i = 0; i < dispatches.size(); ++i) {
      std::vector<double>& t = per_dispatch[i];
      std::sort(t.begin(), t.end());
      report["kernels"].push_back({{"node", dispatches[i].label},
                                   {"kernel", dispatches[i].kernel},
                                   {"gpu_ms", t.empty() ? json() : json(At(t, 0.5))},
                                   {"flops", dispatches[i].flops},
                                   {"bytes", dispatches[i].read_bytes + dispatches[i].write_bytes}});
    }
    PrintJson(report);
    return kDone;
  }

  std::printf("%s on %s (%s, %s), %s\n", model->name().c_str(), model->device().name.c_str(), model->device().api.c_str(),
              model->device().driver.c_str(), a.load.precision.c_str());
  const LoadReport& load = model->load_report();
  std::printf(
      "load          %s: opening the device %s, beside it reading the file %s and passes %s; planning %s, compiling %s "
      "(%d programs, %d of them kept from before), weights %s\n",
      Milliseconds(load_ms).c_str(), Milliseconds(load.open_device_ms).c_str(), Milliseconds(load.import_ms).c_str(),
      Milliseconds(load.passes_ms).c_str(), Milliseconds(load.plan_ms).c_str(), Milliseconds(load.compile_ms).c_str(),
      load.pipelines, load.cache_hits, Milliseconds(load.upload_ms).c_str());
  std::printf("first result  %s\n", Milliseconds(first_ms).c_str());
  std::printf("run           median %s, p10 %s, p90 %s (%zu runs, outputs read back)\n", Milliseconds(median).c_str(),
              Milliseconds(At(times, 0.1)).c_str(), Milliseconds(At(times, 0.9)).c_str(), times.size());
  if (!gpu_sums.empty())
    std::printf("GPU           %s, the sum of %zu dispatches\n", Milliseconds(gpu_ms).c_str(), dispatches.size());
  const auto& placement = model->placement();
  std::printf("nodes         %d on the GPU, %d on the CPU\n", placement.nodes_on_gpu, placement.nodes_on_cpu);
  std::printf("work          %.1f MFLOP, %s moved\n", flops / 1e6, BytesText(bytes).c_str());
  if (measure.f32_flops > 0 && median > 0) {
    const double busy = gpu_sums.empty() ? median : gpu_ms;
    std::printf("device        %.1f GB/s, %.1f GFLOP/s in f32, %.1f us a dependent dispatch, as measured now\n",
                measure.read_bytes_per_second / 1e9, measure.f32_flops / 1e9, measure.dispatch_seconds * 1e6);
    std::printf("share         %.1f %% of the bandwidth, %.1f %% of the arithmetic\n",
                100 * double(bytes) / (busy * 1e-3) / measure.read_bytes_per_second,
                100 * flops / (busy * 1e-3) / measure.f32_flops);
  }
  std::printf("memory        host peak %s; device %s (weights %s, activations %s, in and out %s)\n",
              BytesText(host_peak).c_str(), BytesText(memory.device_bytes).c_str(), BytesText(memory.weights_bytes).c_str(),
              BytesText(memory.activations_bytes).c_str(), BytesText(memory.io_bytes).c_str());
  if (a.kernels) {
    std::vector<std::vector<std::string>> rows = {
        {"#", "kernel", "node", "GPU", "MFLOP", "bytes", "GFLOP/s", "GB/s", "of arithmetic", "of bandwidth"}};
    for (size_t i = 0; i < dispatches.size(); ++i) {
      const DispatchInfo& d = dispatches[i];
      std::vector<double>& t = per_dispatch[i];
      std::sort(t.begin(), t.end());
      const double ms = At(t, 0.5), moved = double(d.read_bytes + d.write_bytes);
      auto number = [](const char* format, double v) {
        char text[40];
        std::snprintf(text, sizeof text, format, v);
        return std::string(text);
      };
      const bool timed = ms > 0;
      rows.push_back({StrCat(i), d.kernel, d.label, timed ? number("%.4f ms", ms) : "-", number("%.3f", d.flops / 1e6),
                      BytesText(uint64_t(moved)), timed ? number("%.1f", d.flops / ms / 1e6) : "-",
                      timed ? number("%.1f", moved / ms / 1e6) : "-",
                      timed && measure.f32_flops > 0 ? number("%.1f %%", 100e3 * d.flops / ms / measure.f32_flops) : "-",
                      timed && measure.read_bytes_per_second > 0
                          ? number("%.1f %%", 100e3 * moved / ms / measure.read_bytes_per_second)
                          : "-"});
    }
    std::fputs(Table(rows, {true, false, false, true, true, true, true, true, true, true}).c_str(), stdout);
  }
  return kDone;
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand("bench", "Time loading and running a model");
  AddLoadArguments(*command, a->load);
  AddInputArguments(*command, a->inputs);
  command->add_option("--runs", a->runs, "Runs to time (default 50)")->check(CLI::PositiveNumber);
  command->add_option("--warmup", a->warmup, "Runs before that are not counted (default 10)")->check(CLI::NonNegativeNumber);
  command->add_option("--seconds", a->seconds, "Time after which no further run is started (default 10)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--kernels", a->kernels, "A line for each dispatch");
  command->add_flag("--no-roofline", a->no_roofline, "Do not measure the device's own bandwidth and arithmetic");
  command->add_option("-p,--prefill", a->llm.prompt, "Language models: tokens of the prompt (default 512)")
      ->check(CLI::PositiveNumber);
  command->add_option("-n,--decode", a->llm.decode, "Language models: tokens to generate (default 128)")
      ->check(CLI::Range(2, INT32_MAX));
  command->add_option("-c,--context", a->llm.context, "Language models: room for tokens (default 640)")
      ->check(CLI::PositiveNumber);
  command->add_option("--repeats", a->llm.repeats, "Language models: how often (default 3)")->check(CLI::PositiveNumber);
  command->add_option("--in-flight", a->llm.in_flight, "Language models: steps under way in the pipelined mode (default 4)")
      ->check(CLI::Range(1, 4));
  command->add_option("--chunks", a->llm.chunk_rows, "Language models: tokens of a prompt that are taken in at a time")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->add_option("--fuse-decoding", a->llm.fuse_decoding,
                      "Language models: few dispatches a token, true or false (default: by device)");
  command->add_flag("--int8", a->llm.int8, "Language models: decoding with activations in 8 bits where kernels can");
  command->add_option("--quantize", a->llm.quantize_bits, "Language models: quantize weights that are not, to 4 or 8 bits")
      ->check(CLI::IsMember({4, 8}));
  command->add_flag("--no-cold-start", a->llm.no_cold_start, "Language models: load only once, with what the cache holds");
  command->add_flag("--json", a->as_json, "Print JSON");
  command->callback([&run, a] { run = [a] { return Bench(*a); }; });
}

}  // namespace leeway::cli
