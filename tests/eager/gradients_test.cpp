// Gradients with structure: views, joins, indexing, ties, powers, convolution geometries, norms and losses.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eager/functional.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/gradient_check.h"

namespace etch::testing {
namespace {

using Inputs = std::span<const Tensor>;

#define EXPECT_GRADIENTS(body, ...)                                                      \
  EXPECT_TRUE(gradients_match([&]([[maybe_unused]] Inputs x) -> Tensor { return body; }, \
                              std::vector<Values>{__VA_ARGS__}))

TEST(ViewGradients, EveryViewPassesItsGradientThrough) {
  const Values x234 = spread({2, 3, 4});
  EXPECT_GRADIENTS(x[0].view({6, 4}), x234);
  EXPECT_GRADIENTS(x[0].reshape({4, -1}), x234);
  EXPECT_GRADIENTS(x[0].transpose(0, 2).reshape({-1}), x234);
  EXPECT_GRADIENTS(x[0].permute({2, 0, 1}), x234);
  EXPECT_GRADIENTS(x[0].transpose(-1, -2).square(), x234);
  EXPECT_GRADIENTS(x[0].unsqueeze(1).squeeze(1).flatten(1), x234);
  EXPECT_GRADIENTS(x[0].slice(1, 1, 3) * 2, x234);
  EXPECT_GRADIENTS(x[0].slice(2, 0, 4, 3).square(), x234);
  EXPECT_GRADIENTS(x[0].select(1, -1), x234);
  EXPECT_GRADIENTS((x[0][{1, Slice(0, 2), kNewAxis, -1}]), x234);
  EXPECT_GRADIENTS(x[0].flip({0, 2}), x234);
  EXPECT_GRADIENTS(x[0].slice(1, 2, 2).sum() + x[0].sum(), x234);
  EXPECT_GRADIENTS(x[0].expand({5, 2, 3}).square(), spread({2, 1}));
  EXPECT_GRADIENTS(x[0].expand({3, 4}), spread({}));
  EXPECT_GRADIENTS(x[0].contiguous() + x[0].clone() * 2, x234);
  EXPECT_GRADIENTS(x[0].channels_last().square(), spread({2, 3, 2, 2}));
}

TEST(ViewGradients, SplitChunkUnbindAndSqueeze) {
  EXPECT_GRADIENTS(x[0].split(2, 1)[2].square(), spread({2, 5}));
  EXPECT_GRADIENTS(x[0].unbind(1)[2].square(), spread({2, 5}));
  EXPECT_GRADIENTS(x[0].unsqueeze(1).unsqueeze(0).squeeze().square(), spread({2, 5}));
  EXPECT_GRADIENTS(x[0].chunk(2, 0)[0] * x[0].chunk(2, 0)[1], spread({4, 2}));
}

TEST(JoinGradients, ConcatStackAndPad) {
  EXPECT_GRADIENTS(concat({x[0], x[1], x[0]}, 1).square(), spread({2, 3}), spread({2, 1}, -1, 1, 4));
  EXPECT_GRADIENTS(stack({x[0], x[1]}, -1).square(), spread({2, 3}), spread({2, 3}, -1, 1, 4));
  EXPECT_GRADIENTS(pad(x[0], {{1, 2}, {0, 3}}, 7).square(), spread({2, 3}));
  EXPECT_GRADIENTS(pad(x[0], {}), spread({2, 3}));
}

TEST(JoinGradients, ConcatOfMixedDtypesKeepsEachDtype) {
  const Tensor a = f32({1, 2}).tensor().requires_grad_(), b = spread({3}).tensor().requires_grad_();
  const Tensor y = concat({a, b});
  EXPECT_EQ(y.dtype(), DType::F64);
  (y * y).sum().backward();
  EXPECT_VALUES(a.grad(), f32({2, 4}));
  EXPECT_EQ(b.grad().dtype(), DType::F64);
}

TEST(IndexGradients, RepeatedIndicesAddUp) {
  const Tensor x = f32({3, 2}, {1, 2, 3, 4, 5, 6}).tensor().requires_grad_();
  (x.index_select(0, i64({2, 0, 2, 2}).tensor()) * f32({4, 1}, {1, 10, 100, 1000}).tensor()).sum().backward();
  EXPECT_VALUES(x.grad(), f32({3, 2}, {10, 10, 0, 0, 1101, 1101}));
}

TEST(IndexGradients, GatherScatterAndEmbedding) {
  const Values index = i64({2, 2}, {2, 2, 0, 2});
  EXPECT_GRADIENTS(x[0].gather(1, x[1]).square(), spread({2, 3}), index);
  EXPECT_GRADIENTS(x[0].scatter_add(1, x[1], x[2]).square(), spread({2, 3}), index, spread({2, 2}, -1, 1, 4));
  EXPECT_GRADIENTS(x[0].scatter_add(1, x[1], x[2]).square(), spread({2, 3}), i64({1, 2}, {2, 2}),
                   spread({2, 4}, -1, 1, 4));  // a source larger than the index
  EXPECT_GRADIENTS(x[0].index_add(1, x[1], x[2]).square(), spread({2, 3}), i64({1, 1}),
                   spread({2, 2}, -1, 1, 4));
  EXPECT_GRADIENTS(embedding(x[0], x[1]).square(), spread({4, 3}), i64({2, 3}, {1, 0, 1, 3, 3, 1}));
  EXPECT_GRADIENTS(x[0].index_select(-1, x[1].to(DType::I32)), spread({2, 3}), i64({2, 0, 2}));
}

TEST(PowGradients, ScalarAndTensorExponents) {
  const Values base = spread({5}, 0.3, 3), exponent = spread({5}, -2, 2, 9);
  EXPECT_GRADIENTS(x[0].pow(2), base);
  EXPECT_GRADIENTS(x[0].pow(3), spread({5}));
  EXPECT_GRADIENTS(x[0].pow(-1.5), base);
  EXPECT_GRADIENTS(x[0].pow(0), base);
  EXPECT_GRADIENTS(pow(2.5, x[0]), exponent);
  EXPECT_GRADIENTS(pow(x[0], x[1]), base, exponent);
  EXPECT_TRUE(second_gradients_match([](Inputs x) { return pow(x[0], x[1]); }, {base, exponent}));
}

TEST(PowGradients, AreFiniteAtZeroLikePyTorchs) {
  const Tensor base = f32({0, 0, 0}).tensor().requires_grad_();
  const Tensor exponent = f32({0, 1, 2}).tensor().requires_grad_();
  pow(base, exponent).sum().backward();
  EXPECT_VALUES(base.grad(), f32({0, 1, 0}));
  EXPECT_VALUES(exponent.grad(), f32({0, 0, 0}));
  const Tensor x = f32({0, 2}).tensor().requires_grad_();
  x.pow(0).sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 0}));
}

