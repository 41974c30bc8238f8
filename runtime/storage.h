// Storage: the bytes behind tensors. Views share one; in-place writes bump its version; a trace may defer its
// bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/ref.h"

namespace etch {

class Storage;

/// Whoever holds work not yet done on storages: the recorder of a running trace. Set as Storage::pending.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  /// Does the pending work, so that the bytes of `storage` are what program order says. Throws TraceError
  /// when called from another thread than the trace's.
  virtual void settle(Storage& storage) = 0;
  /// The same before a host write: also does pending work that reads `storage`.
  virtual void settle_before_write(Storage& storage) = 0;
};

/// The trace that is recording on this thread; null if none is.
extern thread_local PendingWork* active_work;

/// Reference-counted bytes on one device. Public fields are for the layers that maintain them; users see
/// Tensor.
class Storage final : public RefCounted {
 public:
  /// Uninitialised bytes from the caching allocator.
  static Ref<Storage> allocate(Device device, size_t bytes,
                               MemoryCategory category = MemoryCategory::Temporary);
  /// No bytes yet; a recorder will materialise() it.
  static Ref<Storage> deferred(Device device, size_t bytes);
  /// Memory owned by others; `release` runs when the last reference goes. Overlapping foreign ranges share
  /// one storage (a registry finds it): the returned storage covers [data, data + bytes) and `offset` says
  /// where.
  static Ref<Storage> foreign(Device device, void* data, size_t bytes, std::function<void()> release,
                              bool stable, size_t* offset);

  Device device() const { return device_; }
  size_t bytes() const { return bytes_; }
  MemoryCategory category() const { return category_; }
  void set_category(MemoryCategory category);

  /// The bytes, or null while deferred or freed. Never flushes: for code that runs ops.
  void* raw_data() const { return data_; }
  /// The bytes for a host read: settles a pending write; rethrows the error of a failed trace.
  const void* data_for_read();
  /// The bytes for a host write: settles everything pending on this storage and bumps the version.
  void* data_for_write();

  /// Gives a deferred storage its bytes.
  void materialise();
  /// Takes over `data`, a block of the caching allocator.
  void adopt(void* data, MemoryCategory category);
  bool has_bytes() const { return data_ != nullptr; }

  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// A trace did not complete this value: every later use rethrows `error`. Bytes of its own are released.
  void mark_failed(std::exception_ptr error);
  /// The op (see tracer/op.h) that last wrote in place, for messages; kNoWriter if none did.
  static constexpr uint16_t kNoWriter = 0xffff;
  uint16_t last_writer = kNoWriter;
  /// The version after the last in-place write that the tape recorded.
  uint32_t taped_version = 0;

  /// Rethrows what mark_failed() recorded.
  void check_usable() const {
    if (failed_.load(std::memory_order_acquire)) [[unlikely]]
      rethrow_failure();
  }

  /// Foreign memory that others may change behind Etch's back and that was not declared stable.
  bool is_unstable() const { return foreign_ && !stable_.load(std::memory_order_relaxed); }
  bool is_foreign() const { return foreign_; }

  /// The trace with a pending write to this storage (or that defers it); null when the bytes are current.
  std::atomic<PendingWork*> pending{nullptr};
  /// While deferred: the value number in that trace. Only its thread reads it.
  uint32_t number = 0;

  bool drop_reference() const { return foreign_ ? drop_findable_reference() : RefCounted::drop_reference(); }
  static void destroy(Storage* storage);

 private:
  friend class Ref<Storage>;
  Storage(Device device, size_t bytes);
  ~Storage();
  [[noreturn]] void rethrow_failure() const;

  void* data_ = nullptr;
  size_t bytes_;
  std::atomic<uint32_t> version_{0};
  Device device_;
  MemoryCategory category_ = MemoryCategory::Temporary;
  bool foreign_ = false;
  std::atomic<bool> stable_{true};
  std::atomic<bool> failed_{false};
  struct Extra;  // the rare parts: release function, failure
  std::unique_ptr<Extra> extra_;
};

}  // namespace etch
