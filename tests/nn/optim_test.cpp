// Optimisers against sequences computed by hand in double precision, and the schedules.
#include "nn/optim.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/expect_error.h"

namespace etch::optim {
namespace {

/// Three updates of a parameter that starts at 1, with gradients 0.5, -1, 2.
template <class O>
std::vector<double> three_steps(O& optimizer, Tensor parameter) {
  std::vector<double> values;
  for (double gradient : {0.5, -1.0, 2.0}) {
    parameter.set_grad(full_like(parameter.detach(), gradient));
    optimizer.step();
    values.push_back(parameter.item<double>());
  }
  return values;
}

Tensor one() { return ones({1}, {.dtype = DType::F64, .requires_grad = true}); }

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9) << "step " << i;
}

TEST(Sgd, Plain) {
  Tensor p = one();
  Sgd optimizer({p}, {.lr = 0.1});
  expect_near(three_steps(optimizer, p), {0.95, 1.05, 0.85});
}

TEST(Sgd, WeightDecay) {
  Tensor p = one();
  Sgd optimizer({p}, {.lr = 0.1, .weight_decay = 0.1});
  expect_near(three_steps(optimizer, p), {0.94, 1.0306, 0.820294});
}

TEST(Sgd, Momentum) {
  Tensor p = one();
  Sgd optimizer({p}, {.lr = 0.1, .momentum = 0.9});
  // buffers 0.5, -0.55, 1.505
  expect_near(three_steps(optimizer, p), {0.95, 1.005, 0.8545});
}

