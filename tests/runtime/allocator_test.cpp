// The caching allocator on the host.
#include "runtime/allocator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "runtime/config.h"
#include "runtime/error.h"
#include "tests/runtime/expect_error.h"

namespace etch {
namespace {

constexpr Device kCpu = Device::cpu();
constexpr int64_t kMiB = 1 << 20;
using Category = MemoryCategory;

void* take(size_t bytes, Category category = Category::Temporary) { return allocate(kCpu, bytes, category); }
void give(void* data) { deallocate(kCpu, data); }
int64_t in(const BytesByCategory& split, Category category) { return split[static_cast<int>(category)]; }

class Allocator : public testing::Test {
 protected:
  void SetUp() override {
    empty_cache();
    reset_peak_memory();
    start_ = memory_stats();
  }
  void TearDown() override {
    set_memory_limit(0);
    EXPECT_EQ(memory_stats().allocated, start_.allocated) << "the test leaks";
  }
  int64_t allocated() const { return memory_stats().allocated - start_.allocated; }
  MemoryStats start_;
};

TEST_F(Allocator, BlocksAreAlignedAndApart) {
  std::vector<std::pair<char*, size_t>> blocks;
  for (size_t bytes : {0, 1, 63, 64, 65, 1000, 4096, 4097, 70000, 1 << 20, (3 << 20) + 1})
    for (int copy = 0; copy < 3; ++copy) blocks.emplace_back(static_cast<char*>(take(bytes)), bytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[i].first) % 64, 0u);
    std::memset(blocks[i].first, static_cast<int>(i), blocks[i].second);
  }
  std::set<char*> unique;
  for (size_t i = 0; i < blocks.size(); ++i) {
    unique.insert(blocks[i].first);
    for (size_t at = 0; at < blocks[i].second; at += 61)
      ASSERT_EQ(blocks[i].first[at], static_cast<char>(i)) << "block " << i;
    give(blocks[i].first);
  }
  EXPECT_EQ(unique.size(), blocks.size());
}

TEST_F(Allocator, CountsRoundedBytes) {
  void* small = take(65);
  EXPECT_EQ(allocated(), 128);
  void* nothing = take(0);
  EXPECT_EQ(allocated(), 192);
  void* large = take(100001);
  EXPECT_EQ(allocated(), 192 + 100352);
  EXPECT_EQ(memory_stats().allocations - start_.allocations, 3);
  give(small);
  give(nothing);
  give(large);
  EXPECT_EQ(allocated(), 0);
}

TEST_F(Allocator, RoundingWastesUnderThreePercentOfTensors) {
  std::mt19937 random(1);
  int64_t asked = 0;
  std::vector<void*> blocks;
  for (int i = 0; i < 2000; ++i) {
    const size_t bytes = 4 * (1 + random() % (i % 10 ? 8192 : 262144));
    asked += static_cast<int64_t>(bytes);
    blocks.push_back(take(bytes));
  }
  EXPECT_GE(allocated(), asked);
  EXPECT_LT(allocated(), asked * 1.03);
  for (void* block : blocks) give(block);
}

TEST_F(Allocator, SplitsByCategoryNowAndAtThePeak) {
  void* weights = take(1024, Category::Parameter);
  void* activation = take(2 * kMiB, Category::Activation);
  give(activation);
  void* gradient = take(512, Category::Gradient);
  const MemoryStats stats = memory_stats();
  EXPECT_EQ(in(stats.by_category, Category::Parameter) - in(start_.by_category, Category::Parameter), 1024);
  EXPECT_EQ(in(stats.by_category, Category::Activation), in(start_.by_category, Category::Activation));
  EXPECT_EQ(in(stats.by_category, Category::Gradient) - in(start_.by_category, Category::Gradient), 512);
  EXPECT_EQ(stats.peak_allocated - start_.allocated, 1024 + 2 * kMiB);
  EXPECT_EQ(in(stats.at_peak, Category::Activation) - in(start_.by_category, Category::Activation), 2 * kMiB);
  EXPECT_EQ(in(stats.at_peak, Category::Gradient), in(start_.by_category, Category::Gradient));
  give(weights);
  give(gradient);
}

