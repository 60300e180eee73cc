// What the variants of `attention` share.
#pragma once

#include "ops/op_kernels.h"

namespace leeway {

// The head of the kernel texts: tensors, attributes as constants, what a row sees.
inline constexpr char kAttentionCommon[] = R"(
tensor q[row, head, inner] : read;
tensor k[plane, slot, inner] : read;
tensor v[plane, slot, inner] : read;
tensor run[field] : read as i32;
tensor y[row, head, inner] : write;
const groups_per_row : u32;
const scale : f32;
const window : u32;
const softcap : f32;
const last : bool;
const group = q.head / k.plane;
const slices = (q.inner + 3u) / 4u;
const nothing = -1.0e30;

fn first_position() -> u32 {
  if last { return u32(run.load(0u) + run.load(1u)) - q.row; }
  return u32(run.load(0u));
}
fn valid_rows() -> u32 {
  if last { return q.row; }
  return min(u32(run.load(1u)), q.row);
}
// The first position that the row of `position` sees.
fn first_visible(position : u32) -> u32 {
  if window == 0u { return 0u; }
  return max(position + 1u, window) - window;
}
fn capped(score : f32) -> f32 {
  if softcap > 0.0 { return softcap * tanh_clamped(score / softcap); }
  return score;
}
)";

// How many positions a row sees at most.
int64_t VisibleSpan(const OpCall& call);
// A dispatch with the constants of the attributes and the tensors q, k, v and run; its kernel, grid and other tensors left
// open.
KernelDispatch StartAttention(const KernelRequest& request);
// `y`, as [row, head, inner].
TensorArgument AttentionResult(const KernelRequest& request);

}  // namespace leeway
