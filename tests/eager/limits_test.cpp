// Arguments at the ends of their ranges: sizes, ranges and steps that overflow, and tensors that are not
// there.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eager/tensor.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();

TEST(Limits, BroadcastsOfMoreElementsThanMemoryHasAreRefused) {
  const Tensor column = zeros({1, 1}).expand({int64_t{1} << 31, 1});
  const Tensor row = zeros({1, 1}).expand({1, int64_t{1} << 31});
  EXPECT_ERROR(column + row, ShapeError, "expected fewer than 2^56 elements, got [2147483648, 2147483648]");
  EXPECT_ERROR(zeros({1}).expand({int64_t{1} << 40, int64_t{1} << 40}), ShapeError, "expand: expected fewer");
}

TEST(Limits, ExpandTakesNoNegativeSizeForANewAxis) {
  EXPECT_ERROR(zeros({3}).expand({-1, 3}), ShapeError, "expand: expected sizes of 0 or more, got [-1, 3]");
  EXPECT_EQ(zeros({3}).expand({2, -1}).sizes(), Dims({2, 3}));
}

TEST(Limits, ArangeCountsWithoutOverflow) {
  EXPECT_ERROR(arange(kLeast, kMost), ValueError, "arange: expected a range of fewer than 2^53 elements");
  EXPECT_ERROR(arange(0.0, INFINITY), ValueError, "arange: expected a range of fewer than 2^53 elements");
  EXPECT_ERROR(arange(0.0, NAN), ValueError, "arange: expected a range of fewer than 2^53 elements");
  EXPECT_EQ(arange(0.0, -INFINITY).numel(), 0);
  EXPECT_EQ(arange(kLeast, kMost, kMost).to_vector<int64_t>(), (std::vector<int64_t>{kLeast, -1, kMost - 1}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<int64_t>(), (std::vector<int64_t>{5, 3, 1}));
  EXPECT_EQ(arange(5, 0).numel(), 0);
}

TEST(Limits, RandintMeasuresItsRangeWithoutOverflow) {
  EXPECT_ERROR(randint(kLeast, kMost, {2}), ValueError, "randint: expected a range of at most 2^24");
}

TEST(Limits, ASliceMayStepFurtherThanTheAxis) {
  const Tensor x = tensor({1, 2, 3});
  EXPECT_EQ(x.slice(0, 1, 3, kMost).to_vector<float>(), (std::vector<float>{2}));
  EXPECT_EQ(x.slice(0, 3, 3, kMost).numel(), 0);
}

TEST(Limits, UndefinedTensorsSayWhatTheyAre) {
  const Tensor x = ones({2}).requires_grad_();
  EXPECT_ERROR(x.grad().sum(), ValueError, "got an undefined one");
  EXPECT_ERROR(x.grad().item<float>(), ValueError, "a .grad that no backward() has reached");
  EXPECT_ERROR(Tensor().backward(), ValueError, "got an undefined one");
  EXPECT_ERROR(Tensor().detach(), ValueError, "got an undefined one");
  EXPECT_FALSE(Tensor().defined());
}

}  // namespace
}  // namespace etch
