// Frozen calls: right values without running the body, what they check, and what cannot be frozen.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <tuple>

#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "tests/jit/contract.h"

namespace etch {
namespace {

using Freeze = Contract;

TEST_F(Freeze, ReplaysWithoutRunningTheBody) {
  int runs = 0;
  auto step = compile([&](const Tensor& x, const Tensor& y) {
    ++runs;
    return (x * y).exp().sum({1});
  });
  auto fast = step.freeze(ramp({2, 3}), ramp({2, 3}));
  const int before = runs;
  for (int i = 0; i < 5; ++i) {
    const Tensor x = ramp({2, 3}, -i, 0.25), y = ramp({2, 3}, 0.5 * i, -0.125);
    expect_same(fast(x, y), eagerly([&] { return (x * y).exp().sum({1}); }));
  }
  EXPECT_EQ(runs, before);
}

TEST_F(Freeze, EachCallGivesFreshTensors) {
  auto step = compile([](const Tensor& x) { return x * 2; });
  auto fast = step.freeze(ramp({2}));
  const Tensor first = fast(tensor({1, 2})), second = fast(tensor({3, 4}));
  expect_values(first, {2, 4});
  expect_values(second, {6, 8});
}

TEST_F(Freeze, NumbersStayAsTheyWere) {
  auto step = compile([](const Tensor& x, double factor, const Tensor& y) { return x * factor + y; });
  auto fast = step.freeze(ramp({1}), 3.0, ramp({1}));
  expect_values(fast(tensor({2}), tensor({1})), {7});
}

TEST_F(Freeze, ResultsOfAllForms) {
  const Tensor outside = ramp({2});
  auto pair = compile([&](const Tensor& x) { return std::pair(x * 2, std::array{x, outside}); });
  const auto [twice, rest] = pair.freeze(ramp({2}))(tensor({5, 6}));
  expect_values(twice, {10, 12});
  expect_values(rest[0], {5, 6});
  EXPECT_TRUE(rest[1].is_same(outside));
  auto many = compile([](const Tensor& x) {
    std::vector<Tensor> list;
    for (int i = 1; i < 8; ++i) list.push_back(x * i);
    return std::tuple(list, list[2].slice(0, 1, 2), Tensor());
  });
  const auto [list, view, none] = many.freeze(ramp({2}))(tensor({1, 2}));
  ASSERT_EQ(list.size(), 7u);
  for (int i = 1; i < 8; ++i) expect_values(list[static_cast<size_t>(i) - 1], {1.0 * i, 2.0 * i});
  expect_values(view, {6});
  EXPECT_EQ(&view.storage(), &list[2].storage());
  EXPECT_FALSE(none.defined());
}

// Runs that keep what they return, or were given, outside: a frozen call could not put its own there.
TEST_F(Freeze, WhatIsReturnedAndKeptOutsideIsRefused) {
  Tensor w = ones({2}).requires_grad_();
  std::vector<Tensor> kept(1);
  const auto refuses = [&](auto body, const char* what) {
    expect_part(message<TraceError>([&] { compile(body).freeze(ones({2})); }), what);
    w.zero_grad();
    kept[0] = {};
  };
  refuses(
      [&](const Tensor& x) {
        w.set_grad(x * 2);
        return w.grad();
      },
      "that keeps the result of op 0 (mul) outside, returned or not");
  refuses(
      [&](const Tensor& x) {
        (w * x).sum().backward();
        const Tensor grad = w.grad();
        w.set_grad(grad.slice(0, 0, 2));
        return grad;
      },
      "that is replaced later on");
  refuses([&](const Tensor& x) { return kept[0] = x * 2; }, "that keeps the result of op 0 (mul) outside");
  refuses(
      [&](const Tensor& x) {
        const Tensor result = x * 2;
        kept[0] = result.slice(0, 1, 2);
        return result;
      },
      "that keeps the result of op 0 (mul) outside");
  refuses(
      [&](const Tensor& x) {
        kept[0] = x;
        return x * 2;
      },
      "that keeps input 0 outside");
  refuses(
      [&](const Tensor& x) {
        w.set_grad(x.detach());
        return x * 2;
      },
      "that keeps input 0 outside");
}

TEST_F(Freeze, WhatOnlyTheFirstRunKeepsIsFine) {
  Tensor first;
  auto step = compile([&](const Tensor& x) {
    const Tensor y = x * 2;
    if (!first.defined()) first = y;
    return y;
  });
  auto fast = step.freeze(tensor({1, 2}));
  expect_values(fast(tensor({5, 6})), {10, 12});
  expect_values(first, {2, 4});
}

TEST_F(Freeze, ViewsOfInputsAndOfTensorsOutside) {
  const Tensor outside = ramp({4});
  auto step =
      compile([&](const Tensor& x) { return std::tuple(x.slice(0, 1, 3), outside.slice(0, 2, 4), x + 1); });
  auto fast = step.freeze(ramp({3}));
  const Tensor x = tensor({5, 6, 7});
  const auto [a, b, c] = fast(x);
  expect_values(a, {6, 7});
  EXPECT_EQ(&a.storage(), &x.storage());
  expect_values(b, {2, 2.5});
  expect_values(c, {6, 7, 8});
}

TEST_F(Freeze, WindowsOfOneStorageMayMove) {
  auto step = compile([](const Tensor& x) { return x.slice(0, 1, 3) * 10; });
  const Tensor data = ramp({8}, 0, 1);
  auto fast = step.freeze(data.slice(0, 2, 5));
  for (int i = 0; i < 5; ++i) expect_values(fast(data.slice(0, i, i + 3)), {10.0 * (i + 1), 10.0 * (i + 2)});
}

TEST_F(Freeze, WritesHappenAndCount) {
  Tensor sum = zeros({2});
  auto step = compile([&](Tensor x) {
    sum.add_(x);
    x.mul_(2);
  });
  const Tensor example = tensor({1, 1});
  auto fast = step.freeze(example);
  expect_values(example, {1, 1});
  sum.zero_();
  const Tensor x = tensor({1, 2});
  const uint32_t sum_version = sum.storage().version(), x_version = x.storage().version();
  fast(x);
  expect_values(sum, {1, 2});
  expect_values(x, {2, 4});
  EXPECT_EQ(sum.storage().version(), sum_version + 1);
  EXPECT_EQ(x.storage().version(), x_version + 1);
  Tensor w = ramp({2}).requires_grad_();
  const Tensor product = (w * x).sum();
  fast(x);
  expect_part(message<AutogradError>([&] { product.backward(); }), "mul");
}

/// A linear model and SGD whose momentum is made at the first step.
struct Trainer {
  Tensor weight = ramp({3, 2}, -1, 0.25).requires_grad_();
  Tensor momentum;