TEST(TieGradients, MinimumAndMaximumShareThem) {
  const Tensor a = f32({1, 2, 3}).tensor().requires_grad_(), b = f32({1, 5, 0}).tensor().requires_grad_();
  maximum(a, b).sum().backward();
  EXPECT_VALUES(a.grad(), f32({0.5, 0, 1}));
  EXPECT_VALUES(b.grad(), f32({0.5, 1, 0}));
  minimum(a, b).sum().backward();
  EXPECT_VALUES(a.grad(), f32({1, 1, 1}));
  EXPECT_VALUES(b.grad(), f32({1, 1, 1}));
}

TEST(TieGradients, ExtremaShareThemAmongTheTies) {
  const Tensor x = f32({2, 3}, {4, 4, 1, 0, 7, 2}).tensor().requires_grad_();
  x.amax({1}).sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 3}, {0.5, 0.5, 0, 0, 1, 0}));
  const Tensor y = f32({2, 2, 2, 5}).tensor().requires_grad_();
  y.min().backward();
  EXPECT_VALUES(y.grad(), f32({1 / 3.0, 1 / 3.0, 1 / 3.0, 0}), 1e-7);
}

TEST(TieGradients, ClampPassesThemAtItsBounds) {
  const Tensor x = f32({-1, 0, 1, 2}).tensor().requires_grad_();
  x.clamp(0, 1).sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 1, 1, 0}));
}

