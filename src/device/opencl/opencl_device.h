// device.h through OpenCL 1.2 and newer.
#pragma once

#include <memory>

#include "device/backend.h"
#include "device/opencl/api.h"

namespace leeway::opencl {

Result<std::unique_ptr<BackendDevice>> OpenOpenClDevice(cl_platform_id platform, cl_device_id device,
                                                        const OpenOptions& options);

// Strings of a device, trailing spaces dropped; empty if it does not tell.
std::string TextInfo(cl_device_id device, cl_device_info name);

}  // namespace leeway::opencl
