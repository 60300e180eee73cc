#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "base/strings.h"
#include "shader/build_tree.h"
#include "shader/compile.h"
#include "shader/interpret.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

IndexExpr A(int axis) { return IndexExpr::Axis(axis); }
IndexExpr N(int64_t value) { return IndexExpr::Const(value); }

VirtualTensor Plain(Shape shape, DType dtype = DType::kF32, Layout layout = Layout::kPadded4,
                    Storage storage = Storage::kBuffer, const StorageLimits& limits = {}) {
  VirtualTensor tensor;
  tensor.shape = shape;
  auto placement = PlaceTensor(shape, dtype, layout, storage, limits);
  EXPECT_TRUE(placement.ok());
  tensor.placement = *placement;
  return tensor;
}

Result<BoundKernel> BindText(const std::string& text, std::map<std::string, VirtualTensor> tensors, const Target& target,
                             const std::string& name = "test") {
  ASSIGN_OR_RETURN(Module module, Parse(text, name));
  Specialization specialization;
  specialization.tensors = std::move(tensors);
  return Bind(module, specialization, target);
}

Result<LoweredKernel> LowerText(const std::string& text, std::map<std::string, VirtualTensor> tensors, const Target& target) {
  ASSIGN_OR_RETURN(BoundKernel bound, BindText(text, std::move(tensors), target));
  return Lower(bound, target);
}

const char kCopy4[] = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  y.store4(x.load4(id.y, id.x), id.y, id.x);
})";
const char kCopy1[] = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  y.store(x.load(id.y, id.x), id.y, id.x);
})";

TEST(Lower, ACopyOfWholeSlicesIsOneVectorLoadAndStore) {
  auto lowered = LowerText(kCopy4, {{"x", Plain({3, 8})}, {"y", Plain({3, 8})}}, MinimalWgslTarget());
  ASSERT_TRUE(lowered.ok()) << lowered.error().message;
  ASSERT_EQ(lowered->bindings.size(), 2u);
  EXPECT_EQ(lowered->bindings[0].name, "x");
  EXPECT_EQ(lowered->bindings[0].tensor, "x");
  EXPECT_EQ(lowered->bindings[0].access, Access::kRead);
  EXPECT_EQ(lowered->bindings[0].type.ToString(), "array<vec4<f32>>");
  EXPECT_EQ(lowered->bindings[1].access, Access::kWrite);
  std::string text;
  for (const Function& f : lowered->module.functions) text += Format(f);
  EXPECT_NE(text.find("row * 2u + slice"), std::string::npos) << text;
  EXPECT_EQ(text.find('/'), std::string::npos) << text;
  EXPECT_EQ(text.find("select"), std::string::npos) << text;
  EXPECT_TRUE(lowered->module.tensors.empty());
}

TEST(Lower, TypesOfBindingsFollowStorageAndTarget) {
  Target without_f16 = MinimalWgslTarget(), with_f16 = TypicalTarget(Language::kWgsl),
         opencl = TypicalTarget(Language::kOpenClC);
  auto type = [&](const char* text, DType dtype, Layout layout, Storage storage, const Target& target, const char* tensor) {
    auto lowered = LowerText(
        text, {{"x", Plain({3, 6}, dtype, layout, storage)}, {"y", Plain({3, 6}, DType::kF32, layout, storage)}}, target);
    if (!lowered.ok()) return lowered.error().message;
    for (const BindingInfo& binding : lowered->bindings) {
      if (binding.tensor == tensor) return binding.type.ToString();
    }
    return std::string("none");
  };
  const Layout p = Layout::kPadded4, l = Layout::kLinear;
  const Storage b = Storage::kBuffer;
  EXPECT_EQ(type(kCopy4, DType::kF16, p, b, with_f16, "x"), "array<vec4<f16>>");
  EXPECT_EQ(type(kCopy4, DType::kF16, p, b, without_f16, "x"), "array<vec2<u32>>");
  EXPECT_EQ(type(kCopy4, DType::kF16, l, b, without_f16, "x"), "array<u32>");
  EXPECT_EQ(type(kCopy4, DType::kF32, l, b, without_f16, "x"), "array<f32>");
  EXPECT_EQ(type(kCopy4, DType::kI8, p, b, without_f16, "x"), "array<u32>");
  EXPECT_EQ(type(kCopy1, DType::kF32, p, b, without_f16, "x"), "array<vec4<f32>>");
  EXPECT_EQ(type(kCopy1, DType::kF32, p, b, without_f16, "y"), "array<f32>");
  EXPECT_EQ(type(kCopy4, DType::kF32, p, Storage::kTexture2D, without_f16, "x"), "texture_2d<f32>");
  EXPECT_EQ(type(kCopy4, DType::kF32, p, Storage::kTexture2DArray, without_f16, "y"),
            "texture_storage_2d_array<rgba32float, write>");
  EXPECT_EQ(type(kCopy4, DType::kF32, p, Storage::kTexture3D, without_f16, "x"), "texture_3d<f32>");
  EXPECT_EQ(type(kCopy4, DType::kF32, p, Storage::kImageBuffer, opencl, "x"), "texture_buffer<f32>");
  EXPECT_EQ(type(kCopy4, DType::kF32, p, Storage::kImageBuffer, opencl, "y"), "array<vec4<f32>>");
  EXPECT_EQ(type(kCopy4, DType::kF32, p, Storage::kImageBuffer, without_f16, "x"), "array<vec4<f32>>");
}

