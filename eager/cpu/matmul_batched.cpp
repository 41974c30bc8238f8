// A task is one batch, or some rows of it. b is packed into panels of one tile's width that stay in the
// core's cache; a tile of c is accumulated in registers over all of k, and meanwhile the memory that comes
// next is fetched.
#include "eager/cpu/matmul_batched.h"

#include <algorithm>

#include "runtime/error.h"
#include "runtime/parallel.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#define ETCH_BATCHED_MATMUL 1
#else
#define ETCH_BATCHED_MATMUL 0
#endif

namespace etch::onednn {

#if ETCH_BATCHED_MATMUL

namespace {

#if defined(__AVX512F__)
using Vector = __m512;
constexpr int kRows = 14;
Vector broadcast(float x) { return _mm512_set1_ps(x); }
Vector load(const float* p) { return _mm512_load_ps(p); }
void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#else
using Vector = __m256;
constexpr int kRows = 6;
Vector broadcast(float x) { return _mm256_set1_ps(x); }
Vector load(const float* p) { return _mm256_load_ps(p); }
void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#endif

constexpr int kLanes = sizeof(Vector) / sizeof(float);
constexpr int kWidth = 2 * kLanes;
constexpr int64_t kLine = 64;  // bytes

struct Matrix {
  const float* data;
  int64_t row, column;  // strides

  const float* at(int64_t i, int64_t j) const { return data + i * row + j * column; }
};

/// c[Rows, kWidth] = a[Rows, k] * panel[k, kWidth]. Fetches k lines from `ahead`, which need not be memory.
template <int Rows>
void run_tile(const Matrix& a, const float* panel, int64_t k, float* c, int64_t c_row, const char* ahead) {
  Vector sums[Rows][2] = {};
  const float* left = a.data;
  for (int64_t p = 0; p < k; ++p) {
    const Vector right[2] = {load(panel), load(panel + kLanes)};
    __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 14
    for (int r = 0; r < Rows; ++r) {
      const Vector x = broadcast(left[r * a.row]);
      sums[r][0] = fma(x, right[0], sums[r][0]);
      sums[r][1] = fma(x, right[1], sums[r][1]);
    }
    left += a.column;
    panel += kWidth;
    ahead += kLine;
  }
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r) {
    store(c + r * c_row, sums[r][0]);
    store(c + r * c_row + kLanes, sums[r][1]);
  }
}

template <int Rows = kRows>
void run_tile(int64_t rows, const Matrix& a, const float* panel, int64_t k, float* c, int64_t c_row,
              const char* ahead) {
  if constexpr (Rows > 1)
    if (rows < Rows) return run_tile<Rows - 1>(rows, a, panel, k, c, c_row, ahead);
  run_tile<Rows>(a, panel, k, c, c_row, ahead);
}

#if defined(__AVX512F__)
/// to[i, j] = from[j, i] for 16 x 16 floats; `to` has rows of kWidth.
void transpose_block(const float* from, int64_t row, float* to) {
  // Masked by all ones: the plain forms make g++ 12 warn about its own header.
  constexpr __mmask16 kAll16 = 0xffff;
  constexpr __mmask8 kAll8 = 0xff;
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from + i * row);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_ps(kAll16, r[i], r[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_ps(kAll16, r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      const __m512d low = _mm512_castps_pd(t[i + j]), high = _mm512_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(kAll8, low, high));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(kAll8, low, high));
    }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 16; j += 8) {
      t[i + j] = _mm512_maskz_shuffle_f32x4(kAll16, r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_maskz_shuffle_f32x4(kAll16, r[i + j], r[i + j + 4], 0xdd);
    }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 8; j += 4) {
      store(to + (i + j) * kWidth, _mm512_maskz_shuffle_f32x4(kAll16, t[i + j], t[i + j + 8], 0x88));
      store(to + (i + j + 8) * kWidth, _mm512_maskz_shuffle_f32x4(kAll16, t[i + j], t[i + j + 8], 0xdd));
    }
}
#endif

