// The tape's rules: accumulation, modes, retention, hooks, and what it refuses.
#include "eager/tape.h"

#include <gtest/gtest.h>

#include "tests/runtime/expect_error.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

Tensor leaf(std::vector<double> values, DType dtype = DType::F32) {
  return of(dtype, std::move(values)).tensor().requires_grad_();
}

TEST(Tape, GradientsAddUpInLeaves) {
  const Tensor x = leaf({1, 2});
  (x * 3).sum().backward();
  EXPECT_VALUES(x.grad(), f32({3, 3}));
  (x * x).sum().backward();
  EXPECT_VALUES(x.grad(), f32({5, 7}));
}

TEST(Tape, ZeroGradForgets) {
  Tensor x = leaf({1, 2});
  (x * 3).sum().backward();
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  (x * 2).sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 2}));
}

TEST(Tape, LeavesAndNames) {
  const Tensor x = leaf({1});
  EXPECT_TRUE(x.is_leaf());
  EXPECT_EQ(x.grad_fn(), "");
  const Tensor y = x * 2;
  EXPECT_FALSE(y.is_leaf());
  EXPECT_TRUE(y.requires_grad());
  EXPECT_EQ(y.grad_fn(), "MulBackward");
  EXPECT_EQ(y.sigmoid().grad_fn(), "SigmoidBackward");
  EXPECT_EQ((y > 0).grad_fn(), "");
  EXPECT_FALSE((y > 0).requires_grad());
}

TEST(Tape, NoGradRecordsNothingAndNests) {
  const Tensor x = leaf({1, 2});
  const Tensor y = no_grad([&] {
    NoGrad inner;
    return x * 2;
  });
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(y.is_leaf());
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE((x * 2).requires_grad());
}

TEST(Tape, DetachCutsAndSharesStorage) {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2, cut = y.detach();
  EXPECT_FALSE(cut.requires_grad());
  EXPECT_EQ(&cut.storage(), &y.storage());
  (cut * 5 + y).sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 2}));
}

TEST(Tape, DetachedOutputOfOneNetworkTrainsTheOther) {
  const Tensor generator = leaf({2}), discriminator = leaf({3});
  const Tensor fake = generator * 4;
  (discriminator * fake.detach()).sum().backward();
  EXPECT_FALSE(generator.grad().defined());
  EXPECT_VALUES(discriminator.grad(), f32({8}));
  (discriminator.detach() * fake).sum().backward();
  EXPECT_VALUES(generator.grad(), f32({12}));
  EXPECT_VALUES(discriminator.grad(), f32({8}));
}

TEST(Tape, SecondBackwardNeedsRetainGraph) {
  const Tensor x = leaf({3});
  const Tensor y = (x * x).sum();
  y.backward({}, {.retain_graph = true});
  y.backward();
  EXPECT_VALUES(x.grad(), f32({12}));
  EXPECT_ERROR(y.backward(), AutogradError, "pass {.retain_graph = true}");
}

TEST(Tape, SharedPartOfAFreedTapeIsRefused) {
  const Tensor x = leaf({3});
  const Tensor shared = x * x;
  const Tensor a = shared.sum(), b = (shared * 2).sum();
  a.backward();
  EXPECT_ERROR(b.backward(), AutogradError, "MulBackward: expected saved tensors");
}

TEST(Tape, RetainGradKeepsANonLeafsGradient) {
  const Tensor x = leaf({3});
  Tensor y = x * x;
  y.retain_grad();
  (y * 5).sum().backward();
  EXPECT_VALUES(y.grad(), f32({5}));
  EXPECT_VALUES(x.grad(), f32({30}));
}

TEST(Tape, RetainGradOfADeadTensorIsHarmless) {
  const Tensor x = leaf({3});
  Tensor z;
  {
    Tensor y = x * x;
    y.retain_grad();
    z = y * 5;
  }
  z.sum().backward();
  EXPECT_VALUES(x.grad(), f32({30}));
}

