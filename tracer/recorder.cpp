// Recording and matching of deferred ops, and the scopes that open and close a recorder.
#include "tracer/recorder.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "runtime/config.h"
#include "runtime/parallel.h"
#include "tracer/execute.h"
#include "tracer/stream.h"

namespace etch {

namespace {

constexpr size_t kMaxPendingOps = 100'000;
constexpr int64_t kMaxHeldExternalBytes = int64_t{256} << 20;

uint64_t header_word(const OpCall& call) {
  return static_cast<uint64_t>(call.op) | static_cast<uint64_t>(call.inputs.size()) << 16 |
         static_cast<uint64_t>(call.outputs.size()) << 24 | static_cast<uint64_t>(call.attrs.count) << 32;
}

// Kind, dtype and number of one operand; sizes and strides follow for tensors.
uint64_t operand_word(RecordedOperand::Kind kind, DType dtype, int detail, int ndim, Device device) {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(dtype) << 4 | static_cast<uint64_t>(ndim) << 8 |
         static_cast<uint64_t>(device.type) << 16 |
         static_cast<uint64_t>(static_cast<uint8_t>(device.index)) << 24 |
         static_cast<uint64_t>(static_cast<uint32_t>(detail)) << 32;
}

RecordedOperand recorded(const Operand& operand, int number) {
  RecordedOperand result{};
  result.dtype = operand.dtype;
  result.number = number;
  if (!operand.present) {
    result.kind = RecordedOperand::Kind::Absent;
  } else if (operand.is_scalar()) {
    result.kind = RecordedOperand::Kind::Scalar;
    result.scalar_kind = operand.scalar.kind();
  } else {
    result.kind = RecordedOperand::Kind::Tensor;
    result.geometry = *operand.geometry;
  }
  return result;
}

// As eager does.
void run_now(const OpCall& call) {
  for (const Operand& operand : call.outputs) {
    if (operand.storage->has_bytes())
      operand.storage->bump_version();
    else
      operand.storage->materialise();
  }
  execute(call);
}

bool is_unstable(const Operand& operand) { return operand.storage && operand.storage->is_unstable(); }

}  // namespace

thread_local Recorder* Recorder::active_ = nullptr;
thread_local SourceLocation Recorder::host_access_;

// --- Recording

Recorder& Recorder::of_this_thread() {
  // Never destroyed, since storages may still name one after its thread has ended; the next new thread takes
  // it over.
  struct Idle {
    std::mutex mutex;
    std::vector<Recorder*> recorders;
  };
  static Idle* const idle = new Idle;
  struct Lease {
    Lease() {
      std::lock_guard lock(idle->mutex);
      if (idle->recorders.empty()) {
        recorder = new Recorder;
      } else {
        recorder = idle->recorders.back();
        idle->recorders.pop_back();
      }
    }
    ~Lease() {
      std::lock_guard lock(idle->mutex);
      idle->recorders.push_back(recorder);
    }
    Recorder* recorder;
  };
  static thread_local Lease lease;
  return *lease.recorder;
}

void Recorder::check_operand(const Operand& operand, Op op) const {
  if (!operand.storage) return;
  operand.storage->check_usable();
  const PendingWork* pending = operand.storage->pending.load(std::memory_order_acquire);
  if (pending && pending != this) [[unlikely]]
    fail<TraceError>(name(op),
                     ": expected a tensor of this thread, got one that a traced function on another thread ",
                     "has not computed yet; call etch::flush() there before handing it over");
}

int Recorder::number_external(Storage& storage) {
  const auto [it, fresh] = externals_.try_emplace(&storage);
  if (!fresh) return it->second.number;
  it->second = {static_cast<int>(storages_.size()), storage.version()};
  storages_.emplace_back(&storage);
  new_storages_.push_back({true, static_cast<int64_t>(storage.bytes()), storage.device()});
  external_bytes_ += static_cast<int64_t>(storage.bytes());
  return it->second.number;
}

void Recorder::mark_written(Storage& storage) {
  if (storage.has_bytes()) {
    storage.pending.store(this, std::memory_order_release);
    ++externals_[&storage].version;
  }
  storage.bump_version();
}

int Recorder::number(Storage& storage, bool written) {
  int number;
  if (storage.has_bytes()) {
    number = number_external(storage);
  } else if (storage.pending.load(std::memory_order_relaxed)) {
    number = static_cast<int>(storage.number);
  } else {
    ETCH_INVARIANT(written);
    number = static_cast<int>(storages_.size());
    storage.number = static_cast<uint32_t>(number);
    storage.pending.store(this, std::memory_order_release);
    storages_.emplace_back(&storage);
    new_storages_.push_back({false, static_cast<int64_t>(storage.bytes()), storage.device()});
    return number;
  }
  if (written) mark_written(storage);
  return number;
}

void Recorder::append_operand(const Operand& operand, bool written) {
  values_.push_back({operand.offset, operand.scalar});
  if (!operand.present) {
    words_.push_back(operand_word(RecordedOperand::Kind::Absent, operand.dtype, 0, 0, {}));
    return;
  }
  if (operand.is_scalar()) {
    words_.push_back(operand_word(RecordedOperand::Kind::Scalar, operand.dtype,
                                  static_cast<int>(operand.scalar.kind()), 0, {}));
    return;
  }
  Storage& storage = *operand.storage;
  const Geometry& geometry = *operand.geometry;
  const int ndim = geometry.ndim();
  words_.push_back(operand_word(RecordedOperand::Kind::Tensor, operand.dtype, number(storage, written), ndim,
                                storage.device()));
  for (int i = 0; i < ndim; ++i) words_.push_back(static_cast<uint64_t>(geometry.sizes[i]));
  for (int i = 0; i < ndim; ++i) words_.push_back(static_cast<uint64_t>(geometry.strides[i]));
}

void Recorder::move_cursor(const OpCall& call) {
  PathNode* next = cursor_->find(words_);
  if (!next) {
    RecordedOp op{call.op, call.attrs, {}, {}};
    const auto number = [&](const Operand& operand) {
      if (!operand.is_tensor()) return -1;
      const auto external = externals_.find(operand.storage);
      return external != externals_.end() ? external->second.number
                                          : static_cast<int>(operand.storage->number);
    };
    op.inputs.reserve(call.inputs.size());
    op.outputs.reserve(call.outputs.size());
    for (const Operand& operand : call.inputs) op.inputs.push_back(recorded(operand, number(operand)));
    for (const Operand& operand : call.outputs) op.outputs.push_back(recorded(operand, number(operand)));
    next = site_->insert(cursor_, words_, std::move(op), new_storages_);
  }
  cursor_ = next;
}

void Recorder::record(const OpCall& call) {
  for (const Operand& operand : call.inputs) check_operand(operand, call.op);
  for (const Operand& operand : call.outputs) check_operand(operand, call.op);
  if (std::any_of(call.inputs.begin(), call.inputs.end(), is_unstable) ||
      std::any_of(call.outputs.begin(), call.outputs.end(), is_unstable)) [[unlikely]] {
    record_foreign(call);
    return;
  }
  if (site_->gave_up()) [[unlikely]] {
    if (PathNode* node = foresee(call.op, call.inputs, call.attrs, {}, call.outputs)) {
      record_foreseen(*node, call.inputs, call.outputs);
    } else {
      leave_known_paths();
      run_now(call);
    }
    return;
  }
  words_.clear();
  new_storages_.clear();
  // Library calls and their scratch depend on the number of threads: a path belongs to one.
  if (cursor_ == site_->root()) words_.push_back(static_cast<uint64_t>(num_threads()));
  words_.push_back(header_word(call));
  for (int i = 0; i < call.attrs.count; ++i) words_.push_back(static_cast<uint64_t>(call.attrs[i]));
  for (const Operand& operand : call.inputs) append_operand(operand, false);
  for (const Operand& operand : call.outputs) append_operand(operand, true);
  // The window says little about the storage: it may be made here or have been there, be the first of
  // several, or cover all of an external.
  for (const RecordedStorage& storage : new_storages_)
    words_.push_back(static_cast<uint64_t>(storage.bytes) << 1 | storage.external);
  move_cursor(call);
  push_op(cursor_);
}

void Recorder::push_op(PathNode* node) {
  cursor_ = node;
  ops_.push_back(node);
  if (ops_.size() >= kMaxPendingOps || (external_bytes_ > kMaxHeldExternalBytes && externals_outgrew_limit()))
      [[unlikely]]
    flush(FlushReason::Limit);
}

// Memory that others may write behind our back: reads see a copy made now, writes happen now.
void Recorder::record_foreign(const OpCall& call) {
  if (std::any_of(call.outputs.begin(), call.outputs.end(), is_unstable)) {
    flush(FlushReason::HostWrite);
    run_now(call);
    return;
  }
  Operand inputs[kMaxInputs];
  Ref<Storage> held[kMaxInputs];  // a call that leaves the known paths flushes, then reads them
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs[i] = call.inputs[i];
    if (!is_unstable(inputs[i])) continue;
    held[i] = snapshot_of(*inputs[i].storage);
    inputs[i].storage = held[i].get();
  }
  record({call.op, {inputs, call.inputs.size()}, call.outputs, call.attrs});
}

