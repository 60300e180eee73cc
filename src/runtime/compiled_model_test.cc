#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "device/device.h"
#include "import/tflite/test_models.h"
#include "leeway/leeway.h"
#include "runtime/test_devices.h"

namespace leeway {
namespace {

// x[1, 4, 4, 2] -> convolution 1x1, stride 2, RELU6 -> reshape -> softmax -> y[1, 12].
std::vector<std::byte> SmallModel() { return tflite::WriteTestModel(tflite::SmallNetwork()); }

std::vector<float> SmallInput(int seed) {
  std::vector<float> x(32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 7 + size_t(seed) * 3) % 11) / 8 - 0.4f;
  return x;
}

std::vector<float> SmallExpected(const std::vector<float>& x) {
  const double filter[3][2] = {{1, 2}, {3, 4}, {5, 6}}, bias[3] = {0.5, -1, 2};
  std::vector<double> flat;
  for (int row = 0; row < 4; row += 2) {
    for (int column = 0; column < 4; column += 2) {
      const size_t at = size_t(row * 4 + column) * 2;
      for (int o = 0; o < 3; ++o) {
        flat.push_back(std::clamp(bias[o] + filter[o][0] * x[at] + filter[o][1] * x[at + 1], 0.0, 6.0));
      }
    }
  }
  double sum = 0;
  for (double v : flat) sum += std::exp(v);
  std::vector<float> y;
  for (double v : flat) y.push_back(float(std::exp(v) / sum));
  return y;
}

template <class T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

CompileOptions On(const std::string& device) {
  CompileOptions options;
  options.device = device;
  options.cache_folder = "";
  return options;
}

void ExpectRight(CompiledModel& model, int seed, double tolerance = 1e-5) {
  const auto x = SmallInput(seed);
  ASSERT_TRUE(model.SetInput(0, Bytes(x)).ok());
  const Status status = model.Run();
  ASSERT_TRUE(status.ok()) << status.error().message;
  const auto want = SmallExpected(x);
  const auto got = model.OutputAs<float>(0);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i << ", seed " << seed;
}

// Opened once: what is asked for has to be there.
#define FOR_EACH_DEVICE(name)                                     \
  const auto device_names = TestDevices();                        \
  if (device_names.empty()) GTEST_SKIP() << "there is no device"; \
  for (const std::string& name : device_names)                    \
    if (testing::ScopedTrace trace(__FILE__, __LINE__, name); true)

TEST(CompiledModel, RunsOnTheCpuAlone) {
  auto model = CompiledModel::FromMemory(SmallModel(), On("cpu"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->device().api, "cpu");
  EXPECT_EQ(model->placement().nodes_on_gpu, 0);
  for (int seed = 0; seed < 3; ++seed) ExpectRight(*model, seed);
}

TEST(CompiledModel, SaysWhatItTakesAndGives) {
  auto model = CompiledModel::FromMemory(SmallModel(), On("cpu"));
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(model->inputs().size(), 1u);
  EXPECT_EQ(model->inputs()[0].name, "x");
  EXPECT_EQ(model->inputs()[0].dtype, DType::kF32);
  EXPECT_EQ(model->inputs()[0].shape, (std::vector<int64_t>{1, 4, 4, 2}));
  EXPECT_EQ(model->inputs()[0].size_bytes, 128u);
  EXPECT_EQ(model->outputs()[0].name, "y");
  EXPECT_EQ(*model->InputIndex("x"), 0);
  EXPECT_EQ(*model->OutputIndex("y"), 0);
  auto missing = model->InputIndex("z");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_NE(missing.error().message.find("\"x\""), std::string::npos);

  const std::vector<float> short_input(31);
  const Status status = model->SetInput("x", Bytes(short_input));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_NE(status.error().message.find("128"), std::string::npos);
  EXPECT_FALSE(model->SetInput(1, {}).ok());
  EXPECT_FALSE(model->SetInput(-1, {}).ok());
  std::vector<std::byte> small(4);
  EXPECT_FALSE(model->GetOutput(0, small).ok());
  EXPECT_TRUE(model->OutputBytes(7).empty());
}

TEST(CompiledModel, InputsMayBeWrittenInPlaceAndStay) {
  auto model = CompiledModel::FromMemory(SmallModel(), On("cpu"));
  ASSERT_TRUE(model.ok());
  const auto x = SmallInput(5);
  std::memcpy(model->InputBytes(0).data(), x.data(), 128);
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(model->Run().ok());
    EXPECT_NEAR(model->OutputAs<float>(0)[3], SmallExpected(x)[3], 1e-6);
  }
}

TEST(CompiledModel, RefusesWhatItCannotDo) {
  auto options = On("cpu");
  options.require_gpu = true;
  auto on_cpu = CompiledModel::FromMemory(SmallModel(), options);
  ASSERT_FALSE(on_cpu.ok());
  EXPECT_EQ(on_cpu.error().code, Code::kUnsupported);
  EXPECT_NE(on_cpu.error().message.find("softmax"), std::string::npos) << on_cpu.error().message;

  auto bytes = SmallModel();
  bytes.resize(bytes.size() / 2);
  auto damaged = CompiledModel::FromMemory(bytes, On("cpu"));
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, Code::kInvalidModel);

