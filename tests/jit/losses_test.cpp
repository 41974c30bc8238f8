// Losses and layers inside traced functions: eager's bits, gradients and gradients of gradients included.
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

TEST(Layers, GradientPenaltiesThroughThemAreEagers) {
  const auto body = [](Tensor x, Tensor w) {
    Tensor mean = zeros({3}), variance = ones({3});
    const Tensor y = batch_norm(x, w, w * 0.5, mean, variance);
    const Tensor z = layer_norm(y.permute({0, 2, 3, 1}), w, w).softmax(-1).permute({0, 3, 1, 2});
    const Pool2dOptions pool{.kernel = {2, 1}, .stride = {1, 1}};
    const Tensor logits = (max_pool2d(z, pool) + avg_pool2d(z, pool)).flatten(1);
    cross_entropy(logits, from_vector(std::vector<int64_t>{0, 5, 2, -100}))
        .backward({}, {.create_graph = true});
    const Tensor penalty = (x.grad() * 100.0).square().sum();
    x.zero_grad();
    w.zero_grad();
    penalty.backward();
    return penalty.detach();
  };
  auto step = compile(body);
  for (int i = 0; i < 4; ++i) {
    const auto input = [&] { return ramp({4, 3, 2, 2}, -1 + i, 0.07).sin().detach().requires_grad_(); };
    const auto weight = [&] { return ramp({3}, 1 + i, 0.3).requires_grad_(); };
    const Tensor x = input(), w = weight(), twin_x = input(), twin_w = weight();
    expect_same(step(x, w), eagerly([&] { return body(twin_x, twin_w); }));
    expect_same(x.grad(), twin_x.grad());
    expect_same(w.grad(), twin_w.grad());
    EXPECT_GT(x.grad().abs().max().item<float>(), 0);
  }
  EXPECT_EQ(step.compile_count(), 1);
}

}  // namespace
}  // namespace etch
