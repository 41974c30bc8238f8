// Samples through the reference interpreter.
#pragma once

#include "tests/support/op_samples.h"

namespace etch::testing {

/// The sample's call as a recorded path of one op, its graph interpreted. One entry an output; f32 and
/// narrower results are rounded to their dtype.
std::vector<Values> interpret_sample(const OpSample& sample);

}  // namespace etch::testing