TEST(TieGradients, WhereSendsThemToOneSide) {
  const Tensor a = f32({1, 2}).tensor().requires_grad_(), b = f32({3, 4}).tensor().requires_grad_();
  where(of(DType::Bool, {1, 0}).tensor(), a, b).backward(f32({10, 20}).tensor());
  EXPECT_VALUES(a.grad(), f32({10, 0}));
  EXPECT_VALUES(b.grad(), f32({0, 20}));
}

TEST(KinkGradients, AreZeroAtZero) {
  const Tensor x = f32({0, 0}).tensor().requires_grad_();
  x.relu().sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 0}));
  x.abs().sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 0}));
}

TEST(ReductionGradients, OverAnyAxes) {
  const Values x = spread({2, 3, 4});
  EXPECT_GRADIENTS(x[0].sum({0, -1}).square(), x);
  EXPECT_GRADIENTS(x[0].mean({1}, true).square(), x);
  EXPECT_GRADIENTS(x[0].var(), x);
  EXPECT_GRADIENTS(x[0].var({0, 2}, 0), x);
  EXPECT_GRADIENTS(x[0].amax({0, 2}).square(), x);
  EXPECT_GRADIENTS(x[0].amin({1}, true).square(), x);
  EXPECT_GRADIENTS(x[0].softmax(1), x);
  EXPECT_GRADIENTS(x[0].log_softmax(-1), x);
  EXPECT_GRADIENTS(x[0].sum().square(), spread({}));
}

TEST(MatmulGradients, VectorsMatricesAndBatches) {
  const Values v3 = spread({3}, -1, 1, 5);
  EXPECT_GRADIENTS(x[0].matmul(x[1]), spread({3}), v3);
  EXPECT_GRADIENTS(x[0].matmul(x[1]), spread({2, 3}), v3);
  EXPECT_GRADIENTS(x[0].matmul(x[1]), v3, spread({3, 2}));
  EXPECT_GRADIENTS(x[0].matmul(x[1]), spread({2, 3}), spread({3, 4}, -1, 1, 5));
  EXPECT_GRADIENTS(x[0].matmul(x[1].t()), spread({2, 3}), spread({4, 3}, -1, 1, 5));
  EXPECT_GRADIENTS(x[0].matmul(x[1]), spread({2, 2, 3}), spread({3, 4}, -1, 1, 5));
  EXPECT_GRADIENTS(x[0].matmul(x[1]), spread({2, 3}), spread({2, 3, 2}, -1, 1, 5));
  EXPECT_GRADIENTS(x[0].matmul(x[1]), spread({2, 1, 2, 3}), spread({3, 3, 2}, -1, 1, 5));
  EXPECT_GRADIENTS(linear(x[0], x[1], x[2]), spread({2, 2, 3}), spread({4, 3}, -1, 1, 5), spread({4}));
  EXPECT_TRUE(second_gradients_match([](Inputs x) { return x[0].matmul(x[1]); },
                                     {spread({2, 3}), spread({3, 4}, -1, 1, 5)}));
}

