// The background thread and its queue.
#include "tracer/background.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

namespace etch {
namespace {

class Worker {
 public:
  void add(const void* owner, std::function<void()> job) {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (!started_) {
      started_ = true;
      std::thread thread([this] { work(); });
      thread_ = thread.get_id();
      thread.detach();
    }
    jobs_.push_back({owner, std::move(job)});
    changed_.notify_all();
  }

  void wait(const void* owner) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ != owner && !is_queued(owner); });
  }

  void cancel(const void* owner) {
    std::unique_lock lock(mutex_);
    std::erase_if(jobs_, [&](const Job& job) { return job.owner == owner; });
    if (std::this_thread::get_id() == thread_) return;
    changed_.wait(lock, [&] { return running_ != owner; });
  }

  void stop() {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    jobs_.clear();
    changed_.wait(lock, [&] { return !running_; });
  }

 private:
  struct Job {
    const void* owner;
    std::function<void()> run;
  };

  bool is_queued(const void* owner) const {
    return std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job.owner == owner; });
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !jobs_.empty(); });
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      running_ = job.owner;
      lock.unlock();
      job.run();
      job.run = nullptr;  // what it holds goes while its owner still waits
      lock.lock();
      running_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  const void* running_ = nullptr;  ///< the owner of the running job
  bool started_ = false;
  std::thread::id thread_;
  bool stopped_ = false;
};

// Never destroyed: its thread waits when the process ends.
Worker& worker() {
  static Worker* const only = [] {
    std::atexit([] { worker().stop(); });
    return new Worker;
  }();
  return *only;
}

}  // namespace

void run_in_background(const void* owner, std::function<void()> job) { worker().add(owner, std::move(job)); }
void wait_for_background(const void* owner) { worker().wait(owner); }
void cancel_background(const void* owner) { worker().cancel(owner); }

}  // namespace etch
