// The one thread pool. Only parallel.cpp knows what runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace etch {

/// A non-owning reference to a callable (begin, end).
class RangeFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFunction>) RangeFunction(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Splits [0, count) into at most num_threads() ranges of at least `grain` and runs them, the caller
/// included; returns when all are done. Runs inline when one range is enough or when called from inside a
/// range. The first exception of a range is rethrown.
void parallel_for(int64_t count, int64_t grain, RangeFunction f);

/// Threads of parallel work. Also makes the setting hold for OpenMP in the calling thread (OpenMP keeps one
/// for each), so call it before a library that runs on OpenMP.
int num_threads();
/// Threads of later parallel work, oneDNN's included; throws ValueError below 1. Work in progress on other
/// threads, replays and compiles among it, keeps its number.
void set_num_threads(int count);

/// While it lives, num_threads() of this thread is `count`, whatever anyone sets: for work whose memory was
/// measured for a number of threads.
class HeldThreads {
 public:
  explicit HeldThreads(int count);
  ~HeldThreads();
  HeldThreads(const HeldThreads&) = delete;
  HeldThreads& operator=(const HeldThreads&) = delete;

 private:
  int before_;
};

}  // namespace etch
