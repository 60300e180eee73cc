#pragma once

#include "shader/target.h"

namespace leeway {

// OpenCL on a CPU: a workgroup is a loop of one thread, so that groups of one invocation lose nothing, and a compiler that
// makes vector instructions of loops. Vulkan on a CPU has an invocation to each lane of a vector instead.
inline bool RunsWorkgroupsOnThreads(const shader::Target& target) {
  return target.is_software && target.language == shader::Language::kOpenClC;
}

}  // namespace leeway
