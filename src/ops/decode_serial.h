// Stages of decoding for devices that run a workgroup on a thread of a CPU: one invocation prepares the whole input for itself
// and then takes many rows of the weights, one after another.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/decode_stage.h"
#include "ops/op_kernels.h"

namespace leeway {

// The kernel of decode_linear and decode_greedy: the declarations of DecodeStageText as far as `float` activations need them.
std::string_view SerialStageText();
// Is it for that device, does the input fit into the memory of a workgroup, are the weights of a form that it takes?
bool SerialStageFits(const KernelRequest& request, const DecodeStage& stage, const HostTensor& weights, int64_t inner);
// The constants and the grid for `rows` rows of weights (both of a gated pair counted). Workgroups in the grid.
uint32_t SetSerialGrid(KernelDispatch& dispatch, const KernelRequest& request, const DecodeStage& stage, int64_t inner,
                       int64_t rows);

}  // namespace leeway
