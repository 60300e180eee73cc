// rope: rotates pairs of elements of each head by angles that grow with the row's position.
//   inputs    x [M, H, D]; step (ops/step.h); turns u32[R / 2], R <= D: what pair i turns by per position (ops/rope.h)
//   result    like x: pair i is elements (i, i + R / 2), or (2i, 2i + 1) where `interleaved`; elements from R on are x's
//   slices    one invocation per slice of four elements
//   single    one invocation per element; any R and D
// Angles are whole numbers modulo 2^32, and sine and cosine are polynomials over an eighth of a turn: the same on every device,
// whatever its own sin and cos are worth.
#include "ops/rope.h"

#include <cmath>
#include <numbers>

#include "ops/assemble.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/step.h"
#include "ops/weights.h"

namespace leeway {

uint32_t TurnOf(double radians) {
  const double turn = radians / (2 * std::numbers::pi);
  return uint32_t(int64_t(std::llround((turn - std::floor(turn)) * 4294967296.0)));
}

std::vector<uint32_t> RopeTurns(double base, int64_t pairs, std::span<const double> factors) {
  std::vector<uint32_t> turns;
  for (int64_t i = 0; i < pairs; ++i) {
    const double factor = factors.empty() ? 1.0 : factors[size_t(i)];
    turns.push_back(TurnOf(std::pow(base, -double(i) / double(pairs)) / factor));
  }
  return turns;
}

namespace {

constexpr const char* kOp = "rope";
const AttrField kAttrs[] = {{"interleaved", false, "Pairs are neighbours, not half the rotated elements apart."},
                            {"last", false, kLastRowsDoc}};

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 3, 3));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, 0));
  RETURN_IF_ERROR(ExpectRank(call, kOp, 0, 3, 3));
  RETURN_IF_ERROR(ExpectStep(call, kOp, 1));
  const TensorType& turns = call.inputs[2].type;
  const int64_t head = InputShape(call, 0)[2];
  if (turns.dtype != DType::kU32 || turns.shape.rank() != 1 || turns.shape[0] == 0 || 2 * turns.shape[0] > head) {
    return Invalid("Operator rope has turns of type ", turns.ToString(), " for heads of ", head,
                   " elements; it takes u32 numbers, from one to half as many.");
  }
  return std::vector<TensorType>{call.inputs[0].type};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const Shape& shape = inputs[0].shape();
  const std::vector<float> x = inputs[0].ToF32();
  std::vector<float> y = x;
  const std::span<const uint32_t> turns = inputs[2].as<uint32_t>();
  const int64_t rows = shape[0], heads = shape[1], head_size = shape[2], pairs = int64_t(turns.size());
  const bool interleaved = call.attrs.GetBool("interleaved");
  const int64_t first = FirstPosition(StepOf(inputs[1]), rows, call.attrs.GetBool("last"));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < pairs; ++i) {
      const uint32_t turn = uint32_t(first + row) * turns[size_t(i)];
      const double angle = double(int32_t(turn)) / 4294967296.0 * 2 * std::numbers::pi;
      const double cosine = std::cos(angle), sine = std::sin(angle);
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t start = (row * heads + head) * head_size;
        const size_t one = size_t(start + (interleaved ? 2 * i : i)),
                     other = size_t(start + (interleaved ? 2 * i + 1 : i + pairs));
        y[one] = float(x[one] * cosine - x[other] * sine);
        y[other] = float(x[other] * cosine + x[one] * sine);
      }
    }
  }
  StoreF32(outputs[0], y);
  return {};
}

// Texts share these declarations.
constexpr char kCommon[] = R"(
tensor x[row, head, inner] : read;
tensor run[field] : read as i32;
tensor turns[pair] : read as u32;
tensor y[row, head, inner] : write;
const groups_per_row : u32;
const interleaved : bool;
const last : bool;

fn position_of(row : u32) -> u32 {
  if last { return u32(run.load(0u) + run.load(1u)) + row - x.row; }
  return u32(run.load(0u)) + row;
}

)";

