// Composites, interpreted in float64, against their textbook formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/tracer/interpreting.h"

namespace etch {
namespace {

Doubles random_values(int count, unsigned seed, double low = -2, double high = 2) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(low, high);
  Doubles values(count);
  for (double& value : values) value = draw(random);
  return values;
}

void expect_close(const Doubles& got, const Doubles& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-12 * (1 + std::abs(expected[i]))) << i;
}

constexpr int kRows = 3, kClasses = 5;

TEST(CompositeValues, SoftmaxAndItsGradient) {
  const Doubles x = random_values(kRows * kClasses, 1), g = random_values(kRows * kClasses, 2);
  const Interpreted run({bytes_of(x), bytes_of(g)}, {120, 120, 120, 120},
                        "softmax<1>(%0:f64[3,5]{5,1}) -> %2:f64[3,5]{5,1}\n"
                        "softmax_grad<1>(%1:f64[3,5]{5,1}, %2:f64[3,5]{5,1}) -> %3:f64[3,5]{5,1}\n"
                        "log_softmax<1>(%0:f64[3,5]{5,1}) -> %4:f64[3,5]{5,1}\n"
                        "log_softmax_grad<1>(%1:f64[3,5]{5,1}, %4:f64[3,5]{5,1}) -> %5:f64[3,5]{5,1}\n");
  Doubles y(x.size()), y_grad(x.size()), log_y(x.size()), log_grad(x.size());
  for (int r = 0; r < kRows; ++r) {
    double total = 0, dot = 0, g_total = 0;
    for (int c = 0; c < kClasses; ++c) total += std::exp(x[r * kClasses + c]);
    for (int c = 0; c < kClasses; ++c) {
      const int i = r * kClasses + c;
      y[i] = std::exp(x[i]) / total;
      log_y[i] = x[i] - std::log(total);
      dot += g[i] * y[i];
      g_total += g[i];
    }
    for (int c = 0; c < kClasses; ++c) {
      const int i = r * kClasses + c;
      y_grad[i] = y[i] * (g[i] - dot);
      log_grad[i] = g[i] - y[i] * g_total;
    }
  }
  expect_close(run[2], y);
  expect_close(run[3], y_grad);
  expect_close(run[4], log_y);
  expect_close(run[5], log_grad);
}

TEST(CompositeValues, SoftmaxOfHugeValuesStaysFinite) {
  const Interpreted run({bytes_of(Doubles{1000, 1000})}, {16}, "softmax<0>(%0:f64[2]{1}) -> %1:f64[2]{1}\n");
  EXPECT_EQ(run[1], (Doubles{0.5, 0.5}));
}

TEST(CompositeValues, CrossEntropyAndItsGradient) {
  const Doubles x = random_values(kRows * kClasses, 3), g = random_values(kRows, 4);
  const std::vector<int64_t> target{4, -1, 0};  // the second row is ignored
  const Interpreted run(
      {bytes_of(x), bytes_of(target), bytes_of(g)}, {24, 24, 120},
      "cross_entropy<-1>(%0:f64[3,5]{5,1}, %1:i64[3]{1}) -> %3:f64[3]{1}, %4:f64[3]{1}\n"
      "cross_entropy_grad<-1>(%2:f64[3]{1}, %0:f64[3,5]{5,1}, %1:i64[3]{1}, %4:f64[3]{1}) -> "
      "%5:f64[3,5]{5,1}\n");
  Doubles loss(kRows), log_sum(kRows), grad(x.size());
  for (int r = 0; r < kRows; ++r) {
    double total = 0;
    for (int c = 0; c < kClasses; ++c) total += std::exp(x[r * kClasses + c]);
    log_sum[r] = std::log(total);
    if (target[r] < 0) continue;
    loss[r] = log_sum[r] - x[r * kClasses + target[r]];
    for (int c = 0; c < kClasses; ++c)
      grad[r * kClasses + c] = g[r] * (std::exp(x[r * kClasses + c]) / total - (c == target[r]));
  }
  expect_close(run[3], loss);
  expect_close(run[4], log_sum);
  expect_close(run[5], grad);
}

