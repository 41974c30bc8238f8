// In-place ops through views under the tape: whose history changes, the right gradients, and what is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "eager/tensor.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/values.h"
#include "tests/support/view_program.h"

namespace etch::testing {
namespace {

using Inputs = std::span<const Tensor>;

Tensor leaf(std::vector<double> values) { return f32(std::move(values)).tensor().requires_grad_(); }

TEST(InPlaceViews, AWriteThroughAViewIsPartOfTheBasesHistory) {
  const Tensor x = leaf({1, 2, 3}), w = leaf({10, 20});
  Tensor y = x * 2;
  Tensor view = y.slice(0, 1, 3);
  view.mul_(w);
  EXPECT_EQ(y.grad_fn(), "CopySlices");
  EXPECT_EQ(view.grad_fn(), "AsStridedBackward");
  EXPECT_VALUES(y.detach(), f32({2, 40, 120}));
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 20, 40}));
  EXPECT_VALUES(w.grad(), f32({4, 6}));
}

TEST(InPlaceViews, TheViewHasTheSameHistory) {
  const Tensor x = leaf({1, 2, 3}), w = leaf({10, 20});
  Tensor y = x * 2;
  Tensor view = y.slice(0, 1, 3);
  view.mul_(w);
  view.sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 20, 40}));
  EXPECT_VALUES(w.grad(), f32({4, 6}));
}

TEST(InPlaceViews, AConstantCutsTheGradientOfItsWindow) {
  const Tensor x = leaf({1, 2, 3});
  Tensor y = x * 2;
  y[1].fill_(7);
  EXPECT_VALUES(y.detach(), f32({2, 7, 6}));
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 0, 2}));
}

TEST(InPlaceViews, AConstantCopiedInCutsItToo) {
  const Tensor x = leaf({1, 2, 3});
  Tensor y = x * 2;
  y.slice(0, 0, 2).copy_(f32({5, 6}).tensor());
  (y * y).sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 0, 24}));
}

TEST(InPlaceViews, AHostWriteCutsTheGradientOfItsElement) {
  const Tensor x = leaf({1, 2, 3});
  Tensor y = x * 2;
  y.set({1}, 7);
  y.slice(0, 0, 1).set({0}, 8);
  (y * y).sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 0, 24}));
}

TEST(InPlaceViews, APlainBufferStartsToRequireGradients) {
  const Tensor w = leaf({3, 4});
  Tensor buffer = zeros({2, 2});
  Tensor before = buffer[1];
  EXPECT_FALSE(buffer.requires_grad());
  buffer[0].copy_(w);
  EXPECT_TRUE(buffer.requires_grad());
  EXPECT_FALSE(buffer.is_leaf());
  EXPECT_TRUE(before.requires_grad());  // a view of it made before follows
  (buffer * 5).sum().backward();
  EXPECT_VALUES(w.grad(), f32({5, 5}));
}

TEST(InPlaceViews, RowsFilledOneByOne) {
  const auto recurrence = [](Inputs in) {
    const Tensor &x = in[0], &w = in[1];
    Tensor states = zeros({4, 3}, {.dtype = DType::F64});
    Tensor h = x;
    for (int t = 0; t < 4; ++t) {
      h = (h * w).tanh();
      states[t].copy_(h);
    }
    return states;
  };
  EXPECT_TRUE(gradients_match(recurrence, {spread({3}), spread({3}, 0.5, 1.5, 2)}));
}

TEST(InPlaceViews, AssigningToAnElementWritesIt) {
  const Tensor w = leaf({3, 4});
  Tensor x = zeros({2, 2});
  x[0] = w * 2;
  x[{1, Slice(0, 1)}] = 7;
  x[1][1] = true;
  x[1] *= 3;
  x[1] -= f32({14, 2}).tensor();
  EXPECT_VALUES(x.detach(), f32({2, 2}, {6, 8, 7, 1}));
  x.sum().backward();
  EXPECT_VALUES(w.grad(), f32({2, 2}));
  Tensor y = x[0];
  y = ones({2});  // a variable only takes another handle
  EXPECT_VALUES(x.detach(), f32({2, 2}, {6, 8, 7, 1}));
  EXPECT_ERROR(x[0] = ones({3}), ShapeError, "copy_: expected a source that broadcasts to [2], got [3]");
}

