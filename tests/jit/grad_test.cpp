// grad() inside traced functions.
#include "eager/grad.h"

#include "tests/jit/contract.h"

namespace etch {
namespace {

using GradOfCompiled = Contract;

// A critic's gradient penalty, then an update of its weight.
Tensor penalise(Tensor& w, const Tensor& x) {
  const Tensor point = (x * 2).requires_grad_();
  const Tensor slope = grad((point.matmul(w).tanh() * point).sum(), {point}, {}, {.create_graph = true})[0];
  const Tensor loss = ((slope.square().sum({1}) + 1e-6).sqrt() - 1).square().mean();
  const Tensor step = grad(loss, {w})[0];
  const NoGrad guard;
  w -= step * 0.1;
  return loss.detach();
}

TEST_F(GradOfCompiled, SecondGradientsAreEagers) {
  Tensor w = ramp({3, 3}, -0.4, 0.1).requires_grad_(), twin = ramp({3, 3}, -0.4, 0.1).requires_grad_();
  auto step = compile([&](const Tensor& x) { return penalise(w, x); });
  for (int i = 0; i < 6; ++i) {
    const Tensor x = ramp({4, 3}, 0.1 * i, 0.05);
    const Tensor expected = eagerly([&] { return penalise(twin, x); });
    expect_same(step(x), expected);
    expect_same(w, twin);
    EXPECT_FALSE(w.grad().defined());
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(GradOfCompiled, CanBeFrozen) {
  Tensor w = ramp({3}, 0.5, 0.25).requires_grad_();
  auto slope = compile([&](const Tensor& x) { return grad((w * x).sin().sum(), {w})[0]; });
  auto frozen = slope.freeze(ramp({3}));
  const Tensor x = ramp({3}, 1, 0.5);
  expect_same(frozen(x), eagerly([&] { return grad((w * x).sin().sum(), {w})[0]; }));
}

}  // namespace
}  // namespace etch
