// The corpus of tests/kernel_corpus.h on every device: the printed WGSL and OpenCL C are accepted by real compilers, and
// compute what the kernels say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/strings.h"
#include "device/device.h"
#include "device/kernel_runner.h"
#include "kernel_corpus.h"
#include "tensor/address.h"

namespace leeway {
namespace {

using shader::CorpusDevice;
using shader::CorpusKernel;
using shader::CorpusTensors;

std::vector<std::string> DeviceNames() {  // as in device_test.cc: LEEWAY_TEST_DEVICES have to be there, else what is found
  std::vector<std::string> names;
  if (const char* list = std::getenv("LEEWAY_TEST_DEVICES"); list && *list) {
    std::string rest = list;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      names.push_back(rest.substr(0, comma));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return names;
  }
  for (const BackendReport& report : ListDevices()) {
    for (const FoundDevice& device : report.devices) names.push_back(StrCat(report.api, ":", device.index));
  }
  return names;
}

void RunOn(Device& device, const CorpusKernel& kernel) {
  KernelRun run;
  run.name = kernel.name;
  run.text = kernel.text;
  run.consts = kernel.consts;
  run.params = kernel.params;
  std::copy_n(kernel.workgroups.begin(), 3, run.workgroups);
  for (const auto& [name, tensor] : kernel.tensors) {
    RunTensor placed;
    placed.name = name;
    placed.value = tensor.data;
    placed.dtype = tensor.stored.value_or(StorageDType(tensor.data.dtype()));
    placed.layout = tensor.layout;
    placed.storage = tensor.storage;
    placed.is_output = tensor.is_output;
    run.tensors.push_back(std::move(placed));
  }
  auto outputs = RunKernel(device, run);
  ASSERT_TRUE(outputs.ok()) << outputs.error().message;
  CorpusTensors after = kernel.tensors;
  size_t next = 0;
  for (auto& [name, tensor] : after) {
    if (tensor.is_output) tensor.data = (*outputs)[next++];
  }
  CorpusDevice ran;
  ran.subgroup_size = device.info().target.subgroup_max;
  ran.is_precise = false;
  kernel.expect(after, ran);
}

TEST(PrintedKernels, RunOnEveryDevice) {
  const std::vector<std::string> names = DeviceNames();
  if (names.empty()) GTEST_SKIP() << "This machine has no device.";
  for (const std::string& name : names) {
    auto device = OpenDevice(name, {});
    ASSERT_TRUE(device.ok()) << name << ": " << device.error().message;
    const shader::Target& target = (*device)->info().target;
    for (const CorpusKernel& kernel : shader::KernelCorpus()) {
      SCOPED_TRACE(StrCat(name, " (", (*device)->info().name, "): ", kernel.name));
      if (kernel.needs_f16 && !target.f16) continue;
      // The corpus computes what subgroups give from their size.
      if (kernel.needs_subgroups && (!target.subgroups || target.subgroup_min != target.subgroup_max)) continue;
      bool image_buffer = false;
      for (const auto& [tensor_name, tensor] : kernel.tensors) image_buffer |= tensor.storage == Storage::kImageBuffer;
      if (image_buffer && !target.image_buffer) continue;
      RunOn(**device, kernel);
    }
  }
}

}  // namespace
}  // namespace leeway
