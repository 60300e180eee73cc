// Every node on a device against its CPU reference, given the same inputs: which one differs first, and by how much.
#pragma once

#include <span>

#include "device/device.h"
#include "graph/graph.h"
#include "leeway/leeway.h"
#include "runtime/plan.h"
#include "runtime/program_cache.h"

namespace leeway {

// `inputs` as Graph::inputs. The graph is planned anew so that every value can be read after the run.
Result<CheckReport> CheckNodes(const Graph& graph, std::span<const HostTensor> inputs, Device& device, PlanOptions plan_options,
                               const CheckOptions& options, ProgramCache& cache);

}  // namespace leeway
