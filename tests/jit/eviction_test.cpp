// The limit on compiled paths: least recently used ones go, and come back.
#include <atomic>
#include <thread>

#include "tests/jit/contract.h"

namespace etch {
namespace {

class Eviction : public Contract {
 protected:
  Eviction() { config().max_executables = 2; }

  /// Which of the step's paths, by their sizes, are compiled.
  template <class Step>
  static std::vector<size_t> compiled(const Step& step) {
    std::vector<size_t> counts;
    const nlohmann::json all = report(step);
    for (const auto& path : all["paths"]) counts.push_back(path["executables"].size());
    return counts;
  }
};

Tensor body(const Tensor& x) { return (x * 2).exp().sum(); }

TEST_F(Eviction, TheLeastRecentlyUsedPathGoes) {
  auto step = compile(body);
  for (int size : {1, 1, 2, 2, 1, 3, 3}) step(ones({size}));
  EXPECT_EQ(compiled(step), (std::vector<size_t>{1, 0, 1}));
  EXPECT_EQ(report(step)["paths"][1]["evictions"], 1);
  EXPECT_NE(step.explain().find("evicted 1 time"), std::string::npos) << step.explain();
}

TEST_F(Eviction, AnEvictedPathIsCompiledAgainWhenSeen) {
  auto step = compile(body);
  for (int size : {1, 1, 2, 2, 3, 3}) step(ones({size}));
  EXPECT_EQ(compiled(step), (std::vector<size_t>{0, 1, 1}));
  expect_same(step(ones({1})), eagerly([] { return body(ones({1})); }));
  EXPECT_EQ(compiled(step), (std::vector<size_t>{1, 0, 1}));
  EXPECT_EQ(report(step)["paths"][0]["compiles"], 2);
}

TEST_F(Eviction, AlternationStaysRightAndDoesNotCompileForEver) {
  auto step = compile(body);
  config().max_executables = 1;
  for (int i = 0; i < 300; ++i) {
    const Tensor x = ramp({i % 3 + 1}, 0.01 * i);
    expect_same(step(x), eagerly([&] { return body(x); }));
  }
  EXPECT_LE(step.compile_count(), 3 * 8);
  EXPECT_GT(step.compile_count(), 3);
}

TEST_F(Eviction, CompilesThatItCausedAreSaidToBeItsOwn) {
  auto step = compile(body, {.name = "crowded", .compile_at = 1});
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) step(ones({i % 5 + 1}));
  const std::string text = ::testing::internal::GetCapturedStderr();
  expect_part(text, "crowded: compiled 8 times");
  expect_part(text, "Its plans were evicted: raise ETCH_MAX_EXECUTABLES");
}

TEST_F(Eviction, TheLimitIsTheProcesss) {
  auto a = compile(body), b = compile(body), c = compile(body);
  for (auto* step : {&a, &b, &c})
    for (int i = 0; i < 2; ++i) (*step)(ones({2}));
  EXPECT_EQ(compiled(a), (std::vector<size_t>{0}));
  EXPECT_EQ(compiled(b), (std::vector<size_t>{1}));
  EXPECT_EQ(compiled(c), (std::vector<size_t>{1}));
}

TEST_F(Eviction, NoLimit) {
  config().max_executables = 0;
  auto step = compile(body);
  for (int size = 1; size < 9; ++size)
    for (int i = 0; i < 2; ++i) step(ones({size}));
  EXPECT_EQ(compiled(step), std::vector<size_t>(8, 1));
}

TEST_F(Eviction, AFrozenCallKeepsItsPlan) {
  auto step = compile(body);
  auto fast = step.freeze(ones({1}));
  for (int size : {2, 2, 3, 3}) step(ones({size}));
  EXPECT_EQ(compiled(step), (std::vector<size_t>{0, 1, 1}));
  expect_same(fast(ones({1})), eagerly([] { return body(ones({1})); }));
}

TEST_F(Eviction, ManyThreadsPushEachOtherOut) {
  auto step = compile(body);
  config().max_executables = 1;
  std::vector<float> expected;
  for (int size = 1; size < 5; ++size)
    expected.push_back(eagerly([&] { return body(ones({size})); }).item<float>());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const int size = (t + i) % 4 + 1;
        wrong += step(ones({size})).item<float>() != expected[static_cast<size_t>(size) - 1];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace etch
