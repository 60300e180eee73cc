#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

OP_TEST(resize_bilinear,
        {
            {.name = "up", .inputs = {Tensor({2, 3, 4, 5}), ConstantValues({2}, {7, 9})}},
            {.name = "down", .inputs = {Tensor({1, 8, 7, 3}), ConstantValues({2}, {3, 4})}},
            {.name = "align_corners",
             .inputs = {Tensor({1, 3, 4, 5}), ConstantValues({2}, {7, 9})},
             .attrs = {{"align_corners", true}}},
            {.name = "half_pixel_centers",
             .inputs = {Tensor({1, 3, 4, 8}), ConstantValues({2}, {6, 8})},
             .attrs = {{"half_pixel_centers", true}}},
            {.name = "half_pixel_centers_down",
             .inputs = {Tensor({1, 9, 7, 4}), ConstantValues({2}, {4, 3})},
             .attrs = {{"half_pixel_centers", true}}},
            {.name = "one_pixel", .inputs = {Tensor({1, 1, 1, 3}), ConstantValues({2}, {4, 3})}},
            {.name = "known", .inputs = {Values({1, 1, 2, 1}, {0, 4}), ConstantValues({2}, {1, 4})}, .expected = {0, 2, 4, 4}},
        });
OP_TEST(resize_nearest_neighbor,
        {
            {.name = "twice", .inputs = {Tensor({2, 3, 4, 5}), ConstantValues({2}, {6, 8})}},
            {.name = "uneven", .inputs = {Tensor({1, 3, 4, 5}), ConstantValues({2}, {7, 9})}},
            {.name = "align_corners",
             .inputs = {Tensor({1, 3, 4, 5}), ConstantValues({2}, {7, 9})},
             .attrs = {{"align_corners", true}}},
            {.name = "half_pixel_centers",
             .inputs = {Tensor({1, 5, 7, 3}), ConstantValues({2}, {3, 4})},
             .attrs = {{"half_pixel_centers", true}}},
            {.name = "known", .inputs = {Values({1, 1, 2, 1}, {0, 4}), ConstantValues({2}, {1, 3})}, .expected = {0, 0, 4}},
        });
