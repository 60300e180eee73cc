// What a device reaches on plain streams and plain arithmetic: the yardstick for kernels.
#pragma once

#include "device/device.h"

namespace leeway {

struct DeviceSpeed {
  double read_bytes_per_second = 0;  // a streaming read of more than the caches hold
  double f32_flops = 0;              // independent multiply-adds, two operations each
  double f16_flops = 0;              // 0: no f16 arithmetic
  double dispatch_seconds = 0;       // a dispatch that does next to nothing and depends on the one before
  double round_trip_seconds = 0;     // submit one such dispatch and read four bytes back
};

// Takes about a second, more on software devices.
Result<DeviceSpeed> MeasureDevice(Device& device);

}  // namespace leeway
