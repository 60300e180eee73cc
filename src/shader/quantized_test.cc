#include "shader/quantized.h"

#include <gtest/gtest.h>

#include <random>

#include "base/strings.h"
#include "shader/interpret.h"
#include "tensor/address.h"
#include "tensor/block_pack.h"

namespace leeway::shader {
namespace {

VirtualTensor Plain(Shape shape, DType dtype = DType::kF32) {
  VirtualTensor tensor;
  tensor.shape = shape;
  tensor.placement = *PlaceTensor(shape, dtype, Layout::kPadded4, Storage::kBuffer, {});
  return tensor;
}

VirtualTensor Quantized(Shape shape, const BlockFormat& format, const StorageLimits& limits = {}) {
  VirtualTensor tensor;
  tensor.shape = shape;
  auto placement = PlaceQuantized(shape, format, limits);
  EXPECT_TRUE(placement.ok()) << placement.error().message;
  tensor.placement = *placement;
  return tensor;
}

// Random pieces and what their elements are.
struct Pieces {
  std::vector<std::byte> quants, factors;
  std::vector<float> values;
};
Pieces Draw(const Shape& shape, const BlockFormat& format, uint32_t seed) {
  std::mt19937 random(seed);
  const size_t elements = size_t(shape.element_count());
  Pieces pieces;
  pieces.quants.resize(QuantsBytes(format, elements));
  for (auto& b : pieces.quants) b = std::byte(random());
  VirtualTensor tensor = Quantized(shape, format);
  const Placement placement = FactorsOf(tensor.placement);
  HostTensor factors(DType::kF32, placement.shape);
  for (int64_t i = 0; i < factors.element_count(); ++i) factors.Set(i, double(random() % 64) / 16 - 2);
  pieces.factors = PackForStorage(factors, placement);
  pieces.values.resize(elements);
  UnpackPieces(format, pieces.quants, pieces.factors, pieces.values);
  return pieces;
}

// Reads each element in all ways: they must agree.
constexpr char kReadAll[] = R"(
weights w[row, inner];
tensor y[row, inner] : write;
tensor z[row, inner] : write;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let row = id.y;
  if id.x >= w.inner / 4u { return; }
  let slice = id.x;
  let group = 4u * slice / w.group;
  y.store4(w.load4(row, slice), row, slice);
  var codes = vec4f(0.0);
  var same_word = false;
  if w.bits == 4u {
    let words = w.block(row, slice / 8u);
    let word = words[slice % 4u] >> (slice / 4u % 2u * 4u);
    codes = vec4f(unpack4xU8(word & 0x0f0f0f0fu)) - f32(w.offset);
    same_word = w.word(row, slice / 8u * 4u + slice % 4u) == words[slice % 4u];
  } else {
    let words = w.block(row, slice / 4u);
    codes = vec4f(unpack4xI8(words[slice % 4u]));
    same_word = w.word(row, slice) == words[slice % 4u];
  }
  var v = codes * w.scale(row, group) + w.minimum(row, group);
  let outside = w.load4_or_zero(row, slice + w.inner) + w.load4_or_zero(-1, i32(slice)) + w.load_or_zero(w.row, slice);
  let again = vec4f(w.load(row, 4u * slice), w.load_or_zero(row, 4u * slice + 1u), w.load_or_zero(i32(row), 4u * slice + 2u),
                    w.load4_or_zero(row, slice).w);
  if !same_word || !w.is_inside(row, 4u * slice) || any(again != v) || (w.bits == 4u && w.has_minimum == (w.offset != 0u)) {
    v = vec4f(1.0e9);
  }
  z.store4(v + outside, row, slice);
}
)";

std::vector<BlockFormat> AllFormats() {
  std::vector<BlockFormat> formats;
  for (int bits : {4, 8}) {
    for (int group : {16, 32}) {
      for (bool has_minimum : {false, true}) {
        for (DType factor : {DType::kF16, DType::kF32}) formats.push_back({bits, group, has_minimum, factor});
      }
    }
  }
  return formats;
}

std::string Name(const BlockFormat& f) {
  return StrCat(f.bits, " bits, groups of ", f.group, f.has_minimum ? ", minimum, " : ", ", DTypeName(f.factor));
}

