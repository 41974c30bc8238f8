// Sums of tensors that are one value but for a run of elements, as gradients of slices are.
#pragma once

#include <cstdint>
#include <span>

namespace etch::cpu {

/// `count` elements: source[i - first] for i in [first, first + length), `fill` elsewhere.
struct PieceTerm {
  const float* source = nullptr;
  int64_t first = 0, length = 0;
  float fill = 0;
};

/// out[i] = the terms at i, added from left to right, for i in [0, count); at least one term. `out` must not
/// overlap a source. Parallel.
void sum_of_pieces(std::span<const PieceTerm> terms, float* out, int64_t count);

}  // namespace etch::cpu
