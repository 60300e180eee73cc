// Constant tensors: sparse and quantized storage turned into plain elements.
#pragma once

#include <span>

#include "graph/op_def.h"
#include "import/tflite/tflite_generated.h"

namespace leeway::tflite {

// The dense tensor of a sparse one. `stored` are the elements that the file holds, in the order of the traversal. Everything
// the description says is checked against `shape`.
Result<HostTensor> Densify(const tflite_schema::SparsityParameters& sparsity, DType dtype, const Shape& shape,
                           std::span<const std::byte> stored);

// scale * (q - zero_point) for each element, as f32.
HostTensor Dequantize(const HostTensor& tensor, const Quantization& quantization);

}  // namespace leeway::tflite
