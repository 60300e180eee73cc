#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

OP_TEST(add, {
                 {.name = "same_shape", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3), Tensor({2, 3, 5, 7}).Range(-3, 3)}},
                 {.name = "one_per_channel", .inputs = {Tensor({1, 3, 2, 6}).Range(-3, 3), Weights({6}).Range(-3, 3)}},
                 {.name = "both_broadcast", .inputs = {Tensor({2, 1, 5, 1}), Tensor({3, 1, 7})}},
                 {.name = "one_per_row", .inputs = {Tensor({1, 1, 5, 1}), Tensor({2, 3, 5, 7})}},
                 {.name = "scalar", .inputs = {Tensor({2, 3}), Values({}, {1.5})}},
                 {.name = "six_axes", .inputs = {Tensor({2, 1, 3, 2, 1, 5}), Tensor({1, 2, 1, 2, 3, 1})}},
                 {.name = "empty", .inputs = {Tensor({2, 0, 3}), Tensor({3})}},
                 {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(-7, 7)}},
             });
OP_TEST(sub, {
                 {.name = "same_shape", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3), Tensor({2, 3, 5, 7}).Range(-3, 3)}},
                 {.name = "one_per_channel", .inputs = {Tensor({1, 3, 2, 6}).Range(-3, 3), Weights({6}).Range(-3, 3)}},
                 {.name = "larger_second", .inputs = {Tensor({7}), Tensor({2, 3, 7})}},
                 {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(-7, 7)}},
             });
OP_TEST(mul, {
                 {.name = "same_shape", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3), Tensor({2, 3, 5, 7}).Range(-3, 3)}},
                 {.name = "one_per_channel", .inputs = {Tensor({1, 3, 2, 6}).Range(-3, 3), Weights({6}).Range(-3, 3)}},
                 {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(-7, 7)}},
             });
OP_TEST(div, {
                 {.name = "same_shape",
                  .inputs = {Tensor({2, 3, 5, 7}).Range(0.5, 3), Tensor({2, 3, 5, 7}).Range(0.5, 3)},
                  .tolerance = 4e-6},
                 {.name = "one_per_channel",
                  .inputs = {Tensor({1, 3, 2, 6}).Range(0.5, 3), Weights({6}).Range(0.5, 3)},
                  .tolerance = 4e-6},
                 {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(1, 7)}},
             });
OP_TEST(maximum, {
                     {.name = "same_shape", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3), Tensor({2, 3, 5, 7}).Range(-3, 3)}},
                     {.name = "one_per_channel", .inputs = {Tensor({1, 3, 2, 6}).Range(-3, 3), Weights({6}).Range(-3, 3)}},
                     {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(-7, 7)}},
                 });
OP_TEST(minimum, {
                     {.name = "same_shape", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3), Tensor({2, 3, 5, 7}).Range(-3, 3)}},
                     {.name = "one_per_channel", .inputs = {Tensor({1, 3, 2, 6}).Range(-3, 3), Weights({6}).Range(-3, 3)}},
                     {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(-7, 7)}},
                 });
OP_TEST(squared_difference,
        {
            {.name = "same_shape", .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3), Tensor({2, 3, 5, 7}).Range(-3, 3)}},
            {.name = "one_per_channel", .inputs = {Tensor({1, 3, 2, 6}).Range(-3, 3), Weights({6}).Range(-3, 3)}},
            {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(-7, 7)}},
        });
OP_TEST(floor_div,
        {
            {.name = "same_shape", .inputs = {Tensor({2, 3, 5, 7}).Range(0.5, 3), Tensor({2, 3, 5, 7}).Range(0.5, 3)}},
            {.name = "one_per_channel", .inputs = {Tensor({1, 3, 2, 6}).Range(0.5, 3), Weights({6}).Range(0.5, 3)}},
            {.name = "rounds_down",
             .inputs = {Values({4}, {7, -7, 7, -7}, DType::kI32), Values({4}, {2, 2, -2, -2}, DType::kI32)},
             .expected = {3, -4, -4, 3}},
            {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(1, 7)}},
        });
OP_TEST(floor_mod, {
                       {.name = "same_shape",
                        .inputs = {Tensor({2, 3, 5, 7}).Range(0.5, 3), Tensor({2, 3, 5, 7}).Range(0.5, 3)},
                        .tolerance = 4e-6},
                       {.name = "one_per_channel",
                        .inputs = {Tensor({1, 3, 2, 6}).Range(0.5, 3), Weights({6}).Range(0.5, 3)},
                        .tolerance = 4e-6},
                       {.name = "sign_of_divisor",
                        .inputs = {Values({4}, {7, -7, 7, -7}, DType::kI32), Values({4}, {2, 2, -2, -2}, DType::kI32)},
                        .expected = {1, 1, -1, -1}},
                       {.name = "floats",
                        .inputs = {Values({4}, {5.5, -5.5, 5.5, -5.5}), Values({4}, {2, 2, -2, -2})},
                        .expected = {1.5, 0.5, -0.5, -1.5}},
                       {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), Tensor({3, 5}, DType::kI32).Range(1, 7)}},
                   });
OP_TEST(pow, {
                 {.name = "same_shape",
                  .inputs = {Tensor({2, 3, 5, 7}).Range(0.2, 2), Tensor({2, 3, 5, 7}).Range(0.2, 2)},
                  .tolerance = 8e-6},
                 {.name = "one_per_channel",
                  .inputs = {Tensor({1, 3, 2, 6}).Range(0.2, 2), Weights({6}).Range(0.2, 2)},
                  .tolerance = 8e-6},
                 {.name = "negative_base",
                  .inputs = {Values({5}, {-2, -2, -3, 0, 4}), Values({5}, {2, 3, 0, 2, 0.5})},
                  .tolerance = 4e-6,
                  .expected = {4, -8, 1, 0, 2}},
                 {.name = "integers",
                  .inputs = {Values({6}, {2, -2, -1, 1, 3, 5}, DType::kI32), Values({6}, {10, 3, -3, -2, -1, 0}, DType::kI32)},
                  .expected = {1024, -8, -1, 1, 0, 1}},
             });
OP_TEST(atan2, {
                   {.name = "same_shape",
                    .inputs = {Tensor({2, 3, 5, 7}).Range(-3, 3), Tensor({2, 3, 5, 7}).Range(-3, 3)},
                    .tolerance = 4e-6},
                   {.name = "one_per_channel",
                    .inputs = {Tensor({1, 3, 2, 6}).Range(-3, 3), Weights({6}).Range(-3, 3)},
                    .tolerance = 4e-6},
               });

}  // namespace
}  // namespace leeway::op_test
