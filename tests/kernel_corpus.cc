#include "kernel_corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "tensor/address.h"

namespace leeway::shader {
namespace {

HostTensor Zeros(DType dtype, Shape shape) { return HostTensor(dtype, shape); }
HostTensor I32s(std::vector<int32_t> values) { return HostTensor::FromI32(Shape({int64_t(values.size())}), values); }
HostTensor F32s(std::vector<float> values) { return HostTensor::FromF32(Shape({int64_t(values.size())}), values); }
CorpusTensor Output(HostTensor data, Layout layout = Layout::kLinear, Storage storage = Storage::kBuffer,
                    std::optional<DType> stored = std::nullopt) {
  return {std::move(data), layout, storage, stored, true};
}

// ---- Every builtin function, by value -----------------------------------------------------------------------------------

struct In {
  float x, y;
  int32_t i, j;
  uint32_t u, v;
};
struct Row {
  const char* text;  // of a value that becomes f32, i32 or u32 bits
  std::function<double(const In&)> expected;
  double tolerance = 0;  // of f32, relative to max(1, |expected|); 0: f32 to 1e-6, integers exactly
};
double Bits(float f) { return std::bit_cast<uint32_t>(f); }
uint32_t Half(float f) { return F32ToF16(f); }
float RoundToHalf(float f) { return F16ToF32(F32ToF16(f)); }
int32_t Byte(uint32_t u, int n) { return int8_t(u >> (8 * n)); }
uint32_t UByte(uint32_t u, int n) { return uint8_t(u >> (8 * n)); }
uint32_t Reverse(uint32_t u) {
  uint32_t r = 0;
  for (int n = 0; n < 32; ++n) r |= ((u >> n) & 1) << (31 - n);
  return r;
}

const Row kFloatRows[] = {
    {"abs(x)", [](const In& a) { return std::fabs(a.x); }},
    {"abs(p).w", [](const In& a) { return std::fabs(a.y); }},
    {"min(x, y)", [](const In& a) { return std::min(a.x, a.y); }},
    {"max(p, p.yxwz).x", [](const In& a) { return std::max(a.x, a.y); }},
    {"clamp(x, -1.0, 0.5)", [](const In& a) { return std::clamp(a.x, -1.0f, 0.5f); }},
    {"clamp(p, vec4f(-1.0), vec4f(0.5)).y", [](const In& a) { return std::clamp(a.y, -1.0f, 0.5f); }},
    {"sign(x)", [](const In& a) { return a.x > 0   ? 1
                                         : a.x < 0 ? -1
                                                   : 0; }},
    {"acos(x / 10.0)", [](const In& a) { return std::acos(a.x / 10.0); }},
    {"acosh(abs(x) + 1.0)", [](const In& a) { return std::acosh(std::fabs(a.x) + 1.0); }, 1e-5},
    {"asin(x / 10.0)", [](const In& a) { return std::asin(a.x / 10.0); }},
    {"asinh(x)", [](const In& a) { return std::asinh(double(a.x)); }},
    {"atan(x)", [](const In& a) { return std::atan(double(a.x)); }},
    {"atanh(x / 10.0)", [](const In& a) { return std::atanh(a.x / 10.0); }, 1e-5},
    {"atan2(x, y)", [](const In& a) { return std::atan2(double(a.x), double(a.y)); }},
    {"ceil(x)", [](const In& a) { return std::ceil(a.x); }},
    {"cos(x)", [](const In& a) { return std::cos(double(a.x)); }},
    {"cosh(x)", [](const In& a) { return std::cosh(double(a.x)); }, 1e-5},
    {"degrees(x)", [](const In& a) { return a.x * 57.29577951308232; }},
    {"exp(x)", [](const In& a) { return std::exp(double(a.x)); }, 1e-5},
    {"exp2(p).x", [](const In& a) { return std::exp2(double(a.x)); }, 1e-5},
    {"floor(x)", [](const In& a) { return std::floor(a.x); }},
    {"fract(x)", [](const In& a) { return a.x - std::floor(a.x); }},
    {"fract(p).x", [](const In& a) { return a.x - std::floor(a.x); }},
    {"inverseSqrt(abs(x) + 1.0)", [](const In& a) { return 1 / std::sqrt(std::fabs(a.x) + 1.0); }},
    {"log(abs(x) + 1.0)", [](const In& a) { return std::log(std::fabs(a.x) + 1.0); }},
    {"log2(abs(x) + 1.0)", [](const In& a) { return std::log2(std::fabs(a.x) + 1.0); }},
    {"quantizeToF16(x)", [](const In& a) { return RoundToHalf(a.x); }},
    {"quantizeToF16(p).y", [](const In& a) { return RoundToHalf(a.y); }},
    {"radians(x)", [](const In& a) { return a.x / 57.29577951308232; }},
    {"round(x)", [](const In& a) { return std::nearbyint(a.x); }},
    {"round(vec2f(0.5, 2.5)).y + round(y)", [](const In& a) { return 2.0 + std::nearbyint(a.y); }},
    {"saturate(x)", [](const In& a) { return std::clamp(a.x, 0.0f, 1.0f); }},
    {"saturate(p).w", [](const In& a) { return std::clamp(-a.y, 0.0f, 1.0f); }},
    {"sin(x)", [](const In& a) { return std::sin(double(a.x)); }},
    {"sinh(x)", [](const In& a) { return std::sinh(double(a.x)); }, 1e-5},
    {"sqrt(abs(x))", [](const In& a) { return std::sqrt(std::fabs(double(a.x))); }},
    {"tan(x)", [](const In& a) { return std::tan(double(a.x)); }, 1e-4},
    {"tanh(p).x", [](const In& a) { return std::tanh(double(a.x)); }},
    {"trunc(x)", [](const In& a) { return std::trunc(a.x); }},
    {"pow(abs(x) + 0.5, 1.5)", [](const In& a) { return std::pow(std::fabs(a.x) + 0.5, 1.5); }, 1e-5},
    {"step(x, y)", [](const In& a) { return a.y < a.x ? 0 : 1; }},
    {"fma(x, y, 3.0)", [](const In& a) { return double(a.x) * a.y + 3; }},
    {"fma(p, p, vec4f(1.0)).y", [](const In& a) { return double(a.y) * a.y + 1; }},
    {"smoothstep(-3.0, 3.0, x)",
     [](const In& a) {
       double t = std::clamp((a.x + 3.0) / 6.0, 0.0, 1.0);
       return t * t * (3 - 2 * t);
     }},
    {"mix(x, y, 0.25)", [](const In& a) { return a.x * 0.75 + a.y * 0.25; }},
    {"mix(p, p.yxzw, 0.25).x", [](const In& a) { return a.x * 0.75 + a.y * 0.25; }},
    {"mix(p, p.yxzw, vec4f(0.25)).x", [](const In& a) { return a.x * 0.75 + a.y * 0.25; }},
    {"ldexp(x, 3)", [](const In& a) { return a.x * 8; }},
    {"ldexp(p, vec4i(3, 2, 1, 0)).y", [](const In& a) { return a.y * 4; }},
    {"dot(p.xy, p.yx)", [](const In& a) { return 2.0 * a.x * a.y; }},
    {"dot(p, p.xxyy)", [](const In& a) { return double(a.x) * a.x + double(a.y) * a.x + 2.0 * a.y - double(a.y) * a.y; }, 1e-5},
    {"length(p.xy)", [](const In& a) { return std::hypot(double(a.x), double(a.y)); }},
    {"length(x)", [](const In& a) { return std::fabs(a.x); }},
    {"distance(p.xy, vec2f(1.0, 2.0))", [](const In& a) { return std::hypot(a.x - 1.0, a.y - 2.0); }},
    {"distance(x, y)", [](const In& a) { return std::fabs(double(a.x) - a.y); }},
    {"normalize(p.xyz + vec3f(0.0, 0.0, 3.0)).z",
     [](const In& a) { return 5 / std::sqrt(double(a.x) * a.x + double(a.y) * a.y + 25); }},
    {"cross(p.xyz, vec3f(1.0, 0.0, 0.0)).y", [](const In&) { return 2.0; }},
    {"reflect(p.xy, vec2f(0.0, 1.0)).y", [](const In& a) { return -a.y; }},
    {"select(x, y, i < j)", [](const In& a) { return a.i < a.j ? a.y : a.x; }},
    {"select(p, p.yxwz, p < p.yxwz).x", [](const In& a) { return std::max(a.x, a.y); }},
    {"select(p, -p, vec4<bool>(i < j, true, false, i > j)).x", [](const In& a) { return a.i < a.j ? -a.x : a.x; }},
    {"select(p, -p, !(p.xyzw < vec4f(0.0)) & (p < vec4f(2.0))).x",
     [](const In& a) { return !(a.x < 0) && a.x < 2 ? -a.x : a.x; }},
    {"select(p.xyz, -p.xyz, (p.xyz < vec3f(0.0)) | (p.xyz > vec3f(1.0))).y",
     [](const In& a) { return a.y < 0 || a.y > 1 ? -a.y : a.y; }},
    {"x % y", [](const In& a) { return std::fmod(double(a.x), double(a.y)); }, 1e-5},
    {"(p % 3.0).x", [](const In& a) { return std::fmod(double(a.x), 3.0); }, 1e-5},
    {"-x - -y", [](const In& a) { return -a.x + a.y; }},
    {"-(-x)", [](const In& a) { return a.x; }},
    {"x - (y - 1.0)", [](const In& a) { return a.x - (a.y - 1.0f); }},
    {"f32(i) + f32(u & 255u) + f32(i < j)", [](const In& a) { return a.i + double(a.u & 255) + (a.i < a.j); }},
    {"vec4f(q).x + vec4f(r & vec4u(255u)).y", [](const In& a) { return a.i + double(a.v & 255); }},
    {"vec4f(p < vec4f(0.5)).x", [](const In& a) { return a.x < 0.5f; }},
    {"bitcast<f32>(bitcast<u32>(x))", [](const In& a) { return a.x; }},
    {"bitcast<vec4f>(bitcast<vec4i>(p)).y", [](const In& a) { return a.y; }},
    {"unpack2x16float(pack2x16float(p.xy)).y", [](const In& a) { return RoundToHalf(a.y); }},
    {"unpack4x8snorm(0x80ff7f01u).x + unpack4x8snorm(0x80ff7f01u).w", [](const In&) { return 1 / 127.0 - 1; }},
    {"unpack4x8unorm(u).y", [](const In& a) { return UByte(a.u, 1) / 255.0; }},
    {"unpack2x16snorm(u).x", [](const In& a) { return std::max(int16_t(a.u) / 32767.0, -1.0); }},
    {"unpack2x16unorm(u).y", [](const In& a) { return (a.u >> 16) / 65535.0; }},
    {"p[u % 4u]", [](const In& a) { return a.u % 4 == 0   ? a.x
                                           : a.u % 4 == 1 ? a.y
                                           : a.u % 4 == 2 ? 2
                                                          : -a.y; }},
    {"p[1]", [](const In& a) { return a.y; }},
    {"1.0e10 + 1.5e-7 * x - 0.1", [](const In&) { return 1.0e10; }, 1e-6},
    {"f32((!(i < j) && x < y) || u == v)", [](const In& a) { return (!(a.i < a.j) && a.x < a.y) || a.u == a.v; }},
};

const Row kIntRows[] = {
    {"abs(i)", [](const In& a) { return std::abs(a.i); }},
    {"abs(q).y", [](const In& a) { return std::abs(a.j); }},
    {"min(i, j)", [](const In& a) { return std::min(a.i, a.j); }},
    {"max(q, q.yxwz).x", [](const In& a) { return std::max(a.i, a.j); }},
    {"clamp(i, -3, 3)", [](const In& a) { return std::clamp(a.i, -3, 3); }},
    {"sign(i)", [](const In& a) { return a.i > 0   ? 1
                                         : a.i < 0 ? -1
                                                   : 0; }},
    {"sign(q).y", [](const In& a) { return a.j > 0   ? 1
                                           : a.j < 0 ? -1
                                                     : 0; }},
    {"i % j", [](const In& a) { return a.i % a.j; }},
    {"i / j", [](const In& a) { return a.i / a.j; }},
    {"(q % vec4i(3)).x", [](const In& a) { return a.i % 3; }},
    {"i >> 1u", [](const In& a) { return a.i >> 1; }},
    {"i >> (u & 7u)", [](const In& a) { return a.i >> (a.u & 7); }},
    {"(i & j) | (i ^ 5)", [](const In& a) { return (a.i & a.j) | (a.i ^ 5); }},
    {"~i", [](const In& a) { return ~a.i; }},
    {"dot(q.xy, q.yx)", [](const In& a) { return 2 * a.i * a.j; }},
    {"countOneBits(i)", [](const In& a) { return std::popcount(uint32_t(a.i)); }},
    {"countLeadingZeros(i)", [](const In& a) { return std::countl_zero(uint32_t(a.i)); }},
    {"countTrailingZeros(q).x", [](const In& a) { return std::countr_zero(uint32_t(a.i)); }},
    {"firstLeadingBit(i)", [](const In& a) { return 31 - std::countl_zero(uint32_t(a.i < 0 ? ~a.i : a.i)); }},
    {"firstTrailingBit(i)", [](const In& a) { return a.i ? std::countr_zero(uint32_t(a.i)) : -1; }},
    {"reverseBits(i)", [](const In& a) { return int32_t(Reverse(uint32_t(a.i))); }},
    {"extractBits(i, 1u, 3u)", [](const In& a) { return int32_t(uint32_t(a.i) << 28) >> 29; }},
    {"extractBits(i, 0u, 32u)", [](const In& a) { return a.i; }},
    {"extractBits(q, 30u, 40u + (u & 1u)).x", [](const In& a) { return a.i >> 30; }},
    {"insertBits(i, j, 4u, 8u)",
     [](const In& a) { return int32_t((uint32_t(a.i) & ~0xff0u) | ((uint32_t(a.j) & 0xff) << 4)); }},
    {"dot4I8Packed(u, v)",
     [](const In& a) {
       int32_t sum = 0;
       for (int n = 0; n < 4; ++n) sum += Byte(a.u, n) * Byte(a.v, n);
       return sum;
     }},
    {"unpack4xI8(u).z", [](const In& a) { return Byte(a.u, 2); }},
    {"i32(x)", [](const In& a) { return int32_t(a.x); }},
    {"i32(x * 1.0e20) >> 31u", [](const In& a) { return a.x < 0 ? -1 : 0; }},
    {"vec4i(p).y", [](const In& a) { return int32_t(a.y); }},
    {"i32(u)", [](const In& a) { return int32_t(a.u); }},
    {"vec4i(r).x", [](const In& a) { return int32_t(a.u); }},
    {"i32(i < j)", [](const In& a) { return a.i < a.j; }},
    {"vec4i(p < p.yxzw).x", [](const In& a) { return a.x < a.y; }},
    {"bitcast<i32>(x)", [](const In& a) { return std::bit_cast<int32_t>(a.x); }},
    {"-2147483648 + abs(i)", [](const In& a) { return int32_t(0x80000000u + uint32_t(std::abs(a.i))); }},
    {"select(-5, 7, any(q < q.yxzw))", [](const In& a) { return a.i != a.j ? 7 : -5; }},
    {"select(-5, 7, all(q <= q.yxzw))", [](const In& a) { return a.i == a.j ? 7 : -5; }},
    {"select(q, q.yxzw, vec4<bool>(q)).x", [](const In& a) { return a.i != 0 ? a.j : a.i; }},
};

const Row kUintRows[] = {
    {"abs(u)", [](const In& a) { return a.u; }},
    {"min(u, v)", [](const In& a) { return std::min(a.u, a.v); }},
    {"max(r, r.yxwz).x", [](const In& a) { return std::max(a.u, a.v); }},
    {"clamp(u, 3u, 300u)", [](const In& a) { return std::clamp(a.u, 3u, 300u); }},
    {"u * v + 0xffffffffu", [](const In& a) { return a.u * a.v + 0xffffffffu; }},
    {"u / (v | 1u) + u % 7u", [](const In& a) { return a.u / (a.v | 1u) + a.u % 7u; }},
    {"(u << 3u) | (u >> 29u)", [](const In& a) { return std::rotl(a.u, 3); }},
    {"u << (v & 15u)", [](const In& a) { return a.u << (a.v & 15); }},
    {"(r >> vec4u(1u, 2u, 3u, 4u)).y", [](const In& a) { return a.v >> 2; }},
    {"dot(r, vec4u(1u, 2u, 0u, 0u))", [](const In& a) { return a.u + 2 * a.v; }},
    {"countOneBits(r).x", [](const In& a) { return std::popcount(a.u); }},
    {"countLeadingZeros(u)", [](const In& a) { return std::countl_zero(a.u); }},
    {"countTrailingZeros(u)", [](const In& a) { return std::countr_zero(a.u); }},
    {"firstLeadingBit(u)", [](const In& a) { return uint32_t(31 - std::countl_zero(a.u)); }},
    {"firstTrailingBit(r).y", [](const In& a) { return a.v ? uint32_t(std::countr_zero(a.v)) : 0xffffffffu; }},
    {"reverseBits(u)", [](const In& a) { return Reverse(a.u); }},
    {"extractBits(u, 4u, 8u)", [](const In& a) { return (a.u >> 4) & 255; }},
    {"insertBits(r, r.yxzw, 28u, 9u + (v & 1u)).x", [](const In& a) { return (a.u & 0x0fffffffu) | (a.v << 28); }},
    {"dot4U8Packed(u, v)",
     [](const In& a) {
       uint32_t sum = 0;
       for (int n = 0; n < 4; ++n) sum += UByte(a.u, n) * UByte(a.v, n);
       return sum;
     }},
    {"unpack4xU8(u).w", [](const In& a) { return UByte(a.u, 3); }},
    {"pack4xI8(vec4i(unpack4xU8(u)) + vec4i(512))", [](const In& a) { return a.u; }},
    {"pack4xU8(unpack4xU8(u) + vec4u(256u))", [](const In& a) { return a.u; }},
    {"pack4xI8Clamp(vec4i(i * 100, j, 127, -200))",
     [](const In& a) {
       return uint32_t(uint8_t(std::clamp(a.i * 100, -128, 127))) | uint32_t(uint8_t(std::clamp(a.j, -128, 127))) << 8 |
              0x807f0000u;
     }},
    {"pack4xU8Clamp(vec4u(u, v, 3u, 300u))",
     [](const In& a) { return std::min(a.u, 255u) | std::min(a.v, 255u) << 8 | 0xff030000u; }},
    {"pack4x8snorm(vec4f(-1.0, 0.25, 2.0, 0.0))", [](const In&) { return 0x007f2081u; }},
    {"pack4x8unorm(vec4f(0.0, 0.2, 1.0, -3.0))", [](const In&) { return 0x00ff3300u; }},
    {"pack2x16snorm(vec2f(-1.0, 1.0))", [](const In&) { return 0x7fff8001u; }},
    {"pack2x16unorm(vec2f(1.0, 0.0))", [](const In&) { return 0x0000ffffu; }},
    {"pack2x16float(p.xy)", [](const In& a) { return Half(a.x) | Half(a.y) << 16; }},
    {"u32(abs(x))", [](const In& a) { return uint32_t(std::fabs(a.x)); }},
    {"u32(-abs(x))", [](const In&) { return 0u; }},
    {"u32(i)", [](const In& a) { return uint32_t(a.i); }},
    {"vec4u(q).y", [](const In& a) { return uint32_t(a.j); }},
    {"u32(i < j) + u32(bool(u))", [](const In& a) { return uint32_t(a.i < a.j) + uint32_t(a.u != 0); }},
    {"bitcast<u32>(x)", [](const In& a) { return Bits(a.x); }},
    {"select(1u, 2u, vec4<bool>(p).x && bool(x))", [](const In& a) { return a.x != 0 ? 2u : 1u; }},
    {"(u & v) | 1u", [](const In& a) { return (a.u & a.v) | 1u; }},
};

const In kIns[] = {{0.75f, -2.5f, 7, -3, 0x12345678u, 0x80000001u},
                   {-3.5f, 1.25f, -8, 5, 0xffffffffu, 3u},
                   {2.5f, 0.5f, 0, 1, 1u, 0u},
                   {-0.125f, 3.0f, 100, 100, 255u, 0xdeadbeefu}};

template <class Rows>
std::string RowsKernel(const Rows& rows, const char* result) {
  std::string text = StrCat(R"(
tensor floats[n, two] : read;
tensor ints[n, two] : read as i32;
tensor uints[n, two] : read as u32;
tensor y[row, n] : write as )",
                            result, R"(;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id : vec3u) {
  let n = id.x;
  if (n >= y.n) { return; }
  let x = floats.load(n, 0u);
  let y0 = floats.load(n, 1u);
  let i = ints.load(n, 0u);
  let j = ints.load(n, 1u);
  let u = uints.load(n, 0u);
  let v = uints.load(n, 1u);
  let p = vec4f(x, y0, 2.0, -y0);
  let q = vec4i(i, j, 3, -4);
  let r = vec4u(u, v, 5u, 6u);
)");
  int n = 0;
  for (const Row& row : rows) {
    // `y` is the tensor here; the rows read better with x and y.
    std::string value;
    std::string_view source = row.text;
    for (size_t k = 0; k < source.size(); ++k) {
      bool part =
          k > 0 && (std::isalnum(static_cast<unsigned char>(source[k - 1])) || source[k - 1] == '_' || source[k - 1] == '.');
      bool more = k + 1 < source.size() && (std::isalnum(static_cast<unsigned char>(source[k + 1])) || source[k + 1] == '_');
      value += source[k];
      if (source[k] == 'y' && !part && !more) value += '0';
    }
    text += StrCat("  y.store(", value, ", ", n++, "u, n);\n");
  }
  return text + "}\n";
}

CorpusTensors RowsTensors(size_t rows, DType result) {
  int64_t n = int64_t(std::size(kIns));
  CorpusTensors tensors;
  HostTensor floats(DType::kF32, {n, 2}), ints(DType::kI32, {n, 2}), uints(DType::kU32, {n, 2});
  for (size_t k = 0; k < std::size(kIns); ++k) {
    floats.as_mutable<float>()[2 * k] = kIns[k].x, floats.as_mutable<float>()[2 * k + 1] = kIns[k].y;
    ints.as_mutable<int32_t>()[2 * k] = kIns[k].i, ints.as_mutable<int32_t>()[2 * k + 1] = kIns[k].j;
    uints.as_mutable<uint32_t>()[2 * k] = kIns[k].u, uints.as_mutable<uint32_t>()[2 * k + 1] = kIns[k].v;
  }
  tensors["floats"] = {floats};
  tensors["ints"] = {ints};
  tensors["uints"] = {uints};
  tensors["y"] = Output(Zeros(result, {int64_t(rows), n}));
  return tensors;
}
template <class Rows>
CorpusKernel RowsOf(const Rows& rows, const char* name, const char* result, DType dtype) {
  CorpusKernel kernel;
  kernel.name = name;
  kernel.text = RowsKernel(rows, result);
  kernel.tensors = RowsTensors(std::size(rows), dtype);
  kernel.expect = [&rows, dtype](const CorpusTensors& tensors, const CorpusDevice& device) {
    const HostTensor& y = tensors.at("y").data;
    for (size_t row = 0; row < std::size(rows); ++row) {
      for (size_t n = 0; n < std::size(kIns); ++n) {
        double expected = rows[row].expected(kIns[n]);
        double found = y.Get(int64_t(row * std::size(kIns) + n));
        double tolerance = 0;
        if (dtype == DType::kF32) {
          tolerance = rows[row].tolerance ? rows[row].tolerance : 1e-6;
          if (!device.is_precise) tolerance = std::max(tolerance, 2e-3);
          tolerance *= std::max(1.0, std::fabs(expected));
        }
        EXPECT_NEAR(found, expected, tolerance) << rows[row].text << " for input " << n;
      }
    }
  };
  return kernel;
}

// ---- Statements ---------------------------------------------------------------------------------------------------------

constexpr std::string_view kStatements = R"(
tensor x[n] : read as i32;
tensor y[n] : write as i32;
const order : array<u32, 4>;
struct Pair { first : i32, values : array<i32, 3>, kernel : vec2f };
var<private> counter : i32;
var<private> trail : array<i32, 5>;
fn bump(by : i32) -> i32 { counter += by; trail[2] += 1; return counter; }
fn add_to(target_sum : ptr<function, i32>, amount : i32) { *target_sum += amount; }
fn fill(values : ptr<function, array<i32, 4>>, start : i32) {
  for (var i = 0; i < 4; i++) { (*values)[i] = start + i; }
}
fn total(values : array<i32, 4>) -> i32 { return values[0] + values[1] + values[2] + values[3]; }
fn make(a : i32) -> Pair { return Pair(a, array<i32, 3>(a, a + 1, a + 2), vec2f(0.5, f32(a))); }
fn classify(v : i32) -> i32 {
  switch (v) {
    case 0: { return 100; }
    case 1, 2: { if (v == 1) { break; } return 200; }
    default: { return 300; }
  }
  return 150;
}
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id : vec3u) {
  if (id.x >= x.n) { return; }
  let v = x.load(id.x);
  var result = classify(v);
  // loop with continue and a continuing block that ends in break if
  var k = 0;
  loop {
    if (k == 3) { k += 2; continue; }
    result += k;
    continuing { k += 1; break if k > 8; }
  }
  // while, nested loops, break and continue of the inner one
  var w = v;
  while (w > 0) {
    for (var i = 0u; ; i += 1u) {
      if (i == 2u) { continue; }
      if (i > 4u) { break; }
      result += i32(i);
    }
    w -= 1;
  }
  loop { if (w >= 2) { break; } w++; }
  result += w;
  // else if chain
  if (v == 0) { result += 1; } else if (v == 1) { result += 2; } else { result += 3; }
  // arrays, pointers, structs
  var values : array<i32, 4>;
  result += values[3];
  fill(&values, v);
  let copy = values;
  values[1] = 1000;
  result += total(values) - copy[1];
  let whole = &values;
  (*whole)[2] = 7;
  result += values[2];
  values = array<i32, 4>(1, 2, 3, 4);
  result += values[order[v & 3]];
  var pair = make(v);
  pair.values[1] *= 10;
  result += pair.first + pair.values[1] + i32(pair.kernel.y);
  var empty : Pair;
  result += empty.values[2];
  add_to(&result, 5);
  let p = &result;
  *p += 1;
  add_to(p, 2);
  result += bump(2);
  result += bump(3);
  result += counter + trail[2];
  // vectors by lane
  var f = vec4f(1.0);
  f[v & 3] = 4.0;
  f.y += 2.0;
  var b = vec4<bool>(true);
  b.x = v > 1;
  b[1] = false;
  result += i32(f.x + f.y + f.z + f.w) + select(0, 10, all(b)) + select(0, 20, any(b)) + i32(b.x);
  var matrix2 : array<array<i32, 2>, 3>;
  matrix2[2][1] = v;
  var other = matrix2;
  other[0] = matrix2[2];
  result += other[0][1];
  var s = 100;
  s -= 1; s /= 3; s %= 7; s <<= 2u; s >>= 1u; s |= 1; s &= 15; s ^= 3;
  result += s;
  _ = bump(1);
  { let result_inner = 3; result += result_inner; }
  y.store(result, id.x);
}
)";

