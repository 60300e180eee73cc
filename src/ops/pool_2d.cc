// average_pool_2d, max_pool_2d, l2_pool_2d: mean, largest or root of the mean square of each window, channel by channel. Pixels
// that same padding adds are no part of a window; those of a folded PAD are zeros that count.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/conv_shape.h"
#include "ops/weights.h"

namespace leeway {
namespace {

enum class Pool { kAverage, kMax, kL2 };
constexpr const char* Name(Pool pool) {
  return pool == Pool::kAverage ? "average_pool_2d" : pool == Pool::kMax ? "max_pool_2d" : "l2_pool_2d";
}

const char* const kAverageNames[] = {"AVERAGE_POOL_2D"};
const char* const kMaxNames[] = {"MAX_POOL_2D"};
const char* const kL2Names[] = {"L2_POOL_2D"};

const std::vector<AttrField>& Attrs() {
  static const std::vector<AttrField> attrs = [] {
    std::vector<AttrField> list;
    for (const AttrField& field : ConvAttrs()) {
      if (std::string_view(field.name).substr(0, 8) != "dilation") list.push_back(field);
    }
    list.push_back({"filter_height", int64_t{1}, "Rows of a window."});
    list.push_back({"filter_width", int64_t{1}, "Columns of a window."});
    return list;
  }();
  return attrs;
}

Result<ConvAxes> Windows(const OpCall& call, const char* op) {
  return ConvWindows(call, op, InputShape(call, 0), call.attrs.GetInt("filter_height", 1),
                     call.attrs.GetInt("filter_width", 1));
}

template <Pool pool>
InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, Name(pool), 1, 1));
  RETURN_IF_ERROR(ExpectFloat(call, Name(pool), 0));
  RETURN_IF_ERROR(ExpectRank(call, Name(pool), 0, 4, 4));
  const Shape& x = InputShape(call, 0);
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call, Name(pool)));
  ASSIGN_OR_RETURN(Shape shape, ShapeFrom({x[0], axes.y.output, axes.x.output, x[3]}, Name(pool)));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

template <Pool pool>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(call, Name(pool)));
  const Shape& shape = inputs[0].shape();
  const int64_t channels = shape[3];
  const std::vector<float> x = inputs[0].ToF32();
  std::vector<float> y(size_t(outputs[0].element_count()));
  std::vector<double> values(static_cast<size_t>(channels));
  float* to = y.data();
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t row = 0; row < axes.y.output; ++row) {
      for (int64_t column = 0; column < axes.x.output; ++column, to += channels) {
        std::fill(values.begin(), values.end(), pool == Pool::kMax ? -std::numeric_limits<double>::infinity() : 0.0);
        int64_t count = 0;
        for (int64_t ky = 0; ky < axes.y.kernel; ++ky) {
          const int64_t iy = row * axes.y.stride - axes.y.before + ky;
          if (iy < -axes.y.explicit_before || iy >= shape[1] + axes.y.explicit_after) continue;
          for (int64_t kx = 0; kx < axes.x.kernel; ++kx) {
            const int64_t ix = column * axes.x.stride - axes.x.before + kx;
            if (ix < -axes.x.explicit_before || ix >= shape[2] + axes.x.explicit_after) continue;
            ++count;
            const bool zero = iy < 0 || iy >= shape[1] || ix < 0 || ix >= shape[2];
            const float* from = zero ? nullptr : &x[size_t(((n * shape[1] + iy) * shape[2] + ix) * channels)];
            for (int64_t c = 0; c < channels; ++c) {
              const double value = zero ? 0.0 : from[c];
              double& so_far = values[size_t(c)];
              so_far = pool == Pool::kMax ? std::max(so_far, value) : so_far + (pool == Pool::kL2 ? value * value : value);
            }
          }
        }
        for (int64_t c = 0; c < channels; ++c) {
          const double value = values[size_t(c)];
          to[c] = float(pool == Pool::kMax  ? value
                        : pool == Pool::kL2 ? std::sqrt(value / double(count))
                                            : value / double(count));
        }
      }
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

}  // namespace

extern const OpDef op_average_pool_2d = {.name = Name(Pool::kAverage),
                                         .attrs = Attrs(),
                                         .infer = Infer<Pool::kAverage>,
                                         .reference = Reference<Pool::kAverage>,
                                         .tflite = kAverageNames};
extern const OpDef op_max_pool_2d = {.name = Name(Pool::kMax),
                                     .attrs = Attrs(),
                                     .infer = Infer<Pool::kMax>,
                                     .reference = Reference<Pool::kMax>,
                                     .tflite = kMaxNames};
extern const OpDef op_l2_pool_2d = {.name = Name(Pool::kL2),
                                    .attrs = Attrs(),
                                    .infer = Infer<Pool::kL2>,
                                    .reference = Reference<Pool::kL2>,
                                    .tflite = kL2Names};

}  // namespace leeway
