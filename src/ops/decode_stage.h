// The kernel behind the operators that decode one token (decode_linear, decode_greedy): a product with quantized weights whose
// workgroups each prepare the whole input for themselves.
#pragma once

#include <string_view>
#include <vector>

#include "ops/op_kernels.h"

namespace leeway {

struct DecodeStage {
  enum class Before : uint8_t { kNone, kNorm, kAddNorm, kMerge, kCodes };
  enum class After : uint8_t { kNone, kGelu, kSilu, kArgmax };
  Before before = Before::kNone;
  After after = After::kNone;
  double epsilon = 1e-6;
  int64_t heads = 0;
  bool int8 = false;

  bool normed() const { return before == Before::kNorm || before == Before::kAddNorm; }
  bool gated() const { return after == After::kGelu || after == After::kSilu; }
};

// How the work is dealt out: `lanes` invocations share a row, `rows` rows are a unit's, `ahead` blocks of each are loaded at
// once.
struct StageGeometry {
  uint32_t lanes = 32, rows = 1, ahead = 1, threads = 128;
};

std::string_view DecodeStageText();

// 0: the device has none, or several sizes.
inline uint32_t CertainSubgroup(const shader::Target& target) {
  return target.subgroups && target.subgroup_min == target.subgroup_max ? target.subgroup_min : 0;
}

// Rows of weights that may be stacked to one tensor: their elements come to lie in the same format.
bool SameFormat(const HostTensor& a, const HostTensor& b);
// Can the kernel run there: subgroups, memory of a workgroup, bindings, form of the weights?
bool StageFits(const KernelRequest& request, const DecodeStage& stage, const HostTensor& weights, int64_t inner);
// An argument `name` of the rows of several constant inputs, one below the other.
void AddStackedWeights(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, std::string name,
                       const std::vector<int>& inputs, Shape shape);
// Which input (and, for the residual, output) of the node is what; those that the stage does not use are not looked at.
struct StageOperands {
  int x, branch, gain, branch_gain, residual_output;
};
void AddStageInputs(OpPlan& plan, KernelDispatch& dispatch, const KernelRequest& request, const DecodeStage& stage,
                    const StageOperands& operands, int64_t inner);
// The constants and the grid for `rows` rows of weights (both of a gated pair counted). Workgroups in the grid.
uint32_t SetStageGrid(KernelDispatch& dispatch, const KernelRequest& request, const DecodeStage& stage, int64_t inner,
                      int64_t rows);

// ---- References ----
std::vector<double> Widened(const HostTensor& tensor);
std::vector<double> NormedRow(const std::vector<double>& x, const std::vector<double>& gain, double epsilon);
std::vector<double> RowProducts(const HostTensor& weights, const std::vector<double>& x);
// As activations in 8 bits hold it: multiples of a 127th of the largest of each 32.
void RoundToInt8(std::vector<double>& x);
// Splits [splits, heads * (head + 4)] of decode_attention to [heads * head].
std::vector<double> MergedSplits(const HostTensor& splits, int64_t heads);
double GeluTanh(double x);

}  // namespace leeway
