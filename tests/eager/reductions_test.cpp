// Reductions: axes, dtypes, empty tensors, the order they promise; softmax.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eager/tensor.h"
#include "runtime/parallel.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Reductions, AxesCountFromTheEndAndMayStay) {
  const Tensor x = f32({2, 3}, {1, 2, 3, 4, 5, 6}).tensor();
  EXPECT_VALUES(x.sum(), f32({}, {21}));
  EXPECT_VALUES(x.sum({-1}), f32({6, 15}));
  EXPECT_VALUES(x.sum({0}, true), f32({1, 3}, {5, 7, 9}));
  EXPECT_VALUES(x.sum({0, 1}, true), f32({1, 1}, {21}));
  EXPECT_VALUES(x.mean({1}), f32({2, 5}));
  EXPECT_VALUES(x.amax({0}), f32({4, 5, 6}));
  EXPECT_VALUES(x.prod({1}), f32({6, 120}));
  EXPECT_ERROR(x.sum({2}), IndexError, "sum: expected an axis from -2 to 1 for 2 dimensions, got 2");
  EXPECT_ERROR(x.sum({0, -2}), ValueError, "sum: expected distinct axes");
}

TEST(Reductions, OfZeroDimensionalTensorsAreTheElement) {
  const Tensor x = scalar_tensor(3.5);
  EXPECT_VALUES(x.sum(), f32({}, {3.5}));
  EXPECT_VALUES(x.sum({0}), f32({}, {3.5}));
  EXPECT_VALUES(x.amax({-1}), f32({}, {3.5}));
  EXPECT_VALUES(x.argmax(), i64({}, {0}));
  EXPECT_VALUES(x.mean(), f32({}, {3.5}));
  EXPECT_VALUES(x.softmax(0), f32({}, {1}));
}

TEST(Reductions, OfNothing) {
  const Tensor x = zeros({2, 0});
  EXPECT_VALUES(x.sum(), f32({}, {0}));
  EXPECT_VALUES(x.sum({0}), f32({0}, {}));
  EXPECT_VALUES(x.prod({1}), f32({1, 1}));
  EXPECT_VALUES(x.mean(), f32({}, {kNan}));
  EXPECT_VALUES(x.any({1}), of(DType::Bool, {0, 0}));
  EXPECT_VALUES(x.all({1}), of(DType::Bool, {1, 1}));
  EXPECT_VALUES(x.amax({0}), f32({0}, {}));
  EXPECT_VALUES(x.softmax(1), f32({2, 0}, {}));
  EXPECT_ERROR(x.amax(), ShapeError, "amax: expected at least one element");
  EXPECT_ERROR(x.argmin(1), ShapeError, "argmin: expected at least one element");
}

TEST(Reductions, IntegersSumInI64) {
  EXPECT_VALUES(of(DType::U8, {200, 100}).tensor().sum(), i64({}, {300}));
  EXPECT_VALUES(of(DType::I32, {2147483647, 1}).tensor().sum(), i64({}, {2147483648.0}));
  EXPECT_VALUES(of(DType::Bool, {1, 1, 0}).tensor().sum(), i64({}, {2}));
  EXPECT_VALUES(of(DType::I32, {5, 9}).tensor().amax(), of(DType::I32, {}, {9}));
  EXPECT_VALUES(i64({1, 2}).tensor().mean(), f32({}, {1.5}));
}

TEST(Reductions, HalfsAccumulateInF32) {
  EXPECT_VALUES(of(DType::F16, std::vector<double>(5000, 1)).tensor().sum(), of(DType::F16, {}, {5000}));
  EXPECT_VALUES(of(DType::BF16, std::vector<double>(512, 1)).tensor().mean(), of(DType::BF16, {}, {1}));
}

TEST(Reductions, AreAccurateOverManyElements) {
  const Tensor x = full({1000000}, 0.1);
  EXPECT_NEAR(x.sum().item<double>() / (1e6 * static_cast<double>(0.1f)), 1, 5e-6);
  EXPECT_NEAR((x + 1000).var().item<double>(), 0, 1e-5);
}

TEST(Reductions, VarIsTwoPass) {
  EXPECT_VALUES(f32({1e4 + 1, 1e4 + 2, 1e4 + 3}).tensor().var(), f32({}, {1}), 1e-6);
  EXPECT_VALUES(f32({1, 2, 3, 4}).tensor().var({}, 0), f32({}, {1.25}), 1e-6);
  EXPECT_VALUES(f32({2, 2}, {1, 3, 5, 5}).tensor().var({1}, 1, true), f32({2, 1}, {2, 0}), 1e-6);
  EXPECT_VALUES(f32({1}).tensor().var(), f32({}, {kNan}));
}

TEST(Reductions, GiveTheSameBitsForEveryLayoutOfRows) {
  const Tensor x = spread({64, 300}, -1, 1, 2, DType::F32).tensor();
  const Tensor padded = concat({x, zeros({64, 5})}, 1).slice(1, 0, 300);
  EXPECT_TRUE(same_bits(x.sum({1}), padded.sum({1})));
  EXPECT_TRUE(same_bits(x.sum({0}), padded.sum({0})));
}

TEST(Reductions, ArgumentsAreTheFirstOfTies) {
  EXPECT_VALUES(f32({2, 3}, {1, 4, 4, 0, 0, 0}).tensor().argmax(1), i64({1, 0}));
  EXPECT_VALUES(f32({2, 3}, {1, 4, 4, 0, 0, 0}).tensor().argmin(), i64({}, {3}));
  EXPECT_VALUES(f32({2, 2}, {1, 2, 3, 0}).tensor().t().argmax(0, true), i64({1, 2}, {1, 0}));
  EXPECT_VALUES(f32({1, kNan, 5}).tensor().argmin(), i64({}, {1}));
}

TEST(Reductions, AnyAndAllTakeAnyDtype) {
  EXPECT_VALUES(f32({0, kNan}).tensor().any(), of(DType::Bool, {}, {1}));
  EXPECT_VALUES(i64({1, 2, 0}).tensor().all(), of(DType::Bool, {}, {0}));
}

TEST(Softmax, IsStableAndSumsToOne) {
  EXPECT_VALUES(f32({1000, 1000}).tensor().softmax(0), f32({0.5, 0.5}));
  EXPECT_VALUES(f32({-kInf, 0}).tensor().softmax(0), f32({0, 1}));
  EXPECT_VALUES(f32({1000, 0}).tensor().log_softmax(-1), f32({0, -1000}));
  const Tensor y = spread({7, 11}, -5, 5, 2, DType::F32).tensor().softmax(0);
  EXPECT_VALUES(y.sum({0}), f32(std::vector<double>(11, 1)), 1e-6);
  EXPECT_ERROR(y.softmax(2), IndexError, "softmax");
}

}  // namespace
}  // namespace etch::testing
