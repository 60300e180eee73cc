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

std::string_view DecodeStageText();

// Kernel text that puts four values into 8 bits, for kernels in which eight neighbouring lanes hold the eight quads of 32
// elements: a word of codes and the quad's share of the chunk's scales. All lanes call it together.
inline constexpr char kQuantizeQuads[] = R"(
// factors: the scale, and it times the sums of the codes of this half of the chunk, of the other half, and of both.
struct QuantizedQuad { codes : u32, factors : vec4f }
fn quantize_quad(v : vec4f) -> QuantizedQuad {
  let a = abs(v);
  var largest = max(max(a.x, a.y), max(a.z, a.w));
  largest = max(largest, subgroupShuffleXor(largest, 1u));
  largest = max(largest, subgroupShuffleXor(largest, 2u));
  largest = max(largest, subgroupShuffleXor(largest, 4u));
  let c = vec4i(round(v * select(0.0, 127.0 / largest, largest > 0.0)));
  var sum = c.x + c.y + c.z + c.w;
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  let other = subgroupShuffleXor(sum, 4u);
  return QuantizedQuad(pack4xI8(c), largest / 127.0 * vec4f(1.0, f32(sum), f32(other), f32(sum + other)));
}
)";

// 0: the device has none, or several sizes.
inline uint32_t CertainSubgroup(const shader::Target& target) {
  return target.subgroups && target.subgroup_min == target.subgroup_max ? target.subgroup_min : 0;
}

// Rows of weights that may be stacked to one tensor: their elements come to lie in the same format.
bool SameFormat(const HostTensor& a, const HostTensor& b);
// Can the kernel run there: subgroups, memory of a workgroup, bindings, form of the weights?
bool StageFits(const KernelRequest& request, const DecodeStage& stage, const HostTensor& weights, int64_t inner);
// An argument `name` of the rows of several constant inputs, one below the other.
void AddStackedWeights(OpPlan& plan, KernelDispatch& dispatch, std::string name, const std::vector<int>& inputs, Shape shape);
// Which input (and, for the residual, output; -1: it is not kept) of the node is what; those that the stage does not use are
// not looked at.
struct StageOperands {
  int x, branch, gain, branch_gain, residual_output;
};
void AddStageInputs(KernelDispatch& dispatch, const KernelRequest& request, const DecodeStage& stage,
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
