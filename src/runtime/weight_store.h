// Constants on a device, uploaded once however many plans use them: decode and prefill read the same weights.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"
#include "runtime/plan.h"

namespace leeway {

// A constant and where its bytes belong.
struct ConstantUpload {
  const PlanResource* resource = nullptr;
  Buffer* buffer = nullptr;  // or a texture
  uint64_t offset_bytes = 0;
  Texture* texture = nullptr;
};
// Packs and writes in lots, large matrices in slices of rows and quantized ones as weight_upload.h says, so that the host never
// holds all of them twice. `progress` gets the bytes that are done and may
// cancel; null: none.
Status UploadConstants(std::span<const ConstantUpload> uploads, Device& device, ThreadPool& pool,
                       const std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>& progress = nullptr);
Status WriteZeros(Device& device, Buffer& buffer);

// A constant whose rows lie in a stacked resource so that they can be bound by themselves.
struct StackedPart {
  std::shared_ptr<const HostTensor> constant;
  uint64_t offset_bytes = 0, size_bytes = 0;
};
// Empty for a resource that is no stack. Parts that begin where no binding can are left out.
std::vector<StackedPart> PartsOf(const PlanResource& resource);

class WeightStore {
 public:
  struct Location {
    Buffer* buffer = nullptr;
    uint64_t offset_bytes = 0;
  };
  // Called while constants are uploaded; false ends it with kCancelled.
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress;

  // Where each constant among the resources is (no buffer: it is none, or lies in a texture); what is not there yet is
  // uploaded. Constants are the same if their bytes are at the same address and they are placed alike; one that was uploaded
  // as a part of a stack is not uploaded again, so plans with stacks come first. The store keeps them alive.
  Result<std::vector<Location>> Take(std::span<const PlanResource> resources, Device& device, ThreadPool& pool);

  uint64_t size_bytes() const { return size_bytes_; }

 private:
  struct Entry {
    std::shared_ptr<const HostTensor> constant;
    CoordMap map;
    Placement placement;
    std::optional<BlockFormat> format;
    AssembledDispatch::Source::Piece piece;
    std::vector<std::shared_ptr<const HostTensor>> stacked;
    uint64_t size_bytes = 0;
    Location location;
  };
  const Entry* Find(const PlanResource& resource) const;

  std::multimap<const std::byte*, Entry> entries_;  // by address of the constant
  std::vector<std::unique_ptr<Buffer>> buffers_;
  uint64_t size_bytes_ = 0;
};

// Whether two constants look the same on a device.
bool SamePlacement(const Placement& a, const Placement& b);
bool SameMap(const CoordMap& a, const CoordMap& b);

}  // namespace leeway
