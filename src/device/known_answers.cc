#include "device/known_answers.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/hash.h"
#include "base/strings.h"
#include "device/kernel_runner.h"

namespace leeway {
namespace {

// ---- The kernels --------------------------------------------------------------------------------------------------------

constexpr std::string_view kIntegers = R"(
tensor a[n] : read as i32;
tensor b[n] : read as i32;
tensor y[n, result] : write as i32;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let i = id.x;
  if (i >= y.n) { return; }
  let p = a.load(i);
  let q = b.load(i);
  y.store(p / q, i, 0u);
  y.store(p % q, i, 1u);
  y.store(i32(u32(p) / u32(q)), i, 2u);
  y.store(i32(u32(p) % u32(q)), i, 3u);
  y.store(p >> (u32(q) & 31u), i, 4u);
  y.store(i32(u32(p) >> (u32(q) & 31u)), i, 5u);
  y.store(p * q, i, 6u);
  y.store(min(p, q) ^ max(p, q), i, 7u);
}
)";

constexpr std::string_view kFloats = R"(
tensor a[n] : read;
tensor y[n, result] : write;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let i = id.x;
  if (i >= y.n) { return; }
  let v = a.load(i);
  y.store(floor(v), i, 0u);
  y.store(round(v), i, 1u);
  y.store(trunc(v), i, 2u);
  y.store(f32(i32(v)), i, 3u);
  y.store(v * 0.5 + 1.0, i, 4u);
  y.store(select(0.0, 1.0, v < 0.0), i, 5u);
}
)";

// Values go round a workgroup through workgroup memory; a barrier that lets one pass early gives another sum.
constexpr std::string_view kBarriers = R"(
tensor a[row, lane] : read;
tensor y[row, lane] : write;
const lanes : u32;
const rounds : u32;
var<workgroup> cells : array<f32, lanes>;
@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  var v = a.load(group.x, lane);
  for (var r = 0u; r < rounds; r++) {
    cells[lane] = v;
    workgroupBarrier();
    v = 0.5 * v + 0.5 * cells[(lane + r * 7u + 1u) % lanes];
    workgroupBarrier();
  }
  y.store(v, group.x, lane);
}
)";

// Whole subgroups, and a workgroup whose last subgroup is not full.
constexpr std::string_view kSubgroups = R"(
tensor a[group, lane] : read;
tensor y[group, lane, result] : write;
const lanes : u32;
@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  let v = a.load(group.x, lane);
  y.store(subgroupAdd(v), group.x, lane, 0u);
  y.store(subgroupMax(v), group.x, lane, 1u);
  y.store(subgroupMin(v), group.x, lane, 2u);
}
)";

// Two rows of a matrix in one subgroup: each half sums its own by halving.
constexpr std::string_view kSubgroupHalves = R"(
tensor a[group, lane] : read;
tensor y[group, lane, result] : write;
const lanes : u32;
const half : u32;
@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32) {
  var v = a.load(group.x, lane);
  for (var step = half / 2u; step > 0u; step /= 2u) { v += subgroupShuffleXor(v, step); }
  y.store(v, group.x, lane, 0u);
  y.store(subgroupBroadcastFirst(v), group.x, lane, 1u);
}
)";