TEST(Lower, RefusalsNameTensorAndRule) {
  Target target = MinimalWgslTarget();
  auto message = [&](const char* text, VirtualTensor x, VirtualTensor y) {
    auto lowered = LowerText(text, {{"x", x}, {"y", y}}, target);
    if (lowered.ok()) return std::string("lowered");
    EXPECT_EQ(lowered.error().code, Code::kUnsupported);
    return lowered.error().message;
  };
  VirtualTensor plain = Plain({3, 8});
  EXPECT_NE(message(kCopy1, plain, Plain({3, 8}, DType::kF32, Layout::kPadded4, Storage::kTexture2D))
                .find("tensor y cannot be lowered to wgsl: placed in a texture_2d"),
            std::string::npos);
  EXPECT_NE(message(kCopy1, plain, Plain({3, 8}, DType::kF16)).find("f32 storage is needed"), std::string::npos);
  EXPECT_NE(message(kCopy4, plain, Plain({3, 8}, DType::kI8)).find("packed i8 are read-only"), std::string::npos);
  std::string update = R"(
tensor x[row, column] : read;
tensor y[row, column] : read_write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  y.store4(x.load4(id.y, id.x) + y.load4(id.y, id.x), id.y, id.x);
})";
  EXPECT_EQ(message(update.c_str(), plain, plain), "lowered");
  EXPECT_NE(
      message(update.c_str(), plain, Plain({3, 8}, DType::kF32, Layout::kPadded4, Storage::kTexture3D)).find("read_write"),
      std::string::npos);
  StorageLimits tiny{.max_binding_bytes = 256};
  EXPECT_NE(message(kCopy4, plain, Plain({70, 8}, DType::kF32, Layout::kPadded4, Storage::kBuffer, tiny))
                .find("test.kernel needs 10 storage buffers"),
            std::string::npos);
  // The end of a row inside a wider tensor: its last slice holds elements of others, and a texture cannot be written by
  // element.
  VirtualTensor part = Plain({3, 12}, DType::kF32, Layout::kPadded4, Storage::kTexture2D);
  part.shape = {3, 6};
  EXPECT_NE(message(kCopy4, Plain({3, 6}), part).find("not by element"), std::string::npos);
}

TEST(Lower, ParamsAndScratchAreLaidOut) {
  auto lowered = LowerText(R"(
tensor y[row] : write;
param position : u32;
param scale : vec3f;
param on : u32;
scratch arrived : array<atomic<u32>, 8>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  let before = atomicAdd(&arrived[id.x % 8u], position);
  if (on != 0u) { y.store(scale.x * f32(before), id.x); }
})",
                           {{"y", Plain({3})}}, MinimalWgslTarget());
  ASSERT_TRUE(lowered.ok()) << lowered.error().message;
  ASSERT_EQ(lowered->params.size(), 3u);
  EXPECT_EQ(lowered->params[0].offset_bytes, 0u);
  EXPECT_EQ(lowered->params[1].offset_bytes, 16u);
  EXPECT_EQ(lowered->params[2].offset_bytes, 28u);
  EXPECT_EQ(lowered->params_bytes, 32u);
  ASSERT_EQ(lowered->bindings.size(), 2u);
  EXPECT_EQ(lowered->bindings[0].kind, BindingInfo::Kind::kScratch);
  EXPECT_EQ(lowered->bindings[0].scratch_bytes, 32u);
  EXPECT_TRUE(lowered->module.scratches.empty());
}

