// Counter-based random numbers: a generator only hands out (seed, offset); kernels compute Philox4x32-10 from
// them.
#pragma once

#include <cstdint>
#include <mutex>

namespace etch {

/// Where one random op starts: every element i uses counter offset + i / 4 of the stream `seed`.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

/// A stream of random numbers. Thread-safe.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0x2545F4914F6CDD1Dull) : state_{seed, 0} {}
  void manual_seed(uint64_t seed);
  /// Takes counters for `count` elements; returns where they start.
  PhiloxState reserve(int64_t count);
  PhiloxState state() const;
  void set_state(PhiloxState state);

 private:
  mutable std::mutex mutex_;
  PhiloxState state_;
};

Generator& default_generator();
/// Seeds the default generator.
void manual_seed(uint64_t seed);

}  // namespace etch
