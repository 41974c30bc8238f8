// Two-dimensional pooling kernels on raw pointers: maximum and average, forward and backward.
#pragma once

#include <cstdint>

namespace etch::cpu {

/// Pooling of x [n, c, h, w] to y [n, c, h_out, w_out]. Strides are in elements, in the order n, c, h, w; any
/// are accepted, channels-last is the fast layout. Padding is at most half the kernel, so that every window
/// meets the input.
struct PoolGeometry {
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t h_out = 0, w_out = 0;
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  int64_t x_strides[4] = {}, y_strides[4] = {}, index_strides[4] = {};
  /// Average only: divide by the window's size within the padded input, not within the input.
  bool count_include_pad = true;
  /// Average only: window i spans [floor(i * h / h_out), ceil((i + 1) * h / h_out)); kernel, stride, padding
  /// and dilation are ignored. h_out = w_out = 1 is the global average.
  bool adaptive = false;
};

/// T is float or double. Indices are h * w positions in the input plane. Of equal maxima the first in row
/// order wins; a NaN wins over all numbers, the first NaN over the others.
template <class T>
void max_pool2d_forward(const PoolGeometry& geometry, const T* x, T* y, int64_t* indices);
/// Overwrites dx. Gradients of several windows are added in row order of the windows.
template <class T>
void max_pool2d_backward(const PoolGeometry& geometry, const T* dy, const int64_t* indices, T* dx);

/// Sums run in row order of the window and are divided by its size.
template <class T>
void avg_pool2d_forward(const PoolGeometry& geometry, const T* x, T* y);
/// Overwrites dx with the sums of dy / size over the windows, in row order.
template <class T>
void avg_pool2d_backward(const PoolGeometry& geometry, const T* dy, T* dx);

}  // namespace etch::cpu
