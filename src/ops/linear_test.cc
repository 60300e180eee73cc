#include "ops/op_test.h"

namespace leeway::op_test {
namespace {

// Every type of weights, in rows of one block and of several.
OP_TEST(linear, {
                    {.name = "q4_0", .inputs = {Tensor({2, 64}), Weights({6, 64}, DType::kQ4_0), Weights({6})}, .terms = 64},
                    {.name = "q4_1", .inputs = {Tensor({1, 64}), Weights({7, 64}, DType::kQ4_1)}, .terms = 64},
                    {.name = "q5_0", .inputs = {Tensor({1, 32}), Weights({4, 32}, DType::kQ5_0)}, .terms = 32},
                    {.name = "q5_1", .inputs = {Tensor({2, 96}), Weights({5, 96}, DType::kQ5_1)}, .terms = 96},
                    {.name = "q8_0", .inputs = {Tensor({1, 96}), Weights({5, 96}, DType::kQ8_0), Weights({5})}, .terms = 96},
                    {.name = "iq4_nl", .inputs = {Tensor({1, 64}), Weights({4, 64}, DType::kIQ4_NL)}, .terms = 64},
                    {.name = "q2_k", .inputs = {Tensor({1, 256}), Weights({3, 256}, DType::kQ2_K)}, .terms = 256},
                    {.name = "q3_k", .inputs = {Tensor({1, 256}), Weights({3, 256}, DType::kQ3_K)}, .terms = 256},
                    {.name = "q4_k", .inputs = {Tensor({1, 256}), Weights({3, 256}, DType::kQ4_K)}, .terms = 256},
                    {.name = "q5_k", .inputs = {Tensor({1, 256}), Weights({3, 256}, DType::kQ5_K)}, .terms = 256},
                    {.name = "q6_k", .inputs = {Tensor({1, 256}), Weights({3, 256}, DType::kQ6_K)}, .terms = 256},
                    {.name = "q6_k_rows", .inputs = {Tensor({9, 512}), Weights({2, 512}, DType::kQ6_K)}, .terms = 512},
                    {.name = "q2_k_rows", .inputs = {Tensor({9, 256}), Weights({3, 256}, DType::kQ2_K)}, .terms = 256},
                    {.name = "bf16", .inputs = {Tensor({2, 20}), Weights({5, 20}, DType::kBF16)}, .terms = 20},
                    {.name = "f16", .inputs = {Tensor({1, 33}), Weights({9, 33}, DType::kF16), Weights({9})}, .terms = 33},
                });

// Shapes that are no multiples of lanes and tiles.
OP_TEST(linear,
        {
            {.name = "one", .inputs = {Tensor({1, 1}), Weights({1, 1}), Weights({1})}},
            {.name = "odd", .inputs = {Tensor({3, 7}), Weights({5, 7}), Weights({5})}, .terms = 7},
            {.name = "three_axes", .inputs = {Tensor({2, 3, 8}), Weights({5, 8}), Weights({5})}, .terms = 8},
            {.name = "no_rows", .inputs = {Tensor({0, 8}), Weights({5, 8}), Weights({5})}},
            {.name = "more_blocks_than_lanes", .inputs = {Tensor({1, 576}), Weights({33, 576}, DType::kQ4_0)}, .terms = 576},
            {.name = "k640_rows7", .inputs = {Tensor({7, 640}), Weights({19, 640}, DType::kQ4_1)}, .terms = 640},
            {.name = "k1024", .inputs = {Tensor({1, 1024}), Weights({65, 1024}, DType::kQ4_0), Weights({65})}, .terms = 1024},
            {.name = "k1536_rows8", .inputs = {Tensor({8, 1536}), Weights({9, 1536}, DType::kQ8_0)}, .terms = 1536},
            {.name = "k5120", .inputs = {Tensor({1, 5120}), Weights({3, 5120}, DType::kQ4_0)}, .terms = 5120},
            {.name = "tile_and_one", .inputs = {Tensor({65, 32}), Weights({66, 32}, DType::kQ4_0), Weights({66})}, .terms = 32},
            {.name = "short_tile", .inputs = {Tensor({17, 64}), Weights({67, 64}, DType::kQ8_0)}, .terms = 64},
            // As many results as the larger tiles want.
            {.name = "tiles_of_64_rows", .inputs = {Tensor({17, 5}), Weights({12287, 5}), Weights({12287})}, .terms = 5},
            {.name = "tiles_of_128_rows", .inputs = {Tensor({129, 5}), Weights({8191, 5}), Weights({8191})}, .terms = 5},
            {.name = "rows9", .inputs = {Tensor({9, 36}), Weights({10, 36}), Weights({10})}, .terms = 36},
            {.name = "activations_as_weights", .inputs = {Tensor({9, 12}), Tensor({6, 12})}, .terms = 12},
        });

// Inputs as f16 where subgroups multiply matrices; elsewhere these are rows like the others.
OP_TEST(linear, {
                    {.name = "matrix",
                     .inputs = {Tensor({17, 64}), Weights({35, 64}, DType::kQ4_0), Weights({35})},
                     .attrs = {{"half_inputs", true}},
                     .terms = 64,
                     .tolerance = 3e-4,
                     .least_subgroup = 8},
                    {.name = "matrix_minimum",
                     .inputs = {Tensor({33, 32}), Weights({64, 32}, DType::kQ4_1)},
                     .attrs = {{"half_inputs", true}},
                     .terms = 32,
                     .tolerance = 3e-4,
                     .least_subgroup = 8},
                    {.name = "matrix_8_bits",
                     .inputs = {Tensor({2, 9, 96}), Weights({20, 96}, DType::kQ8_0)},
                     .attrs = {{"half_inputs", true}},
                     .terms = 96,
                     .tolerance = 3e-4,
                     .least_subgroup = 8},
                    {.name = "matrix_shares_of_the_sum",
                     .inputs = {Tensor({65, 544}), Weights({20, 544}, DType::kQ4_0), Weights({20})},
                     .attrs = {{"half_inputs", true}},
                     .terms = 544,
                     .tolerance = 3e-4,
                     .least_subgroup = 8},
                    {.name = "matrix_halves",
                     .inputs = {Tensor({9, 32}), Weights({16, 32}, DType::kF16)},
                     .attrs = {{"half_inputs", true}},
                     .terms = 32,
                     .tolerance = 3e-4,
                     .least_subgroup = 8},
                });

TEST(Linear, RefusesWhatDoesNotFit) {
  auto refused = [](std::vector<HostTensor> inputs) {
    auto result = RunReference("linear", std::move(inputs), {});
    return result.ok() ? std::string("taken") : result.error().message;
  };
  EXPECT_EQ(
      refused({HostTensor(DType::kF32, {2, 8}), HostTensor(DType::kF32, {3, 4})}),
      "Operator linear has an input of shape [2, 8] and weights of shape [3, 4]; the last extents must be equal and not 0.");
  EXPECT_NE(refused({HostTensor(DType::kF32, {2, 8}), HostTensor(DType::kF32, {3, 8}), HostTensor(DType::kF32, {4})}), "taken");
}

}  // namespace
}  // namespace leeway::op_test
