#include "cli/llm_reports.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "cli/inspect_llm.h"
#include "device/measure.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Medians with their spread.
struct Rates {
  std::vector<double> values;
  double median() const { return Median(values); }
  double least() const { return values.empty() ? 0 : *std::min_element(values.begin(), values.end()); }
  double most() const { return values.empty() ? 0 : *std::max_element(values.begin(), values.end()); }
  json ToJson() const { return {{"median", median()}, {"least", least()}, {"most", most()}}; }
};

// The same tokens in every run and for every model; their text does not matter.
std::vector<int32_t> PromptOf(int count, int vocabulary) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(int32_t((int64_t(i) * 7919 + 104729) % vocabulary));
  return ids;
}

// A folder that is gone afterwards.
struct TemporaryFolder {
  TemporaryFolder() {
    std::error_code error;
    path = (std::filesystem::temp_directory_path(error) / StrCat("leeway-bench-", getpid())).string();
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  std::string path;
};

struct KernelTime {
  std::string kernel;
  int dispatches = 0;
  double gpu_ms = 0, flops = 0;
  uint64_t bytes = 0;
};

// Dispatches of one kernel text together, the slowest first.
std::vector<KernelTime> ByKernel(const llm::StageReport& stage, const std::vector<double>& times) {
  std::map<std::string, KernelTime> by_name;
  for (size_t i = 0; i < stage.kernels.size(); ++i) {
    const DispatchInfo& info = stage.kernels[i];
    KernelTime& entry = by_name[info.kernel];
    entry.kernel = info.kernel;
    ++entry.dispatches;
    entry.flops += info.flops;
    entry.bytes += info.read_bytes + info.write_bytes;
    if (i < times.size()) entry.gpu_ms += times[i];
  }
  std::vector<KernelTime> all;
  for (auto& [name, entry] : by_name) all.push_back(std::move(entry));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.gpu_ms > b.gpu_ms; });
  return all;
}

// What a plan's dispatches take: medians of five runs.
struct Profile {
  std::vector<double> times;  // ms, by dispatch; empty where the device has no timestamps
  double gpu_ms = 0;
  std::vector<KernelTime> kernels;
};
Result<Profile> ProfileOf(const llm::StageReport& stage, const std::function<Result<std::vector<double>>()>& run) {
  std::vector<std::vector<double>> runs;
  for (int i = 0; i < 5; ++i) {
    ASSIGN_OR_RETURN(auto times, run());
    if (!times.empty()) runs.push_back(std::move(times));
  }
  Profile profile;
  profile.times.resize(runs.empty() ? 0 : stage.kernels.size());
  for (size_t i = 0; i < profile.times.size(); ++i) {
    std::vector<double> values;
    for (const auto& times : runs) values.push_back(times[i]);
    profile.gpu_ms += profile.times[i] = Median(values);
  }
  profile.kernels = ByKernel(stage, profile.times);
  return profile;
}

json ToJson(const Profile& profile) {
  json table = json::array();
  for (const auto& kernel : profile.kernels) {
    table.push_back({{"kernel", kernel.kernel},
                     {"dispatches", kernel.dispatches},
                     {"gpu_ms", profile.times.empty() ? json() : json(kernel.gpu_ms)},
                     {"flops", kernel.flops},
                     {"bytes", kernel.bytes}});
  }
  return table;
}

std::string TableText(const Profile& profile) {
  std::vector<std::vector<std::string>> rows = {{"kernel", "dispatches", "GPU", "share", "bytes", "GB/s", "GFLOP/s"}};
  for (const auto& kernel : profile.kernels) {
    char share[20] = "-", rate[20] = "-", flops[20] = "-";
    if (profile.gpu_ms > 0) std::snprintf(share, sizeof share, "%.1f %%", 100 * kernel.gpu_ms / profile.gpu_ms);
    if (kernel.gpu_ms > 0) std::snprintf(rate, sizeof rate, "%.1f", double(kernel.bytes) / kernel.gpu_ms / 1e6);
    if (kernel.gpu_ms > 0) std::snprintf(flops, sizeof flops, "%.0f", kernel.flops / kernel.gpu_ms / 1e6);
    rows.push_back({kernel.kernel, StrCat(kernel.dispatches), profile.times.empty() ? "-" : Milliseconds(kernel.gpu_ms), share,
                    BytesText(kernel.bytes), rate, flops});
  }
  return Table(rows, {false, true, true, true, true, true, true});
}

