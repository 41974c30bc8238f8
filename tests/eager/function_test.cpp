// Functions with a backward of their own: gradients, what may be saved, outputs of all kinds, and errors.
#include "eager/function.h"

#include <gtest/gtest.h>

#include "tests/runtime/expect_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/values.h"

namespace etch::testing {
namespace {

using Tensors = std::vector<Tensor>;

Tensor leaf(std::vector<double> values, DType dtype = DType::F32) {
  return of(dtype, std::move(values)).tensor().requires_grad_();
}

struct ScaledCube : etch::Function<ScaledCube> {
  static Tensor forward(FunctionContext& context, const Tensor& x, double scale) {
    EXPECT_FALSE(grad_enabled());
    context.save_for_backward({x});
    context.data = scale;
    return x * x * x * scale;
  }
  static Tensors backward(FunctionContext& context, const Tensors& gradients) {
    const Tensor x = context.saved_tensors()[0];
    return {gradients[0] * (x * x) * (3 * std::any_cast<double>(context.data))};
  }
};

TEST(Function, TheGradientIsWhatBackwardReturns) {
  const Tensor x = leaf({1, 2});
  const Tensor y = ScaledCube::apply(x, 0.5);
  EXPECT_EQ(y.grad_fn(), "ScaledCubeBackward");
  EXPECT_VALUES(y.detach(), f32({0.5, 4}));
  (y * 10).sum().backward();
  EXPECT_VALUES(x.grad(), f32({15, 60}));
}

TEST(Function, GradientsOfFirstAndSecondOrder) {
  const auto f = [](std::span<const Tensor> in) { return ScaledCube::apply(in[0] * 2, 0.5); };
  EXPECT_TRUE(gradients_match(f, {spread({3, 2})}));
  EXPECT_TRUE(second_gradients_match(f, {spread({3, 2})}));
}

TEST(Function, OffTheTapeNothingIsRecorded) {
  EXPECT_TRUE(ScaledCube::apply(f32({1}).tensor(), 1.0).is_leaf());
  const Tensor x = leaf({1});
  EXPECT_FALSE(no_grad([&] { return ScaledCube::apply(x, 1.0); }).requires_grad());
}

TEST(Function, RetainGraphRunsBackwardTwice) {
  const Tensor x = leaf({2});
  const Tensor y = ScaledCube::apply(x, 1.0);
  y.backward({}, {.retain_graph = true});
  y.backward();
  EXPECT_VALUES(x.grad(), f32({24}));
  EXPECT_ERROR(y.backward(), AutogradError, "ScaledCubeBackward: expected saved tensors, got a tape that");
}

TEST(Function, OverwrittenSavedTensorsNameTheFunction) {
  const Tensor x = leaf({2});
  Tensor a = x * 1;
  const Tensor y = ScaledCube::apply(a, 1.0);
  a.add_(1);
  EXPECT_ERROR(y.backward(), AutogradError, "ScaledCube: expected the tensor [1] saved for backward");
}

// Saves its output, as exp does.
struct Exp : etch::Function<Exp> {
  static Tensor forward(FunctionContext& context, const Tensor& x) {
    const Tensor y = x.exp();
    context.save_for_backward({y});
    return y;
  }
  static Tensors backward(FunctionContext& context, const Tensors& gradients) {
    return {gradients[0] * context.saved_tensors()[0]};
  }
};

TEST(Function, ASavedOutputIsDifferentiableAndFreed) {
  const auto f = [](std::span<const Tensor> in) { return Exp::apply(in[0]); };
  EXPECT_TRUE(gradients_match(f, {spread({3})}));
  EXPECT_TRUE(second_gradients_match(f, {spread({3})}));
  const Ref<Storage> storage(&Exp::apply(leaf({1})).storage());
  EXPECT_EQ(storage->use_count(), 1u);
}

// The first slot has the gradient 2 g, the second none.
struct TwiceTheFirst : etch::Function<TwiceTheFirst> {
  static Tensor forward(FunctionContext&, const Tensor& a, const Tensor& b) { return a * 2 + b; }
  static Tensors backward(FunctionContext&, const Tensors& gradients) { return {gradients[0] * 2, {}}; }
};

TEST(Function, OneTensorInTwoSlotsGetsTheSum) {
  const Tensor w = leaf({1, 3});
  (TwiceTheFirst::apply(w, w) + w).sum().backward();
  EXPECT_VALUES(w.grad(), f32({3, 3}));
}

// Two outputs in a pair; the second one is integer, the third output of Extremes not differentiable.
struct Extremes : etch::Function<Extremes> {
  static std::tuple<Tensor, Tensor, Tensor> forward(FunctionContext& context, const Tensors& parts) {
    const Tensor x = concat(parts), top = x.amax(), bottom = x.amin();
    const Tensor at = x.argmax();
    context.save_for_backward({(x == top).to(x.dtype())});
    context.data = parts[0].numel();
    context.mark_non_differentiable({bottom});
    return {top, at, bottom};
  }
  static Tensors backward(FunctionContext& context, const Tensors& gradients) {
    const Tensor g = context.saved_tensors()[0] * gradients[0];
    const int64_t split = std::any_cast<int64_t>(context.data);
    return {context.needs_input_grad(0) ? g.slice(0, 0, split) : Tensor(), g.slice(0, split, g.numel())};
  }
};

TEST(Function, ListsInAndTuplesOut) {
  const Tensor a = leaf({1, 5}), b = leaf({4});
  const auto [top, at, bottom] = Extremes::apply(Tensors{a, b});
  EXPECT_TRUE(top.requires_grad());
  EXPECT_FALSE(at.requires_grad());
  EXPECT_FALSE(bottom.requires_grad());
  EXPECT_EQ(at.item<int64_t>(), 1);
  (top * 3).backward();
  EXPECT_VALUES(a.grad(), f32({0, 3}));
  EXPECT_VALUES(b.grad(), f32({0}));
}

struct SumAndDifference : etch::Function<SumAndDifference> {
  static std::pair<Tensor, Tensor> forward(FunctionContext& context, const Tensor& a, const Tensor& b,
                                           bool materialize) {
    context.set_materialize_grads(materialize);
    return {a + b, a - b};
  }
  static Tensors backward(FunctionContext&, const Tensors& g) {
    if (!g[1].defined()) return {g[0] * 100, g[0] * 100};
    return {g[0] + g[1], g[0] - g[1]};
  }
};

TEST(Function, OutputsWithoutAGradientGiveZerosOrNothing) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  SumAndDifference::apply(a, b, true).first.sum().backward();
  EXPECT_VALUES(a.grad(), f32({1, 1}));
  SumAndDifference::apply(a, b, false).first.sum().backward();
  EXPECT_VALUES(b.grad(), f32({101, 101}));
}

struct Double : etch::Function<Double> {
  static Tensor forward(FunctionContext& context, Tensor x) {
    x.mul_(2);
    context.mark_dirty({x});
    return x;
  }
  static Tensors backward(FunctionContext&, const Tensors& gradients) { return {gradients[0] * 2}; }
};

TEST(Function, ADirtyInputTakesTheNewHistory) {
  const Tensor x = leaf({1, 2});
  Tensor y = x + 0.0;
  const Tensor view = y.slice(0, 0, 1);
  EXPECT_TRUE(Double::apply(y).is_same(y));
  EXPECT_EQ(y.grad_fn(), "DoubleBackward");
  (y.sum() + view).sum().backward();
  EXPECT_VALUES(x.grad(), f32({4, 2}));
  EXPECT_ERROR(Double::apply(leaf({1})), AutogradError,
               "Double: expected a tensor that may be written in place");
  Tensor part = (x * 1).slice(0, 0, 1);
  EXPECT_ERROR(Double::apply(part), AutogradError, "Double: expected an input that owns its elements");
}

struct Identity : etch::Function<Identity> {
  static Tensors forward(FunctionContext&, const Tensor& x) { return {x, x}; }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0] + g[1] * 10}; }
};