TEST(Lower, DeadCodeGoes) {
  auto lowered = LowerText(R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  let unused = x.load4(id.y, id.x);
  let column = id.x * 1u + 0u;
  if (x.row == 0u) { y.store4(vec4f(1.0), id.y, 0u); }
  y.store4(vec4f(f32(column / 8u)), id.y, column);
})",
                           {{"x", Plain({3, 8})}, {"y", Plain({3, 8})}}, MinimalWgslTarget());
  ASSERT_TRUE(lowered.ok()) << lowered.error().message;
  std::string text;
  for (const Function& f : lowered->module.functions) text += Format(f);
  EXPECT_EQ(text.find("x_load4"), std::string::npos) << text;
  EXPECT_NE(text.find(">> 3u"), std::string::npos) << text;
  EXPECT_EQ(text.find("if"), std::string::npos) << text;
}

TEST(Lower, BytesInWordsBecomeArithmetic) {
  const char* text = R"(
tensor x[row] : read as u32;
tensor y[row, column] : write as i32;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  let a = x.load(id.x);
  let b = a * 2654435761u + 12345u;
  let s = unpack4xI8(a);
  let u = unpack4xU8(a);
  y.store4(vec4i(dot4I8Packed(a, b), i32(dot4U8Packed(a, b)), s.x + 256 * s.w, i32(u.y + 256u * u.z)), id.x, 0u);
  y.store4(vec4i(i32(pack4xI8(s + vec4i(3))), i32(pack4xU8(u + vec4u(200u))), i32(pack4xI8Clamp(s * 2)), i32(pack4xU8Clamp(u * 2u))), id.x, 1u);
})";
  std::map<std::string, VirtualTensor> tensors = {{"x", Plain({64}, DType::kU32)}, {"y", Plain({64, 8}, DType::kI32)}};
  HostTensor x(DType::kU32, {64});
  for (int64_t i = 0; i < 64; ++i) x.Set(i, double(uint32_t(i * 2246822519u + 0x7f80ff01u)));
  std::vector<std::vector<std::byte>> results;
  for (bool native : {true, false}) {
    Target target = MinimalWgslTarget();
    target.packed_dot = native;
    auto lowered = LowerText(text, tensors, target);
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    EXPECT_EQ(lowered->uses_packed_dot, native);
    std::string code;
    for (const Function& f : lowered->module.functions) code += Format(f);
    EXPECT_EQ(code.find("4xI8") != std::string::npos, native) << code;
    std::vector<std::byte> in = PackForStorage(x, tensors["x"].placement), out(size_t(tensors["y"].placement.storage_bytes()));
    InterpretMemory memory;
    memory.tensors = {{"x", in}, {"y", out}};
    uint32_t workgroups[3] = {64, 1, 1};
    auto result = Interpret(*lowered, workgroups, memory, {});
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_TRUE(result->faults.empty()) << result->faults[0].message << code;
    results.push_back(out);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Lower, CoordinatesAreComparedWithTheExtents) {
  const char* text = R"(
tensor x[row, column] : read;
tensor y[row, column] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) {
  let row = i32(id.y) - 1;
  var v = -1.0;
  if (x.is_inside(row, id.x)) { v = x.load(u32(row), id.x); }
  y.store(v, id.y, id.x);
})";
  std::map<std::string, VirtualTensor> tensors = {{"x", Plain({2, 3})}, {"y", Plain({4, 5})}};
  auto lowered = LowerText(text, tensors, MinimalWgslTarget());
  ASSERT_TRUE(lowered.ok()) << lowered.error().message;
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::vector<std::byte> in = PackForStorage(HostTensor::FromF32({2, 3}, values), tensors["x"].placement);
  std::vector<std::byte> out(size_t(tensors["y"].placement.storage_bytes()));
  InterpretMemory memory;
  memory.tensors = {{"x", in}, {"y", out}};
  uint32_t workgroups[3] = {5, 4, 1};
  auto result = Interpret(*lowered, workgroups, memory, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_TRUE(result->faults.empty()) << result->faults[0].message;
  HostTensor y = UnpackFromStorage(out, tensors["y"].placement, DType::kF32);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      bool inside = i >= 1 && i < 3 && j < 3;
      EXPECT_EQ(y.Get(i * 5 + j), inside ? values[size_t((i - 1) * 3 + j)] : -1) << i << " " << j;
    }
  }
}

TEST(Lower, SimplifiesArithmetic) {
  struct Case {
    const char* written;
    const char* kept;
  };
  for (const Case& c :
       {Case{"id.x * 1u + 0u", "id.x"}, Case{"id.x / 16u", "id.x >> 4u"}, Case{"id.x % 16u", "id.x & 15u"},
        Case{"id.x / 12u", "id.x / 12u"}, Case{"(id.x * 0u) | id.y", "0u | id.y"}, Case{"id.x / 1u - 0u", "id.x"},
        Case{"select(id.x, id.y, id.x < 3u || true)", "id.y"}, Case{"id.x % 1u", "0u"}}) {
    std::string text = StrCat(R"(
tensor y[row] : write as u32;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id : vec3u) { y.store()",
                              c.written, ", id.z); }");
    auto lowered = LowerText(text, {{"y", Plain({64}, DType::kU32)}}, MinimalWgslTarget());
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    EXPECT_NE(Format(lowered->module.entry()).find(StrCat("y_store(", c.kept, ", id.z)")), std::string::npos)
        << c.written << " became\n"
        << Format(lowered->module.entry());
  }
}

