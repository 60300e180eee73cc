#include "cli/known_models.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/strings.h"

namespace leeway::cli {
namespace {

// The anchor grids of the published single-shot detectors, told apart by input size and number of anchors.
struct Detector {
  int input_size;
  int anchors;
  const char* what;
  float low, high;
  std::vector<int> strides;
  int per_cell;
};
const std::vector<Detector>& Detectors() {
  static const std::vector<Detector> detectors = {
      {128, 896, "faces", -1, 1, {8, 16, 16, 16}, 2},
      {256, 896, "faces", -1, 1, {16, 32, 32, 32}, 2},
      {192, 2304, "faces", -1, 1, {4}, 1},
      {192, 2016, "palms", 0, 1, {8, 16, 16, 16}, 2},
      {224, 2254, "people", -1, 1, {8, 16, 32, 32, 32}, 2},
  };
  return detectors;
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-std::clamp(x, -100.0f, 100.0f))); }

struct Point {
  float x, y;
};

std::vector<Point> AnchorCenters(const Meaning& meaning, int size) {
  std::vector<Point> centers;
  // Layers of the same stride share a grid: all their anchors of a cell come together.
  for (size_t i = 0; i < meaning.strides.size();) {
    size_t same = i;
    while (same < meaning.strides.size() && meaning.strides[same] == meaning.strides[i]) ++same;
    const int cells = (size + meaning.strides[i] - 1) / meaning.strides[i];
    const int count = meaning.anchors_per_cell * int(same - i);
    for (int y = 0; y < cells; ++y)
      for (int x = 0; x < cells; ++x)
        for (int k = 0; k < count; ++k) centers.push_back({(x + 0.5f) / cells, (y + 0.5f) / cells});
    i = same;
  }
  return centers;
}

float Overlap(const Box& a, const Box& b) {
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (width <= 0 || height <= 0) return 0;
  const float both = width * height;
  return both / ((a.right - a.left) * (a.bottom - a.top) + (b.right - b.left) * (b.bottom - b.top) - both);
}

void FillCircle(Image& picture, float cx, float cy, float radius, const uint8_t (&color)[3]) {
  for (int y = std::max(0, int(cy - radius)); y <= std::min(picture.height - 1, int(cy + radius)); ++y)
    for (int x = std::max(0, int(cx - radius)); x <= std::min(picture.width - 1, int(cx + radius)); ++x)
      if ((x - cx) * (x - cx) + (y - cy) * (y - cy) <= radius * radius) std::copy(color, color + 3, picture.at(x, y));
}

void Frame(Image& picture, float left, float top, float right, float bottom, int thickness, const uint8_t (&color)[3]) {
  for (int y = 0; y < picture.height; ++y)
    for (int x = 0; x < picture.width; ++x) {
      if (x < left || x > right || y < top || y > bottom) continue;
      if (x < left + thickness || x > right - thickness || y < top + thickness || y > bottom - thickness)
        std::copy(color, color + 3, picture.at(x, y));
    }
}

}  // namespace

Meaning FindMeaning(std::span<const TensorShape> inputs, std::span<const TensorShape> outputs) {
  Meaning meaning;
  if (inputs.size() != 1 || inputs[0].shape.rank() != 4) return meaning;
  const Shape& in = inputs[0].shape;

  for (const Detector& detector : Detectors()) {
    if (in[1] != detector.input_size || in[2] != detector.input_size || outputs.size() < 2) continue;
    int boxes = -1, scores = -1;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Shape& s = outputs[i].shape;
      if (s.rank() != 3 || s[1] != detector.anchors) continue;
      (s[2] == 1 ? scores : boxes) = int(i);
    }
    if (boxes < 0 || scores < 0) continue;
    meaning.kind = Meaning::Kind::kBoxes;
    meaning.what = detector.what;
    meaning.input = {detector.low, detector.high, true};
    meaning.boxes = boxes;
    meaning.scores = scores;
    meaning.strides = detector.strides;
    meaning.anchors_per_cell = detector.per_cell;
    return meaning;
  }

  // A picture of one channel the size of the input is a mask; the biggest wins where there are heat maps too.
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Shape& s = outputs[i].shape;
    if (s.rank() == 4 && s[1] == in[1] && s[2] == in[2] && s[3] == 1 && outputs.size() == 1) {
      meaning.kind = Meaning::Kind::kMask;
      meaning.what = "person mask";
      meaning.output = int(i);
      return meaning;
    }
  }

  // Landmarks in pixels of the input: x, y, z (and visibility and presence for bodies).
  struct Row {
    int64_t values;
    int per_point;
    const char* what;
  };
  static const Row kRows[] = {{63, 3, "hand"}, {1404, 3, "face"}, {195, 5, "body"}, {213, 3, "eye contour"}};
  for (const Row& row : kRows)
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].shape.element_count() != row.values) continue;
      meaning.kind = Meaning::Kind::kLandmarks;
      meaning.what = row.what;
      meaning.output = int(i);
      meaning.values_per_point = row.per_point;
      for (size_t j = 0; j < outputs.size(); ++j)
        if (outputs[j].shape.element_count() == 1 && meaning.confidence < 0) meaning.confidence = int(j);
      return meaning;
    }
  return meaning;
}

