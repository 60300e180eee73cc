#include "runtime/device_plan.h"

#include <algorithm>
#include <chrono>

#include "base/strings.h"

namespace leeway {
namespace {

double Now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Everything that a compiled program depends on.
std::string CacheKey(const shader::KernelText& kernel, const DeviceInfo& info) {
  return StrCat(VersionText(), "\n", info.cache_key, "\n", shader::LanguageName(kernel.language), "\n", kernel.entry_point,
                "\n", kernel.text);
}

struct PendingPipeline {
  EventPtr ready;
  bool from_cache = false;
};

// The part of a buffer or the texture that a binding of a dispatch means.
BindingResource BindingOf(const PlanResource& resource, const ResourceLocation& where, int part) {
  BindingResource bound;
  if (where.texture) {
    bound.texture = where.texture;
    return bound;
  }
  bound.buffer = where.buffer;
  bound.offset_bytes = where.offset_bytes;
  bound.size_bytes = resource.size_bytes;
  bound.texel_dtype = resource.placement.dtype;
  if (resource.kind != PlanResource::Kind::kKernelScratch && resource.placement.part_count() > 1) {
    const uint64_t part_bytes = DTypeBytes(resource.placement.dtype, size_t(resource.placement.elements_per_part));
    const uint64_t begin = part_bytes * uint64_t(part);
    bound.offset_bytes += begin;
    bound.size_bytes = std::min(part_bytes, resource.size_bytes - begin);
  }
  return bound;
}

}  // namespace

void ActivationArena::Reserve(const LaunchPlan& plan) {
  size_t index = 0;
  for (const auto& buffer : plan.buffers) {
    if (buffer.kind != PlanResource::Kind::kActivation) continue;
    if (index == reserved_.size()) reserved_.push_back(0);
    reserved_[index] = std::max(reserved_[index], buffer.size_bytes);
    ++index;
  }
}

Result<Buffer*> ActivationArena::Take(Device& device, int index, uint64_t size_bytes) {
  const size_t i = size_t(index);
  if (i >= reserved_.size()) reserved_.resize(i + 1);
  if (i >= buffers_.size()) buffers_.resize(i + 1);
  reserved_[i] = std::max(reserved_[i], size_bytes);
  if (!buffers_[i] || buffers_[i]->size_bytes() < size_bytes) {
    ASSIGN_OR_RETURN(buffers_[i], device.CreateBuffer(reserved_[i], StrCat("shared activations ", index)));
  }
  return buffers_[i].get();
}

uint64_t ActivationArena::size_bytes() const {
  uint64_t total = 0;
  for (uint64_t size : reserved_) total += size;
  return total;
}

Result<std::unique_ptr<DevicePlan>> DevicePlan::Make(const LaunchPlan& plan, Device& device, ProgramCache& cache,
                                                     ThreadPool& pool, const std::function<bool(int done, int total)>& progress,
                                                     const SharedMemory& shared) {
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
  RETURN_IF_ERROR(objects->MakeMemory(plan, device, pool, shared));
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

  if (!shared.states) { ASSIGN_OR_RETURN(objects->recordings, objects->Record(plan, device)); }
  return objects;
}

Status DevicePlan::MakeMemory(const LaunchPlan& plan, Device& device, ThreadPool& pool, const SharedMemory& shared) {
  using Kind = PlanResource::Kind;
  std::vector<Buffer*> where;
  int activations = 0;
  for (const auto& buffer : plan.buffers) {
    where.push_back(nullptr);
    if ((buffer.kind == Kind::kConstant && shared.weights) || (buffer.kind == Kind::kState && shared.states)) continue;
    if (buffer.kind == Kind::kActivation && shared.arena) {
      ASSIGN_OR_RETURN(where.back(), shared.arena->Take(device, activations++, buffer.size_bytes));
      continue;
    }
    ASSIGN_OR_RETURN(auto made, device.CreateBuffer(buffer.size_bytes, buffer.label));
    if (buffer.kind == Kind::kKernelScratch || buffer.kind == Kind::kState) RETURN_IF_ERROR(WriteZeros(device, *made));
    where.back() = made.get();
    buffers.push_back(std::move(made));
  }
  for (const auto& texture : plan.textures) {
    ASSIGN_OR_RETURN(auto made, device.CreateTexture(texture.spec, texture.label));
    textures.push_back(std::move(made));
  }
  std::vector<ConstantUpload> uploads;
  for (const auto& resource : plan.resources) {
    ResourceLocation location;
    if (resource.texture >= 0) {
      location.texture = textures[size_t(resource.texture)].get();
    } else if (resource.buffer >= 0) {
      location.buffer = where[size_t(resource.buffer)];
      location.offset_bytes = resource.offset_bytes;
    }
    if (resource.kind == Kind::kConstant && (location.buffer || location.texture)) {
      uploads.push_back({&resource, location.buffer, location.offset_bytes, location.texture});
    }
    locations.push_back(location);
  }
  if (shared.weights) {
    ASSIGN_OR_RETURN(std::vector<WeightStore::Location> stored, shared.weights->Take(plan.resources, device, pool));
    for (size_t r = 0; r < plan.resources.size(); ++r) {
      if (stored[r].buffer) locations[r] = {stored[r].buffer, stored[r].offset_bytes, nullptr};
    }
  }
  return UploadConstants(uploads, device, pool);
}

Result<std::vector<std::vector<std::unique_ptr<Recording>>>> DevicePlan::Record(const LaunchPlan& plan, Device& device,
                                                                                std::span<Buffer* const> states) const {
  std::vector<ResourceLocation> where = locations;
  for (size_t s = 0; s < states.size(); ++s) {
    if (plan.states[s].resource >= 0) where[size_t(plan.states[s].resource)] = {states[s], 0, nullptr};
  }
  std::vector<std::vector<std::unique_ptr<Recording>>> all;
  for (const PlanStep& step : plan.steps) {
    auto& recorded = all.emplace_back();
    for (size_t s = 0; s < step.submissions.size(); ++s) {
      const int end = s + 1 < step.submissions.size() ? step.submissions[s + 1] : step.last_dispatch;
      std::vector<Dispatch> dispatches;
      for (int d = step.submissions[s]; d < end; ++d) {
        const PlanDispatch& planned = plan.dispatches[size_t(d)];
        Dispatch dispatch;
        dispatch.pipeline = pipelines[size_t(planned.kernel)].get();
        for (const auto& [resource, part] : planned.bindings) {
          dispatch.bindings.push_back(
              resource < 0 ? BindingResource() : BindingOf(plan.resources[size_t(resource)], where[size_t(resource)], part));
        }
        for (int axis = 0; axis < 3; ++axis) dispatch.workgroups[axis] = planned.info.workgroups[axis];
        dispatch.params_offset_bytes = planned.params_offset_bytes;
        dispatch.label = StrCat(planned.info.label, " ", planned.info.kernel);
        dispatches.push_back(std::move(dispatch));
      }
      ASSIGN_OR_RETURN(auto recording, device.Record(std::move(dispatches)));
      recorded.push_back(std::move(recording));
    }
  }
  return all;
}

Status DevicePlan::Write(Device& device, int resource, std::span<const std::byte> bytes) const {
  const ResourceLocation& where = locations[size_t(resource)];
  if (where.texture) return device.WriteTexture(*where.texture, bytes);
  return device.Write(*where.buffer, where.offset_bytes, bytes);
}

}  // namespace leeway
