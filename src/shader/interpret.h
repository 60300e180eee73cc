// The interpreter: runs a kernel on the CPU and says what it did wrong. It is the definition of what a kernel means.
//
// It reports, with kernel line and invocation: an index out of bounds, a load or store outside a tensor that is not an edge
// of load4/store4, a race (two invocations touch one element between barriers, one of them writing: workgroup memory,
// tensors, and across workgroups), workgroup memory read before it is written, a barrier or subgroup function not reached by
// all, integer division by zero, a shift too far, an endless loop (step limit).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "shader/compile.h"

namespace leeway::shader {

struct Fault {
  std::string message;  // "copy.kernel:7:5: ... (workgroup 0,0,0, invocation 3,0,0)"
};

struct InterpretOptions {
  uint32_t subgroup_size = 4;
  uint64_t max_steps_per_invocation = 100'000'000;
  bool check_races = true;
  bool check_nan = false;  // NaN or infinity made from finite values
  int max_faults = 8;      // stops there
};

struct InterpretCounts {
  uint64_t loads = 0, stores = 0;  // elements of tensors, buffers and textures
  uint64_t arithmetic = 0;         // floating-point operations; fma counts as two, a function as one
  uint64_t barriers = 0;           // reached by a workgroup
};

struct InterpretResult {
  std::vector<Fault> faults;
  InterpretCounts counts;
};

// Storage by placed tensor ("x", "x#1" as in BindingInfo::tensor): bytes as PackForStorage makes them, all parts in a row,
// read and written in place. Params: bytes as ParamField says. Scratch: by name.
struct InterpretMemory {
  std::map<std::string, std::span<std::byte>> tensors;
  std::map<std::string, std::span<std::byte>> scratch;
  std::span<const std::byte> params;
  // How the placed tensors lie: needed for lowered kernels that have textures or tensors in several parts.
  std::map<std::string, Placement> placements;
};
// The placement of every tensor and value-map operand, by the names that BindingInfo::tensor uses.
std::map<std::string, Placement> PlacementsOf(const std::map<std::string, VirtualTensor>& tensors);
// Calls visit(name, tensor) for each tensor and value-map operand of `tensors`, by those names; for a quantized one twice, for
// its quants and its factors.
void VisitTensors(const std::map<std::string, VirtualTensor>& tensors,
                  const std::function<void(const std::string& name, const VirtualTensor& tensor)>& visit);

// The kernel before lowering. An error is a kernel that cannot be run at all; what it did wrong is in the result.
Result<InterpretResult> Interpret(const BoundKernel& kernel, const uint32_t workgroups[3], const InterpretMemory& memory,
                                  const InterpretOptions& options);
// After lowering: the same, over bindings.
Result<InterpretResult> Interpret(const LoweredKernel& kernel, const uint32_t workgroups[3], const InterpretMemory& memory,
                                  const InterpretOptions& options);

}  // namespace leeway::shader