TEST(Lower, CoordinatesThatCannotBeOutsideAreNotChecked) {
  struct Case {
    const char* what;
    const char* body;
    const char* checks;  // what in_bounds is; null: there is none
  };
  const Case cases[] = {
      {"unknown", "v = x.load4_or_zero(i32(id.y), id.x, id.z);", "row < 9u && column < 7u && slice < 2u"},
      {"literals", "v = x.load4_or_zero(8, 6u, 1u);", nullptr},
      {"outside for certain", "v = x.load4_or_zero(9, 6u, 1u);", "row < 9u"},
      {"a loop", "for (var s = 0u; s < 2u; s++) { v += x.load4_or_zero(i32(id.y) - 1, id.x, s); }", "row < 9u && column < 7u"},
      {"a loop too far", "for (var s = 0u; s <= 2u; s++) { v += x.load4_or_zero(1, 1u, s); }", "slice < 2u"},
      {"a strided loop", "for (var s = lane; s < 2u; s += 8u) { v += x.load4_or_zero(1, 1u, s); }", nullptr},
      {"a loop that changes its variable", "for (var s = 0u; s < 2u; s++) { v += x.load4_or_zero(1, 1u, s); s += id.y; }",
       "slice < 2u"},
      {"lanes", "v = x.load4_or_zero(i32(lane), lane % 7u, lane & 1u);", nullptr},
      {"a guard", "let r = i32(id.y) - 1; if (r < 0 || r >= 9) { return; } v = x.load4_or_zero(r, min(id.x, 6u), 0u);",
       nullptr},
      {"half a guard", "let r = i32(id.y) - 1; if (r >= 9) { return; } v = x.load4_or_zero(r, min(id.x, 6u), 0u);", "row < 9u"},
      {"a branch", "if (id.x + 2u < 7u && id.y < 9u) { v = x.load4_or_zero(i32(id.y), id.x + 2u, 0u); }", nullptr},
      {"the other branch", "if (id.y >= 9u) { } else { v = x.load4_or_zero(i32(id.y), 1u, 0u); }", nullptr},
      {"a variable", "var c = 1u; if (c < 7u) { c = id.x; v = x.load4_or_zero(1, c, 0u); }", "column < 7u"},
      {"wrapping", "let c = lane - 1u; v = x.load4_or_zero(1, c, 0u);", "column < 7u"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    std::string text = StrCat(R"(
tensor x[row, column, channel] : read;
tensor y[row] : write;
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) id : vec3u, @builtin(local_invocation_index) lane : u32) {
  var v = vec4f(0.0);
  )",
                              c.body, R"(
  y.store4(v, id.x);
})");
    auto lowered = LowerText(text, {{"x", Plain({9, 7, 8})}, {"y", Plain({64})}}, MinimalWgslTarget());
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    std::string code = Format(lowered->module);
    if (c.checks) {
      EXPECT_NE(code.find(StrCat("let in_bounds : bool = ", c.checks, ";")), std::string::npos) << code;
    } else {
      EXPECT_EQ(code.find("in_bounds"), std::string::npos) << code;
    }
  }
}

// ---- Lowering keeps the meaning ---------------------------------------------------------------------------------------

struct Storage1 {
  std::map<std::string, std::vector<std::byte>> bytes;
  InterpretMemory Memory(const std::map<std::string, VirtualTensor>& tensors) {
    InterpretMemory memory;
    for (auto& [name, b] : bytes) memory.tensors[name] = b;
    memory.placements = PlacementsOf(tensors);
    return memory;
  }
};

class RandomCase {
 public:
  explicit RandomCase(uint32_t seed) : random_(seed) {}

  int Pick(int count) { return int(random_() % uint32_t(count)); }
  template <class T>
  T PickOf(std::initializer_list<T> choices) {
    return *(choices.begin() + Pick(int(choices.size())));
  }

  Shape RandomShape(int rank) {
    Shape shape;
    for (int i = 0; i < rank; ++i)
      shape.push_back(PickOf<int64_t>({1, 2, 3, 4, 5, 8, 9, 12}) / (i + 1 < rank && rank > 2 ? 2 : 1) + 0);
    for (int i = 0; i < rank; ++i) shape[i] = std::max<int64_t>(1, shape[i]);
    return shape;
  }