TEST(Tape, RetainedGradientIsNotOverwrittenByLaterAccumulation) {
  const Tensor x = leaf({3, 4});
  Tensor y = x + 0.0;
  y.retain_grad();
  y.sum().backward();
  Tensor kept = y.grad();
  (x * 2).sum().backward();
  EXPECT_VALUES(x.grad(), f32({3, 3}));
  EXPECT_VALUES(kept, f32({1, 1}));
}

TEST(Tape, HooksSeeAndReplaceGradients) {
  Tensor x = leaf({3});
  Tensor y = x * 2;
  double seen = 0;
  y.register_hook([&](const Tensor& gradient) {
    seen = gradient.item<double>();
    return gradient * 10;
  });
  x.register_hook([&](const Tensor& gradient) { return gradient + 1; });
  (y * 7).sum().backward();
  EXPECT_EQ(seen, 7);
  EXPECT_VALUES(x.grad(), f32({141}));
}

TEST(Tape, AHookThatReturnsNothingOnlyLooks) {
  Tensor x = leaf({3});
  int calls = 0;
  x.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  (x * 2).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_VALUES(x.grad(), f32({2}));
}

TEST(Tape, AHookReturnsTheGradientsSizes) {
  for (const Dims& sizes : {Dims{3}, Dims{1}}) {
    const std::string text =
        "hook: expected a gradient of sizes [4], got " + etch::to_string(sizes) + "; return one like";
    const auto wrong = [&](const Tensor&) { return ones(sizes); };
    Tensor w = leaf({1, 2, 3, 4});
    Tensor y = w * 3;
    y.register_hook(wrong);
    EXPECT_ERROR(y.sum().backward(), ShapeError, text);
    EXPECT_FALSE(w.grad().defined());
    w.register_hook(wrong);
    EXPECT_ERROR((w * 3).sum().backward(), ShapeError, text);
    EXPECT_FALSE(w.grad().defined());
  }
}

TEST(Tape, WhatAHookReturnsTakesTheGradientsDtype) {
  const auto wider = [](const Tensor& gradient) { return gradient.to(DType::F64) * 2; };
  Tensor w = leaf({1, 2});
  Tensor y = w * 3;
  DType seen = DType::F64;
  y.register_hook(wider);
  y.register_hook([&](const Tensor& gradient) {
    seen = gradient.dtype();
    return Tensor();
  });
  w.register_hook(wider);
  y.sum().backward();
  EXPECT_EQ(seen, DType::F32);
  EXPECT_VALUES(w.grad(), f32({12, 12}));
}

TEST(Tape, AHookGoesWhenBackwardFreesItsNode) {
  const Tensor w = leaf({1, 2});
  std::weak_ptr<int> watch;
  Tensor sum;
  {
    const auto token = std::make_shared<int>(0);
    watch = token;
    Tensor y = w * 2;
    y.register_hook([y, token](const Tensor&) {
      ++*token;
      return Tensor();
    });
    sum = y.sum();
  }
  sum.backward({}, {.retain_graph = true});
  ASSERT_FALSE(watch.expired());
  EXPECT_EQ(*watch.lock(), 1);
  sum.backward();
  EXPECT_TRUE(watch.expired());
}

TEST(Tape, AHookMayFreeItsOwnNode) {
  const Tensor w = leaf({1, 2});
  Tensor y = w * 2;
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = token;
  bool inside = false, alive = false;
  y.register_hook([&, token = std::move(token)](const Tensor& gradient) {
    if (!std::exchange(inside, true)) {
      bool& result = alive;
      const std::weak_ptr<int>& mine = watch;
      y.backward(gradient);
      result = !mine.expired();
    }
    return Tensor();
  });
  EXPECT_ERROR(y.sum().backward(), AutogradError, "an earlier backward() freed");
  EXPECT_TRUE(alive);
  EXPECT_VALUES(w.grad(), f32({2, 2}));
}

