#include "device/shared_library.h"

#include <dlfcn.h>

#include "base/strings.h"

namespace leeway {

Result<SharedLibrary> SharedLibrary::Open(const std::vector<std::string>& candidates) {
  std::string tried;
  for (const std::string& candidate : candidates) {
    if (candidate.empty()) continue;
    if (void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle, candidate);
    const char* reason = dlerror();
    tried += StrCat(tried.empty() ? "" : "; ", candidate, ": ", reason ? reason : "unknown reason");
  }
  return Error{Code::kNotFound, StrCat("No library opens (", tried, ").")};
}

void* SharedLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

std::string OwnFolder() {
  Dl_info info = {};
  if (!dladdr(reinterpret_cast<void*>(&OwnFolder), &info) || !info.dli_fname) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

}  // namespace leeway
