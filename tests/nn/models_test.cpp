// Models: shapes, parameter counts, names.
#include "nn/models.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/losses.h"
#include "tests/runtime/expect_error.h"

namespace etch::nn {
namespace {

TEST(ResNet, ParameterCountsAreTorchvisions) {
  EXPECT_EQ(resnet18_cifar().parameter_count(), 11'173'962);
  EXPECT_EQ(resnet18().parameter_count(), 11'689'512);
  EXPECT_EQ(resnet50().parameter_count(), 25'557'032);
}

TEST(ResNet, NamesAreTorchvisions) {
  ResNet net = resnet_tiny();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state_dict()) names.push_back(name);
  EXPECT_EQ(names[0], "conv1.weight");
  EXPECT_EQ(names[1], "bn1.weight");
  EXPECT_EQ(names[3], "bn1.running_mean");
  EXPECT_EQ(names[5], "layer1.0.conv1.weight");
  EXPECT_NE(std::find(names.begin(), names.end(), "layer2.0.downsample.1.running_var"), names.end());
  EXPECT_EQ(names.back(), "fc.bias");
}

TEST(ResNet, StemsAndStagesHalveAsTheyShould) {
  EXPECT_EQ(resnet18_cifar()(zeros({2, 3, 32, 32})).sizes(), (Dims{2, 10}));
  EXPECT_EQ(resnet_tiny()(zeros({3, 1, 8, 8})).sizes(), (Dims{3, 10}));
  ResNet bottleneck({.block = ResNetBlock::Bottleneck, .depths = {1, 1}, .width = 8, .classes = 5});
  EXPECT_EQ(bottleneck(zeros({1, 3, 32, 32})).sizes(), (Dims{1, 5}));
}

TEST(ResNet, AllParametersGetGradients) {
  ResNet net = resnet_tiny();
  cross_entropy(net(randn({4, 1, 8, 8})), from_vector<int64_t>({0, 1, 2, 3})).backward();
  for (const auto& [name, parameter] : net.named_parameters())
    EXPECT_TRUE(parameter.grad().defined()) << name;
}

TEST(ResNet, BadOptions) {
  EXPECT_ERROR(ResNet({.depths = {}}), ValueError, "got 0 stages");
  EXPECT_ERROR(ResNet({.depths = {2, 0}}), ValueError, "expected at least one block a stage, got 0");
}

TEST(Mlp, FlattensAndCounts) {
  Mlp net;
  EXPECT_EQ(net.parameter_count(), 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);
  EXPECT_EQ(net(zeros({2, 1, 28, 28})).sizes(), (Dims{2, 10}));
  EXPECT_ERROR(Mlp({.widths = {3}}), ValueError, "expected at least two widths, got 1");
}

class SmallGpt : public testing::Test {
 protected:
  void SetUp() override { manual_seed(1); }
  Gpt net_{{.vocabulary = 11, .context = 6, .width = 8, .heads = 2, .layers = 2}};
};

TEST_F(SmallGpt, ShapesAndCount) {
  const int64_t block = 2 * 16 + (24 * 8 + 24) + (8 * 8 + 8) + (32 * 8 + 32) + (8 * 32 + 8);
  EXPECT_EQ(net_.parameter_count(), 11 * 8 + 6 * 8 + 2 * block + 16 + 11 * 8);
  EXPECT_EQ(net_(zeros({2, 6}, {.dtype = DType::I64})).sizes(), (Dims{2, 6, 11}));
  EXPECT_EQ(net_(zeros({2, 4}, {.dtype = DType::I64})).sizes(), (Dims{2, 4, 11}));
  EXPECT_ERROR(net_(zeros({2, 7}, {.dtype = DType::I64})), ShapeError, "T <= 6, got [2, 7]");
}

TEST_F(SmallGpt, LaterTokensDoNotChangeEarlierLogits) {
  const auto a = net_(from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6})).to_vector<float>();
  const auto b = net_(from_vector<int64_t>({1, 2, 3, 4, 9, 9}, {1, 6})).to_vector<float>();
  for (int i = 0; i < 4 * 11; ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << i;
  EXPECT_NE(a[5 * 11], b[5 * 11]);
}

TEST_F(SmallGpt, AllParametersGetGradients) {
  const Tensor logits = net_(from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}));
  cross_entropy(logits.view({-1, 11}), from_vector<int64_t>({2, 3, 4, 5, 6, 7})).backward();
  for (const auto& [name, parameter] : net_.named_parameters())
    EXPECT_TRUE(parameter.grad().defined()) << name;
}

TEST(Gpt, BadOptions) {
  EXPECT_ERROR(Gpt({.width = 10, .heads = 4}), ValueError,
               "expected a width that heads divide, got 10 and 4");
}

}  // namespace
}  // namespace etch::nn
