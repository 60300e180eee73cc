#include "device/webgpu/adapters.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/strings.h"
#include "device/backend.h"
#include "device/webgpu/dawn_extensions.h"
#include "device/webgpu/webgpu_device.h"

namespace leeway::webgpu {
namespace {

// The Vulkan loader reads this when an instance is made. Setting it is not safe beside threads that read the environment, so it
// happens only where a caller asks for all devices or for one by name.
class ManifestScope {
 public:
  explicit ManifestScope(const std::string& manifest) : active_(!manifest.empty()) {
    if (!active_) return;
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (const char* old = std::getenv(kNames[i])) old_[i] = old, had_[i] = true;
      unsetenv(kNames[i]);
    }
    setenv(kNames[0], manifest.c_str(), 1);
  }
  ~ManifestScope() {
    if (!active_) return;
    for (size_t i = 0; i < std::size(kNames); ++i) {
      unsetenv(kNames[i]);
      if (had_[i]) setenv(kNames[i], old_[i].c_str(), 1);
    }
  }

 private:
  static constexpr const char* kNames[] = {"VK_ICD_FILENAMES", "VK_DRIVER_FILES"};
  bool active_;
  std::string old_[2];
  bool had_[2] = {};
};

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && std::strcmp(value, "0") != 0;
}

