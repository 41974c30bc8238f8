// Frozen calls and the tape: what they may write, and how their results take part in later writes.
#include <utility>

#include "tests/jit/contract.h"

namespace etch {
namespace {

using FreezeTape = Contract;

TEST_F(FreezeTape, AWrittenInputMustNotRequireGradients) {
  auto twice = compile([](Tensor x) { x.mul_(2); });
  auto fast = twice.freeze(ones({2}));
  Tensor w = ones({2}).requires_grad_();
  const Tensor a = w * 1;
  expect_part(message<AutogradError>([&] { fast(a); }),
              "input 0: expected a tensor that does not require gradients");
  EXPECT_THROW(fast(w), AutogradError);
  expect_values(w, {1, 1});
  no_grad([&] { fast(w); });
  expect_values(w, {2, 2});
  const Tensor detached = a.detach();
  fast(detached);
  expect_values(detached, {2, 2});
}

TEST_F(FreezeTape, AnInputThatIsOnlyReadMayRequireGradients) {
  auto step = compile([](Tensor x, const Tensor& y) { x.mul_(y); });
  auto fast = step.freeze(ones({2}), ones({2}));
  const Tensor x = ones({2});
  fast(x, tensor({2, 3}).requires_grad_());
  expect_values(x, {2, 3});
}

TEST_F(FreezeTape, AParameterWrittenUnderNoGradIsAnInputAsBefore) {
  auto step = compile([](Tensor weight, const Tensor& x) {
    (x * weight).sum().backward();
    {
      NoGrad guard;
      weight.sub_(weight.grad());
    }
    weight.zero_grad();
  });
  auto fast = step.freeze(ones({2}).requires_grad_(), ones({2}));
  Tensor weight = ones({2}).requires_grad_();
  fast(weight, tensor({2, 3}));
  expect_values(weight, {-1, -2});
}

TEST_F(FreezeTape, WritesThatTheTapeRecordsAreRefused) {
  Tensor w = ones({2}).requires_grad_();
  Tensor state = w * 1;
  auto step = compile([&](const Tensor& x) {
    state.add_(x);
    return x * 2;
  });
  expect_part(message<TraceError>([&] { step.freeze(ones({2})); }),
              "whose tape records a write to a captured tensor");
  auto adding = compile([&](Tensor x) { x.add_(w); });
  expect_part(message<TraceError>([&] { adding.freeze(ones({2})); }),
              "whose tape records a write to input 0");
  NoGrad guard;
  step.freeze(ones({2}))(ones({2}));
}

TEST_F(FreezeTape, ACapturedTensorWrittenOnTheTapeSinceIsRefused) {
  Tensor sum = zeros({2});
  auto step = compile([&](const Tensor& x) { sum.add_(x); });
  auto fast = step.freeze(ones({2}));
  Tensor w = ones({2}).requires_grad_();
  sum.copy_(w * 2);
  expect_part(message<AutogradError>([&] { fast(ones({2})); }), "written on the tape since");
  no_grad([&] { fast(ones({2})); });
  expect_values(sum, {3, 3});
}

TEST_F(FreezeTape, AGradientThatIsAddedToMustStayWhereItIs) {
  Tensor w = ones({3}).requires_grad_();
  auto step = compile([&](const Tensor& x) {
    const Tensor loss = (w * x).sum();
    loss.backward();
    return loss.detach();
  });
  auto fast = step.freeze(ones({3}));  // the first run makes it
  const Tensor grad = w.grad();
  Tensor(grad).zero_();
  fast(tensor({1, 2, 3}));
  fast(tensor({1, 0, 1}));
  expect_values(w.grad(), {2, 2, 4});
  EXPECT_TRUE(w.grad().is_same(grad));
  w.zero_grad();
  expect_part(message<TraceError>([&] { fast(ones({3})); }),
              "expected the .grad of the captured tensor [3] that was there when the function was frozen, "
              "since it adds to it, got none");
  w.set_grad(zeros({3}));
  expect_part(message<TraceError>([&] { fast(ones({3})); }), "got another one");
  expect_values(grad, {2, 2, 4});
  w.set_grad(grad);
  fast(ones({3}));
  expect_values(grad, {3, 3, 5});
}

TEST_F(FreezeTape, AGradientThatIsAddedToAndReplacedIsRefused) {
  Tensor w = ones({2}).requires_grad_();
  Tensor outside = zeros({2});
  auto adding = compile([&](const Tensor& x) {
    w.set_grad(outside);
    (w * x).sum().backward();
    w.zero_grad();
  });
  expect_part(message<TraceError>([&] { adding.freeze(ones({2})); }), "that is replaced later on");
}

TEST_F(FreezeTape, ZeroingGradientsInPlaceIsEagers) {
  struct Model {
    Tensor w = ramp({3}, 0.5, 0.25).requires_grad_();
    Tensor operator()(const Tensor& x) {
      if (w.grad().defined()) Tensor(w.grad()).zero_();
      const Tensor loss = (w * x).square().sum();
      loss.backward();
      NoGrad guard;
      w.sub_(w.grad() * 0.1);
      return loss.detach();
    }
  } frozen, plain;
  auto step = compile([&](const Tensor& x) { return frozen(x); });
  auto fast = step.freeze(ones({3}));
  const int64_t runs = report(step)["calls"];
  eagerly([&] {
    for (int64_t i = 0; i < runs; ++i) plain(ones({3}));
    return 0;
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = ramp({3}, -0.1 * i, 0.2);
    expect_same(fast(x), eagerly([&] { return plain(x); }));
    expect_same(frozen.w, plain.w);
    expect_same(frozen.w.grad(), plain.w.grad());
  }
}

TEST_F(FreezeTape, GradientsAddedUpInsideAStepAreFine) {
  Tensor w = ones({2}).requires_grad_();
  const auto body = [&](const Tensor& x) {
    (w * x).sum().backward();
    (w * w).sum().backward();
    const Tensor grad = w.grad();
    w.zero_grad();
    return grad;
  };
  w.set_grad(ones({2}));  // the first run adds to this one and drops it
  auto fast = compile(body).freeze(ones({2}));
  expect_values(fast(tensor({1, 2})), {3, 4});
}

TEST_F(FreezeTape, AGradientWhereThereWasNoneIsRefused) {
  Tensor w = ones({2}).requires_grad_();
  const auto body = [&](const Tensor& x) {
    (w * x).sum().backward();
    const Tensor grad = w.grad();
    w.zero_grad();
    return grad;
  };
  auto fast = compile(body).freeze(ones({2}));
  const Tensor before = tensor({10, 20});
  w.set_grad(before);
  expect_part(message<TraceError>([&] { fast(ones({2})); }),
              "expected the captured tensor [2] without a .grad, as when the function was frozen");
  EXPECT_TRUE(w.grad().is_same(before));
  w.zero_grad();
  expect_values(fast(tensor({1, 2})), {1, 2});
}

TEST_F(FreezeTape, GradientsOfAnInputAreGivenWhereItHasNone) {
  auto step = compile([](Tensor x) {
    (x * x).sum().backward();
    const Tensor grad = x.grad();
    x.zero_grad();
    return grad;
  });
  auto fast = step.freeze(ones({2}).requires_grad_());
  Tensor x = tensor({1, 2}).requires_grad_();
  expect_values(fast(x), {2, 4});
  x.set_grad(ones({2}));
  expect_part(message<TraceError>([&] { fast(x); }), "expected input 0 [2] without a .grad");
  auto leaving = compile([](const Tensor& of) {
    (of * of).sum().backward();
    return of.grad();
  });
  expect_part(message<TraceError>([&] { leaving.freeze(ones({2}).requires_grad_()); }),
              "that leaves a gradient in the .grad of input 0");
}

TEST_F(FreezeTape, GradientsOfLeavesMadeInsideAreReturned) {
  auto step = compile([](const Tensor& x) {
    Tensor leaf = (x * 2).detach().requires_grad_(), view = x.detach().requires_grad_();
    (leaf * leaf * view).sum().backward();
    (leaf * view).sum().backward();
    return std::pair(leaf.grad() + 0, view.grad());
  });
  auto fast = step.freeze(ones({2}));
  const auto [of_leaf, of_view] = fast(tensor({1, 2}));
  expect_values(of_leaf, {5, 18});  // 2 * 2x * x + x
  expect_values(of_view, {6, 20});  // 4x * x + 2x
}

TEST_F(FreezeTape, AResultMayHoldTheLeafThatTheBodyMade) {
  const Tensor outside = tensor({3, 4});
  auto step = compile([&](const Tensor& x) {
    Tensor leaf = x.detach().requires_grad_(), other = outside.detach().requires_grad_();
    const Tensor loss = (leaf * leaf * other).sum();
    loss.backward();
    return std::tuple(loss, leaf.grad(), other.grad());
  });
  auto fast = step.freeze(ones({2}));
  const auto [loss, of_leaf, of_other] = fast(tensor({1, 2}));
  expect_values(loss, {19});
  expect_values(of_leaf, {6, 16});
  expect_values(of_other, {1, 4});
}

TEST_F(FreezeTape, AGradientSetAsideIsRefused) {
  Tensor w = ones({2}).requires_grad_();
  w.set_grad(tensor({7, 7}));
  auto step = compile([&](const Tensor& x) {
    const Tensor saved = w.grad();
    w.zero_grad();
    (w * x).sum().backward();
    const Tensor grad = w.grad();
    w.set_grad(saved);
    return grad;
  });
  expect_part(message<TraceError>([&] { step.freeze(ones({2})); }), "that is replaced later on");
}

TEST_F(FreezeTape, ExamplesMadeUnderNoGradComeInAnyOrder) {
  const Tensor w = tensor({1, 2, 3, 4}).reshape({2, 2}).requires_grad_();
  const Tensor plain = no_grad([&] { return w.select(0, 0); }), taped = w.select(0, 1);
  auto step = compile([](const Tensor& a, const Tensor& b) { return (a * b).detach(); });
  expect_values(step.freeze(plain, taped)(plain, taped), {3, 8});
  expect_values(step.freeze(taped, plain)(taped, plain), {3, 8});
}

TEST_F(FreezeTape, ExamplesThatAreViewsOfOneAnotherShareTheirHistory) {
  Tensor w = tensor({3, 4}).requires_grad_();
  const auto body = [&](Tensor x, const Tensor& row) {
    x.copy_(w * 2);
    row.sum().backward();
  };
  auto step = compile(body);
  const Tensor x = tensor({1, 2, 5, 6}).reshape({2, 2});
  expect_part(message<TraceError>([&] { step.freeze(x, x.select(0, 1)); }),
              "whose tape records a write to input 0");
  expect_values(w.grad(), {10, 10});  // five runs
  w.zero_grad();
  expect_part(message<TraceError>([&] {
                const Tensor base = tensor({1, 2, 5, 6});
                step.freeze(base.slice(0, 0, 2), base.slice(0, 1, 2));
              }),
              "whose tape records a write to input 0");
  expect_values(w.grad(), {0, 10});
}

TEST_F(FreezeTape, ViewsMadeUnderNoGradStayThat) {
  Tensor w = ones({2}).requires_grad_();
  auto step = compile([&](Tensor x, const Tensor& row) {
    x.copy_(w * 2);
    return row * 2;
  });
  const Tensor x = ones({2, 2}), row = no_grad([&] { return x.select(0, 1); });
  expect_part(message<AutogradError>([&] { step.freeze(x, row); }), "made under no_grad");
}

/// Gradients of w after w * 3 is written to the second result on the tape.
Tensor gradient_of_write(std::pair<Tensor, Tensor> results) {
  Tensor w = ones({2}).requires_grad_();
  results.second.copy_(w * 3);
  ((results.first * results.first).sum() + results.second.sum()).backward();
  return w.grad();
}

template <class Body>
void expect_same_gradient(Body body, const Tensor& example) {
  auto step = compile(body);
  auto fast = step.freeze(example);
  expect_same(gradient_of_write(fast(example.clone())),
              eagerly([&] { return gradient_of_write(body(example.clone())); }));
}

TEST_F(FreezeTape, ResultsThatAreViewsOfOneAnotherShareTheirHistory) {
  expect_same_gradient(
      [](const Tensor& x) {
        const Tensor y = x * 2;
        return std::pair{y, y[0]};
      },
      ones({2, 2}));
  expect_same_gradient(
      [](const Tensor& x) {
        const Tensor y = x * 2;
        return std::pair{y[0], y.view({4}).slice(0, 0, 2)};
      },
      ones({2, 2}));
  expect_same_gradient(
      [](const Tensor& x) {
        const Tensor y = x * 2;
        return std::pair{y, y};
      },
      ones({2}));
}

TEST_F(FreezeTape, ResultsThatAreViewsOfInputsShareTheirHistory) {
  expect_same_gradient([](const Tensor& x) { return std::pair{x * 1, x[0]}; }, ones({2, 2}));
  auto adding = compile([](const Tensor& x) { return std::pair{x + 1, x[0]}; });
  auto fast = adding.freeze(ones({2, 2}));
  const Tensor q = ones({2, 2});
  Tensor w = ones({2}).requires_grad_();
  fast(q).second.copy_(w * 3);
  (q * q).sum().backward();
  expect_values(w.grad(), {18, 18});
}

TEST_F(FreezeTape, ViewsMadeUnderNoGradAreRefusedByTheTape) {
  auto step = compile([](const Tensor& x) {
    NoGrad guard;
    const Tensor y = x * 2;
    return std::pair{y, y[0]};
  });
  auto fast = step.freeze(ones({2, 2}));
  Tensor w = ones({2}).requires_grad_();
  const auto [y, view] = fast(ones({2, 2}));
  expect_part(message<AutogradError>([&, view = view] { Tensor(view).copy_(w); }), "made under no_grad");
}

}  // namespace
}  // namespace etch
