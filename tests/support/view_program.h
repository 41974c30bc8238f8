// Random programs of views and in-place writes under the tape.
#pragma once

#include <cstdint>

#include "eager/tensor.h"

namespace etch::testing {

/// Derives tensors and views from x [3, 4], writes some of them in place, with values made of x, the scalar w
/// and of each other, and returns a weighted sum of all that is alive. Smooth; the same program for one seed.
Tensor run_view_program(uint64_t seed, const Tensor& x, const Tensor& w);

}  // namespace etch::testing
