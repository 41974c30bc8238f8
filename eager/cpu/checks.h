// Checks of data: indices, labels and integer divisors.
#pragma once

#include "tracer/op.h"

namespace etch::cpu {

/// Throws IndexError or ValueError, with the first offending value and its row-major position, for data that
/// the op refuses. Ops without data checks pass.
void check_call_data(const OpCall& call);

}  // namespace etch::cpu