struct ConvCase {
  Dims x, w;
  Conv2dOptions options;
};
const ConvCase kConvCases[] = {
    {{2, 3, 4, 5}, {2, 3, 3, 3}, {}},
    {{2, 3, 4, 5}, {4, 3, 1, 1}, {}},
    {{1, 2, 5, 6}, {3, 2, 3, 2}, {.padding = {1, 2}}},
    {{1, 2, 6, 5}, {3, 2, 3, 3}, {.stride = {2, 3}, .padding = {1, 1}}},
    {{1, 2, 7, 6}, {2, 2, 3, 2}, {.padding = {2, 1}, .dilation = {2, 3}}},
    {{2, 4, 4, 4}, {6, 2, 3, 3}, {.padding = {1, 1}, .groups = 2}},
    {{1, 3, 4, 4}, {3, 1, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 3}},
    {{1, 4, 7, 8}, {4, 2, 2, 3}, {.stride = {2, 1}, .padding = {0, 2}, .dilation = {1, 2}, .groups = 2}},
};

TEST(ConvGradients, EveryGeometry) {
  for (const ConvCase& c : kConvCases) {
    SCOPED_TRACE(to_string(c.x) + " with " + to_string(c.w));
    EXPECT_GRADIENTS(conv2d(x[0], x[1], x[2], c.options), spread(c.x), spread(c.w, -1, 1, 5),
                     spread({c.w[0]}, -1, 1, 6));
  }
}

TEST(ConvGradients, OfGradients) {
  for (const ConvCase& c : {kConvCases[2], kConvCases[3], kConvCases[7]}) {
    SCOPED_TRACE(to_string(c.x) + " with " + to_string(c.w));
    EXPECT_TRUE(second_gradients_match([&](Inputs x) { return conv2d(x[0], x[1], {}, c.options).square(); },
                                       {spread(c.x, -1, 1), spread(c.w, -1, 1, 5)}, 1e-5));
  }
}

TEST(PoolGradients, EveryGeometry) {
  const Values picture = spread({2, 2, 5, 6});
  EXPECT_GRADIENTS(max_pool2d(x[0], {.kernel = {2, 2}}), picture);
  EXPECT_GRADIENTS(max_pool2d(x[0], {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 1}}), picture);
  EXPECT_GRADIENTS(avg_pool2d(x[0], {.kernel = {2, 2}}), picture);
  EXPECT_GRADIENTS(avg_pool2d(x[0], {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 1}}), picture);
  EXPECT_GRADIENTS(global_avg_pool2d(x[0]).square(), picture);
}

TEST(NormGradients, LayerNorm) {
  EXPECT_GRADIENTS(layer_norm(x[0], x[1], x[2]), spread({2, 2, 5}), spread({5}, 0.5, 2, 3), spread({5}));
}

TEST(NormGradients, BatchNormTrainingAndEvaluation) {
  for (const Dims& sizes : {Dims{3, 2, 2, 3}, Dims{6, 2}}) {
    for (bool training : {true, false}) {
      const auto normalise = [training](Inputs x) {
        Tensor mean = of(DType::F64, {0.5, -0.5}).tensor(), variance = of(DType::F64, {2, 0.5}).tensor();
        return batch_norm(x[0], x[1], x[2], mean, variance, {.training = training});
      };
      EXPECT_GRADIENTS(normalise(x), spread(sizes), spread({2}, 0.5, 2, 3), spread({2}));
    }
  }
}

TEST(LossGradients, CrossEntropy) {
  const Values logits = spread({4, 3}), labels = i64({2, 0, 1, 2}), some = i64({2, -100, 1, -100});
  for (Loss reduction : {Loss::Mean, Loss::Sum, Loss::None}) {
    EXPECT_GRADIENTS(cross_entropy(x[0], x[1], {.reduction = reduction}), logits, labels);
    EXPECT_GRADIENTS(cross_entropy(x[0], x[1], {.reduction = reduction}), logits, some);
  }
  EXPECT_GRADIENTS(cross_entropy(x[0], x[1], {.ignore_index = 2}), logits, labels);
  EXPECT_GRADIENTS(cross_entropy(x[0], x[1]), spread({2, 3, 2}), i64({2, 2}, {0, 1, 2, 0}));
}

