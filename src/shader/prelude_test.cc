// The prelude on the interpreter, against plain C++.
#include "shader/prelude.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/strings.h"
#include "shader/interpret.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

// Runs a kernel over x -> y (any shapes) and gives y; faults fail the test.
std::vector<float> RunKernel(std::string_view text, const HostTensor& x, Shape y_shape,
                             std::map<std::string, ConstValue> consts, uint32_t workgroups, uint32_t subgroup_size) {
  auto module = Parse(text, "prelude_test");
  if (!module.ok()) return ADD_FAILURE() << module.error().message, std::vector<float>{};
  Target target;
  target.max_invocations = 1024;
  target.subgroups = subgroup_size > 0;
  target.subgroup_min = target.subgroup_max = subgroup_size;
  Specialization specialization;
  specialization.consts = std::move(consts);
  std::map<std::string, std::vector<std::byte>> storage;
  InterpretMemory memory;
  for (auto [name, shape] : {std::pair{"x", x.shape()}, std::pair{"y", y_shape}}) {
    VirtualTensor tensor;
    tensor.shape = shape;
    tensor.placement = *PlaceTensor(shape, DType::kF32, Layout::kPadded4, Storage::kBuffer, {});
    storage[name] = PackForStorage(name[0] == 'x' ? x : HostTensor(DType::kF32, shape), tensor.placement);
    memory.tensors[name] = storage[name];
    specialization.tensors.emplace(name, std::move(tensor));
  }
  auto kernel = Bind(*module, specialization, target);
  if (!kernel.ok()) return ADD_FAILURE() << kernel.error().message, std::vector<float>{};
  uint32_t grid[3] = {workgroups, 1, 1};
  InterpretOptions options;
  if (subgroup_size > 0) options.subgroup_size = subgroup_size;
  auto result = Interpret(*kernel, grid, memory, options);
  if (!result.ok()) return ADD_FAILURE() << result.error().message, std::vector<float>{};
  for (const Fault& fault : result->faults) ADD_FAILURE() << fault.message;
  return UnpackFromStorage(storage["y"], kernel->tensors.at("y").placement, DType::kF32).ToF32();
}

// Every way that a reduction over a unit is done gives the same: nothing, one subgroup, several, a tree (also of odd width).
TEST(Prelude, UnitsReduceWhateverTheirWidth) {
  constexpr std::string_view kText = R"(
tensor x[unit, lane] : read;
tensor y[unit, lane, which] : write;
const lanes : u32;
const units : u32;
@compute @workgroup_size(lanes, units)
fn main(@builtin(local_invocation_id) id : vec3u) {
  let v = x.load(id.y, id.x);
  let total = unit_sum(v);
  let largest = unit_max(v);
  let smallest = unit_min(vec2f(v, -v));
  y.store(total, id.y, id.x, 0u);
  y.store(largest, id.y, id.x, 1u);
  y.store(smallest.x + 1000.0 * smallest.y, id.y, id.x, 2u);
})";
  for (int64_t lanes : {1, 2, 3, 7, 8, 16, 32, 33}) {
    for (int64_t units : {1, 3, 4}) {
      for (uint32_t subgroup_size : {0u, 4u, 8u, 32u}) {
        SCOPED_TRACE(StrCat("lanes ", lanes, " units ", units, " subgroups ", subgroup_size));
        HostTensor x(DType::kF32, {units, lanes});
        for (int64_t i = 0; i < x.element_count(); ++i) x.Set(i, double((i * 37) % 101) - 50);
        std::vector<float> y =
            RunKernel(kText, x, {units, lanes, 3}, {{"lanes", double(lanes)}, {"units", double(units)}}, 1, subgroup_size);
        ASSERT_EQ(int64_t(y.size()), units * lanes * 3);
        for (int64_t u = 0; u < units; ++u) {
          double total = 0, largest = -1e9, smallest = 1e9;
          for (int64_t l = 0; l < lanes; ++l) {
            double v = x.Get(u * lanes + l);
            total += v;
            largest = std::max(largest, v);
            smallest = std::min(smallest, v);
          }
          for (int64_t l = 0; l < lanes; ++l) {
            const float* at = &y[size_t((u * lanes + l) * 3)];
            EXPECT_EQ(at[0], total);
            EXPECT_EQ(at[1], largest);
            EXPECT_EQ(at[2], float(smallest + 1000.0 * -largest));
          }
        }
      }
    }
  }
}