// Each subgroup multiplies its own matrix, whose rows are longer than 16, by one that all share, plain and transposed.
constexpr std::string_view kSubgroupMatrices = R"(
tensor a[group, row, inner] : read;
tensor b[inner, column] : read;
tensor y[group, which, row, column] : write;
const lanes : u32;
const subgroups = lanes / subgroup_size;
const left_length = subgroups * 16u * 24u;
const sum_length = subgroups * 256u;
var<workgroup> left : array<f16, left_length>;
var<workgroup> right : array<f16, 256>;
var<workgroup> sums : array<f32, sum_length>;
@compute @workgroup_size(lanes)
fn main(@builtin(local_invocation_index) at : u32) {
  for (var i = at; i < left_length; i += lanes) {
    left[i] = f16(a.load_or_zero(i / 384u, i / 24u % 16u, i % 24u));
  }
  for (var i = at; i < 256u; i += lanes) { right[i] = f16(b.load(i / 16u, i % 16u)); }
  workgroupBarrier();
  let own = at / subgroup_size;
  let l = subgroupMatrixLoadLeft(&left, own * 384u, 24u);
  var products : array<subgroup_matrix_sum, 2>;
  for (var round = 0u; round < 2u; round++) {
    products[0] = subgroupMatrixMultiplyAdd(l, subgroupMatrixLoadRight(&right, 0u, 16u), products[0]);
    products[1] = subgroupMatrixMultiplyAdd(l, subgroupMatrixLoadRightTransposed(&right, 0u, 16u), products[1]);
  }
  @unroll for (var which = 0u; which < 2u; which++) {
    subgroupMatrixStore(&sums, own * 256u, 16u, products[which]);
    workgroupBarrier();
    for (var i = at; i < sum_length; i += lanes) { y.store(sums[i], i / 256u, which, i / 16u % 16u, i % 16u); }
    workgroupBarrier();
  }
}
)";

// Stored halves, widened and rounded; with f16 arithmetic where the language has it.
constexpr std::string_view kHalves = R"(
tensor a[n] : read;
tensor y[n] : write;
tensor z[n] : write;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let i = id.x;
  if (i * 4u >= y.n) { return; }
  let v = a.load4(i);
  y.store4(v * 2049.0, i);
  z.store4(v, i);
}
)";

constexpr std::string_view kHalfArithmetic = R"(
tensor a[n] : read;
tensor b[n] : read;
tensor y[n, result] : write;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let i = id.x;
  if (i >= y.n) { return; }
  let p = f16(a.load(i));
  let q = f16(b.load(i));
  y.store(f32(p + q), i, 0u);
  y.store(f32(p * q), i, 1u);
  y.store(f32(fma(p, q, p)), i, 2u);
  y.store(f32(max(p, q)), i, 3u);
}
)";

constexpr std::string_view kPackedDot = R"(
tensor a[n] : read as u32;
tensor b[n] : read as u32;
tensor y[n, result] : write as i32;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let i = id.x;
  if (i >= y.n) { return; }
  y.store(dot4I8Packed(a.load(i), b.load(i)), i, 0u);
  y.store(i32(dot4U8Packed(a.load(i), b.load(i))), i, 1u);
}
)";

constexpr std::string_view kCopy = R"(
tensor x[batch, row, column, channel] : read;
tensor y[batch, row, column, channel] : write;
@compute @workgroup_size(8, 4, 1)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let slices = (x.channel + 3u) / 4u;
  if (id.x >= x.column || id.y >= x.row || id.z >= x.batch * slices) { return; }
  let batch = id.z / slices;
  let slice = id.z % slices;
  y.store4(x.load4(batch, id.y, id.x, slice) * 2.0, batch, id.y, id.x, slice);
}
)";

constexpr std::string_view kParams = R"(
tensor y[n] : write;
param scale : f32;
param shift : u32;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id : vec3u) {
  if (id.x >= y.n) { return; }
  y.store(scale * f32(id.x) + f32(shift), id.x);
}
)";

// ---- Data and expected results ------------------------------------------------------------------------------------------

struct Case {
  std::string name;
  KernelRun run;
  std::vector<std::vector<double>> want;  // of each output
  double tolerance = 0;                   // of the value, relative
  // Switches the feature off; null: nothing works without it.
  void (*on_failure)(DeviceInfo&) = nullptr;
};

RunTensor Input(const char* name, Shape shape, const std::vector<double>& values, DType host = DType::kF32,
                DType dtype = DType::kF32) {
  RunTensor tensor;
  tensor.name = name;
  tensor.value = HostTensor(host, shape);
  for (size_t i = 0; i < values.size(); ++i) tensor.value.Set(int64_t(i), values[i]);
  tensor.dtype = dtype;
  return tensor;
}

// Filled with a number that no kernel writes, so that one that does not run is seen.
RunTensor Output(const char* name, Shape shape, DType host = DType::kF32, DType dtype = DType::kF32) {
  RunTensor tensor = Input(name, shape, std::vector<double>(size_t(shape.element_count()), 77), host, dtype);
  tensor.is_output = true;
  return tensor;
}

