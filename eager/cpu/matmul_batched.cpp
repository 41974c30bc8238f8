// A task is a block of rows of one batch. b stays in the core's cache while blocks of a and c pass by.
#include "eager/cpu/matmul_batched.h"

#include <algorithm>

#include "eager/cpu/tile_product.h"
#include "runtime/parallel.h"

namespace etch::onednn {
namespace {

constexpr int64_t kBlockRows = 64;
constexpr int64_t kFewestRows = 16;
/// Bytes of b, which is read once a block.
constexpr int64_t kLargestB = 512 << 10;

enum class Layout { Rows, Columns, Other };

/// Which of them are contiguous.
Layout layout(const int64_t (&strides)[4], int64_t rows, int64_t columns) {
  if (strides[3] == 1 && strides[2] >= columns) return Layout::Rows;
  if (strides[2] == 1 && strides[3] >= rows) return Layout::Columns;
  return Layout::Other;
}

class MatmulBatched final : public Contraction {
 public:
  MatmulBatched(const MatmulGeometry& geometry, bool swapped) : g_(geometry), swapped_(swapped) {
    implementation_ = "tiles";
    const bool a_transposed = layout(g_.a_strides, g_.m, g_.k) == Layout::Columns;
    b_transposed_ = layout(g_.b_strides, g_.k, g_.n) == Layout::Columns;
    shape_ = {.m = 0,
              .n = g_.n,
              .k = g_.k,
              .a_stride = g_.a_strides[a_transposed ? 3 : 2],
              .b_stride = b_transposed_ ? g_.n : g_.b_strides[2],
              .c_stride = g_.c_strides[2],
              .a_transposed = a_transposed};
    // As even as possible: at most two shapes.
    blocks_ = std::max<int64_t>((g_.m + kBlockRows / 2) / kBlockRows, 1);
    tasks_ = g_.batch[0] * g_.batch[1] * blocks_;
    ranges_ = std::min<int64_t>(num_threads(), tasks_);
    if (b_transposed_) scratch_bytes_ = static_cast<size_t>(ranges_ * g_.k * g_.n) * sizeof(float);
  }

  void run(const void* first, const void* second, const void*, void* out, void* scratch) const override {
    const auto* a = static_cast<const float*>(swapped_ ? second : first);
    const auto* b = static_cast<const float*>(swapped_ ? first : second);
    const int64_t work = std::max<int64_t>(g_.m / blocks_ * g_.n * g_.k * (tasks_ / ranges_), 1);
    parallel_for(ranges_, std::max<int64_t>(1, 400'000 / work), [&](int64_t begin, int64_t end) {
      for (int64_t range = begin; range < end; ++range)
        run_tasks(range * tasks_ / ranges_, (range + 1) * tasks_ / ranges_, a, b, static_cast<float*>(out),
                  static_cast<float*>(scratch) + (b_transposed_ ? range * g_.k * g_.n : 0));
    });
  }

 private:
  int64_t offset(const int64_t (&strides)[4], int64_t batch) const {
    return batch / g_.batch[1] * strides[0] + batch % g_.batch[1] * strides[1];
  }

  void run_tasks(int64_t begin, int64_t end, const float* a, const float* b, float* c,
                 float* rows_of_b) const {
    int64_t prepared = -1;
    cpu::TileShape shape = shape_;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / blocks_, block = task % blocks_;
      const float* right = b + offset(g_.b_strides, batch);
      if (b_transposed_) {
        if (prepared != batch) cpu::transpose_tile(right, g_.b_strides[3], g_.n, g_.k, rows_of_b);
        prepared = batch;
        right = rows_of_b;
      }
      const int64_t row = g_.m * block / blocks_;
      shape.m = g_.m * (block + 1) / blocks_ - row;
      cpu::tile_product(shape, a + offset(g_.a_strides, batch) + row * g_.a_strides[2], right,
                        c + offset(g_.c_strides, batch) + row * g_.c_strides[2]);
    }
  }

  MatmulGeometry g_;
  bool swapped_, b_transposed_;
  cpu::TileShape shape_;
  int64_t blocks_, tasks_, ranges_;
};

}  // namespace

bool is_small_batch(const MatmulGeometry& g) {
  if (g.a != DType::F32 || g.b != DType::F32 || g.c != DType::F32 || g.bias) return false;
  // One matrix for all batches makes one large product of them, whether or not the strides allow it.
  const bool shared = (g.batch[0] == 1 || g.b_strides[0] == 0) && (g.batch[1] == 1 || g.b_strides[1] == 0);
  return g.batch[0] * g.batch[1] >= 2 && !shared && g.m >= kFewestRows && g.k >= 2 &&
         g.k * g.n * static_cast<int64_t>(sizeof(float)) <= kLargestB && cpu::has_tile_product(g.n) &&
         g.c_strides[3] == 1 && layout(g.a_strides, g.m, g.k) != Layout::Other &&
         layout(g.b_strides, g.k, g.n) != Layout::Other;
}

std::shared_ptr<const Contraction> make_matmul_batched(const MatmulGeometry& geometry, bool swapped) {
  return std::make_shared<MatmulBatched>(geometry, swapped);
}

}  // namespace etch::onednn
