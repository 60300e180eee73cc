#include "tensor/host_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace leeway {
namespace {

TEST(Shape, RefusesWhatAFileMayNotSay) {
  int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(Shape::FromUntrusted(nine).error().code, Code::kUnsupported);
  int64_t negative[2] = {2, -1};
  EXPECT_EQ(Shape::FromUntrusted(negative).error().code, Code::kInvalidModel);
  int64_t large[3] = {0, 1 << 16, 1 << 15};
  EXPECT_EQ(Shape::FromUntrusted(large).error().code, Code::kUnsupported);
  int64_t huge[3] = {std::numeric_limits<int64_t>::max(), 2, 2};
  EXPECT_FALSE(Shape::FromUntrusted(huge).ok());
  int64_t fine[3] = {0, 3, 5};
  EXPECT_EQ(Shape::FromUntrusted(fine)->ToString(), "[0, 3, 5]");
}

TEST(Shape, ScalarHasOneElement) {
  EXPECT_EQ(Shape().element_count(), 1);
  EXPECT_EQ(Shape({2, 0, 3}).element_count(), 0);
  EXPECT_EQ(Shape({2, 5}).at(-1), 5);
}

TEST(HostTensor, EveryDTypeHoldsItsRange) {
  struct Case {
    DType dtype;
    double low, high;
  };
  for (auto [dtype, low, high] :
       {Case{DType::kI2, -2, 1}, Case{DType::kI4, -8, 7}, Case{DType::kU4, 0, 15}, Case{DType::kI8, -128, 127},
        Case{DType::kU8, 0, 255}, Case{DType::kI16, -32768, 32767}, Case{DType::kU16, 0, 65535},
        Case{DType::kI32, -2147483648.0, 2147483647.0}, Case{DType::kU32, 0, 4294967295.0}, Case{DType::kBool, 0, 1},
        Case{DType::kF16, -65504, 65504}}) {
    HostTensor tensor(dtype, {5});
    tensor.Set(0, low);
    tensor.Set(1, high);
    tensor.Set(2, 1);
    tensor.Set(4, high);
    EXPECT_EQ(tensor.Get(0), low) << DTypeName(dtype);
    EXPECT_EQ(tensor.Get(1), high) << DTypeName(dtype);
    EXPECT_EQ(tensor.Get(2), 1) << DTypeName(dtype);
    EXPECT_EQ(tensor.Get(3), 0) << DTypeName(dtype);
    EXPECT_EQ(tensor.Get(4), high) << DTypeName(dtype);
    if (dtype == DType::kBool || dtype == DType::kF16) continue;
    tensor.Set(1, high + 1000);
    tensor.Set(2, low - 1000);
    EXPECT_EQ(tensor.Get(1), high) << "saturates: " << DTypeName(dtype);
    EXPECT_EQ(tensor.Get(2), low) << "saturates: " << DTypeName(dtype);
    tensor.Set(3, 0.5);
    EXPECT_EQ(tensor.Get(3), 0) << "ties to even: " << DTypeName(dtype);
    tensor.Set(3, std::nan(""));
    EXPECT_EQ(tensor.Get(3), 0) << DTypeName(dtype);
  }
}

TEST(HostTensor, SixtyFourBitIntegersSaturate) {
  HostTensor tensor(DType::kI64, {2});
  tensor.Set(0, 1e30);
  tensor.Set(1, -1e30);
  EXPECT_EQ(tensor.as<int64_t>()[0], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(tensor.as<int64_t>()[1], std::numeric_limits<int64_t>::min());
  HostTensor narrow = tensor.ConvertTo(DType::kI32);
  EXPECT_EQ(narrow.as<int32_t>()[0], std::numeric_limits<int32_t>::max());
  EXPECT_EQ(narrow.as<int32_t>()[1], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(tensor.ConvertTo(DType::kU64).as<uint64_t>()[1], 0u);
}

TEST(HostTensor, LargeIntegersConvertExactly) {
  HostTensor tensor(DType::kI64, {1});
  tensor.as_mutable<int64_t>()[0] = (int64_t(1) << 53) + 1;
  EXPECT_EQ(tensor.ConvertTo(DType::kU64).as<uint64_t>()[0], (uint64_t(1) << 53) + 1);
}

TEST(HostTensor, EveryPairOfDTypesConvertsSmallNumbers) {
  for (int from = 0; from <= int(DType::kI2); ++from) {
    for (int to = 0; to <= int(DType::kI2); ++to) {
      HostTensor tensor(DType(from), {7});
      for (int i = 0; i < 7; ++i) tensor.Set(i, i % 2);
      HostTensor converted = tensor.ConvertTo(DType(to));
      for (int i = 0; i < 7; ++i)
        EXPECT_EQ(converted.Get(i), i % 2) << DTypeName(DType(from)) << " to " << DTypeName(DType(to));
    }
  }
}

TEST(HostTensor, AViewIsCopiedWhenWritten) {
  std::vector<float> values = {1, 2, 3};
  auto keep = std::make_shared<int>(0);
  HostTensor view(DType::kF32, {3}, std::as_bytes(std::span(values)), keep);
  EXPECT_EQ(keep.use_count(), 2);
  HostTensor copy = view.Reshaped({1, 3});
  copy.Set(1, 20);
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(copy.Get(1), 20);
  EXPECT_EQ(view.Get(1), 2);
  HostTensor second = copy;
  second.Set(0, 7);
  EXPECT_EQ(copy.Get(0), 1) << "copies share bytes only until one is written";
}

}  // namespace
}  // namespace leeway