TEST(Quantized, AllAccessorsGiveTheElements) {
  auto module = Parse(kReadAll, "read_all");
  ASSERT_TRUE(module.ok()) << module.error().message;
  for (const BlockFormat& format : AllFormats()) {
    for (const Shape& shape : {Shape{3, 64}, Shape{66, 32}}) {
      for (bool f16 : {true, false}) {
        SCOPED_TRACE(StrCat(Name(format), ", ", shape.ToString()));
        Pieces pieces = Draw(shape, format, 7);
        Specialization specialization;
        StorageLimits limits;
        if (shape[0] > 64) limits.max_binding_bytes = 64 * 32;  // quants in parts
        specialization.tensors = {{"w", Quantized(shape, format, limits)}, {"y", Plain(shape)}, {"z", Plain(shape)}};
        Target target = TypicalTarget(Language::kWgsl);
        target.f16 = f16;
        target.max_storage_buffers = 32;
        auto bound = Bind(*module, specialization, target);
        ASSERT_TRUE(bound.ok()) << bound.error().message;
        auto lowered = Lower(*bound, target);
        ASSERT_TRUE(lowered.ok()) << lowered.error().message;
        for (bool after : {false, true}) {
          std::vector<std::byte> y(pieces.values.size() * 4), z(pieces.values.size() * 4);
          std::vector<std::byte> factors = pieces.factors;
          factors.resize((factors.size() + 15) / 16 * 16);
          InterpretMemory memory;
          memory.tensors = {{"w_quants", pieces.quants}, {"w_factors", factors}, {"y", y}, {"z", z}};
          memory.placements = PlacementsOf(specialization.tensors);
          const uint32_t groups[3] = {uint32_t(shape[1] + 31) / 32, uint32_t(shape[0]), 1};
          auto result = after ? Interpret(*lowered, groups, memory, {}) : Interpret(*bound, groups, memory, {});
          ASSERT_TRUE(result.ok()) << result.error().message;
          for (const Fault& fault : result->faults) ADD_FAILURE() << fault.message;
          const auto* got_y = reinterpret_cast<const float*>(y.data());
          const auto* got_z = reinterpret_cast<const float*>(z.data());
          EXPECT_EQ(pieces.values, std::vector<float>(got_y, got_y + pieces.values.size()));
          EXPECT_EQ(pieces.values, std::vector<float>(got_z, got_z + pieces.values.size()));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Quantized, PrintsForAllLanguages) {
  auto module = Parse(kReadAll, "read_all");
  ASSERT_TRUE(module.ok());
  for (Language language : {Language::kWgsl, Language::kOpenClC, Language::kGlslEs, Language::kMsl}) {
    for (const BlockFormat& format : AllFormats()) {
      Specialization specialization;
      specialization.tensors = {{"w", Quantized({64, 96}, format)}, {"y", Plain({64, 96})}, {"z", Plain({64, 96})}};
      auto text = Compile(*module, specialization, TypicalTarget(language));
      ASSERT_TRUE(text.ok()) << text.error().message;
      EXPECT_EQ(text->bindings.size(), 4u);
    }
  }
}

// The same text for weights that are not quantized: what asks for blocks is left out by the constant.
TEST(Quantized, FactsOfPlainWeightsAreZero) {
  constexpr char kText[] = R"(
weights w[row, inner];
tensor y[row, inner] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  if w.bits != 0u && !w.has_minimum {
    y.store4(vec4f(w.block(id.x, 0u)), id.x, 0u);
  } else {
    y.store4(w.load4(id.x, 0u), id.x, 0u);
  }
}
)";
  auto module = Parse(kText, "plain");
  ASSERT_TRUE(module.ok());
  Specialization specialization;
  specialization.tensors = {{"w", Plain({2, 32})}, {"y", Plain({2, 32})}};
  auto text = Compile(*module, specialization, MinimalWgslTarget());
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(text->bindings.size(), 2u);
}

std::string ErrorOf(const std::string& body, VirtualTensor w) {
  auto module =
      Parse(StrCat("weights w[row, inner];\ntensor y[row, inner] : write;\n@compute @workgroup_size(1)\nfn main() {\n", body,
                   "\n}\n"),
            "k");
  if (!module.ok()) return module.error().message;
  Specialization specialization;
  specialization.tensors = {{"w", std::move(w)}, {"y", Plain({2, 32})}};
  auto bound = Bind(*module, specialization, MinimalWgslTarget());
  return bound.ok() ? "" : bound.error().message;
}

TEST(Quantized, RefusalsNameTheTensor) {
  const VirtualTensor quantized = Quantized({2, 32}, BlockFormat{});
  EXPECT_EQ(ErrorOf("_ = w.block(0u, 0u);", Plain({2, 32})),
            "k.kernel:5:7: the tensor w is not quantized here, so it has no block; put it under `if w.bits != 0u`");
  EXPECT_EQ(ErrorOf("w.store(1.0, 0u, 0u);", quantized),
            "k.kernel:5:3: the tensor w is quantized and only read, so it has no store");
  EXPECT_EQ(ErrorOf("_ = w.block(0u);", quantized), "k.kernel:5:7: block takes 2 coordinates of [row, inner], got 1");
  EXPECT_EQ(ErrorOf("_ = w.load4(0, 0u, 1u);", quantized), "k.kernel:5:7: load4 takes 2 coordinates of [row, inner], got 3");
  EXPECT_NE(ErrorOf("_ = w.load4(0.5, 0u);", quantized), "");
  VirtualTensor viewed = quantized;
  viewed.map.coords = {IndexExpr::Axis(1), IndexExpr::Axis(0)};
  EXPECT_EQ(ErrorOf("_ = w.load4(0u, 0u);", viewed),
            "k.kernel:1:9: the tensor w is quantized, so it is read as the matrix that it is, without a view");
}

TEST(Quantized, FaultsNameTheDeclaration) {
  auto module = Parse(
      "weights w[row, inner];\ntensor y[row] : write;\n@compute @workgroup_size(1)\nfn main() { y.store(w.load(2u, 0u), 0u); "
      "}\n",
      "k");
  ASSERT_TRUE(module.ok());
  Pieces pieces = Draw({2, 32}, BlockFormat{}, 3);
  Specialization specialization;
  specialization.tensors = {{"w", Quantized({2, 32}, BlockFormat{})}, {"y", Plain({2})}};
  auto bound = Bind(*module, specialization, MinimalWgslTarget());
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  std::vector<std::byte> y(16);
  pieces.factors.resize(16);
  InterpretMemory memory;
  memory.tensors = {{"w_quants", pieces.quants}, {"w_factors", pieces.factors}, {"y", y}};
  const uint32_t groups[3] = {1, 1, 1};
  auto result = Interpret(*bound, groups, memory, {});
  ASSERT_TRUE(result.ok());
  ASSERT_FALSE(result->faults.empty());
  EXPECT_EQ(result->faults[0].message.substr(0, 13), "k.kernel:1:9:") << result->faults[0].message;
}

}  // namespace
}  // namespace leeway::shader
