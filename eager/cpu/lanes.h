// Loads that widen to the arithmetic type, and the lane order of row reductions (tracer/reduction.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/dtype.h"
#include "tracer/reduction.h"
#include "tracer/scalar_math.h"

namespace etch::cpu {

/// The type that arithmetic on elements of T runs in.
template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<Half> {
  using type = float;
};
template <>
struct ComputeOf<BFloat16> {
  using type = float;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

#define ETCH_INLINE inline __attribute__((always_inline))
#define ETCH_INLINE_LAMBDA __attribute__((always_inline))

template <class T>
ETCH_INLINE T widen(T value) {
  return value;
}
ETCH_INLINE float widen(Half value) { return scalar::half_to_float(value.bits); }
ETCH_INLINE float widen(BFloat16 value) { return scalar::bfloat16_to_float(value.bits); }

/// Rounds a result to the storage type.
template <class T>
ETCH_INLINE T narrow(Compute<T> value) {
  if constexpr (std::is_same_v<T, Half>) {
    return {scalar::float_to_half(value)};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {scalar::float_to_bfloat16(value)};
  } else {
    return value;
  }
}

/// One block (at most kReductionBlock elements, element(i) each) in the lane order.
template <class Acc, class Element, class Combine>
ETCH_INLINE Acc reduce_block(int64_t n, Acc identity, Element element, Combine combine) {
  constexpr int kLanes = static_cast<int>(kReductionLanes);
  Acc lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = identity;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] = combine(lane[l], element(i + l));
  for (int l = 0; i + l < n; ++l) lane[l] = combine(lane[l], element(i + l));
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] = combine(lane[l], lane[l + width]);
  return lane[0];
}

/// A run of n elements: its blocks in order.
template <class Acc, class Element, class Combine>
ETCH_INLINE Acc reduce_run(int64_t n, Acc identity, Element element, Combine combine) {
  Acc result = identity;
  for (int64_t at = 0; at < n; at += kReductionBlock) {
    const int64_t count = n - at < kReductionBlock ? n - at : kReductionBlock;
    result = combine(
        result, reduce_block<Acc>(
                    count, identity, [&](int64_t i) ETCH_INLINE_LAMBDA { return element(at + i); }, combine));
  }
  return result;
}

}  // namespace etch::cpu
