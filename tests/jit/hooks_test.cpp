// Hooks on gradients, retained gradients and files inside traced functions: host code in the middle of a
// backward.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "eager/function.h"
#include "nn/layers.h"
#include "tests/jit/contract.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

using Hooks = Contract;

// The gradient of w after `body`, which is traced on one side only, at six calls.
template <class Body>
int expect_eagers_gradient(Body body) {
  Tensor w = ramp({3}, 0.5, 0.25).requires_grad_(), twin = ramp({3}, 0.5, 0.25).requires_grad_();
  auto step = compile([&](int i) {
    w.zero_grad();
    return body(w, i);
  });
  for (int i = 0; i < 6; ++i) {
    const Tensor expected = eagerly([&] {
      twin.zero_grad();
      return body(twin, i);
    });
    expect_same(step(i), expected);
    expect_same(w.grad(), twin.grad());
  }
  return step.compile_count();
}

TEST_F(Hooks, ReplaceGradientsWithValuesOfEachCall) {
  const int compiles = expect_eagers_gradient([](const Tensor& w, int i) {
    Tensor y = w * w;
    y.register_hook([i](const Tensor& gradient) { return gradient * (i + 0.5); });
    const Tensor loss = (y * 3).sum();
    loss.backward();
    return loss.detach();
  });
  EXPECT_EQ(compiles, 1);
}

