// Questions about small matrices: whole vectors and the rest, lines apart, special values.
#include "eager/cpu/tile_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace etch::cpu {
namespace {

constexpr int64_t kLines = 11, kStride = 40;
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Asks about matrices that are `fill` but for `value` at each place in turn; calls f(line, length, inside).
template <class F>
void with_each_place(float fill, float value, F&& f) {
  for (int64_t length : {1, 15, 16, 33}) {
    std::vector<float> all(kLines * kStride, fill);
    for (float& place : all) {
      place = value;
      f(all.data(), length, (&place - all.data()) % kStride < length);
      place = fill;
    }
  }
}

TEST(TileScan, LargestMagnitudeIsOfTheMatrixOnly) {
  with_each_place(0.5f, -3, [](const float* line, int64_t length, bool inside) {
    EXPECT_EQ(largest_magnitude(line, kLines, length, kStride), inside ? 3 : 0.5f);
  });
}

TEST(TileScan, LargestMagnitudeTellsInfinitiesAndNaNs) {
  with_each_place(1e30f, -kInf, [](const float* line, int64_t length, bool inside) {
    EXPECT_EQ(largest_magnitude(line, kLines, length, kStride), inside ? kInf : 1e30f);
  });
  with_each_place(kInf, -std::nanf(""), [](const float* line, int64_t length, bool inside) {
    EXPECT_EQ(std::isnan(largest_magnitude(line, kLines, length, kStride)), inside);
  });
}

TEST(TileScan, ZerosOfEitherSign) {
  with_each_place(-0.0f, 1e-45f, [](const float* line, int64_t length, bool inside) {
    EXPECT_EQ(is_zero(line, kLines, length, kStride), !inside);
  });
  with_each_place(0.0f, std::nanf(""), [](const float* line, int64_t length, bool inside) {
    EXPECT_EQ(is_zero(line, kLines, length, kStride), !inside);
  });
}

TEST(TileScan, NegativeZeros) {
  with_each_place(0.0f, -0.0f, [](const float* line, int64_t length, bool inside) {
    EXPECT_EQ(has_negative_zero(line, kLines, length, kStride), inside);
  });
  with_each_place(0.0f, -1e-45f, [](const float* line, int64_t length, bool) {
    EXPECT_FALSE(has_negative_zero(line, kLines, length, kStride));
  });
}

TEST(TileScan, BoolsAreWhatIsNotZero) {
  for (const bool value : {false, true}) {
    std::vector<uint8_t> all(kLines * kStride, value ? 7 : 0);
    for (size_t at = 0; at < all.size(); ++at) {
      const uint8_t before = all[at];
      all[at] = !value;
      EXPECT_EQ(all_are(value, all.data(), kLines, 33, kStride), at % kStride >= 33);
      all[at] = before;
    }
  }
}

}  // namespace
}  // namespace etch::cpu
