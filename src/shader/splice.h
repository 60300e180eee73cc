// Splices virtual tensors into a kernel: every accessor becomes a call of a generated function (`x_load4`), which holds the
// coordinate map, the address, the choice among parts, the conversion and the value maps, over resources in the group.
#pragma once

#include "shader/compile.h"

namespace leeway::shader {

// `out.module` is a copy of kernel.module; afterwards it has no tensors, and its resources are module variables that
// out.bindings numbers, after those that are there already.
Status SpliceTensors(const BoundKernel& kernel, const Target& target, LoweredKernel& out);

}  // namespace leeway::shader
