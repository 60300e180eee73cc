// What we know about devices beyond what they say themselves, as data: classes, core counts, quirks of drivers.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <thread>

#include "device/backend.h"

namespace leeway {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The first row whose word is in the name or the vendor, in lower case.
struct ClassRow {
  const char* word;
  const char* device_class;
};
constexpr ClassRow kClasses[] = {
    {"nvidia", "nvidia"},       {"amd", "amd"},         {"radeon", "amd"},      {"intel", "intel"}, {"adreno", "adreno"},
    {"qualcomm", "adreno"},     {"mali", "mali"},       {"arm", "mali"},        {"apple", "apple"}, {"powervr", "powervr"},
    {"imagination", "powervr"}, {"samsung", "xclipse"}, {"xclipse", "xclipse"},
};

// Cores (multiprocessors, compute units) of GPUs whose API does not tell. From the makers' data sheets.
struct CoreRow {
  const char* word;
  uint32_t cores;
};
constexpr CoreRow kCores[] = {
    {"h200", 132},     {"h100", 132},     {"a100", 108},    {"l40", 142},     {"l4", 58},       {"t4", 40},
    {"rtx 5090", 170}, {"rtx 4090", 128}, {"rtx 4080", 76}, {"rtx 4070", 46}, {"rtx 4060", 24}, {"rtx 3090", 82},
    {"rtx 3080", 68},  {"rtx 3070", 46},  {"rtx 3060", 28}, {"7900 xtx", 96}, {"6900 xt", 80},  {"m1 max", 32},
    {"m1 pro", 16},    {"m1", 8},         {"m2", 10},       {"m3", 10},       {"m4", 10},
};
constexpr CoreRow kCoresOfClass[] = {
    {"nvidia", 40}, {"amd", 40}, {"intel", 24}, {"apple", 10}, {"adreno", 6}, {"mali", 8}, {"xclipse", 4}, {"powervr", 4},
};

// A driver that must be treated otherwise than it says. `api`, `word_in_name` and `word_in_driver` all have to fit; empty fits.
struct QuirkRow {
  const char* name;
  const char* api;
  const char* word_in_name;
  const char* word_in_driver;
  void (*apply)(DeviceInfo& info);
};
constexpr QuirkRow kQuirks[] = {
    // PoCL 3.1 keeps programs and kernels compiled for a work-group size in ~/.cache/pocl. Asking it for a program's binary
    // compiles every kernel once more, for no work-group size in particular (120 ms each, as long as the build).
    {"pocl_caches_programs", "opencl", "", "portable computing language",
     [](DeviceInfo& info) { info.driver_caches_programs = true; }},
    // It finds a program in its cache by the preprocessed text, and preprocessing reads the declarations of all of OpenCL's
    // functions: about 100 ms a program, however small. So opencl_device.cc makes one program of what is asked for at once.
    {"pocl_compiles_together", "opencl", "", "portable computing language", [](DeviceInfo&) {}},
};

bool Fits(const char* word, const std::string& text) { return text.find(word) != std::string::npos; }

}  // namespace

void ApplyTables(DeviceInfo& info) {
  const std::string name = Lower(info.name), vendor = Lower(info.vendor), driver = Lower(info.driver);
  info.device_class = "other";
  if (info.is_software) {
    info.device_class = "software";
  } else {
    const auto row = std::find_if(std::begin(kClasses), std::end(kClasses),
                                  [&](const ClassRow& row) { return Fits(row.word, name) || Fits(row.word, vendor); });
    if (row != std::end(kClasses)) info.device_class = row->device_class;
  }
  uint32_t& cores = info.target.core_count_estimate;
  if (!cores && info.is_software) cores = std::max(1u, std::thread::hardware_concurrency());
  if (!cores) {
    const auto row =
        std::find_if(std::begin(kCores), std::end(kCores), [&](const CoreRow& row) { return Fits(row.word, name); });
    if (row != std::end(kCores)) cores = row->cores;
  }
  if (!cores) {
    const auto row = std::find_if(std::begin(kCoresOfClass), std::end(kCoresOfClass),
                                  [&](const CoreRow& row) { return info.device_class == row.word; });
    if (row != std::end(kCoresOfClass)) cores = row->cores;
  }
  for (const QuirkRow& quirk : kQuirks) {
    if (info.api != quirk.api && *quirk.api) continue;
    if (!Fits(quirk.word_in_name, name) || !Fits(quirk.word_in_driver, driver)) continue;
    quirk.apply(info);
    info.quirks.push_back(quirk.name);
  }
}

}  // namespace leeway
