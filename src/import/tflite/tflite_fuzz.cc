// Feeds the reader of .tflite files with damaged files; nothing may crash, leak, or pass the verifier of graphs wrongly.
//
// With libFuzzer (LEEWAY_LIBFUZZER): the usual options, and a folder of files to begin with. Without: a program of its own,
//     tflite_fuzz [--runs=N] [--seed=S] [--seconds=T] FILE_OR_FOLDER...
// that cuts each small file at every offset and then runs N random mutations (or as many as T seconds allow).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "graph/passes/passes.h"
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

}  // namespace

#ifdef LEEWAY_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ReadOnce(data, size);
  return 0;
}

#else

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> ReadCorpus(const std::vector<std::string>& paths) {
  std::vector<Bytes> corpus;
  auto read = [&](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  };
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      read(path);
      continue;
    }
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".tflite") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) read(file);
  }
  return corpus;
}

// Numbers at the edges of what sizes and indices may be.
uint32_t Interesting(std::mt19937_64& random) {
  static const uint32_t kNumbers[] = {0,      1,      2,          4,          0x7f,       0x80,       0xff,      0x7fff,
                                      0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc, 0x10000000};
  return kNumbers[random() % std::size(kNumbers)];
}

void Mutate(Bytes& bytes, std::mt19937_64& random) {
  for (int n = 1 + int(random() % 4); n > 0 && !bytes.empty(); --n) {
    size_t at = random() % bytes.size();
    // Tables lie at the ends of small files, constants between: aligned words near either end are hit more often.
    if (random() % 2)
      at = random() % 2 ? random() % std::min<size_t>(bytes.size(), 512)
                        : bytes.size() - 1 - random() % std::min<size_t>(bytes.size(), 512);
    switch (random() % 6) {
      case 0: bytes[at] ^= uint8_t(1u << (random() % 8)); break;
      case 1: bytes[at] = uint8_t(random()); break;
      case 2:
      case 3: {
        at &= ~size_t(3);
        uint32_t word = Interesting(random);
        if (random() % 2 && at + 4 <= bytes.size()) {
          std::memcpy(&word, &bytes[at], 4);
          word += uint32_t(random() % 33) - 16;
        }
        if (at + 4 <= bytes.size()) std::memcpy(&bytes[at], &word, 4);
        break;
      }
      case 4: {  // one part over another
        size_t from = random() % bytes.size(),
               length = std::min({size_t(1 + random() % 16), bytes.size() - from, bytes.size() - at});
        std::memmove(&bytes[at], &bytes[from], length);
        break;
      }
      case 5: bytes.resize(random() % 8 ? bytes.size() : random() % bytes.size()); break;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 100000, seed = 1;
  double seconds = 0;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    std::string text = argv[i];
    if (text.starts_with("--runs=")) {
      runs = std::strtoull(text.c_str() + 7, nullptr, 10);
    } else if (text.starts_with("--seed=")) {
      seed = std::strtoull(text.c_str() + 7, nullptr, 10);
    } else if (text.starts_with("--seconds=")) {
      seconds = std::strtod(text.c_str() + 10, nullptr);
    } else {
      paths.push_back(text);
    }
  }
  std::vector<Bytes> corpus = ReadCorpus(paths);
  if (corpus.empty()) {
    std::fprintf(stderr, "tflite_fuzz: no .tflite file given.\n");
    return 2;
  }
  auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  size_t cuts = 0;
  for (const Bytes& file : corpus) {
    if (file.size() > 4096 || (seconds > 0 && elapsed() > seconds / 2)) continue;
    for (size_t n = 0; n < file.size(); ++n, ++cuts) ReadOnce(file.data(), n);
  }
  std::printf("%zu truncations in %.1f s\n", cuts, elapsed());
  std::mt19937_64 random(seed);
  uint64_t done = 0;
  for (; seconds > 0 ? elapsed() < seconds : done < runs; ++done) {
    Bytes bytes = corpus[random() % corpus.size()];
    Mutate(bytes, random);
    ReadOnce(bytes.data(), bytes.size());
  }
  std::printf("%llu mutations in %.1f s, seed %llu\n", static_cast<unsigned long long>(done), elapsed(),
              static_cast<unsigned long long>(seed));
  return 0;
}

#endif