TEST(InPlaceViews, ViewsOfViewsReachTheBase) {
  const auto f = [](Inputs in) {
    Tensor y = in[0] * 2;
    Tensor rows = y.slice(0, 1, 4), part = rows.t().slice(0, 0, 4, 2), one = part[1];
    one.mul_(in[1]);
    part.add_(in[1]);
    return concat({y.view(-1), rows.reshape(-1), part.reshape(-1), one});
  };
  EXPECT_TRUE(gradients_match(f, {spread({4, 5}), spread({3}, 1, 2, 5)}));
}

TEST(InPlaceViews, AWriteToTheBaseIsSeenByViewsMadeBefore) {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 2;
  const Tensor view = y.slice(0, 0, 1);
  EXPECT_EQ(view.grad_fn(), "SliceBackward");
  y.mul_(x);
  EXPECT_EQ(view.grad_fn(), "AsStridedBackward");
  EXPECT_VALUES(view.detach(), f32({8}));
  view.sum().backward();
  EXPECT_VALUES(x.grad(), f32({8, 0}));  // of 2 x^2
}

TEST(InPlaceViews, AWriteToAnotherViewIsSeen) {
  const auto f = [](Inputs in) {
    Tensor y = in[0] * 2;
    Tensor left = y.slice(1, 0, 2), right = y.slice(1, 1, 3);  // they share a column
    left.mul_(in[1]);
    right.mul_(in[1]);
    return concat({y, left, right}, 1);
  };
  EXPECT_TRUE(gradients_match(f, {spread({2, 3}), spread({2, 2}, 1, 2, 7)}));
}

TEST(InPlaceViews, EveryInPlaceOpThroughAView) {
  const auto f = [](Inputs in) {
    Tensor y = in[0] * 3;
    y[0].add_(in[1]);
    y[1].sub_(in[1]);
    y[2].div_(in[1]);
    y[3].clamp_(-1.5, 1.5);
    y[4].relu_();
    y.t()[0].mul_(2);
    return y;
  };
  EXPECT_TRUE(gradients_match(f, {spread({5, 4}), spread({4}, 1, 2, 3)}));
}

TEST(InPlaceViews, TheViewItselfAsTheOperand) {
  const Tensor x = leaf({2, 3});
  Tensor y = x + 0.0;
  Tensor view = y.slice(0, 1, 2);
  view.mul_(view);
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({1, 6}));
}

TEST(InPlaceViews, ANeighbourAsTheOperand) {
  const Tensor x = leaf({1, 2, 3});
  Tensor y = x + 0.0;
  y.slice(0, 1, 3).add_(y.slice(0, 0, 2));  // add saves nothing, so this has a gradient
  EXPECT_VALUES(y.detach(), f32({1, 3, 5}));
  y.backward(f32({1, 10, 100}).tensor());
  EXPECT_VALUES(x.grad(), f32({11, 110, 100}));
}

TEST(InPlaceViews, BroadcastOperandsAndOtherDtypes) {
  const Tensor x = leaf({1, 2, 3, 4});
  const Tensor scale = of(DType::F64, {2}).tensor().requires_grad_();
  Tensor y = (x * 1).view(2, 2);
  y[1].mul_(scale);
  y[0].copy_(scale);
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({0, 0, 2, 2}));
  EXPECT_VALUES(scale.grad(), of(DType::F64, {9}));
}

TEST(InPlaceViews, BasesInAnyMemoryOrder) {
  const auto permuted = [](Inputs in) {
    Tensor y = in[0].permute(2, 0, 1).clone();  // keeps the permuted strides
    EXPECT_FALSE(y.is_contiguous());
    y.select(2, 1).mul_(in[1]);
    return y;
  };
  EXPECT_TRUE(gradients_match(permuted, {spread({2, 3, 4}), spread({4, 2}, 1, 2, 3)}));
  const auto with_gaps = [](Inputs in) {
    Tensor base = spread({3, 4}).tensor().slice(1, 1, 4, 2).detach();
    base[1].copy_(in[0]);
    base.t()[0].mul_(in[1]);
    return base;
  };
  EXPECT_TRUE(gradients_match(with_gaps, {spread({2}), spread({3}, 1, 2, 3)}));
}

