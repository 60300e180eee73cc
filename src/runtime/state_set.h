// The tensors that live on between runs, of one user of some plans (a session): a buffer for each state, or host memory where
// there is no device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "runtime/plan.h"

namespace leeway {

class StateSet {
 public:
  struct State {
    std::string name;
    TensorType type;
    Placement placement;             // with a device
    std::unique_ptr<Buffer> buffer;  // with a device, unless the tensor is empty
    HostTensor host;                 // without one
  };

  // The states of all plans, filled with zeros. Plans that name the same state must agree on its type and placement. `device`
  // (null: none) must outlive the set.
  static Result<std::unique_ptr<StateSet>> Make(std::span<const LaunchPlan* const> plans, Device* device);

  const std::vector<State>& states() const { return states_; }
  std::vector<State>& states() { return states_; }
  // Index in states(); -1: there is none.
  int Find(std::string_view name) const;
  uint64_t size_bytes() const;

  // Bytes as they are stored (row-major where the last axis is a multiple of four or the only one), in order with submissions.
  // Offset and size are multiples of 4.
  Status Write(int state, uint64_t offset_bytes, std::span<const std::byte> bytes);
  struct Range {
    int state = 0;
    uint64_t offset_bytes = 0, size_bytes = 0;
  };
  // After everything submitted before. Without a device `done` is called before this returns.
  Result<EventPtr> Read(std::span<const Range> ranges, Device::ReadDone done) const;
  // Bytes that a state takes as it is stored.
  uint64_t StoredBytes(int state) const;

 private:
  Device* device_ = nullptr;
  std::vector<State> states_;
};

}  // namespace leeway
