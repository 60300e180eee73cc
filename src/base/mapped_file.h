// The bytes of a file, mapped read-only: pages come in as they are touched, weights are never copied to be looked at.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace leeway {

class MappedFile {
 public:
  // A directory, a missing or an unreadable file is an error that names it. An empty file is empty bytes. The file must not be
  // shortened while it is mapped.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  // The same over bytes in memory, which it takes over; `name` stands in messages where a path would.
  static std::shared_ptr<const MappedFile> FromBytes(std::vector<std::byte> bytes, std::string name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // The start is aligned to at least 16 bytes.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  std::span<const std::byte> bytes_;
  std::vector<std::byte> owned_;
  void* mapping_ = nullptr;
};

// A whole file, written under a temporary name beside it and renamed: readers see the old bytes or the new ones.
Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace leeway