TEST(CompositeValues, LayerNormAndItsGradient) {
  constexpr int kWidth = 4;
  const Doubles x = random_values(kRows * kWidth, 5), w = random_values(kWidth, 6),
                b = random_values(kWidth, 7);
  const Doubles g = random_values(kRows * kWidth, 8);
  const Interpreted run(
      {bytes_of(x), bytes_of(w), bytes_of(b), bytes_of(g)}, {96, 24, 24, 96, 32, 32},
      "layer_norm(%0:f64[3,4]{4,1}, %1:f64[4]{1}, %2:f64[4]{1}, f64=0.1) -> "
      "%4:f64[3,4]{4,1}, %5:f64[3,1]{1,1}, %6:f64[3,1]{1,1}\n"
      "layer_norm_grad(%3:f64[3,4]{4,1}, %0:f64[3,4]{4,1}, %5:f64[3,1]{1,1}, %6:f64[3,1]{1,1}, "
      "%1:f64[4]{1}) -> %7:f64[3,4]{4,1}, %8:f64[4]{1}, %9:f64[4]{1}\n");
  Doubles y(x.size()), g_x(x.size()), g_w(kWidth), g_b(kWidth);
  for (int r = 0; r < kRows; ++r) {
    const double *row = x.data() + r * kWidth, *g_row = g.data() + r * kWidth;
    double mean = 0, variance = 0, sum_g = 0, sum_gx = 0;
    for (int i = 0; i < kWidth; ++i) mean += row[i] / kWidth;
    for (int i = 0; i < kWidth; ++i) variance += (row[i] - mean) * (row[i] - mean) / kWidth;
    const double inverse = 1 / std::sqrt(variance + 0.1);
    for (int i = 0; i < kWidth; ++i) {
      const double normal = (row[i] - mean) * inverse;
      y[r * kWidth + i] = normal * w[i] + b[i];
      g_w[i] += g_row[i] * normal;
      g_b[i] += g_row[i];
      sum_g += g_row[i] * w[i];
      sum_gx += g_row[i] * w[i] * normal;
    }
    for (int i = 0; i < kWidth; ++i)
      g_x[r * kWidth + i] =
          inverse * (g_row[i] * w[i] - sum_g / kWidth - (row[i] - mean) * inverse * sum_gx / kWidth);
  }
  expect_close(run[4], y);
  expect_close(run[7], g_x);
  expect_close(run[8], g_w);
  expect_close(run[9], g_b);
}

// x [2, 3, 2, 1]: n = 4 values for each of 3 channels.
struct BatchNorm {
  static constexpr int kChannels = 3, kBatch = 2, kPlane = 2, kCount = kBatch * kPlane;
  Doubles x = random_values(kBatch * kChannels * kPlane, 9), w = random_values(kChannels, 10);
  Doubles b = random_values(kChannels, 11), g = random_values(kBatch * kChannels * kPlane, 12);
  Doubles running_mean = random_values(kChannels, 13),
          running_variance = random_values(kChannels, 14, 0.5, 2);

  static int at(int n, int c, int p) { return (n * kChannels + c) * kPlane + p; }
  template <class F>
  static void for_channel(int c, F visit) {
    for (int n = 0; n < kBatch; ++n)
      for (int p = 0; p < kPlane; ++p) visit(at(n, c, p));
  }
};

TEST(CompositeValues, BatchNormAndItsGradient) {
  const BatchNorm t;
  const Interpreted run(
      {bytes_of(t.x), bytes_of(t.w), bytes_of(t.b), bytes_of(t.running_mean), bytes_of(t.running_variance),
       bytes_of(t.g)},
      {96, 24, 24, 96, 24, 24},
      "batch_norm(%0:f64[2,3,2,1]{6,2,1,1}, %1:f64[3]{1}, %2:f64[3]{1}, %3:f64[3]{1}, %4:f64[3]{1}, f64=0.1, "
      "f64=0.01) -> %6:f64[2,3,2,1]{6,2,1,1}, %7:f64[3]{1}, %8:f64[3]{1}, %3:f64[3]{1}, %4:f64[3]{1}\n"
      "batch_norm_grad(%5:f64[2,3,2,1]{6,2,1,1}, %0:f64[2,3,2,1]{6,2,1,1}, %7:f64[3]{1}, %8:f64[3]{1}, "
      "%1:f64[3]{1}) -> %9:f64[2,3,2,1]{6,2,1,1}, %10:f64[3]{1}, %11:f64[3]{1}\n");
  Doubles y(t.x.size()), g_x(t.x.size()), g_w(3), g_b(3), mean(3), inverse(3), new_mean(3), new_variance(3);
  for (int c = 0; c < 3; ++c) {
    double variance = 0;
    t.for_channel(c, [&](int i) { mean[c] += t.x[i] / t.kCount; });
    t.for_channel(c, [&](int i) { variance += (t.x[i] - mean[c]) * (t.x[i] - mean[c]) / t.kCount; });
    inverse[c] = 1 / std::sqrt(variance + 0.01);
    new_mean[c] = 0.9 * t.running_mean[c] + 0.1 * mean[c];
    new_variance[c] = 0.9 * t.running_variance[c] + 0.1 * variance * t.kCount / (t.kCount - 1);
    const auto normal = [&](int i) { return (t.x[i] - mean[c]) * inverse[c]; };
    t.for_channel(c, [&](int i) {
      y[i] = normal(i) * t.w[c] + t.b[c];
      g_w[c] += t.g[i] * normal(i);
      g_b[c] += t.g[i];
    });
    t.for_channel(c, [&](int i) {
      g_x[i] = t.w[c] * inverse[c] * (t.g[i] - g_b[c] / t.kCount - normal(i) * g_w[c] / t.kCount);
    });
  }
  expect_close(run[6], y);
  expect_close(run[7], mean);
  expect_close(run[8], inverse);
  expect_close(run[3], new_mean);
  expect_close(run[4], new_variance);
  expect_close(run[9], g_x);
  expect_close(run[10], g_w);
  expect_close(run[11], g_b);
}