TEST(InPlaceViews, SecondGradients) {
  const auto f = [](Inputs in) {
    Tensor y = in[0] * in[0];
    Tensor rows = y.slice(0, 0, 2);
    rows.mul_(in[1]);
    y.t()[1].copy_(in[1].select(1, 0).sum() * in[0].select(1, 2));
    return (y * rows.sum()).sin();
  };
  EXPECT_TRUE(second_gradients_match(f, {spread({3, 3}), spread({2, 3}, 0.5, 1.5, 3)}));
}

TEST(InPlaceViews, RetainGraphRunsTwice) {
  const Tensor x = leaf({1, 2}), w = leaf({3});
  Tensor y = x * 2;
  y.slice(0, 0, 1).mul_(w);
  const Tensor z = y.sum();
  z.backward({}, {.retain_graph = true});
  z.backward();
  EXPECT_VALUES(x.grad(), f32({12, 4}));
  EXPECT_VALUES(w.grad(), f32({4}));
  EXPECT_ERROR(z.backward(), AutogradError, "pass {.retain_graph = true}");
}

TEST(InPlaceViews, SavedTensorsAreStillChecked) {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 2;
  const Tensor z = y.square().sum();
  y.slice(0, 0, 1).add_(1.0);
  EXPECT_ERROR(z.backward(), AutogradError, "square: expected the tensor [2]");
  Tensor v = x * 2;
  const Tensor part = v.slice(0, 0, 1);
  const Tensor squared = part.square();
  v.mul_(2);
  EXPECT_ERROR(squared.sum().backward(), AutogradError, "square: expected the tensor [1]");
}

TEST(InPlaceViews, ARetainedGradientIsOfTheNewValue) {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  y.retain_grad();
  Tensor view = y.slice(0, 0, 1);
  view.retain_grad();
  view.mul_(3);
  (y * 5 + view).sum().backward();
  EXPECT_VALUES(y.grad(), f32({7, 5}));
  EXPECT_VALUES(view.grad(), f32({2}));
  EXPECT_VALUES(x.grad(), f32({42, 10}));
}

TEST(InPlaceViews, HooksOfAViewSeeItsNewGradient) {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  Tensor view = y.slice(0, 0, 1);
  view.mul_(3);
  double seen = 0;
  view.register_hook([&](const Tensor& gradient) {
    seen = gradient.item<double>();
    return gradient * 10;
  });
  (view * 7).sum().backward();
  EXPECT_EQ(seen, 7);
  EXPECT_VALUES(x.grad(), f32({420, 0}));
}

TEST(InPlaceViews, ViewsOfLeavesAreRefused) {
  const Tensor x = leaf({1, 2});
  Tensor view = x.slice(0, 0, 1);
  EXPECT_ERROR(view.add_(1.0), AutogradError,
               "add_: expected a tensor that may be written in place, got a view of");
  EXPECT_ERROR(view.fill_(1.0), AutogradError, "use no_grad, or a view of its clone()");
  EXPECT_ERROR(view.set({0}, 1.0), AutogradError, "set: expected");
  no_grad([&] { view.add_(1.0); });
  EXPECT_VALUES(x.detach(), f32({2, 2}));
  x.detach().slice(0, 0, 1).add_(1.0);
  EXPECT_VALUES(x.detach(), f32({3, 2}));
}

TEST(InPlaceViews, ViewsMadeUnderNoGradAreNotPartOfTheHistory) {
  const Tensor x = leaf({1, 2}), w = leaf({5});
  Tensor y = x * 2;
  Tensor view = no_grad([&] { return y.slice(0, 0, 1); });
  EXPECT_FALSE(view.requires_grad());
  EXPECT_ERROR(view.mul_(w), AutogradError, "mul_: expected a view made while gradients were enabled");
  EXPECT_ERROR(view.copy_(w), AutogradError, "clone() it");
  view.add_(1);  // a plain write, as under no_grad
  EXPECT_EQ(y.grad_fn(), "MulBackward");
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 2}));
}

TEST(InPlaceViews, AViewMadeUnderNoGradIsRefusedOnceItsBaseWasWrittenOnTheTape) {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  const Tensor view = no_grad([&] { return y.slice(0, 0, 1); });
  y.mul_(x);
  EXPECT_ERROR(view * x.slice(0, 0, 1), AutogradError,
               "made under no_grad, whose base was written on the tape");
}

