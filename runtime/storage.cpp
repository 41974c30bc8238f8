// Life of storages, and the registry of memory owned by others.
#include "runtime/storage.h"

#include <map>
#include <mutex>
#include <vector>

#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/object_pool.h"

namespace etch {

thread_local PendingWork* active_work = nullptr;

struct Storage::Extra {
  std::exception_ptr failure;
  std::vector<std::function<void()>> releases;  // guarded by the registry's mutex
};

namespace {

/// Live foreign ranges of all devices, disjoint, by device and start. Never destroyed.
struct Registry {
  using Key = std::pair<int, uintptr_t>;
  struct Range {
    uintptr_t end;
    Storage* storage;
  };
  std::mutex mutex;
  std::map<Key, Range> ranges;

  static Registry& instance() {
    static auto* const registry = new Registry;
    return *registry;
  }
  static Key key(Device device, const void* data) {
    return {static_cast<int>(device.type) * 256 + device.index, reinterpret_cast<uintptr_t>(data)};
  }
  /// The first range of the device that overlaps [start, end) and whose storage is alive; that one gets a
  /// reference. Ranges whose storage another thread is destroying are dropped on the way.
  std::map<Key, Range>::iterator find_overlapping(Key start, uintptr_t end) {
    auto at = ranges.upper_bound(start);
    if (at != ranges.begin()) --at;
    while (at != ranges.end() && at->first < Key(start.first, end)) {
      if (at->first.first != start.first || at->second.end <= start.second)
        ++at;
      else if (at->second.storage->try_add_reference())
        return at;
      else
        at = ranges.erase(at);
    }
    return ranges.end();
  }
};

/// Release functions waiting on this thread. They may drop other storages: those join the queue.
struct Waiting {
  std::function<void()> release;
  Waiting* next;
};
thread_local constinit Waiting* waiting = nullptr;
thread_local constinit bool releasing = false;

void run_releases(std::vector<std::function<void()>> releases) {
  for (auto& release : releases)
    if (release) waiting = new Waiting{std::move(release), waiting};
  if (releasing) return;
  releasing = true;
  while (Waiting* first = waiting) {
    waiting = first->next;
    try {
      first->release();
    } catch (const std::exception& error) {
      log(1, join_text({"a release function of foreign memory threw: ", error.what()}));
    } catch (...) {
      log(1, "a release function of foreign memory threw");
    }
    delete first;  // what the function captured goes here and may drop storages too
  }
  releasing = false;
}

}  // namespace

Storage::Storage(Device device, size_t bytes) : bytes_(bytes), device_(device) {}

Storage::~Storage() {
  if (data_ && !foreign_) etch::deallocate(device_, data_);
}

Ref<Storage> Storage::allocate(Device device, size_t bytes, MemoryCategory category) {
  Ref<Storage> storage = deferred(device, bytes);
  storage->category_ = category;
  storage->data_ = etch::allocate(device, bytes, category);
  return storage;
}

Ref<Storage> Storage::deferred(Device device, size_t bytes) {
  return Ref<Storage>::first(new (ObjectPool<Storage>::allocate()) Storage(device, bytes));
}

Ref<Storage> Storage::foreign(Device device, void* data, size_t bytes, std::function<void()> release,
                              bool stable, size_t* offset) {
  const Registry::Key start = Registry::key(device, data);
  const uintptr_t end = start.second + bytes;
  uintptr_t live_start = 0, live_end = 0;
  Ref<Storage> live;  // outlives the lock: its destruction takes it
  {
    Registry& registry = Registry::instance();
    std::lock_guard lock(registry.mutex);
    const auto found = bytes ? registry.find_overlapping(start, end) : registry.ranges.end();
    if (found == registry.ranges.end()) {
      Ref<Storage> storage = deferred(device, bytes);
      storage->extra_ = std::make_unique<Extra>();
      storage->extra_->releases.push_back(std::move(release));
      if (bytes) registry.ranges[start] = {end, storage.get()};
      storage->data_ = data;
      storage->category_ = MemoryCategory::Other;
      storage->foreign_ = true;
      storage->stable_ = stable;
      *offset = 0;
      return storage;
    }
    live = Ref<Storage>(found->second.storage);
    live->drop_reference();  // the one of find_overlapping
    live_start = found->first.second;
    live_end = found->second.end;
    if (live_start <= start.second && end <= live_end) {
      live->extra_->releases.push_back(std::move(release));
      if (!stable) live->stable_.store(false, std::memory_order_relaxed);
      *offset = start.second - live_start;
      return live;
    }
  }
  fail<ValueError>("foreign memory: expected a range inside or apart from the one in use at ",
                   uint64_t{live_start}, " of ", uint64_t{live_end - live_start}, " bytes, got ",
                   uint64_t{start.second}, " of ", bytes,
                   " bytes; import the enclosing range first, or drop the tensors of the other one");
}

void Storage::destroy(Storage* storage) {
  std::vector<std::function<void()>> releases;
  if (storage->foreign_) {
    Registry& registry = Registry::instance();
    std::lock_guard lock(registry.mutex);
    const auto found = registry.ranges.find(Registry::key(storage->device_, storage->data_));
    if (found != registry.ranges.end() && found->second.storage == storage) registry.ranges.erase(found);
    releases = std::move(storage->extra_->releases);
  }
  storage->~Storage();
  ObjectPool<Storage>::release(storage);
  if (!releases.empty()) run_releases(std::move(releases));
}

void Storage::set_category(MemoryCategory category) {
  if (category == category_) return;
  category_ = category;
  if (data_ && !foreign_) etch::set_category(device_, data_, category);
}

const void* Storage::data_for_read() {
  if (PendingWork* work = pending.load(std::memory_order_acquire)) work->settle(*this);
  check_usable();
  ETCH_INVARIANT(data_ != nullptr || bytes_ == 0);
  return data_;
}

void* Storage::data_for_write() {
  if (active_work) active_work->settle_before_write(*this);
  data_for_read();
  bump_version();
  return data_;
}

void Storage::materialise() {
  if (!data_) data_ = etch::allocate(device_, bytes_, category_);
}

void Storage::adopt(void* data, MemoryCategory category) {
  ETCH_INVARIANT(data_ == nullptr);
  data_ = data;
  category_ = category;
  etch::set_category(device_, data, category);
}

void Storage::mark_failed(std::exception_ptr error) {
  if (!extra_) extra_ = std::make_unique<Extra>();
  extra_->failure = std::move(error);
  failed_.store(true, std::memory_order_release);
  if (data_ && !foreign_) etch::deallocate(device_, std::exchange(data_, nullptr));
}

void Storage::rethrow_failure() const { std::rethrow_exception(extra_->failure); }

}  // namespace etch
