// The caching allocator: one pool a device, its statistics and its limit.
#include "runtime/allocator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "runtime/blocks.h"
#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/object_pool.h"
#include "runtime/slabs.h"
#include "runtime/spin_lock.h"

#ifdef ETCH_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace etch {
namespace {

#ifdef ETCH_ADDRESS_SANITIZER
// Only the bytes asked for may be touched, and only while the block is live.
void hide(const void* data, size_t bytes) { __asan_poison_memory_region(data, bytes); }
void show(const void* data, size_t bytes) { __asan_unpoison_memory_region(data, bytes); }
#else
void hide(const void*, size_t) {}
void show(const void*, size_t) {}
#endif

constexpr size_t kLargestRequest = size_t{1} << 47;

/// The exact numbers at every moment. The split at the peak is taken lazily: while nothing was freed or moved
/// since the peak was reached, it is the split of now.
class Counter {
 public:
  bool fits(int64_t bytes) const { return stats_.limit == 0 || bytes <= stats_.limit - stats_.allocated; }
  void add(MemoryCategory category, int64_t bytes) {
    stats_.allocated += bytes;
    split(category) += bytes;
    ++stats_.allocations;
    if (stats_.allocated > stats_.peak_allocated) {
      stats_.peak_allocated = stats_.allocated;
      at_peak_ = true;
    }
  }
  void remove(MemoryCategory category, int64_t bytes) {
    leave_peak();
    stats_.allocated -= bytes;
    split(category) -= bytes;
  }
  void move(MemoryCategory from, MemoryCategory to, int64_t bytes) {
    leave_peak();
    split(from) -= bytes;
    split(to) += bytes;
  }
  void reset_peak() {
    stats_.peak_allocated = stats_.allocated;
    at_peak_ = true;
  }
  void set_limit(int64_t bytes) { stats_.limit = bytes; }
  void add_reserved(int64_t bytes) { stats_.reserved += bytes; }
  void count_device_allocation() { ++stats_.device_allocations; }
  /// More is cached than a program of this peak can be expected to use again.
  bool hoards(int64_t more) const {
    constexpr int64_t kAlwaysFine = int64_t{256} << 20;
    const int64_t reserved = stats_.reserved + more;
    const int64_t peak = std::max(stats_.peak_allocated, stats_.allocated + more);
    return (stats_.limit != 0 && reserved > stats_.limit) || reserved > peak + peak / 2 + kAlwaysFine;
  }
  MemoryStats read() {
    if (at_peak_) stats_.at_peak = stats_.by_category;
    return stats_;
  }

 private:
  int64_t& split(MemoryCategory category) { return stats_.by_category[static_cast<int>(category)]; }
  void leave_peak() {
    if (!at_peak_) return;
    stats_.at_peak = stats_.by_category;
    at_peak_ = false;
  }

  MemoryStats stats_;
  bool at_peak_ = true;
};

/// All memory of one device. `lock_` guards the numbers and the small blocks and is held for a few
/// instructions; `mutex_` guards the large blocks and calls of the device, and is taken first.
class Pool {
 public:
  explicit Pool(Device device)
      : device_(device), memory_(device_memory(device)), poison_host_(device == Device::cpu()) {
    counter_.set_limit(config().memory_limit);
  }

  void* allocate(size_t bytes, MemoryCategory category) {
    if (bytes > kSmallMax) return finish(allocate_large(bytes, category), bytes, granules(bytes));
    const auto units = std::max<uint32_t>(1, static_cast<uint32_t>((bytes + kSmallUnit - 1) / kSmallUnit));
    const size_t size = units * kSmallUnit;
    for (;;) {
      {
        std::unique_lock lock(lock_);
        if (!counter_.fits(static_cast<int64_t>(size))) [[unlikely]]
          break;
        if (void* data = slabs_.take(units, static_cast<uint8_t>(category))) [[likely]] {
          counter_.add(category, static_cast<int64_t>(size));
          lock.unlock();
          return finish(data, bytes, size);
        }
      }
      open_slab(units);
    }
    fail_over_limit(size);
  }

