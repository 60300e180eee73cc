// Real models against LiteRT's CPU results (tests/goldens/tflite, with how they were made), on every device and in both
// precisions, all nodes on the GPU; and the small models of tests/goldens/tflite-ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/npz.h"
#include "base/strings.h"
#include "find_model.h"
#include "leeway/leeway.h"
#include "runtime/test_devices.h"
#include "tensor/npy_tensor.h"

namespace leeway {
namespace {
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(LEEWAY_SOURCE_DIR) / "tests/goldens";

uint64_t SplitMix(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// The drawn inputs of the goldens: value number i of all inputs.
void Draw(const TensorInfo& info, std::span<std::byte> bytes, uint64_t first) {
  HostTensor tensor(info.dtype, Shape(info.shape));
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    const uint64_t bits = SplitMix(first + uint64_t(i)) >> 40;
    const int64_t low = info.dtype == DType::kI8 ? -100 : 0;
    tensor.Set(i, IsFloat(info.dtype) ? double(bits) / double(1 << 24) : double(low + int64_t(bits % uint64_t(100 - low))));
  }
  std::memcpy(bytes.data(), tensor.bytes().data(), bytes.size());
}

using Arrays = std::map<std::string, HostTensor>;

Arrays ReadArrays(const fs::path& path) {
  Arrays arrays;
  auto read = ReadArrayFile(path.string());
  EXPECT_TRUE(read.ok()) << read.error().message;
  if (!read.ok()) return arrays;
  for (auto& [name, array] : *read) {
    auto tensor = TensorFromNpy(std::move(array), name);
    EXPECT_TRUE(tensor.ok()) << tensor.error().message;
    if (tensor.ok()) arrays[name] = *tensor;
  }
  return arrays;
}

// `golden` holds every stride-th element. Returns the largest difference as a share of the range, or of one number's magnitude.
double ExpectNear(const HostTensor& got, const HostTensor& golden, int64_t stride, double share_of_range, double at_least,
                  const std::string& what) {
  if ((golden.element_count() - 1) * stride > got.element_count() - 1) {
    ADD_FAILURE() << what << " has " << got.element_count() << " elements, the golden " << golden.element_count()
                  << " with a stride of " << stride;
    return INFINITY;
  }
  double low = INFINITY, high = -INFINITY, worst = 0;
  int64_t worst_at = 0;
  for (int64_t i = 0; i < golden.element_count(); ++i) {
    const double want = golden.Get(i), have = got.Get(i * stride);
    if (!std::isfinite(want) && (have == want || (std::isnan(have) && std::isnan(want)))) continue;
    low = std::min(low, want);
    high = std::max(high, want);
    const double difference = std::isfinite(have) ? std::fabs(have - want) : INFINITY;
    if (difference > worst) worst = difference, worst_at = i;
  }
  const double range = std::max(high - low, 1e-30);
  double allowed = std::max(share_of_range * range, at_least);
  // A mask that is zero but for its tail (7e-12 and less for noise) has no range to speak of; its scale is 1.
  allowed = std::max(allowed, 1e-9);
  // One number has no range: its magnitude takes the place.
  if (golden.element_count() == 1) allowed = std::max(allowed, share_of_range * std::max(std::fabs(high), 1e-2));
  EXPECT_LE(worst, allowed) << what << ": element " << worst_at * stride << " is " << got.Get(worst_at * stride)
                            << ", the golden says " << golden.Get(worst_at) << " (range " << range << ")";
  return worst / (golden.element_count() == 1 ? std::max(std::fabs(high), 1e-2) : std::max(range, 1e-5));
}

std::vector<std::string> GoldenNames(const char* folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kGoldens / folder, error)) {
    if (entry.path().extension() == ".npz") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

HostTensor Output(const CompiledModel& model, int i) {
  const TensorInfo& info = model.outputs()[size_t(i)];
  HostTensor tensor(info.dtype, Shape(info.shape));
  EXPECT_TRUE(model.GetOutput(i, tensor.mutable_bytes()).ok());
  return tensor;
}

// Streaming models with variables are for a later issue; quantized ones need integer kernels.
bool IsForLater(const std::string& name) {
  return name.starts_with("wake_") || name.ends_with("_int8") || name.ends_with("_dynamic");
}

// How far an output moves when the inputs move by one unit in the last place (tools/golden_conditioning.py); 0 where that is
// less than the tolerance anyway.
double Conditioning(const std::string& model, size_t output) {
  std::ifstream file(kGoldens / "conditioning.json");
  const auto all = nlohmann::json::parse(file);
  return all.contains(model) ? all[model][output].get<double>() : 0.0;
}

// Mesa and SwiftShader take about half a second of a core to compile a kernel, so whole models run there only where
// they are few; LEEWAY_ALL_MODELS=1 runs all of them on every device.
bool RunsHere(const std::string& model, const DeviceSummary& device, Precision precision) {
  if (const char* all = std::getenv("LEEWAY_ALL_MODELS"); all && *all == '1') return true;
  const bool has_f16 = std::find(device.features.begin(), device.features.end(), std::pair<std::string, bool>("f16", true)) !=
                       device.features.end();
  if (precision == Precision::kF16 && !has_f16) return false;  // f32 is used there, as in the other test
  if (!device.is_software || device.api != "webgpu") return true;
  return model == "face_detection_short_range" || model == "hand_recrop";
}

class RealModel : public testing::TestWithParam<std::string> {
 public:
  void Check(Precision precision) {
    const std::string name = GetParam();
    if (IsForLater(name)) GTEST_SKIP() << "not among the models of this release";
    const auto path = FindModel(name + ".tflite");
    if (!path) GTEST_SKIP() << "there is no " << name << ".tflite in LEEWAY_MODELS or .cache";
    const auto devices = TestDevices();
    if (devices.empty()) GTEST_SKIP() << "there is no device";
    const Arrays arrays = ReadArrays(kGoldens / "tflite" / (name + ".npz"));
    ASSERT_TRUE(arrays.contains("META"));
    const auto meta_bytes = arrays.at("META").as<char>();
    const auto meta = nlohmann::json::parse(meta_bytes.begin(), meta_bytes.end());
    int ran = 0;
    for (const auto& device : devices) {
      SCOPED_TRACE(device);
      const auto opened = OpenSharedDevice(device);
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      if (!RunsHere(name, DescribeDevice(**opened), precision)) continue;
      ++ran;
      auto model = CompiledModel::FromFile(*path, {.device = device, .precision = precision, .require_gpu = true});
      ASSERT_TRUE(model.ok()) << model.error().message;
      double worst = 0;
      for (const auto& [run, outputs] : meta["runs"].items()) {
        if (run == "rnd") {
          uint64_t first = 0;
          for (size_t i = 0; i < model->inputs().size(); ++i) {
            Draw(model->inputs()[i], model->InputBytes(int(i)), first);
            first += uint64_t(Shape(model->inputs()[i].shape).element_count());
          }
        } else if (!SetPicture(*model, arrays, meta)) {
          continue;
        }
        const Status status = model->Run();
        ASSERT_TRUE(status.ok()) << status.error().message;
        ASSERT_EQ(outputs.size(), model->outputs().size());
        for (size_t o = 0; o < outputs.size(); ++o) {
          const auto& golden = arrays.at(StrCat(run, "_out", o));
          const double xnnpack = outputs[o].value("xnnpack_diff", 0.0);
          const double difference = ExpectNear(
              Output(*model, int(o)), golden, outputs[o].value("stride", 1), precision == Precision::kF16 ? 1e-2 : 1e-4,
              std::max(3 * xnnpack, 2 * Conditioning(name, o)), StrCat(name, " ", run, " output ", o));
          worst = std::max(worst, difference);
        }
      }
      // For the table of docs/measurements (--gtest_output=json:FILE).
      RecordProperty(StrCat("worst_share_", device), StrCat(worst));
    }
    if (ran == 0) GTEST_SKIP() << "only with LEEWAY_ALL_MODELS=1 on these devices: compiling takes long there";
  }

 private:
  static bool SetPicture(CompiledModel& model, const Arrays& arrays, const nlohmann::json& meta) {
    if (!arrays.contains("img_u8") || model.inputs().size() != 1 || model.inputs()[0].dtype != DType::kF32) return false;
    const HostTensor& picture = arrays.at("img_u8");
    const int64_t repeat = meta.value("img_repeat", 1);
    const double scale = meta.value("image_max", 1.0) / 255;
    const auto& shape = model.inputs()[0].shape;
    HostTensor input(DType::kF32, Shape(shape));
    for (int64_t y = 0, i = 0; y < shape[1]; ++y) {
      for (int64_t x = 0; x < shape[2]; ++x) {
        for (int64_t c = 0; c < 3; ++c, ++i) {
          input.Set(i, picture.Get(((y / repeat) * picture.shape()[1] + x / repeat) * 3 + c) * scale);
        }
      }
    }
    return model.SetInput(0, input.bytes()).ok();
  }
};

TEST_P(RealModel, IsRightInF32) { Check(Precision::kF32); }
TEST_P(RealModel, IsRightInF16) { Check(Precision::kF16); }

INSTANTIATE_TEST_SUITE_P(Goldens, RealModel, testing::ValuesIn(GoldenNames("tflite")),
                         [](const auto& info) { return info.param; });

// The small models, one operator or block each, through everything from the file to the outputs. What a device has no kernel
// for runs on the CPU, so these also test the borders between the two.
constexpr int kShards = 8;  // compiling the programs of all of them takes minutes
class OperatorModels : public testing::TestWithParam<int> {};

TEST_P(OperatorModels, AreRightOnEveryDevice) {
  const auto devices = TestDevices();
  if (devices.empty()) GTEST_SKIP() << "there is no device";
  for (const auto& device_name : devices) {
    SCOPED_TRACE(device_name);
    auto device = OpenSharedDevice(device_name);
    ASSERT_TRUE(device.ok()) << device.error().message;
    const DeviceSummary summary = DescribeDevice(**device);
    // 300 programs to compile, half a second each there (see RunsHere): a third of them, unless all are asked for.
    const char* all = std::getenv("LEEWAY_ALL_MODELS");
    const size_t step = summary.is_software && summary.api == "webgpu" && !(all && *all == '1') ? 3 : 1;
    int whole = 0, with_cpu = 0, refused = 0;
    for (const char* index : {"index.json", "index-raw.json"}) {
      std::ifstream file(kGoldens / "tflite-ops" / index);
      const auto cases = nlohmann::json::parse(file)["cases"];
      for (size_t c = size_t(GetParam()); c < cases.size(); c += kShards * step) {
        const auto& one = cases[c];
        const std::string name = one["name"];
        SCOPED_TRACE(name);
        CompileOptions options;
        options.shared_device = *device;
        auto model = CompiledModel::FromFile((kGoldens / "tflite-ops" / (name + ".tflite")).string(), options);
        if (!model.ok()) {
          // What the importer or a reference does not have yet is refused by name.
          EXPECT_EQ(model.error().code, Code::kUnsupported) << model.error().message;
          ++refused;
          continue;
        }
        Arrays arrays = ReadArrays(kGoldens / "tflite-ops" / (name + ".npz"));
        for (size_t i = 0; i < model->inputs().size(); ++i) {
          const Status set = model->SetInput(int(i), arrays[StrCat("in", i)].bytes());
          ASSERT_TRUE(set.ok()) << set.error().message;
        }
        const Status status = model->Run();
        if (!status.ok() && status.error().code == Code::kUnsupported) {
          ++refused;
          continue;
        }
        ASSERT_TRUE(status.ok()) << status.error().message;
        (model->placement().nodes_on_cpu == 0 ? whole : with_cpu)++;
        // Quantized values may fall on the other side of a half; what LiteRT quantizes at run time differs by f32_diff.
        double at_least = 3 * one.value("xnnpack_diff", 0.0) + 2 * one.value("f32_diff", 0.0);
        if (one.value("mode", "") == "int8") at_least += 1;
        for (size_t o = 0; o < model->outputs().size(); ++o) {
          const HostTensor& golden = arrays[StrCat("out", o)];
          const bool is_half = golden.dtype() == DType::kF16;
          ExpectNear(Output(*model, int(o)), golden, 1, is_half ? 2e-3 : 1e-4, at_least + (IsFloat(golden.dtype()) ? 1e-5 : 0),
                     StrCat("output ", o));
        }
      }
    }
    EXPECT_GT(whole, 12 / int(step)) << with_cpu << " with nodes on the CPU, " << refused << " refused";
    RecordProperty("whole", whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, OperatorModels, testing::Range(0, kShards));

}  // namespace
}  // namespace leeway
