#include "tensor/npy_tensor.h"

#include <gtest/gtest.h>

namespace leeway {
namespace {

TEST(NpyTensor, EveryElementTypeComesBackWithItsValues) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI64, DType::kI32, DType::kI16, DType::kI8,
                      DType::kU64, DType::kU32, DType::kU16, DType::kU8, DType::kBool, DType::kI4, DType::kU4, DType::kI2}) {
    HostTensor tensor(dtype, {3, 1});
    tensor.Set(0, 1);
    tensor.Set(2, IsSignedInt(dtype) || IsFloat(dtype) ? -1 : 1);
    auto back = TensorFromNpy(NpyFromTensor(tensor), DTypeName(dtype));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->shape(), tensor.shape());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(back->Get(i), tensor.Get(i)) << DTypeName(dtype);
  }
}

TEST(NpyTensor, RefusesTooManyAxes) {
  auto refused = TensorFromNpy(NpyArray{"|u1", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {std::byte(0)}}, "nine");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("nine"), std::string::npos);
}

}  // namespace
}  // namespace leeway
