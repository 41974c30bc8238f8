// Intrusive reference counting.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace etch {

/// Base of objects held by Ref. Starts at zero references.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  uint32_t use_count() const { return references_.load(std::memory_order_relaxed); }
  void add_reference() const { references_.fetch_add(1, std::memory_order_relaxed); }
  /// The same for an object that no other thread knows yet.
  void add_reference_unshared() const { references_.store(use_count() + 1, std::memory_order_relaxed); }
  /// Adds a reference unless the object is already going away.
  bool try_add_reference() const {
    uint32_t count = use_count();
    while (count != 0)
      if (references_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) return true;
    return false;
  }
  /// True when this was the last reference. The owner of the only one need not take it back: nobody is left
  /// who could add another. Types whose objects can be found by try_add_reference() need the second form.
  bool drop_reference() const {
    return references_.load(std::memory_order_acquire) == 1 || drop_findable_reference();
  }
  bool drop_findable_reference() const { return references_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  mutable std::atomic<uint32_t> references_{0};
};

/// A shared pointer to a RefCounted object, one word wide.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->add_reference();
  }
  /// The first reference to a new object.
  static Ref first(T* object) {
    Ref ref;
    object->add_reference_unshared();
    ref.object_ = object;
    return ref;
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& other) : Ref(static_cast<T*>(other.get())) {}
  ~Ref() {
    if (object_ && object_->drop_reference()) T::destroy(object_);
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace etch
