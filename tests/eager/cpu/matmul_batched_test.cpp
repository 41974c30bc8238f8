// Batches of small products, bit for bit: chains of fused multiply-adds, whatever the layout and the threads.
#include "eager/cpu/matmul_batched.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "eager/cpu/contractions.h"
#include "eager/cpu/tile_product.h"
#include "runtime/parallel.h"
#include "tests/eager/cpu/values.h"
#include "tests/support/values.h"

namespace etch::onednn {
namespace {

using Strides = std::array<int64_t, 4>;

MatmulGeometry product(std::array<int64_t, 5> sizes, Strides a, Strides b, Strides c) {
  MatmulGeometry g;
  g.batch[0] = sizes[0], g.batch[1] = sizes[1], g.m = sizes[2], g.k = sizes[3], g.n = sizes[4];
  std::copy(a.begin(), a.end(), g.a_strides);
  std::copy(b.begin(), b.end(), g.b_strides);
  std::copy(c.begin(), c.end(), g.c_strides);
  return g;
}

/// [batches, m, k] x [batches, k, n], all contiguous.
MatmulGeometry contiguous(int64_t batches, int64_t m, int64_t k, int64_t n) {
  return product({1, batches, m, k, n}, {0, m * k, k, 1}, {0, k * n, n, 1}, {0, m * n, n, 1});
}

/// The products of attention over heads [B, T, H, D] of one buffer [B, T, 3, H, D] and their gradients.
struct Attention {
  int64_t batch, heads, length, depth;
  int64_t row = 3 * heads * depth, sample = length * row;
  Strides q{sample, depth, row, 1}, q_t{sample, depth, 1, row};
  Strides o{length * heads * depth, depth, heads*depth, 1}, o_t{o[0], depth, 1, o[2]};
  Strides p{heads * length * length, length*length, length, 1}, p_t{p[0], p[1], 1, length};
  Strides dense{heads * length * depth, length* depth, depth, 1};

  std::vector<MatmulGeometry> products() const {
    const std::array<int64_t, 5> scores{batch, heads, length, depth, length},
        values{batch, heads, length, length, depth};
    return {product(scores, q, q_t, p),       // q k^T
            product(values, p, q, o),         // p v
            product(scores, o, q_t, p),       // do v^T
            product(values, p_t, o, dense),   // p^T do
            product(values, p, q, dense),     // ds k
            product(values, p_t, q, dense)};  // ds^T q
  }
};

int64_t extent(const MatmulGeometry& g, const int64_t (&strides)[4], int64_t rows, int64_t columns) {
  return (g.batch[0] - 1) * strides[0] + (g.batch[1] - 1) * strides[1] + (rows - 1) * strides[2] +
         (columns - 1) * strides[3] + 1;
}

struct Operands {
  std::vector<float> a, b, c;  // c is full of NaN

