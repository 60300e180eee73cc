// Pictures: reading, writing, resizing, and turning them into a model's input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/host_tensor.h"

namespace leeway::cli {

// 8-bit RGBA, rows from top to bottom.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgba;

  uint8_t* at(int x, int y) { return &rgba[(size_t(y) * width + x) * 4]; }
  const uint8_t* at(int x, int y) const { return &rgba[(size_t(y) * width + x) * 4]; }
};

// PNG, JPEG, BMP and what else stb_image reads. Errors name the file and what is wrong with it.
Result<Image> LoadImage(const std::string& path);
Status SavePng(const Image& image, const std::string& path);

// Where the picture lies in the model's input: a point (x, y) of the input in 0..1 is the picture's point
// ((x - left) / width, (y - top) / height), in 0..1 too.
struct Fit {
  float left = 0, top = 0, width = 1, height = 1;
};

struct InputRule {
  float low = 0, high = 1;  // what 0 and 255 become in a float input
  bool letterbox = false;   // keep the aspect, fill with `low`'s black; else stretch
};

struct ImageInput {
  HostTensor tensor;
  Fit fit;
};
// The picture as [1, height, width, channels] with 1, 3 or 4 channels, float or 8-bit or 32-bit integers (which get 0..255, i8
// gets -128..127). Bilinear with the pixel centres at .5, as Pillow's bilinear filter does when it enlarges; when it shrinks,
// the filter widens with the scale, so no pixel is skipped.
Result<ImageInput> ImageToTensor(const Image& image, DType dtype, const Shape& shape, const InputRule& rule);

// The same filter on floats: `values` is [height][width][channels].
std::vector<float> Resize(std::span<const float> values, int width, int height, int channels, int new_width, int new_height);

}  // namespace leeway::cli
