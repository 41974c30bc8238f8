// Pooling kernels against naive loops over every output, its window and its padding.
#include "eager/cpu/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace etch::cpu {
namespace {

enum class Layout { ChannelsLast, Nchw, Gaps };

void set_strides(int64_t (&strides)[4], Layout layout, int64_t c, int64_t h, int64_t w) {
  const int64_t all[3][4] = {
      {h * w * c, 1, w * c, c}, {c * h * w, h * w, w, 1}, {h * w * c * 6, 2, w * c * 3, c * 3}};
  std::memcpy(strides, all[static_cast<int>(layout)], sizeof strides);
}

struct Case {
  int64_t n, c, h, w, kernel, stride = 1, padding = 0, dilation = 1;
  bool ceil = false;
};

PoolGeometry pool(const Case& t, Layout x, Layout y) {
  PoolGeometry g;
  g.n = t.n, g.c = t.c, g.h = t.h, g.w = t.w;
  auto out = [&](int64_t size) {
    const int64_t room = size + 2 * t.padding - t.dilation * (t.kernel - 1) - 1;
    int64_t count = (room + (t.ceil ? t.stride - 1 : 0)) / t.stride + 1;
    if ((count - 1) * t.stride >= size + t.padding) --count;
    return count;
  };
  g.h_out = out(t.h), g.w_out = out(t.w);
  for (int d = 0; d < 2; ++d)
    g.kernel[d] = t.kernel, g.stride[d] = t.stride, g.padding[d] = t.padding, g.dilation[d] = t.dilation;
  set_strides(g.x_strides, x, t.c, t.h, t.w);
  set_strides(g.y_strides, y, t.c, g.h_out, g.w_out);
  std::copy(g.y_strides, g.y_strides + 4, g.index_strides);
  return g;
}

int64_t at(const int64_t (&strides)[4], int64_t n, int64_t c, int64_t h, int64_t w) {
  return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
}

template <class T>
std::vector<T> random_values(int64_t count, int levels, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(static_cast<int>(random() % levels) - levels / 2) / 4;
  return values;
}

template <class F>
void for_each_output(const PoolGeometry& g, F f) {
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t c = 0; c < g.c; ++c)
      for (int64_t ho = 0; ho < g.h_out; ++ho)
        for (int64_t wo = 0; wo < g.w_out; ++wo) f(n, c, ho, wo);
}

/// Calls f(h, w) for the window's positions, those in the padding included.
template <class F>
void for_each_tap(const PoolGeometry& g, int64_t ho, int64_t wo, F f) {
  if (g.adaptive) {
    auto start = [](int64_t o, int64_t size, int64_t out) { return static_cast<int64_t>(o * size / out); };
    auto end = [](int64_t o, int64_t size, int64_t out) {
      return static_cast<int64_t>(std::ceil(static_cast<double>((o + 1) * size) / static_cast<double>(out)));
    };
    for (int64_t h = start(ho, g.h, g.h_out); h < end(ho, g.h, g.h_out); ++h)
      for (int64_t w = start(wo, g.w, g.w_out); w < end(wo, g.w, g.w_out); ++w) f(h, w);
    return;
  }
  for (int64_t kh = 0; kh < g.kernel[0]; ++kh)
    for (int64_t kw = 0; kw < g.kernel[1]; ++kw)
      f(ho * g.stride[0] - g.padding[0] + kh * g.dilation[0],
        wo * g.stride[1] - g.padding[1] + kw * g.dilation[1]);
}

bool inside(const PoolGeometry& g, int64_t h, int64_t w) { return h >= 0 && h < g.h && w >= 0 && w < g.w; }

int64_t naive_divisor(const PoolGeometry& g, int64_t ho, int64_t wo) {
  int64_t count = 0;
  for_each_tap(g, ho, wo, [&](int64_t h, int64_t w) {
    const bool padded = h < g.h + g.padding[0] && w < g.w + g.padding[1];
    count += g.count_include_pad && !g.adaptive ? padded : inside(g, h, w);
  });
  return count;
}

template <class T>
void check_max(const PoolGeometry& g) {
  const int64_t x_span = 6 * g.n * g.c * g.h * g.w, y_span = 6 * g.n * g.c * g.h_out * g.w_out;
  const auto x = random_values<T>(x_span, 9, 1), dy = random_values<T>(y_span, 100, 2);  // many ties
  std::vector<T> y(y_span), dx(x_span, 77), expected_dx(x_span, 0);
  std::vector<int64_t> indices(y_span);
  max_pool2d_forward(g, x.data(), y.data(), indices.data());
  max_pool2d_backward(g, dy.data(), indices.data(), dx.data());
  for_each_output(g, [&](int64_t n, int64_t c, int64_t ho, int64_t wo) {
    T best = -std::numeric_limits<T>::infinity();
    int64_t where = -1;
    for_each_tap(g, ho, wo, [&](int64_t h, int64_t w) {
      if (!inside(g, h, w)) return;
      const T value = x[at(g.x_strides, n, c, h, w)];
      if (value > best) best = value, where = h * g.w + w;
    });
    const int64_t place = at(g.y_strides, n, c, ho, wo);
    ASSERT_EQ(y[place], best);
    ASSERT_EQ(indices[place], where);
    expected_dx[at(g.x_strides, n, c, where / g.w, where % g.w)] += dy[place];
  });
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t c = 0; c < g.c; ++c)
      for (int64_t h = 0; h < g.h; ++h)
        for (int64_t w = 0; w < g.w; ++w)
          ASSERT_EQ(dx[at(g.x_strides, n, c, h, w)], expected_dx[at(g.x_strides, n, c, h, w)]);
}

