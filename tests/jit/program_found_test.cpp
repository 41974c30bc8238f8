// What random programs found: each a small function whose compiled calls once differed from eager ones.
#include <algorithm>
#include <cmath>

#include "tests/jit/contract.h"

namespace etch {
namespace {

using Found = Contract;

template <class Body>
void expect_eagers_values(const Body& body, int calls = 6) {
  const auto eager = eagerly([&] {
    auto state = body();
    std::vector<Tensor> results;
    for (int call = 0; call < calls; ++call) results.push_back(state(call));
    return results;
  });
  auto state = body();
  auto step = compile([&](int call) { return state(call); });
  for (int call = 0; call < calls; ++call) {
    SCOPED_TRACE(call);
    expect_same(step(call), eager[static_cast<size_t>(call)]);
  }
}

// One op writes a tensor of before the call, or makes one: nothing else in the key tells the two apart.
TEST_F(Found, AnOlderTensorAndAFreshOneAreTwoPaths) {
  for (bool fresh_first : {false, true})
    expect_eagers_values([=] {
      return [=, old = zeros({8})](int call) mutable {
        const Tensor x = ramp({8}, call);
        Tensor t = old;
        if ((call % 2 == 0) == fresh_first)
          t = x.clone();
        else
          t.copy_(x);
        t.mul_(2);
        return t + t;
      };
    });
}

// The statistics' normalised input would be made again where it is used, after the input has been
// overwritten.
TEST_F(Found, AnInputWrittenAfterItsNormalisationIsNotReadAgain) {
  expect_eagers_values([] {
    return [w = ramp({64}), mean = zeros({64}), var = ones({64})](int call) mutable {
      Tensor x = ramp({24, 64}, call, 0.25);
      flush();
      const Tensor y = batch_norm(x, w, w, mean, var);
      x.mul_(0.25);
      return y.matmul(x.t());
    };
  });
}

// The gradient of a sum is an expanded scalar, whose layout the windows' indices cannot take.
TEST_F(Found, TheGradientOfASumReachesEachWindowsMaximum) {
  const Tensor x = randn({3, 4}).requires_grad_();
  max_pool2d(x.reshape({1, 1, 3, 4}), {.kernel = {2, 2}, .stride = {1, 1}, .padding = {1, 1}})
      .sum()
      .backward();
  const std::vector<double> values = x.detach().to_vector<double>();
  std::vector<double> expected(12);
  for (int i = 0; i <= 3; ++i)
    for (int j = 0; j <= 4; ++j) {
      int best = -1;
      for (int row = std::max(i - 1, 0); row <= std::min(i, 2); ++row)
        for (int column = std::max(j - 1, 0); column <= std::min(j, 3); ++column)
          if (const int at = row * 4 + column; best < 0 || values[at] > values[best]) best = at;
      ++expected[best];
    }
  expect_values(x.grad(), expected);
}

TEST_F(Found, OfSeveralNaNsInAWindowTheFirstGetsTheGradient) {
  const float nan = std::nanf("");
  const Tensor x = from_vector<float>({1, nan, 2, nan}, {1, 1, 2, 2}).requires_grad_();
  max_pool2d(x, {.kernel = {2, 2}}).backward(ones({1, 1, 1, 1}));
  expect_values(x.grad(), {0, 1, 0, 0});
}

}  // namespace
}  // namespace etch
