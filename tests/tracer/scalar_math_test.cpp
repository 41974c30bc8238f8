// The scalar functions: values, special cases, error bounds against libm in double, and same bits in vector
// loops.
#include "tracer/scalar_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

namespace scalar = etch::scalar;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kMin32 = std::numeric_limits<int32_t>::min();
constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();

uint32_t bits(float x) { return scalar::bits_of(x); }

/// Distance of `got` from `expected` in units of the last place of a float there; infinite if they differ in
/// kind.
double ulps(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) == std::isnan(got) ? 0 : HUGE_VAL;
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : HUGE_VAL;
  if ((rounded == 0 || got == 0) && std::signbit(rounded) != std::signbit(got)) return HUGE_VAL;
  int exponent = 0;
  std::frexp(std::max(std::fabs(expected), 0x1p-126), &exponent);
  return std::fabs(got - expected) / std::ldexp(1.0, exponent - 24);
}

struct Function {
  const char* name;
  float (*single)(float);
  void (*loop)(const float*, float*, int);
  double (*exact)(double);
  double bound;  // ulp
};

#define FUNCTION(name, formula, bound)                \
  Function {                                          \
#name, [](float x) { return scalar::name(x); },     \
        [](const float* x, float* y, int n) {           \
          _Pragma("omp simd") for (int i = 0; i < n; ++i) y[i] = scalar::name(x[i]); \
        },                                              \
        [](double x) -> double { return formula; }, bound \
  }

const Function kFunctions[] = {
    FUNCTION(exp, std::exp(x), 1.0),
    FUNCTION(exp2, std::exp2(x), 1.0),
    FUNCTION(expm1, std::expm1(x), 1.6),
    FUNCTION(log, std::log(x), 0.8),
    FUNCTION(log2, std::log2(x), 1.6),
    FUNCTION(log10, std::log10(x), 1.7),
    FUNCTION(log1p, std::log1p(x), 1.5),
    FUNCTION(tanh, std::tanh(x), 1.5),
    FUNCTION(sigmoid, x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)), 1.5),
    FUNCTION(erf, std::erf(x), 1.6),
    FUNCTION(erfc, std::erfc(x), 4.0),
    FUNCTION(sin, std::sin(x), 1.6),
    FUNCTION(cos, std::cos(x), 1.6),
    FUNCTION(tan, std::tan(x), 4.0),
    FUNCTION(atan, std::atan(x), 1.4),
    FUNCTION(sqrt, std::sqrt(x), 0.5),
    FUNCTION(rsqrt, 1 / std::sqrt(x), 1.5),
    FUNCTION(floor, std::floor(x), 0),
    FUNCTION(ceil, std::ceil(x), 0),
    FUNCTION(trunc, std::trunc(x), 0),
    FUNCTION(round, std::nearbyint(x), 0),
    FUNCTION(abs, std::fabs(x), 0),
};

class ScalarFunction : public testing::TestWithParam<Function> {};

TEST_P(ScalarFunction, StaysWithinItsErrorBound) {
  constexpr uint64_t kStep = 997;
  std::vector<float> x(4096), y(4096);
  double worst = 0;
  float where = 0;
  for (uint64_t b = 0; b < (uint64_t{1} << 32);) {
    int n = 0;
    for (; n < 4096 && b < (uint64_t{1} << 32); ++n, b += kStep)
      x[n] = scalar::float_of(static_cast<uint32_t>(b));
    GetParam().loop(x.data(), y.data(), n);
    for (int i = 0; i < n; ++i) {
      const double error = ulps(y[i], GetParam().exact(x[i]));
      if (error > worst) worst = error, where = x[i];
    }
  }
  EXPECT_LE(worst, GetParam().bound) << "at " << where;
}

TEST_P(ScalarFunction, MatchesAtEdges) {
  for (float x : {0.0f, 1e-45f, 1e-40f, 0x1p-126f, 1e-8f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 20.0f, 88.7f, 88.8f,
                  100.0f, 103.9f, 104.1f, 1e10f, 3.4e38f, kInf}) {
    for (float s : {x, -x}) {
      EXPECT_LE(ulps(GetParam().single(s), GetParam().exact(s)), GetParam().bound)
          << GetParam().name << " of " << s;
    }
  }
  EXPECT_TRUE(std::isnan(GetParam().single(kNaN)));
  EXPECT_TRUE(std::isnan(GetParam().single(-kNaN)));
}

