// Forward kernels run a strip of channels per output pixel, so that the inner loop runs along channels-last
// memory. Backward kernels scatter into images and channels of their own.
#include "eager/cpu/pooling.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "runtime/parallel.h"

namespace etch::cpu {
namespace {

constexpr int64_t kStrip = 64;

struct Range {
  int64_t begin, end, step;
};

/// The input positions of output window `o` along an axis, clipped to the input.
Range window(const PoolGeometry& g, int axis, int64_t o) {
  const int64_t size = axis == 0 ? g.h : g.w, out = axis == 0 ? g.h_out : g.w_out;
  if (g.adaptive) return {o * size / out, ((o + 1) * size + out - 1) / out, 1};
  const int64_t step = g.dilation[axis];
  int64_t begin = o * g.stride[axis] - g.padding[axis];
  const int64_t end = std::min(begin + (g.kernel[axis] - 1) * step + 1, size);
  if (begin < 0) begin += (-begin + step - 1) / step * step;
  return {begin, end, step};
}

int64_t extent(const PoolGeometry& g, int axis, int64_t o) {
  const int64_t size = axis == 0 ? g.h : g.w;
  if (g.adaptive || !g.count_include_pad) {
    const Range range = window(g, axis, o);
    return std::max<int64_t>(0, (range.end - range.begin + range.step - 1) / range.step);
  }
  const int64_t begin = o * g.stride[axis] - g.padding[axis];
  return std::min(begin + g.kernel[axis], size + g.padding[axis]) - begin;
}

int64_t divisor(const PoolGeometry& g, int64_t ho, int64_t wo) { return extent(g, 0, ho) * extent(g, 1, wo); }

/// Calls f(n, h, w, channel, count) over an output-like tensor [n, c, h, w] in strips of channels. `work` is
/// the number of window elements of a pixel.
template <class F>
void for_each_strip(int64_t n, int64_t c, int64_t h, int64_t w, int64_t work, F f) {
  const int64_t cost = std::max<int64_t>(1, work * c);
  parallel_for(n * h * w, std::max<int64_t>(1, 16384 / cost), [&](int64_t begin, int64_t end) {
    int64_t column = begin % w, row = begin / w % h, image = begin / w / h;
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      for (int64_t channel = 0; channel < c; channel += kStrip)
        f(image, row, column, channel, std::min(kStrip, c - channel));
      if (++column == w) {
        column = 0;
        if (++row == h) row = 0, ++image;
      }
    }
  });
}

/// `body(stride)` with a stride the compiler knows when it is 1.
template <class F>
void with_stride(int64_t stride, F body) {
  if (stride == 1)
    body(std::integral_constant<int64_t, 1>());
  else
    body(stride);
}

int64_t offset(const int64_t (&strides)[4], int64_t n, int64_t c, int64_t h, int64_t w) {
  return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
}

template <class T>
void store(const T* values, int64_t count, T* target, int64_t target_stride) {
  with_stride(target_stride, [&](auto stride) {
    for (int64_t i = 0; i < count; ++i) target[i * stride] = values[i];
  });
}

/// Calls f(n, channel, count) over strips of channels of images that together cover x, after setting them to
/// zero: a strip belongs to one task, so that windows can be scattered into it in their order.
template <class T, class F>
void scatter_strips(const PoolGeometry& g, T* dx, F f) {
  // Narrow strips only where there are few images: the width does not change the sums.
  int64_t width = kStrip;
  while (width > 16 && g.n * ((g.c + width - 1) / width) < 2 * num_threads()) width /= 2;
  const int64_t strips = (g.c + width - 1) / width;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, g.h * g.w * width));
  parallel_for(g.n * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / strips, channel = task % strips * width;
      const int64_t count = std::min(width, g.c - channel);
      const T zeros[kStrip] = {};
      for (int64_t h = 0; h < g.h; ++h)
        for (int64_t w = 0; w < g.w; ++w)
          store(zeros, count, dx + offset(g.x_strides, n, channel, h, w), g.x_strides[1]);
      f(n, channel, count);
    }
  });
}

}  // namespace

template <class T>
void max_pool2d_forward(const PoolGeometry& g, const T* x, T* y, int64_t* indices) {
  for_each_strip(g.n, g.c, g.h_out, g.w_out, g.kernel[0] * g.kernel[1],
                 [&](int64_t n, int64_t ho, int64_t wo, int64_t channel, int64_t count) {
                   const Range rows = window(g, 0, ho), columns = window(g, 1, wo);
                   T best[kStrip];
                   int64_t where[kStrip];
                   std::fill_n(best, count, -std::numeric_limits<T>::infinity());
                   std::fill_n(where, count, rows.begin * g.w + columns.begin);
                   for (int64_t h = rows.begin; h < rows.end; h += rows.step)
                     for (int64_t w = columns.begin; w < columns.end; w += columns.step) {
                       const T* source = x + offset(g.x_strides, n, channel, h, w);
                       const int64_t place = h * g.w + w;
                       with_stride(g.x_strides[1], [&](auto stride) {
                         for (int64_t i = 0; i < count; ++i) {
                           const T value = source[i * stride];
                           const bool wins = !(value <= best[i]) && best[i] == best[i];  // the first NaN too
                           best[i] = wins ? value : best[i];
                           where[i] = wins ? place : where[i];
                         }
                       });
                     }
                   store(best, count, y + offset(g.y_strides, n, channel, ho, wo), g.y_strides[1]);
                   store(where, count, indices + offset(g.index_strides, n, channel, ho, wo),
                         g.index_strides[1]);
                 });
}

