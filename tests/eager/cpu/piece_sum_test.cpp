// Sums of pieces against a loop over all elements.
#include "eager/cpu/piece_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace etch::cpu {
namespace {

/// Terms that cover the front, a run in the middle and everything, in any layout of the same elements.
void check(const Geometry& layout) {
  const int64_t count = layout.numel();
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), -3.0f);
  const std::vector<PieceTerm> terms = {{values.data(), 0, count / 2, -0.0f},
                                        {values.data() + 1, count / 3, count / 3, 0.5f},
                                        {values.data(), 0, count, 0.0f},
                                        {nullptr, 0, 0, -0.0f}};
  std::vector<float> got(extent(layout), 77.0f), expected = got;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, place = 0;
    for (int d = layout.ndim() - 1; d >= 0; --d) {
      place += rest % layout.sizes[d] * layout.strides[d];
      rest /= layout.sizes[d];
    }
    const auto term = [&](size_t t) {
      const int64_t at = i - terms[t].first;
      return at >= 0 && at < terms[t].length ? terms[t].source[at] : terms[t].fill;
    };
    expected[place] = term(0);
    for (size_t t = 1; t < terms.size(); ++t) expected[place] = expected[place] + term(t);
  }
  sum_of_pieces(terms, got.data(), layout);
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
      << to_string(layout.sizes) << to_string(layout.strides);
}

TEST(PieceSum, ContiguousLayouts) {
  check(contiguous({1}));
  check(contiguous({7, 5}));
  check(contiguous({40000}));
}

TEST(PieceSum, HeadsOfOneFusedProjection) { check({{3, 4, 2, 40, 8}, {16, 1920, 8, 48, 1}}); }

TEST(PieceSum, RowsWithGaps) { check({{100, 300}, {320, 1}}); }

TEST(PieceSum, ALastDimensionOfOneElement) {
  check({{6, 10, 1}, {1, 6, 1}});
  check({{6, 10, 1}, {40, 3, 1}});
}

}  // namespace
}  // namespace etch::cpu
