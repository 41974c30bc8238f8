// {.background = true}: compiling while calls go on.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "runtime/parallel.h"
#include "tests/jit/contract.h"
#include "tracer/background.h"

namespace etch {
namespace {

using Background = Contract;

const CompileFunctionOptions kInBackground{.background = true};

/// Keeps the background thread busy until it goes.
class Busy {
 public:
  Busy() {
    run_in_background(this, [this] {
      while (!done_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  ~Busy() {
    done_ = true;
    wait_for_background(this);
  }

 private:
  std::atomic<bool> done_{false};
};

/// A compiler that takes until it is let go, or ten seconds for those who wait for it.
struct SlowCompiler {
  static inline std::atomic<int> begun, finished;
  static inline std::atomic<bool> let_go;

  SlowCompiler() { begun = finished = let_go = 0; }
  ~SlowCompiler() { let_go = true; }

  const Compiler use{[](const Path& path, const LiveSet& live, const CompileOptions& options) {
    ++begun;
    for (int i = 0; i < 10'000 && !let_go; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Ref<Executable> made = Compiler::real(path, live, options);
    ++finished;
    return made;
  }};
};

TEST_F(Background, CallsRunEagerlyUntilTheExecutableIsReadyThenSwitch) {
  auto step = compile([](const Tensor& x) { return (x * 2).exp().sum(); }, {.background = true});
  const Tensor x = ramp({4});
  const Tensor expected = eagerly([&] { return (x * 2).exp().sum(); });
  {
    Busy busy;
    for (int i = 0; i < 5; ++i) expect_same(step(x), expected);
    EXPECT_EQ(step.compiled_calls(), 0);
    EXPECT_EQ(step.eager_calls(), 5);
    EXPECT_EQ(report(step)["paths"][0]["calls_while_compiling"], 4);  // all but the first
    EXPECT_NE(step.explain().find("op by op 5 (4 while it was being compiled)"), std::string::npos);
  }
  step.wait_for_compiles();
  EXPECT_EQ(step.compile_count(), 1);
  for (int i = 0; i < 3; ++i) expect_same(step(x), expected);
  EXPECT_EQ(step.compiled_calls(), 3);
}

TEST_F(Background, CompilesForTheNumberOfThreadsOfTheCallsThatAskedForIt) {
  const int before = num_threads();
  auto step = compile([](const Tensor& x) { return (x * 2).exp().sum(); }, kInBackground);
  {
    Busy busy;
    set_num_threads(1);
    for (int i = 0; i < 2; ++i) step(ramp({4}));
    set_num_threads(2);
  }
  step.wait_for_compiles();
  set_num_threads(1);
  step(ramp({4}));
  EXPECT_EQ(step.compiled_calls(), 1);
  set_num_threads(before);
}

TEST_F(Background, NoCallWaitsForTheCompiler) {
  SlowCompiler slow;
  auto step = compile([](const Tensor& x) { return x * 2 + 1; }, kInBackground);
  for (int i = 0; i < 10; ++i) step(ones({2}));
  EXPECT_EQ(slow.finished, 0);
  slow.let_go = true;
  step.wait_for_compiles();
  step(ones({2}));
  EXPECT_EQ(step.compiled_calls(), 1);
}

TEST_F(Background, TheUnionOfLiveSetsIsCompiledAsInTheForeground) {
  std::vector<Tensor> kept;
  auto step = compile(
      [&](const Tensor& x, bool keep) {
        const Tensor y = x * 2, z = y.exp();
        if (keep) kept.push_back(y);
        return z;
      },
      kInBackground);
  for (int i = 0; i < 8; ++i) {
    const Tensor x = ramp({3}, i);
    expect_same(step(x, i % 2), eagerly([&] { return (x * 2).exp(); }));
    step.wait_for_compiles();
  }
  for (size_t i = 0; i < kept.size(); ++i) expect_same(kept[i], ramp({3}, 2.0 * (2.0 * i + 1), 1));
  EXPECT_GE(step.compiled_calls(), 4);
}

TEST_F(Background, ACompileThatFailsLeavesThePathEagerAndSaysSo) {
  const Compiler failing([](const Path&, const LiveSet&, const CompileOptions&) -> Ref<Executable> {
    throw ValueError("no plan today");
  });
  auto step = compile([](const Tensor& x) { return x * 2; }, kInBackground);
  for (int i = 0; i < 2; ++i) expect_values(step(tensor({1})), {2});
  step.wait_for_compiles();
  expect_values(step(tensor({1})), {2});
  EXPECT_EQ(step.compile_count(), 0);
  EXPECT_NE(step.explain().find("cannot be compiled: no plan today"), std::string::npos) << step.explain();
}

TEST_F(Background, AFunctionMayGoWhileItsCompileIsQueuedOrRuns) {
  for (int i = 0; i < 5; ++i) {
    auto running = compile([](const Tensor& x) { return (x * 2).tanh(); }, kInBackground);
    auto queued = compile([](const Tensor& x) { return (x * 3).tanh(); }, kInBackground);
    for (int k = 0; k < 2; ++k) {
      running(ones({2}));
      queued(ones({2}));
    }
  }
  { Busy after; }  // the settings change when the job that runs is done
}

TEST_F(Background, NobodyWaitsForTheCompileOfAFunctionThatGoes) {
  SlowCompiler slow;
  {
    std::optional running(compile([](const Tensor& x) { return (x * 2).tanh(); }, kInBackground));
    std::optional queued(compile([](const Tensor& x) { return (x * 3).tanh(); }, kInBackground));
    for (int i = 0; i < 2; ++i) (*running)(ones({2}));
    while (slow.begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < 2; ++i) (*queued)(ones({2}));
  }
  EXPECT_EQ(slow.finished, 0);
  slow.let_go = true;
  { Busy after; }  // returns when the jobs before it are done
  EXPECT_EQ(slow.begun, 1);
  EXPECT_EQ(slow.finished, 1);
}

TEST_F(Background, ManyThreadsGetSerialResults) {
  auto step = compile(
      [](const Tensor& x, int times) {
        Tensor y = x;
        for (int i = 0; i < times; ++i) y = y * 2;
        return y;
      },
      kInBackground);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const int times = 1 + (t + i) % 4;
        wrong += step(ones({1}), times).item<float>() != static_cast<float>(1 << times);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  step.wait_for_compiles();
  EXPECT_LE(step.compile_count(), 4);
}

using BackgroundDeathTest = Background;

TEST_F(BackgroundDeathTest, AProcessMayExitWhileACompileRuns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static auto step = compile([](const Tensor& x) { return (x * 2).sin().sum(); }, {.background = true});
        for (int i = 0; i < 2; ++i) step(ones({2}));
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace etch
