// Sizes, strides, broadcasting, and the overlap of windows.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

#include "runtime/error.h"

namespace etch {

inline constexpr int kMaxDims = 8;

/// Up to eight 64-bit integers by value: sizes, strides or axes. Plain data.
class Dims {
 public:
  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<int64_t> values) { assign(values.begin(), values.size()); }
  constexpr Dims(std::span<const int64_t> values) { assign(values.data(), values.size()); }
  static constexpr Dims filled(int count, int64_t value) {
    Dims dims;
    for (int i = 0; i < count; ++i) dims.push_back(value);
    return dims;
  }

  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr int64_t& operator[](int i) { return values_[i]; }
  constexpr int64_t operator[](int i) const { return values_[i]; }
  constexpr int64_t back() const { return values_[size_ - 1]; }
  constexpr const int64_t* data() const { return values_; }
  constexpr int64_t* begin() { return values_; }
  constexpr int64_t* end() { return values_ + size_; }
  constexpr const int64_t* begin() const { return values_; }
  constexpr const int64_t* end() const { return values_ + size_; }
  constexpr void push_back(int64_t value) {
    if (size_ == kMaxDims) fail<ShapeError>("shape: expected at most ", kMaxDims, " dimensions");
    values_[size_++] = value;
  }
  constexpr void resize(int size, int64_t value = 0) {
    while (size_ > size) --size_;
    while (size_ < size) push_back(value);
  }
  constexpr void erase(int at) {
    for (int i = at; i + 1 < size_; ++i) values_[i] = values_[i + 1];
    --size_;
  }
  constexpr void insert(int at, int64_t value) {
    push_back(value);
    for (int i = size_ - 1; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = value;
  }
  constexpr bool operator==(const Dims& other) const {
    if (size_ != other.size_) return false;
    for (int i = 0; i < size_; ++i)
      if (values_[i] != other.values_[i]) return false;
    return true;
  }

 private:
  constexpr void assign(const int64_t* values, size_t count) {
    for (size_t i = 0; i < count; ++i) push_back(values[i]);
  }
  int64_t values_[kMaxDims] = {};
  int size_ = 0;
};

using Shape = Dims;

/// Axes to reduce: none, several in braces, or one as a plain number.
class Axes : public Dims {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<int64_t> axes) : Dims(axes) {}
  constexpr Axes(const Dims& axes) : Dims(axes) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Axes(T axis) : Dims({static_cast<int64_t>(axis)}) {}
};

/// "[2, 3]"
std::string to_string(const Dims& dims);
std::ostream& operator<<(std::ostream& out, const Dims& dims);

/// The product of the sizes; 1 for no dimensions.
constexpr int64_t num_elements(const Dims& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

/// Row-major strides in elements.
Dims contiguous_strides(const Dims& sizes);
/// Strides of the same memory order as `strides`, packed without gaps (ties and size-1 dims fall back to
/// row-major).
Dims packed_strides_like(const Dims& sizes, const Dims& strides);
/// N, H, W, C in memory under N, C, H, W sizes (4-d).
Dims channels_last_strides(const Dims& sizes);

/// Sizes and strides of a tensor, in elements. The offset into the storage is kept apart: it is a value, not
/// structure.
struct Geometry {
  Dims sizes;
  Dims strides;

  int ndim() const { return sizes.size(); }
  int64_t numel() const { return num_elements(sizes); }
  bool operator==(const Geometry& other) const = default;
};

Geometry contiguous(const Dims& sizes);
/// Row-major without gaps; dimensions of size 1 and empty tensors do not matter.
bool is_contiguous(const Geometry& geometry);
/// Some permutation of the dimensions is contiguous: every element of the extent is covered exactly once.
bool is_dense(const Geometry& geometry);
bool is_channels_last(const Geometry& geometry);
/// Elements from the first to one past the last that the window touches (strides are never negative); 0 when
/// empty.
int64_t extent(const Geometry& geometry);
/// Whether two different indices may touch the same element (stride 0, or overlapping steps).
bool may_self_overlap(const Geometry& geometry);

/// The sizes both broadcast to; throws ShapeError naming `op` and both shapes.
Dims broadcast_sizes(std::string_view op, const Dims& a, const Dims& b);
/// The geometry expanded to `sizes` (stride 0 on broadcast dimensions). The caller has checked that it fits.
Geometry broadcast_to(const Geometry& geometry, const Dims& sizes);
bool can_broadcast_to(const Dims& from, const Dims& to);

/// A non-negative axis; throws IndexError naming `op`. A 0-d tensor takes axes -1 and 0.
int normalize_axis(std::string_view op, int64_t axis, int ndim);

}  // namespace etch
