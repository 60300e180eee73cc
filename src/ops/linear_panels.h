// The product of `linear` for many rows on a device that runs a workgroup on a thread of a CPU.
#pragma once

#include "ops/op_kernels.h"

namespace leeway {

bool AcceptLinearPanels(const KernelRequest& request);
Result<OpPlan> PlanLinearPanels(const KernelRequest& request);

}  // namespace leeway
