#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

OP_TEST(relu, {
                  {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-8, 8)}, .tolerance = 4e-6},
                  {.name = "scalar", .inputs = {Tensor({}).Range(-8, 8)}, .tolerance = 4e-6},
                  {.name = "known", .inputs = {Values({6}, {-2, -0.5, 0, 0.5, 2, 7})}, .expected = {0, 0, 0, 0.5, 2, 7}},
              });
OP_TEST(relu6, {
                   {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-8, 8)}, .tolerance = 4e-6},
                   {.name = "scalar", .inputs = {Tensor({}).Range(-8, 8)}, .tolerance = 4e-6},
                   {.name = "known", .inputs = {Values({6}, {-2, -0.5, 0, 0.5, 2, 7})}, .expected = {0, 0, 0, 0.5, 2, 6}},
               });
OP_TEST(relu_n1_to_1,
        {
            {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-8, 8)}, .tolerance = 4e-6},
            {.name = "scalar", .inputs = {Tensor({}).Range(-8, 8)}, .tolerance = 4e-6},
            {.name = "known", .inputs = {Values({6}, {-2, -0.5, 0, 0.5, 2, 7})}, .expected = {-1, -0.5, 0, 0.5, 1, 1}},
        });
OP_TEST(relu_0_to_1, {
                         {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-8, 8)}, .tolerance = 4e-6},
                         {.name = "scalar", .inputs = {Tensor({}).Range(-8, 8)}, .tolerance = 4e-6},
                         {.name = "known", .inputs = {Values({6}, {-2, -0.5, 0, 0.5, 2, 7})}, .expected = {0, 0, 0, 0.5, 1, 1}},
                     });
OP_TEST(hard_swish, {
                        {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-8, 8)}, .tolerance = 4e-6},
                        {.name = "scalar", .inputs = {Tensor({}).Range(-8, 8)}, .tolerance = 4e-6},
                        {.name = "known",
                         .inputs = {Values({6}, {-2, -0.5, 0, 0.5, 2, 7})},
                         .expected = {-1.0 / 3, -0.625 / 3, 0, 0.875 / 3, 5.0 / 3, 7}},
                    });
OP_TEST(elu, {
                 {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-4, 4)}, .tolerance = 4e-6},
                 {.name = "scalar", .inputs = {Tensor({}).Range(-4, 4)}, .tolerance = 4e-6},
                 {.name = "near_zero", .inputs = {Tensor({64}).Range(-0.02, 0.02)}, .tolerance = 1e-6},
             });
OP_TEST(silu, {
                  {.name = "odd", .inputs = {Tensor({3, 7}).Range(-6, 6)}},
                  {.name = "large", .inputs = {Values({1, 3}, {-1000, 1000, 0})}, .expected = {0, 1000, 0}},
                  {.name = "known", .inputs = {Values({3}, {-1, 1, 2})}, .expected = {-0.26894142, 0.73105858, 1.76159416}},
              });

OP_TEST(logistic, {
                      {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-8, 8)}, .tolerance = 4e-6},
                      {.name = "scalar", .inputs = {Tensor({}).Range(-8, 8)}, .tolerance = 4e-6},
                      {.name = "extremes", .inputs = {Values({4}, {-200, -88, 88, 200})}, .expected = {0, 0, 1, 1}},
                  });
OP_TEST(tanh, {
                  {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7}).Range(-4, 4)}, .tolerance = 4e-6},
                  {.name = "scalar", .inputs = {Tensor({}).Range(-4, 4)}, .tolerance = 4e-6},
                  {.name = "extremes", .inputs = {Values({2}, {-300, 300})}, .expected = {-1, 1}},
              });
OP_TEST(leaky_relu,
        {
            {.name = "odd_channels", .inputs = {Tensor({2, 3, 5, 7})}, .attrs = {{"alpha", 0.2}}},
            {.name = "known", .inputs = {Values({3}, {-2, 0, 4})}, .attrs = {{"alpha", 0.25}}, .expected = {-0.5, 0, 4}},
        });
OP_TEST(
    gelu,
    {
        {.name = "exact", .inputs = {Tensor({2, 3, 5, 7}).Range(-5, 5)}, .tolerance = 4e-6},
        {.name = "by_tanh", .inputs = {Tensor({2, 3, 5, 7}).Range(-5, 5)}, .attrs = {{"approximate", true}}, .tolerance = 4e-6},
    });

}  // namespace
}  // namespace leeway::op_test
