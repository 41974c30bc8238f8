// Insertion into a site's trie, and the words that explain its paths.
#include "tracer/site.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/config.h"
#include "tracer/background.h"
#include "tracer/eviction.h"

namespace etch {

std::string_view describe(FlushReason reason) {
  switch (reason) {
    case FlushReason::EndOfBody:
      return "end of the body";
    case FlushReason::HostRead:
      return "the host read a value";
    case FlushReason::HostWrite:
      return "the host wrote to a tensor in use";
    case FlushReason::Explicit:
      return "etch::flush()";
    case FlushReason::FrozenCall:
      return "a call of a frozen function";
    case FlushReason::Limit:
      break;
  }
  return "the stream grew too long";
}

std::string at_place(SourceLocation where) {
  return where.line ? join_text({" at ", where.file, ":", where.line}) : "";
}

PathNode* PathNode::find(std::span<const uint64_t> words) const {
  const size_t bytes = words.size_bytes();
  for (PathNode* child = first_child.load(std::memory_order_acquire); child;
       child = child->next_sibling.load(std::memory_order_acquire)) {
    if (child->key.size() == words.size() && std::memcmp(child->key.data(), words.data(), bytes) == 0)
      return child;
  }
  return nullptr;
}

Site::Site(SiteOptions options) : options_(std::move(options)) {}
Site::~Site() {
  if (options_.background) cancel_background(&options_);
  for (const auto& end : ends_) forget_executables(*end);
}

PathNode* Site::insert(PathNode* parent, std::span<const uint64_t> key, RecordedOp op,
                       std::span<const RecordedStorage> new_storages) {
  std::lock_guard lock(mutex_);
  if (PathNode* found = parent->find(key)) return found;
  const auto keep = [this]<class T>(std::span<const T> from) {
    T* to = static_cast<T*>(node_data_.allocate(from.size_bytes(), alignof(T)));
    std::uninitialized_copy(from.begin(), from.end(), to);
    return std::span<const T>(to, from.size());
  };
  PathNode* node = &nodes_.emplace_back();
  node->op = std::move(op);
  node->key = keep(key);
  node->parent = parent;
  node->depth = parent->depth + 1;
  node->new_storages = keep(new_storages);
  // Siblings are appended, so that the oldest path is the first to be compared.
  std::atomic<PathNode*>* link = &parent->first_child;
  while (PathNode* sibling = link->load(std::memory_order_relaxed)) link = &sibling->next_sibling;
  link->store(node, std::memory_order_release);
  return node;
}

void Site::give_up(const std::string& why) {
  if (gave_up_.exchange(true, std::memory_order_relaxed)) return;
  log(0, join_text({options_.name, ": ", why, " in ", calls.load(),
                    " calls, so new ones run eagerly from now on", why_so_many_paths(),
                    ". explain() tells more"}));
}

bool Site::expects_known_path() {
  if (calls_to_skip_.load(std::memory_order_relaxed) <= 0) return true;
  calls_to_skip_.fetch_sub(1, std::memory_order_relaxed);
  eager_calls_after_giving_up.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void Site::note_unknown_path() {
  constexpr int kPatience = 8;
  constexpr int kMostSkipped = 31;
  eager_calls_after_giving_up.fetch_add(1, std::memory_order_relaxed);
  const int in_a_row = misses_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (in_a_row >= kPatience)
    calls_to_skip_.store(std::min(kMostSkipped, (2 << std::min(in_a_row - kPatience, 10)) - 1),
                         std::memory_order_relaxed);
}

// Under the lock.
std::string Site::why_so_many_paths() const {
  const PathEnd* most = nullptr;
  int64_t most_seen = 0;
  for (const auto& end : ends_) {
    const Divergence& one = end->divergence;
    if (one.kind == Divergence::Kind::None) continue;
    const int64_t seen = std::count_if(ends_.begin(), ends_.end(), [&](const auto& other) {
      const Divergence& two = other->divergence;
      return two.kind == one.kind && two.op == one.op && two.what == one.what;
    });
    if (seen < most_seen) continue;
    most_seen = seen;
    most = end.get();
  }
  if (!most) return "";
  std::string text =
      join_text({". What made most of its paths (", most_seen, "): ", most->divergence.text()});
  if (most->after)
    text += join_text({", after ", describe(most->after->reason), at_place(most->after->where)});
  return text + join_text({"; ", remedy(most->divergence.kind)});
}

// Rare enough after a warm-up, a compile is no news.
void Site::note_compile() {
  constexpr int kMany = 8;
  constexpr int64_t kCallsBetween = 20;
  const int count = compiles_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (count != kMany || calls.load(std::memory_order_relaxed) > kMany * kCallsBetween) return;
  std::lock_guard lock(mutex_);
  int evictions = 0;
  for (const auto& end : ends_) {
    std::lock_guard end_lock(end->mutex);
    evictions += end->evictions;
  }
  const bool few_paths = static_cast<int>(ends_.size()) < kMany / 2;
  std::string why;
  if (evictions >= kMany / 2 || (few_paths && evictions))
    why = ". Its plans were evicted: raise ETCH_MAX_EXECUTABLES";
  else if (few_paths)
    why = ". What outlives it differed from call to call: keep, or drop, the same tensors each time";
  else
    why = why_so_many_paths();
  log(0, join_text({options_.name, ": compiled ", count, " times in ", calls.load(), " calls", why,
                    ". explain() tells more"}));
}

PathEnd* Site::end_at(PathNode* node, FlushReason reason, SourceLocation where, const PathEnd* after) {
  if (PathEnd* end = node->end.load(std::memory_order_acquire)) return end;
  std::lock_guard lock(mutex_);
  if (PathEnd* end = node->end.load(std::memory_order_relaxed)) return end;
  if (gave_up()) return nullptr;
  if (static_cast<int>(ends_.size()) >= options_.max_paths) {
    give_up(join_text({"more than ", options_.max_paths, " paths"}));
    return nullptr;
  }
  auto end = std::make_unique<PathEnd>();
  end->node = node;
  end->reason = reason;
  end->where = where;
  end->after = after;
  end->path = std::make_unique<Path>(path_to(node));
  end->divergence = find_divergence(*end, ends_);
  ends_.push_back(std::move(end));
  node->end.store(ends_.back().get(), std::memory_order_release);
  return ends_.back().get();
}

// Streams that exceptions end are no paths, or a few bad calls would use up the limit; but they grow the
// trie.
PathEnd* Site::abandoned_at(PathNode* node) {
  PathEnd* end = node->end.load(std::memory_order_acquire);
  if (!end && !gave_up() &&
      abandoned_.fetch_add(1, std::memory_order_relaxed) + 1 >= 64 * options_.max_paths) {
    std::lock_guard lock(mutex_);
    give_up(join_text({64 * options_.max_paths, " calls that threw"}));
  }
  return end;
}

std::vector<PathEnd*> Site::ends() const {
  std::lock_guard lock(mutex_);
  std::vector<PathEnd*> ends;
  for (const auto& end : ends_) ends.push_back(end.get());
  return ends;
}

Path path_to(const PathNode* node) {
  std::vector<const PathNode*> chain;
  for (const PathNode* at = node; at->parent; at = at->parent) chain.push_back(at);
  std::reverse(chain.begin(), chain.end());
  Path path;
  path.ops.reserve(chain.size());
  path.storages.reserve(2 * chain.size());
  for (const PathNode* at : chain) {
    path.ops.push_back(&at->op);
    path.storages.insert(path.storages.end(), at->new_storages.begin(), at->new_storages.end());
  }
  return path;
}

}  // namespace etch
