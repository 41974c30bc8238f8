// BatchNorm2d and LayerNorm.
#pragma once

#include "nn/module.h"

namespace etch::nn {

struct BatchNorm2dOptions {
  int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;
};

/// x [N, C, H, W] normalised over all axes but 1, times weight [C], plus bias [C]. In training with the
/// batch's statistics, which also move the buffers running_mean and running_var; in evaluation with those
/// buffers.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(BatchNorm2dOptions options);
  explicit BatchNorm2d(int64_t channels) : BatchNorm2d(BatchNorm2dOptions{.channels = channels}) {}
  /// Throws ShapeError unless x is [N, channels, H, W].
  Tensor forward(const Tensor& x) override;

  BatchNorm2dOptions options;
  Tensor weight, bias, running_mean, running_var;
};

struct LayerNormOptions {
  int64_t width = 0;
  double eps = 1e-5;
};

/// x [.., width] normalised over the last axis, times weight [width], plus bias [width].
class LayerNorm : public Module {
 public:
  explicit LayerNorm(LayerNormOptions options);
  explicit LayerNorm(int64_t width) : LayerNorm(LayerNormOptions{.width = width}) {}
  Tensor forward(const Tensor& x) override;

  LayerNormOptions options;
  Tensor weight, bias;
};

}  // namespace etch::nn