TEST_P(ScalarFunction, VectorLoopsGiveTheSameBits) {
  std::vector<float> x, y(501000);
  for (uint64_t b = 0; b < (uint64_t{1} << 32); b += 8627)
    x.push_back(scalar::float_of(static_cast<uint32_t>(b)));
  GetParam().loop(x.data(), y.data(), static_cast<int>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const float single = GetParam().single(x[i]);
    ASSERT_TRUE(bits(single) == bits(y[i]) || (std::isnan(single) && std::isnan(y[i]))) << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, ScalarFunction, testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ScalarMath, KnownValues) {
  EXPECT_EQ(scalar::exp(0.0f), 1.0f);
  EXPECT_EQ(scalar::exp(1.0f), 2.7182817f);
  EXPECT_EQ(scalar::exp(-kInf), 0.0f);
  EXPECT_EQ(scalar::exp(-100.0f), 3.783506e-44f);
  EXPECT_EQ(scalar::log(1.0f), 0.0f);
  EXPECT_EQ(scalar::log(10.0f), 2.3025851f);
  EXPECT_EQ(scalar::log2(1024.0f), 10.0f);
  EXPECT_EQ(scalar::tanh(0.5f), 0.46211717f);
  EXPECT_EQ(scalar::tanh(9.5f), 1.0f);
  EXPECT_EQ(scalar::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(scalar::sigmoid(-100.0f), 3.783506e-44f);
  EXPECT_EQ(scalar::erf(1.0f), 0.8427008f);
  EXPECT_EQ(scalar::erfc(0.0f), 1.0f);
  EXPECT_EQ(scalar::sin(1e10f), -0.48750603f);
  EXPECT_EQ(scalar::cos(0.0f), 1.0f);
  EXPECT_EQ(scalar::rsqrt(4.0f), 0.5f);
}

TEST(ScalarMath, ZeroKeepsItsSign) {
  for (auto f : {+[](float x) { return scalar::tanh(x); }, +[](float x) { return scalar::erf(x); },
                 +[](float x) { return scalar::sin(x); }, +[](float x) { return scalar::tan(x); },
                 +[](float x) { return scalar::atan(x); }, +[](float x) { return scalar::expm1(x); },
                 +[](float x) { return scalar::log1p(x); }, +[](float x) { return scalar::sqrt(x); },
                 +[](float x) { return scalar::round(x); }}) {
    EXPECT_EQ(bits(f(-0.0f)), 0x80000000u);
    EXPECT_EQ(bits(f(0.0f)), 0u);
  }
}

TEST(ScalarMath, OddFunctionsAreOdd) {
  for (float x = 0.001f; x < 30; x *= 1.01f) {
    EXPECT_EQ(scalar::tanh(-x), -scalar::tanh(x));
    EXPECT_EQ(scalar::erf(-x), -scalar::erf(x));
    EXPECT_EQ(scalar::sin(-x), -scalar::sin(x));
    EXPECT_EQ(scalar::atan(-x), -scalar::atan(x));
  }
}

TEST(ScalarMath, MinAndMaxPropagateNaN) {
  EXPECT_EQ(scalar::max(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(scalar::min(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(scalar::max(-kInf, -1.0f), -1.0f);
  for (float x : {0.0f, -1.0f, kInf, -kInf, kNaN}) {
    EXPECT_TRUE(std::isnan(scalar::max(x, kNaN)) && std::isnan(scalar::max(kNaN, x)));
    EXPECT_TRUE(std::isnan(scalar::min(x, kNaN)) && std::isnan(scalar::min(kNaN, x)));
    EXPECT_TRUE(std::isnan(scalar::min(double(x), double(kNaN))) &&
                std::isnan(scalar::max(double(kNaN), double(x))));
  }
  EXPECT_EQ(scalar::max(kMin64, int64_t{-3}), -3);
  EXPECT_EQ(scalar::min(uint8_t{200}, uint8_t{100}), 100);
}

TEST(ScalarMath, SignAndTests) {
  EXPECT_EQ(scalar::sign(-2.5f), -1.0f);
  EXPECT_EQ(scalar::sign(kInf), 1.0f);
  EXPECT_EQ(scalar::sign(-0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(scalar::sign(kNaN)) && std::isnan(scalar::sign(double(kNaN))));
  EXPECT_EQ(scalar::sign(-7), -1);
  EXPECT_EQ(scalar::sign(uint8_t{7}), 1);
  EXPECT_TRUE(scalar::isinf(-kInf) && !scalar::isinf(kNaN) && !scalar::isinf(3.4e38f) && !scalar::isinf(1));
  EXPECT_TRUE(scalar::isfinite(3.4e38f) && !scalar::isfinite(kInf) && !scalar::isfinite(kNaN) &&
              scalar::isfinite(1));
  EXPECT_TRUE(scalar::isnan(kNaN) && !scalar::isnan(kInf));
  EXPECT_EQ(scalar::copysign(3.0f, -0.0f), -3.0f);
}

TEST(ScalarMath, PowFollowsTheRulesOfC) {
  std::vector<float> values = {0.0f,        -0.0f,        1.0f,           -1.0f,         2.0f,
                               -2.0f,       3.0f,         -3.0f,          0.5f,          -0.5f,
                               2.5f,        -2.5f,        kInf,           -kInf,         kNaN,
                               1e-45f,      -1e-45f,      3.4e38f,        -3.4e38f,      16777215.0f,
                               16777216.0f, -16777215.0f, 0x1.fffffep-1f, 0x1.000002p0f, 8388609.0f};
  for (float x : values) {
    for (float y : values) {
      EXPECT_LE(ulps(scalar::pow(x, y), std::pow(double(x), double(y))), 0.51) << x << " to the " << y;
    }
  }
}

TEST(ScalarMath, PowIsNearlyCorrectlyRounded) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  double worst = 0;
  for (int i = 0; i < 1000000; ++i) {
    const float x = i % 2 ? scalar::float_of(static_cast<uint32_t>(random())) : std::exp(normal(random) * 5);
    const float y = i % 2 ? float(int(random() % 41) - 20) : normal(random) * 80 / std::log(x);
    worst = std::max(worst, ulps(scalar::pow(x, y), std::pow(double(x), double(y))));
  }
  EXPECT_LE(worst, 0.51);
}

TEST(ScalarMath, PowOfVectorLoopsGivesTheSameBits) {
  std::mt19937 random(2);
  std::vector<float> x(10007), y(10007), z(10007);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = scalar::float_of(static_cast<uint32_t>(random()));
    y[i] =
        i % 3 ? float(int(random() % 2000) - 1000) / 64 : scalar::float_of(static_cast<uint32_t>(random()));
  }
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) z[i] = scalar::pow(x[i], y[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    const float single = scalar::pow(x[i], y[i]);
    ASSERT_TRUE(bits(single) == bits(z[i]) || (std::isnan(single) && std::isnan(z[i])))
        << x[i] << " " << y[i];
  }
}

TEST(ScalarMath, IntegerDivisionRoundsDown) {
  EXPECT_EQ(scalar::floor_divide(7, 2), 3);
  EXPECT_EQ(scalar::floor_divide(-7, 2), -4);
  EXPECT_EQ(scalar::floor_divide(7, -2), -4);
  EXPECT_EQ(scalar::floor_divide(-7, -2), 3);
  EXPECT_EQ(scalar::remainder(-7, 2), 1);
  EXPECT_EQ(scalar::remainder(7, -2), -1);
  EXPECT_EQ(scalar::fmod(-7, 2), -1);
  EXPECT_EQ(scalar::floor_divide(int64_t{-7}, int64_t{2}), -4);
  EXPECT_EQ(scalar::remainder(int64_t{-7}, int64_t{2}), 1);
  EXPECT_EQ(scalar::floor_divide(uint8_t{250}, uint8_t{7}), 35);
  EXPECT_EQ(scalar::remainder(uint8_t{250}, uint8_t{7}), 5);
  EXPECT_EQ(scalar::floor_divide(5, 0), 0);
  EXPECT_EQ(scalar::remainder(int64_t{5}, int64_t{0}), 0);
  EXPECT_EQ(scalar::floor_divide(kMin32, -1), kMin32);
  EXPECT_EQ(scalar::floor_divide(kMin64, int64_t{-1}), kMin64);
  EXPECT_EQ(scalar::remainder(kMin32, -1), 0);
  EXPECT_EQ(scalar::remainder(kMin64, int64_t{-1}), 0);
}

TEST(ScalarMath, IntegerDivisionAgreesAcrossWidths) {
  std::mt19937 random(3);
  for (int i = 0; i < 1000000; ++i) {
    const int32_t a = static_cast<int32_t>(random()), b = static_cast<int32_t>(random()) >> (random() % 31);
    ASSERT_EQ(scalar::floor_divide(a, b), static_cast<int32_t>(scalar::floor_divide(int64_t{a}, int64_t{b})))
        << a << " " << b;
    ASSERT_EQ(scalar::remainder(a, b), static_cast<int32_t>(scalar::remainder(int64_t{a}, int64_t{b})))
        << a << " " << b;
  }
}

TEST(ScalarMath, FloatingDivisionRoundsDown) {
  EXPECT_EQ(scalar::floor_divide(7.0f, 2.0f), 3.0f);
  EXPECT_EQ(scalar::floor_divide(-7.0f, 2.0f), -4.0f);
  EXPECT_EQ(scalar::floor_divide(1.0, 0.1), 9.0);
  EXPECT_EQ(scalar::floor_divide(1.0f, 0.0f), kInf);
  EXPECT_EQ(scalar::remainder(-7.0f, 2.0f), 1.0f);
  EXPECT_EQ(scalar::remainder(7.0f, -2.0f), -1.0f);
  EXPECT_EQ(scalar::remainder(5.5, 2.0), 1.5);
  EXPECT_EQ(scalar::fmod(-7.5f, 2.0f), -1.5f);
  EXPECT_TRUE(std::isnan(scalar::remainder(1.0f, 0.0f)));
}

TEST(ScalarMath, IntegerPowAndAbsWrap) {
  EXPECT_EQ(scalar::pow(3, 4), 81);
  EXPECT_EQ(scalar::pow(int64_t{-2}, int64_t{63}), kMin64);
  EXPECT_EQ(scalar::pow(2, 32), 0);
  EXPECT_EQ(scalar::pow(0, 0), 1);
  EXPECT_EQ(scalar::pow(2, -1), 0);
  EXPECT_EQ(scalar::pow(-1, -3), -1);
  EXPECT_EQ(scalar::pow(uint8_t{3}, uint8_t{6}), 217);
  EXPECT_EQ(scalar::abs(-5), 5);
  EXPECT_EQ(scalar::abs(kMin32), kMin32);
  EXPECT_EQ(scalar::abs(uint8_t{200}), 200);
}

TEST(ScalarMath, NeutralElements) {
  EXPECT_EQ(scalar::highest<float>(), kInf);
  EXPECT_EQ(scalar::lowest<double>(), -kInf);
  EXPECT_EQ(scalar::lowest<int32_t>(), kMin32);
  EXPECT_EQ(scalar::highest<int64_t>(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(scalar::lowest<int64_t>(), kMin64);
  EXPECT_EQ(scalar::highest<uint8_t>(), 255);
  EXPECT_EQ(scalar::lowest<uint8_t>(), 0);
  EXPECT_TRUE(scalar::highest<bool>() && !scalar::lowest<bool>());
}

TEST(ScalarMath, CastsClampToIntegers) {
  EXPECT_EQ(scalar::cast<int32_t>(-2.9f), -2);
  EXPECT_EQ(scalar::cast<int32_t>(3e9f), 2147483647);
  EXPECT_EQ(scalar::cast<int32_t>(-kInf), kMin32);
  EXPECT_EQ(scalar::cast<int32_t>(2147483520.0f), 2147483520);
  EXPECT_EQ(scalar::cast<int32_t>(2147483647.5), 2147483647);
  EXPECT_EQ(scalar::cast<int32_t>(-2147483648.5), kMin32);
  EXPECT_EQ(scalar::cast<int32_t>(kNaN), 0);
  EXPECT_EQ(scalar::cast<int64_t>(1e19), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(scalar::cast<int64_t>(-1e19f), kMin64);
  EXPECT_EQ(scalar::cast<int64_t>(double{kNaN}), 0);
  EXPECT_EQ(scalar::cast<int64_t>(0x1.fffffep62f), 0x7fffff8000000000);
  EXPECT_EQ(scalar::cast<uint8_t>(255.9f), 255);
  EXPECT_EQ(scalar::cast<uint8_t>(-1.0f), 255);
  EXPECT_EQ(scalar::cast<uint8_t>(300), 44);
  EXPECT_TRUE(scalar::cast<bool>(0.25f) && scalar::cast<bool>(kNaN) && scalar::cast<bool>(256));
  EXPECT_FALSE(scalar::cast<bool>(-0.0f));
  EXPECT_EQ(scalar::cast<float>(true), 1.0f);
  EXPECT_EQ(scalar::cast<float>(16777217), 16777216.0f);
}

TEST(ScalarMath, HalfKnownValues) {
  EXPECT_EQ(scalar::float_to_half(1.0f), 0x3c00);
  EXPECT_EQ(scalar::float_to_half(-65504.0f), 0xfbff);
  EXPECT_EQ(scalar::float_to_half(65519.9f), 0x7bff);
  EXPECT_EQ(scalar::float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(scalar::float_to_half(1e30f), 0x7c00);
  EXPECT_EQ(scalar::float_to_half(-kInf), 0xfc00);
  EXPECT_EQ(scalar::float_to_half(0x1p-24f), 0x0001);
  EXPECT_EQ(scalar::float_to_half(0x1p-25f), 0x0000);
  EXPECT_EQ(scalar::float_to_half(0x1.8p-24f), 0x0002);
  EXPECT_EQ(scalar::float_to_half(0x1.ffcp-15f), 0x0400);
  EXPECT_EQ(scalar::float_to_half(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(scalar::float_to_half(1.0f + 0x1.8p-10f), 0x3c02);
  EXPECT_EQ(scalar::float_to_half(kNaN), 0x7e00);
  EXPECT_EQ(scalar::float_to_half(-0.0f), 0x8000);
}

TEST(ScalarMath, HalfRoundTrips) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = scalar::half_to_float(static_cast<uint16_t>(h));
    const int exponent = (h >> 10) & 31;
    const double mantissa = h & 1023;
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(f));
      ASSERT_EQ(scalar::float_to_half(f), h | 0x200u);
      continue;
    }
    const double magnitude = exponent == 31  ? HUGE_VAL
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(double{f}, h & 0x8000u ? -magnitude : magnitude) << h;
    ASSERT_EQ(scalar::float_to_half(f), h);
  }
}

TEST(ScalarMath, HalfRoundsToNearest) {
  for (uint64_t b = 0; b < (uint64_t{1} << 32); b += 1009) {
    const float x = scalar::float_of(static_cast<uint32_t>(b));
    if (!(std::fabs(x) < 65520.0f)) continue;
    const uint16_t h = scalar::float_to_half(x);
    const double error = std::fabs(double{x} - scalar::half_to_float(h));
    const double below = (h & 0x7fff) == 0 ? HUGE_VAL : std::fabs(double{x} - scalar::half_to_float(h - 1));
    const double above =
        (h & 0x7fff) == 0x7bff ? HUGE_VAL : std::fabs(double{x} - scalar::half_to_float(h + 1));
    ASSERT_TRUE(error <= below && error <= above) << x;
    ASSERT_TRUE((error < below && error < above) || h % 2 == 0) << x;
  }
}

TEST(ScalarMath, BFloat16) {
  EXPECT_EQ(scalar::float_to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(scalar::float_to_bfloat16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(scalar::float_to_bfloat16(1.0f + 0x1.8p-7f), 0x3f82);
  EXPECT_EQ(scalar::float_to_bfloat16(3.4028235e38f), 0x7f80);
  EXPECT_EQ(scalar::float_to_bfloat16(scalar::float_of(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(scalar::float_to_bfloat16(scalar::float_of(0xffffffffu)), 0xffff);
  for (uint32_t b = 0; b < 65536; ++b) {
    const float f = scalar::bfloat16_to_float(static_cast<uint16_t>(b));
    ASSERT_EQ(scalar::float_to_bfloat16(f), std::isnan(f) ? b | 0x40u : b);
  }
}

TEST(ScalarMath, ConversionLoopsGiveTheSameBits) {
  std::vector<float> x;
  for (uint64_t b = 0; b < (uint64_t{1} << 32); b += 200003)
    x.push_back(scalar::float_of(static_cast<uint32_t>(b)));
  const int n = static_cast<int>(x.size());
  std::vector<uint16_t> half(n), brain(n);
  std::vector<int32_t> i32(n);
  std::vector<int64_t> i64(n);
#pragma omp simd
  for (int i = 0; i < n; ++i) half[i] = scalar::float_to_half(x[i]);
#pragma omp simd
  for (int i = 0; i < n; ++i) brain[i] = scalar::float_to_bfloat16(x[i]);
#pragma omp simd
  for (int i = 0; i < n; ++i) i32[i] = scalar::cast<int32_t>(x[i]);
#pragma omp simd
  for (int i = 0; i < n; ++i) i64[i] = scalar::cast<int64_t>(x[i]);
  for (int i = 0; i < n; ++i) {
    ASSERT_EQ(half[i], scalar::float_to_half(x[i]));
    ASSERT_EQ(brain[i], scalar::float_to_bfloat16(x[i]));
    ASSERT_EQ(i32[i], scalar::cast<int32_t>(x[i]));
    ASSERT_EQ(i64[i], scalar::cast<int64_t>(x[i]));
  }
}

void expect_block(const scalar::Random4& r, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_TRUE(r.a == a && r.b == b && r.c == c && r.d == d)
      << std::hex << r.a << " " << r.b << " " << r.c << " " << r.d;
}

TEST(ScalarRandom, PhiloxGivesItsPublishedVectors) {
  expect_block(scalar::philox4x32(0, 0, 0, 0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_block(scalar::philox4x32(~0u, ~0u, ~0u, ~0u, ~0u, ~0u), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
               0x6d5451fd);
  expect_block(scalar::philox4x32(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
               0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(ScalarRandom, ElementsAreLanesOfBlocks) {
  const scalar::Random4 r = scalar::random_block(7, (uint64_t{1} << 32) + 2);
  const uint64_t offset = 0xffffffffu;
  EXPECT_EQ(scalar::random_u32(7, offset, 12), r.a);
  EXPECT_EQ(scalar::random_u32(7, offset, 13), r.b);
  EXPECT_EQ(scalar::random_u32(7, offset, 14), r.c);
  EXPECT_EQ(scalar::random_u32(7, offset, 15), r.d);
}

TEST(ScalarRandom, LoopsAndFillsGiveTheSameNumbers) {
  std::vector<uint32_t> loop(1000), fill(1000), ragged(997);
#pragma omp simd
  for (int i = 0; i < 1000; ++i) loop[i] = scalar::random_u32(42, 5, i + 8);
  scalar::random_fill(42, 5, 8, fill.data(), 1000);
  scalar::random_fill(42, 5, 11, ragged.data(), 997);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(loop[i], scalar::random_u32(42, 5, i + 8));
  EXPECT_EQ(loop, fill);
  EXPECT_TRUE(std::equal(ragged.begin(), ragged.end(), loop.begin() + 3));
}

TEST(ScalarRandom, UniformStaysBelowOne) {
  EXPECT_EQ(scalar::uniform01(0), 0.0f);
  EXPECT_EQ(scalar::uniform01(~0u), 1.0f - 0x1p-24f);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = scalar::random_uniform(1, 0, i);
    sum += u, squares += u * u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.004);
  EXPECT_NEAR(squares / 100000, 1.0 / 3, 0.004);
}

TEST(ScalarRandom, NormalHasNormalMoments) {
  constexpr int kCount = 400000;
  double moments[4] = {}, neighbours = 0, previous = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = scalar::standard_normal(3, 9, i);
    ASSERT_LT(std::fabs(x), 5.78);
    for (int k = 0; k < 4; ++k) moments[k] += std::pow(x, k + 1) / kCount;
    neighbours += x * previous / kCount;
    previous = x;
  }
  EXPECT_NEAR(moments[0], 0, 0.008);
  EXPECT_NEAR(moments[1], 1, 0.012);
  EXPECT_NEAR(moments[2], 0, 0.03);
  EXPECT_NEAR(moments[3], 3, 0.1);
  EXPECT_NEAR(neighbours, 0, 0.008);
}

TEST(ScalarRandom, NormalIsBoxMuller) {
  const double pi = std::acos(-1.0);
  for (uint32_t i = 0; i < 1000; ++i) {
    const uint32_t a = scalar::random_u32(1, 2, 2 * i), b = scalar::random_u32(1, 2, 2 * i + 1);
    const double radius = std::sqrt(-2 * std::log(((a >> 8) + 1) * 0x1p-24)), angle = 2 * pi * b / 0x1p32;
    EXPECT_NEAR(scalar::normal_from(a, b), radius * std::cos(angle), 2e-6);
    EXPECT_NEAR(scalar::standard_normal(1, 2, 2 * i), radius * std::cos(angle), 2e-6);
    EXPECT_NEAR(scalar::standard_normal(1, 2, 2 * i + 1), radius * std::sin(angle), 2e-6);
  }
}

TEST(ScalarMath, DoubleIsLibm) {
  const double x = 0.7, y = -1.3;
  EXPECT_EQ(scalar::exp(x), std::exp(x));
  EXPECT_EQ(scalar::log1p(x), std::log1p(x));
  EXPECT_EQ(scalar::erf(x), std::erf(x));
  EXPECT_EQ(scalar::pow(x, y), std::pow(x, y));
  EXPECT_NEAR(scalar::sigmoid(y), 1 / (1 + std::exp(1.3)), 1e-16);
  EXPECT_EQ(scalar::round(2.5), 2.0);
  EXPECT_EQ(scalar::abs(-0.0), 0.0);
}

}  // namespace
