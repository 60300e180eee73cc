// leeway run: a model on an input, once.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "cli/common.h"
#include "cli/inputs.h"

namespace leeway::cli {
namespace {

using nlohmann::json;

struct RunArguments {
  LoadArguments load;
  InputArguments inputs;
  std::vector<std::string> outputs;
  std::string picture;
  bool draw = false, as_json = false;
};

// What a person wants to know of a tensor in one line.
std::string Summary(const HostTensor& tensor) {
  double low = 0, high = 0, sum = 0;
  const int64_t count = tensor.element_count();
  int64_t not_finite = 0, at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double v = tensor.Get(i);
    if (v != v || v > 1e38 || v < -1e38) {
      ++not_finite;
      continue;
    }
    if (i == 0 || v < low) low = v;
    if (i == 0 || v > high) high = v, at = i;
    sum += v;
  }
  char text[160];
  std::snprintf(text, sizeof text, "min %.5g, max %.5g at %lld, mean %.5g", low, high, static_cast<long long>(at),
                count ? sum / double(count) : 0.0);
  return not_finite ? StrCat(text, ", ", not_finite, " not finite") : text;
}

// A one-channel picture: 0 is black, 1 (or the greatest value, where that is more) is white.
Image GrayPicture(const HostTensor& tensor) {
  Image image;
  image.height = int(tensor.shape()[1]), image.width = int(tensor.shape()[2]);
  const int64_t channels = tensor.shape()[3];
  double high = 1;
  for (int64_t i = 0; i < tensor.element_count(); ++i) high = std::max(high, tensor.Get(i));
  image.rgba.resize(size_t(image.width) * image.height * 4);
  for (int64_t i = 0; i < int64_t(image.width) * image.height; ++i)
    for (int c = 0; c < 4; ++c) {
      const double v = c == 3 ? high : tensor.Get(i * channels + std::min<int64_t>(c, channels - 1));
      image.rgba[size_t(i * 4 + c)] = uint8_t(std::lround(std::clamp(v / high, 0.0, 1.0) * 255));
    }
  return image;
}

int Run(const RunArguments& a) {
  Result<CompiledModel> model = CompiledModel::FromFile(a.load.model, ToCompileOptions(a.load));
  if (!model.ok()) return Fail(model.error(), a.as_json);
  const Meaning meaning = FindMeaning(ToShapes(model->inputs()), ToShapes(model->outputs()));
  Result<InputsSet> inputs = SetInputs(*model, meaning, a.inputs);
  if (!inputs.ok()) return Fail(inputs.error(), a.as_json);

  const auto start = std::chrono::steady_clock::now();
  if (Status status = model->Run(); !status.ok()) return Fail(status.error(), a.as_json);
  const double run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  const std::vector<HostTensor> outputs = GetOutputs(*model);
  for (const std::string& target : a.outputs) {
    if (Status status = SaveOutputs(*model, outputs, target); !status.ok()) return Fail(status.error(), a.as_json);
  }
  std::string drawn;
  if (!a.picture.empty()) {
    Image picture;
    if (a.draw) {
      if (!inputs->picture) {
        return Fail({Code::kInvalidArgument, "--draw draws onto the picture that went in; give one with --input."}, a.as_json);
      }
      picture = std::move(inputs->picture->picture);
      Result<std::string> line = Draw(meaning, outputs, inputs->picture->shape, inputs->picture->fit, picture);
      if (!line.ok()) return Fail(line.error(), a.as_json);
      drawn = *line;
    } else {
      int found = -1;
      for (size_t i = 0; i < outputs.size() && found < 0; ++i) {
        const Shape& s = outputs[i].shape();
        if (s.rank() == 4 && s[0] == 1 && s[1] > 1 && s[2] > 1 && (s[3] == 1 || s[3] == 3 || s[3] == 4)) found = int(i);
      }
      if (found < 0) {
        return Fail({Code::kInvalidArgument,
                     "No output is a picture of shape [1, height, width, 1, 3 or 4], so --output has nothing to write; "
                     "use --draw, or save tensors with --outputs."},
                    a.as_json);
      }
      picture = GrayPicture(outputs[size_t(found)]);
    }
    if (Status status = SavePng(picture, a.picture); !status.ok()) return Fail(status.error(), a.as_json);
  }

  const PlacementReport& placement = model->placement();
  const DeviceSummary device = model->device();
  if (a.as_json) {
    json report = {{"model", model->name()},
                   {"device", {{"api", device.api}, {"name", device.name}, {"driver", device.driver}}},
                   {"nodes_on_gpu", placement.nodes_on_gpu},
                   {"nodes_on_cpu", placement.nodes_on_cpu},
                   {"notes", placement.notes},
                   {"input_rules", inputs->said},
                   {"load_ms", model->load_report().total_ms},
                   {"run_ms", run_ms},
                   {"outputs", json::array()}};
    for (size_t i = 0; i < outputs.size(); ++i) {
      json entry = ToJson(model->outputs()[i]);
      entry["summary"] = Summary(outputs[i]);
      report["outputs"].push_back(entry);
    }
    if (!drawn.empty()) report["drawn"] = drawn;
    if (!a.picture.empty()) report["picture"] = a.picture;
    PrintJson(report);
    return kDone;
  }
  std::printf("%s on %s (%s)%s\n", model->name().c_str(), device.name.c_str(), device.api.c_str(),
              device.is_software ? ", a software device" : "");
  std::printf("%d nodes on the GPU, %d on the CPU; %zu dispatches\n", placement.nodes_on_gpu, placement.nodes_on_cpu,
              model->dispatches().size());
  for (const NodePlacement& node : placement.nodes)
    if (!node.on_gpu) std::printf("  on the CPU: %s: %s\n", node.label.c_str(), node.reason.c_str());
  for (const std::string& note : placement.notes) std::printf("  %s\n", note.c_str());
  for (const std::string& line : inputs->said) std::printf("  %s\n", line.c_str());
  std::printf("loaded in %s, ran in %s\n", Milliseconds(model->load_report().total_ms).c_str(), Milliseconds(run_ms).c_str());
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::printf("output %s %s: %s\n", model->outputs()[i].name.c_str(), ShapeText(model->outputs()[i]).c_str(),
                Summary(outputs[i]).c_str());
  }
  if (!drawn.empty()) std::printf("%s\n", drawn.c_str());
  if (!a.picture.empty()) std::printf("wrote %s\n", a.picture.c_str());
  return kDone;
}

}  // namespace

void AddRunCommand(CLI::App& app, Action& run) {
  auto a = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Run a model once on pictures or arrays");
  AddLoadArguments(*command, a->load);
  AddInputArguments(*command, a->inputs);
  command->add_option("--outputs", a->outputs, "Save outputs: out.npz for all by name, or [name=]file.npy for one");
  command->add_option("--output", a->picture,
                      "Write a picture (PNG): the first output that is one, or with --draw the input drawn upon");
  command->add_flag("--draw", a->draw, "Draw masks, boxes or landmarks of models that Leeway knows onto the input picture");
  command->add_flag("--json", a->as_json, "Print JSON");
  command->callback([&run, a] { run = [a] { return Run(*a); }; });
}

}  // namespace leeway::cli
