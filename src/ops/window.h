// The part of a tensor that slices, strided slices, splits and reversals take: per axis of the input a start, a step and a
// count; axes may be dropped from and added to the result.
#pragma once

#include "ops/operands.h"

namespace leeway {

struct Window {
  std::vector<int64_t> start, step;  // one per axis of the input
  std::vector<int> result_axes;      // per axis of the result the axis of the input, or -1 for a new one of extent 1
  Shape shape;                       // of the result
};

Movement WindowMovement(const Window& window, int source);
void CopyWindow(const Window& window, const HostTensor& from, HostTensor& to);
// All of `shape`, each axis from 0 by 1.
Window WholeWindow(const Shape& shape);

}  // namespace leeway