Case Integers() {
  const std::vector<int32_t> p = {7, -7, 7, -7, 0, 1, 2147483647, -2147483647, 123456789, -987654321, 65536, 40000, -1, 3};
  const std::vector<int32_t> q = {3, 3, -3, -3, 5, 7, 10, 3, 1000, 1001, 255, 40000, 2147483647, 4};
  const int64_t n = int64_t(p.size());
  Case c;
  c.name = "integer arithmetic";
  std::vector<double> want;
  for (size_t i = 0; i < p.size(); ++i) {
    const uint32_t up = uint32_t(p[i]), uq = uint32_t(q[i]);
    for (int32_t v : {p[i] / q[i], p[i] % q[i], int32_t(up / uq), int32_t(up % uq), p[i] >> (uq & 31), int32_t(up >> (uq & 31)),
                      int32_t(up * uq), std::min(p[i], q[i]) ^ std::max(p[i], q[i])}) {
      want.push_back(v);
    }
  }
  c.run = {"known_integers",
           kIntegers,
           {},
           {Input("a", {n}, {p.begin(), p.end()}, DType::kI32, DType::kI32),
            Input("b", {n}, {q.begin(), q.end()}, DType::kI32, DType::kI32), Output("y", {n, 8}, DType::kI32, DType::kI32)}};
  c.want = {want};
  return c;
}

Case Floats() {
  const std::vector<double> v = {0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.75, -2.75, 1e6 + 0.5, -3, 0, 0.49999997, 8388607.5};
  Case c;
  c.name = "float arithmetic";
  std::vector<double> want;
  for (double x : v) {
    const double f = double(float(x));
    for (double w :
         {std::floor(f), std::nearbyint(f), std::trunc(f), std::trunc(f), double(float(f * 0.5 + 1)), f < 0 ? 1.0 : 0.0})
      want.push_back(w);
  }
  const int64_t n = int64_t(v.size());
  c.run = {"known_floats", kFloats, {}, {Input("a", {n}, v), Output("y", {n, 6})}};
  c.want = {want};
  c.tolerance = 1e-6;
  return c;
}

Case Barriers() {
  constexpr int64_t kRows = 5, kLanes = 64, kRounds = 9;
  std::vector<double> values(kRows * kLanes);
  for (size_t i = 0; i < values.size(); ++i) values[i] = double((i * 37) % 101) - 50;
  std::vector<double> want = values;
  for (int64_t row = 0; row < kRows; ++row) {
    double* cells = want.data() + row * kLanes;
    for (int64_t r = 0; r < kRounds; ++r) {
      const std::vector<double> old(cells, cells + kLanes);
      for (int64_t lane = 0; lane < kLanes; ++lane)
        cells[lane] = 0.5 * old[size_t(lane)] + 0.5 * old[size_t((lane + r * 7 + 1) % kLanes)];
    }
  }
  Case c;
  c.name = "workgroup barriers";
  c.run = {"known_barriers",
           kBarriers,
           {{"lanes", double(kLanes)}, {"rounds", double(kRounds)}},
           {Input("a", {kRows, kLanes}, values), Output("y", {kRows, kLanes})},
           {uint32_t(kRows), 1, 1}};
  c.want = {want};
  c.tolerance = 1e-5;
  c.on_failure = [](DeviceInfo& info) { info.target.max_workgroup_bytes = 0; };
  return c;
}

void NoSubgroups(DeviceInfo& info) {
  info.target.subgroups = info.target.subgroup_matrix = false;
  info.target.subgroup_min = info.target.subgroup_max = 0;
}

