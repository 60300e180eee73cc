#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

OP_TEST(reshape,
        {
            {.name = "open_extent", .inputs = {Tensor({2, 3, 4, 5}), ConstantValues({2}, {-1, 10})}},
            {.name = "to_scalar", .inputs = {Tensor({1, 1}), ConstantValues({0}, {})}},
            {.name = "by_attribute", .inputs = {Tensor({6, 7})}, .attrs = {{"new_shape", std::vector<int64_t>{2, 21}}}},
            {.name = "integers", .inputs = {Tensor({3, 4}, DType::kI32), ConstantValues({2}, {2, 6})}},
        });
OP_TEST(squeeze, {
                     {.name = "all", .inputs = {Tensor({1, 3, 1, 5})}},
                     {.name = "some", .inputs = {Tensor({1, 3, 1, 5})}, .attrs = {{"squeeze_dims", std::vector<int64_t>{-2}}}},
                 });
OP_TEST(expand_dims, {
                         {.name = "last", .inputs = {Tensor({3, 5}), ConstantValues({1}, {-1})}},
                         {.name = "first", .inputs = {Tensor({3, 5}), ConstantValues({1}, {0})}},
                     });
OP_TEST(transpose, {
                       {.name = "channels_first", .inputs = {Tensor({2, 3, 5, 7}), ConstantValues({4}, {0, 3, 1, 2})}},
                       {.name = "matrix",
                        .inputs = {Values({2, 3}, {1, 2, 3, 4, 5, 6}), ConstantValues({2}, {1, 0})},
                        .expected = {1, 4, 2, 5, 3, 6}},
                       {.name = "five_axes", .inputs = {Tensor({2, 3, 2, 4, 3}), ConstantValues({5}, {4, 2, 0, 3, 1})}},
                       {.name = "six_axes", .inputs = {Tensor({1, 2, 3, 2, 4, 5}), ConstantValues({6}, {5, 0, 3, 1, 2, 4})}},
                       {.name = "integers", .inputs = {Tensor({3, 5}, DType::kI32), ConstantValues({2}, {1, 0})}},
                   });
OP_TEST(slice, {
                   {.name = "middle",
                    .inputs = {Tensor({2, 5, 6, 7}), ConstantValues({4}, {1, 2, 0, 3}), ConstantValues({4}, {1, 2, -1, 3})}},
                   {.name = "empty", .inputs = {Tensor({4, 3}), ConstantValues({2}, {4, 0}), ConstantValues({2}, {0, 3})}},
               });
OP_TEST(
    strided_slice,
    {
        {.name = "steps",
         .inputs = {Tensor({7, 9}), ConstantValues({2}, {1, 0}), ConstantValues({2}, {7, 9}), ConstantValues({2}, {2, 3})}},
        {.name = "backwards",
         .inputs = {Tensor({5, 6}), ConstantValues({2}, {-1, 4}), ConstantValues({2}, {-6, 0}), ConstantValues({2}, {-2, -1})}},
        {.name = "backwards_by_masks",
         .inputs = {Values({4}, {1, 2, 3, 4}), ConstantValues({1}, {0}), ConstantValues({1}, {0}), ConstantValues({1}, {-1})},
         .attrs = {{"begin_mask", int64_t{1}}, {"end_mask", int64_t{1}}},
         .expected = {4, 3, 2, 1}},
        {.name = "drops_axes",
         .inputs = {Tensor({3, 4, 5}), ConstantValues({3}, {-1, 1, 0}), ConstantValues({3}, {0, 2, 5}),
                    ConstantValues({3}, {1, 1, 1})},
         .attrs = {{"shrink_axis_mask", int64_t{3}}}},
        {.name = "new_axis_and_ellipsis",
         .inputs = {Tensor({3, 4, 5, 2}), ConstantValues({4}, {0, 0, 0, 1}), ConstantValues({4}, {0, 0, 0, 2}),
                    ConstantValues({4}, {1, 1, 1, 1})},
         .attrs = {{"new_axis_mask", int64_t{1}}, {"ellipsis_mask", int64_t{2}}, {"shrink_axis_mask", int64_t{4}}}},
        {.name = "clamped",
         .inputs = {Tensor({4}), ConstantValues({1}, {-9}), ConstantValues({1}, {9}), ConstantValues({1}, {1})}},
        {.name = "fewer_entries",
         .inputs = {Tensor({4, 5}), ConstantValues({1}, {2}), ConstantValues({1}, {4}), ConstantValues({1}, {1})}},
    });
OP_TEST(reverse_v2, {
                        {.name = "channels", .inputs = {Tensor({2, 3, 5}), ConstantValues({1}, {-1})}},
                        {.name = "two_axes", .inputs = {Tensor({2, 3, 5}), ConstantValues({2}, {0, 1})}},
                    });
OP_TEST(pad, {
                 {.name = "pixels", .inputs = {Tensor({1, 3, 4, 5}), ConstantValues({4, 2}, {0, 0, 1, 2, 0, 3, 0, 0})}},
                 {.name = "channels", .inputs = {Tensor({1, 2, 2, 3}), ConstantValues({4, 2}, {0, 0, 0, 0, 0, 0, 1, 5})}},
                 {.name = "value",
                  .inputs = {Values({2}, {1, 2}), ConstantValues({1, 2}, {1, 2}), ConstantValues({}, {-7}, DType::kF32)},
                  .expected = {-7, 1, 2, -7, -7}},
                 {.name = "integers", .inputs = {Tensor({2, 3}, DType::kI32), ConstantValues({2, 2}, {1, 0, 0, 1})}},
             });
