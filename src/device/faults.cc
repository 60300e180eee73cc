// A device that fails on order, for tests of what lies above.
#include <utility>

#include "base/strings.h"
#include "device/event.h"

namespace leeway {
namespace {

class FaultDevice : public Device {
 public:
  FaultDevice(std::unique_ptr<Device> device, const FaultPlan& plan) : device_(std::move(device)), plan_(plan) {}

  const DeviceInfo& info() const override { return device_->info(); }
  Result<std::unique_ptr<Buffer>> CreateBuffer(uint64_t size_bytes, std::string_view label) override {
    RETURN_IF_ERROR(lost_);
    RETURN_IF_ERROR(CountAllocation(label));
    return device_->CreateBuffer(size_bytes, label);
  }
  Result<std::unique_ptr<Texture>> CreateTexture(const TextureSpec& spec, std::string_view label) override {
    RETURN_IF_ERROR(lost_);
    RETURN_IF_ERROR(CountAllocation(label));
    return device_->CreateTexture(spec, label);
  }
  Result<Compiling> StartCompile(const shader::KernelText& kernel) override { return StartCompileFromBinary(kernel, {}); }
  Result<Compiling> StartCompileFromBinary(const shader::KernelText& kernel, std::span<const std::byte> binary) override {
    RETURN_IF_ERROR(lost_);
    ASSIGN_OR_RETURN(Compiling compiling,
                     binary.empty() ? device_->StartCompile(kernel) : device_->StartCompileFromBinary(kernel, binary));
    if (compiles_++ != plan_.fail_compile) return compiling;
    auto failed = std::make_shared<CompletionEvent>();
    pending_.push_back({failed, nullptr,
                        Error{Code::kInternal, StrCat("The device's compiler refuses kernel ", kernel.name, ": as ordered.")}});
    compiling.ready = failed;
    return compiling;
  }
  std::vector<std::byte> PipelineBinary(const Pipeline& pipeline) override { return device_->PipelineBinary(pipeline); }
  Result<std::unique_ptr<Recording>> Record(std::vector<Dispatch> dispatches) override {
    RETURN_IF_ERROR(lost_);
    return device_->Record(std::move(dispatches));
  }
  Result<EventPtr> Submit(Recording& recording, const SubmitOptions& options) override {
    RETURN_IF_ERROR(lost_);
    if (submits_++ == plan_.lose_at_submit) return Lose(nullptr);
    return device_->Submit(recording, options);
  }
  Result<EventPtr> SubmitAndRead(Recording& recording, const SubmitOptions& options, std::vector<ReadRequest> requests,
                                 ReadDone done) override {
    RETURN_IF_ERROR(lost_);
    if (submits_++ == plan_.lose_at_submit) return Lose(std::move(done));
    return device_->SubmitAndRead(recording, options, std::move(requests), std::move(done));
  }
  std::vector<uint64_t> ReadTimestamps(Recording& recording) override { return device_->ReadTimestamps(recording); }
  Status Write(Buffer& buffer, uint64_t offset_bytes, std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(lost_);
    return device_->Write(buffer, offset_bytes, bytes);
  }
  Status WriteTexture(Texture& texture, std::span<const std::byte> texels) override {
    RETURN_IF_ERROR(lost_);
    return device_->WriteTexture(texture, texels);
  }
  Result<EventPtr> Read(std::vector<ReadRequest> requests, ReadDone done) override {
    RETURN_IF_ERROR(lost_);
    return device_->Read(std::move(requests), std::move(done));
  }
  Result<EventPtr> ReadTexture(Texture& texture, ReadDone done) override {
    RETURN_IF_ERROR(lost_);
    return device_->ReadTexture(texture, std::move(done));
  }
  void Poll() override {
    device_->Poll();
    for (Pending& pending : std::exchange(pending_, {})) {
      if (pending.done) pending.done(pending.error);
      pending.event->Complete(pending.error);
    }
  }
  Status Wait(const EventPtr& event) override {
    bool ours = false;
    for (const Pending& pending : pending_) ours |= pending.event == event;
    if (ours) Poll();
    return event->done() ? event->status() : device_->Wait(event);
  }
  Status status() const override { return lost_.ok() ? device_->status() : lost_; }
  uint64_t allocated_bytes() const override { return device_->allocated_bytes(); }

 private:
  struct Pending {
    std::shared_ptr<CompletionEvent> event;
    ReadDone done;
    Error error;
  };

  Status CountAllocation(std::string_view label) {
    if (allocations_++ != plan_.fail_allocation) return {};
    return Error{Code::kOutOfMemory, StrCat("The allocation of \"", label, "\" fails, as ordered.")};
  }
  Result<EventPtr> Lose(ReadDone done) {
    const Error error = {Code::kDeviceLost,
                         StrCat("The device is lost at submission (", plan_.lose_at_submit, "), as ordered.")};
    lost_ = error;
    auto event = std::make_shared<CompletionEvent>();
    pending_.push_back({event, std::move(done), error});
    return EventPtr(event);
  }

  std::unique_ptr<Device> device_;
  FaultPlan plan_;
  int allocations_ = 0, submits_ = 0, compiles_ = 0;
  Status lost_;
  std::vector<Pending> pending_;
};

}  // namespace

std::unique_ptr<Device> WithFaults(std::unique_ptr<Device> device, const FaultPlan& plan) {
  return std::make_unique<FaultDevice>(std::move(device), plan);
}

}  // namespace leeway
