// Situations that tracing systems are known to get wrong, each with the right result, over calls enough to be
// compiled and replayed.
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "codegen/kernel_cache.h"
#include "eager/function.h"
#include "tests/jit/contract.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

const double kNan = std::nan("");

Tensor scalar(double value, DType dtype = DType::F32) { return scalar_tensor(value, {.dtype = dtype}); }

// Compiles `body`, calls it four times with fresh arguments and expects eager's answers and one compile.
template <class Body, class Arguments>
void expect_eagers_answers(Body body, Arguments arguments) {
  auto step = compile(body);
  for (int i = 0; i < 4; ++i) {
    const Tensor expected = eagerly([&] { return std::apply(body, arguments(i)); });
    expect_same(std::apply(step, arguments(i)), expected);
  }
  EXPECT_EQ(step.compile_count(), 1) << step.explain();
  EXPECT_EQ(step.compiled_calls(), 3);
}

struct AdamStep {
  Tensor w = ramp({4, 3}, -0.5, 0.1).requires_grad_(), m = zeros({4, 3}), v = zeros({4, 3});
  int steps = 0;
  double rate() const { return 0.1 / (1 + 0.3 * steps); }
  Tensor run(const Tensor& x, const Tensor& y) {
    const Tensor loss = mse_loss(x.matmul(w).tanh(), y);
    loss.backward();
    ++steps;
    no_grad([&] {
      adam_step(w, w.grad(), m, v, rate(), 0.9, 0.999, 1e-8, 0.01, 1 - std::pow(0.9, steps),
                1 - std::pow(0.999, steps), true);
    });
    w.zero_grad();
    return loss;
  }
};

TEST(Cases, C01AdamUnderARateScheduleAdvancesAtEveryReplay) {
  AdamStep eager, traced;
  auto step = compile([&](const Tensor& x, const Tensor& y) { return traced.run(x, y); });
  int compiles = 0;
  for (int i = 0; i < 50; ++i) {
    const Tensor x = ramp({5, 4}, 0.01 * i, 0.07), y = ramp({5, 3}, 0.2, -0.02);
    const Tensor loss = step(x, y);
    expect_same(loss, eagerly([&] { return eager.run(x, y); }));
    if (i == 3) compiles = step.compile_count();
  }
  expect_same(traced.w, eager.w);
  expect_same(traced.v, eager.v);
  EXPECT_EQ(step.compile_count(), compiles);
}

TEST(Cases, C02DropoutDrawsAnotherMaskEachTimeAndEagersAfterReseeding) {
  auto step = compile([](const Tensor& x) { return dropout(x, 0.5); });
  const Tensor x = ones({64});
  for (int round = 0; round < 2; ++round) {
    std::vector<Tensor> got, expected;
    manual_seed(3);
    for (int i = 0; i < 3; ++i) got.push_back(step(x));
    manual_seed(3);
    eagerly([&] {
      for (int i = 0; i < 3; ++i) expected.push_back(dropout(x, 0.5));
      return 0;
    });
    for (int i = 0; i < 3; ++i) expect_same(got[i], expected[i]);
    EXPECT_NE(got[0].to_vector<float>(), got[1].to_vector<float>());
    EXPECT_NE(got[1].to_vector<float>(), got[2].to_vector<float>());
    EXPECT_NE(got[0].to_vector<float>(), got[2].to_vector<float>());
  }
}

