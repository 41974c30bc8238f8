// BatchNorm2d and LayerNorm.
#include "nn/layers/norm.h"

#include "eager/functional.h"

namespace etch::nn {

BatchNorm2d::BatchNorm2d(BatchNorm2dOptions o) : options(o) {
  ETCH_CHECK(o.channels > 0 && o.eps > 0, ValueError,
             "BatchNorm2d: expected positive channels and eps, got channels ", o.channels, ", eps ", o.eps);
  weight = register_parameter("weight", ones({o.channels}));
  bias = register_parameter("bias", zeros({o.channels}));
  running_mean = register_buffer("running_mean", zeros({o.channels}));
  running_var = register_buffer("running_var", ones({o.channels}));
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  ETCH_CHECK(x.ndim() == 4 && x.sizes()[1] == options.channels, ShapeError, "BatchNorm2d: expected [N, ",
             options.channels, ", H, W], got ", to_string(x.sizes()));
  return batch_norm(x, weight, bias, running_mean, running_var,
                    {.training = is_training(), .momentum = options.momentum, .eps = options.eps});
}

LayerNorm::LayerNorm(LayerNormOptions o) : options(o) {
  ETCH_CHECK(o.width > 0 && o.eps > 0, ValueError, "LayerNorm: expected positive width and eps, got width ",
             o.width, ", eps ", o.eps);
  weight = register_parameter("weight", ones({o.width}));
  bias = register_parameter("bias", zeros({o.width}));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight, bias, options.eps); }

}  // namespace etch::nn
