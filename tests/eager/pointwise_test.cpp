// What pointwise functions promise: promotion, broadcasting, integers, special values, rounding, in-place
// forms.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eager/apply.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kDTypes[] = {DType::Bool, DType::U8,   DType::I32, DType::I64,
                             DType::F16,  DType::BF16, DType::F32, DType::F64};

// PyTorch's torch.promote_types, rows and columns in the order of kDTypes.
constexpr std::string_view kPromoted[8][8] = {
    {"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"},
    {"u8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"},
    {"i32", "i32", "i32", "i64", "f16", "bf16", "f32", "f64"},
    {"i64", "i64", "i64", "i64", "f16", "bf16", "f32", "f64"},
    {"f16", "f16", "f16", "f16", "f16", "f32", "f32", "f64"},
    {"bf16", "bf16", "bf16", "bf16", "f32", "bf16", "f32", "f64"},
    {"f32", "f32", "f32", "f32", "f32", "f32", "f32", "f64"},
    {"f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64"},
};

TEST(Promotion, OfTensorsIsPyTorchsTable) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      const Tensor a = ones({2}, {.dtype = kDTypes[i]}), b = ones({2}, {.dtype = kDTypes[j]});
      EXPECT_EQ(name((a * b).dtype()), kPromoted[i][j]) << i << " " << j;
      const Tensor a0 = ones({}, {.dtype = kDTypes[i]}), b0 = ones({}, {.dtype = kDTypes[j]});
      EXPECT_EQ(name((a0 * b0).dtype()), kPromoted[i][j]) << i << " " << j;
    }
  }
}

// torch.result_type(tensor of one dimension, 0-d tensor): only a higher kind counts.
constexpr std::string_view kWithZeroDims[8][8] = {
    {"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"},
    {"u8", "u8", "u8", "u8", "f16", "bf16", "f32", "f64"},
    {"i32", "i32", "i32", "i32", "f16", "bf16", "f32", "f64"},
    {"i64", "i64", "i64", "i64", "f16", "bf16", "f32", "f64"},
    {"f16", "f16", "f16", "f16", "f16", "f16", "f16", "f16"},
    {"bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "bf16"},
    {"f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32"},
    {"f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64"},
};

TEST(Promotion, ZeroDimensionalTensorsAreWeak) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      const Tensor a = ones({2}, {.dtype = kDTypes[i]}), b = ones({}, {.dtype = kDTypes[j]});
      EXPECT_EQ(name((a * b).dtype()), kWithZeroDims[i][j]) << i << " " << j;
      EXPECT_EQ(name((b * a).dtype()), kWithZeroDims[i][j]) << i << " " << j;
    }
  }
}