  void deallocate(void* data) noexcept {
    Slab* slab = find_slab(data);
    if (!slab) return deallocate_large(data);
    const uint32_t index = slab->index_of(data);
    const size_t size = slab->block_bytes();
    forget(data, size);
    std::lock_guard lock(lock_);
    const uint8_t category = slab->categories[index];
    ETCH_INVARIANT(slab->owner == &slabs_ && category != Slab::kFree);
    counter_.remove(static_cast<MemoryCategory>(category), static_cast<int64_t>(size));
    slabs_.give_back(slab, index);
  }

  void set_category(void* data, MemoryCategory category) {
    if (Slab* slab = find_slab(data)) {
      std::lock_guard lock(lock_);
      uint8_t& old = slab->categories[slab->index_of(data)];
      ETCH_INVARIANT(slab->owner == &slabs_ && old != Slab::kFree);
      counter_.move(static_cast<MemoryCategory>(old), category, static_cast<int64_t>(slab->block_bytes()));
      old = static_cast<uint8_t>(category);
      return;
    }
    std::lock_guard structure(mutex_);
    Block* block = blocks_.find(data);
    ETCH_INVARIANT(block != nullptr);
    std::lock_guard lock(lock_);
    counter_.move(block->category, category, static_cast<int64_t>(block->bytes));
    block->category = category;
  }

  MemoryStats stats() {
    std::lock_guard lock(lock_);
    return counter_.read();
  }
  void reset_peak() {
    std::lock_guard lock(lock_);
    counter_.reset_peak();
  }
  void set_limit(int64_t bytes) {
    std::lock_guard lock(lock_);
    counter_.set_limit(bytes);
  }
  void empty_cache() {
    std::lock_guard structure(mutex_);
    release_cached();
  }

 private:
  static size_t granules(size_t bytes) {
    return bytes > kLargestRequest ? bytes : (bytes + kLargeGranule - 1) / kLargeGranule * kLargeGranule;
  }

  void* finish(void* data, size_t bytes, size_t size) {
    show(data, std::max<size_t>(bytes, 1));
    if (poison_host_ && config().poison) [[unlikely]] {
      show(data, size);
      std::memset(data, 0xFF, size);
      hide(static_cast<char*>(data) + bytes, size - bytes);
    }
    return data;
  }
  void forget(void* data, size_t size) {
    if (poison_host_ && config().poison) [[unlikely]] {
      show(data, size);
      std::memset(data, 0xFF, size);
    }
    hide(data, size);
  }

  void* allocate_large(size_t bytes, MemoryCategory category) {
    const size_t size = granules(bytes);
    if (size > kLargestRequest || !fits(size)) fail_over_limit(size);
    {
      std::lock_guard structure(mutex_);
      const bool medium = Blocks::is_medium(size);
      Block* block = blocks_.take(size, medium);
      if (!block) block = grow(size, medium);
      if (block) {
        std::unique_lock lock(lock_);
        if (counter_.fits(static_cast<int64_t>(size))) {
          block->category = category;
          counter_.add(category, static_cast<int64_t>(size));
          return block->data;
        }
        lock.unlock();
        blocks_.give_back(block);  // another thread was faster
      }
    }
    if (!fits(size)) fail_over_limit(size);
    fail_exhausted(size);
  }

  void deallocate_large(void* data) noexcept {
    std::unique_lock structure(mutex_);
    Block* block = blocks_.find(data);
    ETCH_INVARIANT(block != nullptr);
    const size_t size = block->bytes;
    structure.unlock();  // the caller owns the block, so it stays as it is
    forget(data, size);
    structure.lock();
    {
      std::lock_guard lock(lock_);
      counter_.remove(block->category, static_cast<int64_t>(size));
    }
    blocks_.give_back(block);
  }

  /// A new segment's block; null when the device has no more. Holds mutex_.
  Block* grow(size_t size, bool medium) {
    size_t wanted = Blocks::segment_bytes(size);
    void* data = request(wanted);
    if (!data && wanted > size) data = request(wanted = size);
    if (!data) return blocks_.take(size, !medium);
    try {
      blocks_.add_segment({data, wanted}, medium);
    } catch (...) {
      release(data, wanted);
      throw;
    }
    return blocks_.take(size, medium);
  }

