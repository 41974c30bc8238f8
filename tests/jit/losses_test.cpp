// Losses of elements inside traced functions: eager's bits, gradients included.
#include "eager/functional.h"

#include "tests/jit/contract.h"

namespace etch {
namespace {

using ElementLoss = Tensor (*)(const Tensor&, const Tensor&, Loss);

using Named = std::pair<const char*, ElementLoss>;

class Losses : public ::testing::TestWithParam<Named> {};

TEST_P(Losses, AreEagers) {
  const ElementLoss loss = GetParam().second;
  const auto body = [loss](const Tensor& x, const Tensor& target) {
    const Tensor y = loss(x.sigmoid(), target, Loss::Mean) + loss(x.sigmoid(), target, Loss::None).sum();
    y.backward();
    return y.detach();
  };
  auto step = compile(body);
  for (int i = 0; i < 4; ++i) {
    const Tensor target = ramp({3, 5}, 0.1 * i, 0.04);
    const Tensor x = ramp({3, 5}, -2 - i, 0.3).requires_grad_(),
                 twin = ramp({3, 5}, -2 - i, 0.3).requires_grad_();
    expect_same(step(x, target), eagerly([&] { return body(twin, target); }));
    expect_same(x.grad(), twin.grad());
  }
  EXPECT_EQ(step.compile_count(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, Losses,
                         ::testing::Values(Named("mse", &mse_loss), Named("l1", &l1_loss),
                                           Named("binary", &binary_cross_entropy),
                                           Named("logits", &binary_cross_entropy_with_logits)),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace etch