OP_TEST(mirror_pad, {
                        {.name = "reflect",
                         .inputs = {Values({3}, {1, 2, 3}), ConstantValues({1, 2}, {2, 2})},
                         .expected = {3, 2, 1, 2, 3, 2, 1}},
                        {.name = "symmetric",
                         .inputs = {Values({3}, {1, 2, 3}), ConstantValues({1, 2}, {2, 3})},
                         .attrs = {{"mode", int64_t{1}}},
                         .expected = {2, 1, 1, 2, 3, 3, 2, 1}},
                        {.name = "pixels", .inputs = {Tensor({1, 4, 5, 3}), ConstantValues({4, 2}, {0, 0, 1, 2, 3, 0, 0, 0})}},
                    });
OP_TEST(
    concatenation,
    {
        {.name = "odd_channels",
         .inputs = {Tensor({2, 3, 2, 3}), Tensor({2, 3, 2, 6}), Tensor({2, 3, 2, 1})},
         .attrs = {{"axis", int64_t{-1}}}},
        {.name = "slices", .inputs = {Tensor({1, 3, 2, 4}), Tensor({1, 3, 2, 8})}, .attrs = {{"axis", int64_t{3}}}},
        {.name = "rows", .inputs = {Tensor({2, 1, 5}), Tensor({2, 4, 5})}, .attrs = {{"axis", int64_t{1}}}},
        {.name = "first_axis", .inputs = {Tensor({2, 5}), Tensor({1, 5})}},
        {.name = "empty_part", .inputs = {Tensor({2, 0}), Tensor({2, 3})}, .attrs = {{"axis", int64_t{1}}}},
        {.name = "five_axes", .inputs = {Tensor({2, 1, 3, 2, 3}), Tensor({2, 2, 3, 2, 3})}, .attrs = {{"axis", int64_t{1}}}},
        {.name = "integers",
         .inputs = {Tensor({2, 3}, DType::kI32), Tensor({2, 2}, DType::kI32)},
         .attrs = {{"axis", int64_t{1}}}},
    });
OP_TEST(pack,
        {
            {.name = "first", .inputs = {Tensor({3, 5}), Tensor({3, 5})}},
            {.name = "last", .inputs = {Tensor({3, 5}), Tensor({3, 5}), Tensor({3, 5})}, .attrs = {{"axis", int64_t{-1}}}},
            {.name = "scalars", .inputs = {Tensor({}), Tensor({})}},
        });
OP_TEST(
    split,
    {
        {.name = "channels", .inputs = {ConstantValues({1}, {3}), Tensor({2, 3, 2, 6})}, .attrs = {{"num_splits", int64_t{3}}}},
        {.name = "rows", .inputs = {ConstantValues({1}, {0}), Tensor({4, 5})}, .attrs = {{"num_splits", int64_t{2}}}},
    });
OP_TEST(split_v,
        {
            {.name = "unequal", .inputs = {Tensor({2, 9}), ConstantValues({3}, {2, -1, 3}), ConstantValues({1}, {-1})}},
        });
OP_TEST(unpack, {
                    {.name = "last", .inputs = {Tensor({2, 5, 3})}, .attrs = {{"axis", int64_t{2}}, {"num", int64_t{3}}}},
                    {.name = "to_scalars", .inputs = {Tensor({3})}},
                });
OP_TEST(broadcast_to, {
                          {.name = "rows", .inputs = {Tensor({1, 5}), ConstantValues({2}, {3, 5})}},
                          {.name = "new_axes", .inputs = {Tensor({3, 1}), ConstantValues({3}, {2, 3, 7})}},
                          {.name = "five_axes", .inputs = {Tensor({1, 3, 1, 2}), ConstantValues({5}, {2, 2, 3, 2, 2})}},
                      });
OP_TEST(tile, {
                  {.name = "both",
                   .inputs = {Values({1, 2}, {1, 2}), ConstantValues({2}, {2, 2})},
                   .expected = {1, 2, 1, 2, 1, 2, 1, 2}},
                  {.name = "channels", .inputs = {Tensor({2, 3, 5}), ConstantValues({3}, {1, 2, 3})}},
              });
OP_TEST(fill, {
                  {.name = "matrix", .inputs = {ConstantValues({2}, {2, 5}), Values({}, {2.5})}},
              });
OP_TEST(space_to_depth, {
                            {.name = "block_2", .inputs = {Tensor({2, 4, 6, 3})}, .attrs = {{"block_size", int64_t{2}}}},
                            {.name = "known",
                             .inputs = {Values({1, 2, 2, 1}, {1, 2, 3, 4})},
                             .attrs = {{"block_size", int64_t{2}}},
                             .expected = {1, 2, 3, 4}},
                        });
OP_TEST(depth_to_space, {
                            {.name = "block_2", .inputs = {Tensor({2, 3, 2, 12})}, .attrs = {{"block_size", int64_t{2}}}},
                            {.name = "block_3", .inputs = {Tensor({1, 2, 2, 45})}, .attrs = {{"block_size", int64_t{3}}}},
                        });
OP_TEST(space_to_batch_nd,
        {
            {.name = "padded",
             .inputs = {Tensor({2, 3, 4, 5}), ConstantValues({2}, {2, 3}), ConstantValues({2, 2}, {1, 0, 0, 2})}},
            {.name = "one_axis", .inputs = {Tensor({1, 6, 3}), ConstantValues({1}, {2}), ConstantValues({1, 2}, {0, 0})}},
        });
OP_TEST(batch_to_space_nd,
        {
            {.name = "cropped",
             .inputs = {Tensor({12, 2, 2, 5}), ConstantValues({2}, {2, 3}), ConstantValues({2, 2}, {1, 0, 0, 2})}},
        });

}  // namespace
}  // namespace leeway::op_test
