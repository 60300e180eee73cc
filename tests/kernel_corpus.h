// Kernels that use every builtin function and every statement of the kernel language, and every storage, with what they have to
// compute: for the tests of the printers (which run them as MSL on the CPU) and of the devices.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shader/compile.h"
#include "tensor/host_tensor.h"

namespace leeway::shader {

struct CorpusTensor {
  HostTensor data;  // before the run; after it for outputs
  Layout layout = Layout::kLinear;
  Storage storage = Storage::kBuffer;
  std::optional<DType> stored = std::nullopt;  // else that of `data`
  bool is_output = false;
};
using CorpusTensors = std::map<std::string, CorpusTensor>;

// What ran the kernel.
struct CorpusDevice {
  uint32_t subgroup_size = 32;
  bool is_precise = true;  // functions of floats as good as the C library's
};

struct CorpusKernel {
  std::string name, text;
  CorpusTensors tensors;
  std::map<std::string, ConstValue> consts;
  std::vector<std::byte> params;
  std::array<uint32_t, 3> workgroups{1, 1, 1};
  bool needs_f16 = false, needs_subgroups = false;
  // Looks at the tensors after a run, with the EXPECT_ macros of GoogleTest.
  std::function<void(const CorpusTensors& after, const CorpusDevice& device)> expect;
};

std::vector<CorpusKernel> KernelCorpus();

}  // namespace leeway::shader
