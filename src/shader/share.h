// Kernels that differ in whole numbers alone become one, which takes these numbers as params. A model has many nodes of a few
// operators, each with extents of its own, and what loading costs is the number of programs that the driver compiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shader/compile.h"

namespace leeway::shader {

struct ShareOptions {
  // Numbers that say how often a loop of known length turns may become params. A GPU's compiler unrolls such loops, to have
  // more loads under way; software devices gain nothing by that.
  bool loop_lengths = false;
  // As many as every target takes without a buffer for them.
  uint32_t max_params = 16;
};

// As Lower, but all numbers that become the sum of others by chance stay where they are: no x*1 or x+0 vanishes, and no
// division becomes a shift. So kernels that were made from one text for different extents look alike.
Result<LoweredKernel> LowerForSharing(const BoundKernel& kernel, const Target& target);

// A kernel of LowerForSharing in two parts. Kernels with equal texts may be shared; the numbers are then in the same order.
struct KernelOutline {
  std::string text;
  std::vector<int64_t> numbers;
};
KernelOutline OutlineOf(const LoweredKernel& kernel, const ShareOptions& options);

struct SharedKernel {
  LoweredKernel kernel;                        // simplified; prints as any other
  std::vector<std::vector<std::byte>> params;  // of each of those that share it, all equally long; empty if nothing differs
};
// `like` is one of the kernels, `numbers` what the outlines of all say. Null where that takes more params than allowed, or the
// kernel has params already or computes with matrices.
std::optional<SharedKernel> ShareKernels(const LoweredKernel& like, std::span<const std::vector<int64_t>* const> numbers,
                                         const ShareOptions& options);

}  // namespace leeway::shader