TEST_F(Allocator, BlocksChangeCategory) {
  for (size_t bytes : {size_t{256}, size_t{1} << 20}) {
    void* block = take(bytes, Category::Activation);
    reset_peak_memory();
    set_category(kCpu, block, Category::Gradient);
    const MemoryStats stats = memory_stats();
    EXPECT_EQ(in(stats.by_category, Category::Activation), in(start_.by_category, Category::Activation));
    EXPECT_EQ(in(stats.by_category, Category::Gradient) - in(start_.by_category, Category::Gradient),
              static_cast<int64_t>(bytes));
    // The peak was reached before the move.
    EXPECT_EQ(in(stats.at_peak, Category::Activation) - in(start_.by_category, Category::Activation),
              static_cast<int64_t>(bytes));
    give(block);
    EXPECT_EQ(in(memory_stats().by_category, Category::Gradient), in(start_.by_category, Category::Gradient));
  }
}

TEST_F(Allocator, PeakResets) {
  give(take(8 * kMiB));
  EXPECT_EQ(memory_stats().peak_allocated - start_.allocated, 8 * kMiB);
  reset_peak_memory();
  EXPECT_EQ(memory_stats().peak_allocated, memory_stats().allocated);
  give(take(kMiB));
  EXPECT_EQ(memory_stats().peak_allocated - start_.allocated, kMiB);
}

TEST_F(Allocator, ReusesCachedMemory) {
  for (size_t bytes : {size_t{64}, size_t{5000}, size_t{30} << 20}) {
    void* first = take(bytes);
    give(first);
    const int64_t from_device = memory_stats().device_allocations;
    void* second = take(bytes);
    EXPECT_EQ(first, second);
    EXPECT_EQ(memory_stats().device_allocations, from_device);
    give(second);
  }
}

TEST_F(Allocator, EmptyCacheGivesMemoryBack) {
  void* kept = take(64);
  give(take(64 * kMiB));
  give(take(100000));
  EXPECT_GE(memory_stats().reserved, 64 * kMiB);
  empty_cache();
  EXPECT_LE(memory_stats().reserved, start_.reserved + 2 * kMiB);
  std::memset(kept, 1, 64);
  give(kept);
  empty_cache();
  EXPECT_EQ(memory_stats().reserved, start_.reserved);
}

TEST_F(Allocator, FreedNeighboursMerge) {
  // Sixteen blocks fill one segment; freed in a mixed order, they must serve a block of the segment's size.
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(take(kMiB));
  const int64_t reserved = memory_stats().reserved;
  for (int i : {0, 2, 4, 6, 8, 10, 12, 14, 15, 13, 11, 9, 7, 5, 3, 1}) give(blocks[i]);
  void* whole = take(16 * kMiB);
  EXPECT_EQ(memory_stats().reserved, reserved);
  give(whole);
}

TEST_F(Allocator, TakesTheBestFit) {
  void* large = take(14 * kMiB);
  void* wall = take(kMiB);
  void* small = take(7 * kMiB);
  void* other_wall = take(kMiB);
  give(large);
  give(small);
  void* fits = take(7 * kMiB);
  EXPECT_EQ(fits, small);
  give(fits);
  give(wall);
  give(other_wall);
}

TEST_F(Allocator, ReservedStaysNearThePeakWhenShapesGrow) {
  for (int64_t bytes = 5 * kMiB; bytes < 100 * kMiB; bytes += 2 * kMiB)
    give(take(static_cast<size_t>(bytes)));
  const MemoryStats stats = memory_stats();
  EXPECT_LE(stats.reserved, start_.reserved + 100 * kMiB * 3 / 2 + 256 * kMiB);
}

