#include "device/kernel_runner.h"

#include <algorithm>

#include "base/strings.h"

namespace leeway {

Result<PreparedKernel> PreparedKernel::Start(Device& device, const KernelRun& run, const shader::Target& target) {
  PreparedKernel out;
  std::copy_n(run.workgroups, 3, out.workgroups_);
  ASSIGN_OR_RETURN(shader::Module module, shader::Parse(run.text, run.name));
  shader::Specialization specialization;
  specialization.consts = run.consts;
  for (const RunTensor& tensor : run.tensors) {
    ASSIGN_OR_RETURN(Placement placement,
                     PlaceTensor(tensor.value.shape(), tensor.dtype, tensor.layout, tensor.storage, target.storage));
    VirtualTensor& seen = specialization.tensors[tensor.name];
    seen.shape = tensor.value.shape();
    seen.placement = placement;
    Placed placed;
    placed.name = tensor.name;
    placed.placement = placement;
    placed.is_output = tensor.is_output;
    placed.host_dtype = tensor.value.dtype();
    const std::vector<std::byte> bytes = PackForStorage(tensor.value, placement);
    if (tensor.storage == Storage::kBuffer || tensor.storage == Storage::kImageBuffer) {
      ASSIGN_OR_RETURN(placed.buffer, device.CreateBuffer(uint64_t(placement.storage_bytes()), tensor.name));
      RETURN_IF_ERROR(device.Write(*placed.buffer, 0, bytes));
    } else {
      ASSIGN_OR_RETURN(placed.texture,
                       device.CreateTexture({tensor.storage, placement.dtype, placement.texture_extent}, tensor.name));
      RETURN_IF_ERROR(device.WriteTexture(*placed.texture, bytes));
    }
    out.tensors_.push_back(std::move(placed));
  }
  ASSIGN_OR_RETURN(out.text_, shader::Compile(module, specialization, target));
  for (const shader::BindingInfo& binding : out.text_.bindings) {
    if (binding.kind != shader::BindingInfo::Kind::kScratch) continue;
    Placed scratch;
    scratch.name = binding.name;
    ASSIGN_OR_RETURN(scratch.buffer, device.CreateBuffer(binding.scratch_bytes, binding.name));
    RETURN_IF_ERROR(device.Write(*scratch.buffer, 0, std::vector<std::byte>(binding.scratch_bytes)));
    out.scratches_.push_back(std::move(scratch));
  }
  out.params_ = run.params;
  out.params_.resize(std::max<size_t>(out.params_.size(), out.text_.params_bytes));
  ASSIGN_OR_RETURN(out.compiling_, device.StartCompile(out.text_));
  return out;
}

Status PreparedKernel::Finish(Device& device) { return device.Wait(compiling_.ready); }

uint64_t PreparedKernel::bytes() const {
  uint64_t total = 0;
  for (const Placed& tensor : tensors_) total += uint64_t(tensor.placement.storage_bytes());
  return total;
}

Dispatch PreparedKernel::MakeDispatch() const {
  Dispatch dispatch;
  dispatch.pipeline = compiling_.pipeline.get();
  dispatch.label = text_.name;
  std::copy_n(workgroups_, 3, dispatch.workgroups);
  for (const shader::BindingInfo& binding : text_.bindings) {
    BindingResource resource;
    const auto tensor =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const Placed& t) { return t.name == binding.tensor; });
    if (tensor != tensors_.end()) {
      resource.buffer = tensor->buffer.get();
      resource.texture = tensor->texture.get();
      resource.texel_dtype = tensor->placement.dtype;
      if (const int64_t part_elements = tensor->placement.elements_per_part) {
        const uint64_t part_bytes = DTypeBytes(tensor->placement.dtype, size_t(part_elements));
        resource.offset_bytes = part_bytes * uint64_t(binding.part);
        resource.size_bytes = std::min(part_bytes, uint64_t(tensor->placement.storage_bytes()) - resource.offset_bytes);
      }
    }
    for (const Placed& scratch : scratches_) {
      if (binding.kind == shader::BindingInfo::Kind::kScratch && scratch.name == binding.name) {
        resource.buffer = scratch.buffer.get();
      }
    }
    dispatch.bindings.push_back(resource);
  }
  return dispatch;
}

Result<std::vector<HostTensor>> PreparedKernel::ReadOutputs(Device& device) const {
  std::vector<HostTensor> outputs;
  for (const Placed& tensor : tensors_) {
    if (!tensor.is_output) continue;
    Status failed;
    auto take = [&](Result<std::vector<std::span<const std::byte>>> parts) {
      if (!parts.ok()) {
        failed = parts.error();
      } else {
        outputs.push_back(UnpackFromStorage((*parts)[0], tensor.placement, tensor.host_dtype));
      }
    };
    Result<EventPtr> event = tensor.texture
                                 ? device.ReadTexture(*tensor.texture, take)
                                 : device.Read({{tensor.buffer.get(), 0, uint64_t(tensor.placement.storage_bytes())}}, take);
    if (!event.ok()) return event.error();
    RETURN_IF_ERROR(device.Wait(*event));
    RETURN_IF_ERROR(failed);
  }
  return outputs;
}

Result<std::vector<HostTensor>> RunKernel(Device& device, const KernelRun& run) {
  ASSIGN_OR_RETURN(PreparedKernel kernel, PreparedKernel::Start(device, run, device.info().target));
  RETURN_IF_ERROR(kernel.Finish(device));
  std::vector<Dispatch> dispatches;
  dispatches.push_back(kernel.MakeDispatch());
  ASSIGN_OR_RETURN(std::unique_ptr<Recording> recording, device.Record(std::move(dispatches)));
  SubmitOptions options;
  options.params = kernel.params();
  ASSIGN_OR_RETURN(EventPtr event, device.Submit(*recording, options));
  RETURN_IF_ERROR(device.Wait(event));
  return kernel.ReadOutputs(device);
}

}  // namespace leeway
