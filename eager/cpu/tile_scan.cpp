#include "eager/cpu/tile_scan.h"

#include <algorithm>
#include <bit>

namespace etch::cpu {

float largest_magnitude(const float* line, int64_t lines, int64_t length, int64_t stride) {
  uint32_t most = 0;  // magnitudes compare like their bits, and NaNs are above infinity
  for (int64_t i = 0; i < lines; ++i, line += stride)
    for (int64_t j = 0; j < length; ++j)
      most = std::max(most, std::bit_cast<uint32_t>(line[j]) & 0x7FFFFFFFu);
  return std::bit_cast<float>(most);
}

bool is_zero(const float* line, int64_t lines, int64_t length, int64_t stride) {
  for (int64_t i = 0; i < lines; ++i, line += stride) {
    uint32_t bits = 0;
    for (int64_t j = 0; j < length; ++j) bits |= std::bit_cast<uint32_t>(line[j]);
    if (bits & 0x7FFFFFFFu) return false;
  }
  return true;
}

bool has_negative_zero(const float* line, int64_t lines, int64_t length, int64_t stride) {
  uint32_t any = 0;
  for (int64_t i = 0; i < lines; ++i, line += stride)
    for (int64_t j = 0; j < length; ++j) any |= std::bit_cast<uint32_t>(line[j]) == 0x80000000u;
  return any != 0;
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
