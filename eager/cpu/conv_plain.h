// Convolutions in plain loops, for dtypes the library has none for.
#pragma once

#include <memory>

#include "eager/cpu/onednn.h"
#include "eager/cpu/onednn_prepare.h"

namespace etch::onednn {

/// Any strides. All dtypes of `geometry` are equal: F32, F64, I64, I32 or U8, and sums run in it, in an order
/// that depends on the geometry alone.
std::shared_ptr<const Contraction> make_conv_plain(ConvOp op, const ConvGeometry& geometry);

}  // namespace etch::onednn
