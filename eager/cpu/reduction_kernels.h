// The reduction rows of the op table compiled for one operand dtype.
#pragma once

#include <cstring>

#include "eager/cpu/lanes.h"
#include "eager/cpu/reduction.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#endif

namespace etch::scalar {

#define ETCH_REDUCTION(name, rule_, identity_, combine_, ...)   \
  struct name##_reduction {                                     \
    static constexpr DTypeRule rule = DTypeRule::rule_;         \
    template <class T>                                          \
    __attribute__((always_inline)) static T identity() {        \
      return identity_;                                         \
    }                                                           \
    template <class T>                                          \
    __attribute__((always_inline)) static T combine(T a, T b) { \
      return static_cast<T>(combine_);                          \
    }                                                           \
  };
#include "tracer/ops.def"

}  // namespace etch::scalar

namespace etch::cpu {

template <class Row, class T>
using Accumulator = std::conditional_t<
    Row::rule == DTypeRule::Bool, bool,
    std::conditional_t<Row::rule == DTypeRule::Sum && std::is_integral_v<T>, int64_t, Compute<T>>>;

template <class Row, class T>
struct ReductionOf {
  using Acc = Accumulator<Row, T>;
  /// What a stored result is.
  using Out = std::conditional_t<std::is_same_v<Acc, Compute<T>>, T, Acc>;

  ETCH_INLINE static Acc load(T value) {
    if constexpr (std::is_same_v<Acc, bool>) {
      return widen(value) != Compute<T>(0);
    } else {
      return static_cast<Acc>(widen(value));
    }
  }

  static void start(char* acc, int64_t n) {
    for (int64_t i = 0; i < n; ++i) reinterpret_cast<Acc*>(acc)[i] = Row::template identity<Acc>();
  }

  static void block(char* acc, const char* in, int64_t n) {
    const T* x = reinterpret_cast<const T*>(in);
    *reinterpret_cast<Acc*>(acc) = reduce_block<Acc>(
        n, Row::template identity<Acc>(), [x](int64_t i) ETCH_INLINE_LAMBDA { return load(x[i]); },
        [](Acc a, Acc b) ETCH_INLINE_LAMBDA { return Row::template combine<Acc>(a, b); });
  }

  static void rows(char* acc, const char* in, int64_t row_stride, int64_t rows, int64_t n) {
    int64_t r = 0;
    if (n <= kReductionLanes)
      for (; r + kTogether <= rows; r += kTogether)
        short_rows(reinterpret_cast<Acc*>(acc) + r, in + r * row_stride, row_stride, static_cast<int>(n));
    for (; r < rows; ++r) {
      const T* x = reinterpret_cast<const T*>(in + r * row_stride);
      reinterpret_cast<Acc*>(acc)[r] = reduce_run<Acc>(
          n, Row::template identity<Acc>(), [x](int64_t i) ETCH_INLINE_LAMBDA { return load(x[i]); },
          [](Acc a, Acc b) ETCH_INLINE_LAMBDA { return Row::template combine<Acc>(a, b); });
    }
  }

  static constexpr int kTogether = 16;
  /// Rows with one element a lane at most, side by side. Lanes that took nothing hold the identity, which
  /// changes no lane that it is folded into.
  static void short_rows(Acc* acc, const char* in, int64_t row_stride, int n) {
    const Acc identity = Row::template identity<Acc>();
    Acc lane[kReductionLanes][kTogether];
    for (int k = 0; k < kTogether; ++k) {
      const T* x = reinterpret_cast<const T*>(in + k * row_stride);
      for (int l = 0; l < n; ++l) lane[l][k] = Row::template combine<Acc>(identity, load(x[l]));
    }
    for (int width = static_cast<int>(kReductionLanes) / 2; width > 0; width /= 2)
      for (int l = 0; l < width && l + width < n; ++l)
        for (int k = 0; k < kTogether; ++k)
          lane[l][k] = Row::template combine<Acc>(lane[l][k], lane[l + width][k]);
    for (int k = 0; k < kTogether; ++k) acc[k] = Row::template combine<Acc>(identity, lane[0][k]);
  }

  static void merge(char* acc, const char* values, int64_t n) {
    Acc* a = reinterpret_cast<Acc*>(acc);
    const Acc* b = reinterpret_cast<const Acc*>(values);
    for (int64_t i = 0; i < n; ++i) a[i] = Row::template combine<Acc>(a[i], b[i]);
  }

  static void columns(char* acc, const char* in, int64_t row_stride, int64_t rows, int64_t n) {
    Acc* __restrict__ a = reinterpret_cast<Acc*>(acc);
    int64_t r = 0;
    // Four rows at a time spare loads and stores of the accumulators; compilers vectorise that for plain
    // arithmetic.
    for (; Row::rule == DTypeRule::Sum && r + 4 <= rows; r += 4) {
      const T* x0 = reinterpret_cast<const T*>(in + r * row_stride);
      const T* x1 = reinterpret_cast<const T*>(in + (r + 1) * row_stride);
      const T* x2 = reinterpret_cast<const T*>(in + (r + 2) * row_stride);
      const T* x3 = reinterpret_cast<const T*>(in + (r + 3) * row_stride);
      for (int64_t i = 0; i < n; ++i) {
        Acc v = Row::template combine<Acc>(a[i], load(x0[i]));
        v = Row::template combine<Acc>(v, load(x1[i]));
        v = Row::template combine<Acc>(v, load(x2[i]));
        a[i] = Row::template combine<Acc>(v, load(x3[i]));
      }
    }
    for (; r < rows; ++r) {
      const T* x = reinterpret_cast<const T*>(in + r * row_stride);
      for (int64_t i = 0; i < n; ++i) a[i] = Row::template combine<Acc>(a[i], load(x[i]));
    }
  }

  static void store(char* out, int64_t stride, const char* acc, int64_t n) {
    const Acc* a = reinterpret_cast<const Acc*>(acc);
    for (int64_t i = 0; i < n; ++i) {
      Out value;
      if constexpr (std::is_same_v<Acc, Out>)
        value = a[i];
      else
        value = narrow<Out>(a[i]);
      std::memcpy(out + i * stride, &value, sizeof value);
    }
  }

  static constexpr ReductionKernels kernels = {sizeof(Acc), start, block, rows, merge, columns, store};
};

template <class T>
constexpr ReductionTable make_reduction_table() {
  ReductionTable table{};
#define ETCH_REDUCTION(name, ...) \
  table[static_cast<int>(Op::name)] = ReductionOf<scalar::name##_reduction, T>::kernels;
#include "tracer/ops.def"
  return table;
}

}  // namespace etch::cpu