  Tensor operator()(const Tensor& x) {
    Tensor loss = x.matmul(weight).square().mean();
    loss.backward();
    {
      NoGrad guard;
      if (!momentum.defined())
        momentum = weight.grad().clone();
      else
        momentum.mul_(0.9).add_(weight.grad());
      weight.sub_(momentum * 0.1);
    }
    weight.zero_grad();
    return loss;
  }
};

TEST_F(Freeze, ATrainingStepIsEagers) {
  Trainer frozen, plain;
  auto step = compile([&](const Tensor& x) { return frozen(x); });
  auto fast = step.freeze(ramp({4, 3}));  // makes the momentum, then finds two runs that agree
  const int64_t runs = report(step)["calls"];
  EXPECT_EQ(runs, 3);
  eagerly([&] {
    for (int i = 0; i < runs; ++i) plain(ramp({4, 3}));
    return 0;
  });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = ramp({4, 3}, -i, 0.1);
    const Tensor loss = fast(x);
    EXPECT_FALSE(loss.requires_grad());
    expect_same(loss, eagerly([&] { return plain(x); }));
    expect_same(frozen.weight, plain.weight);
    expect_same(frozen.momentum, plain.momentum);
  }
}

TEST_F(Freeze, RandomNumbersAreEagers) {
  const auto body = [](const Tensor& x) { return x * rand({3}) + randn({2, 3}).sum({0}); };
  auto step = compile(body);
  auto fast = step.freeze(ones({3}));
  for (uint64_t seed : {1, 2}) {
    manual_seed(seed);
    std::vector<Tensor> expected;
    for (int i = 0; i < 3; ++i) expected.push_back(eagerly([&] { return body(ones({3})); }));
    manual_seed(seed);
    for (const Tensor& one : expected) expect_same(fast(ones({3})), one);
  }
}

TEST_F(Freeze, AnotherGeneratorIsRefused) {
  Generator own(5);
  auto step = compile([&](const Tensor& x) { return x * rand({3}, {}, &own); });
  expect_part(message<TraceError>([&] { step.freeze(ones({3})); }), "another generator");
}

TEST_F(Freeze, InputsAreChecked) {
  auto step = compile([](const Tensor& x, const Tensor& y) { return x * y.sum(); }, {.name = "scale"});
  auto fast = step.freeze(ramp({2, 3}), ramp({4}));
  const Tensor x = ramp({2, 3}), y = ramp({4});
  expect_part(message<DTypeError>([&] { fast(x.to(DType::F64), y); }),
              "scale: frozen call, input 0: expected f32, got f64");
  expect_part(message<ShapeError>([&] { fast(x, ramp({5})); }), "input 1: expected sizes [4], got [5]");
  expect_part(message<ShapeError>([&] {
                fast(ramp({3, 2}).t(), y);
              }),
              "input 0: expected strides [3, 1], got [1, 2]");
  expect_part(message<ShapeError>([&] { fast(x, ramp({8}).slice(0, 0, 4)); }),
              "a window into 16 bytes, got one into 32");
  expect_part(message<ValueError>([&] { fast(Tensor(), y); }), "expected a tensor, got an undefined one");
  expect_same(fast(x, y), eagerly([&] { return x * y.sum(); }));
}

TEST_F(Freeze, InputsThatShareMemoryInAnotherWayAreRefused) {
  Tensor outside = ramp({2});
  auto step = compile([&](const Tensor& x, const Tensor& y) {
    outside.add_(x);
    return y * 2;
  });
  auto fast = step.freeze(ramp({2}), ramp({2}));
  const Tensor x = ramp({2});
  expect_part(message<ValueError>([&] { fast(x, x); }), "got that of input 0; pass a copy");
  expect_part(message<ValueError>([&] { fast(x, outside); }), "uses from outside; pass a copy");
  auto both = step.freeze(x, x);
  expect_values(both(x, x), {2, 3});
  expect_part(message<ValueError>([&] { both(x, ramp({2})); }), "beside input 0");
}

TEST_F(Freeze, HostReadsAreRefused) {
  auto step = compile([](const Tensor& x) { return x.sum().item<float>() > 0 ? x * 2 : x; });
  const std::string text = message<TraceError>([&] { step.freeze(ones({2})); });
  expect_part(text, "the host read a value at");
  expect_part(text, "freeze_test.cpp:");
  auto flushing = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    flush();
    return y + 1;
  });
  expect_part(message<TraceError>([&] { flushing.freeze(ones({2})); }), "that calls etch::flush() at");
  auto inner = compile([](const Tensor& x) { return x * 2; }).freeze(ones({2}));
  const int line = __LINE__ + 1;
  auto calling = compile([&](const Tensor& x) { return inner(x + 1) + 1; });
  const std::string nested = message<TraceError>([&] { calling.freeze(ones({2})); });
  expect_part(nested, "got one that calls a frozen function at ");
  expect_part(nested, "freeze_test.cpp:" + std::to_string(line) + "; call the compiled one there");
  calling(ones({2}));
  EXPECT_EQ(report(calling)["paths"][0]["flushed_because"], "a call of a frozen function");
}

