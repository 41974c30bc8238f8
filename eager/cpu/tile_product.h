// Products of small matrices that lie in cache, by libxsmm: one thread, no setup worth mentioning.
#pragma once

#include <cstdint>

namespace etch::cpu {

/// Row-major c [m, n] = a [m, k] b [k, n], or c += a b. Strides are from row to row, in elements; the columns
/// of b and c are neighbours, and so are those of a, or its rows if it is transposed (the stride then leads
/// from column to column).
struct TileShape {
  int64_t m, n, k;
  int64_t a_stride, b_stride, c_stride;
  bool a_transposed = false, accumulate = false;
};

/// Each element is its terms added one after another, k rising, by fused multiply-adds, starting from zero or
/// from c. So its bits do not depend on how a product is cut into tiles. Nothing else is read or written.
/// Each new shape costs some 10 microseconds and a few KiB that the process keeps. What has_tile_product()
/// does not recommend is computed by a plain loop.
void tile_product(const TileShape& shape, const float* a, const float* b, float* c);

/// tile_product() with the library's kernels looked up once: saves some 50 ns for every 64 columns of a call.
class TileProduct {
 public:
  explicit TileProduct(const TileShape& shape);
  void operator()(const float* a, const float* b, float* c) const;

 private:
  struct Piece {
    int64_t columns, repeats;
    void* kernel;  // null: the plain loop
  };
  TileShape shape_;
  [[maybe_unused]] Piece pieces_[3];
  [[maybe_unused]] int count_ = 0;
};

/// Whether tile_product() is fast: there is a library, it may make code for this machine, which has fused
/// multiply-adds, and n is at least 17 (narrower ones the library adds up in another order).
bool has_tile_product(int64_t n);

/// to [columns, rows] = the transpose of from [rows, columns]. In both the elements of a row are neighbours;
/// their rows are from_stride >= columns and to_stride >= rows elements apart (0: rows). They must not
/// overlap. A to_stride that is an odd multiple of 16 is up to twice as fast as a power of two.
void transpose_tile(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                    int64_t to_stride = 0);

}  // namespace etch::cpu
