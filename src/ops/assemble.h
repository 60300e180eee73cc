// Puts a dispatch of an OpPlan, the placements of its tensors, the views of its node and its epilogue together into what the
// kernel compiler takes. The runtime uses it for launch plans, the op tests for single kernels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/op_kernels.h"
#include "tensor/coord_map.h"

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
  // Which placed tensor stands behind each BindingInfo::tensor ("x", "y#0", "w_quants").
  struct Source {
    enum class Kind : uint8_t { kInput, kOutput, kPlan, kStepOperand } kind = Kind::kInput;
    int index = 0;    // input, output or plan tensor; for kStepOperand the step
    int operand = 0;  // kStepOperand: which operand of it
    // A placement with a format stands behind two tensors of the kernel.
    enum class Piece : uint8_t { kWhole, kQuants, kFactors } piece = Piece::kWhole;
  };
  std::map<std::string, Source> sources;
};

Result<AssembledDispatch> AssembleDispatch(const KernelDispatch& dispatch, std::span<const PlacedValue> inputs,
                                           std::span<const PlacedValue> outputs, std::span<const PlacedValue> plan_tensors,
                                           std::span<const PlacedStep> epilogue);

}  // namespace leeway