  auto missing = CompiledModel::FromFile("/no/such/model.tflite", On("cpu"));
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("/no/such/model.tflite"), std::string::npos);

  options = On("cpu");
  options.storage = "punched cards";
  auto storage = CompiledModel::FromMemory(SmallModel(), options);
  ASSERT_FALSE(storage.ok());
  EXPECT_NE(storage.error().message.find("texture-2d-array"), std::string::npos);

  auto device = CompiledModel::FromMemory(SmallModel(), On("no such device"));
  ASSERT_FALSE(device.ok());
}

TEST(CompiledModel, LoadingCanBeEndedByTheCaller) {
  auto options = On("cpu");
  options.progress = [](const LoadProgress&) { return false; };
  auto model = CompiledModel::FromMemory(SmallModel(), options);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, Code::kCancelled);
}

TEST(CompiledModel, RunsOnEveryDevice) {
  FOR_EACH_DEVICE(device) {
    auto options = On(device);
    options.require_gpu = true;
    auto model = CompiledModel::FromMemory(SmallModel(), options);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->placement().nodes_on_cpu, 0);
    EXPECT_GT(model->dispatches().size(), 0u);
    EXPECT_GT(model->memory().weights_bytes, 0u);
    for (int seed = 0; seed < 4; ++seed) ExpectRight(*model, seed);

    options.precision = Precision::kF16;
    auto half = CompiledModel::FromMemory(SmallModel(), options);
    ASSERT_TRUE(half.ok()) << half.error().message;
    ExpectRight(*half, 1, 2e-3);
  }
}

TEST(CompiledModel, IsRightWithEveryStorageAndWithoutPassesAndReuse) {
  FOR_EACH_DEVICE(device) {
    for (const char* storage :
         {"linear", "padded4", "sliced4", "image-buffer", "texture-2d", "texture-2d-array", "texture-3d"}) {
      SCOPED_TRACE(storage);
      auto options = On(device);
      options.storage = storage;
      auto model = CompiledModel::FromMemory(SmallModel(), options);
      ASSERT_TRUE(model.ok()) << model.error().message;
      ExpectRight(*model, 2);
      options.disabled_passes = {"all"};
      auto plain = CompiledModel::FromMemory(SmallModel(), options);
      ASSERT_TRUE(plain.ok()) << plain.error().message;
      ExpectRight(*plain, 2);
    }
    auto options = On(device);
    options.reuse_memory = false;
    auto model = CompiledModel::FromMemory(SmallModel(), options);
    ASSERT_TRUE(model.ok()) << model.error().message;
    ExpectRight(*model, 3);
  }
}

TEST(CompiledModel, AnyNodeMayBeOnTheCpu) {
  FOR_EACH_DEVICE(device) {
    auto options = On(device);
    options.disabled_passes = {"all"};
    auto whole = CompiledModel::FromMemory(SmallModel(), options);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    const int count = int(whole->placement().nodes.size());
    for (int mask = 1; mask < 1 << count; ++mask) {
      SCOPED_TRACE(mask);
      options.excluded_nodes.clear();
      for (int n = 0; n < count; ++n) {
        if (mask >> n & 1) options.excluded_nodes.push_back(std::to_string(n));
      }
      auto model = CompiledModel::FromMemory(SmallModel(), options);
      ASSERT_TRUE(model.ok()) << model.error().message;
      EXPECT_EQ(model->placement().nodes_on_cpu, int(options.excluded_nodes.size()));
      EXPECT_NE(model->placement().nodes[size_t(std::countr_zero(unsigned(mask)))].reason.find("excluded"), std::string::npos);
      for (int seed = 0; seed < 2; ++seed) ExpectRight(*model, seed);
    }
  }
}

