// device.h through the C interface of WebGPU.
#pragma once

#include <memory>

#include "device/backend.h"
#include "device/webgpu/adapters.h"

namespace leeway::webgpu {

Result<std::unique_ptr<BackendDevice>> OpenWebGpuDevice(const AdapterRequest& request, const OpenOptions& options);

}  // namespace leeway::webgpu