OP_TEST(mean,
        {
            {.name = "pixels",
             .inputs = {Tensor({2, 5, 3, 7}).Range(0.5, 1.5), ConstantValues({2}, {1, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "channels", .inputs = {Tensor({2, 3, 7}).Range(0.5, 1.5), ConstantValues({1}, {-1})}, .terms = 7},
            {.name = "everything", .inputs = {Tensor({3, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 1})}, .terms = 15},
            {.name = "outer_and_last",
             .inputs = {Tensor({3, 2, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "many", .inputs = {Tensor({1, 13, 11, 5}).Range(0.9, 1.1), ConstantValues({2}, {1, 2})}, .terms = 143},
            {.name = "long_row", .inputs = {Tensor({2, 259}).Range(0.9, 1.1), ConstantValues({1}, {1})}, .terms = 259},
            {.name = "five_axes", .inputs = {Tensor({2, 3, 2, 2, 3}).Range(0.5, 1.5), ConstantValues({2}, {1, 3})}, .terms = 6},
            {.name = "integers", .inputs = {Tensor({3, 5, 6}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
            {.name = "integer_row", .inputs = {Tensor({3, 5}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
        });
OP_TEST(sum,
        {
            {.name = "pixels",
             .inputs = {Tensor({2, 5, 3, 7}).Range(0.5, 1.5), ConstantValues({2}, {1, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "channels", .inputs = {Tensor({2, 3, 7}).Range(0.5, 1.5), ConstantValues({1}, {-1})}, .terms = 7},
            {.name = "everything", .inputs = {Tensor({3, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 1})}, .terms = 15},
            {.name = "outer_and_last",
             .inputs = {Tensor({3, 2, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "many", .inputs = {Tensor({1, 13, 11, 5}).Range(0.9, 1.1), ConstantValues({2}, {1, 2})}, .terms = 143},
            {.name = "long_row", .inputs = {Tensor({2, 259}).Range(0.9, 1.1), ConstantValues({1}, {1})}, .terms = 259},
            {.name = "five_axes", .inputs = {Tensor({2, 3, 2, 2, 3}).Range(0.5, 1.5), ConstantValues({2}, {1, 3})}, .terms = 6},
            {.name = "integers", .inputs = {Tensor({3, 5, 6}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
            {.name = "integer_row", .inputs = {Tensor({3, 5}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
        });
OP_TEST(reduce_max,
        {
            {.name = "pixels",
             .inputs = {Tensor({2, 5, 3, 7}).Range(0.5, 1.5), ConstantValues({2}, {1, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "channels", .inputs = {Tensor({2, 3, 7}).Range(0.5, 1.5), ConstantValues({1}, {-1})}, .terms = 7},
            {.name = "everything", .inputs = {Tensor({3, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 1})}, .terms = 15},
            {.name = "outer_and_last",
             .inputs = {Tensor({3, 2, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "many", .inputs = {Tensor({1, 13, 11, 5}).Range(0.9, 1.1), ConstantValues({2}, {1, 2})}, .terms = 143},
            {.name = "long_row", .inputs = {Tensor({2, 259}).Range(0.9, 1.1), ConstantValues({1}, {1})}, .terms = 259},
            {.name = "five_axes", .inputs = {Tensor({2, 3, 2, 2, 3}).Range(0.5, 1.5), ConstantValues({2}, {1, 3})}, .terms = 6},
            {.name = "integers", .inputs = {Tensor({3, 5, 6}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
            {.name = "integer_row", .inputs = {Tensor({3, 5}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
            {.name = "negative_row", .inputs = {Tensor({2, 7}).Range(-3, -1), ConstantValues({1}, {1})}},
        });
OP_TEST(reduce_min,
        {
            {.name = "pixels",
             .inputs = {Tensor({2, 5, 3, 7}).Range(0.5, 1.5), ConstantValues({2}, {1, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "channels", .inputs = {Tensor({2, 3, 7}).Range(0.5, 1.5), ConstantValues({1}, {-1})}, .terms = 7},
            {.name = "everything", .inputs = {Tensor({3, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 1})}, .terms = 15},
            {.name = "outer_and_last",
             .inputs = {Tensor({3, 2, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "many", .inputs = {Tensor({1, 13, 11, 5}).Range(0.9, 1.1), ConstantValues({2}, {1, 2})}, .terms = 143},
            {.name = "long_row", .inputs = {Tensor({2, 259}).Range(0.9, 1.1), ConstantValues({1}, {1})}, .terms = 259},
            {.name = "five_axes", .inputs = {Tensor({2, 3, 2, 2, 3}).Range(0.5, 1.5), ConstantValues({2}, {1, 3})}, .terms = 6},
            {.name = "integers", .inputs = {Tensor({3, 5, 6}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
            {.name = "integer_row", .inputs = {Tensor({3, 5}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
        });
OP_TEST(reduce_prod,
        {
            {.name = "pixels",
             .inputs = {Tensor({2, 5, 3, 7}).Range(0.5, 1.5), ConstantValues({2}, {1, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "channels", .inputs = {Tensor({2, 3, 7}).Range(0.5, 1.5), ConstantValues({1}, {-1})}, .terms = 7},
            {.name = "everything", .inputs = {Tensor({3, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 1})}, .terms = 15},
            {.name = "outer_and_last",
             .inputs = {Tensor({3, 2, 5}).Range(0.5, 1.5), ConstantValues({2}, {0, 2})},
             .attrs = {{"keep_dims", true}},
             .terms = 15},
            {.name = "many", .inputs = {Tensor({1, 13, 11, 5}).Range(0.9, 1.1), ConstantValues({2}, {1, 2})}, .terms = 143},
            {.name = "long_row", .inputs = {Tensor({2, 259}).Range(0.9, 1.1), ConstantValues({1}, {1})}, .terms = 259},
            {.name = "five_axes", .inputs = {Tensor({2, 3, 2, 2, 3}).Range(0.5, 1.5), ConstantValues({2}, {1, 3})}, .terms = 6},
            {.name = "integers", .inputs = {Tensor({3, 5, 6}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
            {.name = "integer_row", .inputs = {Tensor({3, 5}, DType::kI32).Range(-3, 3), ConstantValues({1}, {1})}},
        });
OP_TEST(reduce_any, {
                        {.name = "rows", .inputs = {Tensor({4, 3}, DType::kBool), ConstantValues({1}, {1})}},
                        {.name = "columns", .inputs = {Tensor({3, 5}, DType::kBool), ConstantValues({1}, {0})}},
                    });
OP_TEST(reduce_all, {
                        {.name = "rows", .inputs = {Tensor({4, 3}, DType::kBool), ConstantValues({1}, {1})}},
                        {.name = "columns", .inputs = {Tensor({3, 5}, DType::kBool), ConstantValues({1}, {0})}},
                    });
OP_TEST(softmax, {
                     {.name = "odd_row", .inputs = {Tensor({2, 3, 5, 7}).Range(-4, 4)}, .terms = 7},
                     {.name = "long_row", .inputs = {Tensor({2, 131}).Range(-9, 9)}, .terms = 131},
                     {.name = "one_column", .inputs = {Tensor({3, 1})}},
                     {.name = "large_values", .inputs = {Tensor({2, 6}).Range(900, 905)}, .terms = 6, .tolerance = 1e-5},
                 });
OP_TEST(log_softmax, {
                         {.name = "odd_row", .inputs = {Tensor({2, 3, 5, 7}).Range(-4, 4)}, .terms = 7},
                         {.name = "long_row", .inputs = {Tensor({2, 131}).Range(-9, 9)}, .terms = 131},
                         {.name = "one_column", .inputs = {Tensor({3, 1})}},
                         {.name = "large_values", .inputs = {Tensor({2, 6}).Range(900, 905)}, .terms = 6, .tolerance = 1e-5},
                     });
OP_TEST(l2_normalization, {
                              {.name = "odd_row", .inputs = {Tensor({2, 3, 7})}, .terms = 7, .tolerance = 4e-6},
                              {.name = "slices", .inputs = {Tensor({3, 8})}, .terms = 8, .tolerance = 4e-6},
                          });
OP_TEST(local_response_normalization, {
                                          {.name = "odd_channels",
                                           .inputs = {Tensor({1, 2, 3, 9})},
                                           .attrs = {{"radius", int64_t{2}}, {"bias", 1.0}, {"alpha", 0.5}, {"beta", 0.75}},
                                           .tolerance = 8e-6},
                                      });
OP_TEST(cumsum, {
                    {.name = "rows", .inputs = {Tensor({2, 5, 3}), ConstantValues({1}, {1})}, .terms = 5},
                    {.name = "exclusive_reverse",
                     .inputs = {Tensor({2, 7}), ConstantValues({1}, {-1})},
                     .attrs = {{"exclusive", true}, {"reverse", true}},
                     .terms = 7},
                    {.name = "integers",
                     .inputs = {Values({4}, {1, 2, 3, 4}, DType::kI32), ConstantValues({1}, {0})},
                     .expected = {1, 3, 6, 10}},
                });
OP_TEST(arg_max, {
                     {.name = "channels",
                      .inputs = {Tensor({2, 3, 17}), ConstantValues({1}, {-1})},
                      .attrs = {{"output_type", std::string("i32")}}},
                     {.name = "first_of_equal", .inputs = {Tensor({5, 9}, DType::kI32).Range(0, 2), ConstantValues({1}, {0})}},
                 });
OP_TEST(arg_min, {
                     {.name = "channels",
                      .inputs = {Tensor({2, 3, 17}), ConstantValues({1}, {-1})},
                      .attrs = {{"output_type", std::string("i32")}}},
                     {.name = "first_of_equal", .inputs = {Tensor({5, 9}, DType::kI32).Range(0, 2), ConstantValues({1}, {0})}},
                 });
OP_TEST(topk_v2, {
                     {.name = "rows", .inputs = {Tensor({2, 3, 19}), ConstantValues({}, {5})}},
                     {.name = "first_of_equal", .inputs = {Tensor({3, 12}, DType::kI32).Range(0, 3), ConstantValues({}, {4})}},
                     {.name = "all", .inputs = {Values({1, 3}, {2, 9, 4}), ConstantValues({}, {3})}, .expected = {9, 4, 2}},
                 });
OP_TEST(gather, {
                    {.name = "first_axis", .inputs = {Tensor({5, 3, 7}), ConstantValues({2, 3}, {0, 4, 2, 2, 1, 3})}},
                    {.name = "last_axis",
                     .inputs = {Tensor({2, 3, 6}), Values({4}, {5, 0, 3, 3}, DType::kI32)},
                     .attrs = {{"axis", int64_t{2}}}},
                    {.name = "batches",
                     .inputs = {Tensor({2, 5, 3}), Values({2, 2}, {4, 0, 1, 2}, DType::kI32)},
                     .attrs = {{"axis", int64_t{1}}, {"batch_dims", int64_t{1}}}},
                    {.name = "scalar_index", .inputs = {Tensor({4, 5}), Values({}, {2}, DType::kI32)}},
                    {.name = "integers", .inputs = {Tensor({4, 5}, DType::kI32), Values({2}, {3, 0}, DType::kI32)}},
                });
OP_TEST(embedding_lookup, {
                              {.name = "rows", .inputs = {Values({3}, {2, 0, 2}, DType::kI32), Weights({4, 6})}},
                          });
OP_TEST(gather_nd, {
                       {.name = "rows", .inputs = {Tensor({3, 4, 5}), Values({2, 2}, {2, 0, 1, 3}, DType::kI32)}},
                       {.name = "elements",
                        .inputs = {Tensor({3, 4}), Values({2, 3, 2}, {2, 0, 1, 3, 0, 0, 2, 3, 1, 1, 0, 2}, DType::kI32)}},
                       {.name = "one_axis", .inputs = {Tensor({3, 2, 4}), Values({2, 1}, {2, 0}, DType::kI32)}},
                   });
OP_TEST(one_hot, {
                     {.name = "last",
                      .inputs = {Values({3}, {0, 2, 5}, DType::kI32), ConstantValues({}, {4}),
                                 ConstantValues({}, {1}, DType::kF32), ConstantValues({}, {0}, DType::kF32)},
                      .expected = {1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}},
                     {.name = "first",
                      .inputs = {Values({2, 3}, {0, 2, 1, 1, -1, 0}, DType::kI32), ConstantValues({}, {3}),
                                 ConstantValues({}, {5}, DType::kF32), ConstantValues({}, {-5}, DType::kF32)},
                      .attrs = {{"axis", int64_t{0}}}},
                 });
OP_TEST(fully_connected, {
                             {.name = "odd", .inputs = {Tensor({3, 7}), Weights({5, 7}), Weights({5})}, .terms = 7},
                             {.name = "flattens", .inputs = {Tensor({2, 2, 3, 6}), Weights({9, 36}), Absent()}, .terms = 36},
                             {.name = "keeps_axes",
                              .inputs = {Tensor({2, 3, 8}), Weights({6, 8}), Weights({6})},
                              .attrs = {{"keep_num_dims", true}},
                              .terms = 8},
                             {.name = "long", .inputs = {Tensor({1, 301}), Weights({11, 301}), Weights({11})}, .terms = 301},
                             {.name = "weights_at_run_time", .inputs = {Tensor({2, 5}), Tensor({3, 5})}, .terms = 5},
                         });
OP_TEST(batch_matmul, {
                          {.name = "matrices", .inputs = {Tensor({3, 5}), Tensor({5, 7})}, .terms = 5},
                          {.name = "batches", .inputs = {Tensor({2, 3, 4, 5}), Tensor({2, 3, 5, 6})}, .terms = 5},
                          {.name = "broadcast", .inputs = {Tensor({2, 1, 3, 5}), Weights({4, 5, 2})}, .terms = 5},
                          {.name = "transposed",
                           .inputs = {Tensor({2, 5, 3}), Tensor({2, 4, 5})},
                           .attrs = {{"adj_x", true}, {"adj_y", true}},
                           .terms = 5},
                      });

}  // namespace
}  // namespace leeway::op_test
