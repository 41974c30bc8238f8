// Products of small matrices that lie in cache, by libxsmm: one thread, no setup worth mentioning.
#pragma once

#include <cstdint>

namespace etch::cpu {

/// Row-major c [m, n] = a [m, k] b [k, n], or c += a b. Strides are from row to row, in elements; the columns
/// of b and c are neighbours, and so are those of a, or its rows if it is transposed.
struct TileShape {
  int64_t m, n, k;
  int64_t a_stride, b_stride, c_stride;
  bool a_transposed = false, accumulate = false;
};

/// Each element is its terms added one after another, k rising, by fused multiply-adds where the machine has
/// them, starting from zero or from c. So its bits do not depend on how a product is cut into tiles, nor on
/// terms that are zero.
void tile_product(const TileShape& shape, const float* a, const float* b, float* c);

/// Whether tile_product() takes such products: there is a library, and n is at least 17 (narrower ones are
/// added up in another order).
bool has_tile_product(int64_t n);

}  // namespace etch::cpu
