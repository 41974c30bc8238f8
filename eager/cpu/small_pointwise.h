// Pointwise calls of few elements, prepared once and run many times.
#pragma once

#include <optional>

#include "eager/cpu/pointwise.h"

namespace etch::cpu {

/// A call whose elements all lie side by side and are so few that one run of the kernel does it: only
/// addresses and numbers are left to be given.
struct SmallPointwise {
  PointwiseKernel kernel;
  int64_t count;
  unsigned scalars;                 ///< as the kernel takes them
  DType numbers[kMaxLoopOperands];  ///< what a number at operand k is stored as, by store_scalar()

  /// None if `call` is not like that. Its operands need no bases.
  static std::optional<SmallPointwise> of(const OpCall& call);
};

}  // namespace etch::cpu
