// The variant of `attention` for devices whose subgroups multiply matrices.
#pragma once

#include "ops/op_kernels.h"

namespace leeway {

// Accepts where inputs may be taken as f16: activations are stored so, or the node says so (`half_inputs`).
bool AcceptAttentionMatrix(const KernelRequest& request);
Result<OpPlan> PlanAttentionMatrix(const KernelRequest& request);

}  // namespace leeway
