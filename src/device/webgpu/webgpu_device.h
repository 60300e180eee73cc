// device.h through the C interface of WebGPU.
#pragma once

#include <memory>

#include "device/backend.h"
#include "device/webgpu/adapters.h"

namespace leeway::webgpu {

// `found`: the instance that found the adapter, taken if no other device has it; may be null.
Result<std::unique_ptr<BackendDevice>> OpenWebGpuDevice(const AdapterRequest& request, std::shared_ptr<InstanceSlot> found,
                                                        const OpenOptions& options);

}  // namespace leeway::webgpu
