// Flushing: pending ops run as their path's executable, or one by one.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "runtime/config.h"
#include "tracer/background.h"
#include "tracer/execute.h"
#include "tracer/recorder.h"

namespace etch {

struct Recorder::Pending {
  PathNode* last = nullptr;
  std::vector<PendingOp> ops;
  std::vector<OperandValue> values;
  std::vector<Ref<Storage>> storages;
  std::exception_ptr conflict;  ///< an external was changed by another thread

  bool is_external(int number) const { return external[number]; }
  std::vector<bool> external;

  LiveSet live() const {
    LiveSet set(storages.size());
    for (size_t i = 0; i < storages.size(); ++i) set[i] = !external[i] && storages[i]->use_count() > 1;
    return set;
  }
  void fail_incomplete(const LiveSet& live, size_t next_op, std::exception_ptr error) const;
  void run_one_by_one(const LiveSet& live);
  bool run(const Executable& executable, const PathEnd& end, const LiveSet& live) const;
};

Recorder::Pending Recorder::take_pending() {
  Pending pending;
  pending.last = cursor_;
  pending.ops.swap(ops_);
  pending.values.swap(values_);
  pending.storages.swap(storages_);
  // The next stream is probably as long.
  ops_.reserve(pending.ops.size());
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

// Values that a failed flush leaves undone raise its error when they are used.
void Recorder::Pending::fail_incomplete(const LiveSet& live, size_t next_op, std::exception_ptr error) const {
  std::vector<bool> incomplete(storages.size());
  for (size_t i = next_op; i < ops.size(); ++i)
    for (const RecordedOperand& output : ops[i].node->op.outputs) incomplete[output.number] = true;
  for (size_t i = 0; i < storages.size(); ++i)
    if (live[i] && (incomplete[i] || !storages[i]->has_bytes())) storages[i]->mark_failed(error);
}

void Recorder::Pending::run_one_by_one(const LiveSet& live) {
  const size_t count = ops.size();
  // Dead ops are skipped; a value goes after its last use.
  std::vector<bool> needed(live), op_needed(count);
  std::vector<size_t> last_use(storages.size(), 0);
  for (size_t i = count; i-- > 0;) {
    const RecordedOp& op = ops[i].node->op;
    bool wanted = false;
    for (const RecordedOperand& output : op.outputs)
      wanted |= external[output.number] || needed[output.number];
    op_needed[i] = wanted;
    if (!wanted) continue;
    const auto visit = [&](const RecordedOperand& operand) {
      if (operand.kind != RecordedOperand::Kind::Tensor) return;
      needed[operand.number] = true;
      last_use[operand.number] = std::max(last_use[operand.number], i);
    };
    for (const RecordedOperand& input : op.inputs) visit(input);
    for (const RecordedOperand& output : op.outputs) visit(output);
  }
  for (size_t i = 0; i < count; ++i) {
    const RecordedOp& op = ops[i].node->op;
    const OperandValue* value = &values[ops[i].first_value];
    if (!op_needed[i]) continue;
    Operand inputs[kMaxInputs], outputs[kMaxOutputs];
    const auto operand = [&](const RecordedOperand& from) {
      Operand to;
      to.dtype = from.dtype;
      to.present = from.kind != RecordedOperand::Kind::Absent;
      to.offset = value->offset;
      to.scalar = value->scalar;
      if (from.kind == RecordedOperand::Kind::Tensor) {
        to.storage = storages[from.number].get();
        to.geometry = &from.geometry;
      }
      ++value;
      return to;
    };
    for (size_t k = 0; k < op.inputs.size(); ++k) inputs[k] = operand(op.inputs[k]);
    for (size_t k = 0; k < op.outputs.size(); ++k) outputs[k] = operand(op.outputs[k]);
    try {
      for (size_t k = 0; k < op.outputs.size(); ++k)
        if (!outputs[k].storage->has_bytes()) outputs[k].storage->materialise();
      execute({op.op, {inputs, op.inputs.size()}, {outputs, op.outputs.size()}, op.attrs});
    } catch (...) {
      fail_incomplete(live, i, std::current_exception());
      throw;
    }
    const auto release = [&](const RecordedOperand& operand_of_op) {
      if (operand_of_op.kind != RecordedOperand::Kind::Tensor) return;
      const int number = operand_of_op.number;
      if (!external[number] && !live[number] && last_use[number] == i) storages[number] = nullptr;
    };
    for (const RecordedOperand& input : op.inputs) release(input);
    for (const RecordedOperand& output : op.outputs) release(output);
  }
}

bool Recorder::Pending::run(const Executable& executable, const PathEnd& end, const LiveSet& live) const {
  std::vector<Storage*> pointers(storages.size());
  for (size_t i = 0; i < storages.size(); ++i) pointers[i] = storages[i].get();
  try {
    return executable.run({*end.path, values, pointers, live});
  } catch (...) {
    fail_incomplete(live, ops.size(), std::current_exception());  // what it completed has bytes
    throw;
  }
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
Ref<Executable> compile_end(PathEnd& end, const LiveSet& live, const SiteOptions& options) {
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
  std::lock_guard lock(end.mutex);
  end.compiling = false;
  if (!executable) {
    end.compile_error = error;
    log(1, concat({options.name, ": a path of ", static_cast<int64_t>(end.path->ops.size()),
                   " ops could not be compiled and stays eager: ", error}));
    return {};
  }
  ++end.compiles;
  end.compile_ms += ms;
  end.live_sets.clear();
  replaced.swap(end.executables);
  end.executables.push_back(executable);
  log(1, concat({options.name, ": compiled a path of ", static_cast<int64_t>(end.path->ops.size()),
                 " ops in ", ms, " ms"}));
  return executable;
}

// The executable for this call, compiled now if it is time; null: run op by op.
Ref<Executable> find_or_compile(PathEnd& end, const LiveSet& live, const SiteOptions& options,
                                bool may_compile) {
  LiveSet chosen;
  {
    std::lock_guard lock(end.mutex);
    for (const auto& executable : end.executables)
      if (contains(executable->live(), live)) return executable;
    if (!may_compile || !registered_compiler() || end.compiling || !end.compile_error.empty()) return {};
    chosen = choose_live_set(end, live, options.compile_at);
    if (chosen.empty()) return {};
    end.compiling = true;
  }
  if (!options.background) return compile_end(end, chosen, options);
  run_in_background(
      &options, [&end, &options, chosen = std::move(chosen)] { (void)compile_end(end, chosen, options); });
  return {};
}

}  // namespace

void Recorder::flush_pending(FlushReason reason, SourceLocation where, bool may_compile) {
  if (ops_.empty()) return;
  Pending pending = take_pending();
  const LiveSet live = pending.live();
  if (pending.conflict) {
    pending.fail_incomplete(live, 0, pending.conflict);
    std::rethrow_exception(pending.conflict);
  }
  const SiteOptions& options = site_->options();
  PathEnd* end = may_compile ? site_->end_at(pending.last, reason, where) : site_->abandoned_at(pending.last);
  if (!end) {
    pending.run_one_by_one(live);
    return;
  }
  const Ref<Executable> executable = find_or_compile(*end, live, options, may_compile);
  const bool compiled = executable && pending.run(*executable, *end, live);
  {
    std::lock_guard lock(end->mutex);
    ++(compiled ? end->compiled_calls : end->eager_calls);
    if (executable && !compiled) ++end->declined_calls;
  }
  if (!compiled) pending.run_one_by_one(live);
}

void Recorder::flush(FlushReason reason, SourceLocation where) {
  flush_pending(reason, where, std::uncaught_exceptions() <= exceptions_);
}

}  // namespace etch
