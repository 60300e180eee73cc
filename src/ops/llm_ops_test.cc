// Operators of language models: norms, rotary positions, caches, attention, sampling.
#include <cmath>
#include <numbers>

#include "ops/op_test.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "ops/step.h"

namespace leeway {
namespace {

using namespace leeway::op_test;

Operand StepAt(int64_t position, int64_t count) {
  return Values({kStepElements}, {double(position), double(count), 0, 0, 0, 0, 0, 0}, DType::kI32);
}

// ---- rms_norm ----

OP_TEST(rms_norm,
        {
            {.name = "one_element", .inputs = {Tensor({1, 1}), Weights({1})}},
            {.name = "odd_width", .inputs = {Tensor({3, 7}), Weights({7}).Range(0, 9)}, .terms = 7},
            {.name = "no_gain", .inputs = {Tensor({2, 3, 10}), Absent()}, .terms = 10},
            {.name = "left_out_gain", .inputs = {Tensor({2, 33})}, .terms = 33},
            {.name = "heads", .inputs = {Tensor({2, 9, 64}), Weights({64})}, .attrs = {{"epsilon", 1e-5}}, .terms = 64},
            {.name = "wide", .inputs = {Tensor({1, 1155}).Range(-40, 40), Weights({1155})}, .terms = 1155},
            {.name = "more_rows_than_lanes", .inputs = {Tensor({67, 36}), Weights({36})}, .terms = 36},
            {.name = "zeros", .inputs = {Values({1, 4}, {0, 0, 0, 0}), Weights({4})}, .expected = {0, 0, 0, 0}},
            {.name = "empty", .inputs = {Tensor({0, 8}), Weights({8})}},
            {.name = "known", .inputs = {Values({1, 2}, {3, 4})}, .attrs = {{"epsilon", 12.5}}, .expected = {0.6, 0.8}},
        });

// ---- rope ----

Operand Turns(double base, int64_t pairs) {
  std::vector<double> values;
  for (uint32_t turn : RopeTurns(base, pairs)) values.push_back(turn);
  return ConstantValues({pairs}, values, DType::kU32);
}

OP_TEST(
    rope,
    {
        {.name = "halves", .inputs = {Tensor({2, 3, 16}), StepAt(5, 2), Turns(10000, 8)}},
        {.name = "neighbours", .inputs = {Tensor({2, 3, 8}), StepAt(5, 2), Turns(10000, 4)}, .attrs = {{"interleaved", true}}},
        {.name = "rest_stays", .inputs = {Tensor({3, 2, 24}), StepAt(1000, 3), Turns(500000, 8)}},
        {.name = "neighbours_rest_stays",
         .inputs = {Tensor({3, 2, 12}), StepAt(131071, 1), Turns(500000, 2)},
         .attrs = {{"interleaved", true}}},
        {.name = "odd_halves", .inputs = {Tensor({3, 2, 7}), StepAt(9, 3), Turns(100, 3)}},
        {.name = "odd_neighbours",
         .inputs = {Tensor({2, 1, 7}), StepAt(9, 3), Turns(100, 3)},
         .attrs = {{"interleaved", true}}},
        {.name = "last_row", .inputs = {Tensor({1, 2, 8}), StepAt(100, 17), Turns(100, 4)}, .attrs = {{"last", true}}},
        {.name = "far", .inputs = {Tensor({4, 1, 64}), StepAt(1000000, 4), Turns(1000000, 32)}},
        {.name = "many", .inputs = {Tensor({65, 3, 32}), StepAt(0, 65), Turns(10000, 16)}},
        {.name = "start",
         .inputs = {Values({2, 1, 2}, {1, 2, 1, 0}), StepAt(0, 2), Turns(10000, 1)},
         .expected = {1, 2, std::cos(1.0), std::sin(1.0)}},
    });

TEST(Rope, TurnsKeepAnglesAtAnyPosition) {
  for (double base : {1e4, 1e6}) {
    const std::vector<uint32_t> turns = RopeTurns(base, 128);
    for (int64_t i : {0, 1, 5, 64, 127}) {
      for (uint32_t position : {1u, 511u, 8191u, 131071u}) {
        const double want = position * std::pow(base, -double(i) / 128);
        const double got = double(uint32_t(position * turns[size_t(i)])) / 4294967296.0 * 2 * std::numbers::pi;
        EXPECT_NEAR(std::remainder(got - want, 2 * std::numbers::pi), 0, position * 8e-10)
            << base << " " << i << " " << position;
      }
    }
  }
}

TEST(Rope, FactorsDivideTheFrequency) {
  const double factors[] = {1, 32, 1e30};
  const std::vector<uint32_t> turns = RopeTurns(100, 3, factors), plain = RopeTurns(100, 3);
  EXPECT_EQ(turns[0], plain[0]);
  EXPECT_NEAR(double(turns[1]), plain[1] / 32.0, 1);
  EXPECT_EQ(turns[2], 0u);
}

// ---- kv_append ----

OP_TEST(kv_append, {
                       {.name = "one_row", .inputs = {Tensor({2, 5, 8}), Tensor({1, 2, 8}), StepAt(3, 1)}},
                       {.name = "wraps", .inputs = {Tensor({3, 4, 6}), Tensor({4, 3, 6}), StepAt(14, 4)}},
                       {.name = "fewer_valid", .inputs = {Tensor({1, 9, 64}), Tensor({7, 1, 64}), StepAt(2, 3)}},
                       {.name = "none_valid", .inputs = {Tensor({1, 4, 4}), Tensor({2, 1, 4}), StepAt(0, 0)}},
                       {.name = "odd_size", .inputs = {Tensor({2, 3, 5}), Tensor({2, 2, 5}), StepAt(2, 2)}},
                       {.name = "known",
                        .inputs = {Values({1, 3, 1}, {1, 2, 3}), Values({2, 1, 1}, {8, 9}), StepAt(5, 2)},
                        .expected = {9, 2, 8}},
                   });

// ---- take_last_row ----

OP_TEST(take_last_row, {
                           {.name = "middle", .inputs = {Tensor({7, 10}), StepAt(90, 4)}},
                           {.name = "end", .inputs = {Tensor({3, 300}), StepAt(0, 3)}},
                           {.name = "none", .inputs = {Tensor({3, 5}), StepAt(4, 0)}},
                           {.name = "known", .inputs = {Values({2, 2}, {1, 2, 3, 4}), StepAt(0, 2)}, .expected = {3, 4}},
                       });

// ---- attention ----

OpTestRow Attention(const char* name, int64_t rows, int64_t heads, int64_t kv_heads, int64_t size, int64_t slots,
                    int64_t position, int64_t count, int64_t window = 0, double softcap = 0, bool last = false) {
  OpTestRow row;
  row.name = name;
  row.inputs = {Tensor({rows, heads, size}), Tensor({kv_heads, slots, size}), Tensor({kv_heads, slots, size}),
                StepAt(position, count)};
  row.attrs = {{"scale", 2.0 / std::sqrt(double(size))}, {"window", window}, {"softcap", softcap}, {"last", last}};
  row.terms = double(size);
  return row;
}

OP_TEST(attention, {
                       Attention("first_position", 1, 2, 1, 8, 4, 0, 1),
                       Attention("decode_groups_of_three", 1, 9, 3, 16, 40, 37, 1),
                       Attention("decode_splits", 1, 4, 1, 64, 200, 180, 1),
                       Attention("decode_many_per_share", 1, 3, 1, 8, 4500, 4400, 1),
                       Attention("decode_ring", 1, 8, 1, 32, 20, 133, 1, 16),
                       Attention("decode_short_of_window", 1, 2, 2, 16, 140, 10, 1, 128, 30),
                       Attention("decode_large_heads", 1, 8, 1, 512, 70, 66, 1),
                       Attention("decode_size_not_times_four", 1, 2, 1, 10, 9, 7, 1),
                       Attention("decode_nothing_valid", 1, 2, 1, 8, 4, 2, 0),
                       Attention("decode_many_groups", 1, 32, 2, 8, 5, 4, 1),
                       Attention("prefill_small", 3, 6, 2, 12, 16, 4, 2),
                       Attention("prefill_tile", 11, 9, 3, 64, 80, 0, 11),
                       Attention("prefill_two_tiles", 35, 4, 4, 64, 100, 60, 33),
                       Attention("prefill_window", 20, 4, 1, 64, 60, 95, 20, 37, 20),
                       Attention("prefill_size_128", 9, 4, 2, 128, 48, 30, 9),
                       Attention("prefill_size_256", 5, 4, 1, 256, 40, 33, 4, 20),
                       Attention("prefill_size_512", 4, 8, 1, 512, 36, 31, 4),
                       Attention("last_row", 1, 4, 2, 16, 64, 50, 7, 0, 0, true),
                       Attention("last_row_window", 1, 3, 1, 64, 30, 150, 7, 24, 0, true),
                   });

// Inputs as f16 where subgroups multiply matrices.
OpTestRow WithHalves(OpTestRow row) {
  row.attrs.push_back({"half_inputs", true});
  row.tolerance = 1e-3;
  row.least_subgroup = 8;
  return row;
}
OP_TEST(attention, {
                       WithHalves(Attention("matrix_groups_of_three", 7, 3, 1, 64, 40, 30, 6)),
                       WithHalves(Attention("matrix_window", 4, 4, 1, 64, 60, 95, 4, 37, 20)),
                       WithHalves(Attention("matrix_size_256", 4, 2, 2, 256, 8, 4, 4)),
                   });

TEST(Attention, EqualKeysGiveTheMeanOfTheValues) {
  AttrSet attrs;
  attrs.Set("window", int64_t{2});
  HostTensor step(DType::kI32, {kStepElements});
  step.Set(0, 2), step.Set(1, 1);
  auto y = RunReference(
      "attention",
      {HostTensor::FromF32({1, 1, 1}, std::vector<float>{1}), HostTensor::FromF32({1, 3, 1}, std::vector<float>{1, 1, 1}),
       HostTensor::FromF32({1, 3, 1}, std::vector<float>{5, 1, 3}), step},
      attrs);
  ASSERT_TRUE(y.ok()) << y.error().message;
  EXPECT_EQ((*y)[0].Get(0), 2);
}

// ---- sample ----

Operand Sampler(const SamplerSettings& settings) {
  std::vector<double> values;
  for (float value : SamplerValues(settings)) values.push_back(value);
  return Values({kSamplerElements}, values);
}

// Logits are multiples of a quarter, which f16 has too: with others the choice would not be the same in f16.
OpTestRow Sample(const char* name, int64_t vocabulary, const SamplerSettings& settings, int64_t position, int64_t count,
                 int64_t context = 9, double spread = 5) {
  OpTestRow row;
  row.name = name;
  std::vector<double> logits, tokens;
  uint32_t state = uint32_t(vocabulary) * 77 + 5;
  for (int64_t i = 0; i < vocabulary; ++i) {
    state = state * 1664525u + 1013904223u;
    logits.push_back(std::round(4 * spread * (double(state >> 8) / (1 << 24) - 0.7)) / 4);
  }
  for (int64_t i = 0; i <= context; ++i) tokens.push_back(double((i * 37) % vocabulary));
  row.inputs = {Values({1, vocabulary}, logits), Values({context + 1}, tokens, DType::kI32), StepAt(position, count),
                Sampler(settings)};
  return row;
}

OP_TEST(sample, {
                    Sample("greedy_one", 1, {}, 0, 1),
                    Sample("greedy_ties", 700, {}, 3, 2),
                    Sample("greedy_many", 5001, {.temperature = 0, .top_k = 3}, 0, 9),
                    Sample("greedy_penalty", 50, {.repeat_penalty = 1.5, .repeat_window = 4}, 5, 1),
                    Sample("end_of_context", 30, {}, 8, 1),
                    Sample("beyond_context", 30, {}, 9, 1),
                    Sample("nothing_valid", 30, {}, 4, 0),
                    Sample("everything", 997, {.temperature = 1.0, .seed = 1}, 3, 1),
                    Sample("hot", 2100, {.temperature = 3.0, .seed = 0x123456789abcdef0}, 3, 1),
                    Sample("top_k_one", 300, {.temperature = 5.0, .top_k = 1, .seed = 3}, 1, 1),
                    Sample("top_k", 1030, {.temperature = 4.0, .top_k = 40, .seed = 4}, 1, 1),
                    Sample("top_k_of_all", 13, {.temperature = 4.0, .top_k = 13, .seed = 4}, 1, 1),
                    Sample("top_p", 1030, {.temperature = 4.0, .top_p = 0.613, .seed = 5}, 1, 1),
                    Sample("top_p_tiny", 1030, {.temperature = 4.0, .top_p = 0.0, .seed = 5}, 1, 1),
                    Sample("min_p", 1030, {.temperature = 4.0, .min_p = 0.043, .seed = 6}, 1, 1),
                    Sample("all_filters", 1501,
                           {.temperature = 1.5,
                            .top_k = 64,
                            .top_p = 0.931,
                            .min_p = 0.021,
                            .repeat_penalty = 1.25,
                            .repeat_window = 64,
                            .seed = 7},
                           6, 1, 9, 12),
                });

std::vector<HostTensor> Draw(const std::vector<float>& logits, const SamplerSettings& settings, int64_t position) {
  HostTensor tokens(DType::kI32, {100000}), step(DType::kI32, {kStepElements});
  step.Set(0, double(position)), step.Set(1, 1);
  auto result = RunReference("sample",
                             {HostTensor::FromF32({1, int64_t(logits.size())}, logits), tokens, step,
                              HostTensor::FromF32({kSamplerElements}, SamplerValues(settings))},
                             {});
  EXPECT_TRUE(result.ok());
  return std::move(*result);
}

TEST(Sample, DrawsWithTheProbabilitiesOfSoftmax) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f};
  constexpr double kTemperature = 1.5;
  constexpr int kDraws = 6000;
  std::vector<double> expected;
  double total = 0;
  for (float logit : logits) total += std::exp(logit / kTemperature);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    // Positions and seeds in turn: both must give independent draws.
    const auto result = Draw(logits, {.temperature = kTemperature, .seed = uint64_t(i / 2000)}, i % 2000);
    ++counts[size_t(result[0].Get(i % 2000 + 1))];
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i] / kTemperature) / total, deviation = std::sqrt(kDraws * p * (1 - p));
    EXPECT_NEAR(counts[i], kDraws * p, 4 * deviation) << "token " << i;
  }
}

