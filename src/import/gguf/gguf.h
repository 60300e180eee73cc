// GGUF files, versions 2 and 3: metadata and tensors as views of the mapped file. Nothing of the file is copied but the
// positions of strings; everything is checked when the file is opened, so that what stands here holds for any bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "tensor/host_tensor.h"

namespace leeway {

// The numbers are those of the format.
enum class GgufType : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
const char* GgufTypeName(GgufType type);  // "u8", "string"
// The number of an element type of tensors, if the format has it.
std::optional<uint32_t> GgufTensorTypeId(DType dtype);

// One value of the metadata: a number, a bool, a string, or an array of one of these.
class GgufValue {
 public:
  GgufType type() const { return type_; }  // of the elements, for an array
  bool is_array() const { return is_array_; }
  uint64_t count() const { return count_; }  // 1 where it is no array

  // Element i < count(), if its type is of that kind and its value fits: any integer type, any number type, bool, string.
  std::optional<int64_t> Int(uint64_t i = 0) const;
  std::optional<double> Number(uint64_t i = 0) const;
  std::optional<bool> Bool(uint64_t i = 0) const;
  std::optional<std::string_view> String(uint64_t i = 0) const;
  // All strings of an array or a value of strings, else empty: a vocabulary without a copy.
  std::span<const std::string_view> strings() const { return strings_; }
  // The packed elements of an array of numbers or bools; unaligned.
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string TypeText() const;  // "u32", "array of 49152 string"

 private:
  friend class GgufReader;
  GgufType type_ = GgufType::kU8;
  bool is_array_ = false;
  uint64_t count_ = 1;
  std::span<const std::byte> bytes_;
  std::vector<std::string_view> strings_;
};

struct GgufTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;  // outermost axis first: the dims of the file reversed
  std::span<const std::byte> bytes;
  uint64_t offset = 0;  // from the start of the file
};

class GgufFile {
 public:
  // Refuses, naming the file and the object: what breaks the format's rules (counts and lengths beyond the file, duplicate
  // names, tensors outside the file or over each other, rows that are no whole blocks...) as kInvalidModel; version 1, files
  // of the other byte order and element types that are not read as kUnsupported. Gaps between tensors are taken.
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  static Result<std::shared_ptr<const GgufFile>> Read(std::shared_ptr<const MappedFile> file);
  static bool LooksLikeIt(std::span<const std::byte> start_of_file);  // four bytes say so

  const std::string& path() const { return file_->path(); }
  uint64_t file_bytes() const { return file_->bytes().size(); }
  uint32_t version() const { return version_; }

  struct Entry {
    std::string_view key;
    GgufValue value;
  };
  std::span<const Entry> entries() const { return entries_; }  // in the order of the file
  const GgufValue* Find(std::string_view key) const;           // null where there is none
  // The value of a key that must be there, as one number, bool or string; errors name the key, the file and what was found.
  Result<int64_t> Int(std::string_view key) const;
  Result<double> Number(std::string_view key) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string_view> String(std::string_view key) const;
  // The same for arrays.
  Result<std::span<const std::string_view>> Strings(std::string_view key) const;
  Result<std::vector<int64_t>> Ints(std::string_view key) const;
  Result<std::vector<float>> Floats(std::string_view key) const;

  std::span<const GgufTensor> tensors() const { return tensors_; }  // in the order of the file
  const GgufTensor* FindTensor(std::string_view name) const;
  HostTensor View(const GgufTensor& tensor) const;  // keeps the mapping alive

 private:
  friend class GgufReader;
  GgufFile() = default;
  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  std::vector<Entry> entries_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> entry_index_, tensor_index_;
};

}  // namespace leeway
