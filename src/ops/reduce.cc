// mean, sum, reduce_max, reduce_min, reduce_prod, reduce_any, reduce_all: over any set of axes.
//   tree     one workgroup per result (four results where the last axis is kept), for few results of many elements
//   serial   one invocation per result, or per four of them; any shape, any target
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/dispatch.h"
#include "ops/elementwise.h"
#include "ops/strided.h"

namespace leeway {
namespace {

enum class Reduce { kMean, kSum, kMax, kMin, kProd, kAny, kAll };

struct Row {
  const char* name;
  const char* tflite;
  double start;
};
constexpr Row kRows[] = {
    {"mean", "MEAN", 0},
    {"sum", "SUM", 0},
    {"reduce_max", "REDUCE_MAX", -std::numeric_limits<double>::infinity()},
    {"reduce_min", "REDUCE_MIN", std::numeric_limits<double>::infinity()},
    {"reduce_prod", "REDUCE_PROD", 1},
    {"reduce_any", "REDUCE_ANY", 0},
    {"reduce_all", "REDUCE_ALL", 1},
};
constexpr const Row& RowOf(Reduce kind) { return kRows[int(kind)]; }

const AttrField kAttrs[] = {{"keep_dims", false, "Reduced axes stay, with extent 1."}};

Result<std::vector<bool>> ReducedAxes(const OpCall& call, const char* op) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, ConstantInts(call, op, 1, "axes"));
  std::vector<bool> reduced(size_t(InputShape(call, 0).rank()), false);
  for (int64_t given : axes) {
    ASSIGN_OR_RETURN(int axis, ResolveAxis(given, InputShape(call, 0).rank(), op));
    reduced[size_t(axis)] = true;
  }
  return reduced;
}

template <Reduce kind>
InferredTypes Infer(const OpCall& call) {
  const char* op = RowOf(kind).name;
  RETURN_IF_ERROR(ExpectInputs(call, op, 2, 2));
  const DType dtype = call.inputs[0].type.dtype;
  if (kind == Reduce::kAny || kind == Reduce::kAll) {
    if (dtype != DType::kBool) return Invalid("Operator ", op, " has an input of type ", DTypeName(dtype), "; it takes bool.");
  } else if (!(dtype == DType::kF32 || dtype == DType::kF16 || IsInteger(dtype)) ||
             (call.inputs[0].quantization != nullptr && !call.inputs[0].quantization->scales.empty())) {
    return Unsupported("Operator ", op, " has an input of type ", DTypeName(dtype),
                       "; it takes floats and integers that are not quantized.");
  }
  ASSIGN_OR_RETURN(std::vector<bool> reduced, ReducedAxes(call, op));
  Shape shape;
  for (int axis = 0; axis < InputShape(call, 0).rank(); ++axis) {
    if (!reduced[size_t(axis)]) {
      shape.push_back(InputShape(call, 0)[axis]);
    } else if (call.attrs.GetBool("keep_dims")) {
      shape.push_back(1);
    }
  }
  return std::vector<TensorType>{{dtype, shape}};
}

template <Reduce kind>
double Combine(double a, double b) {
  switch (kind) {
    case Reduce::kMean:
    case Reduce::kSum: return a + b;
    case Reduce::kMax: return std::max(a, b);
    case Reduce::kMin: return std::min(a, b);
    case Reduce::kProd: return a * b;
    case Reduce::kAny: return double(a != 0 || b != 0);
    case Reduce::kAll: return double(a != 0 && b != 0);
  }
  return 0;
}

template <Reduce kind>
Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(std::vector<bool> reduced, ReducedAxes(call, RowOf(kind).name));
  const HostTensor& x = inputs[0];
  const Shape& shape = x.shape();
  std::vector<double> results(size_t(outputs[0].element_count()), RowOf(kind).start);
  Strides to{};  // of the result, along the input's axes
  int64_t step = 1, count = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (reduced[size_t(axis)]) {
      count *= shape[axis];
    } else {
      to[size_t(axis)] = step;
      step *= shape[axis];
    }
  }
  const std::vector<float> floats = IsFloat(x.dtype()) ? x.ToF32() : std::vector<float>();
  ForEachOffset<2>(shape, {RowMajorStrides(shape), to}, {0, 0}, [&](const std::array<int64_t, 2>& at) {
    double& result = results[size_t(at[1])];
    result = Combine<kind>(result, floats.empty() ? x.Get(at[0]) : double(floats[size_t(at[0])]));
  });
  for (size_t i = 0; i < results.size(); ++i) {
    double result = results[i];
    if (kind == Reduce::kMean) result /= double(count);
    if (IsFloat(x.dtype()) || x.dtype() == DType::kBool) {
      outputs[0].Set(int64_t(i), result);
    } else if (std::isinf(result)) {
      outputs[0].Set(int64_t(i), result);  // an empty reduction: saturates
    } else {
      SetWrapped(outputs[0], int64_t(i), int64_t(std::trunc(result)));
    }
  }
  return {};
}

