// The thread pool: OpenMP's, which oneDNN shares; with ETCH_STD_THREAD_POOL one of std::thread, whose
// synchronisation the thread sanitizer can see.
#include "runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/parallel_testing.h"

#if ETCH_STD_THREAD_POOL
#include <condition_variable>
#include <thread>
#else
#include <omp.h>
#endif

namespace etch {
namespace {

thread_local constinit bool inside_range = false;
thread_local constinit int held_threads = 0;  // 0: none are
constinit std::atomic<int64_t> largest_grain{0};

/// One call of parallel_for: ranges of near-equal size.
struct Job {
  RangeFunction f;
  int64_t count;
  int64_t ranges;
  std::mutex mutex = {};
  std::exception_ptr error = {};

  void run(int64_t range) noexcept {
    const int64_t each = count / ranges, longer = count % ranges;
    const int64_t begin = range * each + std::min(range, longer);
    const bool outer = std::exchange(inside_range, true);
    try {
      f(begin, begin + each + (range < longer));
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
    inside_range = outer;
  }
};

#if ETCH_STD_THREAD_POOL

int default_threads() { return std::max(1u, std::thread::hardware_concurrency()); }
void use_threads(int) {}
bool inside_parallel() { return inside_range; }

/// Workers that take ranges of the current job from a counter. Never destroyed: they wait when the process
/// ends.
class Pool {
 public:
  /// False when another thread's job is running.
  bool run(Job& job, int threads) {
    std::unique_lock callers(callers_, std::try_to_lock);
    if (!callers) return false;
    std::unique_lock lock(mutex_);
    for (; workers_ < threads - 1; ++workers_) std::thread([this] { work(); }).detach();
    job_ = &job;
    next_ = 0;
    unfinished_ = job.ranges;
    lock.unlock();
    wake_.notify_all();
    lock.lock();
    take_ranges(lock);
    done_.wait(lock, [this] { return unfinished_ == 0; });
    job_ = nullptr;
    return true;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return job_ && next_ < job_->ranges; });
      take_ranges(lock);
    }
  }
  void take_ranges(std::unique_lock<std::mutex>& lock) {
    while (job_ && next_ < job_->ranges) {
      const int64_t range = next_++;
      Job& job = *job_;
      lock.unlock();
      job.run(range);
      lock.lock();
      if (--unfinished_ == 0) done_.notify_one();
    }
  }

  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  int64_t next_ = 0;
  int64_t unfinished_ = 0;
  int workers_ = 0;
};

void run_all(Job& job, int threads) {
  static Pool* const pool = new Pool;
  if (pool->run(job, threads)) return;
  for (int64_t range = 0; range < job.ranges; ++range) job.run(range);
}

#else

int default_threads() { return omp_get_max_threads(); }
void use_threads(int count) { omp_set_num_threads(count); }
bool inside_parallel() { return inside_range || omp_in_parallel(); }

void run_all(Job& job, int threads) {
  // The whole team even for fewer ranges: libgomp ends and restarts threads when a team's size changes.
#pragma omp parallel num_threads(threads)
  {
    const int team = omp_get_num_threads();
    for (int64_t range = omp_get_thread_num(); range < job.ranges; range += team) job.run(range);
  }
}

#endif

std::atomic<int>& thread_setting() {
  static std::atomic<int> setting = config().threads > 0 ? config().threads : default_threads();
  return setting;
}

}  // namespace

int num_threads() {
  // OpenMP keeps its setting for each calling thread.
  thread_local constinit int in_use = 0;
  const int count = held_threads > 0 ? held_threads : thread_setting().load(std::memory_order_relaxed);
  if (in_use != count) {
    use_threads(count);
    in_use = count;
  }
  return count;
}

void set_num_threads(int count) {
  ETCH_CHECK(count >= 1, ValueError, "set_num_threads: expected at least 1 thread, got ", count);
  thread_setting().store(count, std::memory_order_relaxed);
  num_threads();
}

HeldThreads::HeldThreads(int count) : before_(std::exchange(held_threads, count)) {}
HeldThreads::~HeldThreads() { held_threads = before_; }

void limit_grain(int64_t most) { largest_grain.store(most, std::memory_order_relaxed); }

void parallel_for(int64_t count, int64_t grain, RangeFunction f) {
  if (count <= 0) return;
  if (const int64_t most = largest_grain.load(std::memory_order_relaxed)) grain = std::min(grain, most);
  const int64_t wanted = count / std::max<int64_t>(grain, 1);
  if (wanted <= 1 || inside_parallel()) return f(0, count);
  const int threads = num_threads();
  if (threads == 1) return f(0, count);
  Job job{f, count, std::min<int64_t>(threads, wanted)};
  run_all(job, threads);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace etch
