// The prepare functions behind the cache. Internal to the wrapper.
#pragma once

#include <memory>
#include <string>

#include "eager/cpu/onednn.h"

namespace etch::onednn {

enum class ConvOp : uint8_t { Forward, BackwardData, BackwardWeights };

std::string describe(const MatmulGeometry& geometry);
std::string describe(ConvOp op, const ConvGeometry& geometry);

/// Arithmetic of the whole operation: F32 or BF16 (library), else F64 or an integer dtype (plain loops).
/// Throws DTypeError for a mix that has none.
DType arithmetic(const std::string& description, DType first, DType second, DType out);

std::shared_ptr<const Contraction> build_matmul(const MatmulGeometry& geometry);
std::shared_ptr<const Contraction> build_conv(ConvOp op, const ConvGeometry& geometry);

}  // namespace etch::onednn