TEST(CompiledModel, ARunIsAnEventWithAContinuation) {
  FOR_EACH_DEVICE(device) {
    auto model = CompiledModel::FromMemory(SmallModel(), On(device));
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto x = SmallInput(1);
    ASSERT_TRUE(model->SetInput(0, Bytes(x)).ok());
    auto event = model->RunAsync();
    ASSERT_TRUE(event.ok()) << event.error().message;
    int continued = 0;
    (*event)->OnDone([&] { ++continued; });
    if (!(*event)->done()) {
      auto second = model->RunAsync();
      ASSERT_FALSE(second.ok());
      EXPECT_EQ(second.error().code, Code::kInvalidArgument);
    }
    for (int i = 0; i < 100000 && !(*event)->done(); ++i) {
      model->Poll();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ASSERT_TRUE((*event)->done());
    EXPECT_EQ(continued, 1);
    EXPECT_TRUE((*event)->status().ok());
    EXPECT_NEAR(model->OutputAs<float>(0)[0], SmallExpected(x)[0], 1e-5);
    (*event)->OnDone([&] { ++continued; });
    EXPECT_EQ(continued, 2);
    EXPECT_TRUE(model->Wait(*event).ok());
  }
}

TEST(CompiledModel, GoingAwayWhileARunIsGoingIsFine) {
  FOR_EACH_DEVICE(device) {
    EventPtr event;
    {
      auto model = CompiledModel::FromMemory(SmallModel(), On(device));
      ASSERT_TRUE(model.ok()) << model.error().message;
      auto started = model->RunAsync();
      ASSERT_TRUE(started.ok());
      event = *started;
    }
    EXPECT_TRUE(event->done());
  }
}

TEST(CompiledModel, CancelledFromAnotherThreadItStaysUsable) {
  // On the CPU a run looks for it before each node.
  auto model = CompiledModel::FromMemory(SmallModel(), On("cpu"));
  ASSERT_TRUE(model.ok());
  std::atomic<bool> stop = false;
  std::thread canceller([&] {
    while (!stop) model->Cancel();
  });
  bool was_cancelled = false;
  for (int run = 0; run < 100000 && !was_cancelled; ++run) {
    const Status status = model->Run();
    if (!status.ok()) {
      EXPECT_EQ(status.error().code, Code::kCancelled);
      was_cancelled = true;
    }
  }
  stop = true;
  canceller.join();
  EXPECT_TRUE(was_cancelled);
  ExpectRight(*model, 1);
}

TEST(CompiledModel, ALostDeviceIsAnErrorAndRebuildHelps) {
  FOR_EACH_DEVICE(name) {
    auto device = OpenDevice(name, {});
    ASSERT_TRUE(device.ok()) << device.error().message;
    auto options = On("");
    options.shared_device = WithFaults(std::move(*device), {.lose_at_submit = 2});
    auto model = CompiledModel::FromMemory(SmallModel(), options);
    ASSERT_TRUE(model.ok()) << model.error().message;
    ExpectRight(*model, 0);
    ExpectRight(*model, 1);
    for (int run = 0; run < 2; ++run) {
      const Status status = model->Run();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, Code::kDeviceLost) << status.error().message;
    }
    const Status rebuilt = model->Rebuild(name);
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.error().message;
    // The input that was set before is still there.
    ASSERT_TRUE(model->Run().ok());
    EXPECT_NEAR(model->OutputAs<float>(0)[0], SmallExpected(SmallInput(1))[0], 1e-5);
    for (int seed = 2; seed < 4; ++seed) ExpectRight(*model, seed);
    ASSERT_TRUE(model->Rebuild("cpu").ok());
    ExpectRight(*model, 4);
  }
}

