// average_pool_2d, max_pool_2d, l2_pool_2d: mean, largest or root of the mean square of each window, channel by channel. Pixels
// that same padding adds are no part of a window; those of a folded PAD are zeros that count.
//   direct   one invocation per slice of four channels of a pixel
//   tree     big windows on GPUs: a workgroup per slice, the window cut among its lanes
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/conv_shape.h"
#include "ops/dispatch.h"
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

constexpr std::string_view kDirect = R"(
tensor x[batch, row, column, channel] : read;
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const operation : u32;  // 0 mean, 1 largest, 2 root of the mean square
const kernel_y : i32;
const kernel_x : i32;
const stride_y : i32;
const stride_x : i32;
const before_y : i32;
const before_x : i32;
// Rows and columns that count, zeros where the input has none.
const first_row : i32;
const end_row : i32;
const first_column : i32;
const end_column : i32;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  if (index >= y.batch * y.row * y.column * slices) { return; }
  let slice = index % slices;
  let column = index / slices % y.column;
  let row = index / (slices * y.column) % y.row;
  let batch = index / (slices * y.column * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  let low_y = max(top, first_row);
  let high_y = min(top + kernel_y, end_row);
  let low_x = max(left, first_column);
  let high_x = min(left + kernel_x, end_column);
  var value = vec4f(0.0);
  if (operation == 1u) { value = vec4f(-3.4e38); }
  for (var iy = low_y; iy < high_y; iy++) {
    for (var ix = low_x; ix < high_x; ix++) {
      let v = x.load4_or_zero(batch, iy, ix, slice);
      if (operation == 0u) {
        value += v;
      } else if (operation == 1u) {
        value = max(value, v);
      } else {
        value += v * v;
      }
    }
  }
  let count = f32((high_y - low_y) * (high_x - low_x));
  if (operation == 0u) { value = value / count; }
  if (operation == 2u) { value = sqrt(value / count); }
  y.store4(value, batch, row, column, slice);
}
)";

constexpr std::string_view kTree = R"(
tensor x[batch, row, column, channel] : read;
tensor y[batch, row, column, channel] : write;
const groups_per_row : u32;
const operation : u32;  // 0 mean, 1 largest, 2 root of the mean square
const kernel_y : i32;
const kernel_x : i32;
const stride_y : i32;
const stride_x : i32;
const before_y : i32;
const before_x : i32;
const first_row : i32;
const end_row : i32;
const first_column : i32;
const end_column : i32;
var<workgroup> parts : array<vec4f, 256>;

fn join(a : vec4f, b : vec4f) -> vec4f {
  if (operation == 1u) { return max(a, b); }
  return a + b;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = group.y * groups_per_row + group.x;
  let slices = (y.channel + 3u) / 4u;
  if (index >= y.batch * y.row * y.column * slices) { return; }
  let slice = index % slices;
  let column = index / slices % y.column;
  let row = index / (slices * y.column) % y.row;
  let batch = index / (slices * y.column * y.row);
  let top = i32(row) * stride_y - before_y;
  let left = i32(column) * stride_x - before_x;
  let low_y = max(top, first_row);
  let high_y = min(top + kernel_y, end_row);
  let low_x = max(left, first_column);
  let high_x = min(left + kernel_x, end_column);
  let width = u32(high_x - low_x);
  let count = u32(high_y - low_y) * width;
  var value = vec4f(0.0);
  if (operation == 1u) { value = vec4f(-3.4e38); }
  for (var i = lane; i < count; i += 256u) {
    let v = x.load4_or_zero(batch, low_y + i32(i / width), low_x + i32(i % width), slice);
    if (operation == 2u) {
      value += v * v;
    } else {
      value = join(value, v);
    }
  }
  parts[lane] = value;
  workgroupBarrier();
  for (var half = 128u; half > 0u; half = half / 2u) {
    if (lane < half) { parts[lane] = join(parts[lane], parts[lane + half]); }
    workgroupBarrier();
  }
  if (lane == 0u) {
    value = parts[0];
    if (operation == 0u) { value = value / f32(count); }
    if (operation == 2u) { value = sqrt(value / f32(count)); }
    y.store4(value, batch, row, column, slice);
  }
}
)";

