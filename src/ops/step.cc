#include "ops/step.h"

namespace leeway {

Status ExpectStep(const OpCall& call, const char* op, size_t i) {
  const TensorType& type = call.inputs[i].type;
  if (type.dtype != DType::kI32 || type.shape != Shape{kStepElements}) {
    return Invalid("Operator ", op, " has a step (input ", i, ") of type ", type.ToString(), "; it takes i32[", kStepElements,
                   "].");
  }
  return {};
}

RowPositions StepOf(const HostTensor& step) {
  return {int64_t(step.Get(int64_t(StepField::kPosition))), int64_t(step.Get(int64_t(StepField::kCount)))};
}

}  // namespace leeway
