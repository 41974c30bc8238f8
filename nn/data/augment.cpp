// From stored bytes to normalised floats, with random crop and flip.
#include "nn/data/augment.h"

namespace etch::data {

namespace {

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;

}  // namespace

SampleRandom::SampleRandom(uint64_t seed, uint64_t epoch, uint64_t sample)
    : state_(mix(mix(mix(seed + kStep) + epoch + kStep) + sample + kStep)) {}

uint64_t SampleRandom::next() { return mix(state_ += kStep); }

int64_t SampleRandom::below(int64_t count) {
  // The high half of the product: as good as exact for counts far below 2^64.
  return static_cast<int64_t>((static_cast<unsigned __int128>(next()) * static_cast<uint64_t>(count)) >> 64);
}

void prepare_image(const Dataset& dataset, int64_t i, const Normalization& normalization,
                   const Augmentation& augmentation, SampleRandom random, float* out) {
  const int64_t height = dataset.height, width = dataset.width, padding = augmentation.crop_padding;
  int64_t top = 0, left = 0;
  if (padding > 0) {
    top = random.below(2 * padding + 1) - padding;
    left = random.below(2 * padding + 1) - padding;
  }
  const bool flip = augmentation.flip && random.below(2) == 1;

  const uint8_t* pixels = dataset.image(i);
  for (int64_t c = 0; c < dataset.channels; ++c, pixels += height * width) {
    float values[256];
    for (int v = 0; v < 256; ++v)
      values[v] = (static_cast<float>(v) / 255.0f - normalization.mean[c]) / normalization.stddev[c];
    for (int64_t y = 0; y < height; ++y) {
      const int64_t from_y = y + top;
      const bool inside = from_y >= 0 && from_y < height;
      for (int64_t x = 0; x < width; ++x) {
        const int64_t from_x = (flip ? width - 1 - x : x) + left;
        *out++ = values[inside && from_x >= 0 && from_x < width ? pixels[from_y * width + from_x] : 0];
      }
    }
  }
}

}  // namespace etch::data
