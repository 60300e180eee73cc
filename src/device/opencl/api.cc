#include "device/opencl/api.h"

#include <cstdlib>
#include <iterator>

#include "base/strings.h"
#include "device/shared_library.h"

namespace leeway::opencl {
namespace {

Result<Api> Load() {
  std::vector<std::string> candidates = {"libOpenCL.so.1", "libOpenCL.so"};
  if (const char* wanted = std::getenv("LEEWAY_OPENCL_LIBRARY"); wanted && *wanted) candidates = {wanted};
  ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::Open(candidates));
  Api api;
  api.path = library.path();
#define LEEWAY_LOAD(name)                                                             \
  api.name = reinterpret_cast<decltype(api.name)>(library.Symbol(#name));             \
  if (!api.name) {                                                                    \
    return Error{Code::kUnsupported, StrCat("The OpenCL library ", api.path,          \
                                            " does not export " #name "; OpenCL 1.2 " \
                                            "and newer have it.")};                   \
  }
  LEEWAY_OPENCL_FUNCTIONS(LEEWAY_LOAD)
#undef LEEWAY_LOAD
  return api;
}

}  // namespace

const Result<Api>& GetApi() {
  static const Result<Api> api = Load();
  return api;
}

std::string StatusName(cl_int status) {
  struct Row {
    cl_int status;
    const char* name;
  };
#define LEEWAY_ROW(name) \
  { name, #name }
  static constexpr Row kRows[] = {
      LEEWAY_ROW(CL_DEVICE_NOT_AVAILABLE),
      LEEWAY_ROW(CL_COMPILER_NOT_AVAILABLE),
      LEEWAY_ROW(CL_MEM_OBJECT_ALLOCATION_FAILURE),
      LEEWAY_ROW(CL_OUT_OF_RESOURCES),
      LEEWAY_ROW(CL_OUT_OF_HOST_MEMORY),
      LEEWAY_ROW(CL_BUILD_PROGRAM_FAILURE),
      LEEWAY_ROW(CL_IMAGE_FORMAT_NOT_SUPPORTED),
      LEEWAY_ROW(CL_MISALIGNED_SUB_BUFFER_OFFSET),
      LEEWAY_ROW(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
      LEEWAY_ROW(CL_INVALID_VALUE),
      LEEWAY_ROW(CL_INVALID_BUFFER_SIZE),
      LEEWAY_ROW(CL_INVALID_MEM_OBJECT),
      LEEWAY_ROW(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
      LEEWAY_ROW(CL_INVALID_IMAGE_SIZE),
      LEEWAY_ROW(CL_INVALID_BINARY),
      LEEWAY_ROW(CL_INVALID_BUILD_OPTIONS),
      LEEWAY_ROW(CL_INVALID_PROGRAM_EXECUTABLE),
      LEEWAY_ROW(CL_INVALID_KERNEL_NAME),
      LEEWAY_ROW(CL_INVALID_ARG_INDEX),
      LEEWAY_ROW(CL_INVALID_ARG_VALUE),
      LEEWAY_ROW(CL_INVALID_ARG_SIZE),
      LEEWAY_ROW(CL_INVALID_KERNEL_ARGS),
      LEEWAY_ROW(CL_INVALID_WORK_GROUP_SIZE),
      LEEWAY_ROW(CL_INVALID_WORK_ITEM_SIZE),
      LEEWAY_ROW(CL_INVALID_GLOBAL_WORK_SIZE),
  };
#undef LEEWAY_ROW
  for (const Row& row : kRows) {
    if (row.status == status) return StrCat(row.name, " (", status, ")");
  }
  return StrCat("status (", status, ")");
}

Error CallError(const char* call, cl_int status) {
  const bool memory =
      status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES || status == CL_OUT_OF_HOST_MEMORY;
  return Error{memory ? Code::kOutOfMemory : Code::kInternal,
               StrCat("OpenCL: ", call, " fails with ", StatusName(status), ".")};
}

}  // namespace leeway::opencl
