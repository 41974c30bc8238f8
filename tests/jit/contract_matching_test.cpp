// Streams are matched op by op: what makes a path, what does not, and what is never frozen.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>

#include "runtime/parallel.h"
#include "tests/jit/contract.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

using Matching = Contract;

TEST_F(Matching, OneStreamIsOnePathCompiledAtItsSecondSighting) {
  auto step = compile([](const Tensor& x) { return (x * 2 + 1).relu(); });
  for (int i = 0; i < 5; ++i)
    expect_values(step(tensor({-1.0f + static_cast<float>(i), 2})), {std::max(0.0, 2.0 * i - 1), 5});
  EXPECT_EQ(path_count(step), 1u);
  EXPECT_EQ(step.compile_count(), 1);
  EXPECT_EQ(step.eager_calls(), 1);
  EXPECT_EQ(step.compiled_calls(), 4);
}

struct Divergence {
  const char* what;
  std::function<Tensor(int)> body;  ///< by call; even and odd calls differ
};

class Diverging : public ::testing::TestWithParam<Divergence> {
 protected:
  Diverging() { config().cxx = "none"; }
  Settings settings_;
};

TEST_P(Diverging, MakesTwoPathsThatBothStayCompiled) {
  int call = 0;
  auto step = compile([&] { return GetParam().body(call); });
  for (; call < 8; ++call) {
    const Tensor expected = eagerly([&] { return GetParam().body(call); });
    expect_same(step(), expected);
  }
  EXPECT_EQ(path_count(step), 2u) << step.explain();
  EXPECT_EQ(step.compile_count(), 2);
  EXPECT_EQ(step.eager_calls(), 2);
  EXPECT_NE(report(step)["paths"][1]["diverged"], "");
}

const Tensor kA = ramp({2, 3}), kB = ramp({2, 3}, -4), kWide = ramp({4, 3}), kInts = kA.to(DType::I32);

INSTANTIATE_TEST_SUITE_P(
    Everything, Diverging,
    ::testing::Values(
        Divergence{"op", [](int i) { return i % 2 ? kA + kB : kA - kB; }},
        Divergence{"attribute", [](int i) { return kA.sum({i % 2}, true).sum(); }},
        Divergence{"shape", [](int i) { return (i % 2 ? kA : kWide) * 2; }},
        Divergence{"dtype", [](int i) { return (i % 2 ? kA : kA.to(DType::F64)) * 2; }},
        Divergence{"dtype of the same size", [](int i) { return (i % 2 ? kInts : kA) * 2; }},
        Divergence{"dtype to cast to", [](int i) { return kA.to(i % 2 ? DType::I64 : DType::F64) * 0.5; }},
        Divergence{"strides",
                   [](int i) {
                     return (i % 2 ? ramp({3, 3}) : ramp({3, 3}).t()) * 2;
                   }},
        Divergence{"identity", [](int i) { return kA * (i % 2 ? kA : kB); }},
        Divergence{"two operands where there was one", [](int i) { return kA * (i % 2 ? kB : kA); }},
        Divergence{"external of an earlier op", [](int i) { return (kA + 1) * (i % 2 ? kA : kB); }},
        Divergence{"alias through a view",
                   [](int i) {
                     Tensor base = ramp({6}), other = ramp({6}, 9);
                     Tensor low = base.slice(0, 0, 3), high = (i % 2 ? base : other).slice(0, 2, 5);
                     low.add_(high);
                     return high * 1.0;
                   }},
        Divergence{"kind of scalar",
                   [](int i) { return i % 2 ? kA.to(DType::I64) * 2 : kA.to(DType::I64) * 2.0; }},
        Divergence{"operand that is absent",
                   [](int i) {
                     const Tensor bias = ramp({1}, 5), scale = bias + 1;
                     return conv2d(ramp({1, 1, 3, 3}), ramp({1, 1, 1, 1}), i % 2 ? Tensor() : bias) * scale;
                   }},
        Divergence{"length", [](int i) { return i % 2 ? (kA * 2).exp() : kA * 2; }},
        Divergence{"operand of an earlier op",
                   [](int i) {
                     const Tensor y = kA * 2, z = kA * 3;
                     return (i % 2 ? y : z) + 1;
                   }}),
    [](const auto& info) {
      std::string name = info.param.what;
      for (char& c : name)
        if (c == ' ') c = '_';
      return name;
    });

TEST_F(Matching, SiblingsOfAWindowsSizeHaveTheirOwnPath) {
  auto step = compile([](const Tensor& x) { return x * 2; });
  const Tensor small = ramp({2}), large = ramp({8}).slice(0, 3, 5);
  for (int i = 0; i < 4; ++i) {
    expect_values(step(small), {2, 3});
    expect_values(step(large), {5, 6});
  }
  EXPECT_EQ(step.eager_calls(), 2);
  const nlohmann::json facts = report(step);
  for (const auto& path : facts["paths"]) EXPECT_EQ(path["declined_calls"], 0);
}

