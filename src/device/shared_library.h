// A library that is opened while the program runs, so that the program starts without it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace leeway {

class SharedLibrary {
 public:
  // The first of `candidates` that opens: paths, or names that the system resolves. The error lists what was tried and why each
  // failed. It stays open until the process ends: drivers leave threads and exit handlers behind.
  static Result<SharedLibrary> Open(const std::vector<std::string>& candidates);

  void* Symbol(const char* name) const;  // null if the library does not export it
  const std::string& path() const { return path_; }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

// The folder of the program or shared library that holds this code, with a slash at the end; empty if it is not known.
std::string OwnFolder();

}  // namespace leeway
