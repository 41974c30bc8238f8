// Runs of the output, term by term.
#include "eager/cpu/piece_sum.h"

#include <algorithm>

#include "eager/cpu/loop.h"
#include "runtime/parallel.h"

namespace etch::cpu {
namespace {

/// Elements that stay in the first-level cache from term to term.
constexpr int64_t kRun = 2048;

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

}  // namespace

void sum_of_pieces(std::span<const PieceTerm> terms, float* out, const Geometry& layout) {
  // In the order of the output's memory, which is colder than what was just made to be added up.
  Loop loop(layout.sizes);
  loop.add(reinterpret_cast<char*>(out), sizeof(float), &layout);
  const Geometry position = contiguous(layout.sizes);
  loop.add(nullptr, 1, &position);
  loop.arrange();
  const int64_t step = loop.inner_stride(0) / static_cast<int64_t>(sizeof(float)),
                next = loop.inner_stride(1);
  const int64_t run = step == 1 && next == 1 ? kRun : 1;
  parallel_for(loop.count, kGrain, [&](int64_t begin, int64_t end) {
    walk(loop, begin, end, [&](const int64_t* offset, int64_t n) {
      float* const to = out + offset[0] / static_cast<int64_t>(sizeof(float));
      for (int64_t i = 0; i < n; i += run)
        add_up(terms, to + i * step, offset[1] + i * next, offset[1] + i * next + std::min(run, n - i));
    });
  });
}

}  // namespace etch::cpu
