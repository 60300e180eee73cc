// Feeds the reader of GGUF files with damaged files; nothing may crash or leak, and what it lets through must be readable to
// the last byte. See import/file_fuzz.h for the program.
#include <cmath>

#include "import/file_fuzz.h"
#include "import/llm_file.h"
#include "import/test_files.h"

namespace {

double sum = 0;  // keeps the reads

void UseConfig(const leeway::LlmConfig& config) {
  for (const char* key : {"block_count", "attention.head_count_kv", "rope.freq_base", "tokenizer.ggml.tokens", "test.f64"}) {
    if (auto value = config.Int(key); value.ok()) sum += double(*value);
    if (auto value = config.Number(key, 1); value.ok()) sum += *value;
    if (auto value = config.Bool(key, true); value.ok()) sum += *value;
    if (auto value = config.String(key, ""); value.ok()) sum += double(value->size());
    if (auto values = config.Ints(key); values.ok()) sum += double(values->size());
    if (auto values = config.Numbers(key); values.ok()) sum += double(values->size());
    if (auto values = config.Strings(key); values.ok()) sum += double(values->size());
  }
}

void Read(const uint8_t* data, size_t size) {
  auto* bytes = reinterpret_cast<const std::byte*>(data);
  auto file = leeway::GgufFile::Read(leeway::MappedFile::FromBytes({bytes, bytes + size}, "fuzz"));
  if (!file.ok()) {
    if (file.error().code == leeway::Code::kInternal || file.error().message.empty()) std::abort();
    return;
  }
  for (const auto& [key, value] : (*file)->entries()) {
    if ((*file)->Find(key) != &value) std::abort();
    for (uint64_t i = 0; i < value.count(); ++i) {
      if (auto number = value.Number(i)) sum += *number;
      if (auto text = value.String(i); text && !text->empty()) sum += text->front() + text->back();
    }
  }
  for (const leeway::GgufTensor& tensor : (*file)->tensors()) {
    for (float value : (*file)->View(tensor).ToF32()) sum += std::isfinite(value) ? value : 0;
  }
  auto model = leeway::LlmFile::FromGguf(*file);
  if (!model.ok()) return;
  UseConfig((*model)->config());
  if ((*model)->tensors().size() != (*file)->tensors().size()) std::abort();
}

constexpr leeway::fuzz::Target kTarget = {"gguf_fuzz", ".gguf", Read, leeway::TestGgufFiles};

}  // namespace

LEEWAY_FUZZ_MAIN(kTarget)