TEST(Function, AnInputReturnedAsItIsBecomesAnother) {
  const Tensor x = leaf({1, 2});
  const Tensors both = Identity::apply(x);
  EXPECT_TRUE(x.is_leaf());
  EXPECT_EQ(&both[0].storage(), &x.storage());
  (both[0] + both[1]).sum().backward();
  EXPECT_VALUES(x.grad(), f32({11, 11}));
  Tensor out = Identity::apply(x)[0];
  EXPECT_ERROR(out.add_(1.0), AutogradError, "or by a custom function");
}

// Answers with what a test puts here.
Tensors answer;
struct Custom : etch::Function<Custom> {
  static Tensor forward(FunctionContext&, const Tensor& a, const Tensor& b) { return a + b; }
  static Tensors backward(FunctionContext&, const Tensors&) { return answer; }
};

TEST(Function, WrongGradientsNameTheFunction) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  answer = {ones({2})};
  EXPECT_ERROR(Custom::apply(a, b).sum().backward(), AutogradError,
               "Custom: expected 2 gradients from backward, one a tensor argument of forward, got 1");
  answer = {ones({2}), ones({2}), {}};
  EXPECT_ERROR(Custom::apply(a, b).sum().backward(), AutogradError, "got 3");
  answer = {ones({2}), ones({3})};
  EXPECT_ERROR(Custom::apply(a, b).sum().backward(), ShapeError,
               "Custom: expected a gradient of sizes [2] for tensor argument 1, got [3]");
  answer = {};
}

TEST(Function, GradientsAreConvertedToTheArgumentsDtype) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4}, DType::F64);
  answer = {of(DType::F64, {5, 6}).tensor(), f32({7, 8}).tensor()};
  Custom::apply(a, b).sum().backward();
  EXPECT_VALUES(a.grad(), f32({5, 6}));
  EXPECT_VALUES(b.grad(), of(DType::F64, {7, 8}));
  answer = {};
}

struct SavesTooEarly : etch::Function<SavesTooEarly> {
  static Tensor forward(FunctionContext& context, const Tensor& x) {
    return context.saved_tensors().at(0) * x;
  }
  static Tensors backward(FunctionContext&, const Tensors& g) { return g; }
};

TEST(Function, SavedTensorsAreForBackward) {
  EXPECT_ERROR(SavesTooEarly::apply(leaf({1})), AutogradError,
               "saved_tensors: expected a call from backward");
}

}  // namespace
}  // namespace etch::testing