// ---- kernels ----------------------------------------------------------------------------------------------------------
//
// The input is seen as [outer, reduced, element]. Where the last axis is kept it is `element`, and a result is four of its
// elements; where it is reduced too it is `element`, and `reduced` are the others.

constexpr char kF32Head[] = R"(
tensor x[outer, reduced, element] : read as f32;
alias Element = f32;
alias Four = vec4<f32>;
const divisor : f32;
)";
constexpr char kI32Head[] = R"(
tensor x[outer, reduced, element] : read as i32;
alias Element = i32;
alias Four = vec4<i32>;
const divisor : i32;
)";
constexpr char kU32Head[] = R"(
tensor x[outer, reduced, element] : read as u32;
alias Element = u32;
alias Four = vec4<u32>;
const divisor : u32;
)";

// operation: 0 sum (divided by `divisor`), 1 largest, 2 smallest, 3 product.
constexpr char kKeepLast[] = R"(
const groups_per_row : u32;
const operation : u32;
fn combine(a : Four, b : Four) -> Four {
  if (operation == 0u) { return a + b; } else if (operation == 1u) { return max(a, b); } else if (operation == 2u) { return min(a, b); } else { return a * b; }
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = (group.y * groups_per_row + group.x) * 64u + lane;
  let slices = (y.element + 3u) / 4u;
  if (index >= y.outer * slices) { return; }
  let slice = index % slices;
  let outer = index / slices;
  var value = x.load4(outer, 0u, slice);
  for (var i = 1u; i < x.reduced; i++) { value = combine(value, x.load4(outer, i, slice)); }
  if (operation == 0u) { value = value / divisor; }
  y.store4(value, outer, slice);
}
)";
constexpr char kKeepLastTree[] = R"(
const groups_per_row : u32;
const operation : u32;
var<workgroup> partial : array<Four, 64>;
fn combine(a : Four, b : Four) -> Four {
  if (operation == 0u) { return a + b; } else if (operation == 1u) { return max(a, b); } else if (operation == 2u) { return min(a, b); } else { return a * b; }
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let index = group.y * groups_per_row + group.x;
  let slices = (y.element + 3u) / 4u;
  if (index >= y.outer * slices) { return; }
  let slice = index % slices;
  let outer = index / slices;
  var value = Four(0);
  if (lane < x.reduced) { value = x.load4(outer, lane, slice); }
  for (var i = lane + 64u; i < x.reduced; i += 64u) { value = combine(value, x.load4(outer, i, slice)); }
  partial[lane] = value;
  workgroupBarrier();
  // Lanes from x.reduced on have nothing.
  for (var half = 32u; half > 0u; half = half / 2u) {
    if (lane < half && lane + half < x.reduced) { partial[lane] = combine(partial[lane], partial[lane + half]); }
    workgroupBarrier();
  }
  if (lane == 0u) {
    var result = partial[0];
    if (operation == 0u) { result = result / divisor; }
    y.store4(result, outer, slice);
  }
}
)";
constexpr char kReduceLast[] = R"(
const groups_per_row : u32;
const operation : u32;
fn combine(a : Element, b : Element) -> Element {
  if (operation == 0u) { return a + b; } else if (operation == 1u) { return max(a, b); } else if (operation == 2u) { return min(a, b); } else { return a * b; }
}
fn combine4(a : Four, b : Four) -> Four {
  if (operation == 0u) { return a + b; } else if (operation == 1u) { return max(a, b); } else if (operation == 2u) { return min(a, b); } else { return a * b; }
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let outer = (group.y * groups_per_row + group.x) * 64u + lane;
  if (outer >= x.outer) { return; }
  let slices = (x.element + 3u) / 4u;
  // What changes nothing when it is combined.
  var neutral = x.load(outer, 0u, 0u);
  if (operation == 0u) { neutral = Element(0); }
  if (operation == 3u) { neutral = Element(1); }
  var value = Four(neutral);
  for (var i = 0u; i < x.reduced; i++) {
    for (var s = 0u; s < slices; s++) {
      let inside = vec4u(4u * s) + vec4u(0u, 1u, 2u, 3u) < vec4u(x.element);
      value = combine4(value, select(Four(neutral), x.load4(outer, i, s), inside));
    }
  }
  var result = combine(combine(value.x, value.y), combine(value.z, value.w));
  if (operation == 0u) { result = result / divisor; }
  y.store(result, outer);
}
)";
constexpr char kReduceLastTree[] = R"(
const groups_per_row : u32;
const operation : u32;
var<workgroup> partial : array<Element, 64>;
fn combine(a : Element, b : Element) -> Element {
  if (operation == 0u) { return a + b; } else if (operation == 1u) { return max(a, b); } else if (operation == 2u) { return min(a, b); } else { return a * b; }
}
fn combine4(a : Four, b : Four) -> Four {
  if (operation == 0u) { return a + b; } else if (operation == 1u) { return max(a, b); } else if (operation == 2u) { return min(a, b); } else { return a * b; }
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let outer = group.y * groups_per_row + group.x;
  if (outer >= x.outer) { return; }
  let slices = (x.element + 3u) / 4u;
  var neutral = x.load(outer, 0u, 0u);
  if (operation == 0u) { neutral = Element(0); }
  if (operation == 3u) { neutral = Element(1); }
  var value = Four(neutral);
  for (var i = lane; i < x.reduced * slices; i += 64u) {
    let s = i % slices;
    let inside = vec4u(4u * s) + vec4u(0u, 1u, 2u, 3u) < vec4u(x.element);
    value = combine4(value, select(Four(neutral), x.load4(outer, i / slices, s), inside));
  }
  partial[lane] = combine(combine(value.x, value.y), combine(value.z, value.w));
  workgroupBarrier();
  for (var half = 32u; half > 0u; half = half / 2u) {
    if (lane < half) { partial[lane] = combine(partial[lane], partial[lane + half]); }
    workgroupBarrier();
  }
  if (lane == 0u) {
    var result = partial[0];
    if (operation == 0u) { result = result / divisor; }
    y.store(result, outer);
  }
}
)";
constexpr char kF32Slices[] = "tensor y[outer, element] : write as f32;\n";
constexpr char kI32Slices[] = "tensor y[outer, element] : write as i32;\n";
constexpr char kU32Slices[] = "tensor y[outer, element] : write as u32;\n";
constexpr char kF32Scalars[] = "tensor y[outer] : write as f32;\n";
constexpr char kI32Scalars[] = "tensor y[outer] : write as i32;\n";
constexpr char kU32Scalars[] = "tensor y[outer] : write as u32;\n";

