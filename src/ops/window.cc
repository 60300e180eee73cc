#include "ops/window.h"

#include "ops/strided.h"

namespace leeway {

Movement WindowMovement(const Window& window, int source) {
  Movement movement{.source = source};
  movement.map.coords.reserve(window.start.size());
  for (int64_t start : window.start) movement.map.coords.push_back(IndexExpr::Const(start));
  for (size_t i = 0; i < window.result_axes.size(); ++i) {
    if (window.result_axes[i] < 0) continue;
    const size_t axis = size_t(window.result_axes[i]);
    movement.map.coords[axis] =
        IndexExpr::Axis(int(i)) * IndexExpr::Const(window.step[axis]) + IndexExpr::Const(window.start[axis]);
  }
  return movement;
}

void CopyWindow(const Window& window, const HostTensor& from, HostTensor& to) {
  const Strides own = RowMajorStrides(from.shape());
  int64_t start = 0;
  for (size_t axis = 0; axis < window.start.size(); ++axis) start += window.start[axis] * own[axis];
  Strides strides{};
  for (size_t i = 0; i < window.result_axes.size(); ++i) {
    if (window.result_axes[i] >= 0)
      strides[i] = own[size_t(window.result_axes[i])] * window.step[size_t(window.result_axes[i])];
  }
  CopyStrided(from, start, strides, to, 0, RowMajorStrides(to.shape()), to.shape());
}

Window WholeWindow(const Shape& shape) {
  Window window{.shape = shape};
  window.start.assign(size_t(shape.rank()), 0);
  window.step.assign(size_t(shape.rank()), 1);
  for (int axis = 0; axis < shape.rank(); ++axis) window.result_axes.push_back(axis);
  return window;
}

}  // namespace leeway