TEST(Cases, C03ARandomOpGivesNewValuesWithoutRecompiling) {
  auto step = compile([] { return rand({8}) * 2; });
  std::vector<std::vector<float>> seen;
  for (int i = 0; i < 6; ++i) {
    seen.push_back(step().to_vector<float>());
    for (int k = 0; k < i; ++k) EXPECT_NE(seen[k], seen[i]);
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST(Cases, C04AReplacedParameterIsUsedAtTheNextCall) {
  Tensor w = tensor({1, 2});
  auto step = compile([&](const Tensor& x) { return x * w; });
  for (int i = 0; i < 3; ++i) expect_values(step(tensor({1, 1})), {1, 2});
  w = tensor({5, 6});
  expect_values(step(tensor({1, 1})), {5, 6});
  w.copy_(tensor({7, 8}));
  expect_values(step(tensor({1, 1})), {7, 8});
  EXPECT_EQ(step.compile_count(), 1);
}

TEST(Cases, C05InputsThatOverlapInNewWays) {
  auto body = [](Tensor x, const Tensor& y) {
    x.mul_(2);
    return x + y;
  };
  auto step = compile(body);
  for (int i = 0; i < 3; ++i) expect_values(step(tensor({1, 2}), tensor({10, 20})), {12, 24});
  for (int i = 0; i < 4; ++i)
    for (int shift = 0; shift < 3; ++shift) {
      Tensor base = ramp({6}, 1, 1), copy = ramp({6}, 1, 1);
      const Tensor expected =
          eagerly([&] { return body(copy.slice(0, 1, 4), copy.slice(0, shift, shift + 3)); });
      expect_same(step(base.slice(0, 1, 4), base.slice(0, shift, shift + 3)), expected);
      expect_same(base, copy);
    }
}

TEST(Cases, C06AViewReadBeforeAChangeKeepsTheOldValue) {
  expect_eagers_answers(
      [](Tensor x) {
        const Tensor y = x.slice(0, 0, 2) * 3;
        x.add_(100);
        return y;
      },
      [](int i) { return std::tuple(ramp({3}, i)); });
  auto step = compile([](Tensor x) {
    const Tensor y = x.slice(0, 0, 2) * 3;
    x.add_(100);
    return y;
  });
  for (int i = 0; i < 4; ++i) expect_values(step(tensor({1, 2, 3})), {3, 6});
}

// A function of the user's own: the first slot has the gradient 2 g, the second none.
struct TwiceTheFirst : Function<TwiceTheFirst> {
  static Tensor forward(FunctionContext&, const Tensor& a, const Tensor& b) { return a * 2 + b; }
  static std::vector<Tensor> backward(FunctionContext&, const std::vector<Tensor>& g) {
    return {g[0] * 2, {}};
  }
};

TEST(Cases, C07OneTensorInBothSlotsOfACustomFunction) {
  Tensor w = tensor({1, 3}).requires_grad_();
  auto step = compile([&] {
    w.zero_grad();
    (TwiceTheFirst::apply(w, w) + w).sum().backward();
  });
  for (int i = 0; i < 4; ++i) {
    step();
    expect_values(w.grad(), {3, 3});
  }
}

double factor = 1;
TEST(Cases, C08AGlobalIsReadAtEveryCall) {
  auto step = compile([](const Tensor& x) { return x * factor; });
  for (const double value : {1.0, 1.0, 1.0, 10.0, 3.0}) {
    factor = value;
    expect_values(step(tensor({2})), {2 * value});
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST(Cases, C09AHostListGrowsAtEveryCall) {
  std::vector<Tensor> list;
  auto step = compile([&](const Tensor& x) { list.push_back(x + 1); });
  for (int i = 0; i < 4; ++i) step(tensor({static_cast<float>(i)}));
  ASSERT_EQ(list.size(), 4u);
  for (int i = 0; i < 4; ++i) expect_values(list[i], {i + 1.0});
}

TEST(Cases, C10ThirtyTwoThreadsGetTheValuesOfSerialCalls) {
  auto step = compile([](const Tensor& x) { return x.softmax(0) * 2; });
  std::vector<Tensor> expected;
  for (int i = 0; i < 32; ++i) expected.push_back(ramp({33}, 0.1 * i).softmax(0) * 2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 10; ++k)
        wrong += step(ramp({33}, 0.1 * i)).to_vector<float>() != expected[i].to_vector<float>();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Cases, C11AScheduledScalarRecompilesNothing) {
  Tensor w = ones({3});
  auto step = compile([&](double rate, int64_t epoch) { sgd_plain_step(w, w * epoch, rate, 0); });
  double expected = 1;
  for (int i = 0; i < 20; ++i) {
    step(i % 2 ? 0.25 : 0.125, i % 3);
    expected =
        static_cast<float>(expected - (i % 2 ? 0.25 : 0.125) * (static_cast<float>(expected) * (i % 3)));
  }
  EXPECT_NEAR(w.to_vector<double>()[0] / expected, 1, 1e-5);
  EXPECT_EQ(step.compile_count(), 1);
}

TEST(Cases, C12GradientsThroughAMaximumWithTiesAndNan) {
  expect_eagers_answers(
      [](Tensor x) {
        x.requires_grad_();
        const Tensor top = x.amax({1}, true);
        ((x == top).to(DType::F32) * x).sum().backward();
        Tensor by_hand = x.grad();
        x.zero_grad();
        x.amax({1}).sum().backward();
        return concat({by_hand, x.grad()});
      },
      [](int) {
        return std::tuple(tensor({{1, 3, 3, 2}, {static_cast<float>(kNan), 1, 2, 2}, {0, -0.0f, 0, 0}}));
      });
}

TEST(Cases, C13F16RoundsAfterEveryOp) {
  auto step = compile([](const Tensor& x) {
    const Tensor square = x * x;
    return std::pair(square, square.isinf());
  });
  for (int i = 0; i < 4; ++i) {
    const auto [square, infinite] = step(scalar(300, DType::F16));
    EXPECT_TRUE(std::isinf(square.item<float>()));
    EXPECT_TRUE(infinite.item<bool>());
  }
}

TEST(Cases, C14NanGoesThroughExtremaClampAndRelu) {
  auto step = compile([](const Tensor& x, const Tensor& y) {
    return concat({maximum(x, y), maximum(y, x), minimum(x, y), minimum(y, x), x.clamp(-1, 1), x.relu(),
                   x.reshape({1, 1}).amax({1}), x.reshape({1, 1}).amin({1})});
  });
  for (int i = 0; i < 4; ++i)
    for (const float value : step(tensor({static_cast<float>(kNan)}), tensor({1})).to_vector<float>())
      EXPECT_TRUE(std::isnan(value));
}

TEST(Cases, C15ReversedSlicedAndGathered) {
  expect_eagers_answers(
      [](const Tensor& base) {
        const Tensor x = base.slice(0, 3, 9, 2).transpose(0, 1).flip({0, 1}).slice(1, 1, 3);
        return x.gather(0, from_vector(std::vector<int64_t>{4, 0, 2, 2}, {2, 2})) + x.slice(0, 2, 4);
      },
      [](int i) {
        return std::tuple(ramp({11, 5}, i));
      });
  auto step = compile([](const Tensor& base) { return base.flip({0}).slice(0, 1, 3).select(1, 1); });
  for (int i = 0; i < 4; ++i) expect_values(step(tensor({{1, 2}, {3, 4}, {5, 6}})), {4, 2});
}

TEST(Cases, C16EmptyAndZeroDimensionalTensors) {
  auto step = compile([](const Tensor& none, const Tensor& one) {
    EXPECT_ERROR(none[0], IndexError, "select: expected a position in [0, 0) of axis 0, got 0");
    EXPECT_ERROR(none.amax(), ShapeError, "amax: expected at least one element");
    EXPECT_ERROR(none.argmin(), ShapeError, "argmin: expected at least one element");
    return std::tuple(none.sum(), none.mean(), one.flip({0}), (none * 2 + 1).exp(), one.sum({0}, true),
                      none.prod(), concat({none, one.reshape({1})}), one.softmax(0));
  });
  for (int i = 0; i < 4; ++i) {
    const auto [sum, mean, flipped, empty_chain, kept, product, joined, soft] = step(ones({0}), scalar(3));
    EXPECT_EQ(sum.item<float>(), 0);
    EXPECT_TRUE(std::isnan(mean.item<float>()));
    EXPECT_EQ(flipped.item<float>(), 3);
    EXPECT_EQ(empty_chain.numel(), 0);
    EXPECT_EQ(kept.item<float>(), 3);
    EXPECT_EQ(product.item<float>(), 1);
    expect_values(joined, {3});
    EXPECT_EQ(soft.item<float>(), 1);
  }
}

TEST(Cases, C17BackwardThroughDetachedThenThroughAll) {
  Tensor g = tensor({2, 3}).requires_grad_(), d = tensor({4, 5}).requires_grad_();
  auto step = compile([&](const Tensor& x) {
    const Tensor fake = g * x;
    (d * fake.detach()).sum().backward();
    EXPECT_FALSE(g.grad().defined());
    (d * fake).sum().backward();
    const std::pair grads(g.grad(), d.grad());
    g.zero_grad();
    d.zero_grad();
    return grads;
  });
  for (int i = 0; i < 4; ++i) {
    const auto [of_g, of_d] = step(tensor({1, 2}));
    expect_values(of_g, {4, 10});
    expect_values(of_d, {4, 12});
  }
}

TEST(Cases, C18AChainOf100000OpsIsDroppedWithoutRecursion) {
  auto body = [](const Tensor& w) {
    Tensor x = w;
    for (int i = 0; i < 100'000; ++i) x = x + 1.0;
    return x;
  };
  const Tensor w = tensor({0}).requires_grad_();
  eagerly([&] {
    expect_values(body(w), {100'000});
    return 0;
  });
  auto step = compile(body);
  expect_values(step(w), {100'000});
}

TEST(Cases, C19EveryTargetIgnoredGivesNanAsMeanAndZeroAsSum) {
  auto step = compile([](const Tensor& logits, const Tensor& labels) {
    return std::tuple(cross_entropy(logits, labels), cross_entropy(logits, labels, {.reduction = Loss::Sum}),
                      cross_entropy(logits, labels, {.reduction = Loss::None}));
  });
  const Tensor labels = from_vector(std::vector<int64_t>{-100, -100});
  for (int i = 0; i < 4; ++i) {
    const auto [mean, sum, each] = step(ramp({2, 3}), labels);
    EXPECT_TRUE(std::isnan(mean.item<float>()));
    EXPECT_EQ(sum.item<float>(), 0);
    expect_values(each, {0, 0});
  }
  EXPECT_TRUE(std::isnan(cross_entropy(ramp({2, 3}), labels).item<float>()));
}

TEST(Cases, C20TheBranchOfWhereThatOverflows) {
  expect_eagers_answers(
      [](Tensor a) {
        a.requires_grad_();
        const Tensor y = where(a <= 0, a.exp(), 1 + a);
        y.sum().backward();
        return concat({y.detach(), a.grad()});
      },
      [](int) {
        return std::tuple(tensor({100, -1, 0}));
      });
}

TEST(Cases, C21LongChainsWideGroupsAndLargeGraphs) {
  expect_eagers_answers(
      [](Tensor x) {
        for (int i = 0; i < 10; ++i) x = x.tanh().exp().sqrt().neg();
        return x;
      },
      [](int i) { return std::tuple(ramp({7}, -i, 0.3)); });
  std::vector<Tensor> inputs;
  for (int i = 0; i < 60; ++i) inputs.push_back(ramp({5}, 0.1 * i, 0.01));
  expect_eagers_answers(
      [&](const Tensor& x) {
        Tensor sum = x;
        for (const Tensor& input : inputs) sum = sum * 0.5 + input;
        return sum;
      },
      [](int i) { return std::tuple(ramp({5}, i)); });
}

TEST(Cases, C21ChainsOfAnyLengthBeforeAReductionBesideAMask) {
  auto body = [](const Tensor& x) {
    std::vector<Tensor> out;
    for (int length = 4; length <= 7; ++length) {
      Tensor y = x.slice(0, 0, length);  // a group of its own
      for (int i = 0; i < length; ++i) y = y.tanh();
      out.push_back(y > 0.25);
      out.push_back(y.sum({1, 2}));
    }
    return out;
  };
  auto step = compile(body);
  const Tensor x = ramp({7, 4, 5}, -1.5, 0.02).slice(2, 0, 3);  // rows of two axes
  const std::vector<Tensor> expected = eagerly([&] { return body(x); });
  for (int i = 0; i < 3; ++i) {
    const std::vector<Tensor> got = step(x);
    for (size_t k = 0; k < got.size(); ++k) expect_same(got[k], expected[k]);
  }
  const auto executable = report(step)["paths"][0]["executables"][0];
  EXPECT_EQ(executable["kernels"].size(), executable["steps"]) << step.explain();  // none runs op by op
}

TEST(Cases, C21AGraphOf5000Nodes) {
  Settings settings;
  config().cxx = "none";
  expect_eagers_answers(
      [](const Tensor& x) {
        Tensor a = x, b = x * 0.5;
        for (int i = 0; i < 1250; ++i) {
          const Tensor c = (a * 0.5 + b).tanh();
          a = std::exchange(b, i % 50 ? c : c.flip({0}));
          b = b - 0.125;
        }
        return b;
      },
      [](int i) { return std::tuple(ramp({6}, i, 0.1)); });
}

TEST(Cases, C22BranchesWithDifferentNumbersOfOutputs) {
  auto step = compile([](const Tensor& x, int count) {
    std::vector<Tensor> outputs;
    for (int i = 0; i < count; ++i) outputs.push_back(x * (i + 1));
    return outputs;
  });
  for (int i = 0; i < 9; ++i) {
    const std::vector<Tensor> outputs = step(tensor({2}), i % 3);
    ASSERT_EQ(outputs.size(), static_cast<size_t>(i % 3));
    for (int k = 0; k < i % 3; ++k) expect_values(outputs[k], {2.0 * (k + 1)});
  }
  EXPECT_EQ(step.compile_count(), 2);
}

TEST(Cases, C23ADamagedKernelCacheIsRebuilt) {
  namespace fs = std::filesystem;
  Settings settings;
  config().cache_dir = fs::temp_directory_path() / join_text({"etch-damaged-", getpid()});
  auto body = [](const Tensor& x) { return (x * 1.0625 + 3).sin().exp(); };
  const Tensor x = ramp({19}, -1, 0.11), expected = eagerly([&] { return body(x); });
  const auto run = [&] {
    codegen::forget_loaded_kernels();
    auto step = compile(body);
    for (int i = 0; i < 3; ++i) expect_same(step(x), expected);
    EXPECT_EQ(step.compiled_calls(), 2);
  };
  run();
  // A file of its own each time: this process has the old one mapped.
  const auto damage = [&](auto&& change) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(config().cache_dir))
      if (entry.is_regular_file()) files.push_back(entry.path());
    EXPECT_GE(files.size(), 2u);
    for (const fs::path& file : files) {
      std::stringstream bytes;
      bytes << std::ifstream(file, std::ios::binary).rdbuf();
      fs::remove(file);
      std::ofstream(file, std::ios::binary) << change(bytes.str());
    }
    run();
  };
  damage([](std::string bytes) { return bytes.substr(0, bytes.size() / 2); });
  damage([](const std::string&) { return std::string(); });
  damage([](const std::string&) { return std::string("from another version"); });
  damage([](std::string bytes) {  // as of another CPU's code
    bytes[bytes.size() / 2] ^= 0x5a;
    return bytes;
  });
  fs::remove_all(config().cache_dir);
}

TEST(Cases, C24TheHostOverwritesABufferAfterItWasRead) {
  auto step = compile([](Tensor buffer) {
    const Tensor y = buffer * 2;
    buffer.set({0}, 100);
    return y;
  });
  for (int i = 0; i < 4; ++i) {
    Tensor buffer = tensor({1, 2});
    expect_values(step(buffer), {2, 4});
    expect_values(buffer, {100, 2});
  }
}

TEST(Cases, C25WindowsThatMoveAreOnePath) {
  Tensor cache = zeros({16, 2});
  auto step = compile([&](const Tensor& key, int64_t position) {
    cache.slice(0, position, position + 1).copy_(key);
    return cache.sum({0});
  });
  double sum = 0;
  for (int i = 0; i < 12; ++i) {
    sum += i + 1;
    expect_values(step(full({1, 2}, static_cast<float>(i + 1)), i), {sum, sum});
  }
  EXPECT_EQ(step.compile_count(), 1);
  EXPECT_EQ(path_count(step), 1u);

  auto windows = compile([](const Tensor& a, const Tensor& b) { return a - b; });
  const Tensor base = ramp({20}, 0, 1);
  for (int i = 0; i < 8; ++i)
    expect_values(windows(base.slice(0, i, i + 2), base.slice(0, 2 * i, 2 * i + 2)), {-1.0 * i, -1.0 * i});
  EXPECT_EQ(windows.compile_count(), 1);
  EXPECT_EQ(path_count(windows), 1u);
}

TEST(Cases, C26ARandomSubsetOfIntermediatesIsKept) {
  Settings settings;
  config().cxx = "none";
  unsigned mask = 0;
  auto body = [&](Tensor x) {
    std::vector<Tensor> kept;
    for (int i = 0; i < 6; ++i) {
      x = x * 2 + i;
      if (mask >> i & 1) kept.push_back(x);
    }
    return kept;
  };
  auto step = compile(body);
  for (int call = 0; call < 50; ++call) {
    mask = static_cast<unsigned>(call) * 2654435761u >> 20 & 63;
    const std::vector<Tensor> got = step(tensor({1}));
    const std::vector<Tensor> expected = eagerly([&] { return body(tensor({1})); });
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
  EXPECT_LE(step.compile_count(), 4);
}

TEST(Cases, C27ASharedTensorUnderALockLosesNoIncrement) {
  Tensor counter = zeros({1});
  std::mutex mutex;
  auto step = compile([&](const Tensor& one) {
    etch::lock_guard lock(mutex);
    counter.add_(one * 1);
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 10; ++k) step(ones({1}));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.item<float>(), 320);
}

TEST(Cases, C28AWindowAddedToItsNeighbourReadsOldValues) {
  Tensor eager = ramp({5}, 1, 1);
  Tensor late = eager.slice(0, 1, 5);
  late.add_(eager.slice(0, 0, 4));
  expect_values(eager, {1, 3, 5, 7, 9});
  auto step = compile([](const Tensor& x) {
    Tensor shifted = x.slice(0, 1, 5);
    shifted.add_(x.slice(0, 0, 4));
    return x * 1;
  });
  for (int i = 0; i < 4; ++i) expect_values(step(ramp({5}, 1, 1)), {1, 3, 5, 7, 9});
}

TEST(Cases, C29ABadIndexWhoseResultIsUnusedBehavesTheSameAtEveryCall) {
  auto step = compile([](const Tensor& x, const Tensor& index) {
    x.gather(0, index);
    return x + 1;
  });
  for (int i = 0; i < 5; ++i)
    expect_values(step(tensor({1}), from_vector(std::vector<int64_t>{i % 2 ? 9 : 0})), {2});
}

TEST(Cases, C30NanAndBothZerosAlternate) {
  double value = 0;
  auto body = [&](const Tensor& x) { return concat({x * value, x + value, 1.0 / (x * value)}); };
  auto step = compile(body);
  for (const double next : {0.0, -0.0, kNan, 0.0, kNan, -0.0, -0.0}) {
    value = next;
    expect_same(step(tensor({1, -0.0f})), eagerly([&] { return body(tensor({1, -0.0f})); }));
  }
  EXPECT_EQ(step.compile_count(), 1);
}

}  // namespace
}  // namespace etch
