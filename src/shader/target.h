// What a device's shader language and limits allow: the value that the compiler asks, never a device.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/address.h"

namespace leeway::shader {

enum class Language : uint8_t { kWgsl, kOpenClC, kGlslEs, kMsl };
const char* LanguageName(Language language);  // "wgsl", "opencl", "glsl", "msl"

struct Target {
  Language language = Language::kWgsl;
  // f16 as a type of the language (storage and arithmetic). Without it f16 storage is packed in 32-bit words.
  bool f16 = false;
  // Subgroup functions; size known for certain where min == max.
  bool subgroups = false;
  uint32_t subgroup_min = 0, subgroup_max = 0;
  bool subgroup_matrix = false;      // products of matrices by subgroups: f16 [16, 16] by f16 [16, 16], sums in f32
  bool packed_dot = false;           // dot4I8Packed and friends in the language
  bool immediates = false;           // WGSL var<immediate>: params without a uniform buffer
  bool image_buffer = false;         // Storage::kImageBuffer exists; elsewhere it is lowered to a plain buffer
  bool float_textures_write = true;  // rgba32float and rgba16float as written storage textures

  uint32_t max_storage_buffers = 8;  // per kernel
  uint32_t max_sampled_textures = 16, max_storage_textures = 4;
  uint32_t max_invocations = 256;  // per workgroup
  uint32_t max_workgroup_size[3] = {256, 256, 64};
  uint32_t max_workgroup_bytes = 16384;
  uint32_t max_workgroups = 65535;  // per dimension
  StorageLimits storage;

  // A software device: barriers are dear, so kernels without workgroup memory are chosen.
  bool is_software = false;
  uint32_t core_count_estimate = 0;  // 0: not known
};

// Generous but real targets for printing texts of devices that are not here, one per language; and the standard's least
// limits for WGSL.
Target TypicalTarget(Language language);
Target MinimalWgslTarget();

}  // namespace leeway::shader
