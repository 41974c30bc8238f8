// Pictures with labels in host memory, and the files they are read from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etch::data {

enum class Split { Train, Test };

/// Pictures u8 [size, channels, height, width], row-major, and a label in [0, classes.size()) for each.
struct Dataset {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> images;
  std::vector<int64_t> labels;
  std::vector<std::string> classes;  ///< names

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t image_size() const { return channels * height * width; }
  const uint8_t* image(int64_t i) const { return images.data() + i * image_size(); }
};

/// Throws ShapeError when the pictures' bytes are not size() * image_size(), IndexError for a label outside
/// the classes; `where` begins the message.
void check(const Dataset& dataset, const std::string& where);

/// A directory in IDX format (MNIST's file names) or in CIFAR-10's binary format, whichever it holds. Throws
/// IoError when it is neither.
Dataset load(const std::string& directory, Split split);

/// Per channel, of pixels scaled to [0, 1].
struct Normalization {
  std::vector<float> mean, stddev;
};
/// Mean and standard deviation of the pictures' channels; a constant channel gets deviation 1.
Normalization channel_statistics(const Dataset& dataset);

}  // namespace etch::data
