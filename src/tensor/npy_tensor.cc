#include "tensor/npy_tensor.h"

#include <utility>

#include "base/strings.h"

namespace leeway {
namespace {

constexpr std::pair<const char*, DType> kTypes[] = {
    {"<f4", DType::kF32}, {"<f2", DType::kF16}, {"<f8", DType::kF64}, {"<i8", DType::kI64},
    {"<i4", DType::kI32}, {"<i2", DType::kI16}, {"|i1", DType::kI8},  {"<u8", DType::kU64},
    {"<u4", DType::kU32}, {"<u2", DType::kU16}, {"|u1", DType::kU8},  {"|b1", DType::kBool},
};

}  // namespace

Result<HostTensor> TensorFromNpy(NpyArray array, const std::string& name) {
  for (const auto& [descr, dtype] : kTypes) {
    if (array.descr != descr) continue;
    ASSIGN_OR_RETURN_CONTEXT(Shape shape, Shape::FromUntrusted(array.shape), StrCat("array \"", name, "\""));
    if (dtype == DType::kBool) {
      for (std::byte& b : array.bytes) b = std::byte(b != std::byte(0));
    }
    auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(array.bytes));
    return HostTensor(dtype, shape, *bytes, bytes);
  }
  return Error{Code::kUnsupported,
               StrCat("The array \"", name, "\" has elements of type \"", array.descr, "\", which no tensor has.")};
}

NpyArray NpyFromTensor(const HostTensor& tensor) {
  for (const auto& [descr, dtype] : kTypes) {
    if (tensor.dtype() != dtype) continue;
    return NpyArray{descr, {tensor.shape().begin(), tensor.shape().end()}, {tensor.bytes().begin(), tensor.bytes().end()}};
  }
  bool is_float = IsFloat(tensor.dtype());
  return NpyFromTensor(tensor.ConvertTo(is_float ? DType::kF32 : IsSignedInt(tensor.dtype()) ? DType::kI8 : DType::kU8));
}

}  // namespace leeway