/// to[k, kWidth] = b[k, width], zeros beyond `width`.
void pack_panel(const Matrix& b, int64_t k, int64_t width, float* to) {
  if (width < kWidth) std::fill(to, to + k * kWidth, 0.0f);
  int64_t p = 0;
#if defined(__AVX512F__)
  if (b.row == 1 && width == kWidth)
    for (; p + 16 <= k; p += 16)
      for (int j = 0; j < kWidth; j += 16) transpose_block(b.at(p, j), b.column, to + p * kWidth + j);
#endif
  for (; p < k; ++p) {
    const float* from = b.at(p, 0);
    if (b.column == 1 && width == kWidth)
      std::copy_n(from, kWidth, to + p * kWidth);
    else
      for (int64_t j = 0; j < width; ++j) to[p * kWidth + j] = from[j * b.column];
  }
}

class MatmulBatched final : public Contraction {
 public:
  explicit MatmulBatched(const MatmulGeometry& geometry) : g_(geometry), threads_(num_threads()) {
    implementation_ = kBatched;
    // Column-major results are computed as c^T = b^T a^T.
    swapped_ = g_.c_strides[3] != 1 && g_.n > 1 && (g_.c_strides[2] == 1 || g_.m == 1);
    if (swapped_) {
      std::swap(g_.m, g_.n);
      std::swap(g_.a_strides, g_.b_strides);
      for (auto* strides : {g_.a_strides, g_.b_strides, g_.c_strides}) std::swap(strides[2], strides[3]);
    }
    panels_ = (g_.n + kWidth - 1) / kWidth;
    const int64_t batches = g_.batch[0] * g_.batch[1];
    pieces_ = std::clamp<int64_t>(2 * threads_ / batches, 1, std::max<int64_t>(g_.m / kRows, 1));
    tasks_ = batches * pieces_;
    ranges_ = std::min<int64_t>(threads_, tasks_);
    packed_ = panels_ * kWidth * g_.k;
    scratch_bytes_ = static_cast<size_t>(ranges_ * packed_) * sizeof(float);
  }

  void run(const void* first, const void* second, const void*, void* out, void* scratch) const override {
    const auto* a = static_cast<const float*>(swapped_ ? second : first);
    const auto* b = static_cast<const float*>(swapped_ ? first : second);
    const int64_t work = std::max<int64_t>(g_.m * g_.n * g_.k * tasks_ / ranges_ / pieces_, 1);
    parallel_for(ranges_, std::max<int64_t>(1, 100'000 / work), [&](int64_t begin, int64_t end) {
      for (int64_t range = begin; range < end; ++range) {
        float* packed = static_cast<float*>(scratch) + range * packed_;
        const int64_t last = (range + 1) * tasks_ / ranges_;
        for (int64_t task = range * tasks_ / ranges_; task < last; ++task)
          run_task(task, task + 1 < last, a, b, static_cast<float*>(out), packed);
      }
    });
  }

 private:
  static int64_t offset(const int64_t (&strides)[4], int64_t outer, int64_t inner) {
    return outer * strides[0] + inner * strides[1];
  }
  Matrix matrix(const float* base, const int64_t (&strides)[4], int64_t batch) const {
    return {base + offset(strides, batch / g_.batch[1], batch % g_.batch[1]), strides[2], strides[3]};
  }

