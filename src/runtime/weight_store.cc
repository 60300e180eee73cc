#include "runtime/weight_store.h"

#include <algorithm>

#include "base/strings.h"
#include "runtime/pack.h"
#include "runtime/weight_upload.h"
#include "tensor/block_pack.h"

namespace leeway {
namespace {

constexpr uint64_t kLotBytes = uint64_t(32) << 20;
// Larger ones go up in slices where they lie row by row.
constexpr uint64_t kSliceBytes = uint64_t(16) << 20;

uint64_t RoundUp(uint64_t size) { return (size + kOffsetAlignment - 1) / kOffsetAlignment * kOffsetAlignment; }

// Quants and factors of one constant, wherever they are.
std::vector<QuantizedUpload> QuantizedUploads(std::span<const ConstantUpload> constants) {
  // Rows of several constants are an upload each.
  using Stack = std::vector<const HostTensor*>;
  std::map<std::pair<Stack, DType>, size_t> known;
  std::vector<QuantizedUpload> uploads;
  for (const ConstantUpload& constant : constants) {
    const PlanResource& resource = *constant.resource;
    if (!resource.format) continue;
    Stack stack = {resource.constant.get()};
    for (const auto& more : resource.stacked) stack.push_back(more.get());
    auto [it, is_new] = known.try_emplace({stack, resource.format->factor}, uploads.size());
    if (is_new) {
      for (const HostTensor* tensor : stack) {
        uploads.push_back({.constant = tensor, .format = *resource.format, .name = resource.name});
      }
    }
    uint64_t offset = constant.offset_bytes;
    for (size_t i = 0; i < stack.size(); ++i) {
      QuantizedUpload& upload = uploads[it->second + i];
      const size_t elements = size_t(stack[i]->element_count());
      if (resource.piece == AssembledDispatch::Source::Piece::kFactors) {
        upload.factors = constant.buffer;
        upload.factors_offset_bytes = offset;
        offset += FactorsBytes(*resource.format, elements);
      } else {
        upload.quants = constant.buffer;
        upload.quants_offset_bytes = offset;
        offset += QuantsBytes(*resource.format, elements);
      }
    }
  }
  return uploads;
}

// Rows whose elements lie together and as in the file: such a constant needs not be packed as a whole.
bool CanUploadByRows(const ConstantUpload& upload) {
  const PlanResource& resource = *upload.resource;
  const Placement& placement = resource.placement;
  const bool by_rows = placement.layout != Layout::kSliced4 && !upload.texture && placement.shape.rank() >= 2;
  return by_rows && resource.size_bytes > kLotBytes && resource.map.is_identity() && !resource.map.inside &&
         placement.shape == resource.constant->shape() && DTypeBits(placement.dtype) >= 16 &&
         !IsBlockQuantized(resource.constant->dtype()) && DTypeBits(resource.constant->dtype()) >= 8;
}

Status UploadByRows(const ConstantUpload& upload, Device& device) {
  const PlanResource& resource = *upload.resource;
  Placement slice = resource.placement;
  slice.elements_per_part = 0;
  const HostTensor& constant = *resource.constant;
  const int64_t rows = slice.shape[0];
  const size_t host_row = constant.bytes().size() / size_t(rows);
  const uint64_t device_row = uint64_t(slice.storage_elements() / rows) * DTypeBits(slice.dtype) / 8;
  // A multiple of four rows is whole words whatever the row is.
  const int64_t step = std::max<int64_t>(int64_t(kSliceBytes / std::max<uint64_t>(device_row, 1)) / 4 * 4, 4);
  std::vector<std::byte> packed;
  for (int64_t row = 0; row < rows; row += step) {
    slice.shape[0] = std::min(step, rows - row);
    const auto bytes = constant.bytes().subspan(size_t(row) * host_row, size_t(slice.shape[0]) * host_row);
    packed.resize(size_t(slice.storage_bytes()));
    PackThroughMap(HostTensor(constant.dtype(), slice.shape, bytes, nullptr), {}, slice, packed);
    const size_t used = size_t((device_row * uint64_t(slice.shape[0]) + 3) / 4 * 4);
    RETURN_IF_ERROR(
        device.Write(*upload.buffer, upload.offset_bytes + uint64_t(row) * device_row, std::span(packed).first(used)));
  }
  return {};
}

}  // namespace

bool SameMap(const CoordMap& a, const CoordMap& b) {
  return a.coords == b.coords && a.inside == b.inside && (!a.inside || a.outside == b.outside);
}

bool SamePlacement(const Placement& a, const Placement& b) {
  return a.layout == b.layout && a.storage == b.storage && a.dtype == b.dtype && a.shape == b.shape &&
         a.elements_per_part == b.elements_per_part && a.texture_extent == b.texture_extent;
}

Status UploadConstants(std::span<const ConstantUpload> all, Device& device, ThreadPool& pool,
                       const std::function<bool(uint64_t, uint64_t)>& progress) {
  uint64_t total = 0, done = 0;
  for (const auto& upload : all) total += upload.resource->size_bytes;
  auto advance = [&](uint64_t bytes) -> Status {
    done += bytes;
    if (!progress || progress(done, total)) return {};
    return Error{Code::kCancelled, "The caller ended the load of the weights."};
  };
  RETURN_IF_ERROR(UploadQuantized(device, pool, QuantizedUploads(all), {.progress = advance}));
  std::vector<ConstantUpload> uploads;
  for (const ConstantUpload& upload : all) {
    if (upload.resource->format) continue;
    if (!CanUploadByRows(upload)) {
      uploads.push_back(upload);
      continue;
    }
    RETURN_IF_ERROR_CONTEXT(UploadByRows(upload, device), StrCat("while uploading weights ", upload.resource->name));
    RETURN_IF_ERROR(advance(upload.resource->size_bytes));
  }
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
    RETURN_IF_ERROR(advance(bytes));
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

std::vector<StackedPart> PartsOf(const PlanResource& resource) {
  std::vector<StackedPart> parts;
  if (!resource.format || resource.stacked.empty()) return parts;
  uint64_t offset = 0;
  auto add = [&](const std::shared_ptr<const HostTensor>& constant) {
    const size_t elements = size_t(constant->element_count());
    const uint64_t size = resource.piece == AssembledDispatch::Source::Piece::kFactors
                              ? FactorsBytes(*resource.format, elements)
                              : QuantsBytes(*resource.format, elements);
    if (offset % kOffsetAlignment == 0) parts.push_back({constant, offset, size});
    offset += size;
  };
  add(resource.constant);
  for (const auto& more : resource.stacked) add(more);
  return parts;
}

const WeightStore::Entry* WeightStore::Find(const PlanResource& resource) const {
  auto [it, end] = entries_.equal_range(resource.constant->bytes().data());
  for (; it != end; ++it) {
    const Entry& entry = it->second;
    if (entry.constant->dtype() == resource.constant->dtype() && entry.constant->shape() == resource.constant->shape() &&
        // What a piece of a quantized constant holds, its format says.
        (resource.format ? entry.size_bytes == resource.size_bytes : SamePlacement(entry.placement, resource.placement)) &&
        SameMap(entry.map, resource.map) && entry.piece == resource.piece && entry.format == resource.format &&
        entry.stacked == resource.stacked) {
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
    entries_.emplace(resource.constant->bytes().data(), Entry{resource.constant,
                                                              resource.map,
                                                              resource.placement,
                                                              resource.format,
                                                              resource.piece,
                                                              resource.stacked,
                                                              resource.size_bytes,
                                                              {upload.buffer, upload.offset_bytes}});
    for (StackedPart& part : PartsOf(resource)) {
      const std::byte* const address = part.constant->bytes().data();
      entries_.emplace(address, Entry{std::move(part.constant),
                                      {},
                                      {},
                                      resource.format,
                                      resource.piece,
                                      {},
                                      part.size_bytes,
                                      {upload.buffer, upload.offset_bytes + part.offset_bytes}});
    }
  }
  for (size_t r = 0; r < resources.size(); ++r) {
    if (resources[r].kind != PlanResource::Kind::kConstant || resources[r].texture >= 0) continue;
    locations[r] = Find(resources[r])->location;
  }
  return locations;
}

}  // namespace leeway
