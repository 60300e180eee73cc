// resize_bilinear, resize_nearest_neighbor: another height and width. Pixel i of the result lies at i * scale of the input
// (align_corners: first and last pixels fall together; half_pixel_centers: pixels are areas, so (i + 0.5) * scale - 0.5).
// Nearest only moves elements; where the scale is whole its coordinates are quotients, elsewhere tables.
//   direct   (bilinear) one invocation per slice of four channels of a pixel
#include <algorithm>
#include <cmath>
#include <memory>

#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/weights.h"

namespace leeway {
namespace {

const char* const kBilinearNames[] = {"RESIZE_BILINEAR"};
const char* const kNearestNames[] = {"RESIZE_NEAREST_NEIGHBOR"};
const AttrField kAttrs[] = {{"align_corners", false, "Corner pixels of input and result fall together."},
                            {"half_pixel_centers", false, "Pixels have their centers at half coordinates."}};

Result<Shape> ResizedShape(const OpCall& call, const char* op) {
  RETURN_IF_ERROR(ExpectInputs(call, op, 2, 2));
  RETURN_IF_ERROR(ExpectRank(call, op, 0, 4, 4));
  ASSIGN_OR_RETURN(std::vector<int64_t> size, ConstantInts(call, op, 1, "size"));
  const Shape& x = InputShape(call, 0);
  if (size.size() != 2 || size[0] < 1 || size[1] < 1 || x[1] < 1 || x[2] < 1) {
    return Invalid("Operator ", op, " resizes ", x.ToString(), " to [", Join(size, ", "),
                   "]; it takes a height and a width of at least 1.");
  }
  return ShapeFrom({x[0], size[0], size[1], x[3]}, op);
}

float Scale(const AttrSet& attrs, int64_t input, int64_t output) {
  return attrs.GetBool("align_corners") && output > 1 ? float(input - 1) / float(output - 1) : float(input) / float(output);
}

// ---- nearest ----------------------------------------------------------------------------------------------------------

// In f32 as the format's own kernels, so that ties fall the same way.
std::vector<int32_t> NearestTable(const AttrSet& attrs, int64_t input, int64_t output) {
  const float scale = Scale(attrs, input, output), offset = attrs.GetBool("half_pixel_centers") ? 0.5f : 0.0f;
  std::vector<int32_t> table;
  for (int64_t i = 0; i < output; ++i) {
    const float at = (float(i) + offset) * scale;
    const int64_t index = int64_t(attrs.GetBool("align_corners") ? std::round(at) : std::floor(at));
    table.push_back(int32_t(std::clamp<int64_t>(index, 0, input - 1)));
  }
  return table;
}

InferredTypes InferNearest(const OpCall& call) {
  ASSIGN_OR_RETURN(Shape shape, ResizedShape(call, "resize_nearest_neighbor"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

Status NearestReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape &from = inputs[0].shape(), &to = outputs[0].shape();
  const std::vector<int32_t> rows = NearestTable(call.attrs, from[1], to[1]),
                             columns = NearestTable(call.attrs, from[2], to[2]);
  int64_t at = 0;
  for (int64_t n = 0; n < to[0]; ++n) {
    for (int32_t row : rows) {
      for (int32_t column : columns) {
        const int64_t source = ((n * from[1] + row) * from[2] + column) * from[3];
        for (int64_t c = 0; c < to[3]; ++c, ++at) outputs[0].Set(at, inputs[0].Get(source + c));
      }
    }
  }
  return {};
}

IndexExpr NearestIndex(const AttrSet& attrs, int axis, int64_t input, int64_t output) {
  std::vector<int32_t> table = NearestTable(attrs, input, output);
  if (output % input == 0) {
    const int64_t factor = output / input;
    bool whole = true;
    for (int64_t i = 0; i < output; ++i) whole = whole && table[size_t(i)] == i / factor;
    if (whole) return Div(IndexExpr::Axis(axis), factor);
  }
  return IndexExpr::Table(std::make_shared<const std::vector<int32_t>>(std::move(table)), IndexExpr::Axis(axis));
}

Result<Movement> NearestMovement(const OpCall& call) {
  const Shape &from = InputShape(call, 0), &to = call.outputs[0].shape;
  return Movement{.map = {.coords = {IndexExpr::Axis(0), NearestIndex(call.attrs, 1, from[1], to[1]),
                                     NearestIndex(call.attrs, 2, from[2], to[2]), IndexExpr::Axis(3)}}};
}

// ---- bilinear ---------------------------------------------------------------------------------------------------------

InferredTypes InferBilinear(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, "resize_bilinear", 2, 2));
  RETURN_IF_ERROR(ExpectFloat(call, "resize_bilinear", 0));
  ASSIGN_OR_RETURN(Shape shape, ResizedShape(call, "resize_bilinear"));
  return std::vector<TensorType>{{call.inputs[0].type.dtype, shape}};
}

struct Between {
  int64_t low, high;
  double share;  // of `high`
};

Between BilinearPosition(const AttrSet& attrs, int64_t i, float scale, int64_t input) {
  const float at = attrs.GetBool("half_pixel_centers") ? (float(i) + 0.5f) * scale - 0.5f : float(i) * scale;
  const int64_t low = std::max<int64_t>(int64_t(std::floor(at)), 0);
  return {
      .low = std::min(low, input - 1), .high = std::min(low + 1, input - 1), .share = std::max(0.0, double(at) - double(low))};
}

Status BilinearReference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape &from = inputs[0].shape(), &to = outputs[0].shape();
  const std::vector<float> x = inputs[0].ToF32();
  std::vector<float> y(size_t(to.element_count()));
  const float scale_y = Scale(call.attrs, from[1], to[1]), scale_x = Scale(call.attrs, from[2], to[2]);
  const int64_t channels = from[3];
  float* out = y.data();
  for (int64_t n = 0; n < to[0]; ++n) {
    for (int64_t row = 0; row < to[1]; ++row) {
      const Between r = BilinearPosition(call.attrs, row, scale_y, from[1]);
      for (int64_t column = 0; column < to[2]; ++column, out += channels) {
        const Between c = BilinearPosition(call.attrs, column, scale_x, from[2]);
        auto pixel = [&](int64_t iy, int64_t ix) { return &x[size_t(((n * from[1] + iy) * from[2] + ix) * channels)]; };
        const float *p00 = pixel(r.low, c.low), *p01 = pixel(r.low, c.high), *p10 = pixel(r.high, c.low),
                    *p11 = pixel(r.high, c.high);
        for (int64_t i = 0; i < channels; ++i) {
          out[i] = float((p00[i] * (1 - c.share) + p01[i] * c.share) * (1 - r.share) +
                         (p10[i] * (1 - c.share) + p11[i] * c.share) * r.share);
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
const scale_y : f32;
const scale_x : f32;
const half_pixel_centers : bool;

fn position(i : u32, scale : f32) -> f32 {
  if (half_pixel_centers) {
    return (f32(i) + 0.5) * scale - 0.5;
  } else {
    return f32(i) * scale;
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.channel + 3u) / 4u;
  if (index >= y.batch * y.row * y.column * slices) { return; }
  let slice = index % slices;
  let column = index / slices % y.column;
  let row = index / (slices * y.column) % y.row;
  let batch = index / (slices * y.column * y.row);
  let at_y = position(row, scale_y);
  let at_x = position(column, scale_x);
  let low_y = min(u32(max(floor(at_y), 0.0)), x.row - 1u);
  let low_x = min(u32(max(floor(at_x), 0.0)), x.column - 1u);
  let high_y = min(low_y + 1u, x.row - 1u);
  let high_x = min(low_x + 1u, x.column - 1u);
  let share_y = max(at_y - f32(low_y), 0.0);
  let share_x = max(at_x - f32(low_x), 0.0);
  let upper = x.load4(batch, low_y, low_x, slice) * (1.0 - share_x) + x.load4(batch, low_y, high_x, slice) * share_x;
  let lower = x.load4(batch, high_y, low_x, slice) * (1.0 - share_x) + x.load4(batch, high_y, high_x, slice) * share_x;
  y.store4(upper * (1.0 - share_y) + lower * share_y, batch, row, column, slice);
}
)";

Result<OpPlan> PlanBilinear(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape &x = InputShape(call, 0), &y = call.outputs[0].shape;
  OpPlan plan;
  if (y.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = "resize_bilinear_direct", .kernel_text = kDirect, .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0), OutputArgument("y", 0)};
  dispatch.consts = {{"scale_y", double(Scale(call.attrs, x[1], y[1]))},
                     {"scale_x", double(Scale(call.attrs, x[2], y[2]))},
                     {"half_pixel_centers", double(call.attrs.GetBool("half_pixel_centers"))}};
  SetLinearGrid(dispatch, request, y[0] * y[1] * y[2] * Slices(y[3]));
  dispatch.flops = 8.0 * double(y.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

constexpr KernelVariant kBilinearVariants[] = {
    {.name = "direct",
     .what = "one slice of channels of a pixel per invocation",
     .accepts = AcceptAlways,
     .plan = PlanBilinear},
};
constexpr OpKernels kBilinearKernels = {.variants = kBilinearVariants};

}  // namespace

extern const OpDef op_resize_nearest_neighbor = {.name = "resize_nearest_neighbor",
                                                 .attrs = kAttrs,
                                                 .infer = InferNearest,
                                                 .reference = NearestReference,
                                                 .movement = NearestMovement,
                                                 .tflite = kNearestNames};
extern const OpDef op_resize_bilinear = {.name = "resize_bilinear",
                                         .attrs = kAttrs,
                                         .infer = InferBilinear,
                                         .reference = BilinearReference,
                                         .kernels = &kBilinearKernels,
                                         .tflite = kBilinearNames};

}  // namespace leeway
