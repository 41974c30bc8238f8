// Gradients of the tape against central differences, in f64.
#include "tests/support/gradient_check.h"

#include <algorithm>
#include <cmath>

namespace etch::testing {

namespace {

std::vector<Tensor> make_inputs(const std::vector<Values>& inputs, bool leaves) {
  std::vector<Tensor> tensors;
  for (const Values& values : inputs) {
    Tensor tensor = is_floating(values.dtype) ? values.tensor(DType::F64) : values.tensor();
    if (leaves && is_floating(values.dtype)) tensor.requires_grad_();
    tensors.push_back(tensor);
  }
  return tensors;
}

// What is differentiated: the output against weights that are all different.
Tensor weighted_sum(const Tensor& y, uint64_t seed) {
  return (y * spread(y.sizes(), 0.5, 1.5, seed).tensor()).sum();
}

using Loss = std::function<Tensor(std::span<const Tensor>)>;

::testing::AssertionResult matches(const Loss& loss, const std::vector<Values>& inputs, double tolerance) {
  const std::vector<Tensor> leaves = make_inputs(inputs, true);
  const Tensor value = loss(leaves);
  if (!value.requires_grad()) return ::testing::AssertionFailure() << "no tape";
  value.backward();
  const auto at = [&](size_t input, size_t element, double shift) {
    std::vector<Values> moved = inputs;
    moved[input].values[element] += shift;
    return loss(make_inputs(moved, true)).item<double>();
  };
  const double step = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype)) continue;
    const Tensor gradient = leaves[i].grad();
    if (gradient.defined() && (gradient.dtype() != DType::F64 || gradient.sizes() != inputs[i].sizes))
      return ::testing::AssertionFailure() << "gradient of input " << i << ": " << name(gradient.dtype())
                                           << " " << to_string(gradient.sizes());
    const std::vector<double> got =
        gradient.defined() ? values_of(gradient) : std::vector<double>(inputs[i].values.size(), 0.0);
    for (size_t k = 0; k < got.size(); ++k) {
      const double want = (at(i, k, step) - at(i, k, -step)) / (2 * step);
      if (!(std::abs(got[k] - want) <= tolerance * std::max(1.0, std::abs(want))))
        return ::testing::AssertionFailure() << "input " << i << ", element " << k << ": gradient " << got[k]
                                             << ", central difference " << want;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult gradients_match(const Function& function, const std::vector<Values>& inputs,
                                           double tolerance) {
  return matches([&](std::span<const Tensor> x) { return weighted_sum(function(x), 3); }, inputs, tolerance);
}

::testing::AssertionResult second_gradients_match(const Function& function, const std::vector<Values>& inputs,
                                                  double tolerance) {
  const Loss loss = [&](std::span<const Tensor> x) {
    weighted_sum(function(x), 3).backward({}, {.create_graph = true});
    // Every leaf takes part, so that the sum has a tape even where a first gradient is constant.
    Tensor total = scalar_tensor(0.0, {.dtype = DType::F64});
    for (Tensor leaf : x) {
      if (!leaf.requires_grad()) continue;
      total = total + leaf.sum() * 0.0;
      if (leaf.grad().defined()) total = total + weighted_sum(leaf.grad(), 5);
      leaf.zero_grad();
    }
    return total;
  };
  return matches(loss, inputs, tolerance);
}

}  // namespace etch::testing