  StorageLimits RandomLimits() {
    if (Pick(2)) return {};
    return {.max_binding_bytes = 256,
            .max_texture_2d = 16,
            .max_texture_3d = 9,
            .max_texture_layers = 8,
            .max_image_buffer_texels = 4096};
  }

  // How a tensor of shape `shape` is read: a map onto a tensor of another shape.
  CoordMap ReadMap(const Shape& shape, Shape& placed) {
    CoordMap map;
    int rank = shape.rank();
    placed = shape;
    auto identity = [&] {
      for (int i = 0; i < rank; ++i) map.coords.push_back(A(i));
    };
    int axis = Pick(rank);
    switch (Pick(10)) {
      case 0:
      case 1: return map;
      case 2: {  // transposed
        identity();
        int other = Pick(rank);
        std::swap(map.coords[size_t(axis)], map.coords[size_t(other)]);
        std::swap(placed[axis], placed[other]);
        return map;
      }
      case 3: {  // broadcast
        identity();
        map.coords[size_t(axis)] = N(0);
        placed[axis] = 1;
        return map;
      }
      case 4: {  // a slice, with a stride
        identity();
        int64_t step = PickOf<int64_t>({1, 1, 2, 3}), first = PickOf<int64_t>({0, 1, 3, 4, 8});
        map.coords[size_t(axis)] = A(axis) * N(step) + N(first);
        placed[axis] = (shape[axis] - 1) * step + first + 1 + Pick(3);
        return map;
      }
      case 5: {  // reversed
        identity();
        map.coords[size_t(axis)] = N(shape[axis] - 1) - A(axis);
        return map;
      }
      case 6: {  // padded
        identity();
        int64_t before = std::min<int64_t>(PickOf<int64_t>({0, 1, 2, 4}), shape[axis] - 1);
        int64_t after = std::min<int64_t>(Pick(3), shape[axis] - 1 - before);
        placed[axis] = shape[axis] - before - after;
        map.coords[size_t(axis)] = A(axis) - N(before);
        map.inside = And(Less(N(before - 1), A(axis)), Less(A(axis), N(before + placed[axis])));
        map.outside = PickOf<double>({0, 0, 1});
        return map;
      }
      case 7: {  // gathered
        identity();
        auto table = std::make_shared<std::vector<int32_t>>();
        placed[axis] = shape[axis] + 2;
        for (int64_t i = 0; i < shape[axis]; ++i) table->push_back(Pick(int(placed[axis])));
        map.coords[size_t(axis)] = IndexExpr::Table(table, A(axis));
        return map;
      }
      case 8: {  // reshaped to one axis, or with the last two merged
        int64_t count = shape.element_count();
        if (Pick(2)) {
          placed = Shape({count});
        } else {
          int64_t inner = PickOf<int64_t>({1, 2, 3, 4, 6, 8});
          while (count % inner) inner = inner == 8 || inner == 6 ? inner / 2 : inner - 1;
          placed = Shape({count / inner, inner});
        }
        std::vector<int64_t> extents(shape.begin(), shape.end());
        IndexExpr flat;
        for (int i = 0; i < rank; ++i) flat = flat * N(shape[i]) + A(i);
        if (placed.rank() == 1) {
          map.coords = {flat};
        } else {
          map.coords = {Div(flat, placed[1]).SimplifiedFor(extents), Mod(flat, placed[1]).SimplifiedFor(extents)};
        }
        return map;
      }
      default: placed = Shape(); return map;  // a scalar
    }
  }

  // One or two such maps, one after the other.
  CoordMap ReadMaps(const Shape& shape, Shape& placed) {
    CoordMap outer = ReadMap(shape, placed);
    if (placed.rank() == 0 || Pick(2)) return outer;
    Shape middle = placed;
    CoordMap inner = ReadMap(middle, placed);
    if (outer.inside && inner.inside && outer.outside != inner.outside) inner.outside = outer.outside;
    std::vector<IndexExpr> axes = outer.coords;
    for (int i = 0; outer.is_identity() && i < shape.rank(); ++i) axes.push_back(A(i));
    CoordMap both;
    for (int i = 0; i < placed.rank(); ++i)
      both.coords.push_back(inner.is_identity() ? axes[size_t(i)] : inner.coords[size_t(i)].Substitute(axes));
    both.outside = inner.inside ? inner.outside : outer.outside;
    both.inside = outer.inside;
    if (inner.inside) {
      IndexExpr inside = inner.inside->Substitute(axes);
      both.inside = both.inside ? And(*both.inside, inside) : inside;
    }
    return both;
  }

