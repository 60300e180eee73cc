#include "runtime/select.h"

#include <cstring>

#include "base/strings.h"
#include "tensor/address.h"
#include "tensor/block_pack.h"

namespace leeway {
namespace {

struct NamedStorage {
  const char* name;
  StorageChoice choice;
};
constexpr NamedStorage kNamed[] = {
    {"padded4", {Layout::kPadded4, Storage::kBuffer}},       {"linear", {Layout::kLinear, Storage::kBuffer}},
    {"sliced4", {Layout::kSliced4, Storage::kBuffer}},       {"image-buffer", {Layout::kPadded4, Storage::kImageBuffer}},
    {"texture-2d", {Layout::kSliced4, Storage::kTexture2D}}, {"texture-2d-array", {Layout::kSliced4, Storage::kTexture2DArray}},
    {"texture-3d", {Layout::kSliced4, Storage::kTexture3D}},
};

constexpr ClassDefaults kClasses[] = {
    // A second or so on two cores.
    {"software", kPlainStorage, kPlainStorage, 20e9},
    // A tenth of a second on a phone.
    {"", kPlainStorage, kPlainStorage, 50e9},
};

}  // namespace

Result<StorageChoice> ParseStorage(std::string_view text) {
  std::string names;
  for (const auto& named : kNamed) {
    if (text == named.name) return named.choice;
    names += StrCat(names.empty() ? "" : ", ", named.name);
  }
  return Error{Code::kInvalidArgument, StrCat("There is no storage \"", text, "\"; there are ", names, ".")};
}

const char* StorageChoiceName(StorageChoice choice) {
  for (const auto& named : kNamed) {
    if (choice == named.choice) return named.name;
  }
  return "other";
}

const ClassDefaults& DefaultsForClass(std::string_view device_class, bool is_software) {
  for (const auto& row : kClasses) {
    if (device_class == row.device_class) return row;
  }
  return is_software ? kClasses[0] : kClasses[std::size(kClasses) - 1];
}

DType StoredDType(DType dtype, TensorRole role, DType source, Precision precision, const shader::Target& target) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF64:
    case DType::kF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL:
      switch (role) {
        case TensorRole::kActivation:
          return target.f16 && (precision == Precision::kF16 || dtype == DType::kF16) ? DType::kF16 : DType::kF32;
        case TensorRole::kWeights:
          if (target.f16 && precision == Precision::kF16) return DType::kF16;
          // A CPU that plays GPU takes several instructions to widen a half, and has the memory.
          if (target.is_software) return DType::kF32;
          return dtype == DType::kF16 || source == DType::kF16 ? DType::kF16 : DType::kF32;
        case TensorRole::kCache:
          // As with weights.
          return target.f16 && (precision == Precision::kF16 || !target.is_software) ? DType::kF16 : DType::kF32;
        case TensorRole::kState:
        case TensorRole::kInput:
        case TensorRole::kOutput: return dtype == DType::kF16 && target.f16 ? DType::kF16 : DType::kF32;
      }
      return DType::kF32;
    case DType::kI8:
    case DType::kI4:
    case DType::kI2: return role == TensorRole::kWeights ? DType::kI8 : DType::kI32;
    case DType::kU8:
    case DType::kU4: return role == TensorRole::kWeights ? DType::kU8 : DType::kU32;
    case DType::kI16:
    case DType::kI32:
    case DType::kI64: return DType::kI32;
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
    case DType::kBool: return DType::kU32;
  }
  return DType::kF32;
}

std::optional<Placement> ChooseQuantizedPlacement(const TensorType& type, DType source, const shader::Target& target) {
  if (!IsBlockQuantized(source)) return std::nullopt;
  // A CPU that plays GPU takes several instructions to widen a half.
  auto placement = PlaceQuantized(type.shape, BlockFormatOf(source, !target.is_software), target.storage);
  if (!placement.ok()) return std::nullopt;
  return *placement;
}

bool IsPlain(const Placement& placement) {
  return placement.storage == Storage::kBuffer && (placement.layout == Layout::kPadded4 || placement.layout == Layout::kLinear);
}

Result<Placement> ChoosePlacement(const TensorType& type, TensorRole role, DType source, const SelectOptions& options,
                                  const ClassDefaults& defaults, const shader::Target& target) {
  StorageChoice choice = role == TensorRole::kWeights ? defaults.weights : defaults.activations;
  // Row-major in and out, so that the host only copies; the first and last kernels read and write that as well.
  if (role == TensorRole::kInput || role == TensorRole::kOutput) choice = {Layout::kLinear, Storage::kBuffer};
  // Every plan that shares a state has to find it in the same place, whatever else is chosen for it.
  const bool is_state = role == TensorRole::kState || role == TensorRole::kCache;
  if (is_state) choice = kPlainStorage;
  if (options.forced && !is_state) {
    const bool is_buffer = options.forced->storage == Storage::kBuffer;
    if (is_buffer || role == TensorRole::kActivation || role == TensorRole::kWeights) choice = *options.forced;
  }
  const TensorRole stored_role = role == TensorRole::kCache && options.f32_caches ? TensorRole::kState : role;
  const DType stored = StoredDType(type.dtype, stored_role, source, options.precision, target);
  // Packed bytes are words of a buffer.
  if (stored == DType::kI8 || stored == DType::kU8) choice.storage = Storage::kBuffer;
  auto placement = PlaceTensor(type.shape, stored, choice.layout, choice.storage, target.storage);
  if (!placement.ok() && !(choice == kPlainStorage)) {
    placement = PlaceTensor(type.shape, stored, kPlainStorage.layout, kPlainStorage.storage, target.storage);
  }
  return placement;
}

}  // namespace leeway