TEST(Sample, FiltersLeaveWhatTheySay) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  auto drawn = [&](SamplerSettings settings) {
    settings.temperature = 2;
    std::string seen(4, '.');
    for (int i = 0; i < 200; ++i) seen[size_t(Draw(logits, settings, i)[0].Get(i + 1))] = 'x';
    return seen;
  };
  EXPECT_EQ(drawn({}), "xxxx");
  EXPECT_EQ(drawn({.top_k = 2}), ".x.x");
  EXPECT_EQ(drawn({.top_p = 0.75}), ".xxx");
  EXPECT_EQ(drawn({.top_p = 0.65}), ".x.x");
  EXPECT_EQ(drawn({.top_k = 2, .top_p = 0.55}), ".x..");  // 0.4 / 0.7
  EXPECT_EQ(drawn({.min_p = 0.6}), ".x.x");
  EXPECT_EQ(drawn({.repeat_penalty = 1e6, .repeat_window = 100000}), ".xxx");  // the tokens so far are zeros
}

TEST(Sample, MovesOnAndStopsAtTheEnd) {
  const std::vector<float> logits = {0, 3, 1};
  const auto result = Draw(logits, {}, 7);
  EXPECT_EQ(result[0].Get(8), 1);
  EXPECT_EQ(result[1].Get(0), 8);
  EXPECT_EQ(result[1].Get(1), 1);
  EXPECT_EQ(result[1].Get(3), 0);
  const auto end = Draw(logits, {}, 99998);
  EXPECT_EQ(end[0].Get(99999), 1);
  EXPECT_EQ(end[1].Get(0), 99999);
  EXPECT_EQ(end[1].Get(1), 0);
  EXPECT_EQ(end[1].Get(3), 1);
}

