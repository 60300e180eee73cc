// decode_linear: one stage of decoding one token with quantized weights, a whole serial stage in one dispatch. What stands
// before the product (a norm, a residual and a norm, the merge of attention's splits) is done again by each workgroup, which
// costs a quarter of a microsecond on a large GPU where a dispatch of its own costs ten times that. What stands behind it is a
// gated pair of rows, or nothing.
//   int8     activations in 8 bits, a scale to 32 of them; packed integer products; for 4 bits or 8 bits in groups of 32
//   float    activations in f32
//   serial   CPUs: a few workgroups of one invocation, without subgroups or barriers
// Made by the decode fusions from rms_norm, add, linear and the gate; never by a file.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/assemble.h"
#include "ops/decode_serial.h"
#include "ops/decode_stage.h"
#include "ops/dispatch.h"
#include "ops/operands.h"
#include "ops/weights.h"
#include "tensor/coord_map.h"

namespace leeway {
namespace {

constexpr const char* kOp = "decode_linear";
const AttrField kAttrs[] = {{"before", std::string("none"),
                             "What is done to the input: none, norm, add_norm (a normed branch is added first) or merge."},
                            {"after", std::string("none"),
                             "none, or gelu or silu: the rows of the first weights, activated, times those of the second."},
                            {"epsilon", 1e-6, "Of the norms."},
                            {"heads", int64_t{0}, "merge: query heads."},
                            {"activations", std::string("float"), "float or int8: how the product takes its input."}};

enum Operand : size_t { kX = 0, kBranch = 1, kGain = 2, kBranchGain = 3, kFirstWeights = 4 };

Result<DecodeStage> StageOf(const OpCall& call) {
  DecodeStage stage;
  const std::string before = call.attrs.GetString("before", "none"), after = call.attrs.GetString("after", "none");
  if (before == "norm") {
    stage.before = DecodeStage::Before::kNorm;
  } else if (before == "add_norm") {
    stage.before = DecodeStage::Before::kAddNorm;
  } else if (before == "merge") {
    stage.before = DecodeStage::Before::kMerge;
  } else if (before != "none") {
    return Invalid("Operator decode_linear has before=\"", before, "\"; expected none, norm, add_norm or merge.");
  }
  if (after == "gelu") {
    stage.after = DecodeStage::After::kGelu;
  } else if (after == "silu") {
    stage.after = DecodeStage::After::kSilu;
  } else if (after != "none") {
    return Invalid("Operator decode_linear has after=\"", after, "\"; expected none, gelu or silu.");
  }
  stage.epsilon = call.attrs.GetFloat("epsilon", 1e-6);
  stage.heads = call.attrs.GetInt("heads");
  stage.int8 = call.attrs.GetString("activations", "float") == "int8";
  return stage;
}

InferredTypes Infer(const OpCall& call) {
  RETURN_IF_ERROR(ExpectInputs(call, kOp, 1, kFirstWeights + 3));
  ASSIGN_OR_RETURN(const DecodeStage stage, StageOf(call));
  if (call.inputs.size() <= kFirstWeights) return Invalid("Operator decode_linear has no weights; expected 1 to 3.");
  RETURN_IF_ERROR(ExpectFloat(call, kOp, kX));
  RETURN_IF_ERROR(ExpectRank(call, kOp, kX, 2, 2));
  const bool merges = stage.before == DecodeStage::Before::kMerge;
  const Shape& x = InputShape(call, kX);
  int64_t inner = x[1];
  if (merges) {
    // [splits, heads * (head + 4)]: see decode_attention.
    if (stage.heads <= 0 || x[1] % stage.heads != 0 || x[1] / stage.heads <= 4) {
      return Invalid("Operator decode_linear merges an input of shape ", x.ToString(), " with ", stage.heads, " heads.");
    }
    inner = x[1] - 4 * stage.heads;
  } else if (x[0] != 1) {
    return Invalid("Operator decode_linear has an input of shape ", x.ToString(), "; expected one row.");
  }
  int64_t rows = 0;
  for (size_t i = kFirstWeights; i < call.inputs.size(); ++i) {
    RETURN_IF_ERROR(ExpectFloat(call, kOp, i));
    RETURN_IF_ERROR(ExpectRank(call, kOp, i, 2, 2));
    const Shape& w = InputShape(call, i);
    if (w[1] != inner) {
      return Invalid("Operator decode_linear has weights of shape ", w.ToString(), " for rows of ", inner, ".");
    }
    rows += w[0];
  }
  auto expect_row = [&](size_t i, const char* what) -> Status {
    if (!HasInput(call, i)) return Invalid("Operator decode_linear has no ", what, ".");
    if (InputShape(call, i).element_count() == inner) return {};
    return Invalid("Operator decode_linear has a ", what, " of shape ", InputShape(call, i).ToString(), "; expected ", inner,
                   " elements.");
  };
  if (stage.normed()) RETURN_IF_ERROR(expect_row(kGain, "gain"));
  if (stage.before == DecodeStage::Before::kAddNorm) {
    RETURN_IF_ERROR(expect_row(kBranch, "branch"));
    RETURN_IF_ERROR(expect_row(kBranchGain, "gain of the branch"));
  }
  if (stage.gated()) {
    if (call.inputs.size() != kFirstWeights + 2 ||
        InputShape(call, kFirstWeights)[0] != InputShape(call, kFirstWeights + 1)[0]) {
      return Invalid("Operator decode_linear gates weights that are no pair of one shape.");
    }
    rows /= 2;
  }
  std::vector<TensorType> types{{DType::kF32, Shape{1, rows}}};
  if (stage.before == DecodeStage::Before::kAddNorm) types.push_back({DType::kF32, Shape{1, inner}});
  return types;
}

Status Reference(const OpCall& call, std::span<const HostTensor> inputs, std::span<HostTensor> outputs) {
  ASSIGN_OR_RETURN(const DecodeStage stage, StageOf(call));
  std::vector<double> x = Widened(inputs[kX]);
  if (stage.before == DecodeStage::Before::kMerge) x = MergedSplits(inputs[kX], stage.heads);
  if (stage.before == DecodeStage::Before::kAddNorm) {
    const std::vector<double> branch = NormedRow(Widened(inputs[kBranch]), Widened(inputs[kBranchGain]), stage.epsilon);
    for (size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
    StoreF32(outputs[1], std::vector<float>(x.begin(), x.end()));
  }
  if (stage.normed()) x = NormedRow(x, Widened(inputs[kGain]), stage.epsilon);
  if (stage.int8) RoundToInt8(x);
  std::vector<double> rows;
  for (size_t i = kFirstWeights; i < inputs.size(); ++i) {
    const std::vector<double> part = RowProducts(inputs[i], x);
    rows.insert(rows.end(), part.begin(), part.end());
  }
  if (stage.gated()) {
    const size_t half = rows.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      rows[i] =
          (stage.after == DecodeStage::After::kGelu ? GeluTanh(rows[i]) : rows[i] / (1 + std::exp(-rows[i]))) * rows[half + i];
    }
    rows.resize(half);
  }
  StoreF32(outputs[0], std::vector<float>(rows.begin(), rows.end()));
  return {};
}

// Weights that can be stacked.
bool AcceptWeights(const OpCall& call) {
  for (size_t i = kFirstWeights; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].constant || !SameFormat(*call.inputs[kFirstWeights].constant, *call.inputs[i].constant)) return false;
  }
  return true;
}