TEST(CompiledModel, EveryAllocationMayFail) {
  FOR_EACH_DEVICE(name) {
    int failing = 0;
    for (;; ++failing) {
      ASSERT_LT(failing, 100);
      auto device = OpenDevice(name, {});
      ASSERT_TRUE(device.ok()) << device.error().message;
      auto options = On("");
      options.shared_device = WithFaults(std::move(*device), {.fail_allocation = failing});
      const uint64_t before = options.shared_device->allocated_bytes();
      auto model = CompiledModel::FromMemory(SmallModel(), options);
      if (model.ok()) {
        ExpectRight(*model, 0);
        break;
      }
      EXPECT_EQ(model.error().code, Code::kOutOfMemory) << model.error().message;
      EXPECT_EQ(options.shared_device->allocated_bytes(), before) << "allocation " << failing;
    }
    EXPECT_GT(failing, 1);
  }
}

TEST(CompiledModel, ACompileErrorIsAnError) {
  FOR_EACH_DEVICE(name) {
    auto device = OpenDevice(name, {});
    ASSERT_TRUE(device.ok()) << device.error().message;
    auto options = On("");
    options.shared_device = WithFaults(std::move(*device), {.fail_compile = 0});
    auto model = CompiledModel::FromMemory(SmallModel(), options);
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.error().message.find("while compiling kernel"), std::string::npos) << model.error().message;
    EXPECT_EQ(options.shared_device->allocated_bytes(), 0u);
  }
}

TEST(CompiledModel, ReportsWhatItDoes) {
  FOR_EACH_DEVICE(device) {
    auto model = CompiledModel::FromMemory(SmallModel(), On(device));
    ASSERT_TRUE(model.ok()) << model.error().message;
    ExpectRight(*model, 0);
    const MemoryReport memory = model->memory();
    EXPECT_EQ(memory.total_bytes,
              memory.weights_bytes + memory.activations_bytes + memory.io_bytes + memory.states_bytes + memory.other_bytes);
    EXPECT_GE(memory.device_bytes, memory.total_bytes - memory.other_bytes);
    EXPECT_GE(memory.activations_bytes, memory.activations_lower_bound_bytes);
    EXPECT_LE(memory.activations_bytes, memory.activations_without_reuse_bytes);

    auto profile = model->ProfileRun();
    ASSERT_TRUE(profile.ok()) << profile.error().message;
    EXPECT_GT(profile->total_ms, 0);
    EXPECT_EQ(profile->dispatches.size(), profile->has_timestamps ? model->dispatches().size() : 0u);

    for (size_t d = 0; d < model->dispatches().size(); ++d) {
      EXPECT_GT(model->dispatches()[d].write_bytes, 0u);
      auto own = model->ProgramText(int(d));
      ASSERT_TRUE(own.ok());
      EXPECT_FALSE(own->empty());
      for (const char* language : {"kernel", "wgsl", "opencl", "glsl", "msl"}) {
        auto text = model->ProgramText(int(d), language);
        ASSERT_TRUE(text.ok()) << language << ": " << text.error().message;
        EXPECT_FALSE(text->empty());
      }
    }
    EXPECT_FALSE(model->ProgramText(int(model->dispatches().size())).ok());
    EXPECT_FALSE(model->ProgramText(0, "cobol").ok());
    EXPECT_NE(model->GraphTextBefore().find("softmax"), std::string::npos);
    EXPECT_NE(model->GraphTextAfter().find("softmax"), std::string::npos);
    EXPECT_NE(model->PlanText().find("softmax"), std::string::npos);
    EXPECT_EQ(model->MemoryPlanSvg().substr(0, 4), "<svg");
  }
}

TEST(CompiledModel, CheckComparesEveryNode) {
  FOR_EACH_DEVICE(device) {
    auto model = CompiledModel::FromMemory(SmallModel(), On(device));
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto x = SmallInput(0);
    ASSERT_TRUE(model->SetInput(0, Bytes(x)).ok());
    auto report = model->Check();
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(int(report->nodes.size()), model->placement().nodes_on_gpu);
    EXPECT_EQ(report->first_difference, -1);
    EXPECT_EQ(report->first_beyond_f16, -1);
    // No device has an exponential without any error.
    CheckOptions strict;
    strict.tolerance = 1e-12;
    strict.stop_at_first = true;
    report = model->Check(strict);
    ASSERT_TRUE(report.ok());
    ExpectRight(*model, 1);
  }
}