  /// Gives the class a slab. Throws OutOfMemoryError.
  void open_slab(uint32_t units) {
    {
      std::lock_guard structure(mutex_);
      {
        std::lock_guard lock(lock_);
        if (slabs_.open_slab(units)) return;
      }
      if (void* data = request(Slabs::kRegionBytes)) {
        std::lock_guard lock(lock_);
        slabs_.add_region({data, Slabs::kRegionBytes});
        slabs_.open_slab(units);
        return;
      }
    }
    fail_exhausted(Slabs::kRegionBytes);
  }

  /// Asks the device, with the cache emptied first where that helps. Holds mutex_.
  void* request(size_t bytes) {
    bool hoards;
    {
      std::lock_guard lock(lock_);
      hoards = counter_.hoards(static_cast<int64_t>(bytes));
      counter_.count_device_allocation();
    }
    if (hoards) release_cached();
    void* data = memory_.allocate(bytes);
    if (!data && !hoards) {
      release_cached();
      data = memory_.allocate(bytes);
    }
    if (!data) return nullptr;
    hide(data, bytes);
    std::lock_guard lock(lock_);
    counter_.add_reserved(static_cast<int64_t>(bytes));
    return data;
  }
  void release(void* data, size_t bytes) {
    show(data, bytes);
    memory_.release(data, bytes);
    std::lock_guard lock(lock_);
    counter_.add_reserved(-static_cast<int64_t>(bytes));
  }
  void release_cached() {
    for (const Blocks::Segment& segment : blocks_.remove_free_segments())
      release(segment.data, segment.bytes);
    std::unique_lock lock(lock_);
    const auto regions = slabs_.remove_free_regions();
    lock.unlock();
    for (const Slabs::Region& region : regions) release(region.data, region.bytes);
  }

  bool fits(size_t size) {
    std::lock_guard lock(lock_);
    return counter_.fits(static_cast<int64_t>(size));
  }

  [[noreturn]] void fail_over_limit(size_t size) {
    const MemoryStats now = stats();
    if (now.limit == 0) fail_exhausted(size);
    fail<OutOfMemoryError>(
        "allocate: expected at most ", now.limit, " bytes on ", to_string(device_), ", got ", now.allocated,
        " in use and ", size,
        " more; free tensors, or raise the limit by set_memory_limit() or ETCH_MEMORY_LIMIT\n",
        memory_summary(device_));
  }
  [[noreturn]] void fail_exhausted(size_t size) {
    fail<OutOfMemoryError>("allocate: expected ", size, " free bytes on ", to_string(device_),
                           ", got none from the system; free tensors\n", memory_summary(device_));
  }

  const Device device_;
  DeviceMemory& memory_;
  const bool poison_host_;
  alignas(64) SpinLock lock_;
  Counter counter_;
  Slabs slabs_;
  alignas(64) std::mutex mutex_;
  Blocks blocks_;
};

// Pools are never destroyed: static objects may free tensors while the process ends.
Pool& cuda_pool(Device device) {
  static std::mutex* const mutex = new std::mutex;
  static constinit std::atomic<Pool*> pools[128] = {};
  std::atomic<Pool*>& pool = pools[device.index & 127];
  if (Pool* made = pool.load(std::memory_order_acquire)) return *made;
  std::lock_guard lock(*mutex);
  if (!pool.load(std::memory_order_relaxed)) pool.store(new Pool(device), std::memory_order_release);
  return *pool.load(std::memory_order_relaxed);
}

Pool& pool_of(Device device) {
  static Pool* const host = new Pool(Device::cpu());
  if (device.type == DeviceType::Cpu) [[likely]]
    return *host;
  return cuda_pool(device);
}

}  // namespace

void* allocate(Device device, size_t bytes, MemoryCategory category) {
  return pool_of(device).allocate(bytes, category);
}
void deallocate(Device device, void* data) noexcept { pool_of(device).deallocate(data); }
void set_category(Device device, void* data, MemoryCategory category) {
  pool_of(device).set_category(data, category);
}

MemoryStats memory_stats(Device device) { return pool_of(device).stats(); }
void reset_peak_memory(Device device) { pool_of(device).reset_peak(); }
void set_memory_limit(int64_t bytes, Device device) {
  ETCH_CHECK(bytes >= 0, ValueError, "set_memory_limit: expected 0 or more bytes, got ", bytes);
  pool_of(device).set_limit(bytes);
}
void empty_cache(Device device) { pool_of(device).empty_cache(); }

}  // namespace etch