TEST(CompositeValues, BatchNormOfTwoDimensionsAndInEvaluation) {
  const Interpreted run(
      {bytes_of(Doubles{1, 5, 3, 7}), bytes_of(Doubles{2, 1}), bytes_of(Doubles{0, 10}),
       bytes_of(Doubles{1, 2}), bytes_of(Doubles{3, 8})},
      {32},
      "batch_norm_eval(%0:f64[2,2]{2,1}, %1:f64[2]{1}, %2:f64[2]{1}, %3:f64[2]{1}, %4:f64[2]{1}, "
      "f64=1.0) -> %5:f64[2,2]{2,1}\n");
  expect_close(run[5], {0, 11, 2, 10 + 5.0 / 3});
}

TEST(CompositeValues, SgdFollowsPyTorch) {
  const Doubles p{1, -2}, g{0.5, 0.25}, buffer{0.1, 0.2};
  for (const bool nesterov : {false, true}) {
    const Interpreted run(
        {bytes_of(p), bytes_of(g), bytes_of(buffer)}, {},
        std::string(nesterov ? "sgd_step<1>" : "sgd_step<0>") +
            "(%0:f64[2]{1}, %1:f64[2]{1}, %2:f64[2]{1}, f64=0.1, f64=0.9, f64=0.75, f64=0.01) -> "
            "%0:f64[2]{1}, %2:f64[2]{1}\n");
    Doubles new_p(2), new_buffer(2);
    for (int i = 0; i < 2; ++i) {
      const double d = g[i] + 0.01 * p[i];
      new_buffer[i] = 0.9 * buffer[i] + 0.75 * d;
      new_p[i] = p[i] - 0.1 * (nesterov ? d + 0.9 * new_buffer[i] : new_buffer[i]);
    }
    expect_close(run[0], new_p);
    expect_close(run[2], new_buffer);
  }
  const Interpreted plain({bytes_of(p), bytes_of(g)}, {},
                          "sgd_plain_step(%0:f64[2]{1}, %1:f64[2]{1}, f64=0.1, f64=0.01) -> %0:f64[2]{1}\n");
  expect_close(plain[0], {1 - 0.1 * 0.51, -2 - 0.1 * 0.23});
}

TEST(CompositeValues, AdamFollowsPyTorch) {
  const Doubles p{1, -2}, g{0.5, 0.25}, m{0.1, 0.2}, v{0.3, 0.4};
  for (const bool decoupled : {false, true}) {
    const Interpreted run(
        {bytes_of(p), bytes_of(g), bytes_of(m), bytes_of(v)}, {},
        std::string(decoupled ? "adam_step<1>" : "adam_step<0>") +
            "(%0:f64[2]{1}, %1:f64[2]{1}, %2:f64[2]{1}, %3:f64[2]{1}, f64=0.1, f64=0.2, f64=0.3, "
            "f64=0.001, f64=0.01, f64=0.36, f64=0.51) -> %0:f64[2]{1}, %2:f64[2]{1}, "
            "%3:f64[2]{1}\n");
    Doubles new_p(2), new_m(2), new_v(2);
    for (int i = 0; i < 2; ++i) {
      const double d = decoupled ? g[i] : g[i] + 0.01 * p[i];
      const double decayed = decoupled ? p[i] * (1 - 0.1 * 0.01) : p[i];
      new_m[i] = 0.8 * m[i] + 0.2 * d;
      new_v[i] = 0.7 * v[i] + 0.3 * d * d;
      new_p[i] = decayed - 0.1 / 0.36 * new_m[i] / (std::sqrt(new_v[i]) / std::sqrt(0.51) + 0.001);
    }
    expect_close(run[0], new_p);
    expect_close(run[2], new_m);
    expect_close(run[3], new_v);
  }
}

}  // namespace
}  // namespace etch
