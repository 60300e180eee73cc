// Which devices the runtime's tests run on.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "leeway/device.h"

namespace leeway {

// LEEWAY_TEST_DEVICES: names for OpenSharedDevice, separated by commas, all of which have to be there; "none": none. Unset:
// whatever is found.
inline std::vector<std::string> TestDevices() {
  std::vector<std::string> names;
  if (const char* list = std::getenv("LEEWAY_TEST_DEVICES"); list && *list) {
    if (std::string(list) == "none") return names;
    std::string name;
    for (const char* c = list;; ++c) {
      if (*c != ',' && *c != 0) {
        name += *c;
        continue;
      }
      if (!name.empty()) names.push_back(name);
      name.clear();
      if (*c == 0) return names;
    }
  }
  for (const BackendReport& report : ListDevices()) {
    for (const FoundDevice& device : report.devices) names.push_back(report.api + ":" + std::to_string(device.index));
  }
  return names;
}

}  // namespace leeway
