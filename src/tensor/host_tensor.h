// A tensor in host memory: dtype, shape and row-major elements. It owns its bytes, or looks at bytes that somebody else keeps
// alive (a mapped file).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace leeway {

class HostTensor {
 public:
  HostTensor() = default;
  // Owned, zero-filled.
  HostTensor(DType dtype, Shape shape);
  // A view; `keep_alive` (may be null) is held as long as the tensor. bytes.size() is DTypeBytes(dtype, elements).
  HostTensor(DType dtype, Shape shape, std::span<const std::byte> bytes, std::shared_ptr<const void> keep_alive);

  static HostTensor FromF32(Shape shape, std::span<const float> values);
  static HostTensor FromI32(Shape shape, std::span<const int32_t> values);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t element_count() const { return shape_.element_count(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::span<std::byte> mutable_bytes();  // copies a view first

  // Typed access; T must have the size of the element type.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> as_mutable() {
    auto b = mutable_bytes();
    return {reinterpret_cast<T*>(b.data()), b.size() / sizeof(T)};
  }

  // Element i in row-major order, whatever the dtype (integers exactly up to 2^53; bool as 0 or 1).
  double Get(int64_t i) const;
  void Set(int64_t i, double value);  // rounds to nearest even and saturates for integers; not for block-quantized types
  std::vector<float> ToF32() const;
  // To a block-quantized type: one that CanQuantize (tensor/block_quant.h), and the last extent is whole blocks.
  HostTensor ConvertTo(DType dtype) const;
  HostTensor Reshaped(Shape shape) const;  // the same bytes; the element count must agree

 private:
  DType dtype_ = DType::kF32;
  Shape shape_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<std::vector<std::byte>> owned_;
  std::shared_ptr<const void> keep_alive_;
};

}  // namespace leeway
