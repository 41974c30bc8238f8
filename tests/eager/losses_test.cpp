// Losses of elements: values computed by hand, gradients by differences, and the ends of their ranges.
#include <gtest/gtest.h>

#include <cmath>

#include "eager/functional.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

using Inputs = std::span<const Tensor>;

TEST(Losses, SquaredAndAbsoluteDifferences) {
  const Tensor x = f32({1, 4}).tensor(), target = f32({2, 1}).tensor();
  EXPECT_VALUES(mse_loss(x, target), of(DType::F32, {}, {5}));
  EXPECT_VALUES(l1_loss(x, target), of(DType::F32, {}, {2}));
  EXPECT_VALUES(l1_loss(x, target, Loss::Sum), of(DType::F32, {}, {4}));
  EXPECT_VALUES(l1_loss(x, target, Loss::None), f32({1, 3}));
  EXPECT_TRUE(
      gradients_match([](Inputs in) { return l1_loss(in[0], in[1]); }, {spread({3}), spread({3}, -1, 1, 4)}));
  EXPECT_ERROR(l1_loss(x, zeros({3})), ShapeError, "l1_loss: expected equal sizes, got [2] and [3]");
}

TEST(Losses, BinaryCrossEntropy) {
  const Tensor p = of(DType::F64, {0.25, 0.5}).tensor(), target = of(DType::F64, {1, 0.5}).tensor();
  EXPECT_VALUES(binary_cross_entropy(p, target, Loss::None), of(DType::F64, {std::log(4.0), std::log(2.0)}),
                1e-15);
  EXPECT_TRUE(gradients_match([](Inputs in) { return binary_cross_entropy(in[0], in[1], Loss::Sum); },
                              {spread({4}, 0.1, 0.9), spread({4}, 0, 1, 3)}));
  EXPECT_TRUE(second_gradients_match([](Inputs in) { return binary_cross_entropy(in[0], in[1]); },
                                     {spread({4}, 0.1, 0.9), spread({4}, 0, 1, 3)}));
}

TEST(Losses, BinaryCrossEntropyAtTheEndsOfTheRange) {
  const Tensor p = f32({0, 1, 0, 1}).tensor().requires_grad_();
  const Tensor losses = binary_cross_entropy(p, f32({0, 1, 1, 0}).tensor(), Loss::None);
  EXPECT_VALUES(losses.detach(), f32({0, 0, 100, 100}));
  losses.sum().backward();
  for (const float g : p.grad().to_vector<float>()) EXPECT_TRUE(std::isfinite(g));
}

TEST(Losses, BinaryCrossEntropyWithLogits) {
  const Tensor x = of(DType::F64, {0, 2, -1000, 1000}).tensor(),
               target = of(DType::F64, {1, 0.25, 1, 1}).tensor();
  EXPECT_VALUES(binary_cross_entropy_with_logits(x, target, Loss::None),
                of(DType::F64, {std::log(2.0), 1.5 + std::log1p(std::exp(-2.0)), 1000, 0}), 1e-15);
  const auto f = [](Inputs in) { return binary_cross_entropy_with_logits(in[0], in[1]); };
  EXPECT_TRUE(gradients_match(f, {spread({5}, -3, 3), spread({5}, 0, 1, 3)}));
  EXPECT_TRUE(second_gradients_match(f, {spread({5}, -3, 3), spread({5}, 0, 1, 3)}));
  const Tensor logits = f32({0, 800, -800}).tensor().requires_grad_();
  binary_cross_entropy_with_logits(logits, f32({1, 0, 1}).tensor(), Loss::Sum).backward();
  EXPECT_VALUES(logits.grad(), f32({-0.5, 1, -1}));
}

// Values by PyTorch's formula, w * (p * t * softplus(-x) + (1 - t) * softplus(x)), in plain numbers.
TEST(Losses, WeightsOfElementsAndOfPositives) {
  const Tensor x = of(DType::F64, {0, 2, -1000, 1000}).tensor(),
               target = of(DType::F64, {1, 0.25, 1, 0}).tensor(),
               weight = of(DType::F64, {1, 2, 0.5, 0}).tensor(), positives = of(DType::F64, {3}).tensor();
  const double first = 3 * std::log(2.0),
               second = 0.75 * std::log1p(std::exp(-2.0)) + 0.75 * std::log1p(std::exp(2.0));
  EXPECT_VALUES(
      binary_cross_entropy_with_logits(x, target, {.reduction = Loss::None, .pos_weight = positives}),
      of(DType::F64, {first, second, 3000, 1000}), 1e-14);
  EXPECT_VALUES(binary_cross_entropy_with_logits(
                    x, target, {.reduction = Loss::None, .weight = weight, .pos_weight = positives}),
                of(DType::F64, {first, 2 * second, 1500, 0}), 1e-14);
  EXPECT_VALUES(binary_cross_entropy_with_logits(x, target, {.weight = weight}),
                of(DType::F64, {}, {(std::log(2.0) + 2 * (1.5 + std::log1p(std::exp(-2.0))) + 500) / 4}),
                1e-14);
  EXPECT_VALUES(binary_cross_entropy(of(DType::F64, {0.5, 0.5}).tensor(), ones({2}, {.dtype = DType::F64}),
                                     {.reduction = Loss::Sum, .weight = of(DType::F64, {2, 5}).tensor()}),
                of(DType::F64, {}, {7 * std::log(2.0)}), 1e-14);
}

TEST(Losses, GradientsOfWeightedBinaryCrossEntropy) {
  const auto f = [](Inputs in) {
    return binary_cross_entropy_with_logits(in[0], in[1], {.weight = in[2], .pos_weight = in[3]});
  };
  const std::vector<Values> inputs{spread({2, 3}, -3, 3), spread({2, 3}, 0, 1, 3), spread({2, 1}, 1, 2, 4),
                                   spread({3}, 0.5, 3, 5)};
  EXPECT_TRUE(gradients_match(f, inputs));
  EXPECT_TRUE(second_gradients_match(f, inputs));
  // The formula's own gradient would be off at 0, and NaN or lost far from it.
  const Tensor logits = f32({0, 800, -800}).tensor().requires_grad_();
  binary_cross_entropy_with_logits(logits, f32({1, 0, 1}).tensor(),
                                   {.reduction = Loss::Sum, .pos_weight = f32({4}).tensor()})
      .backward();
  EXPECT_VALUES(logits.grad(), f32({-2, 1, -4}));
}

TEST(Losses, WeightsBroadcastToTheTarget) {
  EXPECT_ERROR(binary_cross_entropy_with_logits(ones({2}), ones({2}), {.pos_weight = ones({3})}), ShapeError,
               "expected a pos_weight that broadcasts to [2], got [3]");
  EXPECT_ERROR(binary_cross_entropy(ones({2}), ones({2}), {.weight = ones({2, 2})}), ShapeError,
               "expected a weight that broadcasts to [2], got [2, 2]");
  EXPECT_ERROR(binary_cross_entropy(ones({2}), ones({2}), {.pos_weight = ones({2})}), ValueError,
               "use binary_cross_entropy_with_logits");
}

TEST(Losses, BinaryCrossEntropyWantsFloats) {
  EXPECT_ERROR(binary_cross_entropy(ones({2}), ones({2}).to(DType::I64)), DTypeError,
               "binary_cross_entropy: expected floating dtypes, got f32 and i64");
  EXPECT_ERROR(binary_cross_entropy_with_logits(ones({2}), ones({3})), ShapeError, "got [2] and [3]");
}

}  // namespace
}  // namespace etch::testing
