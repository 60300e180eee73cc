#include <cctype>

#include "base/strings.h"
#include "device/opencl/opencl_device.h"

namespace leeway::opencl {

std::string TextInfo(cl_device_id device, cl_device_info name) {
  const Api& api = GetApi().value();
  size_t size = 0;
  if (api.clGetDeviceInfo(device, name, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string text(size, '\0');
  if (api.clGetDeviceInfo(device, name, size, text.data(), nullptr) != CL_SUCCESS) return "";
  while (!text.empty() && (text.back() == '\0' || std::isspace(static_cast<unsigned char>(text.back())))) text.pop_back();
  return text;
}

Result<Enumeration> Enumerate() {
  const Result<Api>& loaded = GetApi();
  if (!loaded.ok()) return loaded.error();
  const Api& api = *loaded;
  Enumeration out;
  out.message = StrCat("loaded ", api.path, "; platforms are those of the system, or of OCL_ICD_VENDORS if that is set");
  cl_uint platform_count = 0;
  if (cl_int status = api.clGetPlatformIDs(0, nullptr, &platform_count); status != CL_SUCCESS || !platform_count) {
    out.message += "; there is no platform";
    return out;
  }
  std::vector<cl_platform_id> platforms(platform_count);
  api.clGetPlatformIDs(platform_count, platforms.data(), nullptr);
  for (cl_platform_id platform : platforms) {
    char platform_name[256] = {};
    api.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof platform_name - 1, platform_name, nullptr);
    cl_uint device_count = 0;
    if (api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &device_count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> devices(device_count);
    api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, device_count, devices.data(), nullptr);
    for (cl_device_id device : devices) {
      cl_device_type type = 0;
      api.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, nullptr);
      Candidate candidate;
      candidate.name = TextInfo(device, CL_DEVICE_NAME);
      candidate.driver = StrCat(platform_name, " ", TextInfo(device, CL_DRIVER_VERSION));
      candidate.vendor = TextInfo(device, CL_DEVICE_VENDOR);
      candidate.aliases = StrCat(TextInfo(device, CL_DEVICE_VERSION),
                                 std::string(platform_name).find("Portable Computing") == 0 ? " pocl" : "");
      candidate.is_software = type & CL_DEVICE_TYPE_CPU;
      candidate.open = [platform, device](const OpenOptions& options) { return OpenOpenClDevice(platform, device, options); };
      out.candidates.push_back(std::move(candidate));
    }
  }
  return out;
}

}  // namespace leeway::opencl