TEST(LossGradients, MeanSquares) {
  for (Loss reduction : {Loss::Mean, Loss::Sum, Loss::None})
    EXPECT_GRADIENTS(mse_loss(x[0], x[1], reduction), spread({2, 3}), spread({2, 3}, -1, 1, 5));
}

TEST(LossGradients, DropoutUsesTheMaskOfItsForward) {
  Generator generator(5);
  const Tensor x = spread({100}, 1, 2).tensor().requires_grad_();
  const Tensor y = dropout(x, 0.25, true, &generator);
  y.sum().backward();
  const std::vector<double> out = values_of(y), gradient = values_of(x.grad()), in = values_of(x);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(gradient[i], out[i] == 0 ? 0 : 1 / 0.75);
    EXPECT_DOUBLE_EQ(out[i], in[i] * gradient[i]);
  }
}

// The outer square makes the gradient that comes in depend on the inputs too.
TEST(SecondGradients, ThroughNormalisationsPoolingAndLosses) {
  const auto matches = [](const Function& f, const std::vector<Values>& inputs) {
    return second_gradients_match([&](Inputs x) { return f(x).square(); }, inputs);
  };
  const Values image = spread({2, 3, 4, 4}, -2, 3), w = spread({3}, 0.5, 1.5, 5), b = spread({3}, -1, 1, 4);
  EXPECT_TRUE(matches([](Inputs x) { return x[0].softmax(1); }, {spread({2, 3})}));
  EXPECT_TRUE(matches([](Inputs x) { return x[0].log_softmax(0); }, {spread({2, 3})}));
  EXPECT_TRUE(matches([](Inputs x) { return layer_norm(x[0], x[1], x[2]); }, {spread({2, 2, 3}), w, b}));
  EXPECT_TRUE(matches(
      [](Inputs x) {
        Tensor mean = zeros({3}, {.dtype = DType::F64}), variance = ones({3}, {.dtype = DType::F64});
        return batch_norm(x[0], x[1], x[2], mean, variance);
      },
      {image, w, b}));
  const Pool2dOptions pool{.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}};
  EXPECT_TRUE(matches([&](Inputs x) { return max_pool2d(x[0], pool); }, {image}));
  EXPECT_TRUE(matches([&](Inputs x) { return avg_pool2d(x[0], pool); }, {image}));
  for (const Loss reduction : {Loss::Mean, Loss::Sum, Loss::None})
    EXPECT_TRUE(matches(
        [&](Inputs x) {
          return cross_entropy(x[0], i64({2, 7, 0}).tensor(), {.reduction = reduction, .ignore_index = 7});
        },
        {spread({3, 4})}));
}

TEST(SecondGradients, FirstOnesAreTheSameWithAndWithoutCreateGraph) {
  const auto gradients = [](bool create_graph) {
    const Tensor x = spread({4, 3, 2, 2}, -2, 2).tensor().requires_grad_();
    const Tensor w = spread({3}, 0.5, 2).tensor().requires_grad_(), b = spread({3}).tensor().requires_grad_();
    Tensor mean = zeros({3}, {.dtype = DType::F64}), variance = ones({3}, {.dtype = DType::F64});
    const Tensor y = batch_norm(x, w, b, mean, variance);
    const Tensor z = layer_norm(y.permute({0, 2, 3, 1}), w, b).softmax(-1).permute({0, 3, 1, 2});
    const Tensor pooled = max_pool2d(z, {.kernel = {2, 1}, .stride = {1, 1}}) +
                          avg_pool2d(z, {.kernel = {2, 1}, .stride = {1, 1}});
    cross_entropy(pooled.flatten(1), i64({0, 5, 2, -100}).tensor())
        .backward({}, {.create_graph = create_graph});
    const Tensor all = concat({x.grad().detach().flatten(), w.grad().detach(), b.grad().detach()});
    for (Tensor leaf : {x, w, b}) leaf.zero_grad();  // or leaf and gradient keep each other
    return all;
  };
  const Tensor with = gradients(true), without = gradients(false);
  EXPECT_LT((with - without).abs().max().item<double>(), 1e-14);
  EXPECT_GT(without.abs().max().item<double>(), 1e-3);
}

