// How calls are spelled and what misuse of a handle says: single axes, literals, undefined tensors, null
// memory.
#include <gtest/gtest.h>

#include <cmath>

#include "eager/functional.h"
#include "eager/tensor.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

TEST(Calling, OneNumberIsOneAxis) {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(x.sum(1).to_vector<float>(), (std::vector<float>{6, 15}));
  EXPECT_EQ(x.mean(-1, true).sizes(), (Dims{2, 1}));
  EXPECT_EQ(x.sum({}, true).sizes(), (Dims{1, 1}));
  EXPECT_EQ(x.sum({0, 1}).item<float>(), 21);
}

TEST(Calling, ColumnsAndComputedNumbersMakeTensors) {
  const double x = 0.5;
  const int n = 3;
  EXPECT_EQ(tensor({x, n, -1}).to_vector<float>(), (std::vector<float>{0.5f, 3, -1}));
  EXPECT_EQ(tensor({{2}, {-3}}).sizes(), (Dims{2, 1}));
  EXPECT_EQ(tensor({{2, 3}}).sizes(), (Dims{1, 2}));
}

TEST(Calling, UndefinedTensorsSaySo) {
  const Tensor none;
  const Tensor parameter = ones({2}, {.requires_grad = true});
  const std::string expected = "expected a defined tensor, got an undefined one";
  EXPECT_ERROR(none.item<float>(), ValueError, expected);
  EXPECT_ERROR(none.sum(), ValueError, expected);
  EXPECT_ERROR(none.sizes(), ValueError, expected);
  EXPECT_ERROR(none.backward(), ValueError, expected);
  EXPECT_ERROR(none.view({1}), ValueError, expected);
  EXPECT_ERROR(none.to(DType::F64), ValueError, expected);
  EXPECT_ERROR(none.argmax(), ValueError, expected);
  EXPECT_ERROR(none.detach(), ValueError, expected);
  EXPECT_ERROR(parameter.clone().copy_(none), ValueError, expected);
  EXPECT_ERROR(parameter.matmul(none), ValueError, "matmul: expected defined tensors");
  EXPECT_ERROR(concat(std::vector<Tensor>{none, none}), ValueError, expected);
  EXPECT_ERROR(cross_entropy(none, none), ValueError, "undefined");
  EXPECT_ERROR(parameter.grad().sum(), ValueError, "a .grad that no backward() has reached");
}

TEST(Calling, RowsOfOneAndTwoOperandsAreMethods) {
  const Tensor x = tensor({1, 2, 3}), y = tensor({4, 2, 0});
  EXPECT_EQ(x.add(y).to_vector<float>(), (std::vector<float>{5, 4, 3}));
  EXPECT_EQ(x.sub(1).to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(x.mul(2.5).to_vector<float>(), (std::vector<float>{2.5f, 5, 7.5f}));
  EXPECT_EQ(y.div(x).to_vector<float>(), (std::vector<float>{4, 1, 0}));
  EXPECT_EQ(x.maximum(y).to_vector<float>(), (std::vector<float>{4, 2, 3}));
  EXPECT_EQ(x.lt(y).to_vector<bool>(), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(x.remainder(2).to_vector<float>(), (std::vector<float>{1, 0, 1}));
}

TEST(Calling, PowersOfTwoAreProductsBothWays) {
  const Tensor x = ones({2}, {.requires_grad = true});
  EXPECT_EQ(x.pow(2).grad_fn(), "SquareBackward");
  EXPECT_EQ(pow(x, 2).grad_fn(), "SquareBackward");
  EXPECT_EQ(pow(x, 2.5).grad_fn(), "PowBackward");
  EXPECT_EQ(pow(2.0, 2).item<float>(), 4);
  EXPECT_EQ(pow(arange(4), 2.0).dtype(), DType::F32);
}

TEST(Calling, MethodsHaveFunctionsOfTheirNames) {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  EXPECT_EQ(matmul(x, x).to_vector<float>(), (std::vector<float>{7, 10, 15, 22}));
  EXPECT_EQ(sum(x).item<float>(), 10);
  EXPECT_EQ(sum(x, 0).to_vector<float>(), (std::vector<float>{4, 6}));
  EXPECT_EQ(mean(x, 1, true).sizes(), (Dims{2, 1}));
  EXPECT_EQ(softmax(zeros({2, 2}), -1).to_vector<float>(), (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(flatten(x).sizes(), (Dims{4}));
  EXPECT_EQ(tensor({1, 3}).std().item<float>(), std::sqrt(2.0f));
  EXPECT_EQ(tensor({1, 3}).std({}, 0).item<float>(), 1);
}

TEST(Calling, NullMemoryIsNoBlob) {
  EXPECT_ERROR(from_blob(nullptr, {3}), ValueError,
               "from_blob: expected memory for sizes [3], got a null pointer");
  EXPECT_EQ(from_blob(nullptr, {0}).numel(), 0);
}

}  // namespace
}  // namespace etch

// As a program outside of Etch spells it.
namespace user {

using namespace etch;

TEST(Calling, JoinsOfBracedTensorsAreTheTensorOps) {
  const Tensor a = ones({2}), b = zeros({1});
  EXPECT_EQ(concat({a, b}, 0).sizes(), (Dims{3}));
  EXPECT_EQ(concat({a, b}).sizes(), (Dims{3}));
  EXPECT_EQ(cat({a}).sizes(), (Dims{2}));
  EXPECT_EQ(stack({a, a}).sizes(), (Dims{2, 2}));
  EXPECT_ERROR(concat({}), ValueError, "concat: expected at least one tensor");
}

}  // namespace user