TEST_F(Matching, ResultsOfOtherSizesThatBeginAlikeArePathsOfTheirOwn) {
  auto step = compile([](const Tensor& a, const Tensor& b) { return concat({a, b}); });
  const Tensor a = tensor({1, 2});
  for (int i = 0; i < 8; ++i) {
    const Tensor b = ramp({i % 2 ? 2 : 100});
    expect_same(step(a, b), eagerly([&] { return concat({a, b}); }));
  }
  EXPECT_EQ(step.compile_count(), 2);
}

TEST_F(Matching, EachNumberOfThreadsHasItsOwnPath) {
  const int threads = num_threads();
  const Tensor x = randn({2, 3, 9, 9}), w = randn({4, 3, 3, 3});
  auto f = compile([&] { return conv2d(x, w, {}, {.padding = {1, 1}}) + 1.0; });
  for (int count : {1, 2, 3, 1, 2, 3, 1, 2, 3}) {
    set_num_threads(count);
    expect_same(f(), eagerly([&] { return conv2d(x, w, {}, {.padding = {1, 1}}) + 1.0; }));
  }
  set_num_threads(threads);
  EXPECT_EQ(f.compile_count(), 3);
  EXPECT_EQ(f.compiled_calls(), 6);
  EXPECT_NE(f.explain().find("threads: 1 before, 2 now"), std::string::npos) << f.explain();
}

TEST_F(Matching, OffsetsOfWindowsAreArgumentsOfOnePath) {
  const Tensor base = ramp({16}, 0, 1);
  auto step = compile([](const Tensor& a, const Tensor& b) { return a * b; });
  for (int i = 0; i < 6; ++i) {
    const Tensor y = step(base.slice(0, i, i + 4), base.slice(0, 12 - 2 * i, 16 - 2 * i));
    for (int k = 0; k < 4; ++k) EXPECT_EQ(y.to_vector<double>()[k], (i + k) * (12 - 2 * i + k));
  }
  EXPECT_EQ(step.compile_count(), 1);
  EXPECT_EQ(path_count(step), 1u);
}

