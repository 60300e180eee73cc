// Lists the devices of all APIs and opens one: the one asked for, or the first of the chain that works.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>

#include "base/cache_folder.h"
#include "base/strings.h"
#include "device/backend.h"
#include "device/known_answers.h"

namespace leeway {
namespace {

double Now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Drivers and loaders do not all bear to be loaded and asked for the first time from two threads at once.
std::mutex& OpeningMutex() {
  static std::mutex mutex;
  return mutex;
}

struct Api {
  const char* name;
  Result<Enumeration> (*enumerate)(bool thorough);
};
constexpr Api kApis[] = {
    {"webgpu", webgpu::Enumerate},
    {"opencl", [](bool) { return opencl::Enumerate(); }},
};

void Least(int64_t& limit, int64_t most) { limit = std::min(limit, most); }
void Least(uint32_t& limit, uint32_t most) { limit = std::min(limit, most); }

// The least that WebGPU promises, which is what portable kernels are written for.
void ApplyMinimalLimits(shader::Target& t) {
  Least(t.max_storage_buffers, 8);
  Least(t.max_sampled_textures, 16);
  Least(t.max_storage_textures, 4);
  Least(t.max_invocations, 256);
  Least(t.max_workgroup_size[0], 256);
  Least(t.max_workgroup_size[1], 256);
  Least(t.max_workgroup_size[2], 64);
  Least(t.max_workgroup_bytes, 16384);
  Least(t.max_workgroups, 65535);
  Least(t.storage.max_binding_bytes, 128 << 20);
  Least(t.storage.max_texture_2d, 8192);
  Least(t.storage.max_texture_3d, 2048);
  Least(t.storage.max_texture_layers, 256);
  Least(t.storage.max_image_buffer_texels, 65536);
}

// So small that tensors of ordinary models are split.
void ApplyTinyLimits(shader::Target& t) {
  Least(t.max_invocations, 64);
  Least(t.max_workgroup_size[0], 64);
  Least(t.max_workgroup_size[1], 64);
  Least(t.max_workgroup_size[2], 16);
  Least(t.max_workgroup_bytes, 4096);
  Least(t.max_workgroups, 4096);
  Least(t.storage.max_binding_bytes, 1 << 20);
  Least(t.storage.max_texture_2d, 512);
  Least(t.storage.max_texture_3d, 128);
  Least(t.storage.max_texture_layers, 32);
  Least(t.storage.max_image_buffer_texels, 16384);
}

Result<std::unique_ptr<Device>> OpenCandidate(const Candidate& candidate, const OpenOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<BackendDevice> device, candidate.open(options));
  ApplyTables(device->mutable_info());
  if (options.minimal_limits) ApplyMinimalLimits(device->mutable_info().target);
  RETURN_IF_ERROR_CONTEXT(RunKnownAnswers(*device, options.cache_folder.value_or(UserCacheFolder())),
                          StrCat("while testing \"", candidate.name, "\""));
  if (options.tiny_limits) ApplyTinyLimits(device->mutable_info().target);
  return std::unique_ptr<Device>(std::move(device));
}

// "webgpu:SwiftShader" as api and selector; a selector is a number or a part of the name.
bool Selects(std::string_view selector, const Candidate& candidate, int index) {
  if (selector.empty()) return true;
  int number = 0;
  const auto [end, error] = std::from_chars(selector.data(), selector.data() + selector.size(), number);
  if (error == std::errc() && end == selector.data() + selector.size()) return number == index;
  const std::string all = Lower(StrCat(candidate.name, " ", candidate.driver, " ", candidate.vendor, " ", candidate.aliases));
  return all.find(Lower(selector)) != std::string::npos;
}

void Log(const OpenOptions& options, const std::string& text) {
  if (options.log) options.log(text);
}

Result<std::unique_ptr<Device>> OpenWanted(std::string_view wanted, const OpenOptions& options) {
  const size_t colon = wanted.find(':');
  const std::string api_name = Lower(wanted.substr(0, colon));
  const std::string_view selector = colon == std::string_view::npos ? "" : wanted.substr(colon + 1);
  const Api* api = std::find_if(std::begin(kApis), std::end(kApis), [&](const Api& a) { return api_name == a.name; });
  if (api == std::end(kApis)) {
    return Error{Code::kInvalidArgument,
                 StrCat("Device \"", wanted,
                        "\" names no API; there are webgpu and opencl, as in \"webgpu:SwiftShader\" or \"opencl:0\".")};
  }
  const double start = Now();
  ASSIGN_OR_RETURN_CONTEXT(Enumeration found, api->enumerate(!selector.empty()), StrCat("device \"", wanted, "\""));
  Log(options, StrCat("looking for ", api_name, " devices took ", int64_t(Now() - start), " ms"));
  std::string names, failures;
  // Without a selector a real GPU is taken before a software one.
  if (selector.empty()) {
    std::stable_sort(found.candidates.begin(), found.candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.is_software < b.is_software; });
  }
  for (size_t i = 0; i < found.candidates.size(); ++i) {
    const Candidate& candidate = found.candidates[i];
    names += StrCat(names.empty() ? "" : ", ", "\"", candidate.name, "\"");
    if (!Selects(selector, candidate, int(i))) continue;
    auto device = OpenCandidate(candidate, options);
    if (device.ok()) {
      Log(options, StrCat(api_name, " device \"", candidate.name, "\" is opened, as asked for"));
      return device;
    }
    if (!selector.empty()) return device.error();
    failures += StrCat(" ", device.error().message);
  }
  return Error{Code::kNotFound, StrCat("There is no device \"", wanted, "\"; ", api_name, " has ",
                                       names.empty() ? "none" : names, ".", failures)};
}

}  // namespace