bool Accept(const KernelRequest& request, bool int8) {
  const OpCall& call = request.call;
  auto stage = StageOf(call);
  return stage.ok() && stage->int8 == int8 && AcceptWeights(call) &&
         StageFits(request, *stage, *call.inputs[kFirstWeights].constant, InputShape(call, kFirstWeights)[1]);
}

bool AcceptSerial(const KernelRequest& request) {
  const OpCall& call = request.call;
  auto stage = StageOf(call);
  return stage.ok() && AcceptWeights(call) &&
         SerialStageFits(request, *stage, *call.inputs[kFirstWeights].constant, InputShape(call, kFirstWeights)[1]);
}

Result<OpPlan> MakePlan(const KernelRequest& request, bool serial) {
  const OpCall& call = request.call;
  ASSIGN_OR_RETURN(DecodeStage stage, StageOf(call));
  OpPlan plan;
  const int64_t inner = InputShape(call, kFirstWeights)[1];
  int64_t rows = 0;
  std::vector<int> weights;
  for (size_t i = kFirstWeights; i < call.inputs.size(); ++i) {
    weights.push_back(int(i));
    rows += InputShape(call, i)[0];
  }
  KernelDispatch dispatch{.kernel_name = serial ? "decode_linear_serial" : "decode_linear",
                          .kernel_text = serial ? SerialStageText() : DecodeStageText(),
                          .stores_result = true};
  AddStackedWeights(plan, dispatch, "w", weights, Shape{rows, inner});
  AddStageInputs(dispatch, request, stage, {int(kX), int(kBranch), int(kGain), int(kBranchGain), 1}, inner);
  const Shape results{call.outputs[0].shape[1]};
  dispatch.tensors.push_back(OutputArgument("y", 0, results, ReshapeMap(call.outputs[0].shape, results)));
  if (serial) {
    SetSerialGrid(dispatch, request, stage, inner, rows);
  } else {
    SetStageGrid(dispatch, request, stage, inner, rows);
  }
  plan.dispatches.push_back(std::move(dispatch));
  return plan;
}
Result<OpPlan> Plan(const KernelRequest& request) { return MakePlan(request, false); }
Result<OpPlan> PlanSerial(const KernelRequest& request) { return MakePlan(request, true); }

constexpr KernelVariant kVariants[] = {
    {.name = "int8",
     .what = "activations in 8 bits, packed integer products",
     .accepts = [](const KernelRequest& request) { return Accept(request, true); },
     .plan = Plan},
    {.name = "float",
     .what = "activations in f32",
     .accepts = [](const KernelRequest& request) { return Accept(request, false); },
     .plan = Plan},
    {.name = "serial", .what = "CPUs: one invocation takes many rows", .accepts = AcceptSerial, .plan = PlanSerial},
};
constexpr OpKernels kKernels = {.variants = kVariants};

}  // namespace

extern const OpDef op_decode_linear = {
    .name = kOp, .attrs = kAttrs, .infer = Infer, .reference = Reference, .kernels = &kKernels};

}  // namespace leeway
