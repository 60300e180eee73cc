#include "shader/share.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/strings.h"
#include "shader/interpret.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

// Extents in bounds, divisions and addresses; a division by a power of two; a loop of known length and one of another.
constexpr std::string_view kText = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
const taps : u32;
const step : i32;
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id : vec3u) {
  if (id.x >= y.row * y.column) { return; }
  let row = id.x / y.column;
  let column = id.x % y.column;
  var sum = 0.0;
  for (var k = 0u; k < taps; k++) {
    let at = i32(column) + (i32(k) - 1i) * step;
    if (at >= 0i && at < i32(x.column)) { sum += x.load(row, u32(at)) * f32(k + 1u); }
  }
  for (var k = column; k < x.column; k += taps) { sum += x.load(row, k); }
  y.store(sum, row, column);
}
)";

struct Extents {
  int64_t rows, columns;
  double taps, step;
};

VirtualTensor Plain(const Shape& shape) {
  VirtualTensor tensor;
  tensor.shape = shape;
  tensor.placement = PlaceTensor(shape, DType::kF32, Layout::kLinear, Storage::kBuffer, {}).value();
  return tensor;
}

BoundKernel BindFor(const Extents& e, std::string_view text = kText) {
  Specialization specialization;
  specialization.tensors = {{"x", Plain({e.rows, e.columns})}, {"y", Plain({e.rows, e.columns})}};
  specialization.consts = {{"taps", e.taps}, {"step", e.step}};
  auto bound = Bind(Parse(text, "sums").value(), specialization, MinimalWgslTarget());
  EXPECT_TRUE(bound.ok()) << bound.error().message;
  return std::move(bound).value();
}

std::vector<float> RunKernel(const LoweredKernel& kernel, const Extents& e, std::span<const std::byte> params) {
  std::vector<float> x(size_t(e.rows * e.columns)), y(x.size(), -1.0f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 11) - 3.5f;
  InterpretMemory memory;
  memory.tensors = {{"x", std::as_writable_bytes(std::span(x))}, {"y", std::as_writable_bytes(std::span(y))}};
  memory.params = params;
  const uint32_t workgroups[3] = {uint32_t(e.rows * e.columns + 7) / 8, 1, 1};
  auto result = Interpret(kernel, workgroups, memory, {});
  EXPECT_TRUE(result.ok()) << result.error().message;
  if (result.ok()) { EXPECT_TRUE(result->faults.empty()) << result->faults[0].message; }
  return y;
}

constexpr ShareOptions kAll = {.loop_lengths = true};

TEST(Share, OneKernelWithParamsComputesWhatEachComputes) {
  const Extents extents[] = {{3, 8, 3, 1}, {2, 12, 3, 2}, {4, 16, 5, 1}, {7, 20, 2, 3}};
  std::vector<LoweredKernel> kernels;
  std::vector<KernelOutline> outlines;
  std::vector<const std::vector<int64_t>*> numbers;
  for (const Extents& e : extents) {
    kernels.push_back(LowerForSharing(BindFor(e), MinimalWgslTarget()).value());
    outlines.push_back(OutlineOf(kernels.back(), kAll));
  }
  for (const KernelOutline& outline : outlines) {
    EXPECT_EQ(outline.text, outlines[0].text);
    numbers.push_back(&outline.numbers);
  }
  const auto shared = ShareKernels(kernels[0], numbers, kAll);
  ASSERT_TRUE(shared.has_value());
  ASSERT_FALSE(shared->kernel.params.empty());
  ASSERT_EQ(shared->params.size(), std::size(extents));
  for (size_t k = 0; k < std::size(extents); ++k) {
    EXPECT_EQ(shared->params[k].size(), shared->kernel.params_bytes);
    const LoweredKernel own = Lower(BindFor(extents[k]), MinimalWgslTarget()).value();
    EXPECT_EQ(RunKernel(shared->kernel, extents[k], shared->params[k]), RunKernel(own, extents[k], {})) << k;
  }
  for (Language language : {Language::kWgsl, Language::kOpenClC, Language::kGlslEs, Language::kMsl}) {
    EXPECT_TRUE(Print(shared->kernel, TypicalTarget(language)).ok()) << LanguageName(language);
  }
}