Ref<Storage> Recorder::snapshot_of(Storage& storage) {
  Ref<Storage>& snapshot = snapshots_[&storage];
  if (!snapshot || std::memcmp(snapshot->raw_data(), storage.raw_data(), storage.bytes()) != 0) {
    snapshot = Storage::allocate(storage.device(), storage.bytes());
    std::memcpy(snapshot->raw_data(), storage.raw_data(), storage.bytes());
  }
  return snapshot;
}

// Whether externals that nobody else holds any more exceed the limit.
bool Recorder::externals_outgrew_limit() {
  int64_t held = 0;
  for (const auto& [storage, external] : externals_)
    if (storage->use_count() == 1) held += static_cast<int64_t>(storage->bytes());
  external_bytes_ = held;
  return held > kMaxHeldExternalBytes;
}

void Recorder::settle(Storage& storage) {
  ETCH_CHECK(active_ == this || &of_this_thread() == this, TraceError,
             "read: expected a tensor of this thread, got one that a traced function on another thread has "
             "not computed "
             "yet; call etch::flush() there before handing it over");
  if (storage.pending.load(std::memory_order_relaxed) == this) flush(FlushReason::HostRead, host_access_);
}

void Recorder::settle_before_write(Storage& storage) {
  if (storage.pending.load(std::memory_order_relaxed) == this || externals_.contains(&storage))
    flush(FlushReason::HostWrite, host_access_);
}