// `lanes` need not be a multiple of the size.
Case Subgroups(uint32_t size, uint32_t lanes) {
  constexpr int64_t kGroups = 3;
  std::vector<double> values(size_t(kGroups) * lanes), want;
  for (size_t i = 0; i < values.size(); ++i) values[i] = double((i * 29) % 97) - 40;
  for (size_t group = 0; group < size_t(kGroups); ++group) {
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const uint32_t first = lane / size * size, end = std::min(first + size, lanes);
      double sum = 0, largest = -1e9, least = 1e9;
      for (uint32_t i = first; i < end; ++i) {
        const double v = values[group * lanes + i];
        sum += v, largest = std::max(largest, v), least = std::min(least, v);
      }
      want.insert(want.end(), {sum, largest, least});
    }
  }
  Case c;
  c.name = lanes % size ? "subgroups, the last one not full" : "subgroups";
  c.run = {"known_subgroups",
           kSubgroups,
           {{"lanes", double(lanes)}},
           {Input("a", {kGroups, int64_t(lanes)}, values), Output("y", {kGroups, int64_t(lanes), 3})},
           {uint32_t(kGroups), 1, 1}};
  c.want = {want};
  c.on_failure = NoSubgroups;
  return c;
}

Case SubgroupHalves(uint32_t size) {
  constexpr int64_t kGroups = 3;
  const uint32_t lanes = 2 * size, half = size / 2;
  std::vector<double> values(size_t(kGroups) * lanes), want;
  for (size_t i = 0; i < values.size(); ++i) values[i] = double((i * 31) % 89) - 30;
  for (size_t group = 0; group < size_t(kGroups); ++group) {
    auto sum_of = [&](uint32_t first) {
      double sum = 0;
      for (uint32_t i = first; i < first + half; ++i) sum += values[group * lanes + i];
      return sum;
    };
    for (uint32_t lane = 0; lane < lanes; ++lane)
      want.insert(want.end(), {sum_of(lane / half * half), sum_of(lane / size * size)});
  }
  Case c;
  c.name = "two rows in a subgroup";
  c.run = {"known_subgroup_halves",
           kSubgroupHalves,
           {{"lanes", double(lanes)}, {"half", double(half)}},
           {Input("a", {kGroups, int64_t(lanes)}, values), Output("y", {kGroups, int64_t(lanes), 2})},
           {uint32_t(kGroups), 1, 1}};
  c.want = {want};
  c.on_failure = NoSubgroups;
  return c;
}

Case SubgroupMatrices(uint32_t size) {
  constexpr int64_t kSubgroups = 2, kN = 16;
  std::vector<double> a(size_t(kSubgroups * kN * kN)), b(size_t(kN * kN)), want;
  for (size_t i = 0; i < a.size(); ++i) a[i] = double((i * 37) % 61) * 0.25 - 7;
  for (size_t i = 0; i < b.size(); ++i) b[i] = double((i * 23) % 53) * 0.125 - 3;
  for (int64_t group = 0; group < kSubgroups; ++group) {
    for (bool transposed : {false, true}) {
      for (int64_t m = 0; m < kN; ++m) {
        for (int64_t n = 0; n < kN; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < kN; ++k) {
            sum += 2 * a[size_t((group * kN + m) * kN + k)] * b[size_t(transposed ? n * kN + k : k * kN + n)];
          }
          want.push_back(sum);
        }
      }
    }
  }
  Case c;
  c.name = "matrices of subgroups";
  c.run = {"known_subgroup_matrices",
           kSubgroupMatrices,
           {{"lanes", double(kSubgroups * size)}},
           {Input("a", {kSubgroups, kN, kN}, a), Input("b", {kN, kN}, b), Output("y", {kSubgroups, 2, kN, kN})}};
  c.want = {want};
  c.on_failure = [](DeviceInfo& info) { info.target.subgroup_matrix = false; };
  return c;
}

double RoundToHalf(double v) { return F16ToF32(F32ToF16(float(v))); }