TEST(InPlaceViews, DetachedViewsAreBasesOfTheirOwn) {
  const Tensor x = leaf({1, 2}), w = leaf({5});
  Tensor y = x * 2;
  Tensor cut = y.detach();
  cut.slice(0, 0, 1).mul_(w);
  EXPECT_EQ(cut.grad_fn(), "CopySlices");
  EXPECT_EQ(y.grad_fn(), "MulBackward");
  cut.sum().backward();
  EXPECT_VALUES(w.grad(), f32({2}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(InPlaceViews, OverlappingViewsAreRefused) {
  const Tensor x = leaf({1, 2});
  Tensor wide = (x * 2).expand(3, 2);
  EXPECT_ERROR(wide.add_(1.0), ShapeError, "add_: expected distinct elements, got a broadcast tensor");
  EXPECT_ERROR(wide.fill_(1.0), ShapeError, "clone() it first");
  EXPECT_ERROR(wide.copy_(zeros({2})), ShapeError, "clone() it first");
  Tensor base = no_grad([&] { return x.expand(3, 2).detach(); });
  EXPECT_ERROR(base[0].mul_(x), ShapeError, "got one of a broadcast tensor");
}

TEST(InPlaceViews, AnExpandedViewSeesWritesToItsBase) {
  const auto f = [](Inputs in) {
    Tensor y = in[0] * 2;
    const Tensor wide = y.unsqueeze(1).expand(3, 4);
    y.slice(0, 0, 2).mul_(in[1]);
    return wide * wide;
  };
  EXPECT_TRUE(gradients_match(f, {spread({3}), spread({2}, 1, 2, 3)}));
}

TEST(InPlaceViews, IntegerViewsHaveNoHistory) {
  const Tensor w = leaf({3, 4});
  Tensor counts = zeros({2, 2}, {.dtype = DType::I64});
  counts[0].copy_(w);
  EXPECT_FALSE(counts.requires_grad());
  EXPECT_VALUES(counts, i64({2, 2}, {3, 4, 0, 0}));
}

TEST(InPlaceViews, AHundredThousandWritesRunAndDropWithoutRecursion) {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 1;
  Tensor view = y.slice(0, 0, 1);
  for (int i = 0; i < 100000; ++i) view.add_(1.0);
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({1, 1}));
  Tensor dropped = x * 1;
  for (int i = 0; i < 100000; ++i) dropped[0].mul_(1.0);
  dropped = {};
}

TEST(InPlaceViews, ViewsAndBasesThatReferToEachOtherAreFreed) {
  const auto storage = [] {
    const Tensor w = leaf({3, 4});
    Tensor buffer = zeros({3, 2});
    for (int i = 0; i + 1 < 3; ++i) buffer[i + 1].copy_(buffer[i] * w);
    return Ref<Storage>(&buffer.storage());
  }();
  EXPECT_EQ(storage->use_count(), 1u);
}

TEST(InPlaceViews, ThreadsMayShareAStaleView) {
  for (int round = 0; round < 50; ++round) {
    const Tensor x = leaf({1, 2});
    Tensor y = x * 2;
    const Tensor view = y.slice(0, 0, 1);
    y.mul_(3);
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back(
          [&] { right += !view.grad().defined() && (view * 1).requires_grad() && view.item<float>() == 6; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, 4);
    EXPECT_EQ(view.grad_fn(), "AsStridedBackward");
  }
}

TEST(InPlaceViews, RandomProgramsHaveTheGradientsOfDifferences) {
  for (uint64_t seed = 0; seed < 300; ++seed)
    EXPECT_TRUE(gradients_match([seed](Inputs in) { return run_view_program(seed, in[0], in[1]); },
                                {spread({3, 4}), spread({}, 0.5, 1.5, 3)}, 1e-6))
        << "seed " << seed;
}

TEST(InPlaceViews, RandomProgramsHaveSecondGradients) {
  for (uint64_t seed = 0; seed < 40; ++seed)
    EXPECT_TRUE(second_gradients_match([seed](Inputs in) { return run_view_program(seed, in[0], in[1]); },
                                       {spread({3, 4}), spread({}, 0.5, 1.5, 3)}, 1e-5))
        << "seed " << seed;
}

}  // namespace
}  // namespace etch::testing
