#include "eager/cpu/tile_scan.h"

#include <algorithm>
#include <bit>

namespace etch::cpu {

namespace {

/// Combines the bits of all elements in lanes, whole vectors at a time, and the lanes in the end.
template <class Combine>
uint32_t over_lanes(const float* line, int64_t lines, int64_t length, int64_t stride, Combine combine) {
  constexpr int kLanes = 16;
  uint32_t lanes[kLanes] = {};
  for (int64_t i = 0; i < lines; ++i, line += stride) {
    int64_t j = 0;
    for (; j + kLanes <= length; j += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] = combine(lanes[l], std::bit_cast<uint32_t>(line[j + l]));
    for (; j < length; ++j) lanes[0] = combine(lanes[0], std::bit_cast<uint32_t>(line[j]));
  }
  uint32_t result = 0;
  for (uint32_t lane : lanes) result = combine(result, lane);
  return result;
}

}  // namespace

float largest_magnitude(const float* line, int64_t lines, int64_t length, int64_t stride) {
  // Magnitudes compare like their bits, and NaNs are above infinity.
  return std::bit_cast<float>(over_lanes(line, lines, length, stride, [](uint32_t most, uint32_t bits) {
    return std::max(most, bits & 0x7FFFFFFFu);
  }));
}

bool is_zero(const float* line, int64_t lines, int64_t length, int64_t stride) {
  // Block by block: most matrices show that they are not in the first.
  constexpr int64_t kBlock = 8;
  for (int64_t i = 0; i < lines; i += kBlock)
    if (over_lanes(line + i * stride, std::min(kBlock, lines - i), length, stride,
                   [](uint32_t any, uint32_t bits) { return any | (bits & 0x7FFFFFFFu); }))
      return false;
  return true;
}

bool has_negative_zero(const float* line, int64_t lines, int64_t length, int64_t stride) {
  for (int64_t i = 0; i < lines; ++i, line += stride) {
    uint32_t any = 0;
    for (int64_t j = 0; j < length; ++j) any |= std::bit_cast<uint32_t>(line[j]) == 0x80000000u;
    if (any) return true;
  }
  return false;
}

bool all_are(bool value, const uint8_t* line, int64_t lines, int64_t length, int64_t stride) {
  for (int64_t i = 0; i < lines; ++i, line += stride) {
    uint8_t others = 0;
    for (int64_t j = 0; j < length; ++j) others |= static_cast<uint8_t>((line[j] != 0) != value);
    if (others) return false;
  }
  return true;
}

}  // namespace etch::cpu
