// Waiting without blocking: an Event is something that will be done.
#pragma once

#include <functional>
#include <memory>

#include "leeway/result.h"

namespace leeway {

// Continuations run inside Poll or Wait of the object that gave the event (a CompiledModel, a Device), on the thread that calls
// it: nothing happens behind the caller's back.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
  virtual Status status() const = 0;                            // only when done: kDeviceLost, kOutOfMemory, ...
  virtual void OnDone(std::function<void()> continuation) = 0;  // at once if it is done
};
using EventPtr = std::shared_ptr<Event>;

}  // namespace leeway
