// Matrix products in plain loops, for dtypes the library has none for and for tiny sizes.
#pragma once

#include <memory>

#include "eager/cpu/onednn.h"

namespace etch::onednn {

/// T is float, double, int64_t, int32_t or uint8_t, the dtype of all operands. Sums run over k in ascending
/// order in T, the bias is added last.
template <class T>
void matmul_plain(const MatmulGeometry& geometry, const T* a, const T* b, const T* bias, T* c);

/// All dtypes of `geometry` are equal and one of the above.
std::shared_ptr<const Contraction> make_matmul_plain(const MatmulGeometry& geometry);

}  // namespace etch::onednn
