// Strided copies: the dimension that is densest in the target runs innermost, the rest in parallel.
#include "eager/cpu/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace etch::onednn {
namespace {

template <class T>
double widen(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return to_float(value);
  else
    return static_cast<double>(value);
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_same_v<To, Half>)
    return to_half(static_cast<float>(widen(value)));
  else if constexpr (std::is_same_v<To, BFloat16>)
    return to_bfloat16(static_cast<float>(widen(value)));
  else
    return static_cast<To>(widen(value));
}

StridedCopy by_target_stride(const StridedCopy& copy) {
  std::array<int, StridedCopy::kDims> order;
  std::iota(order.begin(), order.end(), 0);
  auto rank = [&](int d) { return copy.sizes[d] == 1 ? INT64_MAX : copy.to_strides[d]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) > rank(b); });
  StridedCopy sorted = copy;
  for (int d = 0; d < StridedCopy::kDims; ++d) {
    sorted.sizes[d] = copy.sizes[order[d]];
    sorted.from_strides[d] = copy.from_strides[order[d]];
    sorted.to_strides[d] = copy.to_strides[order[d]];
  }
  return sorted;
}

template <class From, class To>
void copy_rows(const StridedCopy& c, const From* from, To* to) {
  constexpr int kInner = StridedCopy::kDims - 1;
  const int64_t width = c.sizes[kInner], from_step = c.from_strides[kInner], to_step = c.to_strides[kInner];
  int64_t rows = 1;
  for (int d = 0; d < kInner; ++d) rows *= c.sizes[d];
  const int64_t grain = std::max<int64_t>(1, 16384 / width);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, from_offset = 0, to_offset = 0;
      for (int d = kInner - 1; d >= 0; --d) {
        const int64_t i = rest % c.sizes[d];
        rest /= c.sizes[d];
        from_offset += i * c.from_strides[d];
        to_offset += i * c.to_strides[d];
      }
      To* target = to + to_offset;
      if (from == nullptr) {
        for (int64_t i = 0; i < width; ++i) std::memset(target + i * to_step, 0, sizeof(To));
        continue;
      }
      const From* source = from + from_offset;
      if (from_step == 1 && to_step == 1)
        for (int64_t i = 0; i < width; ++i) target[i] = convert<To>(source[i]);
      else
        for (int64_t i = 0; i < width; ++i) target[i * to_step] = convert<To>(source[i * from_step]);
    }
  });
}

template <class From>
void copy_from(const StridedCopy& c, const void* from, void* to) {
  auto typed = [&]<class To>() { copy_rows(c, static_cast<const From*>(from), static_cast<To*>(to)); };
  if (c.to == c.from) return typed.template operator()<From>();
  switch (c.to) {
    case DType::F16:
      return typed.template operator()<Half>();
    case DType::BF16:
      return typed.template operator()<BFloat16>();
    case DType::F32:
      return typed.template operator()<float>();
    default:
      break;
  }
  ETCH_INVARIANT(c.to == DType::F64);
  typed.template operator()<double>();
}

}  // namespace

void run_copy(const StridedCopy& copy, const void* from, void* to) {
  for (int64_t size : copy.sizes)
    if (size == 0) return;
  const StridedCopy sorted = by_target_stride(copy);
  visit_dtype(copy.from, [&]<class From>() { copy_from<From>(sorted, from, to); });
}

}  // namespace etch::onednn
