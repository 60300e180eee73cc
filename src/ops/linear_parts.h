// What the variants of `linear` share.
#pragma once

#include <string_view>

#include "ops/op_kernels.h"

namespace leeway {

struct LinearShapes {
  Shape x, y;  // [rows, K] and [rows, N]
};
LinearShapes LinearShapesOf(const OpCall& call);

// A dispatch with its tensors x, w, bias (where there is one: `use_bias`) and y, the grid left open.
KernelDispatch StartLinear(const KernelRequest& request, const LinearShapes& shapes, const char* name, std::string_view text,
                           OpPlan& plan);

}  // namespace leeway
