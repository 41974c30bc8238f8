// Sums of tensors that are one value but for a run of elements, as gradients of slices are.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/shape.h"

namespace etch::cpu {

/// `count` elements: source[i - first] for i in [first, first + length), `fill` elsewhere.
struct PieceTerm {
  const float* source = nullptr;
  int64_t first = 0, length = 0;
  float fill = 0;
};

/// Element i of all of `layout`, in row-major order, becomes the terms at i, added from left to right; at
/// least one term, an innermost stride of 1. `out` must not overlap a source. Parallel.
void sum_of_pieces(std::span<const PieceTerm> terms, float* out, const Geometry& layout);

}  // namespace etch::cpu
