// Column sums over packed rows in chunks, in the order of tracer/reduction.h, for fused composites.
#pragma once

#include <algorithm>

#include "eager/cpu/lanes.h"
#include "eager/cpu/loop.h"
#include "runtime/parallel.h"

namespace etch::cpu {

/// acc[c] += element(r, c) for rows [first, last) in order.
template <class T, class Element>
ETCH_INLINE void add_columns(T* __restrict__ acc, int64_t first, int64_t last, int64_t columns,
                             Element element) {
  int64_t r = first;
  for (; r + 4 <= last; r += 4) {
    for (int64_t c = 0; c < columns; ++c) {
      T sum = acc[c] + element(r, c);
      sum = sum + element(r + 1, c);
      sum = sum + element(r + 2, c);
      acc[c] = sum + element(r + 3, c);
    }
  }
  for (; r < last; ++r)
    for (int64_t c = 0; c < columns; ++c) acc[c] = acc[c] + element(r, c);
}

inline int64_t chunks_of(int64_t rows) { return (rows + chunk_rows(rows) - 1) / chunk_rows(rows); }

/// `sums` column sums at once. add(first, last, acc) adds a chunk's rows to zeroed acc[sums * columns];
/// `partials` has room for chunks_of(rows) of them. The totals go to `totals`, laid out like acc.
template <class T, class Add>
void sum_columns(int64_t rows, int64_t columns, int sums, T* partials, T* totals, Add add) {
  const int64_t each = chunk_rows(rows), width = columns * sums;
  parallel_for(chunks_of(rows), std::max<int64_t>(1, kGrain / (each * columns)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t chunk = begin; chunk < end; ++chunk) {
                   T* acc = partials + chunk * width;
                   std::fill_n(acc, width, T(0));
                   add(chunk * each, std::min(rows, (chunk + 1) * each), acc);
                 }
               });
  std::fill_n(totals, width, T(0));
  for (int64_t chunk = 0; chunk < chunks_of(rows); ++chunk) {
    const T* __restrict__ acc = partials + chunk * width;
    for (int64_t c = 0; c < width; ++c) totals[c] = totals[c] + acc[c];
  }
}

}  // namespace etch::cpu
