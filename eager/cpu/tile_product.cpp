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
libxsmm_smmfunction find_kernel(const TileShape& s, int64_t columns) {
  if (std::min({s.m, columns, s.k}) <= 0 ||
      std::max({s.m, columns, s.k, s.a_stride, s.b_stride, s.c_stride}) > INT_MAX)
    return nullptr;
  const auto narrow = [](int64_t value) { return static_cast<libxsmm_blasint>(value); };
  const libxsmm_blasint lda = narrow(s.a_stride), ldb = narrow(s.b_stride), ldc = narrow(s.c_stride);
  const float alpha = 1, beta = s.accumulate ? 1 : 0;
  const int flags = s.a_transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const int prefetch = LIBXSMM_PREFETCH_NONE;
  return libxsmm_smmdispatch(narrow(columns), narrow(s.m), narrow(s.k), &ldb, &lda, &ldc, &alpha, &beta,
                             &flags, &prefetch);
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

void tile_product(const TileShape& s, const float* a, const float* b, float* c) {
  if (!has_tile_product(s.n)) return plain_product(s, a, b, c);
  for (int64_t j = 0; j < s.n;) {
    const int64_t left = s.n - j;
    const int64_t columns = left <= kColumns                    ? left
                            : left >= kColumns + kFewestColumns ? kColumns
                                                                : kFewerColumns;
    if (const libxsmm_smmfunction kernel = find_kernel(s, columns)) {
      kernel(b + j, a, c + j);
    } else {
      TileShape piece = s;
      piece.n = columns;
      plain_product(piece, a, b + j, c + j);
    }
    j += columns;
  }
}

#else

bool has_tile_product(int64_t) { return false; }

void tile_product(const TileShape& s, const float* a, const float* b, float* c) { plain_product(s, a, b, c); }

#endif

void transpose_tile(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to) {
#ifdef ETCH_HAVE_XSMM
  if (has_library() && std::max({from_stride, rows, columns}) <= INT_MAX) {
    libxsmm_otrans(to, from, sizeof(float), static_cast<libxsmm_blasint>(columns),
                   static_cast<libxsmm_blasint>(rows), static_cast<libxsmm_blasint>(from_stride),
                   static_cast<libxsmm_blasint>(rows));
    return;
  }
#endif
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) to[j * rows + i] = from[i * from_stride + j];
}

}  // namespace etch::cpu
