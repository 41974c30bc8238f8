// Printing of tensors: literals in PyTorch's manner.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "eager/tensor.h"

namespace etch {
namespace {

TEST(Format, FloatsHaveFourDigits) {
  EXPECT_EQ(tensor({{1, 2.5f}, {-3.25f, 0}}).to_string(),
            "tensor([[ 1.0000,  2.5000],\n"
            "        [-3.2500,  0.0000]])");
}

TEST(Format, SizesPrint) {
  std::ostringstream out;
  out << zeros({2, 3}).sizes();
  EXPECT_EQ(out.str(), "[2, 3]");
}

TEST(Format, WholeFloatsEndInAPoint) {
  EXPECT_EQ(tensor({1, -20, 300}).to_string(), "tensor([  1., -20., 300.])");
}

TEST(Format, WideRangesTakeAnExponent) {
  EXPECT_EQ(tensor({0.001f, 20}).to_string(), "tensor([1.0000e-03, 2.0000e+01])");
  EXPECT_EQ(tensor({2e9f}).to_string(), "tensor([2.0000e+09])");
  EXPECT_EQ(tensor({0.00005f}).to_string(), "tensor([5.0000e-05])");
}

TEST(Format, NanAndInfinityDoNotChangeTheStyle) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tensor({1.5f, std::nanf(""), -inf, inf}).to_string(), "tensor([1.5000,    nan,   -inf,    inf])");
  EXPECT_EQ(tensor({1, inf}).to_string(), "tensor([ 1., inf])");
}

TEST(Format, IntegersBoolsAndOtherDtypes) {
  EXPECT_EQ(from_vector<int64_t>({1, -22}).to_string(), "tensor([  1, -22])");
  EXPECT_EQ(from_vector<int32_t>({7}).to_string(), "tensor([7], dtype=i32)");
  EXPECT_EQ(from_vector<double>({0.5}).to_string(), "tensor([0.5000], dtype=f64)");
  EXPECT_EQ(tensor({1, 2}).to(DType::BF16).to_string(), "tensor([1., 2.], dtype=bf16)");
  EXPECT_EQ((tensor({1, 2}) > 1.5).to_string(), "tensor([false,  true])");
}

TEST(Format, ScalarsAndEmptyTensors) {
  EXPECT_EQ(scalar_tensor(0.5).to_string(), "tensor(0.5000)");
  EXPECT_EQ(scalar_tensor(3).to_string(), "tensor(3)");
  EXPECT_EQ(empty({0}).to_string(), "tensor([])");
  EXPECT_EQ(empty({2, 0}).to_string(), "tensor([], size=[2, 0])");
  EXPECT_EQ(Tensor().to_string(), "tensor(undefined)");
}

TEST(Format, BlankLinesSeparateMatrices) {
  EXPECT_EQ(arange(8).view({2, 2, 2}).to_string(),
            "tensor([[[0, 1],\n"
            "         [2, 3]],\n"
            "\n"
            "        [[4, 5],\n"
            "         [6, 7]]])");
}

TEST(Format, LongRowsAreBroken) {
  EXPECT_EQ(arange(30).to_string(),
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
            "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])");
}

TEST(Format, LargeTensorsShowTheirEdges) {
  EXPECT_EQ(arange(2000).to_string(), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
  EXPECT_EQ(arange(4000).view({1000, 4}).to_string(),
            "tensor([[   0,    1,    2,    3],\n"
            "        [   4,    5,    6,    7],\n"
            "        [   8,    9,   10,   11],\n"
            "        ...,\n"
            "        [3988, 3989, 3990, 3991],\n"
            "        [3992, 3993, 3994, 3995],\n"
            "        [3996, 3997, 3998, 3999]])");
}

TEST(Format, ViewsPrintInLogicalOrder) {
  EXPECT_EQ(arange(6).view({2, 3}).t().to_string(), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
  EXPECT_EQ(arange(6).slice(0, 1, 6, 2).to_string(), "tensor([1, 3, 5])");
}

TEST(Format, TellsWhatTheTapeKnows) {
  Tensor x = tensor({1, 2}).requires_grad_();
  EXPECT_EQ(x.to_string(), "tensor([1., 2.], requires_grad=true)");
  EXPECT_EQ((x * 2).to_string(), "tensor([2., 4.], grad_fn=<MulBackward>)");
}

TEST(Format, StreamsLikeToString) {
  std::ostringstream out;
  out << tensor({1});
  EXPECT_EQ(out.str(), "tensor([1.])");
}

}  // namespace
}  // namespace etch
