// The threads and the bounded, ordered queue behind DataLoader.
#include "nn/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace etch::data {

namespace {

/// A batch in plain host memory: workers make no tensors, so that allocator statistics do not depend on how
/// far they are ahead.
struct HostBatch {
  std::vector<float> images;
  std::vector<int64_t> labels;
  std::exception_ptr error;
};

}  // namespace

/// One pass over the dataset. Batches are claimed by number, so their contents and order do not depend on
/// which worker makes them.
class DataLoader::Epoch {
 public:
  Epoch(std::shared_ptr<const Dataset> dataset, LoaderOptions options, int64_t number, int64_t count)
      : dataset_(std::move(dataset)), options_(std::move(options)), number_(number), count_(count) {
    order_.resize(dataset_->labels.size());
    std::iota(order_.begin(), order_.end(), int64_t{0});
    if (options_.shuffle) {
      SampleRandom random(options_.seed, static_cast<uint64_t>(number_), kShuffleStream);
      for (int64_t i = dataset_->size() - 1; i > 0; --i) std::swap(order_[i], order_[random.below(i + 1)]);
    }
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
  }

  ~Epoch() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  /// The next batch; none at the end.
  std::optional<Batch> next() {
    if (taken_ == count_) return {};
    HostBatch host;
    if (workers_.empty()) {
      host = prepare(taken_++);
    } else {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return done_.count(taken_) > 0; });
      host = std::move(done_.extract(taken_).mapped());
      taken_ = host.error ? count_ : taken_ + 1;
      lock.unlock();
      room_.notify_all();
    }
    if (host.error) std::rethrow_exception(host.error);
    const int64_t n = static_cast<int64_t>(host.labels.size());
    Batch batch;
    batch.images = from_vector(host.images, {n, dataset_->channels, dataset_->height, dataset_->width});
    batch.labels = from_vector(host.labels);
    return batch;
  }

 private:
  static constexpr uint64_t kShuffleStream = ~uint64_t{0};  // no sample has this number

  void work() {
    for (;;) {
      int64_t index;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [this] {
          return stopped_ || claimed_ == count_ ||
                 claimed_ - taken_ < int64_t{options_.prefetch} * options_.workers;
        });
        if (stopped_ || claimed_ == count_) return;
        index = claimed_++;
      }
      HostBatch batch = prepare(index);
      {
        std::lock_guard lock(mutex_);
        if (batch.error) claimed_ = count_;
        done_.emplace(index, std::move(batch));
      }
      ready_.notify_one();
    }
  }

  HostBatch prepare(int64_t index) const noexcept {
    HostBatch batch;
    try {
      const int64_t from = index * options_.batch;
      const int64_t n = std::min(options_.batch, dataset_->size() - from), size = dataset_->image_size();
      batch.images.resize(static_cast<size_t>(n * size));
      for (int64_t k = 0; k < n; ++k) {
        const int64_t i = order_[from + k];
        float* const out = batch.images.data() + k * size;
        prepare_image(*dataset_, i, *options_.normalization, options_.augment,
                      SampleRandom(options_.seed, static_cast<uint64_t>(number_), static_cast<uint64_t>(i)),
                      out);
        if (options_.transform) options_.transform(out, i);
        batch.labels.push_back(dataset_->labels[i]);
      }
    } catch (...) {
      batch.error = std::current_exception();
    }
    return batch;
  }

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t number_, count_;
  std::vector<int64_t> order_;

  std::mutex mutex_;  // guards all below
  std::condition_variable ready_, room_;
  std::map<int64_t, HostBatch> done_;
  int64_t claimed_ = 0, taken_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> workers_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, LoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  ETCH_CHECK(dataset_ && dataset_->size() > 0, ValueError,
             "DataLoader: expected a dataset with pictures, got ", dataset_ ? "an empty one" : "none");
  check(*dataset_, "DataLoader");
  ETCH_CHECK(options_.batch > 0, ValueError, "DataLoader: expected a batch of at least 1, got ",
             options_.batch);
  ETCH_CHECK(options_.workers >= 0 && options_.prefetch > 0, ValueError,
             "DataLoader: expected workers of at least 0 and prefetch of at least 1, got ", options_.workers,
             " and ", options_.prefetch);
  ETCH_CHECK(options_.augment.crop_padding >= 0, ValueError,
             "DataLoader: expected crop_padding of at least 0, got ", options_.augment.crop_padding);
  ETCH_CHECK(size() > 0, ValueError, "DataLoader: expected at least one full batch of ", options_.batch,
             " with drop_last, got ", dataset_->size(), " pictures");
  if (!options_.normalization) options_.normalization = channel_statistics(*dataset_);
  const size_t channels = static_cast<size_t>(dataset_->channels);
  ETCH_CHECK(
      options_.normalization->mean.size() == channels && options_.normalization->stddev.size() == channels,
      ValueError, "DataLoader: expected mean and stddev for ", channels, " channels, got ",
      options_.normalization->mean.size(), " and ", options_.normalization->stddev.size());
}

int64_t DataLoader::size() const {
  const int64_t full = dataset_->size() / options_.batch;
  return full + (!options_.drop_last && dataset_->size() % options_.batch ? 1 : 0);
}

DataLoader::Iterator DataLoader::begin() {
  return Iterator(std::make_shared<Epoch>(dataset_, options_, epoch_++, size()));
}

DataLoader::Iterator::Iterator(std::shared_ptr<Epoch> epoch) : epoch_(std::move(epoch)) { ++*this; }

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  batch_ = {};  // the old batch's memory is free before the next is made
  if (std::optional<Batch> next = epoch_->next())
    batch_ = std::move(*next);
  else
    epoch_.reset();
  return *this;
}

}  // namespace etch::data
