// Fixed-size memory for objects that come and go with every op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "runtime/spin_lock.h"

namespace etch {

#if defined(__SANITIZE_ADDRESS__)
#define ETCH_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ETCH_ADDRESS_SANITIZER 1
#endif
#endif

namespace pool {

struct Node {
  Node* next;
};

/// One thread's free objects. Plain data, so that it outlives the thread's destructors.
struct Cache {
  Node* head = nullptr;
  uint32_t count = 0;
  uint32_t capacity = 0;  ///< 0 before the first use and after the thread's end
  bool ended = false;
};

/// Free objects of one type, shared by all threads.
class Central {
 public:
  /// Objects are padded to cache lines: reference counts of neighbours do not share one.
  explicit Central(size_t bytes) : bytes_((bytes + 63) / 64 * 64) {}
  /// Fills an empty cache and returns one object more. Throws std::bad_alloc.
  void* refill(Cache& cache);
  /// Takes back `object` and what the cache holds above `keep`.
  void take_back(Cache& cache, uint32_t keep, void* object) noexcept;

 private:
  SpinLock lock_;
  Node* head_ = nullptr;
  const size_t bytes_;
  std::vector<void*> slabs_;  // never freed; named here so that leak checkers see them
};

}  // namespace pool

/// Memory for objects of exactly type T, to be used by its operator new and delete. Thread-safe; an object
/// may be released by another thread. Memory is kept until the process ends. Under the address sanitizer
/// every object comes from the heap, so that stale uses are seen.
template <class T>
class ObjectPool {
 public:
  static void* allocate() {
#ifdef ETCH_ADDRESS_SANITIZER
    return ::operator new(sizeof(T));
#else
    pool::Cache& cache = cache_;
    pool::Node* node = cache.head;
    if (!node) [[unlikely]]
      return refill(cache);
    cache.head = node->next;
    --cache.count;
    return node;
#endif
  }
  static void release(void* object) noexcept {
#ifdef ETCH_ADDRESS_SANITIZER
    ::operator delete(object);
#else
    pool::Cache& cache = cache_;
    if (cache.count >= cache.capacity) [[unlikely]]
      return spill(cache, object);
    auto* node = static_cast<pool::Node*>(object);
    node->next = cache.head;
    cache.head = node;
    ++cache.count;
#endif
  }

 private:
  static constexpr uint32_t kCapacity = 256;
  static_assert(alignof(T) <= 64);

  static pool::Central& central() {
    static auto* const shared = new pool::Central(sizeof(T));
    return *shared;
  }
  /// Opens the thread's cache at its first use and gives its objects back when the thread ends.
  static void open(pool::Cache& cache) {
    struct Closer {
      pool::Cache& cache;
      ~Closer() {
        cache.capacity = 0;
        cache.ended = true;
        central().take_back(cache, 0, nullptr);
      }
    };
    if (cache.ended) return;
    static thread_local Closer closer{cache};
    cache.capacity = kCapacity;
  }
  [[gnu::noinline]] static void* refill(pool::Cache& cache) {
    open(cache);
    return central().refill(cache);
  }
  [[gnu::noinline]] static void spill(pool::Cache& cache, void* object) noexcept {
    open(cache);
    central().take_back(cache, cache.capacity / 2, object);
  }

  static inline thread_local constinit pool::Cache cache_{};
};

}  // namespace etch
