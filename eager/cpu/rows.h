// What fused composites share: rows along an axis, row reductions, and rows in the compute type.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

#include "eager/cpu/lanes.h"
#include "eager/cpu/loop.h"
#include "runtime/parallel.h"

#if defined(__clang__)
#define ETCH_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define ETCH_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace etch::cpu {

/// Calls f with the C++ type of a floating dtype.
template <class F>
bool visit_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F16:
      return f.template operator()<Half>();
    case DType::BF16:
      return f.template operator()<BFloat16>();
    case DType::F32:
      return f.template operator()<float>();
    case DType::F64:
      return f.template operator()<double>();
    default:
      return false;
  }
}

template <class T>
T sum_of_run(const T* x, int64_t n) {
  return reduce_run<T>(
      n, T(0), [x](int64_t i) ETCH_INLINE_LAMBDA { return x[i]; },
      [](T a, T b) ETCH_INLINE_LAMBDA { return a + b; });
}

template <class T>
T max_of_run(const T* x, int64_t n) {
  return reduce_run<T>(
      n, scalar::lowest<T>(), [x](int64_t i) ETCH_INLINE_LAMBDA { return x[i]; },
      [](T a, T b) ETCH_INLINE_LAMBDA { return scalar::max(a, b); });
}

/// Sum in the order of a run, of elements that a formula gives.
template <class T, class Element>
ETCH_INLINE T sum_of(int64_t n, Element element) {
  return reduce_run<T>(n, T(0), element, [](T a, T b) ETCH_INLINE_LAMBDA { return a + b; });
}

/// Rows of S read and written in the compute type: in place, or through buffers for 16-bit types.
template <class S>
class RowBuffer {
 public:
  using T = Compute<S>;
  static constexpr bool kDirect = std::is_same_v<S, T>;

  explicit RowBuffer(int64_t n) : buffer_(kDirect ? 0 : static_cast<size_t>(n)) {}

  const T* read(const char* from, int64_t n) {
    if constexpr (kDirect) {
      return reinterpret_cast<const T*>(from);
    } else {
      const auto* in = reinterpret_cast<const S*>(from);
      for (int64_t i = 0; i < n; ++i) buffer_[i] = widen(in[i]);
      return buffer_.data();
    }
  }
  /// Where to write a row; finish() puts it into place.
  T* begin(char* to) {
    if constexpr (kDirect)
      return reinterpret_cast<T*>(to);
    else
      return buffer_.data();
  }
  void finish(char* to, int64_t n) const {
    if constexpr (!kDirect) {
      auto* out = reinterpret_cast<S*>(to);
      for (int64_t i = 0; i < n; ++i) out[i] = narrow<S>(buffer_[i]);
    }
  }

 private:
  std::vector<T> buffer_;
};

/// The rows of tensors of equal sizes along one axis; empty unless the axis is contiguous and innermost in
/// all. Operand 0 is the output.
inline std::optional<Loop> rows_along(int axis, std::initializer_list<const Operand*> operands) {
  const Geometry& out = *(*operands.begin())->geometry;
  if (axis >= out.ndim()) return std::nullopt;
  Dims sizes = out.sizes;
  const int64_t n = sizes[axis];
  sizes.erase(axis);
  Loop rows(sizes);
  for (const Operand* operand : operands) {
    const Geometry& geometry = *operand->geometry;
    if (n > 1) {
      const ReductionOrder order = reduction_order(geometry, uint64_t{1} << axis);
      if (order.kind != ReductionOrder::Kind::Rows || geometry.strides[axis] != 1) return std::nullopt;
    }
    for (int d = 0; d < geometry.ndim(); ++d)  // its order would differ from that of what is computed from it
      if (geometry.strides[d] == 0 && geometry.sizes[d] != 1) return std::nullopt;
    const auto item = static_cast<int64_t>(item_size(operand->dtype));
    Dims strides = geometry.strides;
    strides.erase(axis);
    for (int64_t& stride : strides) stride *= item;
    rows.add_strides(operand->data(), item, strides.data());
  }
  rows.arrange();
  return rows;
}

/// Calls f(row number in the loop's order, addresses) for rows [begin, end).
template <class F>
void for_rows(const Loop& rows, int64_t begin, int64_t end, F&& f) {
  int64_t number = begin;
  walk(rows, begin, end, [&](const int64_t* offset, int64_t count) {
    for (int64_t r = 0; r < count; ++r) {
      char* at[kMaxLoopOperands];
      for (int k = 0; k < rows.operands; ++k) at[k] = rows.base[k] + offset[k] + r * rows.inner_stride(k);
      f(number++, static_cast<char* const*>(at));
    }
  });
}

/// Rows worth a thread when an element costs a few nanoseconds.
inline int64_t row_grain(int64_t n) { return std::max<int64_t>(1, kGrain / 4 / std::max<int64_t>(n, 8)); }

}  // namespace etch::cpu
