// NumPy's array files: .npy (one array) and .npz (a zip archive of them, stored or deflated).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace leeway {

// One array. Elements are little-endian and row-major ("C order") in memory; the reader turns other orders into that.
struct NpyArray {
  std::string descr;  // NumPy's type text: "<f4", "|u1", "|b1"
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t element_count() const;
};

// Bytes of one element of a type text, or 0 for texts that we do not read (objects, records, texts).
size_t NpyItemSize(const std::string& descr);

// Versions 1, 2 and 3. `name` stands in messages. An archive's arrays carry their names without ".npy", in the order of the
// archive's directory.
Result<NpyArray> ReadNpy(std::span<const std::byte> bytes, const std::string& name);
Result<std::vector<std::pair<std::string, NpyArray>>> ReadNpz(std::span<const std::byte> bytes, const std::string& name);
// Either, by the first bytes; a single array has the name "".
Result<std::vector<std::pair<std::string, NpyArray>>> ReadArrayFile(const std::string& path);

std::vector<std::byte> WriteNpy(const NpyArray& array);
// `compress`: deflate, otherwise stored. Archives of 4 GiB and more are refused.
Result<std::vector<std::byte>> WriteNpz(const std::vector<std::pair<std::string, NpyArray>>& arrays, bool compress = true);

}  // namespace leeway
