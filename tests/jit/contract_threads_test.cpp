// Many threads and one traced function; tensors that reach another thread too early.
#include <atomic>
#include <mutex>
#include <thread>

#include "tests/jit/contract.h"

namespace etch {
namespace {

using Threads = Contract;

void in_threads(int count, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(f, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Threads, ThirtyTwoThreadsGetSerialResults) {
  auto step = compile([](const Tensor& x, double factor) {
    const Tensor y = (x * factor).tanh();
    return y.sum().item<float>() > 0 ? y.exp() : y * y;
  });
  std::atomic<int> wrong{0};
  in_threads(32, [&](int thread) {
    for (int i = 0; i < 20; ++i) {
      const Tensor x = ramp({16}, thread - 16, 0.1);
      const double factor = 0.1 * (i + 1);
      const std::vector<float> got = step(x, factor).to_vector<float>();
      const Tensor y = (x * factor).tanh();
      const Tensor expected = y.sum().item<float>() > 0 ? y.exp() : y * y;
      wrong += got != expected.to_vector<float>();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(path_count(step), 3u);
  EXPECT_LE(step.compile_count(), 3);
}

// While paths are added, the limit is reached, calls leave known paths in their middle, and some are not
// traced.
TEST_F(Threads, ManyThreadsMayCallAFunctionWithTooManyPaths) {
  const auto body = [](const Tensor& x, int trips) {
    Tensor y = x * 2;
    for (int i = 0; i < trips; ++i) y = (y + i).tanh();
    return y;
  };
  auto step =
      compile([&](const Tensor& x, int trips) { return (body(x, trips) * 3).relu(); }, {.max_paths = 4});
  std::atomic<int> wrong{0};
  in_threads(8, [&](int thread) {
    for (int i = 0; i < 60; ++i) {
      const Tensor x = ramp({4}, thread, 0.1);
      const int trips = i % 3 ? 2 : thread + i;
      wrong += step(x, trips).to_vector<float>() != (body(x, trips) * 3).relu().to_vector<float>();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(path_count(step), 4u);
  EXPECT_TRUE(report(step)["gave_up"]);
}

TEST_F(Threads, NoIncrementUnderALockIsLost) {
  Tensor counter = zeros({1});
  std::mutex mutex;
  auto step = compile([&] {
    const Tensor one = ones({1}) * 1;
    etch::lock_guard lock(mutex);
    counter.add_(one);
  });
  in_threads(32, [&](int) {
    for (int i = 0; i < 25; ++i) step();
  });
  EXPECT_EQ(counter.item<float>(), 800);
}

TEST_F(Threads, AThrowingBodyUnlocksAfterItsWrites) {
  Tensor counter = zeros({1});
  std::mutex mutex;
  auto step = compile([&](bool stop) {
    etch::lock_guard lock(mutex);
    counter.add_(1);
    if (stop) throw std::runtime_error("stop");
  });
  in_threads(8, [&](int) {
    for (int i = 0; i < 25; ++i) try {
        step(i % 2);
      } catch (const std::runtime_error&) {
      }
  });
  EXPECT_EQ(counter.item<float>(), 200);
}

TEST_F(Threads, ADeferredTensorInAnotherThreadRaises) {
  auto step = compile([](const Tensor& x, bool flushed) {
    const Tensor y = x * 2;
    if (flushed) flush();
    std::string error;
    std::thread([&] {
      try {
        (y + 1).to_vector<float>();
      } catch (const TraceError& caught) {
        error = caught.what();
      }
    }).join();
    return std::pair(y, error);
  });
  for (int i = 0; i < 3; ++i) {
    const auto [y, error] = step(tensor({1}), false);
    expect_values(y, {2});
    EXPECT_NE(error.find("etch::flush()"), std::string::npos);
    EXPECT_EQ(step(tensor({1}), true).second, "");
  }
}

TEST_F(Threads, ADeferredTensorInAnotherTraceRaises) {
  auto inner = compile([](const Tensor& x) { return x + 1; });
  auto step = compile([&](const Tensor& x) {
    const Tensor y = x * 2;
    bool raised = false;
    std::thread([&] {
      try {
        inner(y);
      } catch (const TraceError&) {
        raised = true;
      }
    }).join();
    EXPECT_TRUE(raised);
    return y;
  });
  for (int i = 0; i < 3; ++i) expect_values(step(tensor({1})), {2});
}

TEST_F(Threads, APendingWriteOfAnotherTraceRaisesOnAKnownPath) {
  Tensor shared = zeros({1});
  auto reader = compile([](const Tensor& x) { return x * 2; });
  for (int i = 0; i < 3; ++i) reader(shared);
  auto writer = compile([&] {
    shared.add_(1);
    std::string error;
    std::thread([&] {
      try {
        reader(shared);
      } catch (const TraceError& caught) {
        error = caught.what();
      }
    }).join();
    return error;
  });
  for (int i = 0; i < 3; ++i) EXPECT_NE(writer().find("another thread"), std::string::npos);
  expect_values(reader(shared), {6});
}

TEST_F(Threads, AnExternalChangedByAnotherThreadRaises) {
  Tensor shared = zeros({1});
  auto step = compile([&](bool meddle) {
    const Tensor y = shared * 2;
    if (meddle) std::thread([&] { shared.add_(1); }).join();
    return y;
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(step(true), TraceError);
    expect_values(step(false), {2.0 * (i + 1)});
  }
}

TEST_F(Threads, TheFunctionMayGoWhileACallRuns) {
  auto step = std::make_unique<Compiled<std::function<Tensor(const Tensor&)>>>(
      compile(std::function<Tensor(const Tensor&)>([](const Tensor& x) { return x * 2; })));
  Compiled<std::function<Tensor(const Tensor&)>> copy = *step;
  expect_values((*step)(tensor({1})), {2});
  step.reset();
  for (int i = 0; i < 3; ++i) expect_values(copy(tensor({1})), {2});
  EXPECT_EQ(copy.compile_count(), 1);
}

// What the body holds by value must live until the call inside is done.
TEST_F(Threads, DestroyingAFunctionWhileAnotherThreadIsInsideIsSafe) {
  for (int i = 0; i < 4; ++i) {
    std::atomic<bool> inside{false}, gone{false};
    const auto body = [&, factor = ramp({2})](const Tensor& x) {
      const Tensor y = x * factor;
      inside = true;
      while (!gone) std::this_thread::yield();
      return y + factor;
    };
    auto step = std::make_unique<Compiled<std::decay_t<decltype(body)>>>(compile(body));
    Tensor result;
    std::thread caller([&, call = step.get()] { result = (*call)(ones({2})); });
    while (!inside) std::this_thread::yield();
    step.reset();
    gone = true;
    caller.join();
    expect_values(result, {2, 3});
  }
}

TEST_F(Threads, ReplacingAFunctionWhileAnotherThreadIsInsideIsSafe) {
  std::atomic<bool> inside{false}, replaced{false};
  using Function = std::function<Tensor(const Tensor&)>;
  auto step = compile(Function([&, factor = ramp({2})](const Tensor& x) {
    inside = true;
    while (!replaced) std::this_thread::yield();
    return x * factor;
  }));
  Tensor result;
  std::thread caller([&] { result = step(ones({2})); });
  while (!inside) std::this_thread::yield();
  step = compile(Function([](const Tensor& x) { return x * 5; }));
  replaced = true;
  caller.join();
  expect_values(result, {1, 1.5});
  expect_values(step(ones({2})), {5, 5});
}

TEST_F(Threads, ABodyMayReplaceItsOwnFunction) {
  using Function = std::function<Tensor(const Tensor&)>;
  Compiled<Function> step = compile(Function([](const Tensor& x) { return x; }));
  step = compile(Function([&, factor = ramp({2})](const Tensor& x) {
    step = compile(Function([](const Tensor& y) { return y * 7; }));
    return x * factor;
  }));
  expect_values(step(ones({2})), {1, 1.5});
  expect_values(step(ones({2})), {7, 7});
}

TEST_F(Threads, ACopyHasItsOwnBodyAndSharesThePaths) {
  auto step = compile([calls = 0](const Tensor& x) mutable { return x + ++calls; });
  step(ones({1}));
  auto copy = step;
  for (int i = 0; i < 2; ++i) step(ones({1}));
  expect_values(copy(ones({1})), {3});
  EXPECT_EQ(copy.compile_count(), 1);
}

TEST_F(Threads, OneThreadManyFunctions) {
  std::vector<Compiled<std::function<Tensor(const Tensor&)>>> steps;
  for (int f = 0; f < 40; ++f)
    steps.push_back(
        compile(std::function<Tensor(const Tensor&)>([f](const Tensor& x) { return x * f + f; })));
  for (int i = 0; i < 4; ++i)
    for (int f = 0; f < 40; ++f)
      expect_values(steps[static_cast<size_t>(f)](tensor({1, 2})), {2.0 * f, 3.0 * f});
  for (const auto& step : steps) EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Threads, AHookOfABackwardPassMayCallTracedFunctions) {
  auto scale = compile([](const Tensor& g) { return (g * 3).tanh(); });
  const auto gradient = [&](auto&& run) {
    Tensor w = ramp({3}, 0.1, 0.2).requires_grad_();
    Tensor y = w * 2;
    y.register_hook([&](const Tensor& g) { return scale(g); });
    run([&] { (y * y).sum().backward(); });
    return w.grad();
  };
  const Tensor expected = eagerly([&] { return gradient([](auto&& backward) { backward(); }); });
  auto outer = compile([&] { return gradient([](auto&& backward) { backward(); }); });
  for (int i = 0; i < 4; ++i) {
    expect_same(gradient([](auto&& backward) { backward(); }), expected);  // by itself
    expect_same(outer(), expected);                                        // inlined into the outer trace
    auto passing = compile([](auto&& backward) { backward(); });
    expect_same(gradient(passing), expected);  // the tape is older than the trace
  }
  EXPECT_EQ(outer.compile_count(), 1);
}

TEST_F(Threads, AHookMayCallTheFunctionThatRunsTheBackwardPass) {
  std::function<Tensor(const Tensor&, int)> call;
  auto step = compile([&](const Tensor& x, int depth) {
    if (depth == 0) return (x * 3).tanh();
    Tensor w = x.detach().requires_grad_();
    Tensor y = w * 2;
    y.register_hook([&, depth](const Tensor& g) { return call(g, depth - 1); });
    (y * y).sum().backward();
    return w.grad();
  });
  call = [&](const Tensor& x, int depth) { return step(x, depth); };
  const Tensor expected = eagerly([&] { return call(tensor({1, 2}), 1); });
  for (int i = 0; i < 4; ++i) expect_same(call(tensor({1, 2}), 1), expected);
}

}  // namespace
}  // namespace etch
