// NumPy arrays as host tensors and back.
#pragma once

#include "base/npz.h"
#include "tensor/host_tensor.h"

namespace leeway {

// Refuses more than 8 axes. f2, f4, f8, i1..i8, u1..u8 and b1 become the element types of that kind and width.
Result<HostTensor> TensorFromNpy(NpyArray array, const std::string& name);
// bf16 becomes f4; i4, u4 and i2 become bytes.
NpyArray NpyFromTensor(const HostTensor& tensor);

}  // namespace leeway
