// Generators: values, layouts, and Philox by element.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/parallel.h"
#include "tests/eager/cpu/values.h"
#include "tracer/scalar_math.h"

namespace etch::cpu {
namespace {

TEST(Generators, ArangeCountsInEveryDtype) {
  EXPECT_EQ(apply(Op::arange, {2, 3}, pack_sizes({4}), DType::I64).values(), (Numbers{2, 5, 8, 11}));
  EXPECT_EQ(apply(Op::arange, {0.5, 0.25}, pack_sizes({3}), DType::F32).values(), (Numbers{0.5, 0.75, 1}));
  EXPECT_EQ(apply(Op::arange, {0, 0.5}, pack_sizes({3}), DType::F16).values(), (Numbers{0, 0.5, 1}));
  EXPECT_EQ(apply(Op::arange, {5, -1}, pack_sizes({2, 2}), DType::I32).values(), (Numbers{5, 4, 3, 2}));
}

TEST(Generators, UniformIsPhiloxByElement) {
  const Array out = apply(Op::uniform, {77, 5}, pack_sizes({1000}), DType::F32);
  const Numbers found = out.values();
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(found[i], scalar::uniform01(scalar::random_u32(77, 5, i)));
}

TEST(Generators, NormalHasItsMoments) {
  const Numbers found = apply(Op::normal, {1, 0}, pack_sizes({20000}), DType::F64).values();
  double mean = 0, square = 0;
  for (const double x : found) mean += x / 20000, square += x * x / 20000;
  EXPECT_NEAR(mean, 0, 0.03);
  EXPECT_NEAR(square, 1, 0.03);
}

TEST(Generators, BernoulliDrawsOnesAtItsRate) {
  const Numbers found = apply(Op::bernoulli, {1, 0, 0.25}, pack_sizes({20000}), DType::F32).values();
  double ones = 0;
  for (const double x : found) {
    ASSERT_TRUE(x == 0 || x == 1);
    ones += x;
  }
  EXPECT_NEAR(ones / 20000, 0.25, 0.02);
}

TEST(Generators, DropoutZeroesAndScales) {
  const Array x = random_array(contiguous({999}), DType::F32, 1);
  const Numbers in = x.values(), out = apply(Op::dropout, {x, 9, 4, 0.5}).values();
  for (int64_t i = 0; i < 999; ++i)
    ASSERT_EQ(out[i], scalar::uniform01(scalar::random_u32(9, 4, i)) < 0.5f ? 0 : in[i] * 2);
}

TEST(Generators, MasksDependOnTheIndexNotOnTheLayout) {
  const Dims sizes{2, 5, 7, 9};
  const Array plain = random_array(contiguous(sizes), DType::BF16, 1);
  Array last({sizes, channels_last_strides(sizes)}, DType::BF16);
  apply_into(last, Op::copy, {plain});
  const Array dropped = apply(Op::dropout, {last, 3, 1, 0.3});
  EXPECT_EQ(dropped.geometry.strides, last.geometry.strides);
  EXPECT_EQ(dropped.bits(), apply(Op::dropout, {plain, 3, 1, 0.3}).bits());
}

TEST(Generators, ThreadsDoNotChangeBits) {
  const int threads = num_threads();
  set_num_threads(1);
  const std::vector<char> one = apply(Op::normal, {1, 2}, pack_sizes({100003}), DType::F32).bits();
  set_num_threads(2);
  EXPECT_EQ(apply(Op::normal, {1, 2}, pack_sizes({100003}), DType::F32).bits(), one);
  set_num_threads(threads);
}

}  // namespace
}  // namespace etch::cpu
