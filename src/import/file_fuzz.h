// What the fuzzers of readers share. A fuzzer is one function that reads bytes and ends the process where the reader breaks its
// promises, and a program around it:
//   with libFuzzer (LEEWAY_LIBFUZZER): libFuzzer's, with its options, and --write-corpus=FOLDER, which writes the files to
//   begin with and ends; without: NAME [--runs=N] [--seed=S] [--seconds=T] [FILE_OR_FOLDER...], which cuts each small file at
//   every offset and then runs N random mutations (or as many as T seconds allow).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace leeway::fuzz {

using Bytes = std::vector<uint8_t>;

struct Target {
  const char* name;       // "gguf_fuzz"
  const char* extension;  // ".gguf": the files of a folder that are taken
  void (*read)(const uint8_t* data, size_t size);
  std::vector<std::vector<std::byte>> (*corpus)();  // files to begin with, besides the given ones; may be null
};

inline std::vector<Bytes> Corpus(const Target& target, const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<Bytes> corpus;
  if (target.corpus != nullptr) {
    for (const auto& file : target.corpus()) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
      corpus.emplace_back(bytes, bytes + file.size());
    }
  }
  auto read = [&](const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  };
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      read(path);
      continue;
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == target.extension) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) read(file);
  }
  return corpus;
}

// Numbers at the edges of what sizes and indices may be.
inline uint64_t Interesting(std::mt19937_64& random) {
  static const uint64_t kNumbers[] = {
      0,      1,          2,          4,          0x7f,       0x80,       0xff,         0x7fff,           0x8000,
      0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc, 0x10000000, ~uint64_t{0}, ~uint64_t{0} / 2, ~uint64_t{0} / 4 + 2};
  return kNumbers[random() % std::size(kNumbers)];
}

inline void Mutate(Bytes& bytes, std::mt19937_64& random) {
  for (int n = 1 + int(random() % 4); n > 0 && !bytes.empty(); --n) {
    size_t at = random() % bytes.size();
    // Tables lie at the ends of small files, constants between: words near either end are hit more often.
    if (random() % 2)
      at = random() % 2 ? random() % std::min<size_t>(bytes.size(), 512)
                        : bytes.size() - 1 - random() % std::min<size_t>(bytes.size(), 512);
    switch (random() % 7) {
      case 0: bytes[at] ^= uint8_t(1u << (random() % 8)); break;
      case 1: bytes[at] = uint8_t(random()); break;
      case 2:
      case 3: {
        const size_t width = random() % 3 ? 4 : 8;
        if (random() % 4) at &= ~size_t(3);
        if (at + width > bytes.size()) break;
        uint64_t word = Interesting(random);
        if (random() % 2) {
          word = 0;
          std::memcpy(&word, &bytes[at], width);
          word += random() % 33 - 16;
        }
        std::memcpy(&bytes[at], &word, width);
        break;
      }
      case 4: {  // one part over another
        size_t from = random() % bytes.size(),
               length = std::min({size_t(1 + random() % 16), bytes.size() - from, bytes.size() - at});
        std::memmove(&bytes[at], &bytes[from], length);
        break;
      }
      case 5: bytes.resize(random() % 8 ? bytes.size() : random() % bytes.size()); break;
      case 6: {  // a part in or out, which shifts what follows
        const size_t length = std::min<size_t>(1 + random() % 8, bytes.size() - at);
        if (random() % 2) {
          bytes.erase(bytes.begin() + ptrdiff_t(at), bytes.begin() + ptrdiff_t(at + length));
        } else {
          const Bytes part(bytes.begin() + ptrdiff_t(at), bytes.begin() + ptrdiff_t(at + length));
          bytes.insert(bytes.begin() + ptrdiff_t(at), part.begin(), part.end());
        }
        break;
      }
    }
  }
}

inline int Main(const Target& target, int argc, char** argv) {
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
  const std::vector<Bytes> corpus = Corpus(target, paths);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no %s file given.\n", target.name, target.extension);
    return 2;
  }
  auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  size_t cuts = 0;
  for (const Bytes& file : corpus) {
    if (file.size() > 8192 || (seconds > 0 && elapsed() > seconds / 2)) continue;
    for (size_t n = 0; n < file.size(); ++n, ++cuts) target.read(file.data(), n);
  }
  std::printf("%zu truncations in %.1f s\n", cuts, elapsed());
  std::mt19937_64 random(seed);
  uint64_t done = 0;
  start = std::chrono::steady_clock::now();
  for (; seconds > 0 ? elapsed() < seconds : done < runs; ++done) {
    Bytes bytes = corpus[random() % corpus.size()];
    Mutate(bytes, random);
    target.read(bytes.data(), bytes.size());
  }
  std::printf("%llu mutations in %.1f s, seed %llu\n", static_cast<unsigned long long>(done), elapsed(),
              static_cast<unsigned long long>(seed));
  return 0;
}

// For LLVMFuzzerInitialize.
inline void WriteCorpusIfAsked(const Target& target, int argc, char** argv) {
  constexpr std::string_view kOption = "--write-corpus=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    if (!text.starts_with(kOption)) continue;
    const std::vector<Bytes> corpus = Corpus(target, {});
    for (size_t k = 0; k < corpus.size(); ++k) {
      std::ofstream file(std::string(text.substr(kOption.size())) + "/" + std::to_string(k) + target.extension,
                         std::ios::binary);
      file.write(reinterpret_cast<const char*>(corpus[k].data()), std::streamsize(corpus[k].size()));
    }
    std::exit(0);
  }
}

}  // namespace leeway::fuzz

#ifdef LEEWAY_LIBFUZZER
#define LEEWAY_FUZZ_MAIN(target)                                            \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    target.read(data, size);                                                \
    return 0;                                                               \
  }                                                                         \
  extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {            \
    leeway::fuzz::WriteCorpusIfAsked(target, *argc, *argv);                 \
    return 0;                                                               \
  }
#else
#define LEEWAY_FUZZ_MAIN(target) \
  int main(int argc, char** argv) { return leeway::fuzz::Main(target, argc, argv); }
#endif
