// Runs small kernels with tensors from the host and brings the results back: for known-answer tests, measurements and tests.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "tensor/host_tensor.h"

namespace leeway {

struct RunTensor {
  std::string name;           // of the kernel's declaration
  HostTensor value;           // its shape, and what it holds before the run
  DType dtype = DType::kF32;  // in the storage
  Layout layout = Layout::kLinear;
  Storage storage = Storage::kBuffer;
  bool is_output = false;  // read back
};

struct KernelRun {
  std::string_view name, text;
  std::map<std::string, shader::ConstValue> consts;
  std::vector<RunTensor> tensors;
  uint32_t workgroups[3] = {1, 1, 1};
  std::vector<std::byte> params;  // one after the other, as declared; what is missing is zero
};

// A kernel with everything made for it on the device.
class PreparedKernel {
 public:
  // Compiling has started when this returns; Finish waits for it.
  static Result<PreparedKernel> Start(Device& device, const KernelRun& run, const shader::Target& target);
  Status Finish(Device& device);

  Dispatch MakeDispatch() const;
  // The outputs as f32, i32 or u32, whatever the kernel's storage is.
  Result<std::vector<HostTensor>> ReadOutputs(Device& device) const;
  std::span<const std::byte> params() const { return params_; }  // for SubmitOptions
  const shader::KernelText& text() const { return text_; }
  uint64_t bytes() const;  // of all tensors

 private:
  struct Placed {
    std::string name;
    Placement placement;
    bool is_output = false;
    DType host_dtype = DType::kF32;
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<Texture> texture;
  };
  shader::KernelText text_;
  std::vector<std::byte> params_;
  std::vector<Placed> tensors_;
  std::vector<Placed> scratches_;  // zero when made
  Device::Compiling compiling_;
  uint32_t workgroups_[3] = {1, 1, 1};
};

// One kernel, from text to outputs.
Result<std::vector<HostTensor>> RunKernel(Device& device, const KernelRun& run);

}  // namespace leeway