TEST(Sgd, DampeningSparesTheFirstStep) {
  Tensor p = one();
  Sgd optimizer({p}, {.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  // buffers 0.5, 0.45 - 0.5, -0.045 + 1
  expect_near(three_steps(optimizer, p), {0.95, 0.955, 0.8595});
}

TEST(Sgd, Nesterov) {
  Tensor p = one();
  Sgd optimizer({p}, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
  // g + 0.9 * buffer: 0.95, -1.495, 3.3545
  expect_near(three_steps(optimizer, p), {0.905, 1.0545, 0.71905});
}

/// The formulas of the papers, step by step.
std::vector<double> adam_reference(double decay, bool decoupled) {
  const double lr = 0.1, b1 = 0.9, b2 = 0.99, eps = 1e-8;
  double p = 1, m = 0, v = 0;
  std::vector<double> values;
  int t = 0;
  for (double g : {0.5, -1.0, 2.0}) {
    ++t;
    if (decoupled)
      p *= 1 - lr * decay;
    else
      g += decay * p;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    p -= lr * (m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + eps);
    values.push_back(p);
  }
  return values;
}

TEST(Adam, ThreeSteps) {
  Tensor p = one();
  Adam optimizer({p}, {.lr = 0.1, .beta2 = 0.99});
  const auto values = three_steps(optimizer, p);
  EXPECT_NEAR(values[0], 0.9, 1e-8);  // the first step has the size of the rate
  expect_near(values, adam_reference(0, false));
}

TEST(Adam, WeightDecayJoinsTheGradient) {
  Tensor p = one();
  Adam optimizer({p}, {.lr = 0.1, .beta2 = 0.99, .weight_decay = 0.1});
  expect_near(three_steps(optimizer, p), adam_reference(0.1, false));
}

TEST(AdamW, WeightDecayStandsApart) {
  Tensor p = one();
  AdamW optimizer({p}, {.lr = 0.1, .beta2 = 0.99, .weight_decay = 0.1});
  expect_near(three_steps(optimizer, p), adam_reference(0.1, true));
}

TEST(Optimizer, SkipsParametersWithoutGradient) {
  Tensor a = one(), b = one();
  Adam optimizer({a, b}, {.lr = 0.1});
  a.set_grad(ones({1}, {.dtype = DType::F64}));
  optimizer.step();
  EXPECT_NE(a.item<double>(), 1);
  EXPECT_EQ(b.item<double>(), 1);
  optimizer.zero_grad();
  b.set_grad(ones({1}, {.dtype = DType::F64}));
  optimizer.step();  // the first update of b
  EXPECT_NEAR(b.item<double>(), 0.9, 1e-8);
}

TEST(Optimizer, StateIsMadeAtConstructionInItsCategory) {
  Tensor p = one();
  const int64_t before = memory_stats().by_category[static_cast<int>(MemoryCategory::OptimizerState)];
  Adam optimizer({p});
  EXPECT_GT(memory_stats().by_category[static_cast<int>(MemoryCategory::OptimizerState)], before);
}

TEST(Optimizer, ZeroGradClearsOrFills) {
  Tensor p = one();
  Sgd optimizer({p}, {.lr = 0.1});
  p.set_grad(ones({1}, {.dtype = DType::F64}));
  optimizer.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(p.grad().item<double>(), 0);
  optimizer.zero_grad();
  EXPECT_FALSE(p.grad().defined());
}

TEST(Optimizer, StateDictRoundTripContinuesTheSequence) {
  Tensor p = one(), q = one();
  Adam a({p}, {.lr = 0.1}), b({q}, {.lr = 0.5});
  three_steps(a, p);
  {
    NoGrad guard;
    q.copy_(p);
  }
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.lr(), 0.1);
  EXPECT_EQ(three_steps(b, q), three_steps(a, p));
}

TEST(Optimizer, BadInputs) {
  Tensor p = one();
  EXPECT_ERROR(Sgd({}, {}), ValueError, "Sgd: expected parameters, got none");
  EXPECT_ERROR(Sgd({p, p}, {}), ValueError, "expected each parameter once, got number 1 again");
  EXPECT_ERROR(Sgd({Tensor()}, {}), ValueError, "got number 0 undefined");
  EXPECT_ERROR(Sgd({p}, {.lr = -1}), ValueError, "expected a learning rate of at least 0, got -1");
  EXPECT_ERROR(Sgd({p}, {.lr = NAN}), ValueError, "expected a learning rate");
  EXPECT_ERROR(Sgd({p}, {.nesterov = true}), ValueError, "momentum above 0 and no dampening with nesterov");
  EXPECT_ERROR(Adam({p}, {.beta1 = 1}), ValueError, "expected betas in [0, 1), got 1");
  Sgd optimizer({p}, {.momentum = 0.9});
  EXPECT_ERROR(optimizer.load_state_dict({}), ValueError, "missing: lr, steps, 0.momentum_buffer");
}

TEST(ClipGradNorm, ScalesOnlyAboveTheLimit) {
  Tensor a = one(), b = one();
  a.set_grad(full({1}, 3, {.dtype = DType::F64}));
  b.set_grad(full({1}, 4, {.dtype = DType::F64}));
  EXPECT_NEAR(clip_grad_norm_({a, b}, 10).item<float>(), 5, 1e-6);
  EXPECT_NEAR(a.grad().item<double>(), 3, 1e-6);
  clip_grad_norm_({a, b}, 1);
  EXPECT_NEAR(a.grad().item<double>(), 0.6, 1e-5);
  EXPECT_NEAR(b.grad().item<double>(), 0.8, 1e-5);
}

/// Rates after 0, 1, .., n - 1 calls of step().
std::vector<double> rates(Optimizer& optimizer, Schedule& schedule, int n) {
  std::vector<double> values;
  for (int i = 0; i < n; ++i, schedule.step()) values.push_back(optimizer.lr());
  return values;
}

class Schedules : public testing::Test {
 protected:
  Tensor parameter_ = one();
  Sgd optimizer_{{parameter_}, {.lr = 1}};
};

TEST_F(Schedules, Step) {
  StepLr schedule(optimizer_, {.step_size = 2, .gamma = 0.5});
  expect_near(rates(optimizer_, schedule, 5), {1, 1, 0.5, 0.5, 0.25});
}

TEST_F(Schedules, MultiStep) {
  MultiStepLr schedule(optimizer_, {.milestones = {1, 3}, .gamma = 0.1});
  expect_near(rates(optimizer_, schedule, 5), {1, 0.1, 0.1, 0.01, 0.01});
  EXPECT_ERROR(MultiStepLr(optimizer_, {.milestones = {3, 1}}), ValueError, "expected ascending milestones");
}

TEST_F(Schedules, Cosine) {
  CosineLr schedule(optimizer_, {.steps = 4, .low = 0.2});
  const double half = std::sqrt(0.5);
  expect_near(rates(optimizer_, schedule, 6), {1, 0.6 + 0.4 * half, 0.6, 0.6 - 0.4 * half, 0.2, 0.2});
}

TEST_F(Schedules, Exponential) {
  ExponentialLr schedule(optimizer_, {.gamma = 0.5});
  expect_near(rates(optimizer_, schedule, 3), {1, 0.5, 0.25});
}

TEST_F(Schedules, WarmupThenCosine) {
  CosineLr cosine(optimizer_, {.steps = 2});
  LinearWarmup schedule(optimizer_, {.steps = 2, .start = 0.5, .after = &cosine});
  expect_near(rates(optimizer_, schedule, 6), {0.5, 0.75, 1, 0.5, 0, 0});
}

TEST_F(Schedules, GoOnFromACheckpoint) {
  ExponentialLr schedule(optimizer_, {.gamma = 0.5});
  schedule.set_count(3);
  EXPECT_EQ(optimizer_.lr(), 0.125);
  EXPECT_ERROR(StepLr(optimizer_, {.step_size = 0}), ValueError, "expected a positive step_size");
}

}  // namespace
}  // namespace etch::optim