template <const auto& body, const auto& head, const auto& result>
constexpr auto kText = JoinTexts(result, JoinTexts(head, body));
template <const auto& body>
constexpr TypedText kSliceTexts = {kText<body, kF32Head, kF32Slices>.data(), kText<body, kI32Head, kI32Slices>.data(),
                                   kText<body, kU32Head, kU32Slices>.data()};
template <const auto& body>
constexpr TypedText kScalarTexts = {kText<body, kF32Head, kF32Scalars>.data(), kText<body, kI32Head, kI32Scalars>.data(),
                                    kText<body, kU32Head, kU32Scalars>.data()};

struct Form {
  bool keeps_last = false;
  int64_t outer = 1, reduced = 1, element = 1;
  CoordMap x, y;
};

Form MakeForm(const Shape& shape, const std::vector<bool>& reduced, bool keep_dims) {
  Form form;
  const int rank = shape.rank();
  form.keeps_last = rank > 0 && !reduced.back();
  form.element = rank == 0 ? 1 : shape.at(-1);
  form.x.coords.resize(size_t(rank));
  IndexExpr outer = IndexExpr::Axis(0), inner = IndexExpr::Axis(1);
  for (int axis = rank - 1; axis >= 0; --axis) {
    IndexExpr& at = form.x.coords[size_t(axis)];
    if (axis == rank - 1) {
      at = IndexExpr::Axis(2);
      continue;
    }
    IndexExpr& rest = reduced[size_t(axis)] ? inner : outer;
    int64_t& count = reduced[size_t(axis)] ? form.reduced : form.outer;
    const int64_t extent = std::max<int64_t>(shape[axis], 1);
    at = Mod(rest, extent);
    rest = Div(rest, extent);
    count *= shape[axis];
  }
  for (int axis = 0; axis < rank; ++axis) {
    if (reduced[size_t(axis)]) {
      if (keep_dims) form.y.coords.push_back(IndexExpr::Const(0));
    } else {
      form.y.coords.push_back(axis == rank - 1 ? IndexExpr::Axis(1) : form.x.coords[size_t(axis)]);
    }
  }
  return form;
}

