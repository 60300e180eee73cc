#include "runtime/device_plan.h"

#include <algorithm>
#include <chrono>

#include "base/strings.h"
#include "runtime/pack.h"

namespace leeway {
namespace {

double Now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Constants are packed in lots of about this many bytes, so that the host never holds all of them twice.
constexpr uint64_t kLotBytes = uint64_t(32) << 20;

// Everything that a compiled program depends on.
std::string CacheKey(const shader::KernelText& kernel, const DeviceInfo& info) {
  return StrCat(VersionText(), "\n", info.cache_key, "\n", shader::LanguageName(kernel.language), "\n", kernel.entry_point,
                "\n", kernel.text);
}

struct PendingPipeline {
  EventPtr ready;
  bool from_cache = false;
};

Status UploadConstants(const LaunchPlan& plan, Device& device, ThreadPool& pool, DevicePlan& objects) {
  std::vector<int> constants;
  for (size_t r = 0; r < plan.resources.size(); ++r) {
    if (plan.resources[r].kind == PlanResource::Kind::kConstant) constants.push_back(int(r));
  }
  for (size_t begin = 0; begin < constants.size();) {
    size_t end = begin;
    uint64_t bytes = 0;
    while (end < constants.size() && (end == begin || bytes < kLotBytes)) {
      bytes += plan.resources[size_t(constants[end++])].size_bytes;
    }
    std::vector<std::vector<std::byte>> packed(end - begin);
    pool.For(int64_t(end - begin), [&](int64_t i) {
      const PlanResource& resource = plan.resources[size_t(constants[begin + size_t(i)])];
      auto& out = packed[size_t(i)];
      out.resize(resource.size_bytes);
      PackThroughMap(*resource.constant, resource.map, resource.placement, out);
    });
    for (size_t i = begin; i < end; ++i) {
      const PlanResource& resource = plan.resources[size_t(constants[i])];
      const auto& bytes_of = packed[i - begin];
      const std::string context = StrCat("while uploading weights ", resource.name);
      if (resource.texture >= 0) {
        RETURN_IF_ERROR_CONTEXT(device.WriteTexture(*objects.textures[size_t(resource.texture)], bytes_of), context);
      } else {
        RETURN_IF_ERROR_CONTEXT(device.Write(*objects.buffers[size_t(resource.buffer)], resource.offset_bytes, bytes_of),
                                context);
      }
    }
    begin = end;
  }
  return {};
}

}  // namespace

BindingResource DevicePlan::Resource(const LaunchPlan& plan, const DevicePlan& objects, const PlanDispatch::Binding& binding) {
  BindingResource bound;
  if (binding.resource < 0) return bound;
  const PlanResource& resource = plan.resources[size_t(binding.resource)];
  if (resource.texture >= 0) {
    bound.texture = objects.textures[size_t(resource.texture)].get();
    return bound;
  }
  bound.buffer = objects.buffers[size_t(resource.buffer)].get();
  bound.offset_bytes = resource.offset_bytes;
  bound.size_bytes = resource.size_bytes;
  bound.texel_dtype = resource.placement.dtype;
  if (resource.kind != PlanResource::Kind::kKernelScratch && resource.placement.part_count() > 1) {
    const uint64_t part_bytes = DTypeBytes(resource.placement.dtype, size_t(resource.placement.elements_per_part));
    const uint64_t begin = part_bytes * uint64_t(binding.part);
    bound.offset_bytes += begin;
    bound.size_bytes = std::min(part_bytes, resource.size_bytes - begin);
  }
  return bound;
}

Result<std::unique_ptr<DevicePlan>> DevicePlan::Make(const LaunchPlan& plan, Device& device, ProgramCache& cache,
                                                     ThreadPool& pool,
                                                     const std::function<bool(int done, int total)>& progress) {
  auto objects = std::make_unique<DevicePlan>();
  const double start = Now();

  // The driver compiles while buffers are filled.
  std::vector<PendingPipeline> pending;
  for (const auto& kernel : plan.kernels) {
    const std::string context = StrCat("while compiling kernel ", kernel.name);
    PendingPipeline entry;
    Result<Device::Compiling> compiling = Error{};
    auto binary = cache.Load(CacheKey(kernel, device.info()));
    if (binary) {
      compiling = device.StartCompileFromBinary(kernel, *binary);
      entry.from_cache = compiling.ok();
      if (!compiling.ok()) cache.Drop(CacheKey(kernel, device.info()));
    }
    if (!entry.from_cache) compiling = device.StartCompile(kernel);
    if (!compiling.ok()) return WithContext(compiling.error(), context);
    entry.ready = compiling->ready;
    objects->pipelines.push_back(std::move(compiling->pipeline));
    pending.push_back(std::move(entry));
  }

  const double upload_start = Now();
  for (const auto& buffer : plan.buffers) {
    ASSIGN_OR_RETURN(auto made, device.CreateBuffer(buffer.size_bytes, buffer.label));
    if (buffer.zeroed) {
      const std::vector<std::byte> zeros(size_t(buffer.size_bytes + 3) / 4 * 4);
      RETURN_IF_ERROR(device.Write(*made, 0, std::span(zeros).first(std::min<size_t>(zeros.size(), made->size_bytes()))));
    }
    objects->buffers.push_back(std::move(made));
  }
  for (const auto& texture : plan.textures) {
    ASSIGN_OR_RETURN(auto made, device.CreateTexture(texture.spec, texture.label));
    objects->textures.push_back(std::move(made));
  }
  RETURN_IF_ERROR(UploadConstants(plan, device, pool, *objects));
  objects->report.upload_ms = Now() - upload_start;

  for (size_t k = 0; k < pending.size(); ++k) {
    const shader::KernelText& kernel = plan.kernels[k];
    Status status = device.Wait(pending[k].ready);
    if (!status.ok() && pending[k].from_cache && device.status().ok()) {
      // What the driver no longer takes is made anew.
      cache.Drop(CacheKey(kernel, device.info()));
      pending[k].from_cache = false;
      ASSIGN_OR_RETURN(auto compiling, device.StartCompile(kernel));
      objects->pipelines[k] = std::move(compiling.pipeline);
      status = device.Wait(compiling.ready);
    }
    if (!status.ok()) return WithContext(status.error(), StrCat("while compiling kernel ", kernel.name));
    (pending[k].from_cache ? objects->report.cache_hits : objects->report.cache_misses)++;
    if (!pending[k].from_cache && !cache.folder().empty() && !device.info().driver_caches_programs) {
      const auto binary = device.PipelineBinary(*objects->pipelines[k]);
      if (!binary.empty()) cache.Store(CacheKey(kernel, device.info()), binary);
    }
    if (progress && !progress(int(k) + 1, int(pending.size()))) {
      return Error{Code::kCancelled, "The caller ended the load while programs were compiled."};
    }
  }
  objects->report.compile_ms = Now() - start - objects->report.upload_ms;

  for (const PlanStep& step : plan.steps) {
    auto& recordings = objects->recordings.emplace_back();
    for (size_t s = 0; s < step.submissions.size(); ++s) {
      const int end = s + 1 < step.submissions.size() ? step.submissions[s + 1] : step.last_dispatch;
      std::vector<Dispatch> dispatches;
      for (int d = step.submissions[s]; d < end; ++d) {
        const PlanDispatch& planned = plan.dispatches[size_t(d)];
        Dispatch dispatch;
        dispatch.pipeline = objects->pipelines[size_t(planned.kernel)].get();
        for (const auto& binding : planned.bindings) dispatch.bindings.push_back(Resource(plan, *objects, binding));
        for (int axis = 0; axis < 3; ++axis) dispatch.workgroups[axis] = planned.info.workgroups[axis];
        dispatch.label = StrCat(planned.info.label, " ", planned.info.kernel);
        dispatches.push_back(std::move(dispatch));
      }
      ASSIGN_OR_RETURN(auto recording, device.Record(std::move(dispatches)));
      recordings.push_back(std::move(recording));
    }
  }
  return objects;
}

}  // namespace leeway
