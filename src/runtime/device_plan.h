// The objects of a launch plan on a device: buffers with their weights, textures, pipelines, recordings. Made once; a run only
// submits.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"
#include "runtime/plan.h"
#include "runtime/program_cache.h"

namespace leeway {

struct DevicePlanReport {
  double compile_ms = 0, upload_ms = 0;
  int cache_hits = 0, cache_misses = 0;
};

struct DevicePlan {
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<std::unique_ptr<Texture>> textures;
  std::vector<std::unique_ptr<Pipeline>> pipelines;                 // as LaunchPlan::kernels
  std::vector<std::vector<std::unique_ptr<Recording>>> recordings;  // by step and submission
  DevicePlanReport report;

  // `progress` as PlanOptions has it, over pipelines; may be null.
  static Result<std::unique_ptr<DevicePlan>> Make(const LaunchPlan& plan, Device& device, ProgramCache& cache, ThreadPool& pool,
                                                  const std::function<bool(int done, int total)>& progress);

  // The part of a buffer or the texture that a binding of a dispatch means.
  static BindingResource Resource(const LaunchPlan& plan, const DevicePlan& objects, const PlanDispatch::Binding& binding);
};

}  // namespace leeway
