#include "import/quantize_weights.h"

#include <algorithm>

#include "base/strings.h"
#include "tensor/block_quant.h"

namespace leeway {

Result<HostTensor> QuantizeWeights(const HostTensor& tensor, DType dtype, ThreadPool& threads) {
  const Shape& shape = tensor.shape();
  auto refuse = [&](const auto&... parts) {
    return Error{Code::kUnsupported, StrCat("A tensor ", DTypeName(tensor.dtype()), shape.ToString(),
                                            " cannot be quantized to ", DTypeName(dtype), ": ", parts..., ".")};
  };
  if (!CanQuantize(dtype)) return refuse("Leeway has no encoder for that type");
  if (!IsFloat(tensor.dtype())) return refuse("only real numbers are quantized");
  if (shape.rank() == 0 || shape.at(-1) % int64_t(BlockElements(dtype)) != 0) {
    return refuse("rows must be whole blocks of ", BlockElements(dtype), " elements");
  }
  HostTensor result(dtype, shape);
  const int64_t count = shape.element_count();
  // A turn takes a run of blocks of both types, large enough to be worth handing out.
  constexpr int64_t kTurn = 1 << 16;
  const std::span<std::byte> out = result.mutable_bytes();
  threads.For((count + kTurn - 1) / kTurn, [&](int64_t turn) {
    const int64_t first = turn * kTurn, size = std::min(kTurn, count - first);
    const size_t from = DTypeBytes(tensor.dtype(), size_t(first)), to = DTypeBytes(dtype, size_t(first));
    const HostTensor part(tensor.dtype(), {size}, tensor.bytes().subspan(from, DTypeBytes(tensor.dtype(), size_t(size))),
                          nullptr);
    QuantizeBlocks(dtype, part.ToF32(), out.subspan(to, DTypeBytes(dtype, size_t(size))));
  });
  return result;
}

}  // namespace leeway
