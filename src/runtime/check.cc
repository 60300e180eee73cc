#include "runtime/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "ops/evaluate.h"
#include "runtime/device_plan.h"
#include "runtime/pack.h"

namespace leeway {
namespace {

constexpr double kLargestF16 = 65504;

// Runs the plan step by step, blocking, and keeps every value on the host. (Of a state that several nodes of one step update
// only the last value is right.)
class CheckRun {
 public:
  CheckRun(const LaunchPlan& plan, DevicePlan& objects, Device& device) : plan_(plan), objects_(objects), device_(device) {
    for (const auto& value : plan.graph.values) {
      values_.push_back(value.constant ? *value.constant : HostTensor(value.type.dtype, value.type.shape));
    }
  }

  Status Run(std::span<const HostTensor> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId id = plan_.graph.inputs[i];
      values_[size_t(id)] = inputs[i];
      if (plan_.value_resource[size_t(id)] >= 0) RETURN_IF_ERROR(Write(id));
    }
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      const PlanStep& step = plan_.steps[s];
      if (step.on_gpu) {
        for (auto& recording : objects_.recordings[s]) {
          ASSIGN_OR_RETURN(EventPtr event, device_.Submit(*recording, {.params = plan_.params}));
          RETURN_IF_ERROR(device_.Wait(event));
        }
        for (int n : step.nodes) {
          for (ValueId id : plan_.graph.nodes[size_t(n)].outputs) {
            if (id != kNoValue && plan_.value_resource[size_t(id)] >= 0) RETURN_IF_ERROR(Read(id));
          }
        }
        continue;
      }
      for (int n : step.nodes) {
        ASSIGN_OR_RETURN(std::vector<HostTensor> outputs, Reference(n));
        for (size_t i = 0; i < outputs.size(); ++i) {
          const ValueId id = plan_.graph.nodes[size_t(n)].outputs[i];
          values_[size_t(id)] = std::move(outputs[i]);
          if (plan_.value_resource[size_t(id)] >= 0) RETURN_IF_ERROR(Write(id));
        }
      }
    }
    return {};
  }

  // What the reference makes of the values that are there.
  Result<std::vector<HostTensor>> Reference(int n) const {
    const Node& node = plan_.graph.nodes[size_t(n)];
    auto take = [&](const std::vector<ValueId>& ids) {
      std::vector<HostTensor> tensors;
      for (ValueId id : ids) tensors.push_back(id == kNoValue ? HostTensor() : values_[size_t(id)]);
      return tensors;
    };
    std::vector<HostTensor> inputs = take(node.inputs);
    std::vector<std::vector<HostTensor>> step_inputs;
    for (const auto& fused : node.epilogue) step_inputs.push_back(take(fused.inputs));
    std::vector<HostTensor> outputs;
    for (ValueId id : node.outputs) {
      const Value& value = plan_.graph.value(id);
      outputs.emplace_back(value.type.dtype, value.type.shape);
      // The parts that other nodes fill are taken as they are on the device, so that they do not differ.
      if (node.output_view) {
        const auto bytes = values_[size_t(id)].bytes();
        std::memcpy(outputs.back().mutable_bytes().data(), bytes.data(), bytes.size());
      }
    }
    for (const auto& update : node.op->updates) {
      outputs[size_t(update.output)] = std::exchange(inputs[size_t(update.input)], HostTensor());
    }
    RETURN_IF_ERROR_CONTEXT(EvaluateNode(plan_.graph, n, inputs, step_inputs, outputs),
                            StrCat("in the reference of node ", NodeLabel(plan_.graph, n)));
    return outputs;
  }

  const HostTensor& value(ValueId id) const { return values_[size_t(id)]; }

 private:
  Status Write(ValueId id) {
    const int r = plan_.value_resource[size_t(id)];
    const PlanResource& resource = plan_.resources[size_t(r)];
    std::vector<std::byte> packed(resource.size_bytes);
    PackThroughMap(values_[size_t(id)], {}, resource.placement, packed);
    return objects_.Write(device_, r, packed);
  }

