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

}  // namespace

void sum_of_pieces(std::span<const PieceTerm> terms, float* out, int64_t count) {
  parallel_for((count + kBlock - 1) / kBlock, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t from = block * kBlock, to = std::min(count, from + kBlock);
      for (size_t t = 0; t < terms.size(); ++t) {
        const PieceTerm& term = terms[t];
        const int64_t enter = std::clamp(term.first, from, to);
        const int64_t leave = std::clamp(term.first + term.length, from, to);
        take(t == 0, out + from, term.fill, enter - from);
        if (leave > enter) take(t == 0, out + enter, term.source + (enter - term.first), leave - enter);
        take(t == 0, out + leave, term.fill, to - leave);
      }
    }
  });
}

}  // namespace etch::cpu
