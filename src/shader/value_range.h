// What integer expressions of a kernel can be: so that a load that asks for zero outside the tensor need not ask where the
// coordinate cannot be outside. Ranges come from literals, loops that count up to a bound, masks and remainders, the workgroup
// size, and from conditions: of the branch that the expression stands in, and of an earlier `if` that left.
#pragma once

#include <cstdint>
#include <map>

#include "shader/compile.h"

namespace leeway::shader {

// For each load_or_zero and load4_or_zero of the module: bit i is set where coordinate i is always inside the tensor.
std::map<const Expr*, uint32_t> ProvenCoordinates(const Module& module, const BoundKernel& kernel);

}  // namespace leeway::shader
