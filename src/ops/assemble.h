// Puts a dispatch of an OpPlan, the placements of its tensors, the views of its node and its epilogue together into what the
// kernel compiler takes. The runtime uses it for launch plans, the op tests for single kernels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/op_kernels.h"

namespace leeway {

// A tensor as the node sees it, and where it is.
struct PlacedValue {
  Shape shape;    // as the node sees it
  CoordMap view;  // coordinates as the node sees them -> coordinates of placement.shape; empty: the same
  Placement placement;
};

// A fused step with its other operands placed. An operand of a smaller shape is broadcast (numpy rules) to the step's result.
struct PlacedStep {
  ValueMap function;  // from OpDef::value_map; operands empty
  std::vector<PlacedValue> operands;
  Shape result_shape;
};

struct AssembledDispatch {
  shader::Specialization specialization;
  // Which placed tensor stands behind each BindingInfo::tensor ("x", "y#0").
  struct Source {
    enum class Kind : uint8_t { kInput, kOutput, kPlan, kStepOperand } kind = Kind::kInput;
    int index = 0;    // input, output or plan tensor; for kStepOperand the step
    int operand = 0;  // kStepOperand: which operand of it
  };
  std::map<std::string, Source> sources;
};

Result<AssembledDispatch> AssembleDispatch(const KernelDispatch& dispatch, std::span<const PlacedValue> inputs,
                                           std::span<const PlacedValue> outputs, std::span<const PlacedValue> plan_tensors,
                                           std::span<const PlacedStep> epilogue);

// Maps from outer to middle and middle to inner as one map from outer to inner; `inside` conditions are joined. An error where
// the two need different values outside.
Result<CoordMap> Compose(const CoordMap& outer_to_middle, const CoordMap& middle_to_inner);
// The map that reads a tensor of shape `from` as one of shape `to`, broadcast by numpy's rules; an error where they do not fit.
Result<CoordMap> BroadcastMap(const Shape& from, const Shape& to);
// Row-major order kept: coordinates in `to` -> coordinates in `from` (reshape).
CoordMap ReshapeMap(const Shape& from, const Shape& to);

}  // namespace leeway
