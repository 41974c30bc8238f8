// Products of tiles against chains of fused multiply-adds, bit for bit, and transposes.
#include "eager/cpu/tile_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "tests/support/values.h"

namespace etch::cpu {
namespace {

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

int64_t rows_of_a(const TileShape& s) { return s.a_transposed ? s.k : s.m; }

void chain(const TileShape& s, const float* a, const float* b, float* c) {
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      float sum = s.accumulate ? c[i * s.c_stride + j] : 0;
      for (int64_t p = 0; p < s.k; ++p)
        sum =
            std::fma(a[s.a_transposed ? p * s.a_stride + i : i * s.a_stride + p], b[p * s.b_stride + j], sum);
      c[i * s.c_stride + j] = sum;
    }
}

/// All of c is compared, gaps between its rows included. A c that is not added to starts as NaN.
bool equals_chain(const TileShape& s) {
  const auto a = testing::random_values(rows_of_a(s) * s.a_stride, 1),
             b = testing::random_values(s.k * s.b_stride, 2);
  auto expected = testing::random_values(s.m * s.c_stride, 3);
  if (!s.accumulate) std::fill(expected.begin(), expected.end(), std::numeric_limits<float>::quiet_NaN());
  auto result = expected;
  chain(s, a.data(), b.data(), expected.data());
  auto prepared_result = result;
  tile_product(s, a.data(), b.data(), result.data());
  TileProduct{s}(a.data(), b.data(), prepared_result.data());
  return same_bits(result, expected) && same_bits(prepared_result, expected);
}

TileShape shape(int64_t m, int64_t n, int64_t k, bool a_transposed, bool accumulate, int64_t gap = 0) {
  return {m, n, k, (a_transposed ? m : k) + gap, n + gap, n + gap, a_transposed, accumulate};
}

TEST(TileProduct, ElementsAreChains) {
  if (!has_tile_product(17))
    GTEST_SKIP() << "no libxsmm, or none for this machine: plain loops compute tiles";
  for (int64_t m : {1, 3, 16, 31, 64})
    for (int64_t n : {17, 24, 33, 64, 65, 77, 80, 81, 100, 128, 150})
      for (int64_t k : {1, 2, 7, 32, 77, 500})
        for (bool a_transposed : {false, true})
          for (bool accumulate : {false, true})
            ASSERT_TRUE(equals_chain(shape(m, n, k, a_transposed, accumulate)))
                << m << " x " << n << " x " << k << (a_transposed ? ", a transposed" : "")
                << (accumulate ? ", added" : "");
}

TEST(TileProduct, RowsMayBeApart) {
  for (int64_t n : {17, 64, 99})
    for (bool a_transposed : {false, true})
      for (bool accumulate : {false, true})
        for (int64_t gap : {1, 16, 29})
          ASSERT_TRUE(equals_chain(shape(21, n, 19, a_transposed, accumulate, gap)))
              << n << ", gaps of " << gap << (a_transposed ? ", a transposed" : "")
              << (accumulate ? ", added" : "");
}

TEST(TileProduct, AnyOtherShapeIsComputedToo) {
  for (bool a_transposed : {false, true})
    for (bool accumulate : {false, true})
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{5, 1, 9}, {4, 16, 40}, {3, 20, 0}, {0, 20, 3}})
        EXPECT_TRUE(equals_chain(shape(m, n, k, a_transposed, accumulate))) << m << " x " << n << " x " << k;
  // All rows of b are one.
  TileShape repeated = shape(20, 40, 8, false, false);
  repeated.b_stride = 0;
  const auto a = testing::random_values(160, 1), b = testing::random_values(40, 2);
  std::vector<float> expected(800), result(800);
  chain(repeated, a.data(), b.data(), expected.data());
  tile_product(repeated, a.data(), b.data(), result.data());
  EXPECT_TRUE(same_bits(result, expected));
}

TEST(TileProduct, ThreadsMayShareShapes) {
  std::vector<int> equal(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < equal.size(); ++i)
    threads.emplace_back([&, i] {
      bool all = true;
      for (int64_t k = 90; k < 120; ++k) all &= equals_chain(shape(9, 50, k, false, false));
      equal[i] = all;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 1));
}

TEST(TransposeTile, SwapsRowsAndColumns) {
  for (int64_t rows : {1, 5, 16, 77, 256})
    for (int64_t columns : {1, 7, 32, 40, 300})
      for (int64_t gap : {0, 3, 64}) {
        const int64_t from_stride = columns + gap, to_stride = rows + gap / 2;
        const auto from = testing::random_values(rows * from_stride, 4);
        std::vector<float> expected(static_cast<size_t>(columns * to_stride), -2.0f), to = expected;
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < columns; ++j) expected[j * to_stride + i] = from[i * from_stride + j];
        transpose_tile(from.data(), from_stride, rows, columns, to.data(), gap ? to_stride : 0);
        ASSERT_TRUE(same_bits(to, expected)) << rows << " x " << columns << ", gaps of " << gap;
      }
}

}  // namespace
}  // namespace etch::cpu
