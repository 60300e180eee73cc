// Small kernels whose results are known, run at the first use of a device. A feature whose kernel comes out wrong is switched
// off in the device's target, so that no kernel is chosen that needs it.
#pragma once

#include <string>

#include "device/backend.h"

namespace leeway {

// Fills info().known_answers and switches features off. Fails only where plain arithmetic is wrong, since nothing can be run
// then. Results are kept for the rest of the process, and in `cache_folder` (may be empty) for the next one.
Status RunKnownAnswers(BackendDevice& device, const std::string& cache_folder);

// For tests: what this process knows; files stay.
void ForgetKnownAnswers();

}  // namespace leeway
