// Prepared matrix products and convolutions against naive loops in double.
#include "eager/cpu/onednn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "runtime/error.h"

namespace etch::onednn {
namespace {

/// Memory of `count` elements of a dtype, read and written as doubles. Fresh ones hold NaN bit patterns.
class Buffer {
 public:
  Buffer(DType dtype, int64_t count) : dtype_(dtype), bytes_(count * item_size(dtype), 0xff) {}
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size() / item_size(dtype_); }
  bool operator==(const Buffer& other) const { return bytes_ == other.bytes_; }

  double get(int64_t i) const {
    return visit_dtype(dtype_, [&]<class T>() -> double {
      T value;
      std::memcpy(static_cast<void*>(&value), bytes_.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
        return to_float(value);
      else
        return static_cast<double>(value);
    });
  }
  void set(int64_t i, double value) {
    visit_dtype(dtype_, [&]<class T>() {
      T typed;
      if constexpr (std::is_same_v<T, Half>)
        typed = to_half(static_cast<float>(value));
      else if constexpr (std::is_same_v<T, BFloat16>)
        typed = to_bfloat16(static_cast<float>(value));
      else
        typed = static_cast<T>(value);
      std::memcpy(bytes_.data() + i * sizeof(T), &typed, sizeof(T));
    });
  }
  /// Small integers for integer dtypes, else values in [-1, 1].
  void randomise(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> real(-1, 1);
    for (size_t i = 0; i < size(); ++i)
      set(static_cast<int64_t>(i), is_floating(dtype_) ? real(random) : static_cast<double>(random() % 5));
  }

 private:
  DType dtype_;
  std::vector<unsigned char> bytes_;
};

Buffer random_buffer(DType dtype, int64_t count, unsigned seed) {
  Buffer buffer(dtype, count);
  buffer.randomise(seed);
  return buffer;
}

/// Elements that an operand of these sizes and strides reaches over.
int64_t span(const int64_t (&sizes)[4], const int64_t (&strides)[4]) {
  int64_t last = 0;
  for (int d = 0; d < 4; ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}

int64_t at(const int64_t (&strides)[4], int64_t i, int64_t j, int64_t k, int64_t l) {
  return i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3];
}

void run(const Contraction& op, const Buffer& first, const Buffer& second, const Buffer& bias, Buffer& out) {
  const size_t bytes = (op.scratch_bytes() + kScratchAlignment) / kScratchAlignment * kScratchAlignment;
  void* scratch = std::aligned_alloc(kScratchAlignment, bytes);
  std::memset(scratch, 0xff, bytes);  // NaNs: nothing may be read before it is written
  op.run(first.data(), second.data(), bias.data(), out.data(), scratch);
  std::free(scratch);
}

double tolerance(DType in, DType out, int64_t terms) {
  if (!is_floating(out)) return 0;
  double epsilon = in == DType::F64 ? 1e-15 : 2e-7;
  double bound = epsilon * (4 + std::sqrt(static_cast<double>(terms))) * 8;
  if (out == DType::BF16) bound += 1.0 / 256 * (1 + std::sqrt(static_cast<double>(terms)));
  if (out == DType::F16) bound += 1.0 / 2048 * (1 + std::sqrt(static_cast<double>(terms)));
  return bound;
}

struct Strides {
  int64_t values[4];
};

MatmulGeometry matmul(std::vector<int64_t> sizes, Strides a, Strides b, Strides c) {
  MatmulGeometry g;
  g.batch[0] = sizes[0], g.batch[1] = sizes[1], g.m = sizes[2], g.k = sizes[3], g.n = sizes[4];
  std::memcpy(g.a_strides, a.values, sizeof a);
  std::memcpy(g.b_strides, b.values, sizeof b);
  std::memcpy(g.c_strides, c.values, sizeof c);
  return g;
}

/// [b0, b1, m, k] x [b0, b1, k, n], all contiguous.
MatmulGeometry contiguous_matmul(int64_t b0, int64_t b1, int64_t m, int64_t k, int64_t n) {
  return matmul({b0, b1, m, k, n}, {{b1 * m * k, m * k, k, 1}}, {{b1 * k * n, k * n, n, 1}},
                {{b1 * m * n, m * n, n, 1}});
}

/// The implementation's name, after comparing all of c, gaps included.
std::string check_matmul(const MatmulGeometry& g) {
  const Buffer a = random_buffer(g.a, span({g.batch[0], g.batch[1], g.m, g.k}, g.a_strides), 1);
  const Buffer b = random_buffer(g.b, span({g.batch[0], g.batch[1], g.k, g.n}, g.b_strides), 2);
  const Buffer bias = random_buffer(g.c, g.n, 3);
  Buffer c(g.c, span({g.batch[0], g.batch[1], g.m, g.n}, g.c_strides));
  const Buffer untouched = c;
  std::vector<bool> written(c.size());
  const auto op = prepare_matmul(g);
  run(*op, a, b, bias, c);
  for (int64_t i = 0; i < g.batch[0]; ++i)
    for (int64_t j = 0; j < g.batch[1]; ++j)
      for (int64_t row = 0; row < g.m; ++row)
        for (int64_t column = 0; column < g.n; ++column) {
          double sum = g.bias ? bias.get(column) : 0;
          for (int64_t p = 0; p < g.k; ++p)
            sum += a.get(at(g.a_strides, i, j, row, p)) * b.get(at(g.b_strides, i, j, p, column));
          const int64_t place = at(g.c_strides, i, j, row, column);
          written[place] = true;
          const double got = c.get(place);
          if (!(std::abs(got - sum) <= tolerance(g.a, g.c, g.k))) {
            ADD_FAILURE() << op->implementation() << " at " << i << "," << j << "," << row << "," << column
                          << ": got " << got << ", expected " << sum;
            return op->implementation();
          }
        }
  for (size_t i = 0; i < written.size(); ++i)
    if (!written[i]) {
      EXPECT_TRUE(std::isnan(c.get(i)) || c.get(i) == untouched.get(i)) << "gap " << i;
    }
  EXPECT_NE(op->implementation().rfind("ref", 0), 0u) << op->implementation();
  return op->implementation();
}

TEST(OnednnMatmul, ContiguousSizes) {
  for (auto [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                         {17, 33, 9},
                         {128, 64, 100},
                         {1, 300, 77},
                         {77, 300, 1},
                         {65, 1, 70},
                         {1, 5000, 1},
                         {2, 3, 4}})
    check_matmul(contiguous_matmul(1, 1, m, k, n));
}

TEST(OnednnMatmul, TransposedOperands) {
  const int64_t m = 40, k = 50, n = 60;
  for (Strides a : {Strides{{0, 0, k, 1}}, Strides{{0, 0, 1, m}}})
    for (Strides b : {Strides{{0, 0, n, 1}}, Strides{{0, 0, 1, k}}}) {
      const auto g = matmul({1, 1, m, k, n}, a, b, {{0, 0, n, 1}});
      check_matmul(g);
    }
}

TEST(OnednnMatmul, ColumnMajorAndStridedResults) {
  check_matmul(matmul({1, 1, 40, 50, 60}, {{0, 0, 50, 1}}, {{0, 0, 60, 1}}, {{0, 0, 1, 40}}));
  check_matmul(matmul({1, 1, 40, 50, 60}, {{0, 0, 50, 1}}, {{0, 0, 60, 1}}, {{0, 0, 200, 3}}));
  check_matmul(matmul({1, 1, 40, 50, 60}, {{0, 0, 50, 1}}, {{0, 0, 60, 1}}, {{0, 0, 64, 1}}));
}

TEST(OnednnMatmul, OperandsWithGapsOverlapsAndZeroStrides) {
  const Strides c{{0, 0, 60, 1}};
  check_matmul(matmul({1, 1, 40, 50, 60}, {{0, 0, 200, 3}}, {{0, 0, 300, 2}}, c));
  check_matmul(matmul({1, 1, 40, 50, 60}, {{0, 0, 0, 0}}, {{0, 0, 60, 1}}, c));
  check_matmul(matmul({1, 1, 40, 50, 60}, {{0, 0, 0, 1}}, {{0, 0, 1, 0}}, c));
  check_matmul(matmul({1, 1, 40, 50, 60}, {{0, 0, 1, 1}}, {{0, 0, 80, 1}}, c));
}

TEST(OnednnMatmul, StridesOfSizeOneDimensionsAreIgnored) {
  for (int64_t odd : {0, 1, 7, 1000}) {
    check_matmul(matmul({1, 1, 1, 500, 60}, {{odd, odd, odd, 1}}, {{odd, odd, 60, 1}}, {{odd, odd, odd, 1}}));
    check_matmul(
        matmul({1, 1, 40, 500, 1}, {{odd, odd, 500, 1}}, {{odd, odd, 1, odd}}, {{odd, odd, 1, odd}}));
    check_matmul(matmul({1, 1, 40, 1, 60}, {{odd, odd, 1, odd}}, {{odd, odd, odd, 1}}, {{odd, odd, 60, 1}}));
    check_matmul(matmul({1, 1, 1, 500, 60}, {{odd, odd, odd, 3}}, {{odd, odd, 60, 1}}, {{odd, odd, odd, 1}}));
  }
}

TEST(OnednnMatmul, BatchesWithBroadcasts) {
  check_matmul(contiguous_matmul(1, 6, 20, 30, 10));
  check_matmul(contiguous_matmul(3, 2, 20, 30, 10));
  // One matrix on the right of all, on the left of all, and a batch dimension each.
  check_matmul(matmul({2, 3, 20, 30, 10}, {{1800, 600, 30, 1}}, {{0, 0, 10, 1}}, {{600, 200, 10, 1}}));
  check_matmul(matmul({2, 3, 20, 30, 10}, {{0, 0, 30, 1}}, {{900, 300, 10, 1}}, {{600, 200, 10, 1}}));
  check_matmul(matmul({2, 3, 20, 30, 10}, {{600, 0, 30, 1}}, {{0, 300, 10, 1}}, {{600, 200, 10, 1}}));
  check_matmul(matmul({1, 7, 1, 30, 10}, {{0, 30, 30, 1}}, {{0, 0, 10, 1}}, {{0, 10, 10, 1}}));
  // Both share: all batches, or those of one dimension.
  check_matmul(matmul({1, 3, 20, 30, 10}, {{0, 0, 30, 1}}, {{0, 0, 10, 1}}, {{0, 200, 10, 1}}));
  check_matmul(matmul({2, 3, 20, 30, 10}, {{0, 600, 30, 1}}, {{0, 300, 1, 30}}, {{600, 200, 10, 1}}));
  check_matmul(matmul({2, 3, 20, 30, 10}, {{600, 0, 30, 1}}, {{300, 0, 10, 1}}, {{600, 200, 1, 20}}));
}

TEST(OnednnMatmul, AttentionHeadsOfOneFusedProjection) {
  // qkv [2, 24, 3, 4, 16]: q k^T and (weights) v for each sample and head without copying a head.
  const int64_t row = 3 * 4 * 16, sample = 24 * row;
  const auto scores = matmul({2, 4, 24, 16, 24}, {{sample, 16, row, 1}}, {{sample, 16, 1, row}},
                             {{4 * 24 * 24, 24 * 24, 24, 1}});
  const auto values = matmul({2, 4, 24, 24, 16}, {{4 * 24 * 24, 24 * 24, 24, 1}}, {{sample, 16, row, 1}},
                             {{24 * 64, 16, 64, 1}});
  check_matmul(scores);
  check_matmul(values);
}

TEST(OnednnMatmul, Bias) {
  for (auto sizes : {std::array<int64_t, 3>{2, 2, 3}, {32, 64, 100}}) {
    auto g = contiguous_matmul(1, 1, sizes[0], sizes[1], sizes[2]);
    g.bias = true;
    check_matmul(g);
    g.batch[1] = 3;
    g.a_strides[1] = sizes[0] * sizes[1], g.c_strides[1] = sizes[0] * sizes[2];
    check_matmul(g);
    g.a_strides[1] += 5;
    check_matmul(g);
    g.c_strides[2] = 1, g.c_strides[3] = sizes[0];
    check_matmul(g);
  }
}

TEST(OnednnMatmul, Dtypes) {
  using D = DType;
  struct Case {
    D a, b, c;
  };
  for (Case t : {Case{D::BF16, D::BF16, D::F32},
                 {D::BF16, D::BF16, D::BF16},
                 {D::F32, D::BF16, D::F32},
                 {D::F32, D::F32, D::BF16},
                 {D::F16, D::F16, D::F16},
                 {D::F16, D::F32, D::F32},
                 {D::F64, D::F64, D::F64},
                 {D::I64, D::I64, D::I64},
                 {D::I32, D::I32, D::I32},
                 {D::U8, D::U8, D::U8}})
    for (int64_t size : {3, 70}) {
      if (t.c == D::U8 && size > 8) continue;  // would wrap; see below
      for (auto g :
           {contiguous_matmul(1, 2, size, size + 1, size + 2),
            matmul({1, 1, size, size, size}, {{0, 0, 1, size}}, {{0, 0, 2, 2 * size}}, {{0, 0, size, 1}})}) {
        g.a = t.a, g.b = t.b, g.c = t.c;
        check_matmul(g);
      }
    }
}

TEST(OnednnMatmul, IntegersWrap) {
  auto g = contiguous_matmul(1, 1, 1, 2, 1);
  g.a = g.b = g.c = DType::I64;
  const int64_t a[2] = {INT64_MAX, 3}, b[2] = {2, 1};
  int64_t c = 0;
  prepare_matmul(g)->run(a, b, nullptr, &c, nullptr);
  EXPECT_EQ(c, 1);
}

TEST(OnednnMatmul, NoTermsGiveZerosOrTheBias) {
  auto g = contiguous_matmul(1, 2, 3, 0, 4);
  check_matmul(g);
  g.bias = true;
  check_matmul(g);
}

TEST(OnednnMatmul, NoResultsTouchNothing) {
  for (auto g :
       {contiguous_matmul(1, 1, 0, 5, 4), contiguous_matmul(1, 1, 3, 5, 0), contiguous_matmul(0, 2, 3, 5, 4)})
    prepare_matmul(g)->run(nullptr, nullptr, nullptr, nullptr, nullptr);
}

TEST(OnednnMatmul, NanAndInfinityPass) {
  for (int64_t size : {2, 64}) {
    const auto g = contiguous_matmul(1, 1, size, size, size);
    Buffer a = random_buffer(DType::F32, size * size, 1), b = a, c = a;
    a.set(0, std::numeric_limits<double>::quiet_NaN());
    a.set(size, std::numeric_limits<double>::infinity());
    run(*prepare_matmul(g), a, b, b, c);
    EXPECT_TRUE(std::isnan(c.get(0)) && std::isnan(c.get(size - 1)));
    EXPECT_TRUE(std::isinf(c.get(size)));
  }
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OnednnMatmul, MixedDtypesAreRefused) {
  auto g = contiguous_matmul(1, 1, 3, 4, 5);
  g.b = DType::F64;
  EXPECT_NE(
      error_of([&] { prepare_matmul(g); }).find("matmul [1, 1, 3, 4] x [4, 5] f32 f64 -> f32: expected"),
      std::string::npos);
}

TEST(OnednnCache, SameGeometryIsSharedUntilCleared) {
  clear_cache();
  const auto g = contiguous_matmul(1, 1, 40, 50, 60);
  const auto first = prepare_matmul(g);
  EXPECT_EQ(first, prepare_matmul(g));
  EXPECT_NE(first, prepare_matmul(contiguous_matmul(1, 1, 40, 50, 61)));
  EXPECT_EQ(cache_size(), 2u);
  clear_cache();
  EXPECT_NE(first, prepare_matmul(g));
}

TEST(OnednnCache, ManyThreadsRunOnePreparedOperation) {
  const auto g = contiguous_matmul(1, 1, 64, 80, 96);
  const Buffer a = random_buffer(DType::F32, 64 * 80, 1), b = random_buffer(DType::F32, 80 * 96, 2);
  Buffer expected(DType::F32, 64 * 96);
  run(*prepare_matmul(g), a, b, a, expected);
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Buffer c(DType::F32, 64 * 96);
        run(*prepare_matmul(g), a, b, a, c);
        wrong[t] += !(c == expected);
      }
    });
  for (auto& thread : threads) thread.join();
  for (int count : wrong) EXPECT_EQ(count, 0);
}