// --- Scopes

void Recorder::open(Site& site, FlushCapture* capture) {
  site_ = &site;
  capture_ = capture;
  depth_ = 1;
  cursor_ = site.root();
  after_ = nullptr;
  exceptions_ = std::uncaught_exceptions();
  left_known_paths_ = false;
  active_ = this;
  active_work = this;
}

void Recorder::close() noexcept {
  site_ = nullptr;
  capture_ = nullptr;
  depth_ = 0;
  cursor_ = nullptr;
  active_ = nullptr;
  active_work = nullptr;
}

void Recorder::note_unknown_path() {
  if (!std::exchange(left_known_paths_, true)) site_->note_unknown_path();
}

// The site takes no new paths: what is pending runs op by op, the rest of the body runs eagerly.
void Recorder::leave_known_paths() {
  note_unknown_path();
  if (capture_) capture_->left_known_paths = true;
  try {
    flush_pending(FlushReason::Limit, {}, false);
  } catch (...) {
    close();
    throw;
  }
  close();
}

// The body threw: what is still reachable is computed, as eager would have; an error of that is only logged.
void Recorder::abandon() noexcept {
  try {
    flush_pending(FlushReason::EndOfBody, {}, false);
  } catch (const std::exception& error) {
    log(1, join_text({"while another exception was in flight: ", error.what()}));
  } catch (...) {
  }
  close();
}

TraceScope::TraceScope(Site& site) : site_(&site), exceptions_(std::uncaught_exceptions()) {
  site.calls.fetch_add(1, std::memory_order_relaxed);
  if (config().disable) return;
  if (Recorder* outer = Recorder::active()) {
    recorder_ = outer;
    site_ = outer->site_;
    nested_ = true;
    ++outer->depth_;
    return;
  }
  if (site.gave_up() && !site.expects_known_path()) return;
  recorder_ = &Recorder::of_this_thread();
  recorder_->open(site, nullptr);
}

TraceScope::TraceScope(Site& site, FlushCapture& capture)
    : site_(&site), exceptions_(std::uncaught_exceptions()) {
  ETCH_CHECK(!Recorder::active(), TraceError, site.options().name,
             ": expected to be frozen outside traced functions, got a call while one runs on this thread");
  site.calls.fetch_add(1, std::memory_order_relaxed);
  recorder_ = &Recorder::of_this_thread();
  recorder_->open(site, &capture);
}

void TraceScope::finish() {
  Recorder* recorder = std::exchange(recorder_, nullptr);
  // A recorder that gave up, or was taken over by an inner scope since, is no longer ours.
  if (!recorder || recorder->site_ != site_) return;
  if (nested_) {
    --recorder->depth_;
    return;
  }
  try {
    recorder->flush_pending(FlushReason::EndOfBody, {}, true);
  } catch (...) {
    recorder->close();
    throw;
  }
  recorder->close();
}

TraceScope::~TraceScope() noexcept(false) {
  if (!recorder_) return;
  if (std::uncaught_exceptions() <= exceptions_) {
    finish();
    return;
  }
  Recorder* recorder = std::exchange(recorder_, nullptr);
  if (recorder->site_ != site_) return;
  if (nested_) {
    --recorder->depth_;
  } else {
    recorder->abandon();
  }
}

void flush(SourceLocation where) {
  if (Recorder* recorder = Recorder::active()) recorder->flush(FlushReason::Explicit, where);
}

}  // namespace etch
