// Blocks that stay in the first-level cache, term by term.
#include "eager/cpu/piece_sum.h"

#include <algorithm>

#include "runtime/parallel.h"

namespace etch::cpu {
namespace {

constexpr int64_t kBlock = 2048;

void set(float* __restrict out, const float* __restrict from, int64_t n) { std::copy_n(from, n, out); }
void set(float* out, float value, int64_t n) { std::fill_n(out, n, value); }
void add(float* __restrict out, const float* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] + from[i];
}
void add(float* out, float value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] + value;
}

template <class From>
void take(bool first, float* out, From from, int64_t n) {
  if (n <= 0) return;
  if (first)
    set(out, from, n);
  else
    add(out, from, n);
}

/// Elements [from, to) of the sum.
void add_up(std::span<const PieceTerm> terms, float* out, int64_t from, int64_t to) {
  for (size_t t = 0; t < terms.size(); ++t) {
    const PieceTerm& term = terms[t];
    const int64_t enter = std::clamp(term.first, from, to);
    const int64_t leave = std::clamp(term.first + term.length, from, to);
    take(t == 0, out, term.fill, enter - from);
    if (leave > enter) take(t == 0, out + (enter - from), term.source + (enter - term.first), leave - enter);
    take(t == 0, out + (leave - from), term.fill, to - leave);
  }
}

/// Elements [from, to) of a sum to where the layout has them, run by run.
void scatter(const float* values, float* out, const Geometry& layout, int64_t from, int64_t to) {
  const int last = layout.ndim() - 1;
  const int64_t run = layout.sizes[last];
  while (from < to) {
    int64_t rest = from / run, offset = from % run;
    const int64_t count = std::min(run - offset, to - from);
    for (int d = last - 1; d >= 0; --d) {
      offset += rest % layout.sizes[d] * layout.strides[d];
      rest /= layout.sizes[d];
    }
    std::copy_n(values, count, out + offset);
    values += count;
    from += count;
  }
}

}  // namespace

void sum_of_pieces(std::span<const PieceTerm> terms, float* out, const Geometry& layout) {
  const int64_t count = layout.numel();
  const bool plain = is_contiguous(layout);
  parallel_for((count + kBlock - 1) / kBlock, 4, [&](int64_t begin, int64_t end) {
    alignas(64) float values[kBlock];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t from = block * kBlock, to = std::min(count, from + kBlock);
      add_up(terms, plain ? out + from : values, from, to);
      if (!plain) scatter(values, out, layout, from, to);
    }
  });
}

}  // namespace etch::cpu
