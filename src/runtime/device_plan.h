// The objects of a launch plan on a device: buffers with their weights, textures, pipelines, recordings. Made once; a run only
// submits. Several plans may share weights, the memory of activations, and states.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"
#include "runtime/plan.h"
#include "runtime/program_cache.h"
#include "runtime/weight_store.h"

namespace leeway {

struct DevicePlanReport {
  double compile_ms = 0, upload_ms = 0;
  int cache_hits = 0, cache_misses = 0;
};

// Where a resource is: a part of a buffer, or a texture.
struct ResourceLocation {
  Buffer* buffer = nullptr;
  uint64_t offset_bytes = 0;
  Texture* texture = nullptr;
};

// Memory for activations that plans share which never run at the same time: buffer i of each plan's activations is buffer i
// here, as large as the largest. Recordings keep the buffer that they were made with alive, so one that grows does no harm.
class ActivationArena {
 public:
  // Before the first Take: what a plan that comes later will need.
  void Reserve(const LaunchPlan& plan);
  Result<Buffer*> Take(Device& device, int index, uint64_t size_bytes);
  uint64_t size_bytes() const;

 private:
  std::vector<uint64_t> reserved_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// What a plan does not make for itself. Null: its own.
struct SharedMemory {
  WeightStore* weights = nullptr;
  ActivationArena* arena = nullptr;
  bool states = false;  // true: states are given when the plan is recorded, and Make records nothing
};

struct DevicePlan {
  std::vector<ResourceLocation> locations;       // as LaunchPlan::resources
  std::vector<std::unique_ptr<Buffer>> buffers;  // its own: as LaunchPlan::buffers where nothing is shared
  std::vector<std::unique_ptr<Texture>> textures;
  std::vector<std::unique_ptr<Pipeline>> pipelines;                 // as LaunchPlan::kernels
  std::vector<std::vector<std::unique_ptr<Recording>>> recordings;  // by step and submission; empty with SharedMemory::states
  DevicePlanReport report;

  // `progress` as PlanOptions has it, over pipelines; may be null.
  static Result<std::unique_ptr<DevicePlan>> Make(const LaunchPlan& plan, Device& device, ProgramCache& cache, ThreadPool& pool,
                                                  const std::function<bool(int done, int total)>& progress,
                                                  const SharedMemory& shared = {});

  // The recordings of all steps; states are where `states` says (as LaunchPlan::states), or where they are by themselves.
  Result<std::vector<std::vector<std::unique_ptr<Recording>>>> Record(const LaunchPlan& plan, Device& device,
                                                                      std::span<Buffer* const> states = {}) const;

  // In order with submissions; all bytes of the resource.
  Status Write(Device& device, int resource, std::span<const std::byte> bytes) const;

 private:
  Status MakeMemory(const LaunchPlan& plan, Device& device, ThreadPool& pool, const SharedMemory& shared);
};

}  // namespace leeway
