// Block-quantized constants on their way to a device: raw blocks go up in slices, and kernels there write quants and factors,
// so that the host never holds more than a few slices besides the mapped file. On devices that are the CPU the host packs.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/thread_pool.h"
#include "device/device.h"
#include "ops/op_kernels.h"
#include "tensor/host_tensor.h"
#include "tensor/virtual_tensor.h"

namespace leeway {

// Where the pieces of one constant go: ranges that begin at whole words (where bindings may begin, for kernels to write them)
// and are as long as QuantsOf and FactorsOf of
// its placement say. No buffer where nothing reads the piece.
struct QuantizedUpload {
  const HostTensor* constant = nullptr;
  BlockFormat format;
  std::string name;  // for messages
  Buffer* quants = nullptr;
  uint64_t quants_offset_bytes = 0;
  Buffer* factors = nullptr;
  uint64_t factors_offset_bytes = 0;
};

struct QuantizedUploadOptions {
  std::optional<bool> on_device;  // unset: not on software devices
  uint64_t slice_bytes = uint64_t(16) << 20;
  // Told the bytes on the device that a slice makes; an error ends the upload. May be null.
  std::function<Status(uint64_t bytes)> progress;
};

// Returns when everything is submitted.
Status UploadQuantized(Device& device, ThreadPool& pool, std::span<const QuantizedUpload> uploads,
                       const QuantizedUploadOptions& options = {});

// The kernel that repacks one slice, as tests run it: tensors raw, quants and factors, all of them words. raw begins with a
// header of four words, the number of blocks and zeros; a piece that is no whole number of words is filled up with zeros.
inline constexpr size_t kRepackHeaderBytes = 16;
struct RepackKernel {
  const char* name = "";
  std::string_view text;
  shader::Specialization specialization;
  uint32_t workgroups = 0;  // of 64 invocations, for the most blocks
};
RepackKernel RepackKernelFor(DType dtype, const BlockFormat& format, size_t most_blocks);

}  // namespace leeway
