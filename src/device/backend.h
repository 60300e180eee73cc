// What an API behind device.h offers to devices.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace leeway {

// A device whose description known-answer tests may still change.
class BackendDevice : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  DeviceInfo& mutable_info() { return info_; }

 protected:
  DeviceInfo info_;
};

// A device that could be opened.
struct Candidate {
  std::string name, driver, vendor;
  std::string aliases;  // other words by which people may ask for it
  bool is_software = false;
  std::function<Result<std::unique_ptr<BackendDevice>>(const OpenOptions&)> open;
};

struct Enumeration {
  std::string message;  // which library was loaded, how candidates are found
  std::vector<Candidate> candidates;
};

namespace webgpu {
// `thorough`: every driver on its own, so that a software device behind a real one is found as well; otherwise only what
// the loader puts first.
Result<Enumeration> Enumerate(bool thorough);
}  // namespace webgpu
namespace opencl {
Result<Enumeration> Enumerate();
}  // namespace opencl

// Fills device_class, quirks and what follows from them in the target.
void ApplyTables(DeviceInfo& info);

}  // namespace leeway
