// Making tensors, reading them back, random numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eager/tensor.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

TEST(Factories, Constants) {
  EXPECT_VALUES(zeros({2}), f32({0, 0}));
  EXPECT_VALUES(ones({1, 2}, {.dtype = DType::I32}), of(DType::I32, {1, 2}, {1, 1}));
  EXPECT_VALUES(full({2}, 7), i64({7, 7}));
  EXPECT_VALUES(full({2}, true), of(DType::Bool, {1, 1}));
  EXPECT_VALUES(full({}, 2.5), f32({}, {2.5}));
  EXPECT_VALUES(full_like(zeros({2, 3}).t(), 4), f32({3, 2}, std::vector<double>(6, 4)));
  EXPECT_VALUES(tensor({{1, 2}, {3, 4}}), f32({2, 2}, {1, 2, 3, 4}));
  EXPECT_TRUE(zeros({2}, {.requires_grad = true}).requires_grad());
  EXPECT_EQ(empty({3, 0}).numel(), 0);
  EXPECT_EQ(zeros_like(zeros({1, 2, 2, 2}).channels_last()).strides(), (Dims{8, 1, 4, 2}));
}

TEST(Factories, Ranges) {
  EXPECT_VALUES(arange(4), i64({0, 1, 2, 3}));
  EXPECT_VALUES(arange(5, 1, -2), i64({5, 3}));
  EXPECT_VALUES(arange(0, 1, 0.375), f32({0, 0.375, 0.75}));
  EXPECT_VALUES(arange(3, 3), i64({0}, {}));
  EXPECT_VALUES(arange(3, 0), i64({0}, {}));
  EXPECT_VALUES(arange(0, 3, 1, {.dtype = DType::F64}), of(DType::F64, {0, 1, 2}));
  EXPECT_ERROR(arange(0, 3, 0), ValueError, "arange: expected a step other than 0");
}

TEST(Factories, BadSizesAndCounts) {
  EXPECT_ERROR(zeros({2, -1}), ShapeError, "full: expected sizes of 0 or more, got [2, -1]");
  EXPECT_ERROR(empty({int64_t{1} << 40, int64_t{1} << 40}), ShapeError,
               "empty: expected fewer than 2^56 elements");
  EXPECT_ERROR(from_vector(std::vector<float>{1, 2, 3}, {2, 2}), ShapeError,
               "from_vector: expected 4 values for [2, 2], got 3");
  EXPECT_ERROR(tensor({{1, 2}, {3}}), ShapeError, "tensor: expected rows of 2 values, got one of 1");
  EXPECT_ERROR(zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0), ShapeError, "at most 8 dimensions");
}

TEST(HostAccess, ReadsInLogicalOrderAndConverts) {
  const Tensor x = f32({2, 2}, {1, 2, 3, 4}).tensor();
  EXPECT_EQ(x.t().to_vector<float>(), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(scalar_tensor(3).item<int64_t>(), 3);
  EXPECT_EQ(x.select(0, 1).data<float>()[0], 3);
  EXPECT_ERROR(x.item<float>(), ShapeError, "item: expected one element, got [2, 2]");
  EXPECT_ERROR(x.data<double>(), DTypeError, "data: expected f32, got f64");
  EXPECT_EQ(of(DType::BF16, {1.5}).tensor().item<float>(), 1.5f);
}

TEST(HostAccess, WritesOneElement) {
  Tensor x = zeros({2, 3});
  x.t().set({2, -1}, 5);
  EXPECT_VALUES(x, f32({2, 3}, {0, 0, 0, 0, 0, 5}));
  x.mutable_data<float>()[0] = 9;
  EXPECT_EQ(x.select(0, 0).select(0, 0).item<float>(), 9);
  Tensor half = zeros({1}, {.dtype = DType::F16});
  half.set({0}, 0.1);
  EXPECT_EQ(half.item<float>(), 0.0999755859375f);
  EXPECT_ERROR(x.set({2, 0}, 1), IndexError, "set: expected a position in [-2, 2) of axis 0, got 2");
  EXPECT_ERROR(x.set({0}, 1), IndexError, "set: expected 2 positions, got 1");
}

TEST(FromBlob, WrapsWithoutACopyAndReleases) {
  std::vector<float> memory{1, 2, 3, 4};
  int released = 0;
  {
    Tensor x = from_blob(memory.data(), {2, 2}, {.release = [&] { ++released; }});
    EXPECT_EQ(x.data<float>(), memory.data());
    memory[3] = 9;
    EXPECT_VALUES(x, f32({2, 2}, {1, 2, 3, 9}));
    x.add_(1.0);
    const Tensor row = x[1];
    x = {};
    EXPECT_EQ(released, 0);
    EXPECT_VALUES(row, f32({4, 10}));
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(memory[0], 2);
}

TEST(FromBlob, AsALeafKeepsItsGradientApart) {
  std::vector<float> memory{1, 2};
  Tensor x = from_blob(memory.data(), {2});
  x.requires_grad_();
  (x * x).sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 4}));
  EXPECT_EQ(memory, (std::vector<float>{1, 2}));
}

