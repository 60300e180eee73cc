#include "shader/target.h"

namespace leeway::shader {

const char* LanguageName(Language language) {
  switch (language) {
    case Language::kWgsl: return "wgsl";
    case Language::kOpenClC: return "opencl";
    case Language::kGlslEs: return "glsl";
    case Language::kMsl: return "msl";
  }
  return "?";
}

Target TypicalTarget(Language language) {
  Target t;
  t.language = language;
  t.max_workgroup_bytes = 32768;
  t.storage = {.max_binding_bytes = int64_t(1) << 30,
               .max_texture_2d = 16384,
               .max_texture_3d = 2048,
               .max_texture_layers = 2048,
               .max_image_buffer_texels = int64_t(1) << 27};
  switch (language) {
    case Language::kWgsl:  // a desktop GPU behind Dawn
      t.f16 = true;
      t.subgroups = true;
      t.subgroup_min = t.subgroup_max = 32;
      t.packed_dot = true;
      t.max_storage_buffers = 10;
      t.max_invocations = 1024;
      t.max_workgroup_size[0] = t.max_workgroup_size[1] = 1024;
      break;
    case Language::kOpenClC:  // a mobile or desktop GPU with OpenCL 3.0
      t.f16 = true;
      t.image_buffer = true;
      t.max_storage_buffers = 64;
      t.max_sampled_textures = 128;
      t.max_storage_textures = 64;
      t.max_invocations = 1024;
      t.max_workgroup_size[0] = t.max_workgroup_size[1] = 1024;
      t.max_workgroups = 0x7fffffff;
      break;
    case Language::kGlslEs:  // OpenGL ES 3.1: no f16 in the language, written textures of f32 and f16 in the core
      t.max_storage_buffers = 8;
      t.max_workgroup_bytes = 16384;
      t.storage.max_binding_bytes = int64_t(1) << 27;
      t.storage.max_texture_layers = 256;
      break;
    case Language::kMsl:  // Apple silicon
      t.f16 = true;
      t.subgroups = true;
      t.subgroup_min = t.subgroup_max = 32;
      t.max_storage_buffers = 31;
      t.max_sampled_textures = 128;
      t.max_storage_textures = 8;
      t.max_invocations = 1024;
      t.max_workgroup_size[0] = t.max_workgroup_size[1] = 1024;
      t.max_workgroup_size[2] = 1024;
      break;
  }
  return t;
}

Target MinimalWgslTarget() {
  Target t;  // the fields' defaults are the standard's least limits
  t.language = Language::kWgsl;
  return t;
}

}  // namespace leeway::shader