// Dawn writes some remarks about drivers straight to stderr, whatever its instance was told ("artificially reduced ..."). A
// program that owns its stderr, as the leeway command does, sets LEEWAY_QUIET_DRIVERS, and then they go nowhere.
class QuietScope {
 public:
  QuietScope() {
    if (!IsSet("LEEWAY_QUIET_DRIVERS")) return;
    std::fflush(stderr);
    kept_ = dup(STDERR_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (kept_ >= 0 && nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    if (nowhere >= 0) close(nowhere);
  }
  ~QuietScope() {
    if (kept_ < 0) return;
    std::fflush(stderr);
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }

 private:
  int kept_ = -1;
};

Result<OwnedInstance> MakeInstance() {
  const Api& api = GetApi().value();
  const WGPUInstanceFeatureName wanted = WGPUInstanceFeatureName_TimedWaitAny;
  WGPUInstanceDescriptor descriptor = WGPU_INSTANCE_DESCRIPTOR_INIT;
  descriptor.requiredFeatureCount = 1;
  descriptor.requiredFeatures = &wanted;
  // Dawn's remarks about drivers would go to stderr; what matters of them comes back as errors.
  DawnInstanceDescriptor dawn;
  if (MakeDawnInstanceDescriptor(
          dawn, [](uint32_t, WGPUStringView, void*, void*) {}, nullptr)) {
    descriptor.nextInChain = &dawn.chain;
  }
  OwnedInstance instance(api.CreateInstance(&descriptor));
  if (!instance) return Error{Code::kUnsupported, StrCat("The WebGPU library ", api.path, " makes no instance.")};
  return instance;
}

Result<OwnedAdapter> RequestAdapter(WGPUInstance instance, WGPUPowerPreference preference, const WGPUChainedStruct* chain) {
  const Api& api = GetApi().value();
  struct Answer {
    WGPUAdapter adapter = nullptr;
    std::string message;
    bool done = false;
  } answer;
  WGPURequestAdapterOptions options = WGPU_REQUEST_ADAPTER_OPTIONS_INIT;
  options.nextInChain = const_cast<WGPUChainedStruct*>(chain);
  options.powerPreference = preference;
  WGPURequestAdapterCallbackInfo callback = WGPU_REQUEST_ADAPTER_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = &answer;
  callback.callback = [](WGPURequestAdapterStatus, WGPUAdapter adapter, WGPUStringView message, void* user, void*) {
    *static_cast<Answer*>(user) = {adapter, Text(message), true};
  };
  {
    QuietScope quiet;
    api.InstanceRequestAdapter(instance, &options, callback);
    PumpUntil(instance, answer.done);
  }
  if (!answer.adapter) return Error{Code::kNotFound, StrCat("WebGPU offers no adapter: ", answer.message, ".")};
  return OwnedAdapter(answer.adapter);
}

AdapterDescription DescribeAdapter(WGPUAdapter adapter) {
  const Api& api = GetApi().value();
  WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
  api.AdapterGetInfo(adapter, &info);
  AdapterDescription out;
  out.vendor = Text(info.vendor);
  out.architecture = Text(info.architecture);
  out.device = Text(info.device);
  out.description = Text(info.description);
  out.type = info.adapterType;
  out.vendor_id = info.vendorID;
  out.device_id = info.deviceID;
  out.subgroup_min = info.subgroupMinSize;
  out.subgroup_max = info.subgroupMaxSize;
  api.AdapterInfoFreeMembers(info);
  return out;
}

Result<std::shared_ptr<InstanceSlot>> FindSlot(const AdapterRequest& request) {
  ManifestScope scope(request.manifest);
  auto slot = std::make_shared<InstanceSlot>();
  ASSIGN_OR_RETURN(slot->instance, MakeInstance());
  ASSIGN_OR_RETURN(slot->adapter, RequestAdapter(slot->instance.get(), request.preference, nullptr));
  return slot;
}

double Now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}
std::string Milliseconds(double ms) { return StrCat(int64_t(ms + 0.5), " ms"); }

struct DeviceAnswer {
  WGPUDevice device = nullptr;
  std::string message;
  bool done = false;
};

DeviceAnswer RequestDevice(WGPUInstance instance, WGPUAdapter adapter, const WGPUDeviceDescriptor& descriptor) {
  const Api& api = GetApi().value();
  DeviceAnswer answer;
  WGPURequestDeviceCallbackInfo callback = WGPU_REQUEST_DEVICE_CALLBACK_INFO_INIT;
  callback.mode = WGPUCallbackMode_AllowProcessEvents;
  callback.userdata1 = &answer;
  callback.callback = [](WGPURequestDeviceStatus, WGPUDevice device, WGPUStringView message, void* user, void*) {
    *static_cast<DeviceAnswer*>(user) = {device, Text(message), true};
  };
  api.AdapterRequestDevice(adapter, &descriptor, callback);
  PumpUntil(instance, answer.done);
  return answer;
}

bool IsSoftwareDriver(const std::string& manifest) {
  return manifest.find("lvp") != std::string::npos || manifest.find("swiftshader") != std::string::npos;
}

// Folders in which the Vulkan loader looks for drivers, and software drivers that lie elsewhere.
std::vector<std::string> ManifestFiles() {
  std::vector<std::string> files;
  for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {  // the loader prefers the first
    const char* list = std::getenv(name);
    if (!list || !*list) continue;
    std::string rest = list;
    for (size_t at; !rest.empty(); rest = at == std::string::npos ? "" : rest.substr(at + 1)) {
      at = rest.find(':');
      if (std::string file = rest.substr(0, at); !file.empty()) files.push_back(file);
    }
    return files;  // who names drivers wants no others
  }
  std::error_code ignored;
  // Without a card the drivers of cards only complain, at length.
  const bool has_cards = std::filesystem::exists("/dev/dri", ignored);
  for (const char* folder : {"/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"}) {
    std::set<std::string> sorted;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (entry.path().extension() == ".json" && (has_cards || IsSoftwareDriver(name))) sorted.insert(entry.path().string());
    }
    files.insert(files.end(), sorted.begin(), sorted.end());
  }
  if (const char* swiftshader = "/usr/lib/chromium/vk_swiftshader_icd.json"; std::filesystem::exists(swiftshader, ignored)) {
    files.push_back(swiftshader);
  }
  return files;
}

}  // namespace

Status CheckDawnExtension(WGPUInstance instance, WGPUAdapter adapter, WGPUSType type, const char* name) {
  // Chained where no structure belongs, so that the library complains and names it. No device is made.
  WGPUChainedStruct misplaced = {nullptr, type};
  WGPULimits limits = WGPU_LIMITS_INIT;
  limits.nextInChain = &misplaced;
  WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
  descriptor.requiredLimits = &limits;
  DeviceAnswer answer = RequestDevice(instance, adapter, descriptor);
  OwnedDevice unexpected(answer.device);
  const size_t at = answer.message.find(name);
  const char after = at == std::string::npos ? 'x' : answer.message.c_str()[at + std::strlen(name)];
  if (unexpected || std::isalnum(static_cast<unsigned char>(after))) {
    return Error{Code::kUnsupported, StrCat("The WebGPU library does not mean ", name, " by the number (", unsigned(type),
                                            "); it says: ", answer.message)};
  }
  return {};
}

