// What the commands share: the options that choose a device and load a model, output as text or JSON, exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "leeway/leeway.h"

namespace leeway::cli {

// Exit codes, stable: 0 done, 1 failed (the reason is on standard error, or in "error" with --json), 2 wrong usage,
// 3 `leeway check` found a difference.
inline constexpr int kDone = 0, kFailed = 1, kUsage = 2, kDiffers = 3;

struct LoadArguments {
  std::string model, device, precision = "f32", storage, variant, cache_folder;
  std::vector<std::string> excluded_nodes, disabled_passes;
  bool require_gpu = false, no_memory_reuse = false, no_cache = false, verbose = false;
  int threads = 0;
};
void AddLoadArguments(CLI::App& command, LoadArguments& arguments);
CompileOptions ToCompileOptions(const LoadArguments& arguments);

// Prints the error the way that was asked for; returns kFailed.
int Fail(const Error& error, bool json);
void PrintJson(const nlohmann::json& json);
std::string ReadStandardInput();  // to its end
nlohmann::json ToJson(const DeviceSummary& device);
nlohmann::json ToJson(const TensorInfo& tensor);
nlohmann::json ToJson(const LoadReport& report);
nlohmann::json ToJson(const MemoryReport& report);
std::string ShapeText(const TensorInfo& tensor);  // "f32[1, 256, 256, 3]"
std::string BytesText(uint64_t bytes);            // "3.4 MB"
std::string Milliseconds(double ms);              // "1.07 ms"

// Rows of text as a table with aligned columns; columns named in `right` are aligned to the right.
std::string Table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right);

// The subcommands; each adds itself to the app. `run` is set to what shall run after parsing.
using Action = std::function<int()>;
void AddDevicesCommand(CLI::App& app, Action& run);
void AddRunCommand(CLI::App& app, Action& run);
void AddInspectCommand(CLI::App& app, Action& run);
void AddCheckCommand(CLI::App& app, Action& run);
void AddBenchCommand(CLI::App& app, Action& run);
void AddPullCommand(CLI::App& app, Action& run);
void AddTokenizeCommand(CLI::App& app, Action& run);
void AddChatCommand(CLI::App& app, Action& run);
void AddGenerateCommand(CLI::App& app, Action& run);
void AddScoreCommand(CLI::App& app, Action& run);

}  // namespace leeway::cli
