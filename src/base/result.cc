#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace leeway {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kInvalidModel: return "invalid_model";
    case Code::kUnsupported: return "unsupported";
    case Code::kNotFound: return "not_found";
    case Code::kOutOfMemory: return "out_of_memory";
    case Code::kDeviceLost: return "device_lost";
    case Code::kCancelled: return "cancelled";
    case Code::kIo: return "io";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

Error WithContext(const Error& error, const std::string& context) {
  return Error{error.code, error.message + " (" + context + ")"};
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "leeway: internal check failed: %s at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace leeway