  // Where a tensor of shape `shape` is written: no two coordinates to one place.
  CoordMap WriteMap(const Shape& shape, Shape& placed) {
    for (;;) {
      CoordMap map = ReadMaps(shape, placed);
      std::set<std::vector<int64_t>> seen;
      bool injective = true;
      ForEach(shape, [&](const std::vector<int64_t>& at) {
        if (map.inside && !map.inside->Evaluate(at)) return;
        std::vector<int64_t> to = at;
        if (!map.is_identity()) {
          to.clear();
          for (const IndexExpr& e : map.coords) to.push_back(e.Evaluate(at));
        }
        if (placed.rank() == 0) to.clear();
        injective = seen.insert(to).second && injective;
      });
      if (injective) return map;
    }
  }

  template <class F>
  static void ForEach(const Shape& shape, F&& f) {
    std::vector<int64_t> at(size_t(shape.rank()), 0);
    for (int64_t i = 0; i < shape.element_count(); ++i) {
      int64_t rest = i;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        at[size_t(axis)] = rest % shape[axis];
        rest /= shape[axis];
      }
      f(at);
    }
  }

  VirtualTensor RandomTensor(const Shape& shape, bool written, std::initializer_list<DType> dtypes) {
    VirtualTensor tensor;
    tensor.shape = shape;
    Shape placed;
    tensor.map = written ? WriteMap(shape, placed) : ReadMaps(shape, placed);
    for (;;) {
      DType dtype = PickOf(dtypes);
      if (written && (dtype == DType::kI8 || dtype == DType::kU8)) continue;
      Storage storage = PickOf({Storage::kBuffer, Storage::kBuffer, Storage::kImageBuffer, Storage::kTexture2D,
                                Storage::kTexture2DArray, Storage::kTexture3D});
      auto placement =
          PlaceTensor(placed, dtype, PickOf({Layout::kLinear, Layout::kPadded4, Layout::kSliced4}), storage, RandomLimits());
      if (!placement.ok()) continue;
      tensor.placement = *placement;
      return tensor;
    }
  }

  // Small whole numbers, and garbage where no element lies.
  std::vector<std::byte> Fill(const Placement& placement, bool truths) {
    HostTensor values(placement.dtype, placement.shape), ones(placement.dtype, placement.shape);
    for (int64_t i = 0; i < values.element_count(); ++i) {
      values.Set(i, IsFloat(placement.dtype) || IsSignedInt(placement.dtype) ? Pick(41) - 20 : Pick(truths ? 2 : 30));
      ones.Set(i, 1);
    }
    std::vector<std::byte> bytes = PackForStorage(values, placement), marks = PackForStorage(ones, placement);
    size_t size = DTypeBytes(placement.dtype, 1);
    for (size_t i = 0; i + size <= bytes.size(); i += size) {
      bool element = std::any_of(marks.begin() + int64_t(i), marks.begin() + int64_t(i + size),
                                 [](std::byte b) { return b != std::byte{0}; });
      if (element) continue;
      for (size_t k = 0; k < size; ++k) bytes[i + k] = std::byte(0x7b);
    }
    return bytes;
  }

  std::mt19937 random_;
};

