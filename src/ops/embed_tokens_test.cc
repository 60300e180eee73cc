#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

Operand Step(int position) { return Values({8}, {double(position), 1, 0, 0, 0, 0, 0, 0}, DType::kI32); }

OP_TEST(embed_tokens,
        {
            {.name = "plain",
             .inputs = {Weights({5, 6}), Values({4}, {3, 0, 4, 1}, DType::kI32), Step(1)},
             .attrs = {{"rows", int64_t{2}}, {"scale", 2.5}}},
            {.name = "q4_0",
             .inputs = {Weights({7, 64}, DType::kQ4_0), Values({9}, {1, 2, 6, 0, 0, 3, 5, 4, 6}, DType::kI32), Step(4)},
             .attrs = {{"rows", int64_t{3}}, {"scale", 25.298221281347036}}},
            {.name = "q8_0", .inputs = {Weights({3, 32}, DType::kQ8_0), Values({2}, {2, 1}, DType::kI32), Step(0)}},
            {.name = "q6_k", .inputs = {Weights({3, 256}, DType::kQ6_K), Values({2}, {2, 1}, DType::kI32), Step(0)}},
            {.name = "rows_beyond_the_tokens",
             .inputs = {Weights({5, 4}), Values({3}, {3, 0, 4}, DType::kI32), Step(2)},
             .attrs = {{"rows", int64_t{4}}}},
            {.name = "ids_outside",
             .inputs = {Weights({5, 4}), Values({3}, {-1, 5, 1000000}, DType::kI32), Step(0)},
             .attrs = {{"rows", int64_t{3}}}},
        });

}  // namespace
}  // namespace leeway::op_test
