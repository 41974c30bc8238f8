// A task is a block of rows of one batch. b stays in the core's cache while blocks of a and c pass by.
#include "eager/cpu/matmul_batched.h"

#include <algorithm>
#include <vector>

#include "eager/cpu/tile_product.h"
#include "runtime/parallel.h"

namespace etch::onednn {
namespace {

constexpr int64_t kBlockRows = 64;
constexpr int64_t kFewestRows = 16;
/// Bytes of b, which is read once a block. Up to here tiles are about as fast as the library; long and narrow
/// ones, as those of attention, up to twice as many.
constexpr int64_t kLargestB = 512 << 10;
constexpr int64_t kNarrow = 64;
/// Bytes of b from which its rows are brought together if they lie apart: else they compete for few cache
/// lines.
constexpr int64_t kPackedB = 32 << 10;

/// Terms taken at a time if a lies transposed: more of its rows, a power of two apart, compete for few sets
/// of the outer caches.
constexpr int64_t kTransposedTerms = 128;

/// Floats from term to term of a transposed a from which they are brought together first: closer ones are
/// faster left where they lie.
constexpr int64_t kFarApart = 2048;

/// Multiplications worth a thread.
constexpr int64_t kThreadWork = 100'000;

/// From row to row of a packed b: an odd number of lines, so that a column takes all of the cache's sets.
int64_t packed_stride(int64_t n) { return ((n + 15) / 16 | 1) * 16; }

int64_t bytes_of_b(const MatmulGeometry& g) { return g.k * g.n * static_cast<int64_t>(sizeof(float)); }

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
    packs_a_ = a_transposed && g_.a_strides[3] >= kFarApart;
    b_transposed_ = layout(g_.b_strides, g_.k, g_.n) == Layout::Columns;
    packs_ = b_transposed_ || (g_.b_strides[2] != g_.n && bytes_of_b(g_) > kPackedB);
    b_stride_ = packs_ ? packed_stride(g_.n) : g_.b_strides[2];
    // Blocks as even as possible, so of two sizes at most.
    blocks_ = std::max<int64_t>((g_.m + kBlockRows / 2) / kBlockRows, 1);
    a_stride_ = packs_a_ ? packed_stride(g_.m / blocks_ + 1) : g_.a_strides[a_transposed ? 3 : 2];
    cpu::TileShape shape{.m = 0,
                         .n = g_.n,
                         .k = 0,
                         .a_stride = a_stride_,
                         .b_stride = b_stride_,
                         .c_stride = g_.c_strides[2],
                         .a_transposed = a_transposed};
    terms_ = a_transposed ? std::min(g_.k, kTransposedTerms) : g_.k;
    for (const int64_t more : {0, 1}) {
      shape.m = g_.m / blocks_ + more;
      for (int64_t k = 0; k < g_.k; k += terms_) {
        shape.k = std::min(terms_, g_.k - k);
        shape.accumulate = k > 0;
        products_.emplace_back(shape);
      }
      if (g_.m % blocks_ == 0) break;
    }
    tasks_ = g_.batch[0] * g_.batch[1] * blocks_;
    ranges_ = std::min<int64_t>(num_threads(), tasks_);
    packed_b_ = packs_ ? g_.k * b_stride_ : 0;
    packed_ = packed_b_ + (packs_a_ ? terms_ * a_stride_ : 0);
    scratch_bytes_ = static_cast<size_t>(ranges_ * packed_) * sizeof(float);
  }

  void run(const void* first, const void* second, const void*, void* out, void* scratch) const override {
    const auto* a = static_cast<const float*>(swapped_ ? second : first);
    const auto* b = static_cast<const float*>(swapped_ ? first : second);
    const int64_t work = std::max<int64_t>(g_.m / blocks_ * g_.n * g_.k * (tasks_ / ranges_), 1);
    parallel_for(ranges_, std::max<int64_t>(1, kThreadWork / work), [&](int64_t begin, int64_t end) {
      for (int64_t range = begin; range < end; ++range)
        run_tasks(range * tasks_ / ranges_, (range + 1) * tasks_ / ranges_, a, b, static_cast<float*>(out),
                  static_cast<float*>(scratch) + range * packed_);
    });
  }

 private:
  int64_t offset(const int64_t (&strides)[4], int64_t batch) const {
    return batch / g_.batch[1] * strides[0] + batch % g_.batch[1] * strides[1];
  }

  void pack(const float* b, float* rows) const {
    if (b_transposed_) return cpu::transpose_tile(b, g_.b_strides[3], g_.n, g_.k, rows, b_stride_);
    for (int64_t p = 0; p < g_.k; ++p) std::copy_n(b + p * g_.b_strides[2], g_.n, rows + p * b_stride_);
  }

  void run_tasks(int64_t begin, int64_t end, const float* a, const float* b, float* c, float* packed) const {
    float *const rows_of_b = packed, *const terms_of_a = packed + packed_b_;
    int64_t packed_batch = -1;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / blocks_, block = task % blocks_;
      const float* right = b + offset(g_.b_strides, batch);
      if (packs_) {
        if (packed_batch != batch) pack(right, rows_of_b);
        packed_batch = batch;
        right = rows_of_b;
      }
      const int64_t row = g_.m * block / blocks_;
      const int64_t rows = g_.m * (block + 1) / blocks_ - row;
      const float* left = a + offset(g_.a_strides, batch) + row * g_.a_strides[2];
      float* const result = c + offset(g_.c_strides, batch) + row * g_.c_strides[2];
      const int64_t parts = (g_.k + terms_ - 1) / terms_;
      const cpu::TileProduct* product = &products_[(rows - g_.m / blocks_) * parts];
      for (int64_t k = 0; k < g_.k; k += terms_) {
        const float* terms = left + k * g_.a_strides[3];
        if (packs_a_) {
          for (int64_t p = 0; p < std::min(terms_, g_.k - k); ++p)
            std::copy_n(terms + p * g_.a_strides[3], rows, terms_of_a + p * a_stride_);
          terms = terms_of_a;
        }
        (*product++)(terms, right + k * b_stride_, result);
      }
    }
  }

  MatmulGeometry g_;
  bool swapped_, b_transposed_, packs_, packs_a_;
  std::vector<cpu::TileProduct> products_;  // by terms; of the smaller blocks, then of those with a row more
  int64_t blocks_, terms_, tasks_, ranges_, packed_b_, packed_, a_stride_, b_stride_;
};

}  // namespace

bool is_small_batch(const MatmulGeometry& g) {
  if (g.a != DType::F32 || g.b != DType::F32 || g.c != DType::F32 || g.bias) return false;
  // One matrix for all batches makes one large product of them, whether or not the strides allow it.
  const bool shared = (g.batch[0] == 1 || g.b_strides[0] == 0) && (g.batch[1] == 1 || g.b_strides[1] == 0);
  return g.batch[0] * g.batch[1] >= 2 && !shared && g.m >= kFewestRows && g.k >= 2 &&
         bytes_of_b(g) <= (std::min(g.k, g.n) <= kNarrow ? 2 : 1) * kLargestB && cpu::has_tile_product(g.n) &&
         g.c_strides[3] == 1 && layout(g.a_strides, g.m, g.k) != Layout::Other &&
         layout(g.b_strides, g.k, g.n) != Layout::Other;
}

std::shared_ptr<const Contraction> make_matmul_batched(const MatmulGeometry& geometry, bool swapped) {
  return std::make_shared<MatmulBatched>(geometry, swapped);
}

}  // namespace etch::onednn