TEST(Random, SeedsReproduceAndOffsetsAdvance) {
  manual_seed(11);
  const Tensor a = rand({100}), b = rand({100});
  manual_seed(11);
  EXPECT_TRUE(same_bits(rand({100}), a));
  EXPECT_TRUE(same_bits(rand({100}), b));
  EXPECT_FALSE(same_bits(a, b));
  Generator one(5), two(5);
  EXPECT_TRUE(same_bits(randn({64}, {}, &one), randn({64}, {}, &two)));
  EXPECT_TRUE(same_bits(randint(0, 9, {64}, &one), randint(0, 9, {64}, &two)));
}

TEST(Random, AnElementDoesNotDependOnTheSize) {
  Generator one(5), two(5);
  EXPECT_TRUE(same_bits(rand({1000}, {}, &one).slice(0, 0, 10), rand({10}, {}, &two)));
}

TEST(Random, DistributionsArePlausible) {
  manual_seed(1);
  const Tensor u = rand({200000});
  EXPECT_NEAR(u.mean().item<double>(), 0.5, 0.005);
  EXPECT_NEAR(u.var().item<double>(), 1 / 12.0, 0.002);
  EXPECT_GE(u.min().item<double>(), 0);
  EXPECT_LT(u.max().item<double>(), 1);
  const Tensor n = randn({200000}, {.dtype = DType::F64});
  EXPECT_NEAR(n.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(n.var().item<double>(), 1, 0.02);
  EXPECT_NEAR(n.pow(4).mean().item<double>(), 3, 0.1);
  // Neighbours are independent.
  EXPECT_NEAR((n.slice(0, 0, 199999) * n.slice(0, 1, 200000)).mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(bernoulli({100000}, 0.2).mean().item<double>(), 0.2, 0.01);
  const Tensor integers = randint(-2, 3, {50000});
  EXPECT_EQ(integers.dtype(), DType::I64);
  for (int value = -2; value < 3; ++value)
    EXPECT_NEAR((integers == value).to(DType::F32).mean().item<double>(), 0.2, 0.02);
  EXPECT_EQ(integers.amin().item<int64_t>(), -2);
  EXPECT_EQ(integers.amax().item<int64_t>(), 2);
}

TEST(Random, RefusesBadArguments) {
  EXPECT_ERROR(rand({2}, {.dtype = DType::I64}), DTypeError, "uniform: expected a floating dtype, got i64");
  EXPECT_ERROR(bernoulli({2}, -0.5), ValueError, "bernoulli");
  EXPECT_ERROR(randint(3, 3, {2}), ValueError, "randint: expected low < high, got 3 and 3");
}

TEST(Factories, SizesAsPlainNumbers) {
  EXPECT_EQ(to_string(zeros(5).sizes()), "[5]");
  EXPECT_EQ(to_string(ones(3, 4).sizes()), "[3, 4]");
  EXPECT_EQ(to_string(empty(int64_t{2}, 0).sizes()), "[2, 0]");
  EXPECT_EQ(to_string(randn(2, 3).sizes()), "[2, 3]");
  const Tensor x = arange(6);
  EXPECT_EQ(to_string(x.view(2, 3).view(-1).sizes()), "[6]");
  EXPECT_EQ(to_string(x.reshape(3, -1).permute(1, 0).sizes()), "[2, 3]");
  EXPECT_EQ(to_string(ones(1, 3).expand(2, 3).sizes()), "[2, 3]");
  EXPECT_EQ(x.dim(), 1);
}

TEST(Factories, CatIsConcat) { EXPECT_VALUES(cat({f32({1}).tensor(), f32({2}).tensor()}), f32({1, 2})); }

}  // namespace
}  // namespace etch::testing
