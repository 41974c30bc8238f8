// The only file that knows libxsmm. Its matrices are column-major, so it is asked for c^T = b^T a^T.
#include "eager/cpu/tile_product.h"

#include <algorithm>
#include <climits>
#include <cmath>

#ifdef ETCH_HAVE_XSMM
#include <libxsmm.h>
#endif

namespace etch::cpu {
namespace {

void plain_product(const TileShape& s, const float* a, const float* b, float* c) {
  const int64_t row = s.a_transposed ? 1 : s.a_stride, column = s.a_transposed ? s.a_stride : 1;
  for (int64_t i = 0; i < s.m; ++i) {
    float* sums = c + i * s.c_stride;
    if (!s.accumulate) std::fill_n(sums, s.n, 0.0f);
    for (int64_t p = 0; p < s.k; ++p) {
      const float left = a[i * row + p * column], *right = b + p * s.b_stride;
      for (int64_t j = 0; j < s.n; ++j) sums[j] = std::fma(left, right[j], sums[j]);
    }
  }
}

#ifdef ETCH_HAVE_XSMM

/// For up to 16 columns libxsmm keeps several partial sums, so every piece has more; 64 are fastest, and
/// vectors that are not full belong into the last piece.
constexpr int64_t kFewestColumns = 17, kColumns = 64, kFewerColumns = 48;

/// Null if there is none, because a row is longer than the stride, say.
void* find_kernel(const TileShape& s, int64_t columns) {
  if (std::min({s.m, columns, s.k}) <= 0 ||
      std::max({s.m, columns, s.k, s.a_stride, s.b_stride, s.c_stride}) > INT_MAX)
    return nullptr;
  const auto narrow = [](int64_t value) { return static_cast<libxsmm_blasint>(value); };
  const libxsmm_blasint lda = narrow(s.a_stride), ldb = narrow(s.b_stride), ldc = narrow(s.c_stride);
  const float alpha = 1, beta = s.accumulate ? 1 : 0;
  const int flags = s.a_transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const int prefetch = LIBXSMM_PREFETCH_NONE;
  return reinterpret_cast<void*>(libxsmm_smmdispatch(narrow(columns), narrow(s.m), narrow(s.k), &ldb, &lda,
                                                     &ldc, &alpha, &beta, &flags, &prefetch));
}

bool has_library() {
  static const bool has =
      libxsmm_get_target_archid() >= LIBXSMM_X86_AVX2 && find_kernel({64, 64, 64, 64, 64, 64}, 64);
  return has;
}

#endif

}  // namespace

#ifdef ETCH_HAVE_XSMM

bool has_tile_product(int64_t n) { return n >= kFewestColumns && has_library(); }

TileProduct::TileProduct(const TileShape& shape) : shape_(shape) {
  const auto add = [&](int64_t columns, int64_t repeats) {
    if (repeats > 0) pieces_[count_++] = {columns, repeats, find_kernel(shape, columns)};
  };
  if (!has_tile_product(shape.n)) {
    pieces_[count_++] = {shape.n, 1, nullptr};
    return;
  }
  const int64_t whole = shape.n % kColumns == 0 || shape.n % kColumns >= kFewestColumns
                            ? shape.n / kColumns
                            : shape.n / kColumns - 1;
  const int64_t left = shape.n - whole * kColumns;
  add(kColumns, whole);
  if (left > kColumns) {
    add(kFewerColumns, 1);
    add(left - kFewerColumns, 1);
  } else {
    add(left, left > 0);
  }
}

void TileProduct::operator()(const float* a, const float* b, float* c) const {
  for (int i = 0; i < count_; ++i) {
    const Piece& piece = pieces_[i];
    for (int64_t repeat = 0; repeat < piece.repeats; ++repeat, b += piece.columns, c += piece.columns) {
      if (piece.kernel) {
        reinterpret_cast<libxsmm_smmfunction>(piece.kernel)(b, a, c);
      } else {
        TileShape shape = shape_;
        shape.n = piece.columns;
        plain_product(shape, a, b, c);
      }
    }
  }
}

#else

bool has_tile_product(int64_t) { return false; }

TileProduct::TileProduct(const TileShape& shape) : shape_(shape) {}

void TileProduct::operator()(const float* a, const float* b, float* c) const {
  plain_product(shape_, a, b, c);
}

#endif

void tile_product(const TileShape& shape, const float* a, const float* b, float* c) {
  TileProduct{shape}(a, b, c);
}

void transpose_tile(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                    int64_t to_stride) {
  if (to_stride == 0) to_stride = rows;
#ifdef ETCH_HAVE_XSMM
  if (has_library() && std::max({from_stride, rows, columns, to_stride}) <= INT_MAX) {
    const auto narrow = [](int64_t value) { return static_cast<libxsmm_blasint>(value); };
    libxsmm_otrans(to, from, sizeof(float), narrow(columns), narrow(rows), narrow(from_stride),
                   narrow(to_stride));
    return;
  }
#endif
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) to[j * to_stride + i] = from[i * from_stride + j];
}

}  // namespace etch::cpu
