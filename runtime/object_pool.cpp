// The shared part of object pools.
#include "runtime/object_pool.h"

#include <mutex>

namespace etch::pool {

void* Central::refill(Cache& cache) {
  const uint32_t wanted = cache.capacity / 2;
  std::lock_guard lock(lock_);
  if (!head_) {
    constexpr size_t kObjects = 64;
    slabs_.reserve(slabs_.size() + 1);
    char* slab = static_cast<char*>(::operator new(kObjects* bytes_, std::align_val_t(64)));
    slabs_.push_back(slab);
    for (size_t i = kObjects; i-- > 0;) head_ = new (slab + i * bytes_) Node{head_};
  }
  Node* object = head_;
  head_ = object->next;
  while (cache.count < wanted && head_) {
    Node* node = head_;
    head_ = node->next;
    node->next = cache.head;
    cache.head = node;
    ++cache.count;
  }
  return object;
}

void Central::take_back(Cache& cache, uint32_t keep, void* object) noexcept {
  std::lock_guard lock(lock_);
  if (object) head_ = new (object) Node{head_};
  while (cache.count > keep) {
    Node* node = cache.head;
    cache.head = node->next;
    --cache.count;
    node->next = head_;
    head_ = node;
  }
}

}  // namespace etch::pool
