// Operators that run over the generic copy kernel: one of each kind. Their own tables are beside them.
#include "ops/op_test.h"

namespace leeway {
namespace {

using namespace leeway::op_test;

OP_TEST(relu, {
                  {.name = "by_copy", .inputs = {Tensor({2, 3, 5})}},
                  {.name = "by_copy_scalar", .inputs = {Tensor({})}},
                  {.name = "by_copy_empty", .inputs = {Tensor({0, 4})}},
                  {.name = "by_copy_rank_5", .inputs = {Tensor({2, 1, 3, 2, 6})}},
              });
OP_TEST(add, {
                 {.name = "by_copy_same_shape", .inputs = {Tensor({2, 3, 7}), Tensor({2, 3, 7})}},
                 {.name = "by_copy_broadcast", .inputs = {Tensor({3, 1, 5}), Tensor({2, 1, 4, 1})}},
                 {.name = "by_copy_constant_row", .inputs = {Tensor({1, 4, 4, 6}), Weights({6})}},
             });
OP_TEST(less, {
                  {.name = "by_copy", .inputs = {Tensor({3, 5}), Tensor({5})}},
              });
OP_TEST(transpose, {
                       {.name = "by_copy", .inputs = {Tensor({2, 3, 5, 6}), ConstantValues({4}, {0, 3, 1, 2})}},
                   });
OP_TEST(concatenation, {
                           {.name = "by_copy_axis_1", .inputs = {Tensor({2, 3, 5}), Tensor({2, 1, 5})}, .attrs = {{"axis", 1}}},
                           {.name = "by_copy_last",
                            .inputs = {Tensor({2, 3, 5}), Tensor({2, 3, 4}), Tensor({2, 3, 1})},
                            .attrs = {{"axis", -1}}},
                       });
OP_TEST(pad, {
                 {.name = "by_copy", .inputs = {Tensor({2, 3, 5}), ConstantValues({3, 2}, {0, 0, 1, 2, 0, 3})}},
             });

}  // namespace
}  // namespace leeway