struct ConvCase {
  int64_t n, c_in, h, w, c_out, kh, kw;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

enum class Layout { ChannelsLast, Nchw, Gaps, Broadcast };

void set_strides(int64_t (&strides)[4], Layout layout, int64_t c, int64_t h, int64_t w) {
  const int64_t all[4][4] = {
      {h * w * c, 1, w * c, c}, {c * h * w, h * w, w, 1}, {h * w * c * 6, 2, w * c * 3, c * 3}, {0, 0, 0, 0}};
  std::memcpy(strides, all[static_cast<int>(layout)], sizeof strides);
}

ConvGeometry conv(const ConvCase& t, Layout x = Layout::ChannelsLast, Layout y = Layout::ChannelsLast,
                  DType dtype = DType::F32) {
  ConvGeometry g;
  g.n = t.n, g.c_in = t.c_in, g.h = t.h, g.w = t.w, g.c_out = t.c_out, g.kh = t.kh, g.kw = t.kw;
  g.h_out = (t.h + 2 * t.padding - t.dilation * (t.kh - 1) - 1) / t.stride + 1;
  g.w_out = (t.w + 2 * t.padding - t.dilation * (t.kw - 1) - 1) / t.stride + 1;
  for (int d = 0; d < 2; ++d) g.stride[d] = t.stride, g.padding[d] = t.padding, g.dilation[d] = t.dilation;
  g.groups = t.groups;
  set_strides(g.x_strides, x, g.c_in, g.h, g.w);
  set_strides(g.y_strides, y, g.c_out, g.h_out, g.w_out);
  g.x = g.weight = g.y = dtype;
  return g;
}

/// Calls f(x place, weight place, y place) for every product of the convolution.
void for_each_term(const ConvGeometry& g, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const int64_t in = g.c_in / g.groups, out = g.c_out / g.groups;
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t co = 0; co < g.c_out; ++co)
      for (int64_t ho = 0; ho < g.h_out; ++ho)
        for (int64_t wo = 0; wo < g.w_out; ++wo)
          for (int64_t ci = 0; ci < in; ++ci)
            for (int64_t kh = 0; kh < g.kh; ++kh)
              for (int64_t kw = 0; kw < g.kw; ++kw) {
                const int64_t h = ho * g.stride[0] - g.padding[0] + kh * g.dilation[0];
                const int64_t w = wo * g.stride[1] - g.padding[1] + kw * g.dilation[1];
                if (h < 0 || h >= g.h || w < 0 || w >= g.w) continue;
                f(at(g.x_strides, n, co / out * in + ci, h, w), ((co * in + ci) * g.kh + kh) * g.kw + kw,
                  at(g.y_strides, n, co, ho, wo));
              }
}