std::string KernelText(int rank, int mode, const std::string& value) {
  const char* const names[] = {"a", "b", "c", "d", "e"};
  std::vector<std::string> axes(names, names + rank), coords;
  std::string text =
      StrCat("tensor x[", Join(axes, ", "), "] : read as ", value, ";\ntensor y[", Join(axes, ", "), "] : write as ", value,
             ";\n@compute @workgroup_size(1)\nfn main(@builtin(workgroup_id) id : vec3u) {\n  var rest = id.x;\n");
  bool by_slice = mode != 1;
  for (int i = rank - 1; i >= 0; --i) {
    std::string extent = StrCat("y.", axes[size_t(i)]);
    if (i + 1 == rank && by_slice) extent = StrCat("((", extent, " + 3u) / 4u)");
    text += StrCat("  let i", i, " = rest % ", extent, ";\n  rest = rest / ", extent, ";\n");
  }
  for (int i = 0; i + 1 < rank; ++i) coords.push_back(StrCat("i", i));
  std::string outer = coords.empty() ? "" : Join(coords, ", ") + ", ";
  std::string last = StrCat("i", rank - 1);
  std::string shifted;
  for (const std::string& c : coords) shifted += StrCat("i32(", c, ") - 1, ");
  std::string lanes;
  switch (mode) {
    case 0: text += StrCat("  y.store4(x.load4(", outer, last, "), ", outer, last, ");\n"); break;
    case 1: text += StrCat("  y.store(x.load(", outer, last, "), ", outer, last, ");\n"); break;
    case 2:  // vector to scalars
      text += StrCat("  let v = x.load4(", outer, last, ");\n");
      for (int i = 0; i < 4; ++i) {
        std::string at = StrCat("(", last, " * 4u + ", i, "u)");
        text += StrCat("  if (", at, " < y.", axes.back(), ") { y.store(v[", i, "], ", outer, at, "); }\n");
      }
      break;
    case 3: {  // scalars to vector
      for (int i = 0; i < 4; ++i) {
        lanes += StrCat(i ? ", " : "", "x.load(", outer, "min(", last, " * 4u + ", i, "u, x.", axes.back(), " - 1u))");
      }
      text += StrCat("  y.store4(vec4<", value, ">(", lanes, "), ", outer, last, ");\n");
      break;
    }
    case 6: {  // in a loop, with a guard that lowering can use
      std::string extent = StrCat("i32(x.", axes[0], rank == 1 ? " + 3u) / 4" : ")"), rest;
      for (int i = 1; i < rank; ++i) rest += StrCat(", i", i);
      text += StrCat("  var v = vec4<", value, ">();\n  for (var k = 0u; k < 3u; k++) {\n    let r = i32(i0 + k) - 1;\n");
      text += StrCat("    if (r < 0 || r >= ", extent, ") { continue; }\n    v = x.load4_or_zero(r", rest, ");\n  }\n");
      text += StrCat("  y.store4(v, ", outer, last, ");\n");
      break;
    }
    case 4: text += StrCat("  y.store4(x.load4_or_zero(", shifted, last, "), ", outer, last, ");\n"); break;
    default:
      for (int i = 0; i < 4; ++i)
        lanes += StrCat(i ? ", " : "", "x.load_or_zero(", shifted, "i32(", last, " * 4u) + ", i, " - 2)");
      text += StrCat("  y.store4(vec4<", value, ">(", lanes, "), ", outer, last, ");\n");
  }
  return text + "}\n";
}

std::string Describe(const std::string& name, const VirtualTensor& tensor) {
  std::string text = StrCat(name, tensor.shape.ToString(), " in ", DTypeName(tensor.placement.dtype),
                            tensor.placement.shape.ToString(), " ", LayoutName(tensor.placement.layout), " ",
                            StorageName(tensor.placement.storage), " parts ", tensor.placement.part_count(), " map [");
  for (const IndexExpr& e : tensor.map.coords) text += e.ToString() + ", ";
  if (tensor.map.inside) text += StrCat("] inside ", tensor.map.inside->ToString(), " else ", tensor.map.outside);
  return text + "]\n";
}

// The elements of the written tensor after running, or nothing where the target cannot have the kernel.
// A lowered kernel is well typed: with buffers as private arrays and without texture functions it is a kernel of the language,
// which the checker takes.
Status CheckTypes(const LoweredKernel& lowered, const Target& target) {
  Module module = Clone(lowered.module);
  std::erase_if(module.vars, [](const VarDecl& var) { return var.space == "texture"; });
  for (VarDecl& var : module.vars) {
    if (var.space != "storage") continue;
    var.space = "private";
    var.type.count = 64;
    var.binding = -1;
    var.access = Access::kReadWrite;
  }
  for (Function& f : module.functions) {
    build::VisitExprs(f, [](ExprPtr& e) {
      if (e->kind == ExprKind::kCall && e->name == "textureLoad") e = build::Construct(e->type, {});
    });
    for (StmtPtr& s : f.body) {
      build::VisitStatements(*s, [](Stmt& stmt) {
        if (stmt.kind != StmtKind::kCall || stmt.value->name != "textureStore") return;
        stmt.kind = StmtKind::kAssign;
        stmt.op = "=";
        stmt.value = std::move(stmt.value->args.back());
      });
    }
  }
  std::string text = Format(module);
  ASSIGN_OR_RETURN_CONTEXT(Module parsed, Parse(text, "lowered"), text);
  auto bound = Bind(parsed, {}, target);
  if (!bound.ok()) return WithContext(bound.error(), text);
  return {};
}