// ---- Refusals ----

std::string Refusal(const char* op_name, std::vector<TensorType> inputs,
                    std::vector<std::pair<const char*, AttrValue>> given = {}) {
  const OpDef* op = FindOp(op_name);
  AttrSet attrs;
  for (const auto& [name, value] : given) attrs.Set(name, value);
  std::vector<OperandInfo> operands;
  for (const TensorType& type : inputs) operands.push_back({type});
  auto types = op->infer({attrs, operands, {}, {}});
  return types.ok() ? "none" : types.error().message;
}

TEST(Refusals, OfOperatorsOfLanguageModels) {
  const TensorType step{DType::kI32, {8}}, f{DType::kF32, {2, 4, 8}}, cache{DType::kF32, {2, 16, 8}};
  auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
  };
  has(Refusal("rms_norm", {f, {DType::kF32, {4}}}), "gain of shape [4]");
  has(Refusal("rms_norm", {f}, {{"epsilon", -1.0}}), "epsilon -1");
  has(Refusal("rope", {f, {DType::kI32, {4}}, {DType::kU32, {4}}}), "step (input 1) of type i32[4]");
  has(Refusal("rope", {f, step, {DType::kU32, {5}}}), "turns of type u32[5] for heads of 8");
  has(Refusal("rope", {f, step, {DType::kU32, {0}}}), "turns of type u32[0]");
  has(Refusal("kv_append", {cache, f, step}), "heads and size must agree");
  has(Refusal("kv_append", {{DType::kF32, {4, 1, 8}}, f, step}), "2 rows at a time into a cache of 1 slots");
  has(Refusal("take_last_row", {{DType::kF32, {0, 4}}, step}), "no rows");
  has(Refusal("attention", {f, cache, {DType::kF32, {2, 15, 8}}, step}), "they must agree");
  has(Refusal("attention", {f, {DType::kF32, {3, 16, 8}}, {DType::kF32, {3, 16, 8}}, step}), "4 query heads for 3");
  has(Refusal("attention", {f, {DType::kF32, {2, 16, 4}}, {DType::kF32, {2, 16, 4}}, step}), "last extents");
  has(Refusal("attention", {f, cache, cache, step}, {{"window", int64_t{-1}}}), "window -1");
  has(Refusal("sample", {{DType::kF32, {2, 9}}, {DType::kI32, {5}}, step, {DType::kF32, {16}}}), "one row");
  has(Refusal("sample", {{DType::kF32, {1, 9}}, {DType::kF32, {5}}, step, {DType::kF32, {16}}}), "tokens of type f32[5]");
  has(Refusal("sample", {{DType::kF32, {1, 9}}, {DType::kI32, {5}}, step, {DType::kF32, {6}}}), "sampler of type f32[6]");
}

}  // namespace
}  // namespace leeway
