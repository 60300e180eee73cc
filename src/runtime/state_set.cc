#include "runtime/state_set.h"

#include <cstring>

#include "base/strings.h"
#include "device/event.h"
#include "runtime/weight_store.h"

namespace leeway {

Result<std::unique_ptr<StateSet>> StateSet::Make(std::span<const LaunchPlan* const> plans, Device* device) {
  auto set = std::make_unique<StateSet>();
  set->device_ = device;
  for (const LaunchPlan* plan : plans) {
    for (const PlanState& planned : plan->states) {
      const PlanResource* resource = planned.resource >= 0 ? &plan->resources[size_t(planned.resource)] : nullptr;
      if (const int known = set->Find(planned.name); known >= 0) {
        const State& state = set->states_[size_t(known)];
        if (state.type != planned.type) {
          return Error{Code::kInvalidArgument, StrCat("The state \"", planned.name, "\" is ", state.type.ToString(),
                                                      " in one plan and ", planned.type.ToString(), " in another.")};
        }
        if (resource && !SamePlacement(state.placement, resource->placement)) {
          return Error{Code::kInvalidArgument, StrCat("Two plans place the state \"", planned.name, "\" differently.")};
        }
        continue;
      }
      State state{planned.name, planned.type, {}, nullptr, {}};
      if (!device) {
        state.host = HostTensor(planned.type.dtype, planned.type.shape);
      } else if (resource) {
        state.placement = resource->placement;
        ASSIGN_OR_RETURN(state.buffer, device->CreateBuffer(resource->size_bytes, StrCat("state ", planned.name)));
        RETURN_IF_ERROR(WriteZeros(*device, *state.buffer));
      }
      set->states_.push_back(std::move(state));
    }
  }
  return set;
}

int StateSet::Find(std::string_view name) const {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].name == name) return int(i);
  }
  return -1;
}

uint64_t StateSet::StoredBytes(int state) const {
  const State& s = states_[size_t(state)];
  return device_ ? (s.buffer ? uint64_t(s.placement.storage_bytes()) : 0) : s.host.bytes().size();
}

uint64_t StateSet::size_bytes() const {
  uint64_t total = 0;
  for (size_t i = 0; i < states_.size(); ++i) total += StoredBytes(int(i));
  return total;
}

Status StateSet::Write(int state, uint64_t offset_bytes, std::span<const std::byte> bytes) {
  State& s = states_[size_t(state)];
  if (offset_bytes > StoredBytes(state) || bytes.size() > StoredBytes(state) - offset_bytes) {
    return Error{Code::kInvalidArgument, StrCat("The state \"", s.name, "\" has ", StoredBytes(state), " bytes; bytes ",
                                                offset_bytes, " to ", offset_bytes + bytes.size(), " are written.")};
  }
  if (bytes.empty()) return {};
  if (device_) return device_->Write(*s.buffer, offset_bytes, bytes);
  std::memcpy(s.host.mutable_bytes().data() + offset_bytes, bytes.data(), bytes.size());
  return {};
}

Result<EventPtr> StateSet::Read(std::span<const Range> ranges, Device::ReadDone done) const {
  std::vector<ReadRequest> requests;
  std::vector<std::span<const std::byte>> spans;
  for (const Range& range : ranges) {
    const State& s = states_[size_t(range.state)];
    if (range.offset_bytes > StoredBytes(range.state) || range.size_bytes > StoredBytes(range.state) - range.offset_bytes) {
      return Error{Code::kInvalidArgument,
                   StrCat("The state \"", s.name, "\" has ", StoredBytes(range.state), " bytes; bytes ", range.offset_bytes,
                          " to ", range.offset_bytes + range.size_bytes, " are read.")};
    }
    if (device_) {
      requests.push_back({s.buffer.get(), range.offset_bytes, range.size_bytes});
    } else {
      spans.push_back(s.host.bytes().subspan(range.offset_bytes, range.size_bytes));
    }
  }
  if (device_) return device_->Read(std::move(requests), std::move(done));
  if (done) done(std::move(spans));
  return EventPtr(CompletionEvent::Done({}));
}

}  // namespace leeway