std::string DispatchesText(const llm::StageReport& stage, const std::vector<double>& times) {
  std::vector<std::vector<std::string>> rows = {{"#", "kernel", "node", "GPU", "bytes"}};
  for (size_t i = 0; i < stage.kernels.size(); ++i) {
    const DispatchInfo& d = stage.kernels[i];
    rows.push_back({StrCat(i), d.kernel, d.label, i < times.size() ? Milliseconds(times[i]) : "-",
                    BytesText(d.read_bytes + d.write_bytes)});
  }
  return Table(rows, {true, false, false, true, true});
}

std::string StartText(const llm::EngineReport& r) {
  return StrCat(Milliseconds(r.total_ms), " (device ", Milliseconds(r.open_device_ms), ", file ", Milliseconds(r.read_ms),
                ", graphs ", Milliseconds(r.build_ms), ", plans ", Milliseconds(r.plan_ms), ", programs ",
                Milliseconds(r.compile_ms), ", weights ", Milliseconds(r.upload_ms), "; ", r.cache_hits,
                " programs from the cache, ", r.cache_misses, " compiled)");
}

}  // namespace

LlmArguments ToLlmArguments(const LoadArguments& a) {
  LlmArguments load;
  load.model = a.model;
  load.device = a.device;
  load.precision = a.precision;
  load.cache_folder = a.cache_folder;
  load.no_cache = a.no_cache;
  load.excluded_nodes = a.excluded_nodes;
  load.disabled_passes = a.disabled_passes;
  load.threads = a.threads;
  load.verbose = a.verbose;
  return load;
}