TEST_F(Allocator, SmallChunksServeOtherSizesLater) {
  std::vector<void*> blocks;
  for (int i = 0; i < 30000; ++i) blocks.push_back(take(64));
  for (void* block : blocks) give(block);
  const int64_t reserved = memory_stats().reserved;
  blocks.clear();
  for (int i = 0; i < 400; ++i) blocks.push_back(take(4096));
  EXPECT_EQ(memory_stats().reserved, reserved);
  for (void* block : blocks) give(block);
}

TEST_F(Allocator, LimitThrowsAndTheProgramGoesOn) {
  void* kept = take(kMiB, Category::Parameter);
  set_memory_limit(memory_stats().allocated + 2 * kMiB);
  const std::string limit = std::to_string(memory_stats().limit);
  for (int round = 0; round < 3; ++round) {
    EXPECT_ERROR(take(2 * kMiB + 1), OutOfMemoryError,
                 "allocate: expected at most " + limit + " bytes on cpu");
    EXPECT_ERROR(take(2 * kMiB + 1), OutOfMemoryError, "parameters");
    EXPECT_EQ(allocated(), kMiB);
    void* fits = take(2 * kMiB);
    EXPECT_ERROR(take(1), OutOfMemoryError, "and 64 more");
    give(fits);
    give(take(1));
  }
  EXPECT_EQ(memory_stats().peak_allocated - start_.allocated, 3 * kMiB);
  set_memory_limit(0);
  give(take(4 * kMiB));
  give(kept);
}

TEST_F(Allocator, UnservableRequestsThrow) {
  for (size_t bytes : {size_t{1} << 46, size_t{1} << 60, ~size_t{0}})
    EXPECT_ERROR(take(bytes), OutOfMemoryError, "got none from the system");
  EXPECT_EQ(allocated(), 0);
  give(take(kMiB));
}

TEST_F(Allocator, NegativeLimitsAreRefused) {
  EXPECT_ERROR(set_memory_limit(-1), ValueError, "expected 0 or more bytes, got -1");
}

