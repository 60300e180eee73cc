// Writes GGUF files: for tests, fuzzers and tools.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "import/gguf/gguf.h"

namespace leeway {

class GgufWriter {
 public:
  // T: an integer, float, double or bool.
  template <class T>
  void Number(std::string_view key, T value) {
    BeginEntry(key, uint32_t(TypeOf<T>()));
    Put(entries_, value);
  }
  template <class T>
  void Numbers(std::string_view key, const std::vector<T>& values) {
    BeginArray(key, TypeOf<T>(), values.size());
    for (const T& value : values) Put(entries_, value);
  }
  void String(std::string_view key, std::string_view value) {
    BeginEntry(key, uint32_t(GgufType::kString));
    PutString(entries_, value);
  }
  void Strings(std::string_view key, std::span<const std::string> values) {
    BeginArray(key, GgufType::kString, values.size());
    for (const std::string& value : values) PutString(entries_, value);
  }
  void Tensor(std::string_view name, const HostTensor& tensor) { tensors_.push_back({std::string(name), tensor}); }

  // The file. Alignments other than 32 need the key general.alignment as well.
  std::vector<std::byte> Finish(size_t alignment = 32, uint32_t version = 3) const {
    std::vector<std::byte> file;
    for (char c : std::string_view("GGUF")) Put(file, c);
    Put(file, version);
    Put(file, uint64_t(tensors_.size()));
    Put(file, entry_count_);
    file.insert(file.end(), entries_.begin(), entries_.end());
    uint64_t offset = 0;
    for (const auto& [name, tensor] : tensors_) {
      PutString(file, name);
      const Shape& shape = tensor.shape();
      Put(file, uint32_t(shape.rank()));
      for (int axis = shape.rank(); axis-- > 0;) Put(file, shape[axis]);
      const std::optional<uint32_t> id = GgufTensorTypeId(tensor.dtype());
      CHECK(id.has_value());
      Put(file, *id);
      Put(file, offset);
      offset += (tensor.bytes().size() + alignment - 1) / alignment * alignment;
    }
    for (const auto& [name, tensor] : tensors_) {
      file.resize((file.size() + alignment - 1) / alignment * alignment);
      file.insert(file.end(), tensor.bytes().begin(), tensor.bytes().end());
    }
    return file;
  }

 private:
  template <class T>
  static constexpr GgufType TypeOf() {
    if constexpr (std::is_same_v<T, bool>) return GgufType::kBool;
    if constexpr (std::is_same_v<T, float>) return GgufType::kF32;
    if constexpr (std::is_same_v<T, double>) return GgufType::kF64;
    static_assert(std::is_arithmetic_v<T>);
    constexpr GgufType kSigned[] = {GgufType::kI8, GgufType::kI16, GgufType::kI32, GgufType::kI64};
    constexpr GgufType kUnsigned[] = {GgufType::kU8, GgufType::kU16, GgufType::kU32, GgufType::kU64};
    const int width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[width] : kUnsigned[width];
  }
  template <class T>
  static void Put(std::vector<std::byte>& out, T value) {
    const size_t at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
  }
  static void PutString(std::vector<std::byte>& out, std::string_view text) {
    Put(out, uint64_t(text.size()));
    for (char c : text) Put(out, c);
  }
  void BeginEntry(std::string_view key, uint32_t type) {
    PutString(entries_, key);
    Put(entries_, type);
    ++entry_count_;
  }
  void BeginArray(std::string_view key, GgufType type, uint64_t count) {
    BeginEntry(key, uint32_t(GgufType::kArray));
    Put(entries_, uint32_t(type));
    Put(entries_, count);
  }

  struct Named {
    std::string name;
    HostTensor tensor;
  };
  std::vector<std::byte> entries_;
  uint64_t entry_count_ = 0;
  std::vector<Named> tensors_;
};

}  // namespace leeway
