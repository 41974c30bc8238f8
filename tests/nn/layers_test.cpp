// Layers: literal results, initial values, bad options.
#include "nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/expect_error.h"

namespace etch::nn {
namespace {

using Values = std::vector<float>;

void set_values(Tensor& x, const Values& values) {
  NoGrad guard;
  x.copy_(from_vector(values, x.sizes()));
}

float largest_size(const Tensor& x) { return x.detach().abs().max().item<float>(); }

TEST(Linear, MultipliesByTheTransposedWeight) {
  Linear layer({.in = 2, .out = 3});
  set_values(layer.weight, {1, 2, 3, 4, 5, 6});
  set_values(layer.bias, {10, 20, 30});
  EXPECT_EQ(layer(tensor({{1, 1}, {2, 0}})).to_vector<float>(), (Values{13, 27, 41, 12, 26, 40}));
}

TEST(Linear, StartsWithinOneOverRootIn) {
  Linear layer(64, 256);
  EXPECT_LE(largest_size(layer.weight), 0.125f);
  EXPECT_GT(largest_size(layer.weight), 0.12f);
  EXPECT_LE(largest_size(layer.bias), 0.125f);
}

TEST(Linear, SameSeedSameWeights) {
  manual_seed(5);
  Linear a(8, 8);
  manual_seed(5);
  Linear b(8, 8);
  EXPECT_EQ(a.weight.to_vector<float>(), b.weight.to_vector<float>());
}

TEST(Linear, BadExtents) {
  EXPECT_ERROR(Linear(0, 4), ValueError, "Linear: expected positive extents, got in 0");
}

TEST(Embedding, PicksRows) {
  Embedding layer(3, 2);
  set_values(layer.weight, {0, 1, 10, 11, 20, 21});
  EXPECT_EQ(layer(from_vector<int64_t>({2, 0})).to_vector<float>(), (Values{20, 21, 0, 1}));
}

TEST(Conv2d, LiteralWindow) {
  Conv2d layer({.in = 1, .out = 1, .kernel = 2, .bias = false});
  set_values(layer.weight, {1, 2, 3, 4});
  const Tensor x = arange(9).to(DType::F32).view({1, 1, 3, 3});
  EXPECT_EQ(layer(x).to_vector<float>(), (Values{27, 37, 57, 67}));
}

TEST(Conv2d, OptionsReachTheOp) {
  Conv2d layer({.in = 4, .out = 6, .kernel = {3, 1}, .stride = {2, 1}, .padding = {1, 0}, .groups = 2});
  EXPECT_EQ(layer.weight.sizes(), (Dims{6, 2, 3, 1}));
  EXPECT_EQ(layer(zeros({1, 4, 8, 8})).sizes(), (Dims{1, 6, 4, 8}));
  EXPECT_LE(largest_size(layer.weight), 1 / std::sqrt(6.0f));
}

TEST(Conv2d, BadOptions) {
  EXPECT_ERROR(Conv2d({.in = 3, .out = 4, .groups = 2}), ValueError, "channels that groups divide, got in 3");
  EXPECT_ERROR(Conv2d({.in = 3, .out = 4, .kernel = 0}), ValueError, "got kernel 0x0");
}

TEST(BatchNorm2d, NormalisesAndKeepsStatistics) {
  BatchNorm2d layer(1);
  const Tensor x = tensor({1, 3}).view({2, 1, 1, 1});
  const auto y = layer(x).to_vector<float>();
  EXPECT_NEAR(y[0], -1, 1e-4);
  EXPECT_NEAR(y[1], 1, 1e-4);
  EXPECT_NEAR(layer.running_mean.item<float>(), 0.2, 1e-6);  // 0.9 * 0 + 0.1 * 2
  EXPECT_NEAR(layer.running_var.item<float>(), 1.1, 1e-6);   // 0.9 * 1 + 0.1 * 2, unbiased
  layer.eval();
  EXPECT_NEAR(layer(x).to_vector<float>()[0], 0.8 / std::sqrt(1.1 + 1e-5), 1e-5);
}

TEST(BatchNorm2d, OtherChannelsAreAnError) {
  EXPECT_ERROR(BatchNorm2d(3)(zeros({1, 2, 4, 4})), ShapeError, "expected [N, 3, H, W], got [1, 2, 4, 4]");
}

TEST(LayerNorm, NormalisesRows) {
  const auto y = LayerNorm(2)(tensor({{1, 3}, {10, 10}})).to_vector<float>();
  EXPECT_NEAR(y[0], -1, 1e-4);
  EXPECT_NEAR(y[1], 1, 1e-4);
  EXPECT_EQ(y[2], 0);
}

TEST(Dropout, ScalesInTrainingAndIsTheIdentityInEvaluation) {
  Dropout layer(0.25);
  const Tensor x = ones({10000});
  const auto y = layer(x).to_vector<float>();
  int64_t zeros = 0;
  for (float value : y) {
    zeros += value == 0;
    EXPECT_TRUE(value == 0 || std::abs(value - 4.0f / 3) < 1e-6f) << value;
  }
  EXPECT_NEAR(static_cast<double>(zeros), 2500, 200);
  layer.eval();
  EXPECT_EQ(layer(x).to_vector<float>(), x.to_vector<float>());
  EXPECT_ERROR(Dropout(1.0), ValueError, "expected a probability in [0, 1), got 1");
}

TEST(Activation, LayersAreTheFunctions) {
  const Tensor x = tensor({-2, 0, 0.5});
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.to_vector<float>() == b.to_vector<float>();
  };
  EXPECT_TRUE(same(ReLU()(x), x.relu()));
  EXPECT_TRUE(same(GELU()(x), x.gelu()));
  EXPECT_TRUE(same(SiLU()(x), x.silu()));
  EXPECT_TRUE(same(Tanh()(x), x.tanh()));
  EXPECT_TRUE(same(Sigmoid()(x), x.sigmoid()));
  EXPECT_TRUE(same(Softmax()(x), x.softmax(0)));
  EXPECT_TRUE(Identity()(x).is_same(x));
  EXPECT_EQ(Sigmoid()(tensor({0})).to_vector<float>(), (Values{0.5}));
}

TEST(Pooling, Literals) {
  const Tensor x = arange(16).to(DType::F32).view({1, 1, 4, 4});
  EXPECT_EQ(MaxPool2d({.kernel = 2})(x).to_vector<float>(), (Values{5, 7, 13, 15}));
  EXPECT_EQ(AvgPool2d({.kernel = 2, .stride = 2})(x).to_vector<float>(), (Values{2.5, 4.5, 10.5, 12.5}));
  EXPECT_EQ(GlobalAvgPool2d()(x).to_vector<float>(), (Values{7.5}));
}

TEST(Sequential, RunsModulesAndFunctionsInOrder) {
  Sequential net(Flatten(), ReLU(), [](const Tensor& x) { return x + 1; });
  const Tensor y = net(tensor({{-1, 2}}).view({1, 1, 2}));
  EXPECT_EQ(y.sizes(), (Dims{1, 2}));
  EXPECT_EQ(y.to_vector<float>(), (Values{1, 3}));
}

TEST(Init, FansAndGains) {
  const auto fans = init::fans(zeros({8, 4, 3, 3}));
  EXPECT_EQ(fans.in, 36);
  EXPECT_EQ(fans.out, 72);
  EXPECT_DOUBLE_EQ(init::gain(init::Nonlinearity::ReLU), std::sqrt(2.0));
  EXPECT_ERROR(init::fans(zeros({8})), ShapeError, "at least 2 dimensions, got [8]");
}

TEST(Init, DeviationsAreAsAsked) {
  Tensor x = empty({200, 300});
  init::kaiming_normal_(x, {.mode = init::FanMode::Out, .nonlinearity = init::Nonlinearity::ReLU});
  EXPECT_NEAR(x.var().item<float>(), 2.0 / 200, 4e-4);
  init::kaiming_uniform_(x, {.slope = std::sqrt(5.0)});
  EXPECT_LE(largest_size(x), 1 / std::sqrt(300.0f));
  EXPECT_NEAR(x.var().item<float>(), 1.0 / 900, 4e-5);
  init::xavier_normal_(x);
  EXPECT_NEAR(x.var().item<float>(), 2.0 / 500, 2e-4);
}

}  // namespace
}  // namespace etch::nn
