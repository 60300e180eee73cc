// What shape rules refuse, with what message.
#include <gtest/gtest.h>

#include "graph/op_def.h"

namespace leeway {
namespace {

struct Input {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int32_t> constant = {};
};

std::string Refusal(const char* op_name, const std::vector<Input>& inputs,
                    const std::vector<std::pair<const char*, AttrValue>>& attr_values = {}) {
  const OpDef* op = FindOp(op_name);
  if (op == nullptr) return "no such operator";
  AttrSet attrs;
  for (const auto& [name, value] : attr_values) attrs.Set(name, value);
  std::vector<HostTensor> constants;
  constants.reserve(inputs.size());
  std::vector<OperandInfo> operands;
  for (const Input& input : inputs) {
    OperandInfo operand{.type = {input.dtype, input.shape}};
    if (!input.constant.empty()) {
      constants.push_back(HostTensor::FromI32(input.shape, input.constant));
      operand.constant = &constants.back();
    }
    operands.push_back(operand);
  }
  auto types = op->infer(OpCall{attrs, operands, {}});
  return types.ok() ? "accepted" : types.error().message;
}

Input Int(Shape shape, std::vector<int32_t> values) { return {DType::kI32, shape, std::move(values)}; }

#define EXPECT_REFUSED(text, ...) EXPECT_NE(Refusal(__VA_ARGS__).find(text), std::string::npos) << Refusal(__VA_ARGS__)

TEST(Refusals, NumberAndTypeOfInputs) {
  EXPECT_REFUSED("has 1 inputs; it takes 2", "add", {{.shape = {3}}});
  EXPECT_REFUSED("types f32 and i32; they must be the same", "add", {{.shape = {3}}, {DType::kI32, {3}}});
  EXPECT_REFUSED("of type bool", "sqrt", {{DType::kBool, {3}}});
  EXPECT_REFUSED("input 0 of type i8", "conv_2d", {{DType::kI8, {1, 3, 3, 1}}, {.shape = {1, 1, 1, 1}}});
  EXPECT_REFUSED("condition of type f32", "select", {{.shape = {3}}, {.shape = {3}}, {.shape = {3}}});
}

TEST(Refusals, ShapesThatDoNotFit) {
  EXPECT_REFUSED("cannot be broadcast", "add", {{.shape = {2, 3}}, {.shape = {4}}});
  EXPECT_REFUSED("it takes 4 axes", "conv_2d", {{.shape = {3, 3, 1}}, {.shape = {1, 1, 1, 1}}});
  EXPECT_REFUSED("must be a multiple", "conv_2d", {{.shape = {1, 3, 3, 5}}, {.shape = {2, 1, 1, 3}}});
  EXPECT_REFUSED("it takes 2 elements", "conv_2d", {{.shape = {1, 3, 3, 5}}, {.shape = {2, 1, 1, 5}}, {.shape = {3}}});
  EXPECT_REFUSED("last a multiple", "depthwise_conv_2d", {{.shape = {1, 3, 3, 4}}, {.shape = {1, 2, 2, 6}}});
  EXPECT_REFUSED("whole rows", "fully_connected", {{.shape = {2, 5}}, {.shape = {3, 4}}});
  EXPECT_REFUSED("inner extents differ", "batch_matmul", {{.shape = {2, 5}}, {.shape = {4, 3}}});
  EXPECT_REFUSED("another number of elements", "reshape", {{.shape = {2, 5}}, Int({2}, {3, 3})});
  EXPECT_REFUSED("do not fit", "concatenation", {{.shape = {2, 5}}, {.shape = {3, 5}}}, {{"axis", int64_t{1}}});
  EXPECT_REFUSED("does not broadcast", "broadcast_to", {{.shape = {2, 5}}, Int({1}, {5})});
}

TEST(Refusals, NumbersOutOfRange) {
  EXPECT_REFUSED("has axis 3", "arg_max", {{.shape = {2, 5}}, Int({}, {3})});
  EXPECT_REFUSED("padding 7", "conv_2d", {{.shape = {1, 3, 3, 1}}, {.shape = {1, 1, 1, 1}}}, {{"padding", int64_t{7}}});
  EXPECT_REFUSED("stride 0", "conv_2d", {{.shape = {1, 3, 3, 1}}, {.shape = {1, 1, 1, 1}}}, {{"stride_h", int64_t{0}}});
  EXPECT_REFUSED("which is outside", "slice", {{.shape = {4}}, Int({1}, {3}), Int({1}, {2})});
  EXPECT_REFUSED("stride 0", "strided_slice", {{.shape = {4}}, Int({1}, {0}), Int({1}, {2}), Int({1}, {0})});
  EXPECT_REFUSED("twice", "transpose", {{.shape = {4, 3}}, Int({2}, {1, 1})});
  EXPECT_REFUSED("elements to mirror", "mirror_pad", {{.shape = {2}}, Int({1, 2}, {2, 0})});
  EXPECT_REFUSED("must be a multiple", "split", {Int({}, {0}), {.shape = {5}}}, {{"num_splits", int64_t{2}}});
  EXPECT_REFUSED("takes [9] elements of rows of 5", "topk_v2", {{.shape = {5}}, Int({}, {9})});
  EXPECT_REFUSED("delta 0", "range", {Int({}, {0}), Int({}, {5}), Int({}, {0})});
}

TEST(Refusals, WhatIsOnlyKnownAtRunTime) {
  EXPECT_REFUSED("only known at run time", "reshape", {{.shape = {2, 5}}, {DType::kI32, {2}}});
  EXPECT_REFUSED("only known at run time", "transpose", {{.shape = {2, 5}}, {DType::kI32, {2}}});
  EXPECT_REFUSED("only known at run time", "sum", {{.shape = {2, 5}}, {DType::kI32, {1}}});
}

TEST(Refusals, SizesThatNoTensorHas) {
  EXPECT_REFUSED("output of operator fill", "fill", {Int({3}, {65536, 65536, 4}), {.shape = {}}});
  EXPECT_REFUSED("output of operator tile", "tile", {{.shape = {4, 4}}, Int({2}, {2000000000, 1000000000})});
  EXPECT_REFUSED("output of operator pad", "pad", {{.shape = {4}}, Int({1, 2}, {2000000000, 2000000000})});
}

TEST(OpTable, NamesAreUniqueAndComplete) {
  EXPECT_GE(AllOps().size(), 90u);
  for (const OpDef* op : AllOps()) {
    EXPECT_EQ(FindOp(op->name), op) << op->name;
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_NE(op->reference, nullptr) << op->name;
    for (const char* name : op->tflite) EXPECT_EQ(FindOpForTflite(name), op) << name;
  }
  EXPECT_EQ(FindOp("no_such_operator"), nullptr);
  EXPECT_EQ(FindOpForTflite("PADV2"), FindOp("pad"));
  EXPECT_EQ(FindOpForTflite("custom:Convolution2DTransposeBias"), FindOp("transpose_conv_bias"));
}

}  // namespace
}  // namespace leeway