void compare(const Contraction& op, const Buffer& got, const std::vector<double>& expected, double bound) {
  EXPECT_NE(op.implementation().rfind("ref", 0), 0u) << op.implementation();
  for (size_t i = 0; i < expected.size(); ++i)
    if (!std::isnan(expected[i]) && !(std::abs(got.get(i) - expected[i]) <= bound)) {
      ADD_FAILURE() << op.implementation() << " at " << i << ": got " << got.get(i) << ", expected "
                    << expected[i];
      return;
    }
}

/// Zeros at the elements of a [n, c, h, w] tensor, NaN (not compared) in its gaps.
std::vector<double> zeros(int64_t count, const int64_t (&strides)[4], int64_t n, int64_t c, int64_t h,
                          int64_t w) {
  std::vector<double> result(count, std::numeric_limits<double>::quiet_NaN());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < c; ++j)
      for (int64_t k = 0; k < h; ++k)
        for (int64_t l = 0; l < w; ++l) result[at(strides, i, j, k, l)] = 0;
  return result;
}

void check_conv(ConvGeometry g) {
  SCOPED_TRACE(::testing::Message() << "x " << g.n << "," << g.c_in << "," << g.h << "," << g.w << " weight "
                                    << g.c_out << "," << g.kh << "," << g.kw << " groups " << g.groups
                                    << " stride " << g.stride[0] << " dilation " << g.dilation[0] << " "
                                    << name(g.x));
  const int64_t x_span = span({g.n, g.c_in, g.h, g.w}, g.x_strides);
  const int64_t y_span = span({g.n, g.c_out, g.h_out, g.w_out}, g.y_strides);
  const int64_t taps = g.c_in / g.groups * g.kh * g.kw, outputs = g.n * g.h_out * g.w_out;
  const Buffer x = random_buffer(g.x, x_span, 1), weight = random_buffer(g.weight, g.c_out * taps, 2);
  const Buffer dy = random_buffer(g.y, y_span, 3), bias = random_buffer(g.y, g.c_out, 4);
  const bool writes_x = g.x_strides[3] != 0, writes_y = g.y_strides[3] != 0;
  if (writes_y) {
    Buffer y(g.y, y_span);
    auto expected = zeros(y_span, g.y_strides, g.n, g.c_out, g.h_out, g.w_out);
    if (g.bias)
      for (int64_t n = 0; n < g.n; ++n)
        for (int64_t c = 0; c < g.c_out; ++c)
          for (int64_t h = 0; h < g.h_out; ++h)
            for (int64_t w = 0; w < g.w_out; ++w) expected[at(g.y_strides, n, c, h, w)] = bias.get(c);
    for_each_term(g, [&](int64_t px, int64_t pw, int64_t py) { expected[py] += x.get(px) * weight.get(pw); });
    const auto op = prepare_conv_forward(g);
    run(*op, x, weight, bias, y);
    compare(*op, y, expected, tolerance(g.x, g.y, taps));
  }
  if (writes_x) {
    Buffer dx(g.x, x_span);
    auto expected = zeros(x_span, g.x_strides, g.n, g.c_in, g.h, g.w);
    for_each_term(g,
                  [&](int64_t px, int64_t pw, int64_t py) { expected[px] += dy.get(py) * weight.get(pw); });
    const auto op = prepare_conv_backward_data(g);
    run(*op, dy, weight, bias, dx);
    compare(*op, dx, expected, tolerance(g.x, g.x, g.c_out / g.groups * g.kh * g.kw));
  }
  Buffer dweight(g.weight, g.c_out * taps);
  std::vector<double> expected(g.c_out * taps);
  for_each_term(g, [&](int64_t px, int64_t pw, int64_t py) { expected[pw] += dy.get(py) * x.get(px); });
  const auto op = prepare_conv_backward_weights(g);
  run(*op, x, dy, bias, dweight);
  compare(*op, dweight, expected, tolerance(g.x, g.weight, outputs));
}

