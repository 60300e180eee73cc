// Weights into quantized blocks while a model is loaded.
#pragma once

#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/host_tensor.h"

namespace leeway {

// The tensor in blocks of `dtype` (kQ4_0, kQ8_0 and the others that CanQuantize), owned by the result; what it is made from
// stays as it is. Refuses tensors of integers, and rows (the last axis) that are no whole blocks. Needs little memory besides
// the result.
Result<HostTensor> QuantizeWeights(const HostTensor& tensor, DType dtype, ThreadPool& threads);

}  // namespace leeway
