// Batches of small f32 products, attention's above all.
#pragma once

#include <memory>

#include "eager/cpu/onednn.h"

namespace etch::onednn {

/// Whether make_matmul_batched() takes the product. Depends on sizes, dtypes and broadcasts, not on the
/// layout.
bool is_batched_matmul(const MatmulGeometry& geometry);

/// Every element is fma(a, b, sum) over k in ascending order, starting at 0: its bits depend on the operands'
/// values only, not on strides or threads.
std::shared_ptr<const Contraction> make_matmul_batched(const MatmulGeometry& geometry);

}  // namespace etch::onednn
