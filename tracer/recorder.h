// The recorder: defers ops while a traced body runs, matches them against the site's trie, and flushes them.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "runtime/source_location.h"
#include "runtime/storage.h"
#include "tracer/op.h"
#include "tracer/site.h"

namespace etch {

struct FlushCapture;

/// One a thread, reused. Idle unless a scope is open.
class Recorder final : public PendingWork {
 public:
  /// The recorder that defers ops on this thread now; null outside traces.
  static Recorder* active() { return active_; }

  /// Defers `call`: numbers its storages, moves the cursor, marks what is written. Fresh output storages are
  /// deferred ones; others are written in place (their version is bumped). Throws TraceError for a storage
  /// that is deferred or has a pending write in another thread's trace.
  void record(const OpCall& call);

  /// The op that comes next on a known path if it is exactly this call; null if it is not, or perhaps.
  /// Outputs without a storage are yet to be made: infer() would describe them as the node's outputs. `given`
  /// as for infer().
  PathNode* foresee(Op op, std::span<const Operand> inputs, const Attrs& attrs, DType given,
                    std::span<const Operand> outputs) const;
  /// record() for a call that foresee() has just found, once its outputs have storages.
  void record_foreseen(PathNode& node, std::span<const Operand> inputs, std::span<const Operand> outputs);
  /// What output `i` of a foreseen op is to be stored in.
  const RecordedStorage& foreseen_storage(const PathNode& node, int i) const {
    return node.new_storages[node.op.outputs[i].number - static_cast<int>(storages_.size())];
  }

  /// Does all pending work: replays the path's executable, or runs the ops one by one.
  void flush(FlushReason reason, SourceLocation where = SourceLocation::current());

  /// Whether ops are pending.
  bool empty() const { return ops_.empty(); }

  void settle(Storage& storage) override;
  void settle_before_write(Storage& storage) override;

  /// Where the host asks for a value, for explain(): set before a read that may flush.
  static void note_host_access(SourceLocation where) { host_access_ = where; }

 private:
  friend class TraceScope;
  struct External {
    int number;
    uint32_t version;  ///< at the first use, plus our own writes
  };
  struct Pending;  // the stream, moved out of the recorder while it is flushed

  static Recorder& of_this_thread();
  void open(Site& site, FlushCapture* capture);
  void close() noexcept;
  void abandon() noexcept;
  void leave_known_paths();
  void note_unknown_path();
  void check_operand(const Operand& operand, Op op) const;
  void append_operand(const Operand& operand, bool written);
  int number_external(Storage& storage);
  int number(Storage& storage, bool written);
  void mark_written(Storage& storage);
  bool is_expected(const PathNode& node, Op op, std::span<const Operand> inputs, const Attrs& attrs,
                   DType given, std::span<const Operand> outputs) const;
  void push_op(PathNode* node);
  void move_cursor(const OpCall& call);
  void record_foreign(const OpCall& call);
  Ref<Storage> snapshot_of(Storage& storage);
  bool externals_outgrew_limit();
  Pending take_pending();
  void flush_pending(FlushReason reason, SourceLocation where, bool may_compile);

  static thread_local Recorder* active_;
  static thread_local SourceLocation host_access_;

  Site* site_ = nullptr;
  FlushCapture* capture_ = nullptr;  ///< what this body's flushes are told to; usually null
  int depth_ = 0;
  int exceptions_ = 0;             ///< in flight when the scope was opened
  bool left_known_paths_ = false;  ///< of a site that gave up, in this call
  PathNode* cursor_ = nullptr;
  PathEnd* after_ = nullptr;  ///< the last one that this body came to
  std::vector<PathNode*> ops_;
  std::vector<OperandValue> values_;
  std::vector<Ref<Storage>> storages_;  ///< by number
  absl::flat_hash_map<const Storage*, External> externals_;
  absl::flat_hash_map<const Storage*, Ref<Storage>> snapshots_;  ///< of foreign memory, since the last flush
  std::vector<uint64_t> words_;                                  ///< key of the op being recorded
  std::vector<RecordedStorage> new_storages_;                    ///< numbered by the op being recorded
  int64_t external_bytes_ = 0;  ///< of externals numbered since the last look at who else holds them
};

/// A traced function's body. Opening one inside another on the same thread inlines it.
class TraceScope {
 public:
  explicit TraceScope(Site& site);
  /// Traces even where tracing is disabled, compiles at each flush, and tells `capture` about them. Throws
  /// TraceError if this thread is tracing already.
  TraceScope(Site& site, FlushCapture& capture);
  /// Flushes if the body has finished; drops to eager execution of what is reachable if an exception is in
  /// flight. Never throws when unwinding; otherwise it may, so call finish() first where that matters.
  ~TraceScope() noexcept(false);
  /// Flushes and closes the scope; throws what the flush throws.
  void finish();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Site* site_;
  Recorder* recorder_ = nullptr;  ///< null: eager, or finished
  bool nested_ = false;
  int exceptions_;
};

/// Does this thread's pending work now, if any: before handing tensors to another thread.
void flush(SourceLocation where);

}  // namespace etch
