// A traced call site: the trie of op streams seen there, and what is known about each way a stream ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/source_location.h"
#include "tracer/divergence.h"
#include "tracer/path.h"

namespace etch {

/// Why a stream of ops ended.
enum class FlushReason : uint8_t { EndOfBody, HostRead, HostWrite, Explicit, FrozenCall, Limit };
std::string_view describe(FlushReason reason);
/// " at file:line"; empty if it is not known.
std::string at_place(SourceLocation where);

struct PathNode;

/// What happens when a flush comes at a given point of the trie.
struct PathEnd {
  std::mutex mutex;
  PathNode* node = nullptr;
  FlushReason reason = FlushReason::EndOfBody;
  SourceLocation where;
  const PathEnd* after = nullptr;  ///< the one that the body had come to just before, at first; null: none
  Divergence divergence;           ///< from the paths before it
  std::vector<Ref<Executable>> executables;
  std::vector<LiveSet> live_sets;  ///< seen since the last compile, without an executable for them
  int64_t compiled_calls = 0;
  int64_t eager_calls = 0;
  int64_t declined_calls = 0;         ///< an executable's check failed: run op by op
  int64_t calls_while_compiling = 0;  ///< of the eager ones
  int compiles = 0;
  int evictions = 0;  ///< of its executable, by the limit on their number
  int64_t eager_calls_since_eviction = 0;
  std::atomic<int64_t> last_used{0};  ///< see tracer/eviction.h
  bool compiling = false;
  double compile_ms = 0;
  std::string compile_error;         ///< why this path stays eager; empty if it does not
  std::vector<OperandValue> values;  ///< of a call run op by op, or of the last one once the site is watched
  std::unique_ptr<Path> path;
};

/// One op of a stream. Nodes are never removed while their site lives; children are read without a lock.
struct PathNode {
  RecordedOp op;
  std::span<const uint64_t> key;  ///< everything that must agree for the cursor to move here
  PathNode* parent = nullptr;
  int depth = 0;  ///< ops from the root to here, this one included
  std::atomic<PathNode*> first_child{nullptr};
  std::atomic<PathNode*> next_sibling{nullptr};
  std::atomic<PathEnd*> end{nullptr};
  std::span<const RecordedStorage> new_storages;  ///< numbered for the first time by this op

  /// The child with exactly this key, or null.
  PathNode* find(std::span<const uint64_t> words) const;
};

struct SiteOptions {
  std::string name = "traced function";
  int compile_at = 2;  ///< compile a path at this sighting; 1: before its first run
  int max_paths = 16;  ///< then known paths go on, and what leaves them runs eagerly
  int64_t memory_budget = 0;
  bool background = false;  ///< compile on the background thread; calls run op by op until it is done
};

/// One traced function. May be entered from many threads at once. A compile on the background thread keeps a
/// site that is owned by shared pointers, which so may be dropped at any time.
class Site : public std::enable_shared_from_this<Site> {
 public:
  explicit Site(SiteOptions options);
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  const SiteOptions& options() const { return options_; }
  PathNode* root() { return &root_; }
  /// The child of `parent` with this key, made if there is none yet.
  PathNode* insert(PathNode* parent, std::span<const uint64_t> key, RecordedOp op,
                   std::span<const RecordedStorage> new_storages);
  /// The end at `node`; a new one is counted as a path, that began `after` another. Null for a new one when
  /// the site has given up.
  PathEnd* end_at(PathNode* node, FlushReason reason, SourceLocation where, const PathEnd* after = nullptr);
  /// The end at `node` if there is one, for a flush that must not compile: while an exception is in flight.
  PathEnd* abandoned_at(PathNode* node);
  /// Whether it takes no more paths: calls follow known ones, and from where they leave them run eagerly.
  bool gave_up() const { return gave_up_.load(std::memory_order_relaxed); }
  /// Whether the next call of a site that gave up should look for a known path: not always, when many calls
  /// in a row took none.
  bool expects_known_path();
  void note_known_path() { misses_.store(0, std::memory_order_relaxed); }
  void note_unknown_path();
  /// From now on ends keep the values of each call: somebody asks for reports.
  void watch() const { watched_.store(true, std::memory_order_relaxed); }
  bool watched() const { return watched_.load(std::memory_order_relaxed); }
  /// Counts a compile; warns, once, when they come often.
  void note_compile();

  /// Ends in order of creation, for reports.
  std::vector<PathEnd*> ends() const;
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> eager_calls_after_giving_up{0};  ///< all of the call, or its last part

 private:
  void give_up(const std::string& why);
  std::string why_so_many_paths() const;
  SiteOptions options_;
  PathNode root_;
  mutable std::mutex mutex_;
  std::pmr::monotonic_buffer_resource node_data_;  ///< what the spans of nodes refer to
  std::deque<PathNode> nodes_;
  std::deque<std::unique_ptr<PathEnd>> ends_;
  std::atomic<bool> gave_up_{false};
  mutable std::atomic<bool> watched_{false};
  std::atomic<int> misses_{0};         ///< calls in a row that took no known path, since giving up
  std::atomic<int> calls_to_skip_{0};  ///< that will not be traced
  std::atomic<int> compiles_{0};
  std::atomic<int> abandoned_{0};  ///< streams that an exception ended where no path does
};

/// The ops from the root to `node`, with the storages they number.
Path path_to(const PathNode* node);

}  // namespace etch