TEST(Tape, LeafGradientsNeverShareMemory) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  (a + b).backward(f32({1, 1}).tensor());
  Tensor grad_a = a.grad();
  grad_a.add_(5.0);
  EXPECT_VALUES(a.grad(), f32({6, 6}));
  EXPECT_VALUES(b.grad(), f32({1, 1}));
}

TEST(Tape, TheGivenGradientIsNotTakenOver) {
  const Tensor x = leaf({1, 2});
  const Tensor given = f32({3, 4}).tensor();
  (x + 0.0).backward(given);
  Tensor grad = x.grad();
  grad.mul_(2.0);
  EXPECT_VALUES(given, f32({3, 4}));
  x.backward(given);
  EXPECT_VALUES(x.grad(), f32({9, 12}));
  EXPECT_VALUES(given, f32({3, 4}));
}

TEST(Tape, BackwardOfALeafIsItsGradient) {
  const Tensor x = leaf({2});
  x.backward();
  EXPECT_VALUES(x.grad(), f32({1}));
}

TEST(Tape, DiamondsRunEachNodeOnce) {
  const Tensor x = leaf({2});
  Tensor y = x;
  // 2^40 paths, 40 diamonds.
  for (int i = 0; i < 40; ++i) y = y * 0.5 + y * 0.5;
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({1}));
}

TEST(Tape, SameTensorTwiceInOneOp) {
  const Tensor x = leaf({3, -2});
  (x * x).sum().backward();
  EXPECT_VALUES(x.grad(), f32({6, -4}));
  const Tensor y = leaf({5});
  (y - y).sum().backward();
  EXPECT_VALUES(y.grad(), f32({0}));
}

TEST(Tape, AHundredThousandOpsRunAndDropWithoutRecursion) {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = y * 1.0;
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({1}));
  y = {};
  Tensor dropped = x;
  for (int i = 0; i < 100000; ++i) dropped = dropped.tanh() + dropped;
  dropped = {};
  EXPECT_VALUES(x.grad(), f32({1}));
}

TEST(Tape, AHundredThousandInPlaceOpsToo) {
  const Tensor x = leaf({1});
  Tensor y = x * 1.0;
  for (int i = 0; i < 100000; ++i) y.add_(1.0);
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({1}));
}

TEST(Tape, UnusedOutputsAndLeavesGetNothing) {
  const Tensor x = leaf({1, 2}), unused = leaf({1});
  x.slice(0, 0, 1).sum().backward();
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_VALUES(x.grad(), f32({1, 0}));
}

TEST(Tape, BackwardNeedsAScalarOrAGradient) {
  const Tensor x = leaf({1, 2});
  EXPECT_ERROR((x * 2).backward(), ShapeError,
               "backward: expected a one-element tensor or a gradient, got [2]");
  EXPECT_ERROR((x * 2).backward(f32({1, 2, 3}).tensor()), ShapeError,
               "expected a gradient of sizes [2], got [3]");
}

TEST(Tape, RetainingAndHooksNeedGradients) {
  Tensor plain = f32({1, 2, 3}).tensor();
  EXPECT_ERROR(
      plain.retain_grad(), AutogradError,
      "retain_grad: expected a tensor that requires gradients, got one of sizes [3] that does not; call "
      "requires_grad_()");
  EXPECT_ERROR(plain.register_hook([](const Tensor& g) { return g; }), AutogradError,
               "register_hook: expected a tensor that requires gradients, got one of sizes [3]");
  EXPECT_ERROR(leaf({1}).register_hook({}), ValueError, "register_hook: expected a function");
}

TEST(Tape, BackwardNeedsATape) {
  EXPECT_ERROR(f32({1}).tensor().backward(), AutogradError, "got one without a tape");
}

TEST(Tape, IntegersCannotRequireGradients) {
  EXPECT_ERROR(i64({1}).tensor().requires_grad_(), DTypeError,
               "requires_grad_: expected a floating dtype, got i64");
}

TEST(Tape, ANonLeafCannotStopRequiringGradients) {
  const Tensor x = leaf({1});
  Tensor y = x * 2;
  EXPECT_ERROR(y.requires_grad_(false), AutogradError, "detach");
}

