// Convolutions for OpenCL on CPUs: output channels in panels of 8 or 16 single numbers, which such compilers put into registers
// of eight lanes. Variants of conv_2d.
#pragma once

#include "ops/op_kernels.h"

namespace leeway {

bool AcceptConvPanels(const KernelRequest& request);
Result<OpPlan> PlanConvPanels(const KernelRequest& request);

}  // namespace leeway
