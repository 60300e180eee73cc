// Which layout, storage and element type a tensor gets on a device.
#pragma once

#include <optional>
#include <string_view>

#include "graph/op_def.h"
#include "leeway/leeway.h"
#include "shader/target.h"
#include "tensor/virtual_tensor.h"

namespace leeway {

struct StorageChoice {
  Layout layout = Layout::kPadded4;
  Storage storage = Storage::kBuffer;
  bool operator==(const StorageChoice&) const = default;
};
// What every kernel takes: the fallback.
inline constexpr StorageChoice kPlainStorage{Layout::kPadded4, Storage::kBuffer};

// "linear", "padded4", "sliced4", "image-buffer", "texture-2d", "texture-2d-array", "texture-3d".
Result<StorageChoice> ParseStorage(std::string_view text);
const char* StorageChoiceName(StorageChoice choice);

// What is known to be good for a class of devices.
struct ClassDefaults {
  const char* device_class;
  StorageChoice activations, weights;
  // A submission is cut where it would hold more work than this, so that watchdogs stay quiet and Cancel takes effect.
  double max_flops_per_submission;
};
const ClassDefaults& DefaultsForClass(std::string_view device_class, bool is_software);

enum class TensorRole : uint8_t {
  kActivation,  // between nodes, and scratch
  kWeights,     // read only, made at load
  kInput,       // written by the host, row-major where possible
  kOutput,      // read by the host
  kState,       // lives on between runs
  kCache,       // the same, and floats may be narrow
};

struct SelectOptions {
  Precision precision = Precision::kF32;
  std::optional<StorageChoice> forced;
  bool f32_caches = false;  // states that may be f16 are f32 all the same
};

// The element type in storage. `source` is the type of the elements that weights are made from.
DType StoredDType(DType dtype, TensorRole role, DType source, Precision precision, const shader::Target& target);

// The placement wished for; the plain storage where the device's limits do not allow it. An error: not even that fits.
Result<Placement> ChoosePlacement(const TensorType& type, TensorRole role, DType source, const SelectOptions& options,
                                  const ClassDefaults& defaults, const shader::Target& target);
bool IsPlain(const Placement& placement);

// Block-quantized constants keep their codes where their shape allows it (PlaceQuantized); null: they are widened.
std::optional<Placement> ChooseQuantizedPlacement(const TensorType& type, DType source, const shader::Target& target);

}  // namespace leeway
