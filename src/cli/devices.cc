// leeway devices: what is on this machine, what the default is and why.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "cli/common.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

int Devices(bool as_json) {
  const std::vector<BackendReport> backends = ListDevices();
  std::vector<std::string> why;
  OpenOptions options;
  options.log = [&](const std::string& line) { why.push_back(line); };
  const Result<std::shared_ptr<Device>> opened = OpenSharedDevice("", options);

  json report;
  report["backends"] = json::array();
  report["devices"] = json::array();
  std::string text;
  for (const BackendReport& backend : backends) {
    report["backends"].push_back({{"api", backend.api}, {"loaded", backend.loaded}, {"message", backend.message}});
    text += StrCat(backend.api, ": ", backend.loaded ? "" : "not there: ", backend.message, "\n");
    for (const FoundDevice& found : backend.devices) {
      const std::string label = StrCat(found.api, ":", found.index);
      const auto device = OpenSharedDevice(label, {});
      if (!device.ok()) {
        report["devices"].push_back(
            {{"id", label}, {"name", found.name}, {"is_software", found.is_software}, {"error", device.error().message}});
        text += StrCat("  ", label, "  ", found.name, "\n    can't be opened: ", device.error().message, "\n");
        continue;
      }
      const DeviceSummary summary = DescribeDevice(**device);
      json entry = ToJson(summary);
      entry["id"] = label;
      report["devices"].push_back(entry);
      std::string features, limits, answers, failed;
      for (const auto& [name, on] : summary.features)
        if (on) features += (features.empty() ? "" : ", ") + name;
      for (const auto& [name, value] : summary.limits) limits += StrCat(limits.empty() ? "" : ", ", name, " ", value);
      int passed = 0;
      for (const KnownAnswer& answer : summary.known_answers) {
        passed += answer.passed;
        if (!answer.passed) failed += StrCat("\n      ", answer.name, " failed: ", answer.detail);
      }
      text += StrCat("  ", label, "  ", summary.name, summary.is_software ? " (software)" : "",
                     "\n    driver: ", summary.driver, "\n    class: ", summary.device_class,
                     "\n    features: ", features.empty() ? "none" : features, "\n    limits: ", limits,
                     "\n    known-answer tests: ", passed, " of ", summary.known_answers.size(), " passed", failed, "\n");
      if (!summary.quirks.empty()) text += StrCat("    quirks: ", Join(summary.quirks, ", "), "\n");
    }
  }
  report["why"] = why;
  if (opened.ok()) {
    const DeviceSummary summary = DescribeDevice(**opened);
    report["default"] = {{"api", summary.api}, {"name", summary.name}};
    text += StrCat("default: ", summary.api, ", ", summary.name, "\n");
  } else {
    report["default"] = {{"api", "cpu"}, {"name", "CPU reference"}};
    why.push_back(opened.error().message);
    report["why"] = why;
    text += "default: cpu (no device could be opened)\n";
  }
  for (const std::string& line : why) text += StrCat("  ", line, "\n");
  if (as_json) {
    PrintJson(report);
  } else {
    std::fputs(text.c_str(), stdout);
  }
  return kDone;
}

}  // namespace

void AddDevicesCommand(CLI::App& app, Action& run) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("devices", "List the devices of this machine and say which one is the default and why");
  command->add_flag("--json", *as_json, "Print JSON");
  command->callback([&run, as_json] { run = [as_json] { return Devices(*as_json); }; });
}

}  // namespace leeway::cli
