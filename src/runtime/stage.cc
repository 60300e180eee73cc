#include "runtime/stage.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "device/event.h"
#include "runtime/pack.h"

namespace leeway {
namespace {

using Spans = std::vector<std::span<const std::byte>>;

}  // namespace

Result<std::unique_ptr<Stage>> Stage::Make(LaunchPlan plan, StageContext& context,
                                           const std::function<bool(int done, int total)>& progress) {
  auto stage = std::unique_ptr<Stage>(new Stage(std::move(plan), context));
  const LaunchPlan& made = stage->plan_;
  if (context.device) {
    ASSIGN_OR_RETURN(stage->objects_, DevicePlan::Make(made, *context.device, context.cache, context.pool, progress,
                                                       {.weights = &context.weights, .arena = &context.arena, .states = true}));
  }
  stage->host_ = HostValues(made);
  for (ValueId id : made.graph.inputs) {
    const bool is_state =
        std::any_of(made.states.begin(), made.states.end(), [&](const PlanState& state) { return state.before == id; });
    const TensorType& type = made.graph.value(id).type;
    if (!is_state) stage->host_inputs_.emplace_back(id, HostTensor(type.dtype, type.shape));
  }
  return stage;
}

Status Stage::WriteInput(ValueId input, std::span<const std::byte> bytes) {
  for (auto& [id, tensor] : host_inputs_) {
    if (id != input) continue;
    if (bytes.size() != tensor.bytes().size()) {
      return Error{Code::kInvalidArgument, StrCat("Input \"", plan_.graph.value(id).name, "\" takes ", tensor.bytes().size(),
                                                  " bytes, and ", bytes.size(), " are given.")};
    }
    if (!bytes.empty()) std::memcpy(tensor.mutable_bytes().data(), bytes.data(), bytes.size());
    const int r = plan_.value_resource[size_t(id)];
    if (r < 0 || !objects_) return {};
    const PlanResource& resource = plan_.resources[size_t(r)];
    std::vector<std::byte> packed(resource.size_bytes);
    PackThroughMap(tensor, {}, resource.placement, packed);
    return objects_->Write(*context_.device, r, packed);
  }
  return Error{Code::kInvalidArgument, StrCat("Value ", input, " is no input of the stage but a state, or none at all.")};
}

Result<std::unique_ptr<BoundStage>> Stage::Bind(StateSet& states) {
  auto bound = std::unique_ptr<BoundStage>(new BoundStage(*this, states));
  std::vector<Buffer*> buffers;
  for (const PlanState& planned : plan_.states) {
    const int index = states.Find(planned.name);
    if (index < 0) return Error{Code::kInvalidArgument, StrCat("The states have no \"", planned.name, "\".")};
    const StateSet::State& state = states.states()[size_t(index)];
    if (state.type != planned.type) {
      return Error{Code::kInvalidArgument, StrCat("The state \"", planned.name, "\" is ", state.type.ToString(), ", and ",
                                                  planned.type.ToString(), " is expected.")};
    }
    if (planned.resource >= 0 && !SamePlacement(state.placement, plan_.resources[size_t(planned.resource)].placement)) {
      return Error{Code::kInvalidArgument, StrCat("The state \"", planned.name, "\" is placed otherwise than planned.")};
    }
    bound->state_index_.push_back(index);
    buffers.push_back(state.buffer.get());
  }
  if (objects_) { ASSIGN_OR_RETURN(bound->recordings_, objects_->Record(plan_, *context_.device, buffers)); }
  for (size_t s = 0; s < plan_.steps.size(); ++s) {
    if (!plan_.steps[s].on_gpu) bound->parts_.push_back({int(s), -1});
    const size_t count = objects_ ? bound->recordings_[s].size() : 0;
    for (size_t i = 0; i < count; ++i) bound->parts_.push_back({int(s), int(i)});
  }
  if (bound->parts_.empty()) {
    return Error{Code::kInvalidArgument, StrCat("The graph \"", plan_.graph.name, "\" has nothing to run.")};
  }
  return bound;
}

ResourceLocation BoundStage::LocationOf(int resource) const {
  for (size_t s = 0; s < state_index_.size(); ++s) {
    if (stage_.plan_.states[s].resource == resource) {
      return {states_.states()[size_t(state_index_[s])].buffer.get(), 0, nullptr};
    }
  }
  return stage_.objects_->locations[size_t(resource)];
}

Status BoundStage::RunOnCpu(const PlanStep& step) {
  const LaunchPlan& plan = stage_.plan_;
  HostValues& host = stage_.host_;
  for (const auto& [id, tensor] : stage_.host_inputs_) host[id] = tensor;
  Device* device = stage_.context_.device.get();
  if (!device) {  // the states' memory goes along
    for (size_t s = 0; s < plan.states.size(); ++s) host[plan.states[s].before] = std::exchange(StateOf(s).host, HostTensor());
  }
  std::vector<ReadRequest> requests;
  std::vector<PlanTransfer> buffers;
  for (const PlanTransfer& transfer : step.downloads) {
    const ResourceLocation where = LocationOf(transfer.resource);
    Status status;
    if (where.texture) {
      ASSIGN_OR_RETURN(EventPtr event, device->ReadTexture(*where.texture, [&](Result<Spans> read) {
        read.ok() ? host.Unpack(transfer, (*read)[0]) : void(status = read.error());
      }));
      RETURN_IF_ERROR(device->Wait(event));
      RETURN_IF_ERROR(status);
      continue;
    }
    buffers.push_back(transfer);
    requests.push_back({where.buffer, where.offset_bytes, plan.resources[size_t(transfer.resource)].size_bytes});
  }
  if (!requests.empty()) {
    Status status;
    ASSIGN_OR_RETURN(EventPtr event, device->Read(std::move(requests), [&](Result<Spans> read) {
      if (!read.ok()) return void(status = read.error());
      for (size_t i = 0; i < buffers.size(); ++i) host.Unpack(buffers[i], (*read)[i]);
    }));
    RETURN_IF_ERROR(device->Wait(event));
    RETURN_IF_ERROR(status);
  }
  Status status;
  for (int n : step.nodes) {
    status = host.Evaluate(n);
    if (!status.ok()) break;
  }
  if (!device) {  // also after an error: the states keep their memory
    for (size_t s = 0; s < plan.states.size(); ++s) {
      const PlanState& planned = plan.states[s];
      HostTensor& last = host[planned.after];
      StateOf(s).host =
          last.bytes().data() ? std::exchange(last, HostTensor()) : HostTensor(planned.type.dtype, planned.type.shape);
    }
  }
  RETURN_IF_ERROR(status);
  for (const PlanTransfer& transfer : step.uploads) {
    const ResourceLocation where = LocationOf(transfer.resource);
    const std::vector<std::byte> packed = host.Pack(transfer);
    RETURN_IF_ERROR(where.texture ? device->WriteTexture(*where.texture, packed)
                                  : device->Write(*where.buffer, where.offset_bytes, packed));
  }
  return {};
}

Result<EventPtr> BoundStage::Start(int part, std::span<const StageRead> reads, Device::ReadDone done, bool timestamps) {
  const LaunchPlan& plan = stage_.plan_;
  const Part& planned = parts_[size_t(part)];
  Device* device = stage_.context_.device.get();
  const bool is_last = part + 1 == part_count();
  if (planned.submission < 0) RETURN_IF_ERROR(RunOnCpu(plan.steps[size_t(planned.step)]));

  // What is only on the host is taken from there, now.
  std::vector<ReadRequest> requests;
  std::vector<std::vector<std::byte>> host_bytes;
  if (is_last) {
    for (const StageRead& read : reads) {
      const int r = plan.value_resource[size_t(read.value)];
      if (device && r >= 0) {
        const ResourceLocation where = LocationOf(r);
        requests.push_back({where.buffer, where.offset_bytes + read.offset_bytes, read.size_bytes});
        continue;
      }
      const HostTensor* tensor = &stage_.host_[read.value];
      for (size_t s = 0; s < plan.states.size(); ++s) {
        if (plan.states[s].after == read.value || plan.states[s].before == read.value) tensor = &StateOf(s).host;
      }
      const auto bytes = tensor->bytes();
      if (read.offset_bytes > bytes.size() || read.size_bytes > bytes.size() - read.offset_bytes) {
        return Error{Code::kInvalidArgument,
                     StrCat("\"", plan.graph.value(read.value).name, "\" has ", bytes.size(), " bytes; bytes ",
                            read.offset_bytes, " to ", read.offset_bytes + read.size_bytes, " are read.")};
      }
      const auto piece = bytes.subspan(read.offset_bytes, read.size_bytes);
      host_bytes.emplace_back(piece.begin(), piece.end());
    }
  }
  if (!host_bytes.empty()) {
    if (!requests.empty()) {
      return Error{Code::kUnsupported,
                   "What a run leaves on the host and what it leaves on the device are not read in one go."};
    }
    done = [done = std::move(done), host_bytes = std::move(host_bytes)](Result<Spans> read) {
      if (!done) return;
      if (!read.ok()) return done(std::move(read));
      Spans spans(host_bytes.begin(), host_bytes.end());
      done(std::move(spans));
    };
  }

  if (planned.submission < 0) {
    if (!requests.empty()) return device->Read(std::move(requests), std::move(done));
    if (is_last && done) done(Spans());
    return EventPtr(CompletionEvent::Done({}));
  }
  Recording& recording = *recordings_[size_t(planned.step)][size_t(planned.submission)];
  const SubmitOptions submit{.params = plan.params, .timestamps = timestamps};
  if (!is_last || !done) return device->Submit(recording, submit);
  return device->SubmitAndRead(recording, submit, std::move(requests), std::move(done));
}

Result<EventPtr> BoundStage::Run(std::span<const StageRead> reads, Device::ReadDone done, bool timestamps) {
  for (int part = 0; part + 1 < part_count(); ++part) RETURN_IF_ERROR(Start(part, {}, nullptr, timestamps));
  return Start(part_count() - 1, reads, std::move(done), timestamps);
}

std::vector<uint64_t> BoundStage::Times() const {
  std::vector<uint64_t> all(stage_.plan_.dispatches.size());
  if (!stage_.context_.device) return {};
  for (size_t s = 0; s < recordings_.size(); ++s) {
    const PlanStep& step = stage_.plan_.steps[s];
    for (size_t r = 0; r < recordings_[s].size(); ++r) {
      const auto times = stage_.context_.device->ReadTimestamps(*recordings_[s][r]);
      if (times.empty()) return {};
      std::copy(times.begin(), times.end(), all.begin() + step.submissions[r]);
    }
  }
  return all;
}

}  // namespace leeway
