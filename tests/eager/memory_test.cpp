// Memory of eager ops: limits, categories, what a training step keeps.
#include <gtest/gtest.h>

#include "eager/functional.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

int64_t allocated() { return memory_stats().allocated; }

class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t spare) { set_memory_limit(allocated() + spare); }
  ~MemoryLimit() { set_memory_limit(0); }
};

TEST(Memory, ALimitIsACleanErrorAndTheProgramGoesOn) {
  Tensor parameter = ones({1024});
  {
    MemoryLimit limit(1 << 20);
    EXPECT_ERROR(zeros({1 << 20}), OutOfMemoryError, "expected");
    try {
      parameter + zeros({64, 1024, 1024});
      ADD_FAILURE();
    } catch (const OutOfMemoryError& error) {
      EXPECT_NE(std::string(error.what()).find("temporaries"), std::string::npos) << error.what();
    }
    parameter.add_(1.0);
    EXPECT_VALUES(zeros({4}) + 1, f32({1, 1, 1, 1}));
  }
  EXPECT_VALUES(parameter.slice(0, 0, 2), f32({2, 2}));
  EXPECT_EQ(zeros({1 << 20}).numel(), 1 << 20);
}

TEST(Memory, ALimitInBackwardLeavesTheTapeUsable) {
  const Tensor x = ones({1 << 18}).requires_grad_();
  const Tensor y = (x * 2).exp().sum();
  {
    MemoryLimit limit(1 << 16);
    EXPECT_THROW(y.backward({}, {.retain_graph = true}), OutOfMemoryError);
  }
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(grad_enabled());
  y.backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(Memory, CategoriesFollowUse) {
  const auto of = [](MemoryCategory category) {
    return memory_stats().by_category[static_cast<int>(category)];
  };
  const int64_t activations = of(MemoryCategory::Activation), gradients = of(MemoryCategory::Gradient);
  const Tensor x = ones({1 << 16}).requires_grad_();
  const Tensor y = (x * 2).exp();
  EXPECT_GE(of(MemoryCategory::Activation) - activations, 4 << 16);
  y.sum().backward();
  EXPECT_GE(of(MemoryCategory::Gradient) - gradients, 4 << 16);
}

TEST(Memory, ATapeFreesWhatItSavedDuringBackward) {
  const int64_t bytes = 4 << 20;
  const Tensor x = ones({1 << 20}).requires_grad_();
  const int64_t before = allocated();
  {
    Tensor y = x;
    for (int i = 0; i < 10; ++i) y = y.tanh();
    EXPECT_LE(allocated() - before, 10 * bytes + (1 << 16));
    reset_peak_memory();
    const int64_t start = allocated();
    y.sum().backward();
    // The gradient of the sum, two gradients in flight, and what the freed outputs leave.
    EXPECT_LE(memory_stats().peak_allocated - start, 3 * bytes);
  }
  EXPECT_LE(allocated() - before, bytes + (1 << 16));
}

TEST(Memory, DroppingTensorsReturnsEverything) {
  const int64_t before = allocated();
  {
    const Tensor x = ones({100, 100}).requires_grad_();
    const Tensor y = (x.matmul(x).relu() + x).sum();
    y.backward();
  }
  EXPECT_EQ(allocated(), before);
}

TEST(Memory, NoGradKeepsNothing) {
  const Tensor x = ones({1 << 20}).requires_grad_();
  const int64_t before = allocated();
  reset_peak_memory();
  no_grad([&] {
    Tensor y = x;
    for (int i = 0; i < 10; ++i) y = y.tanh();
  });
  EXPECT_LE(memory_stats().peak_allocated - before, 2 * (4 << 20));
}

TEST(Memory, WhatIsSavedMayBeWrittenFromItsOwnResult) {
  const Tensor w = ones({1000}).requires_grad_();
  const int64_t before = allocated();
  for (const bool on_tape : {false, true}) {
    Tensor a = on_tape ? w * 2 : ones({1000});
    Tensor product = w * a;
    a.add_(product);
  }
  EXPECT_EQ(allocated(), before);
}

}  // namespace
}  // namespace etch::testing
