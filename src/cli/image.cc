#include "cli/image.h"

#include <stb/stb_image.h>
#include <stb/stb_image_write.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/strings.h"

namespace leeway::cli {
namespace {

// The taps of a triangle filter for one axis: output i is the weighted sum of inputs first..first + weights.size() - 1.
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

std::vector<Taps> TriangleTaps(int from, int to) {
  const double scale = double(from) / to, support = std::max(scale, 1.0);
  std::vector<Taps> taps(static_cast<size_t>(to));
  for (int i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const int low = std::max(0, int(center - support + 0.5)), high = std::min(from, int(center + support + 0.5));
    Taps& t = taps[size_t(i)];
    t.first = std::min(low, from - 1);
    double sum = 0;
    for (int j = t.first; j < std::max(high, t.first + 1); ++j) {
      const double w = std::max(0.0, 1.0 - std::abs((j + 0.5 - center) / support));
      t.weights.push_back(float(w));
      sum += w;
    }
    if (sum <= 0) t.weights.assign(1, 1.0f), sum = 1;
    for (float& w : t.weights) w = float(w / sum);
  }
  return taps;
}

}  // namespace

Result<Image> LoadImage(const std::string& path) {
  Image image;
  int channels = 0;
  std::unique_ptr<uint8_t, void (*)(void*)> pixels(stbi_load(path.c_str(), &image.width, &image.height, &channels, 4),
                                                   [](void* p) { stbi_image_free(p); });
  if (!pixels) {
    const char* reason = stbi_failure_reason();
    return Error{Code::kIo, StrCat("The picture ", path, " can't be read: ", reason ? reason : "unknown format", ".")};
  }
  image.rgba.assign(pixels.get(), pixels.get() + size_t(image.width) * image.height * 4);
  return image;
}

Status SavePng(const Image& image, const std::string& path) {
  if (!stbi_write_png(path.c_str(), image.width, image.height, 4, image.rgba.data(), image.width * 4)) {
    return Error{Code::kIo, StrCat("The picture ", path, " can't be written.")};
  }
  return {};
}

std::vector<float> Resize(std::span<const float> values, int width, int height, int channels, int new_width, int new_height) {
  const std::vector<Taps> across = TriangleTaps(width, new_width), down = TriangleTaps(height, new_height);
  std::vector<float> rows(size_t(height) * new_width * channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < new_width; ++x)
      for (int c = 0; c < channels; ++c) {
        float sum = 0;
        const Taps& t = across[size_t(x)];
        for (size_t k = 0; k < t.weights.size(); ++k)
          sum += t.weights[k] * values[(size_t(y) * width + t.first + k) * channels + c];
        rows[(size_t(y) * new_width + x) * channels + c] = sum;
      }
  std::vector<float> out(size_t(new_height) * new_width * channels);
  for (int y = 0; y < new_height; ++y)
    for (int x = 0; x < new_width * channels; ++x) {
      float sum = 0;
      const Taps& t = down[size_t(y)];
      for (size_t k = 0; k < t.weights.size(); ++k)
        sum += t.weights[k] * rows[(size_t(t.first) + k) * new_width * channels + x];
      out[size_t(y) * new_width * channels + x] = sum;
    }
  return out;
}

Result<ImageInput> ImageToTensor(const Image& image, DType dtype, const Shape& shape, const InputRule& rule) {
  if (shape.rank() != 4 || shape[0] != 1 || (shape[3] != 1 && shape[3] != 3 && shape[3] != 4)) {
    return Error{
        Code::kInvalidArgument,
        StrCat("A picture goes into an input of shape [1, height, width, 1, 3 or 4]; this one is ", shape.ToString(), ".")};
  }
  const int height = int(shape[1]), width = int(shape[2]), channels = int(shape[3]);
  if (height < 1 || width < 1) return Error{Code::kInvalidArgument, "A picture can't go into an empty input."};

  ImageInput input;
  int inner_width = width, inner_height = height, left = 0, top = 0;
  if (rule.letterbox) {
    const double scale = std::min(double(width) / image.width, double(height) / image.height);
    inner_width = std::clamp(int(std::lround(image.width * scale)), 1, width);
    inner_height = std::clamp(int(std::lround(image.height * scale)), 1, height);
    left = (width - inner_width) / 2;
    top = (height - inner_height) / 2;
  }
  input.fit = {float(left) / width, float(top) / height, float(inner_width) / width, float(inner_height) / height};

  std::vector<float> source(size_t(image.width) * image.height * channels);
  for (size_t i = 0, n = size_t(image.width) * image.height; i < n; ++i) {
    const uint8_t* p = &image.rgba[i * 4];
    if (channels == 1) {
      source[i] = 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
    } else {
      for (int c = 0; c < channels; ++c) source[i * channels + c] = p[c];
    }
  }
  const std::vector<float> inner = Resize(source, image.width, image.height, channels, inner_width, inner_height);

  input.tensor = HostTensor(dtype, shape);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        const bool is_inside = x >= left && x < left + inner_width && y >= top && y < top + inner_height;
        const float raw = is_inside ? inner[(size_t(y - top) * inner_width + (x - left)) * channels + c] : 0.0f;
        const float byte = std::clamp(std::round(raw), 0.0f, 255.0f);
        double value = byte;
        if (IsFloat(dtype)) value = rule.low + byte / 255.0f * (rule.high - rule.low);
        if (dtype == DType::kI8) value = byte - 128;
        input.tensor.Set((int64_t(y) * width + x) * channels + c, value);
      }
  return input;
}

}  // namespace leeway::cli