int BenchLlm(const LlmBenchArguments& a) {
  LlmArguments load = a.load;
  load.context = a.context;
  load.chunk_rows = a.chunk_rows;
  load.fuse_decoding = a.fuse_decoding;
  load.quantize_bits = a.quantize_bits;
  if (a.int8) load.precision = "int8";
  if (a.prompt + a.decode > a.context + 1) {
    return Fail({Code::kInvalidArgument, StrCat("A prompt of (", a.prompt, ") tokens and an answer of (", a.decode,
                                                ") do not fit in a context of (", a.context, ").")},
                a.as_json);
  }
  // Cold: nothing compiled is known. Warm: what the cold start left.
  std::optional<llm::EngineReport> cold;
  TemporaryFolder folder;
  if (!a.no_cold_start) {
    load.cache_folder = folder.path;
    load.no_cache = false;
    auto engine = LoadEngine(load, a.as_json);
    if (!engine.ok()) return Fail(engine.error(), a.as_json);
    cold = (*engine)->load_report();
  }
  auto loaded = LoadEngine(load, a.as_json);
  if (!loaded.ok()) return Fail(loaded.error(), a.as_json);
  llm::Engine& engine = **loaded;
  auto made = llm::Session::Create(*loaded, {});
  if (!made.ok()) return Fail(made.error(), a.as_json);
  llm::Session& session = **made;

  const std::vector<int32_t> prompt = PromptOf(a.prompt, engine.model().vocabulary);
  Rates prefill, decode, pipelined, first;
  std::vector<int32_t> ids;
  bool agree = true;
  // The first round warms up.
  for (int round = 0; round <= a.repeats; ++round) {
    for (int in_flight : {1, a.in_flight}) {
      session.Reset();
      llm::GenerateOptions options;
      options.max_tokens = a.decode;
      options.ignore_end = true;
      options.steps_in_flight = in_flight;
      auto result = session.Generate(prompt, options);
      if (!result.ok()) return Fail(result.error(), a.as_json);
      if (ids.empty()) ids = result->ids;
      agree &= ids == result->ids;
      if (round == 0) continue;
      const double rate = (double(result->ids.size()) - 1) / result->decode_ms * 1e3;
      (in_flight == 1 ? decode : pipelined).values.push_back(rate);
      if (in_flight != 1) continue;
      first.values.push_back(result->first_token_ms);
      prefill.values.push_back(double(a.prompt) / result->first_token_ms * 1e3);
    }
    if (a.in_flight == 1) pipelined = decode;
  }
  const std::vector<llm::StageReport> stages = engine.stages();
  const llm::StageReport &step = stages[0], &chunk = stages.back();
  // The position of the last token is where a step costs the most.
  auto decode_profile = ProfileOf(step, [&] { return session.ProfileDecode(); });
  if (!decode_profile.ok()) return Fail(decode_profile.error(), a.as_json);
  Profile prefill_profile;
  if (chunk.rows > 1) {
    session.Reset();
    auto profile = ProfileOf(chunk, [&] { return session.ProfilePrefill(chunk.rows); });
    if (!profile.ok()) return Fail(profile.error(), a.as_json);
    prefill_profile = std::move(*profile);
  }
  const std::vector<double>& times = decode_profile->times;
  const double gpu_ms = decode_profile->gpu_ms;
  const llm::EngineMemory memory = engine.memory();
  const int held = a.prompt + a.decode / 2;
  const double bytes_per_token =
      double(step.weights_read_bytes) + double(memory.cache_bytes) * held / std::max(1, memory.context);
  DeviceSpeed speed;
  if (!a.no_roofline && engine.device().api != "cpu") {
    auto device = OpenSharedDevice(load.device);
    if (!device.ok()) return Fail(device.error(), a.as_json);
    auto measured = MeasureDevice(**device);
    if (!measured.ok()) return Fail(measured.error(), a.as_json);
    speed = *measured;
  }
  const double best = std::max(decode.median(), pipelined.median());
  const double share = speed.read_bytes_per_second > 0 ? bytes_per_token * best / speed.read_bytes_per_second : 0;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const uint64_t host_peak = uint64_t(usage.ru_maxrss) * 1024;
  const DeviceSummary device = engine.device();

  if (a.as_json) {
    json plans = json::array();
    for (const auto& stage : stages) {
      plans.push_back({{"rows", stage.rows},
                       {"dispatches", stage.dispatches},
                       {"submissions", stage.submissions},
                       {"nodes_on_cpu", stage.nodes_on_cpu},
                       {"flops", stage.flops}});
    }
    json report = {{"model", engine.model().name},
                   {"architecture", engine.model().architecture},
                   {"device", {{"api", device.api}, {"name", device.name}, {"driver", device.driver}}},
                   {"precision", PrecisionName(engine)},
                   {"prompt", a.prompt},
                   {"decode", a.decode},
                   {"context", a.context},
                   {"in_flight", a.in_flight},
                   {"repeats", a.repeats},
                   {"prefill_tok_s", prefill.median()},
                   {"decode_tok_s", decode.median()},
                   {"decode_pipelined_tok_s", pipelined.median()},
                   {"first_token_ms", first.median()},
                   {"spread",
                    {{"prefill_tok_s", prefill.ToJson()},
                     {"decode_tok_s", decode.ToJson()},
                     {"decode_pipelined_tok_s", pipelined.ToJson()},
                     {"first_token_ms", first.ToJson()}}},
                   {"same_tokens", agree},
                   {"dispatches_per_token", step.dispatches},
                   {"gpu_ms_per_token", times.empty() ? json() : json(gpu_ms)},
                   {"bytes_per_token", bytes_per_token},
                   {"device_bytes_per_s", speed.read_bytes_per_second},
                   {"share_of_bandwidth", speed.read_bytes_per_second > 0 ? json(share) : json()},
                   {"memory", ToJson(memory)},
                   {"device_allocated_bytes", engine.device_bytes()},
                   {"host_peak_bytes", host_peak},
                   {"cold_start", cold ? ToJson(*cold) : json()},
                   {"warm_start", ToJson(engine.load_report())},
                   {"plans", plans},
                   {"kernels", ToJson(*decode_profile)},
                   {"prefill_gpu_ms", prefill_profile.times.empty() ? json() : json(prefill_profile.gpu_ms)},
                   {"prefill_kernels", ToJson(prefill_profile)}};
    PrintJson(report);
    return kDone;
  }

  auto rates = [](const char* name, const Rates& r, const char* unit) {
    std::printf("%-14s%.2f %s (%.2f to %.2f)\n", name, r.median(), unit, r.least(), r.most());
  };
  std::printf("%s on %s (%s, %s), %s; prompt %d, answer %d, context %d\n", engine.model().name.c_str(), device.name.c_str(),
              device.api.c_str(), device.driver.c_str(), PrecisionName(engine), a.prompt, a.decode, a.context);
  rates("prefill", prefill, "tokens a second, with the first token");
  rates("first token", first, "ms");
  rates("decode", decode, "tokens a second, waiting for each");
  rates("pipelined", pipelined, StrCat("tokens a second, ", a.in_flight, " under way").c_str());
  std::printf("tokens        %s\n", agree ? "the same in all runs" : "DIFFERENT from run to run");
  std::printf("step          %d dispatches in %d submissions, %d nodes on the CPU", step.dispatches, step.submissions,
              step.nodes_on_cpu);
  if (!times.empty()) std::printf(", %s on the GPU", Milliseconds(gpu_ms).c_str());
  std::printf("\nbytes         %s a token", BytesText(uint64_t(bytes_per_token)).c_str());
  if (share > 0) std::printf(", %.1f %% of %.1f GB/s as measured now", share * 100, speed.read_bytes_per_second / 1e9);
  std::printf("\n");
  if (cold) std::printf("cold start    %s\n", StartText(*cold).c_str());
  std::printf("%s    %s\n", cold ? "warm start" : "start     ", StartText(engine.load_report()).c_str());
  std::printf("memory        host peak %s, device %s\n", BytesText(host_peak).c_str(),
              BytesText(engine.device_bytes()).c_str());
  std::fputs(MemoryText(memory).c_str(), stdout);
  std::fputs(TableText(*decode_profile).c_str(), stdout);
  if (!prefill_profile.kernels.empty()) {
    std::printf("A run of %d tokens of a prompt: %d dispatches", chunk.rows, chunk.dispatches);
    if (!prefill_profile.times.empty()) std::printf(", %s on the GPU", Milliseconds(prefill_profile.gpu_ms).c_str());
    std::printf("\n%s", TableText(prefill_profile).c_str());
  }
  if (a.kernels) {
    std::fputs(DispatchesText(step, times).c_str(), stdout);
    if (!prefill_profile.kernels.empty()) std::fputs(DispatchesText(chunk, prefill_profile.times).c_str(), stdout);
  }
  return kDone;
}