template <Pool pool>
Result<OpPlan> Plan(const KernelRequest& request, bool tree) {
  ASSIGN_OR_RETURN(ConvAxes axes, Windows(request.call, Name(pool)));
  const Shape& y = request.call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  KernelDispatch dispatch{
      .kernel_name = tree ? "pool_2d_tree" : "pool_2d_direct", .kernel_text = tree ? kTree : kDirect, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0), OutputArgument("y", 0)};
  dispatch.consts = {{"operation", double(int(pool))},
                     {"kernel_y", double(axes.y.kernel)},
                     {"kernel_x", double(axes.x.kernel)},
                     {"stride_y", double(axes.y.stride)},
                     {"stride_x", double(axes.x.stride)},
                     {"before_y", double(axes.y.before)},
                     {"before_x", double(axes.x.before)},
                     {"first_row", double(-axes.y.explicit_before)},
                     {"end_row", double(axes.y.input + axes.y.explicit_after)},
                     {"first_column", double(-axes.x.explicit_before)},
                     {"end_column", double(axes.x.input + axes.x.explicit_after)}};
  const int64_t outputs = y[0] * y[1] * y[2] * Slices(y[3]);
  if (tree) {
    SetGroupGrid(dispatch, request, outputs);
  } else {
    SetLinearGrid(dispatch, request, outputs);
  }
  dispatch.flops = double(y.element_count()) * double(axes.y.kernel * axes.x.kernel);
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

template <Pool pool>
Result<OpPlan> PlanDirect(const KernelRequest& request) {
  return Plan<pool>(request, false);
}
template <Pool pool>
Result<OpPlan> PlanTree(const KernelRequest& request) {
  return Plan<pool>(request, true);
}

// Windows of many elements with few outputs: one invocation's chain of loads would leave the rest of the GPU idle.
template <Pool pool>
bool AcceptTree(const KernelRequest& request) {
  const Result<ConvAxes> axes = Windows(request.call, Name(pool));
  return axes.ok() && !request.target.is_software && request.target.max_invocations >= 256 &&
         axes->y.kernel * axes->x.kernel >= 64 && request.call.outputs[0].shape.element_count() > 0;
}

template <Pool pool>
constexpr KernelVariant kVariants[] = {
    {.name = "tree",
     .what = "a workgroup per output slice, its window cut among the lanes: big windows on GPUs",
     .accepts = AcceptTree<pool>,
     .plan = PlanTree<pool>},
    {.name = "direct",
     .what = "one slice of channels of a pixel per invocation",
     .accepts = AcceptAlways,
     .plan = PlanDirect<pool>},
};
template <Pool pool>
constexpr OpKernels kKernels = {.variants = kVariants<pool>};

}  // namespace

extern const OpDef op_average_pool_2d = {.name = Name(Pool::kAverage),
                                         .attrs = Attrs(),
                                         .infer = Infer<Pool::kAverage>,
                                         .reference = Reference<Pool::kAverage>,
                                         .accepts_explicit_padding = true,
                                         .kernels = &kKernels<Pool::kAverage>,
                                         .tflite = kAverageNames};
extern const OpDef op_max_pool_2d = {.name = Name(Pool::kMax),
                                     .attrs = Attrs(),
                                     .infer = Infer<Pool::kMax>,
                                     .reference = Reference<Pool::kMax>,
                                     .accepts_explicit_padding = true,
                                     .kernels = &kKernels<Pool::kMax>,
                                     .tflite = kMaxNames};
extern const OpDef op_l2_pool_2d = {.name = Name(Pool::kL2),
                                    .attrs = Attrs(),
                                    .infer = Infer<Pool::kL2>,
                                    .reference = Reference<Pool::kL2>,
                                    .accepts_explicit_padding = true,
                                    .kernels = &kKernels<Pool::kL2>,
                                    .tflite = kL2Names};

}  // namespace leeway