Case Halves(bool arithmetic) {
  // Ties on both sides, the largest and the smallest numbers, subnormals.
  const std::vector<double> v = {
      1,      1 + 1.0 / 1024, 1.5, -2.25, 0,      65504, -65504, 6.103515625e-5, 5.9604644775390625e-8, -1.1920928955078125e-7,
      0.3333, 3.140625,       100, 2047,  -0.125, 1000.5};
  Case c;
  c.name = arithmetic ? "f16 storage" : "f16 storage in words";
  std::vector<double> halves, products;
  for (double x : v) halves.push_back(RoundToHalf(x));
  for (double x : halves) {
    // Overflow is not compared: languages without f16 may saturate.
    products.push_back(std::abs(x * 2049) > 65504 ? NAN : RoundToHalf(x * 2049));
  }
  const int64_t n = int64_t(v.size());
  c.run = {"known_halves",
           kHalves,
           {},
           {Input("a", {n}, v, DType::kF32, DType::kF16), Output("y", {n}, DType::kF32, DType::kF16),
            Output("z", {n}, DType::kF32, DType::kF16)}};
  c.want = {products, halves};
  // A product may be flushed to zero where it is subnormal, and rounded either way by one in the last place.
  c.tolerance = 1.0 / 1024;
  c.on_failure = [](DeviceInfo& info) { info.target.f16 = false; };
  return c;
}

Case HalfArithmetic() {
  const std::vector<double> p = {1, 1.5, -2, 0.25, 100, 1023, -0.5, 3}, q = {1.0 / 1024, 2.5, 0.125, -4, 3.5, 1, 7, 1.0 / 2048};
  Case c;
  c.name = "f16 arithmetic";
  std::vector<double> want;
  for (size_t i = 0; i < p.size(); ++i) {
    for (double w : {p[i] + q[i], p[i] * q[i], p[i] * q[i] + p[i], std::max(p[i], q[i])}) want.push_back(RoundToHalf(w));
  }
  const int64_t n = int64_t(p.size());
  c.run = {"known_half_arithmetic",
           kHalfArithmetic,
           {},
           {Input("a", {n}, p, DType::kF32, DType::kF16), Input("b", {n}, q, DType::kF32, DType::kF16), Output("y", {n, 4})}};
  c.want = {want};
  c.tolerance = 1.0 / 1024;
  c.on_failure = [](DeviceInfo& info) { info.target.f16 = false; };
  return c;
}

Case PackedDot() {
  const std::vector<uint32_t> a = {0, 0x7f7f7f7f, 0x80808080, 0xff01fe02, 0xffffffff, 0x80808080},
                              b = {0x01020304, 0x7f7f7f7f, 0x7f7f7f7f, 0x10f020e0, 0xffffffff, 0x80808080};
  Case c;
  c.name = "packed int8 dot";
  std::vector<double> want;
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t is = 0, us = 0;
    for (int shift = 0; shift < 32; shift += 8) {
      is += int8_t(a[i] >> shift) * int8_t(b[i] >> shift);
      us += uint8_t(a[i] >> shift) * uint8_t(b[i] >> shift);
    }
    want.insert(want.end(), {double(is), double(us)});
  }
  const int64_t n = int64_t(a.size());
  c.run = {"known_packed_dot",
           kPackedDot,
           {},
           {Input("a", {n}, {a.begin(), a.end()}, DType::kU32, DType::kU32),
            Input("b", {n}, {b.begin(), b.end()}, DType::kU32, DType::kU32), Output("y", {n, 2}, DType::kI32, DType::kI32)}};
  c.want = {want};
  c.on_failure = [](DeviceInfo& info) { info.target.packed_dot = false; };
  return c;
}

Case Copy(const char* name, Storage storage, DType dtype, void (*on_failure)(DeviceInfo&)) {
  const Shape shape = {2, 3, 5, 6};
  std::vector<double> values(size_t(shape.element_count())), want;
  for (size_t i = 0; i < values.size(); ++i) values[i] = double((i * 13) % 61) * 0.25 - 7;
  for (double v : values) want.push_back(2 * v);
  Case c;
  c.name = name;
  RunTensor x = Input("x", shape, values, DType::kF32, dtype), y = Output("y", shape, DType::kF32, dtype);
  x.storage = storage;
  x.layout = y.layout = Layout::kSliced4;
  if (storage != Storage::kImageBuffer) y.storage = storage;
  c.run = {"known_copy", kCopy, {}, {x, y}, {1, 1, 4}};
  c.want = {want};
  c.on_failure = on_failure;
  return c;
}

