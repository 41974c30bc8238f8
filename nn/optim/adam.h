// Adam and AdamW.
#pragma once

#include "nn/optim/optimizer.h"

namespace etch::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

/// m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g^2 and
/// p -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), where g is the gradient plus
/// weight_decay * p and t counts the updates of p. Kingma and Ba, 2015.
class Adam : public Optimizer {
 public:
  /// Throws ValueError for negative options and for betas outside [0, 1).
  Adam(std::vector<Tensor> parameters, AdamOptions options = {})
      : Adam("Adam", std::move(parameters), options, false) {}
  void step() override;

 protected:
  Adam(std::string_view name, std::vector<Tensor> parameters, AdamOptions options, bool decoupled);

 private:
  AdamOptions options_;
  bool decoupled_;
  std::vector<Tensor>& first_moments_;
  std::vector<Tensor>& second_moments_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

/// Adam whose weight decay is apart from the gradient: first p *= 1 - lr * weight_decay. Loshchilov and
/// Hutter, 2019.
class AdamW : public Adam {
 public:
  AdamW(std::vector<Tensor> parameters, AdamWOptions options = {})
      : Adam("AdamW", std::move(parameters),
             {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay}, true) {}
};

}  // namespace etch::optim
