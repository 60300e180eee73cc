#include "cli/common.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace leeway::cli {

using nlohmann::json;

void AddLoadArguments(CLI::App& command, LoadArguments& a) {
  command.add_option("model", a.model, "The model: a .tflite file, or a language model where the command takes it")->required();
  command.add_option("-d,--device", a.device,
                     "webgpu, opencl, cpu; with an index or a part of the name, as in webgpu:1 or webgpu:SwiftShader. "
                     "Default: the best GPU, else the fastest software device");
  command.add_option("--precision", a.precision, "f32, or f16: tensors stored as halves, sums in f32")
      ->check(CLI::IsMember({"f32", "f16"}));
  command.add_flag("--require-gpu", a.require_gpu, "Fail if any node would run on the CPU");
  command.add_option("--storage", a.storage, "Where tensors lie, for all of them as far as kernels and device allow")
      ->check(CLI::IsMember({"linear", "padded4", "sliced4", "image-buffer", "texture-2d", "texture-2d-array", "texture-3d"}));
  command.add_option("--variant", a.variant, "The kernel variant to take wherever an operator has it, as `direct`");
  command.add_option("--exclude", a.excluded_nodes, "Nodes to keep on the CPU: a number, a name, or op:NAME");
  command.add_option("--disable-pass", a.disabled_passes, "Passes to leave out, or all");
  command.add_flag("--no-memory-reuse", a.no_memory_reuse, "Give every tensor memory of its own");
  command.add_option("--cache", a.cache_folder, "Folder for compiled programs (default: the user's cache folder)");
  command.add_flag("--no-cache", a.no_cache, "Keep no compiled programs");
  command.add_option("--threads", a.threads, "Threads for loading (default: all cores)")->check(CLI::NonNegativeNumber);
  command.add_flag("-v,--verbose", a.verbose, "Say what is done while loading, on standard error");
}

CompileOptions ToCompileOptions(const LoadArguments& a) {
  CompileOptions options;
  options.device = a.device;
  options.precision = a.precision == "f16" ? Precision::kF16 : Precision::kF32;
  options.require_gpu = a.require_gpu;
  options.excluded_nodes = a.excluded_nodes;
  options.storage = a.storage;
  options.variant = a.variant;
  options.disabled_passes.insert(a.disabled_passes.begin(), a.disabled_passes.end());
  options.reuse_memory = !a.no_memory_reuse;
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

int Fail(const Error& error, bool as_json) {
  if (as_json) {
    PrintJson({{"error", {{"code", CodeName(error.code)}, {"message", error.message}}}});
  } else {
    std::fprintf(stderr, "leeway: %s\n", error.message.c_str());
  }
  return kFailed;
}

std::string ReadStandardInput() {
  std::string text;
  char bytes[1 << 16];
  while (const size_t count = std::fread(bytes, 1, sizeof bytes, stdin)) text.append(bytes, count);
  return text;
}

void PrintJson(const json& value) {
  // File and tensor names are whatever a file says; bytes that are no UTF-8 are replaced rather than refused.
  std::printf("%s\n", value.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

json ToJson(const DeviceSummary& device) {
  json features = json::object(), limits = json::object(), answers = json::array();
  for (const auto& [name, on] : device.features) features[name] = on;
  for (const auto& [name, value] : device.limits) limits[name] = value;
  for (const KnownAnswer& answer : device.known_answers) {
    answers.push_back({{"name", answer.name}, {"passed", answer.passed}, {"detail", answer.detail}});
  }
  return {{"api", device.api},
          {"name", device.name},
          {"driver", device.driver},
          {"vendor", device.vendor},
          {"class", device.device_class},
          {"is_software", device.is_software},
          {"memory_bytes", device.memory_bytes},
          {"max_buffer_bytes", device.max_buffer_bytes},
          {"timestamps", device.timestamps},
          {"features", features},
          {"limits", limits},
          {"known_answers", answers},
          {"quirks", device.quirks}};
}

json ToJson(const TensorInfo& tensor) {
  return {{"name", tensor.name}, {"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}};
}

json ToJson(const LoadReport& r) {
  json passes = json::array();
  for (const PassSummary& pass : r.passes) {
    passes.push_back({{"name", pass.name}, {"ms", pass.milliseconds}, {"changes", pass.changes}, {"disabled", pass.disabled}});
  }
  return {{"open_device_ms", r.open_device_ms},
          {"import_ms", r.import_ms},
          {"passes_ms", r.passes_ms},
          {"plan_ms", r.plan_ms},
          {"compile_ms", r.compile_ms},
          {"upload_ms", r.upload_ms},
          {"total_ms", r.total_ms},
          {"passes", passes},
          {"nodes_before", r.nodes_before},
          {"nodes_after", r.nodes_after},
          {"dispatches", r.dispatches},
          {"pipelines", r.pipelines},
          {"cache_hits", r.cache_hits},
          {"cache_misses", r.cache_misses}};
}

json ToJson(const MemoryReport& r) {
  return {{"weights_bytes", r.weights_bytes},
          {"activations_bytes", r.activations_bytes},
          {"io_bytes", r.io_bytes},
          {"states_bytes", r.states_bytes},
          {"other_bytes", r.other_bytes},
          {"total_bytes", r.total_bytes},
          {"activations_without_reuse_bytes", r.activations_without_reuse_bytes},
          {"activations_lower_bound_bytes", r.activations_lower_bound_bytes},
          {"strategy", r.strategy},
          {"device_bytes", r.device_bytes},
          {"host_weights_bytes", r.host_weights_bytes}};
}

std::string ShapeText(const TensorInfo& tensor) { return StrCat(DTypeName(tensor.dtype), "[", Join(tensor.shape, ", "), "]"); }

std::string BytesText(uint64_t bytes) {
  char text[40];
  if (bytes < 10'000) {
    std::snprintf(text, sizeof text, "%llu B", static_cast<unsigned long long>(bytes));
  } else if (bytes < 10'000'000) {
    std::snprintf(text, sizeof text, "%.1f kB", double(bytes) / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f MB", double(bytes) / 1e6);
  }
  return text;
}

std::string Milliseconds(double ms) {
  char text[40];
  std::snprintf(text, sizeof text, ms < 10 ? "%.3f ms" : ms < 100 ? "%.2f ms" : "%.1f ms", ms);
  return text;
}

std::string Table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += i < right.size() && right[i] ? padding + row[i] : row[i] + padding;
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

}  // namespace leeway::cli
