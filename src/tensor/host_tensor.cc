#include "tensor/host_tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/result.h"
#include "tensor/block_quant.h"

namespace leeway {
namespace {

// Wrappers whose bits are not a C++ number, so that one visitor serves every element type.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};
template <int kBits, bool kSigned>
struct Packed {};  // several to a byte

template <class F>
auto Visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(float{});
    case DType::kF16: return f(Half{});
    case DType::kBF16: return f(BFloat{});
    case DType::kF64: return f(double{});
    case DType::kI64: return f(int64_t{});
    case DType::kI32: return f(int32_t{});
    case DType::kI16: return f(int16_t{});
    case DType::kI8: return f(int8_t{});
    case DType::kU64: return f(uint64_t{});
    case DType::kU32: return f(uint32_t{});
    case DType::kU16: return f(uint16_t{});
    case DType::kU8: return f(uint8_t{});
    case DType::kBool: return f(Bool{});
    case DType::kI4: return f(Packed<4, true>{});
    case DType::kU4: return f(Packed<4, false>{});
    case DType::kI2: return f(Packed<2, true>{});
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL: break;  // not element by element
  }
  CHECK(false && "not a type of single elements");
}

template <class T>
T ReadRaw(const std::byte* bytes, int64_t i) {
  T value;  // a mapped file need not be aligned
  std::memcpy(&value, bytes + size_t(i) * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void WriteRaw(std::byte* bytes, int64_t i, T value) {
  std::memcpy(bytes + size_t(i) * sizeof(T), &value, sizeof(T));
}

// Every element is read as a double, or as an int64 where it is an integer (exact beyond 2^53).
template <class T>
struct Element {
  static constexpr bool kInteger = std::is_integral_v<T>;
  static T Read(const std::byte* bytes, int64_t i) { return ReadRaw<T>(bytes, i); }
  static void Write(std::byte* bytes, int64_t i, T value) { WriteRaw(bytes, i, value); }
  static T FromDouble(double value) {
    if constexpr (kInteger) {
      if (std::isnan(value)) return 0;
      double rounded = std::nearbyint(value);
      // 2^63 and 2^64 are doubles, the largest integers below them are not.
      if (rounded >= -2.0 * double(std::numeric_limits<T>::min() / 2) && std::is_signed_v<T>)
        return std::numeric_limits<T>::max();
      if (!std::is_signed_v<T> && rounded >= std::ldexp(1.0, std::numeric_limits<T>::digits))
        return std::numeric_limits<T>::max();
      if (rounded <= double(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
      return T(rounded);
    } else {
      return T(value);
    }
  }
  static T FromInt(int64_t value) {
    if constexpr (kInteger) {
      if constexpr (!std::is_signed_v<T>) {
        if (value < 0) return 0;
        if (uint64_t(value) > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
      } else {
        if (value < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
        if (value > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
      }
    }
    return T(value);
  }
};
template <>
struct Element<Half> {
  static constexpr bool kInteger = false;
  static float Read(const std::byte* bytes, int64_t i) { return F16ToF32(ReadRaw<uint16_t>(bytes, i)); }
  static void Write(std::byte* bytes, int64_t i, float value) { WriteRaw(bytes, i, F32ToF16(value)); }
  static float FromDouble(double value) { return float(value); }
  static float FromInt(int64_t value) { return float(value); }
};
template <>
struct Element<BFloat> {
  static constexpr bool kInteger = false;
  static float Read(const std::byte* bytes, int64_t i) { return BF16ToF32(ReadRaw<uint16_t>(bytes, i)); }
  static void Write(std::byte* bytes, int64_t i, float value) { WriteRaw(bytes, i, F32ToBF16(value)); }
  static float FromDouble(double value) { return float(value); }
  static float FromInt(int64_t value) { return float(value); }
};
template <>
struct Element<Bool> {
  static constexpr bool kInteger = true;
  static uint8_t Read(const std::byte* bytes, int64_t i) { return ReadRaw<uint8_t>(bytes, i) != 0; }
  static void Write(std::byte* bytes, int64_t i, uint8_t value) { WriteRaw(bytes, i, value); }
  static uint8_t FromDouble(double value) { return value != 0; }
  static uint8_t FromInt(int64_t value) { return value != 0; }
};
template <int kBits, bool kSigned>
struct Element<Packed<kBits, kSigned>> {
  static constexpr bool kInteger = true;
  static constexpr int kPerByte = 8 / kBits, kMask = (1 << kBits) - 1;
  static constexpr int kLow = kSigned ? -(1 << (kBits - 1)) : 0, kHigh = kLow + kMask;
  static int8_t Read(const std::byte* bytes, int64_t i) {
    int value = (int(bytes[i / kPerByte]) >> (i % kPerByte * kBits)) & kMask;
    return int8_t(value > kHigh ? value - kMask - 1 : value);
  }
  static void Write(std::byte* bytes, int64_t i, int value) {
    int shift = int(i % kPerByte) * kBits;
    int byte = (int(bytes[i / kPerByte]) & ~(kMask << shift)) | ((value & kMask) << shift);
    bytes[i / kPerByte] = std::byte(byte);
  }
  static int FromDouble(double value) {
    if (std::isnan(value)) return 0;
    return int(std::fmin(std::fmax(std::nearbyint(value), kLow), kHigh));
  }
  static int FromInt(int64_t value) { return int(value < kLow ? kLow : value > kHigh ? kHigh : value); }
};

template <class From, class To>
void ConvertAll(const std::byte* from, std::byte* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    auto value = Element<From>::Read(from, i);
    if constexpr (Element<From>::kInteger && !std::is_same_v<From, uint64_t>) {
      Element<To>::Write(to, i, Element<To>::FromInt(int64_t(value)));
    } else if constexpr (std::is_same_v<From, uint64_t> && Element<To>::kInteger) {
      constexpr uint64_t kMax = uint64_t(std::numeric_limits<int64_t>::max());
      Element<To>::Write(to, i, Element<To>::FromInt(int64_t(value > kMax ? kMax : value)));
    } else {
      Element<To>::Write(to, i, Element<To>::FromDouble(double(value)));
    }
  }
}

}  // namespace

HostTensor::HostTensor(DType dtype, Shape shape) : dtype_(dtype), shape_(shape) {
  owned_ = std::make_shared<std::vector<std::byte>>(DTypeBytes(dtype, size_t(shape.element_count())));
  bytes_ = *owned_;
}

HostTensor::HostTensor(DType dtype, Shape shape, std::span<const std::byte> bytes, std::shared_ptr<const void> keep_alive)
    : dtype_(dtype), shape_(shape), bytes_(bytes), keep_alive_(std::move(keep_alive)) {
  CHECK(bytes.size() == DTypeBytes(dtype, size_t(shape.element_count())));
}

HostTensor HostTensor::FromF32(Shape shape, std::span<const float> values) {
  CHECK(int64_t(values.size()) == shape.element_count());
  HostTensor tensor(DType::kF32, shape);
  if (!values.empty()) std::memcpy(tensor.owned_->data(), values.data(), values.size_bytes());
  return tensor;
}

HostTensor HostTensor::FromI32(Shape shape, std::span<const int32_t> values) {
  CHECK(int64_t(values.size()) == shape.element_count());
  HostTensor tensor(DType::kI32, shape);
  if (!values.empty()) std::memcpy(tensor.owned_->data(), values.data(), values.size_bytes());
  return tensor;
}

std::span<std::byte> HostTensor::mutable_bytes() {
  // Copies of a HostTensor share their bytes until one of them is written.
  if (!owned_ || owned_.use_count() > 1) {
    owned_ = std::make_shared<std::vector<std::byte>>(bytes_.begin(), bytes_.end());
    bytes_ = *owned_;
    keep_alive_.reset();
  }
  return *owned_;
}

double HostTensor::Get(int64_t i) const {
  if (IsBlockQuantized(dtype_)) return DequantizeElement(dtype_, bytes_, i);
  return Visit(dtype_, [&](auto tag) { return double(Element<decltype(tag)>::Read(bytes_.data(), i)); });
}

void HostTensor::Set(int64_t i, double value) {
  std::byte* bytes = mutable_bytes().data();
  Visit(dtype_, [&](auto tag) {
    using E = Element<decltype(tag)>;
    E::Write(bytes, i, E::FromDouble(value));
  });
}

std::vector<float> HostTensor::ToF32() const {
  std::vector<float> values(static_cast<size_t>(element_count()));
  if (IsBlockQuantized(dtype_)) {
    DequantizeBlocks(dtype_, bytes_, values);
    return values;
  }
  auto* out = reinterpret_cast<std::byte*>(values.data());
  Visit(dtype_, [&](auto tag) { ConvertAll<decltype(tag), float>(bytes_.data(), out, element_count()); });
  return values;
}

HostTensor HostTensor::ConvertTo(DType dtype) const {
  if (dtype == dtype_) return *this;
  if (IsBlockQuantized(dtype_)) return FromF32(shape_, ToF32()).ConvertTo(dtype);
  HostTensor out(dtype, shape_);
  if (IsBlockQuantized(dtype)) {
    // Blocks lie within a row, so a row has to be whole blocks.
    CHECK(shape_.rank() > 0 && shape_.at(-1) % int64_t(BlockElements(dtype)) == 0);
    QuantizeBlocks(dtype, ToF32(), *out.owned_);
    return out;
  }
  // In two steps through the widest type of the kind, so that not every pair of types becomes code. Rounding happens once:
  // each type fits into its wide type exactly.
  if (dtype == DType::kF32) {
    Visit(dtype_, [&](auto tag) { ConvertAll<decltype(tag), float>(bytes_.data(), out.owned_->data(), element_count()); });
  } else if (dtype_ == DType::kF32) {
    Visit(dtype, [&](auto tag) { ConvertAll<float, decltype(tag)>(bytes_.data(), out.owned_->data(), element_count()); });
  } else if (IsFloat(dtype_) || dtype_ == DType::kU64) {
    std::vector<double> wide(static_cast<size_t>(element_count()));
    auto* middle = reinterpret_cast<std::byte*>(wide.data());
    Visit(dtype_, [&](auto tag) { ConvertAll<decltype(tag), double>(bytes_.data(), middle, element_count()); });
    Visit(dtype, [&](auto tag) { ConvertAll<double, decltype(tag)>(middle, out.owned_->data(), element_count()); });
  } else {
    std::vector<int64_t> wide(static_cast<size_t>(element_count()));
    auto* middle = reinterpret_cast<std::byte*>(wide.data());
    Visit(dtype_, [&](auto tag) { ConvertAll<decltype(tag), int64_t>(bytes_.data(), middle, element_count()); });
    Visit(dtype, [&](auto tag) { ConvertAll<int64_t, decltype(tag)>(middle, out.owned_->data(), element_count()); });
  }
  return out;
}

HostTensor HostTensor::Reshaped(Shape shape) const {
  CHECK(shape.element_count() == element_count());
  HostTensor out = *this;
  out.shape_ = shape;
  return out;
}

}  // namespace leeway
