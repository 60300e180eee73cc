// A model's matrices into quantized blocks while it is loaded.
#pragma once

#include <functional>

#include "base/thread_pool.h"
#include "llm/config.h"

namespace leeway::llm {

// Matrices of f32, f16 or bf16 become q8_0 for 8 bits, and for 4 bits q4_0, but for the table of embeddings and the head, whose
// errors go into every logit: these become q8_0. What is quantized already stays as it is, and so do vectors and matrices whose
// rows are no whole blocks. The blocks live in host memory as long as the model does. `progress` over matrices, returning an
// error ends it.
Status QuantizeModel(LlmModel& model, int bits, ThreadPool& threads,
                     const std::function<Status(int done, int total)>& progress);

}  // namespace leeway::llm