TEST_F(Freeze, WhatChangesFromRunToRunIsRefused) {
  int count = 0;
  auto counting = compile([&](const Tensor& x) { return x * (0.5 * ++count); });
  expect_part(message<TraceError>([&] { counting.freeze(ones({2})); }),
              "the number in op 0 (mul) changes from run to run");
  const Tensor weights[] = {ones({2}), ones({2})};
  auto switching = compile([&](const Tensor& x) { return x * weights[++count % 2]; });
  expect_part(message<TraceError>([&] { switching.freeze(ones({2})); }),
              "op 0 (mul) uses another f32[2] tensor of the outside");
  auto making = compile([&](const Tensor& x) { return x * from_vector(std::vector<float>{1, 2}); });
  expect_part(message<TraceError>([&] { making.freeze(ones({2})); }), "of the outside");
  auto growing = compile([&](const Tensor& x) {
    const int times = ++count;
    Tensor y = x;
    for (int i = 0; i < times; ++i) y = y + 1;
    return y;
  });
  expect_part(message<TraceError>([&] { growing.freeze(ones({2})); }), "differ");
}

TEST_F(Freeze, MemoryOfOthersThatEachCallCopiesIsNamedWithItsRemedy) {
  float sensor[2] = {1, 2}, other[2] = {1, 2};
  const Tensor copied = from_blob(sensor, {2}), stable = from_blob(other, {2}, {.stable = true});
  auto reading = compile([&](const Tensor& x, const Tensor& from) { return x * from; });
  auto capturing = compile([&](const Tensor& x) { return x * copied; });
  expect_part(message<TraceError>([&] { capturing.freeze(ones({2})); }), "from_blob() that each call copies");
  auto stable_capturing = compile([&](const Tensor& x) { return x * stable; });
  auto given = reading.freeze(ones({2}), copied);
  auto captured = stable_capturing.freeze(ones({2}));
  sensor[1] = other[1] = 5;
  EXPECT_EQ(given(ones({2}), copied).to_vector<float>(), (std::vector<float>{1, 5}));
  EXPECT_EQ(captured(ones({2})).to_vector<float>(), (std::vector<float>{1, 5}));
}

