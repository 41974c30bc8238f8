// Calls of matrix products, convolutions and pooling.
#include <gtest/gtest.h>

#include "tests/eager/cpu/values.h"

namespace etch::cpu {
namespace {

TEST(Contractions, MultipliesMatrices) {
  const Array a({2, 3}, {1, 2, 3, 4, 5, 6}), b({3, 2}, {1, 0, 0, 1, 1, 1});
  EXPECT_EQ(apply(Op::matmul, {a, b}).values(), (Numbers{4, 5, 10, 11}));
  EXPECT_EQ(
      apply(Op::matmul, {Array({1, 2}, {3, 4}, DType::I64), Array({2, 1}, {5, 6}, DType::I64)}).values(),
      Numbers{39});
}

TEST(Contractions, MultipliesTransposedWindows) {
  Array a({{2, 3}, {1, 2}}, DType::F32);
  a.set({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(apply(Op::matmul, {a, Array({3, 1}, {1, 1, 1})}).values(), (Numbers{6, 15}));
}

TEST(Contractions, BroadcastsFourBatchDimensions) {
  const Array a = random_array(contiguous({2, 1, 3, 1, 4, 5}), DType::F32, 1);
  const Array b = random_array(contiguous({2, 1, 3, 5, 2}), DType::F32, 2);
  const Array c = apply(Op::matmul, {a, b});
  ASSERT_EQ(c.geometry.sizes, (Dims{2, 2, 3, 3, 4, 2}));
  const Numbers x = a.values(), y = b.values(), z = c.values();
  for (int64_t i = 0; i < c.geometry.numel(); ++i) {
    const int64_t col = i % 2, row = i / 2 % 4, k3 = i / 8 % 3, k2 = i / 24 % 3, k1 = i / 72 % 2,
                  k0 = i / 144;
    double sum = 0;
    for (int64_t k = 0; k < 5; ++k)
      sum += x[((k0 * 3 + k2) * 4 + row) * 5 + k] * y[((k1 * 3 + k3) * 5 + k) * 2 + col];
    ASSERT_NEAR(z[i], sum, 1e-5);
  }
}

TEST(Contractions, SumsOverNothingGiveZero) {
  EXPECT_EQ(apply(Op::matmul, {Array({2, 0}, {}), Array({0, 1}, {})}).values(), (Numbers{0, 0}));
}

TEST(Contractions, ConvolvesWithBiasAndStridedWeights) {
  const Array x({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  Array w({{1, 1, 2, 2}, {4, 4, 1, 2}}, DType::F32);
  w.set({1, 0, 0, 1});
  ConvAttrs attrs;
  EXPECT_EQ(apply(Op::conv2d, {x, w, Array({1}, {0.5})}, attrs.pack()).values(),
            (Numbers{6.5, 8.5, 12.5, 14.5}));
  EXPECT_EQ(apply(Op::conv2d, {x, w, std::nullopt}, attrs.pack()).values(), (Numbers{6, 8, 12, 14}));
  const Array g({1, 1, 2, 2}, {1, 1, 1, 1});
  attrs.sizes[0] = attrs.sizes[1] = 3;
  EXPECT_EQ(apply(Op::conv2d_input_grad, {g, w}, attrs.pack()).values(),
            (Numbers{1, 1, 0, 1, 2, 1, 0, 1, 1}));
  attrs.sizes[0] = attrs.sizes[1] = 2;
  EXPECT_EQ(apply(Op::conv2d_weight_grad, {g, x}, attrs.pack()).values(), (Numbers{12, 16, 24, 28}));
}

TEST(Contractions, PoolsInEveryFloatingDtype) {
  PoolAttrs attrs;
  attrs.kernel[0] = attrs.kernel[1] = attrs.stride[0] = attrs.stride[1] = 2;
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    const Array x({1, 1, 2, 4}, {1, 5, 2, 3, 4, 2, 8, 3}, dtype);
    const std::vector<Array> pooled = apply_all(Op::max_pool2d, {x}, attrs.pack());
    EXPECT_EQ(pooled[0].values(), (Numbers{5, 8}));
    EXPECT_EQ(pooled[1].values(), (Numbers{1, 6}));
    EXPECT_EQ(apply(Op::avg_pool2d, {x}, attrs.pack()).values(), (Numbers{3, 4}));
    PoolAttrs back = attrs;
    back.sizes[0] = 2;
    back.sizes[1] = 4;
    const Array g({1, 1, 1, 2}, {4, 8}, dtype);
    EXPECT_EQ(apply(Op::max_pool2d_grad, {g, pooled[1]}, back.pack()).values(),
              (Numbers{0, 4, 0, 0, 0, 0, 8, 0}));
    EXPECT_EQ(apply(Op::avg_pool2d_grad, {g}, back.pack()).values(), (Numbers{1, 1, 2, 2, 1, 1, 2, 2}));
  }
}

}  // namespace
}  // namespace etch::cpu