std::vector<Box> DecodeBoxes(const Meaning& meaning, const HostTensor& boxes, const HostTensor& scores, int input_width,
                             int input_height, float threshold) {
  const std::vector<Point> anchors = AnchorCenters(meaning, input_width);
  const int64_t count = boxes.shape()[1], values = boxes.shape()[2];
  std::vector<Box> found;
  for (int64_t i = 0; i < count && i < int64_t(anchors.size()); ++i) {
    const float score = Sigmoid(float(scores.Get(i)));
    if (!(score >= threshold)) continue;
    auto raw = [&](int64_t k) { return float(boxes.Get(i * values + k)); };
    const Point& a = anchors[size_t(i)];
    const float x = raw(0) / input_width + a.x, y = raw(1) / input_height + a.y;
    const float w = raw(2) / input_width, h = raw(3) / input_height;
    Box box{x - w / 2, y - h / 2, x + w / 2, y + h / 2, score, {}};
    for (int64_t k = 4; k + 1 < values; k += 2)
      box.points.push_back({raw(k) / input_width + a.x, raw(k + 1) / input_height + a.y});
    found.push_back(std::move(box));
  }
  std::stable_sort(found.begin(), found.end(), [](const Box& a, const Box& b) { return a.score > b.score; });

  std::vector<Box> kept;
  std::vector<bool> used(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (used[i]) continue;
    Box sum{0, 0, 0, 0, found[i].score, std::vector<std::pair<float, float>>(found[i].points.size())};
    float total = 0;
    for (size_t j = i; j < found.size(); ++j) {
      if (used[j] || Overlap(found[i], found[j]) < 0.3f) continue;
      used[j] = true;
      const Box& b = found[j];
      total += b.score;
      sum.left += b.score * b.left, sum.top += b.score * b.top;
      sum.right += b.score * b.right, sum.bottom += b.score * b.bottom;
      for (size_t k = 0; k < b.points.size(); ++k) {
        sum.points[k].first += b.score * b.points[k].first;
        sum.points[k].second += b.score * b.points[k].second;
      }
    }
    if (total <= 0) {  // a box without area does not even overlap itself
      used[i] = true;
      continue;
    }
    sum.left /= total, sum.top /= total, sum.right /= total, sum.bottom /= total;
    for (auto& [x, y] : sum.points) x /= total, y /= total;
    kept.push_back(std::move(sum));
  }
  return kept;
}

Result<std::string> Draw(const Meaning& meaning, std::span<const HostTensor> outputs, const Shape& input_shape, const Fit& fit,
                         Image& picture) {
  const int width = int(input_shape[2]), height = int(input_shape[1]);
  auto to_x = [&](float x) { return (x - fit.left) / fit.width * picture.width; };
  auto to_y = [&](float y) { return (y - fit.top) / fit.height * picture.height; };
  const int thickness = std::max(2, picture.width / 200);
  static constexpr uint8_t kGreen[3] = {60, 220, 90}, kRed[3] = {235, 60, 60};

  switch (meaning.kind) {
    case Meaning::Kind::kNone:
      return Error{
          Code::kUnsupported,
          "Leeway does not know what the outputs of this model mean, so there is nothing to draw; save them with --outputs."};
    case Meaning::Kind::kMask: {
      const HostTensor& mask = outputs[size_t(meaning.output)];
      std::vector<float> alpha = mask.ToF32();
      if (meaning.mask_is_logit)
        for (float& a : alpha) a = Sigmoid(a);
      alpha = Resize(alpha, int(mask.shape()[2]), int(mask.shape()[1]), 1, picture.width, picture.height);
      double covered = 0;
      static constexpr uint8_t kBack[3] = {32, 110, 190};
      for (int y = 0; y < picture.height; ++y)
        for (int x = 0; x < picture.width; ++x) {
          const float a = std::clamp(alpha[size_t(y) * picture.width + x], 0.0f, 1.0f);
          covered += a;
          uint8_t* p = picture.at(x, y);
          for (int c = 0; c < 3; ++c) p[c] = uint8_t(std::lround(a * p[c] + (1 - a) * kBack[c]));
        }
      char text[80];
      std::snprintf(text, sizeof text, "%s: covers %.1f %% of the picture", meaning.what.c_str(),
                    100 * covered / (double(picture.width) * picture.height));
      return std::string(text);
    }
    case Meaning::Kind::kBoxes: {
      const std::vector<Box> found =
          DecodeBoxes(meaning, outputs[size_t(meaning.boxes)], outputs[size_t(meaning.scores)], width, height, 0.5f);
      std::string text = StrCat(meaning.what, ": ", found.size(), " found");
      for (const Box& box : found) {
        Frame(picture, to_x(box.left), to_y(box.top), to_x(box.right), to_y(box.bottom), thickness, kGreen);
        for (auto [x, y] : box.points) FillCircle(picture, to_x(x), to_y(y), thickness * 1.5f, kRed);
        char line[100];
        std::snprintf(line, sizeof line, "; score %.2f at (%.0f, %.0f)-(%.0f, %.0f)", box.score, to_x(box.left), to_y(box.top),
                      to_x(box.right), to_y(box.bottom));
        text += line;
      }
      return text;
    }
    case Meaning::Kind::kLandmarks: {
      const HostTensor& points = outputs[size_t(meaning.output)];
      const int64_t count = points.element_count() / meaning.values_per_point;
      for (int64_t i = 0; i < count; ++i) {
        const float x = float(points.Get(i * meaning.values_per_point)) / width;
        const float y = float(points.Get(i * meaning.values_per_point + 1)) / height;
        FillCircle(picture, to_x(x), to_y(y), count > 100 ? thickness * 0.6f : thickness * 1.2f, kGreen);
      }
      std::string text = StrCat(meaning.what, ": ", count, " points");
      if (meaning.confidence >= 0) {
        char line[60];
        std::snprintf(line, sizeof line, ", confidence output %.3f", outputs[size_t(meaning.confidence)].Get(0));
        text += line;
      }
      return text;
    }
  }
  return Error{Code::kInternal, "An output meaning has no drawing."};
}

}  // namespace leeway::cli
