// grad(): which gradients it returns, what it leaves alone, and what it refuses.
#include "eager/grad.h"

#include <gtest/gtest.h>

#include "eager/function.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

Tensor leaf(std::vector<double> values) { return f32(std::move(values)).tensor().requires_grad_(); }

/// An op whose backward counts how often it runs.
struct Counted : Function<Counted> {
  static Tensor forward(FunctionContext& context, const Tensor& x, int* runs) {
    context.data = runs;
    return x * 1;
  }
  static std::vector<Tensor> backward(FunctionContext& context, const std::vector<Tensor>& gradients) {
    ++*std::any_cast<int*>(context.data);
    return {gradients[0]};
  }
};

TEST(Grad, ReturnsGradientsInTheOrderOfTheInputsAndLeavesDotGradAlone) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), other = leaf({5, 6});
  (x * 10).sum().backward();
  const std::vector<Tensor> gradients = grad((x * w * other).sum(), {w, x});
  EXPECT_VALUES(gradients[0], f32({5, 12}));
  EXPECT_VALUES(gradients[1], f32({15, 24}));
  EXPECT_FALSE(gradients[0].requires_grad());
  EXPECT_VALUES(x.grad(), f32({10, 10}));
  EXPECT_FALSE(w.grad().defined());
  EXPECT_FALSE(other.grad().defined());
}

TEST(Grad, ResultsOfOpsAreInputsToo) {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3, z = y * y + y;
  const std::vector<Tensor> gradients = grad(z.sum(), {y, x, z});
  EXPECT_VALUES(gradients[0], f32({7, 13}));
  EXPECT_VALUES(gradients[1], f32({21, 39}));
  EXPECT_VALUES(gradients[2], f32({1, 1}));
}

TEST(Grad, TheOutputMayBeAnInput) {
  const Tensor x = leaf({1, 2}), start = f32({3, 5}).tensor();
  Tensor gradient = grad(x, {x}, start)[0];
  EXPECT_VALUES(gradient, f32({3, 5}));
  gradient.zero_();
  EXPECT_VALUES(start, f32({3, 5}));
}

TEST(Grad, SharedGradientsAreReturnedApart) {
  const Tensor x = leaf({1, 2}), y = leaf({1, 2});
  std::vector<Tensor> gradients = grad((x + y).sum(), {x, y});
  gradients[0].zero_();
  EXPECT_VALUES(gradients[1], f32({1, 1}));
}

TEST(Grad, OnlyNodesOnTheWayRun) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  int before = 0, beside = 0;
  const Tensor y = Counted::apply(x, &before);
  EXPECT_VALUES(grad((y * Counted::apply(w, &beside)).sum(), {y})[0], f32({3, 4}));
  EXPECT_EQ(before, 0);
  EXPECT_EQ(beside, 0);
}

TEST(Grad, HooksOnTheWayRun) {
  Tensor x = leaf({1, 2}), y = x * 3;
  x.register_hook([](const Tensor& g) { return g + 1; });
  y.register_hook([](const Tensor& g) { return g * 2; });
  const std::vector<Tensor> gradients = grad(y.sum(), {y, x});
  EXPECT_VALUES(gradients[0], f32({2, 2}));
  EXPECT_VALUES(gradients[1], f32({7, 7}));
}

TEST(Grad, CreateGraphGivesSecondGradients) {
  const Tensor x = leaf({1, 2});
  const Tensor first = grad(x.pow(3).sum(), {x}, {}, {.create_graph = true})[0];
  EXPECT_VALUES(first, f32({3, 12}));
  EXPECT_VALUES(grad(first.sum(), {x})[0], f32({6, 12}));
}

TEST(Grad, FreesWhatItRanUnlessTold) {
  const Tensor x = leaf({1, 2});
  const Tensor y = x.exp().sum();
  grad(y, {x}, {}, {.retain_graph = true});
  grad(y, {x});
  EXPECT_ERROR((grad(y, {x})), AutogradError, "{.retain_graph = true}");
}

TEST(Grad, WritesThroughViewsAreFollowed) {
  const Tensor x = leaf({1, 2}), w = leaf({3});
  Tensor buffer = x * 2;
  buffer[0] = w.select(0, 0) * 5;
  const std::vector<Tensor> gradients = grad(buffer.sum(), {x, w, buffer});
  EXPECT_VALUES(gradients[0], f32({0, 2}));
  EXPECT_VALUES(gradients[1], f32({5}));
  EXPECT_VALUES(gradients[2], f32({1, 1}));
}

TEST(Grad, UnusedInputsAreRefusedUnlessAllowed) {
  const Tensor x = leaf({1, 2}), unused = leaf({3});
  const auto output = [&] { return (x * 2).sum(); };
  EXPECT_ERROR((grad(output(), {x, unused})), AutogradError, "got input 1 that it does not");
  const std::vector<Tensor> gradients = grad(output(), {unused, x}, {}, {.allow_unused = true});
  EXPECT_FALSE(gradients[0].defined());
  EXPECT_VALUES(gradients[1], f32({2, 2}));
  EXPECT_FALSE(grad(output(), {unused}, {}, {.allow_unused = true})[0].defined());
}

TEST(Grad, RefusesInputsWithoutGradients) {
  const Tensor x = leaf({1, 2}), plain = f32({1, 2}).tensor();
  EXPECT_ERROR((grad(x.sum(), {})), ValueError, "grad: expected inputs, got none");
  EXPECT_ERROR((grad((x * plain).sum(), {plain})), AutogradError, "got input 0");
  EXPECT_ERROR((grad(plain.sum(), {x})), AutogradError, "one without a tape");
  EXPECT_ERROR((grad(x * 2, {x})), ShapeError, "one-element tensor or a gradient");
  EXPECT_ERROR((grad(x * 2, {x}, f32({1}).tensor())), ShapeError, "grad: expected a gradient of sizes [2]");
}

}  // namespace
}  // namespace etch::testing