template <class T>
void check_average(const PoolGeometry& g) {
  const int64_t x_span = 6 * g.n * g.c * g.h * g.w, y_span = 6 * g.n * g.c * g.h_out * g.w_out;
  const auto x = random_values<T>(x_span, 100, 1), dy = random_values<T>(y_span, 100, 2);
  std::vector<T> y(y_span), dx(x_span, 77), expected_dx(x_span, 0);
  avg_pool2d_forward(g, x.data(), y.data());
  avg_pool2d_backward(g, dy.data(), dx.data());
  for_each_output(g, [&](int64_t n, int64_t c, int64_t ho, int64_t wo) {
    const T size = static_cast<T>(naive_divisor(g, ho, wo));
    const int64_t place = at(g.y_strides, n, c, ho, wo);
    T sum = 0;
    for_each_tap(g, ho, wo, [&](int64_t h, int64_t w) {
      if (!inside(g, h, w)) return;
      sum += x[at(g.x_strides, n, c, h, w)];
      expected_dx[at(g.x_strides, n, c, h, w)] += dy[place] / size;
    });
    ASSERT_EQ(y[place], sum / size);
  });
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t c = 0; c < g.c; ++c)
      for (int64_t h = 0; h < g.h; ++h)
        for (int64_t w = 0; w < g.w; ++w)
          ASSERT_EQ(dx[at(g.x_strides, n, c, h, w)], expected_dx[at(g.x_strides, n, c, h, w)]);
}

const Case kCases[] = {{2, 3, 8, 8, 2, 2},
                       {2, 70, 9, 7, 3, 2, 1},
                       {1, 5, 11, 13, 3, 1, 1},
                       {3, 1, 6, 5, 5, 2, 2},
                       {1, 4, 9, 9, 3, 2, 0, 1, true},
                       {2, 130, 5, 5, 5},
                       {1, 4, 10, 10, 3, 3, 1, 1, true},
                       {0, 3, 4, 4, 2, 2},
                       {1, 2, 4, 4, 1, 3}};

template <class F>
void for_layouts(F f) {
  for (Layout x : {Layout::ChannelsLast, Layout::Nchw, Layout::Gaps})
    for (Layout y : {Layout::ChannelsLast, Layout::Nchw}) f(x, y);
}

TEST(MaxPool2d, ForwardAndBackward) {
  for (const Case& t : kCases)
    for_layouts([&](Layout x, Layout y) {
      check_max<float>(pool(t, x, y));
      check_max<double>(pool(t, x, y));
    });
}

TEST(MaxPool2d, Dilation) {
  for (const Case& t : {Case{2, 3, 11, 12, 3, 2, 1, 2}, Case{1, 2, 9, 9, 2, 1, 1, 3}})
    for_layouts([&](Layout x, Layout y) { check_max<float>(pool(t, x, y)); });
}

TEST(MaxPool2d, NanWinsAndMinusInfinityHasAPlace) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), low = -std::numeric_limits<float>::infinity();
  const auto g = pool({1, 1, 2, 8, 2, 2}, Layout::Nchw, Layout::Nchw);
  const std::vector<float> x = {low, low, nan, 9, 1, nan, 3, 3,  //
                                low, low, 8,   7, 5, nan, 3, 2};
  std::vector<float> y(4);
  std::vector<int64_t> indices(4);
  max_pool2d_forward(g, x.data(), y.data(), indices.data());
  EXPECT_EQ(y[0], low);
  EXPECT_TRUE(std::isnan(y[1]) && std::isnan(y[2]));
  EXPECT_EQ(y[3], 3);
  EXPECT_EQ(indices, (std::vector<int64_t>{0, 2, 5, 6}));
}

TEST(AvgPool2d, ForwardAndBackward) {
  for (const Case& t : kCases)
    for (bool include : {true, false})
      for_layouts([&](Layout x, Layout y) {
        auto g = pool(t, x, y);
        g.count_include_pad = include;
        check_average<float>(g);
        check_average<double>(g);
      });
}

TEST(AvgPool2d, Adaptive) {
  for (int64_t out : {0, 1, 2, 3, 5, 7, 8})
    for_layouts([&](Layout x, Layout y) {
      auto g = pool({2, 6, 7, 5, 1}, x, y);
      g.adaptive = true;
      g.h_out = out, g.w_out = 8 - out;
      set_strides(g.y_strides, y, g.c, g.h_out, g.w_out);
      std::copy(g.y_strides, g.y_strides + 4, g.index_strides);
      check_average<float>(g);
    });
}

}  // namespace
}  // namespace etch::cpu
