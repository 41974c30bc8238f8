// Splitting of work over threads.
#include "runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

class Parallel : public testing::Test {
 protected:
  void SetUp() override { set_num_threads(4); }
  void TearDown() override { set_num_threads(initial_); }
  static std::vector<std::pair<int64_t, int64_t>> ranges(int64_t count, int64_t grain) {
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> seen;
    parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      std::lock_guard lock(mutex);
      seen.emplace_back(begin, end);
    });
    std::sort(seen.begin(), seen.end());
    return seen;
  }
  const int initial_ = num_threads();
};
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

TEST_F(Parallel, SplitsEvenlyWithinTheGrain) {
  EXPECT_EQ(ranges(10, 1), Ranges({{0, 3}, {3, 6}, {6, 8}, {8, 10}}));
  EXPECT_EQ(ranges(10, 4), Ranges({{0, 5}, {5, 10}}));
  EXPECT_EQ(ranges(10, 6), Ranges({{0, 10}}));
  EXPECT_EQ(ranges(3, 1), Ranges({{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(ranges(0, 1), Ranges());
}

TEST_F(Parallel, OneThreadRunsInline) {
  set_num_threads(1);
  EXPECT_EQ(ranges(1000, 1), Ranges({{0, 1000}}));
}

TEST_F(Parallel, HeldThreadsStayWhateverIsSet) {
  {
    const HeldThreads held(4);
    std::thread([] { set_num_threads(2); }).join();
    EXPECT_EQ(ranges(4, 1), Ranges({{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
    {
      const HeldThreads inner(1);
      EXPECT_EQ(num_threads(), 1);
    }
    EXPECT_EQ(num_threads(), 4);
  }
  EXPECT_EQ(ranges(4, 1), Ranges({{0, 2}, {2, 4}}));
}

TEST_F(Parallel, NestedCallsRunInline) {
  std::atomic<int> inner{0};
  parallel_for(4, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(end - begin, 100);
      ++inner;
    });
  });
  EXPECT_EQ(inner, 4);
}

TEST_F(Parallel, RethrowsAndGoesOn) {
  EXPECT_ERROR(parallel_for(8, 1,
                            [](int64_t begin, int64_t) {
                              if (begin >= 4) fail<ValueError>("range: expected less, got ", begin);
                            }),
               ValueError, "range: expected less");
  EXPECT_EQ(ranges(4, 1).size(), 4u);
}

TEST_F(Parallel, ManyCallersGetTheirOwnResults) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int> values(64, 0);
        parallel_for(64, 4, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) values[i] += caller + 1;
        });
        wrong += std::count(values.begin(), values.end(), caller + 1) != 64;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Parallel, CountIsAtLeastOne) {
  EXPECT_EQ(num_threads(), 4);
  EXPECT_ERROR((set_num_threads(0), 0), ValueError, "expected at least 1 thread, got 0");
  EXPECT_EQ(num_threads(), 4);
}

}  // namespace
}  // namespace etch