enum class Outcome { kSame, kRefused };
Outcome RunCase(uint32_t seed) {
  RandomCase random(seed);
  int rank = 1 + random.Pick(4), mode = random.Pick(7);
  std::string value = random.PickOf({"f32", "f32", "i32", "u32", "bool"});
  Shape shape = random.RandomShape(rank);
  Target target = random.PickOf({TypicalTarget(Language::kWgsl), MinimalWgslTarget(), TypicalTarget(Language::kOpenClC)});
  target.max_storage_buffers = 1000;
  auto tensor = [&](const Shape& s, bool written) {
    if (value == "f32") return random.RandomTensor(s, written, {DType::kF32, DType::kF32, DType::kF16, DType::kI8});
    if (value == "i32") return random.RandomTensor(s, written, {DType::kI32, DType::kI8});
    if (value == "u32") return random.RandomTensor(s, written, {DType::kU32, DType::kU8});
    return random.RandomTensor(s, written, {DType::kU32});
  };
  std::map<std::string, VirtualTensor> tensors = {{"x", tensor(shape, false)}, {"y", tensor(shape, true)}};
  // A bool in flight is a u32.
  DType dtype = value == "f32" ? DType::kF32 : value == "i32" ? DType::kI32 : DType::kU32;
  for (const char* name : {"x", "y"}) {
    for (int i = random.Pick(3); i > 0; --i) {
      ValueMap map;
      map.value = map.result = dtype;
      switch (random.Pick(3)) {
        case 0: map.text = "fn apply(v : V) -> V { return v * V(2) + V(1); }"; break;
        case 1:
          map.text = "fn apply(v : V, other : V) -> V { return max(v, other) - V(1); }";
          map.operands = {tensor(shape, false)};
          break;
        default:
          map.text = "fn apply(v : V, low : V, high : V) -> V { return min(max(v, low), high); }";
          map.operands = {tensor(shape, false), tensor(shape, false)};
      }
      tensors[name].value_maps.push_back(map);
    }
  }
  std::string text = KernelText(rank, mode, value);
  std::string story = text;
  Storage1 storage;
  VisitTensors(tensors, [&](const std::string& name, const VirtualTensor& t) {
    storage.bytes[name] = random.Fill(t.placement, value == "bool");
    story += Describe(name, t);
  });
  SCOPED_TRACE(StrCat("seed ", seed, "\n", story));

  auto bound = BindText(text, tensors, target);
  EXPECT_TRUE(bound.ok()) << bound.error().message;
  if (!bound.ok()) return Outcome::kRefused;
  auto lowered = Lower(*bound, target);
  if (!lowered.ok()) {
    EXPECT_EQ(lowered.error().code, Code::kUnsupported) << lowered.error().message;
    return Outcome::kRefused;
  }
  Status types = CheckTypes(*lowered, target);
  EXPECT_TRUE(types.ok()) << types.error().message;
  uint32_t items = 1;
  for (int i = 0; i < rank; ++i) items *= uint32_t(i + 1 == rank && mode != 1 ? (shape[i] + 3) / 4 : shape[i]);
  uint32_t workgroups[3] = {items, 1, 1};
  Storage1 before = storage, after = storage;
  InterpretOptions options;
  auto first = Interpret(*bound, workgroups, before.Memory(tensors), options);
  EXPECT_TRUE(first.ok()) << first.error().message;
  if (first.ok() && !first->faults.empty()) ADD_FAILURE() << "before lowering: " << first->faults[0].message;
  auto second = Interpret(*lowered, workgroups, after.Memory(tensors), options);
  std::string code;
  for (const Function& f : lowered->module.functions) code += Format(f);
  EXPECT_TRUE(second.ok()) << second.error().message << code;
  if (second.ok() && !second->faults.empty()) ADD_FAILURE() << "after lowering: " << second->faults[0].message << code;
  const Placement& placement = tensors["y"].placement;
  HostTensor expected = UnpackFromStorage(before.bytes["y"], placement, placement.dtype);
  HostTensor got = UnpackFromStorage(after.bytes["y"], placement, placement.dtype);
  for (int64_t i = 0; i < expected.element_count(); ++i) {
    if (expected.Get(i) != got.Get(i)) {
      ADD_FAILURE() << "element " << i << ": " << expected.Get(i) << " before lowering, " << got.Get(i) << " after\n" << code;
      break;
    }
  }
  return Outcome::kSame;
}

TEST(Lower, KeepsWhatAKernelMeans) {
  // LEEWAY_RANDOM_CASES=50000 for a long run.
  const char* asked = std::getenv("LEEWAY_RANDOM_CASES");
  uint32_t cases = asked ? uint32_t(std::strtoul(asked, nullptr, 10)) : 1500;
  int same = 0, refused = 0;
  for (uint32_t seed = 0; seed < cases && !::testing::Test::HasFailure(); ++seed) {
    (RunCase(seed) == Outcome::kSame ? same : refused)++;
  }
  if (!::testing::Test::HasFailure()) {
    EXPECT_GT(same, int(cases / 2));
    EXPECT_GT(refused, int(cases / 50));  // element stores into textures and half words
  }
}

}  // namespace
}  // namespace leeway::shader