  void run_task(int64_t task, bool more, const float* all_a, const float* all_b, float* all_c,
                float* packed) const {
    const int64_t batch = task / pieces_, piece = task % pieces_;
    const Matrix a = matrix(all_a, g_.a_strides, batch), b = matrix(all_b, g_.b_strides, batch);
    float* c = all_c + offset(g_.c_strides, batch / g_.batch[1], batch % g_.batch[1]);
    for (int64_t panel = 0; panel < panels_; ++panel)
      pack_panel({b.at(0, panel * kWidth), b.row, b.column}, g_.k, width(panel),
                 packed + panel * kWidth * g_.k);

    // Fetched ahead: the next a where reading a is most of the traffic, else the rows of c that come next.
    const bool dense_a =
        std::min(a.row, a.column) == 1 && std::max(a.row, a.column) == (a.row == 1 ? g_.m : g_.k);
    const char* next_a = nullptr;
    if (more && pieces_ == 1 && dense_a && g_.k >= g_.n)
      next_a = reinterpret_cast<const char*>(matrix(all_a, g_.a_strides, batch + 1).data);
    const bool dense_c = g_.c_strides[2] == g_.n && g_.c_strides[3] == 1 && g_.k < g_.n;

    const int64_t begin = g_.m * piece / pieces_, end = g_.m * (piece + 1) / pieces_;
    const int64_t tiles = (end - begin + kRows - 1) / kRows;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = begin + (end - begin) * tile / tiles,
                    stop = begin + (end - begin) * (tile + 1) / tiles;
      const Matrix left{a.at(row, 0), a.row, a.column};
      for (int64_t panel = 0; panel < panels_; ++panel) {
        const int64_t lines = (next_a ? tile * panels_ + panel : panel) * g_.k * kLine;
        const char* ahead = reinterpret_cast<const char*>(packed);
        if (next_a && lines < g_.m * g_.k * static_cast<int64_t>(sizeof(float)))
          ahead = next_a + lines;
        else if (dense_c && stop < end)
          ahead = reinterpret_cast<const char*>(c + stop * g_.n) + lines;
        const float* right = packed + panel * kWidth * g_.k;
        float* target = c + row * g_.c_strides[2] + panel * kWidth * g_.c_strides[3];
        if (g_.c_strides[3] == 1 && width(panel) == kWidth) {
          run_tile(stop - row, left, right, g_.k, target, g_.c_strides[2], ahead);
          continue;
        }
        alignas(64) float results[kRows * kWidth];
        run_tile(stop - row, left, right, g_.k, results, kWidth, ahead);
        for (int64_t r = 0; r < stop - row; ++r)
          for (int64_t j = 0; j < width(panel); ++j)
            target[r * g_.c_strides[2] + j * g_.c_strides[3]] = results[r * kWidth + j];
      }
    }
  }

  int64_t width(int64_t panel) const { return std::min<int64_t>(kWidth, g_.n - panel * kWidth); }

  MatmulGeometry g_;
  int64_t threads_;
  bool swapped_ = false;
  int64_t panels_, pieces_, tasks_, ranges_, packed_;
};

}  // namespace

bool is_batched_matmul(const MatmulGeometry& g) {
  if (g.a != DType::F32 || g.b != DType::F32 || g.c != DType::F32 || g.bias) return false;
  // A matrix shared by all batches makes one large product of them.
  const auto shared = [&](const int64_t(&strides)[4]) {
    return (g.batch[0] == 1 || strides[0] == 0) && (g.batch[1] == 1 || strides[1] == 0);
  };
  // The library is at its best with dense operands, and with matrices that do not fit into a core's cache.
  const bool dense =
      g.a_strides[3] == 1 && g.a_strides[2] == g.k && g.b_strides[3] == 1 && g.b_strides[2] == g.n;
  return g.batch[0] * g.batch[1] >= 4 && !shared(g.a_strides) && !shared(g.b_strides) && !dense &&
         std::min({g.m, g.n, g.k}) >= 16 && std::max(g.m, g.n) >= 64 && std::max({g.m, g.n, g.k}) <= 256;
}

std::shared_ptr<const Contraction> make_matmul_batched(const MatmulGeometry& geometry) {
  return std::make_shared<MatmulBatched>(geometry);
}

#else

bool is_batched_matmul(const MatmulGeometry&) { return false; }

std::shared_ptr<const Contraction> make_matmul_batched(const MatmulGeometry&) {
  fail<InternalError>("make_matmul_batched: expected a processor with AVX2 and FMA");
}

#endif

}  // namespace etch::onednn
