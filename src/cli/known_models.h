// What the outputs of well-known models mean. Many shipped .tflite files carry no metadata, so the meaning is read off the
// shapes of inputs and outputs: masks, boxes from anchors (BlazeFace and its kin), landmarks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/image.h"
#include "tensor/host_tensor.h"

namespace leeway::cli {

struct TensorShape {
  std::string name;
  DType dtype;
  Shape shape;
};

struct Meaning {
  enum class Kind { kNone, kMask, kBoxes, kLandmarks } kind = Kind::kNone;
  std::string what;  // "person mask", "faces"
  InputRule input;
  // kBoxes: outputs with the raw boxes and the raw scores, and the strides of the anchor grids (two anchors a cell a layer).
  int boxes = -1, scores = -1;
  std::vector<int> strides;
  int anchors_per_cell = 2;
  // kMask and kLandmarks.
  int output = -1;
  int values_per_point = 3;
  int confidence = -1;  // kLandmarks: the output that says whether anything is there; -1: none
  bool mask_is_logit = false;
};
Meaning FindMeaning(std::span<const TensorShape> inputs, std::span<const TensorShape> outputs);

struct Box {
  float left = 0, top = 0, right = 0, bottom = 0;  // in 0..1 of the model's input
  float score = 0;
  std::vector<std::pair<float, float>> points;
};
// Boxes above `threshold`, overlapping ones blended with their scores as weights; best first.
std::vector<Box> DecodeBoxes(const Meaning& meaning, const HostTensor& boxes, const HostTensor& scores, int input_width,
                             int input_height, float threshold);

// Draws onto the picture what the outputs mean. A mask cuts the person out: the rest becomes a plain colour. Returns a line
// that says what was drawn.
Result<std::string> Draw(const Meaning& meaning, std::span<const HostTensor> outputs, const Shape& input_shape, const Fit& fit,
                         Image& picture);

}  // namespace leeway::cli