const ConvCase kConvCases[] = {{2, 16, 8, 8, 32, 3, 3, 1, 1},
                               {2, 3, 9, 9, 16, 3, 3, 1, 1},
                               {2, 3, 17, 17, 8, 7, 7, 2, 3},
                               {3, 1, 10, 11, 5, 3, 3, 1, 1},
                               {2, 16, 8, 8, 24, 1, 1, 2, 0},
                               {2, 16, 5, 7, 24, 1, 1, 1, 0},
                               {1, 5, 11, 7, 7, 3, 2, 2, 1},
                               {2, 16, 12, 12, 16, 3, 3, 1, 2, 2},
                               {1, 3, 13, 9, 4, 2, 3, 2, 1, 2},
                               {2, 32, 6, 6, 32, 3, 3, 1, 1, 1, 32},
                               {2, 30, 7, 5, 30, 3, 3, 2, 1, 1, 30},
                               {2, 20, 9, 9, 28, 3, 3, 2, 1, 1, 4},
                               {2, 6, 5, 5, 12, 3, 3, 1, 1, 1, 6},
                               {1, 1, 1, 1, 1, 1, 1},
                               {2, 8, 3, 3, 4, 3, 3},
                               {1, 33, 4, 4, 17, 5, 5, 1, 2},
                               {2, 8, 1, 20, 8, 1, 5, 1, 0},
                               {1, 40, 6, 6, 48, 3, 3, 3, 1, 1, 2}};

