// DataLoader: order, determinism, errors, and a clean stop.
#include "nn/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "tests/runtime/expect_error.h"

namespace etch::data {
namespace {

/// Pictures of 1 x 2 x 2; label i for picture i.
std::shared_ptr<const Dataset> numbered(int count) {
  auto dataset = std::make_shared<Dataset>();
  dataset->channels = 1;
  dataset->height = dataset->width = 2;
  for (int i = 0; i < count; ++i) {
    dataset->labels.push_back(i);
    dataset->classes.push_back(std::to_string(i));
    for (int k = 0; k < 4; ++k) dataset->images.push_back(static_cast<uint8_t>(4 * i + k));
  }
  return dataset;
}

struct Collected {
  std::vector<int64_t> labels, sizes;
  std::vector<float> images;
  bool operator==(const Collected&) const = default;
};

Collected collect(DataLoader& loader) {
  Collected all;
  for (auto& [images, labels] : loader) {
    const auto l = labels.to_vector<int64_t>();
    const auto x = images.to_vector<float>();
    all.labels.insert(all.labels.end(), l.begin(), l.end());
    all.images.insert(all.images.end(), x.begin(), x.end());
    all.sizes.push_back(images.size(0));
  }
  return all;
}

TEST(DataLoader, KeepsTheLastPartialBatchOrDropsIt) {
  DataLoader all(numbered(7), {.batch = 3});
  EXPECT_EQ(all.size(), 3);
  const Collected got = collect(all);
  EXPECT_EQ(got.labels, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(got.sizes, (std::vector<int64_t>{3, 3, 1}));
  DataLoader full(numbered(7), {.batch = 3, .drop_last = true});
  EXPECT_EQ(full.size(), 2);
  EXPECT_EQ(collect(full).sizes, (std::vector<int64_t>{3, 3}));
}

TEST(DataLoader, NormalisesByTheDatasetsStatistics) {
  DataLoader loader(numbered(16), {.batch = 16});
  const auto [images, labels] = *loader.begin();
  EXPECT_EQ(images.dtype(), DType::F32);
  EXPECT_EQ(images.sizes(), (Dims{16, 1, 2, 2}));
  EXPECT_EQ(labels.dtype(), DType::I64);
  const auto values = images.to_vector<float>();
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / 64;
  double variance = 0;
  for (float value : values) variance += (value - mean) * (value - mean) / 64;
  EXPECT_NEAR(mean, 0, 1e-5);
  EXPECT_NEAR(variance, 1, 1e-4);
}

TEST(DataLoader, ShufflesDifferentlyEachEpochAndSeesAll) {
  DataLoader loader(numbered(40), {.batch = 8, .shuffle = true, .seed = 3});
  const auto first = collect(loader).labels, second = collect(loader).labels;
  EXPECT_NE(first, second);
  for (auto epoch : {first, second}) {
    std::sort(epoch.begin(), epoch.end());
    for (int i = 0; i < 40; ++i) EXPECT_EQ(epoch[i], i);
  }
}

TEST(DataLoader, BatchesDoNotDependOnTheNumberOfWorkers) {
  const auto run = [](int workers) {
    DataLoader loader(numbered(40), {.batch = 7,
                                     .shuffle = true,
                                     .seed = 3,
                                     .workers = workers,
                                     .augment = {.crop_padding = 1, .flip = true}});
    collect(loader);
    return collect(loader);
  };
  const Collected one = run(1);
  EXPECT_EQ(run(0), one);
  EXPECT_EQ(run(3), one);
}

TEST(DataLoader, EpochsCanBeRepeated) {
  DataLoader loader(numbered(20), {.batch = 5, .shuffle = true, .augment = {.crop_padding = 1}});
  const Collected first = collect(loader);
  collect(loader);
  loader.set_epoch(0);
  EXPECT_EQ(collect(loader), first);
}

TEST(DataLoader, RethrowsWhatAWorkerThrew) {
  for (int workers : {0, 1, 2}) {
    DataLoader loader(numbered(20), {.batch = 5, .workers = workers, .transform = [](float*, int64_t i) {
                                       if (i == 12) throw std::runtime_error("bad picture 12");
                                     }});
    int batches = 0;
    EXPECT_ERROR(for ([[maybe_unused]] auto& batch : loader)++ batches, std::runtime_error, "bad picture 12");
    EXPECT_EQ(batches, 2);
  }
}

TEST(DataLoader, WorkersStayWithinThePrefetchBound) {
  std::atomic<int> prepared = 0;
  DataLoader loader(numbered(40),
                    {.batch = 1, .prefetch = 2, .transform = [&](float*, int64_t) { ++prepared; }});
  auto at = loader.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(prepared, 3);  // one taken, two ahead
}

TEST(DataLoader, StopsCleanlyInTheMiddle) {
  DataLoader loader(numbered(60), {.batch = 2, .workers = 3});
  for (int i = 0; i < 20; ++i)
    for ([[maybe_unused]] auto& batch : loader) break;
  EXPECT_EQ(loader.epoch(), 20);
}

TEST(DataLoader, BadOptions) {
  EXPECT_ERROR(DataLoader(numbered(0), {}), ValueError, "got an empty one");
  EXPECT_ERROR(DataLoader(nullptr, {}), ValueError, "got none");
  EXPECT_ERROR(DataLoader(numbered(3), {.batch = 0}), ValueError, "expected a batch of at least 1, got 0");
  EXPECT_ERROR(DataLoader(numbered(3), {.batch = 4, .drop_last = true}), ValueError,
               "at least one full batch of 4");
  EXPECT_ERROR(DataLoader(numbered(3), {.normalization = Normalization{}}), ValueError,
               "for 1 channels, got 0");
  auto broken = std::make_shared<Dataset>(*numbered(3));
  broken->labels[1] = 3;
  EXPECT_ERROR(DataLoader(broken, {}), IndexError, "expected labels in [0, 3), got 3 for picture 1");
}

}  // namespace
}  // namespace etch::data
