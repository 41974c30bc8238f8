// Promotion, names, and conversions of half and bfloat16.
#include "runtime/dtype.h"

#include <cmath>
#include <limits>

#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DType, PromotionTable) {
  using enum DType;
  // Rows and columns in the order of the enumeration.
  constexpr DType kTable[kNumDTypes][kNumDTypes] = {
      {Bool, U8, I32, I64, F16, BF16, F32, F64}, {U8, U8, I32, I64, F16, BF16, F32, F64},
      {I32, I32, I32, I64, F16, BF16, F32, F64}, {I64, I64, I64, I64, F16, BF16, F32, F64},
      {F16, F16, F16, F16, F16, F32, F32, F64},  {BF16, BF16, BF16, BF16, F32, BF16, F32, F64},
      {F32, F32, F32, F32, F32, F32, F32, F64},  {F64, F64, F64, F64, F64, F64, F64, F64}};
  for (int a = 0; a < kNumDTypes; ++a)
    for (int b = 0; b < kNumDTypes; ++b)
      EXPECT_EQ(promote(static_cast<DType>(a), static_cast<DType>(b)), kTable[a][b]) << a << " " << b;
}

TEST(DType, ScalarsAreWeak) {
  using Kind = Scalar::Kind;
  EXPECT_EQ(promote(DType::U8, Kind::Int), DType::U8);
  EXPECT_EQ(promote(DType::Bool, Kind::Int), DType::I64);
  EXPECT_EQ(promote(DType::Bool, Kind::Bool), DType::Bool);
  EXPECT_EQ(promote(DType::I64, Kind::Float), DType::F32);
  EXPECT_EQ(promote(DType::BF16, Kind::Float), DType::BF16);
  EXPECT_EQ(promote(DType::F64, Kind::Int), DType::F64);
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kNumDTypes; ++i)
    EXPECT_EQ(parse_dtype(name(static_cast<DType>(i))), static_cast<DType>(i));
  EXPECT_EQ(name(DType::BF16), "bf16");
  EXPECT_ERROR(parse_dtype("f8"), DTypeError, "got \"f8\"");
}

TEST(DType, ScalarKeepsItsKind) {
  EXPECT_EQ(Scalar(true).default_dtype(), DType::Bool);
  EXPECT_EQ(Scalar(3).default_dtype(), DType::I64);
  EXPECT_EQ(Scalar(3.7f).default_dtype(), DType::F32);
  EXPECT_EQ(Scalar(-3.7).to_int(), -3);
  EXPECT_EQ(Scalar(9007199254740993).to_int(), 9007199254740993);
}

TEST(Half, EveryPatternRoundTrips) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = to_float(Half{static_cast<uint16_t>(bits)});
    if (std::isnan(value)) {
      EXPECT_EQ(to_half(value).bits, bits | 0x200) << bits;  // quiet
    } else {
      ASSERT_EQ(to_half(value).bits, bits);
    }
  }
}

TEST(Half, LiteralValues) {
  EXPECT_EQ(to_float(Half{0x3C00}), 1.0f);
  EXPECT_EQ(to_float(Half{0xC000}), -2.0f);
  EXPECT_EQ(to_float(Half{0x7BFF}), 65504.0f);
  EXPECT_EQ(to_float(Half{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(Half{0x7C00}), kInfinity);
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(to_half(1.0f + 0x1p-11f).bits, 0x3C00);             // tie to even
  EXPECT_EQ(to_half(1.0f + 3 * 0x1p-11f).bits, 0x3C02);         // tie to even, up
  EXPECT_EQ(to_half(1.0f + 0x1p-11f + 0x1p-20f).bits, 0x3C01);  // above the tie
  EXPECT_EQ(to_half(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_half(-1e30f).bits, 0xFC00);
  EXPECT_EQ(to_half(0x1p-25f).bits, 0x0000);  // tie of 0 and the least subnormal
  EXPECT_EQ(to_half(0x1.8p-25f).bits, 0x0001);
  EXPECT_EQ(to_half(3 * 0x1p-25f).bits, 0x0002);
  EXPECT_EQ(to_half(0x1.FFEp-15f).bits, 0x0400);  // rounds up to the least normal
  EXPECT_EQ(to_half(-0.0f).bits, 0x8000);
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(-kInfinity).bits, 0xFF80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::nanf("")))));
  EXPECT_EQ(to_float(BFloat16{0xC040}), -3.0f);
}

}  // namespace
}  // namespace etch
