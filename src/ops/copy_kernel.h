// The generic copy: y[place(c)] = x[map(c)] for all c of a shape of any rank, f32, i32 or u32. Movement operators, concat,
// split and elementwise operators that run by themselves are made of it.
#pragma once

#include "ops/op_kernels.h"
#include "ops/operands.h"

namespace leeway {

struct CopySpec {
  int input = 0;
  CoordMap input_map;  // coordinates of `shape` -> coordinates of the input; empty: the same
  int output = 0;
  CoordMap output_map;  // coordinates of `shape` -> coordinates of the output; empty: the same
  Shape shape;
  std::vector<OwnStep> own_steps;
};

// Appends the dispatch, unless there is nothing to copy. It stores the result where the output is 0.
Status AddCopy(OpPlan& plan, const KernelRequest& request, const CopySpec& spec);

}  // namespace leeway
