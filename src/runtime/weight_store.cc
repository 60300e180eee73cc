#include "runtime/weight_store.h"

#include <algorithm>

#include "base/strings.h"
#include "runtime/pack.h"

namespace leeway {
namespace {

constexpr uint64_t kLotBytes = uint64_t(32) << 20;

uint64_t RoundUp(uint64_t size) { return (size + kOffsetAlignment - 1) / kOffsetAlignment * kOffsetAlignment; }

}  // namespace

bool SameMap(const CoordMap& a, const CoordMap& b) {
  return a.coords == b.coords && a.inside == b.inside && (!a.inside || a.outside == b.outside);
}

bool SamePlacement(const Placement& a, const Placement& b) {
  return a.layout == b.layout && a.storage == b.storage && a.dtype == b.dtype && a.shape == b.shape &&
         a.elements_per_part == b.elements_per_part && a.texture_extent == b.texture_extent;
}

Status UploadConstants(std::span<const ConstantUpload> uploads, Device& device, ThreadPool& pool,
                       const std::function<bool(uint64_t, uint64_t)>& progress) {
  uint64_t total = 0, done = 0;
  for (const auto& upload : uploads) total += upload.resource->size_bytes;
  for (size_t begin = 0; begin < uploads.size();) {
    size_t end = begin;
    uint64_t bytes = 0;
    while (end < uploads.size() && (end == begin || bytes < kLotBytes)) bytes += uploads[end++].resource->size_bytes;
    std::vector<std::vector<std::byte>> packed(end - begin);
    pool.For(int64_t(end - begin), [&](int64_t i) {
      const PlanResource& resource = *uploads[begin + size_t(i)].resource;
      auto& out = packed[size_t(i)];
      out.resize(resource.size_bytes);
      PackThroughMap(*resource.constant, resource.map, resource.placement, out);
    });
    for (size_t i = begin; i < end; ++i) {
      const ConstantUpload& upload = uploads[i];
      const auto& bytes_of = packed[i - begin];
      const Status status = upload.texture ? device.WriteTexture(*upload.texture, bytes_of)
                                           : device.Write(*upload.buffer, upload.offset_bytes, bytes_of);
      if (!status.ok()) return WithContext(status.error(), StrCat("while uploading weights ", upload.resource->name));
    }
    begin = end;
    done += bytes;
    if (progress && !progress(done, total)) return Error{Code::kCancelled, "The caller ended the load of the weights."};
  }
  return {};
}

Status WriteZeros(Device& device, Buffer& buffer) {
  const std::vector<std::byte> zeros(size_t(std::min<uint64_t>(buffer.size_bytes(), 4 << 20)) / 4 * 4);
  for (uint64_t at = 0; at < buffer.size_bytes() / 4 * 4; at += zeros.size()) {
    const size_t size = size_t(std::min<uint64_t>(zeros.size(), buffer.size_bytes() / 4 * 4 - at));
    RETURN_IF_ERROR(device.Write(buffer, at, std::span(zeros).first(size)));
  }
  return {};
}

const WeightStore::Entry* WeightStore::Find(const PlanResource& resource) const {
  auto [it, end] = entries_.equal_range(resource.constant->bytes().data());
  for (; it != end; ++it) {
    const Entry& entry = it->second;
    if (entry.constant->dtype() == resource.constant->dtype() && entry.constant->shape() == resource.constant->shape() &&
        SamePlacement(entry.placement, resource.placement) && SameMap(entry.map, resource.map)) {
      return &entry;
    }
  }
  return nullptr;
}

Result<std::vector<WeightStore::Location>> WeightStore::Take(std::span<const PlanResource> resources, Device& device,
                                                             ThreadPool& pool) {
  std::vector<Location> locations(resources.size());
  std::vector<const PlanResource*> missing;
  for (const PlanResource& resource : resources) {
    if (resource.kind == PlanResource::Kind::kConstant && resource.texture < 0 && !Find(resource)) missing.push_back(&resource);
  }
  // One after another, in as few buffers as the device allows.
  const uint64_t max_buffer = device.info().max_buffer_bytes ? device.info().max_buffer_bytes : uint64_t(1) << 40;
  std::vector<ConstantUpload> uploads;
  const bool images_need_start = device.info().target.image_buffer;  // PoCL makes no image of a part of a buffer
  for (size_t begin = 0; begin < missing.size();) {
    auto is_image = [&](size_t i) { return images_need_start && missing[i]->placement.storage == Storage::kImageBuffer; };
    size_t end = begin;
    uint64_t size = 0;
    while (end < missing.size() &&
           (end == begin || (size + RoundUp(missing[end]->size_bytes) <= max_buffer && !is_image(end)))) {
      size += RoundUp(missing[end++]->size_bytes);
      if (is_image(end - 1)) break;
    }
    ASSIGN_OR_RETURN(auto buffer, device.CreateBuffer(size, StrCat("shared weights ", buffers_.size())));
    uint64_t at = 0;
    for (size_t i = begin; i < end; ++i) {
      uploads.push_back({missing[i], buffer.get(), at, nullptr});
      at += RoundUp(missing[i]->size_bytes);
    }
    size_bytes_ += size;
    buffers_.push_back(std::move(buffer));
    begin = end;
  }
  RETURN_IF_ERROR(UploadConstants(uploads, device, pool, progress));
  for (const ConstantUpload& upload : uploads) {
    const PlanResource& resource = *upload.resource;
    entries_.emplace(resource.constant->bytes().data(),
                     Entry{resource.constant, resource.map, resource.placement, {upload.buffer, upload.offset_bytes}});
  }
  for (size_t r = 0; r < resources.size(); ++r) {
    if (resources[r].kind != PlanResource::Kind::kConstant || resources[r].texture >= 0) continue;
    locations[r] = Find(resources[r])->location;
  }
  return locations;
}

}  // namespace leeway