TEST(OnednnConv, ChannelsLast) {
  for (const ConvCase& t : kConvCases) check_conv(conv(t));
}

TEST(OnednnConv, OtherLayouts) {
  for (const ConvCase& t : kConvCases) {
    check_conv(conv(t, Layout::Nchw, Layout::Nchw));
    check_conv(conv(t, Layout::Nchw, Layout::ChannelsLast));
    check_conv(conv(t, Layout::Gaps, Layout::Gaps));
  }
}

TEST(OnednnConv, BroadcastOperands) {
  for (const ConvCase& t : kConvCases) {
    check_conv(conv(t, Layout::ChannelsLast, Layout::Broadcast));
    check_conv(conv(t, Layout::Broadcast, Layout::Nchw));
  }
}

TEST(OnednnConv, Bias) {
  for (const ConvCase& t : kConvCases)
    for (Layout layout : {Layout::ChannelsLast, Layout::Nchw}) {
      auto g = conv(t, layout, layout);
      g.bias = true;
      check_conv(g);
    }
}

TEST(OnednnConv, HalfPrecision) {
  for (const ConvCase& t : kConvCases)
    for (DType dtype : {DType::BF16, DType::F16}) {
      auto g = conv(t, Layout::ChannelsLast, Layout::Nchw, dtype);
      g.bias = true;
      check_conv(g);
      g.weight = DType::F32;
      check_conv(g);
    }
}