  explicit Operands(const MatmulGeometry& g)
      : a(testing::random_values(extent(g, g.a_strides, g.m, g.k), 1)),
        b(testing::random_values(extent(g, g.b_strides, g.k, g.n), 2)),
        c(static_cast<size_t>(extent(g, g.c_strides, g.m, g.n)), std::numeric_limits<float>::quiet_NaN()) {}
};

std::vector<float> multiply(const MatmulGeometry& g, std::string* implementation = nullptr) {
  Operands operands(g);
  const auto prepared = prepare_matmul(g);
  if (implementation) *implementation = prepared->implementation();
  const size_t bytes = (prepared->scratch_bytes() / kScratchAlignment + 1) * kScratchAlignment;
  const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(kScratchAlignment, bytes),
                                                            &std::free);
  std::memset(scratch.get(), 0xff, bytes);
  prepared->run(operands.a.data(), operands.b.data(), nullptr, operands.c.data(), scratch.get());
  return operands.c;
}

std::vector<float> chains(const MatmulGeometry& g) {
  Operands x(g);
  const auto at = [](const int64_t(&s)[4], int64_t i, int64_t j, int64_t row, int64_t column) {
    return i * s[0] + j * s[1] + row * s[2] + column * s[3];
  };
  for (int64_t i = 0; i < g.batch[0]; ++i)
    for (int64_t j = 0; j < g.batch[1]; ++j)
      for (int64_t row = 0; row < g.m; ++row)
        for (int64_t column = 0; column < g.n; ++column) {
          float sum = 0;
          for (int64_t p = 0; p < g.k; ++p)
            sum = std::fma(x.a[at(g.a_strides, i, j, row, p)], x.b[at(g.b_strides, i, j, p, column)], sum);
          x.c[at(g.c_strides, i, j, row, column)] = sum;
        }
  return x.c;
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

class MatmulBatched : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::has_tile_product(17)) GTEST_SKIP() << "no libxsmm, or none for this machine: oneDNN multiplies";
  }
  void TearDown() override { set_num_threads(threads_); }

  /// Computed by tiles, as chains, gaps untouched, and the same with 1, 2 and 5 threads.
  static void expect_chains(const MatmulGeometry& g, const std::string& what) {
    EXPECT_TRUE(sums_in_order(g)) << what;
    const std::vector<float> expected = chains(g);
    for (int threads : {1, 2, 5}) {
      set_num_threads(threads);
      std::string implementation;
      EXPECT_TRUE(same_bits(multiply(g, &implementation), expected)) << what << ", " << threads << " threads";
      EXPECT_EQ(implementation, "tiles") << what;
    }
  }

 private:
  const int threads_ = num_threads();
};

TEST_F(MatmulBatched, AttentionHeadsOfOneFusedProjection) {
  for (const Attention& attention :
       {Attention{2, 2, 256, 32}, Attention{2, 3, 77, 40}, Attention{1, 2, 500, 24}}) {
    int number = 0;
    for (const MatmulGeometry& g : attention.products())
      expect_chains(g, std::to_string(attention.length) + ", product " + std::to_string(number++));
  }
}

TEST_F(MatmulBatched, OddSizes) {
  for (auto [m, k, n] :
       {std::array<int64_t, 3>{16, 2, 17}, {17, 1000, 18}, {95, 3, 65}, {96, 16, 81}, {200, 40, 130}})
    expect_chains(contiguous(3, m, k, n),
                  std::to_string(m) + " x " + std::to_string(k) + " x " + std::to_string(n));
}

TEST_F(MatmulBatched, ColumnMajorResultsSwapTheOperands) {
  const int64_t m = 40, k = 30, n = 50;
  expect_chains(product({1, 4, m, k, n}, {0, m * k, k, 1}, {0, k * n, n, 1}, {0, m * n, 1, m}), "rows");
  expect_chains(product({1, 4, m, k, n}, {0, m * k, 1, m}, {0, k * n, 1, k}, {0, m * n, 1, m}), "columns");
}

TEST_F(MatmulBatched, TermsOfATransposedOperandMayLieFarApart) {
  const int64_t m = 150, k = 300, n = 40, apart = 2100;
  const Strides a{0, 200, 1, apart};
  expect_chains(product({1, 3, m, k, n}, a, {0, k * n, n, 1}, {0, m * n, n, 1}), "rows");
  expect_chains(product({1, 3, m, k, n}, a, {0, k * n, 1, k}, {0, m * n, n, 1}), "columns");
}

TEST_F(MatmulBatched, OperandsMayBroadcastOverSomeBatches) {
  const int64_t m = 20, k = 30, n = 40;
  expect_chains(product({2, 3, m, k, n}, {0, 0, k, 1}, {3 * k * n, k * n, n, 1}, {3 * m * n, m * n, n, 1}),
                "a");
  expect_chains(
      product({2, 3, m, k, n}, {3 * m * k, m * k, k, 1}, {0, k * n, 1, k}, {3 * m * n, m * n, n, 1}), "b");
}

