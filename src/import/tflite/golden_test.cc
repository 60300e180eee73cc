// The reader, the shape rules, the references and the passes together against LiteRT's CPU results (tests/goldens).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "find_model.h"
#include "graph/passes/passes.h"
#include "import/tflite/tflite.h"
#include "ops/evaluate.h"
#include "tensor/npy_tensor.h"

namespace leeway {
namespace {

using nlohmann::json;
const std::string kGoldens = LEEWAY_SOURCE_DIR "/tests/goldens/";

json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

std::map<std::string, HostTensor> ReadTensors(const std::string& path, std::string* meta = nullptr) {
  std::map<std::string, HostTensor> tensors;
  auto arrays = ReadArrayFile(path);
  if (!arrays.ok()) {
    ADD_FAILURE() << arrays.error().message;
    return tensors;
  }
  for (auto& [name, array] : *arrays) {
    if (name == "META") {
      if (meta) meta->assign(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
      continue;
    }
    auto tensor = TensorFromNpy(std::move(array), name);
    if (tensor.ok()) {
      tensors[name] = std::move(*tensor);
    } else {
      ADD_FAILURE() << tensor.error().message;
    }
  }
  return tensors;
}

// The greatest difference of a result to a golden that holds every stride-th value; infinite where one is NaN and the other is
// not.
double Difference(const HostTensor& result, const HostTensor& golden, int64_t stride) {
  double worst = 0;
  for (int64_t i = 0; i < golden.element_count(); ++i) {
    double a = result.Get(i * stride), b = golden.Get(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    double difference = std::abs(a - b);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

double Range(const HostTensor& tensor) {
  double low = INFINITY, high = -INFINITY;
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    double v = tensor.Get(i);
    if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
  return high > low ? high - low : 0;
}

// -- Single operators ---------------------------------------------------------------------------------------------------------

struct Outcome {
  std::string refused;  // why, where it is
  std::string wrong;
};

Outcome RunCase(const std::string& name, double allowed, bool passes) {
  auto graph = ImportTflite(kGoldens + "tflite-ops/" + name + ".tflite");
  if (!graph.ok()) return {.refused = graph.error().message};
  if (passes) {
    auto reports = RunPasses(*graph, {});
    if (!reports.ok()) return {.wrong = reports.error().message};
  }
  auto tensors = ReadTensors(kGoldens + "tflite-ops/" + name + ".npz");
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < graph->inputs.size(); ++i) inputs.push_back(tensors[StrCat("in", i)]);
  auto outputs = Evaluate(*graph, inputs);
  if (!outputs.ok()) {
    return outputs.error().code == Code::kUnsupported ? Outcome{.refused = outputs.error().message}
                                                      : Outcome{.wrong = outputs.error().message};
  }
  for (size_t i = 0; i < outputs->size(); ++i) {
    const HostTensor& golden = tensors[StrCat("out", i)];
    const HostTensor& result = (*outputs)[i];
    if (result.dtype() != golden.dtype() || result.shape() != golden.shape()) {
      return {.wrong = StrCat("output ", i, " is ", TensorType{result.dtype(), result.shape()}.ToString(), ", expected ",
                              TensorType{golden.dtype(), golden.shape()}.ToString())};
    }
    double difference = Difference(result, golden, 1), tolerance = allowed;
    if (IsFloat(golden.dtype())) tolerance += 1e-5 * std::max(1.0, Range(golden));
    if (golden.dtype() == DType::kF16) tolerance += 1e-3 * std::max(1.0, Range(golden));
    if (!(difference <= tolerance)) return {.wrong = StrCat("output ", i, " differs by ", difference, ", allowed ", tolerance)};
  }
  return {};
}

TEST(TfliteGoldens, SingleOperatorsGiveLiteRtsResults) {
  int right = 0, refused = 0;
  for (const char* index : {"index.json", "index-raw.json"}) {
    const json cases = ReadJson(kGoldens + "tflite-ops/" + index)["cases"];
    for (const json& c : cases) {
      std::string name = c["name"];
      // Quantized activations may fall on the other side of a half; what is quantized only here or only there differs by more.
      double allowed = 3 * c.value("xnnpack_diff", 0.0) + 2 * c.value("f32_diff", 0.0);
      if (c.value("mode", "") == "int8") allowed += 1;
      for (bool passes : {false, true}) {
        Outcome outcome = RunCase(name, allowed, passes);
        EXPECT_EQ(outcome.wrong, "") << name << (passes ? ", passes on" : ", passes off");
        if (passes) continue;
        if (!outcome.refused.empty()) {
          ++refused;
          std::cout << "  refused: " << name << ": " << outcome.refused << "\n";
        } else if (outcome.wrong.empty()) {
          ++right;
        }
      }
    }
  }
  std::cout << right << " right, " << refused << " refused\n";
  RecordProperty("right", right);
  RecordProperty("refused", refused);
  EXPECT_GE(right, 270) << "operators have been lost";
}

// -- Real models
// ----------------------------------------------------------------------------------------------------------------

uint64_t SplitMix64(uint64_t i) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// The inputs that the goldens were made with: one sequence over the values of all inputs.
HostTensor DrawInput(const TensorType& type, uint64_t first) {
  HostTensor tensor(type.dtype, type.shape);
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    uint64_t bits = SplitMix64(first + uint64_t(i)) >> 40;
    int64_t low = type.dtype == DType::kI8 ? -100 : 0;
    tensor.Set(i, IsFloat(type.dtype) ? double(bits) / double(1 << 24) : double(low + int64_t(bits % uint64_t(100 - low))));
  }
  return tensor;
}

std::vector<std::string> GoldenModels() {
  std::vector<std::string> names;
  const json index = ReadJson(kGoldens + "tflite/index.json");
  for (const auto& [name, meta] : index.items()) names.push_back(name);
  return names;
}

// How far an output moves when the inputs move by one unit in the last place (tools/golden_conditioning.py); 0 where that is
// less than the tolerance anyway.
double Conditioning(const std::string& model, size_t output) {
  const json all = ReadJson(kGoldens + "conditioning.json");
  return all.contains(model) ? all[model][output].get<double>() : 0.0;
}

class TfliteModel : public testing::TestWithParam<std::string> {};

TEST_P(TfliteModel, GivesLiteRtsResultsOnTheCpu) {
  const auto path = FindModel(GetParam() + ".tflite");
  if (!path) GTEST_SKIP() << "the model is not in LEEWAY_MODELS or .cache/models";
  auto graph = ImportTflite(*path);
  if (!graph.ok() && graph.error().code == Code::kUnsupported) GTEST_SKIP() << graph.error().message;
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  size_t before = graph->nodes.size();
  auto reports = RunPasses(*graph, {});
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  std::cout << "  " << before << " nodes, " << graph->nodes.size() << " after the passes\n";

  std::string meta_text;
  auto golden = ReadTensors(kGoldens + "tflite/" + GetParam() + ".npz", &meta_text);
  json runs = json::parse(meta_text)["runs"]["rnd"];
  std::vector<HostTensor> inputs;
  uint64_t first = 0;
  for (ValueId id : graph->inputs) {
    inputs.push_back(DrawInput(graph->value(id).type, first));
    first += uint64_t(inputs.back().element_count());
  }
  auto outputs = Evaluate(*graph, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.error().message;
  ASSERT_EQ(outputs->size(), runs.size());
  for (size_t i = 0; i < outputs->size(); ++i) {
    const HostTensor& expected = golden[StrCat("rnd_out", i)];
    double tolerance = std::max(1e-4 * Range(expected), 3 * runs[i].value("xnnpack_diff", 0.0));
    tolerance = std::max(tolerance, 2 * Conditioning(GetParam(), i));
    if (expected.element_count() == 1) tolerance = std::max(tolerance, 1e-6);  // one number has no range
    std::vector<int64_t> shape((*outputs)[i].shape().begin(), (*outputs)[i].shape().end());
    EXPECT_EQ(json(shape), runs[i]["shape"]);
    double difference = Difference((*outputs)[i], expected, runs[i]["stride"]);
    EXPECT_LE(difference, tolerance) << "output " << i << " " << runs[i]["name"] << " with a range of " << Range(expected);
    std::cout << "  output " << i << ": range " << Range(expected) << ", difference " << difference << ", allowed " << tolerance
              << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, TfliteModel, testing::ValuesIn(GoldenModels()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace leeway