constexpr auto kSlices = JoinTexts(kCommon, R"(
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  const slices = x.inner / 4u;
  if (index >= x.row * x.head * slices) { return; }
  let slice = index % slices;
  let head = index / slices % x.head;
  let row = index / (slices * x.head);
  let v = x.load4(row, head, slice);
  if (4u * slice >= 2u * turns.pair) {
    y.store4(v, row, head, slice);
    return;
  }
  let position = position_of(row);
  if interleaved {
    let a = cos_sin_of_turn(position * turns.load(2u * slice));
    let b = cos_sin_of_turn(position * turns.load(2u * slice + 1u));
    y.store4(v * vec4f(a.x, a.x, b.x, b.x) + v.yxwz * vec4f(-a.y, a.y, -b.y, b.y), row, head, slice);
  } else {
    const half = turns.pair / 4u;
    let is_first = slice < half;
    let pairs = select(slice - half, slice, is_first);
    let other = x.load4(row, head, select(slice - half, slice + half, is_first));
    let a = cos_sin_of_turn(position * turns.load(4u * pairs));
    let b = cos_sin_of_turn(position * turns.load(4u * pairs + 1u));
    let c = cos_sin_of_turn(position * turns.load(4u * pairs + 2u));
    let d = cos_sin_of_turn(position * turns.load(4u * pairs + 3u));
    let sine = vec4f(a.y, b.y, c.y, d.y);
    y.store4(v * vec4f(a.x, b.x, c.x, d.x) + other * select(sine, -sine, is_first), row, head, slice);
  }
}
)");

constexpr auto kSingle = JoinTexts(kCommon, R"(
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  if (index >= x.row * x.head * x.inner) { return; }
  let inner = index % x.inner;
  let head = index / x.inner % x.head;
  let row = index / (x.inner * x.head);
  let v = x.load(row, head, inner);
  if (inner >= 2u * turns.pair) {
    y.store(v, row, head, inner);
    return;
  }
  var pair = inner / 2u;
  var is_first = inner % 2u == 0u;
  var other = select(inner - 1u, inner + 1u, is_first);
  if !interleaved {
    is_first = inner < turns.pair;
    pair = select(inner - turns.pair, inner, is_first);
    other = select(inner - turns.pair, inner + turns.pair, is_first);
  }
  let angle = cos_sin_of_turn(position_of(row) * turns.load(pair));
  y.store(v * angle.x + x.load(row, head, other) * select(angle.y, -angle.y, is_first), row, head, inner);
}
)");

template <bool slices>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const Shape& shape = call.outputs[0].shape;
  OpPlan plan;
  if (shape.element_count() == 0) return plan;
  KernelDispatch dispatch{.kernel_name = slices ? "rope_slices" : "rope_single",
                          .kernel_text = slices ? kSlices.data() : kSingle.data(),
                          .stores_result = true};
  dispatch.tensors = {InputArgument("x", 0), InputArgument("run", 1), InputArgument("turns", 2), OutputArgument("y", 0)};
  dispatch.consts = {{"interleaved", double(call.attrs.GetBool("interleaved"))}, {"last", double(call.attrs.GetBool("last"))}};
  SetLinearGrid(dispatch, request, slices ? shape.element_count() / 4 : shape.element_count());
  dispatch.flops = 20.0 * double(shape.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

bool AcceptSlices(const KernelRequest& request) {
  const int64_t pairs = InputShape(request.call, 2)[0];
  return InputShape(request.call, 0)[2] % 4 == 0 && (request.call.attrs.GetBool("interleaved") ? pairs % 2 : pairs % 4) == 0;
}

constexpr KernelVariant kVariants[] = {
    {.name = "slices", .what = "one invocation per slice of four elements", .accepts = AcceptSlices, .plan = Plan<true>},
    {.name = "single", .what = "one invocation per element", .accepts = AcceptAlways, .plan = Plan<false>},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_rope = {.name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels};

}  // namespace leeway
