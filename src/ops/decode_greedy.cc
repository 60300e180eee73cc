// decode_greedy: the end of a step of greedy decoding: final norm, product with the head, largest logit (of equal ones the
// first), and the state moved on as `sample` does it. Logits are never written.
//   argmax   a dispatch that prepares the input once, one with an argmax in each workgroup, one that picks; how the product
//            takes its input is the attribute `activations`
//   serial   CPUs: the few workgroups each prepare the input for themselves, and one invocation picks
#include <algorithm>
#include <cmath>

#include "ops/assemble.h"
#include "ops/decode_serial.h"
#include "ops/decode_stage.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/step.h"
#include "ops/weights.h"
#include "tensor/coord_map.h"

namespace leeway {
namespace {

constexpr const char* kOp = "decode_greedy";
const AttrField kAttrs[] = {{"epsilon", 1e-6, "Of the norms."},
                            {"activations", std::string("float"), "float or int8: how the product takes its input."}};
const OpDef::Update kUpdates[] = {{0, 5}, {1, 6}};

// Branch and its gain: both absent, or the normed branch is added to x first.
enum Operand : size_t { kX = 0, kBranch = 1, kGain = 2, kBranchGain = 3, kWeights = 4, kTokens = 5, kStep = 6 };

bool Int8(const OpCall& call) { return call.attrs.GetString("activations", "float") == "int8"; }

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 1, 7));
  if (call.inputs.size() != 7) return Invalid("Operator decode_greedy has ", call.inputs.size(), " inputs; expected 7.");
  RETURN_IF_ERROR(ExpectFloat(call, kOp, kX));
  RETURN_IF_ERROR(ExpectFloat(call, kOp, kWeights));
  RETURN_IF_ERROR(ExpectRank(call, kOp, kWeights, 2, 2));
  const int64_t inner = InputShape(call, kWeights)[1];
  if (HasInput(call, kBranch) != HasInput(call, kBranchGain)) {
    return Invalid("Operator decode_greedy has a branch without its gain, or the gain without a branch.");
  }
  for (size_t i : {kX, kBranch, kGain, kBranchGain}) {
    if (!HasInput(call, i)) {
      if (i == kBranch || i == kBranchGain) continue;
      return Invalid("Operator decode_greedy has no input ", i, ".");
    }
    if (InputShape(call, i).element_count() != inner) {
      return Invalid("Operator decode_greedy has an input ", i, " of shape ", InputShape(call, i).ToString(), "; expected ",
                     inner, " elements.");
    }
  }
  for (size_t i : {kTokens, kStep}) {
    if (!HasInput(call, i) || call.inputs[i].type.dtype != DType::kI32 || InputShape(call, i).rank() != 1) {
      return Invalid("Operator decode_greedy has an input ", i, " that is no vector of i32.");
    }
  }
  return std::vector<TensorType>{call.inputs[kTokens].type, call.inputs[kStep].type};
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  const double epsilon = call.attrs.GetFloat("epsilon", 1e-6);
  std::vector<double> x = Widened(inputs[kX]);
  if (HasInput(call, kBranch)) {
    const std::vector<double> branch = NormedRow(Widened(inputs[kBranch]), Widened(inputs[kBranchGain]), epsilon);
    for (size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
  }
  x = NormedRow(x, Widened(inputs[kGain]), epsilon);
  if (Int8(call)) RoundToInt8(x);
  const std::vector<double> logits = RowProducts(inputs[kWeights], x);
  const auto [position, count] = StepOf(outputs[1]);
  if (count <= 0) return {};
  const int64_t next = position + count;
  if (next < outputs[0].element_count()) {
    outputs[0].Set(next, double(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  const bool is_last = next + 1 >= outputs[0].element_count();
  outputs[1].Set(0, double(next));
  outputs[1].Set(1, is_last ? 0 : 1);
  outputs[1].Set(3, is_last ? 1 : 0);
  return {};
}

// The input of the head, once: normed, and for int8 in codes as decode_stage.cc wants them.
constexpr auto kPrepare = JoinTexts(kQuantizeQuads, R"(
tensor x[inner] : read;
tensor branch[inner] : read;
weights gain[inner];
weights branch_gain[inner];
tensor normed[inner] : write;
tensor codes[word] : write as u32;
tensor code_scales[chunk, part] : write;
const has_branch : bool;
const int8 : bool;
const epsilon : f32;
const threads : u32;
const quads = x.inner / 4u;
const chunks = x.inner / 32u;
const per_thread = (quads + threads - 1u) / threads;

@compute @workgroup_size(threads)
fn main(@builtin(local_invocation_index) at : u32) {
  var v : array<vec4f, per_thread>;
  @unroll for (var j = 0u; j < per_thread; j++) {
    v[j] = vec4f(0.0);
    if (at + j * threads < quads) { v[j] = x.load4(at + j * threads); }
  }
  if (has_branch) {
    var b : array<vec4f, per_thread>;
    var squares = 0.0;
    @unroll for (var j = 0u; j < per_thread; j++) {
      b[j] = vec4f(0.0);
      if (at + j * threads < quads) { b[j] = branch.load4(at + j * threads); }
      squares += dot(b[j], b[j]);
    }
    let factor = inverseSqrt(unit_sum(squares) / f32(x.inner) + epsilon);
    @unroll for (var j = 0u; j < per_thread; j++) {
      if (at + j * threads < quads) { v[j] += b[j] * factor * branch_gain.load4(at + j * threads); }
    }
  }
  var squares = 0.0;
  @unroll for (var j = 0u; j < per_thread; j++) { squares += dot(v[j], v[j]); }
  let factor = inverseSqrt(unit_sum(squares) / f32(x.inner) + epsilon);
  @unroll for (var j = 0u; j < per_thread; j++) {
    let i = at + j * threads;
    let inside = i < quads;
    var n = vec4f(0.0);
    if (inside) { n = v[j] * factor * gain.load4(i); }
    if (int8) {
      let q = quantize_quad(n);
      let quad = i % 8u;
      let chunk = i / 8u;
      if (inside) { codes.store(q.codes, (quad / 4u * chunks + chunk) * 4u + quad % 4u); }
      if (inside && quad == 0u) { code_scales.store4(q.factors, chunk, 0u); }
    } else {
      if (inside) { normed.store4(n, i); }
    }
  }
}
)");

// Moves the state on by the chosen row, as `sample` does it.
constexpr char kMoveOn[] = R"(
tensor best[group] : read;
tensor best_row[group] : read as u32;
tensor tokens[place] : read_write as i32;
tensor at_step[field] : read_write as i32;
fn move_on(row : u32) {
  let count = at_step.load(1u);
  if (count > 0) {
    let next = at_step.load(0u) + count;
    if (next < i32(tokens.place)) { tokens.store(i32(row), u32(next)); }
    at_step.store(next, 0u);
    if (next + 1 < i32(tokens.place)) {
      at_step.store(1, 1u);
      at_step.store(0, 3u);
    } else {
      at_step.store(0, 1u);
      at_step.store(1, 3u);
    }
  }
}
)";

constexpr auto kPick = JoinTexts(kMoveOn, R"(
const threads : u32;
const subgroups = threads / subgroup_size;
var<workgroup> tops : array<f32, subgroups>;
var<workgroup> top_rows : array<u32, subgroups>;

@compute @workgroup_size(threads)
fn main(@builtin(local_invocation_index) at : u32) {
  var top = -3.0e38;
  var row = 0xffffffffu;
  @unroll(4) for (var i = at; i < best.group; i += threads) {
    let v = best.load(i);
    let r = best_row.load(i);
    if (v > top || (v == top && r < row)) { top = v; row = r; }
  }
  @unroll for (var width = subgroup_size / 2u; width > 0u; width = width / 2u) {
    let v = subgroupShuffleXor(top, width);
    let r = subgroupShuffleXor(row, width);
    if (v > top || (v == top && r < row)) { top = v; row = r; }
  }
  if (at % subgroup_size == 0u) {
    tops[at / subgroup_size] = top;
    top_rows[at / subgroup_size] = row;
  }
  workgroupBarrier();
  if (at == 0u) {
    for (var i = 1u; i < subgroups; i++) {
      if (tops[i] > top || (tops[i] == top && top_rows[i] < row)) { top = tops[i]; row = top_rows[i]; }
    }
    move_on(row);
  }
}
)");

// Workgroups have rising rows, so that the first of equal logits has the lowest.
constexpr auto kPickSerial = JoinTexts(kMoveOn, R"(
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  var top = best.load(0u);
  var row = best_row.load(0u);
  for (var i = 1u; i < best.group; i++) {
    let v = best.load(i);
    if (v > top) {
      top = v;
      row = best_row.load(i);
    }
  }
  move_on(row);
}
)");

DecodeStage HeadOf(const OpCall& call) {
  DecodeStage stage;
  stage.int8 = Int8(call);
  stage.before = stage.int8 ? DecodeStage::Before::kCodes : DecodeStage::Before::kNone;
  stage.after = DecodeStage::After::kArgmax;
  stage.epsilon = call.attrs.GetFloat("epsilon", 1e-6);
  return stage;
}

bool Accept(const KernelRequest& request) {
  const OpCall& call = request.call;
  return call.inputs[kWeights].constant &&
         StageFits(request, HeadOf(call), *call.inputs[kWeights].constant, InputShape(call, kWeights)[1]);
}

struct Scratch {
  OpPlan& plan;
  int Add(DType dtype, Shape shape) {
    plan.tensors.push_back({.type = {dtype, shape}});
    return int(plan.tensors.size()) - 1;
  }
  static TensorArgument Argument(std::string name, int index) {
    TensorArgument argument;
    argument.name = std::move(name);
    argument.kind = TensorArgument::Kind::kPlan;
    argument.index = index;
    return argument;
  }
};

// The head's results, and the dispatch that picks the largest of them.
void AddPick(OpPlan& plan, KernelDispatch& head, KernelDispatch& pick, int64_t groups) {
  Scratch scratch{plan};
  const int best = scratch.Add(DType::kF32, Shape{groups}), best_row = scratch.Add(DType::kU32, Shape{groups});
  for (KernelDispatch* dispatch : {&head, &pick}) {
    dispatch->tensors.push_back(Scratch::Argument("best", best));
    dispatch->tensors.push_back(Scratch::Argument("best_row", best_row));
  }
  pick.tensors.push_back(OutputArgument("tokens", 0));
  pick.tensors.push_back(OutputArgument("at_step", 1));
}

Result<OpPlan> Plan(const KernelRequest& request) {
  const OpCall& call = request.call;
  const DecodeStage stage = HeadOf(call);
  const int64_t rows = InputShape(call, kWeights)[0], inner = InputShape(call, kWeights)[1];
  OpPlan plan;
  Scratch scratch{plan};
  const Shape row{inner};
  auto row_argument = [&](const char* name, size_t index) {
    return InputArgument(name, int(index), row, ReshapeMap(InputShape(call, index), row));
  };
  const bool has_branch = HasInput(call, kBranch);
  const uint32_t threads = uint32_t(std::min<int64_t>(512, request.target.max_invocations));

  KernelDispatch prepare{.kernel_name = "decode_prepare", .kernel_text = kPrepare.data()};
  prepare.tensors = {row_argument("x", kX), row_argument("gain", kGain)};
  if (has_branch) {
    prepare.tensors.push_back(row_argument("branch", kBranch));
    prepare.tensors.push_back(row_argument("branch_gain", kBranchGain));
  }
  prepare.consts = {{"has_branch", double(has_branch)},
                    {"int8", double(stage.int8)},
                    {"epsilon", stage.epsilon},
                    {"threads", double(threads)}};

  KernelDispatch head{.kernel_name = "decode_head", .kernel_text = DecodeStageText()};
  AddStackedWeights(plan, head, "w", {int(kWeights)}, InputShape(call, kWeights));
  if (stage.int8) {
    const int codes = scratch.Add(DType::kU32, Shape{inner / 4}), scales = scratch.Add(DType::kF32, Shape{inner / 32, 4});
    for (KernelDispatch* dispatch : {&prepare, &head}) {
      dispatch->tensors.push_back(Scratch::Argument(dispatch == &head ? "codes_in" : "codes", codes));
      dispatch->tensors.push_back(Scratch::Argument("code_scales", scales));
    }
  } else {
    const int normed = scratch.Add(DType::kF32, row);
    prepare.tensors.push_back(Scratch::Argument("normed", normed));
    head.tensors.push_back(Scratch::Argument("x", normed));
  }
  KernelDispatch pick{.kernel_name = "decode_pick", .kernel_text = kPick.data()};
  pick.consts = {{"threads", double(std::min<int64_t>(1024, request.target.max_invocations))}};
  AddPick(plan, head, pick, SetStageGrid(head, request, stage, inner, rows));
  plan.dispatches.push_back(std::move(prepare));
  plan.dispatches.push_back(std::move(head));
  plan.dispatches.push_back(std::move(pick));
  return plan;
}

// With the norm in it.
DecodeStage SerialHeadOf(const OpCall& call) {
  DecodeStage stage = HeadOf(call);
  stage.before = HasInput(call, kBranch) ? DecodeStage::Before::kAddNorm : DecodeStage::Before::kNorm;
  return stage;
}

bool AcceptSerial(const KernelRequest& request) {
  const OpCall& call = request.call;
  return call.inputs[kWeights].constant &&
         SerialStageFits(request, SerialHeadOf(call), *call.inputs[kWeights].constant, InputShape(call, kWeights)[1]);
}

Result<OpPlan> PlanSerial(const KernelRequest& request) {
  const OpCall& call = request.call;
  const DecodeStage stage = SerialHeadOf(call);
  const int64_t rows = InputShape(call, kWeights)[0], inner = InputShape(call, kWeights)[1];
  OpPlan plan;
  KernelDispatch head{.kernel_name = "decode_head_serial", .kernel_text = SerialStageText()};
  AddStackedWeights(plan, head, "w", {int(kWeights)}, InputShape(call, kWeights));
  AddStageInputs(head, request, stage, {int(kX), int(kBranch), int(kGain), int(kBranchGain), -1}, inner);
  KernelDispatch pick{.kernel_name = "decode_pick_serial", .kernel_text = kPickSerial.data()};
  AddPick(plan, head, pick, SetSerialGrid(head, request, stage, inner, rows));
  plan.dispatches.push_back(std::move(head));
  plan.dispatches.push_back(std::move(pick));
  return plan;
}

constexpr KernelVariant kVariants[] = {
    {.name = "argmax", .what = "an argmax in each workgroup of the head", .accepts = Accept, .plan = Plan, .no_epilogue = true},
    {.name = "serial",
     .what = "CPUs: one invocation takes many rows",
     .accepts = AcceptSerial,
     .plan = PlanSerial,
     .no_epilogue = true},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_decode_greedy = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .updates = kUpdates, .kernels = &kKernels};

}  // namespace leeway
