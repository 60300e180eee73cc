// Feeds the reader of .safetensors files with damaged files; nothing may crash or leak, and what it lets through must be
// readable to the last byte. See import/file_fuzz.h for the program.
#include <cmath>

#include "import/file_fuzz.h"
#include "import/safetensors/safetensors.h"
#include "import/test_files.h"

namespace {

double sum = 0;  // keeps the reads

void Read(const uint8_t* data, size_t size) {
  auto* bytes = reinterpret_cast<const std::byte*>(data);
  auto file = leeway::SafetensorsFile::Read(leeway::MappedFile::FromBytes({bytes, bytes + size}, "fuzz"));
  if (!file.ok()) {
    if (file.error().code == leeway::Code::kInternal || file.error().message.empty()) std::abort();
    return;
  }
  uint64_t total = 0;
  for (const leeway::SafetensorsTensor& tensor : (*file)->tensors()) {
    if ((*file)->FindTensor(tensor.name) != &tensor) std::abort();
    for (float value : (*file)->View(tensor).ToF32()) sum += std::isfinite(value) ? value : 0;
    total += tensor.bytes.size();
  }
  if (total > size) std::abort();
}

constexpr leeway::fuzz::Target kTarget = {"safetensors_fuzz", ".safetensors", Read, leeway::TestSafetensorsFiles};

}  // namespace

LEEWAY_FUZZ_MAIN(kTarget)
