// Layers without parameters: activations, Dropout, pooling and Flatten.
#pragma once

#include "nn/module.h"

namespace etch::nn {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x.relu(); }
};

/// The exact form, x * Phi(x).
class GELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x.gelu(); }
};

/// x * sigmoid(x).
class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x.silu(); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x.tanh(); }
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x.sigmoid(); }
};

/// Along one axis, by default the last.
class Softmax : public Module {
 public:
  explicit Softmax(int64_t axis = -1) : axis_(axis) {}
  Tensor forward(const Tensor& x) override { return x.softmax(axis_); }

 private:
  int64_t axis_;
};

/// The input itself: a place holder.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

struct DropoutOptions {
  double p = 0.5;
  Generator* generator = nullptr;  ///< null: the default one; otherwise it must outlive the module
};

/// In training zeroes elements with probability p and scales the others by 1 / (1 - p). Throws ValueError
/// unless 0 <= p < 1.
class Dropout : public Module {
 public:
  explicit Dropout(DropoutOptions options);
  explicit Dropout(double p = 0.5) : Dropout(DropoutOptions{.p = p}) {}
  Tensor forward(const Tensor& x) override;

  DropoutOptions options;
};

struct PoolOptions {
  Pair kernel = 1;
  Pair stride = 0;  ///< 0: the kernel's
  Pair padding = 0;
};

/// The largest of each window: [N, C, H, W] -> [N, C, H', W'].
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(PoolOptions pool) : options(pool) {}
  Tensor forward(const Tensor& x) override;

  PoolOptions options;
};

/// The mean of each window, padding counted as zeros: [N, C, H, W] -> [N, C, H', W'].
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(PoolOptions pool) : options(pool) {}
  Tensor forward(const Tensor& x) override;

  PoolOptions options;
};

/// The mean over H and W: [N, C, H, W] -> [N, C, 1, 1].
class GlobalAvgPool2d : public Module {
 public:
  Tensor forward(const Tensor& x) override;
};

/// Axes [from, to] become one.
class Flatten : public Module {
 public:
  explicit Flatten(int64_t from = 1, int64_t to = -1) : from_(from), to_(to) {}
  Tensor forward(const Tensor& x) override { return x.flatten(from_, to_); }

 private:
  int64_t from_, to_;
};

}  // namespace etch::nn
