// In-place ops through views under the tape inside traced functions: eager's bits, gradients included.
#include <functional>

#include "tests/jit/contract.h"
#include "tests/runtime/expect_error.h"
#include "tests/support/view_program.h"

namespace etch {
namespace {

using Results = std::vector<Tensor>;

// `body` computes a loss from leaves that are new at every call; its values and all gradients are compared.
void expect_eagers_gradients(const std::function<Results(Tensor x, Tensor w)>& body, const Dims& x_sizes,
                             const Dims& w_sizes) {
  const auto with_gradients = [&](const Tensor& x, const Tensor& w) {
    Results results = body(x, w);
    Tensor loss = scalar_tensor(0.0);
    for (const Tensor& result : results)
      if (result.requires_grad()) loss = loss + (result * result).sum();
    loss.backward();
    for (Tensor& result : results) result = result.detach();
    results.push_back(x.grad());
    results.push_back(w.grad());
    return results;
  };
  auto step = compile(with_gradients);
  const auto leaf = [](const Dims& sizes, int i) { return ramp(sizes, 0.25 * i - 1, 0.3).requires_grad_(); };
  for (int i = 0; i < 4; ++i) {
    const Results expected = eagerly([&] { return with_gradients(leaf(x_sizes, i), leaf(w_sizes, i + 2)); });
    const Results got = step(leaf(x_sizes, i), leaf(w_sizes, i + 2));
    ASSERT_EQ(got.size(), expected.size());
    for (size_t k = 0; k < got.size(); ++k) {
      SCOPED_TRACE("result " + std::to_string(k) + " of call " + std::to_string(i));
      expect_same(got[k], expected[k]);
    }
  }
  EXPECT_EQ(step.compile_count(), 1) << step.explain();
  EXPECT_EQ(step.compiled_calls(), 3);
}

TEST(InPlaceViews, AWindowOfANonLeaf) {
  expect_eagers_gradients(
      [](const Tensor& x, const Tensor& w) {
        Tensor y = x * 2;
        y.slice(1, 1, 3).mul_(w);
        return Results{y};
      },
      {3, 4}, {3, 2});
}

TEST(InPlaceViews, ViewsOfViewsAndTheBaseAfterwards) {
  expect_eagers_gradients(
      [](const Tensor& x, const Tensor& w) {
        Tensor y = x.sin();
        Tensor rows = y.slice(0, 1, 4), part = rows.t().slice(0, 0, 4, 2);
        part[1].mul_(w);
        y.add_(x);
        rows[0].fill_(0.5);
        return Results{y * 1, rows * 1, part * 1};
      },
      {4, 5}, {3});
}

TEST(InPlaceViews, AStateWrittenRowByRow) {
  expect_eagers_gradients(
      [](const Tensor& x, const Tensor& w) {
        Tensor states = zeros({5, 3}), h = x;
        for (int t = 0; t < 5; ++t) {
          h = (h * w).tanh();
          states[t].copy_(h);
        }
        return Results{states};
      },
      {3}, {3});
}

TEST(InPlaceViews, AnExpandedViewOfAWrittenBase) {
  expect_eagers_gradients(
      [](const Tensor& x, const Tensor& w) {
        Tensor y = x * 1.5;
        const Tensor wide = y.unsqueeze(0).expand(4, 3);
        y.slice(0, 0, 2).relu_();
        y[2].sub_(w);
        return Results{wide * ramp({4, 3})};
      },
      {3}, {});
}

TEST(InPlaceViews, SecondGradients) {
  expect_eagers_gradients(
      [](Tensor x, const Tensor& w) {
        Tensor y = x * x;
        y.slice(0, 0, 2).mul_(w);
        (y * y).sum().backward({}, {.create_graph = true});
        const Tensor first = x.grad();
        x.zero_grad();
        Tensor(w).zero_grad();
        return Results{first};
      },
      {3}, {2});
}

TEST(InPlaceViews, ABufferOfBeforeWrittenInEveryCall) {
  const auto body = [](Tensor& buffer, const Tensor& w, int row) {
    buffer = buffer.detach();
    const Tensor before = buffer.slice(0, 0, 1);
    buffer[row].copy_(w * 2);
    (buffer * buffer).sum().backward();
    return before.detach() + 0.0;
  };
  Tensor w = tensor({1, 2}).requires_grad_(), twin = tensor({1, 2}).requires_grad_();
  Tensor buffer = zeros({3, 2}), twin_buffer = zeros({3, 2});
  auto step = compile([&](int row) { return body(buffer, w, row); });
  for (int i = 0; i < 6; ++i) {
    const Tensor expected = eagerly([&] { return body(twin_buffer, twin, i % 3); });
    expect_same(step(i % 3), expected);
    expect_same(w.grad(), twin.grad());
    expect_values(w.grad(), {8.0 * (i + 1), 16.0 * (i + 1)});
    expect_same(buffer.detach(), twin_buffer.detach());
  }
  EXPECT_EQ(step.compile_count(), 1) << step.explain();  // the first call makes w.grad, the others add to it
}

TEST(InPlaceViews, ARefusedWriteLeavesTheNextCallFine) {
  Tensor w = tensor({1, 2}).requires_grad_();
  bool bad = false;
  auto step = compile([&](const Tensor& x) {
    Tensor y = x * w;
    if (bad) w.slice(0, 0, 1).add_(1.0);
    y.slice(0, 0, 1).mul_(3);
    return y.detach();
  });
  for (int i = 0; i < 6; ++i) {
    bad = i % 3 == 1;
    if (bad) {
      EXPECT_ERROR(step(tensor({1, 1})), AutogradError, "got a view of a leaf that requires gradients");
    } else {
      expect_values(step(tensor({1, 1})), {3, 2});
    }
  }
}

TEST(InPlaceViews, RandomPrograms) {
  Settings settings;
  config().cxx = "none";
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto body = [seed](const Tensor& x, const Tensor& w) {
      const Tensor loss = testing::run_view_program(seed, x, w);
      if (loss.requires_grad()) loss.backward();
      return loss.detach();
    };
    auto step = compile(body);
    for (int i = 0; i < 3; ++i) {
      const auto leaf = [&](const Dims& sizes) { return ramp(sizes, 0.25 * i - 1, 0.3).requires_grad_(); };
      const Tensor x = leaf({3, 4}), w = leaf({}), twin_x = leaf({3, 4}), twin_w = leaf({});
      SCOPED_TRACE("call " + std::to_string(i) + " of seed " + std::to_string(seed));
      const Tensor expected = eagerly([&] { return body(twin_x, twin_w); });
      expect_same(step(x, w), expected);
      ASSERT_EQ(x.grad().defined(), twin_x.grad().defined());
      ASSERT_EQ(w.grad().defined(), twin_w.grad().defined());
      if (x.grad().defined()) expect_same(x.grad(), twin_x.grad());
      if (w.grad().defined()) expect_same(w.grad(), twin_w.grad());
    }
    EXPECT_EQ(step.compile_count(), 1) << "seed " << seed;
  }
}

}  // namespace
}  // namespace etch