Result<Opened> OpenAdapter(const AdapterRequest& request, std::shared_ptr<InstanceSlot> found, const OpenOptions& options) {
  const Api& api = GetApi().value();
  const double start = Now();
  Opened out;
  out.core = std::make_shared<Core>();
  Core& core = *out.core;
  if (found && !found->in_use.exchange(true)) {
    core.slot = std::move(found);
  } else {
    ASSIGN_OR_RETURN(core.slot, FindSlot(request));
    core.slot->in_use = true;
  }
  const double found_at = Now();

  // Dawn's toggles of a performance build. The browser has none of them, so LEEWAY_WEBGPU_SAFE leaves them off.
  out.robust = IsSet("LEEWAY_WEBGPU_SAFE");
  std::vector<const char*> on = {"vulkan_enable_f16_on_nvidia"}, off;
  if (!out.robust) {
    // Not disable_polyfills_on_integer_div_and_mod: without them the remainder of negative numbers is wrong on NVIDIA's Vulkan
    // (580.159), as SPIR-V allows. Divisors in our kernels are constants, for which the polyfills cost nothing.
    on.insert(on.end(), {"allow_unsafe_apis", "disable_robustness", "disable_workgroup_init"});
    off.push_back("timestamp_quantization");
  }
  DawnTogglesDescriptor toggles = {{nullptr, kDawnToggles.type}, on.size(), on.data(), off.size(), off.data()};
  const WGPUChainedStruct* chain = nullptr;
  // One library per process, so one answer.
  static const Status known =
      CheckDawnExtension(core.instance(), core.slot->adapter.get(), kDawnToggles.type, kDawnToggles.name);
  if (known.ok()) {
    chain = &toggles.chain;
  } else {
    out.robust = true;
    if (options.log) options.log(StrCat("Dawn's toggles are left alone: ", known.error().message));
  }
  {
    ManifestScope scope(request.manifest);
    ASSIGN_OR_RETURN(core.adapter, RequestAdapter(core.instance(), request.preference, chain));
  }
  const double adapter_at = Now();
  out.description = DescribeAdapter(core.adapter.get());

  WGPULimits limits = WGPU_LIMITS_INIT;
  if (!options.minimal_limits) {
    api.AdapterGetLimits(core.adapter.get(), &limits);
    limits.nextInChain = nullptr;
  }
  std::vector<WGPUFeatureName> features;
  auto want = [&](WGPUFeatureName feature, bool allowed) {
    const bool has = allowed && api.AdapterHasFeature(core.adapter.get(), feature);
    if (has) features.push_back(feature);
    return has;
  };
  out.f16 = want(WGPUFeatureName_ShaderF16, !options.no_f16);
  out.subgroups = want(WGPUFeatureName_Subgroups, !options.no_subgroups);
  out.subgroup_matrix = want(kSubgroupMatrix.feature, out.f16 && out.subgroups && IsDawnFeature(kSubgroupMatrix));
  out.timestamps = want(WGPUFeatureName_TimestampQuery, true);

  WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
  descriptor.nextInChain = const_cast<WGPUChainedStruct*>(chain);
  descriptor.label = View("leeway");
  descriptor.requiredLimits = options.minimal_limits ? nullptr : &limits;
  descriptor.requiredFeatures = features.data();
  descriptor.requiredFeatureCount = features.size();
  descriptor.uncapturedErrorCallbackInfo.userdata1 = &core.errors;
  descriptor.uncapturedErrorCallbackInfo.callback = [](const WGPUDevice*, WGPUErrorType type, WGPUStringView message,
                                                       void* user, void*) {
    const Code code = type == WGPUErrorType_OutOfMemory  ? Code::kOutOfMemory
                      : type == WGPUErrorType_Validation ? Code::kInvalidArgument
                                                         : Code::kInternal;
    static_cast<ErrorState*>(user)->Report(code, StrCat("WebGPU: ", Text(message)));
  };
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.userdata1 = &core.errors;
  descriptor.deviceLostCallbackInfo.callback = [](const WGPUDevice*, WGPUDeviceLostReason, WGPUStringView message, void* user,
                                                  void*) {
    static_cast<ErrorState*>(user)->Lose(StrCat("The device is lost: ", Text(message)));
  };
  DeviceAnswer answer = RequestDevice(core.instance(), core.adapter.get(), descriptor);
  if (!answer.device) {
    return Error{Code::kUnsupported, StrCat("WebGPU opens no device on \"", out.description.device, "\": ", answer.message)};
  }
  if (options.log) {
    options.log(StrCat("opening the device: instance and adapter found in ", Milliseconds(found_at - start),
                       ", adapter with toggles in ", Milliseconds(adapter_at - found_at), ", device made in ",
                       Milliseconds(Now() - adapter_at)));
  }
  core.device = OwnedDevice(answer.device);
  core.queue = OwnedQueue(api.DeviceGetQueue(answer.device));
  out.limits = WGPU_LIMITS_INIT;
  api.DeviceGetLimits(answer.device, &out.limits);
  if (api.InstanceHasWGSLLanguageFeature) {
    out.packed_dot =
        api.InstanceHasWGSLLanguageFeature(core.instance(), WGPUWGSLLanguageFeatureName_Packed4x8IntegerDotProduct);
    out.immediates = !options.minimal_limits && api.ComputePassEncoderSetImmediates &&
                     out.limits.maxImmediateSize >= kImmediateBytes &&
                     api.InstanceHasWGSLLanguageFeature(core.instance(), kImmediateAddressSpace);
  }
  return out;
}

