// The event that both backends hand out: completed once, on the thread that polls or waits.
#pragma once

#include <utility>
#include <vector>

#include "device/device.h"

namespace leeway {

class CompletionEvent : public Event {
 public:
  bool done() const override { return done_; }
  Status status() const override { return status_; }
  void OnDone(std::function<void()> continuation) override {
    if (done_) {
      continuation();
    } else {
      continuations_.push_back(std::move(continuation));
    }
  }

  // Only the first call counts.
  void Complete(Status status) {
    if (done_) return;
    status_ = std::move(status);
    done_ = true;
    auto continuations = std::move(continuations_);
    for (auto& continuation : continuations) continuation();
  }

  static std::shared_ptr<CompletionEvent> Done(Status status) {
    auto event = std::make_shared<CompletionEvent>();
    event->Complete(std::move(status));
    return event;
  }

 private:
  bool done_ = false;
  Status status_;
  std::vector<std::function<void()>> continuations_;
};

}  // namespace leeway
