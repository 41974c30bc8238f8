// The interpreter against literal results.
#include "tracer/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/error.h"
#include "tests/tracer/interpreting.h"

namespace etch {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::byte> floats(const std::vector<float>& values) { return bytes_of(values); }
std::vector<std::byte> longs(const std::vector<int64_t>& values) { return bytes_of(values); }

TEST(Interpreter, PointwiseBroadcastsAndRounds) {
  const Interpreted run({floats({1, 2, 3, 4, 5, 6}), floats({10, 20, 30})}, {24},
                        "mul(%0:f32[2,3]{3,1}, %1:f32[3]{1}) -> %2:f32[2,3]{3,1}\n"
                        "add(%2:f32[2,3]{3,1}, f32=0.1) -> %2:f32[2,3]{3,1}\n");
  EXPECT_EQ(run[2][0], 10.1f);
  EXPECT_EQ(run[2][5], 180.1f);
}

TEST(Interpreter, KeepsFloat64WhenAsked) {
  const std::string nodes = "div(%0:f32[1]{1}, f32=3.0) -> %1:f32[1]{1}\n";
  EXPECT_EQ(Interpreted({floats({1})}, {4}, nodes)[1][0], 1.0f / 3.0f);
  EXPECT_EQ(Interpreted({floats({1})}, {4}, nodes, {}, {.round_to_dtype = false})[1][0], 1.0 / 3.0);
}

TEST(Interpreter, HalvesRoundAtEveryNode) {
  const Interpreted run({}, {2},
                        "copy(bf16=1.0) -> %0:bf16[]{}\nadd(%0:bf16[]{}, f32=0.001) -> %0:bf16[]{}\n");
  EXPECT_EQ(run[0], Doubles{1.0});
  EXPECT_EQ(run.buffer(0).bytes.size(), 2u);
}

TEST(Interpreter, IntegersWrapToTheirDType) {
  const Interpreted run(
      {bytes_of(std::vector<uint8_t>{200, 3}), bytes_of(std::vector<int32_t>{2147483647, -7})}, {2, 8, 8},
      "add(%0:u8[2]{1}, u8=100) -> %2:u8[2]{1}\n"
      "add(%1:i32[2]{1}, i32=1) -> %3:i32[2]{1}\n"
      "floor_divide(%1:i32[2]{1}, i32=2) -> %4:i32[2]{1}\n");
  EXPECT_EQ(run[2], (Doubles{44, 103}));
  EXPECT_EQ(run[3], (Doubles{-2147483648.0, -6}));
  EXPECT_EQ(run[4], (Doubles{1073741823, -4}));
}

TEST(Interpreter, ComparesWheresAndCasts) {
  const Interpreted run({floats({-1.5, 0, 2.5}), longs({1, 2, 3})}, {3, 12, 24, 6},
                        "gt(%0:f32[3]{1}, f32=0.0) -> %2:bool[3]{1}\n"
                        "where(%2:bool[3]{1}, %0:f32[3]{1}, f32=9.0) -> %3:f32[3]{1}\n"
                        "copy(%0:f32[3]{1}) -> %4:i64[3]{1}\n"
                        "copy(%1:i64[3]{1}) -> %5:f16[3]{1}\n");
  EXPECT_EQ(run[2], (Doubles{0, 0, 1}));
  EXPECT_EQ(run[3], (Doubles{9, 9, 2.5}));
  EXPECT_EQ(run[4], (Doubles{-1, 0, 2}));
  EXPECT_EQ(run[5], (Doubles{1, 2, 3}));
}

TEST(Interpreter, BoolsAddAsOr) {
  const Interpreted run({bytes_of(std::vector<uint8_t>{0, 1, 1}), bytes_of(std::vector<uint8_t>{0, 0, 1})},
                        {3, 3},
                        "add(%0:bool[3]{1}, %1:bool[3]{1}) -> %2:bool[3]{1}\n"
                        "mul(%0:bool[3]{1}, %1:bool[3]{1}) -> %3:bool[3]{1}\n");
  EXPECT_EQ(run[2], (Doubles{0, 1, 1}));
  EXPECT_EQ(run[3], (Doubles{0, 0, 1}));
}

TEST(Interpreter, ReadsSlots) {
  const Interpreted run({floats({1, 2, 3, 4})}, {8}, "mul(%0:f32[2]{1}@0, f32@1) -> %1:f32[2]{1}\n",
                        {{.offset = 2, .scalar = {}}, {.offset = 0, .scalar = Scalar(10)}});
  EXPECT_EQ(run[1], (Doubles{30, 40}));
}

TEST(Interpreter, WindowsWriteInPlace) {
  const Interpreted run({floats({1, 2, 3, 4, 5, 6})}, {},
                        "add(%0:f32[5]{1}+1, %0:f32[5]{1}) -> %0:f32[5]{1}+1\n"
                        "neg(%0:f32[3]{2}) -> %0:f32[3]{2}\n");
  EXPECT_EQ(run[0], (Doubles{-1, 3, -5, 7, -9, 11}));
}

TEST(Interpreter, Reduces) {
  const Interpreted run({floats({1, 2, 3, 4, 5, 6}), longs({3, 1, 3})}, {12, 8, 8, 8, 2, 8, 4},
                        "sum<1,0>(%0:f32[2,3]{3,1}) -> %2:f32[3]{1}\n"
                        "amax<2,1>(%0:f32[2,3]{3,1}) -> %3:f32[2,1]{1,1}\n"
                        "prod<1,0>(%1:i64[3]{1}) -> %4:i64[]{}\n"
                        "argmax<1,0>(%1:i64[3]{1}) -> %5:i64[]{}\n"
                        "any<1,0>(%0:f32[2,2]{3,1}) -> %6:bool[2]{1}\n"
                        "argmin<2,0>(%0:f32[1,3]{3,1}) -> %7:i64[1]{1}\n"
                        "sum<3,0>(%0:f32[2,0]{3,1}) -> %8:f32[]{}\n");
  EXPECT_EQ(run[2], (Doubles{5, 7, 9}));
  EXPECT_EQ(run[3], (Doubles{3, 6}));
  EXPECT_EQ(run[4], (Doubles{9}));
  EXPECT_EQ(run[5], (Doubles{0}));
  EXPECT_EQ(run[6], (Doubles{1, 1}));
  EXPECT_EQ(run[7], (Doubles{0}));
  EXPECT_EQ(run[8], (Doubles{0}));
}

TEST(Interpreter, NanWinsExtremaOfFloats) {
  const Interpreted run({bytes_of(Doubles{1, kNan, 5, kNan})}, {8, 8},
                        "amin<1,0>(%0:f64[4]{1}) -> %1:f64[]{}\nargmin<1,0>(%0:f64[4]{1}) -> %2:i64[]{}\n");
  EXPECT_TRUE(std::isnan(run[1][0]));
  EXPECT_EQ(run[2], Doubles{1});
}

TEST(Interpreter, Generates) {
  const Interpreted run({floats(std::vector<float>(1000, 2.0f))}, {24, 4000, 4000, 16},
                        "arange<3>(i64=5, i64=-2) -> %1:i64[3]{1}\n"
                        "bernoulli<1000>(i64=1, i64=0, f64=0.25) -> %2:f32[1000]{1}\n"
                        "dropout(%0:f32[1000]{1}, i64=1, i64=0, f64=0.25) -> %3:f32[1000]{1}\n"
                        "arange<2>(f64=0.5, f64=0.25) -> %4:f64[2]{1}\n");
  EXPECT_EQ(run[1], (Doubles{5, 3, 1}));
  double drawn = 0;
  for (int i = 0; i < 1000; ++i) {
    drawn += run[2][i];
    EXPECT_EQ(run[3][i], run[2][i] == 1 ? 0 : static_cast<double>(2.0f / 0.75f));  // the same draws
  }
  EXPECT_NEAR(drawn, 250, 45);
  EXPECT_EQ(run[4], (Doubles{0.5, 0.75}));
}

TEST(Interpreter, MatmulBroadcastsBatches) {
  const Interpreted run({floats({1, 2, 3, 4}), floats({1, 0, 0, 1, 0, 1, 1, 0})}, {32},
                        "matmul(%0:f32[2,2]{2,1}, %1:f32[2,2,2]{4,2,1}) -> %2:f32[2,2,2]{4,2,1}\n");
  EXPECT_EQ(run[2], (Doubles{1, 2, 3, 4, 2, 1, 4, 3}));
}

TEST(Interpreter, ConvolvesAndDifferentiates) {
  // x 1x1x3x3, w 1x1x2x2, padding 0: each output is the window's weighted sum.
  const Interpreted run({floats({1, 2, 3, 4, 5, 6, 7, 8, 9}), floats({1, 2, 3, 4}), floats({0.5})},
                        {16, 36, 16},
                        "conv2d<1,1,0,0,1,1,1,0,0>(%0:f32[1,1,3,3]{9,9,3,1}, %1:f32[1,1,2,2]{4,4,2,1}, "
                        "%2:f32[1]{1}) -> %3:f32[1,1,2,2]{4,1,2,1}\n"
                        "conv2d_input_grad<1,1,0,0,1,1,1,3,3>(%1:f32[1,1,2,2]{4,4,2,1}, "
                        "%1:f32[1,1,2,2]{4,4,2,1}) -> %4:f32[1,1,3,3]{9,1,3,1}\n"
                        "conv2d_weight_grad<1,1,0,0,1,1,1,2,2>(%1:f32[1,1,2,2]{4,4,2,1}, "
                        "%0:f32[1,1,3,3]{9,9,3,1}) -> %5:f32[1,1,2,2]{4,4,2,1}\n");
  EXPECT_EQ(run[3], (Doubles{37.5, 47.5, 67.5, 77.5}));
  EXPECT_EQ(run[4], (Doubles{1, 4, 4, 6, 20, 16, 9, 24, 16}));
  EXPECT_EQ(run[5], (Doubles{37, 47, 67, 77}));
}

TEST(Interpreter, ConvolutionGroupsStrideAndPadding) {
  // Two groups of one channel each, 1x1 kernels, stride 2 over a padded 3x3 plane.
  const Interpreted run(
      {floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1}), floats({2, 3})}, {72},
      "conv2d<2,2,1,1,1,1,2,0,0>(%0:f32[1,2,3,3]{18,9,3,1}, %1:f32[2,1,1,1]{1,1,1,1}, _) -> "
      "%2:f32[1,2,3,3]{18,9,3,1}\n");
  EXPECT_EQ(run[2], (Doubles{0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0}));
}

