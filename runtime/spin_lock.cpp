// The waiting side of SpinLock.
#include "runtime/spin_lock.h"

#include <sched.h>

namespace etch {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void SpinLock::wait() {
  constexpr int kSpins = 128;
  for (int spins = 0;; ++spins) {
    if (!taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire)) return;
    if (spins < kSpins)
      pause_briefly();
    else
      ::sched_yield();  // the holder may have lost its core
  }
}

}  // namespace etch
