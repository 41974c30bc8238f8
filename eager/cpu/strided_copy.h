// Copies between strided layouts of up to five dimensions, converting between floating dtypes.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/dtype.h"

namespace etch::onednn {

/// Sizes and strides in elements; unused dimensions have size 1. `from` strides may be 0.
struct StridedCopy {
  static constexpr int kDims = 5;
  std::array<int64_t, kDims> sizes{1, 1, 1, 1, 1};
  std::array<int64_t, kDims> from_strides{}, to_strides{};
  DType from = DType::F32, to = DType::F32;
};

/// Writes zeros when `from` is null. Dtypes are equal, or floating.
void run_copy(const StridedCopy& copy, const void* from, void* to);

}  // namespace etch::onednn
