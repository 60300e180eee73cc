#include "llm/quantize_model.h"

#include <map>

#include "base/strings.h"
#include "import/quantize_weights.h"

namespace leeway::llm {

Status QuantizeModel(LlmModel& model, int bits, ThreadPool& threads, const std::function<Status(int, int)>& progress) {
  if (bits != 4 && bits != 8) {
    return Error{Code::kInvalidArgument, StrCat("Weights are asked for in (", bits, ") bits; it takes 4 or 8.")};
  }
  // A tensor may have two names.
  std::map<const HostTensor*, std::shared_ptr<const HostTensor>> made;
  int done = 0;
  for (auto& [name, tensor] : model.tensors) {
    RETURN_IF_ERROR(progress(done++, int(model.tensors.size())));
    if (tensor->shape().rank() != 2 || !IsFloat(tensor->dtype()) || IsBlockQuantized(tensor->dtype())) continue;
    const bool is_table = name == "token_embd.weight" || name == "output.weight";
    const DType dtype = bits == 4 && !is_table ? DType::kQ4_0 : DType::kQ8_0;
    if (tensor->shape()[1] % int64_t(BlockElements(dtype)) != 0) continue;
    auto& quantized = made[tensor.get()];
    if (!quantized) {
      ASSIGN_OR_RETURN_CONTEXT(HostTensor result, QuantizeWeights(*tensor, dtype, threads),
                               StrCat("while quantizing the tensor \"", name, "\""));
      quantized = std::make_shared<const HostTensor>(std::move(result));
    }
    tensor = quantized;
  }
  return progress(done, done);
}

}  // namespace leeway::llm
