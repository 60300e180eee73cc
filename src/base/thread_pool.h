// Threads for loops whose turns do not depend on each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace leeway {

// A pool lives as long as the work that needs it (a load); there is no global one. With one thread everything runs on the
// caller.
class ThreadPool {
 public:
  // `threads` counts the caller of For; 0: as many as the machine has cores. Threads that cannot be started are done without.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const;

  // work(i) for 0 <= i < count, each once, on the pool's threads and the caller's; returns when all are done. What the turns
  // wrote is visible then. `work` must not call For of the same pool.
  void For(int64_t count, const std::function<void(int64_t)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leeway
