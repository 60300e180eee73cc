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
  if (format) return QuantsOf(*this).part_count();
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
  if (format) return QuantsOf(*this).storage_bytes() + FactorsOf(*this).storage_bytes();
  int64_t bytes = int64_t(DTypeBytes(dtype, size_t(storage_elements())));
  return bytes == 0 ? 16 : (bytes + 15) / 16 * 16;
}

Placement QuantsOf(const Placement& placement) {
  CHECK(placement.format && placement.shape.rank() == 2);
  Placement quants;
  quants.dtype = DType::kU32;
  quants.shape = {placement.shape[0], placement.shape[1] * placement.format->bits / 32};
  quants.elements_per_part = placement.elements_per_part;
  return quants;
}

Placement FactorsOf(const Placement& placement) {
  CHECK(placement.format && placement.shape.rank() == 2);
  const BlockFormat& format = *placement.format;
  Placement factors;
  factors.layout = Layout::kLinear;
  factors.dtype = format.factor;
  factors.shape = {placement.shape[0], placement.shape[1] / format.group * (format.has_minimum ? 2 : 1)};
  factors.elements_per_part = placement.factors_per_part;
  return factors;
}

std::string QuantsName(const std::string& tensor) { return tensor + "_quants"; }
std::string FactorsName(const std::string& tensor) { return tensor + "_factors"; }

}  // namespace leeway