template <class T>
void max_pool2d_backward(const PoolGeometry& g, const T* dy, const int64_t* indices, T* dx) {
  // In a dense layout an index is a multiple of the column stride.
  const bool dense_rows = g.x_strides[2] == g.w * g.x_strides[3];
  scatter_strips(g, dx, [&](int64_t n, int64_t channel, int64_t count) {
    T* target = dx + offset(g.x_strides, n, channel, 0, 0);
    for (int64_t ho = 0; ho < g.h_out; ++ho)
      for (int64_t wo = 0; wo < g.w_out; ++wo) {
        const T* source = dy + offset(g.y_strides, n, channel, ho, wo);
        const int64_t* where = indices + offset(g.index_strides, n, channel, ho, wo);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t place = where[i * g.index_strides[1]];
          const int64_t pixel = dense_rows ? place * g.x_strides[3]
                                           : place / g.w * g.x_strides[2] + place % g.w * g.x_strides[3];
          target[pixel + i * g.x_strides[1]] += source[i * g.y_strides[1]];
        }
      }
  });
}

template <class T>
void avg_pool2d_forward(const PoolGeometry& g, const T* x, T* y) {
  constexpr int64_t kLanes = 16;
  if (g.h_out * g.w_out == 0) return;
  const int64_t work = g.adaptive ? extent(g, 0, 0) * extent(g, 1, 0) : g.kernel[0] * g.kernel[1];
  for_each_strip(g.n, g.c, g.h_out, g.w_out, work,
                 [&](int64_t n, int64_t ho, int64_t wo, int64_t channel, int64_t count) {
                   const Range rows = window(g, 0, ho), columns = window(g, 1, wo);
                   T sums[kStrip] = {};
                   auto add = [&](int64_t first, auto lanes, auto stride) {
                     T part[kLanes] = {};
                     const T* image = x + offset(g.x_strides, n, channel + first, 0, 0);
                     for (int64_t h = rows.begin; h < rows.end; ++h)
                       for (int64_t w = columns.begin; w < columns.end; ++w) {
                         const T* source = image + h * g.x_strides[2] + w * g.x_strides[3];
                         for (int64_t i = 0; i < lanes; ++i) part[i] += source[i * stride];
                       }
                     for (int64_t i = 0; i < lanes; ++i) sums[first + i] = part[i];
                   };
                   with_stride(g.x_strides[1], [&](auto stride) {
                     int64_t first = 0;
                     for (; first + kLanes <= count; first += kLanes)
                       add(first, std::integral_constant<int64_t, kLanes>(), stride);
                     if (first < count) add(first, count - first, stride);
                   });
                   const T size = static_cast<T>(divisor(g, ho, wo));
                   for (int64_t i = 0; i < count; ++i) sums[i] /= size;
                   store(sums, count, y + offset(g.y_strides, n, channel, ho, wo), g.y_strides[1]);
                 });
}

template <class T>
void avg_pool2d_backward(const PoolGeometry& g, const T* dy, T* dx) {
  scatter_strips(g, dx, [&](int64_t n, int64_t channel, int64_t count) {
    for (int64_t ho = 0; ho < g.h_out; ++ho)
      for (int64_t wo = 0; wo < g.w_out; ++wo) {
        const Range rows = window(g, 0, ho), columns = window(g, 1, wo);
        const T* source = dy + offset(g.y_strides, n, channel, ho, wo);
        const T size = static_cast<T>(divisor(g, ho, wo));
        T shares[kStrip];
        for (int64_t i = 0; i < count; ++i) shares[i] = source[i * g.y_strides[1]] / size;
        for (int64_t h = rows.begin; h < rows.end; ++h)
          for (int64_t w = columns.begin; w < columns.end; ++w) {
            T* target = dx + offset(g.x_strides, n, channel, h, w);
            with_stride(g.x_strides[1], [&](auto stride) {
              for (int64_t i = 0; i < count; ++i) target[i * stride] += shares[i];
            });
          }
      }
  });
}

#define ETCH_INSTANTIATE(T)                                                                \
  template void max_pool2d_forward<T>(const PoolGeometry&, const T*, T*, int64_t*);        \
  template void max_pool2d_backward<T>(const PoolGeometry&, const T*, const int64_t*, T*); \
  template void avg_pool2d_forward<T>(const PoolGeometry&, const T*, T*);                  \
  template void avg_pool2d_backward<T>(const PoolGeometry&, const T*, T*);
ETCH_INSTANTIATE(float)
ETCH_INSTANTIATE(double)
#undef ETCH_INSTANTIATE

}  // namespace etch::cpu
