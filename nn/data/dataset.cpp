// Checks, statistics, and the choice of reader.
#include "nn/data/dataset.h"

#include <cmath>
#include <filesystem>

#include "nn/data/cifar10.h"
#include "nn/data/idx.h"
#include "runtime/error.h"

namespace etch::data {

void check(const Dataset& dataset, const std::string& where) {
  ETCH_CHECK(dataset.channels > 0 && dataset.height > 0 && dataset.width > 0, ShapeError, where,
             ": expected pictures of positive extents, got [", dataset.channels, ", ", dataset.height, ", ",
             dataset.width, "]");
  const size_t bytes = dataset.labels.size() * static_cast<size_t>(dataset.image_size());
  ETCH_CHECK(dataset.images.size() == bytes, ShapeError, where, ": expected ", bytes,
             " bytes of pictures for ", dataset.size(), " labels, got ", dataset.images.size());
  const int64_t classes = static_cast<int64_t>(dataset.classes.size());
  for (int64_t i = 0; i < dataset.size(); ++i)
    ETCH_CHECK(dataset.labels[i] >= 0 && dataset.labels[i] < classes, IndexError, where,
               ": expected labels in [0, ", classes, "), got ", dataset.labels[i], " for picture ", i);
}

Dataset load(const std::string& directory, Split split) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(fs::path(directory) / name, ignored); };
  ETCH_CHECK(fs::is_directory(directory, ignored), IoError, "data: expected a directory, got ", directory);
  if (has("test_batch.bin") || has("data_batch_1.bin") || has("batches.meta.txt"))
    return load_cifar10(directory, split);
  if (has("train-images-idx3-ubyte") || has("t10k-images-idx3-ubyte") || has("test-images-idx3-ubyte"))
    return load_idx(directory, split);
  fail<IoError>("data: expected train-images-idx3-ubyte (IDX) or data_batch_1.bin (CIFAR-10) in ", directory,
                ", got neither");
}

Normalization channel_statistics(const Dataset& dataset) {
  Normalization result;
  const int64_t plane = dataset.height * dataset.width;
  const double count = static_cast<double>(plane * dataset.size());
  for (int64_t c = 0; c < dataset.channels; ++c) {
    int64_t sum = 0, squares = 0;  // exact: 255^2 * 2^40 pixels fit
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const uint8_t* pixels = dataset.image(i) + c * plane;
      for (int64_t k = 0; k < plane; ++k) {
        sum += pixels[k];
        squares += pixels[k] * pixels[k];
      }
    }
    const double mean = count > 0 ? static_cast<double>(sum) / count : 0;
    const double variance = count > 0 ? static_cast<double>(squares) / count - mean * mean : 0;
    result.mean.push_back(static_cast<float>(mean / 255));
    result.stddev.push_back(variance > 0 ? static_cast<float>(std::sqrt(variance) / 255) : 1.0f);
  }
  return result;
}

}  // namespace etch::data