TEST(Prelude, ActivationsAgreeWithTheirDefinitions) {
  struct Row {
    const char* call;
    std::function<double(double)> reference;
    double tolerance;  // absolute, or relative above 1
  };
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const Row rows[] = {
      {"relu(v)", [](double v) { return std::max(v, 0.0); }, 0},
      {"relu6(v)", [](double v) { return std::clamp(v, 0.0, 6.0); }, 0},
      {"relu_n1_to_1(v)", [](double v) { return std::clamp(v, -1.0, 1.0); }, 0},
      {"leaky_relu(v, 0.25)", [](double v) { return v < 0 ? v / 4 : v; }, 0},
      {"sigmoid(v)", sigmoid, 2e-7},
      {"silu(v)", [&](double v) { return v * sigmoid(v); }, 1e-6},
      {"tanh_clamped(v)", [](double v) { return std::tanh(v); }, 2e-7},
      {"gelu_tanh(v)", [](double v) { return 0.5 * v * (1 + std::tanh(0.7978845608 * (v + 0.044715 * v * v * v))); }, 1e-6},
      {"erf(v)", [](double v) { return std::erf(v); }, 5e-7},
      {"gelu_erf(v)", [](double v) { return 0.5 * v * (1 + std::erf(v * std::sqrt(0.5))); }, 2e-6},
      {"hard_sigmoid(v)", [](double v) { return std::clamp(v / 6 + 0.5, 0.0, 1.0); }, 1e-6},
      {"hard_swish(v)", [](double v) { return v * std::clamp(v + 3, 0.0, 6.0) / 6; }, 1e-6},
      {"elu(v)", [](double v) { return v > 0 ? v : std::expm1(v); }, 2e-7},
      {"softplus(v)", [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))); }, 1e-6},
  };
  std::vector<float> values = {-1000, -100, -87.5, -20, -10, -6, -3, -2.5, -1,   -0.5, -0.125, 0,
                               0.125, 0.5,  1,     2.5, 3,   6,  10, 20,   87.5, 100,  1000};
  HostTensor x = HostTensor::FromF32({int64_t(values.size())}, values);
  for (const Row& row : rows) {
    for (bool is_vector : {false, true}) {
      SCOPED_TRACE(StrCat(row.call, is_vector ? " of vec4f" : " of f32"));
      std::string text = StrCat(
          "tensor x[n] : read; tensor y[n] : write;\n@compute @workgroup_size(32) ",
          "fn main(@builtin(local_invocation_index) i : u32) {\n",
          is_vector ? "if i < (x.n + 3u) / 4u { let v = x.load4(i); y.store4(" : "if i < x.n { let v = x.load(i); y.store(",
          row.call, ", i); }\n}");
      std::vector<float> y = RunKernel(text, x, x.shape(), {}, 1, 0);
      ASSERT_EQ(y.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        double want = row.reference(values[i]);
        EXPECT_NEAR(y[i], want, row.tolerance * std::max(1.0, std::abs(want))) << "at " << values[i];
      }
    }
  }
}

TEST(Prelude, EdgesOfSlicesAreLeftOut) {
  constexpr std::string_view kText = R"(
tensor x[n] : read;
tensor y[which, slice] : write;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group : vec3u) {
  let s = group.x;
  let v = x.load4(s) - 100.0;  // lanes beyond the edge are -100
  y.store(sum4_inside(v, s, x.n), 0u, s);
  y.store(max4_inside(-v, s, x.n), 1u, s);
  y.store(min4_inside(v, s, x.n), 2u, s);
  y.store(dot(keep4(v, s, x.n, 7.0), vec4f(1.0)), 3u, s);
  y.store(dot(select(vec4f(0.0), vec4f(1.0), inside4(s, x.n)), vec4f(1.0)), 4u, s);
  y.store(product4(vec4f(1.0, 2.0, 3.0, f32(s))), 5u, s);
})";
  for (int64_t n = 1; n <= 9; ++n) {
    SCOPED_TRACE(n);
    HostTensor x(DType::kF32, {n});
    for (int64_t i = 0; i < n; ++i) x.Set(i, double((i * 3) % 7));
    int64_t slices = (n + 3) / 4;
    std::vector<float> y = RunKernel(kText, x, {6, slices}, {}, uint32_t(slices), 0);
    ASSERT_EQ(int64_t(y.size()), 6 * slices);
    for (int64_t s = 0; s < slices; ++s) {
      double sum = 0, largest = -1e9, smallest = 1e9;
      int64_t count = std::min<int64_t>(4, n - 4 * s);
      for (int64_t i = 0; i < count; ++i) {
        double v = x.Get(4 * s + i) - 100;
        sum += v;
        largest = std::max(largest, -v);
        smallest = std::min(smallest, v);
      }
      double want[] = {sum, largest, smallest, sum + 7.0 * double(4 - count), double(count), 6.0 * double(s)};
      for (int64_t k = 0; k < 6; ++k) EXPECT_EQ(y[size_t(k * slices + s)], want[k]) << k;
    }
  }
}

}  // namespace
}  // namespace leeway::shader
