// Runs a .tflite model on the best device there is and prints what ran where, how long it took, and the first values of each
// output. The inputs are a ramp from 0 to 1; a real program would put a picture there.
#include <leeway/leeway.h>

#include <chrono>
#include <cstdio>
#include <span>
#include <string>

namespace {

int Fail(const leeway::Error& error) {
  std::fprintf(stderr, "run_model: %s: %s\n", leeway::CodeName(error.code), error.message.c_str());
  return 1;
}

void FillWithRamp(const leeway::TensorInfo& info, std::span<std::byte> bytes) {
  if (info.dtype != leeway::DType::kF32) return;  // stays zero
  float* values = reinterpret_cast<float*>(bytes.data());
  const size_t count = bytes.size() / sizeof(float);
  for (size_t i = 0; i < count; ++i) values[i] = float(i) / float(count);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: run_model MODEL.tflite [DEVICE]\n");
    for (const auto& backend : leeway::ListDevices()) {
      std::printf("%s: %s\n", backend.api.c_str(), backend.message.c_str());
      for (const auto& device : backend.devices)
        std::printf("  %s:%d  %s\n", device.api.c_str(), device.index, device.name.c_str());
    }
    return 0;
  }
  leeway::CompileOptions options;
  if (argc > 2) options.device = argv[2];
  options.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  auto model = leeway::CompiledModel::FromFile(argv[1], options);
  if (!model.ok()) return Fail(model.error());

  const auto device = model->device();
  std::printf("%s on %s (%s): %d nodes on the GPU, %d on the CPU, loaded in %.1f ms\n", model->name().c_str(),
              device.name.c_str(), device.api.c_str(), model->placement().nodes_on_gpu, model->placement().nodes_on_cpu,
              model->load_report().total_ms);
  for (size_t i = 0; i < model->inputs().size(); ++i) FillWithRamp(model->inputs()[i], model->InputBytes(int(i)));

  // A run is an event: other work could be done until it says that it is over. The first one warms up.
  for (int run = 0; run < 2; ++run) {
    const auto start = std::chrono::steady_clock::now();
    auto event = model->RunAsync();
    if (!event.ok()) return Fail(event.error());
    if (auto status = model->Wait(*event); !status.ok()) return Fail(status.error());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    std::printf("run %d: %.2f ms\n", run, took.count());
  }
  for (size_t i = 0; i < model->outputs().size(); ++i) {
    const auto& info = model->outputs()[i];
    std::printf("%s %s[", info.name.c_str(), leeway::DTypeName(info.dtype));
    for (size_t axis = 0; axis < info.shape.size(); ++axis)
      std::printf("%s%lld", axis ? ", " : "", static_cast<long long>(info.shape[axis]));
    std::printf("]");
    if (info.dtype == leeway::DType::kF32) {
      const auto values = model->OutputAs<float>(int(i));
      for (size_t v = 0; v < values.size() && v < 6; ++v) std::printf(" %g", values[v]);
    }
    std::printf("\n");
  }
  return 0;
}
