// Metal kernels on a CPU: clang compiles the text (as "C++ for OpenCL", with our own metal_stdlib in msl/) into a shared
// object, whose invocations run as fibers. For tests on machines without Metal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace leeway::msl {

// What a kernel gets: addresses by number. The layout is known to the generated caller too (kCaller in msl_cpu.cc).
struct Bindings {
  uint64_t buffer[31] = {};
  uint64_t texture[128] = {};  // of a Texture
  uint64_t threadgroup[31] = {};
};
// Four channels a texel, x fastest; depth counts the slices of a 3D texture or the layers of an array.
struct Texture {
  void* texels = nullptr;
  uint32_t width = 1, height = 1, depth = 1, half_texels = 0;
};

// The values that a kernel may ask for by an attribute.
struct Ids {
  uint32_t thread_position_in_grid[3], threadgroup_position_in_grid[3], thread_position_in_threadgroup[3],
      threads_per_threadgroup[3], threadgroups_per_grid[3], threads_per_grid[3], thread_index_in_threadgroup[3],
      simdgroup_index_in_threadgroup[3], thread_index_in_simdgroup[3], simdgroups_per_threadgroup[3], threads_per_simdgroup[3];
};

struct Argument {
  std::string name, type, attribute;
  int index = -1;  // of buffer, texture, threadgroup
};

struct Kernel {
  std::string name;
  std::vector<Argument> arguments;
  bool fibers = false;  // has barriers or simdgroup functions
  void (*call)(const Bindings*, const Ids*) = nullptr;
  char* threadgroup_memory = nullptr;  // all threadgroup variables of the library
  size_t threadgroup_bytes = 0;
};

struct Library {
  std::map<std::string, Kernel> kernels;
};

// Why kernels cannot be compiled here: kNotFound where there is no clang. MSL_CLANG names another one than clang-15.
Status CanCompile();
// An error holds the compiler's messages, with lines of the text. `headers` is the folder msl/. Objects are kept in `cache`
// under a hash of all that goes into them. The library stays loaded until the process ends.
Result<std::unique_ptr<Library>> Compile(const std::string& text, const std::string& headers, const std::string& cache);
// Several texts in one run of the compiler, which is most of the time of a small one. The kernels need different names.
Result<std::unique_ptr<Library>> Compile(std::span<const std::string> texts, const std::string& headers,
                                         const std::string& cache);

enum class Order { kForward, kReverse, kShuffled };
// Runs all threadgroups. Lanes run to their next barrier; threadgroup memory begins as NaN. An error when invocations wait at
// different barriers or memory outside of every buffer is touched (put a page that cannot be read behind them).
Status Run(const Kernel& kernel, const Bindings& bindings, std::array<uint32_t, 3> threadgroups, std::array<uint32_t, 3> group,
           Order order);

// A copy of bytes that ends (to 16) where a page begins that cannot be touched.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::span<const std::byte> bytes);
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes();
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  size_t size_, pages_;
  char* base_;
  std::byte* data_;
};

}  // namespace leeway::msl
