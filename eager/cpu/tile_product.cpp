#include "eager/cpu/tile_product.h"

#include <algorithm>

#include "runtime/error.h"

#ifdef ETCH_HAVE_XSMM
#include <libxsmm.h>
#endif

namespace etch::cpu {

#ifdef ETCH_HAVE_XSMM
namespace {

/// For up to 16 columns libxsmm keeps several partial sums, so every piece has more; 64 are fastest.
constexpr int64_t kFewestColumns = 17, kColumns = 64;

}  // namespace

bool has_tile_product(int64_t n) { return n >= kFewestColumns; }

void tile_product(const TileShape& s, const float* a, const float* b, float* c) {
  const libxsmm_blasint k = static_cast<libxsmm_blasint>(s.k), m = static_cast<libxsmm_blasint>(s.m);
  const libxsmm_blasint lda = static_cast<libxsmm_blasint>(s.a_stride),
                        ldb = static_cast<libxsmm_blasint>(s.b_stride),
                        ldc = static_cast<libxsmm_blasint>(s.c_stride);
  const float alpha = 1, beta = s.accumulate ? 1 : 0;
  const int flags = s.a_transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const int prefetch = LIBXSMM_PREFETCH_NONE;
  for (int64_t j = 0; j < s.n;) {
    const int64_t left = s.n - j;
    const int64_t columns = left >= kColumns + kFewestColumns || left == kColumns ? kColumns
                            : left > kColumns                                     ? left / 2
                                                                                  : left;
    // The library's matrices are column-major: it computes c^T = b^T a^T.
    const libxsmm_smmfunction kernel = libxsmm_smmdispatch(static_cast<libxsmm_blasint>(columns), m, k, &ldb,
                                                           &lda, &ldc, &alpha, &beta, &flags, &prefetch);
    ETCH_INVARIANT(kernel);
    kernel(b + j, a, c + j);
    j += columns;
  }
}

#else

bool has_tile_product(int64_t) { return false; }
void tile_product(const TileShape&, const float*, const float*, float*) { ETCH_INVARIANT(false); }

#endif

}  // namespace etch::cpu