TEST(Interpreter, Pools) {
  const Interpreted run(
      {floats({1, 2, 3, 4, 5, 5, 7, 8, 0})}, {16, 32, 16, 36, 36},
      "max_pool2d<2,2,1,1,0,0,0,0>(%0:f32[1,1,3,3]{9,9,3,1}) -> %1:f32[1,1,2,2]{4,4,2,1}, "
      "%2:i64[1,1,2,2]{4,4,2,1}\n"
      "avg_pool2d<2,2,2,2,1,1,0,0>(%0:f32[1,1,3,3]{9,9,3,1}) -> %3:f32[1,1,2,2]{4,4,2,1}\n"
      "max_pool2d_grad<2,2,1,1,0,0,3,3>(%1:f32[1,1,2,2]{4,4,2,1}, %2:i64[1,1,2,2]{4,4,2,1}) "
      "-> %4:f32[1,1,3,3]{9,9,3,1}\n"
      "avg_pool2d_grad<2,2,2,2,1,1,3,3>(%3:f32[1,1,2,2]{4,4,2,1}) -> "
      "%5:f32[1,1,3,3]{9,9,3,1}\n");
  EXPECT_EQ(run[1], (Doubles{5, 5, 8, 8}));
  EXPECT_EQ(run[2], (Doubles{4, 4, 7, 7}));
  EXPECT_EQ(run[3], (Doubles{0.25, 1.25, 2.75, 4.5}));
  EXPECT_EQ(run[4], (Doubles{0, 0, 0, 0, 10, 0, 0, 16, 0}));
  EXPECT_EQ(run[5], (Doubles{0.0625, 0.3125, 0.3125, 0.6875, 1.125, 1.125, 0.6875, 1.125, 1.125}));
}