namespace {

struct FoundAdapter {
  AdapterRequest request;
  AdapterDescription description;
  // Held until the process ends, so that the driver stays loaded: NVIDIA's can be loaded anew only a few times, because each
  // time takes some of the static thread-local memory that a process has ("cannot allocate memory in static TLS block").
  std::shared_ptr<InstanceSlot> slot;
};

Result<FoundAdapter> FindAdapter(const AdapterRequest& request) {
  ASSIGN_OR_RETURN(std::shared_ptr<InstanceSlot> slot, FindSlot(request));
  AdapterDescription description = DescribeAdapter(slot->adapter.get());
  return FoundAdapter{request, std::move(description), std::move(slot)};
}

// Looking at all drivers takes a quarter of a second, and they do not change while a program runs, unless it changes the
// environment.
const std::vector<FoundAdapter>& FindAdapters(bool thorough) {
  static std::mutex mutex;
  // Never destroyed: drivers do not like to be called while a process ends.
  static auto& known = *new std::map<std::string, std::vector<FoundAdapter>>;
  std::string key = thorough ? "all" : "first";
  for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
    const char* value = std::getenv(name);
    key += StrCat("\n", value ? value : "");
  }
  std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(key);
  if (!is_new) return entry->second;
  std::set<std::string> seen;
  auto add = [&](const AdapterRequest& request) {
    Result<FoundAdapter> found = FindAdapter(request);
    if (!found.ok()) return;
    const AdapterDescription& d = found->description;
    if (!seen.insert(StrCat(d.vendor_id, "/", d.device_id, "/", d.device, "/", d.description)).second) return;
    entry->second.push_back(std::move(found).value());
  };
  add({"", WGPUPowerPreference_HighPerformance});
  if (!thorough) return entry->second;
  add({"", WGPUPowerPreference_LowPower});
  for (const std::string& manifest : ManifestFiles()) {
    add({manifest, WGPUPowerPreference_HighPerformance});
    add({manifest, WGPUPowerPreference_LowPower});
  }
  return entry->second;
}

}  // namespace

Result<Enumeration> Enumerate(bool thorough) {
  const Result<Api>& api = GetApi();
  if (!api.ok()) return api.error();
  Enumeration out;
  out.message = StrCat("loaded ", api->path, "; Vulkan drivers are those of the system, or of VK_ICD_FILENAMES if that is set");
  for (const FoundAdapter& found : FindAdapters(thorough)) {
    const AdapterDescription& d = found.description;
    Candidate candidate;
    candidate.name = d.device;
    candidate.driver = d.description;
    candidate.vendor = d.vendor;
    candidate.aliases =
        StrCat(d.architecture, " ", found.request.manifest, d.device.starts_with("llvmpipe") ? " lavapipe" : "");
    candidate.is_software = d.type == WGPUAdapterType_CPU;
    candidate.open = [request = found.request, slot = found.slot](const OpenOptions& options) {
      return OpenWebGpuDevice(request, slot, options);
    };
    out.candidates.push_back(std::move(candidate));
  }
  return out;
}

}  // namespace leeway::webgpu