TEST_F(Allocator, SummaryNamesCategoriesAndTotals) {
  void* block = take(3 * kMiB, Category::OptimizerState);
  const std::string text = memory_summary();
  for (int i = 0; i < kNumMemoryCategories; ++i)
    EXPECT_NE(text.find(name(static_cast<Category>(i))), std::string::npos);
  EXPECT_NE(text.find("3.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("limit none"), std::string::npos) << text;
  give(block);
}

TEST_F(Allocator, PoisonFillsFreshBlocks) {
  config().poison = true;
  for (size_t bytes : {size_t{100}, size_t{9000}}) {
    auto* data = static_cast<unsigned char*>(take(bytes));
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0xFF);
    std::memset(data, 0, bytes);
    give(data);
  }
  config().poison = false;
}

#ifndef __SANITIZE_ADDRESS__
TEST_F(Allocator, PoisonFillsFreedBlocks) {
  config().poison = true;
  void* neighbour = take(9000);
  for (size_t bytes : {size_t{100}, size_t{9000}}) {
    auto* data = static_cast<volatile unsigned char*>(take(bytes));
    data[5] = 0;
    give(const_cast<unsigned char*>(data));
    EXPECT_EQ(data[5], 0xFF);
  }
  give(neighbour);
  config().poison = false;
}
#endif

TEST_F(Allocator, RandomUseKeepsContentsAndCounts) {
  std::mt19937 random(7);
  struct Live {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Live> live;
  int64_t total = 0, peak = 0;
  const auto rounded = [](size_t bytes) {
    const size_t unit = bytes > 4096 ? 512 : 64;
    return static_cast<int64_t>((bytes + unit - 1) / unit * unit);
  };
  const auto free_one = [&](size_t i) {
    for (size_t at = 0; at < live[i].bytes; at += 509) ASSERT_EQ(live[i].data[at], live[i].mark);
    total -= rounded(live[i].bytes);
    give(live[i].data);
    live[i] = live.back();
    live.pop_back();
  };
  for (int step = 0; step < 20000; ++step) {
    if (live.size() < 200 && random() % 2) {
      const size_t bytes = 1 + random() % (size_t{1} << (4 + random() % 18));
      live.push_back({static_cast<unsigned char*>(take(bytes)), bytes, static_cast<unsigned char>(random())});
      std::memset(live.back().data, live.back().mark, bytes);
      total += rounded(bytes);
      peak = std::max(peak, total);
    } else if (!live.empty()) {
      free_one(random() % live.size());
    }
    ASSERT_EQ(allocated(), total);
    if (step % 5000 == 4999) empty_cache();
  }
  EXPECT_EQ(memory_stats().peak_allocated - start_.allocated, peak);
  while (!live.empty()) free_one(0);
}

TEST_F(Allocator, ManyThreads) {
  constexpr int kThreads = 8;
  std::atomic<bool> done{false};
  std::atomic<int> inconsistent{0};
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id)
    threads.emplace_back([id] {
      std::mt19937 random(id);
      std::vector<std::pair<unsigned char*, size_t>> live;
      for (int step = 0; step < 3000; ++step) {
        if (live.size() < 20) {
          const size_t bytes = 1 + random() % (random() % 8 ? 3000 : 300000);
          live.emplace_back(static_cast<unsigned char*>(take(bytes, static_cast<Category>(step % 7))), bytes);
          live.back().first[0] = live.back().first[bytes - 1] = static_cast<unsigned char>(id);
          set_category(kCpu, live.back().first, Category::Gradient);
        } else {
          const size_t i = random() % live.size();
          auto [data, bytes] = live[i];
          ASSERT_EQ(data[0], id);
          ASSERT_EQ(data[bytes - 1], id);
          give(data);
          live[i] = live.back();
          live.pop_back();
        }
        if (step % 1000 == 0) empty_cache();
      }
      for (auto [data, bytes] : live) give(data);
    });
  std::thread watcher([&] {
    while (!done) {
      const MemoryStats stats = memory_stats();
      int64_t now = 0, peak = 0;
      for (int i = 0; i < kNumMemoryCategories; ++i) {
        now += stats.by_category[i];
        peak += stats.at_peak[i];
      }
      inconsistent += now != stats.allocated || peak != stats.peak_allocated || stats.peak_allocated < now;
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  watcher.join();
  EXPECT_EQ(inconsistent, 0);
  EXPECT_EQ(allocated(), 0);
}

TEST_F(Allocator, OtherThreadsMayFree) {
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(take(static_cast<size_t>(i) * 16));
  std::thread([&] {
    for (void* block : blocks) give(block);
  }).join();
  EXPECT_EQ(allocated(), 0);
}

TEST_F(Allocator, MissingDevicesThrow) {
  EXPECT_ERROR(allocate({DeviceType::Cuda, 0}, 8, Category::Other), DeviceError, "use Device::cpu()");
  EXPECT_ERROR(Device::cuda(), DeviceError, "cuda: expected a CUDA device, got none");
}

TEST_F(Allocator, ScratchIsFreedWithItsScope) {
  {
    ScratchBuffer scratch(kCpu, 1000);
    EXPECT_NE(scratch.data(), nullptr);
    EXPECT_EQ(allocated(), 1024);
  }
  EXPECT_EQ(allocated(), 0);
  EXPECT_EQ(ScratchBuffer(kCpu, 0).data(), nullptr);
}

// A tensor in a static object is freed after main.
struct FreedAtExit {
  void* data = nullptr;
  ~FreedAtExit() {
    if (data) deallocate(kCpu, data);
  }
} freed_at_exit;
TEST(AllocatorExit, BlocksMayOutliveMain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        freed_at_exit.data = take(4 * kMiB);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(MemorySummary, BytesPrintInTheUnitThatFits) {
  EXPECT_EQ(print_bytes(512), "512 B");
  EXPECT_EQ(print_bytes(1536), "1.50 KiB");
  EXPECT_EQ(print_bytes(12 << 20), "12.00 MiB");
}

}  // namespace
}  // namespace etch