int StatementsExpected(int v) {
  const int order[4] = {3, 0, 2, 1};
  int result = v == 0 ? 100 : v == 1 ? 150 : v == 2 ? 200 : 300;
  for (int k = 0;;) {
    if (k == 3) {
      k += 2;
    } else {
      result += k;
    }
    k += 1;
    if (k > 8) break;
  }
  int w = v;
  for (; w > 0; --w) result += 0 + 1 + 3 + 4;
  while (w < 2) ++w;
  result += w;
  result += v == 0 ? 1 : v == 1 ? 2 : 3;
  int values[4] = {v, 1000, v + 2, v + 3};
  result += values[0] + values[1] + values[2] + values[3] - (v + 1);
  result += 7;
  const int four[4] = {1, 2, 3, 4};
  result += four[order[v & 3]];
  result += v + (v + 1) * 10 + v;
  result += 5 + 1 + 2;
  result += 2 + 5 + 5 + 2;
  float f[4] = {1, 1, 1, 1};
  f[v & 3] = 4;
  f[1] += 2;
  result += int(f[0] + f[1] + f[2] + f[3]) + 0 + 20 + (v > 1);
  result += v;
  int s = 100;
  s -= 1, s /= 3, s %= 7, s <<= 2, s >>= 1, s |= 1, s &= 15, s ^= 3;
  return result + s + 3;
}

