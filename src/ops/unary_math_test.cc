#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

OP_TEST(abs, {
                 {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32)}},
                 {.name = "known", .inputs = {Values({1, 5}, {-2, -0.5, 0, 1, 3})}, .expected = {2, 0.5, 0, 1, 3}},
             });
OP_TEST(neg, {
                 {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32)}},
                 {.name = "six_axes", .inputs = {Tensor({2, 1, 3, 2, 2, 5})}},
                 {.name = "empty", .inputs = {Tensor({2, 0, 3})}},
             });
OP_TEST(sign, {
                  {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                  {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                  {.name = "known", .inputs = {Values({3}, {-2, 0, 7})}, .expected = {-1, 0, 1}},
              });
OP_TEST(sqrt, {
                  {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(0, 9)}, .tolerance = 4e-6},
                  {.name = "scalar", .inputs = {Tensor({}).Range(0, 9)}, .tolerance = 4e-6},
              });
OP_TEST(rsqrt, {
                   {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(0.1, 9)}, .tolerance = 4e-6},
                   {.name = "scalar", .inputs = {Tensor({}).Range(0.1, 9)}, .tolerance = 4e-6},
               });
OP_TEST(square, {
                    {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                    {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                });
OP_TEST(exp, {
                 {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-5, 5)}, .tolerance = 4e-6},
                 {.name = "scalar", .inputs = {Tensor({}).Range(-5, 5)}, .tolerance = 4e-6},
             });
OP_TEST(log, {
                 {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(0.01, 9)}, .tolerance = 4e-6},
                 {.name = "scalar", .inputs = {Tensor({}).Range(0.01, 9)}, .tolerance = 4e-6},
             });
OP_TEST(sin, {
                 {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "many_turns", .inputs = {Tensor({200}).Range(-2000, 2000)}, .tolerance = 4e-6},
             });
OP_TEST(cos, {
                 {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                 {.name = "many_turns", .inputs = {Tensor({200}).Range(-2000, 2000)}, .tolerance = 4e-6},
             });
OP_TEST(floor, {
                   {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                   {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
               });
OP_TEST(ceil, {
                  {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                  {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
              });
OP_TEST(round, {
                   {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                   {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                   {.name = "halves_go_to_even",
                    .inputs = {Values({6}, {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5})},
                    .expected = {-2, -2, 0, 0, 2, 2}},
               });
OP_TEST(zeros_like, {
                        {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3)}, .tolerance = 4e-6},
                        {.name = "scalar", .inputs = {Tensor({}).Range(-3, 3)}, .tolerance = 4e-6},
                    });

}  // namespace
}  // namespace leeway::op_test
