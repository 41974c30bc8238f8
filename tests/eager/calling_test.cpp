// How calls are spelled and what misuse of a handle says: single axes, literals, undefined tensors, null
// memory.
#include <gtest/gtest.h>

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

TEST(Calling, NullMemoryIsNoBlob) {
  EXPECT_ERROR(from_blob(nullptr, {3}), ValueError,
               "from_blob: expected memory for sizes [3], got a null pointer");
  EXPECT_EQ(from_blob(nullptr, {0}).numel(), 0);
}

}  // namespace
}  // namespace etch
