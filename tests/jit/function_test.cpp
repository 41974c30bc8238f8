// Functions with a backward of their own inside traced functions: eager's bits at every call.
#include "eager/function.h"

#include "tests/jit/contract.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

using Tensors = std::vector<Tensor>;

struct ClippedGelu : Function<ClippedGelu> {
  static Tensor forward(FunctionContext& context, const Tensor& x, double limit) {
    context.save_for_backward({x});
    context.data = limit;
    return x.gelu().clamp(-limit, limit);
  }
  static Tensors backward(FunctionContext& context, const Tensors& gradients) {
    const Tensor x = context.saved_tensors()[0];
    const double limit = std::any_cast<double>(context.data);
    return {gradients[0] * (x.abs() <= limit).to(x.dtype()) * x.sigmoid()};
  }
};

TEST(Function, ForwardAndBackwardAreTraced) {
  Tensor w = ramp({3, 4}, -1, 0.2).requires_grad_(), twin = ramp({3, 4}, -1, 0.2).requires_grad_();
  const auto body = [](const Tensor& w, const Tensor& x, double limit) {
    const Tensor y = ClippedGelu::apply(x.matmul(w), limit);
    y.square().sum().backward();
    Tensor gradient = w.grad();
    Tensor(w).zero_grad();
    return std::pair(y.detach(), gradient);
  };
  auto step = compile([&](const Tensor& x, double limit) { return body(w, x, limit); });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = ramp({2, 3}, -0.5 * i, 0.4);
    const double limit = 0.75 + 0.25 * i;  // host data of each call, never frozen
    const auto expected = eagerly([&] { return body(twin, x, limit); });
    const auto got = step(x, limit);
    expect_same(got.first, expected.first);
    expect_same(got.second, expected.second);
  }
  EXPECT_EQ(step.compile_count(), 1) << step.explain();
  EXPECT_EQ(step.compiled_calls(), 4);
}

struct Cube : Function<Cube> {
  static Tensor forward(FunctionContext& context, const Tensor& x) {
    context.save_for_backward({x});
    return x * x * x;
  }
  static Tensors backward(FunctionContext& context, const Tensors& gradients) {
    const Tensor x = context.saved_tensors()[0];
    return {gradients[0] * (x * x * 3)};
  }
};

TEST(Function, SecondGradientsAndRetainedGraphs) {
  auto step = compile([](Tensor x) {
    x.requires_grad_();
    const Tensor y = Cube::apply(x).sum();
    y.backward({}, {.retain_graph = true});
    const Tensor first = x.grad();
    x.zero_grad();
    y.backward({}, {.create_graph = true});
    const Tensor again = x.grad();
    x.zero_grad();
    again.sum().backward();
    return std::tuple(first, again.detach(), x.grad());
  });
  for (int i = 0; i < 4; ++i) {
    const double v = 1 + i;
    const auto [first, again, second] = step(tensor({v, -2}));
    expect_values(first, {3 * v * v, 12});
    expect_values(again, {3 * v * v, 12});
    expect_values(second, {6 * v, -12});
  }
  EXPECT_EQ(step.compile_count(), 1);
}

bool wrong = false;
struct SometimesWrong : Function<SometimesWrong> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 2; }
  static Tensors backward(FunctionContext&, const Tensors& g) {
    return wrong ? Tensors{} : Tensors{g[0] * 2};
  }
};

TEST(Function, AnErrorInBackwardLeavesTheNextCallFine) {
  Tensor w = tensor({1, 2}).requires_grad_();
  auto step = compile([&] {
    w.zero_grad();
    SometimesWrong::apply(w).sum().backward();
  });
  for (int i = 0; i < 6; ++i) {
    wrong = i % 3 == 1;
    if (wrong) {
      EXPECT_ERROR(step(), AutogradError, "SometimesWrong: expected 1 gradients from backward");
    } else {
      step();
      expect_values(w.grad(), {2, 2});
    }
  }
  wrong = false;
}

}  // namespace
}  // namespace etch
