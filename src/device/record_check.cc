#include "device/record_check.h"

#include "base/strings.h"

namespace leeway {
namespace {

using Kind = shader::BindingInfo::Kind;

bool Writes(const shader::BindingInfo& binding) {
  return binding.kind == Kind::kScratch || binding.kind == Kind::kStorageTexture ||
         (binding.kind == Kind::kBuffer && binding.access != shader::Access::kRead);
}

bool IsTexture(const shader::BindingInfo& binding) {
  return binding.kind == Kind::kStorageTexture ||
         (binding.kind == Kind::kSampledTexture && binding.type.texture_dim != "buffer");
}

uint64_t EndOf(const BindingResource& resource) {
  return resource.size_bytes ? resource.offset_bytes + resource.size_bytes : resource.buffer->size_bytes();
}

}  // namespace

Status CheckDispatch(const Dispatch& dispatch, std::span<const shader::BindingInfo> bindings, const DeviceInfo& info) {
  auto fail = [&](const std::string& what) {
    return Error{Code::kInvalidArgument, StrCat("Dispatch \"", dispatch.label, "\": ", what)};
  };
  if (dispatch.bindings.size() != bindings.size()) {
    return fail(
        StrCat("The kernel has (", bindings.size(), ") bindings, the dispatch gives (", dispatch.bindings.size(), ")."));
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (dispatch.workgroups[axis] > info.target.max_workgroups) {
      return fail(StrCat("It has (", dispatch.workgroups[axis], ") workgroups on axis ", axis, ", the device takes (",
                         info.target.max_workgroups, ")."));
    }
  }
  for (size_t i = 0; i < bindings.size(); ++i) {
    const BindingResource& resource = dispatch.bindings[i];
    if (bindings[i].kind == Kind::kParams) continue;
    if (IsTexture(bindings[i])) {
      if (!resource.texture) return fail(StrCat("Binding \"", bindings[i].name, "\" needs a texture."));
      continue;
    }
    if (!resource.buffer) return fail(StrCat("Binding \"", bindings[i].name, "\" needs a buffer."));
    if (resource.offset_bytes % info.buffer_offset_alignment) {
      return fail(StrCat("The offset (", resource.offset_bytes, ") of binding \"", bindings[i].name,
                         "\" is no multiple of the device's alignment (", info.buffer_offset_alignment, ")."));
    }
    const uint64_t end = EndOf(resource);
    if (end > resource.buffer->size_bytes() || end <= resource.offset_bytes) {
      return fail(StrCat("Binding \"", bindings[i].name, "\" takes bytes ", resource.offset_bytes, " to ", end,
                         " of a buffer of (", resource.buffer->size_bytes(), ") bytes."));
    }
    if (end - resource.offset_bytes > uint64_t(info.target.storage.max_binding_bytes)) {
      return fail(StrCat("Binding \"", bindings[i].name, "\" takes (", end - resource.offset_bytes,
                         ") bytes, more than the device's limit (", info.target.storage.max_binding_bytes, ")."));
    }
  }
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (!Writes(bindings[i])) continue;
    const BindingResource& written = dispatch.bindings[i];
    for (size_t j = 0; j < bindings.size(); ++j) {
      if (i == j || bindings[j].kind == Kind::kParams) continue;
      const BindingResource& other = dispatch.bindings[j];
      if (written.texture ? written.texture != other.texture : written.buffer != other.buffer) continue;
      if (!Writes(bindings[j]) || written.texture) {
        return fail(StrCat("\"", bindings[i].name, "\" is written and lies in the same buffer or texture as \"",
                           bindings[j].name, "\"."));
      }
      if (written.offset_bytes < EndOf(other) && other.offset_bytes < EndOf(written)) {
        return fail(StrCat("\"", bindings[i].name, "\" and \"", bindings[j].name, "\" are both written and overlap."));
      }
    }
  }
  return {};
}

Status CheckRange(const Buffer& buffer, uint64_t offset_bytes, uint64_t size_bytes, const char* what) {
  if (offset_bytes % 4 || size_bytes % 4) {
    return Error{Code::kInvalidArgument,
                 StrCat(what, " takes multiples of 4 bytes, not offset (", offset_bytes, ") and size (", size_bytes, ").")};
  }
  if (offset_bytes > buffer.size_bytes() || size_bytes > buffer.size_bytes() - offset_bytes) {
    return Error{Code::kInvalidArgument, StrCat(what, " goes to byte (", offset_bytes + size_bytes, ") of a buffer of (",
                                                buffer.size_bytes(), ") bytes.")};
  }
  return {};
}

}  // namespace leeway
