// Flushing: pending ops run as their path's executable, or one by one.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "runtime/config.h"
#include "runtime/parallel.h"
#include "tracer/background.h"
#include "tracer/eviction.h"
#include "tracer/recorder.h"
#include "tracer/stream.h"

namespace etch {

struct Recorder::Pending : Stream {
  PathNode* last = nullptr;
  std::vector<PathNode*> nodes;
  std::exception_ptr conflict;  ///< an external was changed by another thread

  std::vector<const RecordedOp*> ops() const {
    std::vector<const RecordedOp*> list;
    list.reserve(nodes.size());
    for (const PathNode* node : nodes) list.push_back(&node->op);
    return list;
  }
};

Recorder::Pending Recorder::take_pending() {
  Pending pending;
  pending.last = cursor_;
  pending.nodes.swap(ops_);
  pending.values.swap(values_);
  pending.storages.swap(storages_);
  // The next stream is probably as long.
  ops_.reserve(pending.nodes.size());
  values_.reserve(pending.values.size());
  storages_.reserve(pending.storages.size());
  pending.external.resize(pending.storages.size());
  for (const auto& [storage, external] : externals_) {
    pending.external[external.number] = true;
    if (storage->version() != external.version && !pending.conflict)
      pending.conflict = std::make_exception_ptr(TraceError(
          "flush: expected tensors that nobody else writes while a traced function uses them, got one that "
          "another thread changed; use etch::lock_guard around shared tensors"));
  }
  for (const auto& storage : pending.storages) {
    if (storage->pending.load(std::memory_order_relaxed) == this)
      storage->pending.store(nullptr, std::memory_order_release);
  }
  externals_.clear();
  snapshots_.clear();
  external_bytes_ = 0;
  cursor_ = site_->root();
  return pending;
}

namespace {

// The live set to compile for now, or empty: the second sighting of a live set, or after three different ones
// their union.
LiveSet choose_live_set(PathEnd& end, const LiveSet& live, int compile_at) {
  const bool seen = std::any_of(end.live_sets.begin(), end.live_sets.end(),
                                [&](const LiveSet& other) { return contains(other, live); });
  if (!seen) end.live_sets.push_back(live);
  const int64_t sightings = end.compiled_calls + end.eager_calls + 1;
  if (sightings < compile_at) return {};
  const bool settled = compile_at <= 1 || seen || end.live_sets.size() >= 3;
  if (!settled) return {};
  LiveSet chosen = live;
  for (const LiveSet& other : end.live_sets)
    for (size_t i = 0; i < other.size(); ++i) chosen[i] = chosen[i] || other[i];
  for (const auto& executable : end.executables)
    for (size_t i = 0; i < executable->live().size(); ++i) chosen[i] = chosen[i] || executable->live()[i];
  return chosen;
}

// Compiles the path for `live` and keeps the result, or the reason why there is none. Its caller has set
// end.compiling.
Ref<Executable> compile_end(PathEnd& end, const LiveSet& live, Site& site) {
  const SiteOptions& options = site.options();
  const auto start = std::chrono::steady_clock::now();
  Ref<Executable> executable;
  std::string error;
  try {
    executable = registered_compiler()(*end.path, live, {options.name, options.memory_budget});
  } catch (const std::exception& caught) {
    error = caught.what();
  }
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::vector<Ref<Executable>> replaced;  // goes after the lock
  {
    std::lock_guard lock(end.mutex);
    end.compiling = false;
    if (executable) {
      ++end.compiles;
      end.compile_ms += ms;
      end.live_sets.clear();
      replaced.swap(end.executables);
      end.executables.push_back(executable);
    } else {
      end.compile_error = error;
    }
  }
  const auto count = static_cast<int64_t>(end.path->ops.size());
  if (!executable) {
    log(1, join_text(
               {options.name, ": a path of ", count, " ops could not be compiled and stays eager: ", error}));
    return {};
  }
  log(1, join_text({options.name, ": compiled a path of ", count, " ops in ", ms, " ms"}));
  evict_beyond_limit(end);
  site.note_compile();
  return executable;
}

struct CompileWhen {
  bool allowed;  ///< not while an exception is in flight
  bool now;      ///< at this very call, for a capture
};

// The executable for this call, compiled now if it is time; null: run op by op.
Ref<Executable> find_or_compile(PathEnd& end, const LiveSet& live, Site& site, CompileWhen when) {
  const SiteOptions& options = site.options();
  LiveSet chosen;
  {
    std::lock_guard lock(end.mutex);
    for (const auto& executable : end.executables)
      if (contains(executable->live(), live)) return executable;
    if (!when.allowed || !registered_compiler() || end.compiling || !end.compile_error.empty()) return {};
    if (!when.now && !may_compile_again(end)) return {};
    chosen = choose_live_set(end, live, when.now ? 1 : options.compile_at);
    if (chosen.empty()) return {};
    end.compiling = true;
  }
  if (!options.background || when.now) return compile_end(end, chosen, site);
  // A queued job does not keep its site, the running one does: nobody has to wait for it.
  const bool shared = !site.weak_from_this().expired();
  run_in_background(&options, [&end, &site, shared, weak = site.weak_from_this(), chosen = std::move(chosen),
                               threads = num_threads()] {
    const std::shared_ptr<Site> kept = weak.lock();
    const HeldThreads held(threads);
    if (kept || !shared) (void)compile_end(end, chosen, site);
  });
  return {};
}

}  // namespace

void Recorder::flush_pending(FlushReason reason, SourceLocation where, bool may_compile) {
  if (ops_.empty()) return;
  Pending pending = take_pending();
  const LiveSet live = pending.live();
  if (pending.conflict) {
    pending.fail_incomplete(pending.ops(), live, 0, pending.conflict);
    std::rethrow_exception(pending.conflict);
  }
  const bool gave_up = site_->gave_up();
  PathEnd* end =
      may_compile ? site_->end_at(pending.last, reason, where, after_) : site_->abandoned_at(pending.last);
  after_ = end;
  if (capture_ && ++capture_->flushes == 1) {
    capture_->reason = reason;
    capture_->where = where;
  }
  if (gave_up) {
    if (end)
      site_->note_known_path();
    else
      note_unknown_path();
  }
  if (!end) {
    pending.run_one_by_one(pending.ops(), live);
    return;
  }
  const Ref<Executable> executable = find_or_compile(*end, live, *site_, {may_compile, capture_ != nullptr});
  if (capture_) {
    capture_->end = end;
    capture_->executable = executable;
    capture_->stream = pending;
    capture_->live = live;
  }
  if (executable) touch(*end);
  const bool compiled = executable && pending.run(*executable, *end->path, live);
  {
    std::lock_guard lock(end->mutex);
    ++(compiled ? end->compiled_calls : end->eager_calls);
    if (!compiled) ++end->eager_calls_since_eviction;
    if (!compiled && end->compiling) ++end->calls_while_compiling;
    if (executable && !compiled) ++end->declined_calls;
    if (!compiled || site_->watched()) end->values = pending.values;
  }
  if (!compiled) pending.run_one_by_one(end->path->ops, live);
}

void Recorder::flush(FlushReason reason, SourceLocation where) {
  flush_pending(reason, where, std::uncaught_exceptions() <= exceptions_);
}

}  // namespace etch
