// The tensors that a command line names: pictures, .npy and .npz files in, .npz and .npy files out, random values.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/image.h"
#include "cli/known_models.h"
#include "leeway/leeway.h"

namespace leeway::cli {

struct InputArguments {
  std::vector<std::string> pictures;  // [name=]photo.jpg or [name=]file.npy
  std::string npz;
  std::optional<float> low, high;      // --range
  std::vector<float> mean, deviation;  // per channel or one for all, on 0..255
  std::string fit;                     // "", "stretch", "letterbox"
  bool random = false;
};
void AddInputArguments(CLI::App& command, InputArguments& arguments);

struct PictureInput {  // the picture that went in, for drawing
  Image picture;
  Fit fit;
  Shape shape;
};

// Sets every input that the arguments name; `said` gets a line for each rule that was chosen without being asked for.
struct InputsSet {
  std::optional<PictureInput> picture;
  std::vector<std::string> said;
};
Result<InputsSet> SetInputs(CompiledModel& model, const Meaning& meaning, const InputArguments& arguments);

// The outputs as tensors, and saved: out.npz holds all by name; [name=]file.npy holds one.
std::vector<HostTensor> GetOutputs(const CompiledModel& model);
Status SaveOutputs(const CompiledModel& model, const std::vector<HostTensor>& outputs, const std::string& target);

std::vector<TensorShape> ToShapes(const std::vector<TensorInfo>& tensors);

}  // namespace leeway::cli
