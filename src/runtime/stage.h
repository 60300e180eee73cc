// A graph that runs again and again over states: planned and compiled once, recorded for each set of states, and then a run is
// a submission. Several stages (one token, many tokens) share weights, states and the memory of activations.
//
// Runs of the stages of one context are in order, and several may be under way. Nothing here is for two threads at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/device_plan.h"
#include "runtime/host_values.h"
#include "runtime/state_set.h"

namespace leeway {

// What stages share. `device` null: everything on the CPU.
struct StageContext {
  StageContext(std::shared_ptr<Device> device, std::string cache_folder, int threads)
      : device(std::move(device)), cache(std::move(cache_folder)), pool(threads) {}
  std::shared_ptr<Device> device;
  WeightStore weights;
  ActivationArena arena;
  ProgramCache cache;
  ThreadPool pool;
};

// A part of a state or an output as it is stored, to be read after a run. Offset and size are multiples of 4.
struct StageRead {
  ValueId value = kNoValue;
  uint64_t offset_bytes = 0, size_bytes = 0;
};

class BoundStage;

class Stage {
 public:
  // `context` must outlive the stage. Weights that the context does not have yet are uploaded. `progress` over pipelines; may
  // be null.
  static Result<std::unique_ptr<Stage>> Make(LaunchPlan plan, StageContext& context,
                                             const std::function<bool(int done, int total)>& progress = nullptr);

  const LaunchPlan& plan() const { return plan_; }
  DevicePlanReport report() const { return objects_ ? objects_->report : DevicePlanReport(); }
  // Row-major elements of an input that is no state; stays until it is written again. In order with runs.
  Status WriteInput(ValueId input, std::span<const std::byte> bytes);

  // The stage over these states, which must have all of its states and must outlive what is returned, as must the stage.
  Result<std::unique_ptr<BoundStage>> Bind(StateSet& states);

 private:
  friend class BoundStage;
  Stage(LaunchPlan plan, StageContext& context) : plan_(std::move(plan)), context_(context) {}

  LaunchPlan plan_;
  StageContext& context_;
  std::unique_ptr<DevicePlan> objects_;
  HostValues host_;
  std::vector<std::pair<ValueId, HostTensor>> host_inputs_;  // what CPU steps read of inputs
};

class BoundStage {
 public:
  // A run is cut into parts, to be started in order: submissions, which take at most about a second, and steps on the CPU.
  // Whoever wants to be able to stop in between starts one after the other.
  int part_count() const { return int(parts_.size()); }

  // Starts a part; the event is done when it is. Of the last part `reads` are read back, and `done` gets their bytes, in order,
  // in Poll or Wait of the device or before this returns. A part on the CPU is done on return: it waits for the device. An
  // event that is done already is not the device's: do not Wait for it there.
  Result<EventPtr> Start(int part, std::span<const StageRead> reads, Device::ReadDone done, bool timestamps = false);
  // All parts.
  Result<EventPtr> Run(std::span<const StageRead> reads = {}, Device::ReadDone done = nullptr, bool timestamps = false);

  // Nanoseconds of each dispatch of the plan in the last run with timestamps that is done; empty where the device has none.
  std::vector<uint64_t> Times() const;
  const Stage& stage() const { return stage_; }

 private:
  friend class Stage;
  struct Part {
    int step = 0;
    int submission = -1;  // -1: a step on the CPU
  };
  BoundStage(Stage& stage, StateSet& states) : stage_(stage), states_(states) {}

  Status RunOnCpu(const PlanStep& step);
  ResourceLocation LocationOf(int resource) const;
  StateSet::State& StateOf(size_t planned) { return states_.states()[size_t(state_index_[planned])]; }

  Stage& stage_;
  StateSet& states_;
  std::vector<int> state_index_;  // as LaunchPlan::states
  std::vector<Part> parts_;
  std::vector<std::vector<std::unique_ptr<Recording>>> recordings_;
};

}  // namespace leeway