TEST(OnednnConv, DoubleAndIntegers) {
  for (const ConvCase& t : kConvCases)
    for (DType dtype : {DType::F64, DType::I64, DType::I32})
      for (Layout layout : {Layout::ChannelsLast, Layout::Gaps}) {
        auto g = conv(t, layout, layout, dtype);
        g.bias = true;
        check_conv(g);
      }
}

TEST(OnednnConv, PlainStripsCoverWideRows) {
  for (int64_t stride : {1, 2, 3})
    check_conv(conv({1, 2, 4, 200, 3, 3, 3, stride, 1, 2}, Layout::Nchw, Layout::Nchw, DType::F64));
}

TEST(OnednnConv, OutputsLargerThanTheSymmetricPaddingGives) {
  // A transposed convolution with output padding: the last input rows and columns reach no output.
  auto g = conv({1, 4, 8, 8, 6, 3, 3, 2, 1});
  g.h = g.w = 9;
  set_strides(g.x_strides, Layout::ChannelsLast, 4, 9, 9);
  g.h_out = g.w_out = 4;
  set_strides(g.y_strides, Layout::ChannelsLast, 6, 4, 4);
  check_conv(g);
}

TEST(OnednnConv, EmptySums) {
  for (DType dtype : {DType::F32, DType::F64}) {
    auto g = conv({2, 0, 5, 5, 4, 3, 3, 1, 1}, Layout::Nchw, Layout::Nchw, dtype);
    g.bias = true;
    check_conv(g);
    check_conv(conv({0, 3, 5, 5, 4, 3, 3, 1, 1}, Layout::ChannelsLast, Layout::ChannelsLast, dtype));
    check_conv(conv({2, 3, 5, 5, 0, 3, 3, 1, 1}, Layout::ChannelsLast, Layout::ChannelsLast, dtype));
  }
}

TEST(OnednnConv, ManyThreadsRunOnePreparedOperation) {
  const auto g = conv({4, 16, 8, 8, 16, 3, 3, 1, 1});
  const Buffer x = random_buffer(DType::F32, 4 * 16 * 64, 1),
               weight = random_buffer(DType::F32, 16 * 16 * 9, 2);
  const auto op = prepare_conv_forward(g);
  Buffer expected(DType::F32, 4 * 16 * 64);
  run(*op, x, weight, x, expected);
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        Buffer y(DType::F32, 4 * 16 * 64);
        run(*op, x, weight, x, y);
        wrong[t] += !(y == expected);
      }
    });
  for (auto& thread : threads) thread.join();
  for (int count : wrong) EXPECT_EQ(count, 0);
}

TEST(OnednnConv, ChannelsThatDoNotDivideAreRefused) {
  auto g = conv({1, 6, 5, 5, 4, 3, 3});
  g.groups = 4;
  EXPECT_NE(
      error_of([&] { prepare_conv_forward(g); }).find("expected channels divisible by groups 4, got 6 and 4"),
      std::string::npos);
}

}  // namespace
}  // namespace etch::onednn
