// What the CPU steps of a plan read and write: the values on the host's side of a run.
#pragma once

#include <span>
#include <vector>

#include "runtime/plan.h"

namespace leeway {

class HostValues {
 public:
  HostValues() = default;
  // The plan must outlive this. Everything that CPU steps touch has a tensor, constants included.
  explicit HostValues(const LaunchPlan& plan);

  HostTensor& operator[](ValueId id) { return values_[size_t(id)]; }
  const HostTensor& operator[](ValueId id) const { return values_[size_t(id)]; }

  // A download has come: the bytes of the resource.
  void Unpack(const PlanTransfer& transfer, std::span<const std::byte> bytes);
  // The bytes of an upload.
  std::vector<std::byte> Pack(const PlanTransfer& transfer) const;

  // One node by its reference. The memory of what it updates goes from the value before to the value after.
  Status Evaluate(int node);

 private:
  const LaunchPlan* plan_ = nullptr;
  std::vector<HostTensor> values_;
};

}  // namespace leeway