CorpusKernel Statements() {
  const std::vector<int32_t> inputs = {0, 1, 2, 3, 4, 7};
  CorpusKernel kernel;
  kernel.name = "statements";
  kernel.text = kStatements;
  kernel.tensors = {{"x", {I32s(inputs)}}, {"y", Output(Zeros(DType::kI32, {6}))}};
  kernel.consts = {{"order", ConstValue(std::vector<double>{3, 0, 2, 1})}};
  kernel.expect = [inputs](const CorpusTensors& tensors, const CorpusDevice&) {
    for (size_t n = 0; n < inputs.size(); ++n) {
      EXPECT_EQ(tensors.at("y").data.Get(int64_t(n)), StatementsExpected(inputs[n])) << inputs[n];
    }
  };
  return kernel;
}

// ---- Workgroup memory, atomics, params ------------------------------------------------------------------------------------

constexpr std::string_view kShared = R"(
tensor x[row, column] : read;
tensor y[row] : write;
tensor seen[row] : write as u32;
param scale : f32;
param shift : vec3f;
param doubled : u32;
scratch arrived : array<atomic<u32>, 4>;
var<workgroup> tile : array<f32, 64>;
var<workgroup> other : array<f32, 64>;
var<workgroup> hits : atomic<u32>;
var<workgroup> lowest : atomic<i32>;
var<workgroup> flag : u32;
fn sum_of(values : ptr<workgroup, array<f32, 64>>, lane : u32) -> f32 {
  for (var s = 32u; s > 0u; s >>= 1u) {
    workgroupBarrier();
    if (lane < s) { (*values)[lane] += (*values)[lane + s]; }
  }
  workgroupBarrier();
  return (*values)[0];
}
fn prepare(row : u32, lane : u32) {
  tile[lane] = x.load(row, lane) * scale;
  other[lane] = f32(lane);
  if (lane == 0u) { atomicStore(&hits, 0u); atomicStore(&lowest, 1000); flag = row + 1u; }
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) lane : u32,
        @builtin(num_workgroups) groups : vec3u, @builtin(local_invocation_id) local : vec3u) {
  let row = group.x;
  prepare(row, lane);
  workgroupBarrier();
  if (tile[lane] > 8.0) { atomicAdd(&hits, 2u); atomicSub(&hits, 1u); }
  atomicAnd(&hits, 0xffffu);
  atomicXor(&hits, 0u);
  atomicMin(&lowest, i32(lane) - 5);
  atomicMax(&arrived[row], local.x);
  atomicOr(&arrived[3], 1u << row);
  let marker = workgroupUniformLoad(&flag);
  let sum = sum_of(&tile, lane) + sum_of(&other, lane);
  storageBarrier();
  if (lane == 0u) {
    var value = sum + shift.y * 100.0 + shift.z;
    if (doubled != 0u) { value *= 2.0; }
    y.store(value + f32(groups.x), row);
    seen.store(atomicLoad(&hits) + 1000u * u32(atomicLoad(&lowest) + 6) + 100000u * marker + atomicExchange(&arrived[row], 0u), row);
  }
}
)";

