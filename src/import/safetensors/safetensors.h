// .safetensors files: named tensors as views of the mapped file. Everything is checked when the file is opened.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "tensor/host_tensor.h"

namespace leeway {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;  // may begin anywhere
  uint64_t offset = 0;               // from the start of the file
};

class SafetensorsFile {
 public:
  // Refuses, naming the file and the object, what breaks the format's rules: a header that is no JSON object of the expected
  // form, duplicate names, shapes and byte ranges that do not agree, and ranges that do not cover the data exactly, without
  // holes or overlaps. Element types without a DType (eight-bit floats) are refused by name.
  static Result<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);
  static Result<std::shared_ptr<const SafetensorsFile>> Read(std::shared_ptr<const MappedFile> file);

  const std::string& path() const { return file_->path(); }
  uint64_t file_bytes() const { return file_->bytes().size(); }
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }  // in the order of the data
  const SafetensorsTensor* FindTensor(std::string_view name) const;        // null where there is none
  // Keeps the mapping alive. A copy where the elements do not lie aligned in the file, which writers avoid.
  HostTensor View(const SafetensorsTensor& tensor) const;
  // "__metadata__" of the header, in the order of the file.
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }

 private:
  friend class SafetensorsReader;
  SafetensorsFile() = default;
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::unordered_map<std::string_view, size_t> index_;
};

// All .safetensors files of a folder: model.safetensors, or the shards that model.safetensors.index.json names.
class SafetensorsFolder {
 public:
  // Also refuses an index whose shards lie outside the folder or are missing, and one that lists tensors which are not where it
  // says, or leaves some out.
  static Result<std::shared_ptr<const SafetensorsFolder>> Open(const std::string& folder);

  std::span<const std::shared_ptr<const SafetensorsFile>> files() const { return files_; }

 private:
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
};

}  // namespace leeway
