#include "llm/models/models.h"

#include <algorithm>

#include "base/strings.h"
#include "llm/models/graph_builder.h"

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

bool KeepsF32(const Family& family, std::string_view value) {
  // Sums of attention before they are divided grow with the number of positions.
  if (value.ends_with(".splits")) return true;
  return family.has_large_residuals && (value == "embed" || value.ends_with("_residual"));
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

}  // namespace leeway::llm