CorpusKernel Sharing() {
  HostTensor x(DType::kF32, {3, 64});
  for (int n = 0; n < 192; ++n) x.as_mutable<float>()[size_t(n)] = float(n % 13);
  CorpusKernel kernel;
  kernel.name = "sharing";
  kernel.text = kShared;
  kernel.tensors = {{"x", {x}}, {"y", Output(Zeros(DType::kF32, {3}))}, {"seen", Output(Zeros(DType::kU32, {3}))}};
  // scale; shift at 16; doubled at 28
  std::vector<float> params(8, 0.0f);
  params[0] = 2.0f, params[4] = 1.0f, params[5] = 3.0f, params[6] = 0.5f, params[7] = std::bit_cast<float>(1u);
  auto bytes = std::as_bytes(std::span(params));
  kernel.params.assign(bytes.begin(), bytes.end());
  kernel.workgroups = {3, 1, 1};
  kernel.expect = [](const CorpusTensors& tensors, const CorpusDevice&) {
    for (int row = 0; row < 3; ++row) {
      double sum = 0;
      int hits = 0;
      for (int n = 0; n < 64; ++n) {
        double v = 2.0 * ((row * 64 + n) % 13);
        sum += v + n;
        hits += v > 8;
      }
      EXPECT_EQ(tensors.at("y").data.Get(row), (sum + 300.5) * 2 + 3) << row;
      EXPECT_EQ(tensors.at("seen").data.Get(row), hits + 1000 * 1 + 100000 * (row + 1) + 63) << row;
    }
  };
  return kernel;
}