TEST(SecondGradients, OfNormalisationsWhoseSquaresHalfPrecisionCannotHold) {
  const auto gradient = [](bool create_graph) {
    const Tensor x = (spread({4, 8}, -2, 2).tensor() * 400.0).to(DType::F16).detach().requires_grad_();
    const Tensor w = ones({8}, {.dtype = DType::F16}), weights = spread({4, 8}, -2, 2, 7).tensor();
    (layer_norm(x, w, zeros_like(w)) * (weights * 100.0).to(DType::F16))
        .sum()
        .backward({}, {.create_graph = create_graph});
    const Tensor g = x.grad().detach().to(DType::F64);
    Tensor(x).zero_grad();  // or leaf and gradient keep each other
    return g;
  };
  const Tensor with = gradient(true), without = gradient(false);
  EXPECT_GT(without.abs().max().item<double>(), 1e-2);
  EXPECT_LT((with - without).abs().max().item<double>(), 1e-3 * without.abs().max().item<double>());
}

TEST(SecondGradients, OfIgnoredRowsAreZeroWhateverTheyHold) {
  const Tensor x = of(DType::F64, {0.5, -1, NAN, NAN}).tensor().reshape({2, 2}).requires_grad_();
  cross_entropy(x, i64({1, -100}).tensor()).backward({}, {.create_graph = true});
  const Tensor first = x.grad();
  EXPECT_EQ(first[1].detach().abs().sum().item<double>(), 0);
  Tensor(x).zero_grad();
  first.square().sum().backward();
  EXPECT_EQ(x.grad()[1].abs().sum().item<double>(), 0);
  EXPECT_GT(x.grad()[0].abs().sum().item<double>(), 0.1);
}

TEST(SecondGradients, OfThirdOrderToo) {
  // d/dx of d2/dx2 of softmax(x)[0] for two classes: sigmoid's derivatives.
  const Tensor x = of(DType::F64, {0.3, -0.4}).tensor().requires_grad_();
  x.softmax(0)[0].backward({}, {.create_graph = true});
  const Tensor first = x.grad()[0];
  Tensor(x).zero_grad();
  first.backward({}, {.create_graph = true});
  const Tensor second = x.grad()[0];
  Tensor(x).zero_grad();
  second.backward();
  const double s = 1 / (1 + std::exp(-0.7)), slope = s * (1 - s);
  EXPECT_NEAR(second.item<double>(), slope * (1 - 2 * s), 1e-14);
  EXPECT_NEAR(x.grad()[0].item<double>(), slope * (1 - 6 * slope), 1e-14);
}

TEST(SecondGradients, ProductsHaveNotEvenFirstOnes) {
  EXPECT_ERROR(spread({2}).tensor().requires_grad_().prod(), AutogradError, "(prod has none); detach() it");
}

TEST(SecondGradients, ThroughViewsJoinsAndReductions) {
  EXPECT_TRUE(second_gradients_match(
      [](Inputs x) {
        return concat({x[0].transpose(0, 1).slice(0, 1, 3).square(), x[1].expand({2, 2}).exp()}, 1)
            .sum({0})
            .square();
      },
      {spread({2, 3}), spread({2}, -1, 1, 4)}));
  EXPECT_TRUE(second_gradients_match(
      [](Inputs x) {
        return x[0].index_select(0, i64({1, 1, 0}).tensor()).square().amax({1}).sigmoid();
      },
      {spread({2, 3})}));
}

}  // namespace
}  // namespace etch::testing