TEST_F(MatmulBatched, OtherProductsAreNotChains) {
  const int64_t m = 20, k = 30, n = 40;
  MatmulGeometry bias = contiguous(3, m, k, n), half = bias;
  bias.bias = true;
  half.a = half.b = DType::BF16;
  for (const auto& [what, g] :
       {std::pair<const char*, MatmulGeometry>{"one batch", contiguous(1, m, k, n)},
        {"few rows", contiguous(3, 15, k, n)},
        {"few columns", contiguous(3, m, k, 16)},
        {"one term", contiguous(3, m, 1, n)},
        {"no terms", contiguous(3, m, 0, n)},
        {"large b", contiguous(2, m, 2049, 128)},
        {"a bias", bias},
        {"bf16", half},
        {"gaps in c",
         product({1, 2, m, k, n}, {0, m * k, k, 1}, {0, k * n, n, 1}, {0, 3 * m * n, 2 * n + 1, 2})},
        {"gaps in a", product({1, 2, m, k, n}, {0, 2 * m * k, 2 * k, 2}, {0, k * n, n, 1}, {0, m * n, n, 1})},
        {"one row of b", product({1, 2, m, k, n}, {0, m * k, k, 1}, {0, n, 0, 1}, {0, m * n, n, 1})},
        {"one b", product({1, 2, m, k, n}, {0, m * k + 5, k, 1}, {0, 0, n, 1}, {0, m * n, n, 1})}})
    EXPECT_FALSE(sums_in_order(g)) << what;
}

TEST_F(MatmulBatched, CallsAreJudgedWithoutMemory) {
  const Attrs attrs{};
  const auto judge = [&](const Geometry& a, const Geometry& b, const Geometry& c) {
    Operand in[2], out;
    in[0].geometry = &a;
    in[1].geometry = &b;
    in[1].offset = 7;
    out.geometry = &c;
    return cpu::sums_in_order({Op::matmul, in, {&out, 1}, attrs});
  };
  using etch::contiguous;
  // Three batch dimensions that do not merge, sizes of 1, a broadcast, and a single batch.
  const Geometry split{{2, 3, 4, 20, 30}, {60, 120 * 20, 120 * 60, 120, 1}};
  EXPECT_TRUE(judge(split, contiguous({2, 3, 4, 30, 40}), contiguous({2, 3, 4, 20, 40})));
  EXPECT_TRUE(
      judge(contiguous({2, 1, 1, 20, 30}), contiguous({2, 1, 1, 30, 40}), contiguous({2, 1, 1, 20, 40})));
  EXPECT_TRUE(judge(contiguous({20, 30}), contiguous({5, 30, 40}), contiguous({5, 20, 40})));
  EXPECT_FALSE(judge(contiguous({1, 1, 20, 30}), contiguous({1, 1, 30, 40}), contiguous({1, 1, 20, 40})));
  EXPECT_FALSE(judge(contiguous({0, 20, 30}), contiguous({0, 30, 40}), contiguous({0, 20, 40})));
}

TEST_F(MatmulBatched, CallsOverManyBatchDimensionsAreChains) {
  using cpu::Array;
  const Array a = cpu::random_array({{2, 2, 3, 20, 30}, {60, 120 * 20, 120 * 40, 120, 1}}, DType::F32, 1),
              b = cpu::random_array(etch::contiguous({2, 2, 3, 30, 40}), DType::F32, 2),
              c = cpu::apply(Op::matmul, {a, b});
  const auto x = a.values(), y = b.values(), z = c.values();
  for (int64_t i = 0; i < c.geometry.numel(); ++i) {
    const int64_t column = i % 40, row = i / 40 % 20, batch = i / 800;
    float sum = 0;
    for (int64_t p = 0; p < 30; ++p)
      sum = std::fma(static_cast<float>(x[(batch * 20 + row) * 30 + p]),
                     static_cast<float>(y[(batch * 30 + p) * 40 + column]), sum);
    ASSERT_EQ(static_cast<float>(z[i]), sum) << i;
  }
}

}  // namespace
}  // namespace etch::onednn
