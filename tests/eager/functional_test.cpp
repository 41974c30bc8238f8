// Functions with options: values, layout and the errors of bad input.
#include "eager/functional.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Matmul, VectorsMatricesBatches) {
  const Tensor v = f32({1, 2}).tensor(), m = f32({2, 2}, {1, 2, 3, 4}).tensor();
  EXPECT_VALUES(v.matmul(v), f32({}, {5}));
  EXPECT_VALUES(m.matmul(v), f32({5, 11}));
  EXPECT_VALUES(v.matmul(m), f32({7, 10}));
  EXPECT_VALUES(m.t().matmul(m), f32({2, 2}, {10, 14, 14, 20}));
  EXPECT_EQ(zeros({3, 1, 2, 4}).matmul(zeros({5, 4, 6})).sizes(), (Dims{3, 5, 2, 6}));
  EXPECT_EQ(zeros({3, 2, 4}).matmul(zeros({4})).sizes(), (Dims{3, 2}));
  EXPECT_VALUES(zeros({2, 0}).matmul(zeros({0, 1})), f32({2, 1}, {0, 0}));
  EXPECT_EQ(zeros({0, 3}).matmul(zeros({3, 2})).sizes(), (Dims{0, 2}));
  EXPECT_EQ(zeros({2, 0, 3}).matmul(zeros({3, 2})).sizes(), (Dims{2, 0, 2}));
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(zeros({2, 3}).matmul(zeros({2, 3})), ShapeError, "matmul: expected");
  try {
    zeros({2, 3}).matmul(zeros({4, 5}));
    ADD_FAILURE();
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("[2, 3]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[4, 5]"), std::string::npos) << error.what();
  }
  EXPECT_ERROR(zeros({2}).matmul(zeros({3})), ShapeError, "got [2] and [3]");
  EXPECT_ERROR(zeros({}).matmul(zeros({3})), ShapeError, "matmul: expected vectors or matrices");
  EXPECT_ERROR(zeros({2, 2}).matmul(zeros({2, 2}, {.dtype = DType::F64})), DTypeError,
               "matmul: expected one dtype, got f32 and f64");
  EXPECT_ERROR(linear(zeros({2, 3}), zeros({5, 4})), ShapeError, "got [2, 3] and [5, 4]");
}

TEST(Conv2d, OutputsAreChannelsLast) {
  const Tensor x = spread({2, 3, 6, 5}, -1, 1, 2, DType::F32).tensor();
  const Tensor w = spread({4, 3, 3, 3}, -1, 1, 3, DType::F32).tensor();
  const Tensor y = conv2d(x, w, {}, {.padding = {1, 1}});
  EXPECT_EQ(y.sizes(), (Dims{2, 4, 6, 5}));
  EXPECT_EQ(y.strides(), (Dims{120, 1, 20, 4}));
  EXPECT_VALUES(conv2d(x.channels_last(), w, {}, {.padding = {1, 1}}), f32(y.sizes(), values_of(y)), 1e-5);
  EXPECT_EQ(y.relu().strides(), y.strides());
  EXPECT_EQ(max_pool2d(y, {.kernel = {2, 2}}).strides(), (Dims{24, 1, 8, 4}));
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(conv2d(zeros({1, 3, 4, 4}), zeros({2, 4, 3, 3})), ShapeError, "conv2d");
  EXPECT_ERROR(conv2d(zeros({1, 3, 2, 2}), zeros({2, 3, 3, 3})), ShapeError, "conv2d");
  EXPECT_ERROR(conv2d(zeros({3, 4, 4}), zeros({2, 3, 3, 3})), ShapeError, "conv2d");
  EXPECT_ERROR(conv2d(zeros({1, 3, 4, 4}), zeros({2, 3, 3, 3}), zeros({3})), ShapeError, "conv2d");
  EXPECT_ERROR(conv2d(zeros({1, 3, 4, 4}), zeros({2, 3, 3, 3}), {}, {.stride = {0, 1}}), ValueError,
               "conv2d");
  EXPECT_ERROR(conv2d(zeros({1, 3, 4, 4}), zeros({2, 3, 3, 3}), {}, {.groups = 2}), Error, "conv2d");
  EXPECT_ERROR(conv2d(zeros({1, 3, 4, 4}), zeros({2, 3, 3, 3}, {.dtype = DType::F64})), DTypeError, "conv2d");
  EXPECT_ERROR(conv2d(Tensor(), zeros({2, 3, 3, 3})), ValueError, "conv2d: expected defined tensors");
}

TEST(Conv2d, EmptyBatches) {
  const Tensor x = zeros({0, 3, 4, 4}, {.requires_grad = true}),
               w = ones({2, 3, 3, 3}, {.requires_grad = true});
  const Tensor y = conv2d(x, w);
  EXPECT_EQ(to_string(y.sizes()), "[0, 2, 2, 2]") << to_string(x.sizes()) << to_string(w.sizes());
  y.sum().backward();
  EXPECT_VALUES(w.grad(), f32({2, 3, 3, 3}, std::vector<double>(54, 0)));
}

