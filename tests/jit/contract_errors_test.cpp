// Exceptions from the body, errors that depend on data, and memory limits: the state is eager's, the next
// call works.
#include <stdexcept>

#include "tests/jit/contract.h"

namespace etch {
namespace {

using Errors = Contract;

// A training step that throws after `stop` of its actions.
struct Model {
  Tensor w = ramp({3}, 0.5, 0.25).requires_grad_(), buffer = zeros({3});
  std::vector<Tensor> stored;

  Tensor step(const Tensor& x, int stop) {
    int at = 0;
    const auto tick = [&] {
      if (at++ == stop) throw std::runtime_error("stop");
    };
    tick();
    const Tensor y = w * x;
    tick();
    buffer.add_(y.detach());
    tick();
    stored.push_back(y.exp());
    tick();
    const Tensor loss = (y * y).sum();
    tick();
    buffer.slice(0, 0, 2).mul_(2);
    tick();
    loss.backward();
    tick();
    no_grad([&] { sgd_plain_step(w, w.grad(), 0.1, 0); });
    tick();
    stored.back().detach().add_(1);
    tick();
    w.zero_grad();
    return loss;
  }
};

TEST_F(Errors, AnExceptionAtAnyPointLeavesEagersState) {
  for (int stop = 0; stop < 10; ++stop) {
    Model eager, traced;
    auto step = compile([&](const Tensor& x, int at) { return traced.step(x, at); });
    const auto run = [](auto&& f) {
      try {
        f();
        return false;
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "stop");
        return true;
      }
    };
    for (int call = 0; call < 6; ++call) {
      const Tensor x = ramp({3}, 0.1 * call, 0.3);
      const int at = call % 2 ? stop : 100;
      const bool threw = run([&] { step(x, at); });
      EXPECT_EQ(threw, eagerly([&] { return run([&] { eager.step(x, at); }); }));
      expect_same(traced.w, eager.w);
      expect_same(traced.buffer, eager.buffer);
      ASSERT_EQ(traced.stored.size(), eager.stored.size());
      for (size_t i = 0; i < eager.stored.size(); ++i) expect_same(traced.stored[i], eager.stored[i]);
      ASSERT_EQ(traced.w.grad().defined(), eager.w.grad().defined());
      if (eager.w.grad().defined()) expect_same(traced.w.grad(), eager.w.grad());
    }
  }
}

TEST_F(Errors, CallsThatThrowUseUpNoPaths) {
  Tensor sum = zeros({1});
  auto step = compile(
      [&](int ops, bool stop) {
        for (int i = 0; i < ops; ++i) sum.add_(1);
        if (stop) throw std::runtime_error("stop");
      },
      {.max_paths = 3});
  for (int i = 1; i < 30; ++i) EXPECT_THROW(step(i, true), std::runtime_error);
  EXPECT_EQ(sum.item<float>(), 435);
  for (int i = 0; i < 3; ++i) step(2, false);
  EXPECT_EQ(path_count(step), 1u);
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Errors, NothingIsCompiledWhileAnExceptionIsInFlight) {
  struct Reader {
    Tensor tensor;
    double* to;
    ~Reader() { *to = tensor.item<float>(); }
  };
  double seen = 0;
  auto step = compile(
      [&](const Tensor& x) {
        const Reader reader{x * 2, &seen};
        throw std::runtime_error("stop");
      },
      {.compile_at = 1});
  for (int i = 1; i < 4; ++i) {
    EXPECT_THROW(step(tensor({static_cast<float>(i)})), std::runtime_error);
    EXPECT_EQ(seen, 2 * i);
  }
  EXPECT_EQ(step.compile_count(), 0);
}

TEST_F(Errors, VersionsInMessagesAreEagers) {
  const Tensor w = ones({2}).requires_grad_();
  const auto body = [&](const Tensor& x) {
    Tensor y = (w * x).exp();
    y.add_(1);
    const std::string text = message<AutogradError>([&] { y.sum().backward(); });
    expect_part(text, "exp: expected the tensor [2] saved for backward at version 0, got version 1: add");
    return x + 1;
  };
  body(ones({2}));
  auto step = compile(body);
  for (int call = 0; call < 4; ++call) step(ones({2}));
}

TEST_F(Errors, ShapeAndDtypeErrorsAreRaisedAtTheOp) {
  bool reached = false;
  auto step = compile([&](const Tensor& x) {
    const Tensor y = x * 2;
    EXPECT_THROW(y + ones({5}), ShapeError);
    reached = true;
    return y;
  });
  for (int i = 0; i < 3; ++i) expect_values(step(tensor({1, 2})), {2, 4});
  EXPECT_TRUE(reached);
  EXPECT_EQ(step.compile_count(), 1);
}

// Earlier writes happen, later ones do not, in the fallback and compiled alike.
void expect_bad_data(auto&& bad_op, auto good, auto bad, const char* message) {
  Tensor before = zeros({1}), after = zeros({1}), result;
  auto step = compile([&](const Tensor& data) {
    before.add_(1);
    result = bad_op(data);
    after.add_(1);
  });
  int goods = 0, calls = 0;
  for (const bool fine : {false, true, true, false, true, false}) {
    ++calls;
    if (fine) {
      step(good);
      ++goods;
      result.to_vector<float>();
    } else {
      try {
        step(bad);
        ADD_FAILURE() << "expected an error in call " << calls;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      }
      EXPECT_THROW(result.to_vector<float>(), Error);
    }
    EXPECT_EQ(before.item<float>(), calls);
    EXPECT_EQ(after.item<float>(), goods);
  }
  EXPECT_GE(step.compile_count(), 1);
}

const auto kIndices = [](std::vector<int64_t> list) { return from_vector(list); };

TEST_F(Errors, BadIndexFromOutside) {
  expect_bad_data([](const Tensor& index) { return ramp({4}).index_select(0, index); }, kIndices({0, 3}),
                  kIndices({0, 4}), "index_select: expected indices in [0, 4), got 4");
}
TEST_F(Errors, BadIndexComputedInTheBody) {
  expect_bad_data([](const Tensor& index) { return ramp({4}).gather(0, index * 2); }, kIndices({0, 1}),
                  kIndices({0, 2}), "gather: expected indices in [0, 4), got 4");
}
TEST_F(Errors, BadLabel) {
  expect_bad_data(
      [](const Tensor& labels) {
        return cross_entropy(ramp({2, 3}), labels);
      },
      kIndices({0, -100}), kIndices({0, 3}), "cross_entropy: expected labels in [0, 3)");
}
TEST_F(Errors, BadLabelComputedInTheBody) {
  const auto loss = [](const Tensor& labels) { return cross_entropy(ramp({2, 3}), labels); };
  const char* const message = "cross_entropy: expected labels in [0, 3)";
  expect_bad_data([&](const Tensor& labels) { return loss(labels + 0); }, kIndices({0, 2}), kIndices({0, 3}),
                  message);
  expect_bad_data([&](const Tensor& labels) { return loss(labels.to(DType::I64)); },
                  kIndices({0, -100}).to(DType::I32), kIndices({0, -1}).to(DType::I32), message);
  expect_bad_data(
      [&](const Tensor& labels) {
        Tensor written = labels.clone();
        written[0] += 1;
        return loss(written);
      },
      kIndices({1, 2}), kIndices({2, 1}), message);
}
TEST_F(Errors, BadDivisorComputedInTheBody) {
  expect_bad_data([](const Tensor& x) { return floor_divide(full({2}, 7), x - 1); }, kIndices({2, 3}),
                  kIndices({0, 1}), "floor_divide: expected non-zero integer divisors");
}
TEST_F(Errors, ZeroDivisor) {
  expect_bad_data([](const Tensor& x) { return floor_divide(full({2}, 7), x); }, kIndices({2, 3}),
                  kIndices({0, 3}), "floor_divide: expected non-zero integer divisors");
}

TEST_F(Errors, ValuesComputedBeforeABadOpStayUsable) {
  Tensor early;
  auto step = compile([&](const Tensor& index) {
    early = ramp({3}) * 2;
    return ramp({4}).gather(0, index * 2).sum();
  });
  for (const int64_t i : {0, 1, 2, 0, 2}) {
    if (i == 2) {
      EXPECT_THROW(step(kIndices({i})), IndexError);
    } else {
      step(kIndices({i}));
    }
    expect_values(early, {2, 3, 4});
  }
}

TEST_F(Errors, DeadOpsRaiseNothing) {
  auto step = compile([](const Tensor& index) {
    ramp({4}).index_select(0, index);
    return index + 1;
  });
  for (int i = 0; i < 4; ++i) expect_values(step(kIndices({9})), {10});
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Errors, AnErrorOfAFlushCanBeCaughtInTheBody) {
  auto step = compile([](const Tensor& index) {
    try {
      return ramp({4}).index_select(0, index).sum().item<float>();
    } catch (const IndexError&) {
      return -1.0f;
    }
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(step(kIndices({9})), -1);
    EXPECT_EQ(step(kIndices({2})), 2);
  }
}

TEST_F(Errors, AReplayThatExceedsTheMemoryLimitChangesNothing) {
  Tensor w = ones({1 << 16});
  const Tensor x = ones({1 << 16});
  auto body = compile([&](const Tensor& v) {
    w.add_(v);
    w.mul_(2);
    return concat({w * 2, v * 3});
  });
  for (int i = 0; i < 3; ++i) body(x);
  ASSERT_EQ(body.compile_count(), 1);
  const std::vector<double> before = w.to_vector<double>();
  empty_cache();
  set_memory_limit(memory_stats().allocated + (1 << 16));
  try {
    body(x);
    ADD_FAILURE() << "expected an error";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("parameters"), std::string::npos) << error.what();
  }
  set_memory_limit(0);
  EXPECT_EQ(w.to_vector<double>(), before);
  const Tensor y = body(x);
  EXPECT_EQ(y.to_vector<double>()[0], 4 * (before[0] + 1));
}

TEST_F(Errors, TheFallbackExceedingTheLimitLeavesAUsableProgram) {
  auto step = compile([](const Tensor& x) { return concat({x, x, x, x}) + 1; });
  const Tensor x = ones({1 << 16});
  set_memory_limit(memory_stats().allocated + (1 << 18));
  EXPECT_THROW(step(x), OutOfMemoryError);
  set_memory_limit(0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(x).numel(), 4 << 16);
}

}  // namespace
}  // namespace etch