TEST(Promotion, ScalarsAreWeakest) {
  constexpr std::string_view with_bool[] = {"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
  constexpr std::string_view with_int[] = {"i64", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
  constexpr std::string_view with_float[] = {"f32", "f32", "f32", "f32", "f16", "bf16", "f32", "f64"};
  for (int i = 0; i < 8; ++i) {
    for (const Dims& sizes : {Dims{2}, Dims{}}) {
      const Tensor x = ones(sizes, {.dtype = kDTypes[i]});
      EXPECT_EQ(name((x * true).dtype()), with_bool[i]) << i;
      EXPECT_EQ(name((x * 2).dtype()), with_int[i]) << i;
      EXPECT_EQ(name((2.5 * x).dtype()), with_float[i]) << i;
    }
  }
}

TEST(Promotion, AScalarAndAZeroDimensionalTensorTogether) {
  const Tensor x = ones({2}, {.dtype = DType::I32}), zero_d = ones({}, {.dtype = DType::F16});
  EXPECT_EQ(where(ones({2}, {.dtype = DType::Bool}), zero_d, 1.5).dtype(), DType::F16);
  EXPECT_EQ(clamp(x, zero_d, 3.0).dtype(), DType::F16);
}

TEST(Promotion, TrueDivisionAndFunctionsOfIntegersAreF32) {
  EXPECT_VALUES(i64({7, -7}).tensor() / 2, f32({3.5, -3.5}));
  EXPECT_VALUES(of(DType::U8, {4}).tensor().sqrt(), f32({2}));
  EXPECT_VALUES(of(DType::Bool, {0, 1}).tensor().exp(), f32({1, std::exp(1.0)}), 1e-7);
  EXPECT_EQ(of(DType::F16, {4}).tensor().sqrt().dtype(), DType::F16);
}

TEST(Promotion, ComparisonsGiveBoolAndCompareInTheCommonDtype) {
  EXPECT_VALUES(i64({1, 2}).tensor() < f32({1.5, 1.5}).tensor(), of(DType::Bool, {1, 0}));
  EXPECT_VALUES(of(DType::U8, {255}).tensor() > -1,
                of(DType::Bool, {0}));  // -1 wraps to 255, as in PyTorch 1.13
}

TEST(Integers, OverflowWraps) {
  const int64_t big = std::numeric_limits<int64_t>::max();
  const Tensor x = from_vector(std::vector<int64_t>{big, -big - 1});
  EXPECT_EQ((x + 1).to_vector<int64_t>(), (std::vector<int64_t>{-big - 1, -big}));
  EXPECT_EQ((x * 2).to_vector<int64_t>(), (std::vector<int64_t>{-2, 0}));
  EXPECT_EQ((-x).to_vector<int64_t>(), (std::vector<int64_t>{-big, -big - 1}));
  EXPECT_EQ(x.abs().to_vector<int64_t>(), (std::vector<int64_t>{big, -big - 1}));
  EXPECT_VALUES(of(DType::I32, {2147483647}).tensor() + 1, of(DType::I32, {-2147483648.0}));
  EXPECT_VALUES(of(DType::U8, {0, 200}).tensor() - 1, of(DType::U8, {255, 199}));
  EXPECT_EQ(x.sum().item<int64_t>(), -1);
}

TEST(Integers, DivisionByZeroIsAnError) {
  const Tensor x = i64({1, 2}).tensor(), zero = i64({1, 0}).tensor();
  EXPECT_ERROR(floor_divide(x, zero), ValueError, "floor_divide");
  EXPECT_ERROR(remainder(x, zero), ValueError, "remainder");
  EXPECT_ERROR(floor_divide(x, 0), ValueError, "floor_divide");
  EXPECT_VALUES(x / zero, f32({1, kInf}));
  EXPECT_VALUES(floor_divide(f32({1}).tensor(), f32({0}).tensor()), f32({kInf}));
}

TEST(Integers, TheSmallestByMinusOneWraps) {
  const int64_t smallest = std::numeric_limits<int64_t>::min();
  const Tensor x = from_vector(std::vector<int64_t>{smallest});
  EXPECT_EQ(floor_divide(x, -1).item<int64_t>(), smallest);
  EXPECT_EQ(remainder(x, -1).item<int64_t>(), 0);
}

TEST(Integers, BoolsAreRefusedWhereTheyHaveNoMeaning) {
  const Tensor x = of(DType::Bool, {1}).tensor();
  EXPECT_ERROR(x - x, DTypeError, "sub: expected a numeric dtype, got bool");
  EXPECT_ERROR(-x, DTypeError, "neg");
  EXPECT_ERROR(x.relu(), DTypeError, "relu");
}

TEST(SpecialValues, NanWinsInExtremaAndPassesThroughClampAndRelu) {
  const Tensor x = f32({kNan, 1, -kInf}).tensor(), y = f32({1, kNan, 2}).tensor();
  EXPECT_VALUES(maximum(x, y), f32({kNan, kNan, 2}));
  EXPECT_VALUES(minimum(x, y), f32({kNan, kNan, -kInf}));
  EXPECT_VALUES(x.clamp(0, 5), f32({kNan, 1, 0}));
  EXPECT_VALUES(x.relu(), f32({kNan, 1, 0}));
  EXPECT_TRUE(std::isnan(x.amax().item<float>()));
  EXPECT_TRUE(std::isnan(x.amin().item<float>()));
  EXPECT_EQ(x.argmax().item<int64_t>(), 0);
}

TEST(SpecialValues, LowerBoundAboveUpperGivesTheUpper) {
  EXPECT_VALUES(f32({0, 5, 9}).tensor().clamp(6, 4), f32({4, 4, 4}));
}

TEST(Rounding, HalfsRoundAtEveryOp) {
  const Tensor x = of(DType::F16, {300}).tensor();
  EXPECT_VALUES(x * x, of(DType::F16, {kInf}));
  EXPECT_VALUES(x * x / x, of(DType::F16, {kInf}));
  EXPECT_VALUES(of(DType::F16, {2048}).tensor() + 1, of(DType::F16, {2048}));
  EXPECT_VALUES(of(DType::F16, {2050}).tensor() + 1, of(DType::F16, {2052}));  // ties to even
  EXPECT_VALUES(of(DType::BF16, {256}).tensor() + 1, of(DType::BF16, {256}));
  EXPECT_VALUES(of(DType::BF16, {1}).tensor() / 3, of(DType::BF16, {0.333984375}));
}

TEST(Rounding, ScalarsAreNotRoundedBeforehandInF64) {
  EXPECT_EQ((ones({1}, {.dtype = DType::F64}) * 0.1).item<double>(), 0.1);
  EXPECT_EQ((ones({1}) * 0.1).item<float>(), 0.1f);
}

TEST(Casts, TruncateAndTestForZero) {
  EXPECT_VALUES(f32({-1.9, 1.9}).tensor().to(DType::I32), of(DType::I32, {-1, 1}));
  EXPECT_VALUES(f32({0, -0.0, 0.5, kNan}).tensor().to(DType::Bool), of(DType::Bool, {0, 0, 1, 1}));
  EXPECT_VALUES(i64({256, -1}).tensor().to(DType::U8), of(DType::U8, {0, 255}));
  const Tensor x = f32({1}).tensor();
  EXPECT_TRUE(x.to(DType::F32).is_same(x));
}

TEST(Broadcasting, AlignsTheLastAxes) {
  EXPECT_VALUES(f32({2, 1}, {1, 2}).tensor() + f32({3}, {10, 20, 30}).tensor(),
                f32({2, 3}, {11, 21, 31, 12, 22, 32}));
  EXPECT_VALUES(f32({1}, {5}).tensor() * f32({0}, {}).tensor(), f32({0}, {}));
  EXPECT_ERROR(f32({2, 3}, {1, 2, 3, 4, 5, 6}).tensor() + f32({2}).tensor().expand({2}).view({1, 2}),
               ShapeError, "add: expected shapes that broadcast, got [2, 3] and [1, 2]");
  EXPECT_ERROR(maximum(zeros({4}), zeros({2, 3})), ShapeError,
               "maximum: expected shapes that broadcast, got [4] and [2, 3]");
}

TEST(Broadcasting, FunctionsOfScalarsAloneGiveZeroDimensions) {
  EXPECT_VALUES(add(2, 3), i64({}, {5}));
  EXPECT_VALUES(exp(0.0), f32({}, {1}));
}

TEST(Layout, OutputsFollowTheFirstFullSizeOperand) {
  const Tensor plain = ones({2, 3, 4, 5}), last = ones({2, 3, 4, 5}).channels_last();
  EXPECT_EQ((plain + last).strides(), plain.strides());
  EXPECT_EQ((last + plain).strides(), last.strides());
  EXPECT_EQ((ones({3, 1, 1}) * last).strides(), last.strides());
  EXPECT_EQ((ones({1}).expand({2, 3, 4, 5}) * last).strides(), last.strides());
  EXPECT_EQ(last.relu().strides(), last.strides());
  EXPECT_EQ(last.to(DType::F64).strides(), last.strides());
  const Tensor transposed = ones({3, 2}).t();
  EXPECT_EQ(transposed.exp().strides(), transposed.strides());
  EXPECT_EQ(transposed.slice(1, 0, 2).exp().strides(), (Dims{1, 2}));
}

// --- In place

TEST(InPlace, KeepsDtypeSizesAndStorage) {
  Tensor x = f32({1, 2}).tensor();
  const void* data = x.data<float>();
  x += 1;
  x *= of(DType::F64, {2, 3}).tensor();
  x -= f32({1}).tensor();
  x /= 2;
  EXPECT_VALUES(x, f32({1.5, 4}));
  EXPECT_EQ(x.data<float>(), data);
}

TEST(InPlace, BumpsTheVersion) {
  Tensor x = f32({1, 2}).tensor();
  const uint32_t version = x.storage().version();
  x.add_(1.0);
  EXPECT_EQ(x.storage().version(), version + 1);
  x.slice(0, 0, 1).fill_(3);
  EXPECT_EQ(x.storage().version(), version + 2);
}

TEST(InPlace, RefusesWhatDoesNotFit) {
  Tensor x = f32({1, 2}).tensor(), n = i64({1, 2}).tensor();
  EXPECT_ERROR(x.add_(ones({3})), ShapeError, "add_: expected an operand that broadcasts to [2], got [3]");
  EXPECT_ERROR(x.add_(ones({2, 2})), ShapeError,
               "add_: expected an operand that broadcasts to [2], got [2, 2]");
  EXPECT_ERROR(n.add_(0.5), DTypeError, "add_: expected a result that fits i64, got f32");
  EXPECT_ERROR(n.div_(2), DTypeError, "div_");
  EXPECT_ERROR(x.expand({3, 2}).add_(1.0), ShapeError, "add_: expected distinct elements");
  EXPECT_ERROR(x.copy_(ones({3})), ShapeError, "copy_: expected a source that broadcasts to [2], got [3]");
}

TEST(InPlace, OverlappingWindowsReadOldValues) {
  for (int64_t n : {10, 1000, 100000}) {
    std::vector<double> start(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) start[i] = static_cast<double>(i % 17);
    Tensor x = f32(start).tensor();
    x.slice(0, 1, n).add_(x.slice(0, 0, n - 1));
    std::vector<double> want = start;
    for (int64_t i = 1; i < n; ++i) want[i] = start[i] + start[i - 1];
    EXPECT_VALUES(x, f32(want));
    Tensor y = f32(start).tensor();
    y.slice(0, 0, n - 1).copy_(y.slice(0, 1, n));
    for (int64_t i = 0; i + 1 < n; ++i) want[i] = start[i + 1];
    want[n - 1] = start[n - 1];
    EXPECT_VALUES(y, f32(want));
  }
}

TEST(InPlace, ATransposeOfItselfReadsOldValues) {
  Tensor x = f32({2, 2}, {1, 2, 3, 4}).tensor();
  x.add_(x.t());
  EXPECT_VALUES(x, f32({2, 2}, {2, 5, 5, 8}));
}

TEST(InPlace, ThroughStridedViews) {
  Tensor x = zeros({3, 4});
  x.slice(1, 0, 4, 2).fill_(1);
  x[{1}].add_(5.0);
  x.t().slice(0, 3, 4).copy_(f32({1, 3}, {7, 8, 9}).tensor());
  EXPECT_VALUES(x, f32({3, 4}, {1, 0, 1, 7, 6, 5, 6, 8, 1, 0, 1, 9}));
}

TEST(InPlace, RandomFillsKeepTheDtype) {
  manual_seed(3);
  Tensor x = zeros({1000}, {.dtype = DType::F64});
  x.uniform_(2, 3);
  EXPECT_GE(x.min().item<double>(), 2);
  EXPECT_LT(x.max().item<double>(), 3);
  x.normal_(5, 0.1);
  EXPECT_NEAR(x.mean().item<double>(), 5, 0.02);
}

TEST(Undefined, OperandsAreNamed) {
  EXPECT_ERROR(add(Tensor(), 1), ValueError, "add: expected defined tensors");
}

}  // namespace
}  // namespace etch::testing
