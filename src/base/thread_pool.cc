#include "base/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace leeway {

struct ThreadPool::State {
  std::vector<pthread_t> threads;
  std::mutex mutex;
  std::condition_variable wake, finished;
  // Guarded by `mutex`; a new round has a new number.
  uint64_t round = 0;
  int busy = 0;
  bool quit = false;
  const std::function<void(int64_t)>* work = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};

  void Turns() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*work)(i);
  }

  void Loop() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return quit || round != seen; });
      if (quit) return;
      seen = round;
      lock.unlock();
      Turns();
      lock.lock();
      if (--busy == 0) finished.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = int(std::thread::hardware_concurrency());
  for (int i = 1; i < threads; ++i) {
    // Not std::thread, which throws where there are no more threads to be had.
    pthread_t thread;
    auto run = [](void* state) -> void* { return static_cast<State*>(state)->Loop(), nullptr; };
    if (pthread_create(&thread, nullptr, run, state_.get()) != 0) break;
    state_->threads.push_back(thread);
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->quit = true;
  }
  state_->wake.notify_all();
  for (pthread_t thread : state_->threads) pthread_join(thread, nullptr);
}

int ThreadPool::thread_count() const { return int(state_->threads.size()) + 1; }

void ThreadPool::For(int64_t count, const std::function<void(int64_t)>& work) {
  if (state_->threads.empty() || count < 2) {
    for (int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->work = &work;
    state_->count = count;
    state_->next.store(0, std::memory_order_relaxed);
    state_->busy = int(state_->threads.size());
    ++state_->round;
  }
  state_->wake.notify_all();
  state_->Turns();
  std::unique_lock lock(state_->mutex);
  state_->finished.wait(lock, [&] { return state_->busy == 0; });
}

}  // namespace leeway