constexpr std::string_view kSubgroups = R"(
tensor x[n] : read;
tensor y[row, n] : write;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane : u32, @builtin(subgroup_invocation_id) id : u32,
        @builtin(subgroup_size) size : u32) {
  let v = x.load(lane);
  let k = u32(v);
  let pair = vec2f(v, 1.0);
  y.store(subgroupAdd(v), 0u, lane);
  y.store(subgroupMax(v) + subgroupMin(v), 1u, lane);
  y.store(subgroupMul(select(1.0, 2.0, id < 3u)), 2u, lane);
  y.store(f32(subgroupAnd(k | 8u) + subgroupOr(k) + subgroupXor(k)), 3u, lane);
  y.store(subgroupExclusiveAdd(v) + subgroupInclusiveAdd(1.0), 4u, lane);
  y.store(subgroupExclusiveMul(select(1.0, 2.0, id < 2u)) + subgroupInclusiveMul(1.0), 5u, lane);
  y.store(subgroupBroadcast(v, 3u) + subgroupBroadcastFirst(v), 6u, lane);
  y.store(subgroupShuffle(v, (id + 1u) % size), 7u, lane);
  y.store(subgroupShuffleXor(v, 1u), 8u, lane);
  let up = subgroupShuffleUp(v, 1u);
  let down = subgroupShuffleDown(v, 1u);
  y.store(select(0.0, up, id > 0u) + select(0.0, down, id < size - 1u), 9u, lane);
  y.store(f32(countOneBits(subgroupBallot(id < 5u).x)), 10u, lane);
  y.store(select(0.0, 1.0, subgroupElect()) + select(0.0, 2.0, subgroupAll(v < 100.0)) + select(0.0, 4.0, subgroupAny(v > 100.0)), 11u, lane);
  y.store(subgroupAdd(pair).y + subgroupMax(vec4f(v)).w, 12u, lane);
  y.store(select(subgroupAdd(v), subgroupMax(v), id == 0u), 13u, lane);
}
)";

