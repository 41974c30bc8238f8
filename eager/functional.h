// Differentiable functions with options: convolution, pooling, normalisation, losses, dropout.
#pragma once

#include <array>

#include "eager/tensor.h"

namespace etch {

struct Conv2dOptions {
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int64_t groups = 1;
};
/// x [N, C, H, W], w [O, C/groups, KH, KW], bias [O] or undefined -> [N, O, H', W'], channels-last in memory.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});

struct Pool2dOptions {
  std::array<int64_t, 2> kernel = {1, 1};
  std::array<int64_t, 2> stride = {0, 0};  ///< 0: the kernel's
  std::array<int64_t, 2> padding = {0, 0};
};
/// NaN wins. The gradient goes to the first of equals, and of NaNs (PyTorch: the last NaN).
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
/// Padding counts as zeros.
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
/// The mean over H and W: [N, C, H, W] -> [N, C, 1, 1].
Tensor global_avg_pool2d(const Tensor& x);

/// Over the last axis, of size D: w and b are [D].
Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps = 1e-5);
/// Over all axes but 1. Training: batch statistics, and running = (1 - momentum) * running + momentum * batch
/// (unbiased variance) in place. Otherwise the running statistics are used.
struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-5;
};
Tensor batch_norm(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& running_mean,
                  Tensor& running_var, const BatchNormOptions& options = {});

enum class Loss { Mean, Sum, None };
struct CrossEntropyOptions {
  Loss reduction = Loss::Mean;
  int64_t ignore_index = -100;
};
/// logits [N, C] or [N, C, ...], target i64 [N] or [N, ...]. The mean is over targets that are not ignored;
/// if all are, it is NaN, as 0 / 0. A target outside [0, C) raises IndexError.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, CrossEntropyOptions options = {});
/// (x - target)^2 and |x - target|. Equal sizes: ShapeError otherwise, as for the losses below.
Tensor mse_loss(const Tensor& x, const Tensor& target, Loss reduction = Loss::Mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Loss reduction = Loss::Mean);
/// -(target * log(p) + (1 - target) * log(1 - p)) of probabilities p in [0, 1], logarithms taken as -100 or
/// more. Floating dtypes: DTypeError otherwise.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& target, Loss reduction = Loss::Mean);
/// The same of p = sigmoid(logits), exact for logits of any size.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Loss reduction = Loss::Mean);
/// Both broadcast to the target's sizes: ShapeError otherwise.
struct BinaryCrossEntropyOptions {
  Loss reduction = Loss::Mean;  ///< Mean: by the number of elements, whatever their weights
  Tensor weight = {};           ///< of each element
  Tensor pos_weight = {};       ///< of the first summand; with logits only, ValueError otherwise
};
Tensor binary_cross_entropy(const Tensor& p, const Tensor& target, const BinaryCrossEntropyOptions& options);
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options);

/// Zeroes elements with probability p and scales the rest by 1 / (1 - p); identity unless training.
Tensor dropout(const Tensor& x, double p, bool training = true, Generator* generator = nullptr);
/// Rows of `weight` [V, D] at i64 `index` [...] -> [..., D].
Tensor embedding(const Tensor& weight, const Tensor& index);
/// x [.., in] times w [out, in] transposed, plus b [out] or undefined.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});

/// In place, no gradients; the composites of tracer/ops.def.
void sgd_step(Tensor& p, const Tensor& g, Tensor& momentum_buffer, double lr, double momentum,
              double dampening, double weight_decay, bool nesterov);
void sgd_plain_step(Tensor& p, const Tensor& g, double lr, double weight_decay);
void adam_step(Tensor& p, const Tensor& g, Tensor& m, Tensor& v, double lr, double beta1, double beta2,
               double eps, double weight_decay, double bias_correction1, double bias_correction2,
               bool decoupled);

}  // namespace etch
