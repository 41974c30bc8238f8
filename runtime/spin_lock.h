// A lock for critical sections of a few instructions.
#pragma once

#include <atomic>

namespace etch {

/// Meets BasicLockable. One atomic exchange to take, a plain store to release; waiters yield.
class SpinLock {
 public:
  void lock() {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void wait();
  std::atomic<bool> taken_{false};
};

}  // namespace etch