TEST(Pooling, DefaultsToTheKernelAsStride) {
  const Tensor x = f32({1, 1, 2, 4}, {1, 2, 3, kNan, 5, 6, 7, 8}).tensor();
  EXPECT_VALUES(max_pool2d(x, {.kernel = {2, 2}}), f32({1, 1, 1, 2}, {6, kNan}));
  EXPECT_VALUES(avg_pool2d(x, {.kernel = {2, 1}}), f32({1, 1, 1, 4}, {3, 4, 5, kNan}));
  EXPECT_VALUES(global_avg_pool2d(f32({1, 2, 1, 2}, {1, 3, 5, 9}).tensor()), f32({1, 2, 1, 1}, {2, 7}));
  EXPECT_ERROR(max_pool2d(x, {.kernel = {3, 3}}), ShapeError, "max_pool2d");
  EXPECT_ERROR(max_pool2d(zeros({2, 2}), {.kernel = {1, 1}}), ShapeError, "max_pool2d");
}

TEST(BatchNorm, UpdatesRunningStatistics) {
  const Tensor x = f32({4, 1}, {1, 2, 3, 6}).tensor();
  Tensor mean = zeros({1}), variance = ones({1});
  const Tensor y = batch_norm(x, ones({1}), zeros({1}), mean, variance, {.momentum = 0.5, .eps = 0});
  EXPECT_VALUES(mean, f32({1.5}), 1e-6);
  EXPECT_VALUES(variance, f32({0.5 + 0.5 * 14 / 3.0}), 1e-6);
  EXPECT_NEAR(y.var({}, 0).item<double>(), 1, 1e-5);
  EXPECT_NEAR(y.mean().item<double>(), 0, 1e-6);
  EXPECT_ERROR(batch_norm(zeros({1, 2}), ones({2}), ones({2}), mean, variance), ShapeError, "batch_norm");
  EXPECT_ERROR(batch_norm(zeros({4, 2}), ones({3}), ones({2}), mean, variance), ShapeError,
               "batch_norm: expected w of sizes [2], got [3]");
}

TEST(LayerNorm, ChecksItsParameters) {
  EXPECT_ERROR(layer_norm(zeros({2, 3}), ones({2}), ones({3})), ShapeError,
               "layer_norm: expected w of sizes [3], got [2]");
}

TEST(CrossEntropy, ReductionsAndIgnoredTargets) {
  const Tensor logits = f32({3, 2}, {0, 0, 1, 1, 5, 5}).tensor(), target = i64({0, 1, -100}).tensor();
  const double half = std::log(2.0);
  EXPECT_VALUES(cross_entropy(logits, target, {.reduction = Loss::None}), f32({half, half, 0}), 1e-6);
  EXPECT_VALUES(cross_entropy(logits, target, {.reduction = Loss::Sum}), f32({}, {2 * half}), 1e-6);
  EXPECT_VALUES(cross_entropy(logits, target), f32({}, {half}), 1e-6);
  EXPECT_VALUES(cross_entropy(logits, i64({-100, -100, -100}).tensor()), f32({}, {kNan}));
  EXPECT_VALUES(cross_entropy(logits, of(DType::I32, {0, 0, 0}).tensor()), f32({}, {half}), 1e-6);
  EXPECT_EQ(
      cross_entropy(zeros({2, 3, 4, 5}), zeros({2, 4, 5}, {.dtype = DType::I64}), {.reduction = Loss::None})
          .sizes(),
      (Dims{2, 4, 5}));
}

TEST(CrossEntropy, BadLabelsAreErrors) {
  const Tensor logits = zeros({2, 3});
  EXPECT_ERROR(cross_entropy(logits, i64({0, 3}).tensor()), IndexError, "cross_entropy");
  EXPECT_ERROR(cross_entropy(logits, i64({-1, 0}).tensor()), IndexError, "cross_entropy");
  EXPECT_ERROR(cross_entropy(logits, i64({0}).tensor()), ShapeError, "cross_entropy");
  EXPECT_ERROR(cross_entropy(logits, f32({0, 1}).tensor()), DTypeError, "expected integer targets, got f32");
  EXPECT_ERROR(cross_entropy(zeros({3}), i64({0}).tensor()), ShapeError, "cross_entropy");
}

TEST(Dropout, IsTheIdentityUnlessTraining) {
  const Tensor x = ones({4});
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
  EXPECT_TRUE(dropout(x, 0).is_same(x));
  EXPECT_VALUES(dropout(x, 1), f32({0, 0, 0, 0}));
  EXPECT_ERROR(dropout(x, 1.5), ValueError, "dropout: expected a probability in [0, 1], got 1.5");
  const double kept = (dropout(ones({100000}), 0.3) > 0).to(DType::F32).mean().item<double>();
  EXPECT_NEAR(kept, 0.7, 0.01);
}

TEST(Optimisers, FirstStepsArePyTorchs) {
  Tensor p = f32({1, -2}).tensor(), buffer = zeros({2});
  const Tensor g = f32({0.5, 1}).tensor();
  sgd_step(p, g, buffer, 0.1, 0.9, 0, 0, false);
  EXPECT_VALUES(p, f32({0.95, -2.1}), 1e-6);
  EXPECT_VALUES(buffer, f32({0.5, 1}), 1e-6);
  sgd_step(p, g, buffer, 0.1, 0.9, 0.5, 0, false);
  EXPECT_VALUES(buffer, f32({0.7, 1.4}), 1e-6);
  Tensor q = f32({1, -2}).tensor(), m = zeros({2}), v = zeros({2});
  adam_step(q, g, m, v, 0.1, 0.9, 0.999, 1e-8, 0, 1 - 0.9, 1 - 0.999, false);
  EXPECT_VALUES(q, f32({0.9, -2.1}), 1e-5);
  EXPECT_VALUES(m, f32({0.05, 0.1}), 1e-6);
  EXPECT_VALUES(v, f32({0.00025, 0.001}), 1e-6);
}

}  // namespace
}  // namespace etch::testing
