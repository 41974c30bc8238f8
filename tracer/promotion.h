// The result type of operands of several dtypes: the one place with that rule.
#pragma once

#include <algorithm>
#include <optional>

#include "runtime/dtype.h"

namespace etch {

/// Bool, integer or floating, in order of promotion.
constexpr Scalar::Kind kind_of(DType dtype) {
  return dtype == DType::Bool ? Scalar::Kind::Bool
         : is_integral(dtype) ? Scalar::Kind::Int
                              : Scalar::Kind::Float;
}

/// PyTorch's rule. Operands rank as tensors with dimensions, 0-d tensors, scalars; a lower rank counts only
/// where its kind is higher. Within a rank dtypes promote.
class Promotion {
 public:
  void add_tensor(DType dtype, int ndim) {
    std::optional<DType>& rank = ndim > 0 ? dimensioned_ : zero_d_;
    rank = !rank || *rank == dtype ? dtype : promote(*rank, dtype);
  }
  void add_scalar(Scalar::Kind kind) { scalar_ = scalar_ ? std::max(*scalar_, kind) : kind; }

  /// F32 for no operands.
  DType result() const {
    std::optional<DType> result = dimensioned_;
    if (zero_d_ && (!result || kind_of(*zero_d_) > kind_of(*result)))
      result = result ? promote(*result, *zero_d_) : *zero_d_;
    if (result) return scalar_ && *scalar_ > kind_of(*result) ? promote(*result, *scalar_) : *result;
    constexpr DType kDefaults[] = {DType::Bool, DType::I64, DType::F32};
    return scalar_ ? kDefaults[static_cast<int>(*scalar_)] : DType::F32;
  }

 private:
  std::optional<DType> dimensioned_, zero_d_;
  std::optional<Scalar::Kind> scalar_;
};

}  // namespace etch