TEST(Tape, ExpandedGradientOfSumIsDenseInTheLeaf) {
  const Tensor x = spread({3, 4}).tensor().requires_grad_();
  x.sum().backward();
  EXPECT_TRUE(x.grad().is_contiguous());
  Tensor grad = x.grad();
  grad.add_(1.0);
  EXPECT_VALUES(x.grad(), of(DType::F64, {3, 4}, std::vector<double>(12, 2)));
}

TEST(Tape, GradientsComeInTheLeafsDtype) {
  const Tensor a = leaf({1, 2}, DType::F32), b = leaf({3, 4}, DType::F64), c = leaf({1, 1}, DType::BF16);
  const Tensor y = a * b + c;
  EXPECT_EQ(y.dtype(), DType::F64);
  y.sum().backward();
  EXPECT_VALUES(a.grad(), of(DType::F32, {3, 4}));
  EXPECT_VALUES(b.grad(), of(DType::F64, {1, 2}));
  EXPECT_VALUES(c.grad(), of(DType::BF16, {1, 1}));
}

TEST(Tape, CastsCarryGradientsBackToTheirDtype) {
  const Tensor x = leaf({1, 2}, DType::F32);
  (x.to(DType::F64) * 3).to(DType::F16).sum().backward();
  EXPECT_VALUES(x.grad(), f32({3, 3}));
}

TEST(Tape, MixedDtypesUnderBroadcasting) {
  const Tensor a = leaf({2}, DType::F32), b = spread({3, 2}).tensor().requires_grad_();
  (a * b).sum().backward();
  EXPECT_EQ(a.grad().dtype(), DType::F32);
  EXPECT_EQ(b.grad().dtype(), DType::F64);
  EXPECT_VALUES(b.grad(), of(DType::F64, {3, 2}, std::vector<double>(6, 2)));
}

TEST(Tape, CreateGraphGivesSecondGradients) {
  Tensor x = leaf({2}, DType::F64);
  x.pow(4).sum().backward({}, {.create_graph = true});
  const Tensor first = x.grad();
  EXPECT_VALUES(first.detach(), of(DType::F64, {32}));
  x.zero_grad();
  first.sum().backward();
  EXPECT_VALUES(x.grad(), of(DType::F64, {48}));
}

TEST(Tape, BackwardInsideNoGradStillWorks) {
  const Tensor x = leaf({2});
  const Tensor y = (x * x).sum();
  no_grad([&] { y.backward(); });
  EXPECT_VALUES(x.grad(), f32({4}));
}

TEST(Tape, SavedTensorsAreReleasedByBackward) {
  const Tensor x = leaf({1});
  Tensor y = x.exp();
  const uint32_t before = y.storage().use_count();
  const Tensor z = y.sum();
  z.backward();
  // The node's own saved output is gone, the tensor itself is not.
  EXPECT_LT(y.storage().use_count(), before);
}

// --- Writing in place

TEST(TapeInPlace, LeavesThatRequireGradientsAreRefused) {
  Tensor x = leaf({1, 2});
  EXPECT_ERROR(x.add_(1.0), AutogradError,
               "add_: expected a tensor that may be written in place, got a leaf");
  EXPECT_ERROR(x.zero_(), AutogradError, "fill_");
  EXPECT_ERROR(x.copy_(f32({1, 1}).tensor()), AutogradError, "copy_");
  EXPECT_ERROR(x.set({0}, 1.0), AutogradError, "set");
  EXPECT_ERROR(x.mutable_data<float>(), AutogradError, "mutable_data");
  no_grad([&] { x.add_(1.0); });
  EXPECT_VALUES(x.detach(), f32({2, 3}));
}

TEST(TapeInPlace, SavedTensorsNoticeWritesThroughRawPointers) {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 2;
  const Tensor z = y.square();
  y.mutable_data<float>()[0] = 7;
  EXPECT_EQ(y.grad_fn(), "MulBackward");  // which gradients go on to flow through
  EXPECT_ERROR(z.sum().backward(), AutogradError,
               "square: expected the tensor [2] saved for backward at version 0, got version 1: the host");
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 2}));
}

