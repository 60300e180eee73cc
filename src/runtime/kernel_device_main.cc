// kernel_device_test: runs the rows of all operator tables on the devices of this machine and compares with the references.
//
// LEEWAY_TEST_DEVICES lists devices that must be there, as OpenDevice takes them ("webgpu:llvmpipe,opencl"); a listed device
// that is absent is a failure. Unset: every device that is found. LEEWAY_TEST_ALL_WAYS=1 runs every layout and storage of
// each row, not a choice of them. The tests are "Kernels.<op>/<row>", as in ops_test.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/strings.h"
#include "device/device.h"
#include "ops/op_test_plan.h"

namespace leeway::op_test {

namespace {

struct TestDevice {
  std::string name;
  std::unique_ptr<Device> device;
};

std::vector<TestDevice>& Devices() {
  static std::vector<TestDevice> devices;
  return devices;
}

// The GPU objects behind one tensor.
struct DeviceTensor {
  std::vector<std::unique_ptr<Buffer>> parts;
  std::unique_ptr<Texture> texture;
  uint64_t part_bytes = 0;
};

Result<DeviceTensor> Upload(Device& device, const TestPiece& tensor, const std::string& label) {
  DeviceTensor made;
  const Placement placement = tensor.placement();
  const std::vector<std::byte>& bytes = tensor.bytes();
  if (IsTexture(placement.storage)) {
    ASSIGN_OR_RETURN(made.texture, device.CreateTexture({placement.storage, placement.dtype, placement.texture_extent}, label));
    const size_t texel_bytes = size_t(placement.storage_elements()) * DTypeBits(placement.dtype) / 8;  // no padding at the end
    RETURN_IF_ERROR(device.WriteTexture(*made.texture, std::span(bytes).first(texel_bytes)));
    return made;
  }
  made.part_bytes =
      placement.elements_per_part > 0 ? uint64_t(placement.elements_per_part) * DTypeBits(placement.dtype) / 8 : bytes.size();
  for (int part = 0; part < placement.part_count(); ++part) {
    const uint64_t begin = made.part_bytes * uint64_t(part);
    const uint64_t size = std::min<uint64_t>(made.part_bytes, bytes.size() - begin);
    ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device.CreateBuffer(size, label));
    RETURN_IF_ERROR(device.Write(*buffer, 0, std::span(bytes).subspan(begin, size)));
    made.parts.push_back(std::move(buffer));
  }
  return made;
}

Status Download(Device& device, DeviceTensor& made, TestTensor& tensor) {
  Status copied;
  auto done = [&](Result<std::vector<std::span<const std::byte>>> ranges) {
    if (!ranges.ok()) {
      copied = ranges.error();
      return;
    }
    size_t at = 0;
    for (std::span<const std::byte> range : *ranges) {
      const size_t size = std::min(range.size(), tensor.bytes.size() - at);
      std::copy_n(range.begin(), size, tensor.bytes.begin() + long(at));
      at += size;
    }
  };
  EventPtr event;
  if (made.texture) {
    ASSIGN_OR_RETURN(event, device.ReadTexture(*made.texture, done));
  } else {
    std::vector<ReadRequest> requests;
    for (size_t part = 0; part < made.parts.size(); ++part) {
      const uint64_t size = std::min<uint64_t>(made.part_bytes, tensor.bytes.size() - made.part_bytes * part);
      requests.push_back({made.parts[part].get(), 0, size});
    }
    ASSIGN_OR_RETURN(event, device.Read(std::move(requests), done));
  }
  RETURN_IF_ERROR(device.Wait(event));
  return copied;
}

Status RunPlan(Device& device, TestPlan& test, const shader::Target& target) {
  std::map<TestPiece, DeviceTensor> tensors;
  std::vector<std::unique_ptr<Buffer>> scratches;
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  std::vector<Dispatch> dispatches;
  for (size_t i = 0; i < test.dispatches.size(); ++i) {
    const KernelDispatch& from = test.plan.dispatches[i];
    if (from.workgroups[0] == 0 || from.workgroups[1] == 0 || from.workgroups[2] == 0) continue;
    ASSIGN_OR_RETURN(shader::Module module, shader::Parse(from.kernel_text, from.kernel_name));
    ASSIGN_OR_RETURN(shader::KernelText text, shader::Compile(module, test.dispatches[i].specialization, target));
    ASSIGN_OR_RETURN_CONTEXT(Device::Compiling compiling, device.StartCompile(text), StrCat("while compiling ", text.text));
    RETURN_IF_ERROR_CONTEXT(device.Wait(compiling.ready), StrCat("while compiling ", text.text));
    Dispatch dispatch;
    dispatch.pipeline = compiling.pipeline.get();
    dispatch.label = from.kernel_name;
    std::copy(from.workgroups, from.workgroups + 3, dispatch.workgroups);
    for (const shader::BindingInfo& binding : text.bindings) {
      BindingResource resource;
      if (binding.kind == shader::BindingInfo::Kind::kScratch) {
        ASSIGN_OR_RETURN(std::unique_ptr<Buffer> scratch, device.CreateBuffer(binding.scratch_bytes, binding.name));
        RETURN_IF_ERROR(device.Write(*scratch, 0, std::vector<std::byte>((binding.scratch_bytes + 3) / 4 * 4)));
        resource.buffer = scratch.get();
        scratches.push_back(std::move(scratch));
      } else if (binding.kind != shader::BindingInfo::Kind::kParams) {
        auto source = test.dispatches[i].sources.find(binding.tensor);
        if (source == test.dispatches[i].sources.end()) {
          return Error{Code::kInternal,
                       StrCat("Binding ", binding.name, " is for tensor ", binding.tensor, ", which is not known.")};
        }
        const TestPiece tensor = test.Find(source->second);
        auto [made, is_new] = tensors.try_emplace(tensor);
        if (is_new) { ASSIGN_OR_RETURN(made->second, Upload(device, tensor, binding.tensor)); }
        if (made->second.texture) {
          resource.texture = made->second.texture.get();
        } else {
          resource.buffer = made->second.parts[size_t(binding.part)].get();
          resource.texel_dtype = tensor.placement().dtype;
        }
      }
      dispatch.bindings.push_back(resource);
    }
    pipelines.push_back(std::move(compiling.pipeline));
    dispatches.push_back(std::move(dispatch));
  }
  if (dispatches.empty()) return {};
  ASSIGN_OR_RETURN(std::unique_ptr<Recording> recording, device.Record(std::move(dispatches)));
  ASSIGN_OR_RETURN(EventPtr submitted, device.Submit(*recording, {}));
  RETURN_IF_ERROR(device.Wait(submitted));
  for (TestTensor& output : test.outputs) {
    auto made = tensors.find({&output, false});
    if (made != tensors.end()) RETURN_IF_ERROR(Download(device, made->second, output));
  }
  return {};
}

// What GPUs are allowed on top of the interpreter's exact f32: their functions are less precise, and they may contract.
void Loosen(TestPlan& test, std::string_view op_name) {
  // WGSL promises sin and cos to 2^-11 only, and SwiftShader takes the leave.
  const double promised = op_name == "sin" || op_name == "cos" ? 1.0 / 2048 : 0;
  for (size_t i = 0; i < test.tolerances.size(); ++i) {
    if (!IsFloat(test.expected[i].dtype())) continue;
    double largest = 0;
    for (int64_t k = 0; k < test.expected[i].element_count(); ++k) {
      const double magnitude = std::abs(test.expected[i].Get(k));
      if (magnitude < 1e30) largest = std::max(largest, magnitude);
    }
    test.tolerances[i].absolute = 4 * test.tolerances[i].absolute + 1e-5 * largest + promised;
    test.tolerances[i].relative = 4 * test.tolerances[i].relative + 1e-5;
  }
}

void RunConfig(TestDevice& device, const PreparedRow& row, const KernelVariant& variant, const TestConfig& config,
               const shader::Target& target) {
  // A device has fewer bindings than parts may need, and without f16 a half can't be stored by itself.
  const bool may_be_unsupported = config.may_be_unsupported() || config.in_parts || (config.f16 && !target.f16);
  auto test = PlanRow(row, variant, config, target);
  if (!test.ok()) {
    if (may_be_unsupported && test.error().code == Code::kUnsupported) return;
    ADD_FAILURE() << "variant " << variant.name << ", " << config.name << ": " << test.error().message;
    return;
  }
  SCOPED_TRACE((*test)->label);
  Loosen(**test, row.op->name);
  const Status status = RunPlan(*device.device, **test, target);
  if (!status.ok()) {
    if (may_be_unsupported && status.error().code == Code::kUnsupported) return;
    ADD_FAILURE() << status.error().message;
    return;
  }
  EXPECT_EQ((*test)->CheckOutputs(), "");
}

void RunRow(const std::string& op_name, const OpTestRow& op_row) {
  const auto row = Prepare(op_name, op_row, false), half_row = Prepare(op_name, op_row, true);
  if (!row || !half_row || op_row.cpu_only) return;
  const bool all_ways = std::getenv("LEEWAY_TEST_ALL_WAYS") != nullptr;
  const std::vector<TestConfig> configs = ConfigsFor(*row);
  for (TestDevice& device : Devices()) {
    SCOPED_TRACE(StrCat("on ", device.name, ", LEEWAY_TEST_SEED=", row->seed));
    const shader::Target& target = device.device->info().target;
    const std::vector<const KernelVariant*> variants = VariantsFor(*row, target, false);
    // What a GPU would take runs on a software device as well, if slowly.
    shader::Target of_a_gpu = target;
    of_a_gpu.is_software = false;
    for (const KernelVariant* variant : VariantsFor(*row, of_a_gpu, false)) {
      if (std::find(variants.begin(), variants.end(), variant) == variants.end()) {
        RunConfig(device, *row, *variant, configs[0], of_a_gpu);
      }
    }
    // And what is made for CPUs on a GPU. Not through Vulkan on a CPU, whose compilers take half a minute for such loops.
    shader::Target of_a_cpu = target;
    of_a_cpu.is_software = true;
    of_a_cpu.language = shader::Language::kOpenClC;
    if (!target.is_software) {
      for (const KernelVariant* variant : VariantsFor(*row, of_a_cpu, false)) {
        if (std::find(variants.begin(), variants.end(), variant) == variants.end()) {
          RunConfig(device, *row, *variant, configs[0], target);
        }
      }
    }
    for (const KernelVariant* variant : variants) {
      for (size_t c = 0; c < configs.size(); ++c) {
        // The first always; of the others two by the row's name, so that all are met over the tables.
        const bool chosen = c == 0 || (row->seed + c) % (configs.size() / 2 + 1) == 0;
        if (!all_ways && !chosen) continue;
        RunConfig(device, configs[c].f16 ? *half_row : *row, *variant, configs[c], target);
        if (testing::Test::HasFatalFailure() || !device.device->status().ok()) return;
      }
    }
  }
}

// False where a device that the run asks for is not there.
bool OpenDevices() {
  std::vector<std::string> wanted;
  if (const char* list = std::getenv("LEEWAY_TEST_DEVICES")) {
    std::string name;
    for (const char* c = list;; ++c) {
      if (*c != ',' && *c != '\0') {
        name += *c;
        continue;
      }
      if (!name.empty()) wanted.push_back(name);
      name.clear();
      if (*c == '\0') break;
    }
  } else {
    for (const BackendReport& backend : ListDevices()) {
      for (const FoundDevice& found : backend.devices) wanted.push_back(StrCat(found.api, ":", found.index));
    }
  }
  bool all = true;
  for (const std::string& name : wanted) {
    auto device = OpenDevice(name, {});
    if (!device.ok()) {
      std::fprintf(stderr, "Device %s is asked for and can't be opened: %s\n", name.c_str(), device.error().message.c_str());
      all = false;
      continue;
    }
    const DeviceInfo& info = (*device)->info();
    std::printf("Device %s: %s, %s\n", name.c_str(), info.api.c_str(), info.name.c_str());
    const std::string label = StrCat(info.api, ":", info.name);
    Devices().push_back({label, std::move(*device)});
  }
  if (wanted.empty()) std::printf("No device is found: there is nothing to test.\n");
  return all;
}

}  // namespace

}  // namespace leeway::op_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = "Kernels.*";  // not the tests of references
  leeway::op_test::SetRowRunner(leeway::op_test::RunRow);
  if (!testing::GTEST_FLAG(list_tests) && !leeway::op_test::OpenDevices()) return 1;
  const int result = RUN_ALL_TESTS();
  leeway::op_test::Devices().clear();
  return result;
}
