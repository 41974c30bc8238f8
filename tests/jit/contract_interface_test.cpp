// Ways to trace a function, its reports, and machines without a compiler or a writable kernel cache.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <tuple>

#include "tests/jit/contract.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

using Interface = Contract;

Tensor free_function(const Tensor& x, double factor) {
  ETCH_TRACED();
  const Tensor y = x * factor;
  return y + 1;
}

struct Layer {
  Tensor weight = ramp({2});
  int calls = 0;
  std::tuple<Tensor, double, Tensor> forward(const Tensor& x, int64_t shift) {
    ETCH_TRACED();
    ++calls;
    const Tensor y = x * weight + shift;
    return {y, 2.5, y.sum()};
  }
  Tensor plain(const Tensor& x) { return x * weight; }
};

TEST_F(Interface, AnnotatedFreeFunction) {
  for (int i = 1; i < 6; ++i) expect_values(free_function(tensor({1, 2}), i), {i + 1.0, 2.0 * i + 1});
  EXPECT_NE(explain_traced("free_function").find("ran compiled 4, op by op 1"), std::string::npos)
      << explain_traced("free_function");
  EXPECT_EQ(explain_traced("no such function"), "");
}

TEST_F(Interface, AnnotatedFunctionsTakeOptions) {
  auto twice = [](const Tensor& x) {
    ETCH_TRACED({.name = "twice at once", .compile_at = 1, .max_paths = 1});
    return x * 2 + 1;
  };
  expect_values(twice(tensor({1, 2})), {3, 5});
  expect_part(explain_traced("twice at once"), "ran compiled 1, op by op 0");
  expect_part(explain_traced("AnnotatedFunctionsTakeOptions"), "twice at once, ");  // by its function too
  expect_values(twice(tensor({1})), {3});  // another path than the one allowed
  expect_part(explain_traced("twice at once"), "more than 1 paths");
  auto bad = [](const Tensor& x) {
    ETCH_TRACED({.compile_at = 0});
    return x * 2;
  };
  EXPECT_ERROR(bad(ones({1})), ValueError, "expected compile_at of 1 or more");
}

TEST_F(Interface, AnnotatedFunctionsFreezeThroughCompile) {
  int runs = 0;
  auto step = compile([&](const Tensor& x) {
    ++runs;
    return free_function(x, 3);
  });
  auto fast = step.freeze(ones({2}));
  const int before = runs;
  expect_values(fast(tensor({1, 2})), {4, 7});
  EXPECT_EQ(runs, before);
}

TEST_F(Interface, AnnotatedMemberWithATupleOut) {
  Layer layer;
  for (int i = 0; i < 5; ++i) {
    const auto [y, number, sum] = layer.forward(tensor({1, 2}), i);
    expect_values(y, {1.0 + i, 3.0 + i});
    EXPECT_EQ(number, 2.5);
    expect_values(sum, {4.0 + 2 * i});
  }
  EXPECT_EQ(layer.calls, 5);
}

TEST_F(Interface, AnnotatedLambdaAndEarlyReturn) {
  auto clip = [](const Tensor& x, bool early) {
    ETCH_TRACED();
    if (early) return x * 3;
    return (x * 2).exp() * 0;
  };
  for (int i = 0; i < 8; ++i) expect_values(clip(tensor({1}), i % 2), {i % 2 ? 3.0 : 0.0});
}

TEST_F(Interface, AnAnnotatedBodyMayThrow) {
  Tensor sum = zeros({1});
  auto add = [&](bool stop) {
    ETCH_TRACED();
    sum.add_(1);
    if (stop) throw std::runtime_error("stop");
  };
  for (int i = 0; i < 6; ++i) {
    if (i % 2) {
      EXPECT_ERROR(add(true), std::runtime_error, "stop");
    } else {
      add(false);
    }
  }
  EXPECT_EQ(sum.item<float>(), 6);
}

TEST_F(Interface, AnAnnotatedBodyRaisesDataErrorsAsItReturns) {
  auto pick = [](int64_t index) {
    ETCH_TRACED();
    return ramp({3}).index_select(0, from_vector(std::vector<int64_t>{index}));
  };
  for (int i = 0; i < 4; ++i) {
    expect_values(pick(1), {1.5});
    EXPECT_ERROR(pick(3), IndexError, "index_select: expected indices in [0, 3), got 3");
  }
}

TEST_F(Interface, CompilesMembersFunctionsAndNothingReturned) {
  Layer layer;
  auto member = compile(&Layer::plain);
  auto function = compile(free_function);
  Tensor sum = zeros({2});
  auto nothing = compile([&](Tensor x) { sum.add_(x); });
  for (int i = 0; i < 4; ++i) {
    expect_values(member(layer, tensor({1, 2})), {1, 3});
    expect_values(function(tensor({1}), 2), {3});
    nothing(tensor({1, 2}));
  }
  expect_values(sum, {4, 8});
  EXPECT_EQ(member.compile_count(), 1);
}

TEST_F(Interface, ScalarsComeOut) {
  auto step = compile([](const Tensor& x) { return (x * 2).sum().item<float>(); });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step(tensor({1, static_cast<float>(i)})), 2 + 2 * i);
}

