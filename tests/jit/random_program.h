// Random graphs for comparing executions.
#pragma once

#include <cstdint>

#include "tests/jit/graph_runner.h"

namespace etch::test {

struct RandomOptions {
  int nodes = 24;
  bool heavy = true;  ///< matrix products among the pointwise nodes
  bool wide = false;  ///< tensors large enough to be recomputed, and more products
};

/// Pointwise nodes with broadcasts, views, casts, reductions, products, generators, in-place and partial
/// writes, dead code and several outputs, over data with NaN, infinities and signed zeros. Equal seeds, equal
/// programs.
Program random_program(uint64_t seed, const RandomOptions& options = {});

}  // namespace etch::test
