#include "import/tflite/metadata.h"

#include <cmath>
#include <vector>

#include "base/strings.h"
#include "import/tflite/tflite_metadata_generated.h"

namespace leeway::tflite {
namespace {

bool AllFinite(const flatbuffers::Vector<float>& values) {
  for (float value : values)
    if (!std::isfinite(value)) return false;
  return true;
}

}  // namespace

void ReadMetadata(std::span<const std::byte> bytes, std::map<std::string, std::string>& metadata) {
  if (bytes.size() < 8 || bytes.size() > (1u << 24)) return;
  std::vector<std::byte> aligned(bytes.begin(), bytes.end());  // inside the file it may lie anywhere
  auto* data = reinterpret_cast<const uint8_t*>(aligned.data());
  if (!tflite_metadata::ModelMetadataBufferHasIdentifier(data)) return;
  flatbuffers::Verifier verifier(data, bytes.size(), 16, 10000);
  if (!tflite_metadata::VerifyModelMetadataBuffer(verifier)) return;
  const auto* model = tflite_metadata::GetModelMetadata(data);
  if (model->name()) metadata["name"] = model->name()->str();
  if (model->description()) metadata["description"] = model->description()->str();
  if (!model->subgraph_metadata() || model->subgraph_metadata()->size() == 0) return;
  const auto* inputs = model->subgraph_metadata()->Get(0)->input_tensor_metadata();
  if (!inputs) return;
  for (flatbuffers::uoffset_t i = 0; i < inputs->size(); ++i) {
    const auto* units = inputs->Get(i)->process_units();
    if (!units) continue;
    for (const auto* unit : *units) {
      const auto* normalization = unit->options_as_NormalizationOptions();
      if (!normalization || !normalization->mean() || !normalization->std()) continue;
      if (!AllFinite(*normalization->mean()) || !AllFinite(*normalization->std())) continue;
      metadata[StrCat("input", i, ".mean")] = Join(*normalization->mean(), " ");
      metadata[StrCat("input", i, ".std")] = Join(*normalization->std(), " ");
    }
  }
}

}  // namespace leeway::tflite
