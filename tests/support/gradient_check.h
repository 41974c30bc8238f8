// Gradients of the tape against central differences, in f64.
#pragma once

#include <functional>
#include <span>

#include "tests/support/values.h"

namespace etch::testing {

using Function = std::function<Tensor(std::span<const Tensor>)>;

/// Every floating input, taken as f64, in turn. The output may have any size: what is differentiated is its
/// product with fixed weights. Inputs must keep 1e-5 from kinks.
::testing::AssertionResult gradients_match(const Function& function, const std::vector<Values>& inputs,
                                           double tolerance = 1e-7);

/// The gradients of the gradients, computed with create_graph, likewise.
::testing::AssertionResult second_gradients_match(const Function& function, const std::vector<Values>& inputs,
                                                  double tolerance = 1e-6);

}  // namespace etch::testing