TEST_F(Hooks, OfLeavesRunAtEveryBackward) {
  int runs = 0;
  Tensor w = tensor({1, 2}).requires_grad_();
  w.register_hook([&](const Tensor& gradient) {
    ++runs;
    return gradient.clamp(-3, 3);
  });
  auto step = compile([&](double scale) {
    w.zero_grad();
    (w * w * scale).sum().backward();
  });
  for (int i = 1; i < 6; ++i) {
    step(i);
    expect_values(w.grad(), {std::min(2.0 * i, 3.0), 3});
    EXPECT_EQ(runs, i);
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Hooks, MayReadTheGradient) {
  std::vector<float> seen;
  const int compiles = expect_eagers_gradient([&](const Tensor& w, int i) {
    Tensor y = w * (1 + i);
    y.register_hook([&](const Tensor& gradient) {
      seen.push_back(gradient.sum().item<float>());
      return seen.back() > 8 ? gradient * 0.5 : Tensor();  // a branch on the gradient
    });
    const Tensor loss = (y * y).sum();
    loss.backward();
    return loss.detach();
  });
  EXPECT_EQ(seen.size(), 12u);
  for (size_t i = 0; i < seen.size(); i += 2) EXPECT_EQ(seen[i], seen[i + 1]);
  // Up to the read; then with the gradient halved. It was small in one call only.
  EXPECT_EQ(compiles, 2);
}

TEST_F(Hooks, MayCallAnotherTracedFunction) {
  auto inner = compile([](const Tensor& gradient) { return gradient.tanh() * 2; });
  const int compiles = expect_eagers_gradient([&](const Tensor& w, int) {
    Tensor y = w * w;
    y.register_hook([&](const Tensor& gradient) { return inner(gradient); });
    y.sum().backward();
    return y.detach();
  });
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(inner.compile_count(), 0);  // part of the outer trace, or eager
}

TEST_F(Hooks, ReturnTheGradientsSizesAndDtype) {
  const int compiles = expect_eagers_gradient([](const Tensor& w, int i) {
    Tensor y = w * w;
    y.register_hook([i](const Tensor& gradient) { return gradient.to(DType::F64) * (i + 0.5); });
    y.sum().backward();
    return y.detach();
  });
  EXPECT_EQ(compiles, 1);
  Tensor w = tensor({1, 2}).requires_grad_();
  auto step = compile([&] {
    Tensor y = w * w;
    y.register_hook([](const Tensor&) { return ones({3}); });
    y.sum().backward();
  });
  for (int i = 0; i < 3; ++i)
    EXPECT_ERROR(step(), ShapeError, "hook: expected a gradient of sizes [2], got [3]");
}

TEST_F(Hooks, MayThrow) {
  Tensor w = tensor({1, 2}).requires_grad_();
  bool stop = false;
  auto step = compile([&] {
    w.zero_grad();
    Tensor y = w * w;
    y.register_hook([&](const Tensor& gradient) {
      if (stop) throw std::runtime_error("a hook stops");
      return gradient * 2;
    });
    y.sum().backward();
  });
  for (int i = 0; i < 7; ++i) {
    stop = i % 3 == 1;
    if (stop) {
      EXPECT_ERROR(step(), std::runtime_error, "a hook stops");
      EXPECT_FALSE(w.grad().defined());
    } else {
      step();
      expect_values(w.grad(), {4, 8});
    }
  }
}

TEST_F(Hooks, OfViewsSeeTheGradientAfterTheWrite) {
  const int compiles = expect_eagers_gradient([](const Tensor& w, int i) {
    Tensor y = w * 2;
    Tensor view = y.slice(0, 0, 2);
    view.mul_(1.0 + i);
    view.register_hook([](const Tensor& gradient) { return gradient * 10; });
    const Tensor loss = (view * view).sum() + y.sum();
    loss.backward();
    return loss.detach();
  });
  EXPECT_EQ(compiles, 1);
}

TEST_F(Hooks, RetainedGradientsComeOut) {
  Tensor w = tensor({1, 2}).requires_grad_();
  std::vector<Tensor> kept;
  auto step = compile([&](double scale) {
    w.zero_grad();
    Tensor y = w * scale;
    y.retain_grad();
    y.slice(0, 0, 1).mul_(3);
    (y * y).sum().backward();
    kept.push_back(y.grad());
    return y.detach();
  });
  for (int i = 1; i < 6; ++i) expect_values(step(i), {3.0 * i, 2.0 * i});
  for (int i = 1; i < 6; ++i) expect_values(kept[static_cast<size_t>(i) - 1], {6.0 * i, 4.0 * i});
  EXPECT_EQ(step.compile_count(), 1);
}

struct DoubleInPlace : Function<DoubleInPlace> {
  static Tensor forward(FunctionContext& context, Tensor x) {
    x.mul_(2);
    context.mark_dirty({x});
    return x;
  }
  static std::vector<Tensor> backward(FunctionContext&, const std::vector<Tensor>& g) { return {g[0] * 2}; }
};

TEST_F(Hooks, AFunctionMayWriteItsInput) {
  const int compiles = expect_eagers_gradient([](const Tensor& w, int i) {
    Tensor y = w + i;
    const Tensor view = y.slice(0, 1, 3);
    DoubleInPlace::apply(y);
    const Tensor loss = (view * view).sum();
    loss.backward();
    return loss.detach();
  });
  EXPECT_EQ(compiles, 1);
}

TEST_F(Hooks, AFileIsReadInsideTheBody) {
  const std::string file = std::filesystem::temp_directory_path() / join_text({"etch-inside-", getpid()});
  nn::Linear source(2, 2), target(2, 2);
  auto step = compile([&](const Tensor& x) {
    const Tensor before = target(x).detach();
    target.load_state_dict(nn::load_safetensors(file));
    const Tensor after = target(x).detach();
    no_grad([&] { target.weight.mul_(0.5); });
    nn::save_safetensors(file + ".out", target.state_dict());  // reads what is pending
    return std::pair(before, after);
  });
  const Tensor x = ramp({1, 2});
  for (int i = 0; i < 5; ++i) {
    no_grad([&] { source.weight.add_(i); });
    nn::save_safetensors(file, source.state_dict());
    const Tensor old = eagerly([&] { return target(x).detach(); });
    const auto [before, after] = step(x);
    expect_same(before, old);
    expect_same(after, eagerly([&] { return source(x).detach(); }));
    expect_same(nn::load_safetensors(file + ".out")[0].second, no_grad([&] { return source.weight * 0.5; }));
  }
  EXPECT_EQ(step.compile_count(), 1) << step.explain();
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".out");
}

}  // namespace
}  // namespace etch
