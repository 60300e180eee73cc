#include "cli/llm.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace leeway::cli {

using nlohmann::json;

void AddLlmArguments(CLI::App& command, LlmArguments& a) {
  command.add_option("model", a.model, "The .gguf file, or a folder with safetensors")->required();
  command.add_option(
      "-d,--device", a.device,
      "webgpu, opencl, cpu; with an index or a part of the name, as in webgpu:1. Default: the best GPU, else the "
      "fastest software device");
  command
      .add_option(
          "--precision", a.precision,
          "f32; f16: activations stored as halves, sums in f32; int8: decoding with activations in 8 bits where it can; "
          "auto (the default): int8 for models that pass its gate, else f32")
      ->check(CLI::IsMember({"auto", "f32", "f16", "int8"}));
  command.add_option("--quantize", a.quantize_bits, "Quantize weights that are not while loading, to 4 or 8 bits")
      ->check(CLI::IsMember({4, 8}));
  command.add_option("--fuse-decoding", a.fuse_decoding, "Few dispatches a token: true or false (default: by device)");
  command.add_option("-c,--context", a.context, "Tokens that a conversation can have (default 4096, or what the model allows)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--chunks", a.chunk_rows, "How many tokens of a prompt are taken in at a time, one or more sizes")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command.add_option("--memory-limit", a.memory_limit_mb, "Refuse to load what needs more megabytes on the device")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--f32-cache", a.f32_cache, "Keep keys and values in f32");
  command.add_option("--exclude", a.excluded_nodes, "Nodes to keep on the CPU: a number, a name, or op:NAME");
  command.add_option("--disable-pass", a.disabled_passes, "Passes to leave out, or all");
  command.add_option("--cache", a.cache_folder, "Folder for compiled programs (default: the user's cache folder)");
  command.add_flag("--no-cache", a.no_cache, "Keep no compiled programs");
  command.add_option("--threads", a.threads, "Threads for loading (default: all cores)")->check(CLI::NonNegativeNumber);
  command.add_flag("-v,--verbose", a.verbose, "Say what is done while loading, on standard error");
}

const char* PrecisionName(const llm::Engine& engine) {
  if (engine.int8_activations()) return "int8";
  return engine.precision() == Precision::kF16 ? "f16" : "f32";
}

llm::EngineOptions ToEngineOptions(const LlmArguments& a) {
  llm::EngineOptions options;
  options.device = a.device;
  options.precision = a.precision == "f16" ? Precision::kF16 : Precision::kF32;
  if (a.precision != "auto") options.int8_activations = a.precision == "int8";
  options.fuse_decoding = a.fuse_decoding;
  options.context = a.context;
  options.quantize_bits = a.quantize_bits;
  options.chunk_rows = a.chunk_rows;
  options.memory_limit_bytes = uint64_t(a.memory_limit_mb) * 1'000'000;
  options.f32_cache = a.f32_cache;
  options.excluded_nodes = a.excluded_nodes;
  options.disabled_passes.insert(a.disabled_passes.begin(), a.disabled_passes.end());
  if (a.no_cache) {
    options.cache_folder = "";
  } else if (!a.cache_folder.empty()) {
    options.cache_folder = a.cache_folder;
  }
  options.threads = a.threads;
  if (a.verbose) {
    options.log = [](const std::string& line) { std::fprintf(stderr, "leeway: %s\n", line.c_str()); };
    options.device_options.log = options.log;
  }
  return options;
}

void AddSamplingArguments(CLI::App& command, SamplingArguments& a, double temperature) {
  a.options.temperature = temperature;
  a.options.top_k = 40;
  a.options.top_p = 0.95;
  a.options.min_p = 0.05;
  command.add_flag("--greedy", a.greedy, "Always the most likely token");
  command.add_option("--temperature", a.options.temperature, StrCat("0: greedy (default ", temperature, ")"));
  command.add_option("--top-k", a.options.top_k, "Only the k most likely tokens (default 40; 0: all)");
  command.add_option("--top-p", a.options.top_p,
                     "Only the most likely tokens with this share of the probability (default 0.95)");
  command.add_option("--min-p", a.options.min_p, "Only tokens with this share of the best one's probability (default 0.05)");
  command.add_option("--repeat-penalty", a.options.repeat_penalty, "Makes what came lately less likely (default 1: off)");
  command.add_option("--repeat-window", a.options.repeat_window, "Of so many tokens (default 64)");
  command.add_option("--seed", a.options.seed, "The same seed gives the same answer (default 0)");
}

llm::SamplingOptions ToSampling(const SamplingArguments& a) {
  llm::SamplingOptions options = a.options;
  if (a.greedy) options.temperature = 0;
  return options;
}

bool IsTerminal(int descriptor) { return isatty(descriptor) == 1; }

Result<std::shared_ptr<llm::Engine>> LoadEngine(const LlmArguments& a, bool quiet) {
  llm::EngineOptions options = ToEngineOptions(a);
  if (quiet || !IsTerminal(STDERR_FILENO)) return llm::Engine::Load(a.model, options);
  auto drawn = std::chrono::steady_clock::time_point();
  std::string stage;
  options.progress = [&](const LoadProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (progress.stage == stage && now - drawn < std::chrono::milliseconds(50)) return true;
    stage = progress.stage;
    drawn = now;
    constexpr int kWidth = 30;
    const int full = progress.total > 0 ? int(int64_t(kWidth) * progress.done / progress.total) : 0;
    std::fprintf(stderr, "\r%-10s [%s%s] %3d %%\033[K", stage.c_str(), std::string(size_t(full), '#').c_str(),
                 std::string(size_t(kWidth - full), '.').c_str(),
                 progress.total > 0 ? int(int64_t(100) * progress.done / progress.total) : 0);
    std::fflush(stderr);
    return true;
  };
  auto engine = llm::Engine::Load(a.model, options);
  std::fprintf(stderr, "\r\033[K");
  return engine;
}

json ToJson(const llm::EngineMemory& m) {
  return {{"weights_bytes", m.weights_bytes},  {"activations_bytes", m.activations_bytes},
          {"cache_bytes", m.cache_bytes},      {"session_bytes", m.session_bytes},
          {"other_bytes", m.other_bytes},      {"total_bytes", m.total_bytes},
          {"mapped_file_bytes", m.file_bytes}, {"context", m.context}};
}

json ToJson(const llm::EngineReport& r) {
  return {{"read_ms", r.read_ms},   {"open_device_ms", r.open_device_ms}, {"build_ms", r.build_ms},
          {"plan_ms", r.plan_ms},   {"compile_ms", r.compile_ms},         {"upload_ms", r.upload_ms},
          {"total_ms", r.total_ms}, {"cache_hits", r.cache_hits},         {"cache_misses", r.cache_misses}};
}

std::string MemoryText(const llm::EngineMemory& m) {
  return Table({{"weights", BytesText(m.weights_bytes)},
                {StrCat("caches of ", m.context, " tokens"), BytesText(m.cache_bytes)},
                {"activations", BytesText(m.activations_bytes)},
                {"rest of a session", BytesText(m.session_bytes)},
                {"other", BytesText(m.other_bytes)},
                {"in all", BytesText(m.total_bytes)},
                {"file, mapped", BytesText(m.file_bytes)}},
               {false, true});
}

}  // namespace leeway::cli