CorpusKernel Subgroups() {
  std::vector<float> x(64);
  for (int n = 0; n < 64; ++n) x[size_t(n)] = float((n * 7) % 10);
  CorpusKernel kernel;
  kernel.name = "subgroups";
  kernel.text = kSubgroups;
  kernel.tensors = {{"x", {F32s(x)}}, {"y", Output(Zeros(DType::kF32, {14, 64}))}};
  kernel.needs_subgroups = true;
  kernel.expect = [x](const CorpusTensors& tensors, const CorpusDevice& device) {
    const int size = int(device.subgroup_size);
    for (int lane = 0; lane < 64; ++lane) {
      int base = lane / size * size, id = lane % size;
      const float* v = &x[size_t(base)];
      double sum = 0, before = 0, most = v[0], least = v[0];
      uint32_t all = 0xffffffffu, any = 0, odd = 0;
      for (int n = 0; n < size; ++n) {
        sum += v[n];
        if (n < id) before += v[n];
        most = std::max<double>(most, v[n]), least = std::min<double>(least, v[n]);
        all &= uint32_t(v[n]) | 8u, any |= uint32_t(v[n]), odd ^= uint32_t(v[n]);
      }
      double expected[14] = {sum,
                             most + least,
                             8,
                             double(all + any + odd),
                             before + id + 1,
                             (id == 0   ? 1.0
                              : id == 1 ? 2.0
                                        : 4.0) +
                                 1,
                             double(v[3]) + v[0],
                             v[(id + 1) % size],
                             v[id ^ 1],
                             (id > 0 ? v[id - 1] : 0.0) + (id < size - 1 ? v[id + 1] : 0.0),
                             double(std::min(size, 5)),
                             (id == 0 ? 1.0 : 0.0) + 2,
                             size + most,
                             id == 0 ? most : sum};
      for (int row = 0; row < 14; ++row)
        EXPECT_EQ(tensors.at("y").data.Get(row * 64 + lane), expected[row]) << row << " lane " << lane;
    }
  };
  return kernel;
}

