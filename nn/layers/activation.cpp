// Dropout and pooling.
#include "nn/layers/activation.h"

#include "eager/functional.h"

namespace etch::nn {

namespace {

Pool2dOptions window(const PoolOptions& options) {
  return {.kernel = {options.kernel.height, options.kernel.width},
          .stride = {options.stride.height, options.stride.width},
          .padding = {options.padding.height, options.padding.width}};
}

}  // namespace

Dropout::Dropout(DropoutOptions o) : options(o) {
  ETCH_CHECK(o.p >= 0 && o.p < 1, ValueError, "Dropout: expected a probability in [0, 1), got ", o.p);
}

Tensor Dropout::forward(const Tensor& x) { return dropout(x, options.p, is_training(), options.generator); }

Tensor MaxPool2d::forward(const Tensor& x) { return max_pool2d(x, window(options)); }
Tensor AvgPool2d::forward(const Tensor& x) { return avg_pool2d(x, window(options)); }
Tensor GlobalAvgPool2d::forward(const Tensor& x) { return global_avg_pool2d(x); }

}  // namespace etch::nn