TEST(TapeInPlace, NonLeavesTakeTheRightGradient) {
  const Tensor x = leaf({2, 3}), w = leaf({5, 7});
  Tensor y = x * 2;
  y.mul_(w);
  y.add_(1.0);
  EXPECT_VALUES(y.detach(), f32({21, 43}));
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({10, 14}));
  EXPECT_VALUES(w.grad(), f32({4, 6}));
}

TEST(TapeInPlace, APlainTensorBecomesANonLeaf) {
  const Tensor w = leaf({5, 7});
  Tensor y = f32({1, 2}).tensor();
  y.mul_(w);
  EXPECT_EQ(y.grad_fn(), "MulBackward");
  y.add_(w);
  y.sum().backward();
  EXPECT_VALUES(w.grad(), f32({2, 3}));
}

TEST(TapeInPlace, ReluAndClampInPlace) {
  const Tensor x = leaf({2, -3, 0.5});
  Tensor y = x * 2;
  y.relu_();
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({2, 0, 2}));
  const Tensor z = leaf({2, -3, 0.5});
  Tensor c = z + 0.0;
  c.copy_(z * 4);
  c.sum().backward();
  EXPECT_VALUES(z.grad(), f32({4, 4, 4}));
}

TEST(TapeInPlace, FillForgetsTheTape) {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 2;
  y.fill_(1);
  EXPECT_FALSE(y.requires_grad());
}

TEST(TapeInPlace, AnOverwrittenSavedTensorNamesBothOps) {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 2;
  const Tensor z = y.square().sum();
  y.add_(1.0);
  EXPECT_ERROR(
      z.backward(), AutogradError,
      "square: expected the tensor [2] saved for backward at version 0, got version 1: add overwrote it in "
      "place (a write through a view counts for the whole tensor); clone it before");
}

TEST(TapeInPlace, ASavedOutputIsCheckedToo) {
  const Tensor x = leaf({2, 3});
  Tensor y = x.exp();
  y.mul_(2.0);
  EXPECT_ERROR(y.sum().backward(), AutogradError, "exp: expected the tensor [2]");
}

TEST(TapeInPlace, WritesThroughAViewAreSeen) {
  const Tensor x = leaf({2, 3});
  Tensor data = f32({4, 5}).tensor();
  const Tensor z = (x * data).sum();
  data.slice(0, 0, 1).fill_(9);
  EXPECT_ERROR(z.backward(), AutogradError, "mul: expected the tensor [2]");
}

TEST(TapeInPlace, HostWritesAreSeen) {
  const Tensor x = leaf({2, 3});
  Tensor data = f32({4, 5}).tensor();
  const Tensor z = (x * data).sum();
  data.set({0}, 9);
  EXPECT_ERROR(z.backward(), AutogradError, "the host");
}

TEST(TapeInPlace, WritesThatDoNotMatterAreFine) {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 2;
  const Tensor z = (y + 1).sum();  // add saves nothing
  y.mul_(5.0);
  z.backward();
  EXPECT_VALUES(x.grad(), f32({2, 2}));
}

TEST(TapeInPlace, AViewOfAParameterStepsWithIt) {
  Tensor x = leaf({2, 3});
  const Tensor view = x.slice(0, 0, 1);
  no_grad([&] { x.mul_(2.0); });
  (view * view).sum().backward();
  EXPECT_VALUES(x.grad(), f32({8, 0}));
}

TEST(TapeInPlace, OtherDtypesAreConvertedOnTheWay) {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 2;
  y.mul_(of(DType::F64, {3, 4}).tensor());
  EXPECT_VALUES(y.detach(), f32({12, 24}));
  y.sum().backward();
  EXPECT_VALUES(x.grad(), f32({6, 8}));
}

}  // namespace
}  // namespace etch::testing