TEST_F(Interface, ExplainTellsPathsHitsDivergencesAndFlushes) {
  bool extra = false;
  auto step = compile(
      [&](const Tensor& x) {
        const Tensor y = x * 2;
        if (extra) return y.exp();
        y.sum().item<float>();
        return y;
      },
      {.name = "my step"});
  for (int i = 0; i < 3; ++i) step(tensor({1}));
  extra = true;
  step(tensor({1}));
  const std::string text = step.explain();
  for (const char* part :
       {"my step: 4 calls, 2 paths", "path 1: 2 ops, until the host read a value at",
        "contract_interface_test.cpp:", "ran compiled 2, op by op 1", "compiled 1 time",
        "differs from path 1: op 1: op sum before, exp now", "seen 1 time; compiled at sighting 2"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  const nlohmann::json json = report(step);
  EXPECT_EQ(json["name"], "my step");
  EXPECT_EQ(json["calls"], 4);
  EXPECT_EQ(json["gave_up"], false);
  EXPECT_EQ(json["paths"][0]["compiled_calls"], 2);
  EXPECT_EQ(json["paths"][0]["eager_calls"], 1);
  EXPECT_EQ(json["paths"][0]["compiles"], 1);
  EXPECT_EQ(json["paths"][0]["executables"].size(), 1u);
  EXPECT_EQ(json["paths"][1]["diverged"], "op 1: op sum before, exp now");
  EXPECT_EQ(json["paths"][1]["ops"], 2);
}

TEST_F(Interface, DivergencesNameWhatDiffered) {
  const auto differs = [](const Tensor& a, const Tensor& b) {
    auto step = compile([](const Tensor& x) { return x * 2; });
    step(a);
    step(b);
    return std::string(report(step)["paths"][1]["diverged"]);
  };
  EXPECT_EQ(differs(ones({2}), ones({3})),
            "op 0: mul, input 0: f32[2] of storage %0 before, f32[3] of storage %0 now");
  EXPECT_EQ(differs(ones({2}), ones({2}).to(DType::F64)),
            "op 0: mul, input 0: f32[2] of storage %0 before, f64[2] of storage %0 now");
  EXPECT_EQ(differs(ones({2, 3}), ones({3, 2}).t()), "op 0: mul, input 0: strides [3, 1] before, [1, 2] now");
}

TEST_F(Interface, BadOptionsAreRefused) {
  EXPECT_ERROR(compile([] {}, {.compile_at = 0}), ValueError, "expected compile_at of 1 or more, got 0");
  EXPECT_ERROR(compile([] {}, {.max_paths = 0}), ValueError, "expected max_paths of 1 or more, got 0");
  EXPECT_ERROR(compile([] {}, {.memory_budget = -1}), ValueError, "memory_budget");
}

TEST_F(Interface, NoCompilerGivesTheSameResults) {
  for (const char* compiler : {"none", "/nowhere/c++"}) {
    config().cxx = compiler;
    auto step = compile([](const Tensor& x) { return ((x * 2.125 + 0.1).exp() - x).softmax(-1); });
    const Tensor x = ramp({5, 7}, -2, 0.113);
    const Tensor expected = eagerly([&] { return ((x * 2.125 + 0.1).exp() - x).softmax(-1); });
    for (int i = 0; i < 3; ++i) expect_same(step(x), expected);
    EXPECT_EQ(step.compile_count(), 1) << compiler;
    EXPECT_EQ(step.compiled_calls(), 2) << compiler;
  }
}

TEST_F(Interface, AnUnusableKernelCacheIsNotFatal) {
  config().cxx = "";
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / join_text({"etch-no-folder-", getpid()});
  std::ofstream(file) << "a file where the cache should be";
  config().cache_dir = file / "cache";
  auto step = compile([](const Tensor& x) { return (x * 3.0625 + 0.7).sigmoid(); });
  const Tensor x = ramp({9}, -2, 0.113);
  const Tensor expected = eagerly([&] { return (x * 3.0625 + 0.7).sigmoid(); });
  for (int i = 0; i < 3; ++i) expect_same(step(x), expected);
  EXPECT_EQ(step.compiled_calls(), 2);
  std::filesystem::remove(file);
}

TEST_F(Interface, MemoryTellsArenaAndLowerBound) {
  auto step = compile([](const Tensor& x) { return x.matmul(x).matmul(x).sum(); });
  EXPECT_EQ(step.memory().arena, 0);
  for (int i = 0; i < 2; ++i) step(ones({16, 16}));
  EXPECT_GE(step.memory().arena, step.memory().lower_bound);
  EXPECT_GE(step.memory().lower_bound, 16 * 16 * 4);
}

TEST_F(Interface, ExplainSaysThatTracingIsDisabled) {
  auto f = compile([](const Tensor& x) { return x + 1; });
  const bool before = config().disable;
  config().disable = true;
  f(ones({2}));
  const std::string text = f.explain();
  config().disable = before;
  EXPECT_NE(text.find("ETCH_DISABLE is set: everything runs eagerly"), std::string::npos) << text;
}

}  // namespace
}  // namespace etch
