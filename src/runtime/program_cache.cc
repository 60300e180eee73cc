#include "runtime/program_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/hash.h"
#include "base/strings.h"

namespace leeway {
namespace fs = std::filesystem;
namespace {

constexpr char kMagic[8] = {'l', 'e', 'e', 'w', 'a', 'y', 'P', '1'};
constexpr uint64_t kSecondSeed = 0x51ed270b0f3d1c2bull;

// In front of the bytes. The second hash makes a clash of the file name's hash harmless.
struct Header {
  char magic[8];
  uint64_t key_hash = 0;
  uint64_t size_bytes = 0;
  uint64_t bytes_hash = 0;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

ProgramCache::ProgramCache(std::string folder, uint64_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {}

std::string ProgramCache::DefaultFolder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && xdg[0] == '/') return StrCat(xdg, "/leeway");
  if (const char* home = std::getenv("HOME"); home && home[0] == '/') return StrCat(home, "/.cache/leeway");
  return "";
}

std::string ProgramCache::PathOf(std::string_view key) const { return StrCat(folder_, "/", Hex(HashText(key)), ".program"); }

std::optional<std::vector<std::byte>> ProgramCache::Load(std::string_view key) {
  if (folder_.empty()) return std::nullopt;
  const std::string path = PathOf(key);
  File file(std::fopen(path.c_str(), "rb"));
  if (!file) return std::nullopt;
  Header header;
  std::error_code error;
  // Of the open file: another process may put a new one in its place at any time.
  const long file_bytes = std::fseek(file.get(), 0, SEEK_END) == 0 ? std::ftell(file.get()) : -1;
  std::rewind(file.get());
  bool good = std::fread(&header, sizeof header, 1, file.get()) == 1 && std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
              file_bytes >= 0 && uint64_t(file_bytes) - sizeof header == header.size_bytes;
  if (good && header.key_hash != HashText(key, kSecondSeed)) return std::nullopt;  // somebody else's
  std::vector<std::byte> bytes;
  if (good) {
    bytes.resize(header.size_bytes);
    good = std::fread(bytes.data(), 1, bytes.size(), file.get()) == bytes.size() && HashBytes(bytes) == header.bytes_hash;
  }
  if (!good) {
    fs::remove(path, error);
    return std::nullopt;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // used: young again
  return bytes;
}

void ProgramCache::Store(std::string_view key, std::span<const std::byte> bytes) {
  if (folder_.empty() || bytes.size() > max_bytes_ / 4) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return;
  static std::atomic<uint32_t> counter = 0;
  const std::string path = PathOf(key);
  const std::string draft = StrCat(path, ".", int(getpid()), ".", counter.fetch_add(1), ".draft");
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_hash = HashText(key, kSecondSeed);
  header.size_bytes = bytes.size();
  header.bytes_hash = HashBytes(bytes);
  bool written = false;
  if (File file{std::fopen(draft.c_str(), "wb")}) {
    written = std::fwrite(&header, sizeof header, 1, file.get()) == 1 &&
              std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size() && std::fflush(file.get()) == 0;
  }
  if (written) fs::rename(draft, path, error);
  if (!written || error) {
    fs::remove(draft, error);
    return;
  }
  // The whole folder is looked at for the first entry and then after every eighth of the bound.
  if (stored_bytes_ == 0 || stored_bytes_ > max_bytes_ / 8) {
    stored_bytes_ = 0;
    Evict();
  }
  stored_bytes_ += bytes.size() + sizeof header;
}

void ProgramCache::Drop(std::string_view key) {
  if (folder_.empty()) return;
  std::error_code error;
  fs::remove(PathOf(key), error);
}

void ProgramCache::Evict() {
  if (folder_.empty()) return;
  struct Entry {
    fs::path path;
    uint64_t bytes = 0;
    fs::file_time_type used;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code entry_error;
    Entry entry{it->path(), it->file_size(entry_error), it->last_write_time(entry_error)};
    if (entry_error) continue;
    const auto extension = entry.path.extension();
    if (extension == ".draft") {  // of a process that died while it wrote
      if (now - entry.used > std::chrono::hours(1)) fs::remove(entry.path, entry_error);
    } else if (extension == ".program") {
      total += entry.bytes;
      entries.push_back(std::move(entry));
    }
  }
  if (total <= max_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const auto& entry : entries) {
    if (total <= max_bytes_) break;
    fs::remove(entry.path, error);
    total -= entry.bytes;
  }
}

}  // namespace leeway
