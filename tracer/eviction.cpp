// Which ends of paths have executables, and when each was used.
#include "tracer/eviction.h"

#include <algorithm>

#include "runtime/config.h"

namespace etch {
namespace {

// Never destroyed. Its mutex is taken before an end's.
struct Compiled {
  std::mutex mutex;
  std::vector<PathEnd*> ends;
};
Compiled& compiled() {
  static Compiled* const all = new Compiled;
  return *all;
}

constinit std::atomic<int64_t> uses{0};

}  // namespace

void touch(PathEnd& end) {
  end.last_used.store(uses.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void evict_beyond_limit(PathEnd& end) {
  touch(end);
  const auto limit = static_cast<size_t>(config().max_executables);
  std::vector<Ref<Executable>> dropped;  // destroyed without the locks
  Compiled& all = compiled();
  std::lock_guard lock(all.mutex);
  if (std::find(all.ends.begin(), all.ends.end(), &end) == all.ends.end()) all.ends.push_back(&end);
  while (limit > 0 && all.ends.size() > limit) {
    const auto oldest = std::min_element(all.ends.begin(), all.ends.end(), [&](PathEnd* a, PathEnd* b) {
      if (a == &end || b == &end) return b == &end && a != b;
      return a->last_used.load(std::memory_order_relaxed) < b->last_used.load(std::memory_order_relaxed);
    });
    if (*oldest == &end) break;
    PathEnd& victim = **oldest;
    all.ends.erase(oldest);
    std::lock_guard victim_lock(victim.mutex);
    ++victim.evictions;
    victim.eager_calls_since_eviction = 0;
    // The next compile serves the same calls.
    victim.live_sets.clear();
    for (Ref<Executable>& executable : victim.executables) {
      victim.live_sets.push_back(executable->live());
      dropped.push_back(std::move(executable));
    }
    victim.executables.clear();
    log(1, join_text({"evicted the least recently used of ", static_cast<int64_t>(limit),
                      " compiled paths (ETCH_MAX_EXECUTABLES), one of ",
                      static_cast<int64_t>(victim.path->ops.size()), " ops"}));
  }
}

void forget_executables(PathEnd& end) {
  Compiled& all = compiled();
  std::lock_guard lock(all.mutex);
  std::erase(all.ends, &end);
}

bool may_compile_again(const PathEnd& end) {
  if (end.evictions < 2) return true;
  return end.eager_calls_since_eviction + 1 >= int64_t{1} << std::min(end.evictions - 1, 20);
}

}  // namespace etch
