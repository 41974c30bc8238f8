// argmax and argmin: the first best element, where NaN beats everything.
#include <algorithm>
#include <cstring>

#include "eager/cpu/lanes.h"
#include "eager/cpu/loop.h"
#include "eager/cpu/reduction.h"
#include "runtime/parallel.h"
#include "tracer/attrs.h"

namespace etch::cpu {
namespace {

/// Over n contiguous elements: the best value in lanes (its order does not matter), then where it comes
/// first.
template <class T, bool Max>
int64_t first_best_contiguous(const T* x, int64_t n) {
  using V = Compute<T>;
  const V best = reduce_run<V>(
      n, Max ? scalar::lowest<V>() : scalar::highest<V>(),
      [x](int64_t i) ETCH_INLINE_LAMBDA { return widen(x[i]); },
      [](V a, V b) ETCH_INLINE_LAMBDA { return Max ? scalar::max(a, b) : scalar::min(a, b); });
  constexpr int64_t kStep = 64;
  const auto is_best = [best](V value) ETCH_INLINE_LAMBDA { return (value == best) | (value != value); };
  for (int64_t at = 0; at < n; at += kStep) {
    const int64_t end = std::min(n, at + kStep);
    int found = 0;
    for (int64_t i = at; i < end; ++i) found |= is_best(widen(x[i]));
    if (!found) continue;
    for (int64_t i = at; i < end; ++i)
      if (is_best(widen(x[i]))) return i;
  }
  return 0;
}

/// Walks `along` (output ignored, input) in order; returns the position of the first best.
template <class T, bool Max>
int64_t first_best(const Loop& along, const char* base) {
  if (along.ndim == 1 && along.stride[1][0] == sizeof(T))
    return first_best_contiguous<T, Max>(reinterpret_cast<const T*>(base), along.count);
  int64_t position = 0, best_at = 0;
  Compute<T> best{};
  walk(along, 0, along.count, [&](const int64_t* offset, int64_t n) {
    const char* from = base + offset[1];
    const int64_t stride = along.inner_stride(1);
    for (int64_t i = 0; i < n; ++i, ++position) {
      T element;
      std::memcpy(&element, from + i * stride, sizeof element);
      const Compute<T> value = widen(element);
      const bool better = (Max ? value > best : value < best) || (value != value && best == best);
      if (position == 0 || better) {
        best = value;
        best_at = position;
      }
    }
  });
  return best_at;
}

template <class T, bool Max>
void run(const Loop& kept, const Loop& along) {
  parallel_for(kept.count, std::max<int64_t>(1, kGrain / along.count), [&](int64_t begin, int64_t end) {
    walk(kept, begin, end, [&](const int64_t* offset, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const char* in = kept.base[1] + offset[1] + i * kept.inner_stride(1);
        const int64_t found = first_best<T, Max>(along, in);
        std::memcpy(kept.base[0] + offset[0] + i * kept.inner_stride(0), &found, sizeof found);
      }
    });
  });
}

}  // namespace

void run_arg_reduction(const OpCall& call) {
  const Operand& in = call.inputs[0];
  const Operand& out = call.outputs[0];
  if (out.geometry->numel() == 0) return;
  const ReductionAttrs attrs(call.attrs);
  Loop kept(Dims{}), along(Dims{});
  for (Loop* loop : {&kept, &along}) {
    loop->operands = 2;
    loop->base[0] = out.data();
    loop->base[1] = in.data();
  }
  const auto item = static_cast<int64_t>(item_size(in.dtype));
  int out_axis = 0;
  for (int axis = 0; axis < in.geometry->ndim(); ++axis) {
    const bool reduced = attrs.axes >> axis & 1;
    Loop& loop = reduced ? along : kept;
    loop.size[loop.ndim] = in.geometry->sizes[axis];
    loop.count *= loop.size[loop.ndim];
    loop.stride[0][loop.ndim] =
        reduced ? 0 : out.geometry->strides[out_axis] * static_cast<int64_t>(sizeof(int64_t));
    loop.stride[1][loop.ndim++] = in.geometry->strides[axis] * item;
    if (!reduced || attrs.keepdim) ++out_axis;
  }
  kept.merge();
  // The output does not move along it and must not keep dimensions from merging.
  for (int d = 0; d < along.ndim; ++d) along.stride[0][d] = along.stride[1][d];
  along.merge();
  visit_dtype(in.dtype, [&]<class T>() {
    if (call.op == Op::argmax)
      run<T, true>(kept, along);
    else
      run<T, false>(kept, along);
  });
}

}  // namespace etch::cpu
