// Feeds the reader of .tflite files with damaged files; nothing may crash, leak, or pass the verifier of graphs wrongly. See
// import/file_fuzz.h for the program.
#include "graph/passes/passes.h"
#include "import/file_fuzz.h"
#include "import/tflite/tflite.h"

namespace {

void ReadOnce(const uint8_t* data, size_t size) {
  auto* bytes = reinterpret_cast<const std::byte*>(data);
  // Once with every operator unknown, which reaches all of the file, and once with ours, whose shape rules see the numbers in
  // it.
  for (bool known : {false, true}) {
    auto file = leeway::MappedFile::FromBytes({bytes, bytes + size}, "fuzz");
    leeway::TfliteOptions options;
    options.keep_unknown_ops = true;
    if (!known) options.find_op = [](std::string_view) -> const leeway::OpDef* { return nullptr; };
    auto graph = leeway::ImportTflite(file, options);
    if (!graph.ok()) {
      if (graph.error().code == leeway::Code::kInternal) {
        std::fprintf(stderr, "%s\n", graph.error().message.c_str());
        std::abort();
      }
      continue;
    }
    auto reports = leeway::RunPasses(*graph, {});
    if (!reports.ok() && reports.error().code == leeway::Code::kInternal) {
      std::fprintf(stderr, "%s\n", reports.error().message.c_str());
      std::abort();
    }
  }
}

constexpr leeway::fuzz::Target kTarget = {"tflite_fuzz", ".tflite", ReadOnce, nullptr};

}  // namespace

LEEWAY_FUZZ_MAIN(kTarget)