std::vector<BackendReport> ListDevices() {
  std::lock_guard lock(OpeningMutex());
  std::vector<BackendReport> reports;
  for (const Api& api : kApis) {
    BackendReport report;
    report.api = api.name;
    Result<Enumeration> found = api.enumerate(true);
    report.loaded = found.ok();
    report.message = found.ok() ? found->message : found.error().message;
    if (found.ok()) {
      for (const Candidate& candidate : found->candidates) {
        report.devices.push_back({api.name, int(report.devices.size()), candidate.name, candidate.is_software});
      }
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

Result<std::unique_ptr<Device>> OpenDevice(std::string_view wanted, const OpenOptions& options) {
  std::lock_guard lock(OpeningMutex());
  if (!wanted.empty()) return OpenWanted(wanted, options);
  // A real GPU through WebGPU, then through OpenCL: launches cost least so. Among software devices PoCL runs kernels without
  // barriers several times faster than any Vulkan one.
  struct Link {
    const char* api;
    bool software;
  };
  constexpr Link kChain[] = {{"webgpu", false}, {"opencl", false}, {"opencl", true}, {"webgpu", true}};
  std::string tried;
  // An API is looked at when its turn comes: loading OpenCL platforms takes longer than opening a device.
  std::map<std::string_view, Result<Enumeration>> found;
  auto look_at = [&](const Api& api) -> const Result<Enumeration>& {
    const auto [entry, is_new] = found.try_emplace(api.name, Error{});
    if (is_new) {
      const double start = Now();
      entry->second = api.enumerate(false);
      Log(options, StrCat("looking for ", api.name, " devices took ", int64_t(Now() - start), " ms"));
      if (!entry->second.ok()) tried += StrCat(" ", api.name, ": ", entry->second.error().message);
    }
    return entry->second;
  };
  for (const Link& link : kChain) {
    for (size_t a = 0; a < std::size(kApis); ++a) {
      if (std::string_view(kApis[a].name) != link.api || !look_at(kApis[a]).ok()) continue;
      for (const Candidate& candidate : look_at(kApis[a])->candidates) {
        if (candidate.is_software != link.software) continue;
        auto device = OpenCandidate(candidate, options);
        if (device.ok()) {
          Log(options, StrCat(link.api, " device \"", candidate.name, "\" is the default: ",
                              link.software ? "there is no GPU, and this is the fastest software device" : "it is a GPU"));
          return device;
        }
        Log(options, StrCat(link.api, " device \"", candidate.name, "\" is passed over: ", device.error().message));
        tried += StrCat(" ", link.api, " \"", candidate.name, "\": ", device.error().message);
      }
    }
  }
  return Error{Code::kNotFound, StrCat("There is no device to run on.", tried)};
}

}  // namespace leeway
