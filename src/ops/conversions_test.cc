#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

OP_TEST(prelu, {
                   {.name = "per_channel", .inputs = {Tensor({2, 3, 5, 7}), Weights({1, 1, 7})}},
                   {.name = "per_element", .inputs = {Tensor({1, 3, 2, 8}), Weights({3, 2, 8})}},
               });
OP_TEST(add_n, {
                   {.name = "three", .inputs = {Tensor({2, 5}), Tensor({2, 5}), Tensor({2, 5})}},
                   {.name = "one", .inputs = {Tensor({3})}},
                   {.name = "integers", .inputs = {Tensor({5}, DType::kI32), Tensor({5}, DType::kI32)}},
               });
OP_TEST(
    cast,
    {
        {.name = "float_to_int",
         .inputs = {Values({5}, {-1.9, -0.5, 0, 1.5, 2.9})},
         .attrs = {{"out_data_type", std::string("i32")}},
         .expected = {-1, 0, 0, 1, 2}},
        {.name = "int_to_float", .inputs = {Tensor({3, 5}, DType::kI32)}, .attrs = {{"out_data_type", std::string("f32")}}},
        {.name = "float_to_bool",
         .inputs = {Values({4}, {-0.25, 0, 1, 2})},
         .attrs = {{"out_data_type", std::string("bool")}},
         .expected = {1, 0, 1, 1}},
        {.name = "bool_to_float", .inputs = {Tensor({3, 5}, DType::kBool)}, .attrs = {{"out_data_type", std::string("f32")}}},
        {.name = "int_to_u8_keeps_low_bits",
         .inputs = {Values({3}, {-1, 5, 300}, DType::kI32)},
         .attrs = {{"out_data_type", int64_t{3}}},
         .expected = {255, 5, 44}},
        {.name = "int_to_i8_keeps_low_bits",
         .inputs = {Values({3}, {-1, 200, 127}, DType::kI32)},
         .attrs = {{"out_data_type", std::string("i8")}},
         .expected = {-1, -56, 127}},
    });
OP_TEST(quantize, {
                      {.name = "i8",
                       .inputs = {Tensor({3, 5}).Range(-2, 2)},
                       .attrs = {{"scale", 0.0159}, {"zero_point", int64_t{3}}, {"dtype", std::string("i8")}}},
                      {.name = "u8_saturates",
                       .inputs = {Values({4}, {-1, 0.25, 0.5, 100})},
                       .attrs = {{"scale", 0.5}, {"zero_point", int64_t{10}}, {"dtype", std::string("u8")}},
                       .expected = {8, 11, 11, 210}},
                  });
OP_TEST(
    dequantize,
    {
        {.name = "i8", .inputs = {Tensor({3, 5}, DType::kI8).Quantized({0.05f}, {3})}},
        {.name = "u8", .inputs = {Values({3}, {0, 128, 255}, DType::kU8).Quantized({0.5f}, {128})}, .expected = {-64, 0, 63.5}},
        {.name = "per_channel", .inputs = {Weights({2, 3}, DType::kI8).Quantized({0.5f, 0.25f}, {0, 0}, 0)}, .cpu_only = true},
    });

}  // namespace
}  // namespace leeway::op_test
