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

}  // namespace
}  // namespace etch
