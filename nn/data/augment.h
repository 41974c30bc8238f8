// From stored bytes to normalised floats, with random crop and flip.
#pragma once

#include <cstdint>

#include "nn/data/dataset.h"

namespace etch::data {

/// Random choices of one sample: a function of (seed, epoch, sample) alone, so of no thread's timing.
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, uint64_t epoch, uint64_t sample);
  uint64_t next();
  /// In [0, count).
  int64_t below(int64_t count);

 private:
  uint64_t state_;
};

struct Augmentation {
  int64_t crop_padding = 0;  ///< zeros around the picture, out of which one of its own size is cut at random
  bool flip = false;         ///< left to right, with probability one half
};

/// Writes picture i of the dataset to `out`, f32 [C, H, W]: augmented, scaled to [0, 1], then
/// (x - mean) / stddev by channel.
void prepare_image(const Dataset& dataset, int64_t i, const Normalization& normalization,
                   const Augmentation& augmentation, SampleRandom random, float* out);

}  // namespace etch::data
