// The generators' counters.
#include "runtime/philox.h"

#include "runtime/error.h"

namespace etch {

void Generator::manual_seed(uint64_t seed) { set_state({seed, 0}); }

PhiloxState Generator::reserve(int64_t count) {
  ETCH_CHECK(count >= 0, ValueError, "Generator::reserve: expected a count of 0 or more, got ", count);
  std::lock_guard lock(mutex_);
  const PhiloxState start = state_;
  state_.offset += static_cast<uint64_t>(count) / 4 + (count % 4 != 0);
  return start;
}

PhiloxState Generator::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

void Generator::set_state(PhiloxState state) {
  std::lock_guard lock(mutex_);
  state_ = state;
}

Generator& default_generator() {
  static Generator* const generator = new Generator;
  return *generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace etch