TEST(Interpreter, Indexes) {
  const Interpreted run({floats({1, 2, 3, 4, 5, 6}), longs({2, 0, 2}), floats({10, 20, 30, 40, 50, 60})},
                        {24, 24, 12, 24},
                        "index_select<1>(%0:f32[2,3]{3,1}, %1:i64[3]{1}) -> %3:f32[2,3]{3,1}\n"
                        "index_add<1>(%0:f32[2,3]{3,1}, %1:i64[3]{1}, %2:f32[2,3]{3,1}) -> %4:f32[2,3]{3,1}\n"
                        "gather<1>(%0:f32[2,3]{3,1}, %1:i64[1,3]{3,1}) -> %5:f32[1,3]{3,1}\n"
                        "scatter_add<1>(%0:f32[2,3]{3,1}, %1:i64[1,2]{2,1}, %2:f32[2,3]{3,1}) -> "
                        "%6:f32[2,3]{3,1}\n");
  EXPECT_EQ(run[3], (Doubles{3, 1, 3, 6, 4, 6}));
  EXPECT_EQ(run[4], (Doubles{21, 2, 43, 54, 5, 106}));
  EXPECT_EQ(run[5], (Doubles{3, 1, 3}));
  EXPECT_EQ(run[6], (Doubles{21, 2, 13, 4, 5, 6}));
}

TEST(Interpreter, GroupsRunTheirBody) {
  const Interpreted run({floats({1, 2, 3})}, {4},
                        "fused(%0:f32[3]{1}) -> %1:f32[]{} {\nsum<1,0>(%0:f32[3]{1}) -> %1:f32[]{}\n}\n");
  EXPECT_EQ(run[1], Doubles{6});
}

TEST(Interpreter, RefusesBadData) {
  EXPECT_THROW(Interpreted({floats({1, 2}), longs({2})}, {4},
                           "index_select<0>(%0:f32[2]{1}, %1:i64[1]{1}) -> %2:f32[1]{1}\n"),
               IndexError);
  EXPECT_THROW(Interpreted({longs({1})}, {8}, "remainder(%0:i64[1]{1}, i64=0) -> %1:i64[1]{1}\n"),
               ValueError);
  EXPECT_THROW(
      Interpreted({floats({1, 2}), longs({2})}, {4, 4},
                  "cross_entropy<-100>(%0:f32[1,2]{2,1}, %1:i64[1]{1}) -> %2:f32[1]{1}, %3:f32[1]{1}\n"),
      IndexError);
  EXPECT_THROW(interpret(parse("graph cpu slots 0\nbuffer %0 external 4\n"), {{}}), InternalError);
}

}  // namespace
}  // namespace etch