  Status Read(ValueId id) {
    const int r = plan_.value_resource[size_t(id)];
    const PlanResource& resource = plan_.resources[size_t(r)];
    HostTensor& tensor = values_[size_t(id)];
    Status read_status;
    auto done = [&](Result<std::vector<std::span<const std::byte>>> read) {
      if (!read.ok()) {
        read_status = read.error();
      } else {
        UnpackInto((*read)[0], resource.placement, tensor.dtype(), tensor.mutable_bytes());
      }
    };
    Result<EventPtr> event = Error{};
    if (resource.texture >= 0) {
      event = device_.ReadTexture(*objects_.textures[size_t(resource.texture)], done);
    } else {
      event =
          device_.Read({{objects_.buffers[size_t(resource.buffer)].get(), resource.offset_bytes, resource.size_bytes}}, done);
    }
    if (!event.ok()) return event.error();
    RETURN_IF_ERROR(device_.Wait(*event));
    return read_status;
  }

  const LaunchPlan& plan_;
  DevicePlan& objects_;
  Device& device_;
  std::vector<HostTensor> values_;
};

NodeCheck Compare(const HostTensor& device, const HostTensor& reference, double tolerance) {
  NodeCheck check;
  double low = INFINITY, high = -INFINITY;
  const int64_t count = reference.element_count();
  for (int64_t i = 0; i < count; ++i) {
    const double want = reference.Get(i), got = device.Get(i);
    if (std::isfinite(want)) {
      low = std::min(low, want);
      high = std::max(high, want);
      check.max_magnitude = std::max(check.max_magnitude, std::fabs(want));
      if (!std::isfinite(got)) {
        if (check.not_finite++ == 0) check.at = i, check.device_value = got, check.reference_value = want;
        continue;
      }
      const double difference = std::fabs(got - want);
      if (difference > check.max_difference) {
        check.max_difference = difference;
        if (check.not_finite == 0) check.at = i, check.device_value = got, check.reference_value = want;
      }
    } else if (!(got == want) && !(std::isnan(got) && std::isnan(want))) {
      if (check.not_finite++ == 0) check.at = i, check.device_value = got, check.reference_value = want;
    }
  }
  check.range = high >= low ? high - low : 0;
  // A whole step of integers is a difference, less is not possible.
  // A few numbers have hardly a range: their magnitude takes the place.
  const double scale = std::max(check.range, check.max_magnitude * (reference.element_count() < 16 ? 1.0 : 1e-3));
  const double allowed = IsFloat(reference.dtype()) ? tolerance * scale : 0.5;
  check.differs = check.not_finite > 0 || check.max_difference > allowed;
  check.leaves_f16 = IsFloat(reference.dtype()) && check.max_magnitude > kLargestF16;
  return check;
}

}  // namespace

Result<CheckReport> CheckNodes(const Graph& graph, std::span<const HostTensor> inputs, Device& device, PlanOptions plan_options,
                               const CheckOptions& options, ProgramCache& cache) {
  plan_options.keep_values = true;
  ThreadPool pool;
  ASSIGN_OR_RETURN(LaunchPlan plan, MakePlan(graph, &device.info(), plan_options, pool));
  ASSIGN_OR_RETURN(auto objects, DevicePlan::Make(plan, device, cache, pool, nullptr));
  CheckRun run(plan, *objects, device);
  RETURN_IF_ERROR(run.Run(inputs));

  const bool is_f16 = plan_options.select.precision == Precision::kF16 && device.info().target.f16;
  const double tolerance = options.tolerance > 0 ? options.tolerance : is_f16 ? 1e-2 : 1e-4;
  CheckReport report;
  for (size_t n = 0; n < plan.graph.nodes.size(); ++n) {
    if (!plan.placement.nodes[n].on_gpu) continue;
    ASSIGN_OR_RETURN(std::vector<HostTensor> outputs, run.Reference(int(n)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ValueId id = plan.graph.nodes[n].outputs[i];
      if (id == kNoValue) continue;
      NodeCheck check = Compare(run.value(id), outputs[i], tolerance);
      check.node = int(n);
      check.label = NodeLabel(plan.graph, int(n));
      check.value = plan.graph.value(id).name;
      if (check.differs && report.first_difference < 0) report.first_difference = int(report.nodes.size());
      if (check.leaves_f16 && report.first_beyond_f16 < 0) report.first_beyond_f16 = int(report.nodes.size());
      report.nodes.push_back(std::move(check));
      if (options.stop_at_first && report.first_difference >= 0) return report;
    }
  }
  return report;
}

}  // namespace leeway