template <Reduce kind, bool tree>
Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(std::vector<bool> reduced, ReducedAxes(call, RowOf(kind).name));
  const Shape& shape = InputShape(call, 0);
  const Form form = MakeForm(shape, reduced, call.attrs.GetBool("keep_dims"));
  OpPlan plan;
  if (call.outputs[0].shape.element_count() == 0) return plan;
  const DType dtype = call.inputs[0].type.dtype;
  KernelDispatch dispatch{.kernel_name = tree ? "reduce_tree" : "reduce_serial", .stores_result = true};
  const int64_t results = form.keeps_last ? form.outer * Slices(form.element) : form.outer;
  if (form.keeps_last) {
    dispatch.kernel_text = tree ? kSliceTexts<kKeepLastTree>.For(dtype) : kSliceTexts<kKeepLast>.For(dtype);
  } else {
    dispatch.kernel_text = tree ? kScalarTexts<kReduceLastTree>.For(dtype) : kScalarTexts<kReduceLast>.For(dtype);
  }
  dispatch.tensors = {InputArgument("x", 0, Shape{form.outer, form.reduced, form.element}, form.x),
                      OutputArgument("y", 0, form.keeps_last ? Shape{form.outer, form.element} : Shape{form.outer}, form.y)};
  const int64_t count = form.keeps_last ? form.reduced : form.reduced * form.element;
  constexpr int kOperation[] = {0, 0, 1, 2, 3, 1, 2};  // by Reduce: any is the largest of 0 and 1, all the smallest
  dispatch.consts = {{"operation", double(kOperation[int(kind)])}, {"divisor", kind == Reduce::kMean ? double(count) : 1.0}};
  if (tree) {
    SetGroupGrid(dispatch, request, results);
  } else {
    SetLinearGrid(dispatch, request, results);
  }
  dispatch.flops = double(shape.element_count());
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}

// An empty reduction has a result that is in no element, and runs on the CPU.
bool AcceptSerial(const KernelRequest& request) {
  return InputShape(request.call, 0).element_count() > 0 || request.call.outputs[0].shape.element_count() == 0;
}
bool AcceptTree(const KernelRequest& request) {
  const int64_t results = request.call.outputs[0].shape.element_count();
  return AcceptSerial(request) && !request.target.is_software && results > 0 && results <= 65536 &&
         InputShape(request.call, 0).element_count() / results >= 128;
}

template <Reduce kind>
constexpr KernelVariant kVariants[] = {
    {.name = "tree",
     .what = "one workgroup per result, for few results of many elements",
     .accepts = AcceptTree,
     .plan = Plan<kind, true>},
    {.name = "serial", .what = "one invocation per result", .accepts = AcceptSerial, .plan = Plan<kind, false>},
};
template <Reduce kind>
constexpr OpKernels kKernels = {.variants = kVariants<kind>};

template <Reduce kind>
constexpr OpDef ReduceOp() {
  return {.name = RowOf(kind).name,
          .attrs = kAttrs,
          .infer = Infer<kind>,
          .reference = Reference<kind>,
          .kernels = &kKernels<kind>,
          .tflite = {&RowOf(kind).tflite, 1}};
}

}  // namespace

extern const OpDef op_mean = ReduceOp<Reduce::kMean>();
extern const OpDef op_sum = ReduceOp<Reduce::kSum>();
extern const OpDef op_reduce_max = ReduceOp<Reduce::kMax>();
extern const OpDef op_reduce_min = ReduceOp<Reduce::kMin>();
extern const OpDef op_reduce_prod = ReduceOp<Reduce::kProd>();
extern const OpDef op_reduce_any = ReduceOp<Reduce::kAny>();
extern const OpDef op_reduce_all = ReduceOp<Reduce::kAll>();

}  // namespace leeway
