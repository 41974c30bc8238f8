// Matrix products, convolutions and pooling: from calls to prepared library operations.
#pragma once

#include <cstddef>

#include "tracer/op.h"

namespace etch::cpu {

/// matmul, conv2d and its gradients. A null scratch is taken from the allocator.
void run_contraction(const OpCall& call, void* scratch);
size_t contraction_scratch_bytes(const OpCall& call);
/// Whether each element of this matmul call is one chain of fused multiply-adds over rising k, starting at 0,
/// as tile_product() computes it. Asks for geometries and dtypes, not for memory.
bool sums_in_order(const OpCall& matmul);
/// Pooling and its gradients.
void run_window(const OpCall& call);

}  // namespace etch::cpu
