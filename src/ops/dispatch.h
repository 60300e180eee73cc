// Grids of dispatches.
#pragma once

#include <array>

#include "ops/op_kernels.h"

namespace leeway {

inline constexpr uint32_t kLinearWorkgroup = 64;

// A grid for `invocations` in one row, cut into as many rows of workgroups as the device's limit per dimension needs. The
// kernel has @workgroup_size(64) and gets back its number, which may be beyond the last, as
//     const groups_per_row : u32;
//     let index = (group.y * groups_per_row + group.x) * 64u + lane;
// for @builtin(workgroup_id) group and @builtin(local_invocation_index) lane.
void SetLinearGrid(KernelDispatch& dispatch, const KernelRequest& request, int64_t invocations);
// The same with a workgroup per unit of work: let unit = group.y * groups_per_row + group.x;
void SetGroupGrid(KernelDispatch& dispatch, const KernelRequest& request, int64_t workgroups);

inline int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Slices of four that an axis takes.
inline int64_t Slices(int64_t extent) { return DivideUp(extent, 4); }

// Arguments of a dispatch: input or output `index` as it is, or as `shape` through `map`.
TensorArgument InputArgument(std::string name, int index);
TensorArgument InputArgument(std::string name, int index, Shape shape, CoordMap map);
TensorArgument OutputArgument(std::string name, int index);
TensorArgument OutputArgument(std::string name, int index, Shape shape, CoordMap map);

inline bool AcceptAlways(const KernelRequest&) { return true; }

// A kernel's declarations and body in one text, for bodies that several types of elements share.
template <size_t A, size_t B>
constexpr std::array<char, A + B - 1> JoinTexts(const char (&declarations)[A], const char (&body)[B]) {
  std::array<char, A + B - 1> text{};
  for (size_t i = 0; i + 1 < A; ++i) text[i] = declarations[i];
  for (size_t i = 0; i < B; ++i) text[A - 1 + i] = body[i];
  return text;
}
template <size_t A, size_t B>
constexpr std::array<char, A + B - 1> JoinTexts(const char (&declarations)[A], const std::array<char, B>& body) {
  std::array<char, A + B - 1> text{};
  for (size_t i = 0; i + 1 < A; ++i) text[i] = declarations[i];
  for (size_t i = 0; i < B; ++i) text[A - 1 + i] = body[i];
  return text;
}
// A kernel text for each type of elements in flight.
struct TypedText {
  std::string_view f32, i32, u32;
  std::string_view For(DType dtype) const;
};

}  // namespace leeway