Case Params() {
  struct {
    float scale = 1.5f;
    uint32_t shift = 9;
  } params;
  Case c;
  c.name = "params";
  c.run = {"known_params", kParams, {}, {Output("y", {40})}, {2, 1, 1}};
  const auto bytes = std::as_bytes(std::span(&params, 1));
  c.run.params.assign(bytes.begin(), bytes.end());
  c.want = {{}};
  for (int i = 0; i < 40; ++i) c.want[0].push_back(1.5 * i + 9);
  c.on_failure = [](DeviceInfo& info) { info.target.immediates = false; };
  return c;
}

std::vector<Case> CasesFor(const DeviceInfo& info) {
  const shader::Target& t = info.target;
  std::vector<Case> cases = {Integers(), Floats(), Barriers(), Params()};
  const uint32_t size = t.subgroup_max;
  // Results are known only where the size is.
  if (t.subgroups && size > 1 && t.subgroup_min == size && 2 * size <= t.max_invocations) {
    cases.push_back(Subgroups(size, 2 * size));
    cases.push_back(Subgroups(size, size + size / 2));
    cases.push_back(SubgroupHalves(size));
    if (t.subgroup_matrix) cases.push_back(SubgroupMatrices(size));
  }
  cases.push_back(Halves(t.f16));
  if (t.f16) cases.push_back(HalfArithmetic());
  if (t.packed_dot) cases.push_back(PackedDot());
  if (t.image_buffer)
    cases.push_back(
        Copy("image buffers", Storage::kImageBuffer, DType::kF32, [](DeviceInfo& i) { i.target.image_buffer = false; }));
  if (t.max_sampled_textures && t.max_storage_textures && t.float_textures_write) {
    cases.push_back(
        Copy("2D textures", Storage::kTexture2D, DType::kF32, [](DeviceInfo& i) { i.target.storage.max_texture_2d = 0; }));
    cases.push_back(Copy("2D array textures", Storage::kTexture2DArray, DType::kF32,
                         [](DeviceInfo& i) { i.target.storage.max_texture_layers = 0; }));
    cases.push_back(
        Copy("3D textures", Storage::kTexture3D, DType::kF32, [](DeviceInfo& i) { i.target.storage.max_texture_3d = 0; }));
    cases.push_back(Copy("2D textures of halves", Storage::kTexture2D, DType::kF16,
                         [](DeviceInfo& i) { i.target.float_textures_write = false; }));
  }
  return cases;
}

// ---- Running ------------------------------------------------------------------------------------------------------------

// Empty if all values agree; else the first that does not.
std::string Difference(const Case& c, const std::vector<HostTensor>& outputs) {
  for (size_t o = 0; o < c.want.size(); ++o) {
    for (size_t i = 0; i < c.want[o].size(); ++i) {
      const double want = c.want[o][i], got = outputs[o].Get(int64_t(i));
      if (std::isnan(want)) continue;
      // Below the least normal number of the storage devices may flush to zero.
      const double slack = std::max(std::abs(want) * c.tolerance, c.tolerance > 0 ? 6.2e-5 * (std::abs(want) < 6.2e-5) : 0.0);
      if (!(std::abs(got - want) <= slack)) return StrCat("element ", i, " is (", got, "), expected (", want, ")");
    }
  }
  return "";
}

struct Running {
  const Case* test;
  PreparedKernel kernel;
};

std::vector<KnownAnswer> Run(BackendDevice& device, const std::vector<Case>& cases) {
  std::vector<KnownAnswer> answers(cases.size());
  std::vector<Result<PreparedKernel>> kernels;
  for (const Case& c : cases) kernels.push_back(PreparedKernel::Start(device, c.run, device.info().target));
  for (size_t i = 0; i < cases.size(); ++i) {
    KnownAnswer& answer = answers[i];
    answer.name = cases[i].name;
    auto run = [&]() -> Result<std::string> {
      if (!kernels[i].ok()) return kernels[i].error();
      RETURN_IF_ERROR(kernels[i]->Finish(device));
      std::vector<Dispatch> dispatches;
      dispatches.push_back(kernels[i]->MakeDispatch());
      ASSIGN_OR_RETURN(std::unique_ptr<Recording> recording, device.Record(std::move(dispatches)));
      SubmitOptions options;
      options.params = kernels[i]->params();
      ASSIGN_OR_RETURN(EventPtr event, device.Submit(*recording, options));
      (void)event;  // reading waits for it
      ASSIGN_OR_RETURN(std::vector<HostTensor> outputs, kernels[i]->ReadOutputs(device));
      return Difference(cases[i], outputs);
    };
    Result<std::string> difference = run();
    answer.detail = difference.ok() ? *difference : difference.error().message;
    answer.passed = difference.ok() && difference->empty();
  }
  return answers;
}

