#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

OP_TEST(equal, {
                   {.name = "integers",
                    .inputs = {Tensor({3, 5, 7}, DType::kI32).Range(-2, 2), Tensor({7}, DType::kI32).Range(-2, 2)}},
                   {.name = "floats", .inputs = {Values({6}, {-1, -1, 0, 0.5, 2, 3}), Values({6}, {-1, 1, 0, 0.25, 2, 4})}},
               });
OP_TEST(not_equal, {
                       {.name = "integers",
                        .inputs = {Tensor({3, 5, 7}, DType::kI32).Range(-2, 2), Tensor({7}, DType::kI32).Range(-2, 2)}},
                       {.name = "floats", .inputs = {Values({6}, {-1, -1, 0, 0.5, 2, 3}), Values({6}, {-1, 1, 0, 0.25, 2, 4})}},
                   });
OP_TEST(less, {
                  {.name = "integers",
                   .inputs = {Tensor({3, 5, 7}, DType::kI32).Range(-2, 2), Tensor({7}, DType::kI32).Range(-2, 2)}},
                  {.name = "floats", .inputs = {Values({6}, {-1, -1, 0, 0.5, 2, 3}), Values({6}, {-1, 1, 0, 0.25, 2, 4})}},
              });
OP_TEST(less_equal,
        {
            {.name = "integers",
             .inputs = {Tensor({3, 5, 7}, DType::kI32).Range(-2, 2), Tensor({7}, DType::kI32).Range(-2, 2)}},
            {.name = "floats", .inputs = {Values({6}, {-1, -1, 0, 0.5, 2, 3}), Values({6}, {-1, 1, 0, 0.25, 2, 4})}},
        });
OP_TEST(greater, {
                     {.name = "integers",
                      .inputs = {Tensor({3, 5, 7}, DType::kI32).Range(-2, 2), Tensor({7}, DType::kI32).Range(-2, 2)}},
                     {.name = "floats", .inputs = {Values({6}, {-1, -1, 0, 0.5, 2, 3}), Values({6}, {-1, 1, 0, 0.25, 2, 4})}},
                 });
OP_TEST(greater_equal,
        {
            {.name = "integers",
             .inputs = {Tensor({3, 5, 7}, DType::kI32).Range(-2, 2), Tensor({7}, DType::kI32).Range(-2, 2)}},
            {.name = "floats", .inputs = {Values({6}, {-1, -1, 0, 0.5, 2, 3}), Values({6}, {-1, 1, 0, 0.25, 2, 4})}},
        });
OP_TEST(logical_and, {
                         {.name = "broadcast", .inputs = {Tensor({3, 5}, DType::kBool), Tensor({5}, DType::kBool)}},
                     });
OP_TEST(logical_or, {
                        {.name = "broadcast", .inputs = {Tensor({3, 5}, DType::kBool), Tensor({5}, DType::kBool)}},
                    });
OP_TEST(logical_not, {
                         {.name = "odd", .inputs = {Tensor({3, 5}, DType::kBool)}},
                     });
OP_TEST(select,
        {
            {.name = "same_shape", .inputs = {Tensor({2, 3, 5}, DType::kBool), Tensor({2, 3, 5}), Tensor({2, 3, 5})}},
            {.name = "broadcast", .inputs = {Tensor({3, 1}, DType::kBool), Tensor({2, 3, 5}), Weights({5})}},
            {.name = "larger_condition", .inputs = {Tensor({2, 3, 5}, DType::kBool), Tensor({}), Tensor({5})}},
            {.name = "integers", .inputs = {Tensor({7}, DType::kBool), Tensor({7}, DType::kI32), Tensor({7}, DType::kI32)}},
        });

}  // namespace
}  // namespace leeway::op_test