TEST(Share, NumbersThatAllHaveStayInTheText) {
  const Extents extents[] = {{3, 16, 3, 1}, {5, 16, 3, 1}};
  const LoweredKernel first = LowerForSharing(BindFor(extents[0]), MinimalWgslTarget()).value();
  const LoweredKernel second = LowerForSharing(BindFor(extents[1]), MinimalWgslTarget()).value();
  const std::vector<int64_t> a = OutlineOf(first, kAll).numbers, b = OutlineOf(second, kAll).numbers;
  const std::vector<int64_t>* numbers[] = {&a, &b};
  const auto shared = ShareKernels(first, numbers, kAll);
  ASSERT_TRUE(shared.has_value());
  ASSERT_EQ(shared->kernel.params.size(), 1u);  // rows times columns
  int32_t rows_times_columns;
  std::memcpy(&rows_times_columns, shared->params[1].data(), 4);
  EXPECT_EQ(rows_times_columns, 80);
  // What is left is simplified as in any other kernel.
  const std::string text = Format(shared->kernel.module);
  EXPECT_NE(text.find(">> 4u"), std::string::npos) << text;

  const std::vector<int64_t>* alike[] = {&a, &a};
  const auto same = ShareKernels(first, alike, kAll);
  ASSERT_TRUE(same.has_value());
  EXPECT_TRUE(same->kernel.params.empty());
  EXPECT_EQ(Format(same->kernel.module), Format(Lower(BindFor(extents[0]), MinimalWgslTarget())->module));
}

TEST(Share, LoopsOfKnownLengthKeepItUnlessAskedFor) {
  const LoweredKernel three = LowerForSharing(BindFor({3, 5, 3, 1}), MinimalWgslTarget()).value();
  const LoweredKernel five = LowerForSharing(BindFor({3, 5, 5, 1}), MinimalWgslTarget()).value();
  EXPECT_EQ(OutlineOf(three, kAll).text, OutlineOf(five, kAll).text);
  EXPECT_NE(OutlineOf(three, {}).text, OutlineOf(five, {}).text);
  // The loop that begins at a column is as long as that says: its step may differ.
  const LoweredKernel wide = LowerForSharing(BindFor({3, 9, 3, 1}), MinimalWgslTarget()).value();
  EXPECT_EQ(OutlineOf(three, {}).text, OutlineOf(wide, {}).text);
}

TEST(Share, RefusesMoreParamsThanAllowedAndKernelsWithParams) {
  const Extents extents[] = {{3, 5, 3, 1}, {4, 9, 5, 2}};
  const LoweredKernel first = LowerForSharing(BindFor(extents[0]), MinimalWgslTarget()).value();
  const LoweredKernel second = LowerForSharing(BindFor(extents[1]), MinimalWgslTarget()).value();
  const std::vector<int64_t> a = OutlineOf(first, kAll).numbers, b = OutlineOf(second, kAll).numbers;
  const std::vector<int64_t>* numbers[] = {&a, &b};
  EXPECT_TRUE(ShareKernels(first, numbers, kAll).has_value());
  EXPECT_FALSE(ShareKernels(first, numbers, {.loop_lengths = true, .max_params = 2}).has_value());

  const std::string with_param = StrCat("param shift : u32;\n", kText);
  const LoweredKernel own = LowerForSharing(BindFor(extents[0], with_param), MinimalWgslTarget()).value();
  const std::vector<int64_t>* one[] = {&a};
  EXPECT_FALSE(ShareKernels(own, one, kAll).has_value());
}

// Component numbers and names of the kernel are left alone.
TEST(Share, ComponentsOfVectorsAndNamesStay) {
  const auto kernel = [](double scale) {
    Specialization specialization;
    specialization.tensors = {{"x", Plain({1, 8})}, {"y", Plain({1, 8})}};
    specialization.consts = {{"which", scale}};
    auto module = Parse(R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
const which : u32;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  let number_0 = x.load4(0u, id.x);
  y.store(number_0[which], 0u, id.x * 4u);
}
)",
                        "pick");
    return LowerForSharing(Bind(*module, specialization, MinimalWgslTarget()).value(), MinimalWgslTarget()).value();
  };
  EXPECT_NE(OutlineOf(kernel(1), kAll).text, OutlineOf(kernel(2), kAll).text);
}

}  // namespace
}  // namespace leeway::shader
