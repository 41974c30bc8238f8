// The differentiable function that a sample's row belongs to.
#pragma once

#include "tests/support/gradient_check.h"
#include "tests/support/op_samples.h"

namespace etch::testing {

/// What the public functions compute for this sample, as a function of its tensor operands (all of them, in
/// order). Null for rows without a gradient.
Function differentiable_form(const OpSample& sample);

/// The tensor operands of a sample, in order.
std::vector<Values> tensor_operands(const OpSample& sample);

}  // namespace etch::testing