TEST_F(Freeze, WhatOutlivesTheCallIsRefused) {
  Tensor kept;
  auto keeping = compile([&](const Tensor& x) {
    kept = x * 3;
    return x + 1;
  });
  expect_part(message<TraceError>([&] { keeping.freeze(ones({2})); }),
              "the result of op 0 (mul) outlives the call");
  Tensor weight = ones({2}).requires_grad_();
  auto gradients = compile([&](const Tensor& x) {
    weight.zero_grad();
    (x * weight).sum().backward();
  });
  const std::string text = message<TraceError>([&] { gradients.freeze(ones({2})); });
  expect_part(text, "a gradient left in .grad");
  expect_part(text, "the body ran 5 times with all its effects");
  expect_values(weight.grad(), {1, 1});
}

TEST_F(Freeze, NothingRecordedIsRefused) {
  auto step = compile([](const Tensor& x) { return x; });
  expect_part(message<TraceError>([&] { step.freeze(ones({2})); }),
              "nothing to freeze: the body records no op");
}

TEST_F(Freeze, InsideATraceIsRefusedAndAFrozenCallThereFlushes) {
  auto step = compile([](const Tensor& x) { return x * 2; });
  auto fast = step.freeze(ones({2}));
  auto outer = compile([&](const Tensor& x) { return fast(x + 1) + 1; });
  for (int i = 0; i < 3; ++i) expect_values(outer(tensor({1, 2})), {5, 7});
  auto freezing = compile([&](const Tensor& x) { return step.freeze(x)(x); });
  expect_part(message<TraceError>([&] { freezing(ones({2})); }), "outside traced functions");
}

TEST_F(Freeze, DataErrorsAreThoseOfACall) {
  Tensor seen = zeros({1});
  auto step = compile([&](const Tensor& x, const Tensor& index) {
    seen.add_(1);
    return x.index_select(0, index);
  });
  const Tensor x = ramp({3});
  auto fast = step.freeze(x, from_vector(std::vector<int64_t>{1}));
  const float before = seen.item<float>();
  EXPECT_THROW(fast(x, from_vector(std::vector<int64_t>{7})), IndexError);
  EXPECT_EQ(seen.item<float>(), before + 1);
  expect_values(fast(x, from_vector(std::vector<int64_t>{2})), {2});
}

TEST_F(Freeze, RunningOutOfMemoryChangesNothing) {
  Tensor sum = zeros({1 << 16});
  auto step = compile([&](const Tensor& x) {
    sum.add_(x);
    return x.exp();
  });
  const Tensor x = ones({1 << 16});
  auto fast = step.freeze(x);
  sum.zero_();
  empty_cache();
  set_memory_limit(memory_stats().allocated + (1 << 16));
  EXPECT_THROW(fast(x), OutOfMemoryError);
  set_memory_limit(0);
  EXPECT_EQ(sum.sum().item<float>(), 0);
  fast(x);
  EXPECT_EQ(sum.sum().item<float>(), 1 << 16);
}

TEST_F(Freeze, OutlivesItsFunctionAndWorksWhereTracingIsOff) {
  const auto make = [] {
    auto step = compile([](const Tensor& x) { return (x * 2).exp(); });
    return step.freeze(ones({2}));
  };
  auto fast = make();
  const Tensor expected = eagerly([] { return (tensor({1, 2}) * 2).exp(); });
  expect_same(fast(tensor({1, 2})), expected);
  config().disable = true;
  expect_same(fast(tensor({1, 2})), expected);
  expect_same(make()(tensor({1, 2})), expected);
}

TEST_F(Freeze, AnotherNumberOfThreadsGivesTheSameValues) {
  auto step = compile([](const Tensor& x) { return x.matmul(x); });
  const int threads = num_threads();
  auto fast = step.freeze(ramp({8, 8}));
  set_num_threads(threads + 1);
  expect_same(fast(ramp({8, 8})), eagerly([] { return ramp({8, 8}).matmul(ramp({8, 8})); }));
  set_num_threads(threads);
}

TEST_F(Freeze, ManyThreadsMayFreeze) {
  const Compiler slow([](const Path& path, const LiveSet& live, const CompileOptions& options) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return Compiler::real(path, live, options);
  });
  auto step = compile([](const Tensor& x) { return (x * 3 - 1).tanh().exp(); });
  const Tensor expected = eagerly([] { return (ramp({4}) * 3 - 1).tanh().exp(); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] { EXPECT_NO_THROW(expect_same(step.freeze(ramp({4}))(ramp({4})), expected)); });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Freeze, ManyThreads) {
  auto step = compile([](const Tensor& x) { return (x * 2 + 1).sum(); });
  auto fast = step.freeze(ones({4}));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        wrong +=
            fast(full({4}, static_cast<float>(t + i))).item<float>() != static_cast<float>(8 * (t + i) + 4);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace etch
