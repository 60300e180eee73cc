#include "llm/models/models.h"

#include <algorithm>

#include "base/strings.h"
#include "llm/models/graph_builder.h"
#include "ops/sample.h"
#include "ops/step.h"
#include "tensor/block_pack.h"

namespace leeway::llm {

extern const Family family_gemma3, family_llama, family_qwen3;

namespace {
const Family* const kFamilies[] = {&family_gemma3, &family_llama, &family_qwen3};
}

std::span<const Family* const> AllFamilies() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture) return family;
  }
  return nullptr;
}

int64_t CacheSlots(const LayerConfig& layer, const StageShape& shape) {
  if (layer.window == 0) return shape.context;
  return std::min(shape.context, layer.window + std::max(shape.max_rows, shape.rows) - 1);
}

Result<Graph> BuildGraph(const LlmModel& model, const StageShape& shape) {
  const Family* family = FindFamily(model.config.architecture);
  if (family == nullptr)
    return Error{Code::kUnsupported, StrCat("There is no builder for architecture \"", model.config.architecture, "\".")};
  if (shape.rows < 1 || shape.context < 1 || shape.rows > shape.context || shape.max_rows > shape.context) {
    return Error{Code::kInvalidArgument, StrCat("A stage of ", shape.rows, " rows (of stages of up to ", shape.max_rows,
                                                ") does not fit a context of ", shape.context, ".")};
  }
  if (shape.rows > std::max<int64_t>(shape.max_rows, 1)) {
    return Error{Code::kInvalidArgument,
                 StrCat("A stage of ", shape.rows, " rows has more than the ", shape.max_rows, " that states are made for.")};
  }
  GraphBuilder builder(model, shape);
  family->build(builder);
  return builder.Finish();
}

MemoryEstimate EstimateModelMemory(const LlmModel& model, const StageShape& shape, const DeviceFormats& formats) {
  MemoryEstimate estimate;
  for (const auto& [name, tensor] : model.tensors) {
    const size_t elements = size_t(tensor->element_count());
    size_t bytes = elements * (formats.f16_weights && tensor->shape().rank() > 1 ? 2 : 4);
    if (IsBlockQuantized(tensor->dtype())) {
      const BlockFormat format = BlockFormatOf(tensor->dtype(), formats.f16_factors);
      bytes = QuantsBytes(format, elements) + FactorsBytes(format, elements);
    }
    (name == "token_embd.weight" ? estimate.embeddings : estimate.weights) += int64_t(bytes);
  }
  for (size_t l = 0; l < model.config.layers.size(); ++l) {
    const LayerConfig& layer = model.config.layers[l];
    if (layer.kv_layer != int(l)) continue;
    estimate.kv_cache += 2 * layer.kv_heads * layer.head_size * CacheSlots(layer, shape) * (formats.f16_caches ? 2 : 4);
  }
  estimate.states = 4 * (shape.context + 1 + kStepElements + kSamplerElements);
  return estimate;
}

}  // namespace leeway::llm