TEST(CompiledModel, CheckFindsWhatLeavesTheF16Range) {
  FOR_EACH_DEVICE(device) {
    auto network = tflite::SmallNetwork();
    network.subgraphs[0].ops[0].options = [](auto& b) {
      return tflite_schema::CreateConv2DOptions(b, tflite_schema::Padding::SAME, 2, 2).Union();
    };
    auto model = CompiledModel::FromMemory(tflite::WriteTestModel(network), On(device));
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::vector<float> x(32, 20000.0f);
    ASSERT_TRUE(model->SetInput(0, Bytes(x)).ok());
    auto report = model->Check();
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_EQ(report->first_beyond_f16, 0);
    EXPECT_NE(report->nodes[0].label.find("conv_2d"), std::string::npos);
    EXPECT_NEAR(report->nodes[0].max_magnitude, 220002, 10);
  }
}

TEST(CompiledModel, TwoModelsInTurnsFromTwoThreads) {
  FOR_EACH_DEVICE(device) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        auto model = CompiledModel::FromMemory(SmallModel(), On(device));
        ASSERT_TRUE(model.ok()) << model.error().message;
        for (int run = 0; run < 30; ++run) ExpectRight(*model, run * 2 + t);
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

size_t OpenFiles() {
  size_t count = 0;
  for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(CompiledModel, LoadingRunningAndDestroyingTwoHundredTimesLeavesNothing) {
  FOR_EACH_DEVICE(name) {
    // One device as an application has it, so that what is counted is ours.
    auto device = OpenSharedDevice(name);
    ASSERT_TRUE(device.ok()) << device.error().message;
    auto options = On("");
    options.shared_device = *device;
    size_t bytes_after_warm_up = 0, files_after_warm_up = 0;
    for (int cycle = 0; cycle < 200; ++cycle) {
      auto model = CompiledModel::FromMemory(SmallModel(), options);
      ASSERT_TRUE(model.ok()) << model.error().message;
      ExpectRight(*model, cycle);
      if (cycle == 49) {
        bytes_after_warm_up = ResidentBytes();
        files_after_warm_up = OpenFiles();
      }
    }
    EXPECT_EQ((*device)->allocated_bytes(), 0u);
    EXPECT_LE(OpenFiles(), files_after_warm_up);
    EXPECT_LE(ResidentBytes(), bytes_after_warm_up + (size_t(8) << 20));
  }
}

TEST(CompiledModel, TheProgramCacheIsUsedAndABadEntryIsNoError) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "leeway_model_cache";
  FOR_EACH_DEVICE(device) {
    fs::remove_all(folder);
    auto options = On(device);
    options.cache_folder = folder.string();
    int hits = 0;
    for (int load = 0; load < 3; ++load) {
      auto model = CompiledModel::FromMemory(SmallModel(), options);
      ASSERT_TRUE(model.ok()) << model.error().message;
      ExpectRight(*model, load);
      hits = model->load_report().cache_hits;
      EXPECT_EQ(hits + model->load_report().cache_misses, model->load_report().pipelines);
      EXPECT_TRUE(load > 0 || hits == 0);
      // No programs where the driver keeps them itself; what known-answer tests said lies in the same folder.
      int programs = 0;
      if (load == 1 && fs::exists(folder)) {
        for (auto& entry : fs::directory_iterator(folder)) {
          programs += entry.path().extension() == ".program";
          fs::resize_file(entry.path(), 60);
        }
        EXPECT_EQ(hits > 0, programs > 0);
      }
    }
    EXPECT_EQ(hits, 0);
  }
  fs::remove_all(folder);
}

TEST(EstimateMemory, SaysWhatTheModelThenTakes) {
  namespace fs = std::filesystem;
  const fs::path path = fs::path(testing::TempDir()) / "leeway_small.tflite";
  const auto bytes = SmallModel();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  FOR_EACH_DEVICE(device) {
    auto estimate = EstimateMemory(path.string(), On(device));
    ASSERT_TRUE(estimate.ok()) << estimate.error().message;
    auto model = CompiledModel::FromFile(path.string(), On(device));
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(estimate->total_bytes, model->memory().total_bytes);
    EXPECT_GT(estimate->total_bytes, 0u);
  }
  fs::remove(path);
}

}  // namespace
}  // namespace leeway
