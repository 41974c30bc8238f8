// DataLoader: shuffled, augmented batches, prepared ahead by threads of its own.
#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <optional>

#include "eager/tensor.h"
#include "nn/data/augment.h"
#include "nn/data/dataset.h"

namespace etch::data {

struct Batch {
  Tensor images;  ///< f32 [N, C, H, W]
  Tensor labels;  ///< i64 [N]
};

struct LoaderOptions {
  int64_t batch = 32;
  bool shuffle = false;
  bool drop_last = false;  ///< leave out a last batch that is not full
  uint64_t seed = 0;       ///< of shuffling and augmentation
  int workers = 1;         ///< threads; 0 prepares batches in the consumer
  int prefetch = 2;        ///< batches a worker may be ahead
  Augmentation augment = {};
  std::optional<Normalization> normalization = {};  ///< none: the dataset's own statistics
  /// Called by workers for each prepared picture, f32 [C, H, W], with its position in the dataset. What it
  /// throws is rethrown where the batch is taken.
  std::function<void(float* image, int64_t i)> transform = {};
};

/// for (auto& [images, labels] : loader) goes through one epoch. The batches depend on the dataset, the
/// options and the number of the epoch alone. Leaving the loop early stops the workers.
class DataLoader {
 public:
  /// Throws ValueError for options out of range or an empty dataset.
  DataLoader(std::shared_ptr<const Dataset> dataset, LoaderOptions options);
  DataLoader(Dataset dataset, LoaderOptions options)
      : DataLoader(std::make_shared<const Dataset>(std::move(dataset)), std::move(options)) {}

  /// Batches an epoch.
  int64_t size() const;
  const Dataset& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }
  int64_t epoch() const { return epoch_; }
  /// The number that the next begin() uses; it counts up by itself.
  void set_epoch(int64_t epoch) { epoch_ = epoch; }

  class Epoch;
  /// Input iterator over the batches of one epoch.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Batch& operator*() { return batch_; }
    Batch* operator->() { return &batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !epoch_; }

   private:
    friend class DataLoader;
    explicit Iterator(std::shared_ptr<Epoch> epoch);

    std::shared_ptr<Epoch> epoch_;  // null at the end
    Batch batch_;
  };

  /// Starts the next epoch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace etch::data
