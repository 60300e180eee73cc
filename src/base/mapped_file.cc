#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/strings.h"

namespace leeway {
namespace {

Error FileError(const std::string& path, const char* what, int number) {
  Code code = number == ENOENT ? Code::kNotFound : number == ENOMEM ? Code::kOutOfMemory : Code::kIo;
  return Error{code, StrCat("The file \"", path, "\" cannot be ", what, ": ", std::strerror(number), ".")};
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return FileError(path, "opened", errno);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return FileError(path, "examined", errno);
  if (!S_ISREG(info.st_mode)) return Error{Code::kIo, StrCat("\"", path, "\" is not a regular file.")};
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  if (info.st_size > 0) {
    void* start = ::mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (start == MAP_FAILED) return FileError(path, "mapped", errno);
    mapped->mapping_ = start;
    mapped->bytes_ = {static_cast<const std::byte*>(start), size_t(info.st_size)};
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

std::shared_ptr<const MappedFile> MappedFile::FromBytes(std::vector<std::byte> bytes, std::string name) {
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = std::move(name);
  mapped->owned_ = std::move(bytes);  // operator new aligns to 16
  mapped->bytes_ = mapped->owned_;
  return mapped;
}

MappedFile::~MappedFile() {
  if (mapping_) ::munmap(mapping_, bytes_.size());
}

Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes) {
  std::string temporary = StrCat(path, ".XXXXXX");
  Descriptor file{::mkstemp(temporary.data())};
  if (file.fd < 0) return FileError(path, "written", errno);
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t n = ::write(file.fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int number = n < 0 ? errno : ENOSPC;
      ::unlink(temporary.c_str());
      return FileError(path, "written", number);
    }
    done += size_t(n);
  }
  mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(file.fd, 0666 & ~mask) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
    int number = errno;
    ::unlink(temporary.c_str());
    return FileError(path, "written", number);
  }
  return {};
}

}  // namespace leeway
