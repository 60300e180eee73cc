#include "device/webgpu/api.h"

#include <cstdlib>

#include "base/strings.h"
#include "device/shared_library.h"

namespace leeway::webgpu {
namespace {

#if defined(__APPLE__)
constexpr const char* kLibraryName = "libwebgpu_dawn.dylib";
#else
constexpr const char* kLibraryName = "libwebgpu_dawn.so";
#endif

Result<Api> Load() {
  std::vector<std::string> candidates;
  if (const char* wanted = std::getenv("LEEWAY_DAWN_LIBRARY"); wanted && *wanted) {
    candidates = {wanted};  // who names one does not want another
  } else {
    const std::string folder = OwnFolder();
    if (!folder.empty()) candidates.push_back(folder + kLibraryName);
    candidates.push_back(LEEWAY_DAWN_LIBRARY_PATH);
    candidates.push_back(kLibraryName);
  }
  ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::Open(candidates));
  Api api;
  api.path = library.path();
#define LEEWAY_LOAD(name)                                                                                                     \
  api.name = reinterpret_cast<decltype(api.name)>(library.Symbol("wgpu" #name));                                              \
  if (!api.name) {                                                                                                            \
    return Error{Code::kUnsupported,                                                                                          \
                 StrCat("The WebGPU library ", api.path, " does not export wgpu" #name ", which the current webgpu.h has.")}; \
  }
  LEEWAY_WEBGPU_FUNCTIONS(LEEWAY_LOAD)
#undef LEEWAY_LOAD
#define LEEWAY_LOAD(name) api.name = reinterpret_cast<decltype(api.name)>(library.Symbol("wgpu" #name));
  LEEWAY_WEBGPU_OPTIONAL_FUNCTIONS(LEEWAY_LOAD)
#undef LEEWAY_LOAD
  api.ConstructDawnInstanceDescriptor = reinterpret_cast<decltype(api.ConstructDawnInstanceDescriptor)>(
      library.Symbol("_ZN4dawn6native22DawnInstanceDescriptorC1Ev"));
  api.GetDawnFeatureInfo = reinterpret_cast<decltype(api.GetDawnFeatureInfo)>(
      library.Symbol("_ZN4dawn6native14GetFeatureInfoEN4wgpu11FeatureNameE"));
  return api;
}

}  // namespace

const Result<Api>& GetApi() {
  static const Result<Api> api = Load();
  return api;
}

}  // namespace leeway::webgpu