// ---- Storages and types ---------------------------------------------------------------------------------------------------

constexpr std::string_view kScaleSlices = R"(
tensor x[row, column, channel] : read;
tensor y[row, column, channel] : write;
@compute @workgroup_size(4, 4)
fn main(@builtin(global_invocation_id) id : vec3u) {
  if (id.x >= y.column || id.y >= y.row) { return; }
  for (var s = 0u; s < (y.channel + 3u) / 4u; s++) {
    y.store4(x.load4(id.y, id.x, s) * 2.0 + 1.0, id.y, id.x, s);
  }
}
)";

CorpusKernel Storages(Storage storage, DType dtype) {
  HostTensor x(DType::kF32, {3, 5, 6});
  for (int n = 0; n < 90; ++n) x.as_mutable<float>()[size_t(n)] = float(n) * 0.25f;
  Storage written = storage == Storage::kImageBuffer ? Storage::kBuffer : storage;
  CorpusKernel kernel;
  kernel.name = StrCat("storage_", StorageName(storage), "_", DTypeName(dtype));
  kernel.text = kScaleSlices;
  kernel.tensors = {{"x", {x, Layout::kSliced4, storage, dtype}},
                    {"y", Output(Zeros(DType::kF32, {3, 5, 6}), Layout::kSliced4, written, dtype)}};
  kernel.workgroups = {2, 1, 1};
  kernel.expect = [](const CorpusTensors& tensors, const CorpusDevice&) {
    for (int n = 0; n < 90; ++n) EXPECT_EQ(tensors.at("y").data.Get(n), n * 0.5 + 1) << n;
  };
  return kernel;
}