TEST_F(Matching, HostScalarsAreNeverFrozen) {
  double factor = 1;
  auto step = compile([&](const Tensor& x) { return x * factor + (factor > 0 ? 1 : -1); });
  for (double value : {1.0, 10.0, 10.0, -3.0, 1e-3, 7.0}) {
    factor = value;
    expect_same(step(kA), eagerly([&] { return kA * factor + (factor > 0 ? 1 : -1); }));
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Matching, NanAndSignedZerosAlternateAtOneSite) {
  double value = 0;
  const Tensor zeros_of_both_signs = tensor({0.0f, -0.0f, 1.0f});
  auto step = compile([&](const Tensor& x) { return concat({x * value, x + value, maximum(x, value)}); });
  for (double next : {std::nan(""), -0.0, 0.0, -0.0, std::nan(""), 0.0, static_cast<double>(INFINITY)}) {
    value = next;
    expect_same(step(zeros_of_both_signs), eagerly([&] {
                  return concat({zeros_of_both_signs * value, zeros_of_both_signs + value,
                                 maximum(zeros_of_both_signs, value)});
                }));
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Matching, IntegerScalarsKeepAll64Bits) {
  int64_t value = 0;
  auto step = compile([&](const Tensor& x) { return x + value; });
  for (int64_t next : {int64_t{1} << 60, (int64_t{1} << 60) + 1, int64_t{-7}, int64_t{3}}) {
    value = next;
    EXPECT_EQ(step(from_vector(std::vector<int64_t>{1})).item<int64_t>(), next + 1);
  }
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Matching, RandomNumbersAreEagersAtEveryReplay) {
  auto body = [](const Tensor& x) {
    return concat({dropout(x, 0.5), rand({3}), randn({3}), bernoulli({4}, 0.5)});
  };
  const Tensor x = ones({32});
  auto step = compile(body);
  manual_seed(5);
  std::vector<Tensor> expected, actual;
  eagerly([&] {
    for (int i = 0; i < 4; ++i) expected.push_back(body(x));
    return 0;
  });
  manual_seed(5);
  for (int i = 0; i < 4; ++i) actual.push_back(step(x));
  for (int i = 0; i < 4; ++i) expect_same(actual[i], expected[i]);
  for (int i = 1; i < 4; ++i) EXPECT_NE(actual[i].to_vector<float>(), actual[0].to_vector<float>());
  EXPECT_EQ(step.compile_count(), 1);
}

TEST_F(Matching, ABranchOnAValueCompilesBothSidesAfterTheRead) {
  auto body = [](const Tensor& x) {
    const Tensor y = x * 2;
    return y.sum().item<float>() > 0 ? y + 1 : y - 1;
  };
  auto step = compile(body);
  for (int i = 0; i < 8; ++i) {
    const Tensor x = i % 2 ? kB - 9 : kA;
    expect_same(step(x), eagerly([&] { return body(x); }));
  }
  EXPECT_EQ(path_count(step), 3u);
  EXPECT_EQ(step.compile_count(), 3);
  EXPECT_EQ(report(step)["paths"][0]["flushed_because"], "the host read a value");
  EXPECT_NE(std::string(report(step)["paths"][0]["flushed_at"]).find("contract_matching_test.cpp:"),
            std::string::npos);
}

TEST_F(Matching, TripCountsAreAPathEach) {
  int trips = 0;
  auto body = [&](Tensor x) {
    for (int i = 0; i < trips; ++i) x = x * 1.5 + i;
    return x;
  };
  auto step = compile(body);
  for (int next : {1, 3, 1, 3, 2, 3, 1, 2}) {
    trips = next;
    expect_same(step(kA), eagerly([&] { return body(kA); }));
  }
  EXPECT_EQ(step.compile_count(), 3);
  EXPECT_EQ(step.eager_calls(), 3);
}

TEST_F(Matching, GivesUpAfterMaxPathsAndStaysRight) {
  auto step = compile([](const Tensor& x) { return (x * 2).sum() + x.size(0); }, {.max_paths = 4});
  for (int i = 1; i <= 40; ++i) EXPECT_EQ(step(ones({i})).item<float>(), 3.0f * static_cast<float>(i));
  EXPECT_EQ(path_count(step), 4u);
  EXPECT_EQ(step.compile_count(), 0);
  EXPECT_TRUE(report(step)["gave_up"]);
  EXPECT_EQ(report(step)["eager_calls_after_giving_up"], 35);
  EXPECT_NE(step.explain().find("more than 4 paths"), std::string::npos);
}

// Operands and bytes are the same: only the strides of what is made tell the two apart.
TEST_F(Matching, CopiesInTwoLayoutsAreTwoPaths) {
  const Tensor x = kA.t();
  auto step = compile([&](bool dense) { return dense ? x.contiguous() : x.clone(); });
  for (int i = 0; i < 8; ++i) {
    const Tensor copy = step(i % 2), expected = i % 2 ? x.contiguous() : x.clone();
    EXPECT_EQ(copy.strides(), expected.strides());
    expect_same(copy, expected);
  }
  EXPECT_EQ(path_count(step), 2u);
  EXPECT_EQ(step.compiled_calls(), 6);
}

TEST_F(Matching, KnownPathsStayCompiledAfterMaxPaths) {
  const auto body = [](const Tensor& x) { return (x * 2 + 1).relu(); };
  auto step = compile(body, {.max_paths = 3});
  for (int i = 0; i < 3; ++i) step(kA);
  for (int i = 1; i < 30; ++i) {
    const int64_t compiled = step.compiled_calls();
    expect_same(step(ones({20, i})), eagerly([&] { return body(ones({20, i})); }));
    expect_same(step(kA), eagerly([&] { return body(kA); }));
    EXPECT_EQ(step.compiled_calls(), compiled + 1);
  }
  EXPECT_EQ(path_count(step), 3u);
  EXPECT_EQ(report(step)["eager_calls_after_giving_up"], 26);
}

TEST_F(Matching, APathSeenOnceBeforeMaxPathsIsCompiledWhenSeenAgain) {
  auto step = compile([](const Tensor& x) { return x * 2 + 1; }, {.max_paths = 2});
  for (int i = 1; i < 5; ++i) step(ones({i}));
  for (int i = 0; i < 3; ++i) expect_values(step(tensor({3, 4})), {7, 9});
  EXPECT_EQ(step.compile_count(), 1);
  EXPECT_EQ(step.compiled_calls(), 3);
}

// What is pending then runs, what follows runs eagerly: values, writes, versions, gradients, random numbers.
TEST_F(Matching, ACallThatLeavesTheKnownPathsInItsMiddleIsRight) {
  const auto run = [](bool eager) {
    std::vector<Tensor> results;
    Tensor w = ones({3}).requires_grad_(), buffer = zeros({3});
    int trips = 0;
    auto step = compile(
        [&](const Tensor& x) {
          Tensor y = x * w;
          buffer.add_(y.detach());
          for (int i = 0; i < trips; ++i) {
            y = (y + rand({3})).tanh();
            buffer.add_(y.detach());
          }
          y.mean().backward();
          no_grad([&] { w.add_(w.grad() * -0.1); });
          return y;
        },
        {.max_paths = 3});  // the first call makes one of its own, since there is no gradient yet
    manual_seed(5);
    for (int next : {1, 2, 1, 2, 3, 1, 4, 0, 2, 7, 1}) {
      trips = next;
      const auto call = [&] { return step(tensor({1, 2, 3})); };
      results.push_back(eager ? eagerly(call) : call());
      for (const Tensor& x : {w.detach().clone(), w.grad().clone(), buffer.clone()}) results.push_back(x);
    }
    if (!eager) {
      EXPECT_EQ(step.compiled_calls(), 4);
      EXPECT_EQ(path_count(step), 3u);
    }
    return results;
  };
  const std::vector<Tensor> expected = run(true), actual = run(false);
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(actual[i], expected[i]);
  }
}

TEST_F(Matching, AKnownPathComesBackAfterManyCallsOfUnknownOnes) {
  auto step = compile([](const Tensor& x) { return x * 2 + 1; }, {.max_paths = 2});
  for (int i = 0; i < 3; ++i) step(kA);
  for (int i = 1; i < 500; ++i) step(ones({20, i}));
  const int64_t compiled = step.compiled_calls();
  for (int i = 0; i < 40; ++i) step(kA);
  EXPECT_GE(step.compiled_calls(), compiled + 8);
  const int64_t before = step.compiled_calls();
  for (int i = 0; i < 40; ++i) step(kA);
  EXPECT_EQ(step.compiled_calls(), before + 40);
}

TEST_F(Matching, AKnownPathOfAFunctionThatGaveUpCanBeFrozen) {
  auto step = compile([](const Tensor& x) { return x * 2 + 1; }, {.name = "full", .max_paths = 2});
  for (int i = 0; i < 3; ++i) step(tensor({1}));
  for (int i = 1; i < 5; ++i) step(ones({20, i}));
  auto fast = step.freeze(tensor({1}));
  expect_values(fast(tensor({3})), {7});
  EXPECT_ERROR(step.freeze(ones({9})), TraceError, "that has too many paths, and takes a new one now");
}

TEST_F(Matching, AnInnerFunctionTracesByItselfOnceTheOuterGaveUp) {
  auto inner = compile([](const Tensor& x) { return x.exp() + 1; });
  auto outer = compile([&](const Tensor& x) { return (x * 2).sum() + inner(kA).sum(); }, {.max_paths = 2});
  const float expected = eagerly([&] { return (kA.exp() + 1).sum().item<float>(); });
  // Until it is clear that no call takes a known path, the inner ops may be the first ones of one.
  for (int i = 1; i <= 60; ++i) EXPECT_EQ(outer(zeros({i})).item<float>(), expected);
  EXPECT_GE(inner.compiled_calls(), 40);
}

TEST_F(Matching, CompileAtSaysWhen) {
  auto first = compile([](const Tensor& x) { return x * 2; }, {.compile_at = 1});
  auto third = compile([](const Tensor& x) { return x * 2; }, {.compile_at = 3});
  for (int i = 0; i < 4; ++i) {
    expect_values(first(tensor({1})), {2});
    expect_values(third(tensor({1})), {2});
  }
  EXPECT_EQ(first.eager_calls(), 0);
  EXPECT_EQ(third.eager_calls(), 2);
}

TEST_F(Matching, RecursionAndNestingInline) {
  std::function<Tensor(const Tensor&, int)> call;
  auto step = compile(
      [&](const Tensor& x, int depth) -> Tensor { return depth == 0 ? x + 1 : call(x, depth - 1) * 2; });
  call = [&](const Tensor& x, int depth) { return step(x, depth); };
  for (int i = 0; i < 4; ++i) expect_values(step(tensor({1}), 3), {16});
  EXPECT_EQ(path_count(step), 1u);
  EXPECT_EQ(step.compile_count(), 1);
  EXPECT_EQ(step.compiled_calls(), 3);
}

// 10% is the aim (bench/replay_bench, never_settles), of the processor's time; the rest is room for a busy
// machine.
TEST_F(Matching, AFunctionThatNeverSettlesCostsLittleMoreThanEager) {
  const auto body = [](Tensor x) {
    for (int i = 0; i < 40; ++i) x = i % 2 ? x.tanh() : x.neg();
    return x;
  };
  const auto seconds = [&](auto&& f) {
    const std::clock_t start = std::clock();
    for (int64_t i = 0; i < 2000; ++i) f(ones({i % 13 + 1, i / 13 % 13 + 1, i / 169 + 1}));
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  double eager = 1e9, traced = 1e9;
  for (int i = 0; i < 5; ++i) {
    eager = std::min(eager, seconds(body));
    traced = std::min(traced, seconds(compile(body)));
  }
  EXPECT_LT(traced, 1.6 * eager);
}

}  // namespace
}  // namespace etch
