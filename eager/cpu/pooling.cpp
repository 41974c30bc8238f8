// A task is one pixel with strips of channels, so that the inner loop runs along channels-last memory.
// Backward passes gather: no task writes where another does.
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

/// The windows that may contain input position `i` along an axis.
Range covering(const PoolGeometry& g, int axis, int64_t i) {
  const int64_t size = axis == 0 ? g.h : g.w, out = axis == 0 ? g.h_out : g.w_out;
  if (g.adaptive) return {i * out / size, ((i + 1) * out + size - 1) / size, 1};
  const int64_t reach = (g.kernel[axis] - 1) * g.dilation[axis], place = i + g.padding[axis];
  const int64_t begin = place <= reach ? 0 : (place - reach + g.stride[axis] - 1) / g.stride[axis];
  return {begin, std::min(out, place / g.stride[axis] + 1), 1};
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
                           const bool wins = value > best[i] || value != value;
                           best[i] = wins ? value : best[i];
                           where[i] = wins ? place : where[i];
                         }
                       });
                     }
                   const int64_t start = offset(g.y_strides, n, channel, ho, wo);
                   with_stride(g.y_strides[1], [&](auto stride) {
                     for (int64_t i = 0; i < count; ++i) {
                       y[start + i * stride] = best[i];
                       indices[start + i * stride] = where[i];
                     }
                   });
                 });
}

template <class T>
void max_pool2d_backward(const PoolGeometry& g, const T* dy, const int64_t* indices, T* dx) {
  for_each_strip(g.n, g.c, g.h, g.w, 4, [&](int64_t n, int64_t h, int64_t w, int64_t channel, int64_t count) {
    const Range rows = covering(g, 0, h), columns = covering(g, 1, w);
    const int64_t place = h * g.w + w;
    T sums[kStrip] = {};
    for (int64_t ho = rows.begin; ho < rows.end; ++ho)
      for (int64_t wo = columns.begin; wo < columns.end; ++wo) {
        const int64_t start = offset(g.y_strides, n, channel, ho, wo);
        with_stride(g.y_strides[1], [&](auto stride) {
          for (int64_t i = 0; i < count; ++i)
            sums[i] += indices[start + i * stride] == place ? dy[start + i * stride] : T(0);
        });
      }
    store(sums, count, dx + offset(g.x_strides, n, channel, h, w), g.x_strides[1]);
  });
}

template <class T>
void avg_pool2d_forward(const PoolGeometry& g, const T* x, T* y) {
  const int64_t work = g.adaptive ? extent(g, 0, 0) * extent(g, 1, 0) : g.kernel[0] * g.kernel[1];
  for_each_strip(g.n, g.c, g.h_out, g.w_out, work,
                 [&](int64_t n, int64_t ho, int64_t wo, int64_t channel, int64_t count) {
                   const Range rows = window(g, 0, ho), columns = window(g, 1, wo);
                   T sums[kStrip] = {};
                   for (int64_t h = rows.begin; h < rows.end; ++h)
                     for (int64_t w = columns.begin; w < columns.end; ++w) {
                       const T* source = x + offset(g.x_strides, n, channel, h, w);
                       with_stride(g.x_strides[1], [&](auto stride) {
                         for (int64_t i = 0; i < count; ++i) sums[i] += source[i * stride];
                       });
                     }
                   const T size = static_cast<T>(divisor(g, ho, wo));
                   for (int64_t i = 0; i < count; ++i) sums[i] /= size;
                   store(sums, count, y + offset(g.y_strides, n, channel, ho, wo), g.y_strides[1]);
                 });
}

template <class T>
void avg_pool2d_backward(const PoolGeometry& g, const T* dy, T* dx) {
  for_each_strip(g.n, g.c, g.h, g.w, 4, [&](int64_t n, int64_t h, int64_t w, int64_t channel, int64_t count) {
    const Range rows = covering(g, 0, h), columns = covering(g, 1, w);
    T sums[kStrip] = {};
    for (int64_t ho = rows.begin; ho < rows.end; ++ho)
      for (int64_t wo = columns.begin; wo < columns.end; ++wo) {
        const T* source = dy + offset(g.y_strides, n, channel, ho, wo);
        const T size = static_cast<T>(divisor(g, ho, wo));
        with_stride(g.y_strides[1], [&](auto stride) {
          for (int64_t i = 0; i < count; ++i) sums[i] += source[i * stride] / size;
        });
      }
    store(sums, count, dx + offset(g.x_strides, n, channel, h, w), g.x_strides[1]);
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