constexpr std::string_view kHalf = R"(
tensor x[n] : read;
tensor y[n] : write;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id : vec3u) {
  if (id.x * 4u >= y.n) { return; }
  let v = vec4h(x.load4(id.x));
  var sum = v * 0.5h + vec4h(1.0h);
  sum = select(sum, -sum, sum > vec4h(2.0h));
  sum = max(sum, vec4h(-4.0h)) + vec4h(f16(abs(v.x)));
  var counts : array<f16, 3>;
  counts[1] = sum.x;
  let i = vec4i(v);
  y.store4(vec4f(sum) + f32(counts[1]) + vec4f(i) + f32(f16(1.0) / 3.0h), id.x);
}
)";

CorpusKernel Half() {
  CorpusKernel kernel;
  kernel.name = "half";
  kernel.text = kHalf;
  kernel.tensors = {{"x", {F32s({0, 1, 2, 3, 4, 5, 6, 7})}}, {"y", Output(Zeros(DType::kF32, {8}))}};
  kernel.needs_f16 = true;
  kernel.expect = [](const CorpusTensors& tensors, const CorpusDevice&) {
    auto value = [&](int k, int n) {
      double sum = k * 0.5 + 1;
      if (sum > 2) sum = -sum;
      return std::max(sum, -4.0) + n / 4 * 4;
    };
    for (int n = 0; n < 8; ++n) {
      EXPECT_EQ(tensors.at("y").data.Get(n), value(n, n) + value(n / 4 * 4, n) + n + RoundToHalf(1.0f / 3)) << n;
    }
  };
  return kernel;
}

// Names that each language needs for itself.
constexpr std::string_view kNames = R"(
tensor global[kernel] : read;
tensor device[input] : write;
param half_pixel : f32;
param output : u32;
var<workgroup> shared_tile : array<f32, 4>;
var<workgroup> thread : array<f32, 4>;
struct image2D_like { sample : f32, local : vec2f };
fn rotate(v : f32) -> f32 { return v + 1.0; }
fn hypot(half2 : f32) -> f32 { return half2 * 2.0; }
fn barrier(float4 : vec4f) -> vec4f { return float4 + vec4f(1.0); }
@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) sample : u32) {
  let uint = sample;
  let step_ = 1.0;
  let rint = 2.0;
  var char : f32 = rotate(global.load(uint)) + hypot(1.0);
  var lw_value = 1.0;
  var a_b = 2.0;
  var gl_thing = image2D_like(3.0, vec2f(1.0, 2.0));
  thread[uint] = char;
  shared_tile[uint] = half_pixel;
  workgroupBarrier();
  let int = thread[3u - uint] + shared_tile[uint] + f32(output) + barrier(vec4f(round(char))).x;
  for (var short = 0u; short < 2u; short++) { char += step_ + rint; }
  device.store(int + char + lw_value + a_b + gl_thing.sample + gl_thing.local.y, uint);
}
)";

CorpusKernel Names() {
  CorpusKernel kernel;
  kernel.name = "names";
  kernel.text = kNames;
  kernel.tensors = {{"global", {F32s({1, 2, 3, 4})}}, {"device", Output(Zeros(DType::kF32, {4}))}};
  std::vector<uint32_t> params = {std::bit_cast<uint32_t>(0.5f), 10, 0, 0};
  auto bytes = std::as_bytes(std::span(params));
  kernel.params.assign(bytes.begin(), bytes.end());
  kernel.expect = [](const CorpusTensors& tensors, const CorpusDevice&) {
    for (int n = 0; n < 4; ++n) {
      double v = n + 1 + 1 + 2, mirror = (4 - n) + 1 + 2;
      EXPECT_EQ(tensors.at("device").data.Get(n), mirror + 0.5 + 10 + (v + 1) + (v + 6) + 1 + 2 + 3 + 2) << n;
    }
  };
  return kernel;
}

}  // namespace

std::vector<CorpusKernel> KernelCorpus() {
  std::vector<CorpusKernel> corpus;
  corpus.push_back(RowsOf(kFloatRows, "builtins_f32", "f32", DType::kF32));
  corpus.push_back(RowsOf(kIntRows, "builtins_i32", "i32", DType::kI32));
  corpus.push_back(RowsOf(kUintRows, "builtins_u32", "u32", DType::kU32));
  corpus.push_back(Statements());
  corpus.push_back(Sharing());
  corpus.push_back(Subgroups());
  corpus.push_back(Half());
  corpus.push_back(Names());
  for (Storage storage :
       {Storage::kBuffer, Storage::kTexture2D, Storage::kTexture2DArray, Storage::kTexture3D, Storage::kImageBuffer}) {
    for (DType dtype : {DType::kF32, DType::kF16}) corpus.push_back(Storages(storage, dtype));
  }
  return corpus;
}

}  // namespace leeway::shader