int InspectLlm(const LlmArguments& a, bool plan, bool as_json) {
  if (plan) {
    auto engine = LoadEngine(a, as_json);
    if (!engine.ok()) return Fail(engine.error(), as_json);
    json texts = json::object();
    for (const auto& stage : (*engine)->stages()) {
      const auto text = (*engine)->PlanText(stage.rows);
      if (!text.ok()) return Fail(text.error(), as_json);
      if (as_json) {
        texts[StrCat(stage.rows)] = *text;
      } else {
        std::printf("== launch plan for %d tokens\n%s\n", stage.rows, text->c_str());
      }
    }
    if (as_json) PrintJson(texts);
    return kDone;
  }
  auto file = LlmFile::Open(a.model);
  if (!file.ok()) return Fail(file.error(), as_json);
  // A file of an unknown architecture can still be looked at.
  const auto memory = llm::Engine::EstimateMemory(a.model, ToEngineOptions(a));
  if (as_json) {
    json report = LlmFileReport(**file);
    if (memory.ok()) {
      report["memory"] = ToJson(*memory);
    } else {
      report["cannot_run"] = {{"code", CodeName(memory.error().code)}, {"message", memory.error().message}};
    }
    PrintJson(report);
    return kDone;
  }
  std::printf("%s\n", LlmFileText(**file).c_str());
  if (memory.ok()) {
    std::printf("memory on the device\n%s", MemoryText(*memory).c_str());
  } else {
    std::printf("it can't be run here: %s\n", memory.error().message.c_str());
  }
  return kDone;
}

}  // namespace leeway::cli
