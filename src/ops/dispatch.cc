#include "ops/dispatch.h"

#include <algorithm>

#include "ops/operands.h"

namespace leeway {

void SetGroupGrid(KernelDispatch& dispatch, const KernelRequest& request, int64_t workgroups) {
  const int64_t most = std::max<int64_t>(request.target.max_workgroups, 1);
  const int64_t rows = std::max<int64_t>(DivideUp(workgroups, most), 1);
  // Rows of equal length, so that few workgroups have nothing to do.
  const int64_t per_row = std::max<int64_t>(DivideUp(workgroups, rows), 1);
  dispatch.workgroups[0] = uint32_t(per_row);
  dispatch.workgroups[1] = uint32_t(DivideUp(std::max<int64_t>(workgroups, 1), per_row));
  dispatch.workgroups[2] = 1;
  dispatch.consts["groups_per_row"] = double(per_row);
}

void SetLinearGrid(KernelDispatch& dispatch, const KernelRequest& request, int64_t invocations) {
  SetGroupGrid(dispatch, request, DivideUp(invocations, kLinearWorkgroup));
}

TensorArgument InputArgument(std::string name, int index) {
  return {.name = std::move(name), .kind = TensorArgument::Kind::kInput, .index = index};
}
TensorArgument InputArgument(std::string name, int index, Shape shape, CoordMap map) {
  return {.name = std::move(name),
          .kind = TensorArgument::Kind::kInput,
          .index = index,
          .shape = shape,
          .map = std::move(map),
          .as_is = false};
}
TensorArgument OutputArgument(std::string name, int index) {
  return {.name = std::move(name), .kind = TensorArgument::Kind::kOutput, .index = index};
}
TensorArgument OutputArgument(std::string name, int index, Shape shape, CoordMap map) {
  return {.name = std::move(name),
          .kind = TensorArgument::Kind::kOutput,
          .index = index,
          .shape = shape,
          .map = std::move(map),
          .as_is = false};
}

std::string_view TypedText::For(DType dtype) const {
  switch (InFlightType(dtype)) {
    case DType::kI32: return i32;
    case DType::kU32: return u32;
    default: return f32;
  }
}

}  // namespace leeway
