// Matrix products and 2-d convolutions of the CPU backend, prepared once per geometry and run on raw
// pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/dtype.h"

namespace etch::onednn {

/// c[i, j, :, :] = a[i, j, :, :] * b[i, j, :, :] (+ bias), with a m x k, b k x n, c m x n and a bias of n.
/// Strides are in elements, in the order batch 0, batch 1, row, column. Operands of a product may have any
/// non-negative strides, 0 for broadcasts; elements of c must not overlap.
struct MatmulGeometry {
  int64_t batch[2] = {1, 1};
  int64_t m = 0, n = 0, k = 0;
  int64_t a_strides[4] = {}, b_strides[4] = {}, c_strides[4] = {};
  DType a = DType::F32, b = DType::F32, c = DType::F32;
  bool bias = false;  // of c's dtype, contiguous
};

/// A convolution of x [n, c_in, h, w] with plain contiguous weights [c_out, c_in / groups, kh, kw] to
/// y [n, c_out, h_out, w_out]; the backward ops use the same geometry, with the gradients in the places of x,
/// y and the weights. Strides are in elements, in the order n, c, h, w; inputs may have zero strides.
/// Channels-last is the fast layout; any other is reordered into scratch.
struct ConvGeometry {
  int64_t n = 0, c_in = 0, h = 0, w = 0;
  int64_t c_out = 0, kh = 0, kw = 0;
  int64_t h_out = 0, w_out = 0;
  int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  int64_t groups = 1;
  int64_t x_strides[4] = {}, y_strides[4] = {};
  DType x = DType::F32, weight = DType::F32, y = DType::F32;
  bool bias = false;  // of y's dtype, contiguous, c_out elements; forward only
};

/// One prepared operation. Immutable: any number of threads may run it at once, each with its own scratch.
/// The result depends on the geometry, the operands and num_threads() at preparation only.
class Contraction {
 public:
  virtual ~Contraction() = default;
  /// Bytes of scratch memory that run() needs, aligned to kScratchAlignment. May be 0.
  size_t scratch_bytes() const { return scratch_bytes_; }
  /// matmul: (a, b, bias) -> c; forward: (x, weight, bias) -> y; backward data: (dy, weight) -> dx; backward
  /// weights: (x, dy) -> dweight. `bias` is ignored unless the geometry has one. `out` is overwritten and
  /// must not overlap the operands. Throws Error when the library fails.
  virtual void run(const void* first, const void* second, const void* bias, void* out,
                   void* scratch) const = 0;
  /// What computes it: the library's name of its kernel, "plain" or "tiles".
  const std::string& implementation() const { return implementation_; }

 protected:
  size_t scratch_bytes_ = 0;
  std::string implementation_;
};

inline constexpr size_t kScratchAlignment = 64;

/// From a process-wide cache keyed by the geometry and num_threads(); preparing anew takes up to a few
/// milliseconds. Floating operands compute in F32, in BF16 with F32 sums when all inputs are BF16; when all
/// dtypes are F64 or all are one integer dtype, plain loops compute in it (integers wrap). Throws DTypeError
/// for other mixes, ShapeError for sizes that do not fit, Error when the library fails.
std::shared_ptr<const Contraction> prepare_matmul(const MatmulGeometry& geometry);
std::shared_ptr<const Contraction> prepare_conv_forward(const ConvGeometry& geometry);
std::shared_ptr<const Contraction> prepare_conv_backward_data(const ConvGeometry& geometry);
std::shared_ptr<const Contraction> prepare_conv_backward_weights(const ConvGeometry& geometry);

/// Whether prepare_matmul() computes each element as one chain of fused multiply-adds over rising k, starting
/// at 0 (tile_product() does). The same for any number of threads.
bool sums_in_order(const MatmulGeometry& geometry);

/// Drops all cached preparations; those in use stay valid.
void clear_cache();
size_t cache_size();

}  // namespace etch::onednn