// One line per answer: 1 or 0, name, detail, between tabs.
std::string ToText(const std::vector<KnownAnswer>& answers) {
  std::string text;
  for (const KnownAnswer& answer : answers) {
    std::string detail = answer.detail;
    for (char& c : detail) {
      if (c == '\t' || c == '\n') c = ' ';
    }
    text += StrCat(answer.passed ? "1" : "0", "\t", answer.name, "\t", detail, "\n");
  }
  return text;
}

std::vector<KnownAnswer> FromText(std::string_view text) {
  std::vector<KnownAnswer> answers;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t name = line.find('\t'), detail = line.find('\t', name + 1);
    if (name != 1 || detail == std::string_view::npos) return {};
    answers.push_back({std::string(line.substr(2, detail - 2)), line[0] == '1', std::string(line.substr(detail + 1))});
  }
  return answers;
}

std::string ReadFile(const std::string& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
    char piece[4096];
    while (const size_t count = std::fread(piece, 1, sizeof piece, file)) text.append(piece, count);
    std::fclose(file);
  }
  return text;
}

// Written beside and renamed, so that nobody sees half of it; a failure only means that the tests run again.
void WriteFile(const std::string& path, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string temporary = StrCat(path, ".", getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (!file) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) == 0 && written) {
    std::rename(temporary.c_str(), path.c_str());
  } else {
    std::remove(temporary.c_str());
  }
}

// By device and kernels.
struct ProcessCache {
  std::mutex mutex;
  std::map<std::string, std::vector<KnownAnswer>> answers;
};
ProcessCache& Cache() {
  static ProcessCache cache;
  return cache;
}

}  // namespace

void ForgetKnownAnswers() {
  std::lock_guard lock(Cache().mutex);
  Cache().answers.clear();
}

Status RunKnownAnswers(BackendDevice& device, const std::string& cache_folder) {
  DeviceInfo& info = device.mutable_info();
  const std::vector<Case> cases = CasesFor(info);
  // Other kernels, another key: what was found out with older ones does not count.
  uint64_t hash = kHashSeed;
  for (const Case& c : cases) hash = HashText(StrCat(c.name, c.run.text), hash);
  const std::string key = StrCat(info.cache_key, "-", hash);
  const std::string path = cache_folder.empty() ? "" : StrCat(cache_folder, "/known-answers-", key, ".txt");
  std::vector<KnownAnswer> answers;
  {
    std::lock_guard lock(Cache().mutex);
    if (const auto found = Cache().answers.find(key); found != Cache().answers.end()) answers = found->second;
  }
  if (answers.empty() && !path.empty()) answers = FromText(ReadFile(path));
  if (answers.size() != cases.size()) {
    answers = Run(device, cases);
    RETURN_IF_ERROR(device.status());
    // What fails is tried again in the next process: it may have been the moment, or a mistake of ours.
    const bool all_passed =
        std::all_of(answers.begin(), answers.end(), [](const KnownAnswer& answer) { return answer.passed; });
    if (!path.empty() && all_passed) WriteFile(path, ToText(answers));
  }
  {
    std::lock_guard lock(Cache().mutex);
    Cache().answers[key] = answers;
  }
  info.known_answers = answers;
  std::string broken;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (answers[i].passed) continue;
    if (cases[i].on_failure) {
      cases[i].on_failure(info);
    } else {
      broken += StrCat(broken.empty() ? "" : "; ", answers[i].name, ": ", answers[i].detail);
    }
  }
  if (!broken.empty()) return Error{Code::kUnsupported, StrCat("The device computes wrongly (", broken, ").")};
  return {};
}

}  // namespace leeway
