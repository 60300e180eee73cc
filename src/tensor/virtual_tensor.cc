#include "tensor/virtual_tensor.h"

#include "base/result.h"

namespace leeway {

const char* LayoutName(Layout layout) {
  switch (layout) {
    case Layout::kLinear: return "linear";
    case Layout::kPadded4: return "padded4";
    case Layout::kSliced4: return "sliced4";
  }
  return "?";
}

const char* StorageName(Storage storage) {
  switch (storage) {
    case Storage::kBuffer: return "buffer";
    case Storage::kImageBuffer: return "image_buffer";
    case Storage::kTexture2D: return "texture_2d";
    case Storage::kTexture2DArray: return "texture_2d_array";
    case Storage::kTexture3D: return "texture_3d";
  }
  return "?";
}

bool IsTexture(Storage storage) {
  return storage == Storage::kTexture2D || storage == Storage::kTexture2DArray || storage == Storage::kTexture3D;
}

int Placement::part_count() const {
  if (elements_per_part == 0) return 1;
  int64_t parts = (storage_elements() + elements_per_part - 1) / elements_per_part;
  return int(parts < 1 ? 1 : parts);
}

int64_t Placement::storage_elements() const {
  if (IsTexture(storage)) return 4 * int64_t(texture_extent[0]) * texture_extent[1] * texture_extent[2];
  if (layout == Layout::kLinear) return shape.element_count();
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  int64_t last = shape.rank() == 0 ? 1 : shape.at(-1);
  return rows * ((last + 3) / 4 * 4);
}

int64_t Placement::storage_bytes() const {
  int64_t bytes = int64_t(DTypeBytes(dtype, size_t(storage_elements())));
  return bytes == 0 ? 16 : (bytes + 15) / 16 * 16;
}

}  // namespace leeway
