// Reports: structured divergences, run-time numbers, and the warnings that come once.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/jit/contract.h"

namespace etch {
namespace {

using Explain = Contract;

/// What f writes to the log.
template <class F>
std::string logged(F&& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(Explain, ADivergenceHasItsOpWhatDifferedAndBothValues) {
  auto step = compile([](const Tensor& x, int64_t axis) { return (x * 2).sum({axis}).exp(); });
  step(ramp({2, 3}), 0);
  step(ramp({2, 3}), 1);
  step(ramp({4, 3}), 1);
  const nlohmann::json paths = report(step)["paths"];
  EXPECT_TRUE(paths[0]["divergence"].is_null());
  EXPECT_EQ(paths[0]["from_path"], 0);
  const nlohmann::json axis = paths[1]["divergence"];
  EXPECT_EQ(axis["op_index"], 1);
  EXPECT_EQ(axis["op"], "sum");
  EXPECT_EQ(axis["what"], "attribute 0");
  EXPECT_EQ(axis["before"], "1");
  EXPECT_EQ(axis["now"], "2");
  const nlohmann::json size = paths[2]["divergence"];
  EXPECT_EQ(size["op_index"], 0);
  EXPECT_EQ(size["what"], "input 0");
  EXPECT_EQ(size["before"], "f32[2, 3] of storage %0");
  EXPECT_EQ(size["now"], "f32[4, 3] of storage %0");
}

TEST_F(Explain, ATensorMadeOrFoundIsADivergence) {
  Tensor existing = ones({2});
  auto step = compile([&](bool own) { return (own ? zeros({2}) : existing.fill_(0.0)) + 1; });
  step(true);
  step(false);
  EXPECT_EQ(report(step)["paths"][1]["diverged"],
            "op 0: copy, a tensor: made by the op before, from outside now");
}

TEST_F(Explain, APathNamesTheOneItLeaves) {
  auto step = compile([](const Tensor& x, int times) {
    Tensor y = times > 9 ? x.exp() : x * 2;
    for (int i = 0; i < times % 10; ++i) y = y + 1;
    return y;
  });
  for (int times : {1, 11, 12, 0}) step(ones({1}), times);
  const nlohmann::json paths = report(step)["paths"];
  EXPECT_EQ(paths[1]["from_path"], 1);
  EXPECT_EQ(paths[2]["from_path"], 2);
  EXPECT_EQ(paths[2]["diverged"], "went on with op 2 (add), where an earlier path ended");
  EXPECT_EQ(paths[3]["from_path"], 1);
  EXPECT_EQ(paths[3]["diverged"], "ended after op 0, where an earlier path went on");
  EXPECT_NE(step.explain().find("differs from path 2: went on with op 2"), std::string::npos);
}

TEST_F(Explain, APathAfterAReadIsComparedWithThoseAfterTheSameRead) {
  auto step = compile([](const Tensor& x, int) {
    const Tensor y = x * 2;
    return y.sum().item<float>() > 0 ? y.exp() : y + 1;
  });
  for (double value : {1.0, -1.0}) step(full({2}, value), 0);
  const nlohmann::json paths = report(step)["paths"];
  ASSERT_EQ(paths.size(), 3u);
  EXPECT_EQ(paths[1]["after_path"], 1);
  EXPECT_EQ(paths[1]["diverged"], "");  // path 1 begins with the body, it is nothing to compare with
  EXPECT_EQ(paths[2]["from_path"], 2);
  EXPECT_EQ(paths[2]["diverged"], "op 0: op exp before, add now");
  EXPECT_NE(step.explain().find("follows path 1, after the host read a value at "), std::string::npos)
      << step.explain();
}

TEST_F(Explain, AGrowingShapeIsNamedThoughTheFirstCallWasAnother) {
  Tensor cache;
  auto step = compile([&](const Tensor& x) {
    cache = cache.defined() ? concat({cache, x}) : x * 1;
    return cache.sum();
  });
  for (int i = 0; i < 3; ++i) step(ones({1, 2}));
  const nlohmann::json path = report(step)["paths"][2];
  EXPECT_EQ(path["from_path"], 2);
  EXPECT_EQ(path["divergence"]["what"], "input 0");
  EXPECT_EQ(path["divergence"]["before"], "f32[1, 2] of storage %0");
  EXPECT_EQ(path["divergence"]["now"], "f32[2, 2] of storage %0");
}

TEST_F(Explain, RunTimeNumbersAreListedWithTheirLastValues) {
  auto step = compile([](const Tensor& x, double rate) { return x * rate + 3; });
  for (int i = 0; i < 3; ++i) step(ones({2}), 0.5 + i);
  nlohmann::json scalars = report(step)["paths"][0]["scalars"];
  ASSERT_EQ(scalars.size(), 2u);
  EXPECT_EQ(scalars[0]["op"], "mul");
  EXPECT_EQ(scalars[0]["op_index"], 0);
  EXPECT_EQ(scalars[0]["value"], 0.5);  // of the call that ran op by op
  step(ones({2}), 8.5);
  EXPECT_EQ(report(step)["paths"][0]["scalars"][0]["value"], 8.5);
  EXPECT_NE(step.explain().find("2 run-time numbers: mul 8.5, add 3"), std::string::npos) << step.explain();
}

TEST_F(Explain, InfiniteNumbersAreShown) {
  auto step = compile([](const Tensor& x) { return x.masked_fill(x > 1, -HUGE_VAL); });
  for (int i = 0; i < 3; ++i) step(ones({2}));
  EXPECT_NE(step.explain().find("2 run-time numbers: gt 1, where -inf"), std::string::npos) << step.explain();
  EXPECT_EQ(report(step)["paths"][0]["scalars"][1]["value"], "-inf");
}

TEST_F(Explain, ValuesThatHandlesKeepAcrossAReadAreNamed) {
  auto step = compile([](const Tensor& x) {
    const Tensor y = x * 2, z = y.exp();
    const Tensor sum = z.sum();
    const float value = sum.item<float>();
    return y * value;
  });
  for (int i = 0; i < 2; ++i) step(ones({256}));
  const nlohmann::json kept = report(step)["paths"][0]["kept"];
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0]["op"], "mul");
  EXPECT_EQ(kept[0]["bytes"], 1024);
  EXPECT_EQ(kept[2]["op"], "sum");
  const std::string text = step.explain();
  for (const char* part :
       {"keeps 3 values, ", "beyond its end: op 0 (mul) 1", "return the value and read it outside"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(Explain, AFunctionThatNeverSettlesSaysSoOnceWithCauseAndRemedy) {
  auto step = compile([](const Tensor& x) { return x * 2 + 1; }, {.name = "growing", .max_paths = 4});
  const std::string text = logged([&] {
    for (int i = 1; i < 40; ++i) step(ones({i}));
  });
  EXPECT_EQ(count(text, "growing: "), 1) << text;
  for (const char* part : {"more than 4 paths in 5 calls, so new ones run eagerly from now on", "(3)",
                           "op 0: mul, input 0: f32[1]", "pad to a few sizes", "explain()"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(Explain, TripCountsOfALoopAreCountedTogether) {
  Tensor w = ones({2}, {.requires_grad = true});
  auto step = compile(
      [&](const Tensor& x, int times) {
        Tensor y = w * x;
        for (int i = 0; i < times; ++i) y = y * 0.5;
        y.sum().backward();
        w.zero_grad();
      },
      {.name = "loop", .max_paths = 4});
  const std::string text = logged([&] {
    for (int i = 1; i < 8; ++i) step(ones({2}), i);
  });
  for (const char* part : {"more than 4 paths", "its paths (3)", "trip count"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(Explain, AFunctionThatCompilesOftenSaysSoOnce) {
  auto step = compile([](const Tensor& x) { return x * 2 + 1; }, {.name = "often"});
  const std::string text = logged([&] {
    for (int i = 0; i < 60; ++i) step(ones({i % 12 + 1}));
  });
  EXPECT_EQ(count(text, "often: "), 1) << text;
  for (const char* part : {"often: compiled 8 times in 20 calls", "input 0: f32[1]", "pad to a few sizes"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(Explain, ASteadyFunctionSaysNothing) {
  auto step = compile([](const Tensor& x) { return x * 2 + 1; });
  EXPECT_EQ(logged([&] {
              for (int i = 0; i < 200; ++i) step(ones({i / 50 + 1}));
            }),
            "");
}

TEST_F(Explain, AFolderForDumpsThatCannotBeWrittenIsNamedOnce) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / join_text({"etch-no-dump-", getpid()});
  std::ofstream(file) << "a file where the folder should be";
  config().dump_dir = file / "dumps";
  auto step = compile([](const Tensor& x) { return x * 2 + 1; });
  const std::string text = logged([&] {
    for (int i = 0; i < 2; ++i) expect_values(step(tensor({1})), {3});
  });
  EXPECT_EQ(count(text, "dump: expected a folder that can be written in ETCH_DUMP, got " + config().dump_dir),
            1)
      << text;
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace etch
