// Batches of small f32 products, attention's above all, by tile_product().
#pragma once

#include <memory>

#include "eager/cpu/onednn.h"

namespace etch::onednn {

/// Whether make_matmul_batched() takes the product and is the faster one. `geometry` has strides of 0 where a
/// size is 1, and c's columns are neighbours. Says the same for any number of threads.
bool is_small_batch(const MatmulGeometry& geometry);

/// For what is_small_batch() accepts. Each element is fma(a, b, sum) over k in ascending order, starting at
/// 0: its bits depend on the operands' values only, not on strides, batches or threads. run() takes (b, a) if
/// the operands are `swapped`.
std::shared_ptr<const Contraction> make_matmul_batched(const MatmulGeometry& geometry, bool swapped);

}  // namespace etch::onednn
